"""Ctrl-C: in a training, a rollout, a simulation, and in the command that the wheel installs."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

import cfo

# The promise is 100 ms on an idle machine; a test machine may be busy with ten times its cores.
PATIENCE = 2.0


def after(seconds):
    """Sends Ctrl-C to this process, and says when."""
    sent = []

    def send():
        sent.append(time.monotonic())
        os.kill(os.getpid(), signal.SIGINT)

    threading.Timer(seconds, send).start()
    return sent


def test_a_training_stops_and_its_run_goes_on(tmp_path, lorenz):
    out = tmp_path / "run"
    options = {"operator": {"kind": "mlp", "hidden": [16]}, "batch": 32, "device": "cpu", "progress": False, "out": out}
    sent = []

    def callback(report):
        if report["step"] == 2000:
            sent.append(after(0.05))

    with pytest.raises(KeyboardInterrupt):
        cfo.train(lorenz, steps=2_000_000, callback=callback, set={"train.report_every": 100, "train.validate_every": 0}, **options)
    assert time.monotonic() - sent[0][0] < PATIENCE
    # What it was saving is waited for here, and at the end of the interpreter.
    model = cfo.train(lorenz, resume=True, set={"train.steps": 2500}, **{**options, "operator": None, "batch": None})
    assert model.steps >= 2500


def test_the_end_of_the_interpreter_waits_for_the_checkpoint(tmp_path, lorenz):
    lorenz.save(tmp_path / "a.npz")
    code = """
import cfo, os, signal
def stop(report):
    if report["step"] == 300: os.kill(os.getpid(), signal.SIGINT)
try:
    cfo.train("a.npz", operator="mlp", steps=100000, batch=8, out="run", callback=stop, progress=False, device="cpu", set={"train.report_every": 100})
except KeyboardInterrupt:
    print("stopped")
"""
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, timeout=60)
    assert (done.stdout, done.stderr, done.returncode) == ("stopped\n", "", 0)
    assert cfo.load(tmp_path / "run", checkpoint="latest").steps >= 300


def test_a_step_that_takes_long_is_not_waited_for(lorenz):
    """The exception comes while the step is still under way; what is left ends by itself."""
    times = []

    def wide():
        # A step of this network takes a second or more.
        network = {"kind": "mlp", "hidden": [4096, 4096]}
        cfo.train(lorenz, operator=network, batch=16384, steps=1000, device="cpu", progress=False)

    sent = after(1.5)
    with pytest.raises(KeyboardInterrupt):
        wide()
    times.append(time.monotonic() - sent[0])
    assert times[0] < PATIENCE
    # The next call is not held up for ever by the work that was left.
    assert cfo.train(lorenz, operator={"kind": "mlp", "hidden": [4]}, batch=4, steps=2, device="cpu", progress=False).steps == 2


def test_a_rollout_stops(model, lorenz):
    sent = after(0.4)
    with pytest.raises(KeyboardInterrupt):
        model.predict(lorenz[0].values[0], [0.5], solver="euler", steps=100_000_000)
    assert time.monotonic() - sent[0] < PATIENCE


def test_a_simulation_stops():
    sent = after(0.4)
    with pytest.raises(KeyboardInterrupt):
        cfo.simulate("shallow-water", samples=1000, variant="varied")
    assert time.monotonic() - sent[0] < PATIENCE


def test_the_users_own_handler_is_heard(lorenz):
    class Own(Exception):
        pass

    def handler(number, frame):
        raise Own

    old = signal.signal(signal.SIGINT, handler)
    try:
        after(0.3)
        with pytest.raises(Own):
            cfo.train(lorenz, operator="mlp", steps=1_000_000, device="cpu", progress=False)
    finally:
        signal.signal(signal.SIGINT, old)


def test_the_command_of_the_wheel_stops(tmp_path, lorenz):
    """A training ends cleanly with its checkpoint; a command that listens to nothing ends at once."""
    lorenz.save(tmp_path / "a.npz")
    command = [sys.executable, "-m", "cfo"]
    words = ["train", "--data", "a.npz", "--out", "run", "--device", "cpu", "--set", "train.steps=1000000"]
    training = subprocess.Popen([*command, *words], cwd=tmp_path, stderr=subprocess.PIPE, text=True)
    assert training.stderr is not None
    said = [training.stderr.readline(), training.stderr.readline()]
    training.send_signal(signal.SIGINT)
    rest = training.communicate(timeout=60)[1]
    assert training.returncode == 1 and "interrupted at step" in rest and "--resume" in rest, (said, rest)
    assert (tmp_path / "run" / "checkpoints" / "latest").exists()
    serving = subprocess.Popen([*command, "serve", "run", "--port", "0"], cwd=tmp_path, stdout=subprocess.PIPE, text=True)
    assert serving.stdout is not None and "listening on" in serving.stdout.readline()
    serving.send_signal(signal.SIGINT)
    assert serving.wait(timeout=60) in (0, 1, -signal.SIGINT)


def test_the_command_beside_python_is_the_same(tmp_path):
    script = Path(sys.executable).parent / "cfo"
    if not script.exists():
        pytest.skip("the package is not installed")
    said = subprocess.run([script, "--version"], capture_output=True, text=True, check=True).stdout
    assert said == f"cfo {cfo.__version__}\n"
    refused = subprocess.run([script, "inspect", "none.h5", "--json"], capture_output=True, text=True)
    assert refused.returncode == 2 and '"error"' in refused.stdout
    usage = subprocess.run([script, "inspectt"], capture_output=True, text=True)
    assert usage.returncode == 2 and "inspect" in usage.stderr
