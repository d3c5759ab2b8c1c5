use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::util::Folder;

/// A recipe that trains in about a second.
const RECIPE: &str = "[operator]\nkind = \"mlp\"\nhidden = [16, 16]\ntime = false\n\
    [train]\nsteps = 120\nbatch = 64\nlearning_rate = 3e-3\nreport_every = 20\nvalidate_every = 60\ncheckpoint_every = 20\n";

fn prepared() -> Folder {
    let folder = Folder::new();
    folder.cfo("simulate lorenz --frames 41 --horizon 0.4 --samples 30 --out data.h5").done();
    std::fs::write(folder.path("recipe.toml"), RECIPE).unwrap();
    folder
}

#[test]
fn trained_evaluated_and_predicted() {
    let folder = prepared();
    let trained = folder.cfo("train recipe.toml --data data.h5 --out run --json").done().json();
    assert_eq!(trained["steps"], 120);
    assert!(trained["loss"].as_f64().unwrap() > 0.0);
    for part in ["reading", "compiling", "steps", "validation", "checkpoints", "other"] {
        assert!(trained["time"][part].as_f64().unwrap() >= 0.0, "{part}");
    }
    assert!(trained["time"]["steps"].as_f64().unwrap() > 0.0);
    for name in [
        "recipe.toml",
        "metrics.jsonl",
        "checkpoints/latest/weights.safetensors",
        "checkpoints/best/state.json",
    ] {
        assert!(folder.path("run").join(name).exists(), "{name}");
    }
    let found = folder.cfo("evaluate run --data data.h5 --solver rk4 --json").done().json();
    let error = found["relative_l2"]["mean"].as_f64().unwrap();
    assert!(error > 0.0 && error < 1.0, "{error}");
    assert_eq!(found["per_time"].as_array().unwrap().len(), 41);
    assert_eq!(found["evaluations"], 160);
    for key in ["rmse", "nrmse", "crmse", "max", "valid_time"] {
        assert!(found["metrics"][key].as_f64().unwrap() > 0.0, "{key}");
    }
    assert!(found["miss"]["mean"].as_f64().unwrap() > 0.0, "{}", found["miss"]);
    assert_eq!(found["miss"]["channels"].as_array().unwrap().len(), 3);
    assert_eq!(found["miss"]["per_time"].as_array().unwrap().len(), 40);
    for name in ["report.json", "report.md", "error-over-time.png", "worst-trajectory.svg"] {
        assert!(folder.path("run/evaluation").join(name).exists(), "{name}");
    }
    for options in ["--solver euler --nfe 80", "--solver tsit5 --rtol 1e-4 --atol 1e-6", "--split all"] {
        folder.cfo(&format!("evaluate run --data data.h5 {options} --json")).done().json();
    }
    folder.cfo("predict run --initial data.h5 --times 0.05:0.4:8 --out forward.h5").done();
    folder.cfo("predict run --initial data.h5 --times 0,0.1,0.3 --from 0.2 --out both.npz").done();
    let seen = folder.cfo("inspect both.npz --json").done().json();
    assert_eq!((seen["trajectories"].as_u64(), seen["frames"]["max"].as_u64()), (Some(30), Some(3)));
    // A single far time takes as many steps as the snapshots up to it.
    let far = folder
        .cfo("predict run --initial data.h5 --times 0.4 --out far.h5 --solver rk4 --json")
        .done()
        .json();
    assert_eq!(far["evaluations"], 160);
    let beyond = folder.cfo("predict run --initial data.h5 --times 0.1,0.6 --out beyond.h5").done();
    assert!(beyond.stderr.contains("extrapolates"), "{}", beyond.stderr);
}

/// Next-step prediction knows the data's own times only, and says so.
#[test]
fn an_autoregressive_model_predicts_snapshot_after_snapshot() {
    let folder = prepared();
    folder.cfo("train recipe.toml --data data.h5 --out run --set objective.kind=autoregressive").done();
    let found =
        folder.cfo("predict run --initial data.h5 --times 0,0.01,0.02 --out p.npz --json").done().json();
    assert_eq!(found["evaluations"], 2);
    let refused = folder.cfo("predict run --initial data.h5 --times 0.015 --out q.npz").ended_with(2);
    assert!(refused.stderr.contains("hint: "), "{}", refused.stderr);
    folder.cfo("evaluate run --data data.h5").done();
    let said = folder.cfo("evaluate run --data data.h5 --nfe 2").done().stderr;
    assert!(said.contains("warning: the model predicts snapshot after snapshot"), "{said}");
    folder.cfo("simulate lorenz --frames 11 --horizon 0.5 --samples 30 --out coarse.h5").done();
    let refused = folder.cfo("evaluate run --data coarse.h5").ended_with(2);
    assert!(
        refused.stderr.contains("only snapshots that are 0.01 apart: 0.05 comes after 0"),
        "{}",
        refused.stderr
    );
}

