//! How a job of many ranks ends when something goes wrong: each row of the table in docs/developers/scaling.md.

use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::ranks::{Mpi, WRAPPER, end_within, prepared, said_in, signal};
use crate::util::Folder;

#[test]
fn a_killed_rank_ends_the_job_and_the_checkpoint_is_whole() {
    for mpi in Mpi::all() {
        let folder = prepared();
        let mut job = mpi.under_way(&folder, 3, "5");
        signal(&folder, 1, "KILL");
        let code = end_within(&mut job, 15, &folder);
        let said = said_in(&folder);
        assert_ne!(code, Some(0), "{said}");
        let named = match mpi.name {
            "openmpi" => vec!["rank 1 ".to_owned()],
            // This launcher names a process and its host: the first whose end it notices. After a kill it ends the others, and may notice
            // one of these first.
            _ => (0..3).map(|rank| format!("PID {} RUNNING AT ", process_of(&folder, rank))).collect(),
        };
        assert!(named.iter().any(|named| said.contains(named)), "{said}");
        folder.cfo("evaluate run --data data.h5 --checkpoint latest --device cpu").done();
    }
}

/// Returns the process of a rank.
fn process_of(folder: &Folder, rank: usize) -> String {
    std::fs::read_to_string(folder.path(&format!("pid-{rank}"))).unwrap().trim().to_owned()
}

/// Ends the stopped process of rank 1, which a launcher may leave behind.
fn end_stopped(folder: &Folder) {
    let process = process_of(folder, 1);
    let _ = Command::new("kill").args(["-KILL", &process]).stderr(Stdio::null()).status();
}

/// The others wait until rank 0 has finished, however long that takes: only heartbeats tell them that a rank is missing.
#[test]
fn a_rank_without_heartbeats_is_named() {
    for mpi in Mpi::all() {
        let folder = Folder::new();
        let mut command =
            mpi.shell(&folder, 3, WRAPPER, "simulate burgers --samples 100000000 --out data.h5");
        let said = std::fs::File::create(folder.path("said")).unwrap();
        command.env("CFO_RANKS_TIMEOUT", "1").stdout(Stdio::null()).stderr(said);
        let mut job = command.spawn().unwrap();
        // Rank 0 begins the file when all ranks have joined.
        let files = || std::fs::read_dir(folder.path(".")).unwrap().flatten();
        let begun = || files().any(|file| file.file_name().to_string_lossy().ends_with(".partial"));
        let started = Instant::now();
        while !begun() {
            assert!(started.elapsed() < Duration::from_secs(60), "{}", said_in(&folder));
            std::thread::sleep(Duration::from_millis(20));
        }
        signal(&folder, 1, "STOP");
        let code = end_within(&mut job, 30, &folder);
        end_stopped(&folder);
        let said = said_in(&folder);
        assert_ne!(code, Some(0), "{said}");
        assert_eq!(said.matches("error: rank ").count(), 1, "{said}");
        assert!(said.contains("error: rank 1 on ") && said.contains("no heartbeat for 8 s"), "{said}");
    }
}

#[test]
fn a_rank_that_hangs_is_named() {
    for mpi in Mpi::all() {
        let folder = prepared();
        let mut job = mpi.under_way(&folder, 3, "2");
        signal(&folder, 1, "STOP");
        let code = end_within(&mut job, 30, &folder);
        end_stopped(&folder);
        assert_ne!(code, Some(0));
        let said = said_in(&folder);
        assert!(said.contains("error: rank 1 on "), "{said}");
        assert!(said.contains("hint: check that machine"), "{said}");
    }
}

