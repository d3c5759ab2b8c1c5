"""A forced system with an exact solution, sampled at irregular times of each trajectory's own from starts of its own.

    x' = -x / 2 + mu cos(2 t)      y' = -3 y + nu

    forced.py make FILE [swapped|renamed|unnamed|single|wild]
    forced.py error PREDICTION INITIAL FRAME [FROM]    relative L2 error of the worst trajectory, as JSON
"""

import json
import sys

import numpy as np

RATE = 0.5
DECAY = 3.0


def forced(mu, t):
    """The part of x that follows the forcing."""
    return mu * (RATE * np.cos(2 * t) + 2 * np.sin(2 * t)) / (RATE**2 + 4)


def solution(t0, x0, y0, mu, nu, t):
    x = (x0 - forced(mu, t0)) * np.exp(-RATE * (t - t0)) + forced(mu, t)
    y = nu / DECAY + (y0 - nu / DECAY) * np.exp(-DECAY * (t - t0))
    return np.stack([x, y], axis=-1)


def make(path, kind="plain"):
    random = np.random.default_rng(3)
    count, frames = (1, 24) if kind == "single" else (160, 24)
    times = np.zeros((count, frames))
    values = np.zeros((count, frames, 2), dtype="float32")
    parameters = np.zeros((count, 2))
    for i in range(count):
        gaps = random.exponential(0.14, frames) + 0.01
        times[i] = random.uniform(0, 2) + np.cumsum(gaps) - gaps[0]
        parameters[i] = random.uniform(0.5, 1.5), random.uniform(6, 30)
        start = random.normal(0, 1), random.uniform(0, 8)
        values[i] = solution(times[i, 0], *start, *parameters[i], times[i])
    channels, names = ["x", "y"], ["mu", "nu"]
    if kind == "swapped":
        values, parameters = values[..., ::-1], parameters[:, ::-1]
        channels, names = channels[::-1], names[::-1]
    if kind == "renamed":
        channels = ["x", "z"]
    if kind == "wild":
        values[150] = 3e38
        parameters[151] = 1.0, 60.0
    arrays = dict(times=times, values=values, parameters=parameters)
    if kind != "unnamed":
        arrays.update(channel_names=np.array(channels), parameter_names=np.array(names))
    np.savez(path, **arrays)


def error(prediction, initial, frame, start=None):
    found, given = np.load(prediction), np.load(initial)
    names = [str(name) for name in found["parameter_names"]]
    channels = [str(name) for name in found["channel_names"]]
    worst = 0.0
    indices = json.load(sys.stdin)
    times = found["times"]
    for row, i in enumerate(indices):
        t = times if times.ndim == 1 else times[row]
        by_name = dict(zip(channels, given["values"][i, frame].astype(float)))
        parameters = dict(zip(names, found["parameters"][row]))
        t0 = given["times"][i, frame] if start is None else start
        truth = solution(t0, by_name["x"], by_name["y"], parameters["mu"], parameters["nu"], t)
        own = np.stack([found["values"][row][:, channels.index(name)] for name in "xy"], axis=-1)
        worst = max(worst, float(np.linalg.norm(own - truth) / np.linalg.norm(truth)))
    print(json.dumps(worst))


if __name__ == "__main__":
    command, *arguments = sys.argv[1:]
    if command == "make":
        make(*arguments)
    else:
        prediction, initial, frame, *start = arguments
        error(prediction, initial, int(frame), *(float(value) for value in start))
