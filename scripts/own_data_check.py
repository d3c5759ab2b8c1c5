#!/usr/bin/env python3
"""One's own data through `cfo init`, `train`, `evaluate` and `predict`, against a truth that SciPy integrates.

own_data_check.py [--cfo BINARY] [--out FOLDER] [--small] [--set KEY=VALUE]... [--bound ERROR] [KIND...]

Makes each kind of `scripts/own_data.py`, lets `cfo init` choose the recipe, trains by it, and prints a table: the error that
`evaluate` reports against the data, the error of `predict` against the clean solution at times that no file has, and seconds.
Ends with 1 if an error against the solution exceeds its goal (`--bound` for all kinds)."""
import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from own_data import KINDS, make

# Relative L2 errors against the clean solution that the default recipes must reach.
GOALS = dict(
    ragged=1e-2, line=3e-2, bounded=3e-2, plane=5e-2, noisy=6e-2, parameters=1e-2, forced=1e-2, starts=1e-2, adaptive=1e-2
)


def run(binary, *words):
    done = subprocess.run([binary, *map(str, words)], capture_output=True, text=True)
    if done.returncode != 0:
        raise SystemExit(f"cfo {' '.join(map(str, words))}\n{done.stdout}{done.stderr}")
    return done.stdout


def relative(found, truth):
    return np.linalg.norm(found - truth) / np.linalg.norm(truth)


def predicted(binary, case, run_folder, folder):
    """Errors of predictions from the true first states of the held-out trajectories, at times of their own."""
    errors = []
    for i in case.test:
        first, last = case.times[i][0], case.times[i][-1]
        times = first + (last - first) * np.linspace(0, 1, 38)[1:]
        initial, out = folder / f"initial-{i}.npz", folder / f"predicted-{i}.h5"
        observed = case.values[i]
        case.values[i] = observed.copy()
        case.values[i][0] = case.starts[i]  # the truth starts here, whatever was measured
        case.save(initial, [i])
        case.values[i] = observed
        listed = ",".join(repr(float(t)) for t in times)
        run(binary, "predict", run_folder, "--initial", initial, "--times", listed, "--from", repr(float(first)), "--out", out)
        errors.append(relative(read(out), case.truth(i, times)))
    return float(np.mean(errors))


def read(path):
    import h5py

    with h5py.File(path) as file:
        return np.array(file["values"][0], float)


def check(binary, kind, folder, small, overrides):
    folder.mkdir(parents=True, exist_ok=True)
    case = make(kind, small)
    data, recipe, run_folder = folder / "data.npz", folder / "recipe.toml", folder / "run"
    case.save(data)
    started = time.perf_counter()
    run(binary, "init", data, "--out", recipe)
    chosen = time.perf_counter() - started
    started = time.perf_counter()
    sets = [word for override in overrides for word in ("--set", override)]
    trained = json.loads(run(binary, "train", recipe, "--data", data, "--out", run_folder, "--json", *sets))
    seconds = time.perf_counter() - started
    report = json.loads(run(binary, "evaluate", run_folder, "--data", data, "--json"))
    return dict(
        kind=kind,
        operator=trained["operator"],
        steps=trained["steps"],
        init=chosen,
        train=seconds,
        evaluate=report["relative_l2"]["mean"],
        predict=predicted(binary, case, run_folder, folder),
    )


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("kinds", nargs="*", metavar="KIND", help=", ".join(KINDS))
    parser.add_argument("--cfo", default="cfo")
    parser.add_argument("--out", type=Path)
    parser.add_argument("--small", action="store_true", help="fewer trajectories")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE")
    parser.add_argument("--bound", type=float, help="in place of each kind's goal")
    arguments = parser.parse_args()
    unknown = [kind for kind in arguments.kinds if kind not in KINDS]
    if unknown:
        parser.error(f"no kind {', '.join(unknown)}; there are {', '.join(KINDS)}")
    with tempfile.TemporaryDirectory() as temporary:
        folder = arguments.out or Path(temporary)
        print("| kind | operator | steps | init, s | train, s | evaluate | predict against SciPy | goal |")
        print("|---|---|---:|---:|---:|---:|---:|---:|", flush=True)
        missed = []
        for kind in arguments.kinds or KINDS:
            goal = arguments.bound or GOALS[kind]
            row = check(arguments.cfo, kind, folder / kind, arguments.small, arguments.set)
            print(
                f"| {kind} | {row['operator']} | {row['steps']} | {row['init']:.1f} | {row['train']:.0f} "
                f"| {row['evaluate']:.2e} | {row['predict']:.2e} | {goal:.0e} |",
                flush=True,
            )
            if not row["predict"] <= goal:
                missed.append(kind)
    if missed:
        sys.exit(f"above the goal: {', '.join(missed)}")


if __name__ == "__main__":
    main()
