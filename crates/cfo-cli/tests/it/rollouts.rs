//! `predict` and `evaluate` on data that NumPy made, against an exact solution.

use std::io::Write;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::util::Folder;

const RECIPE: &str = "[data]\ncondition = true\n[operator]\nkind = \"mlp\"\nhidden = [64, 64]\nactivation = \"silu\"\n\
    [path]\nstencil = 5\n\
    [train]\nsteps = 1200\nbatch = 256\nlearning_rate = 4e-3\nschedule = \"cosine\"\nvalidate_every = 0\n";

/// The error that the network above reaches is some 5e-3; a wrong start, order or solver makes it larger by far.
const SMALL: f64 = 5e-2;

fn python(folder: &Folder, arguments: &str, input: &Value) -> String {
    std::fs::write(folder.path("forced.py"), include_str!("forced.py")).unwrap();
    let python = std::env::var("CFO_PYTHON").unwrap_or_else(|_| "python3".into());
    let mut child = Command::new(python)
        .arg(folder.path("forced.py"))
        .args(arguments.split_whitespace())
        .current_dir(folder.path("."))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(input.to_string().as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success(), "forced.py {arguments}");
    String::from_utf8(output.stdout).unwrap()
}

/// Whether there is a Python with NumPy; in CI there must be.
fn has_numpy() -> bool {
    let python = std::env::var("CFO_PYTHON").unwrap_or_else(|_| "python3".into());
    let found = Command::new(&python).args(["-c", "import numpy"]).stderr(Stdio::null()).status();
    let found = found.is_ok_and(|status| status.success());
    assert!(found || std::env::var("CI").as_deref() != Ok("true"), "CI needs `CFO_PYTHON` with NumPy");
    if !found {
        eprintln!("skipped: `{python}` has no NumPy; set `CFO_PYTHON`");
    }
    found
}

/// Error of the worst predicted trajectory against the exact solution.
fn error(folder: &Folder, prediction: &str, initial: &str, frame: &str, indices: &Value) -> f64 {
    let line = format!("error {prediction} {initial} {frame}");
    python(folder, &line, indices).trim().parse().unwrap()
}

/// Data and a run trained on them.
fn prepared() -> Option<Folder> {
    if !has_numpy() {
        return None;
    }
    let folder = Folder::new();
    python(&folder, "make own.npz", &Value::Null);
    std::fs::write(folder.path("recipe.toml"), RECIPE).unwrap();
    folder.cfo("train recipe.toml --data own.npz --out run").done();
    Some(folder)
}

/// Every trajectory starts at its own time; which, from which snapshot, when and with which parameters can be said; times lie on both sides.
#[test]
fn predictions_follow_the_exact_solution_from_where_they_start() {
    let Some(folder) = prepared() else { return };
    let predict = |options: &str| {
        let line = format!("predict run --initial own.npz {options} --out p.npz --force --json");
        folder.cfo(&line).done().json()
    };
    let found = predict("--times 2.2:3.4:13 --split test");
    assert_eq!(found["indices"], json!((144..160).collect::<Vec<_>>()));
    // From starts between 0 and 2, each its own.
    let far = error(&folder, "p.npz", "own.npz", "0", &found["indices"]);
    assert!(far < SMALL, "{far}");
    let found = predict("--times 1.0,1.5,2.5,3.0 --trajectory 7 --trajectory 3 --frame 9");
    assert_eq!(found["indices"], json!([7, 3]));
    let both = error(&folder, "p.npz", "own.npz", "9", &found["indices"]);
    assert!(both < SMALL, "{both}");
    std::fs::write(folder.path("times.txt"), "# two\n2.8 3.0\n").unwrap();
    let found = predict("--times @times.txt --trajectory 5 --frame last");
    let back = error(&folder, "p.npz", "own.npz", "23", &found["indices"]);
    // Backward along a decay of rate 3 errors grow.
    assert!(back < 10.0 * SMALL, "{back}");
    let found = predict("--times 1.5:3:7 --trajectory 5 --from 1.25");
    let moved = error(&folder, "p.npz", "own.npz", "0 1.25", &found["indices"]);
    assert!(moved < SMALL, "{moved}");
    let found = predict("--times 2.5,3 --trajectory 5 --trajectory 6 --parameters nu=20,mu=0.75");
    let given = error(&folder, "p.npz", "own.npz", "0", &found["indices"]);
    assert!(given < SMALL, "{given}");
    let beyond = folder
        .cfo("predict run --initial own.npz --times 3 --trajectory 1 --parameters nu=90 --out q.npz")
        .done();
    assert!(beyond.stderr.contains("`nu` is 90"), "{}", beyond.stderr);
    for (options, words) in [
        ("--times 3 --trajectory 160", "0 to 159"),
        ("--times 3 --frame 24", "no snapshot 24"),
        ("--times 3 --parameters kappa=1", "`mu`, `nu`"),
        ("--times 3 --parameters nu", "name=number"),
        ("--times 0,1e300", "times the horizon"),
    ] {
        let line = format!("predict run --initial own.npz {options} --out r.npz");
        let refused = folder.cfo(&line).ended_with(2);
        assert!(refused.stderr.contains(words), "{options}: {}", refused.stderr);
        assert!(!folder.path("r.npz").exists());
    }
}

