"""Trajectories from arrays, files and simulators."""

from __future__ import annotations

import copy
import json
import pickle

import h5py
import numpy as np
import pytest

import cfo


def regular(count=5, frames=7, shape=(2,), dtype=np.float32, seed=0):
    random = np.random.default_rng(seed)
    times = np.cumsum(random.uniform(0.1, 1, frames))
    return times, random.normal(size=(count, frames, *shape)).astype(dtype)


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64, ">f4", ">f8", np.int16])
@pytest.mark.parametrize("shape", [(1,), (3,), (4, 2), (3, 4, 2)])
def test_arrays_come_back(dtype, shape):
    times, values = regular(shape=shape)
    values = (10 * values).astype(dtype)
    data = cfo.Trajectories(times, values)
    assert len(data) == 5 and data.shape == shape and list(data.lengths) == [7] * 5
    for one, expected in zip(data, values):
        assert one.values.dtype == np.float32 and one.times.dtype == np.float64
        assert np.array_equal(one.values, expected.astype(np.float32)) and np.array_equal(one.times, times)


@pytest.mark.parametrize(
    "turn",
    [
        lambda a: a[::-1],
        lambda a: a[:, ::-1],
        lambda a: a[..., ::-1],
        lambda a: a[::2, 1:],
        lambda a: np.asfortranarray(a),
        lambda a: np.ascontiguousarray(a.transpose(0, 2, 1)).transpose(0, 2, 1),
        lambda a: np.broadcast_to(a[:1], a.shape),
        lambda a: np.lib.stride_tricks.as_strided(a, strides=(0, a.strides[1], a.strides[2])),
    ],
)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_strides_do_not_matter(turn, dtype):
    _, values = regular(dtype=dtype)
    turned = turn(values)
    times = np.arange(turned.shape[1])[::-1][::-1]
    data = cfo.Trajectories(times, turned)
    assert np.array_equal([one.values for one in data], turned.astype(np.float32))
    apart = cfo.Trajectories([times] * len(turned), list(turned))
    assert np.array_equal([one.values for one in apart], turned.astype(np.float32))


def test_ragged_lists_and_padded_arrays_are_the_same():
    random = np.random.default_rng(1)
    lengths = [3, 8, 5, 1]
    times = [np.sort(random.uniform(size=n)) for n in lengths]
    values = [random.normal(size=(n, 2)) for n in lengths]
    ragged = cfo.Trajectories(times, values)
    padded_times, padded = np.zeros((4, 8)), np.full((4, 8, 2), np.nan)
    for i, n in enumerate(lengths):
        padded_times[i, :n], padded[i, :n] = times[i], values[i]
    again = cfo.Trajectories(padded_times, padded, lengths=lengths)
    assert list(ragged.lengths) == list(again.lengths) == lengths
    for a, b, expected in zip(ragged, again, values):
        assert np.array_equal(a.values, b.values) and np.array_equal(a.times, b.times)
        assert np.array_equal(a.values, expected.astype(np.float32))


def test_values_are_views_that_cannot_be_written_to():
    times, values = regular()
    data = cfo.Trajectories(times, values)
    view = data[2].values
    assert np.shares_memory(view, data[2].values) and np.shares_memory(view, data[1:][1].values)
    assert not view.flags.writeable and view.flags.c_contiguous
    with pytest.raises(ValueError):
        view[0] = 1
    with pytest.raises(ValueError):
        view.flags.writeable = True
    values[:] = 0
    assert not np.array_equal(view, values[2])
    kept = view.copy()
    del data
    assert np.array_equal(view, kept)


