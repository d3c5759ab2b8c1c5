//! Invalid input gives an error with the file, the place and what to change.

#![expect(clippy::unwrap_used, reason = "a failed test panics")]

use std::path::{Path, PathBuf};
use std::process::Command;

use cfo_data::store::{Compression, OutputLayout, TrajectoryFile, TrajectoryWriter, WriteOptions};
use cfo_data::{DataError, Defect, Description, FieldShape, InputNames, Split, Trajectory};
use rust_hdf5::H5File;

/// A valid file of layout `cfo` with two trajectories of three frames, with the parts that a case changes.
struct Parts {
    values: Option<Vec<f64>>,
    values_shape: Vec<usize>,
    times: Option<Vec<f64>>,
    times_shape: Vec<usize>,
    lengths: Option<Vec<i64>>,
    split: Option<Vec<i8>>,
    version: i64,
    domain: Vec<f64>,
}

impl Default for Parts {
    fn default() -> Self {
        Self {
            values: Some((0..24).map(f64::from).collect()),
            values_shape: vec![2, 3, 4, 1],
            times: Some(vec![0.0, 1.0, 2.0]),
            times_shape: vec![3],
            lengths: None,
            split: None,
            version: 1,
            domain: vec![0.0, 1.0],
        }
    }
}

impl Parts {
    fn write(&self, path: &Path) {
        let file = H5File::create(path).unwrap();
        file.set_attr_string("format", "cfo-trajectories").unwrap();
        file.set_attr_numeric("version", &self.version).unwrap();
        file.set_attr_array_numeric("domain", &self.domain).unwrap();
        let numbers = |name: &str, shape: &[usize], data: &Option<Vec<f64>>| {
            if let Some(data) = data {
                let dataset = file.new_dataset::<f64>().shape(shape).create(name).unwrap();
                dataset.write_raw(data).unwrap();
            }
        };
        numbers("values", &self.values_shape, &self.values);
        numbers("times", &self.times_shape, &self.times);
        if let Some(lengths) = &self.lengths {
            let dataset = file.new_dataset::<i64>().shape([lengths.len()]).create("lengths").unwrap();
            dataset.write_raw(lengths).unwrap();
        }
        if let Some(split) = &self.split {
            let dataset = file.new_dataset::<i8>().shape([split.len()]).create("split").unwrap();
            dataset.write_raw(split).unwrap();
        }
        file.close().unwrap();
    }

    /// The error of reading everything, without the directory in the message.
    fn refusal(&self) -> String {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("bad.h5");
        self.write(&path);
        let error = read_all(&path).expect_err("the file is bad");
        assert!(error.is_bad_input(), "{error}");
        error.to_string().replace(&format!("{}/", directory.path().display()), "")
    }
}

fn read_all(path: &Path) -> Result<(), DataError> {
    let file = TrajectoryFile::open(path)?;
    (0..file.len()).try_for_each(|trajectory| file.trajectory(trajectory).map(drop))
}

#[test]
fn a_sound_file_is_not_refused() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("good.h5");
    Parts::default().write(&path);
    read_all(&path).unwrap();
}

/// Checks the error message of each file.
fn refused<const N: usize>(cases: [(Parts, &str); N]) {
    for (parts, expected) in cases {
        assert_eq!(parts.refusal(), expected);
    }
}

#[test]
fn contradictions_are_refused_with_their_place() {
    let ramp = |count: usize| Some((0..count).map(|index| index as f64).collect::<Vec<f64>>());
    let with = |position: usize, value: f64| {
        let mut values: Vec<f64> = (0..24).map(f64::from).collect();
        values[position] = value;
        Some(values)
    };
    let sound = Parts::default;
    refused([
        (Parts { values: None, ..sound() }, "`bad.h5` has no `values`; found `times`"),
        (Parts { times: None, ..sound() }, "`bad.h5` has no `times`; found `values`"),
        (
            Parts { values_shape: vec![4, 6], ..sound() },
            "`bad.h5`: `values` has shape [4, 6]; needed: [trajectories, frames, (one to three space axes,) channels]",
        ),
        (
            Parts { times: ramp(4), times_shape: vec![4], ..sound() },
            "`bad.h5`: `times` has shape [4]; needed: [3] or [2, 3], as in `values`",
        ),
        (
            Parts { times: Some(vec![0.0, 2.0, 1.0]), ..sound() },
            "`bad.h5`: trajectory 0: frame 2 has time 1, not after 2 of frame 1; times must increase",
        ),
        (
            Parts { times: Some(vec![0.0, 0.5, 1.0, 0.0, 0.5, 0.5]), times_shape: vec![2, 3], ..sound() },
            "`bad.h5`: trajectory 1: frame 2 has time 0.5, not after 0.5 of frame 1; times must increase",
        ),
        (
            Parts { times: Some(vec![0.0, f64::NAN, 1.0]), ..sound() },
            "`bad.h5`: trajectory 0: frame 1 has time NaN; times must be finite",
        ),
        (
            Parts { values: with(18, f64::NAN), ..sound() },
            "`bad.h5`: trajectory 1, frame 1, point (2), channel 0 is NaN; values must be finite",
        ),
        (
            // Too large for single precision, in which values are stored.
            Parts { values: with(1, 1e300), ..sound() },
            "`bad.h5`: trajectory 0, frame 0, point (1), channel 0 is 1e300; after subtraction of the channel's mean, values must be in the range of float32, up to 3.4e38",
        ),
    ]);
}

