//! Users' data of many kinds, made by SciPy: `init`, `train`, `evaluate` and `predict` against the clean solution, with few
//! trajectories and steps. `scripts/own_data_check.py` without `--small` checks the defaults against their goals.

use std::process::Command;

use crate::util::Folder;

/// Trains on a kind of data by the recipe for it, less of it, and compares predictions with the solution.
#[track_caller]
fn holds(kind: &str, less: &[&str], bound: f64) {
    let python = std::env::var("CFO_PYTHON").unwrap_or_else(|_| "python3".into());
    let found = Command::new(&python).args(["-c", "import numpy, scipy, h5py"]).output();
    if !found.is_ok_and(|output| output.status.success()) {
        assert!(std::env::var_os("CI").is_none(), "the checks need NumPy, SciPy and h5py");
        println!("skipped: `{python}` has no NumPy, SciPy and h5py");
        return;
    }
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/../../scripts/own_data_check.py");
    let bound = bound.to_string();
    let mut words = vec![script, "--cfo", env!("CARGO_BIN_EXE_cfo"), "--small", "--bound", &bound];
    for set in less {
        words.extend(["--set", set]);
    }
    words.push(kind);
    let folder = Folder::new();
    let checked = folder.run(Command::new(&python).args(words), kind).done();
    println!("{}", checked.stdout);
}

/// About a tenth of what `cfo init` chooses: the bounds are looser than the goals by what that costs.
const SYSTEM: &[&str] = &["train.steps=1000", "train.batch=256"];
const LINE: &[&str] = &["train.steps=500", "operator.width=24"];
const PLANE: &[&str] = &["train.steps=600", "operator.width=16", "operator.blocks=3"];

#[test]
fn ragged_trajectories_of_a_system() {
    holds("ragged", SYSTEM, 4e-2);
}

#[test]
fn a_periodic_line() {
    holds("line", LINE, 0.15);
}

#[test]
fn a_line_with_ends() {
    holds("bounded", LINE, 0.2);
}

#[test]
fn a_plane_of_odd_sides() {
    holds("plane", PLANE, 0.4);
}

#[test]
fn noise_of_five_percent() {
    holds("noisy", SYSTEM, 0.15);
}

#[test]
fn parameters_of_each_trajectory() {
    holds("parameters", SYSTEM, 6e-2);
}

#[test]
fn a_driven_system() {
    // The time is one more input to learn from.
    holds("forced", &["train.steps=2500", "train.batch=256"], 6e-2);
}

#[test]
fn a_measured_force() {
    holds("controls", &["train.steps=2000", "train.batch=256"], 6e-2);
}

#[test]
fn a_conductivity_that_differs_from_place_to_place() {
    holds("conductivity", PLANE, 0.3);
}

#[test]
fn start_times_of_their_own() {
    holds("starts", SYSTEM, 3e-2);
}

#[test]
fn times_that_a_solver_chose() {
    // Firing is fast and has little of the time; few trajectories show it.
    holds("adaptive", &["train.steps=2500", "train.batch=256"], 0.25);
}
