//! Files written by h5py and NumPy can be read here, and files written here can be read by them.
//!
//! The interpreter is `CFO_PYTHON`, otherwise `python3`. Without h5py the tests print a message and pass, except in CI.

#![expect(clippy::unwrap_used, reason = "a failed test panics")]

use std::io::Write;
use std::path::Path;
use std::process::Command;

use cfo_data::store::{Compression, Layout, OutputLayout, TrajectoryFile, TrajectoryWriter, WriteOptions};
use cfo_data::{Description, FieldShape, InputNames, Split, Trajectory};

const M: usize = 3;
const N: usize = 5;
const ODE: FieldShape = FieldShape::system(3);
const LINE: FieldShape = FieldShape::line(6, 1);
const PLANE: FieldShape = FieldShape::plane(4, 6, 2);
const LENGTHS: [usize; M] = [5, 2, 4];

/// An interpreter with h5py and NumPy. If there is none outside CI, prints a line and returns `None`.
fn python() -> Option<String> {
    let python = std::env::var("CFO_PYTHON").unwrap_or_else(|_| "python3".to_string());
    let found = Command::new(&python).args(["-c", "import h5py, numpy"]).output();
    if found.is_ok_and(|output| output.status.success()) {
        return Some(python);
    }
    assert_ne!(std::env::var("CI").as_deref(), Ok("true"), "CI needs `CFO_PYTHON` with h5py and NumPy");
    // Written to the stream directly, because the test harness captures the output of macros.
    let line = format!("skipped: `{python}` has no h5py and NumPy; set `CFO_PYTHON`\n");
    std::io::stderr().write_all(line.as_bytes()).unwrap();
    None
}

fn run(python: &str, script: &str, directory: &Path) {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/python").join(script);
    let output = Command::new(python).arg(script).arg(directory).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

/// The value at trajectory, frame, row, column and channel, as the scripts compute it.
fn value(i: usize, n: usize, y: usize, x: usize, c: usize) -> f32 {
    (100 * i + 10 * n) as f32 + y as f32 / 2.0 + x as f32 / 4.0 + c as f32 / 8.0
}

fn frame(i: usize, n: usize, shape: &FieldShape) -> Vec<f32> {
    let [_, rows, columns, channels] = shape.tensor(1);
    let point = |y: usize, x: usize| (0..channels).map(move |c| value(i, n, y, x, c));
    (0..rows).flat_map(|y| (0..columns).flat_map(move |x| point(y, x))).collect()
}

fn values(i: usize, frames: usize, shape: &FieldShape) -> Vec<f32> {
    (0..frames).flat_map(|n| frame(i, n, shape)).collect()
}

fn shape_of(kind: &str) -> FieldShape {
    match kind {
        "ode" => ODE,
        "line" => LINE,
        "plane" => PLANE,
        _ => volume(2),
    }
}

/// A field with three axes, whose rows the scripts number through.
fn volume(channels: usize) -> FieldShape {
    FieldShape::from_dimensions(&[2, 4, 6, channels]).unwrap()
}

/// Checks layout, shape, values and times of a file that the script wrote.
fn check(
    path: &Path,
    layout: Layout,
    shape: &FieldShape,
    lengths: &[usize],
    own_times: bool,
) -> TrajectoryFile {
    let file = TrajectoryFile::open(path).unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(file.layout(), layout, "{}", path.display());
    assert_eq!(file.description().shape, *shape, "{}", path.display());
    assert_eq!(file.len(), M);
    for (i, &length) in lengths.iter().enumerate() {
        let trajectory = file.trajectory(i).unwrap_or_else(|error| panic!("{error}"));
        assert_eq!(trajectory.values, values(i, length, shape), "{}", path.display());
        let start = if own_times { i as f64 } else { 0.0 };
        for (n, &time) in trajectory.times.iter().enumerate() {
            // Some layouts store times in single precision.
            let expected = start + 0.5 * (n as f64).powf(1.5);
            assert!((time - expected).abs() <= 1e-6, "{}: {time} {expected}", path.display());
        }
        let last = length - 1;
        assert_eq!(file.frames(i, &[last]).unwrap(), frame(i, last, shape), "{}", path.display());
        assert_eq!(file.frames(i, &[1, 0]).unwrap(), [frame(i, 1, shape), frame(i, 0, shape)].concat());
    }
    file
}

#[test]
fn files_that_python_wrote_are_read() {
    let Some(python) = python() else { return };
    let directory = tempfile::tempdir().unwrap();
    run(&python, "write_files.py", directory.path());
    let whole = [N; M];
    let mut tables = 0;
    for entry in std::fs::read_dir(directory.path()).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_str().unwrap().to_string();
        if let ["cfo", kind, ..] = name.split('-').collect::<Vec<_>>()[..] {
            let file = check(&path, Layout::Cfo, &shape_of(kind), &whole, false);
            assert_eq!(file.description().system, "test");
            assert!(file.description().periodic.iter().all(|&flag| flag));
            assert!(file.description().domain.iter().all(|&ends| ends == [-1.0, 2.0]));
            tables += 1;
        }
    }
    assert_eq!(tables, 4 * 8 * 2 + 5 + 2);
    let at = |name: &str| directory.path().join(name);
    for (name, layout) in [("ragged.h5", Layout::Cfo), ("ragged.npz", Layout::Npz)] {
        let file = check(&at(name), layout, &LINE, &LENGTHS, true);
        assert_eq!(file.split(1), Some(Split::Validation));
        assert_eq!(file.inputs(2).unwrap().parameters, [5.0, 6.0]);
        let description = file.description();
        assert_eq!(description.inputs.parameters, ["length", "viscosity"]);
        assert_eq!((&description.channel_names[0][..], &description.channel_units[0][..]), ("u", "m/s"));
        assert_eq!((description.system.as_str(), description.domain[0]), ("test", [-1.0, 2.0]));
    }
    check(&at("bare.h5"), Layout::Cfo, &PLANE, &whole, false);
    for name in ["stored", "deflated", "fortran", "fortran_deflated"] {
        check(&at(&format!("{name}.npz")), Layout::Npz, &PLANE, &whole, false);
    }
    check(&at("big.npz"), Layout::Npz, &PLANE, &whole, true);
    check_noise(&at("noise.npz"), &at("noise.h5"));
    check_public_layouts(directory.path());
}

