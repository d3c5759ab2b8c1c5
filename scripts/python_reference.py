#!/usr/bin/env python3
"""Generates docs/reference/python.md from the docstrings and the type stubs of the Python package, which need not be installed."""

from __future__ import annotations

import argparse
import ast
import re
import sys
import textwrap
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = ROOT / "python" / "cfo"
PAGE = ROOT / "docs" / "reference" / "python.md"
WIDTH = 120
FUNCTIONS = ["train", "load", "read", "simulate", "devices"]
CLASSES = ["Trajectories", "Trajectory", "Model", "Path"]
EXCEPTIONS = ["CfoError", "DivergenceWarning"]
# Names of types that only the stubs have.
ALIASES = {"_Path": "str | os.PathLike[str]", "_Array": "ArrayLike", "_Float32": "NDArray[np.float32]", "_Float64": "NDArray[np.float64]"}

INTRODUCTION = """\
# Python package

{about}

This page lists every function and class. It is generated from the docstrings. [Use the Python package](../how-to/python.md) explains the package with
examples.

In the types, `ArrayLike` is anything that NumPy converts to an array of real numbers, and objects with `__dlpack__` on the CPU, such as tensors of torch and jax.
Results are NumPy arrays.
"""


def definitions(*paths: Path) -> dict[str, ast.FunctionDef | ast.ClassDef]:
    """Return the functions and classes that modules define."""
    found: dict[str, ast.FunctionDef | ast.ClassDef] = {}
    for path in paths:
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
                found[node.name] = node
    return found


def methods(node: ast.ClassDef) -> dict[str, ast.FunctionDef]:
    """Return the methods of a class; of overloads the last."""
    return {entry.name: entry for entry in node.body if isinstance(entry, ast.FunctionDef)}


def is_property(node: ast.FunctionDef) -> bool:
    return any(isinstance(mark, ast.Name) and mark.id == "property" for mark in node.decorator_list)


def kind(annotation: ast.expr | None) -> str:
    """Return a type as text."""
    text = "" if annotation is None else ast.unparse(annotation)
    for alias, meaning in ALIASES.items():
        text = re.sub(rf"\b{alias}\b", meaning, text)
    return text


def signature(name: str, node: ast.FunctionDef) -> str:
    """Return a signature, on several lines if it is long."""
    arguments = node.args
    parameters = [entry for entry in arguments.args if entry.arg != "self"]
    defaults: list[ast.expr | None] = [None] * (len(parameters) - len(arguments.defaults)) + list(arguments.defaults)
    words = [parameter(entry, default) for entry, default in zip(parameters, defaults)]
    if arguments.kwonlyargs:
        words.append("*")
        words += [parameter(entry, default) for entry, default in zip(arguments.kwonlyargs, arguments.kw_defaults)]
    if arguments.kwarg is not None:
        words.append(f"**{parameter(arguments.kwarg, None)}")
    result = "" if node.name == "__init__" else f" -> {kind(node.returns)}"
    line = f"{name}({', '.join(words)}){result}"
    if len(line) <= WIDTH:
        return line
    return "\n".join([f"{name}(", *(f"    {word}," for word in words), f"){result}"])


def parameter(entry: ast.arg, default: ast.expr | None) -> str:
    text = f"{entry.arg}: {kind(entry.annotation)}"
    return text if default is None else f"{text} = {ast.unparse(default)}"


def wrapped(text: str) -> str:
    """Return paragraphs wrapped; indented lines become a block of code."""
    parts = []
    for part in re.split(r"\n\s*\n", text.strip("\n")):
        lines = part.split("\n")
        if lines[0].startswith("    "):
            # Empty lines belong to the block of code around them.
            code = textwrap.dedent(part).rstrip()
            if parts and parts[-1].endswith("\n```"):
                parts[-1] = parts[-1][: -len("\n```")] + f"\n\n{code}\n```"
            else:
                parts.append(f"```python\n{code}\n```")
        else:
            parts.append(textwrap.fill(" ".join(part.split()), WIDTH, break_long_words=False, break_on_hyphens=False))
    return "\n\n".join(parts)


def sections(docstring: str) -> tuple[str, dict[str, str]]:
    """Split a docstring into its description and the sections `Args`, `Returns`, `Raises` and `Warns`."""
    parts = re.split(r"^(Args|Returns|Raises|Warns):\n", docstring, flags=re.MULTILINE)
    return parts[0], {name: textwrap.dedent(body) for name, body in zip(parts[1::2], parts[2::2])}


