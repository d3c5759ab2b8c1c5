"""What a model answers, against its own data, finite differences and SciPy."""

from __future__ import annotations

import copy
import pickle
import warnings

import numpy as np
import pytest
from scipy.integrate import solve_ivp

import cfo


@pytest.fixture
def states(lorenz):
    return np.array([one.values[0] for one in lorenz.test] + [one.values[50] for one in lorenz.train[:5]])


def test_shapes(model, line_model, states):
    times = [0.1, 0.2, 0.4]
    assert model.predict(states, times).shape == (len(states), 3, 3)
    assert model.predict(states[0], times).shape == (3, 3)
    assert model.predict(states, 0.1).shape == (len(states), 1, 3)
    assert model.predict(states[:0], times).shape == (0, 3, 3) and model.predict(states, []).shape == (len(states), 0, 3)
    assert model.predict(states, times).dtype == np.float32
    field = np.zeros((2, 32, 1))
    assert line_model.predict(field, times).shape == (2, 3, 32, 1) and line_model.velocity(field, 0).shape == (2, 32, 1)
    assert line_model.velocity(field[0].reshape(-1), 0).shape == (32,)


def test_a_network_without_a_grid_takes_others(line_model):
    for points in (32, 40, 64, 24, 48, 56, 40):
        x = np.arange(points) / points
        field = np.sin(2 * np.pi * x)[:, None]
        assert line_model.predict(field, [0.1]).shape == (1, points, 1)
        assert np.isfinite(line_model.velocity(field, 0.1)).all()


def test_times_come_in_any_order_on_both_sides_of_the_start(model, states):
    times = np.array([0.3, 0.1, 0.2, 0.1, 0.45])
    found = model.predict(states, times, start=0.2)
    for index, time in enumerate(times):
        alone = model.predict(states, [t for t in sorted(set(times)) if t <= time] if time > 0.2 else sorted(set(times)), start=0.2)
        place = sorted(set(times)).index(time)
        # Longer batches of outputs may be stepped otherwise, to the accuracy of the solver.
        assert np.allclose(found[:, index], alone[:, place], rtol=1e-3, atol=1e-3)
    assert np.array_equal(found[:, 1], found[:, 3]) and np.array_equal(found[:, 2], states)
    each = model.predict(states, np.tile([0.3, 0.1], (len(states), 1)), start=[0.2] * len(states))
    assert np.allclose(each, model.predict(states, [0.3, 0.1], start=0.2), rtol=1e-5, atol=1e-4)


def test_predictions_follow_the_truth(model, lorenz):
    """A model that was trained a second is better than one that stays where it was."""
    one = lorenz.test[0]
    found = model.predict(one.values[0], one.times[:20])
    still = np.linalg.norm(one.values[:20] - one.values[0])
    assert np.linalg.norm(found - one.values[:20]) < 0.5 * still


def test_velocity_is_the_slope_of_predictions(model, states):
    step = 1e-3
    later = model.predict(states, [0.1 + step], start=0.1, solver="rk4")[:, 0]
    earlier = model.predict(states, [0.1 - step], start=0.1, solver="rk4")[:, 0]
    slope = (later.astype(float) - earlier) / (2 * step)
    velocity = model.velocity(states, 0.1)
    # States of size 30 in single precision: 4e-6 / 2e-3 of rounding, and second derivatives of some thousand.
    assert np.allclose(velocity, slope, rtol=1e-2, atol=0.1)


def test_velocity_in_scipys_solver(model, states):
    """SciPy integrates the learned field to where our own adaptive solver comes."""
    for method in ("RK45", "LSODA", "Radau"):
        found = solve_ivp(lambda t, u: model.velocity(u, t), (0, 0.3), states[0], method=method, rtol=1e-5, atol=1e-4)
        assert found.success, found.message
        ours = model.predict(states[0], [0.3], start=0, solver="dopri5", rtol=1e-6, atol=1e-8)[0]
        # A tolerance of 1e-5 grows with the flow: by about e^(1.5 * 0.3) here.
        assert np.allclose(found.y[:, -1], ours, rtol=1e-3, atol=1e-2), method


def test_velocity_takes_a_time_for_each_state(line_model):
    field = np.random.default_rng(0).normal(size=(3, 32, 1))
    times = [0.1, 0.5, 0.9]
    together = line_model.velocity(field, times)
    apart = [line_model.velocity(one, time) for one, time in zip(field, times)]
    # Sums over a batch may be rounded in another order.
    assert np.allclose(together, apart, rtol=1e-4, atol=1e-5)


