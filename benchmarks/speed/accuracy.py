#!/usr/bin/env python3
"""Accuracy per budget: cfo and the JAX program on the same data, network, steps, batch and learning rate.

    accuracy.py [--cfo CFO] [--device cuda:0] [--jobs 6] [--out FOLDER] [options]

`cfo simulate` makes the trajectories, which both programs read. Both standardise the values, keep their own random
snapshots where a keep rate is given, train with Adam (0.9, 0.99) at a constant rate, and roll out the test
trajectories from the first snapshot with one RK4 step per snapshot, with the weights of the last step. Every run is a
process, `--jobs` of them at a time; finished runs in `--out` are not repeated. Prints a Markdown table."""

import argparse
import concurrent.futures
import json
import math
import os
import pathlib
import statistics
import subprocess
import sys
import time

HERE = pathlib.Path(__file__).resolve().parent
OPERATORS = {
    "lorenz": 'kind = "mlp"\nhidden = [128, 256, 256, 256, 128]\n',
    "burgers": 'kind = "unet"\nchannels = [64, 128]\n',
}
NETWORKS = {"lorenz": "mlp", "burgers": "unet1d"}
RECIPE = """[data]
keep_rate = {keep}
[path]
spline = "quintic"
stencil = 3
noise = {{ amplitude = 1e-5, exponent = 3 }}
[operator]
{operator}[train]
steps = {steps}
batch = {batch}
learning_rate = {rate}
precision = "{precision}"
seed = {seed}
report_every = 500
validate_every = 0
checkpoint_every = 1000000
"""


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--cfo", default=HERE.parent.parent / "target/release/cfo")
    parser.add_argument("--python", default=sys.executable, help="interpreter that has JAX")
    parser.add_argument("--device", default="cpu", help="cpu or cuda:N")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--out", default="runs/accuracy")
    parser.add_argument("--systems", default="lorenz,burgers")
    parser.add_argument("--keep", default="1,0.25", help="keep rates")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--precision", choices=["f32", "tf32"], default="f32")
    for system, train, test, steps, batch, rate in [
        ("lorenz", 1000, 100, 2000, 512, 1e-3),
        ("burgers", 200, 20, 300, 32, 1e-3),
    ]:
        parser.add_argument(f"--{system}-trajectories", default=f"{train},{test}", help="training,test")
        parser.add_argument(f"--{system}-steps", type=int, default=steps)
        parser.add_argument(f"--{system}-batch", type=int, default=batch)
        parser.add_argument(f"--{system}-rate", type=float, default=rate)
    return parser.parse_args()


def call(command, log, environment=None):
    """Standard output of a command. Its messages go to a file, whose end is shown if it fails."""
    command = [str(word) for word in command]
    with open(log, "w") as stream:
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=stream, text=True, env=environment)
    if done.returncode != 0:
        tail = pathlib.Path(log).read_text().strip().splitlines()[-3:]
        raise RuntimeError(f"{' '.join(command)}: {' | '.join(tail)}")
    return done.stdout


def ours(options, job, folder):
    system, keep, seed, data, test = job
    recipe, run = folder / "recipe.toml", folder / "run"
    recipe.write_text(
        RECIPE.format(
            keep=keep,
            operator=OPERATORS[system],
            steps=getattr(options, f"{system}_steps"),
            batch=getattr(options, f"{system}_batch"),
            rate=getattr(options, f"{system}_rate"),
            precision=options.precision,
            seed=seed,
        )
    )
    resume = ["--resume"] if (run / "checkpoints" / "latest").exists() else []
    trained = json.loads(
        call(
            [options.cfo, "train", recipe, "--data", data, "--out", run, "--device", options.device, "--json", *resume],
            folder / "train.log",
        )
    )
    found = json.loads(
        call(
            [
                options.cfo,
                "evaluate",
                run,
                "--data",
                data,
                "--device",
                options.device,
                "--checkpoint",
                "latest",
                "--json",
            ],
            folder / "evaluate.log",
        )
    )
    return dict(error=found["relative_l2"]["mean"], seconds=trained["seconds"], parameters=trained["parameters"])


def jax(options, job, folder):
    system, keep, seed, data, test = job
    command = [options.python, HERE / "peers/jax_cfo.py", "--network", NETWORKS[system], "--data", data, "--test", test]
    command += ["--steps", getattr(options, f"{system}_steps"), "--batch", getattr(options, f"{system}_batch")]
    command += [
        "--rate",
        getattr(options, f"{system}_rate"),
        "--seed",
        seed,
        "--precision",
        options.precision,
        "--keep",
        keep,
    ]
    environment = dict(os.environ, XLA_PYTHON_CLIENT_PREALLOCATE="false")
    if options.device == "cpu":
        environment["JAX_PLATFORMS"] = "cpu"
    elif ":" in options.device:
        environment["CUDA_VISIBLE_DEVICES"] = options.device.split(":")[1]
    return json.loads(call(command, folder / "jax.log", environment).strip().splitlines()[-1])


