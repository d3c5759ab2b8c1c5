"""Trainings: the command's bits, keywords, callbacks, runs."""

from __future__ import annotations

import json
import threading
import time

import numpy as np
import pytest

import cfo

RECIPE = """
[path]
stencil = 5

[operator]
kind = "mlp"
hidden = [24, 24]

[train]
steps = 60
batch = 64
seed = 7
ema = 0.9
report_every = 10
validate_every = 20
"""


@pytest.fixture
def recipe(tmp_path):
    path = tmp_path / "recipe.toml"
    path.write_text(RECIPE)
    return path


def weights(run):
    return (run / "checkpoints" / "latest" / "weights.safetensors").read_bytes()


def without_rate(history):
    return [{key: value for key, value in report.items() if key != "steps_per_second"} for report in history]


def test_the_same_seed_gives_the_bits_of_the_command(tmp_path, run, lorenz, recipe):
    """From the file, from memory and from arrays: the same weights, the same losses, the same predictions."""
    file = tmp_path / "lorenz.h5"
    lorenz.save(file)
    run("train", recipe, "--data", file, "--out", tmp_path / "theirs", "--device", "cpu")
    theirs, latest = (cfo.load(tmp_path / "theirs", checkpoint=name, device="cpu") for name in ("best", "latest"))
    arrays = cfo.Trajectories([one.times for one in lorenz], [one.values.astype(float) for one in lorenz], split=lorenz.split)
    for name, data in {"read": cfo.read(file), "left": cfo.read(file, in_memory=False), "held": lorenz, "arrays": arrays}.items():
        ours = cfo.train(data, recipe, device="cpu", out=tmp_path / name, progress=False)
        assert weights(tmp_path / name) == weights(tmp_path / "theirs"), name
        assert without_rate(ours.history) == without_rate(latest.history), name
        state = lorenz[0].values[0]
        assert np.array_equal(ours.predict(state, [0.1, 0.3]), theirs.predict(state, [0.1, 0.3])), name


def test_a_file_without_a_split_is_divided_as_the_command_divides_it(tmp_path, run, recipe):
    times, values = np.linspace(0, 1, 11), np.random.default_rng(0).normal(size=(7, 11, 2)).cumsum(1)
    for count in (1, 7):
        file = tmp_path / f"{count}.npz"
        np.savez(file, times=times, values=values[:count])
        words = ["--set", "data.shuffle=true", "--device", "cpu"]
        run("train", recipe, "--data", file, "--out", tmp_path / f"theirs{count}", *words)
        for name, data in {"a": cfo.read(file), "b": cfo.Trajectories(times, values[:count])}.items():
            cfo.train(data, recipe, out=tmp_path / f"{name}{count}", device="cpu", progress=False, set={"data.shuffle": True})
            assert weights(tmp_path / f"{name}{count}") == weights(tmp_path / f"theirs{count}")


def test_without_a_recipe_it_trains_what_the_command_proposes(tmp_path, run, lorenz):
    file = tmp_path / "lorenz.npz"
    lorenz.save(file)
    words = ["--set", "train.steps=5", "--set", "train.warmup=0", "--device", "cpu"]
    run("train", "--data", file, "--out", tmp_path / "theirs", *words)
    cfo.train(cfo.read(file), out=tmp_path / "ours", device="cpu", progress=False, set={"train.steps": 5, "train.warmup": 0})
    assert weights(tmp_path / "ours") == weights(tmp_path / "theirs")


def test_evaluation_and_prediction_are_those_of_the_command(tmp_path, run, lorenz, recipe):
    file, folder = tmp_path / "lorenz.h5", tmp_path / "run"
    lorenz.save(file)
    model = cfo.train(cfo.read(file), recipe, out=folder, device="cpu", progress=False)
    for name, solver in {"rk4": {}, "dopri5": {"rtol": 1e-4, "atol": 1e-6}}.items():
        words = [word for key, value in solver.items() for word in (f"--{key}", value)]
        theirs = json.loads(
            run("evaluate", folder, "--data", file, "--solver", name, *words, "--checkpoint", "latest", "--device", "cpu", "--json").stdout
        )
        ours = model.evaluate(cfo.read(file).test, solver=name, **solver)
        for key in ("relative_l2", "per_time", "evaluations", "metrics", "miss", "diverged", "solver", "precision", "trajectories"):
            assert ours[key] == theirs[key], key
        # Steps that nobody chose are tried at half their length.
        assert ours.get("shorter_steps") == theirs.get("shorter_steps") and ("shorter_steps" in ours) == (name == "rk4")
        assert ours["seconds_per_trajectory"] > 0
    run(
        "predict", folder, "--initial", file, "--times", "0.02,0.11,0.4", "--out", tmp_path / "p.npz", "--checkpoint", "latest", "--device", "cpu"
    )
    theirs = np.load(tmp_path / "p.npz")["values"]
    ours = model.predict([one.values[0] for one in lorenz], [0.02, 0.11, 0.4], start=0)
    assert np.array_equal(ours, theirs)