def test_vector_jacobian_is_the_derivative_of_the_velocity(model, states):
    state, vector = states[0].astype(float), np.array([0.3, -1.0, 0.5])
    product = model.vector_jacobian(state, 0.1, vector)
    # Of float32 velocities up to 300 over steps of 2e-2 central differences are good to 1e-2 or so.
    step = 2e-2
    numeric = [
        vector @ (model.velocity(state + step * axis, 0.1).astype(float) - model.velocity(state - step * axis, 0.1)) / (2 * step)
        for axis in np.eye(3)
    ]
    assert np.allclose(product, numeric, rtol=2e-2, atol=5e-2)
    many = model.vector_jacobian(states, 0.1, np.broadcast_to(vector, states.shape))
    assert many.shape == states.shape and np.allclose(many[0], product, rtol=1e-4, atol=1e-4)
    # A newton step needs all of it: rows of the Jacobian, one for each unit vector.
    jacobian = model.vector_jacobian(np.tile(state, (3, 1)), 0.1, np.eye(3))
    assert np.allclose(vector @ jacobian, product, rtol=1e-4, atol=1e-4)


def test_solvers_agree(model, states):
    fine = model.predict(states, [0.2], start=0, solver="dopri5", rtol=1e-7, atol=1e-9)
    for solver, options in {"euler": {"steps": 4000}, "heun": {"steps": 400}, "rk4": {"steps": 100}, "tsit5": {"rtol": 1e-6, "atol": 1e-8}}.items():
        found = model.predict(states, [0.2], start=0, solver=solver, **options)
        # Euler's method with 4000 steps over 0.2 is good to 1e-2 of states of size 30.
        assert np.allclose(found, fine, rtol=2e-3, atol=5e-2), solver
    assert np.isfinite(model.predict(states, [0.2], solver=None)).all()


def test_parameters_are_given_by_name_or_in_order(conditioned):
    assert conditioned.parameter_names == ["k"]
    found = conditioned.predict([[1.0], [1.0]], [1.0], parameters={"k": [0.6, 1.8]})[:, 0, 0]
    # Trained for a second or so.
    assert np.allclose(found, np.exp([-0.6, -1.8]), atol=0.05)
    assert np.array_equal(conditioned.predict([[1.0], [1.0]], [1.0], parameters=[[0.6], [1.8]])[:, 0, 0], found)
    assert np.allclose(conditioned.velocity([1.0], 0.0, parameters={"k": 1.0}), -1.0, atol=0.2)
    for bad in (None, {}, {"q": 1.0}, {"k": 1.0, "q": 1.0}, [1.0, 2.0], {"k": np.nan}, "k"):
        with pytest.raises(ValueError):
            conditioned.predict([1.0], [1.0], parameters=bad)


def driven(count=40, **more):
    rng = np.random.default_rng(2)
    clock = np.linspace(0, 3, 31)
    force = rng.normal(0, 1, (count, 1)) * np.sin(rng.uniform(0.5, 2, (count, 1)) * clock)
    x = np.zeros((count, 31))
    for k in range(30):
        x[:, k + 1] = (0.95 * x[:, k] + 0.05 * (force[:, k] + force[:, k + 1])) / 1.05
    return cfo.Trajectories(clock, x[..., None], controls=force[..., None], control_times=clock, control_names=["force"], **more)


def test_controls_are_inputs(tmp_path):
    data = driven()
    assert data.control_names == ["force"] and data[3].controls[1].shape == (31, 1)
    for twin in (pickle.loads(pickle.dumps(data)), data[2:5]):
        assert twin.control_names == ["force"] and twin[0].controls is not None
    data.save(tmp_path / "driven.npz")
    again = cfo.read(tmp_path / "driven.npz")
    assert np.array_equal(again[7].controls[1], data[7].controls[1]) and again.control_names == ["force"]
    model = cfo.train(data, steps=400, seed=0, progress=False)
    assert model.control_names == ["force"]
    clock = np.linspace(0, 3, 50)
    found = model.predict([0.0], [1.0, 3.0], start=0.0, controls=(clock, np.sin(clock)[:, None]))[:, 0]
    times = np.array([1.0, 3.0])
    # Trained for a second or so.
    assert np.allclose(found, (np.sin(times) - np.cos(times) + np.exp(-times)) / 2, atol=0.1)
    assert np.allclose(model.velocity([0.0], 1.0, controls=(clock, np.ones((50, 1)))), 1.0, atol=0.3)
    both = model.predict([[0.0], [0.0]], [1.0], start=0.0, controls=(clock, np.stack([np.sin(clock), 0 * clock])[..., None]))
    # Both requests have steps of their own, whose errors have a relative tolerance of 1e-4.
    assert np.allclose(both[0, 0], found[0], rtol=1e-3) and abs(both[1, 0, 0]) < 0.1
    for bad in (None, 1.0, (clock,), (clock[:9], np.zeros((9, 1))), (clock, np.zeros((50, 2))), (clock[::-1], np.zeros((50, 1)))):
        with pytest.raises(ValueError):
            model.predict([0.0], [3.0], start=0.0, controls=bad)
    for bad in (
        {"control_times": clock},
        {"controls": np.zeros((1, 3, 1))},
        {"controls": np.full((1, 50, 1), np.nan), "control_times": clock},
        {"controls": np.zeros((1, 50, 1)), "control_times": clock, "control_names": ["a", "b"]},
    ):
        with pytest.raises(ValueError):
            cfo.Trajectories([0.0, 1.0], np.zeros((1, 2, 1)), **bad)