#[test]
fn a_dry_run_says_what_would_be_trained_and_writes_nothing() {
    let folder = prepared();
    let before = folder.names();
    let found = folder.cfo("train recipe.toml --data data.h5 --dry-run --json").done().json();
    assert!(found["parameters"].as_u64().unwrap() > 300 && found["arena_bytes"].as_u64().unwrap() > 0);
    assert_eq!(found["training_trajectories"], 27);
    assert!(folder.cfo("train recipe.toml --data data.h5 --dry-run").done().stdout.contains("MiB"));
    assert_eq!(folder.names(), before);
}

/// Without validation there is none, not even at the end, and no checkpoint is the best; what is refused leaves no folder.
#[test]
fn validation_may_be_left_out_and_refusals_leave_nothing() {
    let folder = prepared();
    let line = "train recipe.toml --data data.h5 --out run --set train.validate_every=0 --json";
    let found = folder.cfo(line).done().json();
    assert!(found["validation"].is_null() && found["time"]["validation"] == 0.0, "{found}");
    let log = std::fs::read_to_string(folder.path("run").join("metrics.jsonl")).unwrap();
    assert!(log.lines().count() == 6 && !log.contains("\"validation\":0."), "{log}");
    let checkpoints = folder.path("run").join("checkpoints");
    assert!(checkpoints.join("latest").exists() && !checkpoints.join("best").exists());
    folder.cfo("evaluate run --data data.h5").done();
    let before = folder.names();
    for refused in [
        "--set objective.kind=neural-ode --set objective.window=500",
        "--set objective.kind=pde-refiner --set data.keep_rate=0.5",
        "--set latent.wavelet=haar",
        "--set finetune.steps=5 --set finetune.window=500",
        "--set objective.kind=neural-ode --set train.precision=bf16",
    ] {
        let said = folder.cfo(&format!("train recipe.toml --data data.h5 --out deep/other {refused}"));
        assert!(said.ended_with(2).stderr.contains("hint: "), "{refused}");
        assert_eq!(folder.names(), before, "{refused}");
    }
}

/// Killed at any moment, a resumed run ends in the weights of one left alone.
#[test]
fn a_killed_run_resumes_to_the_same_bits() {
    let folder = prepared();
    let steps = "--set train.steps=1500 --set train.validate_every=0";
    folder.cfo(&format!("train recipe.toml --data data.h5 --out whole {steps}")).done();
    let weights =
        |run: &str| std::fs::read(folder.path(run).join("checkpoints/latest/weights.safetensors")).unwrap();
    let mut killed = 0;
    for (attempt, pause) in [60, 150, 300].into_iter().enumerate() {
        let run = format!("killed-{attempt}");
        let mut child = folder
            .command(&format!("train recipe.toml --data data.h5 --out {run} {steps}"))
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let started = Instant::now();
        // The kill comes some time after the first checkpoint, wherever the run then is.
        while !folder.path(&run).join("checkpoints/latest").exists()
            && started.elapsed() < Duration::from_secs(60)
        {
            std::thread::sleep(Duration::from_millis(2));
        }
        std::thread::sleep(Duration::from_millis(pause));
        killed += usize::from(child.try_wait().unwrap().is_none());
        child.kill().unwrap();
        child.wait().unwrap();
        folder.cfo(&format!("train recipe.toml --data data.h5 --out {run} {steps} --resume")).done();
        assert!(weights(&run) == weights("whole"), "killed after {pause} ms");
    }
    assert!(killed > 0, "every run had ended before it was killed, so nothing was tested");
}

