"""The path against SciPy's splines."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.interpolate import BPoly, CubicHermiteSpline

import cfo


@pytest.fixture
def snapshots():
    random = np.random.default_rng(4)
    times = np.cumsum(random.uniform(0.05, 0.3, 12))
    return times, np.stack([np.sin(3 * times), np.cos(times), times**2], axis=1).reshape(12, 3, 1)


def test_a_cubic_path_is_scipys_with_three_point_slopes(snapshots):
    times, values = snapshots
    slopes = np.gradient(values, times, axis=0, edge_order=2)
    theirs = CubicHermiteSpline(times, values, slopes)
    ours = cfo.Path(times, values, spline="cubic", stencil=3)
    at = np.linspace(times[0], times[-1], 101)
    assert np.allclose(ours.value(at), theirs(at), rtol=1e-12, atol=1e-12)
    assert np.allclose(ours.velocity(at), theirs(at, 1), rtol=1e-10, atol=1e-10)


def test_a_quintic_path_is_scipys_with_three_point_derivatives(snapshots):
    times, values = snapshots
    flat = values.reshape(12, 3)
    data = np.zeros((12, 3, 3))
    for knot in range(12):
        first = min(max(knot - 1, 0), 9)
        for channel in range(3):
            parabola = np.polynomial.Polynomial.fit(times[first : first + 3], flat[first : first + 3, channel], 2)
            data[knot, :, channel] = parabola(times[knot]), parabola.deriv()(times[knot]), parabola.deriv(2)(times[knot])
    theirs = BPoly.from_derivatives(times, data)
    ours = cfo.Path(times, flat)
    at = np.linspace(times[0], times[-1], 101)
    assert np.allclose(ours.value(at), theirs(at), rtol=1e-9, atol=1e-9)
    assert np.allclose(ours.velocity(at), theirs.derivative()(at), rtol=1e-7, atol=1e-7)


@pytest.mark.parametrize(("spline", "stencil"), [("linear", 2), ("cubic", 5), ("quintic", 3), ("quintic", 7), ("hermite-7", 5)])
def test_every_path_goes_through_its_knots_and_velocity_is_its_slope(snapshots, spline, stencil):
    times, values = snapshots
    path = cfo.Path(times, values, spline=spline, stencil=stencil)
    assert np.allclose(path.value(times), values, atol=1e-12)
    at, step = (times[:-1] + times[1:]) / 2, 1e-5
    slope = (path.value(at + step) - path.value(at - step)) / (2 * step)
    assert np.allclose(path.velocity(at), slope, rtol=1e-5, atol=1e-6)


def test_shapes(snapshots):
    times, values = snapshots
    path = cfo.Path(times, values)
    assert path.value(0.5).shape == (3, 1) and path.value([0.5]).shape == (1, 3, 1) and path.velocity([[0.5, 0.6]]).shape == (1, 2, 3, 1)
    assert cfo.Path(times, values[:, 0, 0]).value(0.5).shape == () and len(path) == 12
    assert cfo.Path([1.0], [2.0]).value(7.0) == 2.0 and cfo.Path([1.0], [2.0]).velocity(7.0) == 0.0
    assert np.allclose(cfo.Path([0.0, 1.0], [0.0, 2.0]).value(0.25), 0.5)
    assert path.value([]).shape == (0, 3, 1)


@pytest.mark.parametrize(
    "arguments",
    [
        {"spline": "cubick"},
        {"spline": "hermite-6"},
        {"spline": 3},
        {"stencil": 2},
        {"stencil": 0},
        {"stencil": 99},
        {"times": [0.0, 0.0, 1.0]},
        {"times": [0.0, 1.0]},
        {"times": []},
        {"values": [1.0, np.nan, 2.0]},
        {"values": 3.0},
        {"values": ["a", "b", "c"]},
    ],
)
def test_bad_arguments_are_refused(arguments):
    with pytest.raises(ValueError):
        cfo.Path(**{"times": [0.0, 1.0, 2.0], "values": [1.0, 2.0, 3.0], **arguments})


def test_bad_times_are_refused():
    path = cfo.Path([0.0, 1.0, 2.0], [1.0, 2.0, 3.0])
    for bad in (np.nan, "now", [np.inf], None, [[1.0], [1.0, 2.0]]):
        with pytest.raises(ValueError):
            path.value(bad)
