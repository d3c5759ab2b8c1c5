#!/usr/bin/env python3
"""Makes data of many kinds, each with a truth that SciPy integrates: own_data.py KIND OUT.npz [--small] [--seed N]

Needs NumPy and SciPy. `KINDS` names them; a `Case` has the data as a user would hand them over and `truth`, the clean
solution of a trajectory at any times. `scripts/own_data_check.py` trains on them and compares."""
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
    forces: list = field(default_factory=list)  # for each trajectory a function of time, which the velocity gets in place of parameters
    control_times: list = field(default_factory=list)  # for each trajectory the times at which its force was measured
    statics: np.ndarray | None = None  # for each trajectory a field that does not change, which the velocity gets in place of parameters
    periodic: list = field(default_factory=list)
    domain: list = field(default_factory=list)
    unit: np.ndarray | float = 1.0  # stored values are offset + unit * state
    offset: float = 0.0

    def truth(self, i, times):
        """The clean solution of trajectory `i` at times from its own first one on, as a file stores it."""
        given = next((given for given in (self.forces or None, self.statics, self.parameters) if given is not None), None)
        own = None if given is None else given[i]
        return self.offset + self.unit * solve(self.velocity, self.starts[i], self.times[i][0], times, own)

    def save(self, path, chosen=None):
        """The trajectories (all, or those chosen) as an `.npz`, padded to the longest."""
        chosen = range(len(self.times)) if chosen is None else chosen
        lengths = np.array([len(self.times[i]) for i in chosen], np.int64)
        longest = lengths.max()
        times = np.zeros((len(chosen), longest))
        values = np.zeros((len(chosen), longest, *self.values[0].shape[1:]), np.float64 if self.offset else np.float32)
        for row, i in enumerate(chosen):
            n = lengths[row]
            times[row, :n], values[row, :n] = self.times[i], self.values[i]
            times[row, n:] = self.times[i][-1] + np.arange(1, longest - n + 1)
        arrays = dict(times=times, values=values)
        if len(set(lengths)) > 1:
            arrays["lengths"] = lengths
        if self.parameters is not None:
            arrays.update(parameters=self.parameters[list(chosen)], parameter_names=np.array(self.parameter_names))
        if self.forces:
            clocks = np.array([self.control_times[i] for i in chosen])
            force = np.array([self.forces[i](self.control_times[i]) for i in chosen])
            arrays.update(controls=force[..., None], control_times=clocks, control_names=np.array(["force"]))
        if self.statics is not None:
            arrays.update(statics=self.statics[list(chosen)], static_names=np.array(["conductivity"]))
        if self.periodic:
            arrays.update(periodic=np.array(self.periodic, np.int8), domain=np.array(self.domain, float))
        if len(self.times) > 1:
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
    """Irregular times, both ends included, none closer than a fifth of the mean interval."""
    steps = rng.uniform(0.2, 1.8, count - 1)
    return first + (last - first) * np.concatenate([[0.0], np.cumsum(steps) / steps.sum()])


def case(velocity, times, starts, held_out, noise=0.0, rng=None, **more):
    parameters = more.get("forces", more.get("statics", more.get("parameters")))
    values = []
    for i, (own, start) in enumerate(zip(times, starts)):
        clean = solve(velocity, start, own[0], own, None if parameters is None else parameters[i])
        values.append(clean)
    if noise:
        spread = np.concatenate([v.reshape(-1, v.shape[-1]) for v in values]).std(0)
        values = [v + noise * spread * rng.standard_normal(v.shape) for v in values]
    values = [more.get("offset", 0.0) + more.get("unit", 1.0) * v for v in values]
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


def controls(rng, small):
    """A damped oscillator that is driven by a force of its own in each trajectory, which was measured at other times than the state."""

    def velocity(t, u, force):
        x, v = u
        return np.array([v, -0.3 * v - x + force(t)])

    def force():
        frequency, size, phase = rng.uniform(0.2, 2.5, 4), rng.normal(0, 0.6, 4), rng.uniform(0, 2 * np.pi, 4)
        return lambda t: (size * np.sin(np.multiply.outer(t, frequency) + phase)).sum(-1)

    count = 40 if small else 120
    times = [irregular(rng, 0.0, 20.0, 101) for _ in range(count)]
    clocks = [irregular(rng, 0.0, 20.0, 160) for _ in range(count)]
    forces = [force() for _ in range(count)]
    return case(velocity, times, rng.normal(0, 1, (count, 2)), 8, forces=forces, control_times=clocks)