/// A limit on the size of files is the full disk that every machine has.
#[test]
fn a_full_disk_leaves_the_last_checkpoint_whole() {
    let folder = prepared();
    let line = "train recipe.toml --data data.h5 --set operator.hidden=[96,96] --set train.validate_every=0";
    folder.cfo(&format!("{line} --out whole")).done();
    folder.cfo(&format!("{line} --out run --set train.steps=60")).done();
    let read =
        |run: &str| std::fs::read(folder.path(run).join("checkpoints/latest/weights.safetensors")).unwrap();
    let before = read("run");
    // Eight or sixteen kilobytes, as the shell counts: room for the small files, not for the weights.
    let limited =
        format!("trap '' XFSZ; ulimit -f 16; exec '{}' {line} --out run --resume", env!("CARGO_BIN_EXE_cfo"));
    let outcome = folder.run(Command::new("sh").args(["-c", &limited]), "train on a full disk").ended_with(1);
    assert!(outcome.stderr.contains("weights.safetensors"), "{}", outcome.stderr);
    assert!(outcome.stderr.contains("hint: free some space"), "{}", outcome.stderr);
    assert!(read("run") == before, "the checkpoint of step 60 changed");
    let left: Vec<String> = std::fs::read_dir(folder.path("run/checkpoints"))
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .filter(|name| name.starts_with('.'))
        .collect();
    assert!(left.is_empty(), "{left:?}");
    folder.cfo("evaluate run --data data.h5").done();
    folder.cfo(&format!("{line} --out run --resume")).done();
    assert!(read("run") == read("whole"));
}

#[test]
fn wrong_recipes_and_data_are_refused_with_advice() {
    let folder = prepared();
    for (name, line) in [
        ("missing-recipe", "train nothing.toml --data data.h5"),
        ("missing-data", "train recipe.toml --data nothing.h5"),
        ("no-data", "train recipe.toml"),
        ("mistyped-key", "train recipe.toml --data data.h5 --set train.stpes=3"),
        ("impossible-grid", "train recipe.toml --data data.h5 --set operator={kind=\"unet\"}"),
        ("no-device", "train recipe.toml --data data.h5 --device gpu"),
        ("not-a-run", "evaluate data.h5 --data data.h5"),
    ] {
        let outcome = folder.cfo(line).ended_with(2);
        assert!(outcome.stdout.is_empty(), "{line}: {}", outcome.stdout);
        insta::assert_snapshot!(name, outcome.stderr);
    }
    folder.cfo("train recipe.toml --data data.h5 --out run").done();
    for (name, line) in [
        ("occupied-run", "train recipe.toml --data data.h5 --out run"),
        ("unknown-solver", "evaluate run --data data.h5 --solver rk5"),
        ("impossible-budget", "evaluate run --data data.h5 --nfe 2"),
        ("tolerance-without-estimate", "evaluate run --data data.h5 --solver rk4 --rtol 1e-3"),
        ("steps-and-tolerance", "evaluate run --data data.h5 --steps 10 --rtol 1e-3"),
        ("nonsense-times", "predict run --initial data.h5 --times 1,none,2 --out p.h5"),
    ] {
        let outcome = folder.cfo(line).ended_with(2);
        insta::assert_snapshot!(name, outcome.stderr);
    }
    folder.cfo("simulate burgers --grid 16 --frames 5 --samples 2 --out field.h5").done();
    for line in [
        "predict run --initial field.h5 --times 0.1 --out p.h5",
        "predict run --initial data.h5 --times 0:1 --out p.h5",
        "predict run --initial nothing.h5 --times 0.1 --out p.h5",
        "predict run --initial data.h5 --times 0.1 --out data.h5",
        "predict nothing --initial data.h5 --times 0.1 --out p.h5",
        "evaluate run --data field.h5",
        "evaluate run --data nothing.h5",
        "evaluate run --data data.h5 --checkpoint step-7",
        "evaluate run --data data.h5 --solver tsit5 --rtol 0 --atol 0",
        "evaluate run --data data.h5 --split tset",
        "train recipe.toml --data data.h5 --set train.stpes=3",
        "train recipe.toml --data data.h5 --set train.steps",
        "train recipe.toml --data data.h5 --set train.steps=many",
        "train recipe.toml --data data.h5 --set data.split=[100,1,1]",
        "train recipe.toml --data data.h5 --set data.split=[10,1]",
        "train recipe.toml --data data.h5 --set operator.kind=cnn",
        "train recipe.toml --data data.h5 --set operator.activation=tanh",
        "train recipe.toml --data data.h5 --set train.clip=-1",
        "train recipe.toml --data data.h5 --set train.clip=inf",
        "train recipe.toml --data data.h5 --set train.weight_decay=nan",
        "train recipe.toml --data data.h5 --set train.weight_decay=-0.1",
        "train recipe.toml --data data.h5 --set train.learning_rate=inf",
        "train recipe.toml --data data.h5 --set train.learning_rate=0",
        "train recipe.toml --data data.h5 --set train.ema=1",
        "train recipe.toml --data data.h5 --set train.betas=[0.9,nan]",
        "train recipe.toml --data data.h5 --set train.batch=0",
        "train recipe.toml --data data.h5 --set data.keep_rate=nan",
        "train recipe.toml --data data.h5 --set path.noise.amplitude=inf",
        "train recipe.toml --data data.h5 --set evaluate.solver.rtol=nan",
        "train recipe.toml --data data.h5 --set evaluate.solver.atol=-1",
        "train recipe.toml --data data.h5 --set train.patience=3 --set train.validate_every=0",
        "train recipe.toml --data data.h5 --set operator.hidden=[0]",
        "train recipe.toml --data data.h5 --set path.spline=sextic",
        "train recipe.toml --data data.h5 --set path.stencil=2",
        "train recipe.toml --data data.h5 --set evaluate.nfe=1",
        "train recipe.toml --data data.h5 --set data.condition=true",
    ] {
        let outcome = folder.cfo(line).ended_with(2);
        assert!(
            outcome.stderr.contains("hint: ") || outcome.stderr.contains("tip: "),
            "{line}: {}",
            outcome.stderr
        );
        assert!(outcome.stdout.is_empty(), "{line}: {}", outcome.stdout);
    }
}

