"""Training."""

from __future__ import annotations

import json
import os
import warnings
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from . import _native
from ._arrays import whole
from ._errors import InputError, MissingFileError
from ._model import Model
from ._progress import Progress
from ._trajectories import Trajectories, read, whole_seed


def train(
    data: Trajectories | str | os.PathLike[str] | None = None,
    recipe: str | os.PathLike[str] | Mapping[str, Any] | None = None,
    *,
    operator: str | Mapping[str, Any] | None = None,
    path: str | Mapping[str, Any] | None = None,
    objective: str | Mapping[str, Any] | None = None,
    steps: int | None = None,
    batch: int | None = None,
    learning_rate: float | None = None,
    seed: int | None = None,
    device: str = "auto",
    out: str | os.PathLike[str] | None = None,
    resume: bool = False,
    checkpoint: str = "best",
    progress: bool = True,
    callback: Callable[[dict[str, Any]], Any] | None = None,
    set: Mapping[str, Any] | None = None,
) -> Model:
    """Train a model. On the CPU, the same data, recipe and seed give the same bits as `cfo train`.

    Args:
        data: `Trajectories`, or a trajectory file. Without it, the recipe must name a file or a system.
        recipe: Recipe: a file, TOML text, or a dict such as `model.recipe`. Default: the recipe of the run if it is resumed, else a recipe
            that is chosen for the data (`data.recipe()` shows it).
        operator: Network: `"mlp"`, `"fno"`, `"unet"`, `"dit"`, or a dict of the keys of `[operator]` with `kind`.
        path: Spline, such as `"cubic"`, or a dict of the keys of `[path]`.
        objective: Objective, such as `"flow-matching"` or `"autoregressive"`, or a dict of the keys of `[objective]` with `kind`.
        steps: Number of optimiser steps.
        batch: Samples per step.
        learning_rate: Highest learning rate.
        seed: Seed of the weights and the batches.
        device: `"auto"`, `"cpu"` or `"cuda:N"`.
        out: Folder of the run, for checkpoints and the log. Without it nothing is written.
        resume: Whether to continue from the newest checkpoint in `out`, if there is one.
        checkpoint: Weights of the returned model: `"best"` (lowest validation error; without validation the latest) or `"latest"`.
            `cfo.load` makes the same choice.
        progress: Whether to show progress: one line that is updated in a terminal or a notebook, plain lines on stderr elsewhere.
        callback: Function that is called at each report with a dict: `step`, `steps`, `loss`, `learning_rate`, `steps_per_second`,
            `validation` after a validation and `miss` after a round of `[refine]`. If it returns `False`, training ends; if it raises an
            exception, `train` raises it.
        set: Other keys of the recipe by their path, as in `{"train.ema": 0.99}`. Keywords override the recipe, `set` overrides both.

    Returns:
        The trained model.

    Raises:
        ValueError: If recipe and data do not fit each other.
        FileNotFoundError: If a file does not exist.
        KeyboardInterrupt: On Ctrl-C, within 0.1 s. The current step is finished and, with `out`, a checkpoint is saved in the background.
        CfoError: If the loss diverges, the device fails or the disk is full.

    Warns:
        UserWarning: For each entry of `model.warnings`, and for changes during training such as a halved learning rate.
    """
    if isinstance(data, (str, os.PathLike)):
        data = read(data, in_memory=False)
    if data is not None and not isinstance(data, Trajectories):
        raise InputError(f"`data` is a {type(data).__name__}", "give `cfo.Trajectories`, or the name of a file")
    if callback is not None and not callable(callback):
        raise InputError(f"`callback` is a {type(callback).__name__}", "give a function with one argument, a dict")
    if checkpoint not in ("best", "latest"):
        raise InputError(f"`checkpoint` is {checkpoint!r}", 'give `"best"` or `"latest"`')
    counted = None if steps is None else whole(steps, "steps", 1)
    pairs = _section("operator", operator, "kind") + _section("path", path, "spline") + _section("objective", objective, "kind")
    keywords = {
        "train.steps": counted,
        "train.batch": None if batch is None else whole(batch, "batch", 1),
        "train.learning_rate": learning_rate,
        "train.seed": None if seed is None else whole_seed(seed),
    }
    pairs += [(key, value) for key, value in keywords.items() if value is not None]
    pairs += _set(set)
    order = {
        **_recipe(recipe),
        "assignments": _json(pairs),
        "steps": counted,
        "device": str(device),
        "out": None if out is None else os.fspath(out),
        "resume": bool(resume),
        "latest": checkpoint == "latest",
    }
    shown = Progress() if progress else None

    told: list[str] = []

    def hear(kind: str, text: str) -> bool:
        if kind == "notice":
            told.append(text)
            warnings.warn(text, stacklevel=3)
            return True
        report = json.loads(text)
        if shown is not None:
            shown.report(report)
        answer = None if callback is None else callback(report)
        return not (isinstance(answer, (bool, np.bool_)) and not answer)

    try:
        native = _native.train(None if data is None else data._native, order, hear)
    finally:
        if shown is not None:
            shown.close()
    model = Model._of(native)
    for text in model.warnings:
        if text not in told:
            warnings.warn(text, stacklevel=2)
    return model