def conductivity(rng, small):
    """Heat on 32 x 32 points of a torus whose conductivity differs from place to place, in another way in each trajectory."""
    side, count = 32, 14 if small else 120

    def velocity(t, u, k):
        rate = np.zeros_like(u)
        for axis in (0, 1):
            between = 0.5 * (k + np.roll(k, -1, axis))
            flow = between * (np.roll(u, -1, axis) - u)
            rate += flow - np.roll(flow, 1, axis)
        return rate

    def smooth(modes):
        return sum(np.outer(fourier(rng, side, modes), fourier(rng, side, modes)) for _ in range(3))[..., None]

    fields = np.array([np.exp(1.2 * smooth(2) / 1.5) for _ in range(count)]).clip(0.05, 6.0)
    first = np.array([smooth(4) for _ in range(count)])
    times = [np.linspace(0.0, 8.0, 33) for _ in range(count)]
    return case(velocity, times, first, 8, statics=fields, periodic=[1, 1], domain=[[0, side], [0, side]])


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


def random_times(rng, count):
    """Sorted uniform times: some pairs of them are nearly equal."""
    return [np.sort(rng.uniform(0.0, 6.0, 80)) for _ in range(count)]


def near(rng, small):
    """Van der Pol's oscillator at uniform random times, two of each trajectory less than a billionth of the span apart."""
    count = 40 if small else 200
    times = random_times(rng, count)
    for own in times:
        own[40] = own[39] + 6e-9
    return case(van_der_pol, times, rng.uniform(-2, 2, (count, 2)), 8)


def near_noisy(rng, small):
    """Van der Pol's oscillator at uniform random times, with measurement noise of 5 %."""
    count = 40 if small else 200
    return case(van_der_pol, random_times(rng, count), rng.uniform(-2, 2, (count, 2)), 8, noise=0.05, rng=rng)


def offset(rng, small):
    """Van der Pol's oscillator on top of a large constant, as pressures and temperatures are measured."""
    count = 30 if small else 120
    times = [irregular(rng, 0.0, 6.0, 61) for _ in range(count)]
    return case(van_der_pol, times, rng.uniform(-2, 2, (count, 2)), 8, offset=101325.0, unit=0.02)


def scales(rng, small):
    """Predators and prey, one of them in units in which its values are a hundred thousand times smaller."""

    def velocity(t, u, _):
        x, y = u
        return np.array([x * (1.0 - y), y * (x - 1.0)])

    count = 30 if small else 120
    times = [irregular(rng, 0.0, 6.0, 61) for _ in range(count)]
    return case(velocity, times, rng.uniform(0.4, 2.0, (count, 2)), 8, unit=np.array([1.0, 1e-5]))


def chaotic(rng, small):
    """The system of Henon and Heiles: four channels, energy is conserved, some orbits are chaotic."""

    def velocity(t, u, _):
        x, y, p, q = u
        return np.array([p, q, -x - 2 * x * y, -y - x * x + y * y])

    count = 40 if small else 160
    times = [irregular(rng, 0.0, 12.0, 81) for _ in range(count)]
    return case(velocity, times, rng.uniform(-0.3, 0.3, (count, 4)), 8)


def single(rng, small):
    """One long record of Van der Pol's oscillator; predictions go on past its end."""
    times = [irregular(rng, 0.0, 30.0 if small else 60.0, 256 if small else 512)]
    return case(van_der_pol, times, np.array([[0.5, 0.0]]), 0)


