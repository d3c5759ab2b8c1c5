#!/usr/bin/env python3
"""Runs `cfo init`, `train`, `evaluate`, `predict` and the Python package on many kinds of data, and compares with SciPy's solution.

own_data_check.py [--cfo BINARY] [--out FOLDER] [--small] [--keep SHARE] [--seeds N] [--set KEY=VALUE]... [--bound ERROR] [KIND...]

Makes each kind of `scripts/own_data.py`, lets `cfo init` choose the recipe, trains with it, and prints a table: the error that
`evaluate` reports against the data, the largest error of a channel relative to its deviation, the error of `predict` against the clean
solution at times that no file has, and the largest difference between `cfo predict` and `cfo.load(...).predict` in Python relative to the
same norm (`-` where the package `cfo` is not installed). Predictions of a single record start at its last snapshot and go on past its end.
Ends with 1 if an error against the solution exceeds its goal (`--bound` for all kinds), if Python differs, or if a training fails."""
import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from own_data import KINDS, make

# Relative L2 errors against the clean solution that the default recipes must reach. Fronts are one cell wide.
GOALS = dict(
    ragged=1e-2, line=3e-2, bounded=3e-2, plane=5e-2, noisy=6e-2, parameters=1e-2, forced=1e-2, controls=2e-2, conductivity=5e-2, starts=1e-2, adaptive=1e-2,
    near=1e-2, near_noisy=6e-2, offset=1e-2, scales=1e-2, chaotic=3e-2, single=5e-2, shallow=3e-2, wave=3e-2, transport=3e-2,
    string=3e-2, front=8e-2,
)  # fmt: skip
# Differences between the command and Python: the same rollout in another batch.
SAME = 1e-4


class Failure(Exception):
    """A command that did not do its work."""


def run(binary, *words):
    done = subprocess.run([binary, *map(str, words)], capture_output=True, text=True)
    if done.returncode != 0:
        raise Failure(f"cfo {' '.join(map(str, words))}\n{done.stdout}{done.stderr}")
    return done.stdout


def relative(case, found, truth):
    """The error in units of each channel, relative to the state without its offset."""
    return np.linalg.norm((found - truth) / case.unit) / np.linalg.norm((truth - case.offset) / case.unit)


def by_command(binary, case, i, run_folder, folder, times):
    """The prediction of trajectory `i` from its true first state, or from the end of a single record."""
    initial, out = folder / f"initial-{i}.npz", folder / f"predicted-{i}.h5"
    words = []
    observed = case.values[i]
    if case.test:
        case.values[i] = observed.copy()
        case.values[i][0] = case.truth(i, case.times[i][:1])[0]  # the truth starts here, whatever was measured
        words = ["--from", repr(float(case.times[i][0]))]
    else:
        words = ["--split", "all", "--frame", "last"]
    case.save(initial, [i])
    case.values[i] = observed
    listed = ",".join(repr(float(t)) for t in times)
    run(binary, "predict", run_folder, "--initial", initial, "--times", listed, "--out", out, "--force", *words)
    return read(out)


def by_python(case, i, run_folder, times):
    """The prediction of trajectory `i` by the Python package; None where it is not installed."""
    try:
        import cfo
    except ImportError:
        return None
    model = cfo.load(run_folder)
    start = case.times[i][0] if case.test else case.times[i][-1]
    state = case.truth(i, [start])[0] if case.test else case.values[i][-1]
    parameters = None if case.parameters is None else case.parameters[i]
    clock = case.control_times[i] if case.forces else None
    controls = (clock, case.forces[i](clock)[:, None]) if case.forces else None
    found = model.predict(state, times, start=float(start), parameters=parameters, controls=controls, statics=None if case.statics is None else case.statics[i])
    return np.asarray(found, float)


def predicted(binary, case, run_folder, folder):
    """Mean error of predictions at times that no file has, and the largest difference of Python's."""
    errors, differences = [], []
    for i in case.test or [0]:
        first, last = case.times[i][0], case.times[i][-1]
        if not case.test:
            first, last = last, last + 0.2 * (last - first)
        times = first + (last - first) * np.linspace(0, 1, 38)[1:]
        truth, found = case.truth(i, times), by_command(binary, case, i, run_folder, folder, times)
        errors.append(relative(case, found, truth))
        other = by_python(case, i, run_folder, times)
        if other is not None:
            differences.append(relative(case, other - found + truth, truth))
    return float(np.mean(errors)), max(differences, default=None)


