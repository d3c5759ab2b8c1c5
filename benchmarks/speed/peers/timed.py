#!/usr/bin/env python3
"""Times a peer on demand: timed.py jax|torch OPTIONS... prints `ready` with its versions, then answers each line of
its input (`train SECONDS`, `forward SECONDS`, `rollout SECONDS EVALUATIONS`) with one line of JSON."""

import json
import statistics
import sys
import time

import settings


def milliseconds(work, each, seconds, after=None):
    """Median of the time of one unit of work; with `after` also the time until that is done too."""
    begun, times, whole = time.perf_counter(), [], []
    while len(times) < 3 or time.perf_counter() - begun < seconds:
        started = time.perf_counter()
        result = work()
        times.append(1e3 * (time.perf_counter() - started) / each)
        if after:
            after(result)
            whole.append(1e3 * (time.perf_counter() - started) / each)
    return [statistics.median(found) for found in (times, whole) if found]


def rollouts(program, seconds, evaluations):
    """Milliseconds per trajectory with all snapshots left on the device, and with them copied to the host."""
    import numpy as np

    roll, made = program.rollout(evaluations)
    np.asarray(roll())
    device, host = milliseconds(roll, program.options.batch, seconds, np.asarray)
    return {"device_ms": device, "host_ms": host, "evaluations": int(made)}


def main():
    peer, *words = sys.argv[1:]
    options = settings.parse(words)
    if peer == "jax":
        import jax
        from jax_cfo import Program

        version = f"JAX {jax.__version__}"
    else:
        import torch
        from torch_cfo import Program

        version = f"PyTorch {torch.__version__}"
    program, forward = Program(options), None
    for _ in range(2):
        program.train()
    print("ready", version, flush=True)
    for line in sys.stdin:
        what, seconds, *more = line.split()
        if what == "rollout":
            answer = rollouts(program, float(seconds), int(more[0]))
        elif what == "forward":
            if forward is None:
                forward = program.forward()
                forward()
            answer = {"median_ms": milliseconds(forward, 1, float(seconds))[0]}
        else:
            answer = {"median_ms": milliseconds(program.train, program.chunk, float(seconds))[0]}
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
