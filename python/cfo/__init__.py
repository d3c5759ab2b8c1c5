"""Learn du/dt = f(u) from snapshots at irregular times, and integrate f to any time.

    import cfo

    data = cfo.simulate("lorenz", samples=60, frames=201, horizon=1.0)   # or cfo.read, cfo.Trajectories
    model = cfo.train(data, steps=400)
    print(model.evaluate(data.test)["relative_l2"]["mean"])
    states = model.predict(data.test[0].values[0], [0.1, 0.25, 0.9])

Arrays are NumPy arrays `[trajectory, time, (space...,) channel]`. Values are float32, times float64, both in the units of the data.
"""

from __future__ import annotations

import atexit
import json
from typing import Any

from . import _native
from ._errors import CfoError, DivergenceWarning
from ._model import Model, load
from ._path import Path
from ._training import train
from ._trajectories import Trajectories, Trajectory, read, simulate

__version__: str = _native.__version__

# Training that Ctrl-C ended may still be saving its checkpoint.
atexit.register(_native.settle)

__all__ = [
    "CfoError",
    "DivergenceWarning",
    "Model",
    "Path",
    "Trajectories",
    "Trajectory",
    "__version__",
    "devices",
    "load",
    "read",
    "simulate",
    "train",
]


def devices() -> dict[str, Any]:
    """Return the devices of this machine and the libraries that were found, as `cfo devices --json` prints them.

    Returns:
        A dict with `devices`, a list of dicts with `device`, `model`, `cores`, `simd` and `memory_bytes`, and `cuda`, a dict with `available`
        and `reason`.
    """
    return json.loads(_native.devices())
