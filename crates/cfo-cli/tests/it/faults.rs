//! Trainings that fail or come to nothing: what they say, and that nothing is trained on what it should not be.

use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::util::{Folder, Outcome};

const RECIPE: &str = "[operator]\nkind = \"mlp\"\nhidden = [16, 16]\ntime = false\n\
    [train]\nsteps = 20\nbatch = 64\nlearning_rate = 3e-3\nreport_every = 10\nvalidate_every = 0\ncheckpoint_every = 10\n";

fn prepared(name: &str) -> Folder {
    let folder = Folder::new();
    folder.cfo(&format!("simulate lorenz --frames 21 --horizon 0.2 --samples 10 --out {name}")).done();
    std::fs::write(folder.path("recipe.toml"), RECIPE).unwrap();
    folder
}

/// A loss above that of predicting no change is told where the result is, and nowhere else.
#[test]
fn a_training_that_learned_nothing_says_so() {
    let folder = prepared("data.h5");
    let train = |run: &str, keys: &str| {
        folder.cfo(&format!("train recipe.toml --data data.h5 --device cpu --out {run} --json {keys}")).done()
    };
    let nothing = train("nothing", "--set train.steps=1 --set train.learning_rate=1e-12");
    let document = nothing.json();
    // Weights as they were drawn give velocities that do not fit the data: their squares add up.
    assert!(document["loss"].as_f64().unwrap() > 1.0, "{document}");
    let warning = document["warnings"][0].as_str().unwrap();
    assert!(warning.contains("predicts no change"), "{warning}");
    assert!(nothing.stderr.contains(warning), "{}", nothing.stderr);
    let learned = train("learned", "--set train.steps=200");
    assert!(learned.json()["loss"].as_f64().unwrap() < 1.0);
    assert_eq!(learned.json()["warnings"], serde_json::json!([]));
    assert!(!learned.stderr.contains("warning"), "{}", learned.stderr);
}

/// The advice names the learning rate where something grew with it. At the first step nothing has.
#[test]
fn a_loss_that_diverges_says_what_was_seen() {
    let folder = prepared("data.h5");
    let train = |run: &str, keys: &str| {
        folder
            .cfo(&format!("train recipe.toml --data data.h5 --device cpu --out {run} {keys}"))
            .ended_with(1)
            .stderr
    };
    let steep = train("steep", "--set train.learning_rate=1e8 --set train.clip=1.0");
    for part in [
        "the loss became",
        "the loss was",
        "the norm of the gradient went from",
        "lower `train.learning_rate`",
    ] {
        assert!(steep.contains(part), "{part}: {steep}");
    }
    // States so far from the data that their squares overflow.
    let first = train("first", "--set path.noise={amplitude=1e30,exponent=3}");
    for part in ["at step 1:", "the batch is finite"] {
        assert!(first.contains(part), "{part}: {first}");
    }
    assert!(!first.contains("learning_rate"), "{first}");
}

/// Sizes that no machine has are refused before memory is taken for them: in an address space of 4 GB nothing is aborted.
#[cfg(target_os = "linux")]
#[test]
fn absurd_sizes_are_refused_in_little_memory() {
    let folder = prepared("data.h5");
    folder.cfo("simulate burgers --grid 32 --frames 11 --samples 10 --out line.h5").done();
    let cases = [
        ("data.h5", "operator.kind=mlp", "operator.time=1000000000000"),
        ("data.h5", "operator.kind=mlp", "operator.hidden=[4294967296,4294967296]"),
        ("data.h5", "objective.kind=neural-ode objective.solver=rk4", "objective.solver.steps=1000000000"),
        ("data.h5", "finetune.steps=5 finetune.window=2", "finetune.solver.steps=1000000000"),
        ("line.h5", "operator={kind=\"fno\"}", "operator.blocks=1000000000"),
        ("line.h5", "operator={kind=\"dit\",patch=4}", "operator.depth=1000000000"),
        ("line.h5", "operator={kind=\"dit\",patch=4}", "operator.hidden=1000000000"),
    ];
    for (data, keys, absurd) in cases {
        let key = absurd.split('=').next().unwrap();
        let sets: String = keys.split(' ').chain([absurd]).map(|key| format!(" --set {key}")).collect();
        let found = in_little_memory(
            &folder,
            &format!("train recipe.toml --data {data} --device cpu --out run{sets}"),
        );
        let stderr = found.ended_with(2).stderr;
        assert!(
            stderr.contains(&format!("`{key}`")) && stderr.contains("the largest value is"),
            "{absurd}: {stderr}"
        );
    }
    // The largest values are either trained or refused for their memory.
    for (data, keys) in [
        ("data.h5", "operator.time=16384 train.steps=1"),
        ("data.h5", "objective.kind=neural-ode train.steps=1"),
        ("line.h5", "operator={kind=\"fno\",blocks=1024} train.steps=1"),
        ("line.h5", "operator={kind=\"dit\",patch=4,hidden=16384} train.steps=1"),
    ] {
        let sets: String = keys.split(' ').map(|key| format!(" --set {key}")).collect();
        let line = format!("train recipe.toml --data {data} --device cpu --dry-run{sets}");
        let found = in_little_memory(&folder, &line);
        let refused = found.stderr.contains("error:");
        let found = found.ended_with(if refused { 2 } else { 0 });
        assert!(
            !refused || found.stderr.contains("bytes") || found.stderr.contains("GiB"),
            "{keys}: {}",
            found.stderr
        );
    }
}