def test_static_fields_are_inputs(tmp_path):
    rng = np.random.default_rng(3)
    times = np.linspace(0, 1, 9)
    rate = rng.uniform(0.5, 2.0, (30, 12, 1))
    values = rng.normal(0, 1, (30, 1, 12)) * np.exp(-rate[:, None, :, 0] * times[:, None])
    data = cfo.Trajectories(times, values[..., None], statics=rate, static_names=["rate"])
    assert data.static_names == ["rate"] and np.allclose(data[4].statics, rate[4])
    for twin in (pickle.loads(pickle.dumps(data)), data[4:6]):
        assert twin.static_names == ["rate"] and twin[0].statics.shape == (12, 1)
    data.save(tmp_path / "decay.h5")
    assert np.array_equal(cfo.read(tmp_path / "decay.h5")[7].statics, data[7].statics)
    model = cfo.train(data, operator="fno", steps=150, batch=8, seed=0, progress=False, set={"operator.width": 12, "operator.blocks": 2})
    assert model.static_names == ["rate"]
    start = values[0, 0, :, None]
    slow, fast = (model.predict(start, [1.0], start=0.0, statics=np.full((12, 1), one)) for one in (0.6, 1.9))
    # Trained for a second or so.
    assert np.abs(fast).mean() < np.abs(slow).mean()
    both = model.predict([start, start], [1.0], start=0.0, statics=np.stack([np.full((12, 1), 0.6), np.full((12, 1), 1.9)]))
    assert np.allclose(both[0], slow, atol=1e-5) and np.allclose(both[1], fast, atol=1e-5)
    assert model.velocity(start, 0.0, statics=rate[0]).shape == start.shape
    for bad in (None, np.zeros((11, 1)), np.zeros((12, 2)), np.full((12, 1), np.nan)):
        with pytest.raises(ValueError):
            model.predict(start, [1.0], start=0.0, statics=bad)
    for bad in ({"statics": np.zeros((30, 11, 1))}, {"statics": np.zeros((2, 12, 1))}, {"static_names": ["rate"]}, {"statics": rate, "static_names": ["a", "b"]}):
        with pytest.raises(ValueError):
            cfo.Trajectories(times, values[..., None], **bad)


def test_models_pickle_and_copy(model, states):
    expected = model.predict(states, [0.3])
    for twin in (pickle.loads(pickle.dumps(model)), copy.copy(model), copy.deepcopy(model)):
        assert np.array_equal(twin.predict(states, [0.3]), expected)
        assert twin.recipe == model.recipe and twin.history == model.history and repr(twin) == repr(model)
    errors = pickle.loads(pickle.dumps(cfo.CfoError("a", "b")))
    assert str(errors) == "a\n\nhint: b" and errors.hint == "b"


def test_inputs_of_any_strides_and_types(model, states):
    expected = model.predict(states, [0.1])
    wide = np.zeros((len(states), 6), dtype=np.float32)
    wide[:, ::2] = states
    for same in (wide[:, ::2], states[::-1][::-1], np.asfortranarray(states), states.astype(np.float64), states.tolist(), states.astype(">f4")):
        assert np.array_equal(model.predict(same, [0.1]), expected)
    assert np.array_equal(model.predict(states[::-1], [0.1]), model.predict(states[::-1].copy(), [0.1]))


class Foreign:
    """An array of another library: it has DLPack's methods and nothing else."""

    def __init__(self, values, device=(1, 0)):
        self.values, self.device, self.exported = values, device, 0

    def __dlpack__(self, **options):
        self.exported += 1
        return self.values.__dlpack__(**options)

    def __dlpack_device__(self):
        return self.device