def derivative(points):
    """Spectral derivatives on a periodic line of length 1: a function of (values, order)."""
    k = 2j * np.pi * np.fft.rfftfreq(points, 1 / points)
    keep = np.arange(points // 2 + 1) <= points // 3
    return lambda u, order=1: np.fft.irfft(np.fft.rfft(u) * k**order * keep, points)


def on_a_line(rng, velocity, first, horizon, **more):
    times = [np.linspace(0.0, horizon, 41) for _ in range(len(first))]
    more = {"periodic": [1], "domain": [[0, 1]], **more}
    return case(velocity, times, np.array(first), 8, **more)


def shallow(rng, small):
    """Shallow water on a periodic line of 64 points: depth and momentum, with a little viscosity."""
    d = derivative(64)

    def velocity(t, u, _):
        h, m = u[:, 0], u[:, 1]
        return np.stack([-d(m) + 2e-3 * d(h, 2), -d(m * m / h + 0.5 * h * h) + 2e-3 * d(m, 2)], -1)

    count = 24 if small else 120
    first = [np.stack([1.0 + 0.1 * fourier(rng, 64, 3), 0.1 * fourier(rng, 64, 3)], -1) for _ in range(count)]
    return on_a_line(rng, velocity, first, 0.6)


def wave(rng, small):
    """The wave equation on a periodic line of 48 points: displacement and velocity."""
    d = derivative(48)

    def velocity(t, u, _):
        return np.stack([u[:, 1], 0.5 * d(u[:, 0], 2)], -1)

    count = 24 if small else 120
    first = [np.stack([fourier(rng, 48, 3), 3.0 * fourier(rng, 48, 3)], -1) for _ in range(count)]
    return on_a_line(rng, velocity, first, 1.0)


def transport(rng, small):
    """A substance that drifts, spreads and reacts on a periodic line of 40 points."""
    d = derivative(40)

    def velocity(t, u, _):
        return (-d(u[:, 0]) + 5e-3 * d(u[:, 0], 2) + u[:, 0] * (1.0 - u[:, 0] ** 2))[:, None]

    count = 24 if small else 120
    return on_a_line(rng, velocity, [0.6 * fourier(rng, 40, 4)[:, None] for _ in range(count)], 1.0)


def string(rng, small):
    """A damped string with fixed ends on 51 points, driven by a force that is periodic in time."""
    points = 51
    x = np.linspace(0, 1, points)
    shape = np.sin(np.pi * x) + 0.5 * np.sin(2 * np.pi * x)

    def velocity(t, u, _):
        rate = np.zeros_like(u)
        rate[1:-1, 0] = u[1:-1, 1]
        rate[1:-1, 1] = 0.2 * (u[2:, 0] - 2 * u[1:-1, 0] + u[:-2, 0]) * (points - 1) ** 2 - 0.5 * u[1:-1, 1]
        rate[1:-1, 1] += 4.0 * np.cos(5.0 * t) * shape[1:-1]
        return rate

    count = 24 if small else 120
    first = []
    for _ in range(count):
        a, b = rng.standard_normal((2, 3, 1)) / np.arange(1, 4)[:, None]
        modes = np.sin(np.pi * np.arange(1, 4)[:, None] * x)
        first.append(np.stack([(0.3 * a * modes).sum(0), (b * modes).sum(0)], -1))
    return on_a_line(rng, velocity, first, 2.0, periodic=[0])


def front(rng, small):
    """Steep fronts that move and merge on a periodic line of 64 points: diffusion and a fast cubic reaction, by finite differences."""

    def velocity(t, u, _):
        laplacian = (np.roll(u, 1, 0) - 2 * u + np.roll(u, -1, 0)) * 64**2
        return 2e-3 * laplacian + 8.0 * (u - u**3) + 0.5 * (1.0 - u * u)

    count = 24 if small else 120
    return on_a_line(rng, velocity, [fourier(rng, 64, 3)[:, None] for _ in range(count)], 1.0)


KINDS = {
    kind.__name__: kind
    for kind in [
        ragged, line, bounded, plane, noisy, parameters, forced, controls, conductivity, starts, adaptive,
        near, near_noisy, offset, scales, chaotic, single, shallow, wave, transport, string, front,
    ]
}  # fmt: skip


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
