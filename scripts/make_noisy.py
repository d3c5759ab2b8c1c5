#!/usr/bin/env python3
"""Trajectories with noise and the same without: make_noisy.py lotka-volterra|van-der-pol OUT [--noise 0.05]

100 trajectories of 100 snapshots at irregular times of their own, in OUT-noisy.npz with normal noise of a share of each channel's
deviation, and as they truly are in OUT-clean.npz. NumPy and SciPy."""
import argparse

import numpy as np
from scipy.integrate import solve_ivp

SYSTEMS = {  # the velocity, between what the starts lie, the last time
    "lotka-volterra": (lambda t, u: [1.1 * u[0] - 0.4 * u[0] * u[1], 0.1 * u[0] * u[1] - 0.4 * u[1]], (2, 8), 20),
    "van-der-pol": (lambda t, u: [u[1], (1 - u[0] ** 2) * u[1] - u[0]], (-2, 2), 8),
}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("system", choices=SYSTEMS)
    parser.add_argument("out")
    parser.add_argument("--noise", type=float, default=0.05)
    parser.add_argument("--trajectories", type=int, default=100)
    parser.add_argument("--snapshots", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    velocity, (low, high), last = SYSTEMS[arguments.system]
    rng = np.random.default_rng(arguments.seed)
    count, frames = arguments.trajectories, arguments.snapshots
    times, values = np.zeros((count, frames)), np.zeros((count, frames, 2))
    for i in range(count):
        own = np.sort(rng.uniform(0, last, frames))
        own[0] = 0
        times[i] = own + 1e-4 * np.arange(frames)  # no two at once
        start = rng.uniform(low, high, 2)
        found = solve_ivp(velocity, (0, times[i, -1]), start, t_eval=times[i], rtol=1e-9, atol=1e-10)
        values[i] = found.y.T
    deviation = values.reshape(-1, 2).std(0)
    noise = np.random.default_rng(arguments.seed + 1).standard_normal(values.shape)
    np.savez(f"{arguments.out}-clean.npz", times=times, values=values.astype(np.float32))
    noisy = values + arguments.noise * deviation * noise
    np.savez(f"{arguments.out}-noisy.npz", times=times, values=noisy.astype(np.float32))


if __name__ == "__main__":
    main()