#[test]
fn labels_that_contradict_the_values_are_refused() {
    let sound = Parts::default;
    refused([
        (
            Parts { lengths: Some(vec![3, 4]), ..sound() },
            "`bad.h5`: `lengths`, trajectory 1 has length 4; needed: 1 to 3, the frames that `values` has",
        ),
        (
            Parts { lengths: Some(vec![0, 3]), ..sound() },
            "`bad.h5`: `lengths`, trajectory 0 has length 0; needed: 1 to 3, the frames that `values` has",
        ),
        (
            Parts { lengths: Some(vec![3, -1]), ..sound() },
            "`bad.h5`: `lengths` has -1 at 1; needed: whole numbers, 0 or more",
        ),
        (
            Parts { lengths: Some(vec![3]), ..sound() },
            "`bad.h5`: `lengths` has shape [1]; needed: [2], one per trajectory",
        ),
        (
            Parts { split: Some(vec![0, 3]), ..sound() },
            "`bad.h5`: `split`, trajectory 1 has 3; needed: 0 (train), 1 (validation) or 2 (test)",
        ),
        (
            Parts { version: 2, ..sound() },
            "`bad.h5`: version 2 of the layout `cfo` (this program reads version 1) is not supported",
        ),
        (
            Parts { domain: vec![1.0, 0.0], ..sound() },
            "`bad.h5`: `domain` has [1, 0]; needed: a lower end below the upper",
        ),
        (
            Parts { domain: vec![1.0, 0.0, 2.0], ..sound() },
            "`bad.h5`: `domain` has 3 entries; needed: 2, to match `values`",
        ),
    ]);
}

#[test]
fn defects_can_be_listed_instead() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("bad.h5");
    let mut values: Vec<f64> = (0..24).map(f64::from).collect();
    values[..12].fill(f64::NAN);
    values[13..].fill(f64::NEG_INFINITY);
    let times = Some(vec![0.0, 2.0, 1.0]);
    Parts { values: Some(values), times, ..Parts::default() }.write(&path);
    let file = TrajectoryFile::open(&path).unwrap();
    let (trajectory, defects) = file.audit(1).unwrap();
    assert_eq!((trajectory.times.len(), defects.times, defects.values), (3, 1, 11));
    let Defect::Time { previous, time, .. } = defects.first[0] else { panic!("{defects:?}") };
    assert_eq!((previous, time), (2.0, 1.0));
    let Defect::Value { place, value } = &defects.first[1] else { panic!("{defects:?}") };
    assert_eq!((place.frame, place.point.clone(), *value), (Some(0), Some(vec![1]), f64::NEG_INFINITY));
}

#[test]
fn things_that_are_no_trajectory_files() {
    let directory = tempfile::tempdir().unwrap();
    let open = |name: &str| TrajectoryFile::open(directory.path().join(name)).unwrap_err();
    assert!(matches!(open("absent.h5"), DataError::Missing { .. }));
    assert!(matches!(open(""), DataError::NotAFile { .. }));
    std::fs::write(directory.path().join("empty.h5"), "").unwrap();
    assert!(matches!(open("empty.h5"), DataError::Empty { .. }));
    std::fs::write(directory.path().join("text.h5"), "hello").unwrap();
    let error = open("text.h5");
    assert!(matches!(error, DataError::UnknownLayout { .. }), "{error}");
    assert!(error.hint().is_some());
    let other = H5File::create(directory.path().join("other.h5")).unwrap();
    other.new_dataset::<f32>().shape([1]).create("weights").unwrap().write_raw(&[1f32]).unwrap();
    other.close().unwrap();
    let error = open("other.h5").to_string();
    assert!(error.ends_with("HDF5 with datasets `weights` and no groups"), "{error}");
    // An archive that was truncated.
    std::fs::write(directory.path().join("cut.npz"), b"PK\x03\x04 and no more").unwrap();
    assert!(matches!(open("cut.npz"), DataError::Damaged { .. }));
}

