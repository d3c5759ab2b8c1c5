"""Exceptions and warnings."""

from __future__ import annotations


class CfoError(Exception):
    """Base class of the exceptions of this package.

    `str(error)` is the problem and, if there is one, a hint; `error.hint` is the hint alone, or `None`. Exceptions for bad input are also
    `ValueError`, those for missing files and runs also `FileNotFoundError`.
    """

    hint: str | None

    def __init__(self, problem: str, hint: str | None = None) -> None:
        super().__init__(problem, hint)
        self.hint = hint

    def __str__(self) -> str:
        problem, hint = str(self.args[0]), self.hint
        return problem if hint is None else f"{problem}\n\nhint: {hint}"


class InputError(CfoError, ValueError):
    """Bad input."""


class MissingFileError(CfoError, FileNotFoundError):
    """A missing file or run."""


class DivergenceWarning(RuntimeWarning):
    """Warning that a predicted trajectory became infinite or undefined; its states after that time are NaN."""


CfoError.__module__ = DivergenceWarning.__module__ = "cfo"
