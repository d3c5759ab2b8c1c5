"""Trajectories from arrays, files and simulators."""

from __future__ import annotations

import json
import operator
import os
import warnings
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from . import _native
from ._arrays import array, finite, whole
from ._errors import CfoError, InputError

_PARTS = {"train": 0, "validation": 1, "test": 2}


class Trajectory:
    """One trajectory of a set, `data[i]`."""

    __slots__ = ("_index", "_set", "_shape")

    _index: int
    _set: Any
    _shape: tuple[int, ...]

    def __init__(self) -> None:
        raise TypeError("a `Trajectory` is an entry of `Trajectories`")

    @classmethod
    def _of(cls, native: Any, index: int, shape: tuple[int, ...]) -> Trajectory:
        one = object.__new__(cls)
        one._set, one._index, one._shape = native, index, shape
        return one

    @property
    def times(self) -> np.ndarray:
        """The times of the snapshots: float64 `[time]`."""
        return self._set.times(self._index)

    @property
    def values(self) -> np.ndarray:
        """The snapshots: float32 `[time, (space...,) channel]`, or float64 if the values of the set are large compared with their spread. This is a
        read-only view of the memory of the set; values that are still in a file are read now."""
        flat = self._set.values(self._index)
        return flat.reshape((-1, *self._shape))

    @property
    def parameters(self) -> np.ndarray:
        """The PDE parameters: float64 `[parameter]`."""
        return np.array(self._set.parameters(self._index), dtype=np.float64)

    @property
    def controls(self) -> tuple[np.ndarray, np.ndarray] | None:
        """The controls: their times, float64 `[control time]`, and values, float64 `[control time, control]`. `None` if there are none."""
        found = self._set.controls(self._index)
        if found is None:
            return None
        times = np.array(found[0], dtype=np.float64)
        return times, np.array(found[1], dtype=np.float64).reshape(len(times), -1)

    @property
    def statics(self) -> np.ndarray | None:
        """The static fields: float32 `[(space...,) static]`. `None` if there are none."""
        found = self._set.statics(self._index)
        return None if found is None else found.reshape((*self._shape[:-1], -1))

    @property
    def split(self) -> str:
        """The use of the trajectory: `"train"`, `"validation"` or `"test"`."""
        return list(_PARTS)[self._set.splits[self._index]]

    def __len__(self) -> int:
        return len(self.times)

    def __repr__(self) -> str:
        times = self.times
        return f"<cfo.Trajectory: {len(times)} snapshots {list(self._shape)}, times {times[0]:g} to {times[-1]:g}>"


