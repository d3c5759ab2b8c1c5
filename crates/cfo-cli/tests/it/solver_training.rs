//! Training through the solver, from the command line.

use crate::util::Folder;

const RECIPE: &str = "[operator]\nkind = \"mlp\"\nhidden = [16, 16]\ntime = false\n\
    [train]\nsteps = 40\nbatch = 64\nlearning_rate = 3e-3\nreport_every = 20\nvalidate_every = 0\ncheckpoint_every = 20\n";

fn prepared() -> Folder {
    let folder = Folder::new();
    folder.cfo("simulate lorenz --frames 21 --horizon 0.2 --samples 10 --out data.h5").done();
    std::fs::write(folder.path("recipe.toml"), RECIPE).unwrap();
    folder
}

/// A neural ODE says what memory it takes, trains, and is evaluated like any other run.
#[test]
fn a_neural_ode_is_trained_and_evaluated() {
    let folder = prepared();
    let keys = "--data data.h5 --device cpu --set objective.kind=neural-ode --set objective.window=2";
    let plan = folder.cfo(&format!("train recipe.toml {keys} --dry-run")).done().stdout;
    assert!(plan.contains("64 states kept at most"), "{plan}");
    let trained = folder.cfo(&format!("train recipe.toml {keys} --out run --json")).done().json();
    assert_eq!((trained["steps"].as_u64(), trained["objective"].as_str()), (Some(40), Some("neural-ode")));
    let found = folder.cfo("evaluate run --data data.h5 --solver tsit5 --json").done().json();
    assert!(found["relative_l2"]["mean"].as_f64().unwrap() < 1.0);
    let timed =
        "bench train-step --device cpu --batch 16 --repetitions 3 --set objective.kind=neural-ode --json";
    let timed = folder.cfo(timed).done().json();
    assert!(timed["solver"]["attempts"].as_u64().unwrap() >= 1, "{timed}");
    let refused = folder.cfo(&format!("train recipe.toml {keys} --set objective.window=30 --out other"));
    assert!(refused.ended_with(2).stderr.contains("shorten the window"));
}

/// Fine-tuning in one run, added to a finished run, and in a second run.
#[test]
fn a_run_is_fine_tuned() {
    let folder = prepared();
    let tune = "--set finetune.steps=20 --set finetune.window=2";
    let whole = format!("train recipe.toml --data data.h5 --device cpu {tune} --out whole --json");
    assert_eq!(folder.cfo(&whole).done().json()["steps"], 60);
    folder.cfo("train recipe.toml --data data.h5 --device cpu --out parts").done();
    let later = format!("train recipe.toml --data data.h5 --device cpu {tune} --out parts --resume --json");
    assert_eq!(folder.cfo(&later).done().json()["steps"], 60);
    let weights =
        |run: &str| std::fs::read(folder.path(run).join("checkpoints/latest/weights.safetensors")).unwrap();
    assert!(weights("whole") == weights("parts"));
    let second = "train recipe.toml --data data.h5 --device cpu --from parts --set objective.kind=neural-ode --set train.steps=20 --out second --json";
    assert_eq!(folder.cfo(second).done().json()["steps"], 20);
    let log = std::fs::read_to_string(folder.path("whole").join("metrics.jsonl")).unwrap();
    assert_eq!(log.lines().count(), 3, "{log}");
}

/// A fine-tuned network is validated, evaluated and predicted with the solver and the steps of its fine-tuning, also with the recipe that is proposed.
#[test]
fn a_fine_tuned_network_keeps_its_steps() {
    let folder = Folder::new();
    folder.cfo("simulate lorenz --frames 21 --horizon 0.2 --samples 20 --out data.h5").done();
    let keys =
        "--set operator.hidden=[8] --set train.steps=20 --set finetune.steps=3 --set finetune.solver.steps=3";
    folder.cfo(&format!("train --data data.h5 --out run --device cpu {keys}")).done();
    let found = folder.cfo("evaluate run --data data.h5 --device cpu --json").done().json();
    assert_eq!((&found["solver"], &found["evaluations"]), (&"rk4".into(), &(20 * 3 * 4).into()));
    let line = "predict run --initial data.h5 --times 0:0.2:81 --out p.npz --device cpu --json";
    assert_eq!(folder.cfo(line).done().json()["evaluations"], 20 * 3 * 4);
    let asked = folder.cfo("evaluate run --data data.h5 --device cpu --steps 5 --json").done().json();
    assert_eq!(asked["evaluations"], 5 * 4);
}
