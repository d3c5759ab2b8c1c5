#!/usr/bin/env python3
"""Times cfo beside JAX and PyTorch on one machine, in turn, and appends the results to runs/speed.jsonl.

    compare.py [--device cpu|cuda:0] [--tables steps rollouts scale] [--only PART] [--rounds N] [--out FILE.jsonl]

Tables:
  steps     training steps and forward passes of every network: cfo, JAX, PyTorch eager, PyTorch compiled and, on a
            GPU, PyTorch compiled and captured in a CUDA graph
  rollouts  all snapshots of a batch of trajectories: cfo with the result on the host, JAX with the result on the
            device and on the host
  scale     (cfo alone, GPU) how a step of the U-Net grows with batch, grid and data

Each round times every program once, one after the other, so that a disturbance of the machine affects all of them; a
result is the smallest median over the rounds. Run it on an idle machine. It prints Markdown tables, and writes one
line of JSON per row with commit, versions and machine. Needs the packages of requirements.txt."""

import argparse
import datetime
import json
import os
import platform
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
# A network with its batch, grid, precision and training trajectories.
CPU_STEPS = [
    ("mlp", 2048, None, "f32", 16),
    ("unet1d", 64, None, "f32", 16),
    ("fno", 64, None, "f32", 16),
    ("unet2d", 2, 64, "f32", 4),
    ("dit", 2, 64, "f32", 4),
]
GPU_STEPS = [
    ("mlp", 2048, None, "tf32", 16),
    ("unet1d", 256, None, "tf32", 16),
    ("fno", 256, None, "f32", 16),
    ("dit", 256, None, "bf16", 16),
    ("unet2d", 256, None, "bf16", 16),
    ("unet2d", 256, None, "tf32", 16),
]
# The same with the numbers of network evaluations.
CPU_ROLLOUTS = [("unet2d", 2, 64, "f32", 4, [50])]
GPU_ROLLOUTS = [("unet2d", 50, None, "bf16", 4, [50, 100])]
# Batch, grid, training trajectories, batches from the host.
SCALE = [
    (32, 128, 4, False),
    (128, 128, 4, False),
    (256, 128, 4, False),
    (512, 128, 4, False),
    (1024, 128, 4, False),
    (256, 64, 4, False),
    (64, 256, 4, False),
    (256, 128, 40, False),
    (256, 128, 4, True),
]


class Ours:
    """`cfo bench`, called for each measurement."""

    name = "cfo"

    def __init__(self, options, row):
        network, batch, grid, precision, trajectories = row[:5]
        self.words = ["--model", network, "--batch", batch, "--precision", precision, "--trajectories", trajectories]
        self.words += ["--device", options.device, "--json", *(["--grid", grid] if grid else [])]
        self.cfo, self.expected = options.cfo, {}

    def call(self, what, *more):
        words = [str(word) for word in (self.cfo, "bench", what, *self.words, *more)]
        done = subprocess.run(words, capture_output=True, text=True)
        if done.returncode != 0:
            sys.exit(f"failed: {' '.join(words)}\n{done.stderr[-800:]}")
        return json.loads(done.stdout)

    def time(self, what, seconds):
        """As many runs as fit the time, judged by the call before; short runs are timed in groups of 0.02 s."""
        repetitions = max(3, int(seconds / self.expected.get(what, seconds / 8)))
        found = self.call({"train": "train-step"}.get(what, what), "--repetitions", repetitions)
        self.expected[what] = max(found["median_ms"] / 1e3, 0.02)
        return found["median_ms"]

    def rollout(self, seconds, evaluations):
        return self.call("rollout", "--nfe", evaluations, "--repetitions", 5)["ms_per_trajectory"]

    def close(self):
        pass


class Peer:
    """A process of timed.py that keeps its compiled programs for all rounds."""

    def __init__(self, options, name, words, row):
        network, batch, grid, precision, trajectories = row[:5]
        command = [options.python, HERE / "peers/timed.py", *words, "--network", network, "--batch", batch]
        command += ["--precision", precision, "--trajectories", trajectories, *(["--grid", grid] if grid else [])]
        environment = dict(os.environ, XLA_PYTHON_CLIENT_PREALLOCATE="false")
        if options.device == "cpu":
            environment |= {"JAX_PLATFORMS": "cpu", "CUDA_VISIBLE_DEVICES": ""}
        else:
            environment["CUDA_VISIBLE_DEVICES"] = options.device.partition(":")[2] or "0"
        self.name = name
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
        self.process = subprocess.Popen([str(word) for word in command], env=environment, **pipes)

    def ready(self):
        """The version, once it has compiled; None if it failed."""
        word, _, version = self.process.stdout.readline().strip().partition(" ")
        return version if word == "ready" else None

    def ask(self, *words):
        self.process.stdin.write(" ".join(map(str, words)) + "\n")
        self.process.stdin.flush()
        return json.loads(self.process.stdout.readline())

    def time(self, what, seconds):
        return self.ask(what, seconds)["median_ms"]

    def close(self):
        self.process.stdin.close()
        self.process.wait()


def output(*words):
    try:
        return subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return ""


def machine():
    cpu = platform.processor() or platform.machine()
    info = Path("/proc/cpuinfo")
    if info.exists():
        cpu = next(
            (line.partition(":")[2].strip() for line in info.read_text().splitlines() if "model name" in line), cpu
        )
    gpu = output("nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader").splitlines()
    return {"cpu": cpu, "cores": os.cpu_count(), "gpu": gpu, "system": platform.platform()}