#[test]
fn a_signal_to_one_rank_saves_and_stops_all() {
    for (mpi, name) in Mpi::all().iter().zip(["USR1", "TERM"]) {
        let folder = prepared();
        let mut job = mpi.under_way(&folder, 2, "20");
        signal(&folder, 1, name);
        let code = end_within(&mut job, 30, &folder);
        let said = said_in(&folder);
        assert_eq!(code, Some(1), "{said}");
        let at = said.split("interrupted at step ").nth(1).unwrap_or_else(|| panic!("{said}"));
        let step: u64 = at.split_whitespace().next().unwrap().parse().unwrap();
        let state = std::fs::read_to_string(folder.path("run/checkpoints/latest/state.json")).unwrap();
        let state: Value = serde_json::from_str(&state).unwrap();
        assert_eq!(state["state"]["step"], step, "the last step is saved");
    }
}

#[test]
fn ctrl_c_to_the_launcher_saves_and_stops() {
    for mpi in Mpi::all() {
        let folder = prepared();
        let mut job = mpi.under_way(&folder, 2, "20");
        let sent = Command::new("kill").args(["-INT", &job.id().to_string()]).status().unwrap();
        assert!(sent.success());
        let code = end_within(&mut job, 30, &folder);
        let said = said_in(&folder);
        assert_eq!(code, Some(1), "{said}");
        let state = std::fs::read_to_string(folder.path("run/checkpoints/latest/state.json")).unwrap();
        let state: Value = serde_json::from_str(&state).unwrap();
        // Open MPI's launcher drops what ranks say from then on.
        if mpi.name == "mpich" {
            let step = state["state"]["step"].as_u64().unwrap();
            assert!(said.contains(&format!("interrupted at step {step}")), "{said}");
        }
        assert!(!said.contains("error: rank "), "{said}");
    }
}

#[test]
fn a_rank_with_other_data_is_refused() {
    for mpi in Mpi::all() {
        let folder = prepared();
        folder.cfo("simulate lorenz --frames 41 --horizon 0.4 --samples 30 --seed 7 --out other.h5").done();
        let script = "[ ${PMI_RANK:-$OMPI_COMM_WORLD_RANK} = 1 ] && d=other.h5 || d=data.h5; exec \"$0\" \"$@\" --data $d";
        let mut command = mpi.shell(&folder, 3, script, "train recipe.toml --device cpu --out run");
        let refused = folder.run(&mut command, "train with other data").ended_with(2);
        assert_eq!(refused.stderr.matches("rank 1 on ").count(), 1, "{}", refused.stderr);
        assert!(refused.stderr.contains("training data"), "{}", refused.stderr);
        assert!(!folder.path("run/checkpoints").exists());
        // A failure of one rank is said by rank 0, with the rank's name.
        let script = "[ ${PMI_RANK:-$OMPI_COMM_WORLD_RANK} = 1 ] && cd / ; exec \"$0\" \"$@\"";
        let mut command = mpi.shell(&folder, 2, script, "train recipe.toml --device cpu --out other");
        let failed = folder.run(&mut command, "train without data");
        assert!(
            failed.stderr.contains("rank 1 on ") && failed.stderr.contains("data.h5"),
            "{}",
            failed.stderr
        );
    }
}

#[test]
fn a_process_of_a_launcher_without_mpi_refuses() {
    let folder = prepared();
    for (variables, named) in [
        ([("PMI_SIZE", "2"), ("PMI_RANK", "0")], "mpiexec"),
        ([("OMPI_COMM_WORLD_SIZE", "2"), ("OMPI_COMM_WORLD_RANK", "0")], "mpiexec"),
        ([("SLURM_NTASKS", "2"), ("SLURM_STEP_ID", "0")], "srun"),
    ] {
        let line = "train recipe.toml --device cpu --out run";
        let mut command = folder.command(line);
        command.env_remove("VIRTUAL_ENV").env("PATH", "/nowhere").envs(variables);
        let refused = folder.run(&mut command, line).ended_with(2);
        assert!(refused.stderr.contains(&format!("`{named}` started 2 processes")), "{}", refused.stderr);
        assert!(refused.stderr.contains("hint: "), "{}", refused.stderr);
        assert!(!folder.path("run").exists(), "it ran as one of several");
        // Whoever wants copies says so.
        let mut command = folder.command("devices");
        folder.run(command.env("CFO_MPI", "off").envs(variables), "devices").done();
    }
    // A batch script of SLURM before its first step is a process alone.
    let mut command = folder.command("devices");
    folder.run(command.env("SLURM_NTASKS", "2"), "devices").done();
}

