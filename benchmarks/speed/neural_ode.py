#!/usr/bin/env python3
"""A training step of a neural ODE, cfo and diffrax in turn.

    neural_ode.py [--cfo CFO] [--device cpu|cuda:0] [--rounds N] [--only PART]

Needs the packages of requirements.txt and, for `cuda:0`, JAX's CUDA plugin. Both sides draw a batch of neighbouring
snapshots, integrate each sample from one to the next with Tsit5 (rtol 1e-4, atol 1e-6, first step from two
evaluations, steps per sample), differentiate through the accepted steps and take a step of Adam. diffrax is `vmap` of
`diffeqsolve` with `RecursiveCheckpointAdjoint` in one `jit`; `shared` is one `diffeqsolve` for the whole batch, whose
samples share their steps. Each round times all programs once; the table has the smallest median over the rounds."""

import argparse
import json
import math
import os
import subprocess
import sys
import tempfile
import time
import types

HERE = os.path.dirname(os.path.abspath(__file__))
# name: network, system, shape, batch on the CPU and on a GPU
ROWS = {
    "Lorenz, MLP": ("mlp", "lorenz", (3,), 2048, 2048),
    "Lorenz, MLP without time": ("mlp", "lorenz", (3,), 2048, 2048),
    "Burgers, U-Net": ("unet1d", "burgers", (100, 1), 32, 256),
}


def ours(arguments, model, batch, timed, repetitions):
    keys = ["objective.kind=neural-ode"] + ([] if timed else ["operator.time=false"])
    command = [
        arguments.cfo,
        "bench",
        "train-step",
        "--model",
        model,
        "--batch",
        str(batch),
        "--device",
        arguments.device,
    ]
    command += ["--json", "--precision", "f32", "--repetitions", str(repetitions)]
    command += [word for key in keys for word in ("--set", key)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=1200)
    if done.returncode != 0:
        sys.exit(f"failed: {' '.join(command)}\n{done.stderr[-400:]}")
    return json.loads(done.stdout)


