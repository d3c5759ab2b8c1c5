#!/usr/bin/env python3
"""A peer's network on the CPU, timed on demand: cpu_peer.py FOLDER jax|torch OPTIONS...

FOLDER holds jax_cfo.py and torch_cfo.py, OPTIONS are theirs. Prepares a training step and a forward pass, says `ready`, then answers every line
`train SECONDS` or `forward SECONDS` of its input with the median and the least milliseconds of one, timed for that long."""
import math
import statistics
import sys
import time


def jax_work(options):
    import common
    import jax
    import jax.numpy as jnp
    import jax_cfo as peer

    a = common.parse_args("jax", options)
    jax.config.update("jax_default_matmul_precision", "highest")
    fused = not a.model.startswith("unet")  # as the peer's own program does on a CPU
    chunk = 5 if fused else 1
    key = jax.random.key(a.seed, impl="rbg")
    train, _, _ = common.load(a)
    data = (peer.synthetic(jax.random.fold_in(key, 1), a.n_traj, a.n_times, a.shape), *map(jnp.asarray, train[1:]))
    init, apply = peer.build(a)
    params = init(jax.random.fold_in(key, 2))
    start, run = peer.make_trainer(a, apply, chunk, fused)
    # The trainer may reuse the memory of what it is given, so the forward pass gets parameters of its own.
    state = [start(jax.tree.map(jnp.copy, params), jax.random.fold_in(key, 3))]
    evaluate = jax.jit(apply)
    t, u = jnp.linspace(0.0, 1.0, a.batch), jnp.asarray(data[0][:, 0])[jnp.arange(a.batch) % a.n_traj]

    def train():
        state[0], losses = run(state[0], data)
        jax.block_until_ready((state[0], losses))

    def forward():
        evaluate(params, t, u).block_until_ready()

    return (train, chunk), (forward, 1)


def torch_work(options):
    import common
    import torch
    import torch_cfo as peer

    a = common.parse_args("torch", options)
    torch.set_float32_matmul_precision("highest")
    torch.manual_seed(a.seed)
    device = torch.device("cpu")
    train, _, _ = common.load(a)
    data = (peer.synthetic(a.n_traj, a.n_times, a.shape, device), *(torch.from_numpy(x) for x in train[1:]))
    model = peer.build(a, device)
    step = peer.make_step(a, model, data)[0]
    t, u = torch.linspace(0.0, 1.0, a.batch), data[0][torch.arange(a.batch) % a.n_traj, 0].contiguous()
    evaluate = peer.compiled(a, lambda t, u: model(t, u))

    def forward():
        with torch.inference_mode():
            evaluate(t, u)

    return (step, 1), (forward, 1)


def milliseconds(work, each, seconds):
    begin, times = time.perf_counter(), []
    while len(times) < 3 or time.perf_counter() - begin < seconds:
        started = time.perf_counter()
        work()
        times.append(1e3 * (time.perf_counter() - started) / each)
    return statistics.median(times), min(times)


def main():
    folder, peer, *options = sys.argv[1:]
    sys.path.insert(0, folder)
    train, forward = {"jax": jax_work, "torch": torch_work}[peer](["--synthetic", "--bench", *options])
    for work, _ in (train, forward, train, forward):
        work()
    print("ready", flush=True)
    for line in sys.stdin:
        what, seconds = line.split()
        median, least = milliseconds(*{"train": train, "forward": forward}[what], float(seconds))
        assert math.isfinite(median)
        print(median, least, flush=True)


if __name__ == "__main__":
    main()
