"""Make trajectory files and check what `cfo export` makes of them, by the readers that others use.

Usage: exports.py make | check KIND, in the folder of the files. KIND is `volume`, `plane`, `line` or `ode`.
"""

import sys

import h5py
import numpy as np

M, N = 3, 6
SHAPES = {"volume": (3, 4, 5, 1), "plane": (4, 5, 2), "line": (7, 1), "ode": (3,)}
DOMAINS = {"volume": [[0.0, 6.0], [-1.0, 1.0], [0.0, 10.0]], "plane": [[-1.0, 1.0], [0.0, 10.0]], "line": [[0.0, 14.0]], "ode": []}
NAMES = {"volume": ["w"], "plane": ["h", "m/n"], "line": ["u"], "ode": ["a", "b", "c"]}
LENGTHS = [6, 3, 5]


def source(kind):
    """Values, times of each trajectory, lengths, parameters and parts. Those of the plane share their times."""
    random = np.random.default_rng(len(kind))
    shape = SHAPES[kind]
    values = random.normal(size=(M, N, *shape)).astype("f4")
    shared = kind == "plane"
    times = np.cumsum(random.uniform(0.1, 1.0, size=(1 if shared else M, N)), axis=1)
    times = np.repeat(times, M, axis=0) if shared else times
    lengths = [N] * M if shared else LENGTHS
    parameters = random.uniform(size=(M, 2))
    return values, times, lengths, parameters, np.array([0, 2, 1], "i1")


def make():
    for kind in SHAPES:
        values, times, lengths, parameters, split = source(kind)
        axes = len(DOMAINS[kind])
        units = {"channel_units": ["m", "kg m-1"]} if kind == "plane" else {}
        space = {"domain": DOMAINS[kind], "periodic": [1, 0, 1][:axes]} if axes else {}
        own = {} if kind == "plane" else {"lengths": lengths}
        np.savez(
            f"{kind}.npz",
            values=values,
            times=times[0] if kind == "plane" else times,
            parameters=parameters,
            parameter_names=["viscosity", "time"],
            split=split,
            channel_names=NAMES[kind],
            system="test <&>",
            **units,
            **space,
            **own,
        )


def centres(kind, axis):
    low, high = DOMAINS[kind][axis]
    points = SHAPES[kind][axis]
    return low + (np.arange(points) + 0.5) * (high - low) / points


def plain(name):
    return name.replace("/", "_")


def check_image(kind, image, expected, exact):
    """An image of VTK against `[(space), channels]` numbers."""
    from vtk.util.numpy_support import vtk_to_numpy

    axes = len(DOMAINS[kind])
    for axis in range(axes):
        points = centres(kind, axes - 1 - axis)
        tolerance = 0.0 if exact else 1e-6  # VTK's XDMF reader keeps the geometry in single precision.
        assert image.GetDimensions()[axis] == len(points), (image.GetDimensions(), len(points))
        assert abs(image.GetOrigin()[axis] - points[0]) <= max(tolerance, 1e-12)
        assert abs(image.GetSpacing()[axis] - (points[1] - points[0])) <= max(tolerance, 1e-12)
    for channel, name in enumerate(NAMES[kind]):
        array = image.GetPointData().GetArray(plain(name) if exact else name)
        assert array is not None, name
        found = vtk_to_numpy(array)
        assert found.dtype == np.float32 and np.array_equal(found, expected[..., channel].ravel()), (kind, name)


def steps_of(reader):
    from vtk import vtkStreamingDemandDrivenPipeline as pipeline

    reader.UpdateInformation()
    information = reader.GetOutputInformation(0)
    count = information.Length(pipeline.TIME_STEPS())
    return [information.Get(pipeline.TIME_STEPS(), step) for step in range(count)]


def check_vtkhdf(kind, path, trajectory):
    import vtk

    values, times, lengths, parameters, _ = source(kind)
    reader = vtk.vtkHDFReader()
    reader.SetFileName(path)
    steps = steps_of(reader)
    assert np.array_equal(steps, times[trajectory][: lengths[trajectory]]), steps
    for step, time in enumerate(steps):
        reader.UpdateTimeStep(time)
        image = reader.GetOutput()
        assert image.IsA("vtkImageData")
        check_image(kind, image, values[trajectory, step], True)
        fields = image.GetFieldData()
        assert fields.GetArray("viscosity").GetTuple1(0) == parameters[trajectory, 0]
        assert fields.GetArray("time").GetTuple1(0) == parameters[trajectory, 1]


def check_xdmf(kind, path):
    import vtk

    values, times, lengths, _, _ = source(kind)
    reader = vtk.vtkXdmfReader()
    reader.SetFileName(path)
    expected = sorted({time for row, length in zip(times, lengths) for time in row[:length]})
    assert np.array_equal(sorted(steps_of(reader)), expected)
    for trajectory in range(M):
        for step in range(lengths[trajectory]):
            reader.UpdateTimeStep(times[trajectory, step])
            blocks = reader.GetOutputDataObject(0)
            assert blocks.GetNumberOfBlocks() == M
            check_image(kind, blocks.GetBlock(trajectory), values[trajectory, step], False)