/// Chunks that LZF cannot shrink are stored uncompressed, others compressed. Both must be read.
fn check_noise(reference: &Path, compressed: &Path) {
    let [reference, compressed] = [reference, compressed].map(|path| TrajectoryFile::open(path).unwrap());
    for i in 0..2 {
        assert_eq!(reference.trajectory(i).unwrap(), compressed.trajectory(i).unwrap());
        assert_eq!(reference.frames(i, &[3, 39]).unwrap(), compressed.frames(i, &[3, 39]).unwrap());
    }
}

fn check_public_layouts(directory: &Path) {
    let at = |name: &str| directory.join(name);
    let whole = [N; M];
    let near = |found: &[[f64; 2]], expected: &[[f64; 2]]| {
        assert_eq!(found.len(), expected.len());
        for (found, expected) in found.as_flattened().iter().zip(expected.as_flattened()) {
            assert!((found - expected).abs() < 1e-6, "{found} {expected}");
        }
    };
    let file = check(&at("pdebench_groups.h5"), Layout::PdebenchGroups, &PLANE, &whole, false);
    near(&file.description().domain, &[[-1.0, 1.0], [0.0, 1.0]]);
    let file = check(&at("pdebench_sorption.h5"), Layout::PdebenchGroups, &LINE, &whole, false);
    near(&file.description().domain, &[[0.0, 1.0]]);
    let file = check(&at("pdebench_tensor.hdf5"), Layout::PdebenchTensor, &LINE, &whole, false);
    assert_eq!(
        (file.description().system.as_str(), file.inputs(0).unwrap().parameters),
        ("burgers", vec![0.01])
    );
    assert_eq!(file.description().periodic, [true]);
    let flow = FieldShape { channels: 4, ..PLANE };
    let file = check(&at("pdebench_cfd.hdf5"), Layout::PdebenchCfd, &flow, &whole, false);
    assert_eq!(file.description().channel_names, ["density", "pressure", "Vx", "Vy"]);
    near(&file.description().domain, &[[-1.0, 1.0], [0.0, 1.0]]);
    let flow = FieldShape { channels: 3, ..PLANE };
    let file = check(&at("pdebench_incompressible.h5"), Layout::PdebenchIncompressible, &flow, &whole, true);
    assert_eq!(file.description().channel_names, ["velocity_x", "velocity_y", "particles"]);
    let file = check(&at("pdebench_groups_volume.h5"), Layout::PdebenchGroups, &volume(2), &whole, false);
    near(&file.description().domain, &[[0.0, 2.0], [-1.0, 1.0], [0.0, 1.0]]);
    let file = check(&at("pdebench_cfd_volume.hdf5"), Layout::PdebenchCfd, &volume(5), &whole, false);
    assert_eq!(file.description().channel_names, ["density", "pressure", "Vx", "Vy", "Vz"]);
    near(&file.description().domain, &[[0.0, 2.0], [-1.0, 1.0], [0.0, 1.0]]);
    let file = check(&at("the_well_volume.hdf5"), Layout::TheWell, &volume(4), &whole, false);
    assert_eq!(file.description().channel_names, ["A", "velocity_x", "velocity_y", "velocity_z"]);
    assert_eq!(file.description().periodic, [true, false, false]);
    let file = check(&at("lpsda.h5"), Layout::Lpsda, &LINE, &whole, true);
    assert_eq!(file.split(1), Some(Split::Train));
    assert_eq!(file.split(2), Some(Split::Validation));
    assert_eq!(file.inputs(0).unwrap().parameters, [48.0]);

    let file = TrajectoryFile::open(at("the_well.hdf5")).unwrap();
    let description = file.description();
    assert_eq!(file.layout(), Layout::TheWell);
    assert_eq!(description.shape, FieldShape { channels: 8, ..PLANE });
    let names =
        ["A", "profile", "velocity_x", "velocity_y", "stress_xx", "stress_xy", "stress_yx", "stress_yy"];
    assert_eq!(description.channel_names, names);
    assert_eq!(description.periodic, [false, true]);
    assert_eq!(
        (&description.inputs.parameters[..], file.inputs(2).unwrap().parameters),
        (&["F".to_string(), "k".to_string()][..], vec![0.5, 3.0])
    );
    // Fields that are constant in time are static fields, scalars that vary in time are controls.
    assert_eq!(
        (&description.inputs.statics[..], &description.inputs.controls[..]),
        (&["mask".to_string()][..], &["drive".to_string()][..])
    );
    for i in 0..M {
        let inputs = file.inputs(i).unwrap();
        let mask: Vec<f32> = frame(i, 0, &FieldShape { channels: 1, ..PLANE });
        assert_eq!(inputs.statics.as_deref(), Some(&mask[..]));
        let controls = inputs.controls.unwrap();
        assert_eq!(controls.times(), &*file.times(i).unwrap());
        let expected: Vec<f64> =
            (0..controls.times().len()).map(|n| f64::from(value(i, n, 0, 0, 0))).collect();
        assert_eq!(controls.values(), expected);
        let trajectory = file.trajectory(i).unwrap();
        for (position, &found) in trajectory.values.iter().enumerate() {
            let place = description.shape.place(position);
            let (n, point, c) = (place.frame.unwrap(), place.point.unwrap(), place.channel.unwrap());
            let [y, x] = point[..] else { panic!("two space axes") };
            // `profile` varies only along y and is the same for all trajectories.
            let expected = if c == 1 { value(0, n, 0, x, c) } else { value(i, n, y, x, c) };
            assert_eq!(found, expected, "{i} {n} {y} {x} {c}");
        }
    }
}

