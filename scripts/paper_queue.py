#!/usr/bin/env python3
"""Computes the cells of the paper's tables on one machine, one training after another, and keeps every result when it is there.

    scripts/paper_queue.py run --cfo target/release/cfo --out FOLDER [--targets table1 ks ...] [--seeds 3] [--cells PATTERN ...] [--device cuda:0]

`cfo reproduce TARGET --scale paper --dry-run` lists the trainings of a target. Each training is a cell `SYSTEM/RECIPE/TRAINING/SEED`, such as
`lorenz/ours/cfo-quintic-25/0`. `--cells` selects cells by shell patterns, in order of priority (`@FILE` reads the patterns from a file):

    --cells '*/*/cfo-quintic-100/0' 'lorenz/*' 'burgers/*' '*/*/*/0'

Each system is simulated once. A cell is `cfo train` followed by `cfo evaluate`, in separate processes. Cells of small systems run side by
side; cells of 2D systems run alone, except for the evaluation of the cell before. Each finished cell appends one line to
FOLDER/figures.jsonl, which may be copied at any time. A queue that was interrupted continues when it is started again. `--figures FILE`
skips the cells of an earlier queue, so that several machines can share the work. `--minutes` ends the queue: running trainings are saved,
evaluations finish. `--limit 'PATTERN=SECONDS'` stops trainings after that time and evaluates them; their lines state the number of steps.

`scripts/results.py print FOLDER/figures.jsonl ...` prints the results as a table.
"""
import argparse
import ctypes
import fnmatch
import hashlib
import json
import os
import shutil
import signal
import statistics
import subprocess
import sys
import threading
import time
import tomllib
from pathlib import Path

PLANES = ("diffusion-reaction", "shallow-water", "shallow-water-varied")
SYSTEMS = ("lorenz", "burgers", *PLANES, "kuramoto-sivashinsky")
# The exit code of `timeout` when the time was up.
STOPPED = 124


class Failed(Exception):
    """A command that did not do its work."""


class Cell:
    """A training with its place in the table."""

    def __init__(self, planned, changes):
        self.planned = planned
        self.key = "{system}/{recipe}/{name}/{seed}".format(**planned)
        self.system = planned["system"]
        self.settings = tomllib.loads(planned["toml"])
        for change in changes:
            override(self.settings, change)
        # Of what is set, so that a key which later versions know and nobody set changes nothing.
        settings = json.dumps(self.settings, sort_keys=True)
        self.digest = hashlib.sha256(settings.encode()).hexdigest()[:12]
        self.small = self.system not in PLANES

    def figure(self):
        """What a line says of the cell itself."""
        names = ["system", "recipe", "method", "operator", "spline", "prediction", "keep_rate", "seed", "finetune_steps", "paper"]
        known = {"steps": self.settings["train"]["steps"], "cell": self.key, "recipe_digest": self.digest}
        return {name: self.planned[name] for name in names} | known


def override(settings, change):
    """Sets a key as `--set` of `cfo train` does: a value that is no TOML is a text."""
    path, _, text = change.partition("=")
    try:
        value = tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        value = text
    *sections, key = path.split(".")
    for section in sections:
        settings = settings.setdefault(section, {})
    settings[key] = value


def read_lines(path):
    """The whole lines of a file of figures; the last one may just be written."""
    found = []
    if Path(path).exists():
        for line in Path(path).read_text().splitlines():
            try:
                found.append(json.loads(line))
            except ValueError:
                pass
    return found


def patterns(words):
    for word in words:
        if word.startswith("@"):
            lines = (line.split("#")[0].strip() for line in Path(word[1:]).read_text().splitlines())
            yield from (line for line in lines if line)
        else:
            yield word


def chosen(cells, words):
    """Cells that match, in the order of the patterns; each once."""
    left, order = list(cells), []
    for pattern in patterns(words):
        matching = [cell for cell in left if fnmatch.fnmatchcase(cell.key, pattern)]
        order += matching
        left = [cell for cell in left if cell not in matching]
    return order


def plan(options):
    """The cells of all targets, each once."""
    cells = {}
    for target in options.targets:
        command = [options.cfo, "reproduce", target, "--scale", options.scale, "--dry-run", "--json"]
        command += ["--recipe", "both", "--seeds", str(options.seeds)]
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode != 0:
            raise SystemExit(done.stderr)
        for planned in json.loads(done.stdout)["trainings"]:
            cell = Cell(planned, options.set)
            cells.setdefault(cell.key, cell)
    return list(cells.values())


