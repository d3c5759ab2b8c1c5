//! float64 channels whose mean is large compared to their variation, from file to prediction.

use std::process::Command;

use crate::util::{Folder, python};

/// Writes files of identical oscillations with and without large constants, in both containers and precisions.
fn files() -> Option<Folder> {
    let folder = Folder::new();
    let script = "import numpy as np, h5py
r = np.random.default_rng(1)
t = np.sort(r.uniform(0, 8, (60, 60)), 1); t[:, 0] = 0
p, a = r.uniform(0, 6.28, (60, 1)), r.uniform(.5, 1.5, (60, 1))
v = np.stack([a * np.cos(t + p), -0.02 * a * np.sin(t + p)], -1)
o = v + [1e9, 101325]
np.savez('plain.npz', times=t, values=v)
np.savez('offset.npz', times=t, values=o)
with h5py.File('offset.h5', 'w') as f: f['times'] = t; f['values'] = o
np.savez('shifted.npz', times=t, values=v[..., ::-1] + [101325.5, 1e9 + 3], channel_names=['p', 'u'])
np.savez('single.npz', times=t, values=o.astype('f4'))
v[3, 4, 0] = 1e300
np.savez('huge.npz', times=t, values=v)
v[..., 0], v[..., 1] = 0.1, 1e9 + 0.5
np.savez('constant.npz', times=t, values=v)
";
    folder.run(Command::new(python()?).args(["-c", script]), "python").done();
    Some(folder)
}

const KEYS: &str = "--set operator.hidden=[32,32] --set train.steps=200 --set train.batch=128 --set train.learning_rate=4e-3 \
                    --set path.spline=quintic --set path.stencil=5 --device cpu";

fn number(value: &serde_json::Value) -> f64 {
    value.as_f64().unwrap()
}

/// Runs a Python script and parses the numbers that it prints.
fn said(folder: &Folder, script: &str) -> Vec<f64> {
    let python = python().unwrap();
    let script = format!("import numpy as np, h5py\n{script}");
    let said = folder.run(Command::new(python).args(["-c", &script]), "python").done().stdout;
    said.split_whitespace().map(|word| word.parse().unwrap()).collect()
}

#[test]
fn a_large_constant_changes_nothing() {
    let Some(folder) = files() else { return };
    let inspected = folder.cfo("inspect offset.npz --json").done().json();
    let plain = folder.cfo("inspect plain.npz --json").done().json();
    for (channel, offset) in [1e9, 101_325.0].into_iter().enumerate() {
        let of = |report: &serde_json::Value, key: &str| number(&report["values"][channel][key]);
        // Sums of a few thousand single numbers of the deviation's size.
        assert!((of(&inspected, "deviation") / of(&plain, "deviation") - 1.0).abs() < 1e-5);
        assert!((of(&inspected, "mean") - offset - of(&plain, "mean")).abs() < 1e-6);
        assert!((of(&inspected, "max") - offset - of(&plain, "max")).abs() < 1e-6);
    }
    assert_eq!(inspected["warnings"], serde_json::json!([]));
    assert_eq!(inspected["sampling"]["recommended"], plain["sampling"]["recommended"]);
    let mut errors = Vec::new();
    for data in ["plain.npz", "offset.npz", "offset.h5"] {
        let streamed = if data == "offset.h5" { "--set data.stream=true" } else { "" };
        let run = data.replace('.', "-");
        folder.cfo(&format!("train --data {data} --out {run} {KEYS} {streamed}")).done();
        let found = folder.cfo(&format!("evaluate {run} --data {data} --device cpu --json")).done().json();
        errors.push((number(&found["metrics"]["rmse"]), number(&found["relative_l2"]["mean"])));
    }
    let [(plain, relative), (archive, small), (hdf5, _)] = errors[..] else { panic!("{errors:?}") };
    // The constants are subtracted to the last digit but one of float64, 1e-7 of 1e9.
    assert!((archive / plain - 1.0).abs() < 1e-3 && (hdf5 / plain - 1.0).abs() < 1e-3, "{errors:?}");
    assert!((small * 1e9 / relative) < 2.0 && small > 0.0, "relative to the states: {errors:?}");
}

