"""Trained models."""

from __future__ import annotations

import io
import json
import os
import tarfile
import tempfile
import warnings
from collections.abc import Mapping
from typing import Any

import numpy as np

from . import _native
from ._arrays import array, finite, number, whole
from ._errors import CfoError, DivergenceWarning, InputError
from ._trajectories import Trajectories


class Model:
    """A trained model. `cfo.train` returns one, `cfo.load` loads one.

    A model is immutable. `copy.copy` shares the weights; `copy.deepcopy` and pickles have their own. Threads may share a model, but its calls
    run one after another.
    """

    __slots__ = ("_facts", "_native")

    _facts: dict[str, Any]
    _native: Any

    def __init__(self) -> None:
        raise TypeError("a `Model` comes from `cfo.train` or `cfo.load`")

    @classmethod
    def _of(cls, native: Any) -> Model:
        model = object.__new__(cls)
        model._native, model._facts = native, json.loads(native.facts)
        return model

    def predict(
        self,
        initial: Any,
        times: Any,
        start: Any = None,
        solver: str | None = None,
        steps: int | None = None,
        rtol: float | None = None,
        atol: float | None = None,
        parameters: Any = None,
        *,
        nfe: int | None = None,
        controls: Any = None,
        statics: Any = None,
    ) -> np.ndarray:
        """Predict states at any times, forward or backward.

        Args:
            initial: One state `[(space...,) channel]` or several `[batch, (space...,) channel]`, in the units of the data. FNO also
                accepts other grids than that of the training data.
            times: Times to predict at, in any order, before or after the start: one number, `[time]` or `[batch, time]`.
            start: Time of the initial states: one number or `[batch]`. Default: the first time of the training data.
            solver: `"euler"`, `"heun"`, `"rk4"`, `"dopri5"` or `"tsit5"`. Default: the solver of the recipe. Without `steps` and `nfe`, `"heun"`,
                `"dopri5"` and `"tsit5"` choose their steps by the tolerances.
            steps: Number of equal steps from the first to the last time of a trajectory, including its start.
            rtol: Relative tolerance of adaptive steps. Default: that of the recipe.
            atol: Absolute tolerance of adaptive steps, in normalised units. Default: that of the recipe.
            parameters: PDE parameters, for models that were trained with `data.condition = true`: a dict of names, `[parameter]` or
                `[batch, parameter]`.
            nfe: Largest number of network evaluations over the horizon of the training data.
            controls: Times and values of the controls, for models that take them: `(times, values)` with `[control time]` or
                `[batch, control time]` and `[control time, control]` or `[batch, control time, control]`. They must cover all times from
                the start to the last one.
            statics: Static fields, for models that take them: `[(space...,) static]` or `[batch, (space...,) static]`.

        Returns:
            float32 `[batch, time, (space...,) channel]` in the order of `times`, without the first axis for one state. The type is float64 if the
            values of the training data are large compared with their spread.

        Raises:
            ValueError: If an argument does not fit the model, or `solver`, `steps`, `nfe`, `rtol` and `atol` contradict each other.

        Warns:
            DivergenceWarning: If a trajectory becomes infinite or undefined; its states after that time are NaN.
            UserWarning: If a trajectory leaves the range of the training data by more than ten times its width, or a prediction extrapolates.
        """
        states, shape, single = self._states(initial, "initial")
        finite(states, "initial")
        count = len(states)
        moments = finite(array(times, "times", np.float64), "times")
        if moments.ndim > 2 or (moments.ndim == 2 and len(moments) != count):
            raise InputError(f"`times` has the shape {list(moments.shape)}", f"give `[time]`, or `[batch, time]` for {count} states")
        wanted = moments.shape[-1] if moments.ndim else 1
        begin = _each(self._facts["first_time"] if start is None else start, "start", count)
        inputs = self._inputs(parameters, controls, statics, count, shape)
        if count == 0 or wanted == 0:
            return np.zeros((count, wanted, *shape), dtype=np.float32)[0 if single and count else slice(None)]
        flat = np.broadcast_to(moments.reshape((-1, wanted)), (count, wanted)).reshape(-1)
        found, ended, notes = self._native.predict(
            states.reshape(-1), list(shape), begin, np.ascontiguousarray(flat), inputs, _integration(solver, rtol, atol, steps=steps, nfe=nfe)
        )
        for text in ended:
            warnings.warn(text, DivergenceWarning, stacklevel=2)
        for note in notes:
            warnings.warn(note, stacklevel=2)
        found = found.reshape((count, wanted, *shape))
        return found[0] if single else found

    def velocity(self, u: Any, t: Any, parameters: Any = None, controls: Any = None, statics: Any = None) -> np.ndarray:
        """Return the learned right-hand side f(u, t), in the units of the data.

        Args:
            u: One state `[(space...,) channel]`, which may be flat, or several `[batch, (space...,) channel]`.
            t: One time, or `[batch]`. It has no effect on models without time as an input.
            parameters: PDE parameters, for models that were trained with `data.condition = true`: a dict of names, or `[parameter]`.
            controls: Times and values of the controls, for models that take them: `([control time], [control time, control])`.
            statics: Static fields, for models that take them: `[(space...,) static]`.

        Returns:
            float32, with the shape of `u`. With SciPy: `solve_ivp(lambda t, u: model.velocity(u, t), (0, 1), u0)`.

        Raises:
            ValueError: If an argument does not fit the model, or the model has no velocity, such as an autoregressive model.
        """
        states, shape, _ = self._states(u, "u", flat=True)
        moments = _each(t, "t", len(states), one=True)
        inputs = self._inputs(parameters, controls, statics, 1, shape)[0]
        if states.size == 0:
            return np.zeros(np.shape(u), dtype=np.float32)
        return self._native.velocity(states.reshape(-1), list(shape), moments, inputs).reshape(np.shape(u))

    def vector_jacobian(self, u: Any, t: Any, w: Any, parameters: Any = None, controls: Any = None, statics: Any = None) -> np.ndarray:
        """Return vector-Jacobian products `w^T df/du`.

        Args:
            u: One state or several, as for `velocity`.
            t: One time, or `[batch]`.
            w: One vector for each state, with the shape of `u`.
            parameters: PDE parameters, as for `velocity`.
            controls: Controls, as for `velocity`.
            statics: Static fields, as for `velocity`.

        Returns:
            float32, with the shape of `u`.

        Raises:
            ValueError: As for `velocity`.
        """
        states, shape, _ = self._states(u, "u", flat=True)
        vectors = array(w, "w", np.float32)
        if vectors.shape != np.shape(u):
            raise InputError(f"`w` has the shape {list(vectors.shape)}, `u` {list(np.shape(u))}", "give one vector, shaped like a state, for each state")
        moments = _each(t, "t", len(states), one=True)
        inputs = self._inputs(parameters, controls, statics, 1, shape)[0]
        if states.size == 0:
            return np.zeros(np.shape(u), dtype=np.float32)
        found = self._native.vector_jacobian(states.reshape(-1), list(shape), moments, vectors.reshape(-1), inputs)
        return found.reshape(np.shape(u))

    def evaluate(
        self,
        data: Trajectories,
        *,
        solver: str | None = None,
        steps: int | None = None,
        nfe: int | None = None,
        rtol: float | None = None,
        atol: float | None = None,
        metrics: bool = True,
    ) -> dict[str, Any]:
        """Compare rollouts from the first snapshot of each trajectory with all its snapshots.

        Args:
            data: The trajectories to compare with, such as `data.test`.
            solver: As for `predict`.
            steps: As for `predict`.
            nfe: As for `predict`.
            rtol: As for `predict`.
            atol: As for `predict`.
            metrics: Whether to compute the metrics of PDEBench and others, and the miss.

        Returns:
            The document that `cfo evaluate --json` prints, without file names: `relative_l2`, `per_time`, `channels`, `metrics`, `miss`,
            `evaluations`, `diverged`, `warnings` and others (docs/reference/json.md). A trajectory that diverges is `None` in
            `relative_l2["per_trajectory"]` and is listed in `diverged`. `miss` is by how much solutions from each snapshot over one interval
            miss the next snapshot, in standard deviations; models that generate whole trajectories have none.

        Raises:
            ValueError: If `data` does not fit the model, or the options of the solver contradict each other.

        Warns:
            UserWarning: For each entry of `warnings`, such as steps of the solver that are too long.
        """
        if not isinstance(data, Trajectories):
            raise InputError(f"`data` is a {type(data).__name__}", "give `cfo.Trajectories`, as in `cfo.read(file).test`")
        document, notes = self._native.evaluate(data._native, _integration(solver, rtol, atol, steps=steps, nfe=nfe), bool(metrics))
        for note in notes:
            warnings.warn(note, stacklevel=2)
        return json.loads(document)

    def save(self, run: str | os.PathLike[str]) -> None:
        """Write the model as the folder of a run, which `cfo.load` and the command read.

        Args:
            run: Folder to write.

        Raises:
            ValueError: If the folder already holds a run.
        """
        self._native.save(os.fspath(run))

    @property
    def recipe(self) -> dict[str, Any]:
        """The recipe that the model was trained with: a dict of sections with every key."""
        return json.loads(self._native.recipe)

    @property
    def history(self) -> list[dict[str, Any]]:
        """The reports of training: dicts with `step`, `steps`, `loss`, `learning_rate`, `steps_per_second`, `validation` after a validation and `miss` after a round of `[refine]`."""
        return json.loads(self._native.history)

    @property
    def system(self) -> str:
        """The name of the system; empty if it is unknown."""
        return self._facts["system"]

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of a state: `((space...,) channel)`."""
        return tuple(self._facts["shape"])

    @property
    def channel_names(self) -> list[str]:
        """The names of the channels; empty if they are unknown."""
        return list(self._facts["channel_names"])

    @property
    def parameter_names(self) -> list[str]:
        """The names of the PDE parameters that are inputs of the network."""
        return list(self._facts["parameter_names"])

    @property
    def control_names(self) -> list[str]:
        """The names of the controls that are inputs of the network."""
        return list(self._facts["control_names"])

    @property
    def static_names(self) -> list[str]:
        """The names of the static fields that are inputs of the network."""
        return list(self._facts["static_names"])

    @property
    def parameters(self) -> int:
        """The number of trainable parameters of the network."""
        return self._facts["parameters"]

    @property
    def warnings(self) -> list[str]:
        """Warnings about the training data and the result of training, if this process trained the model."""
        return list(self._facts["warnings"])

    @property
    def steps(self) -> int:
        """The training step of the weights, which is not the last one if an earlier validation was better."""
        return self._facts["steps"]

    @property
    def device(self) -> str:
        """The device that holds the weights."""
        return self._facts["device"]

    @property
    def precision(self) -> str:
        """The precision of rollouts."""
        return self._facts["precision"]

    def __repr__(self) -> str:
        kind = self.recipe["operator"]["kind"]
        return f"<cfo.Model: {kind} with {self.parameters} parameters, {self.steps} steps, states {list(self.shape)}, on {self.device}>"

    def __reduce__(self) -> tuple[Any, ...]:
        with tempfile.TemporaryDirectory() as folder:
            self._native.save(os.path.join(folder, "run"))
            packed = io.BytesIO()
            with tarfile.open(fileobj=packed, mode="w") as archive:
                archive.add(os.path.join(folder, "run"), arcname="run")
        return _restored, (packed.getvalue(), self.device)

    def __copy__(self) -> Model:
        return Model._of(self._native)

    def __deepcopy__(self, memo: Any) -> Model:
        restore, arguments = self.__reduce__()
        return restore(*arguments)

    def _states(self, value: Any, name: str, flat: bool = False) -> tuple[np.ndarray, tuple[int, ...], bool]:
        """Return states `[batch, ...]`, the shape of one, and whether a single state was given."""
        states = array(value, name, np.float64 if self._facts["double"] else np.float32)
        own = self.shape
        if states.ndim == len(own):
            return states[None], states.shape, True
        if states.ndim == len(own) + 1:
            return states, states.shape[1:], False
        if flat and states.ndim == 1 and states.size == int(np.prod(own)):
            return states.reshape((1, *own)), own, True
        raise InputError(
            f"`{name}` has the shape {list(states.shape)}; a state of the model has {list(own)}",
            "give one state, or several with a batch axis in front",
        )

    def _inputs(self, parameters: Any, controls: Any, statics: Any, count: int, shape: tuple[int, ...]) -> list[tuple[list[float], Any, Any]]:
        """Return the PDE parameters, the controls and the static fields of each state, in the model's order."""
        return list(zip(self._conditions(parameters, count), self._controls(controls, count), self._statics(statics, count, shape[:-1])))

    def _statics(self, statics: Any, count: int, grid: tuple[int, ...]) -> list[np.ndarray | None]:
        names = self._facts["static_names"]
        if statics is None:
            if names:
                raise InputError(f"the model takes {len(names)} static fields: {', '.join(names)}", "give `statics`")
            return [None] * count
        if not names:
            raise InputError("the model takes no static fields: its training data had none, or `data.statics` is `false`")
        found = finite(array(statics, "statics", np.float32), "statics")
        one = (*grid, len(names))
        if found.shape not in (one, (count, *one)):
            raise InputError(f"`statics` has the shape {list(found.shape)}", f"give {list(one)}, or one such array for each of {count} states")
        rows = [found.reshape(-1)] if found.shape == one else [row.reshape(-1) for row in found]
        return rows * (count if len(rows) == 1 else 1)

    def _controls(self, controls: Any, count: int) -> list[tuple[list[float], list[float]] | None]:
        names = self._facts["control_names"]
        if controls is None:
            if names:
                raise InputError(f"the model takes {len(names)} controls: {', '.join(names)}", "give `controls=(times, values)`")
            return [None] * count
        if not names:
            raise InputError("the model takes no controls: its training data had none, or `data.controls` is `none`")
        if not isinstance(controls, (tuple, list)) or len(controls) != 2:
            raise InputError("`controls` is not a pair", "give `(times, values)`")
        times, values = (array(one, f"controls[{index}]", np.float64) for index, one in enumerate(controls))
        if times.ndim == 1:
            times = np.broadcast_to(times, (count, len(times)))
        if values.ndim == 2:
            values = np.broadcast_to(values, (count, *values.shape))
        if times.ndim != 2 or len(times) != count or values.shape != (*times.shape, len(names)):
            raise InputError(
                f"`controls` has times of shape {list(times.shape)} and values of shape {list(values.shape)}",
                f"give `[control time]` and `[control time, {len(names)}]`, or one of each for each of {count} states",
            )
        return [(clock.tolist(), row.reshape(-1).tolist()) for clock, row in zip(times, values)]

    def _conditions(self, parameters: Any, count: int) -> list[list[float]]:
        """Return the PDE parameters of each state, in the model's order."""
        names = self._facts["parameter_names"]
        needed = len(names)
        if parameters is None:
            if needed:
                raise InputError(f"the model takes {needed} PDE parameters: {', '.join(names)}", "give `parameters`, a dict of their names")
            return [[] for _ in range(count)]
        if not needed:
            raise InputError("the model takes no parameters: it was trained without `data.condition = true`")
        if isinstance(parameters, Mapping):
            unknown = [name for name in parameters if name not in names]
            missing = [name for name in names if name not in parameters]
            if unknown or missing:
                wrong = f"`{unknown[0]}` is unknown" if unknown else f"`{missing[0]}` is missing"
                raise InputError(f"`parameters`: {wrong}", f"the model takes {', '.join(names)}")
            columns = [_each(parameters[name], f"parameters[{name!r}]", count) for name in names]
            return [list(row) for row in zip(*columns)] if count else []
        table = finite(array(parameters, "parameters", np.float64), "parameters")
        if table.shape == (needed,):
            return [table.tolist() for _ in range(count)]
        if table.shape != (count, needed):
            raise InputError(f"`parameters` has the shape {list(table.shape)}", f"give {needed} numbers, or {needed} for each of {count} states")
        return table.tolist()


