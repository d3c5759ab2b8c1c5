//! The life of a run: begun, killed, gone on with, finished, tuned, and never written by two at a time.

use std::path::Path;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use crate::util::Folder;

const RECIPE: &str = "[operator]\nkind = \"mlp\"\nhidden = [16, 16]\ntime = false\n\
    [train]\nsteps = 120\nbatch = 64\nlearning_rate = 3e-3\nreport_every = 20\nvalidate_every = 60\ncheckpoint_every = 20\n";

fn prepared() -> Folder {
    let folder = Folder::new();
    folder.cfo("simulate lorenz --frames 41 --horizon 0.4 --samples 30 --out data.h5").done();
    std::fs::write(folder.path("recipe.toml"), RECIPE).unwrap();
    folder
}

/// Starts a training that would take very long, and waits for its first checkpoint.
fn under_way(folder: &Folder, line: &str, run: &str) -> Child {
    let mut command = folder.command(&format!("{line} --out {run}"));
    let child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let started = Instant::now();
    let latest = folder.path(run).join("checkpoints/latest/state.json");
    // Not a measurement: far longer than any machine needs.
    while !latest.exists() && started.elapsed() < Duration::from_secs(60) {
        std::thread::sleep(Duration::from_millis(5));
    }
    assert!(latest.exists(), "no checkpoint of `cfo {line}` after a minute");
    child
}

fn end(mut child: Child) {
    child.kill().unwrap();
    child.wait().unwrap();
}

fn read(path: impl AsRef<Path>) -> Vec<u8> {
    std::fs::read(path).unwrap()
}

#[test]
fn a_folder_is_trained_in_by_one_at_a_time() {
    let folder = prepared();
    let line = "train recipe.toml --data data.h5 --set train.steps=100000000 --set train.validate_every=0";
    let first = under_way(&folder, line, "run");
    let before = read(folder.path("run/recipe.toml"));
    let second = "train recipe.toml --data data.h5 --out run --resume --set train.steps=7";
    let refused = folder.cfo(second).ended_with(2);
    assert!(refused.stderr.contains(&format!("process {} on ", first.id())), "{}", refused.stderr);
    assert!(refused.stderr.contains("hint: wait"), "{}", refused.stderr);
    assert_eq!(read(folder.path("run/recipe.toml")), before);
    end(first);
    // The lock died with its process.
    folder.cfo(second).done();
}

#[test]
fn a_finished_run_is_called_finished_and_left_alone() {
    let folder = prepared();
    let line = "train recipe.toml --data data.h5 --out run";
    let trained = folder.cfo(&format!("{line} --json")).done().json();
    assert_eq!(trained["ending"], "complete");
    let files = ["recipe.toml", "metrics.jsonl", "checkpoints/latest/weights.safetensors"];
    let before = files.map(|file| read(folder.path("run").join(file)));
    for more in ["", " --set train.steps=60"] {
        let again = folder.cfo(&format!("{line} --resume{more}")).done();
        assert!(again.stdout.contains("already finished after 120 steps"), "{}", again.stdout);
        assert!(!again.stdout.contains("NaN"), "{}", again.stdout);
        let again = folder.cfo(&format!("{line} --resume{more} --json")).done().json();
        assert_eq!((&again["ending"], &again["steps"]), (&"finished-earlier".into(), &120.into()));
        assert_eq!(again["loss"], trained["loss"]);
        assert_eq!(files.map(|file| read(folder.path("run").join(file))), before);
    }
    let more = folder.cfo(&format!("{line} --resume --set train.steps=180 --json")).done().json();
    assert_eq!((&more["ending"], &more["steps"]), (&"complete".into(), &180.into()));
}