def record(options, table, row, versions, found):
    """Appends a result with everything that is needed to repeat it."""
    names = ["network", "batch", "grid", "precision", "trajectories"]
    line = {
        "table": table,
        "commit": options.commit,
        "date": datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%d %H:%M UTC"),
        "device": options.device,
        "rounds": options.rounds,
        "machine": machine(),
        "versions": {"python": platform.python_version(), **versions},
        **dict(zip(names, row)),
        **found,
    }
    options.out.parent.mkdir(parents=True, exist_ok=True)
    with open(options.out, "a") as file:
        file.write(json.dumps(line) + "\n")


def label(row):
    network, batch, grid, precision = row[:4]
    return f"{network}, {precision}, batch {batch}" + (f", {grid} x {grid}" if grid else "")


def cell(number):
    return (
        "-"
        if number is None
        else f"{number:.3f}" if number < 1 else f"{number:.2f}" if number < 10 else f"{number:.1f}"
    )


def start(options, programs):
    """The peers that started, and their versions."""
    running, versions = [], {}
    for peer in programs:
        version = peer.ready()
        if version:
            running.append(peer)
            versions[peer.name] = version
        else:
            print(f"{peer.name} failed to start", file=sys.stderr)
    return running, versions


def steps(options):
    modes = {"PyTorch eager": "eager", "PyTorch compiled": "compile"}
    if options.device != "cpu":
        modes["PyTorch, CUDA graph"] = "graph"
    names = ["cfo", "JAX", *modes]
    print(f"| ms | {' | '.join(names)} | fastest peer / cfo |\n|---|{'---:|' * (len(names) + 1)}", flush=True)
    for row in CPU_STEPS if options.device == "cpu" else GPU_STEPS:
        if options.only not in label(row):
            continue
        peers = [Peer(options, "JAX", ["jax"], row)]
        peers += [Peer(options, name, ["torch", "--mode", mode], row) for name, mode in modes.items()]
        peers, versions = start(options, peers)
        programs = [Ours(options, row), *peers]
        for what, title in [("train", "training step"), ("forward", "forward pass")]:
            best = {}
            for _ in range(options.rounds):
                for program in programs:
                    best[program.name] = min(program.time(what, options.seconds), best.get(program.name, 1e9))
            theirs = [found for name, found in best.items() if name != "cfo"]
            ratio = f"{min(theirs) / best['cfo']:.2f}" if theirs else "-"
            cells = [cell(best.get(name)) for name in names]
            print(f"| {label(row)}: {title} | {' | '.join(cells)} | {ratio} |", flush=True)
            record(options, "steps", row, versions, {"what": title, "milliseconds": best})
        for program in programs:
            program.close()


def rollouts(options):
    print("| ms per trajectory | evaluations | cfo, on the host | JAX, on the host | JAX, left on the device |")
    print("|---|---:|---:|---:|---:|", flush=True)
    for row in CPU_ROLLOUTS if options.device == "cpu" else GPU_ROLLOUTS:
        if options.only not in label(row):
            continue
        ours = Ours(options, row)
        peers, versions = start(options, [Peer(options, "JAX", ["jax"], row)])
        for evaluations in row[5]:
            best = {}
            for _ in range(options.rounds):
                found = {"cfo_host": ours.rollout(options.seconds, evaluations)}
                for peer in peers:
                    answer = peer.ask("rollout", options.seconds, evaluations)
                    found |= {"jax_host": answer["host_ms"], "jax_device": answer["device_ms"]}
                best = {name: min(time, best.get(name, 1e9)) for name, time in found.items()}
            cells = [cell(best.get(name)) for name in ("cfo_host", "jax_host", "jax_device")]
            print(f"| {label(row)} | {evaluations} | {' | '.join(cells)} |", flush=True)
            record(options, "rollouts", row, versions, {"evaluations": evaluations, "milliseconds": best})
        for peer in peers:
            peer.close()


def scale(options):
    print("| batch | grid | data, GiB | batches from | ms per step | us per sample | GiB beside the data |")
    print("|---:|---:|---:|---|---:|---:|---:|", flush=True)
    for batch, grid, trajectories, streamed in SCALE:
        row = ("unet2d", batch, grid, "bf16", trajectories)
        found = Ours(options, row).call("train-step", "--repetitions", 5, *(["--stream"] if streamed else []))
        median, data = found["median_ms"], found["data_bytes"] / 2**30
        rest = found["peak_bytes"] / 2**30 - data
        source = "host" if streamed else "device"
        print(
            f"| {batch} | {grid} | {data:.2f} | {source} | {cell(median)} | {1e3 * median / batch:.1f} | {rest:.2f} |",
            flush=True,
        )
        record(
            options,
            "scale",
            row,
            {},
            {"streamed": streamed, "milliseconds": {"cfo": median}, "data_gib": data, "rest_gib": rest},
        )


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cfo", default=ROOT / "target/release/cfo", help="the release build")
    parser.add_argument("--python", default=sys.executable, help="interpreter that has JAX and PyTorch")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--tables", nargs="+", choices=["steps", "rollouts", "scale"], default=["steps"])
    parser.add_argument("--only", default="", help="part of a row's name, as `unet2d` or `bf16`")
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--seconds", type=float, default=1.0, help="time of each measurement")
    parser.add_argument("--out", default=ROOT / "runs/speed.jsonl", type=Path)
    parser.add_argument("--commit", help="of the build, if not that of the working tree")
    options = parser.parse_args()
    options.commit = options.commit or output("git", "describe", "--always", "--dirty", "--exclude=*")
    for table in options.tables:
        {"steps": steps, "rollouts": rollouts, "scale": scale}[table](options)


if __name__ == "__main__":
    main()
