"""The exceptions of the package."""

from __future__ import annotations


class CfoError(Exception):
    """What `cfo` could not do, and what to do about it.

    `str(error)` is what the command `cfo` says: the problem and, if there is one, a hint. Bad input is also a `ValueError`, a file
    or a run that is not there also a `FileNotFoundError`.
    """

    hint: str | None

    def __init__(self, problem: str, hint: str | None = None) -> None:
        super().__init__(problem, hint)
        self.hint = hint

    def __str__(self) -> str:
        problem, hint = str(self.args[0]), self.hint
        return problem if hint is None else f"{problem}\n\nhint: {hint}"


class InputError(CfoError, ValueError):
    """Input that is wrong."""


class MissingFileError(CfoError, FileNotFoundError):
    """A file or a run that is not there."""


class DivergenceWarning(RuntimeWarning):
    """A trajectory of a prediction became infinite or undefined on its way: its states after that are NaN."""


CfoError.__module__ = DivergenceWarning.__module__ = "cfo"
