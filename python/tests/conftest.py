"""What the tests share: a small Lorenz set, a model trained on it, the command's binary."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import cfo

# A shell that starts the tests in the background lets them ignore Ctrl-C, and all that they start; the tests of Ctrl-C need it.
signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="session")
def command() -> str:
    """The command: the binary of the workspace (`CFO_COMMAND`), else the one that the wheel installs."""
    found = os.environ.get("CFO_COMMAND") or shutil.which("cfo", path=str(Path(sys.executable).parent))
    assert found, "neither CFO_COMMAND nor a `cfo` beside Python"
    return found


@pytest.fixture(scope="session")
def run(command):
    """Runs the command and returns its stdout."""

    def run(*words: object, check: bool = True) -> subprocess.CompletedProcess[str]:
        done = subprocess.run([command, *map(str, words)], capture_output=True, text=True, timeout=120)
        assert not check or done.returncode == 0, done.stderr
        return done

    return run


@pytest.fixture(scope="session")
def lorenz() -> cfo.Trajectories:
    return cfo.simulate("lorenz", samples=24, seed=3, frames=101, horizon=0.5)


@pytest.fixture(scope="session")
def model(lorenz) -> cfo.Model:
    network = {"kind": "mlp", "hidden": [32, 32], "time": False}
    return cfo.train(lorenz, operator=network, steps=600, batch=128, checkpoint="latest", device="cpu", progress=False)


@pytest.fixture(scope="session")
def line_model() -> cfo.Model:
    """Of a field on a line, by a network that takes any grid."""
    data = cfo.simulate("burgers", samples=10, seed=0, grid=32, frames=11, viscosity=0.05)
    network = {"kind": "fno", "width": 4, "modes": 3, "blocks": 1}
    return cfo.train(data, operator=network, steps=3, batch=4, device="cpu", progress=False)


@pytest.fixture(scope="session")
def growing() -> cfo.Model:
    """Of u' = 5 u: single precision ends some twenty horizons later."""
    import numpy as np

    times = np.linspace(0, 1, 21)
    values = (np.linspace(-0.01, 0.01, 12)[:, None] * np.exp(5 * times))[..., None]
    network = {"kind": "mlp", "hidden": [32], "time": False}
    return cfo.train(cfo.Trajectories(times, values), operator=network, steps=300, batch=64, device="cpu", progress=False)


@pytest.fixture(scope="session")
def conditioned() -> cfo.Model:
    """Of decays u' = -k u that know their rate."""
    import numpy as np

    times = np.linspace(0, 1, 21)
    rates = np.linspace(0.5, 2, 12)
    values = np.exp(-rates[:, None] * times)[..., None]
    data = cfo.Trajectories(times, values, parameters={"k": rates})
    return cfo.train(
        data, operator={"kind": "mlp", "hidden": [32]}, steps=400, batch=128, device="cpu", progress=False, set={"data.condition": True}
    )
