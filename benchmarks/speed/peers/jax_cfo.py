#!/usr/bin/env python3
"""Flow matching on quintic splines in JAX: a compiled scan draws batches, differentiates and updates on the device.

jax_cfo.py --check                                        # laws, parameter counts, a falling loss
jax_cfo.py --network mlp --data FILE --test 100 ...       # trains and prints the test error as JSON
"""

import functools
import json
import math
import time

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

import settings
import spline
from jax_networks import build, count


def wide(weight, like):
    """A number per sample, shaped to multiply states."""
    return weight.reshape(-1, *[1] * (like.ndim - 1))


def segment(knots, trajectory, t):
    """Index i with knots[trajectory, i] <= t < knots[trajectory, i + 1], by bisection on each trajectory's times."""
    low, high = jnp.zeros_like(trajectory), jnp.full_like(trajectory, knots.shape[1] - 2)
    for _ in range(math.ceil(math.log2(knots.shape[1] - 1))):
        middle = (low + high + 1) // 2
        right = knots[trajectory, middle] <= t
        low, high = jnp.where(right, middle, low), jnp.where(right, high, middle - 1)
    return low


def path(data, trajectory, t):
    """Spline value and velocity [batch, ...], position in the interval and its length [batch] at times t [batch]."""
    values, knots, frames = data
    i = segment(knots, trajectory, t)
    first = jnp.clip(i - 1, 0, knots.shape[1] - 4)
    value, velocity, tau, length = spline.weights(jnp, [knots[trajectory, first + k] for k in range(4)], i - first, t)
    u = [values.at[trajectory, frames[trajectory, first + k]].get(mode="promise_in_bounds") for k in range(4)]
    # Elementwise: a matrix product could run in TF32, and the velocity is a difference of large terms.
    value, velocity = (sum(wide(w, x) * x for w, x in zip(weights, u)) for weights in (value, velocity))
    return value, velocity, tau, length


def draw(key, data, batch):
    """Times [batch], states and target velocities [batch, ...] of random trajectories, with noise."""
    values, knots, _ = data
    kt, ku, kz = jax.random.split(key, 3)
    trajectory = jax.random.randint(kt, (batch,), 0, len(values))
    start, stop = knots[trajectory, 0], knots[trajectory, -1]
    t = start + (stop - start) * jax.random.uniform(ku, (batch,))
    state, velocity, tau, length = path(data, trajectory, t)
    z, factors = jax.random.normal(kz, state.shape), spline.training_noise(tau, length, settings.NOISE)
    return t, state + wide(factors[0], state) * z, velocity + wide(factors[1], state) * z


def trainer(options, apply, chunk, fused, b1=0.9, b2=0.99, eps=1e-8):
    """`start(parameters, key)` and `run(state, data)`, which makes `chunk` Adam steps and returns their losses."""

    def loss_of(parameters, key, data):
        t, u, target = draw(key, data, options.batch)
        return jnp.mean((apply(parameters, t, u) - target) ** 2)

    def step(state, data):
        parameters, m, v, n, key = state
        loss, g = jax.value_and_grad(loss_of)(parameters, jax.random.fold_in(key, n), data)
        n = n + 1
        m = jax.tree.map(lambda m, g: b1 * m + (1 - b1) * g, m, g)
        v = jax.tree.map(lambda v, g: b2 * v + (1 - b2) * g * g, v, g)
        c1, c2 = 1 - b1 ** n.astype(jnp.float32), 1 - b2 ** n.astype(jnp.float32)
        update = functools.partial(jax.tree.map, lambda p, m, v: p - options.rate * (m / c1) / (jnp.sqrt(v / c2) + eps))
        return (update(parameters, m, v), m, v, n, key), loss

    single = jax.jit(step, donate_argnums=0)
    scanned = jax.jit(
        lambda state, data: lax.scan(lambda s, _: step(s, data), state, None, length=chunk), donate_argnums=0
    )

    def separate(state, data):
        losses = []
        for _ in range(chunk):
            state, loss = single(state, data)
            losses.append(loss)
        return state, jnp.stack(losses)

    def start(parameters, key):
        m, v = (jax.tree.map(jnp.zeros_like, parameters) for _ in range(2))
        return parameters, m, v, jnp.zeros((), jnp.int32), key

    return start, scanned if fused else separate


