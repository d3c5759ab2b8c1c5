"""Settings, command line and data that the JAX and the PyTorch program share. Needs NumPy only."""

import argparse
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Network:
    """The paper's settings for a network and the system it is trained on."""

    shape: tuple  # one state: points, then channels
    frames: int  # snapshots per trajectory
    batch: int
    padding: str = "zeros"


NETWORKS = {
    "mlp": Network((3,), 1001, 2048),  # Lorenz
    "unet1d": Network((100, 1), 101, 256, "circular"),  # Burgers
    "fno": Network((100, 1), 101, 256),  # Burgers
    "unet2d": Network((128, 128, 2), 100, 256),  # diffusion-reaction
    "dit": Network((128, 128, 2), 100, 256),  # diffusion-reaction
}
# Channels of the levels, width of the time code and of its hidden layer.
UNETS = {"unet1d": ((64, 128), 64, 128), "unet2d": ((64, 128, 256), 256, 256)}
# Trainable parameters, a complex weight counted once. `cfo bench` reports the same numbers.
PARAMETERS = {"mlp": 202_499, "unet1d": 602_433, "fno": 591_105, "unet2d": 8_161_794, "dit": 13_643_264}
# Multiplies times in [0, 1] before the sinusoids.
TIME_SCALE = 1000.0
# Amplitude of the training noise.
NOISE = 1e-5


def parse(words=None):
    parser = argparse.ArgumentParser(description="flow matching on quintic splines; defaults are the paper's settings")
    parser.add_argument("--network", choices=NETWORKS, default="mlp")
    parser.add_argument("--data", help=".npz file with `times` and `values` [trajectory, time, ..., channel]")
    parser.add_argument("--test", type=int, default=1, help="the last trajectories of the file are the test set")
    parser.add_argument("--keep", type=float, default=1.0, help="train on this share of the snapshots")
    parser.add_argument("--trajectories", type=int, default=16, help="without --data: random smooth trajectories")
    parser.add_argument("--grid", type=int, help="without --data: points per axis")
    parser.add_argument("--steps", type=int, default=1000)
    parser.add_argument("--batch", type=int)
    parser.add_argument("--rate", type=float, default=1e-4)
    parser.add_argument("--precision", choices=["f32", "tf32", "bf16"], default="f32")
    parser.add_argument("--mode", choices=["eager", "compile", "graph"], default="eager", help="PyTorch only")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--check", action="store_true", help="test the program instead of running it")
    options = parser.parse_args(words)
    network = NETWORKS[options.network]
    options.batch = options.batch or network.batch
    options.frames, options.padding = network.frames, network.padding
    options.shape = tuple(options.grid or side for side in network.shape[:-1]) + network.shape[-1:]
    return options


def subsample(random, trajectories, frames, share):
    """Sorted snapshot indices [trajectory, kept]; both ends are always kept."""
    kept = max(4, round(share * frames))
    inner = np.argsort(random.random((trajectories, frames - 2)), axis=1)[:, : kept - 2] + 1
    ends = np.zeros((trajectories, 1), int)
    return np.sort(np.concatenate([ends, inner, ends + frames - 1], 1), axis=1)


def knots(options, times):
    """Times [trajectory, kept] of the snapshots that training sees, and their indices."""
    frames = subsample(np.random.default_rng(options.seed), *times.shape, options.keep)
    return np.take_along_axis(times, frames, 1).astype(np.float32), frames


def regular_times(options):
    return np.broadcast_to(np.linspace(0.0, 1.0, options.frames), (options.trajectories, options.frames))


def read(options):
    """Standardised trajectories of a file: training values, their knots, test values and times, mean and deviation."""
    with np.load(options.data) as file:
        values, times = file["values"].astype(np.float32, copy=False), np.asarray(file["times"], np.float64)
    count, options.frames = values.shape[:2]
    # `cfo` stores a system without space as [trajectory, time, channel] and a line as [trajectory, time, x, channel].
    options.shape, options.trajectories = values.shape[2:], count - options.test
    times = np.broadcast_to((times - times.min()) / (times.max() - times.min()), (count, options.frames))
    train, axes = values[: options.trajectories], tuple(range(values.ndim - 1))
    mean, deviation = (f(train, axes, dtype=np.float64).astype(np.float32) for f in (np.mean, np.std))
    values = (values - mean) / deviation
    split = options.trajectories
    test = values[split:], times[split:].astype(np.float32)
    return values[:split], knots(options, times[:split]), test, (mean, deviation)


def plan(frames, evaluations):
    """Intervals between snapshots as RK4 steps: starts, ends, steps per span, evaluations.

    With fewer steps than intervals a step spans several of them, and a cubic Hermite polynomial gives the snapshots
    inside, which costs one more evaluation at the end."""
    intervals = frames - 1
    if not evaluations or evaluations >= 4 * intervals:
        steps = max(1, (evaluations or 0) // (4 * intervals))
        return np.arange(intervals), np.arange(1, frames), steps, 4 * intervals * steps
    stride = -(-intervals // max(1, evaluations // 4))
    starts = np.arange(0, intervals, stride)
    return starts, np.minimum(starts + stride, intervals), 1, 4 * len(starts) + 1


def relative_l2(predicted, true, scale):
    """The paper's metric per trajectory, over all snapshots including the given first one."""
    errors = []
    for p, q in zip(predicted, true):
        p, q = (np.asarray(x, np.float64) * scale[1] + scale[0] for x in (p, q))
        errors.append(np.linalg.norm(p - q) / np.linalg.norm(q))
    return errors
