#!/usr/bin/env python3
"""Times JAX's rollouts of the diffusion-reaction U-Net, 50 trajectories in one batch, without training first.

    scripts/peer_rollouts.py PEERS [EVALUATIONS ...]

PEERS holds jax_cfo.py. Prints one JSON line a number of evaluations: milliseconds a trajectory with all snapshots left on
the device, and with them brought to the host.
"""
import json
import sys
import time

import numpy as np

peers, *budgets = sys.argv[1:]
sys.path.insert(0, peers)
import common  # noqa: E402
import jax  # noqa: E402
import jax.numpy as jnp  # noqa: E402
import jax_cfo  # noqa: E402

BATCH = 50

sys.argv = sys.argv[:1]
options = common.parse_args("jax", ["--synthetic", "--system", "dr", "--precision", "bf16"])
init, apply = jax_cfo.build(options)
key = jax.random.key(0, impl="rbg")
params = init(key)
start = jax_cfo.synthetic(key, 4, options.n_times, options.shape)[np.arange(BATCH) % 4, 0]
times = jnp.tile(jnp.linspace(0.0, 1.0, options.n_times), (BATCH, 1))
for budget in map(int, budgets or ["50", "100"]):
    roll, evaluations = jax_cfo.make_rollout(apply, options.n_times, budget, False)
    np.asarray(roll(params, start, times))
    device, host = [], []
    for _ in range(5):
        begin = time.perf_counter()
        states = roll(params, start, times).block_until_ready()
        device.append(time.perf_counter() - begin)
        np.asarray(states)
        host.append(time.perf_counter() - begin)
    found = [1e3 * float(np.median(seconds)) / BATCH for seconds in (device, host)]
    print(json.dumps({"budget": budget, "evaluations": int(evaluations), "device_ms": found[0], "host_ms": found[1]}), flush=True)
