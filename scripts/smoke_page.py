#!/usr/bin/env python3
"""Puts the reports of `cfo reproduce all` on one page without pictures, as docs/measured/smoke.md is.

    cfo reproduce all --device cpu
    scripts/smoke_page.py runs/all --machine 'two cores of ...' > docs/measured/smoke.md

What several reports say (what is reduced, footnotes) stands where it is first needed.
"""
import argparse
import json
import subprocess
from pathlib import Path


def paragraphs(report):
    """What a report says, piece by piece; a table is one piece, each entry of a list another."""
    for piece in report.split("\n\n"):
        piece = piece.strip("\n")
        if piece.startswith("- "):
            yield from piece.splitlines()
        elif piece.strip() and not piece.startswith("!["):
            yield piece


def compact(piece):
    """A table without the spaces that align its columns in a terminal."""
    if not piece.startswith("|"):
        return piece
    rows = ([cell.strip() for cell in line.strip("|").split("|")] for line in piece.splitlines())
    return "\n".join("| " + " | ".join(rule(cell) for cell in row) + " |" for row in rows)


def rule(cell):
    """A cell; the line under the head keeps its alignment."""
    return "---" + ":" * cell.endswith(":") if set(cell) <= {"-", ":"} and len(cell) > 2 else cell


def commit():
    done = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, cwd=Path(__file__).parent)
    return done.stdout.strip() or "unknown"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="what `cfo reproduce all` wrote")
    parser.add_argument("--machine", required=True, help="in words")
    parser.add_argument("--commit", help="of the binary [default: of this folder]")
    options = parser.parse_args()
    reports = sorted(options.folder.glob("*/report.md"), key=lambda file: file.stat().st_mtime)
    if not reports:
        raise SystemExit(f"{options.folder} has no reports: run `cfo reproduce all` first")
    seconds = {file.parent.name: json.loads(file.with_name("finished.json").read_text())["seconds"] for file in reports}
    print("# Every target at smoke scale\n")
    print(f"`cfo reproduce all` at commit {options.commit or commit()}, {options.machine}. Trainings that targets share count for the first one that needs them.\n")
    print("| target | seconds |\n|---|---:|")
    for target, time in seconds.items():
        print(f"| `{target}` | {time:.1f} |")
    print(f"| together | {sum(seconds.values()):.1f} |")
    said, before = set(), ""
    for file in reports:
        for piece in paragraphs(file.read_text()):
            if piece not in said:
                said.add(piece)
                if not (piece.startswith("- ") and before.startswith("- ")):
                    print()
                print(f"#{piece}" if piece.startswith("#") else compact(piece))
                before = piece


if __name__ == "__main__":
    main()