class Queue:
    """Cells to be done, those under way, and where everything is kept."""

    def __init__(self, options):
        self.options = options
        self.out = Path(options.out)
        self.data = Path(options.data) if options.data else self.out / "data"
        self.figures = self.out / "figures.jsonl"
        for folder in (self.out, self.data):
            folder.mkdir(parents=True, exist_ok=True)
        self.lock = threading.Condition()
        self.training, self.evaluating = [], []
        # Processes under way, each with whether it is short.
        self.processes, self.stopping, self.leaving = {}, False, False
        self.started = time.time()
        self.simulating = {system: threading.Lock() for system in SYSTEMS}
        self.commit = options.commit or commit()
        self.machine = machine(options.cfo)
        self.environment = dict(os.environ)

    # -- the remaining cells

    def pending(self):
        lines = [line for file in [self.figures, *self.options.figures] for line in read_lines(file)]
        done = {(line["cell"], line["recipe_digest"]) for line in lines}
        keys = {key for key, _ in done}
        cells = chosen(plan(self.options), self.options.cells)
        if not cells:
            raise SystemExit("no cell matches; `cfo reproduce table1 --scale paper --dry-run` lists them")
        if self.options.any_recipe:
            return [cell for cell in cells if cell.key not in keys], len(cells)
        return [cell for cell in cells if (cell.key, cell.digest) not in done], len(cells)

    # -- processes

    def call(self, command, log, is_short=False):
        """Runs a command to its end; its talk goes into a file, its JSON document comes back with its exit code.

        One that is short may also begin and end when time is up.
        """
        with open(log, "a") as talk:
            with self.lock:
                if self.leaving or self.stopping and not is_short:
                    raise Failed("stopped")
                process = subprocess.Popen(
                    [str(word) for word in command],
                    stdout=subprocess.PIPE,
                    stderr=talk,
                    text=True,
                    env=self.environment,
                    start_new_session=True,
                    preexec_fn=end_with_the_queue,
                )
                self.processes[process] = is_short
            output, _ = process.communicate()
            with self.lock:
                del self.processes[process]
        try:
            return process.returncode, json.loads(output)
        except ValueError:
            last = Path(log).read_text().strip().splitlines()[-3:]
            raise Failed(f"`{' '.join(map(str, command[1:3]))}` ended with {process.returncode}: {' '.join(last)[:300]}")

    def stop(self):
        """Lets trainings save their latest step; what is trained is still evaluated."""
        with self.lock:
            self.stopping = True
            for process, is_short in self.processes.items():
                if self.leaving or not is_short:
                    process.send_signal(signal.SIGINT)
            self.lock.notify_all()

    def leave(self, *_):
        """Ends at once: trainings save their latest step."""
        self.leaving = True
        self.stop()

    # -- the work

    def simulate(self, cell):
        """The system's data and the seconds they took; once, and whole or not at all."""
        begun = time.time()
        file = self.data / f"{cell.system}.h5"
        with self.simulating[cell.system]:
            if not file.exists():
                self.make(cell, file)
        return file, time.time() - begun

    def make(self, cell, file):
        split = cell.settings["data"]["split"]
        variant = ["--variant", "varied"] if cell.system.endswith("-varied") else []
        command = [self.options.cfo, "simulate", cell.system.removesuffix("-varied"), *variant, "--out", file, "--json"]
        command += ["--split", ",".join(map(str, split)), "--seed", self.options.data_seed]
        for assignment in self.options.simulate:
            system, _, words = assignment.partition("=")
            command += words.split() if system == cell.system else []
        code, _ = self.call(command, self.out / "simulate.log")
        if code != 0:
            raise Failed(f"simulating {cell.system}: see {self.out / 'simulate.log'}")

    def prepare(self, cells):
        """The data of all systems, while cells of the first ones are trained."""
        for system in dict.fromkeys(cell.system for cell in cells):
            try:
                self.simulate(next(cell for cell in cells if cell.system == system))
            except Failed as failure:
                if not self.stopping:
                    say(str(failure))

    def work(self, cell):
        """Trains and evaluates a cell, from where an earlier attempt stopped."""
        file, simulated = self.simulate(cell)
        system, recipe, name, seed = cell.key.split("/")
        run = self.out / "runs" / system / recipe / f"{name}-seed-{seed}-{cell.digest}"
        run.parent.mkdir(parents=True, exist_ok=True)
        recipe_file, log, finished = run.with_suffix(".toml"), run.with_suffix(".log"), run.with_suffix(".json")
        recipe_file.write_text(cell.planned["toml"])
        device = ["--device", self.options.device]
        begun = time.time()
        if not finished.exists():
            command = [self.options.cfo, "train", recipe_file, "--data", file, "--out", run, "--json", *device]
            command += [word for change in self.options.set for word in ("--set", change)]
            command += ["--resume"] if (run / "checkpoints").exists() else []
            trained = self.train(command, self.limit(cell), log)
            finished.write_text(json.dumps(trained | {"queue_wall": time.time() - begun}))
        trained = json.loads(finished.read_text())
        with self.lock:
            # The next training may start: evaluation is short on the device.
            self.training.remove(cell)
            self.evaluating.append(cell)
            self.lock.notify_all()
        begun = time.time()
        _, found = self.call([self.options.cfo, "evaluate", run, "--data", file, "--json", *device], log, is_short=True)
        evaluated = time.time() - begun
        return self.line(cell, run, trained, found, {"simulate": simulated, "evaluate": evaluated})

    def limit(self, cell):
        """Seconds after which a training is stopped; the first pattern that matches counts."""
        for assignment in self.options.limit:
            pattern, _, seconds = assignment.rpartition("=")
            if fnmatch.fnmatchcase(cell.key, pattern):
                return float(seconds)
        return None

    def train(self, command, limit, log):
        """What a training says of itself; of one that was stopped in time only how long it took."""
        begun = time.time()
        if limit is not None:
            # In the foreground: else the signal also goes to the whole group, and a second one ends a training at once.
            command = ["timeout", "--foreground", "--signal=INT", "--kill-after=60", str(limit), *command]
        code, trained = self.call(command, log)
        if code == STOPPED:
            return {"seconds": time.time() - begun, "stopped": True}
        if code != 0:
            raise Failed(f"training: see {log}")
        return trained

    def line(self, cell, run, trained, found, wall):
        error = found["relative_l2"]
        # Beside reports there may be notices.
        reports = read_lines(run / "metrics.jsonl")
        rates = [report["steps_per_second"] for report in reports if "steps_per_second" in report]
        # What a training says of itself: reading, compiling, steps, validation, checkpoints, other.
        parts = trained.get("time") or {"loop": trained["seconds"]}
        wall |= parts | {"rest_of_training": max(trained["queue_wall"] - sum(parts.values()), 0.0)}
        return cell.figure() | {
            "relative_l2": error["mean"],
            "std_trajectories": error["std"],
            "final_time": error["final_time"],
            "evaluations": found["evaluations"],
            "steps_done": max((report["step"] for report in reports if "step" in report), default=0),
            "stopped": bool(trained.get("stopped")),
            "ms_per_step": 1e3 / statistics.median(rates),
            "wall_seconds": sum(wall.values()),
            "wall": {part: round(seconds, 2) for part, seconds in wall.items()},
            "side_by_side": self.options.side_by_side if cell.small else 1,
            "device": trained.get("device", self.options.device),
            "machine": self.machine,
            "set": self.options.set,
            "commit": self.commit,
            "time": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        }

    def keep(self, line):
        """Appends a line whole."""
        with self.lock, open(self.figures, "a") as file:
            file.write(json.dumps(line) + "\n")
            file.flush()
            os.fsync(file.fileno())

    def attempt(self, cell):
        try:
            line = self.work(cell)
            self.keep(line)
            parts = ", ".join(f"{part} {seconds:.1f}" for part, seconds in line["wall"].items() if seconds >= 0.05)
            paper = f" (paper {line['paper']:.2e})" if line["paper"] else ""
            error = "diverged" if line["relative_l2"] is None else f"{line['relative_l2']:.3e}"
            say(f"{cell.key}: {error}{paper}; {line['ms_per_step']:.3f} ms per step; {line['wall_seconds']:.1f} s: {parts}")
        except (Failed, KeyError, OSError, ValueError) as failure:
            # That a training was stopped is no news; that an evaluation failed is.
            if not self.stopping or (cell in self.evaluating and not self.leaving):
                say(f"{cell.key}: FAILED: {failure!r}")
        finally:
            with self.lock:
                for cells in (self.training, self.evaluating):
                    if cell in cells:
                        cells.remove(cell)
                self.lock.notify_all()

    def fits(self, cell):
        """Whether a cell may start beside those under way; evaluations do not pile up."""
        most = self.options.side_by_side if cell.small else 1
        if len(self.evaluating) > most:
            return False
        return not self.training or (cell.small and all(other.small for other in self.training) and len(self.training) < most)

    def run(self):
        pending, total = self.pending()
        say(f"{total - len(pending)} of {total} cells are done; commit {self.commit}; results in {self.figures}")
        threading.Thread(target=self.prepare, args=[list(pending)], daemon=True).start()
        deadline = self.started + 60 * self.options.minutes
        with mps(self):
            while (pending and not self.stopping) or self.training or self.evaluating:
                with self.lock:
                    late = time.time() > deadline
                    while pending and not self.stopping and not late and self.fits(pending[0]):
                        cell = pending.pop(0)
                        self.training.append(cell)
                        threading.Thread(target=self.attempt, args=[cell]).start()
                    self.lock.wait(timeout=1.0)
                if late and not self.stopping:
                    say("time is up: trainings under way are saved")
                    self.stop()
        left, _ = self.pending()
        say(f"{total - len(left)} of {total} cells are done after {(time.time() - self.started) / 60:.1f} min")


