"""The examples of the documentation: README.md and the pages under docs/ that have a `python` block.

Every `python` block of a page runs in one namespace and every `sh` block in bash, from top to bottom, in one temporary folder
with `cfo` on PATH and the repository's `recipes`. `cargo` and `pip` do nothing in `sh` blocks. A `text` block directly after a
block is its stdout. Words are compared exactly, numbers within a quarter or a unit of their last digit, because training differs
between machines in the last bits; `...` stands for any text. `python no-run` and `sh no-run` blocks are not run.

Pages without `python` blocks run in `crates/cfo-cli/tests/it/documents.rs`, by the same rules.

Commands in the text, and scripts in blocks that are not run, are not run either, but their subcommands and options must exist.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

FENCED = re.compile(r"^( *)```([^\n`]*)\n(.*?)^ *```[ ]*$", re.MULTILINE | re.DOTALL)
SPAN = re.compile(r"(?<!`)`([^`]+)`(?!`)")
# A script of the repository with its arguments, behind an interpreter or not; without those that need JAX, PyTorch or PyNumDiff.
SCRIPT = re.compile(r"(?:\S*python3? )?((?:scripts|benchmarks)/(?!speed/peers/|smoothing\.py)[\w/]+\.py)((?: .*)?)")
# Names of what a reader puts in their place.
PLACEHOLDERS = {"N": "1", "SYSTEM": "lorenz", "TARGET": "quickstart", "COMMAND": "train"}
NUMBER = re.compile(r"(-?\d+(?:\.(\d*))?(?:e([-+]?\d+))?)")

# The runner of a page's Python blocks: each block arrives with its length, and its end is marked on stdout.
RUNNER = """
import sys, traceback
page, names = sys.stdin.buffer, {"__name__": "__main__"}
while header := page.readline():
    place, line, length = header.decode().split("|")
    try:
        exec(compile("\\n" * int(line) + page.read(int(length)).decode(), place, "exec"), names)
    except BaseException:
        traceback.print_exc()
        sys.exit(1)
    print("\\0", end="", flush=True)
"""


@dataclass
class Block:
    info: str
    line: int
    text: str
    shown: str | None
    """The `text` block that directly follows."""


def blocks(page: Path) -> list[Block]:
    text = page.read_text()
    found = list(FENCED.finditer(text))
    after: list[re.Match[str] | None] = [*found[1:], None]
    result = []
    for match, following in zip(found, after):
        indent = len(match[1])
        body = "".join(line[indent:] if line.strip() else line for line in match[3].splitlines(keepends=True))
        follows = following is not None and following[2].strip() == "text" and not text[match.end() : following.start()].strip()
        shown = following[3] if follows and following is not None else None
        result.append(Block(match[2].strip(), text.count("\n", 0, match.start()) + 1, body, shown))
    return result


def pages() -> list[Path]:
    every = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
    return [page for page in every if any(block.info == "python" for block in blocks(page))]


def tokens(text: str) -> list[str]:
    """Numbers and what is between them, without white space."""
    parts = []
    for word in text.split():
        parts += [word] if word == "..." else [part for part in split(word) if part]
    return parts


def split(word: str) -> list[str]:
    parts, end = [], 0
    for match in NUMBER.finditer(word):
        parts += [word[end : match.start()], match[0]]
        end = match.end()
    return [*parts, word[end:]]


def equal(shown: str, printed: str) -> bool:
    ours, theirs = NUMBER.fullmatch(shown), NUMBER.fullmatch(printed)
    if not ours or not theirs:
        return shown == printed
    a, b = float(ours[1]), float(theirs[1])
    unit = 10.0 ** (int(ours[3] or 0) - len(ours[2] or ""))
    return abs(a - b) <= max(0.25 * max(abs(a), abs(b)), 1.001 * unit)


def agree(shown: str, printed: str) -> bool:
    """Whether a program's output is what a page shows."""
    wanted, got = tokens(shown), tokens(printed)
    i = j = 0
    back: tuple[int, int] | None = None
    while j < len(got):
        if i < len(wanted) and wanted[i] == "...":
            i += 1
            back = (i, j)
        elif i < len(wanted) and equal(wanted[i], got[j]):
            i, j = i + 1, j + 1
        elif back:
            i, j = back[0], back[1] + 1
            back = (i, j)
        else:
            return False
    return all(token == "..." for token in wanted[i:])


class Python:
    """An interpreter that runs the blocks of a page one after another."""

    def __init__(self, folder: Path, environment: dict[str, str]) -> None:
        self.errors = (folder / ".stderr").open("w+b")
        self.process = subprocess.Popen(
            [sys.executable, "-c", RUNNER],
            cwd=folder,
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self.errors,
        )

    def run(self, place: str, block: Block) -> str:
        code = block.text.encode()
        assert self.process.stdin and self.process.stdout
        self.process.stdin.write(f"{place}|{block.line}|{len(code)}\n".encode() + code)
        self.process.stdin.flush()
        printed = b""
        while not printed.endswith(b"\0"):
            byte = self.process.stdout.read(1)
            if not byte:
                self.errors.seek(0)
                pytest.fail(f"{place}: this block failed\n{block.text}\n{self.errors.read().decode()}")
            printed += byte
        return printed[:-1].decode()

    def close(self) -> None:
        """Ends the interpreter, which leaves its loop where its input ends."""
        self.process.communicate(timeout=60)
        self.errors.close()