def test_keywords_win_over_the_recipe_and_set_over_both(lorenz, recipe):
    model = cfo.train(
        lorenz, recipe, steps=4, batch=8, path="cubic", operator={"hidden": [8]}, progress=False, device="cpu", set={"train.batch": 16, "train.ema": 0.5}
    )
    found = model.recipe
    assert (found["train"]["steps"], found["train"]["batch"], found["train"]["ema"]) == (4, 16, 0.5)
    assert (found["path"]["spline"], found["path"]["stencil"], found["operator"]["hidden"]) == ("cubic", 5, [8])
    assert found["train"]["seed"] == 7 and model.steps == 4
    other = cfo.train(lorenz, found, operator="mlp", seed=8, learning_rate=1e-3, progress=False, device="cpu", objective="autoregressive")
    assert other.recipe["train"]["seed"] == 8 and other.recipe["objective"]["kind"] == "autoregressive"
    again = cfo.train(lorenz, RECIPE, steps=np.int64(2), set={"operator.hidden": np.array([4, 4])}, progress=False, device="cpu")
    assert again.recipe["operator"]["hidden"] == [4, 4]


def test_a_recipe_may_name_its_data(tmp_path, lorenz, recipe):
    lorenz.save(tmp_path / "a.npz")
    named = cfo.train(None, recipe, steps=3, progress=False, device="cpu", set={"data.path": tmp_path / "a.npz"})
    assert named.steps == 3
    assert cfo.train(tmp_path / "a.npz", recipe, steps=3, progress=False, device="cpu").steps == 3
    simulated = cfo.train(None, recipe, steps=3, progress=False, device="cpu", set={"data.simulate": "lorenz", "data.split": [3, 1, 1]})
    assert simulated.system == "lorenz"
    with pytest.warns(UserWarning, match="not used"):
        cfo.train(lorenz, recipe, steps=3, progress=False, device="cpu", set={"data.simulate": "burgers"})
    with pytest.raises(ValueError, match="neither"):
        cfo.train()


def test_a_callback_hears_every_report_on_the_calling_thread_and_may_stop(lorenz, recipe):
    heard, threads = [], set()

    def callback(report):
        heard.append(report)
        threads.add(threading.get_ident())
        return len(heard) < 3

    last = {"checkpoint": "latest", "progress": False, "device": "cpu"}
    model = cfo.train(lorenz, recipe, callback=callback, **last)
    assert [report["step"] for report in heard] == [10, 20, 30] and model.steps == 30
    assert heard == model.history and threads == {threading.get_ident()}
    assert set(heard[0]) == {"step", "steps", "loss", "learning_rate", "steps_per_second"} and "validation" in heard[1]
    assert cfo.train(lorenz, recipe, callback=lambda report: None, **last).steps == 60


def test_what_a_callback_raises_is_raised(lorenz, recipe):
    class Own(Exception):
        pass

    def callback(report):
        raise Own("mine")

    with pytest.raises(Own, match="mine"):
        cfo.train(lorenz, recipe, callback=callback, progress=False, device="cpu")


def test_a_run_is_resumed_to_the_same_bits(tmp_path, lorenz, recipe):
    last = {"checkpoint": "latest", "progress": False, "device": "cpu"}
    whole = cfo.train(lorenz, recipe, out=tmp_path / "whole", **last)
    part = cfo.train(lorenz, recipe, out=tmp_path / "part", callback=lambda r: r["step"] < 30, **last)
    assert part.steps == 30
    with pytest.raises(ValueError, match="already holds a run"):
        cfo.train(lorenz, recipe, out=tmp_path / "part", progress=False, device="cpu")
    again = cfo.train(lorenz, out=tmp_path / "part", resume=True, **last)
    assert again.steps == whole.steps == 60
    assert weights(tmp_path / "part") == weights(tmp_path / "whole")