class mps:
    """NVIDIA's service that lets processes share a GPU at once, where it is wanted and there."""

    def __init__(self, queue):
        self.queue = queue
        self.control = shutil.which("nvidia-cuda-mps-control") if queue.options.mps else None

    def __enter__(self):
        if self.control:
            place = self.queue.out.absolute() / "mps"
            place.mkdir(exist_ok=True)
            self.queue.environment |= {"CUDA_MPS_PIPE_DIRECTORY": str(place), "CUDA_MPS_LOG_DIRECTORY": str(place)}
            done = subprocess.run([self.control, "-d"], env=self.queue.environment)
            say("MPS is on" if done.returncode == 0 else "MPS did not start; going on without")

    def __exit__(self, *_):
        if self.control:
            subprocess.run([self.control], input="quit\n", text=True, env=self.queue.environment)


LIBRARY = ctypes.CDLL(None)


def end_with_the_queue():
    """Before a command starts: have the kernel interrupt it when the queue is killed, so that no two processes write one run."""
    LIBRARY.prctl(1, signal.SIGINT)  # PR_SET_PDEATHSIG


def say(text):
    print(f"[{time.strftime('%H:%M:%S')}] {text}", flush=True)


def machine(cfo):
    """The processor and the GPUs, as `cfo devices` lists them."""
    done = subprocess.run([cfo, "devices", "--json"], capture_output=True, text=True)
    devices = json.loads(done.stdout)["devices"] if done.returncode == 0 else []
    return ", ".join(" ".join(filter(None, [device.get("model"), device.get("simd")])) for device in devices) or "unknown"


