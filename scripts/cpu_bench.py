#!/usr/bin/env python3
"""Training steps and forward passes on the CPU, ours and the peers' in turn: cpu_bench.py [CFO] [--peers FOLDER] [--rounds N] [--only PART]

CFO is the release binary (target/release/cfo), FOLDER holds jax_cfo.py and torch_cfo.py; run it with a Python that has jax and torch, on a quiet
machine, in about five minutes. Each round times all three one after another, so that noise hits them alike; the table has each one's best median
over the rounds and the ratio of the faster peer to ours (above 1: ours is faster). PyTorch runs eagerly unless --torch-mode says compile."""
import argparse
import json
import os
import subprocess
import sys

ROWS = {
    "MLP, batch 2048": (["--model", "mlp", "--batch", "2048"], ["--system", "lorenz", "--batch", "2048", "--n-traj", "16"]),
    "U-Net 1D, batch 64": (["--model", "unet1d", "--batch", "64"], ["--system", "burgers", "--batch", "64", "--n-traj", "16"]),
    "FNO, batch 64": (["--model", "fno", "--batch", "64"], ["--system", "burgers", "--model", "fno1d", "--batch", "64", "--n-traj", "16"]),
    "U-Net 2D, batch 2, 64 x 64": (["--model", "unet2d", "--batch", "2", "--grid", "64"], ["--system", "dr", "--batch", "2", "--size", "64", "--n-traj", "4"]),
    "DiT, batch 2, 64 x 64": (["--model", "dit", "--batch", "2", "--grid", "64"], ["--system", "dr", "--model", "dit", "--batch", "2", "--size", "64", "--n-traj", "4"]),
}
HERE = os.path.dirname(os.path.abspath(__file__))


class Ours:
    def __init__(self, binary, options):
        self.command = [binary, "bench", "--device", "cpu", "--json", "--trajectories", "16", *options]
        self.expected = {}

    def time(self, what, seconds):
        """The median of as many runs as fit the time, judged by the call before."""
        repetitions = max(3, int(seconds / self.expected.get(what, seconds / 8)))
        command = [*self.command[:2], {"train": "train-step"}.get(what, what), *self.command[2:], "--repetitions", str(repetitions)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=600)
        if done.returncode != 0:
            sys.exit(f"failed: {' '.join(command)}\n{done.stderr[-400:]}")
        found = json.loads(done.stdout)
        # Short runs are timed in groups of at least 0.02 s.
        self.expected[what] = max(found["median_ms"] / 1e3, 0.02)
        return found["median_ms"]

    def close(self):
        pass


class Peer:
    def __init__(self, folder, name, options):
        command = [sys.executable, os.path.join(HERE, "cpu_peer.py"), folder, name, *options]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    def ready(self):
        if self.process.stdout.readline().strip() != "ready":
            print(f"a peer failed: {self.process.stderr.read()[-400:]}", file=sys.stderr)
            return None
        return self

    def time(self, what, seconds):
        self.process.stdin.write(f"{what} {seconds}\n")
        self.process.stdin.flush()
        return float(self.process.stdout.readline().split()[0])

    def close(self):
        self.process.stdin.close()
        self.process.wait(timeout=60)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("binary", nargs="?", default=os.path.join(HERE, "..", "target", "release", "cfo"))
    parser.add_argument("--peers", default=os.path.join(HERE, "..", "..", "shared", "peers"))
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--seconds", type=float, default=1.0, help="time for each measurement")
    parser.add_argument("--only", default="", help="part of a row's name")
    parser.add_argument("--torch-mode", default="eager", choices=["eager", "compile"])
    arguments = parser.parse_args()
    print("| | cfo, ms | JAX, ms | PyTorch, ms | faster peer / cfo |\n|---|---:|---:|---:|---:|", flush=True)
    for name, (mine, theirs) in ROWS.items():
        if arguments.only.lower() not in name.lower():
            continue
        jax = Peer(arguments.peers, "jax", theirs)
        torch = Peer(arguments.peers, "torch", [*theirs, "--mode", arguments.torch_mode])
        programs = [Ours(arguments.binary, mine), jax.ready(), torch.ready()]
        for what, label in [("train", "training step"), ("forward", "forward pass")]:
            best = [None, None, None]
            for _ in range(arguments.rounds):
                for i, program in enumerate(programs):
                    if program is not None:
                        found = program.time(what, arguments.seconds)
                        best[i] = found if best[i] is None else min(best[i], found)
            peers = [x for x in best[1:] if x is not None]
            ratio = f"{min(peers) / best[0]:.2f}" if peers else "-"
            cells = ["-" if x is None else f"{x:.2f}" if x < 10 else f"{x:.1f}" for x in best]
            print(f"| {name}: {label} | {' | '.join(cells)} | {ratio} |", flush=True)
        for program in programs:
            if program is not None:
                program.close()


if __name__ == "__main__":
    main()
