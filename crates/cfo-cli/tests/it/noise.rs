//! Learning from snapshots with noise: what is predicted is compared with the truth without it.

use cfo_data::store::{TrajectoryWriter, WriteOptions};
use cfo_data::{Description, FieldShape, InputNames, Trajectory};
use cfo_numerics::Philox;

use crate::util::Folder;

/// Hunters and prey after Lotka and Volterra, by Runge-Kutta steps of at most 0.005.
fn lotka_volterra(start: [f64; 2], times: &[f64]) -> Vec<[f64; 2]> {
    let velocity = |[x, y]: [f64; 2]| [1.1 * x - 0.4 * x * y, 0.1 * x * y - 0.4 * y];
    let moved = |[x, y]: [f64; 2], [dx, dy]: [f64; 2], h: f64| [x + h * dx, y + h * dy];
    let mut state = start;
    let mut states = vec![state];
    for pair in times.windows(2) {
        let count = ((pair[1] - pair[0]) / 0.005).ceil();
        let h = (pair[1] - pair[0]) / count;
        for _ in 0..count as usize {
            let a = velocity(state);
            let b = velocity(moved(state, a, h / 2.0));
            let c = velocity(moved(state, b, h / 2.0));
            let d = velocity(moved(state, c, h));
            for k in 0..2 {
                state[k] += h / 6.0 * (a[k] + 2.0 * b[k] + 2.0 * c[k] + d[k]);
            }
        }
        states.push(state);
    }
    states
}

/// Writes 60 trajectories of 60 snapshots at irregular times, with noise of a share of each channel's deviation.
fn write(folder: &Folder, name: &str, share: f64) {
    let description = Description {
        system: "lotka-volterra".into(),
        shape: FieldShape::system(2),
        periodic: vec![],
        domain: vec![],
        channel_names: vec!["prey".into(), "hunters".into()],
        channel_units: vec![],
        inputs: InputNames::default(),
    };
    // Those of the clean values, to two digits.
    let deviation = [3.4, 1.5];
    let mut writer =
        TrajectoryWriter::create(folder.path(name), &description, WriteOptions::default()).unwrap();
    for index in 0..60 {
        let mut random = Philox::new(11, index);
        let start = [random.uniform_between(2.0, 8.0), random.uniform_between(2.0, 8.0)];
        let mut times: Vec<f64> = (0..60).map(|_| random.uniform_between(0.0, 12.0)).collect();
        times[0] = 0.0;
        times.sort_by(f64::total_cmp);
        times.dedup_by(|later, earlier| *later - *earlier < 1e-3);
        let mut noise = Philox::new(12, index);
        let values = lotka_volterra(start, &times)
            .into_iter()
            .flat_map(|state| [0, 1].map(|k| (state[k] + share * deviation[k] * noise.normal()) as f32));
        let values = values.collect();
        writer.push(&Trajectory::new(times, values, vec![]).unwrap(), None).unwrap();
    }
    writer.finish().unwrap();
}

/// With 5 % noise the program finds it, takes it off, and predicts the clean truth to 6 %.
#[test]
fn noisy_data_are_learnt() {
    let folder = Folder::new();
    write(&folder, "clean.npz", 0.0);
    write(&folder, "noisy.npz", 0.05);
    let recipe = "[path]\nstencil = 5\n[operator]\nkind = \"mlp\"\nhidden = [64, 64]\ntime = false\n\
                  [train]\nsteps = 1500\nbatch = 256\nlearning_rate = 3e-3\nschedule = \"cosine\"\nema = 0.99\n\
                  validate_every = 0\n";
    std::fs::write(folder.path("recipe.toml"), recipe).unwrap();
    let train = |smoothing: &str, run: &str| {
        let line =
            format!("train recipe.toml --data noisy.npz --set path.smoothing={smoothing} --out {run} --json");
        folder.cfo(&line).done().json()
    };
    let smooth = train("auto", "smooth");
    let smoothed = smooth["smoothed"].as_array().unwrap();
    assert_eq!(smoothed.len(), 2);
    for channel in smoothed {
        assert!((channel["relative"].as_f64().unwrap() / 0.05 - 1.0).abs() < 0.2, "{channel}");
    }
    let found = folder.cfo("evaluate smooth --data clean.npz --nfe 1600 --json").done().json();
    let error = found["relative_l2"]["mean"].as_f64().unwrap();
    assert!(error < 6e-2, "{error}");
    // The loss is relative to the velocities: without smoothing most of these is noise.
    let rough = train("none", "rough");
    assert_eq!(rough["smoothed"], serde_json::json!([]));
    let [smooth, rough] = [&smooth, &rough].map(|report| report["loss"].as_f64().unwrap());
    assert!(smooth < 0.05 && rough > 0.3, "{smooth} {rough}");
    // Told the noise instead of finding it.
    let line = "train recipe.toml --data noisy.npz --set path.smoothing=0.05 --dry-run";
    assert!(folder.cfo(line).done().stdout.contains("prey 5.0 %, hunters 5.0 %"));
}