#[test]
fn a_rank_with_another_recipe_is_refused() {
    for mpi in Mpi::all() {
        let folder = prepared();
        let script = "[ ${PMI_RANK:-$OMPI_COMM_WORLD_RANK} = 2 ] && s=7 || s=1; exec \"$0\" \"$@\" --set train.seed=$s";
        let mut command = mpi.shell(&folder, 3, script, "train recipe.toml --device cpu --out run");
        let refused = folder.run(&mut command, "train with another recipe").ended_with(2);
        assert_eq!(refused.stderr.matches("rank 2 on ").count(), 1, "{}", refused.stderr);
        assert!(refused.stderr.contains("has recipe "), "{}", refused.stderr);
        assert!(!folder.path("run/checkpoints").exists());
    }
}

/// A copy of the program that differs only in its version number.
#[test]
fn a_rank_of_another_version_is_refused() {
    let version = env!("CARGO_PKG_VERSION").as_bytes();
    let mut program = std::fs::read(env!("CARGO_BIN_EXE_cfo")).unwrap();
    let places: Vec<usize> = (0..program.len() - version.len())
        .filter(|&at| program[at] == version[0] && program[at..].starts_with(version))
        .collect();
    assert!(!places.is_empty());
    places.iter().for_each(|at| program[at + version.len() - 1] = b'x');
    for mpi in Mpi::all() {
        let folder = prepared();
        let other = folder.path("other");
        std::fs::write(&other, &program).unwrap();
        std::fs::set_permissions(&other, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
        let script =
            "[ ${PMI_RANK:-$OMPI_COMM_WORLD_RANK} = 1 ] && exec ./other \"$@\" || exec \"$0\" \"$@\"";
        let mut command = mpi.shell(&folder, 2, script, "train recipe.toml --device cpu --out run");
        let refused = folder.run(&mut command, "train by another version").ended_with(2);
        assert_eq!(refused.stderr.matches("rank 1 on ").count(), 1, "{}", refused.stderr);
        assert!(refused.stderr.contains("has version 0.1.x, but rank 0 has 0.1.0"), "{}", refused.stderr);
        assert!(
            refused.stderr.contains("hint: install the same `cfo` on every machine"),
            "{}",
            refused.stderr
        );
        assert!(!folder.path("run").exists());
    }
}

#[test]
fn a_loss_that_diverges_ends_alike_on_any_number_of_ranks() {
    let folder = prepared();
    let line = "train recipe.toml --device cpu --set train.steps=8 --set train.clip=0 --set train.ema=0";
    let rates = |run: &str| -> Vec<f64> {
        let text = std::fs::read_to_string(folder.path(run).join("metrics.jsonl")).unwrap();
        let lines = text.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
        lines
            .filter(|line| line.get("notice").is_some())
            .map(|line| line["learning_rate"].as_f64().unwrap())
            .collect()
    };
    // With the first rate no halving helps; the second one is halved until it does.
    for (name, rate, code) in [("ends", "1e6", 1), ("halves", "2.0", 0)] {
        let line = format!("{line} --set train.learning_rate={rate}");
        let alone = folder.cfo(&format!("{line} --out {name}-one")).ended_with(code);
        for mpi in Mpi::all() {
            let run = format!("{name}-{}", mpi.name);
            let together = mpi.cfo(&folder, 3, &format!("{line} --out {run}")).ended_with(code);
            for word in ["training restarts with", "the loss became"] {
                let count = |text: &str| text.matches(word).count();
                assert_eq!(count(&together.stderr), count(&alone.stderr), "{run}: {}", together.stderr);
            }
            assert_eq!(rates(&run), rates(&format!("{name}-one")), "{run}");
            assert!(!rates(&run).is_empty(), "{run}");
        }
    }
}
