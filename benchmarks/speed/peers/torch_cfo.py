#!/usr/bin/env python3
"""Training steps of flow matching on quintic splines in PyTorch: drawing, forward pass and loss are one function.

    torch_cfo.py --check [--mode eager|compile|graph]         # laws, parameter counts, a falling loss

`--mode graph` captures the compiled step in a CUDA graph."""

import math

import numpy as np
import torch
import torch.nn.functional as F

import settings
import spline
from torch_networks import build, count


def wide(weight, like):
    """A number per sample, shaped to multiply states."""
    return weight.view(-1, *[1] * (like.ndim - 1))


def path(data, trajectory, t):
    """Spline value and velocity [batch, ...], position in the interval and its length [batch] at times t [batch]."""
    values, knots, frames = data
    rows, index, last = knots[trajectory], frames[trajectory], knots.shape[1]

    def take(table, j):
        return table.gather(1, j[:, None])[:, 0]

    i = (torch.searchsorted(rows, t[:, None], right=True)[:, 0] - 1).clamp(0, last - 2)
    first = (i - 1).clamp(0, last - 4)
    value, velocity, tau, length = spline.weights(torch, [take(rows, first + k) for k in range(4)], i - first, t)
    u = [values[trajectory, take(index, first + k)] for k in range(4)]
    # Elementwise: a matrix product could run in TF32, and the velocity is a difference of large terms.
    value, velocity = (sum(wide(w, x) * x for w, x in zip(weights, u)) for weights in (value, velocity))
    return value, velocity, tau, length


def draw(data, batch):
    """Times [batch], states and target velocities [batch, ...] of random trajectories, with noise."""
    values, knots, _ = data
    trajectory = torch.randint(len(values), (batch,), device=values.device)
    start, stop = knots[trajectory, 0], knots[trajectory, -1]
    t = start + (stop - start) * torch.rand(batch, device=values.device)
    state, velocity, tau, length = path(data, trajectory, t)
    z, factors = torch.randn_like(state), spline.training_noise(tau, length, settings.NOISE)
    return t, state + wide(factors[0], state) * z, velocity + wide(factors[1], state) * z


def synthetic(count, frames, shape, device):
    """Sums of four travelling waves, [trajectory, frame, ..., channel]."""
    *grid, channels = shape
    values = torch.empty(count, frames, *shape, device=device)
    time = torch.linspace(0, 1, frames, device=device)[:, None]
    for out in values:
        out.zero_()
        for _ in range(4):
            size, speed, phase = (torch.rand(channels, device=device) for _ in range(3))
            angle = (time * (3 + 17 * speed) + 2 * math.pi * phase).view(frames, *[1] * len(grid), channels)
            for axis, points in enumerate(grid):
                waves = torch.randint(-3, 4, (channels,), device=device)
                x = 2 * math.pi / points * torch.arange(points, device=device)[:, None] * waves
                angle = angle + x.view(1, *[points if i == axis else 1 for i in range(len(grid))], channels)
            out += (size - 0.5) * torch.sin(angle)
    return values


def compiled(options, f):
    return f if options.mode == "eager" else torch.compile(f, dynamic=False)


def capture(f):
    """A CUDA graph of f, after three runs that compile and warm up."""
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            f()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        out = f()

    def replay():
        graph.replay()
        return out

    return replay