def test_a_training_has_the_weights_that_loading_takes(tmp_path, lorenz):
    """The best by validation, unless the latest are asked for; with a folder and without one."""
    keys = {"train.validate_every": 5, "train.report_every": 5, "train.schedule": "constant"}
    state = lorenz[0].values[0]

    def train(**more):
        network = {"kind": "mlp", "hidden": [16, 16], "time": False}
        return cfo.train(lorenz, operator=network, steps=60, batch=32, learning_rate=0.03, device="cpu", progress=False, set=keys, **more)

    model = train(out=tmp_path / "run")
    errors = {report["step"]: report["validation"] for report in model.history if "validation" in report}
    best = min(errors, key=errors.get)
    assert best != max(errors), "the last weights happen to be the best: choose another learning rate"
    assert model.evaluate(lorenz.validation)["relative_l2"]["mean"] == pytest.approx(errors[best], rel=1e-6)
    expected = {name: cfo.load(tmp_path / "run", checkpoint=name, device="cpu").predict(state, [0.1]) for name in ("best", "latest")}
    assert not np.array_equal(expected["best"], expected["latest"])
    assert np.array_equal(model.predict(state, [0.1]), expected["best"])
    assert np.array_equal(train().predict(state, [0.1]), expected["best"])
    assert np.array_equal(train(checkpoint="latest").predict(state, [0.1]), expected["latest"])
    # A run that is over is only loaded.
    assert np.array_equal(cfo.train(lorenz, out=tmp_path / "run", resume=True, device="cpu", progress=False).predict(state, [0.1]), expected["best"])
    model.save(tmp_path / "copy")
    copy = cfo.load(tmp_path / "copy", device="cpu")
    assert np.array_equal(copy.predict(state, [0.1]), expected["best"])
    assert copy.steps == model.steps == best and without_rate(copy.history) == without_rate(model.history)
    assert np.array_equal(cfo.load(tmp_path / "copy", checkpoint="latest", device="cpu").predict(state, [0.1]), expected["latest"])
    with pytest.raises(ValueError, match="checkpoint"):
        train(checkpoint="step-5")


def test_a_training_that_learned_nothing_warns(lorenz):
    with pytest.warns(UserWarning, match="predicts no change"):
        model = cfo.train(
            lorenz, operator="mlp", steps=1, learning_rate=1e-12, device="cpu", progress=False, set={"train.validate_every": 0}
        )
    assert model.history[-1]["loss"] > 1 and len(model.warnings) == 1


def test_models_are_saved_and_loaded(tmp_path, model, lorenz, run):
    model.save(tmp_path / "copy")
    again = cfo.load(tmp_path / "copy", device="cpu")
    state = lorenz[0].values[0]
    assert np.array_equal(again.predict(state, [0.2]), model.predict(state, [0.2]))
    assert again.recipe == model.recipe and again.history == model.history and again.steps == model.steps
    assert np.array_equal(cfo.load(str(tmp_path / "copy"), "latest", "cpu").velocity(state, 0), model.velocity(state, 0))
    lorenz.save(tmp_path / "a.npz")
    run("evaluate", tmp_path / "copy", "--data", tmp_path / "a.npz", "--json")
    with pytest.raises(ValueError, match="already holds a run"):
        model.save(tmp_path / "copy")
    for name in ("none", "a.npz"):
        with pytest.raises(FileNotFoundError, match="not the folder of a run"):
            cfo.load(tmp_path / name)
    with pytest.raises(ValueError, match="no checkpoint `step-7`"):
        cfo.load(tmp_path / "copy", checkpoint="step-7")
    with pytest.raises(ValueError, match="abacus"):
        cfo.load(tmp_path / "copy", device="abacus")
    state = tmp_path / "copy" / "checkpoints" / "latest" / "weights.safetensors"
    state.resolve().write_bytes(b"torn")
    with pytest.raises(ValueError):
        cfo.load(tmp_path / "copy")


def test_what_is_wrong_is_said_as_the_command_says_it(tmp_path, lorenz, run):
    lorenz.save(tmp_path / "a.npz")
    bad = tmp_path / "bad.toml"
    for text in ("[train]\nstpes = 3\n", "[train]\nsteps = -1\n", "[path]\nspline = 'cubick'\n", "[train\n", "[operator]\nkind = 'cnn'\n"):
        bad.write_text(text)
        said = json.loads(run("train", bad, "--data", tmp_path / "a.npz", "--out", tmp_path / "run", "--json", check=False).stdout)
        with pytest.raises(ValueError) as raised:
            cfo.train(lorenz, bad, progress=False)
        assert str(raised.value.args[0]) == said["error"]
        # Hints of the command may name its options; ours do not.
        assert raised.value.hint == said["hint"] or "--" in said["hint"] or "`cfo " in said["hint"]
    said = json.loads(run("train", tmp_path / "none.toml", "--data", tmp_path / "a.npz", "--json", check=False).stdout)
    with pytest.raises(FileNotFoundError) as raised:
        cfo.train(lorenz, tmp_path / "none.toml")
    assert str(raised.value.args[0]) == said["error"] and raised.value.hint == said["hint"]