#[test]
fn files_that_we_write_are_read_by_python() {
    let Some(python) = python() else { return };
    let directory = tempfile::tempdir().unwrap();
    for (kind, shape) in [("ode", ODE), ("line", LINE), ("plane", PLANE), ("volume", volume(2))] {
        let names = |count: usize| (0..count).map(|c| format!("u{c}")).collect();
        let description = Description {
            system: "täst".to_string(),
            shape,
            periodic: (0..shape.axes()).map(|axis| axis == 0).collect(),
            domain: vec![[-1.0, 2.0]; shape.axes()],
            channel_names: names(shape.channels),
            channel_units: vec![],
            inputs: InputNames::of_parameters(["length", "viscosity"]),
        };
        let write = |name: String, ragged: bool, options: WriteOptions| {
            let mut writer =
                TrajectoryWriter::create(directory.path().join(name), &description, options).unwrap();
            for (i, split) in Split::ALL.into_iter().enumerate() {
                let frames = if ragged { LENGTHS[i] } else { N };
                let start = if ragged { i as f64 } else { 0.0 };
                let times = (0..frames).map(|n| start + 0.25 * n as f64).collect();
                let parameters = vec![i as f64, i as f64 + 1.0];
                let trajectory = Trajectory::new(times, values(i, frames, &shape), parameters).unwrap();
                writer.push(&trajectory, Some(split)).unwrap();
            }
            writer.finish().unwrap();
        };
        for (way, compression) in [("plain", Compression::None), ("gzip", Compression::Gzip(6))] {
            for (text, ragged) in [("whole", false), ("ragged", true)] {
                for (known, frames) in [("known", Some(N)), ("growing", None)] {
                    let options = WriteOptions { compression, frames, ..WriteOptions::default() };
                    write(format!("cfo-{kind}-{text}-{way}-{known}.h5"), ragged, options);
                }
            }
            let options =
                WriteOptions { layout: OutputLayout::Pdebench, compression, ..WriteOptions::default() };
            if kind != "ode" {
                write(format!("pdebench-{kind}-{way}.h5"), false, options);
            }
        }
        for (text, ragged) in [("whole", false), ("ragged", true)] {
            let options = WriteOptions { layout: OutputLayout::Npz, ..WriteOptions::default() };
            write(format!("npz-{kind}-{text}.npz"), ragged, options);
        }
    }
    run(&python, "read_files.py", directory.path());
    // Files written for PDEBench are recognised here too.
    for (name, layout) in [
        ("pdebench-line-gzip.h5", Layout::PdebenchTensor),
        ("pdebench-plane-plain.h5", Layout::PdebenchGroups),
        ("pdebench-volume-gzip.h5", Layout::PdebenchGroups),
    ] {
        let file = TrajectoryFile::open(directory.path().join(name)).unwrap();
        assert_eq!((file.layout(), file.len()), (layout, M));
        assert_eq!(file.trajectory(1).unwrap().values, values(1, N, &file.description().shape));
    }
}
