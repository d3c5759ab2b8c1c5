#!/usr/bin/env python3
"""Whole training steps on the CPU, ours and the peers' programs in turn: cpu_bench.py CFO --peers FOLDER [--rounds N]

CFO is the release binary, FOLDER holds jax_cfo.py and torch_cfo.py; run it with a Python that has jax and torch. Each round runs all three one
after another, so that noise hits them alike; the table has each one's best median and the ratio of the faster peer to ours (above 1: ours is faster)."""
import argparse
import json
import os
import subprocess
import sys

ROWS = {
    "mlp, batch 2048": (["--model", "mlp", "--batch", "2048"], ["--system", "lorenz", "--batch", "2048", "--n-traj", "16"]),
    "U-Net 1D, batch 64": (["--model", "unet1d", "--batch", "64"], ["--system", "burgers", "--batch", "64", "--n-traj", "16"]),
    "FNO, batch 64": (["--model", "fno", "--batch", "64"], ["--system", "burgers", "--model", "fno1d", "--batch", "64", "--n-traj", "16"]),
    "U-Net 2D, batch 2, 64 x 64": (["--model", "unet2d", "--batch", "2", "--grid", "64"], ["--system", "dr", "--batch", "2", "--size", "64", "--n-traj", "4"]),
    "DiT, batch 2, 64 x 64": (["--model", "dit", "--batch", "2", "--grid", "64"], ["--system", "dr", "--model", "dit", "--batch", "2", "--size", "64", "--n-traj", "4"]),
}


def run(command):
    done = subprocess.run(command, capture_output=True, text=True, timeout=600)
    lines = done.stdout.strip().splitlines()
    if done.returncode != 0 or not lines:
        print(f"failed: {' '.join(command)}\n{done.stderr[-400:]}", file=sys.stderr)
        return None
    return done.stdout


def ours(binary, options):
    out = run([binary, "bench", "train-step", "--device", "cpu", "--json", "--repetitions", "20", "--trajectories", "16", *options])
    return json.loads(out)["median_ms"] if out else None


def peer(folder, program, options):
    extra = ["--mode", "eager"] if program.startswith("torch") else []
    out = run([sys.executable, os.path.join(folder, program), "--synthetic", "--bench", "--steps", "20", *options, *extra])
    return json.loads(out.strip().splitlines()[-1])["ms_per_step"] if out else None


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("binary")
    parser.add_argument("--peers", required=True)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--only", help="part of a row's name")
    arguments = parser.parse_args()
    print("| training step | cfo ms | JAX ms | PyTorch ms | faster peer / cfo |\n|---|---:|---:|---:|---:|")
    for name, (mine, theirs) in ROWS.items():
        if arguments.only and arguments.only not in name:
            continue
        best = [None, None, None]
        for _ in range(arguments.rounds):
            found = [ours(arguments.binary, mine), peer(arguments.peers, "jax_cfo.py", theirs), peer(arguments.peers, "torch_cfo.py", theirs)]
            best = [min(x for x in pair if x is not None) if any(x is not None for x in pair) else None for pair in zip(best, found)]
        peers = [x for x in best[1:] if x is not None]
        ratio = f"{min(peers) / best[0]:.2f}" if peers and best[0] else "-"
        cells = ["-" if x is None else f"{x:.1f}" for x in best]
        print(f"| {name} | {' | '.join(cells)} | {ratio} |", flush=True)


if __name__ == "__main__":
    main()