def test_dlpack_in_and_out(model, states, lorenz):
    """Arrays of other libraries come in by DLPack, and results go out by it, on the CPU without a copy."""
    foreign = Foreign(np.ascontiguousarray(states))
    assert np.array_equal(model.predict(foreign, [0.1]), model.predict(states, [0.1])) and foreign.exported == 1
    taken = cfo._arrays.array(Foreign(foreign.values), "x", np.float32)
    assert np.shares_memory(taken, foreign.values)
    values = np.array([one.values for one in lorenz])
    data = cfo.Trajectories(Foreign(lorenz[0].times), Foreign(values))
    assert np.array_equal(data[3].values, values[3])
    found = model.predict(states, [0.1])
    assert np.shares_memory(np.from_dlpack(found), found) and found.__dlpack_device__()[0] == 1
    assert np.shares_memory(np.from_dlpack(model.velocity(states, 0)), found) is False
    with pytest.raises(ValueError, match="not on the CPU"):
        model.predict(Foreign(foreign.values, device=(2, 0)), [0.1])


def test_results_begin_where_every_library_takes_them(model, states):
    """jax copies arrays that do not begin on a multiple of 64 bytes."""
    for count in (1, 2, 5, 7):
        for found in (model.predict(states[:count], [0.1, 0.2]), model.velocity(states[:count], 0.1), model.vector_jacobian(states[:count], 0.1, states[:count])):
            assert found.ctypes.data % 64 == 0 and found.flags.writeable and found.flags.c_contiguous
            kept = found.copy()
            found += 1
            assert np.array_equal(found, kept + 1)
    # An entry outlives its array.
    view = model.predict(states, [0.1, 0.2])[0, 1]
    again = model.predict(states, [0.1, 0.2])
    assert np.array_equal(view, again[0, 1])


def test_jax_shares_memory_both_ways(model, states):
    jax = pytest.importorskip("jax")
    found = model.predict(states, [0.1])
    assert jax.numpy.from_dlpack(found).unsafe_buffer_pointer() == found.ctypes.data
    theirs = jax.numpy.asarray(states)
    assert cfo._arrays.array(theirs, "x", np.float32).ctypes.data == theirs.unsafe_buffer_pointer()


def test_torch_shares_memory_both_ways(model, states):
    torch = pytest.importorskip("torch")
    found = torch.from_dlpack(model.predict(torch.from_numpy(states), [0.1]))
    assert found.shape == (len(states), 1, 3)
    array = model.velocity(torch.from_numpy(states), 0.0)
    torch.from_dlpack(array)[0, 0] = 7
    assert array[0, 0] == 7


@pytest.mark.parametrize(
    "arguments",
    [
        {"initial": [1.0, 2.0]},
        {"initial": [[[[1.0]]]]},
        {"initial": [1.0, 2.0, np.nan]},
        {"initial": np.array([1, 2, 3], dtype=object)},
        {"initial": "state"},
        {"initial": None},
        {"initial": [1j, 2, 3]},
        {"times": [np.nan]},
        {"times": [[0.1, 0.2]] * 3},
        {"times": "later"},
        {"times": [[[0.1]]]},
        {"start": np.inf},
        {"start": [0.0, 0.1]},
        {"solver": "rk5"},
        {"solver": 4},
        {"steps": 0},
        {"steps": -1},
        {"steps": 2.5},
        {"solver": "rk4", "rtol": 1e-3},
        {"solver": "euler", "atol": 1e-3},
        {"steps": 3, "nfe": 40},
        {"nfe": 40, "rtol": 1e-3},
        {"nfe": 0},
        {"solver": "rk4", "nfe": 3},
        {"solver": "dopri5", "rtol": -1.0},
        {"solver": "dopri5", "rtol": 1e-3, "steps": 3},
        {"solver": "dopri5", "rtol": "low"},
        {"parameters": {"k": 1.0}},
    ],
)
def test_bad_arguments_are_refused(model, arguments):
    with pytest.raises(ValueError):
        model.predict(**{"initial": [[1.0, 2.0, 3.0]], "times": [0.1], **arguments})


