//! Damaged files: no panic, no hang, and memory bounded by the file's size.

#![expect(clippy::unwrap_used, reason = "a failed test panics")]

mod common;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;

use cfo_data::store::{Compression, OutputLayout, TrajectoryFile, TrajectoryWriter, WriteOptions};
use cfo_data::{DataError, Description, FieldShape, InputNames, Trajectory};
use cfo_numerics::Philox;
use common::peak_of;

/// Calls all functions of a reader; errors are allowed.
fn read(path: &Path) -> Result<usize, DataError> {
    let file = TrajectoryFile::open(path)?;
    let mut numbers = 0;
    for trajectory in 0..file.len().min(8) {
        let _ = file.split(trajectory);
        let _ = file.inputs(trajectory);
        let _ = file.times(trajectory);
        numbers += file.trajectory(trajectory).map_or(0, |trajectory| trajectory.values.len());
        let _ = file.audit(trajectory);
        let count = file.frame_count(trajectory).unwrap_or(0);
        let _ = file.frames(trajectory, &[count / 2, 0, count.saturating_sub(1)]);
    }
    Ok(numbers)
}

/// Files of every layout and storage: stored ones from h5py and NumPy, and files written here.
fn seeds(directory: &Path) -> Vec<(String, Vec<u8>)> {
    let fixtures = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures");
    let entries = std::fs::read_dir(fixtures).unwrap().map(|entry| entry.unwrap().path());
    let is_data = |path: &std::path::PathBuf| {
        path.extension()
            .is_some_and(|extension| ["h5", "hdf5", "npz"].contains(&extension.to_string_lossy().as_ref()))
    };
    let mut paths: Vec<_> = entries.filter(is_data).collect();
    assert!(paths.len() >= 10, "the kept files of other programs are gone");
    let layouts = [OutputLayout::Cfo, OutputLayout::Npz, OutputLayout::Pdebench];
    for layout in layouts {
        for (axes, gzip) in [(1, false), (2, false), (2, true)] {
            let compression = if gzip { Compression::Gzip(6) } else { Compression::None };
            if layout == OutputLayout::Npz && gzip {
                continue;
            }
            let shape = if axes == 2 { FieldShape::plane(3, 5, 1) } else { FieldShape::line(5, 1) };
            let description = Description {
                system: "seed".to_string(),
                shape,
                periodic: vec![true; axes],
                domain: vec![[0.0, 1.0]; axes],
                channel_names: vec!["u".to_string()],
                channel_units: vec![],
                inputs: InputNames::of_parameters(["length"]),
            };
            let path = directory.join(format!("{layout}-{axes}-{gzip}"));
            let options = WriteOptions { layout, compression, ..WriteOptions::default() };
            let mut writer = TrajectoryWriter::create(&path, &description, options).unwrap();
            for index in 0..3 {
                let values = (0..4 * shape.len()).map(|position| (index + position) as f32).collect();
                let times = vec![0.0, 0.5, 1.0, 2.0];
                writer.push(&Trajectory::new(times, values, vec![2.0]).unwrap(), None).unwrap();
            }
            writer.finish().unwrap();
            paths.push(path);
        }
    }
    // By name: the location of the project must not influence which files are generated.
    paths.sort_by_key(|path| path.file_name().map(std::ffi::OsStr::to_owned));
    let read = |path: &std::path::PathBuf| {
        (path.file_name().unwrap().to_string_lossy().into_owned(), std::fs::read(path).unwrap())
    };
    paths.iter().map(read).collect()
}

/// Damages a file as disks, networks and adversaries do.
fn mutate(original: &[u8], donor: &[u8], random: &mut Philox) -> Vec<u8> {
    let mut bytes = original.to_vec();
    let mut below = |bound: usize| random.below(bound.max(1) as u64) as usize;
    match below(7) {
        // Single bits anywhere.
        0 => (0..1 + below(8)).for_each(|_| {
            let at = below(bytes.len());
            bytes[at] ^= 1 << below(8);
        }),
        // One bit of the first part, which contains the structure.
        1 => {
            let at = below(bytes.len().min(1024));
            bytes[at] ^= 1 << below(8);
        }
        // Truncation.
        2 => bytes.truncate(below(original.len())),
        // A piece of another file.
        3 => {
            let length = 1 + below(donor.len().min(200));
            let (from, to) = (below(donor.len() - length + 1), below(bytes.len()));
            let length = length.min(bytes.len() - to);
            bytes[to..to + length].copy_from_slice(&donor[from..from + length]);
        }
        // A piece moved within the file, which shifts what follows.
        4 => {
            let (from, to) = (below(bytes.len()), below(bytes.len()));
            let piece = bytes[from..(from + 1 + below(64)).min(bytes.len())].to_vec();
            bytes.splice(to..to, piece);
        }
        // Huge, negative and zero numbers, aligned as structures are.
        5 => (0..1 + below(3)).for_each(|_| {
            let numbers = [u64::MAX, 1 << 40, 1 << 32, u64::from(u32::MAX), 1 << 31, 0, 1, 1 << 62];
            let number = numbers[below(numbers.len())].to_le_bytes();
            let width = [1, 2, 4, 8][below(4)];
            let at = below(bytes.len().saturating_sub(8)) & !(width - 1);
            bytes[at..at + width].copy_from_slice(&number[..width]);
        }),
        // A hole.
        _ => {
            let at = below(bytes.len());
            let length = (1 + below(512)).min(bytes.len() - at);
            bytes[at..at + length].fill(0);
        }
    }
    bytes
}

/// Memory independent of the file: the windows of the decompressors, one for each array of an `.npz`.
const OVERHEAD: usize = 512 << 10;
/// Memory per byte of the file: each number as `f64` and a copy during conversion, decompressed data, and header
/// messages of 8 bytes that decode to 272.
const PER_BYTE: usize = 64;

#[test]
fn damaged_files_end_in_errors() {
    const MUTATIONS: u64 = 300;
    let directory = tempfile::tempdir().unwrap();
    let seeds = seeds(directory.path());
    assert!(seeds.len() as u64 * MUTATIONS >= 2000);
    let path = directory.path().join("mutated");
    let (mut opened, mut most) = (0, 0);
    for (stream, (name, original)) in seeds.iter().enumerate() {
        std::fs::write(&path, original).unwrap();
        assert!(read(&path).unwrap_or_else(|error| panic!("{name}: {error}")) > 0);
        let mut random = Philox::new(2026, stream as u64);
        for mutation in 0..MUTATIONS {
            let donor = &seeds[random.below(seeds.len() as u64) as usize].1;
            let bytes = mutate(original, donor, &mut random);
            std::fs::write(&path, &bytes).unwrap();
            let (outcome, peak) = peak_of(|| catch_unwind(AssertUnwindSafe(|| read(&path))));
            let outcome = outcome.unwrap_or_else(|_| panic!("{name}, mutation {mutation}: panicked"));
            if let Err(error) = &outcome {
                assert!(error.is_bad_input(), "{name}, mutation {mutation}: {error}");
                assert!(error.to_string().contains("mutated"), "{name}, mutation {mutation}: {error}");
            }
            let bound = OVERHEAD + PER_BYTE * bytes.len();
            assert!(peak <= bound, "{name}, mutation {mutation}: {peak} bytes for a file of {}", bytes.len());
            most = most.max(peak);
            opened += usize::from(outcome.is_ok());
        }
    }
    println!(
        "{} files, {opened} of them still readable, at most {most} bytes held",
        seeds.len() as u64 * MUTATIONS
    );
}
