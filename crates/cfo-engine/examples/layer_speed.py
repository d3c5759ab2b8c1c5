"""Single layers of the engine against PyTorch's, taken in turn in one run.

    cargo build --release -p cfo-engine --example layer_speed
    python layer_speed.py [--threads 2] [--only 2d] [--clock wall]

Times are milliseconds of the result, the input's gradient and the weight's gradient, each the smallest of ten runs.
Ours come first, then PyTorch's, then their ratio (above 1: ours is faster). The default clock is processor time, which
other processes disturb least; with --threads 1 it gives the fairest comparison. GF is 2 * multiplications of the
definition / our time.
"""
import argparse
import os
import subprocess
import time
from pathlib import Path

import torch
import torch.nn.functional as F

ROOT = Path(__file__).resolve().parents[3]


def square(n, s, i, o):
    return ("conv", n, s, s, i, o, 3, 3, 1, 1, 1, 1)


def half(n, s, i, o):
    return ("conv", n, s, s, i, o, 4, 4, 2, 2, 1, 1)


def line(n, s, i, o):
    return ("conv", n, 1, s, i, o, 1, 3, 1, 1, 0, 1)


def line_half(n, s, i, o):
    return ("conv", n, 1, s, i, o, 1, 4, 1, 2, 0, 1)


# name, layer, how often the U-Net has it in this direction
LAYERS = {
    "2d 64 2-64": square(2, 64, 2, 64),
    "2d 64 64-64 (x2)": square(2, 64, 64, 64),
    "2d 64 128-64": square(2, 64, 128, 64),
    "2d 32 64-128": square(2, 32, 64, 128),
    "2d 32 128-128 (x2)": square(2, 32, 128, 128),
    "2d 32 256-128": square(2, 32, 256, 128),
    "2d 16 128-256": square(2, 16, 128, 256),
    "2d 16 256-256 (x2)": square(2, 16, 256, 256),
    "2d 16 512-256": square(2, 16, 512, 256),
    "2d 8 256-256 (x2)": square(2, 8, 256, 256),
    "2d 4x4 64 64-64": half(2, 64, 64, 64),
    "2d 4x4 32 128-128": half(2, 32, 128, 128),
    "2d 4x4 16 256-256 (x2)": half(2, 16, 256, 256),
    "2d 4x4 32 128-256": half(2, 32, 128, 256),
    "2d 4x4 64 64-128": half(2, 64, 64, 128),
    "1d 100 64-64 (x2)": line(64, 100, 64, 64),
    "1d 100 128-64": line(64, 100, 128, 64),
    "1d 50 64-128": line(64, 50, 64, 128),
    "1d 50 128-128 (x2)": line(64, 50, 128, 128),
    "1d 50 256-128": line(64, 50, 256, 128),
    "1d 25 128-128 (x2)": line(64, 25, 128, 128),
    "1d 4 100 64-64": line_half(64, 100, 64, 64),
    "1d 4 50 128-128 (x2)": line_half(64, 50, 128, 128),
    "1d 4 100 64-128": line_half(64, 100, 64, 128),
    "mlp 128-256": ("linear", 2048, 128, 256),
    "mlp 256-256 (x2)": ("linear", 2048, 256, 256),
    "mlp 256-128": ("linear", 2048, 256, 128),
}


def best(function, clock, runs=10):
    function()
    times = []
    for _ in range(runs):
        start = clock()
        function()
        times.append(clock() - start)
    return 1e3 * min(times)


def peer(layer, clock):
    kind, *sizes = layer
    with torch.no_grad():
        if kind == "linear":
            rows, i, o = sizes
            x, w, b, dy = torch.randn(rows, i), torch.randn(o, i), torch.randn(o), torch.randn(rows, o)
            jobs = [lambda: F.linear(x, w, b).relu_(), lambda: dy @ w, lambda: dy.T @ x]
            return [best(job, clock) for job in jobs]
        n, h, wd, i, o, kh, kw, sh, sw, ph, pw = sizes
        results = []
        for layout in (torch.channels_last, torch.contiguous_format):
            x = torch.randn(n, i, h, wd).to(memory_format=layout)
            w = torch.randn(o, i, kh, kw).to(memory_format=layout)
            y = F.conv2d(x, w, stride=(sh, sw), padding=(ph, pw))
            dy = torch.randn_like(y)

            def back(mask):
                return torch.ops.aten.convolution_backward(
                    dy, x, w, None, [sh, sw], [ph, pw], [1, 1], False, [0, 0], 1, mask
                )

            jobs = [
                lambda: F.conv2d(x, w, stride=(sh, sw), padding=(ph, pw)),
                lambda: back([True, False, False]),
                lambda: back([False, True, False]),
            ]
            results.append([best(job, clock) for job in jobs])
        return [min(pair) for pair in zip(*results)]


def products(layer):
    kind, *sizes = layer
    if kind == "linear":
        return sizes[0] * sizes[1] * sizes[2]
    n, h, w, i, o, kh, kw, sh, sw, ph, pw = sizes
    return n * ((h + 2 * ph - kh) // sh + 1) * ((w + 2 * pw - kw) // sw + 1) * i * o * kh * kw


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--only", default="")
    parser.add_argument("--clock", choices=["processor", "wall"], default="processor")
    parser.add_argument("--binary", default=os.environ.get("CARGO_TARGET_DIR", str(ROOT / "target")) + "/release/examples/layer_speed")
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    clock = time.process_time if args.clock == "processor" else time.perf_counter
    environment = dict(os.environ, RAYON_NUM_THREADS=str(args.threads))
    ours = subprocess.Popen([args.binary], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment)
    totals = {}
    for name, layer in LAYERS.items():
        if not name.startswith(args.only):
            continue
        ours.stdin.write(" ".join(str(word) for word in layer) + "\n")
        ours.stdin.flush()
        times = [float(word) for word in ours.stdout.readline().split()]
        times = times[0::2] if args.clock == "processor" else times[1::2]
        theirs = peer(layer, clock)
        flops = 2e-6 * products(layer)
        cells = [f"{a:7.3f} {b:7.3f} {b / a:5.2f} {flops / a:5.0f} GF" for a, b in zip(times, theirs)]
        print(f"{name:24}", " | ".join(cells), flush=True)
        count = 2 if "(x2)" in name else 1
        total = totals.setdefault(name.split()[0], [0.0, 0.0])
        total[0] += count * sum(times)
        total[1] += count * sum(theirs)
    for name, (a, b) in totals.items():
        print(f"{name}: all layers {a:.1f} against {b:.1f} ms, ratio {b / a:.2f}")


main()