/// The Python with NumPy that writes a user's data; `None` where there is none, which the checks do not allow.
fn python() -> Option<String> {
    let python = std::env::var("CFO_PYTHON").unwrap_or_else(|_| "python3".into());
    let has_numpy = Command::new(&python)
        .args(["-c", "import numpy"])
        .output()
        .is_ok_and(|output| output.status.success());
    if !has_numpy {
        assert!(std::env::var_os("CI").is_none(), "the checks need NumPy");
        println!("skipped: `{python}` has no NumPy");
    }
    has_numpy.then_some(python)
}

/// Waves on a line, 4 MB of them to test on.
const WAVES: &str = r#"
import h5py, numpy as np
phase = np.random.default_rng(2).uniform(0, 2 * np.pi, (80, 1, 1))
times, x = np.linspace(0, 1, 65), np.linspace(0, 2 * np.pi, 2048, endpoint=False)
values = np.sin(x[None, None, :] - times[None, :, None] + phase)[..., None].astype(np.float32)
with h5py.File("waves.h5", "w") as file:
    file["times"], file["values"] = times, values
"#;

/// A shell's account of what it read includes that of the commands it ran.
#[cfg(target_os = "linux")]
#[test]
fn evaluation_reads_what_it_tests_and_training_no_test_data() {
    let Some(python) = python() else { return };
    let folder = Folder::new();
    folder.run(Command::new(&python).args(["-c", WAVES]), "waves").done();
    let text =
        "operator = { kind = \"fno\", width = 4, blocks = 1, modes = 4 }\ntrain = { steps = 1, batch = 1 }\n";
    std::fs::write(folder.path("recipe.toml"), text).unwrap();
    let bytes_read = |line: &str| -> u64 {
        let line = format!("'{}' {line} >&2 && cat /proc/$$/io", env!("CARGO_BIN_EXE_cfo"));
        let found = folder.run(Command::new("sh").args(["-c", &line]), &line).done();
        let count = found.stdout.lines().find_map(|line| line.strip_prefix("rchar: "));
        count.unwrap().parse().unwrap()
    };
    let trajectory = 4 * 65 * 2048;
    let trained = bytes_read("train recipe.toml --data waves.h5 --out run --device cpu");
    assert!(trained < trajectory * 72 * 12 / 10, "{trained} bytes for 72 trajectories of {trajectory}");
    let evaluated = bytes_read("evaluate run --data waves.h5 --device cpu");
    assert!(evaluated < trajectory * 8 * 12 / 10, "{evaluated} bytes for 8 trajectories of {trajectory}");
}

