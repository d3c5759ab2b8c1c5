//! Many processes as one: `mpiexec` of MPICH and of Open MPI, from PyPI's wheels.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::util::{Folder, Outcome};

/// A tiny network on a batch that three and four ranks cannot divide evenly.
const RECIPE: &str = "[data]\npath = \"data.h5\"\nsplit = [20, 5, 5]\n\
    [operator]\nkind = \"mlp\"\nhidden = [16, 16]\n\
    [train]\nsteps = 50\nbatch = 50\nlearning_rate = 1e-3\nreport_every = 1\nvalidate_every = 0\nclip = 1.0\nema = 0.9\n";

/// Numbers the files of the ranks' process numbers, then becomes the command.
pub const WRAPPER: &str = "echo $$ > pid-${PMI_RANK:-$OMPI_COMM_WORLD_RANK}; exec \"$0\" \"$@\"";

/// An MPI as its wheel installs it.
pub struct Mpi {
    pub name: &'static str,
    pub home: PathBuf,
}

impl Mpi {
    /// Those that there are; the checks do not accept that one is missing.
    pub fn all() -> Vec<Self> {
        let find = |(name, variable): (&'static str, &str)| {
            let home = std::env::var_os(variable).map(PathBuf::from);
            let home = home.filter(|home| home.join("bin/mpiexec").exists());
            assert!(home.is_some() || std::env::var_os("CI").is_none(), "the checks need {variable}");
            if home.is_none() {
                println!("skipped: `{variable}` names no folder with `bin/mpiexec`");
            }
            Some(Self { name, home: home? })
        };
        [("mpich", "CFO_MPICH"), ("openmpi", "CFO_OPENMPI")].into_iter().filter_map(find).collect()
    }

    /// `mpiexec -n ranks` in a folder, followed by the words of a program.
    pub fn command(&self, folder: &Folder, ranks: usize) -> Command {
        let mut command = Command::new(self.home.join("bin/mpiexec"));
        if self.name == "openmpi" {
            command.args(["--oversubscribe", "--allow-run-as-root"]);
        }
        command.args(["-n", &ranks.to_string()]).current_dir(folder.path(".")).stdin(Stdio::null());
        // One core each, and nobody waits for a rank for longer than a test should take.
        command.env("RAYON_NUM_THREADS", "1").env("CFO_RANKS_TIMEOUT", "20").env_remove("CFO_MPI");
        command
    }

    pub fn cfo(&self, folder: &Folder, ranks: usize, line: &str) -> Outcome {
        let mut command = self.command(folder, ranks);
        command.arg(env!("CARGO_BIN_EXE_cfo")).args(line.split_whitespace());
        folder.run(&mut command, &format!("{line} ({ranks} ranks of {})", self.name))
    }

    /// Starts the ranks through a shell, which can distinguish them.
    pub fn shell(&self, folder: &Folder, ranks: usize, script: &str, line: &str) -> Command {
        let mut command = self.command(folder, ranks);
        command.args(["sh", "-c", script, env!("CARGO_BIN_EXE_cfo")]).args(line.split_whitespace());
        command
    }

    /// Starts a training that would take very long, and waits for its first checkpoint.
    pub fn under_way(&self, folder: &Folder, ranks: usize, limit: &str) -> Child {
        let line = "train recipe.toml --device cpu --out run --set train.steps=100000000 --set train.report_every=10000";
        let mut command = self.shell(folder, ranks, WRAPPER, line);
        // MPICH's launcher reports a dead process on stdout.
        let said = std::fs::File::create(folder.path("said")).unwrap();
        command.env("CFO_RANKS_TIMEOUT", limit).stdout(said.try_clone().unwrap()).stderr(said);
        let child = command.spawn().unwrap();
        let started = Instant::now();
        let latest = folder.path("run/checkpoints/latest/state.json");
        // Not a measurement: far longer than any machine needs.
        while !latest.exists() && started.elapsed() < Duration::from_secs(60) {
            std::thread::sleep(Duration::from_millis(20));
        }
        assert!(latest.exists(), "no checkpoint after a minute: {}", said_in(folder));
        child
    }
}

pub fn prepared() -> Folder {
    let folder = Folder::new();
    folder.cfo("simulate lorenz --frames 41 --horizon 0.4 --samples 30 --out data.h5").done();
    std::fs::write(folder.path("recipe.toml"), RECIPE).unwrap();
    folder
}

pub fn said_in(folder: &Folder) -> String {
    std::fs::read_to_string(folder.path("said")).unwrap_or_default()
}

