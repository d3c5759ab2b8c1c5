#!/usr/bin/env python3
"""Times ours and the Python peers on one GPU, one after another, and prints ratios.

    scripts/gpu_bench.py FOLDER [steps] [scale] [rollouts] [--peers FOLDER] [--rows mlp,unet1d,...] [--skip-peers ROWS]

FOLDER holds `cfo` (`cargo build --release`) and, for `steps`, `network_speed` (`cargo build --release -p cfo-engine
--example network_speed`). The peers' folder holds jax_cfo.py and torch_cfo.py; without it only ours are timed.

  steps     whole training steps of every network beside the peer that was fastest on it (the default)
  scale     the step of the U-Net against batch, grid and data size, and with batches that come from the host
  rollouts  50 diffusion-reaction trajectories in one batch, 50 % and 100 % of the evaluations of one a snapshot

With cold caches a size that was not run before takes about 15 s to compile; a JAX program takes 10 to 60 s.
"""
import argparse
import json
import re
import subprocess
import sys
import time
from pathlib import Path

# name, our arguments, the peer's program and arguments
ROWS = [
    ("mlp tf32", "tf32 mlp 2048", "jax_cfo.py --system lorenz --precision tf32 --chunk 100 --steps 2000"),
    ("unet1d tf32", "tf32 unet1d 256", "jax_cfo.py --system burgers --precision tf32 --chunk 100 --steps 1000"),
    ("fno1d f32", "f32 fno1d 256", "torch_cfo.py --system burgers --model fno1d --precision fp32 --mode graph --steps 1000"),
    ("dit bf16", "bf16 dit 256", "torch_cfo.py --system dr --model dit --precision bf16 --mode compile --steps 60 --n-traj 60"),
    ("unet2d bf16", "bf16 unet2d 256", "jax_cfo.py --system dr --precision bf16 --steps 60 --n-traj 60"),
    ("unet2d tf32", "tf32 unet2d 256", "jax_cfo.py --system dr --precision tf32 --steps 40 --n-traj 60"),
    ("unet2d forward", "bf16 unet2d 256 forward", ""),
]

# `cfo bench train-step` in bf16: batch, grid, training trajectories, streamed
SCALE = (
    [(256, 128, 4, False), (256, 128, 4, True), (256, 128, 40, False)]
    + [(1024, 128, 4, False), (256, 64, 4, False), (64, 256, 4, False), (64, 128, 4, False)]
    + [(512, 128, 4, False), (128, 128, 4, False), (32, 128, 4, False)]
)


def run(command, timeout):
    start = time.time()
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=timeout)
    except subprocess.TimeoutExpired:
        return "", f"over {timeout:.0f} s", timeout
    error = "" if done.returncode == 0 else (done.stderr.strip().splitlines() or ["?"])[-1][:160]
    return done.stdout, error, time.time() - start


def document(text):
    """The last JSON line, or an indented document."""
    for part in [text, *reversed(text.splitlines())]:
        try:
            return json.loads(part)
        except ValueError:
            pass
    return {}


def peer(options, line, *more):
    program, *arguments = line.split()
    text, error, seconds = run([sys.executable, f"{options.peers}/{program}", *arguments, *more], options.timeout)
    return document(text), error or f"{program.split('_')[0]}, {seconds:.0f} s in all"


def steps(options):
    wanted = [row for row in options.rows.split(",") if row]
    left_out = [row for row in options.skip_peers.split(",") if row]
    table = []
    for name, ours, line in ROWS:
        if wanted and not any(name.startswith(row) for row in wanted):
            continue
        text, error, _ = run([f"{options.folder}/network_speed", "cuda", *ours.split()], options.timeout)
        found = re.search(r"([0-9.]+) ms a step", text)
        mine = float(found.group(1)) if found else None
        print(text.strip() or f"{name}: {error}", flush=True)
        theirs, note = None, ""
        if options.peers and line and not any(name.startswith(row) for row in left_out):
            answer, note = peer(options, line, "--synthetic", "--bench")
            theirs = answer.get("ms_per_step")
            print(f"    peer {name}: {theirs} ms ({note})", flush=True)
        table.append((name, mine, theirs, note))
    print(f"{'row':16}{'ours ms':>10}{'peer ms':>10}{'ratio':>8}")
    for name, mine, theirs, note in table:
        ratio = f"{theirs / mine:.2f}" if mine and theirs else "-"
        print(f"{name:16}{mine or '-':>10}{theirs or '-':>10}{ratio:>8}  {note}")


def bench(options, *arguments):
    command = [f"{options.folder}/cfo", "bench", *arguments, "--device", "cuda:0", "--json"]
    text, error, _ = run(command, options.timeout)
    return document(text), error


def scale(options):
    print(f"{'batch':>6}{'grid':>6}{'data GB':>9}{'streamed':>10}{'ms a step':>11}{'us a sample':>13}{'GiB':>7}")
    for batch, grid, trajectories, streamed in SCALE:
        arguments = ["train-step", "--model", "unet2d", "--precision", "bf16", "--repetitions", "5"]
        arguments += ["--batch", str(batch), "--grid", str(grid), "--trajectories", str(trajectories)]
        answer, error = bench(options, *arguments, *(["--stream"] if streamed else []))
        if not answer:
            print(f"{batch:>6}{grid:>6}  {error}", flush=True)
            continue
        each = 1e3 * answer["median_ms"] / batch
        data, rest = answer["data_bytes"], answer["peak_bytes"] - answer["data_bytes"]
        print(
            f"{batch:>6}{grid:>6}{data / 1e9:>9.2f}{str(streamed):>10}{answer['median_ms']:>11.2f}{each:>13.1f}{rest / 2**30:>7.2f}",
            flush=True,
        )


def rollouts(options):
    """Beside the paper's 49 ms a trajectory at 50 % on an A6000."""
    print(f"{'precision':>10}{'evaluations':>13}{'ms a trajectory':>17}")
    for evaluations in (50, 100):
        arguments = ["rollout", "--model", "unet2d", "--batch", "50", "--nfe", str(evaluations)]
        answer, error = bench(options, *arguments, "--precision", "bf16", "--repetitions", "5", "--trajectories", "4")
        each = answer.get("ms_per_trajectory")
        print(f"{'bf16':>10}{evaluations:>13}{each if each is None else round(each, 3)!s:>17} {error}", flush=True)
    if options.peers:
        script = Path(__file__).with_name("peer_rollouts.py")
        text, error, _ = run([sys.executable, str(script), options.peers, "50", "100"], options.timeout)
        for line in text.splitlines():
            answer = document(line)
            each = f"{answer.get('host_ms', 0):.3f}"
            print(f"{'JAX bf16':>10}{answer.get('budget'):>13}{each:>17} ({answer.get('device_ms', 0):.3f} if left on the device)", flush=True)
        if error:
            print(f"JAX: {error}", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder")
    parser.add_argument("tables", nargs="*", choices=["steps", "scale", "rollouts"], default="steps")
    parser.add_argument("--peers")
    parser.add_argument("--rows", default="", help="of `steps`: only those that begin so")
    parser.add_argument("--skip-peers", default="", help="of `steps`: rows whose peer is not run")
    parser.add_argument("--timeout", type=float, default=150)
    options = parser.parse_args()
    tables = {"steps": steps, "scale": scale, "rollouts": rollouts}
    for name in [options.tables] if isinstance(options.tables, str) else options.tables:
        tables[name](options)


if __name__ == "__main__":
    main()
