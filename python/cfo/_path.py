"""The spline through the snapshots of a trajectory."""

from __future__ import annotations

from typing import Any

import numpy as np

from . import _native
from ._arrays import array, finite, whole
from ._errors import InputError


class Path:
    """The spline through the snapshots of a trajectory, from which training points are sampled. It is evaluated in double precision.

    For a trajectory that is too short for the spline, the smoothest possible spline is used. Beyond the ends, the first and the last
    polynomial are extrapolated.

    Args:
        times: Times of the snapshots, increasing: `[time]`.
        values: The snapshots: `[time, ...]`, of any shape.
        spline: `"linear"`, `"cubic"`, `"quintic"`, or `"hermite-N"` with an odd degree N.
        stencil: Number of snapshots from which the derivatives at a snapshot are estimated.
    """

    __slots__ = ("spline", "stencil", "times", "values")

    spline: str
    stencil: int
    times: np.ndarray
    values: np.ndarray

    def __init__(self, times: Any, values: Any, spline: str = "quintic", stencil: int = 3) -> None:
        self.times = array(times, "times", np.float64)
        found = array(values, "values", np.float64)
        if self.times.ndim != 1 or found.ndim == 0 or len(found) != len(self.times):
            raise InputError(
                f"`times` has the shape {list(self.times.shape)} and `values` {list(found.shape)}", "give `[time]` and `[time, ...]`"
            )
        self.values = finite(found, "values")
        if not isinstance(spline, str):
            raise InputError(f"`spline` is {spline!r}", "give its name")
        self.spline = spline
        self.stencil = whole(stencil, "stencil", 1)
        _native.path_weights(self.times, self.times[:0], self.spline, self.stencil)

    def value(self, t: Any) -> np.ndarray:
        """Return the value of the spline.

        Args:
            t: One time, or `[time]`.

        Returns:
            float64 `[...]` for one time, `[time, ...]` for several.
        """
        return self._at(t, 1)

    def velocity(self, t: Any) -> np.ndarray:
        """Return the derivative of the spline by time.

        Args:
            t: One time, or `[time]`.

        Returns:
            float64 `[...]` for one time, `[time, ...]` for several.
        """
        return self._at(t, 2)

    def _at(self, t: Any, which: int) -> np.ndarray:
        moments = finite(array(t, "t", np.float64), "t")
        found = _native.path_weights(self.times, moments.reshape(-1), self.spline, self.stencil)
        first, weights = found[0], found[which]
        flat = self.values.reshape(len(self.times), -1)
        total = np.zeros((len(first), flat.shape[1]))
        for place in range(weights.shape[1]):
            snapshot = np.minimum(first + place, len(flat) - 1)
            total += weights[:, place, None] * flat[snapshot]
        return total.reshape((*moments.shape, *self.values.shape[1:]))

    def __len__(self) -> int:
        return len(self.times)

    def __repr__(self) -> str:
        return f"<cfo.Path: {self.spline} through {len(self)} snapshots {list(self.values.shape[1:])}>"


Path.__module__ = "cfo"
