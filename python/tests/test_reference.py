"""The reference of the package, `docs/reference/python.md`, is generated from the docstrings."""

from __future__ import annotations

import importlib.util
import inspect
from pathlib import Path
from types import ModuleType

import pytest

import cfo

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def generator() -> ModuleType:
    path = ROOT / "scripts" / "python_reference.py"
    spec = importlib.util.spec_from_file_location("python_reference", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_page_is_what_the_docstrings_say(generator):
    found = (ROOT / "docs" / "reference" / "python.md").read_text(encoding="utf-8")
    assert found == generator.page(), "`python3 scripts/python_reference.py` writes the page"


def test_the_page_has_everything_public(generator):
    listed = {*generator.FUNCTIONS, *generator.CLASSES, *generator.EXCEPTIONS, "__version__"}
    assert listed == set(cfo.__all__)


def test_every_argument_is_described(generator):
    described = [getattr(cfo, name) for name in generator.FUNCTIONS] + [cfo.Trajectories, cfo.Path]
    for owner in (cfo.Trajectories, cfo.Model, cfo.Path):
        described += [value for name, value in vars(owner).items() if inspect.isfunction(value) and not name.startswith("_")]
    for entry in described:
        _, sections = generator.sections(inspect.cleandoc(entry.__doc__))
        names = [name for name, _ in generator.entries(sections["Args"])] if "Args" in sections else []
        assert names == [name for name in inspect.signature(entry).parameters if name != "self"], entry