#[test]
fn predictions_keep_the_digits() {
    let Some(folder) = files() else { return };
    for data in ["plain", "offset"] {
        folder.cfo(&format!("train --data {data}.npz --out {data} {KEYS}")).done();
        for out in ["h5", "npz"] {
            folder
                .cfo(&format!("predict {data} --initial {data}.npz --times 0:7:5 --out {data}-p.{out}"))
                .done();
        }
        folder.cfo(&format!("export {data}.npz --out {data}-e.h5")).done();
    }
    let lost = folder.cfo("export offset.npz --out offset.nc").done().stderr;
    assert!(
        lost.contains("left out: small variations of channels") && lost.contains("`npz` keep them"),
        "{lost}"
    );
    let far = said(
        &folder,
        "p, q, h = np.load('offset-p.npz')['values'], np.load('plain-p.npz')['values'], h5py.File('offset-p.h5')['values'][...]
assert p.dtype == h.dtype == np.float64 and q.dtype == np.float32
e, o = h5py.File('offset-e.h5')['values'][...], np.load('offset.npz')['values']
print(*np.abs(p - [1e9, 101325] - q).max((0, 1)), np.abs(p - h).max(), *np.abs(p[:, 0] - o[:, 0]).max(0), *np.abs(e - o).max((0, 1)))",
    );
    // Of the spread 1 and 0.02, and of what float64 keeps of 1e9; what was trained differs by rounding.
    for (found, most) in far.iter().zip([1e-3, 2e-5, 0.0, 3e-7, 3e-9, 3e-7, 3e-9]) {
        assert!(*found <= most, "{far:?}");
    }
}

/// A file with other means and another channel order is read with the model's offsets.
#[test]
fn other_files_are_read_about_the_models_offset() {
    let Some(folder) = files() else { return };
    let named = "np.savez('named.npz', channel_names=['u', 'p'], **{k: np.load('offset.npz')[k] for k in ('times', 'values')})";
    said(&folder, named);
    folder.cfo(&format!("train --data named.npz --out run {KEYS}")).done();
    folder.cfo("predict run --initial shifted.npz --times 0,1e-9 --out p.npz").done();
    let far = said(
        &folder,
        "print(*np.abs(np.load('p.npz')['values'][:, 0] - np.load('shifted.npz')['values'][:, 0]).max(0))",
    );
    // Single precision of numbers of size 4 about the model's offset.
    assert!(far[0] < 1e-6 && far[1] < 1e-6, "{far:?}");
}

#[test]
fn what_single_precision_cannot_keep_is_said() {
    let Some(folder) = files() else { return };
    let warnings = folder.cfo("inspect single.npz --json").done().json()["warnings"].to_string();
    assert!(
        warnings.contains("channel `1` varies by") && warnings.contains("store it as float64"),
        "{warnings}"
    );
    let trained = folder.cfo(&format!("train --data single.npz --out run {KEYS} --json")).done();
    assert!(trained.json()["warnings"].to_string().contains("channel `1` varies by"), "{}", trained.stdout);
    assert!(trained.stderr.contains("channel `1` varies by"), "{}", trained.stderr);
    let refused = folder.cfo("train --data huge.npz --out other").ended_with(2).stderr;
    assert!(refused.contains("is 1e300; after subtraction of the channel's mean"), "{refused}");
    assert!(refused.contains("use other units for the channel"), "{refused}");
    assert!(!refused.contains("inf"), "{refused}");
    let constant = folder.cfo("inspect constant.npz --json").done().json();
    for (channel, value) in [0.1, 1e9 + 0.5].into_iter().enumerate() {
        assert_eq!(constant["values"][channel]["deviation"], 0.0, "{constant}");
        // A small constant is rounded to single precision: by 2^-24 of its size at most.
        let mean = number(&constant["values"][channel]["mean"]);
        assert!((mean - value).abs() <= f64::from(f32::EPSILON) / 2.0 * value, "{constant}");
    }
}