/// The name of the output says what it is; nothing else is written under it, and nothing of the user's is replaced by mistake.
#[test]
fn the_name_of_a_prediction_says_its_format() {
    let Some(folder) = prepared() else { return };
    let predict = "predict run --initial own.npz --times 2.5,3 --trajectory 1";
    folder.cfo(&format!("{predict} --out p.npz")).done();
    assert_eq!(std::fs::read(folder.path("p.npz")).unwrap()[..4], *b"PK\x03\x04");
    folder.cfo(&format!("{predict} --out p.h5")).done();
    assert_eq!(std::fs::read(folder.path("p.h5")).unwrap()[1..4], *b"HDF");
    for name in ["p.csv", "p", "p.npy"] {
        let refused = folder.cfo(&format!("{predict} --out {name}")).ended_with(2);
        assert!(refused.stderr.contains(".npz"), "{}", refused.stderr);
    }
    let before = std::fs::read(folder.path("own.npz")).unwrap();
    folder.cfo(&format!("{predict} --out own.npz --force")).ended_with(2);
    folder.cfo(&format!("{predict} --out p.npz")).ended_with(2);
    assert!(std::fs::read(folder.path("own.npz")).unwrap() == before);
}

/// Channels and parameters in another order give the same errors; other names are refused, with both lists.
#[test]
fn channels_and_parameters_are_matched_by_name() {
    let Some(folder) = prepared() else { return };
    for kind in ["swapped", "renamed", "unnamed"] {
        python(&folder, &format!("make {kind}.npz {kind}"), &Value::Null);
    }
    let evaluated = |file: &str| folder.cfo(&format!("evaluate run --data {file} --json")).done();
    let own = evaluated("own.npz").json();
    let mean = own["relative_l2"]["mean"].as_f64().unwrap();
    assert!(mean < SMALL, "{mean}");
    let swapped = evaluated("swapped.npz").json();
    assert_eq!(swapped["relative_l2"]["per_trajectory"], own["relative_l2"]["per_trajectory"]);
    let unnamed = evaluated("unnamed.npz");
    assert_eq!(unnamed.json()["relative_l2"]["mean"], own["relative_l2"]["mean"]);
    assert!(unnamed.stderr.contains("in their order"), "{}", unnamed.stderr);
    let found = folder
        .cfo("predict run --initial swapped.npz --times 2.5,3 --split test --out p.npz --json")
        .done()
        .json();
    let predicted = error(&folder, "p.npz", "swapped.npz", "0", &found["indices"]);
    assert!(predicted < SMALL, "{predicted}");
    let refused = folder.cfo("evaluate run --data renamed.npz").ended_with(2);
    assert!(refused.stderr.contains("`x`, `z`") && refused.stderr.contains("`x`, `y`"), "{}", refused.stderr);
}

/// On irregular times the error is the network's, not the solver's, and its course runs over time.
#[test]
fn evaluation_measures_the_network() {
    let Some(folder) = prepared() else { return };
    let found = folder.cfo("evaluate run --data own.npz --json").done().json();
    let fine = folder.cfo("evaluate run --data own.npz --nfe 4000 --json").done().json();
    let mean = |found: &Value| found["relative_l2"]["mean"].as_f64().unwrap();
    let apart = (mean(&found) - mean(&fine)).abs() / mean(&fine);
    assert!(apart < 0.05, "{} and {}", mean(&found), mean(&fine));
    assert_eq!(found["relative_l2"]["indices"], json!((144..160).collect::<Vec<_>>()));
    let times: Vec<f64> =
        found["per_time"].as_array().unwrap().iter().map(|at| at["time"].as_f64().unwrap()).collect();
    assert!(times.len() > 10 && times.windows(2).all(|pair| pair[1] > pair[0]), "{times:?}");
    for (solver, stages) in [("euler", 1), ("heun", 2), ("rk4", 4), ("dopri5", 7), ("tsit5", 7)] {
        for nfe in [12, 96] {
            let line = format!("evaluate run --data own.npz --solver {solver} --nfe {nfe} --json");
            let evaluations = folder.cfo(&line).done().json()["evaluations"].as_u64().unwrap();
            // The longest test trajectory is somewhat shorter than the horizon of the training data.
            let is_share = evaluations <= nfe && evaluations + stages > nfe * 3 / 4;
            assert!(is_share, "{solver}: {evaluations} of {nfe}");
        }
    }
    folder.cfo("evaluate run --data own.npz --solver heun --rtol 1e-3 --precision f32 --json").done();
    let refused = folder.cfo("evaluate run --data own.npz --precision f8 --json").ended_with(2);
    assert!(refused.json()["error"].as_str().unwrap().contains("--precision"), "{}", refused.stdout);
}

