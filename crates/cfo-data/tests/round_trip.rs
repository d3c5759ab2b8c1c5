//! Written data are read back unchanged, for any shapes, lengths, labels and layout.

#![expect(clippy::unwrap_used, reason = "a failed test panics")]

use cfo_data::store::{Compression, Layout, OutputLayout, TrajectoryFile, TrajectoryWriter, WriteOptions};
use cfo_data::{
    Controls, DataError, Description, FieldShape, InputNames, Split, Trajectory, TrajectoryInputs,
};
use cfo_numerics::{Grid, Philox};
use proptest::prelude::*;

/// A set of random trajectories.
#[derive(Clone, Debug)]
struct Case {
    description: Description,
    trajectories: Vec<Trajectory>,
    splits: Vec<Option<Split>>,
}

fn case(
    axes: usize,
    extent: [usize; 3],
    channels: usize,
    lengths: &[usize],
    shared: bool,
    seed: u64,
) -> Case {
    let mut random = Philox::new(seed, 0);
    let shape = FieldShape { grid: Grid::new(&extent[3 - axes..]).unwrap(), channels };
    let [parameters, controls, statics] = [0, 1, 2].map(|_| random.below(3) as usize);
    let named = random.below(2) == 1;
    let names = |prefix: &str, count: usize| (0..count).map(|index| format!("{prefix}{index} é")).collect();
    let description = Description {
        system: if named { "täst".to_string() } else { String::new() },
        shape,
        periodic: (0..axes).map(|axis| axis == 0).collect(),
        domain: (0..axes).map(|axis| [-1.5, 2.0 + axis as f64]).collect(),
        channel_names: if named { names("channel", channels) } else { vec![] },
        channel_units: if named { names("unit", channels) } else { vec![] },
        inputs: InputNames {
            parameters: names("parameter", parameters),
            controls: names("control", controls),
            statics: names("static", statics),
        },
    };
    let trajectory = |&frames: &usize| {
        let mut time = if shared { 0.0 } else { random.normal() };
        let times = (0..frames).map(|_| {
            time += if shared { 0.25 } else { random.uniform() + 1e-3 };
            time
        });
        let times = times.collect();
        let values = (0..frames * shape.len()).map(|_| random.normal() as f32).collect();
        let parameters = (0..parameters).map(|_| random.normal()).collect();
        let mut inputs = TrajectoryInputs { parameters, ..TrajectoryInputs::default() };
        if controls > 0 {
            let count = if shared { 4 } else { 1 + random.below(5) as usize };
            let times = (0..count).map(|k| k as f64 + if shared { 0.0 } else { random.uniform() }).collect();
            let values = (0..count * controls).map(|_| random.normal()).collect();
            inputs = inputs.with_controls(Controls::new(times, values).unwrap());
        }
        if statics > 0 {
            let own = || if shared { 0.5 } else { random.normal() as f32 };
            inputs = inputs.with_statics(
                std::iter::repeat_with(own).take(statics * shape.grid.points()).collect::<Vec<f32>>(),
            );
        }
        Trajectory::new(times, values, inputs).unwrap()
    };
    let trajectories: Vec<Trajectory> = lengths.iter().map(trajectory).collect();
    let splits = (0..lengths.len()).map(|index| named.then(|| Split::ALL[index % 3])).collect();
    Case { description, trajectories, splits }
}

fn write(path: &std::path::Path, case: &Case, options: WriteOptions) -> Result<(), DataError> {
    let mut writer = TrajectoryWriter::create(path, &case.description, options)?;
    for (index, (trajectory, &split)) in case.trajectories.iter().zip(&case.splits).enumerate() {
        if index % 2 == 0 {
            writer.push(trajectory, split)?;
            continue;
        }
        // Writing a few snapshots at a time gives the same file.
        writer.start(&trajectory.times, &trajectory.inputs, split)?;
        for some in trajectory.values.chunks(3 * case.description.shape.len()) {
            writer.frames(some)?;
        }
    }
    writer.finish()
}

