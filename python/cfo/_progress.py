"""Progress of training: one line that is updated in a terminal and in a notebook, plain lines elsewhere."""

from __future__ import annotations

import sys
import time
from typing import Any

# Seconds between two lines, and between two changes of one.
_LINES = 5.0
_CHANGES = 0.1


def _line(report: dict[str, Any]) -> str:
    rate = report.get("steps_per_second") or 0.0
    left = (report["steps"] - report["step"]) / rate if rate > 0 else float("nan")
    validation = report.get("validation")
    more = "" if validation is None else f", validation {validation:.2e}"
    return f"step {report['step']}/{report['steps']}: loss {report['loss']:.2e}, {rate:.1f}/s, {left:.0f} s left{more}"


def _kernel() -> bool:
    """Return whether this runs in a notebook."""
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython is not None else None
    return shell is not None and getattr(shell, "kernel", None) is not None


class Progress:
    """Shows the progress of training."""

    def __init__(self) -> None:
        self._shown_at = float("-inf")
        self._handle: Any = None
        self._width = 0
        if _kernel():
            self._show = self._in_notebook
        elif sys.stderr is not None and sys.stderr.isatty():
            self._show = self._on_terminal
        else:
            self._show = self._as_lines

    def report(self, report: dict[str, Any]) -> None:
        last = report["step"] == report["steps"]
        pause = _LINES if self._show == self._as_lines else _CHANGES
        now = time.monotonic()
        if last or report.get("validation") is not None or now - self._shown_at >= pause:
            self._shown_at = now
            self._show(_line(report))

    def close(self) -> None:
        if self._width:
            self._write("\r" + " " * self._width + "\r")
            self._width = 0

    def _in_notebook(self, text: str) -> None:
        from IPython.display import display

        shown = {"text/plain": text}
        if self._handle is None:
            self._handle = display(shown, raw=True, display_id=True)
        else:
            self._handle.update(shown, raw=True)

    def _on_terminal(self, text: str) -> None:
        self._write("\r" + text.ljust(self._width))
        self._width = len(text)

    def _as_lines(self, text: str) -> None:
        self._write(text + "\n")

    def _write(self, text: str) -> None:
        if sys.stderr is not None:
            sys.stderr.write(text)
            sys.stderr.flush()