/// Runs a line of words without spaces in an address space of 4 GB.
#[cfg(target_os = "linux")]
fn in_little_memory(folder: &Folder, line: &str) -> Outcome {
    let mut shell = Command::new("sh");
    let words = line.split_whitespace();
    // Each thread of glibc reserves address space that it does not use.
    shell.env("MALLOC_ARENA_MAX", "2").env("RAYON_NUM_THREADS", "2");
    shell.args(["-c", "ulimit -v 4000000; exec \"$@\"", "sh", env!("CARGO_BIN_EXE_cfo")]).args(words);
    folder.run(&mut shell, line)
}

/// A streamed file that is written again with other values ends the training; one that was only touched does not change it.
#[test]
fn a_file_that_changes_under_a_training_is_noticed() {
    for name in ["data.npz", "data.h5"] {
        let folder = prepared(name);
        let other = format!("other-{name}");
        folder
            .cfo(&format!("simulate lorenz --frames 21 --horizon 0.2 --samples 10 --seed 5 --out {other}"))
            .done();
        let [old, new] = [name, other.as_str()].map(|name| std::fs::read(folder.path(name)).unwrap());
        assert!(old.len() == new.len() && old != new, "{name}");
        let line = |run: &str, steps: u32| {
            format!(
                "train recipe.toml --data {name} --device cpu --out {run} --set data.stream=true --set train.steps={steps} \
                 --set train.report_every=1"
            )
        };
        // Far more steps than are made before the change is noticed.
        let mut child = started(&folder, &line("changed", 2_000_000));
        wait_for_steps(&folder.path("changed"), &mut child, 5);
        std::fs::write(folder.path(name), &new).unwrap();
        let output = child.wait_with_output().unwrap();
        let stderr = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(1), "{stderr}");
        assert!(stderr.contains("have changed since it was first read"), "{stderr}");

        std::fs::write(folder.path(name), &old).unwrap();
        folder.cfo(&line("quiet", 400)).done();
        let mut child = started(&folder, &line("touched", 400));
        wait_for_steps(&folder.path("touched"), &mut child, 5);
        let file = std::fs::File::options().write(true).open(folder.path(name)).unwrap();
        file.set_modified(std::time::SystemTime::now()).unwrap();
        let output = child.wait_with_output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let weights = |run: &str| {
            std::fs::read(folder.path(run).join("checkpoints/latest/weights.safetensors")).unwrap()
        };
        assert!(weights("quiet") == weights("touched"), "{name}");
    }
}

fn started(folder: &Folder, line: &str) -> Child {
    folder.command(line).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap()
}

/// Waits until a training has reported some steps.
fn wait_for_steps(run: &Path, child: &mut Child, steps: usize) {
    let begun = Instant::now();
    let reported =
        || std::fs::read_to_string(run.join("metrics.jsonl")).map_or(0, |text| text.lines().count());
    while reported() < steps && child.try_wait().unwrap().is_none() {
        assert!(begun.elapsed() < Duration::from_secs(120), "no step was reported");
        std::thread::sleep(Duration::from_millis(5));
    }
}