#[test]
fn resuming_starts_what_was_not_begun() {
    let folder = prepared();
    folder.cfo("train recipe.toml --data data.h5 --out whole").done();
    // What a kill before the first checkpoint leaves.
    std::fs::create_dir(folder.path("run")).unwrap();
    std::fs::copy(folder.path("whole/recipe.toml"), folder.path("run/recipe.toml")).unwrap();
    folder.cfo("train recipe.toml --data data.h5 --out run --resume").done();
    folder.cfo("train recipe.toml --data data.h5 --out new --resume").done();
    let weights = |run: &str| read(folder.path(run).join("checkpoints/latest/weights.safetensors"));
    assert!(weights("run") == weights("whole") && weights("new") == weights("whole"));
}

/// However rare the recipe's checkpoints are, little of the beginning is lost; and the early one changes no bit.
#[test]
fn the_first_checkpoint_does_not_wait_for_the_recipe() {
    let folder = prepared();
    let rare = "train recipe.toml --data data.h5 --set train.checkpoint_every=0 --set train.validate_every=0 \
        --set train.report_every=0";
    end(under_way(&folder, &format!("{rare} --set train.steps=100000000"), "run"));
    let reached = std::fs::read_link(folder.path("run/checkpoints/latest")).unwrap();
    let reached: u32 = reached.to_str().unwrap().strip_prefix("step-").unwrap().parse().unwrap();
    let steps = format!("--set train.steps={}", reached + 50);
    folder.cfo(&format!("{rare} {steps} --out run --resume")).done();
    folder.cfo(&format!("{rare} {steps} --out whole")).done();
    let weights = |run: &str| read(folder.path(run).join("checkpoints/latest/weights.safetensors"));
    assert!(weights("run") == weights("whole"), "resumed at step {reached}");
}

#[test]
fn another_runs_weights_are_a_start() {
    let folder = prepared();
    folder.cfo("simulate lorenz --frames 41 --horizon 0.4 --samples 20 --seed 7 --out new.h5").done();
    folder
        .cfo("train recipe.toml --data data.h5 --out base --set train.steps=1500 --set train.ema=0.9")
        .done();
    let line = "train recipe.toml --data new.h5 --set train.steps=20 --set train.learning_rate=1e-4 --json";
    let fresh = folder.cfo(&format!("{line} --out fresh")).done().json();
    let tuned = folder.cfo(&format!("{line} --out tuned --from base")).done().json();
    let loss = |report: &serde_json::Value| report["loss"].as_f64().unwrap();
    assert!(loss(&tuned) < 0.2 * loss(&fresh), "{tuned} {fresh}");
    let recipe = String::from_utf8(read(folder.path("tuned/recipe.toml"))).unwrap();
    assert!(recipe.contains("from = \"base\""), "{recipe}");
    // The recipe repeats the run without the option.
    let again = folder.cfo("train tuned/recipe.toml --out again --json").done().json();
    assert_eq!(again["loss"], tuned["loss"]);
    for (change, parts) in [
        (
            "operator.hidden=[16,8]",
            ["`hidden.1.weight` is [16, 16] there and [16, 8] here", "hint: use the `[operator]`"],
        ),
        (
            "operator.hidden=[16,16,16]",
            ["it has no `hidden.2.weight`", "`[operator]` section of `base/recipe.toml`"],
        ),
        ("operator.hidden=[16]", ["it also has `hidden.1.weight`", "do not fit this network"]),
    ] {
        let outcome = folder.cfo(&format!("{line} --out odd --from base --set {change}")).ended_with(2);
        assert!(parts.iter().all(|part| outcome.stderr.contains(part)), "{change}: {}", outcome.stderr);
    }
    let nothing = folder.cfo(&format!("{line} --out odd --from nothing")).ended_with(2);
    assert!(nothing.stderr.contains("no checkpoint"), "{}", nothing.stderr);
}