class Trajectories:
    """A set of trajectories of one system. They may have different lengths and times.

    `len(data)` is the number of trajectories, `data[i]` one `Trajectory`; slices, lists of numbers and boolean arrays select a set.
    A set is immutable. It copies its values when it is created; selections share the memory.

    Args:
        times: Times of the snapshots, increasing, in any unit: `[time]` shared by all, `[trajectory, time]`, or a list of arrays.
        values: The snapshots: `[trajectory, time, (space...,) channel]`, or a list of arrays `[time, (space...,) channel]`, with up to three
            space axes. They are stored as float32. If float64 values are large compared with their spread, a number near each channel's mean
            is subtracted first.
        lengths: Number of snapshots of each trajectory, if arrays are padded: `[trajectory]`.
        parameters: PDE parameters of each trajectory: `[trajectory, parameter]`, or a dict of names and columns.
        split: Use of each trajectory: `[trajectory]` of 0, 1, 2 or of `"train"`, `"validation"`, `"test"`. Default: the first 80 % for training,
            then 10 % each for validation and test, unless a recipe sets `data.split`.
        channel_names: Name of each channel.
        channel_units: Unit of each channel.
        parameter_names: Name of each parameter, if `parameters` is an array.
        controls: Known functions of time, such as a measured forcing: `[trajectory, control time, control]`, or a list of arrays
            `[control time, control]`. They must cover the times of the snapshots.
        control_times: Times of the controls, increasing: `[control time]` shared by all, `[trajectory, control time]`, or a list of arrays.
        control_names: Name of each control.
        statics: Fields that do not change, such as a conductivity or a mask: `[trajectory or 1, (space...,) static]`. One row is for all.
        static_names: Name of each static field.
        system: Name of the system.
        periodic: Whether each space axis is periodic. Default: not periodic.
        domain: Lower and upper end of each space axis. Default: 0 to 1.

    Raises:
        ValueError: If the arrays do not fit each other, times do not increase or a number is not finite.
    """

    __slots__ = ("_native", "_labels", "_shape")

    _native: Any
    _labels: dict[str, Any]
    _shape: tuple[int, ...]

    def __init__(
        self,
        times: Any,
        values: Any,
        lengths: Any = None,
        parameters: Any = None,
        split: Any = None,
        *,
        channel_names: Sequence[str] | None = None,
        channel_units: Sequence[str] | None = None,
        parameter_names: Sequence[str] | None = None,
        controls: Any = None,
        control_times: Any = None,
        control_names: Sequence[str] | None = None,
        statics: Any = None,
        static_names: Sequence[str] | None = None,
        system: str = "",
        periodic: Sequence[bool] | None = None,
        domain: Any = None,
    ) -> None:
        rows = _values(values)
        count = len(rows)
        if count == 0:
            raise InputError("there are no trajectories", "give at least one")
        shape = rows[0].shape[1:]
        for index, row in enumerate(rows):
            if row.shape[1:] != shape:
                raise InputError(
                    f"snapshots of trajectory {index} have the shape {list(row.shape[1:])}, those of trajectory 0 {list(shape)}",
                    "all trajectories have the same grid and channels",
                )
        clocks = _times(times, rows)
        if lengths is not None:
            clocks, rows = _cut(lengths, clocks, rows)
        for index, (clock, row) in enumerate(zip(clocks, rows)):
            if len(clock) != len(row):
                raise InputError(
                    f"trajectory {index} has {len(clock)} times and {len(row)} snapshots",
                    "give one time for each snapshot; for padded arrays give `lengths`",
                )
        names, columns = _parameters(parameters, parameter_names, count)
        given, signals = _controls(controls, control_times, control_names, count)
        fixed, fields = _statics(statics, static_names, count, shape[:-1])
        axes = len(shape) - 1
        labels = {
            "system": _text(system, "system"),
            "shape": [int(n) for n in shape],
            "periodic": [False] * axes if periodic is None else [bool(entry) for entry in periodic],
            "domain": _domain(domain, axes),
            "channel_names": _names(channel_names, "channel_names"),
            "channel_units": _names(channel_units, "channel_units"),
            "parameter_names": names,
            "control_names": given,
            "static_names": fixed,
        }
        arrays = [(clock, row.reshape(-1), own) for clock, row, own in zip(clocks, rows, zip(columns, signals, fields))]
        self._adopt(_native.Set.from_arrays(labels, arrays, _split(split, count)))

    def _adopt(self, native: Any) -> None:
        self._native = native
        self._labels = json.loads(native.labels)
        self._shape = tuple(self._labels["shape"])

    @classmethod
    def _of(cls, native: Any) -> Trajectories:
        made = object.__new__(cls)
        made._adopt(native)
        return made

    def __len__(self) -> int:
        return len(self._native)

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return self._subset(range(*index.indices(len(self))))
        if isinstance(index, (list, tuple, np.ndarray)):
            chosen = np.asarray(index)
            if chosen.dtype == bool and chosen.shape == (len(self),):
                return self._subset(np.flatnonzero(chosen))
            if chosen.size == 0:
                return self._subset([])
            if chosen.ndim != 1 or chosen.dtype.kind not in "iu":
                raise InputError("trajectories are selected by whole numbers or by one boolean for each")
            return self._subset([self._position(int(one)) for one in chosen])
        try:
            position = operator.index(index)
        except TypeError:
            raise TypeError(f"trajectories are selected by numbers, slices and arrays, not by {type(index).__name__}") from None
        return Trajectory._of(self._native, self._position(position), self._shape)

    def __iter__(self) -> Iterator[Trajectory]:
        return (self[index] for index in range(len(self)))

    def _position(self, index: int) -> int:
        count = len(self)
        if not -count <= index < count:
            raise IndexError(f"there is no trajectory {index}: the set has {count}")
        return index % count

    def _subset(self, positions: Any) -> Trajectories:
        return Trajectories._of(self._native.subset([int(one) for one in positions]))

    def _part(self, code: int) -> Trajectories:
        return self._subset([i for i, part in enumerate(self._native.splits) if part == code])

    @property
    def train(self) -> Trajectories:
        """The training trajectories, as a set."""
        return self._part(0)

    @property
    def validation(self) -> Trajectories:
        """The validation trajectories, as a set; training measures its error on them."""
        return self._part(1)

    @property
    def test(self) -> Trajectories:
        """The test trajectories, as a set; training does not use them."""
        return self._part(2)

    @property
    def split(self) -> np.ndarray:
        """The use of each trajectory: int8 `[trajectory]`, 0 train, 1 validation, 2 test."""
        return np.array(self._native.splits, dtype=np.int8)

    @property
    def lengths(self) -> np.ndarray:
        """The number of snapshots of each trajectory: int64 `[trajectory]`."""
        return np.array(self._native.lengths, dtype=np.int64)

    @property
    def parameters(self) -> np.ndarray:
        """The PDE parameters: float64 `[trajectory, parameter]`."""
        rows = [self._native.parameters(index) for index in range(len(self))]
        return np.array(rows, dtype=np.float64).reshape(len(self), len(self.parameter_names))

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of a snapshot: `((space...,) channel)`."""
        return self._shape

    @property
    def system(self) -> str:
        """The name of the system; empty if it is unknown."""
        return self._labels["system"]

    @property
    def channel_names(self) -> list[str]:
        """The names of the channels; empty if they are unknown."""
        return list(self._labels["channel_names"])

    @property
    def channel_units(self) -> list[str]:
        """The units of the channels; empty if they are unknown."""
        return list(self._labels["channel_units"])

    @property
    def parameter_names(self) -> list[str]:
        """The names of the PDE parameters."""
        return list(self._labels["parameter_names"])

    @property
    def control_names(self) -> list[str]:
        """The names of the controls."""
        return list(self._labels["control_names"])

    @property
    def static_names(self) -> list[str]:
        """The names of the static fields."""
        return list(self._labels["static_names"])

    @property
    def periodic(self) -> list[bool]:
        """Whether each space axis is periodic."""
        return list(self._labels["periodic"])

    @property
    def domain(self) -> np.ndarray:
        """The lower and upper end of each space axis: float64 `[axis, 2]`."""
        return np.array(self._labels["domain"], dtype=np.float64).reshape(-1, 2)

    def recipe(self) -> str:
        """Return a recipe that is chosen for these trajectories, as `cfo init` writes it: TOML with a reason for each choice."""
        return _native.propose(self._native)

    def save(self, path: str | os.PathLike[str], *, force: bool = False) -> None:
        """Write a trajectory file, which `cfo.read` and the command read.

        Args:
            path: File to write: HDF5 for `.h5` and `.hdf5`, a NumPy archive for `.npz`.
            force: Whether to replace the file if it exists.

        Raises:
            ValueError: If the file exists and `force` is not set, or its extension is unknown.
        """
        self._native.save(os.fspath(path), bool(force))

    def __repr__(self) -> str:
        lengths = self._native.lengths
        if not lengths:
            return "<cfo.Trajectories: none>"
        least, most = min(lengths), max(lengths)
        snapshots = f"{least}" if least == most else f"{least} to {most}"
        of = f" of {self.system}" if self.system else ""
        return f"<cfo.Trajectories: {len(lengths)}{of}, {snapshots} snapshots {list(self._shape)}>"

    def __reduce__(self) -> tuple[Any, ...]:
        native = self._native
        inputs = [(native.parameters(index), native.controls(index), native.statics(index)) for index in range(len(self))]
        arrays = [(one.times, np.array(one.values).reshape(-1), own) for one, own in zip(self, inputs)]
        splits = self._native.splits if self._native.has_splits else None
        return _rebuilt, (self._labels, arrays, splits)

    def __copy__(self) -> Trajectories:
        return self

    def __deepcopy__(self, memo: Any) -> Trajectories:
        # Sets are immutable.
        return self


def _rebuilt(labels: dict[str, Any], arrays: list[Any], splits: list[int] | None) -> Trajectories:
    return Trajectories._of(_native.Set.from_arrays(labels, arrays, splits))


def read(path: str | os.PathLike[str], *, in_memory: bool | None = None) -> Trajectories:
    """Read a trajectory file: HDF5 or `.npz`, also in the layouts of PDEBench and The Well. The layout is recognised by the content.

    Args:
        path: Trajectory file.
        in_memory: Whether to read all values now, instead of when they are needed. Default: yes for files up to 1 GiB.

    Returns:
        The trajectories.

    Raises:
        FileNotFoundError: If the file does not exist.
        ValueError: If the file has no known layout or is damaged.

    Warns:
        UserWarning: For data in the file that are not used, and for other doubts about its content.
    """
    name = os.fspath(path)
    if isinstance(name, bytes):
        name = os.fsdecode(name)
    if in_memory is None:
        try:
            in_memory = os.stat(name).st_size <= 1 << 30
        except (OSError, ValueError):
            in_memory = False
    native = _native.Set.read(name, bool(in_memory))
    for text in native.warnings:
        warnings.warn(text, stacklevel=2)
    return Trajectories._of(native)


def simulate(system: str, *, samples: int | None = None, seed: int = 0, **options: Any) -> Trajectories:
    """Simulate trajectories of a system, as `cfo simulate` does.

    Args:
        system: `"lorenz"`, `"burgers"`, `"diffusion-reaction"`, `"shallow-water"`, `"kuramoto-sivashinsky"` or
            `"gray-scott"`.
        samples: Number of trajectories. Default: that of the paper, and 100 of `gray-scott`.
        seed: Seed. Trajectory i does not depend on the number of samples.
        options: Options of `cfo simulate SYSTEM` with `_` for `-`, as in `frames=101, length_jitter=0.1`.

    Returns:
        The trajectories.

    Raises:
        ValueError: If the system or an option does not exist, or a value is out of range.
    """
    count = None if samples is None else whole(samples, "samples", 1)
    split = options.pop("split", None)
    counts = None if split is None else _counts(split)
    pairs = [(name, str(value)) for name, value in options.items()]
    return Trajectories._of(_native.Set.simulate(_text(system, "system"), pairs, count, counts, whole_seed(seed)))


def _counts(split: Any) -> list[int]:
    """Return the numbers of trajectories for training, validation and test."""
    found = split.split(",") if isinstance(split, str) else split
    try:
        counts = [int(entry) for entry in found]
    except (TypeError, ValueError):
        counts = []
    if len(counts) != 3 or min(counts) < 0:
        raise InputError(f"`split` is {split!r}", "give three whole numbers, as in `(900, 50, 50)`")
    return counts


def whole_seed(seed: Any) -> int:
    try:
        found = operator.index(seed)
    except TypeError:
        found = -1
    if not 0 <= found < 2**64:
        raise InputError(f"`seed` is {seed!r}", "give a whole number, 0 or more")
    return found


def _text(value: Any, name: str) -> str:
    if not isinstance(value, str):
        raise InputError(f"`{name}` is {value!r}", "give a string")
    return value


def _names(value: Any, name: str) -> list[str]:
    if value is None:
        return []
    if isinstance(value, str):
        raise InputError(f"`{name}` is a single string", "give a list of names")
    return [_text(entry, name) for entry in value]


def _values(values: Any) -> list[np.ndarray]:
    """Return one array for each trajectory."""
    if isinstance(values, Trajectories):
        raise InputError("`values` are `Trajectories` already", "use them directly")
    if isinstance(values, (list, tuple)) and any(getattr(one, "ndim", None) != 0 for one in values):
        rows = [array(one, f"values[{index}]", None) for index, one in enumerate(values)]
    else:
        whole_array = array(values, "values", None)
        if whole_array.ndim < 3:
            raise InputError(
                f"`values` has the shape {list(whole_array.shape)}",
                "give `[trajectory, time, (space...,) channel]`; one trajectory of an ODE is `values[None]`, one channel `values[..., None]`",
            )
        rows = list(whole_array)
    for index, row in enumerate(rows):
        if not 2 <= row.ndim <= 5:
            raise InputError(
                f"`values[{index}]` has the shape {list(row.shape)}",
                "a trajectory is `[time, (space...,) channel]` with at most three space axes",
            )
    return rows


def _times(times: Any, rows: list[np.ndarray], name: str = "times") -> list[np.ndarray]:
    """Return the times of each trajectory."""
    if isinstance(times, (list, tuple)) and any(np.ndim(one) > 0 for one in times if not isinstance(one, str)):
        clocks = [array(one, f"{name}[{index}]", np.float64) for index, one in enumerate(times)]
    else:
        found = array(times, name, np.float64)
        if found.ndim == 1:
            return [found] * len(rows)
        if found.ndim != 2:
            raise InputError(f"`{name}` has the shape {list(found.shape)}", "give `[time]` or `[trajectory, time]`")
        clocks = list(found)
    if len(clocks) != len(rows):
        raise InputError(f"there are `{name}` for {len(clocks)} trajectories and values for {len(rows)}")
    for index, clock in enumerate(clocks):
        if clock.ndim != 1:
            raise InputError(f"`{name}[{index}]` has the shape {list(clock.shape)}", "the times of a trajectory are `[time]`")
    return clocks


def _cut(lengths: Any, clocks: list[np.ndarray], rows: list[np.ndarray]) -> tuple[list[np.ndarray], list[np.ndarray]]:
    found = array(lengths, "lengths", np.float64)
    if found.shape != (len(rows),) or not np.isfinite(found).all() or (found != np.floor(found)).any():
        raise InputError("`lengths` is not one whole number for each trajectory")
    for index, (length, clock, row) in enumerate(zip(found, clocks, rows)):
        if not 1 <= length <= min(len(row), len(clock)):
            raise InputError(f"`lengths[{index}]` is {length:g}, but there are {len(row)} snapshots and {len(clock)} times")
    counts = [int(length) for length in found]
    return [c[:n] for c, n in zip(clocks, counts)], [r[:n] for r, n in zip(rows, counts)]


def _parameters(parameters: Any, names: Any, count: int) -> tuple[list[str], list[list[float]]]:
    given = _names(names, "parameter_names")
    if parameters is None:
        if given:
            raise InputError("`parameter_names` are given without `parameters`")
        return [], [[] for _ in range(count)]
    if isinstance(parameters, Mapping):
        given = _names(list(parameters), "parameters")
        columns = [array(column, f"parameters[{name!r}]", np.float64) for name, column in parameters.items()]
        for name, column in zip(given, columns):
            if column.shape != (count,):
                raise InputError(f"`parameters[{name!r}]` has the shape {list(column.shape)}", f"give {count} numbers, one for each trajectory")
        table = np.stack(columns, axis=1) if columns else np.zeros((count, 0))
    else:
        table = array(parameters, "parameters", np.float64)
    if table.ndim != 2 or len(table) != count:
        raise InputError(f"`parameters` has the shape {list(table.shape)}", f"give `[trajectory, parameter]` for {count} trajectories")
    finite(table, "parameters")
    if not given:
        given = [f"parameter {index}" for index in range(table.shape[1])]
    if len(given) != table.shape[1]:
        raise InputError(f"there are {len(given)} parameter names for {table.shape[1]} parameters")
    return given, table.tolist()


def _controls(controls: Any, times: Any, names: Any, count: int) -> tuple[list[str], list[Any]]:
    """Return the names of the controls, and the times and values of each trajectory's, flat."""
    given = _names(names, "control_names")
    if controls is None and times is None:
        if given:
            raise InputError("`control_names` are given without `controls`")
        return [], [None] * count
    if controls is None or times is None:
        missing = "controls" if controls is None else "control_times"
        raise InputError(f"`{missing}` is missing", "give `controls` and `control_times` together")
    if isinstance(controls, (list, tuple)) and any(getattr(one, "ndim", None) != 0 for one in controls):
        rows = [array(one, f"controls[{index}]", np.float64) for index, one in enumerate(controls)]
    else:
        rows = list(array(controls, "controls", np.float64))
    if len(rows) != count or any(row.ndim != 2 or row.shape[1] != rows[0].shape[1] for row in rows):
        raise InputError(
            f"`controls` has the shapes {[list(row.shape) for row in rows[:3]]} for {count} trajectories",
            "give `[trajectory, control time, control]`, or a list of arrays `[control time, control]`",
        )
    clocks = _times(times, rows, "control_times")
    width = rows[0].shape[1]
    given = given or [f"control {index}" for index in range(width)]
    if len(given) != width:
        raise InputError(f"there are {len(given)} control names for {width} controls")
    for index, (clock, row) in enumerate(zip(clocks, rows)):
        if len(clock) != len(row):
            raise InputError(f"trajectory {index} has {len(clock)} control times and {len(row)} rows of controls")
    return given, [(clock.tolist(), row.reshape(-1).tolist()) for clock, row in zip(clocks, rows)]


