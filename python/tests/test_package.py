"""The package as it is installed: stubs, docs, the notebook, its size."""

from __future__ import annotations

import inspect
import os
import subprocess
import sys
from pathlib import Path

import pytest

import cfo

ROOT = Path(__file__).parents[2]


def test_the_stubs_are_those_of_the_module(tmp_path):
    pytest.importorskip("mypy")
    done = subprocess.run([sys.executable, "-m", "mypy.stubtest", "cfo", "--concise"], capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_typed_script_passes_mypy(tmp_path):
    pytest.importorskip("mypy")
    script = tmp_path / "script.py"
    script.write_text(
        """
import numpy as np
import cfo

data: cfo.Trajectories = cfo.read("a.h5")
model: cfo.Model = cfo.train(data, operator={"kind": "mlp"}, steps=3, callback=lambda report: report["loss"] > 1)
states = model.predict(data[0].values[0], [0.1])
total: float = float(states.sum())
error: float = model.evaluate(data.test)["relative_l2"]["mean"]
velocity = cfo.Path(data[0].times, data[0].values).velocity(0.5)
reveal: list[str] = data.channel_names
"""
    )
    done = subprocess.run([sys.executable, "-m", "mypy", "--strict", str(script)], capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    script.write_text("import cfo\ncfo.load('runs', checkpoint=3).predict()\n")
    done = subprocess.run([sys.executable, "-m", "mypy", "--strict", str(script)], capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 1 and "checkpoint" in done.stdout


def test_everything_public_says_what_it_is():
    bare = []
    for name in cfo.__all__:
        entry = getattr(cfo, name)
        if callable(entry) and not (entry.__doc__ or "").strip():
            bare.append(name)
        if inspect.isclass(entry):
            own = {key: value for key, value in vars(entry).items() if not key.startswith("_")}
            slots = set(getattr(entry, "__slots__", ()))
            bare += [f"{name}.{key}" for key, value in own.items() if key not in slots and not (getattr(value, "__doc__", "") or "").strip()]
    assert not bare


def test_the_native_module_is_small_and_alone():
    native = Path(cfo._native.__file__)
    if "site-packages" not in native.parts:
        pytest.skip("the package is not installed")
    assert native.stat().st_size < 40 << 20
    assert (native.parent / "py.typed").exists() and (native.parent / "__init__.pyi").exists()


def test_devices_are_those_of_the_command(run):
    import json

    theirs = json.loads(run("devices", "--json").stdout)
    ours = cfo.devices()
    assert ours["devices"][0]["device"] == "cpu" and set(ours) >= {"devices", "cuda"}
    assert [one["device"] for one in ours["devices"]] == [one["device"] for one in theirs["devices"]]


def test_the_notebook_runs(tmp_path):
    nbformat = pytest.importorskip("nbformat")
    nbclient = pytest.importorskip("nbclient")
    pytest.importorskip("ipykernel")
    pytest.importorskip("matplotlib")
    notebook = nbformat.read(ROOT / "examples" / "python" / "lorenz.ipynb", as_version=4)
    os.environ.setdefault("MPLBACKEND", "module://matplotlib_inline.backend_inline")
    nbclient.NotebookClient(notebook, timeout=300, kernel_name="python3", resources={"metadata": {"path": str(tmp_path)}}).execute()
    text = [output for cell in notebook.cells if cell.cell_type == "code" for output in cell.outputs]
    assert not [output for output in text if output.output_type == "error"]
    # The progress of the training is one output that changed to its last line.
    shown = [output["data"]["text/plain"] for output in text if output.output_type == "display_data" and "step " in output["data"].get("text/plain", "")]
    assert len(shown) == 1 and shown[0].split(":")[0].split("/")[0].split()[-1] == shown[0].split(":")[0].split("/")[1]
