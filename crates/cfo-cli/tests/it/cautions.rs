//! What users are warned of: data that a field of the state cannot explain, and runs whose files were changed.

use std::path::Path;

use cfo_data::store::{TrajectoryFile, TrajectoryWriter, WriteOptions};
use cfo_data::{Description, FieldShape, InputNames, Trajectory};

use crate::util::Folder;

const RECIPE: &str = "[operator]\nkind = \"mlp\"\nhidden = [16, 16]\ntime = false\n\
    [train]\nsteps = 60\nbatch = 64\nlearning_rate = 3e-3\nreport_every = 20\nvalidate_every = 20\ncheckpoint_every = 20\n";

/// Writes trajectories of a system, each `state` at its own times.
fn write(
    path: &Path,
    channels: &[&str],
    trajectories: usize,
    times: &[f64],
    state: impl Fn(usize, f64) -> Vec<f64>,
) {
    let description = Description {
        system: String::new(),
        shape: FieldShape::system(channels.len()),
        periodic: vec![],
        domain: vec![],
        channel_names: channels.iter().map(ToString::to_string).collect(),
        channel_units: vec![],
        inputs: InputNames::default(),
    };
    let mut writer = TrajectoryWriter::create(path, &description, WriteOptions::default()).unwrap();
    for number in 0..trajectories {
        let values = times.iter().flat_map(|&t| state(number, t)).map(|value| value as f32).collect();
        writer.push(&Trajectory::new(times.to_vec(), values, vec![]).unwrap(), None).unwrap();
    }
    writer.finish().unwrap();
}

fn every(interval: f64, count: u32) -> Vec<f64> {
    (0..count).map(|k| interval * f64::from(k)).collect()
}

/// An oscillator whose amplitude, phase and offset differ between trajectories.
fn swing(number: usize, t: f64) -> [f64; 2] {
    let (phase, amplitude) = (0.7 * number as f64, 1.0 + 0.1 * number as f64);
    [amplitude * (t + phase).sin(), amplitude * (t + phase).cos()]
}

#[test]
fn a_state_that_does_not_determine_its_velocity_is_named() {
    let folder = Folder::new();
    let times = every(0.1, 80);
    write(&folder.path("whole.h5"), &["x", "v"], 12, &times, |i, t| swing(i, t).to_vec());
    // The velocity of an oscillator has either sign at the same place.
    write(&folder.path("half.h5"), &["x"], 12, &times, |i, t| vec![swing(i, t)[0]]);
    // Its amplitude is held constant between jumps that nothing in the state announces.
    let level = |i: usize, t: f64| ((i as f64 * 3.7 + (t / 1.6).floor() * 2.3).sin() * 43758.5).fract();
    write(&folder.path("driven.h5"), &["x", "v", "valve"], 12, &times, |i, t| {
        [swing(i, t).to_vec(), vec![level(i, t)]].concat()
    });
    let whole = folder.cfo("init whole.h5").done();
    assert!(!whole.stderr.contains("warning") && !whole.stdout.contains("warning"), "{whole:?}");
    let half = folder.cfo("init half.h5").done();
    for text in [&half.stderr, &half.stdout] {
        assert!(text.contains("may not determine its velocity") && text.contains("for `x`"), "{half:?}");
    }
    assert!(!half.stdout.contains("follows from the state"), "{}", half.stdout);
    let driven = folder.cfo("init driven.h5").done();
    assert!(driven.stderr.contains("channel `valve` is piecewise constant"), "{}", driven.stderr);
    assert!(!driven.stdout.contains("smoothing = \"auto\""), "{}", driven.stdout);
    let noise = folder.cfo("inspect driven.h5 --json").done().json()["noise"].clone();
    assert_eq!((&noise[2]["stepwise"], &noise[2]["deviation"]), (&true.into(), &0.0.into()), "{noise}");
    assert_eq!(noise[0]["stepwise"], false);
}