pub fn losses(run: &Path) -> Vec<f64> {
    let text = std::fs::read_to_string(run.join("metrics.jsonl")).unwrap();
    let lines = text.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    lines.map(|line| line["loss"].as_f64().unwrap()).collect()
}

pub fn weights(run: &Path) -> Vec<u8> {
    std::fs::read(run.join("checkpoints/latest/weights.safetensors")).unwrap()
}

/// Sends a signal to the process of a rank.
pub fn signal(folder: &Folder, rank: usize, name: &str) {
    let process = std::fs::read_to_string(folder.path(&format!("pid-{rank}"))).unwrap();
    let sent = Command::new("kill").args([&format!("-{name}"), process.trim()]).status().unwrap();
    assert!(sent.success());
}

/// Waits for the end of a job; not for ever.
pub fn end_within(child: &mut Child, seconds: u64, folder: &Folder) -> Option<i32> {
    let started = Instant::now();
    while started.elapsed() < Duration::from_secs(seconds) {
        if let Some(status) = child.try_wait().unwrap() {
            return status.code();
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    let _ = child.kill();
    panic!("the job goes on after {seconds} s: {}", said_in(folder));
}

#[test]
fn any_number_of_ranks_trains_as_one_does() {
    let folder = prepared();
    folder.cfo("train recipe.toml --device cpu --out one").done();
    folder.cfo("train recipe.toml --device cpu --out fixed --set train.deterministic=true").done();
    let (one, fixed) = (losses(&folder.path("one")), losses(&folder.path("fixed")));
    assert_eq!(one.len(), 50);
    for mpi in Mpi::all() {
        for ranks in 1..=4 {
            let run = format!("{}-{ranks}", mpi.name);
            // Streamed data are the same data: each rank reads what its samples are made of.
            let stream = if ranks == 3 { " --set data.stream=true" } else { "" };
            let mut command = mpi.command(&folder, ranks);
            command.arg(env!("CARGO_BIN_EXE_cfo")).args([
                "train",
                "recipe.toml",
                "--device",
                "cpu",
                "--out",
                &run,
            ]);
            command.args(stream.split_whitespace());
            let said = folder.run(&mut command, &run).done();
            assert_eq!(said.stdout.lines().count(), 1, "one rank talks: {}", said.stdout);
            for (step, (found, expected)) in losses(&folder.path(&run)).iter().zip(&one).enumerate() {
                // Ranks add in another order, and 50 steps of Adam pass that on.
                assert!((found / expected - 1.0).abs() < 1e-5, "{run}, step {step}: {found} and {expected}");
            }
            let run = format!("{run}-fixed");
            let line =
                format!("train recipe.toml --device cpu --out {run} --set train.deterministic=true{stream}");
            mpi.cfo(&folder, ranks, &line).done();
            assert_eq!(losses(&folder.path(&run)), fixed, "{run}");
            assert!(weights(&folder.path(&run)) == weights(&folder.path("fixed")), "{run} has other weights");
        }
    }
}

/// What objectives draw for themselves is drawn by sample too. In double precision: Adam turns the rounding of a gradient that is
/// almost 0 into a whole step, and the lengths of a solver's steps follow it.
#[test]
fn every_objective_divides_its_batch() {
    let Some(mpi) = Mpi::all().into_iter().next() else { return };
    let folder = prepared();
    folder.cfo("simulate burgers --samples 12 --grid 32 --frames 11 --out field.h5").done();
    std::fs::write(
        folder.path("field.toml"),
        RECIPE.replace("data.h5", "field.h5").replace("20, 5, 5", "8, 2, 2"),
    )
    .unwrap();
    for (recipe, keys, ranks) in [
        ("recipe", "objective.kind=autoregressive", 2),
        ("recipe", "objective.kind=pde-refiner", 3),
        ("recipe", "objective.kind=neural-ode", 2),
        ("recipe", "objective.kind=conditional-flow-matching", 3),
        ("recipe", "finetune.steps=3 finetune.window=2", 3),
        ("field", "latent.levels=2", 3),
    ] {
        let keys: String = keys.split(' ').map(|key| format!(" --set {key}")).collect();
        let run = keys.trim().replace("--set ", "").replace([' ', '='], "-");
        let line = format!(
            "train {recipe}.toml --device cpu --set train.steps=4 --set train.precision=f64{keys} --out {run}"
        );
        folder.cfo(&format!("{line}-one")).done();
        mpi.cfo(&folder, ranks, &format!("{line}-many")).done();
        let [one, many] = ["one", "many"].map(|end| losses(&folder.path(&format!("{run}-{end}"))));
        assert_eq!(many.len(), one.len(), "{run}");
        for (found, expected) in many.iter().zip(&one) {
            assert!((found / expected - 1.0).abs() < 1e-5, "{run}: {found} and {expected}");
        }
    }
}

#[test]
fn a_run_goes_on_with_another_number_of_ranks() {
    let folder = prepared();
    let deterministic = "--device cpu --set train.deterministic=true";
    folder.cfo(&format!("train recipe.toml {deterministic} --out whole")).done();
    for mpi in Mpi::all() {
        let run = mpi.name;
        let line = format!("train recipe.toml {deterministic} --out {run}");
        mpi.cfo(&folder, 2, &format!("{line} --set train.steps=25")).done();
        mpi.cfo(&folder, 3, &format!("{line} --resume")).done();
        assert_eq!(losses(&folder.path(run)), losses(&folder.path("whole")), "{run}");
        assert!(weights(&folder.path(run)) == weights(&folder.path("whole")), "{run} has other weights");
        let again = mpi.cfo(&folder, 2, &format!("{line} --resume")).done();
        assert!(again.stdout.contains("already finished"), "{}", again.stdout);
        let refused = mpi.cfo(&folder, 2, &line).ended_with(2);
        assert_eq!(refused.stderr.matches("already holds a run").count(), 1, "{}", refused.stderr);
    }
}

/// Products of batches of other sizes add in another order: single precision, passed on by a rollout of 40 steps.
fn same_but_for_rounding(name: &str, found: &Value, expected: &Value) {
    match (found, expected) {
        (Value::Array(found), Value::Array(expected)) => {
            assert_eq!(found.len(), expected.len(), "{name}");
            found
                .iter()
                .zip(expected)
                .for_each(|(found, expected)| same_but_for_rounding(name, found, expected));
        }
        (Value::Object(found), Value::Object(expected)) => {
            assert_eq!(found.len(), expected.len(), "{name}");
            expected.iter().for_each(|(key, expected)| same_but_for_rounding(key, &found[key], expected));
        }
        (Value::Number(found), Value::Number(expected)) => {
            let (found, expected) = (found.as_f64().unwrap(), expected.as_f64().unwrap());
            assert!((found - expected).abs() <= 1e-5 * expected.abs(), "{name}: {found} and {expected}");
        }
        _ => assert_eq!(found, expected, "{name}"),
    }
}

#[test]
fn ranks_evaluate_and_report_together() {
    let folder = prepared();
    folder.cfo("train recipe.toml --device cpu --out run").done();
    // Steps that are chosen by tolerances depend on rounding.
    let line = "evaluate run --data data.h5 --device cpu --steps 40 --json --out";
    let alone = folder.cfo(&format!("{line} alone")).done().json();
    for mpi in Mpi::all() {
        let together = mpi.cfo(&folder, 3, &format!("{line} {}", mpi.name)).done().json();
        same_but_for_rounding("relative_l2", &together["relative_l2"], &alone["relative_l2"]);
        same_but_for_rounding("per_time", &together["per_time"], &alone["per_time"]);
        same_but_for_rounding("metrics", &together["metrics"], &alone["metrics"]);
        same_but_for_rounding("miss", &together["miss"], &alone["miss"]);
        let figures = |run: &str| std::fs::read_dir(folder.path(run)).unwrap().count();
        assert_eq!(figures(mpi.name), figures("alone"));
        let devices = mpi.cfo(&folder, 2, "devices --json").done().json();
        let ranks = devices["ranks"].as_array().unwrap();
        assert_eq!(ranks.len(), 2);
        assert!(
            ranks.iter().enumerate().all(|(rank, found)| found["rank"] == rank && found["host"].is_string())
        );
        assert!(devices["mpi"]["library"].as_str().unwrap().contains("libmpi"), "{devices}");
        assert!(devices["mpi"]["version"].is_string() && devices.get("nccl").is_some());
        let text = mpi.cfo(&folder, 2, "devices").done().stdout;
        assert_eq!(text.matches("MPI: ").count(), 1, "{text}");
        let sums = mpi.cfo(&folder, 2, "bench all-reduce --json").done().json();
        assert_eq!((sums["ranks"].as_u64(), sums["rows"].as_array().unwrap().len()), (Some(2), 5), "{sums}");
        // What ranks do not share is rank 0's alone.
        mpi.cfo(&folder, 3, &format!("simulate lorenz --samples 2 --out {}.h5", mpi.name)).done();
        let line =
            format!("predict run --initial data.h5 --times 0.1,0.2 --device cpu --out {}-p.h5", mpi.name);
        assert_eq!(mpi.cfo(&folder, 2, &line).done().stdout.lines().count(), 1);
    }
}

/// What is wrong for all ranks is said once, and the job ends as one process would.
#[test]
fn a_mistake_is_said_once() {
    let folder = prepared();
    std::fs::write(folder.path("wrong.toml"), RECIPE.replace("steps", "stepz")).unwrap();
    std::fs::write(folder.path("nothing.toml"), RECIPE.replace("data.h5", "nothing.h5")).unwrap();
    for mpi in Mpi::all() {
        for line in [
            "train --nonsense",
            "train wrong.toml --device cpu --out run",
            "train absent.toml --device cpu --out run",
            "train nothing.toml --device cpu --out run",
            "train recipe.toml --device cpu --out run --set train.learning_rate=-1",
            "evaluate nowhere --data data.h5 --device cpu",
        ] {
            let refused = mpi.cfo(&folder, 3, line).ended_with(2);
            assert_eq!(refused.stderr.matches("error: ").count(), 1, "{line}: {}", refused.stderr);
            assert_eq!(refused.stdout, "", "{line}");
        }
        assert!(!folder.path("run").exists());
    }
}

/// A step is what a rank computes and what it waits.
#[test]
fn a_step_is_told_apart_by_rank() {
    for mpi in Mpi::all() {
        let folder = Folder::new();
        let line = "bench train-step --model unet1d --batch 3 --grid 16 --device cpu --repetitions 5";
        let found = mpi.cfo(&folder, 3, &format!("{line} --json")).done().json();
        let ranks = found["ranks"].as_array().unwrap();
        assert_eq!(ranks.len(), 3, "{found}");
        for (number, rank) in ranks.iter().enumerate() {
            let [own, waited] = ["own_ms", "waited_ms"].map(|key| rank[key].as_f64().unwrap());
            assert!(rank["rank"] == number && own > 0.0 && waited >= 0.0, "{rank}");
        }
        // No rank goes to the next step before the others have come to this one's sum.
        let steps =
            ranks.iter().map(|rank| rank["own_ms"].as_f64().unwrap() + rank["waited_ms"].as_f64().unwrap());
        let (least, most) =
            steps.fold((f64::INFINITY, 0.0), |(least, most), step| (step.min(least), step.max(most)));
        assert!(most < 1.5 * least, "{found}");
        let text = mpi.cfo(&folder, 3, line).done().stdout;
        assert!(text.contains("on 3 ranks (least / mean / most): computation"), "{text}");
        let alone = folder.cfo(&format!("{line} --json")).done().json();
        assert!(alone.get("ranks").is_none(), "{alone}");
    }
}

#[test]
fn both_interfaces_of_mpich_are_spoken() {
    for mpi in Mpi::all().iter().filter(|mpi| mpi.name == "mpich") {
        let folder = prepared();
        for name in ["libmpi_abi.so.1", "libmpi.so.12"] {
            let library = mpi.home.join("lib").join(name);
            let mut command = mpi.command(&folder, 2);
            command.arg(env!("CARGO_BIN_EXE_cfo")).args(["devices", "--json"]).env("CFO_MPI", &library);
            let devices = folder.run(&mut command, name).done().json();
            assert_eq!(devices["mpi"]["library"].as_str(), library.to_str());
            assert_eq!(devices["ranks"].as_array().unwrap().len(), 2);
        }
    }
}

#[test]
fn reproduce_uses_all_ranks() {
    let Some(mpi) = Mpi::all().into_iter().next() else { return };
    let folder = Folder::new();
    let line = "reproduce nfe --system lorenz --recipe paper --scale smoke --set train.steps=40 --set train.batch=32 --device cpu --json --out";
    let alone = folder.cfo(&format!("{line} alone --runs alone-runs")).done().json();
    let together = mpi.cfo(&folder, 2, &format!("{line} both --runs both-runs")).done().json();
    let errors = |document: &Value| -> Vec<f64> {
        let rows = document["rows"].as_array().unwrap().iter();
        rows.filter_map(|row| row["relative_l2"].as_f64()).collect()
    };
    assert!(!errors(&alone).is_empty(), "{alone}");
    for (found, expected) in errors(&together).iter().zip(errors(&alone)) {
        // Two ranks add gradients in another order; 40 steps and a rollout pass that on.
        assert!((found / expected - 1.0).abs() < 1e-3, "{found} and {expected}");
    }
    assert_eq!(errors(&together).len(), errors(&alone).len());
    assert!(folder.path("both/report.md").exists());
    // Finished trainings are only measured again.
    let again = mpi.cfo(&folder, 2, &format!("{line} both --runs both-runs")).done().json();
    assert_eq!(errors(&again), errors(&together));
}
