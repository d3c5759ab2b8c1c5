//! One long record: its last times are held out, and predictions of a part start where the part does.

use cfo_data::store::{TrajectoryFile, TrajectoryWriter, WriteOptions};
use cfo_data::{Description, FieldShape, InputNames, Trajectory};
use serde_json::json;

use crate::util::Folder;

const RECIPE: &str =
    "[operator]\nkind = \"mlp\"\nhidden = [8]\n[train]\nsteps = 2\nbatch = 4\nvalidate_every = 0\n";

/// 200 snapshots of a circle, 0.05 apart: 160 for training, 20 for validation, 20 for test.
fn write(folder: &Folder) {
    let description = Description {
        system: "circle".into(),
        shape: FieldShape::system(2),
        periodic: vec![],
        domain: vec![],
        channel_names: vec![],
        channel_units: vec![],
        inputs: InputNames::default(),
    };
    let mut writer =
        TrajectoryWriter::create(folder.path("one.h5"), &description, WriteOptions::default()).unwrap();
    let times: Vec<f64> = (0..200).map(|k| 0.05 * f64::from(k)).collect();
    let values = times.iter().flat_map(|t| [t.sin() as f32, t.cos() as f32]).collect();
    writer.push(&Trajectory::new(times, values, vec![]).unwrap(), None).unwrap();
    writer.finish().unwrap();
}

#[test]
fn predictions_of_a_part_start_at_its_first_time() {
    let folder = Folder::new();
    write(&folder);
    std::fs::write(folder.path("recipe.toml"), RECIPE).unwrap();
    folder.cfo("train recipe.toml --data one.h5 --out run").done();
    for (part, first, last) in
        [("train", 0, 159), ("validation", 160, 179), ("test", 180, 199), ("all", 0, 199)]
    {
        for (frame, number) in [("0", first), ("last", last)] {
            let time = 0.05 * f64::from(number);
            // At its own time a prediction is the snapshot that it starts from; any other start would have to be integrated to it.
            let line = format!(
                "predict run --initial one.h5 --split {part} --frame {frame} --times {time} --out p.h5 --force --json"
            );
            let found = folder.cfo(&line).done().json();
            assert_eq!(found["indices"], json!([0]), "{part}");
            let predicted = TrajectoryFile::open(folder.path("p.h5")).unwrap().trajectory(0).unwrap();
            assert_eq!(*predicted.times, [time]);
            for (found, expected) in predicted.values.iter().zip([time.sin(), time.cos()]) {
                assert!((f64::from(*found) - expected).abs() < 1e-6, "{part}, frame {frame}: {predicted:?}");
            }
        }
    }
    let refused =
        folder.cfo("predict run --initial one.h5 --split test --frame 20 --times 9 --out q.h5").ended_with(2);
    assert!(refused.stderr.contains("0 to 19"), "{}", refused.stderr);
}
