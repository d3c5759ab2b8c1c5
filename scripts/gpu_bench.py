#!/usr/bin/env python3
"""Times whole training steps of ours and of the Python peers on one GPU, one after another, and prints ratios.

    scripts/gpu_bench.py FOLDER [--peers FOLDER] [--rows mlp,unet1d,...] [--timeout SECONDS]

FOLDER holds `network_speed`, built by `cargo build --release -p cfo-engine --example network_speed`. The peers' folder
holds jax_cfo.py and torch_cfo.py; without it only ours are timed. Every row runs the peer that was fastest on it.
"""
import argparse
import json
import re
import subprocess
import sys
import time

# name, our arguments, the peer's program and arguments
ROWS = [
    ("mlp tf32", "tf32 mlp 2048", "jax_cfo.py --system lorenz --precision tf32 --chunk 100 --steps 2000"),
    ("unet1d tf32", "tf32 unet1d 256", "jax_cfo.py --system burgers --precision tf32 --chunk 100 --steps 1000"),
    ("fno1d f32", "f32 fno1d 256", "torch_cfo.py --system burgers --model fno1d --precision fp32 --mode graph --steps 1000"),
    ("dit bf16", "bf16 dit 256", "torch_cfo.py --system dr --model dit --precision bf16 --mode compile --steps 60"),
    ("unet2d bf16", "bf16 unet2d 256", "jax_cfo.py --system dr --precision bf16 --steps 60"),
    ("unet2d tf32", "tf32 unet2d 256", "jax_cfo.py --system dr --precision tf32 --steps 40"),
]


def run(command, timeout):
    start = time.time()
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=timeout)
    except subprocess.TimeoutExpired:
        return "", f"over {timeout} s", timeout
    error = "" if done.returncode == 0 else (done.stderr.strip().splitlines() or ["?"])[-1][:160]
    return done.stdout, error, time.time() - start


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder")
    parser.add_argument("--peers")
    parser.add_argument("--rows", default="")
    parser.add_argument("--timeout", type=float, default=150)
    options = parser.parse_args()
    wanted = [row for row in options.rows.split(",") if row]
    table = []
    for name, ours, peer in ROWS:
        if wanted and not any(name.startswith(row) for row in wanted):
            continue
        text, error, _ = run([f"{options.folder}/network_speed", "cuda", *ours.split()], options.timeout)
        found = re.search(r"([0-9.]+) ms a step", text)
        mine = float(found.group(1)) if found else None
        print(text.strip() or f"{name}: {error}", flush=True)
        theirs, note = None, ""
        if options.peers:
            program, *arguments = peer.split()
            command = [sys.executable, f"{options.peers}/{program}", *arguments, "--synthetic", "--bench"]
            text, error, seconds = run(command, options.timeout)
            for line in text.splitlines():
                if line.startswith("{"):
                    theirs = json.loads(line).get("ms_per_step")
            note = error or f"{program.split('_')[0]}, {seconds:.0f} s in all"
            print(f"    peer {name}: {theirs} ms ({note})", flush=True)
        table.append((name, mine, theirs, note))
    print(f"{'row':14}{'ours ms':>10}{'peer ms':>10}{'ratio':>8}")
    for name, mine, theirs, note in table:
        ratio = f"{theirs / mine:.2f}" if mine and theirs else "-"
        print(f"{name:14}{mine or '-':>10}{theirs or '-':>10}{ratio:>8}  {note}")


if __name__ == "__main__":
    main()