def rk4(f, t, u, h):
    """One step of length h [batch]; also returns the velocity at its start."""
    w = wide(h, u)
    k1 = f(t, u)
    k2 = f(t + h / 2, u + w / 2 * k1)
    k3 = f(t + h / 2, u + w / 2 * k2)
    k4 = f(t + h, u + w * k3)
    return u + w / 6 * (k1 + 2 * k2 + 2 * k3 + k4), k1


def rollout(apply, frames, evaluations=None):
    """A program (parameters, first states, times [batch, frame]) -> states, and the evaluations it makes."""
    starts, ends, steps, evaluations = settings.plan(frames, evaluations)
    dense = len(starts) < frames - 1

    def roll(parameters, first, times):
        f = functools.partial(apply, parameters)

        def one(u, span):
            t, h = span[0], (span[1] - span[0]) / steps
            new, slope = rk4(f, t, u, h)
            for i in range(1, steps):
                new = rk4(f, t + i * h, new, h)[0]
            return new, (new, slope if dense else ())

        last, (us, ks) = lax.scan(one, first, (times[:, starts].T, times[:, ends].T))
        us = jnp.concatenate([first[None], us])
        if dense:
            ks = jnp.concatenate([ks, f(times[:, -1], last)[None]])
            s = np.minimum(np.arange(frames) // ends[0], len(starts) - 1)  # the step that each snapshot lies in
            h = times[:, ends[s]] - times[:, starts[s]]
            shape = (frames, len(first), *[1] * (first.ndim - 1))
            x, h = ((times - times[:, starts[s]]) / h).T.reshape(shape), h.T.reshape(shape)
            us = (
                (1 + 2 * x) * (1 - x) ** 2 * us[s]
                + x * (1 - x) ** 2 * h * ks[s]
                + x * x * (3 - 2 * x) * us[s + 1]
                + x * x * (x - 1) * h * ks[s + 1]
            )
        return jnp.moveaxis(us, 0, 1)

    return jax.jit(roll), evaluations


def synthetic(key, count, frames, shape):
    """Sums of four travelling waves, [trajectory, frame, ..., channel]."""
    *grid, channels = shape

    def along(x, axis, size):
        return x.reshape([size if i == axis else 1 for i in range(len(shape))] + [-1])

    def one(key):
        ka, kw, kp, kk = jax.random.split(key, 4)
        size, speed = jax.random.normal(ka, (4, channels)) / 2, jax.random.uniform(
            kw, (4, channels), minval=3.0, maxval=20.0
        )
        phase = 2 * jnp.pi * jax.random.uniform(kp, (4, channels))
        waves, out = jax.random.randint(kk, (4, len(grid), channels), -3, 4), 0.0
        for j in range(4):
            angle = along(jnp.linspace(0, 1, frames)[:, None] * speed[j] + phase[j], 0, frames)
            for axis, points in enumerate(grid):
                x = 2 * jnp.pi * jnp.arange(points)[:, None] / points
                angle = angle + along(x * waves[j, axis], axis + 1, points)
            out = out + size[j] * jnp.sin(angle)
        return out

    return jax.jit(lambda keys: lax.map(one, keys))(jax.random.split(key, count))


class Program:
    """A network with data and weights on the device, ready to train."""

    def __init__(self, options, data=None):
        jax.config.update("jax_default_matmul_precision", "highest" if options.precision == "f32" else "default")
        # XLA runs convolutions inside loops ten times slower on a CPU, so U-Nets take one step per call there.
        on_cpu = jax.devices()[0].platform == "cpu"
        fused = not (on_cpu and options.network.startswith("unet"))
        self.chunk = 1 if not fused else 5 if on_cpu else 10 if options.network in ("unet2d", "dit") else 100
        self.options, self.key = options, jax.random.key(options.seed, impl="rbg")
        if data is None:
            values = synthetic(jax.random.fold_in(self.key, 1), options.trajectories, options.frames, options.shape)
            data = values, settings.knots(options, settings.regular_times(options))
        self.data = (jnp.asarray(data[0]), *map(jnp.asarray, data[1]))
        init, self.apply = build(options)
        self.parameters = init(jax.random.fold_in(self.key, 2))
        start, self.run = trainer(options, self.apply, self.chunk, fused)
        # Training reuses the memory of the state it is given.
        self.state = start(jax.tree.map(jnp.copy, self.parameters), jax.random.fold_in(self.key, 3))

    def train(self):
        """`chunk` steps, waited for."""
        self.state, losses = self.run(self.state, self.data)
        jax.block_until_ready((self.state, losses))
        return losses

    def forward(self):
        """A function that evaluates the network once on a batch."""
        batch, evaluate = self.options.batch, jax.jit(self.apply)
        t, u = jnp.linspace(0.0, 1.0, batch), self.data[0][jnp.arange(batch) % len(self.data[0]), 0]
        return lambda: evaluate(self.parameters, t, u).block_until_ready()

    def rollout(self, evaluations):
        """A function that predicts all snapshots of a batch, and the evaluations it makes."""
        roll, made = rollout(self.apply, self.options.frames, evaluations)
        batch = self.options.batch
        first = self.data[0][np.arange(batch) % len(self.data[0]), 0]
        times = jnp.tile(jnp.linspace(0.0, 1.0, self.options.frames), (batch, 1))
        return lambda: roll(self.parameters, first, times).block_until_ready(), made


def check(options):
    """Laws that must hold before a number is believed."""
    random = np.random.default_rng(0)
    inner = 1 - 0.9 * random.random((5, 8))
    knots = np.sort(np.concatenate([np.zeros((5, 1)), inner, np.ones((5, 1))], 1), 1).astype(np.float32)
    a, b, c = (random.normal(size=(5, 1)) for _ in range(3))
    data = (
        jnp.asarray(a + b * knots + c * knots**2, jnp.float32)[..., None],
        jnp.asarray(knots),
        jnp.tile(jnp.arange(10), (5, 1)),
    )
    i, t = np.repeat(np.arange(5), 200), random.random(1000)
    state, velocity, _, _ = jax.jit(path)(data, jnp.asarray(i), jnp.asarray(t, jnp.float32))
    assert np.abs(state[:, 0] - (a[i, 0] + b[i, 0] * t + c[i, 0] * t**2)).max() < 1e-4, "a path reproduces quadratics"
    assert np.abs(velocity[:, 0] - (b[i, 0] + 2 * c[i, 0] * t)).max() < 2e-2, "and their derivatives"
    errors = []
    for n in (4, 8):
        u = rollout(lambda _, t, u: 2 * t[:, None] * u, n + 1)[0](
            None, jnp.ones((1, 1)), jnp.linspace(0, 1, n + 1)[None]
        )
        errors.append(abs(float(u[0, -1, 0]) - math.e))
    assert 3.7 < math.log2(errors[0] / errors[1]) < 4.1, "RK4 has order 4"
    for network, expected in settings.PARAMETERS.items():
        shapes = jax.eval_shape(build(settings.parse(["--network", network]))[0], jax.random.key(0))
        assert count(shapes, network) == expected, network
    small = settings.parse(
        ["--trajectories", "2", "--batch", "256", "--rate", "1e-3", "--precision", options.precision]
    )
    program = Program(small)
    first = float(program.train()[0])
    while int(program.state[3]) < 300:
        losses = program.train()
    assert losses[-1] < 0.2 * first, f"the loss falls from {first} to {losses[-1]}"
    print("all checks passed")


def main():
    options = settings.parse()
    if options.check:
        return check(options)
    values, knots, test, scale = settings.read(options)
    program = Program(options, (values, knots))
    program.train()
    begun, done = time.perf_counter(), program.chunk
    while done < options.steps:
        program.train()
        done += program.chunk
    seconds = time.perf_counter() - begun
    roll = rollout(program.apply, options.frames)[0]
    predicted = np.asarray(roll(program.state[0], jnp.asarray(test[0][:, 0]), jnp.asarray(test[1])))
    error = float(np.mean(settings.relative_l2(predicted, test[0], scale)))
    print(json.dumps({"error": error, "seconds": seconds, "parameters": count(program.state[0], options.network)}))


if __name__ == "__main__":
    main()