def _each(value: Any, name: str, count: int, one: bool = False) -> list[float]:
    """Return one number for each state, or with `one` a single number for all."""
    found = finite(array(value, name, np.float64), name)
    if found.ndim == 0 or found.shape == (1,):
        return [float(found.reshape(-1)[0])] * (1 if one else count)
    if found.shape != (count,):
        raise InputError(f"`{name}` has the shape {list(found.shape)}", f"give one number, or {count}")
    return found.tolist()


def _integration(solver: Any, rtol: Any, atol: Any, steps: Any = None, nfe: Any = None) -> dict[str, Any]:
    if solver is not None and not isinstance(solver, str):
        raise InputError(f"`solver` is {solver!r}", "give its name")
    return {
        "solver": solver,
        "steps": None if steps is None else whole(steps, "steps", 1),
        "nfe": None if nfe is None else whole(nfe, "nfe", 1),
        "rtol": None if rtol is None else number(rtol, "rtol"),
        "atol": None if atol is None else number(atol, "atol"),
    }


def _restored(packed: bytes, device: str) -> Model:
    with tempfile.TemporaryDirectory() as folder:
        with tarfile.open(fileobj=io.BytesIO(packed)) as archive:
            safe = {"filter": "data"} if hasattr(tarfile, "data_filter") else {}
            archive.extractall(folder, **safe)  # type: ignore[arg-type]
        run = os.path.join(folder, "run")
        try:
            return load(run, device=device)
        except CfoError:
            # The device of the pickled model may not exist on this machine.
            return load(run, device="auto")


def load(run: str | os.PathLike[str], checkpoint: str = "best", device: str = "auto") -> Model:
    """Load a trained model from the folder of a run.

    Args:
        run: Folder of the run.
        checkpoint: `"best"` (without validation the latest), `"latest"` or `"step-N"`.
        device: `"auto"`, `"cpu"` or `"cuda:N"`.

    Returns:
        The model.

    Raises:
        FileNotFoundError: If the run does not exist.
        ValueError: If the checkpoint or the device does not exist, or the checkpoint is damaged.

    Warns:
        UserWarning: If `recipe.toml` in the folder differs from the recipe that the run was trained with.
    """
    name = None if checkpoint == "best" else str(checkpoint)
    native, note = _native.Model.load(os.fspath(run), name, str(device))
    if note is not None:
        warnings.warn(note, stacklevel=2)
    return Model._of(native)


Model.__module__ = load.__module__ = "cfo"