/// Weights that do not move have a validation error that does not fall.
#[test]
fn patience_ends_a_training_that_learns_no_more() {
    let folder = prepared();
    let line = "train recipe.toml --data data.h5 --out run --set train.learning_rate=1e-30 --set train.validate_every=20 \
        --set train.steps=1000";
    let ended = folder.cfo(&format!("{line} --set train.patience=3 --json")).done().json();
    assert_eq!((&ended["ending"], &ended["steps"]), (&"patience".into(), &80.into()));
    let again = folder.cfo(&format!("{line} --set train.patience=3 --resume")).done();
    assert!(again.stdout.contains("already finished after 80 steps"), "{}", again.stdout);
    let more = folder.cfo(&format!("{line} --set train.patience=5 --resume")).done();
    assert!(more.stdout.contains("120 steps") && more.stdout.contains("`train.patience`"), "{}", more.stdout);
}

#[test]
fn a_rate_that_diverges_at_once_is_halved_and_said() {
    let folder = prepared();
    let line = "train recipe.toml --data data.h5 --set train.report_every=10";
    let saved = folder.cfo(&format!("{line} --out run --set train.learning_rate=6")).done();
    assert!(saved.stderr.contains("training restarts with 3"), "{}", saved.stderr);
    let log = String::from_utf8(read(folder.path("run/metrics.jsonl"))).unwrap();
    let first: serde_json::Value = serde_json::from_str(log.lines().next().unwrap()).unwrap();
    assert!(first["notice"].as_str().unwrap().contains("training restarts with 3"), "{log}");
    // The halved rate belongs to the run: it is gone on with and finished by the recipe as it was given.
    let again = folder.cfo(&format!("{line} --out run --set train.learning_rate=6 --resume")).done();
    assert!(again.stdout.contains("already finished"), "{}", again.stdout);
    let lost = folder.cfo(&format!("{line} --out lost --set train.learning_rate=1e30")).ended_with(1);
    assert!(lost.stderr.contains("hint: lower `train.learning_rate`"), "{}", lost.stderr);
}

#[test]
fn what_is_not_used_or_does_not_fit_is_said() {
    let folder = prepared();
    let both = "train recipe.toml --data data.h5 --set data.simulate=burgers --out run";
    let said = folder.cfo(both).done().stderr;
    assert!(said.contains("`data.simulate = \"burgers\"` of the recipe is not used"), "{said}");
    for dry in ["", "--dry-run"] {
        let large = "train recipe.toml --data data.h5 --out large --set operator.hidden=[2000000,2000000]";
        let refused = folder.cfo(&format!("{large} {dry}")).ended_with(2);
        assert!(refused.stderr.contains("GiB"), "{}", refused.stderr);
        assert!(refused.stderr.contains("hint: lower the sizes"), "{}", refused.stderr);
    }
}

#[test]
fn a_damaged_checkpoint_says_what_to_do() {
    let folder = prepared();
    folder.cfo("train recipe.toml --data data.h5 --out run").done();
    let state = folder.path("run/checkpoints/latest/state.json");
    let sound = read(&state);
    for garbage in [&b"\xff\xfe\x00garbage"[..], b"{}", b""] {
        std::fs::write(&state, garbage).unwrap();
        let refused = folder.cfo("evaluate run --data data.h5 --checkpoint latest").ended_with(2);
        assert!(refused.stderr.contains("state.json: it is not the state of a run"), "{}", refused.stderr);
        assert!(refused.stderr.contains("hint: "), "{}", refused.stderr);
    }
    std::fs::write(&state, sound).unwrap();
    std::fs::remove_file(folder.path("run/checkpoints/latest/weights.safetensors")).unwrap();
    let refused = folder.cfo("evaluate run --data data.h5 --checkpoint latest").ended_with(2);
    assert!(refused.stderr.contains("weights.safetensors: the file is missing"), "{}", refused.stderr);
    assert!(refused.stderr.contains("hint: `cfo train --resume` continues"), "{}", refused.stderr);
    let again = folder.cfo("train recipe.toml --data data.h5 --out run --resume").done();
    assert!(again.stderr.contains("warning: "), "{}", again.stderr);
}
