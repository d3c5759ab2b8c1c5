"""What a user can do wrong, and what must not happen then: crashes, deadlocks, leaks, panics."""

from __future__ import annotations

import gc
import multiprocessing
import os
import subprocess
import sys
import threading

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

import cfo

# Over two thousand cases in all. Where a test fails it says how to repeat it.
MANY = settings(max_examples=1200, deadline=None, suppress_health_check=list(HealthCheck))
FEW = settings(max_examples=400, deadline=None, suppress_health_check=list(HealthCheck))

REFUSALS = (ValueError, TypeError, IndexError, FileNotFoundError, cfo.CfoError)

dtypes = st.sampled_from(["f4", "f8", "f2", ">f4", "i8", "u1", "?", "c8", "O", "U3", "S2", "M8[s]"])


def arrays(most=4):
    """Arrays of any shape, type and stride."""
    plain = dtypes.flatmap(lambda d: hnp.arrays(d, hnp.array_shapes(min_dims=0, max_dims=5, min_side=0, max_side=most)))

    def turned(array, axis, step):
        return np.flip(array, axis=axis % array.ndim)[::step] if array.ndim and step else array.T

    return st.builds(turned, plain, st.integers(0, 4), st.sampled_from([1, -1, 2, 0]))


junk = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**70), 2**70),
    st.floats(),
    st.text(max_size=4),
    st.binary(max_size=4),
    st.lists(st.floats(), max_size=4),
    st.lists(st.lists(st.floats(-9, 9), max_size=3), max_size=3),
    st.dictionaries(st.text(max_size=3), st.floats(), max_size=2),
    st.just(object()),
    st.just(range(3)),
    arrays(),
)


@MANY
@given(times=junk | arrays(), values=junk | arrays(), lengths=st.none() | junk, parameters=st.none() | junk, split=st.none() | junk)
def test_trajectories_of_anything(times, values, lengths, parameters, split):
    try:
        data = cfo.Trajectories(times, values, lengths, parameters, split)
    except REFUSALS:
        return
    assert len(data) > 0
    for one in data:
        assert np.isfinite(one.values).all() and (np.diff(one.times) > 0).all() and len(one.times) == len(one.values)


@FEW
@given(count=st.integers(1, 4), frames=st.integers(1, 6), seed=st.integers(0, 99), stretch=st.sampled_from([1, -1, 2, -3]), dtype=st.sampled_from(["f4", "f8"]))
def test_sound_arrays_always_work(count, frames, seed, stretch, dtype):
    random = np.random.default_rng(seed)
    values = random.normal(size=(count * abs(stretch), frames, 2)).astype(dtype)[::stretch]
    times = np.cumsum(random.uniform(0.01, 1, frames))
    data = cfo.Trajectories(times, values)
    assert np.allclose([one.values for one in data], values, rtol=1e-6)
    path = cfo.Path(times, values[0])
    assert np.allclose(path.value(times), values[0], atol=1e-5)


@MANY
@given(
    which=st.sampled_from(["predict", "velocity", "vector_jacobian"]),
    state=junk | arrays() | hnp.arrays("f4", st.sampled_from([(3,), (2, 3), (0, 3)]), elements=st.floats(-20, 20, width=32)),
    time=junk | st.floats(-1, 1) | st.lists(st.floats(0, 0.5), max_size=3),
    other=junk | st.floats(-1, 1),
    solver=st.sampled_from(["rk4", "euler", "dopri5", "rk5", None, 3]),
    steps=st.none() | st.integers(-2, 20) | junk,
)
def test_models_asked_anything(model, which, state, time, other, solver, steps):
    # Far times would take long, not fail: that is another test's.
    if isinstance(time, (int, float)) and abs(time) > 2:
        time = float(np.clip(time, -2, 2))
    try:
        if which == "predict":
            near = np.clip(np.asarray(time, dtype=float), -2, 2)
            asked = None if isinstance(steps, int) and steps > 1000 else steps
            found = model.predict(state, near, start=other if not isinstance(other, (int, float)) or abs(other) < 2 else 0, solver=solver, steps=asked)
            assert found.dtype == np.float32
        elif which == "velocity":
            assert model.velocity(state, time).shape == np.shape(state)
        else:
            assert model.vector_jacobian(state, time, other).shape == np.shape(state)
    except REFUSALS:
        pass


@settings(FEW, max_examples=200)
@given(key=st.sampled_from(["steps", "batch", "operator", "path", "objective", "device", "out", "resume", "callback", "set", "seed"]), value=junk)
def test_trainings_of_anything(lorenz, key, value, tmp_path_factory):
    if key == "out" and not isinstance(value, (bytes, bytearray, int, float, type(None))):
        return
    options = {"operator": {"kind": "mlp", "hidden": [4]}, "batch": 4, "steps": 2, "device": "cpu", "progress": False}
    options[key] = value
    if key in ("steps", "batch") and isinstance(value, int) and value > 100:
        return
    if key == "operator" and value is None:
        return
    try:
        cfo.train(lorenz, **options)
    except REFUSALS:
        pass