def perform(options, method, job):
    """The result of one run, kept in its folder."""
    system, keep, seed = job[:3]
    program = {"cfo": ours, "jax": jax}[method]
    budget = [getattr(options, f"{system}_{key}") for key in ("trajectories", "steps", "batch", "rate")]
    tag = "-".join(
        str(part).replace(",", "+")
        for part in (method, system, keep, seed, *budget, options.precision, options.device.split(":")[0])
    )
    folder = pathlib.Path(options.out) / tag
    folder.mkdir(parents=True, exist_ok=True)
    result = folder / "result.json"
    if not result.exists():
        found = program(options, job, folder)
        result.with_suffix(".tmp").write_text(json.dumps(found))
        result.with_suffix(".tmp").rename(result)
    return json.loads(result.read_text())


def verdict(mine, theirs):
    """Not worse if the means differ by less than twice the standard error of their difference."""
    if len(mine) < 2:
        return "one seed only"
    difference = statistics.mean(mine) - statistics.mean(theirs)
    noise = 2 * math.sqrt((statistics.variance(mine) + statistics.variance(theirs)) / len(mine))
    return "better" if difference < -noise else "worse" if difference > noise else "equal within noise"


def main():
    options = arguments()
    out = pathlib.Path(options.out)
    out.mkdir(parents=True, exist_ok=True)
    jobs = []
    for system in options.systems.split(","):
        train, test = map(int, getattr(options, f"{system}_trajectories").split(","))
        data = out / f"{system}-{train}-{test}.npz"
        if not data.exists():
            call(
                [
                    options.cfo,
                    "simulate",
                    system,
                    "--samples",
                    str(train + test),
                    "--split",
                    f"{train},0,{test}",
                    "--out",
                    data,
                ],
                out / "simulate.log",
            )
        for keep in map(float, options.keep.split(",")):
            for seed in range(options.seeds):
                jobs += [(method, (system, keep, seed, data, test)) for method in ("jax", "cfo")]
    # The longest first, so that no process is left alone at the end.
    jobs.sort(key=lambda job: (job[1][0] != "burgers", job[0] != "jax"))
    results, failures, started = {}, [], time.time()
    with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
        waiting = {pool.submit(perform, options, method, job): (method, *job[:3]) for method, job in jobs}
        for done in concurrent.futures.as_completed(waiting):
            key = waiting[done]
            try:
                results[key] = done.result()
                print(f"{time.time() - started:6.1f} s  {key}: {results[key]}", file=sys.stderr, flush=True)
            except Exception as error:  # one run that fails leaves the others their row
                failures.append(key)
                print(f"{time.time() - started:6.1f} s  {key}: {error}", file=sys.stderr, flush=True)
    print(
        f"Relative L2 error, mean and deviation over {options.seeds} seeds; {options.precision} on {options.device}.\n"
    )
    print("| system | times | trajectories | steps x batch | cfo | JAX | cfo / JAX | verdict |")
    print("|---|---:|---:|---:|---:|---:|---:|---|")
    for system, keep in sorted({(key[1], key[2]) for key in waiting.values()}, reverse=True):
        errors = [
            [results[key]["error"] for key in sorted(results) if key[:3] == (method, system, keep)]
            for method in ("cfo", "jax")
        ]
        if not errors[0] or len(errors[0]) != len(errors[1]):
            print(f"| {system} | {100 * keep:.0f} % | | | | | | incomplete |")
            continue
        mean, deviation = [], []
        for found in errors:
            mean.append(statistics.mean(found))
            deviation.append(statistics.stdev(found) if len(found) > 1 else 0.0)
        cells = [f"{a:.3e} ± {b:.1e}" for a, b in zip(mean, deviation)]
        trajectories, steps, batch = (getattr(options, f"{system}_{key}") for key in ("trajectories", "steps", "batch"))
        budget = f"{trajectories.split(',')[0]} | {steps} x {batch}"
        ratio = f"{mean[0] / mean[1]:.2f} | {verdict(*errors)}"
        print(f"| {system} | {100 * keep:.0f} % | {budget} | {' | '.join(cells)} | {ratio} |")
    sys.exit(1 if failures else 0)


if __name__ == "__main__":
    main()
