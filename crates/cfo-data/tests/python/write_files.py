"""Writes files of every layout that can be read, in every way that h5py and NumPy store numbers.

Usage: write_files.py DIRECTORY. Values follow `field`, which the test repeats. A few of these files are kept in
`tests/fixtures`, where the fuzz test mutates them without Python.
"""

import sys
from pathlib import Path

import h5py
import numpy as np

directory = Path(sys.argv[1])
M, N, D, H, W = 3, 5, 2, 4, 6


def field(*extent):
    """100 i + 10 n + y / 2 + x / 4 + c / 8 for the axes [i, n, y, x, c] of this extent (1 where an axis is absent)."""
    i, n, y, x, c = np.ogrid[tuple(slice(0, size) for size in extent)]
    return 100.0 * i + 10.0 * n + y / 2 + x / 4 + c / 8


def times(rows=None):
    shared = 0.5 * np.arange(N) ** 1.5
    return shared if rows is None else shared[None] + np.arange(rows)[:, None]


# The rows of a volume are numbered through.
shapes = {"ode": (1, 1, 3), "line": (1, W, 1), "plane": (H, W, 2), "volume": (D * H, W, 2)}


def values(kind):
    height, width, channels = shapes[kind]
    whole = field(M, N, height, width, channels)
    if kind == "volume":
        return whole.reshape(M, N, D, H, W, channels)
    drop = {"ode": (2, 3), "line": (2,), "plane": ()}[kind]
    return np.squeeze(whole, axis=drop)


def label(file, axes):
    file.attrs["format"] = "cfo-trajectories"
    file.attrs["version"] = 1
    file.attrs["system"] = "test"
    file.attrs["periodic"] = np.ones(axes, dtype=np.int8)
    file.attrs["domain"] = np.tile([[-1.0, 2.0]], (axes, 1))


ways = {
    "contiguous": dict(),
    "gzip": dict(compression="gzip", shuffle=True, chunks=True),
    "gzip_plain": dict(compression="gzip", chunks=True),
    "lzf": dict(compression="lzf", chunks=True),
    "lzf_shuffle": dict(compression="lzf", shuffle=True, chunks=True),
    "fletcher": dict(fletcher32=True, chunks=True),
    "odd_chunks": dict(compression="gzip", chunks="odd"),
    "growing": dict(chunks=True, maxshape="none"),
}
types = {"f4": "<f4", "f8": "<f8", "big_f4": ">f4", "big_f8": ">f8", "f2": "<f2"}


def cfo(name, kind, dtype="<f4", options=None, libver=None, **file_options):
    options = dict(options or {})
    data = values(kind).astype(dtype)
    if options.get("maxshape") == "none":
        options["maxshape"] = (None,) * data.ndim
    if options.get("chunks") == "odd":
        options["chunks"] = tuple(max(1, (2 * size) // 3) for size in data.shape)
    with h5py.File(directory / name, "w", libver=libver, **file_options) as file:
        label(file, data.ndim - 3)
        file.create_dataset("values", data=data, **options)
        file["times"] = times()


for kind in shapes:
    for way, options in ways.items():
        for libver in ["earliest", "latest"]:
            cfo(f"cfo-{kind}-{way}-{libver}.h5", kind, options=options, libver=libver)
for name, dtype in types.items():
    cfo(f"cfo-line-type_{name}-any.h5", "line", dtype=dtype)
cfo("cfo-line-userblock-any.h5", "line", userblock_size=512)
cfo("cfo-line-ordered-any.h5", "line", track_order=True)

lengths = np.array([5, 2, 4])
with h5py.File(directory / "ragged.h5", "w") as file:
    label(file, 1)
    file.attrs["channel_names"] = ["u"]
    file.attrs["channel_units"] = ["m/s"]
    file["values"] = values("line")
    file["times"] = times(M).astype(">f8")
    file["lengths"] = lengths.astype(">i4")
    file["split"] = np.array([0, 1, 2], dtype=np.int8)
    file["parameters"] = np.array([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]])
    file["parameters"].attrs["names"] = ["length", "viscosity"]
with h5py.File(directory / "bare.h5", "w") as file:
    file["values"] = values("plane")
    file["times"] = times()

arrays = dict(values=values("plane").astype("f4"), times=times())
np.savez(directory / "stored.npz", **arrays)
np.savez_compressed(directory / "deflated.npz", **arrays)
np.savez(directory / "fortran.npz", values=np.asfortranarray(arrays["values"]), times=times())
np.savez_compressed(directory / "fortran_deflated.npz", values=np.asfortranarray(values("plane")), times=times())
np.savez(directory / "big.npz", values=values("plane").astype(">f8"), times=times(M).astype(">f4"))
np.savez(
    directory / "ragged.npz",
    values=values("line"),
    times=times(M),
    lengths=lengths,
    split=np.array([0, 1, 2], dtype=np.uint8),
    parameters=np.array([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]]),
    parameter_names=np.array(["length", "viscosity"]),
    channel_names=np.array(["u"]),
    channel_units=np.array([b"m/s"]),
    periodic=np.array([True]),
    domain=np.array([[-1.0, 2.0]]),
    system="test",
)