@pytest.mark.parametrize(
    "keywords",
    [
        {"steps": 0},
        {"steps": 1.5},
        {"steps": "many"},
        {"batch": -1},
        {"batch": 2**40},
        {"seed": -1},
        {"learning_rate": float("nan")},
        {"learning_rate": "high"},
        {"operator": "cnn"},
        {"operator": {"kind": "mlp", "hiden": [3]}},
        {"operator": 3},
        {"path": "cubick"},
        {"objective": {"kind": "flow"}},
        {"device": "abacus"},
        {"set": {"train.stpes": 3}},
        {"set": {"": 3}},
        {"set": {"train": object()}},
        {"set": {3: 4}},
        {"set": ["train.steps=3"]},
        {"set": {"train.steps": None}},
        {"recipe": 3},
        {"recipe": {"train": {"stpes": 3}}},
        {"callback": 3},
        {"recipe": "\0.toml"},
        {"operator": "unet"},
    ],
)
def test_bad_keywords_are_refused(lorenz, keywords):
    with pytest.raises(ValueError):
        cfo.train(lorenz, progress=False, **keywords)


def test_data_that_cannot_train_are_refused(lorenz):
    for data in (lorenz[:0], lorenz.test.train, 3, np.zeros((2, 3, 1))):
        with pytest.raises(ValueError):
            cfo.train(data, steps=2, progress=False, operator="mlp")


def test_a_diverging_training_is_an_error_of_its_own(lorenz):
    with pytest.raises(cfo.CfoError, match="loss") as raised:
        cfo.train(lorenz, operator="mlp", steps=200, batch=8, learning_rate=1e12, device="cpu", progress=False, set={"train.clip": 0.0})
    assert not isinstance(raised.value, ValueError) and "learning_rate" in str(raised.value.hint)


def test_other_threads_run_during_a_training(lorenz):
    """The interpreter's lock is released: a thread of Python's counts on while the engine works."""
    counted, over = [0], threading.Event()

    def count():
        while not over.is_set():
            counted[0] += 1
            time.sleep(0.001)

    thread = threading.Thread(target=count)
    thread.start()
    began = time.monotonic()
    cfo.train(lorenz, operator={"kind": "mlp", "hidden": [128] * 3}, steps=150, batch=1024, device="cpu", progress=False)
    seconds = time.monotonic() - began
    over.set()
    thread.join()
    # With the lock held it would count once or twice; on a busy machine it may well sleep longer than asked for.
    assert counted[0] > 10, (counted, seconds)


def test_progress_is_lines_where_nobody_draws(lorenz, capsys):
    cfo.train(lorenz, operator="mlp", steps=20, batch=8, device="cpu")
    said = capsys.readouterr()
    assert said.out == "" and "step 20/20: loss" in said.err and "\r" not in said.err
    cfo.train(lorenz, operator="mlp", steps=20, batch=8, device="cpu", progress=False)
    assert capsys.readouterr() == ("", "")


def test_progress_is_one_line_that_changes_on_a_terminal(lorenz, capsys, monkeypatch):
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    cfo.train(lorenz, operator="mlp", steps=20, batch=8, device="cpu")
    said = capsys.readouterr().err
    assert said.startswith("\rstep") and said.endswith("\r") and "\n" not in said


def test_a_large_constant_changes_no_prediction():
    random = np.random.default_rng(1)
    times = np.sort(random.uniform(0, 6, (30, 40)), 1)
    phase = random.uniform(0, 6.28, (30, 1))
    values = np.stack([np.cos(times + phase), -0.02 * np.sin(times + phase)], -1)
    large = np.array([1e9, 101325.0])
    keys = dict(steps=60, batch=64, device="cpu", operator={"kind": "mlp", "hidden": [24, 24]}, progress=False)
    plain, moved = cfo.Trajectories(times, values), cfo.Trajectories(times, values + large)
    one, other = cfo.train(plain, **keys), cfo.train(moved, **keys)
    wanted = np.linspace(0, 5, 7)
    expected = one.predict(values[0, 0], wanted)
    found = other.predict((values + large)[0, 0], wanted)
    assert expected.dtype == np.float32 and found.dtype == np.float64
    # Trainings on numbers that differ in their last bits, of channels of size 1 and 0.02.
    assert np.allclose(found - large, expected, rtol=0, atol=[1e-3, 2e-5])
    velocities = [model.velocity(state, 0.0) for model, state in ((one, values[0, 0]), (other, (values + large)[0, 0]))]
    assert np.allclose(*velocities, rtol=1e-3, atol=1e-4)
    errors = [model.evaluate(data.test)["metrics"]["rmse"] for model, data in ((one, plain), (other, moved))]
    assert errors[1] == pytest.approx(errors[0], rel=1e-3)
