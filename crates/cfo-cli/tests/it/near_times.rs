//! Training on random times, some of which are nearly equal.

use std::f64::consts::TAU;

use cfo_data::store::{TrajectoryWriter, WriteOptions};
use cfo_data::{Description, FieldShape, InputNames, Trajectory};
use cfo_numerics::Philox;

use crate::util::Folder;

const SPAN: f64 = 6.0;

fn description() -> Description {
    Description {
        system: "circle".into(),
        shape: FieldShape::system(2),
        periodic: vec![],
        domain: vec![],
        channel_names: vec!["x".into(), "y".into()],
        channel_units: vec![],
        inputs: InputNames::default(),
    }
}

/// Writes 200 noisy trajectories `(a cos(t + p), -a sin(t + p))` at 80 uniform random times. If `gap` is positive, each training trajectory
/// has two times that far apart.
fn write(folder: &Folder, name: &str, gap: f64, noise: f64) {
    let mut writer =
        TrajectoryWriter::create(folder.path(name), &description(), WriteOptions::default()).unwrap();
    for index in 0..200 {
        let mut random = Philox::new(5, index);
        let (size, phase) = (random.uniform_between(0.5, 1.5), random.uniform_between(0.0, TAU));
        let mut times: Vec<f64> = (0..80).map(|_| random.uniform_between(0.0, SPAN)).collect();
        times.sort_by(f64::total_cmp);
        times.dedup_by(|later, earlier| *later - *earlier < 1e-3);
        if gap > 0.0 && index < 160 {
            times[40] = (times[39] + gap).max(times[39].next_up());
        }
        let mut more = Philox::new(6, index);
        let state = |t: f64| [size * (t + phase).cos(), -size * (t + phase).sin()];
        let values: Vec<f32> = times
            .iter()
            .flat_map(|&t| state(t))
            .map(|value| (value + noise * more.normal()) as f32)
            .collect();
        writer.push(&Trajectory::new(times, values, vec![]).unwrap(), None).unwrap();
    }
    writer.finish().unwrap();
}

const KEYS: &str = "--set operator.hidden=[32,32] --set train.steps=400 --set train.batch=256 --set train.learning_rate=5e-3 \
                    --set train.validate_every=0 --set path.spline=quintic --set path.stencil=5 --device cpu";

fn error(folder: &Folder, data: &str, run: &str, keys: &str) -> (f64, serde_json::Value, String) {
    let trained = folder.cfo(&format!("train --data {data} --out {run} {KEYS} {keys} --json")).done();
    let report = trained.json();
    let loss = report["loss"].as_f64().unwrap();
    assert!(loss < 0.2, "{loss}");
    let found = folder.cfo(&format!("evaluate {run} --data {data} --device cpu --json")).done().json();
    (found["relative_l2"]["mean"].as_f64().unwrap(), report["warnings"].clone(), trained.stderr)
}

/// Before: velocities over such gaps were rounding errors divided by the gap, and the fit was useless without a warning.
#[test]
fn nearly_equal_times_do_not_spoil_a_fit() {
    let folder = Folder::new();
    write(&folder, "plain.npz", 0.0, 0.0);
    let (plain, warnings, _) = error(&folder, "plain.npz", "plain", "");
    assert_eq!(warnings, serde_json::json!([]));
    for (gap, name) in [(2e-9, "small"), (1e-15, "tiny")] {
        let file = format!("{name}.npz");
        write(&folder, &file, gap * SPAN, 0.0);
        let (merged, warnings, said) = error(&folder, &file, name, "");
        // The data differ in one snapshot of 80; errors of short trainings vary by a fraction of themselves.
        assert!(merged < 2.0 * plain && merged < 0.2, "{name}: {merged} instead of {plain}");
        let warning = warnings[0].as_str().unwrap();
        assert!(
            warning.contains("160 snapshots in 160 training trajectories are at nearly the same time"),
            "{warning}"
        );
        assert!(said.contains("data.merge_below"), "{said}");
        let streamed = error(&folder, &file, &format!("{name}-streamed"), "--set data.stream=true");
        assert_eq!(streamed.0, merged, "the values of batches do not depend on where they are read");
        let inspected = folder.cfo(&format!("inspect {file} --json")).done().json();
        assert!(inspected["warnings"][0].as_str().unwrap().contains("160 snapshots"), "{inspected}");
        assert_eq!(inspected["sampling"]["verdict"], "dense");
        assert!(
            folder
                .cfo(&format!("init {file}"))
                .done()
                .stderr
                .contains("160 snapshots are at nearly the same time")
        );
    }
    // The recipe can turn merging off or set another distance.
    let (_, warnings, _) = error(&folder, "plain.npz", "none", "--set data.merge_below=0");
    assert_eq!(warnings, serde_json::json!([]));
    let (_, warnings, _) = error(&folder, "plain.npz", "more", "--set data.merge_below=0.02");
    assert!(warnings[0].as_str().unwrap().contains("160 training trajectories"), "{warnings}");
    let refused = folder.cfo(&format!("train --data plain.npz --out x {KEYS} --set data.merge_below=-1"));
    assert!(refused.ended_with(2).stderr.contains("`data.merge_below`: -1 must be 0 or positive"));
}

/// Before: the smoother's matrix was singular, and the loss became NaN.
#[test]
fn noise_is_removed_whatever_the_gaps() {
    let folder = Folder::new();
    write(&folder, "clean.npz", 0.0, 0.0);
    for (gap, name) in [(8e-8, "near"), (1e-12, "nearer")] {
        write(&folder, &format!("{name}.npz"), gap, 0.05);
        // Smoothed values are single numbers: their rounding over the smaller gap is no velocity.
        let merging: &[&str] = if name == "near" { &["", "--set data.merge_below=0"] } else { &[""] };
        for merge in merging {
            let run = format!("{name}{}", merge.len());
            folder
                .cfo(&format!("train --data {name}.npz --out {run} {KEYS} --set path.smoothing=auto {merge}"))
                .done();
            let found =
                folder.cfo(&format!("evaluate {run} --data clean.npz --device cpu --json")).done().json();
            let error = found["relative_l2"]["mean"].as_f64().unwrap();
            assert!(error < 0.2, "{name} {merge}: {error}");
        }
        let noise = folder.cfo(&format!("inspect {name}.npz --json")).done().json()["noise"].clone();
        for channel in noise.as_array().unwrap() {
            // 2500 values know a deviation to 2 %; the curve between random times hides some more.
            assert!((channel["deviation"].as_f64().unwrap() / 0.05 - 1.0).abs() < 0.1, "{channel}");
        }
    }
}

/// The hint for equal times explains that float32 may have rounded them.
#[test]
fn times_rounded_to_the_same_number_are_named() {
    let Some(python) = crate::util::python() else { return };
    let folder = Folder::new();
    let script = "import numpy as np\nt = np.array([0, 1.1, 1.1 + 1e-9, 2.3])\n\
                  np.savez('a.npz', times=t.astype('f4'), values=np.ones((4, 4, 1)).cumsum(1))";
    folder.run(std::process::Command::new(python).args(["-c", script]), "python").done();
    let said = folder.cfo("init a.npz").ended_with(2).stderr;
    assert!(said.contains("times must increase") && said.contains("store `times` as float64"), "{said}");
}