def entries(body: str) -> list[tuple[str, str]]:
    """Return the entries `name: text` of a section."""
    found = []
    for entry in re.split(r"\n(?=\S)", body.strip()):
        name, text = entry.split(":", 1)
        found.append((name.strip(), " ".join(text.split())))
    return found


def cell(text: str) -> str:
    return text.replace("|", "\\|")


def table(head: tuple[str, ...], rows: list[tuple[str, ...]]) -> str:
    lines = [head, ("---",) * len(head), *rows]
    text = "\n".join("| " + " | ".join(line) + " |" for line in lines)
    return text.replace("| --- | --- | --- |", "|---|---|---|").replace("| --- | --- |", "|---|---|")


def described(docstring: str) -> list[str]:
    """Return the parts of a docstring as Markdown."""
    text, found = sections(docstring)
    parts = [wrapped(text)]
    if "Args" in found:
        parts.append(table(("argument", "meaning"), [(f"`{name}`", cell(meaning)) for name, meaning in entries(found["Args"])]))
    if "Returns" in found:
        parts.append(wrapped(f"**Returns:** {found['Returns']}"))
    for section in ("Raises", "Warns"):
        if section in found:
            rows = [(f"`{name}`", cell(meaning)) for name, meaning in entries(found[section])]
            parts.append(table((section.lower(), "when"), rows))
    return parts


def docstring_of(node: ast.AST) -> str:
    found = ast.get_docstring(node)  # type: ignore[arg-type]
    assert found, f"`{getattr(node, 'name', '')}` has no docstring"
    return found


def function(name: str, heading: str, node: ast.FunctionDef, stub: ast.FunctionDef) -> list[str]:
    return [f"{heading} `{name}`", f"```text\n{signature(name, stub)}\n```", *described(docstring_of(node))]


def class_(name: str, node: ast.ClassDef, stub: ast.ClassDef) -> list[str]:
    own, stubs = methods(node), methods(stub)
    parts = [f"## `cfo.{name}`"]
    if len(stubs["__init__"].args.args) > 1:
        parts.append(f"```text\n{signature(f'cfo.{name}', stubs['__init__'])}\n```")
    parts += described(docstring_of(node))
    public = [entry for entry in own if not entry.startswith("_")]
    rows = [(f"`{entry}`", f"`{cell(kind(stubs[entry].returns))}`", cell(" ".join(docstring_of(own[entry]).split()))) for entry in public if is_property(own[entry])]
    if rows:
        parts.append(table(("property", "type", "meaning"), rows))
    for entry in public:
        if not is_property(own[entry]):
            parts += function(f"{name}.{entry}", "###", own[entry], stubs[entry])
    return parts


def page() -> str:
    """Return the page."""
    sources = definitions(*sorted(PACKAGE.glob("*.py")))
    stubs = definitions(PACKAGE / "__init__.pyi")
    about = wrapped(docstring_of(ast.parse((PACKAGE / "__init__.py").read_text(encoding="utf-8"))))
    parts = [wrapped_page(INTRODUCTION).format(about=about).strip()]
    for name in FUNCTIONS:
        parts += function(f"cfo.{name}", "##", sources[name], stubs[name])  # type: ignore[arg-type]
    for name in CLASSES:
        parts += class_(name, sources[name], stubs[name])  # type: ignore[arg-type]
    parts.append("## Exceptions and warnings")
    rows = [(f"`cfo.{name}`", cell(" ".join(docstring_of(sources[name]).split()))) for name in EXCEPTIONS]
    parts.append(table(("name", "meaning"), rows))
    parts.append("`cfo.__version__` is the version of the package.")
    return "\n\n".join(parts) + "\n"


def wrapped_page(text: str) -> str:
    return "\n\n".join(part if part.startswith("#") else wrapped(part) for part in text.strip().split("\n\n"))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="compare the page instead of writing it; exit with 1 if it differs")
    options = parser.parse_args()
    made = page()
    if not options.check:
        PAGE.write_text(made, encoding="utf-8")
        return 0
    if PAGE.read_text(encoding="utf-8") == made:
        return 0
    print("docs/reference/python.md differs from the docstrings; `python3 scripts/python_reference.py` writes it", file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(main())
