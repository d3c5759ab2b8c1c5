#!/usr/bin/env python3
"""Finds files above 400 lines and functions above 60, tests left out.

    python3 scripts/lengths.py [CRATE...]      # all crates without any; exits with 1 if there is something to cut

What is counted: lines of src/ and examples/ of each crate, without `#[cfg(test)]` items and without files of tests. A function
goes from its `fn` to its closing brace.
"""

import argparse
import re
import sys
from pathlib import Path

FILE, FUNCTION = 400, 60
ROOT = Path(__file__).resolve().parent.parent / "crates"
# Literals and comments, whose braces and words mean nothing.
QUIET = re.compile(
    r'r(#*)".*?"\1|b?"(?:\\.|[^"\\])*"|b?\'(?:\\.[^\']*|[^\'\\\n])\'|//[^\n]*|/\*.*?\*/', re.DOTALL
)
START = re.compile(
    r"^( *)(?:pub(?:\([^)]*\))? )?(?:default |const |async |unsafe |extern _ )*fn (\w+)"
)


def quiet(match):
    """The same number of lines, and a word where a literal was."""
    text = match.group()
    return ("_" if text[0] not in "/" else "") + "\n" * text.count("\n")


def without_tests(lines):
    """The lines of a file that are not items under `#[cfg(test)]`, with their numbers."""
    kept, end = [], None
    for number, line in enumerate(lines, 1):
        indent = len(line) - len(line.lstrip())
        if end is None and line.strip() == "#[cfg(test)]":
            end = indent
        elif end is None:
            kept.append((number, line))
        elif indent == end and (line.rstrip().endswith(";") or line.strip().startswith("}")):
            end = None
    return kept


def functions(lines):
    """Name, first line and length of each function; the code is formatted, so a brace of its own indentation ends it."""
    opened = []
    for number, line in lines:
        while opened and line.rstrip() in (opened[-1][0] + "}", opened[-1][0] + "};"):
            _, name, first = opened.pop()
            yield name, first, number - first + 1
        start = START.match(line)
        if start and not line.rstrip().endswith(("}", ";")):
            opened.append((start[1], start[2], number))


def offenders(crate):
    for path in sorted(p for room in ("src", "examples") for p in (crate / room).rglob("*.rs")):
        parts = path.relative_to(crate).parts
        if "tests" in parts or path.name in ("tests.rs", "laws.rs"):
            continue
        lines = without_tests(QUIET.sub(quiet, path.read_text()).splitlines())
        place = path.relative_to(ROOT.parent)
        if len(lines) > FILE:
            yield f"{place}: {len(lines)} lines"
        for name, first, length in functions(lines):
            if length > FUNCTION:
                yield f"{place}:{first}: `{name}` has {length} lines"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("crates", nargs="*", metavar="CRATE", help="a folder of crates/")
    crates = [ROOT / name for name in parser.parse_args().crates] or sorted(path for path in ROOT.iterdir() if path.is_dir())
    found = [line for crate in crates for line in offenders(crate)]
    print("\n".join(found) or f"no file above {FILE} lines, no function above {FUNCTION}")
    sys.exit(1 if found else 0)


if __name__ == "__main__":
    main()