def run_in_bash(folder: Path, environment: dict[str, str], place: str, block: Block) -> str:
    script = "cargo() { :; }; pip() { :; }\n" + block.text
    words = ["bash", "-euo", "pipefail", "-c", script]
    done = subprocess.run(words, cwd=folder, env=environment, capture_output=True, text=True, stdin=subprocess.DEVNULL, timeout=300)
    assert done.returncode == 0, f"{place}: this block failed\n{block.text}\n{done.stdout}\n{done.stderr}"
    return done.stdout


@pytest.mark.parametrize("page", pages(), ids=lambda page: str(page.relative_to(ROOT)))
def test_the_examples_of_a_page_run(page, command, tmp_path):
    (tmp_path / "recipes").symlink_to(ROOT / "recipes")
    programs = f"{Path(command).parent}{os.pathsep}{os.environ.get('PATH', '')}"
    environment = {**os.environ, "PATH": programs, "MPLBACKEND": "agg"}
    python = Python(tmp_path, environment)
    try:
        for block in blocks(page):
            check(block, f"{page.relative_to(ROOT)}:{block.line}", python, tmp_path, environment)
    finally:
        python.close()


def check(block: Block, place: str, python: Python, folder: Path, environment: dict[str, str]) -> None:
    if block.info == "python":
        printed = python.run(place, block)
    elif block.info == "sh":
        printed = run_in_bash(folder, environment, place, block)
    else:
        return
    if block.shown is not None:
        assert agree(block.shown, printed), f"{place}: the page shows\n{block.shown}\nand the block prints\n{printed}"


def written() -> list[Path]:
    """The pages whose commands must exist; docs/measured is kept as programs printed it."""
    found = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").rglob("*.md"), *(ROOT / "benchmarks").rglob("*.md")]
    return sorted(page for page in found if "measured" not in page.parts)


def one_line(text: str) -> str:
    return " ".join(text.split())


def named(page: Path) -> list[str]:
    """The commands and scripts in the text of a page, and the scripts in its `sh` blocks, whose commands `documents.rs` checks."""
    spans = [one_line(text) for text in SPAN.findall(FENCED.sub("", page.read_text()))]
    scripts = [block.text.replace("\\\n", " ") for block in blocks(page) if block.info.split(" ")[0] == "sh"]
    lines = [one_line(line) for text in scripts for line in text.splitlines()]
    return [text for text in spans if text.startswith("cfo ") and not text.startswith("cfo =")] + list(filter(SCRIPT.fullmatch, [*spans, *lines]))


def helped(program: list[str], arguments: str) -> str | None:
    """The complaint of a program about its arguments. With `--help` at their end it refuses unknown ones and does nothing."""
    words = [PLACEHOLDERS.get(word, word) for word in shlex.split(arguments, comments=True)]
    done = subprocess.run([*program, *words, "--help"], cwd=ROOT, capture_output=True, text=True, stdin=subprocess.DEVNULL, timeout=60)
    return done.stderr if done.returncode else None


@pytest.mark.parametrize("page", written(), ids=lambda page: str(page.relative_to(ROOT)))
def test_the_commands_of_the_text_exist(page, command):
    for text in named(page):
        script = SCRIPT.fullmatch(text)
        problem = helped([sys.executable, script[1]], script[2]) if script else helped([command], text.removeprefix("cfo "))
        assert problem is None, f"{page.relative_to(ROOT)}: `{text}`\n{problem}"


def test_unknown_commands_and_options_are_found(command):
    assert helped([command], "init FILE") is None
    assert helped([command], "initialise FILE") and helped([command], "init FILE --fast")
    assert helped([sys.executable, "scripts/results.py"], "print FILE") is None
    assert helped([sys.executable, "scripts/results.py"], "table FILE")


def test_readme_and_the_reference_have_examples():
    names = {str(page.relative_to(ROOT)) for page in pages()}
    assert {"README.md", "docs/reference/python.md"} <= names


def test_shown_and_printed_numbers_may_differ_in_their_last_digits():
    assert agree("error 2.8e-04\n[[ 1.  0.]\n [-1. -0.]]", "error 2.9e-04\n[[ 1.  0.]\n [-1. 0.]]\n")
    assert agree("90 train\n...\nwall 3 s", "90 train\nstep 100: loss 2e-3\nwall 3.1 s")
    assert not agree("error 2.8e-04", "error 2.8e-03")
    assert not agree("10 trajectories", "10 snapshots")
    assert not agree("a\n...\nb", "a\nc")
    assert not agree("a", "a b") and not agree("a b", "a")