class Diffrax:
    """A compiled training step on some trajectories."""

    def __init__(self, jax, network, values, times, batch, shared):
        import diffrax
        import jax.numpy as jnp
        import optax

        values, times = jnp.asarray(values), jnp.asarray(times)
        init, apply = network
        # As in `cfo`: outputs in units of the velocity's root mean square, errors in units of the change's.
        change = jnp.sqrt(jnp.mean((values[:, 1:] - values[:, :-1]) ** 2, tuple(range(values.ndim - 1))))
        gap = (times[:, 1:] - times[:, :-1]).reshape(*times[:, 1:].shape, *[1] * (values.ndim - 2))
        speed = jnp.sqrt(jnp.mean(((values[:, 1:] - values[:, :-1]) / gap) ** 2, tuple(range(values.ndim - 1))))
        control = diffrax.PIDController(rtol=1e-4, atol=1e-6)
        adjoint = diffrax.RecursiveCheckpointAdjoint()
        steps = {
            "saveat": diffrax.SaveAt(t1=True),
            "stepsize_controller": control,
            "adjoint": adjoint,
            "max_steps": 4096,
        }

        def alone(params, t0, t1, y0):
            field = diffrax.ODETerm(lambda t, y, p: apply(p, t[None], y[None])[0] * speed)
            found = diffrax.diffeqsolve(field, diffrax.Tsit5(), t0, t1, None, y0, args=params, **steps)
            return found.ys[0], found.stats["num_steps"]

        def together(params, t0, t1, y0):
            length = (t1 - t0).reshape(-1, *[1] * (y0.ndim - 1))
            field = diffrax.ODETerm(lambda s, y, p: apply(p, t0 + s * (t1 - t0), y) * speed * length)
            found = diffrax.diffeqsolve(field, diffrax.Tsit5(), 0.0, 1.0, None, y0, args=params, **steps)
            return found.ys[0], found.stats["num_steps"]

        solve = together if shared else jax.vmap(alone, (None, 0, 0, 0))

        def loss(params, key):
            kt, ki = jax.random.split(key)
            which = jax.random.randint(kt, (batch,), 0, len(values))
            at = jax.random.randint(ki, (batch,), 0, values.shape[1] - 1)
            end, count = solve(params, times[which, at], times[which, at + 1], values[which, at])
            return jnp.mean(((end - values[which, at + 1]) / change) ** 2), jnp.max(count)

        optimiser = optax.adam(1e-4, b1=0.9, b2=0.99)

        @jax.jit
        def step(params, state, key):
            key, own = jax.random.split(key)
            (value, count), gradient = jax.value_and_grad(loss, has_aux=True)(params, own)
            change, state = optimiser.update(gradient, state)
            return optax.apply_updates(params, change), state, key, value, count

        import jax_networks

        self.params = init(jax_networks.Keys(jax.random.PRNGKey(0)))
        self.step, self.state, self.key = step, optimiser.init(self.params), jax.random.PRNGKey(1)
        started = time.perf_counter()
        self.run()
        self.first = time.perf_counter() - started

    def run(self):
        self.params, self.state, self.key, loss, count = self.step(self.params, self.state, self.key)
        loss.block_until_ready()
        self.count = int(count)

    def median_ms(self, seconds):
        times, begun = [], time.perf_counter()
        while len(times) < 5 or time.perf_counter() - begun < seconds:
            started = time.perf_counter()
            self.run()
            times.append(1e3 * (time.perf_counter() - started))
        return sorted(times)[len(times) // 2]


def trajectories(arguments, system, shape):
    """Normalised snapshots and times of some simulated trajectories."""
    import numpy as np

    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "data.npz")
        command = [arguments.cfo, "simulate", system, "--out", path, "--samples", "8", "--split", "8,0,0"]
        subprocess.run(command, check=True, capture_output=True)
        with np.load(path) as data:
            values, times = data["values"].astype(np.float32), data["times"].astype(np.float32)
    values = values.reshape(*values.shape[:2], *shape)
    axes = tuple(range(values.ndim - 1))
    values = (values - values.mean(axes)) / values.std(axes)
    times = np.broadcast_to(times, values.shape[:2])
    return values, (times - times.min()) / (times.max() - times.min())


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--cfo", default=os.path.join(HERE, "../../target/release/cfo"))
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--seconds", type=float, default=2.0, help="time for each measurement")
    parser.add_argument("--only", default="", help="part of a row's name")
    parser.add_argument("--batch", type=int, help="another batch")
    parser.add_argument("--without-shared", action="store_true", help="without the form with shared steps")
    arguments = parser.parse_args()
    on_cpu = arguments.device == "cpu"
    if on_cpu:
        os.environ["JAX_PLATFORMS"] = "cpu"
    sys.path.insert(0, os.path.join(HERE, "peers"))
    import jax
    import jax_networks

    if not on_cpu:
        jax.config.update("jax_default_matmul_precision", "float32")
    print(f"jax {jax.__version__} on {jax.devices()[0]}", file=sys.stderr)
    print("| | cfo, ms (attempts) | diffrax, ms (steps) | shared steps, ms (steps) | diffrax / cfo | shared / cfo |")
    print("|---|---:|---:|---:|---:|---:|", flush=True)
    for name, (model, system, shape, few, many) in ROWS.items():
        if arguments.only.lower() not in name.lower():
            continue
        batch, timed = arguments.batch or (few if on_cpu else many), "without" not in name
        values, times = trajectories(arguments, system, shape)
        settings = types.SimpleNamespace(shape=shape, padding="circular")
        made = (jax_networks.mlp if model == "mlp" else jax_networks.unet)(settings, jax.numpy.float32, timed)
        forms = (False,) if arguments.without_shared else (False, True)
        peers = [Diffrax(jax, made, values, times, batch, shared) for shared in forms]
        best, counts = [math.inf] * 3, {}
        first = ", ".join(f"{peer.first:.0f} s" for peer in peers)
        print(f"{name}: diffrax compiled and took its first step in {first}", file=sys.stderr)
        for _ in range(arguments.rounds):
            expected = best[0] / 1e3 if math.isfinite(best[0]) else arguments.seconds / 5
            found = ours(arguments, model, batch, timed, max(5, int(arguments.seconds / expected)))
            best[0], counts = min(best[0], found["median_ms"]), found.get("solver", {})
            for i, peer in enumerate(peers, 1):
                best[i] = min(best[i], peer.median_ms(arguments.seconds))
        cells = [f"{best[0]:.1f} ({counts.get('attempts', '?')})"]
        cells += [f"{best[i]:.1f} ({peer.count})" for i, peer in enumerate(peers, 1)]
        cells += ["-"] * (3 - len(cells))
        ratios = [f"{best[i] / best[0]:.2f}" if i <= len(peers) else "-" for i in (1, 2)]
        print(f"| {name}, batch {batch} | {' | '.join([*cells, *ratios])} |", flush=True)


if __name__ == "__main__":
    main()