/// A file without parts of its own is divided by the run's recipe, whenever it is opened.
#[test]
fn evaluation_takes_the_split_of_the_run() {
    let Some(python) = python() else { return };
    let folder = prepared();
    let script = "import numpy as np\nt = np.linspace(0, 1, 21)\nphase = np.arange(20)[:, None]\n\
                  np.savez('plain.npz', times=t, values=np.stack([np.sin(t + phase), np.cos(t + phase)], -1))\n\
                  np.savez('one.npz', times=t, values=np.stack([np.sin(t), np.cos(t)], -1)[None])";
    folder.run(Command::new(&python).args(["-c", script]), "two files").done();
    let tested = |run: &str, data: &str, keys: &str, part: &str| {
        folder
            .cfo(&format!("train recipe.toml --data {data} --out {run} --set train.steps=20 {keys}"))
            .done();
        let found = folder.cfo(&format!("evaluate {run} --data {data} --split {part} --json")).done().json();
        (found["trajectories"].as_u64().unwrap(), found["per_time"].as_array().unwrap().clone())
    };
    assert_eq!(tested("counts", "plain.npz", "--set data.split=[7,5,8]", "test").0, 8);
    assert_eq!(
        tested("shares", "plain.npz", "--set data.split=[0.5,0.2,0.3] --set data.shuffle=true", "train").0,
        10
    );
    let (count, course) = tested("one", "one.npz", "", "test");
    assert_eq!((count, course.len()), (1, 3));
    assert!(course[0]["time"].as_f64().unwrap() > 0.85);
    let bad = folder.cfo("train recipe.toml --data plain.npz --set data.split=[0.5,0.9,0.3]").ended_with(2);
    assert!(bad.stderr.contains("data.split"), "{}", bad.stderr);
}

/// Pieces of one long record of a van der Pol oscillator, with their true times and with all starts at 0.
const PIECES: &str = r#"
import numpy as np
def slope(u):
    return np.array([u[1], (1 - u[0] ** 2) * u[1] - u[0]])
u, step, record = np.array([2.0, 0.0]), 0.01, []
for _ in range(10001):
    record.append(u)
    a = slope(u); b = slope(u + step / 2 * a); c = slope(u + step / 2 * b); d = slope(u + step * c)
    u = u + step / 6 * (a + 2 * b + 2 * c + d)
record = np.array(record)
starts = np.random.default_rng(1).permutation(np.arange(0, 9800, 196))
values = np.stack([record[s:s + 201:5] for s in starts]).astype(np.float32)
times = np.arange(41) * 5 * step
np.savez("zero.npz", values=values, times=np.tile(times, (len(starts), 1)))
np.savez("true.npz", values=values, times=times + starts[:, None] * step)
"#;

/// A network that is not told the time does not notice where a trajectory's time starts.
#[test]
fn start_times_do_not_matter_to_an_autonomous_network() {
    let Some(python) = python() else { return };
    let folder = prepared();
    folder.run(Command::new(&python).args(["-c", PIECES]), "pieces of a record").done();
    let errors = ["zero", "true"].map(|name| {
        let set = "--set train.steps=800 --set train.validate_every=0 --set operator.activation=silu";
        folder.cfo(&format!("train recipe.toml --data {name}.npz --out {name} {set}")).done();
        let found = folder.cfo(&format!("evaluate {name} --data {name}.npz --json")).done().json();
        found["relative_l2"]["mean"].as_f64().unwrap()
    });
    let ratio = errors[1] / errors[0];
    assert!(errors[0] < 0.15, "{errors:?}");
    // The same up to the rounding of times, which 800 steps carry on.
    assert!((1.0 / 1.3..1.3).contains(&ratio), "{errors:?}");
}

/// Trajectories of different lengths and times, written by NumPy, train with the recipe for own data.
#[test]
fn ragged_data_of_ones_own() {
    let Some(python) = python() else { return };
    let folder = Folder::new();
    let root = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");
    let script = format!("{root}/scripts/make_van_der_pol.py");
    folder.run(Command::new(&python).args([script.as_str(), "own.npz"]), "make_van_der_pol").done();
    let recipe = format!("{root}/recipes/own-data.toml");
    folder.cfo(&format!("train {recipe} --data own.npz --out run --set train.steps=2000")).done();
    let found = folder.cfo("evaluate run --data own.npz --json").done().json();
    let error = found["relative_l2"]["mean"].as_f64().unwrap();
    assert!(error < 0.02, "relative L2 error {error} on held-out trajectories");
}