#[test]
fn extents_beyond_the_file_are_refused_before_they_are_allocated() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("huge.h5");
    let file = H5File::create(&path).unwrap();
    let values = file
        .new_dataset::<f32>()
        .shape([1usize, 10, 3])
        .chunk(&[1, 10, 3])
        .max_shape(&[None, Some(10), Some(3)])
        .create("values")
        .unwrap();
    values.write_slice(&[0, 0, 0], &[1, 10, 3], &[0f32; 30]).unwrap();
    values.extend(&[1 << 40, 10, 3]).unwrap();
    let times: Vec<f64> = (0..10).map(f64::from).collect();
    file.new_dataset::<f64>().shape([10]).create("times").unwrap().write_raw(&times).unwrap();
    file.close().unwrap();
    let error = TrajectoryFile::open(&path).unwrap_err();
    assert!(matches!(error, DataError::Damaged { .. }), "{error}");
}

fn description() -> Description {
    Description {
        system: String::new(),
        shape: FieldShape::system(2),
        periodic: vec![],
        domain: vec![],
        channel_names: vec![],
        channel_units: vec![],
        inputs: InputNames::default(),
    }
}

fn trajectory(frames: usize) -> Trajectory {
    let times = (0..frames).map(|frame| frame as f64).collect();
    Trajectory::new(times, vec![0.5; 2 * frames], vec![]).unwrap()
}

fn entries(directory: &Path) -> Vec<PathBuf> {
    std::fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path()).collect()
}

const LAYOUTS: [OutputLayout; 2] = [OutputLayout::Cfo, OutputLayout::Npz];

#[test]
fn files_appear_whole_or_not_at_all() {
    for layout in LAYOUTS {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("set");
        let create = |force: bool| {
            TrajectoryWriter::create(
                &path,
                &description(),
                WriteOptions { layout, force, ..WriteOptions::default() },
            )
        };
        let mut writer = create(false).unwrap();
        writer.push(&trajectory(4), None).unwrap();
        assert!(!path.exists());
        drop(writer);
        assert!(entries(directory.path()).is_empty(), "a dropped writer leaves nothing");
        assert!(create(false).unwrap().finish().is_err(), "a file needs a trajectory");
        assert!(entries(directory.path()).is_empty());

        std::fs::write(&path, "precious").unwrap();
        assert!(matches!(create(false), Err(DataError::Exists { .. })));
        let mut writer = create(true).unwrap();
        writer.push(&trajectory(4), None).unwrap();
        drop(writer);
        assert_eq!(std::fs::read(&path).unwrap(), b"precious");
        let mut writer = create(true).unwrap();
        writer.push(&trajectory(4), None).unwrap();
        writer.finish().unwrap();
        assert_eq!(TrajectoryFile::open(&path).unwrap().trajectory(0).unwrap(), trajectory(4));

        // A file that appears while another is written is not replaced either.
        std::fs::remove_file(&path).unwrap();
        let mut writer = create(false).unwrap();
        writer.push(&trajectory(4), None).unwrap();
        std::fs::write(&path, "quicker").unwrap();
        assert!(matches!(writer.finish(), Err(DataError::Exists { .. })));
        assert_eq!(std::fs::read(&path).unwrap(), b"quicker");
        assert_eq!(entries(directory.path()).len(), 1);
    }
}

#[test]
fn what_cannot_be_read_back_is_not_written() {
    let directory = tempfile::tempdir().unwrap();
    for (index, layout) in LAYOUTS.into_iter().enumerate() {
        let path = directory.path().join(index.to_string());
        let options = WriteOptions { layout, frames: Some(5), ..WriteOptions::default() };
        let mut writer = TrajectoryWriter::create(&path, &description(), options).unwrap();
        let mut bad = trajectory(3);
        bad.values[4] = f32::NAN;
        assert!(matches!(writer.push(&bad, None), Err(DataError::NotFinite { .. })));
        bad = trajectory(3);
        bad.values.pop();
        assert!(matches!(writer.push(&bad, None), Err(DataError::Misfit { .. })));
        bad = trajectory(3);
        bad.inputs.parameters.push(1.0);
        assert!(matches!(writer.push(&bad, None), Err(DataError::Misfit { .. })));
        assert!(writer.push(&trajectory(6), None).is_err(), "longer than announced");
        // None of these damaged the file.
        writer.push(&trajectory(3), Some(Split::Test)).unwrap();
        assert!(writer.push(&trajectory(3), None).is_err(), "a part for some but not for all");
        writer.finish().unwrap();
        assert_eq!(TrajectoryFile::open(&path).unwrap().trajectory(0).unwrap(), trajectory(3));
    }
    let missing = directory.path().join("no/such/directory/set.h5");
    let error = TrajectoryWriter::create(missing, &description(), WriteOptions::default()).err().unwrap();
    assert!(error.is_bad_input() && error.hint().is_some(), "{error}");
    let compressed = WriteOptions {
        layout: OutputLayout::Npz,
        compression: Compression::Gzip(1),
        ..WriteOptions::default()
    };
    let error =
        TrajectoryWriter::create(directory.path().join("set.npz"), &description(), compressed).err().unwrap();
    assert!(matches!(error, DataError::Unsupported { .. }));
    let pdebench = WriteOptions { layout: OutputLayout::Pdebench, ..WriteOptions::default() };
    let error =
        TrajectoryWriter::create(directory.path().join("set.h5"), &description(), pdebench).err().unwrap();
    assert!(matches!(error, DataError::Unsupported { .. }));
    assert_eq!(entries(directory.path()).len(), 2);
}

