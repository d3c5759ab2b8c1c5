use std::path::Path;
use std::process::Command;

use serde_json::Value;

use crate::util::{Folder, Outcome};

/// Runs `scripts/paper_queue.py` in a folder; `None` without Python 3.11.
fn queue(folder: &Folder, arguments: &[&str]) -> Option<Outcome> {
    script(folder, "paper_queue.py", arguments)
}

/// The table that `scripts/results.py` prints of a queue's results.
fn table(folder: &Folder) -> String {
    script(folder, "results.py", &["print", "out/figures.jsonl"]).unwrap().stdout
}

fn script(folder: &Folder, name: &str, arguments: &[&str]) -> Option<Outcome> {
    let python = std::env::var("CFO_PYTHON").unwrap_or_else(|_| "python3".into());
    let able = Command::new(&python).args(["-c", "import tomllib"]).output();
    if !able.is_ok_and(|output| output.status.success()) {
        assert!(std::env::var_os("CI").is_none(), "the checks need Python 3.11");
        println!("skipped: `{python}` is not Python 3.11");
        return None;
    }
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scripts").join(name);
    Some(folder.run(Command::new(&python).arg(script).args(arguments), name).done())
}

fn figures(folder: &Folder) -> Vec<Value> {
    let text = std::fs::read_to_string(folder.path("out/figures.jsonl")).unwrap_or_default();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// A queue keeps what is done when it ends early, does the rest when started again, and nothing twice.
#[test]
fn a_queue_goes_on_where_it_stopped() {
    let folder = Folder::new();
    let mut words =
        vec!["run", "--cfo", env!("CARGO_BIN_EXE_cfo"), "--out", "out", "--device", "cpu", "--commit", "abc"];
    for set in ["data.split=[4,1,2]", "train.steps=20", "train.batch=8"] {
        words.extend(["--set", set]);
    }
    words.extend(["--simulate", "lorenz=--frames 21", "--seeds", "2", "--side-by-side", "2", "--cells"]);
    let first = [words.clone(), vec!["lorenz/paper/cfo-quintic-25/0"]].concat();
    let Some(outcome) = queue(&folder, &first) else { return };
    assert!(outcome.stdout.contains("1 of 1 cells are done"), "{}", outcome.stdout);
    let done = figures(&folder);
    for key in ["relative_l2", "std_trajectories", "final_time", "ms_per_step", "wall_seconds", "paper"] {
        assert!(done[0][key].as_f64().is_some_and(|number| number > 0.0), "{key} of {}", done[0]);
    }
    let all = [words.clone(), vec!["lorenz/paper/cfo-quintic-25/*", "lorenz/ours/*-change/0"]].concat();
    queue(&folder, &[all.clone(), vec!["--minutes", "0"]].concat()).unwrap();
    assert_eq!(figures(&folder).len(), 1, "no time, no cell");
    queue(&folder, &all).unwrap();
    let again = queue(&folder, &all).unwrap();
    assert!(again.stdout.contains("3 of 3 cells are done;"), "{}", again.stdout);
    let done = figures(&folder);
    let cells: Vec<&str> = done.iter().filter_map(|line| line["cell"].as_str()).collect();
    assert_eq!(cells.len(), 3, "{cells:?}");
    let table = table(&folder);
    for words in ["6.82e-2", "over 2 seeds", "autoregressive-mlp-change", "| abc |"] {
        assert!(table.contains(words), "`{words}` is missing in\n{table}");
    }
}

/// A key that is set holds for the chosen cells, whatever recipes of others make of it, and what is trained by it has a row of its own.
#[test]
fn a_key_is_set_for_the_chosen_cells() {
    let folder = Folder::new();
    let words =
        ["run", "--cfo", env!("CARGO_BIN_EXE_cfo"), "--out", "out", "--device", "cpu", "--commit", "abc"];
    let small =
        "--set data.split=[4,1,2] --set train.steps=20 --set train.batch=8 --simulate lorenz=--frames\t21";
    let small: Vec<String> = small.split(' ').map(|word| word.replace('\t', " ")).collect();
    let small: Vec<&str> = small.iter().map(String::as_str).collect();
    let cells = ["--cells", "lorenz/paper/cfo-quintic-50/0"];
    if queue(&folder, &[&words[..], &small, &cells].concat()).is_none() {
        return;
    }
    // Our recipe of shallow water has no time as an input and refuses a clock.
    let clock = [&words[..], &small, &["--set", "path.clock=0.1"], &cells].concat();
    let outcome = queue(&folder, &clock).unwrap();
    assert!(outcome.stdout.contains("1 of 1 cells are done"), "{}", outcome.stdout);
    let done = figures(&folder);
    assert_eq!((done.len(), done[1]["steps"].as_u64()), (2, Some(20)), "{done:?}");
    assert!(done[0]["relative_l2"] != done[1]["relative_l2"], "{done:?}");
    let table = table(&folder);
    assert!(
        table
            .contains("| cfo-quintic-50, `data.split=[4,1,2] path.clock=0.1 train.batch=8 train.steps=20` |"),
        "{table}"
    );
}

/// Cells of other targets, and a training that is stopped in time: it is evaluated, and its line says how far it came.
#[test]
fn a_long_training_is_stopped_and_evaluated() {
    let folder = Folder::new();
    let words =
        ["run", "--cfo", env!("CARGO_BIN_EXE_cfo"), "--out", "out", "--device", "cpu", "--commit", "abc"];
    let small = ["--set", "data.split=[4,1,2]", "--set", "train.batch=8", "--simulate", "lorenz=--frames 21"];
    let chosen =
        ["--targets", "baselines", "--limit", "*/neural-ode/*=3", "--cells", "lorenz/paper/neural-ode/0"];
    let Some(outcome) = queue(&folder, &[&words[..], &small, &chosen].concat()) else { return };
    let done = figures(&folder);
    assert_eq!(done.len(), 1, "{}", outcome.stdout);
    let (steps, of) = (done[0]["steps_done"].as_u64().unwrap(), done[0]["steps"].as_u64().unwrap());
    assert!(done[0]["stopped"] == true && 0 < steps && steps < of, "{}", done[0]);
    let table = table(&folder);
    assert!(table.contains("neural-ode") && table.contains(&format!("Stopped after {steps} of ")), "{table}");
}

/// When time is up a training that is done is still evaluated: its work would be lost on a machine that goes back.
#[test]
fn an_evaluation_comes_to_its_end_when_time_is_up() {
    use std::os::unix::fs::PermissionsExt;

    let folder = Folder::new();
    let slow = folder.path("cfo");
    let script =
        format!("#!/bin/sh\n[ \"$1\" = evaluate ] && sleep 9\nexec '{}' \"$@\"\n", env!("CARGO_BIN_EXE_cfo"));
    std::fs::write(&slow, script).unwrap();
    std::fs::set_permissions(&slow, std::fs::Permissions::from_mode(0o755)).unwrap();
    let mut words = vec!["run", "--cfo", slow.to_str().unwrap(), "--out", "out", "--device", "cpu"];
    for set in ["data.split=[4,1,2]", "train.steps=20", "train.batch=8"] {
        words.extend(["--set", set]);
    }
    words.extend(["--simulate", "lorenz=--frames 21", "--minutes", "0.15"]);
    words.extend(["--cells", "lorenz/paper/cfo-quintic-25/0"]);
    let Some(outcome) = queue(&folder, &words) else { return };
    assert!(outcome.stdout.contains("time is up"), "{}", outcome.stdout);
    assert_eq!(figures(&folder).len(), 1, "{}", outcome.stdout);
}
