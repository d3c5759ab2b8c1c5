//! Memory and disk traffic: writing holds one trajectory, and reading reads only requested parts.
//!
//! There is one test in this process, because both counters belong to the process.

#![expect(clippy::unwrap_used, reason = "a failed test panics")]

mod common;

use std::path::Path;

use cfo_data::store::{Compression, OutputLayout, TrajectoryFile, TrajectoryWriter, WriteOptions};
use cfo_data::{Description, FieldShape, InputNames, Trajectory};
use cfo_numerics::TimeGrid;
use common::peak_of;

const SHAPE: FieldShape = FieldShape::plane(32, 32, 2);
const FRAMES: usize = 16;
/// 131,072 bytes.
const TRAJECTORY: usize = FRAMES * 32 * 32 * 2 * 4;

fn write(path: &Path, count: usize, layout: OutputLayout, compression: Compression) {
    let description = Description {
        system: String::new(),
        shape: SHAPE,
        periodic: vec![false; 2],
        domain: vec![[0.0, 1.0]; 2],
        channel_names: vec![],
        channel_units: vec![],
        inputs: InputNames::default(),
    };
    let options = WriteOptions { layout, compression, force: true, ..WriteOptions::default() };
    let mut writer = TrajectoryWriter::create(path, &description, options).unwrap();
    for index in 0..count {
        let number = |position: usize| ((index * 7919 + position * 31) % 1013) as f32;
        let values = (0..TRAJECTORY / 4).map(number).collect();
        // The second half has other times, so that rows of times are written too.
        let shift = if layout != OutputLayout::Pdebench && index >= count / 2 { index as f64 } else { 0.0 };
        let times = (0..FRAMES).map(|frame| shift + frame as f64).collect();
        writer.push(&Trajectory::new(times, values, vec![]).unwrap(), None).unwrap();
    }
    writer.finish().unwrap();
}

/// Bytes that this process has read, where the system counts them.
fn bytes_read() -> Option<u64> {
    let counters = std::fs::read_to_string("/proc/self/io").ok()?;
    counters.lines().find_map(|line| line.strip_prefix("rchar: ")?.parse().ok())
}

/// Writes one trajectory of `frames` snapshots, seven of them at a time.
fn write_long(path: &Path, frames: usize, layout: OutputLayout) {
    let description = Description {
        system: String::new(),
        shape: SHAPE,
        periodic: vec![false; 2],
        domain: vec![[0.0, 1.0]; 2],
        channel_names: vec![],
        channel_units: vec![],
        inputs: InputNames::default(),
    };
    let options = WriteOptions { layout, force: true, frames: Some(frames), ..WriteOptions::default() };
    let mut writer = TrajectoryWriter::create(path, &description, options).unwrap();
    let times = TimeGrid::new((0..frames).map(|frame| frame as f64).collect()).unwrap();
    writer.start(&times, &cfo_data::TrajectoryInputs::default(), None).unwrap();
    let some: Vec<f32> = (0..7 * SHAPE.len()).map(|position| position as f32).collect();
    for first in (0..frames).step_by(7) {
        writer.frames(&some[..7.min(frames - first) * SHAPE.len()]).unwrap();
    }
    writer.finish().unwrap();
}

/// Writing the layouts of other projects holds neither all trajectories nor all snapshots of one.
fn check_exports(path: &Path) {
    for layout in [OutputLayout::Netcdf, OutputLayout::TheWell, OutputLayout::Xdmf] {
        let ((), few) = peak_of(|| write(path, 20, layout, Compression::None));
        let ((), many) = peak_of(|| write(path, 200, layout, Compression::None));
        println!("{layout}: {few} bytes held for 20 trajectories, {many} for 200");
        assert!(many <= few + 180 * (2 << 10), "{layout}: {few} bytes for 20, {many} for 200");
    }
    for layout in OutputLayout::ALL {
        let ((), few) = peak_of(|| write_long(path, 100, layout));
        let ((), many) = peak_of(|| write_long(path, 1000, layout));
        println!("{layout}: {few} bytes held for 100 snapshots, {many} for 1000");
        // For each snapshot of 8192 bytes only its time and its part of the index stay in memory.
        assert!(many <= few + 900 * 512, "{layout}: {few} bytes for 100, {many} for 1000");
    }
}

#[test]
fn memory_and_traffic_are_bounded() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("set");
    check_exports(&path);
    let cases = [
        (OutputLayout::Cfo, Compression::None),
        (OutputLayout::Cfo, Compression::Gzip(1)),
        (OutputLayout::Npz, Compression::None),
        (OutputLayout::Pdebench, Compression::None),
    ];
    for (layout, compression) in cases {
        let ((), few) = peak_of(|| write(&path, 20, layout, compression));
        let ((), many) = peak_of(|| write(&path, 200, layout, compression));
        // An index and a few numbers for each trajectory stay in memory; groups add some headers in PDEBench's layout.
        let entry = if layout == OutputLayout::Pdebench { 16 << 10 } else { 2 << 10 };
        println!("{layout} {compression:?}: {few} bytes held for 20 trajectories, {many} for 200");
        assert!(many <= few + 180 * entry, "{layout} {compression:?}: {few} bytes for 20, {many} for 200");

        let ((), held) = peak_of(|| {
            let file = TrajectoryFile::open(&path).unwrap();
            let before = bytes_read();
            let trajectory = file.trajectory(150).unwrap();
            assert_eq!(trajectory.values.len(), TRAJECTORY / 4);
            let frame = file.frames(17, &[9]).unwrap();
            assert_eq!(frame.len(), SHAPE.len());
            if let (Some(before), Some(after)) = (before, bytes_read()) {
                println!("{layout} {compression:?}: {} bytes read", after - before);
                // The trajectory, the chunk that contains the frame (at most a trajectory), and an index.
                assert!(
                    after - before <= 2 * TRAJECTORY as u64 + (64 << 10),
                    "{} bytes read",
                    after - before
                );
            }
        });
        assert!(held <= 8 * TRAJECTORY + (1 << 20), "{layout} {compression:?}: {held} bytes held to read");
    }
}