fn check(path: &std::path::Path, case: &Case, layout: Layout) {
    let file = TrajectoryFile::open(path).unwrap();
    assert_eq!(file.layout(), layout);
    assert_eq!(file.description(), &case.description);
    assert_eq!(file.len(), case.trajectories.len());
    let size = case.description.shape.len();
    for (index, (trajectory, &split)) in case.trajectories.iter().zip(&case.splits).enumerate() {
        assert_eq!(&file.trajectory(index).unwrap(), trajectory, "trajectory {index}");
        assert_eq!(file.split(index), split);
        assert_eq!(file.frame_count(index).unwrap(), trajectory.times.len());
        let last = trajectory.times.len() - 1;
        let frames = file.frames(index, &[last, 0, last / 2]).unwrap();
        for (piece, frame) in frames.chunks(size).zip([last, 0, last / 2]) {
            assert_eq!(piece, &trajectory.values[frame * size..(frame + 1) * size]);
        }
        let (audited, defects) = file.audit(index).unwrap();
        assert!(defects.is_empty());
        assert_eq!(audited.times, *trajectory.times);
        assert_eq!((audited.values, audited.inputs), (trajectory.values.clone(), trajectory.inputs.clone()));
    }
    assert!(matches!(file.trajectory(file.len()), Err(DataError::OutOfRange { .. })));
    assert!(matches!(file.frames(0, &[usize::MAX]), Err(DataError::OutOfRange { .. })));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn every_layout_returns_what_it_was_given(
        axes in 0usize..4,
        extent in [1usize..5, 1usize..9, 1usize..9],
        channels in 1usize..4,
        lengths in prop::collection::vec(1usize..40, 1..6),
        ragged: bool,
        shared: bool,
        announced: bool,
        gzip: bool,
        seed: u64,
    ) {
        let longest = *lengths.iter().max().unwrap();
        let lengths = if ragged { lengths } else { vec![longest; lengths.len()] };
        let case = case(axes, extent, channels, &lengths, shared, seed);
        let directory = tempfile::tempdir().unwrap();
        let compression = if gzip { Compression::Gzip(4) } else { Compression::None };
        let frames = announced.then_some(longest);
        let path = directory.path().join("set.data");
        write(&path, &case, WriteOptions { compression, frames, ..WriteOptions::default() }).unwrap();
        check(&path, &case, Layout::Cfo);
        let options =
            WriteOptions { layout: OutputLayout::Npz, frames: Some(longest), force: true, ..WriteOptions::default() };
        write(&path, &case, options).unwrap();
        check(&path, &case, Layout::Npz);
        prop_assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 1, "nothing is left behind");
    }
}

/// A trajectory must be complete before the next one starts and before the file ends.
#[test]
fn snapshots_are_neither_missing_nor_too_many() {
    let directory = tempfile::tempdir().unwrap();
    let case = case(1, [1, 1, 4], 2, &[3, 3], true, 0);
    let [first, second] = &case.trajectories[..] else { unreachable!("two were made") };
    for layout in OutputLayout::ALL {
        let options = WriteOptions { layout, ..WriteOptions::default() };
        let path = directory.path().join("set");
        let Ok(mut writer) = TrajectoryWriter::create(&path, &case.description, options) else {
            assert_eq!(layout, OutputLayout::Pdebench, "two channels on a line");
            continue;
        };
        writer.start(&first.times, &first.inputs, None).unwrap();
        assert!(matches!(writer.frames(&[0.0; 7]), Err(DataError::Unfit { .. })));
        assert!(matches!(writer.frames(&[0.0; 32]), Err(DataError::Unfit { .. })));
        assert!(matches!(writer.frames(&[f32::NAN; 8]), Err(DataError::NotFinite { .. })));
        writer.frames(&first.values[..16]).unwrap();
        let unfinished = writer.start(&second.times, &second.inputs, None).unwrap_err();
        assert!(unfinished.to_string().contains("2 of 3 snapshots"), "{unfinished}");
        assert!(matches!(writer.finish(), Err(DataError::Unfit { .. })));
        assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 0, "{layout}");
    }
}
