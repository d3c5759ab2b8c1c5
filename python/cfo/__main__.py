"""The command `cfo`: the same code as the binary's."""

from __future__ import annotations

import signal
import sys

from . import _native


def main() -> int:
    """Carries out the command line and returns its exit code."""
    # Python would only take note of Ctrl-C; the command ends by it, or takes it over.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    return _native.command(["cfo", *sys.argv[1:]])


if __name__ == "__main__":
    sys.exit(main())