def _statics(statics: Any, names: Any, count: int, grid: tuple[int, ...]) -> tuple[list[str], list[Any]]:
    """Return the names of the static fields, and the values of each trajectory's, flat."""
    given = _names(names, "static_names")
    if statics is None:
        if given:
            raise InputError("`static_names` are given without `statics`")
        return [], [None] * count
    found = array(statics, "statics", np.float32)
    if found.ndim != len(grid) + 2 or found.shape[0] not in (1, count) or found.shape[1:-1] != tuple(grid):
        raise InputError(
            f"`statics` has the shape {list(found.shape)}",
            f"give `[trajectory or 1, (space...,) static]` for {count} trajectories on the grid {list(grid)}",
        )
    finite(found, "statics")
    width = found.shape[-1]
    given = given or [f"static {index}" for index in range(width)]
    if len(given) != width:
        raise InputError(f"there are {len(given)} names for {width} static fields")
    rows = [row.reshape(-1) for row in found]
    return given, rows * (count if len(rows) == 1 else 1)


def _split(split: Any, count: int) -> list[int] | None:
    if split is None:
        return None
    try:
        entries = list(split)
    except TypeError:
        raise InputError("`split` is not a list", "give one entry for each trajectory") from None
    codes = []
    for entry in entries:
        if isinstance(entry, str):
            if entry not in _PARTS:
                raise InputError(f"`split` has the entry {entry!r}", "use `train`, `validation` and `test`")
            codes.append(_PARTS[entry])
        else:
            codes.append(whole(entry, "split"))
    if len(codes) != count:
        raise InputError(f"`split` has {len(codes)} entries for {count} trajectories")
    return codes


def _domain(domain: Any, axes: int) -> list[list[float]]:
    if domain is None:
        return [[0.0, 1.0]] * axes
    found = finite(array(domain, "domain", np.float64), "domain")
    if found.size != 2 * axes or found.ndim > 2:
        raise InputError(f"`domain` has the shape {list(found.shape)}", f"give the lower and upper end of each of {axes} space axes")
    return found.reshape(axes, 2).tolist()


for _class in (Trajectories, Trajectory):
    _class.__module__ = "cfo"
for _function in (read, simulate):
    _function.__module__ = "cfo"
del _class, _function