def _section(name: str, value: Any, short: str) -> list[tuple[str, Any]]:
    """Return the keys of a section; a string is the value of `short`."""
    if value is None:
        return []
    if isinstance(value, str):
        return [(f"{name}.{short}", value)]
    if not isinstance(value, Mapping):
        raise InputError(f"`{name}` is a {type(value).__name__}", f"give text or a dict of the keys of `[{name}]`")
    return [(f"{name}.{key}", entry) for key, entry in value.items() if entry is not None]


def _set(value: Any) -> list[tuple[str, Any]]:
    if value is None:
        return []
    if not isinstance(value, Mapping) or not all(isinstance(key, str) for key in value):
        raise InputError("`set` is not a dict of keys and values", 'write, for example, `{"train.ema": 0.99}`')
    return list(value.items())


def _recipe(recipe: Any) -> dict[str, Any]:
    """Return the text of a recipe, or its values as JSON."""
    if recipe is None:
        return {"recipe": None, "recipe_json": None, "origin": None}
    if isinstance(recipe, Mapping):
        return {"recipe": None, "recipe_json": _json(recipe), "origin": "the recipe"}
    if isinstance(recipe, str) and "\n" in recipe:
        return {"recipe": recipe, "recipe_json": None, "origin": "the recipe"}
    if not isinstance(recipe, (str, os.PathLike)):
        raise InputError(f"`recipe` is a {type(recipe).__name__}", "give a file, the text of one, or a dict")
    name = os.fspath(recipe)
    try:
        with open(name, encoding="utf-8") as file:
            text = file.read()
    except FileNotFoundError as error:
        problem = f"failed to open file `{name}`: {error.strerror} (os error {error.errno})"
        raise MissingFileError(problem, "check the path; the folder `recipes` of the source tree has examples of recipes") from None
    except (UnicodeDecodeError, IsADirectoryError):
        raise InputError(f"`{name}` is not a recipe: it is not text", "trajectories are the first argument, a recipe the second") from None
    except ValueError as error:
        raise InputError(f"`recipe` is not a file name: {error}") from None
    return {"recipe": text, "recipe_json": None, "origin": f"the recipe `{name}`"}


def _json(value: Any) -> str:
    def plain(entry: Any) -> Any:
        if isinstance(entry, (np.generic, np.ndarray)):
            return entry.tolist()
        if isinstance(entry, os.PathLike):
            return os.fspath(entry)
        raise TypeError(f"{entry!r} cannot be stored in a recipe")

    try:
        return json.dumps(value, default=plain, allow_nan=False)
    except (TypeError, ValueError, RecursionError) as error:
        raise InputError(f"the recipe is not valid: {error}", "use numbers, strings, booleans, and lists and dicts of these") from None


train.__module__ = "cfo"