def test_files_of_any_bytes(tmp_path):
    """A sound file with bytes changed reads as something or is refused."""
    random = np.random.default_rng(0)
    cfo.Trajectories(np.arange(5.0), np.zeros((3, 5, 2))).save(tmp_path / "a.h5")
    cfo.Trajectories(np.arange(5.0), np.zeros((3, 5, 2))).save(tmp_path / "a.npz")
    for name in ("a.h5", "a.npz"):
        sound = bytearray((tmp_path / name).read_bytes())
        for _ in range(100):
            changed = bytearray(sound)
            for place in random.integers(len(changed), size=3):
                changed[place] = random.integers(256)
            (tmp_path / "b").write_bytes(changed)
            try:
                cfo.read(tmp_path / "b")
            except REFUSALS:
                pass


def test_threads_call_at_once(model, lorenz):
    states = np.array([one.values[0] for one in lorenz])
    expected = {"predict": model.predict(states, [0.1]), "velocity": model.velocity(states, 0.1)}
    wrong = []

    def work(number):
        for turn in range(10):
            if not np.array_equal(model.predict(states, [0.1]), expected["predict"]):
                wrong.append((number, turn, "predict"))
            if not np.array_equal(model.velocity(states, 0.1), expected["velocity"]):
                wrong.append((number, turn, "velocity"))
            if number == 0:
                cfo.train(lorenz, operator={"kind": "mlp", "hidden": [4]}, steps=3, batch=4, device="cpu", progress=False)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=120)
    assert not any(thread.is_alive() for thread in threads) and not wrong


def in_child(model, states, connection):
    try:
        connection.send(("found", model.predict(states, [0.1])))
    except Exception as error:
        connection.send((type(error).__name__, str(error)))
    connection.close()


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_other_processes(model, lorenz, method):
    """A fork of a process that has worked is told so instead of waiting for threads that it does not have; a spawned one works."""
    states = np.array([one.values[0] for one in lorenz])
    expected = model.predict(states, [0.1])
    context = multiprocessing.get_context(method)
    ours, theirs = context.Pipe()
    process = context.Process(target=in_child, args=(model, states, theirs))
    process.start()
    assert ours.poll(60), "the child waits for ever"
    kind, found = ours.recv()
    process.join(30)
    assert process.exitcode == 0
    if method == "spawn":
        assert kind == "found" and np.array_equal(found, expected)
    else:
        assert kind == "CfoError" and "forked" in found and "spawn" in found


def test_a_fork_before_the_first_use_works():
    """In a process of its own, since this one has worked."""
    code = """
import os, cfo
child = os.fork()
data = cfo.simulate("lorenz", samples=3, frames=5, horizon=0.1)
model = cfo.train(data, operator="mlp", steps=2, batch=4, device="cpu", progress=False)
assert len(model.predict(data[0].values[0], [0.05])) == 1
if child == 0: os._exit(0)
assert os.waitpid(child, 0)[1] == 0
"""
    subprocess.run([sys.executable, "-c", code], check=True, timeout=120)


def resident() -> int:
    """Bytes of memory of this process."""
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


@pytest.mark.skipif(not os.path.exists("/proc/self/statm"), reason="memory is read from Linux's /proc")
def test_a_thousand_calls_leak_nothing(model, lorenz):
    states = np.array([one.values[0] for one in lorenz])
    values = np.random.default_rng(0).normal(size=(8, 64, 16))
    times = np.arange(64.0)

    def calls(count):
        for number in range(count):
            model.predict(states[: 1 + number % 20], [0.1, 0.2])
            model.velocity(states[: 1 + number % 20], 0.1)
            model.vector_jacobian(states, 0.1, states)
            data = cfo.Trajectories(times, values)
            data[3].values, data[1:].test, cfo.Path(times, values[0]).value(times)
            with pytest.raises(ValueError):
                model.predict(states, [np.nan])
            model.history, model.recipe
        gc.collect()

    calls(200)
    before = resident()
    calls(1000)
    # A set is 32 KiB: a thousand of them, or of any result, would be 30 MB. Allocators keep a few.
    assert resident() - before < 8 << 20


def test_native_requests_that_contradict_themselves_are_refused(model):
    """Two starts and one state: the Python half never asks so."""
    plain = {"solver": "rk4", "steps": None, "nfe": None, "rtol": None, "atol": None}
    with pytest.raises(cfo.CfoError, match="`states` for 1 trajectories and `start` for 2"):
        model._native.predict(np.zeros(3, "f4"), [3], [0.0, 0.0], np.ones(2), [([], None, None)] * 2, plain)


@pytest.mark.parametrize("alone", [False, True])
def test_processes_of_a_launcher_do_not_train_the_same_in_silence(alone):
    code = """
import cfo
data = cfo.simulate("lorenz", samples=4, frames=11)
try:
    cfo.train(data, operator="mlp", steps=1, batch=4, device="cpu", progress=False)
    print("trained")
except cfo.CfoError as error:
    print(error)
"""
    variables = {"OMPI_COMM_WORLD_SIZE": "2", "OMPI_COMM_WORLD_RANK": "0"} | ({"CFO_MPI": "off"} if alone else {})
    done = subprocess.run([sys.executable, "-c", code], env=os.environ | variables, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert ("trained" in done.stdout) == alone
    assert alone or ("`mpiexec` started 2 processes" in done.stdout and "CFO_MPI=off" in done.stdout)