def test_slices_lists_and_masks_choose():
    times, values = regular(count=10)
    data = cfo.Trajectories(times, values)
    chosen = {
        "slice": (data[2:9:3], [2, 5, 8]),
        "back": (data[::-1], list(range(9, -1, -1))),
        "list": (data[[3, -1]], [3, 9]),
        "mask": (data[np.arange(10) % 4 == 1], [1, 5, 9]),
        "again": (data[2:][::2][1:], [4, 6, 8]),
        "none": (data[3:3], []),
    }
    for name, (some, numbers) in chosen.items():
        assert len(some) == len(numbers), name
        assert [one.values[0, 0] for one in some] == [values[i, 0, 0] for i in numbers], name
    assert np.array_equal(data[-1].values, values[9]) and np.array_equal(data[np.int64(3)].values, values[3])
    for bad in (10, -11):
        with pytest.raises(IndexError):
            data[bad]
    for bad in ("train", 1.5, None):
        with pytest.raises(TypeError):
            data[bad]


def test_parts_are_the_first_80_percent_or_as_said():
    times, values = regular(count=10)
    data = cfo.Trajectories(times, values)
    assert (len(data.train), len(data.validation), len(data.test)) == (8, 1, 1)
    split = ["test", "train", "validation", "train", "test"] * 2
    data = cfo.Trajectories(times, values, split=split)
    assert [one.split for one in data] == split and list(data.split) == [2, 0, 1, 0, 2] * 2
    assert np.array_equal([one.values for one in data.test], values[[0, 4, 5, 9]])
    assert np.array_equal(cfo.Trajectories(times, values, split=data.split).split, data.split)
    for bad in ([0] * 9, [0] * 9 + [3], [0] * 9 + ["tests"], [0.5] * 10, 7):
        with pytest.raises(ValueError):
            cfo.Trajectories(times, values, split=bad)


def test_parameters_by_name_or_in_a_table():
    times, values = regular(count=3)
    table = np.arange(6.0).reshape(3, 2)
    named = cfo.Trajectories(times, values, parameters={"a": table[:, 0], "b": table[:, 1]})
    listed = cfo.Trajectories(times, values, parameters=table, parameter_names=["a", "b"])
    bare = cfo.Trajectories(times, values, parameters=table)
    for data in (named, listed, bare):
        assert np.array_equal(data.parameters, table) and np.array_equal(data[1].parameters, table[1])
    assert named.parameter_names == listed.parameter_names == ["a", "b"]
    for bad in (table[:2], table[0], table * np.nan, {"a": [1, 2]}):
        with pytest.raises(ValueError):
            cfo.Trajectories(times, values, parameters=bad)


@pytest.mark.parametrize("name", ["a.npz", "a.h5", "A.HDF5"])
def test_files_keep_everything(tmp_path, name):
    random = np.random.default_rng(2)
    values = [random.normal(size=(n, 4, 2)).astype(np.float32) for n in (3, 6)]
    times = [np.arange(n) / 3 for n in (3, 6)]
    data = cfo.Trajectories(
        times, values, parameters={"nu": [0.1, 0.2]}, split=[0, 2], channel_names=["u", "v"], system="x", periodic=[True], domain=[[0, 2]]
    )
    path = tmp_path / name
    data.save(path)
    for again in (cfo.read(path), cfo.read(str(path), in_memory=False), pickle.loads(pickle.dumps(data)), copy.deepcopy(data)):
        assert (again.channel_names, again.system, again.periodic) == (["u", "v"], "x", [True])
        assert np.array_equal(again.domain, [[0, 2]]) and np.array_equal(again.parameters, [[0.1], [0.2]])
        assert list(again.split) == [0, 2] and list(again.lengths) == [3, 6]
        for one, expected in zip(again, values):
            assert np.array_equal(one.values, expected)
    with pytest.raises(ValueError, match="exists"):
        data.save(path)
    data[:1].save(path, force=True)
    assert len(cfo.read(path)) == 1
    with pytest.raises(ValueError, match="ends with"):
        data.save(tmp_path / "a.csv")


def test_other_programs_read_and_write_the_files(tmp_path):
    times, values = regular()
    cfo.Trajectories(times, values).save(tmp_path / "a.h5")
    with h5py.File(tmp_path / "a.h5") as file:
        assert np.array_equal(file["values"], values) and np.array_equal(file["times"], times)
    np.savez(tmp_path / "b.npz", times=times, values=values.astype(np.float64))
    assert np.array_equal([one.values for one in cfo.read(tmp_path / "b.npz")], values)


