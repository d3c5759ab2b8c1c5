//! Flipped bits: each byte of a written file is either protected by a checksum or without meaning.

#![expect(clippy::unwrap_used, reason = "a failed test panics")]

use std::fmt::Write as _;
use std::io::{Seek, SeekFrom, Write as _};
use std::path::Path;

use cfo_data::store::{Compression, OutputLayout, TrajectoryFile, TrajectoryWriter, WriteOptions};
use cfo_data::{DataError, Description, FieldShape, InputNames, Split, Trajectory};

fn write(path: &Path, layout: OutputLayout, compression: Compression) {
    let description = Description {
        system: "flips".to_string(),
        shape: FieldShape::plane(2, 3, 1),
        periodic: vec![true, false],
        domain: vec![[0.0, 1.0]; 2],
        channel_names: vec!["u".to_string()],
        channel_units: vec![],
        inputs: InputNames::of_parameters(["length"]),
    };
    let options = WriteOptions { layout, compression, ..WriteOptions::default() };
    let mut writer = TrajectoryWriter::create(path, &description, options).unwrap();
    for index in 0..2 {
        // PDEBench's layout has one time grid; ours have one for each trajectory, with its own length.
        let frames = if layout == OutputLayout::Pdebench { 3 } else { 4 - index };
        let values = (0..frames * 6).map(|position| (index + position) as f32).collect();
        let times = (0..frames).map(|frame| frame as f64 * 0.5).collect();
        let split = if index == 0 { Split::Train } else { Split::Test };
        writer.push(&Trajectory::new(times, values, vec![2.0]).unwrap(), Some(split)).unwrap();
    }
    writer.finish().unwrap();
}

/// The content of a file as text, or the first error.
fn content(path: &Path) -> Result<String, DataError> {
    let file = TrajectoryFile::open(path)?;
    let mut text = format!("{} {:?}", file.layout(), file.description());
    for trajectory in 0..file.len() {
        let Trajectory { times, values, inputs } = file.trajectory(trajectory)?;
        let bits: Vec<u32> = values.iter().map(|value| value.to_bits()).collect();
        write!(text, " {times:?} {bits:?} {inputs:?} {:?}", file.split(trajectory)).unwrap();
    }
    Ok(text)
}

#[test]
fn no_flipped_bit_of_our_files_is_read_as_data() {
    let directory = tempfile::tempdir().unwrap();
    let cases = [
        (OutputLayout::Cfo, Compression::None),
        (OutputLayout::Cfo, Compression::Gzip(6)),
        (OutputLayout::Npz, Compression::None),
        (OutputLayout::Pdebench, Compression::None),
    ];
    for (number, (layout, compression)) in cases.into_iter().enumerate() {
        let path = directory.path().join(format!("{layout}-{number}"));
        write(&path, layout, compression);
        let original = std::fs::read(&path).unwrap();
        let truth = content(&path).unwrap();
        let mut file = std::fs::OpenOptions::new().write(true).open(&path).unwrap();
        let mut put = |at: usize, byte: u8| {
            file.seek(SeekFrom::Start(at as u64)).unwrap();
            file.write_all(&[byte]).unwrap();
        };
        let (mut refused, mut silent) = (0, Vec::new());
        for (at, &byte) in original.iter().enumerate() {
            put(at, byte ^ 1 << (at % 8));
            match content(&path) {
                Ok(found) if found != truth => silent.push(at),
                Ok(_) => {}
                Err(error) => {
                    refused += 1;
                    assert!(error.is_bad_input(), "{layout}, byte {at}: {error}");
                }
            }
            put(at, byte);
        }
        println!(
            "{layout} {compression:?}: {refused} of {} flips refused, the others read the same",
            original.len()
        );
        assert!(refused > original.len() / 8, "{layout}: only {refused} of {} flips refused", original.len());
        assert!(
            silent.is_empty(),
            "{layout} {compression:?}: flips in bytes {silent:?} changed what was read"
        );
    }
}
