#!/usr/bin/env python3
"""The cost of calling cfo from Python, beside the command. Run it with a Python that has the package installed.

    python benchmarks/python_cost.py [--cfo target/release/cfo]

Prints the time of `predict` for 64 Lorenz states at one time, of `velocity`, the delay of Ctrl-C in a training, and
training steps per second from Python and from the command, in turn. Ratios are of the best times of each.
"""

import argparse
import json
import os
import signal
import statistics
import subprocess
import tempfile
import threading
import time
from pathlib import Path

import numpy as np

import cfo

STEPS, ROUNDS = 1500, 5
RECIPE = f"""
[operator]
kind = "mlp"
hidden = [128, 128, 128]
[train]
steps = {STEPS}
batch = 512
report_every = 100
validate_every = 0
checkpoint_every = 0
"""


def microseconds(work, count=500):
    work()
    times = []
    for _ in range(count):
        began = time.perf_counter()
        work()
        times.append(time.perf_counter() - began)
    return f"{1e6 * min(times):.0f} us at best, {1e6 * statistics.median(times):.0f} us median"


def interrupted(data):
    """Milliseconds from the signal to the exception."""
    sent = []

    def send():
        sent.append(time.monotonic())
        os.kill(os.getpid(), signal.SIGINT)

    threading.Timer(0.7, send).start()
    try:
        cfo.train(data, RECIPE, steps=10_000_000, device="cpu", progress=False)
    except KeyboardInterrupt:
        return 1e3 * (time.monotonic() - sent[0])
    raise SystemExit("it was not interrupted")


def rate(history):
    """Steps per second of the best report."""
    return max(report["steps_per_second"] for report in history[1:])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cfo", default="target/release/cfo")
    command = os.path.abspath(parser.parse_args().cfo)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        data = cfo.simulate("lorenz", samples=100, seed=0, frames=201, horizon=1.0)
        data.save(folder / "a.npz")
        (folder / "recipe.toml").write_text(RECIPE)
        data = cfo.read(folder / "a.npz")
        rates = {"python": [], "command": []}
        for round_ in range(ROUNDS):
            model = cfo.train(data, RECIPE, device="cpu", progress=False, out=folder / f"python{round_}")
            rates["python"].append(rate(model.history))
            run = folder / f"command{round_}"
            words = [command, "train", "recipe.toml", "--data", "a.npz", "--out", run, "--device", "cpu"]
            subprocess.run(words, cwd=folder, check=True, capture_output=True)
            rates["command"].append(
                rate([json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()])
            )
        states = np.array([one.values[0] for one in data[:64]])
        print("predict of 64 states at one time:", microseconds(lambda: model.predict(states, [0.005], start=0.0)))
        print("velocity of 64 states:", microseconds(lambda: model.velocity(states, 0.0)))
        print("velocity of one state:", microseconds(lambda: model.velocity(states[0], 0.0)))
        print("Ctrl-C:", ", ".join(f"{interrupted(data):.0f} ms" for _ in range(5)))
        best = {name: max(found) for name, found in rates.items()}
        print("steps per second:", {name: [round(one) for one in found] for name, found in rates.items()})
        print(f"Python against the command: {best['python'] / best['command']:.3f}")


if __name__ == "__main__":
    main()
