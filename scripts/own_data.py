#!/usr/bin/env python3
"""Nine kinds of one's own data, each with a truth that SciPy integrates: own_data.py KIND OUT.npz [--small] [--seed N]

Needs NumPy and SciPy. `KINDS` names them; a `Case` has the data as a user would hand them over and `truth`, the clean
solution from any state at any times. `scripts/own_data_check.py` trains on them and compares."""
import argparse
from dataclasses import dataclass, field
from typing import Callable

import numpy as np
from scipy.integrate import solve_ivp


@dataclass
class Case:
    """Data, and the solution that they are samples of."""

    velocity: Callable  # (t, u, parameters) -> du/dt, of the state flattened
    times: list  # for each trajectory, increasing
    values: list  # for each trajectory [times, (space...,) channels], as observed
    starts: list  # for each trajectory its first state without noise
    test: list  # trajectories that are held out
    parameters: np.ndarray | None = None
    parameter_names: list = field(default_factory=list)
    periodic: list = field(default_factory=list)
    domain: list = field(default_factory=list)

    def truth(self, i, times):
        """The clean solution of trajectory `i` at times from its own first one on."""
        own = None if self.parameters is None else self.parameters[i]
        return solve(self.velocity, self.starts[i], self.times[i][0], times, own)

    def save(self, path, chosen=None):
        """The trajectories (all, or those chosen) as an `.npz`, padded to the longest."""
        chosen = range(len(self.times)) if chosen is None else chosen
        lengths = np.array([len(self.times[i]) for i in chosen], np.int64)
        longest = lengths.max()
        times = np.zeros((len(chosen), longest))
        values = np.zeros((len(chosen), longest, *self.values[0].shape[1:]), np.float32)
        for row, i in enumerate(chosen):
            n = lengths[row]
            times[row, :n], values[row, :n] = self.times[i], self.values[i]
            times[row, n:] = self.times[i][-1] + np.arange(1, longest - n + 1)
        arrays = dict(times=times, values=values)
        if len(set(lengths)) > 1:
            arrays["lengths"] = lengths
        if self.parameters is not None:
            arrays.update(parameters=self.parameters[list(chosen)], parameter_names=np.array(self.parameter_names))
        if self.periodic:
            arrays.update(periodic=np.array(self.periodic, np.int8), domain=np.array(self.domain, float))
        test = set(self.test)
        validation = set(range(min(test) - len(test), min(test)))
        arrays["split"] = np.array([2 if i in test else 1 if i in validation else 0 for i in chosen], np.int8)
        np.savez(path, **arrays)


def solve(velocity, start, first, times, parameters=None):
    """The states at `times`, integrated from `start` at time `first` to ten digits."""
    shape = np.shape(start)
    flat = np.asarray(start, float).ravel()
    stiff = flat.size > 16
    out = solve_ivp(
        lambda t, u: velocity(t, u.reshape(shape), parameters).ravel(),
        (first, max(times[-1], first + 1e-12)),
        flat,
        method="RK45" if stiff else "DOP853",
        t_eval=np.clip(times, first, None),
        rtol=1e-7 if stiff else 1e-10,
        atol=1e-8 if stiff else 1e-11,
    )
    if not out.success:
        raise RuntimeError(out.message)
    return out.y.T.reshape(len(times), *shape)


def irregular(rng, first, last, count):
    """Times of their own, both ends included, none closer than a fifth of the mean interval."""
    steps = rng.uniform(0.2, 1.8, count - 1)
    return first + (last - first) * np.concatenate([[0.0], np.cumsum(steps) / steps.sum()])


