#!/usr/bin/env python3
"""Simulates shallow water on a periodic line and writes it as `.npz`.

    python3 scripts/make_wave.py wave.npz                       # 200 trajectories for training, 20 for testing
    python3 scripts/make_wave.py few.npz --trajectories 50      # the first 50 of them and the same tests

64 points, 101 snapshots over [0, 1.5]. A wave crosses one point between two snapshots, so a spline through a quarter of
the times is wrong by order one. The solution is pseudo-spectral with eight RK4 steps per snapshot. Needs NumPy.
"""

import argparse

import numpy as np

POINTS, FRAMES, HORIZON, TRAIN, TEST, STEPS, VISCOSITY = 64, 101, 1.5, 200, 20, 8, 2e-3
WAVES = np.fft.rfftfreq(POINTS, 1 / POINTS) * 2 * np.pi


def derivative(field, order=1):
    return np.fft.irfft((1j * WAVES) ** order * np.fft.rfft(field, axis=1), n=POINTS, axis=1)


def velocity(state):
    height, flow = state[..., 0], state[..., 1]
    pressure = flow * flow / height + height * height / 2
    return np.stack(
        [
            -derivative(flow) + VISCOSITY * derivative(height, 2),
            -derivative(pressure) + VISCOSITY * derivative(flow, 2),
        ],
        axis=-1,
    )


def runge_kutta(state, step):
    a = velocity(state)
    b = velocity(state + step / 2 * a)
    c = velocity(state + step / 2 * b)
    d = velocity(state + step * c)
    return state + step / 6 * (a + 2 * b + 2 * c + d)


def simulate(random, count):
    modes = np.arange(POINTS // 2 + 1)
    drawn = random.normal(size=(count, modes.size)) + 1j * random.normal(size=(count, modes.size))
    bump = np.fft.irfft(drawn * np.exp(-((modes / 2.5) ** 2)) * (modes > 0), n=POINTS, axis=1)
    state = np.stack([1 + 0.1 * bump / bump.std(), 0 * bump], axis=-1)
    frames = [state]
    for _ in range(FRAMES - 1):
        for _ in range(STEPS):
            state = runge_kutta(state, HORIZON / (FRAMES - 1) / STEPS)
        frames.append(state)
    return np.stack(frames, axis=1)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("out", help="file to write")
    parser.add_argument("--trajectories", type=int, default=TRAIN, help="for training, at most 200")
    given = parser.parse_args()
    random = np.random.default_rng(5)
    train, test = simulate(random, TRAIN)[: given.trajectories], simulate(random, TEST)
    np.savez(
        given.out,
        times=np.linspace(0, HORIZON, FRAMES),
        values=np.concatenate([train, test]),
        split=np.array([0] * len(train) + [2] * TEST, np.int8),
        periodic=np.array([1]),
        domain=np.array([[0.0, 1.0]]),
    )


if __name__ == "__main__":
    main()
