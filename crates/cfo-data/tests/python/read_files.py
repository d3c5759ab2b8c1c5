"""Checks with h5py, NumPy and PDEBench's loaders the files that the test wrote.

Usage: read_files.py DIRECTORY.
"""

import sys
from pathlib import Path

import h5py
import numpy as np

directory = Path(sys.argv[1])
M, N = 3, 5
lengths = [5, 2, 4]


def field(height, width, channels):
    i, n, y, x, c = np.ogrid[0:M, 0:N, 0:height, 0:width, 0:channels]
    return 100.0 * i + 10.0 * n + y / 2 + x / 4 + c / 8


def check_table(arrays, kind, ragged):
    height, width, channels = {"ode": (1, 1, 3), "line": (1, 6, 1), "plane": (4, 6, 2), "volume": (8, 6, 2)}[kind]
    drop = {"ode": (2, 3), "line": (2,), "plane": (), "volume": ()}[kind]
    expected = np.squeeze(field(height, width, channels), axis=drop)
    if kind == "volume":
        expected = expected.reshape(M, N, 2, 4, 6, 2)
    values = np.asarray(arrays["values"])
    assert values.dtype == np.dtype("<f4") and values.shape == expected.shape, (values.dtype, values.shape)
    times = np.asarray(arrays["times"])
    shared = 0.25 * np.arange(N)
    if ragged:
        assert list(arrays["lengths"]) == lengths
        assert times.shape == (M, N)
        for row, length in enumerate(lengths):
            assert np.array_equal(values[row, :length], expected[row, :length])
            assert np.isnan(values[row, length:]).all()
            assert np.array_equal(times[row, :length], shared[:length] + row)
    else:
        assert "lengths" not in arrays
        assert np.array_equal(values, expected)
        assert np.array_equal(times, shared)
    assert np.asarray(arrays["split"]).dtype == np.int8 and list(arrays["split"]) == [0, 1, 2]
    assert np.array_equal(np.asarray(arrays["parameters"]), [[0.0, 1.0], [1.0, 2.0], [2.0, 3.0]])


for path in sorted(directory.glob("cfo-*.h5")):
    _, kind, ragged, _, _ = path.stem.split("-")
    axes = dict(ode=0, line=1, plane=2, volume=3)[kind]
    with h5py.File(path, "r") as file:
        assert file.attrs["format"] == "cfo-trajectories" and file.attrs["version"] == 1
        assert file.attrs["system"] == "täst"
        if axes:
            assert list(file.attrs["periodic"]) == [1] + [0] * (axes - 1)
            assert np.array_equal(file.attrs["domain"], [[-1.0, 2.0]] * axes)
        assert [str(name) for name in file.attrs["channel_names"]] == [f"u{c}" for c in range(file["values"].shape[-1])]
        assert list(file["parameters"].attrs["names"]) == ["length", "viscosity"]
        check_table(file, kind, ragged == "ragged")
for path in sorted(directory.glob("npz-*.npz")):
    _, kind, ragged = path.stem.split("-")
    with np.load(path) as arrays:
        assert str(arrays["system"]) == "täst"
        assert list(arrays["parameter_names"]) == ["length", "viscosity"]
        check_table(arrays, kind, ragged == "ragged")

shared = (0.25 * np.arange(N)).astype("f4")
for path in sorted(directory.glob("pdebench-plane-*.h5")):
    with h5py.File(path, "r") as file:
        keys = sorted(file.keys())
        assert keys == ["0000", "0001", "0002"], keys
        for index, key in enumerate(keys):
            seed = file[key]
            assert np.array_equal(np.array(seed["data"], dtype="f"), field(4, 6, 2)[index])
            assert np.array_equal(np.array(seed["grid"]["t"], dtype="f"), shared)
            assert np.allclose(seed["grid"]["x"], -1 + 3 * (np.arange(6) + 0.5) / 6)
            assert np.allclose(seed["grid"]["y"], -1 + 3 * (np.arange(4) + 0.5) / 4)
for path in sorted(directory.glob("pdebench-volume-*.h5")):
    with h5py.File(path, "r") as file:
        for index, seed in enumerate(file.values()):
            assert np.array_equal(seed["data"][()], field(8, 6, 2)[index].reshape(N, 2, 4, 6, 2))
            for axis, points in [("z", 2), ("y", 4), ("x", 6)]:
                assert np.allclose(seed["grid"][axis], -1 + 3 * (np.arange(points) + 0.5) / points)
for path in sorted(directory.glob("pdebench-line-*.h5")):
    with h5py.File(path, "r") as file:
        assert np.array_equal(np.array(file["tensor"], dtype=np.float32), field(1, 6, 1)[:, :, 0, :, 0])
        assert np.allclose(file["x-coordinate"], -1 + 3 * (np.arange(6) + 0.5) / 6)
        assert np.array_equal(file["t-coordinate"], np.append(shared, np.float32(1.25)))
print("checked", len(list(directory.iterdir())))