/// One trajectory that diverges is named by its index in the file; the others are evaluated and predicted, and the exit code says so.
#[test]
fn a_diverging_trajectory_is_null_and_the_rest_is_reported() {
    let Some(folder) = prepared() else { return };
    python(&folder, "make wild.npz wild", &Value::Null);
    for solver in ["rk4", "dopri5"] {
        let ended =
            folder.cfo(&format!("evaluate run --data wild.npz --solver {solver} --json")).ended_with(1);
        let found = ended.json();
        let errors = found["relative_l2"]["per_trajectory"].as_array().unwrap();
        assert!(errors[150 - 144].is_null());
        assert_eq!(errors.iter().filter(|error| error.is_null()).count(), 1);
        assert_eq!(found["diverged"][0]["trajectory"], 150);
        assert!(errors[0].as_f64().unwrap() < SMALL && found["relative_l2"]["mean"].is_f64());
        assert!(ended.stderr.contains("trajectory 150"), "{}", ended.stderr);
        assert!(ended.stderr.contains("`nu` is "), "{}", ended.stderr);
        assert!(folder.path("run/evaluation/report.json").exists());
    }
    let ended = folder
        .cfo("predict run --initial wild.npz --times 2.5,3 --trajectory 149 --trajectory 150 --out p.npz --json")
        .ended_with(1);
    assert_eq!(ended.json()["diverged"][0]["trajectory"], 150);
    let seen = folder.cfo("inspect p.npz --json").done().json();
    assert_eq!((seen["trajectories"].as_u64(), seen["finite"].as_bool()), (Some(2), Some(true)));
}

/// Whatever goes wrong, `--json` has a document on stdout and the exit code is that of the error.
#[test]
fn errors_are_json_where_that_was_asked_for() {
    let folder = Folder::new();
    std::fs::write(folder.path("recipe.toml"), "[train]\nstpes = 3\n").unwrap();
    for line in [
        "inspect none.h5 --json",
        "train recipe.toml --json",
        "evaluate none --data none.h5 --json",
        "predict none --initial none.h5 --times 0 --out p.h5 --json",
        "predict none --initial none.h5 --times a --out p.h5 --json",
        "simulate lorenz --frames 1 --out a.h5 --json",
        "simulate lorenz --out a.txt --json",
        "bench forward --precision f8 --json",
        "inspect --json",
        "devices --json --no-such-option",
    ] {
        let refused = folder.cfo(line).ended_with(2);
        let document = refused.json();
        assert!(!document["error"].as_str().unwrap().is_empty(), "{line}");
        assert!(document.get("hint").is_some(), "{line}");
        assert!(refused.stderr.contains("error: "), "{line}: {}", refused.stderr);
    }
}

/// Figures that cannot be written do not swallow the numbers.
#[test]
fn a_report_that_cannot_be_written_is_still_printed() {
    let Some(folder) = prepared() else { return };
    std::fs::write(folder.path("taken"), "a file").unwrap();
    let ended = folder.cfo("evaluate run --data own.npz --out taken/report --json").ended_with(2);
    assert!(ended.json()["relative_l2"]["mean"].as_f64().unwrap() < SMALL);
    assert!(ended.stderr.contains("writing the report"), "{}", ended.stderr);
}

/// SIGTERM ends a rollout between two steps, wherever it runs.
#[test]
fn a_rollout_is_interrupted_within_a_second_or_two() {
    let Some(folder) = prepared() else { return };
    let endless =
        "predict run --initial own.npz --times 3:20000:2000000 --trajectory 1 --solver rk4 --out p.h5";
    let mut child = folder.command(endless).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    std::thread::sleep(Duration::from_millis(1500));
    assert!(child.try_wait().unwrap().is_none(), "it had ended before it was interrupted");
    let asked = Instant::now();
    let killed = Command::new("kill").args(["-TERM", &child.id().to_string()]).status().unwrap();
    assert!(killed.success());
    let status = child.wait().unwrap();
    // A second on a machine of its own; tests share theirs.
    assert!(asked.elapsed() < Duration::from_secs(5), "{:?}", asked.elapsed());
    assert_eq!(status.code(), Some(1));
    assert!(!folder.path("p.h5").exists());
}