def test_a_simulation_is_that_of_the_command(tmp_path, run):
    run("simulate", "lorenz", "--samples", 12, "--seed", 5, "--frames", 11, "--horizon", 0.3, "--out", tmp_path / "a.h5")
    theirs = cfo.read(tmp_path / "a.h5")
    ours = cfo.simulate("lorenz", samples=12, seed=5, frames=11, horizon=0.3)
    assert list(ours.split) == list(theirs.split) and ours.channel_names == theirs.channel_names
    for a, b in zip(ours, theirs):
        assert np.array_equal(a.values, b.values) and np.array_equal(a.times, b.times)
    jittered = cfo.simulate("kuramoto-sivashinsky", samples=1, grid=32, frames=3, horizon=1, spin_up=1, length_jitter=0.0)
    assert jittered.parameter_names and jittered[0].values.shape == (3, 32, 1)


@pytest.mark.parametrize(
    ("system", "options", "problem", "hint"),
    [
        ("lorentz", {}, "unknown system `lorentz`", "`lorenz`"),
        ("lorenz", {"frame": 5}, "unknown option of `lorenz` `frame`", "`frames`"),
        ("lorenz", {"frames": 2.5}, "`frames` is `2.5`", "whole number"),
        ("lorenz", {"frames": 1}, "`frames` is 1", "at least 2"),
        ("shallow-water", {"variant": "river"}, "`variant` is `river`", "`dam-break` or `varied`"),
        ("lorenz", {"split": (1, 2)}, "`split` is", "three whole numbers"),
        ("lorenz", {"samples": 5, "split": (1, 1, 1)}, "5 in `samples` and 3 in `split`", "the same"),
    ],
)
def test_wrong_options_of_simulations_are_refused(system, options, problem, hint):
    with pytest.raises(ValueError) as raised:
        cfo.simulate(system, **options)
    assert problem in str(raised.value) and hint in str(raised.value)


def test_a_simulation_can_have_counts():
    data = cfo.simulate("burgers", split=(3, 2, 1), grid=16, frames=3, sigma=25)
    assert [len(data.train), len(data.validation), len(data.test)] == [3, 2, 1]


def test_the_suggested_recipe_is_that_of_the_command(tmp_path, run, lorenz):
    lorenz.save(tmp_path / "a.npz")
    theirs = run("init", tmp_path / "a.npz").stdout
    assert cfo.read(tmp_path / "a.npz").recipe() == theirs == lorenz.recipe()


@pytest.mark.parametrize(
    "values",
    [
        np.zeros((2, 3)),
        np.zeros((2, 3, 0)),
        np.zeros((0, 3, 1)),
        np.zeros((2, 0, 1)),
        np.zeros((2, 3, 1, 1, 1, 1, 1)),
        np.zeros((2, 3, 1), dtype=complex),
        np.zeros((2, 3, 1), dtype=bool),
        np.zeros((2, 3, 1), dtype=object),
        np.full((2, 3, 1), np.nan),
        np.full((2, 3, 1), 1e300),
        np.full((2, 3, 1), "1.0"),
        [[[1.0], [2.0]], [[1.0]]],
        [np.zeros((3, 1)), np.zeros((3, 2))],
        [],
        None,
        "values",
        {},
        np.ma.masked_array(np.zeros((2, 3, 1)), mask=True),
        np.zeros(2, dtype=[("a", "f4")]),
        np.zeros((2, 3, 1), dtype="M8[s]"),
    ],
)
def test_bad_values_are_refused(values):
    with pytest.raises(ValueError):
        cfo.Trajectories(np.arange(3.0), values)


@pytest.mark.parametrize("times", [[0, 0, 1], [0, 2, 1], [0, 1, np.nan], [0, 1], [], 3.0, [[0, 1, 2]], [["a"]], None, [[0, 1, 2], [0, 1]]])
def test_bad_times_are_refused(times):
    with pytest.raises(ValueError):
        cfo.Trajectories(times, np.zeros((2, 3, 1)))