#[test]
fn a_single_record_gets_no_time_and_is_told_what_is_held_out() {
    let folder = Folder::new();
    write(&folder.path("one.h5"), &["x", "v"], 1, &every(0.1, 200), |i, t| swing(i, t).to_vec());
    let recipe = folder.cfo("init one.h5 --out own.toml").done();
    assert!(!recipe.stderr.contains("warning"), "{}", recipe.stderr);
    let text = std::fs::read_to_string(folder.path("own.toml")).unwrap();
    assert!(text.contains("time = false"), "{text}");
    let trained = folder.cfo("train own.toml --data one.h5 --out run --set train.steps=5").done();
    let expected =
        "the first 160 snapshots are used for training, the next 20 for validation, the last 20 for the test";
    assert!(trained.stderr.contains(expected), "{}", trained.stderr);
    assert!(!trained.stderr.contains("extrapolate in time"), "{}", trained.stderr);
    let timed = folder
        .cfo("train own.toml --data one.h5 --out timed --set train.steps=5 --set operator.time=true")
        .done();
    assert!(timed.stderr.contains("extrapolate in time"), "{}", timed.stderr);
}

#[test]
fn sparse_times_are_named_by_every_command_that_uses_them() {
    let folder = Folder::new();
    // Two and a half snapshots a period.
    write(&folder.path("sparse.h5"), &["x", "v"], 12, &every(2.5, 30), |i, t| swing(i, t).to_vec());
    std::fs::write(folder.path("recipe.toml"), RECIPE).unwrap();
    let inspected = folder.cfo("inspect sparse.h5 --json").done().json();
    assert_eq!(inspected["sampling"]["verdict"], "too-sparse");
    let init = folder.cfo("init sparse.h5").done();
    let given = folder.cfo("train recipe.toml --data sparse.h5 --out given --set train.steps=2").done();
    let made = folder.cfo("train --data sparse.h5 --out made --set train.steps=2").done();
    for said in [init, given, made] {
        assert!(said.stderr.contains("the times are too sparse"), "{}", said.stderr);
    }
}

/// `cfo init` and `cfo inspect` measure a file in the same way.
#[test]
fn init_and_inspect_agree_on_the_error_of_a_spline() {
    let folder = Folder::new();
    folder.cfo("simulate lorenz --frames 301 --samples 150 --out lorenz.h5").done();
    let inspected = folder.cfo("inspect lorenz.h5 --json").done().json();
    let sampling = &inspected["sampling"];
    let rebuilt = sampling["splines"].as_array().unwrap().iter().find(|one| {
        (&one["spline"], &one["stencil"]) == (&sampling["recommended"], &sampling["recommended_stencil"])
    });
    let error = rebuilt.unwrap()["curve_error"].as_f64().unwrap();
    let recipe = folder.cfo("init lorenz.h5").done().stdout;
    assert!(recipe.contains(&format!("error {error:.1e} of the standard deviation")), "{error:e}\n{recipe}");
}

fn trained() -> Folder {
    let folder = Folder::new();
    folder.cfo("simulate lorenz --frames 41 --horizon 0.4 --samples 30 --out data.h5").done();
    std::fs::write(folder.path("recipe.toml"), RECIPE).unwrap();
    folder.cfo("train recipe.toml --data data.h5 --out run").done();
    folder
}

#[test]
fn a_changed_recipe_of_a_run_is_noticed() {
    let folder = trained();
    let recipe = folder.path("run/recipe.toml");
    let original = std::fs::read_to_string(&recipe).unwrap();
    let untouched = folder.cfo("evaluate run --data data.h5 --json").done();
    assert!(!untouched.stderr.contains("recipe.toml"), "{}", untouched.stderr);
    std::fs::write(&recipe, original.replace("nfe = 0", "nfe = 400")).unwrap();
    let edited = folder.cfo("evaluate run --data data.h5 --json").done();
    assert!(edited.stderr.contains("changed after training (`evaluate.nfe`)"), "{}", edited.stderr);
    assert_eq!(edited.json()["relative_l2"], untouched.json()["relative_l2"]);
    // What decides the network cannot be resumed with, and is named.
    std::fs::write(&recipe, original.replace("hidden = [16, 16]", "hidden = [16, 17]")).unwrap();
    let refused = folder.cfo("train --data data.h5 --out run --resume").ended_with(2);
    assert!(refused.stderr.contains("`operator.hidden`"), "{}", refused.stderr);
    std::fs::remove_file(&recipe).unwrap();
    let deleted = folder.cfo("evaluate run --data data.h5 --json").done();
    assert!(deleted.stderr.contains("missing"), "{}", deleted.stderr);
    let resumed = folder.cfo("train --data data.h5 --out run --resume --set train.steps=80").done();
    assert!(resumed.stderr.contains("the recipe stored in checkpoint `step-60`"), "{}", resumed.stderr);
    assert!(resumed.stderr.contains("training continues with values of `train.steps`"), "{}", resumed.stderr);
    assert_eq!(std::fs::read_to_string(&recipe).unwrap(), original.replace("steps = 60", "steps = 80"));
}

