#!/usr/bin/env python3
"""Velocities of noisy series, cfo's smoothing beside PyNumDiff's methods.

    pip install numpy scipy pynumdiff cvxpy
    cargo build --release -p cfo-numerics --example smooth
    python benchmarks/smoothing.py --smooth target/release/examples/smooth

The signals are PyNumDiff's own (pynumdiff.utils.simulate) at its default step and length, with normal noise whose
deviation is a share of the clean signal's. A number is the root mean square error of the velocity, averaged over
seeds, in units of the root mean square of the true velocity. Ours has no settings. PyNumDiff's optimizer tunes the
others twice: without the truth, given the frequency below which 95 % of the true velocity's power lies ("told"), and
on the true velocity itself ("truth"), which no user has."""

import argparse
import contextlib
import io
import json
import subprocess
import warnings

import numpy as np
from pynumdiff import optimize as tuning
from pynumdiff.kalman_smooth import rtsdiff
from pynumdiff.polynomial_fit import savgoldiff, splinediff
from pynumdiff.utils import simulate

SIGNALS = ["sine", "triangle", "pop_dyn", "linear_autonomous", "pi_cruise_control", "lorenz_x"]
METHODS = {
    "RTS, constant acceleration": (rtsdiff, {"order": 2, "forwardbackward": False}),
    "RTS, constant jerk": (rtsdiff, {"order": 3, "forwardbackward": False}),
    "Savitzky-Golay": (savgoldiff, {}),
    "smoothing spline": (splinediff, {}),
}
try:
    import cvxpy  # noqa: F401
    from pynumdiff.total_variation_regularization import smooth_acceleration

    METHODS["smooth acceleration"] = (smooth_acceleration, {})
except ImportError:
    pass


def ours(program, dt, x):
    text = "".join(f"{i * dt!r},{value!r}\n" for i, value in enumerate(x.tolist()))
    found = subprocess.run([program], input=text, text=True, capture_output=True, check=True)
    rows = np.array([line.split(",") for line in found.stdout.split()], float)
    return rows[:, 1]


def band(dxdt, dt):
    power = np.abs(np.fft.rfft(dxdt - dxdt.mean())) ** 2
    return np.fft.rfftfreq(len(dxdt), dt)[np.searchsorted(np.cumsum(power) / power.sum(), 0.95)]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--smooth", required=True, help="the built example")
    parser.add_argument("--noise", type=float, nargs="+", default=[0.01, 0.05])
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--signals", nargs="+", default=SIGNALS)
    parser.add_argument("--methods", nargs="+", default=list(METHODS))
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    dt, rows = 0.01, []
    for signal in arguments.signals:
        clean, _, _ = getattr(simulate, signal)(noise_parameters=(0, 0), dt=dt)
        for share in arguments.noise:
            errors = {}
            for seed in range(arguments.seeds):
                noise = (0, share * np.std(clean))
                x, _, dxdt = getattr(simulate, signal)(noise_parameters=noise, dt=dt, random_seed=seed)
                size = np.sqrt(np.mean(dxdt**2))
                note = lambda name, found: errors.setdefault(name, []).append(  # noqa: E731
                    np.sqrt(np.mean((found - dxdt) ** 2)) / size
                )
                note("ours", ours(arguments.smooth, dt, x))
                for name in arguments.methods:
                    method, fixed = METHODS[name]
                    for kind, known in [("told", {"bandlimit": band(dxdt, dt)}), ("truth", {"dxdt_truth": dxdt})]:
                        with contextlib.redirect_stdout(io.StringIO()):
                            tuned, _ = tuning.optimize(
                                method, x, dt, search_space_updates=fixed, parallel=False, **known
                            )
                        note(f"{name}, {kind}", method(x, dt, **tuned)[1])
            means = {name: float(np.mean(all)) for name, all in errors.items()}
            rows.append({"signal": signal, "noise": share, **means})
            if not arguments.json:
                print(signal, f"{share:.0%}", *(f"{name} {mean:.3f};" for name, mean in means.items()), flush=True)
    if arguments.json:
        print(json.dumps(rows, indent=1))


if __name__ == "__main__":
    main()