/// Child process of the next test: writes until the disk is full.
#[test]
fn write_until_full() {
    let Ok(path) = std::env::var("CFO_TEST_FULL") else { return };
    let layout = std::env::var("CFO_TEST_LAYOUT").unwrap().parse().unwrap();
    let mut described = description();
    if layout == OutputLayout::Pdebench {
        described.shape = FieldShape::plane(1, 1, 2);
        (described.periodic, described.domain) = (vec![false; 2], vec![[0.0, 1.0]; 2]);
    }
    let options = WriteOptions { layout, ..WriteOptions::default() };
    let attempt = || -> Result<(), DataError> {
        let mut writer = TrajectoryWriter::create(&path, &described, options)?;
        for _ in 0..2000 {
            writer.push(&trajectory(100), None)?;
        }
        writer.finish()
    };
    let error = attempt().expect_err("there is no room for so much");
    assert!(matches!(error, DataError::DiskFull { .. }), "{error}");
    assert!(!error.is_bad_input());
}

/// A limit on file sizes replaces a full disk: the kernel fails the write in the same way.
#[test]
fn a_full_disk_is_reported_and_leaves_nothing() {
    for layout in ["cfo", "npz", "pdebench"] {
        // From no space at all to space for all but the end.
        for blocks in [0, 16, 256, 1024] {
            let directory = tempfile::tempdir().unwrap();
            let output = Command::new("sh")
                .args([
                    "-c",
                    &format!("trap '' XFSZ; ulimit -f {blocks}; exec \"$0\" --exact write_until_full"),
                ])
                .arg(std::env::current_exe().unwrap())
                .env("CFO_TEST_FULL", directory.path().join("set"))
                .env("CFO_TEST_LAYOUT", layout)
                .output()
                .unwrap();
            let printed = String::from_utf8_lossy(&output.stderr);
            assert!(
                output.status.success(),
                "{layout}, {blocks} blocks: {printed}{}",
                String::from_utf8_lossy(&output.stdout)
            );
            assert_eq!(printed, "", "{layout}, {blocks} blocks: nobody but the caller speaks");
            assert!(entries(directory.path()).is_empty(), "{layout}, {blocks} blocks");
        }
    }
}

/// A file from another program with NaN parameters is rejected with advice.
#[test]
fn a_parameter_that_is_not_finite_is_refused_where_it_stands() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("bad.h5");
    let file = H5File::create(&path).unwrap();
    let numbers = |name: &str, shape: &[usize], data: &[f64]| {
        file.new_dataset::<f64>().shape(shape).create(name).unwrap().write_raw(data).unwrap();
    };
    numbers("values", &[2, 3, 1], &[0.0, 1.0, 2.0, 3.0, 4.0, 5.0]);
    numbers("times", &[3], &[0.0, 1.0, 2.0]);
    numbers("parameters", &[2, 2], &[0.5, 1.0, 0.5, f64::NAN]);
    file.close().unwrap();
    let file = TrajectoryFile::open(&path).unwrap();
    assert_eq!(file.inputs(0).unwrap().parameters, [0.5, 1.0]);
    for error in [file.inputs(1).unwrap_err(), file.trajectory(1).unwrap_err()] {
        let text = error.to_string();
        assert!(text.contains("`parameters`, trajectory 1: column 1 is NaN"), "{text}");
        assert!(error.is_bad_input() && error.hint().is_some());
    }
    let (_, defects) = file.audit(1).unwrap();
    assert_eq!((defects.parameters, defects.is_empty()), (1, false));
}