# Noise does not compress: LZF leaves such chunks uncompressed and records it in each chunk's filter mask.
noise = np.random.default_rng(0).standard_normal((2, 40, 32, 32, 1)).astype("f4")
noise[0, 20:] = 0
np.savez(directory / "noise.npz", values=noise, times=np.arange(40.0))
with h5py.File(directory / "noise.h5", "w") as file:
    file.create_dataset("values", data=noise, compression="lzf")
    file["times"] = np.arange(40.0)

centres_x = (np.arange(W) + 0.5) / W
centres_y = (np.arange(H) + 0.5) / H * 2 - 1
with h5py.File(directory / "pdebench_groups.h5", "w") as file:
    for index in range(M):
        group = file.create_group(f"{index:04d}")
        group.create_dataset("data", data=values("plane")[index].astype("f4"), compression="lzf")
        group.create_dataset("grid/x", data=centres_x.astype("f4"), compression="lzf")
        group.create_dataset("grid/y", data=centres_y.astype("f4"), compression="lzf")
        group.create_dataset("grid/t", data=times().astype("f4"), compression="lzf")
        file.attrs[f"{index:04d}/config"] = "seed: 0"
with h5py.File(directory / "pdebench_sorption.h5", "w") as file:
    for index in range(M):
        file[f"{index:04d}/data"] = values("line")[index].astype("f4")
        file[f"{index:04d}/grid/x"] = centres_x.astype("f4")
        file[f"{index:04d}/grid/t"] = times().astype("f4")
more_times = np.append(times(), 1e3).astype("f4")
with h5py.File(directory / "pdebench_tensor.hdf5", "w") as file:
    file["tensor"] = values("line")[..., 0].astype("f4")
    file["x-coordinate"] = centres_x.astype("f4")
    file["t-coordinate"] = more_times
    file.attrs["Nu"] = 0.01
with h5py.File(directory / "pdebench_cfd.hdf5", "w") as file:
    for channel, name in enumerate(["density", "pressure", "Vx", "Vy"]):
        file[name] = field(M, N, H, W, 4)[..., channel].astype("f4")
    file["x-coordinate"] = centres_y.astype("f4")
    file["y-coordinate"] = centres_x.astype("f4")
    file["t-coordinate"] = more_times
    file.attrs.update(dict(eta=0.1, zeta=0.2, M=0.3))
with h5py.File(directory / "pdebench_incompressible.h5", "w") as file:
    whole = field(M, N, H, W, 3).astype("f4")
    file.create_dataset("velocity", data=whole[..., :2], compression="lzf", shuffle=True)
    file.create_dataset("particles", data=whole[..., 2:], compression="lzf", shuffle=True)
    file.create_dataset("force", data=whole[:, 0, :, :, :2], compression="lzf", shuffle=True)
    file["t"] = times(M).astype("f4")

