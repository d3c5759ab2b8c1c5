#!/usr/bin/env python3
"""Ragged trajectories of the Van der Pol oscillator, as a user's own data: make_van_der_pol.py OUT.npz

120 trajectories with 60 to 100 snapshots each at irregular times, padded to a common length; `lengths` has the numbers
of snapshots that count. NumPy alone, fourth-order Runge-Kutta with small steps."""
import sys

import numpy as np


def velocity(u):
    x, v = u
    return np.array([v, (1 - x * x) * v - x])


def solve(start, times, step=2e-3):
    states, u, t = [], np.array(start), 0.0
    for target in times:
        count = max(1, int(np.ceil((target - t) / step)))
        h = (target - t) / count
        for _ in range(count if target > t else 0):
            a = velocity(u)
            b = velocity(u + h / 2 * a)
            c = velocity(u + h / 2 * b)
            u = u + h / 6 * (a + 2 * b + 2 * c + velocity(u + h * c))
        t = target
        states.append(u)
    return np.array(states)


def main():
    rng = np.random.default_rng(0)
    lengths = rng.integers(60, 101, 120)
    times = np.zeros((120, 100))
    values = np.zeros((120, 100, 2), np.float32)
    for i, n in enumerate(lengths):
        inner = np.sort(rng.uniform(0.0, 6.0, n - 2))
        own = np.concatenate([[0.0], inner, [6.0]])
        own = np.maximum.accumulate(own + 1e-4 * np.arange(n))  # no two at once
        times[i, :n], values[i, :n] = own, solve(rng.uniform(-2, 2, 2), own)
        times[i, n:] = own[-1] + 1e-4 * np.arange(1, 101 - n)
    np.savez(sys.argv[1], times=times, values=values, lengths=lengths.astype(np.int64))


if __name__ == "__main__":
    main()