def read(path):
    import h5py

    with h5py.File(path) as file:
        return np.array(file["values"][0], float)


def thin(case, share):
    """Leaves a random share of the times in each trajectory, with the first and the last."""
    random = np.random.default_rng(1)
    for i, times in enumerate(case.times):
        kept = random.random(len(times)) < share
        kept[[0, -1]] = True
        case.times[i], case.values[i] = np.asarray(times)[kept], np.asarray(case.values[i])[kept]


def check(binary, kind, folder, small, keep, overrides):
    folder.mkdir(parents=True, exist_ok=True)
    case = make(kind, small)
    if keep < 1:
        thin(case, keep)
    data, recipe, run_folder = folder / "data.npz", folder / "recipe.toml", folder / "run"
    case.save(data)
    started = time.perf_counter()
    run(binary, "init", data, "--out", recipe, "--force")
    chosen = time.perf_counter() - started
    started = time.perf_counter()
    sets = [word for override in overrides for word in ("--set", override)]
    trained = json.loads(run(binary, "train", recipe, "--data", data, "--out", run_folder, "--json", *sets))
    seconds = time.perf_counter() - started
    report = json.loads(run(binary, "evaluate", run_folder, "--data", data, "--json"))
    error, difference = predicted(binary, case, run_folder, folder)
    return dict(
        kind=kind,
        operator=trained["operator"],
        steps=trained["steps"],
        init=chosen,
        train=seconds,
        evaluate=report["relative_l2"]["mean"],
        channel=max((one["relative"] for one in report["channels"] if one["relative"] is not None), default=float("nan")),
        predict=error,
        python=difference,
    )


def line(seed, row, goal):
    python = "-" if row["python"] is None else f"{row['python']:.0e}"
    return (
        f"| {row['kind']} | {seed} | {row['operator']} | {row['steps']} | {row['init']:.1f} | {row['train']:.0f} | {row['evaluate']:.2e} "
        f"| {row['channel']:.2e} | {row['predict']:.2e} | {goal:.0e} | {python} |"
    )


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("kinds", nargs="*", metavar="KIND", help=", ".join(KINDS))
    parser.add_argument("--cfo", default="cfo")
    parser.add_argument("--out", type=Path)
    parser.add_argument("--small", action="store_true", help="fewer trajectories")
    parser.add_argument("--keep", type=float, default=1.0, metavar="SHARE", help="share of the times that the files have")
    parser.add_argument("--seeds", type=int, default=1, help="trainings of each kind, with seeds 0, 1, ...")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE")
    parser.add_argument("--bound", type=float, help="in place of each kind's goal")
    arguments = parser.parse_args()
    unknown = [kind for kind in arguments.kinds if kind not in KINDS]
    if unknown:
        parser.error(f"no kind {', '.join(unknown)}; there are {', '.join(KINDS)}")
    with tempfile.TemporaryDirectory() as temporary:
        folder = arguments.out or Path(temporary)
        print("| kind | seed | operator | steps | init, s | train, s | evaluate | worst channel | predict against SciPy | goal | Python |")
        print("|---|---:|---|---:|---:|---:|---:|---:|---:|---:|---:|", flush=True)
        missed = []
        for kind in arguments.kinds or KINDS:
            goal = arguments.bound or GOALS[kind]
            for seed in range(arguments.seeds):
                sets = [*arguments.set, f"train.seed={seed}"] if arguments.seeds > 1 else arguments.set
                try:
                    row = check(arguments.cfo, kind, folder / f"{kind}-{seed}", arguments.small, arguments.keep, sets)
                except Failure as failure:
                    print(f"| {kind} | {seed} | failed: {failure} |", flush=True)
                    missed.append(kind)
                    continue
                print(line(seed, row, goal), flush=True)
                if not row["predict"] <= goal or (row["python"] or 0.0) > SAME:
                    missed.append(kind)
    if missed:
        sys.exit(f"above the goal, different in Python, or failed: {', '.join(missed)}")


if __name__ == "__main__":
    main()