with h5py.File(directory / "the_well.hdf5", "w") as file:
    file.attrs.update(dict(dataset_name="test", grid_type="cartesian", n_spatial_dims=2, n_trajectories=M))
    file.attrs["simulation_parameters"] = ["F"]
    file.attrs["F"] = 0.5
    whole = field(M, N, H, W, 8).astype("f4")
    dimensions = file.create_group("dimensions")
    dimensions.attrs["spatial_dims"] = ["x", "y"]
    dimensions["time"] = times().astype("f4")
    dimensions["time"].attrs["sample_varying"] = False
    dimensions["x"] = centres_y.astype("f4")
    dimensions["y"] = centres_x.astype("f4")
    boundary = file.create_group("boundary_conditions/y_periodic")
    boundary.attrs.update(dict(bc_type="PERIODIC", associated_dims=["y"], associated_fields=[]))
    boundary["mask"] = np.ones(W, dtype=bool)
    scalars = file.create_group("scalars")
    scalars.attrs["field_names"] = ["k", "drive"]
    scalars["drive"] = field(M, N, 1, 1, 1)[..., 0, 0, 0].astype("f4")
    scalars["drive"].attrs.update(dict(sample_varying=True, time_varying=True))
    scalars["k"] = np.array([1.0, 2.0, 3.0], dtype="f4")
    scalars["k"].attrs.update(dict(sample_varying=True, time_varying=False))

    def add(group, name, data, sample=True, time=True, dims=(True, True), **attributes):
        group[name] = data
        group[name].attrs.update(dict(sample_varying=sample, time_varying=time, dim_varying=list(dims), **attributes))

    zero, one, two = (file.create_group(f"t{order}_fields") for order in range(3))
    zero.attrs["field_names"] = ["A", "profile", "mask"]
    one.attrs["field_names"] = ["velocity"]
    two.attrs["field_names"] = ["stress"]
    add(zero, "A", whole[..., 0])
    add(zero, "profile", whole[0, :, 0, :, 1], sample=False, dims=(False, True))
    add(zero, "mask", whole[:, 0, :, :, 0], time=False)
    add(one, "velocity", whole[..., 2:4])
    add(two, "stress", whole[..., 4:8].reshape(M, N, H, W, 2, 2), symmetric=False, antisymmetric=False)

centres_z = (np.arange(D) + 0.5) / D * 2
with h5py.File(directory / "pdebench_groups_volume.h5", "w") as file:
    for index in range(M):
        file[f"{index:04d}/data"] = values("volume")[index].astype("f4")
        for axis, centres in [("z", centres_z), ("y", centres_y), ("x", centres_x), ("t", times())]:
            file[f"{index:04d}/grid/{axis}"] = centres.astype("f4")
with h5py.File(directory / "pdebench_cfd_volume.hdf5", "w") as file:
    whole = field(M, N, D * H, W, 5).reshape(M, N, D, H, W, 5).astype("f4")
    for channel, name in enumerate(["density", "pressure", "Vx", "Vy", "Vz"]):
        file[name] = whole[..., channel]
    for axis, centres in [("x", centres_z), ("y", centres_y), ("z", centres_x)]:
        file[f"{axis}-coordinate"] = centres.astype("f4")
    file["t-coordinate"] = more_times
with h5py.File(directory / "the_well_volume.hdf5", "w") as file:
    file.attrs.update(dict(dataset_name="test", grid_type="cartesian", n_spatial_dims=3, n_trajectories=M))
    file.attrs["simulation_parameters"] = []
    whole = field(M, N, D * H, W, 4).reshape(M, N, D, H, W, 4).astype("f4")
    dimensions = file.create_group("dimensions")
    dimensions.attrs["spatial_dims"] = ["x", "y", "z"]
    dimensions["time"] = times().astype("f4")
    for axis, centres in [("x", centres_z), ("y", centres_y), ("z", centres_x)]:
        dimensions[axis] = centres.astype("f4")
    boundary = file.create_group("boundary_conditions/x_periodic")
    boundary.attrs.update(dict(bc_type="PERIODIC", associated_dims=["x"], associated_fields=[]))
    for order, names in enumerate([["A"], ["velocity"], []]):
        file.create_group(f"t{order}_fields").attrs["field_names"] = names
    for name, data in [("t0_fields/A", whole[..., 0]), ("t1_fields/velocity", whole[..., 1:])]:
        file[name] = data
        file[name].attrs.update(dict(sample_varying=True, time_varying=True, dim_varying=[True] * 3))

with h5py.File(directory / "lpsda.h5", "w") as file:
    for name, rows in [("train", slice(0, 2)), ("valid", slice(2, 3))]:
        group = file.create_group(name)
        group[f"pde_{N}-{W}"] = values("line")[rows, ..., 0]
        group["t"] = times(M)[rows]
        group["x"] = np.tile(np.arange(W) * 8.0, (len(range(M)[rows]), 1))
        group["dx"] = np.full(len(range(M)[rows]), 8.0)
print("written")
