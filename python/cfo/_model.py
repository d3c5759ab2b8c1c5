"""A trained model."""

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
    """A trained model: `cfo.train` makes one, `cfo.load` loads one.

    It cannot be changed. Copies by `copy.copy` share its weights, those by `copy.deepcopy` and pickles have their own. Threads may share
    it; their calls are carried out one after another.
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
    ) -> np.ndarray:
        """The states at any times, forward and backward, from known ones.

        Args:
            initial: One state `[(space...,) channel]` or several, `[batch, (space...,) channel]`, in the user's units. The grid may be another
                than that of the training data where the network allows it.
            times: When states are wanted, in any order, on both sides of the start: one number, `[time]`, or `[batch, time]`.
            start: When the initial states were: one number or `[batch]`. By default the first time of the training data.
            solver: `"euler"`, `"heun"`, `"rk4"`, `"dopri5"` or `"tsit5"`; by default that of the recipe, with its steps. Alone, `"heun"`, `"dopri5"` and
                `"tsit5"` choose their steps by the recipe's tolerances.
            steps: Exactly this many equal steps from the first to the last time of a trajectory, its start included.
            rtol, atol: Tolerances in the network's units, for steps that the solver chooses. One that is not given is the recipe's.
            parameters: PDE parameters of a model that is conditioned on them: a dict of names, `[parameter]` or `[batch, parameter]`.
            nfe: At most this many network evaluations over the horizon of the training data.

        Returns:
            float32 `[batch, time, (space...,) channel]` in the order of `times`, without the first axis for one state; float64 where the values of
            the training data are large beside their spread. Of a trajectory that becomes infinite or undefined on its way the states after that
            are NaN, and a `cfo.DivergenceWarning` names it and the last time reached. A warning also says where a trajectory leaves the range of
            the training data by orders of magnitude.

        Raises:
            ValueError: If an argument does not fit the model, or `solver`, `steps`, `nfe`, `rtol` and `atol` contradict each other.
        """
        states, shape, single = self._states(initial, "initial")
        finite(states, "initial")
        count = len(states)
        moments = finite(array(times, "times", np.float64), "times")
        if moments.ndim > 2 or (moments.ndim == 2 and len(moments) != count):
            raise InputError(f"`times` has the shape {list(moments.shape)}", f"give `[time]`, or `[batch, time]` for {count} states")
        wanted = moments.shape[-1] if moments.ndim else 1
        begin = _each(self._facts["first_time"] if start is None else start, "start", count)
        conditions = self._conditions(parameters, count)
        if count == 0 or wanted == 0:
            return np.zeros((count, wanted, *shape), dtype=np.float32)[0 if single and count else slice(None)]
        flat = np.broadcast_to(moments.reshape((-1, wanted)), (count, wanted)).reshape(-1)
        found, ended, notes = self._native.predict(
            states.reshape(-1), list(shape), begin, np.ascontiguousarray(flat), conditions, _integration(solver, rtol, atol, steps=steps, nfe=nfe)
        )
        for text in ended:
            warnings.warn(text, DivergenceWarning, stacklevel=2)
        for note in notes:
            warnings.warn(note, stacklevel=2)
        found = found.reshape((count, wanted, *shape))
        return found[0] if single else found

    def velocity(self, u: Any, t: Any, parameters: Any = None) -> np.ndarray:
        """The learned right-hand side in the user's units.

        Args:
            u: One state `[(space...,) channel]`, also flat, or several, `[batch, (space...,) channel]`.
            t: One time, or `[batch]`.
            parameters: PDE parameters of a model that is conditioned on them: a dict of names, or `[parameter]`.

        Returns:
            float32 of the shape of `u`. For SciPy: `solve_ivp(lambda t, u: model.velocity(u, t), (0, 1), u0)`.
        """
        states, shape, _ = self._states(u, "u", flat=True)
        moments = _each(t, "t", len(states), one=True)
        conditions = self._conditions(parameters, 1)[0]
        if states.size == 0:
            return np.zeros(np.shape(u), dtype=np.float32)
        return self._native.velocity(states.reshape(-1), list(shape), moments, conditions).reshape(np.shape(u))

    def vector_jacobian(self, u: Any, t: Any, w: Any, parameters: Any = None) -> np.ndarray:
        """Vectors applied from the left to the derivative of the velocity by the state: `w^T dv/du`.

        Args:
            u: One state or several, as for `velocity`.
            t: One time, or `[batch]`.
            w: A vector for each state, of the shape of `u`.
            parameters: PDE parameters, as for `velocity`.

        Returns:
            float32 of the shape of `u`.
        """
        states, shape, _ = self._states(u, "u", flat=True)
        vectors = array(w, "w", np.float32)
        if vectors.shape != np.shape(u):
            raise InputError(f"`w` has the shape {list(vectors.shape)}, `u` {list(np.shape(u))}", "give one vector, shaped like a state, for each state")
        moments = _each(t, "t", len(states), one=True)
        conditions = self._conditions(parameters, 1)[0]
        if states.size == 0:
            return np.zeros(np.shape(u), dtype=np.float32)
        found = self._native.vector_jacobian(states.reshape(-1), list(shape), moments, vectors.reshape(-1), conditions)
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
        """Rolls out trajectories over all their times, from their first snapshot, and compares.

        Args:
            data: The trajectories, as in `data.test`; all of them are compared.
            solver, steps, nfe, rtol, atol: As for `predict`.
            metrics: Whether PDEBench's metrics and others are computed too.

        Returns:
            What `cfo evaluate --json` prints: `relative_l2` with `mean`, `std`, `per_trajectory`, `final_time` and `indices`, `per_time`,
            `evaluations`, `seconds_per_trajectory`, `metrics`, `diverged` and others. A trajectory that diverges is `None` in
            `per_trajectory`, named in `diverged`, and costs the others nothing. Warnings, also under `warnings`, say where the solver's steps are too
            long for the learned field (`shorter_steps`) and where a trajectory leaves the range of the training data by orders of magnitude.
        """
        if not isinstance(data, Trajectories):
            raise InputError(f"`data` is a {type(data).__name__}", "give `cfo.Trajectories`, as in `cfo.read(file).test`")
        document, notes = self._native.evaluate(data._native, _integration(solver, rtol, atol, steps=steps, nfe=nfe), bool(metrics))
        for note in notes:
            warnings.warn(note, stacklevel=2)
        return json.loads(document)

    def save(self, run: str | os.PathLike[str]) -> None:
        """Writes the model as the folder of a run, which `cfo.load` and the command read.

        Raises:
            ValueError: If the folder holds a run already.
        """
        self._native.save(os.fspath(run))

    @property
    def recipe(self) -> dict[str, Any]:
        """The recipe that it was trained by: a dict of sections, every key resolved."""
        return json.loads(self._native.recipe)

    @property
    def history(self) -> list[dict[str, Any]]:
        """The reports of the training: `step`, `steps`, `loss`, `learning_rate`, `steps_per_second` and, where it was measured, `validation`."""
        return json.loads(self._native.history)

    @property
    def system(self) -> str:
        """The name of the system; empty where it is unknown."""
        return self._facts["system"]

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of a state: `((space...,) channel)`."""
        return tuple(self._facts["shape"])

    @property
    def channel_names(self) -> list[str]:
        """Names of the channels; empty where they are unknown."""
        return list(self._facts["channel_names"])

    @property
    def parameter_names(self) -> list[str]:
        """Names of the PDE parameters that it is conditioned on."""
        return list(self._facts["parameter_names"]) if self._facts["conditions"] else []

    @property
    def parameters(self) -> int:
        """Trainable numbers of the network."""
        return self._facts["parameters"]

    @property
    def warnings(self) -> list[str]:
        """Warnings about the training data and about how the training ended, if this process trained the model."""
        return list(self._facts["warnings"])

    @property
    def steps(self) -> int:
        """Training steps behind the weights: fewer than were made where an earlier validation was the best one."""
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
        """States `[batch, ...]`, the shape of one, and whether it was one alone."""
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
            "give one state, or several along one more axis in front",
        )

    def _conditions(self, parameters: Any, count: int) -> list[list[float]]:
        """PDE parameters of each state, in the model's order."""
        needed, names = self._facts["conditions"], self._facts["parameter_names"]
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
                raise InputError(f"of the PDE parameters {wrong}", f"the model takes {', '.join(names)}")
            columns = [_each(parameters[name], f"parameters[{name!r}]", count) for name in names]
            return [list(row) for row in zip(*columns)] if count else []
        table = finite(array(parameters, "parameters", np.float64), "parameters")
        if table.shape == (needed,):
            return [table.tolist() for _ in range(count)]
        if table.shape != (count, needed):
            raise InputError(f"`parameters` has the shape {list(table.shape)}", f"give {needed} numbers, or as many for each of {count} states")
        return table.tolist()


def _each(value: Any, name: str, count: int, one: bool = False) -> list[float]:
    """A number for each state; or one for all, where that will do."""
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
            # A pickle may come to a machine without the device.
            return load(run, device="auto")


def load(run: str | os.PathLike[str], checkpoint: str = "best", device: str = "auto") -> Model:
    """Loads a run.

    Args:
        run: Its folder.
        checkpoint: `"best"`, which is the latest of a run without validation, `"latest"` or `"step-N"`.
        device: `"auto"`, `"cpu"` or `"cuda:N"`.

    Raises:
        FileNotFoundError: If there is no such run.
        ValueError: If there is no such checkpoint or it is damaged, or there is no such device.

    Warns:
        UserWarning: If `recipe.toml` in the folder is not the recipe that the run was trained with.
    """
    name = None if checkpoint == "best" else str(checkpoint)
    native, note = _native.Model.load(os.fspath(run), name, str(device))
    if note is not None:
        warnings.warn(note, stacklevel=2)
    return Model._of(native)


Model.__module__ = load.__module__ = "cfo"