def check_netcdf(kind, path):
    import xarray

    values, times, lengths, parameters, split = source(kind)
    axes = len(DOMAINS[kind])
    names = ["z", "y", "x"][3 - axes :]
    with xarray.open_dataset(path, engine="h5netcdf") as data:
        along = "time" if kind == "plane" else "frame"
        assert data.attrs["Conventions"].startswith("CF-") and data.attrs["title"] == "test <&>"
        assert list(data.data_vars) == [plain(name) for name in NAMES[kind]] + [f"{name}_bounds" for name in names], data
        for channel, name in enumerate(NAMES[kind]):
            field = data[plain(name)]
            assert field.dims == ("trajectory", along, *names), field.dims
            assert field.dtype == np.float32 and field.attrs["long_name"] == name
            if kind == "plane":
                assert field.attrs["units"] == ["m", "kg m-1"][channel]
            for row, length in enumerate(lengths):
                assert np.array_equal(field.values[row, :length], values[row, :length, ..., channel])
                assert np.isnan(field.values[row, length:]).all()
        if kind == "plane":
            assert np.array_equal(data["time"].values, times[0]) and data["time"].attrs["axis"] == "T"
        else:
            assert data["time"].dims == ("trajectory", "frame") and list(data["length"].values) == lengths
            for row, length in enumerate(lengths):
                assert np.array_equal(data["time"].values[row, :length], times[row, :length])
        for axis, name in enumerate(names):
            assert np.allclose(data[name].values, centres(kind, axis), rtol=0, atol=1e-12)
            assert data[name].attrs["axis"] == name.upper()
            bounds = data[data[name].attrs["bounds"]].values
            assert [bounds[0, 0], bounds[-1, 1]] == DOMAINS[kind][axis]
        assert np.array_equal(data["split"].values, split)
        assert data["split"].attrs["flag_meanings"] == "train validation test"
        # A parameter of the name of an axis has to give way.
        assert np.array_equal(data["viscosity"].values, parameters[:, 0])
        assert np.array_equal(data["time_1"].values, parameters[:, 1])
        assert set(data.coords) >= {"trajectory", "split", "viscosity", "time_1", "time"}, data


def check_table(kind, arrays, labels):
    values, times, lengths, parameters, split = source(kind)
    for row, length in enumerate(lengths):
        assert np.array_equal(np.asarray(arrays["values"])[row, :length], values[row, :length])
        found = np.asarray(arrays["times"])
        assert np.array_equal(found if found.ndim == 1 else found[row, :length], times[row, :length])
    assert np.array_equal(arrays["parameters"], parameters) and np.array_equal(arrays["split"], split)
    assert [str(name) for name in labels["channel_names"]] == NAMES[kind]
    assert str(labels["system"]) == "test <&>"
    if DOMAINS[kind]:
        assert np.array_equal(labels["domain"], DOMAINS[kind])
    if kind == "plane":
        assert [str(unit) for unit in labels["channel_units"]] == ["m", "kg m-1"]


def check_pdebench(path):
    values, times, _, _, _ = source("plane")
    with h5py.File(path) as file:
        assert sorted(file) == ["0000", "0001", "0002"]
        for row, name in enumerate(sorted(file)):
            assert np.array_equal(file[name]["data"], values[row])
            grid = file[name]["grid"]
            assert np.array_equal(grid["t"], times[row].astype("f4"))
            assert np.array_equal(grid["x"], centres("plane", 1).astype("f4"))
            assert np.array_equal(grid["y"], centres("plane", 0).astype("f4"))


def check_the_well(path):
    """The layout that `WellDataset` reads; the package itself needs PyTorch."""
    values, times, _, parameters, _ = source("plane")
    with h5py.File(path) as file:
        attributes = file.attrs
        assert attributes["dataset_name"] == "test <&>" and attributes["grid_type"] == "cartesian"
        assert attributes["n_spatial_dims"] == 2 and attributes["n_trajectories"] == M
        assert len(attributes["simulation_parameters"]) == 0
        dimensions = file["dimensions"]
        assert list(dimensions.attrs["spatial_dims"]) == ["y", "x"]
        assert np.array_equal(dimensions["time"], times[0]) and not dimensions["time"].attrs["sample_varying"]
        for axis, name in enumerate(["y", "x"]):
            assert np.allclose(dimensions[name], centres("plane", axis), rtol=0, atol=1e-12)
            assert not dimensions[name].attrs["sample_varying"]
        assert list(file["t0_fields"].attrs["field_names"]) == ["h", "m_n"]
        for channel, name in enumerate(["h", "m_n"]):
            field = file["t0_fields"][name]
            assert np.array_equal(field, values[..., channel])
            assert field.attrs["dim_varying"].dtype == bool and field.attrs["dim_varying"].all()
            assert field.attrs["sample_varying"] and field.attrs["time_varying"]
        for order in ["t1_fields", "t2_fields"]:
            assert len(file[order].attrs["field_names"]) == 0
        assert list(file["scalars"].attrs["field_names"]) == ["viscosity", "time"]
        for column, name in enumerate(["viscosity", "time"]):
            scalar = file["scalars"][name]
            assert np.array_equal(scalar, parameters[:, column])
            assert scalar.attrs["sample_varying"] and not scalar.attrs["time_varying"]
        assert list(file["boundary_conditions"]) == ["y_periodic"]
        boundary = file["boundary_conditions"]["y_periodic"]
        assert boundary.attrs["bc_type"] == "PERIODIC" and list(boundary.attrs["associated_dims"]) == ["y"]
        assert boundary["mask"].dtype == bool and list(boundary["mask"]) == [True, False, False, True]


def check(kind):
    check_vtkhdf(kind, f"{kind}.vtkhdf", 0)
    check_vtkhdf(kind, f"{kind}-1.vtkhdf", 1)
    for name in [f"{kind}.xdmf", f"{kind}-own.xdmf"]:
        check_xdmf(kind, name)
    check_netcdf(kind, f"{kind}.nc")
    with np.load(f"{kind}-again.npz") as arrays:
        check_table(kind, arrays, arrays)
    with h5py.File(f"{kind}-own.h5") as file:
        check_table(kind, file, file.attrs)
    if kind == "plane":
        check_pdebench("plane-pdebench.h5")
        check_the_well("plane-well.h5")


if sys.argv[1] == "make":
    make()
else:
    check(sys.argv[2])
