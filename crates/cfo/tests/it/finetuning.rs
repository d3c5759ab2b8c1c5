//! Fine-tuning through the solver, in one run or in two: it continues from trained weights and reduces the error.

use std::path::Path;

use cfo::recipe::LearningRateSchedule;
use cfo::{Recipe, Trained};
use cfo_engine::Role;

use crate::util::{oscillators, recipe, trained};

/// Returns a recipe with flow matching for `steps` steps, then fine-tuning for `tuning` steps.
fn tuned(steps: u32, tuning: u32, keys: &[&str]) -> Recipe {
    let mut keys: Vec<String> = keys.iter().map(|key| (*key).to_owned()).collect();
    keys.extend([format!("finetune.steps={tuning}"), "data.keep_rate=0.5".into()]);
    let mut base = recipe(steps);
    base.train.schedule = LearningRateSchedule::Constant;
    Recipe::parse(&base.to_toml().unwrap(), &keys).unwrap()
}

fn kept(trained: &Trained) -> Vec<(String, Vec<f32>)> {
    trained.with_memory(|memory| {
        let names = memory.names_where(|role| role.is_network() || role == Role::Optimizer);
        let mut kept: Vec<(String, Vec<f32>)> = names
            .filter(|name| !name.ends_with(".step"))
            .map(|name| (name.to_owned(), memory.read(name).unwrap()))
            .collect();
        kept.sort_by(|a, b| a.0.cmp(&b.0));
        kept
    })
}

fn steps(run: &Path) -> Vec<u64> {
    let lines = std::fs::read_to_string(run.join("metrics.jsonl")).unwrap();
    let step =
        |line: &str| serde_json::from_str::<serde_json::Value>(line).unwrap()["step"].as_u64().unwrap();
    lines.lines().map(step).collect()
}

/// Checks that fine-tuning reduces the error with half of the snapshots, where the path misses part of the solution. Equal steps must be
/// short enough to resolve the solution, or the network learns to compensate the solver's error. Gradients that stop at each snapshot help
/// less, but still more than linear paths.
#[test]
fn fine_tuning_makes_predictions_better() {
    let set = oscillators(60);
    let variants: [&[&str]; 3] = [
        &["finetune.solver.steps=4"],
        &["finetune.solver.steps=4", "finetune.through_time=false", "path.spline=linear"],
        &["finetune.solver=tsit5", "finetune.solver.steps=0", "finetune.window=2"],
    ];
    for keys in variants {
        let keys: Vec<&str> = keys.iter().copied().chain(["finetune.learning_rate=1e-3"]).collect();
        let [before, after] = [0, 200].map(|tuning| {
            let trained = trained(&tuned(400, tuning, &keys), &set, None, false).unwrap();
            assert_eq!(trained.steps(), 400 + tuning);
            trained.evaluate(set.test()).unwrap().relative_l2.mean
        });
        assert!(after < 0.6 * before, "{keys:?}: {before} became {after}");
    }
}

/// Checks that a run stopped at any step ends bit-identically: in the first part, between both parts, in the second, and with fine-tuning
/// added later.
#[test]
fn a_run_with_fine_tuning_goes_on_where_it_stopped() {
    let (set, folder) = (oscillators(20), tempfile::tempdir().unwrap());
    let whole = tuned(40, 40, &["finetune.window=2"]);
    let run = folder.path().join("whole");
    let expected = kept(&trained(&whole, &set, Some(&run), false).unwrap());
    assert_eq!(steps(&run), [20, 40, 60, 80]);
    for (number, stop) in [(20, 0), (40, 0), (40, 20), (40, 40)].into_iter().enumerate() {
        let run = folder.path().join(number.to_string());
        trained(&tuned(stop.0, stop.1, &["finetune.window=2"]), &set, Some(&run), false).unwrap();
        let resumed = trained(&whole, &set, Some(&run), true).unwrap();
        assert!(kept(&resumed) == expected, "stopped after {stop:?}");
        assert_eq!(steps(&run), [20, 40, 60, 80], "{stop:?}");
    }
    let mut streamed = whole.clone();
    streamed.data.stream = Some(true);
    assert!(kept(&trained(&streamed, &set, None, false).unwrap()) == expected, "streamed");
    // A run cannot be resumed with other keys of fine-tuning.
    let run = folder.path().join("2");
    for keys in [&["finetune.window=3"][..], &["train.steps=30", "finetune.window=2"]] {
        let mut longer = tuned(40, 60, &["finetune.window=2"]);
        longer = longer.with(&keys.iter().map(|key| (*key).to_owned()).collect::<Vec<_>>()).unwrap();
        assert!(trained(&longer, &set, Some(&run), true).unwrap_err().hint().is_some());
    }
}

/// Checks the alternative: a neural ODE that starts from the weights of a finished run of flow matching.
#[test]
fn a_second_run_goes_on_from_the_weights_of_the_first() {
    let (set, folder) = (oscillators(60), tempfile::tempdir().unwrap());
    let (first, second) = (folder.path().join("first"), folder.path().join("second"));
    let plain = trained(&tuned(400, 0, &[]), &set, Some(&first), false).unwrap();
    let mut recipe = tuned(
        100,
        0,
        &[
            "objective.kind=neural-ode",
            "objective.solver=rk4",
            "objective.window=4",
            "objective.solver.steps=4",
        ],
    );
    recipe.train.from = Some(first);
    recipe.train.learning_rate = 1e-3;
    let after = trained(&recipe, &set, Some(&second), false).unwrap();
    assert_eq!(after.model().scaling, plain.model().scaling, "the units are the same");
    let error = |trained: &Trained| trained.evaluate(set.test()).unwrap().relative_l2.mean;
    assert!(error(&after) < error(&plain), "{} became {}", error(&plain), error(&after));
}

/// Checks that errors of the second part are reported before the first step and leave no folder.
#[test]
fn fine_tuning_that_does_not_suit_the_data_is_refused_at_once() {
    let (set, folder) = (oscillators(20), tempfile::tempdir().unwrap());
    let run = folder.path().join("runs").join("one");
    let refused = trained(&tuned(1_000_000, 5, &["finetune.window=30"]), &set, Some(&run), false);
    let error = refused.unwrap_err();
    assert!(error.to_string().contains("a window of 30 intervals"), "{error}");
    assert!(error.hint().is_some());
    assert!(!folder.path().join("runs").exists());
}

#[test]
fn fine_tuning_that_makes_no_sense_is_refused() {
    let text = recipe(10).to_toml().unwrap();
    for (key, problem) in [
        ("objective.kind=autoregressive", "no velocity"),
        ("finetune.window=0", "positive"),
        ("finetune.learning_rate=-1.0", "positive"),
        ("finetune.batch=0", "positive"),
        ("train.patience=3", "train.patience"),
    ] {
        let keys = ["finetune.steps=5".to_owned(), "train.validate_every=5".into(), key.into()];
        let refused = Recipe::parse(&text, &keys).unwrap_err().to_string();
        assert!(refused.contains(problem), "{key}: {refused}");
    }
}