class Program:
    """A network with data and weights on the device, ready to train."""

    def __init__(self, options, data=None):
        self.options = options
        self.device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
        if options.mode == "graph" and self.device.type != "cuda":
            raise SystemExit("`--mode graph` needs a GPU; use `--mode compile`")
        tf32 = options.precision != "f32"
        torch.set_float32_matmul_precision("high" if tf32 else "highest")
        torch.backends.cudnn.allow_tf32 = tf32  # cuDNN allows TF32 unless told otherwise
        torch.backends.cudnn.benchmark = True
        torch.manual_seed(options.seed)
        self.chunk = 1 if self.device.type == "cpu" else 10
        if data is None:
            values = synthetic(options.trajectories, options.frames, options.shape, self.device)
            data = values, settings.knots(options, settings.regular_times(options))
        self.data = (data[0], *(torch.from_numpy(x).to(self.device) for x in data[1]))
        self.model = build(options, self.device)
        self.step = self.make_step()

    def evaluate(self, t, u):
        """The network in the chosen precision; the result is float32."""
        with torch.autocast(self.device.type, torch.bfloat16, enabled=self.options.precision == "bf16"):
            return self.model(t, u).float()

    def make_step(self):
        graph = self.options.mode == "graph"
        adam = torch.optim.Adam(
            self.model.parameters(), lr=self.options.rate, betas=(0.9, 0.99), fused=True, capturable=graph
        )

        def loss_of():
            t, u, target = draw(self.data, self.options.batch)
            return F.mse_loss(self.evaluate(t, u), target)

        loss_of = compiled(self.options, loss_of)

        def step():
            adam.zero_grad(set_to_none=True)
            loss = loss_of()
            loss.backward()
            adam.step()
            return loss.detach()

        return capture(step) if graph else step

    def wait(self):
        if self.device.type == "cuda":
            torch.cuda.synchronize()

    def train(self):
        """`chunk` steps, waited for; returns the loss of the last one."""
        for _ in range(self.chunk):
            loss = self.step()
        self.wait()
        return loss

    def forward(self):
        """A function that evaluates the network once on a batch."""
        batch = self.options.batch
        t = torch.linspace(0.0, 1.0, batch, device=self.device)
        u = self.data[0][torch.arange(batch) % len(self.data[0]), 0].contiguous()
        evaluate = compiled(self.options, self.evaluate)

        def run():
            with torch.inference_mode():
                evaluate(t, u)

        if self.options.mode == "graph":
            run = capture(run)

        def waited():
            run()
            self.wait()

        return waited


def check(options):
    """Laws that must hold before a number is believed."""
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    random = np.random.default_rng(0)
    inner = 1 - 0.9 * random.random((5, 8))
    knots = np.sort(np.concatenate([np.zeros((5, 1)), inner, np.ones((5, 1))], 1), 1).astype(np.float32)
    a, b, c = (random.normal(size=(5, 1)) for _ in range(3))
    values = (a + b * knots + c * knots**2).astype(np.float32)[..., None]
    data = [torch.from_numpy(x).to(device) for x in (values, knots, np.tile(np.arange(10), (5, 1)))]
    i, t = np.repeat(np.arange(5), 200), random.random(1000)
    drawn = torch.from_numpy(i).to(device), torch.from_numpy(t.astype(np.float32)).to(device)
    state, velocity, _, _ = (x.cpu().numpy() for x in compiled(options, path)(data, *drawn))
    assert np.abs(state[:, 0] - (a[i, 0] + b[i, 0] * t + c[i, 0] * t**2)).max() < 1e-4, "a path reproduces quadratics"
    assert np.abs(velocity[:, 0] - (b[i, 0] + 2 * c[i, 0] * t)).max() < 2e-2, "and their derivatives"
    for network, expected in settings.PARAMETERS.items():
        assert count(build(settings.parse(["--network", network]), device)) == expected, network
    small = ["--trajectories", "2", "--batch", "256", "--rate", "1e-3", "--mode", options.mode]
    program = Program(settings.parse([*small, "--precision", options.precision]))
    first = float(program.train())
    for _ in range(300 // program.chunk):
        loss = float(program.train())
    assert loss < 0.2 * first, f"the loss falls from {first} to {loss}"
    print("all checks passed")


if __name__ == "__main__":
    chosen = settings.parse()
    if not chosen.check:
        raise SystemExit("give `--check`; `compare.py` times this program")
    check(chosen)