#[test]
fn a_best_checkpoint_that_is_gone_is_not_replaced_by_another() {
    let folder = trained();
    let best = folder.path("run/checkpoints/best");
    std::fs::remove_file(&best).unwrap();
    std::os::unix::fs::symlink("step-7", &best).unwrap();
    let refused = folder.cfo("evaluate run --data data.h5").ended_with(2);
    assert!(refused.stderr.contains("points to a checkpoint that is missing"), "{}", refused.stderr);
    folder.cfo("evaluate run --data data.h5 --checkpoint latest").done();
}

#[test]
fn a_refused_training_leaves_no_folder() {
    let folder = trained();
    folder.cfo("train recipe.toml --data data.h5 --out huge --set train.batch=1000000000").ended_with(2);
    let refused = folder
        .cfo("train recipe.toml --data data.h5 --out huge --set objective=autoregressive")
        .ended_with(2);
    assert!(refused.stderr.contains("`objective.kind = \"autoregressive\"`"), "{}", refused.stderr);
    let refused = folder.cfo("train recipe.toml --data data.h5 --out huge --set train=5").ended_with(2);
    assert!(refused.stderr.contains("`train` has keys"), "{}", refused.stderr);
    assert!(!folder.path("huge").exists());
}

#[test]
fn a_report_that_cannot_be_written_names_the_option() {
    let folder = trained();
    std::fs::write(folder.path("run/evaluation"), "in the way").unwrap();
    let failed = folder.cfo("evaluate run --data data.h5").ended_with(1);
    assert!(failed.stdout.contains("relative L2 error"), "{}", failed.stdout);
    assert!(failed.stderr.contains("hint: `--out DIR`"), "{}", failed.stderr);
    folder.cfo("evaluate run --data data.h5 --out elsewhere").done();
}

/// The errors of each channel, computed here from predictions at the times of the data.
#[test]
fn errors_of_each_channel_are_relative_to_its_own_deviation() {
    let folder = Folder::new();
    let state = |i: usize, t: f64| vec![1e3 * swing(i, t)[0], 1e-3 * swing(i, t)[1], 5.0];
    write(&folder.path("data.h5"), &["large", "small", "constant"], 10, &every(0.1, 40), state);
    std::fs::write(folder.path("recipe.toml"), RECIPE).unwrap();
    folder.cfo("train recipe.toml --data data.h5 --out run").done();
    let found = folder.cfo("evaluate run --data data.h5 --split all --json").done().json();
    folder.cfo("predict run --initial data.h5 --split all --times 0:3.9:40 --out p.h5").done();
    let open = |name: &str| TrajectoryFile::open(folder.path(name)).unwrap();
    let (predicted, truth) = (open("p.h5"), open("data.h5"));
    for channel in 0..3 {
        let (mut errors, mut values) = (0.0, Vec::new());
        for trajectory in 0..10 {
            let [p, q] = [&predicted, &truth].map(|file| file.trajectory(trajectory).unwrap().values);
            // The first snapshot is given.
            for (p, q) in p.iter().zip(&q).skip(3 + channel).step_by(3) {
                errors += f64::from(p - q).powi(2);
                values.push(f64::from(*q));
            }
        }
        let count = values.len() as f64;
        let mean = values.iter().sum::<f64>() / count;
        let deviation = (values.iter().map(|value| (value - mean).powi(2)).sum::<f64>() / count).sqrt();
        let report = &found["channels"][channel];
        let near = |key: &str, expected: f64| {
            let found = report[key].as_f64().unwrap();
            // Predictions in another batch differ in their last digits.
            assert!((found - expected).abs() <= 1e-3 * expected.abs(), "{key}: {found} for {expected}");
        };
        near("rmse", (errors / count).sqrt());
        if channel < 2 {
            near("deviation", deviation);
            near("relative", (errors / count).sqrt() / deviation);
        } else {
            assert!(report["relative"].is_null() && report["deviation"] == 0.0, "{report}");
        }
    }
    let text = folder.cfo("evaluate run --data data.h5 --split all").done().stdout;
    assert!(text.contains("`small`: error relative to its standard deviation of 1.057e-3"), "{text}");
    assert!(text.contains("`constant`: root mean square error; the channel is constant"), "{text}");
}
