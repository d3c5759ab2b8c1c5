"""The command `cfo`, with the same code as the binary."""

from __future__ import annotations

import signal
import sys

from . import _native


def main() -> int:
    """Run the command line and return its exit code."""
    # Python's own handler would delay Ctrl-C until the command returns.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    return _native.command(["cfo", *sys.argv[1:]])


if __name__ == "__main__":
    sys.exit(main())