def test_large_constants_keep_the_signal(tmp_path):
    times = np.linspace(0, 6, 40)
    phases = np.arange(10)[:, None]
    values = np.stack([1e9 + np.sin(times + phases), 101325 + 0.02 * np.cos(times + phases)], -1)
    data = cfo.Trajectories(times, values)
    data.save(tmp_path / "a.h5")
    data.save(tmp_path / "a.npz")
    lazy = cfo.read(tmp_path / "a.h5", in_memory=False)
    for one in (data, pickle.loads(pickle.dumps(data)), cfo.read(tmp_path / "a.h5"), cfo.read(tmp_path / "a.npz"), lazy):
        assert one[3].values.dtype == np.float64
        # Single precision of the spread, and double precision of 1e9.
        assert np.allclose(one[3].values, values[3], rtol=0, atol=3e-7)
        assert np.allclose(one[2:4][1].values[:, 1], values[3, :, 1], rtol=0, atol=3e-9)
    single = cfo.Trajectories(times, values.astype(np.float32))
    assert single[0].values.dtype == np.float32
    whole = cfo.Trajectories(np.arange(40.0), (10**9 + np.arange(400).reshape(10, 40, 1)).astype(np.int32))
    assert np.array_equal(whole[1].values[:, 0], 10**9 + np.arange(40, 80))


def test_values_beyond_single_precision_are_named():
    values = np.zeros((2, 3, 1))
    values[1, 2] = 1e300
    with pytest.raises(ValueError, match="trajectory 1 has 1e300 at time 2, beyond the range of float32") as raised:
        cfo.Trajectories(np.arange(3.0), values)
    assert "use other units" in str(raised.value)


def test_what_a_file_holds_besides_is_a_warning(tmp_path):
    path = tmp_path / "a.npz"
    np.savez(path, times=np.arange(9.0), values=np.random.default_rng(0).normal(size=(6, 9, 2)), paramters=np.ones((6, 3)))
    with pytest.warns(UserWarning, match="`paramters` of shape \\[6, 3\\] is not used; did you mean `parameters`"):
        cfo.read(path)
    np.savez(path, times=np.arange(9.0), values=np.zeros((6, 9, 5, 2)), coordinates=np.ones((5, 2)))
    with pytest.raises(ValueError, match="scattered points"):
        cfo.read(path)


def test_lists_of_numbers_are_arrays_too():
    data = cfo.Trajectories([0, 1, 2], [[[1], [2], [3]], [[4], [5], [6]]])
    assert np.array_equal(data[1].values[:, 0], [4, 5, 6])


def test_a_message_names_the_place_and_what_to_do(tmp_path):
    values = np.zeros((3, 4, 2))
    values[1, 2, 1] = np.inf
    with pytest.raises(cfo.CfoError, match="trajectory 1, frame 2, channel 1 is inf") as raised:
        cfo.Trajectories(np.arange(4), values)
    assert raised.value.hint and raised.value.hint in str(raised.value)
    with pytest.raises(ValueError, match="trajectory 1") as raised:
        cfo.Trajectories([[0, 1], [1, 0]], np.zeros((2, 2, 1)))
    assert "not after" in str(raised.value) and "sort" in str(raised.value.hint)


def test_missing_and_damaged_files(tmp_path, run):
    with pytest.raises(FileNotFoundError) as raised:
        cfo.read(tmp_path / "none.h5")
    assert isinstance(raised.value, cfo.CfoError)
    said = run("inspect", tmp_path / "none.h5", check=False).stderr
    assert str(raised.value).split("\n")[0] in said
    (tmp_path / "bad.h5").write_bytes(b"\x89HDF\r\n\x1a\n" + bytes(50))
    (tmp_path / "text.npz").write_text("hello")
    (tmp_path / "empty.npz").write_bytes(b"")
    for name in ("bad.h5", "text.npz", "empty.npz", "."):
        with pytest.raises(ValueError) as raised:
            cfo.read(tmp_path / name)
        said = json.loads(run("inspect", tmp_path / name, "--json", check=False).stdout)
        assert str(raised.value).split("\n")[0] == said["error"] and raised.value.hint == said["hint"]