@pytest.mark.parametrize("solver", [None, "rk4", "euler", "dopri5"])
def test_the_finite_part_of_a_trajectory_that_leaves_the_numbers_is_returned(growing, solver):
    """States before the end are those of a shorter prediction, states after it NaN, in the order asked for; other trajectories are whole."""
    times = np.array([[0.7, 0.1, 0.3, 0.2, 0.5], [500.0, 0.1, 0.3, 0.1, 400.0]])
    with pytest.warns(cfo.DivergenceWarning, match="trajectory 1 became infinite or undefined after time") as told:
        found = growing.predict([[0.01], [0.005]], times, start=0.0, solver=solver)
    assert found.shape == (2, 5, 1) and np.isfinite(found[0]).all()
    assert np.array_equal(np.isfinite(found[1, :, 0]), [False, True, True, True, False])
    ended = float(next(str(one.message) for one in told if one.category is cfo.DivergenceWarning).split()[-1])
    # States of equal steps are looked at where there are outputs.
    assert 0.3 <= ended < 400
    alone = growing.predict([0.005], [0.1, 0.3], start=0.0, solver=solver)
    assert np.allclose(found[1, [1, 2]], alone, rtol=1e-3) and np.array_equal(found[1, 1], found[1, 3])
    with pytest.warns(cfo.DivergenceWarning):
        assert np.isnan(growing.predict([3e38], [0.5, 0.7])[-1]).all()
    assert np.isnan(growing.velocity([np.nan], 0.1)).any()


def test_a_rollout_far_out_of_the_training_data_is_named(growing):
    with pytest.warns(UserWarning, match="trajectory 0 leaves the range of the training data at time 2.* reaches .*, the training data have"):
        far = growing.predict([0.01], [0.5, 2.0, 2.5], start=0.0)
    assert np.isfinite(far).all()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        growing.predict([0.01], [0.5, 1.0], start=0.0)
    data = cfo.Trajectories([0.0, 0.5, 2.5], [[[0.01], [0.1], [1000.0]]])
    with pytest.warns(UserWarning, match="leaves the range"):
        report = growing.evaluate(data)
    assert any("leaves the range" in text for text in report["warnings"])


def test_options_mean_what_they_mean_to_the_command(tmp_path, run, lorenz):
    """Without options the recipe's solver; with them the states and, by their number of steps, the evaluations of the command."""
    network = {"kind": "mlp", "hidden": [16], "time": False}
    file, folder = tmp_path / "a.npz", tmp_path / "run"
    lorenz.save(file)
    # The wild end of Lorenz: one RK4 step per interval and Tsit5 by tolerances differ.
    cfo.train(lorenz, operator=network, steps=20, batch=16, device="cpu", progress=False, out=folder, set={"evaluate.solver.rtol": 1e-2})
    model = cfo.load(folder, device="cpu")
    first = lorenz[0]
    times = np.array([0.4, 0.15, 0.3])

    def command(options):
        words = [word for key, value in options.items() for word in (f"--{key}", value)]
        out = tmp_path / "p.npz"
        run("predict", folder, "--initial", file, "--trajectory", 0, "--times", "0.15,0.3,0.4", "--out", out, "--force", "--device", "cpu", *words)
        return cfo.read(out)[0].values[[2, 0, 1]]

    cases = [{}, {"rtol": 1e-5}, {"nfe": 60}]
    for solver in ("euler", "heun", "rk4", "dopri5", "tsit5"):
        cases += [{"solver": solver}, {"solver": solver, "steps": 7}, {"solver": solver, "nfe": 60}]
        if solver not in ("euler", "rk4"):
            cases += [{"solver": solver, "atol": 1e-3}]
    seen = {}
    for options in cases:
        found = model.predict(first.values[0], times, start=first.times[0], **options)
        assert np.array_equal(found, command(options)), options
        seen[str(options)] = found
    assert np.array_equal(seen["{}"], seen["{'solver': 'tsit5'}"])
    assert not np.array_equal(seen["{}"], seen["{'solver': 'rk4'}"])
    assert not np.array_equal(seen["{'solver': 'heun'}"], seen["{'solver': 'heun', 'steps': 7}"])


def test_evaluation_names_what_diverged(model, lorenz):
    values = np.array([one.values for one in lorenz[:3]])
    values[1] = 3e38
    report = model.evaluate(cfo.Trajectories(lorenz[0].times, values))
    assert report["relative_l2"]["per_trajectory"][1] is None and report["diverged"][0]["trajectory"] == 1
    assert report["relative_l2"]["per_trajectory"][0] > 0
    for bad in (lorenz[:0], values, None):
        with pytest.raises(ValueError):
            model.evaluate(bad)
    with pytest.raises(ValueError):
        model.evaluate(cfo.simulate("burgers", samples=1, grid=32, frames=3, viscosity=0.05))


def test_models_come_from_trainings_alone():
    for made in (cfo.Model, cfo.Trajectory):
        with pytest.raises(TypeError):
            made()