def commit():
    root = Path(__file__).resolve().parent.parent
    done = subprocess.run(["git", "-C", root, "rev-parse", "--short", "HEAD"], capture_output=True, text=True)
    return done.stdout.strip() or "unknown"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    run = commands.add_parser("run", help="train and evaluate cells")
    run.add_argument("--cfo", required=True, help="the binary")
    run.add_argument("--out", required=True, help="folder of runs and results")
    run.add_argument("--data", help="folder of the simulated data [default: OUT/data]")
    run.add_argument("--data-seed", type=int, default=0)
    run.add_argument("--targets", nargs="+", default=["table1"], metavar="TARGET", help="of `cfo reproduce`")
    run.add_argument("--limit", action="append", default=[], metavar="PATTERN=SECONDS", help="stop these trainings after this time")
    run.add_argument("--cells", nargs="+", default=["*"], metavar="PATTERN", help="which cells, in order of priority")
    run.add_argument("--figures", nargs="*", default=[], metavar="FILE", help="results of earlier queues, whose cells are skipped")
    run.add_argument("--any-recipe", action="store_true", help="a cell whose recipe has changed since counts as done")
    run.add_argument("--seeds", type=int, default=1)
    run.add_argument("--device", default="auto")
    run.add_argument("--side-by-side", type=int, default=4, metavar="N", help="number of small trainings at once")
    run.add_argument("--mps", action="store_true", help="share the GPU through NVIDIA's MPS if it is there")
    run.add_argument("--minutes", type=float, default=float("inf"), help="end the queue after this time")
    run.add_argument("--scale", default="paper", choices=["paper", "smoke"])
    run.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="of the recipes of the chosen cells")
    run.add_argument("--simulate", action="append", default=[], metavar="SYSTEM=OPTIONS", help="of `cfo simulate SYSTEM`")
    run.add_argument("--commit", help="of the binary [default: of this folder]")
    options = parser.parse_args()
    queue = Queue(options)
    for name in (signal.SIGINT, signal.SIGTERM):
        signal.signal(name, queue.leave)
    queue.run()


if __name__ == "__main__":
    main()
