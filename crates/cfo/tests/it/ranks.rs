//! A rank that computes wrong results, so that its weights differ from those of the others.

use std::path::{Path, PathBuf};
use std::process::Command;

use cfo::graph::{Activation, Graph, Initial, Node};
use cfo::operator::{Context, Operator, Setting};
use cfo::ranks::{join, world};
use cfo::{Device, Training};

use crate::util::oscillators;

/// The environment variable with the folder of a run, for the processes of a job.
const FOLDER: &str = "CFO_TEST_RANKS_FOLDER";

/// A matrix plus another one, which rank 1 changes at every step.
struct Drifting;

impl Operator for Drifting {
    fn name(&self) -> &str {
        "drifting"
    }

    fn apply(&self, graph: &mut Graph, setting: &Setting, field: Node, _: &Context) -> cfo::Result<Node> {
        let shape = [setting.inputs, setting.outputs];
        let (matrix, other) = (
            graph.parameter("matrix", shape, Initial::ZEROS)?,
            graph.parameter("other", shape, Initial::fan_in(2))?,
        );
        if world().is_some_and(|ranks| ranks.rank() == 1) {
            let wrong = graph.scale(other, 1.001)?;
            graph.assign(other, wrong)?;
        }
        Ok(graph.linear(field, matrix, None, Activation::Identity)?)
    }
}

/// Does the work of each process of the job below; returns if there is no job.
#[test]
fn process_of_a_job() {
    let Some(folder) = std::env::var_os(FOLDER) else { return };
    let ranks = join("1", |text| eprintln!("{text}")).unwrap().unwrap();
    let training = Training::new(Drifting).device(Device::Cpu).steps(20).batch(8);
    let refused = training.folder(Path::new(&folder)).fit(&oscillators(8)).unwrap_err();
    println!("refused: {refused}; {}", refused.hint().unwrap_or_default());
    ranks.finish();
}

#[test]
fn a_rank_whose_weights_drift_is_found_before_the_checkpoint() {
    for (name, variable) in [("mpich", "CFO_MPICH"), ("openmpi", "CFO_OPENMPI")] {
        let home =
            std::env::var_os(variable).map(PathBuf::from).filter(|home| home.join("bin/mpiexec").exists());
        assert!(home.is_some() || std::env::var_os("CI").is_none(), "the checks need {variable}");
        let Some(home) = home else {
            println!("skipped: `{variable}` names no folder with `bin/mpiexec`");
            continue;
        };
        let folder = tempfile::tempdir().unwrap();
        let mut command = Command::new(home.join("bin/mpiexec"));
        if name == "openmpi" {
            command.args(["--oversubscribe", "--allow-run-as-root"]);
        }
        command.args(["-n", "3"]).arg(std::env::current_exe().unwrap());
        command.args(["--exact", "ranks::process_of_a_job", "--nocapture"]).env_remove("CFO_MPI");
        command.env("RAYON_NUM_THREADS", "1").env("CFO_RANKS_TIMEOUT", "20");
        let output = command.env(FOLDER, folder.path().join("run")).output().unwrap();
        let said = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success(), "{said}{}", String::from_utf8_lossy(&output.stderr));
        // All ranks print the error.
        assert_eq!(said.matches("refused: rank 1 on ").count(), 3, "{said}");
        assert_eq!(said.matches("has weights ").count(), 3, "{said}");
        assert!(said.contains("that machine or MPI gives wrong results"), "{said}");
        assert!(!folder.path().join("run/checkpoints/latest").exists());
    }
}