def case(velocity, times, starts, held_out, noise=0.0, rng=None, **more):
    parameters = more.get("parameters")
    values = []
    for i, (own, start) in enumerate(zip(times, starts)):
        clean = solve(velocity, start, own[0], own, None if parameters is None else parameters[i])
        values.append(clean)
    if noise:
        spread = np.concatenate([v.reshape(-1, v.shape[-1]) for v in values]).std(0)
        values = [v + noise * spread * rng.standard_normal(v.shape) for v in values]
    held_out = min(held_out, len(times) // 6)
    test = list(range(len(times) - held_out, len(times)))
    return Case(velocity, times, values, starts, test, **more)


def van_der_pol(t, u, parameters):
    x, v = u
    mu = 1.0 if parameters is None else parameters[0]
    return np.array([v, mu * (1 - x * x) * v - x])


def ragged(rng, small):
    """Van der Pol's oscillator: trajectories of different lengths, each at times of its own."""
    count = 30 if small else 120
    times = [irregular(rng, 0.0, rng.uniform(4, 8), rng.integers(40, 81)) for _ in range(count)]
    return case(van_der_pol, times, rng.uniform(-2, 2, (count, 2)), 8)


def adaptive(rng, small):
    """A neuron that fires (FitzHugh and Nagumo), at the times that a solver chose: dense where it fires, far apart where it recovers."""

    def velocity(t, u, _):
        v, w = u
        return np.array([10 * (v - v**3 / 3 - w + 0.5), 0.8 * (v + 0.7 - 0.8 * w)])

    count = 30 if small else 120
    first = rng.uniform([-2, -1], [2, 1.5], (count, 2))
    chosen = [solve_ivp(lambda t, u: velocity(t, u, None), (0, 20), start, rtol=1e-4, atol=1e-6).t for start in first]
    return case(velocity, chosen, first, 8)


def parameters(rng, small):
    """The same with a damping that differs from trajectory to trajectory."""
    count = 40 if small else 160
    own = np.column_stack([rng.uniform(0.2, 1.8, count)])
    times = [irregular(rng, 0.0, 6.0, 61) for _ in range(count)]
    return case(van_der_pol, times, rng.uniform(-2, 2, (count, 2)), 8, parameters=own, parameter_names=["damping"])


def forced(rng, small):
    """A damped oscillator with a cubic spring, driven by a cosine of the time; the starts are spread over the periods."""

    def velocity(t, u, _):
        x, v = u
        return np.array([v, -0.3 * v - x - 0.5 * x**3 + 1.5 * np.cos(1.4 * t)])

    count = 40 if small else 160
    first = rng.uniform(0, 4, count)
    times = [irregular(rng, t, t + 8.0, 81) for t in first]
    return case(velocity, times, rng.uniform(-1.5, 1.5, (count, 2)), 8)


def starts(rng, small):
    """Pieces of one long record of predators and prey, each with its true time."""

    def velocity(t, u, _):
        x, y = u
        return np.array([x * (1.0 - y), y * (x - 1.0)])

    count = 30 if small else 100
    first = rng.uniform(0, 95, count)
    times = [irregular(rng, t, t + 5.0, 51) for t in first]
    return case(velocity, times, rng.uniform(0.4, 2.0, (count, 2)), 8)


def noisy(rng, small):
    """Predators and prey with measurement noise of 5 % of each species' deviation."""

    def velocity(t, u, _):
        x, y = u
        return np.array([x * (1.0 - y), y * (x - 1.0)])

    count = 40 if small else 160
    times = [np.linspace(0.0, 6.0, 121) for _ in range(count)]
    return case(velocity, times, rng.uniform(0.4, 2.0, (count, 2)), 8, noise=0.05, rng=rng)


def fourier(rng, points, modes):
    """A random smooth periodic function."""
    x = np.arange(points) / points
    k = np.arange(1, modes + 1)[:, None]
    a, b = rng.standard_normal((2, modes, 1)) / k
    return (a * np.cos(2 * np.pi * k * x) + b * np.sin(2 * np.pi * k * x)).sum(0)


def line(rng, small):
    """Burgers' equation with viscosity on a periodic line of 64 points, its derivatives by Fourier."""
    points = 64
    k = 2j * np.pi * np.fft.rfftfreq(points, 1 / points)
    keep = np.arange(points // 2 + 1) <= points // 3

    def velocity(t, u, _):
        c = np.fft.rfft(u[:, 0])
        flux = np.fft.rfft(0.5 * np.fft.irfft(c * keep) ** 2) * keep
        return np.fft.irfft(-k * flux + 0.02 * k * k * c)[:, None]

    count = 24 if small else 120
    times = [np.linspace(0.0, 0.5, 41) for _ in range(count)]
    first = np.array([0.7 * fourier(rng, points, 3)[:, None] for _ in range(count)])
    return case(velocity, times, first, 8, periodic=[1], domain=[[0, 1]])


def bounded(rng, small):
    """A chemical wave with fixed ends on 51 points: diffusion and a cubic reaction, by finite differences."""
    points = 51
    step = 1.0 / (points - 1)

    def velocity(t, u, _):
        rate = np.zeros_like(u)
        rate[1:-1] = 0.01 * (u[2:] - 2 * u[1:-1] + u[:-2]) / step**2 + 4.0 * (u[1:-1] - u[1:-1] ** 3)
        return rate

    x = np.linspace(0, 1, points)
    count = 24 if small else 120
    times = [np.linspace(0.0, 1.0, 41) for _ in range(count)]
    first = []
    for _ in range(count):
        amplitudes = rng.standard_normal(4) / np.arange(1, 5)
        first.append(sum(a * np.sin((i + 1) * np.pi * x) for i, a in enumerate(amplitudes))[:, None])
    return case(velocity, times, np.array(first), 8, periodic=[0], domain=[[0, 1]])


def plane(rng, small):
    """Two substances that react and drift on 23 x 25 points, closed along the first axis and periodic along the second."""
    rows, columns = 23, 25

    def laplacian(u):
        padded = np.concatenate([u[:1], u, u[-1:]])
        along = padded[2:] - 2 * u + padded[:-2]
        return along + np.roll(u, 1, 1) - 2 * u + np.roll(u, -1, 1)

    def velocity(t, u, _):
        a, b = u[..., 0], u[..., 1]
        drift = 0.5 * (np.roll(a, 1, 1) - np.roll(a, -1, 1))
        return np.stack([0.5 * laplacian(a) + a - a**3 - b + drift, 0.2 * laplacian(b) + 0.5 * (a - b)], -1)

    count = 14 if small else 80
    times = [np.linspace(0.0, 3.0, 31) for _ in range(count)]
    first = []
    y = np.cos(np.pi * np.outer(np.arange(4), (np.arange(rows) + 0.5) / rows))
    for _ in range(count):
        both = [sum(np.outer(y[m], fourier(rng, columns, 3)) / (m + 1) for m in range(4)) for _ in range(2)]
        first.append(0.5 * np.stack(both, -1))
    return case(velocity, times, np.array(first), 6, periodic=[0, 1], domain=[[0, rows], [0, columns]])


KINDS = {kind.__name__: kind for kind in [ragged, line, bounded, plane, noisy, parameters, forced, starts, adaptive]}


def make(kind, small=False, seed=0):
    """A case by its name."""
    return KINDS[kind](np.random.default_rng(seed), small)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("kind", choices=KINDS)
    parser.add_argument("out")
    parser.add_argument("--small", action="store_true", help="fewer trajectories")
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    make(arguments.kind, arguments.small, arguments.seed).save(arguments.out)


if __name__ == "__main__":
    main()
