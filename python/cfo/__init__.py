"""Learn the continuous-time dynamics of PDEs and ODEs by flow matching on temporal splines.

    import cfo

    data = cfo.simulate("lorenz", samples=200, seed=0)     # or cfo.read("own.npz"), or cfo.Trajectories(times, values)
    model = cfo.train(data, steps=2000)
    print(model.evaluate(data.test)["relative_l2"]["mean"])
    states = model.predict(data.test[0].values[0], [0.1, 0.75, 2.0])

Arrays are NumPy's, `[trajectory, time, (space...,) channel]`; fields are single precision, times double, in the data's own units.
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

# A training that Ctrl-C ended may still be saving.
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
    """What this machine can compute on: what `cfo devices --json` prints."""
    return json.loads(_native.devices())
