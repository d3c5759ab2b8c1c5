//! Refined paths: gaps between snapshots are filled with the network's own solution.

use std::ops::ControlFlow;
use std::path::Path;

use cfo::{CfoError, Device, Recipe, Trained, Training, Trajectories};
use cfo_engine::Role;

use crate::util::{oscillators, recipe, trained};

/// Returns a recipe that trains for `steps` steps on a part of the times.
fn sparse(steps: u32, keep_rate: f64, keys: &[&str]) -> Recipe {
    let mut all: Vec<String> = vec![format!("data.keep_rate={keep_rate}")];
    all.extend(keys.iter().map(|key| (*key).to_owned()));
    Recipe::parse(&recipe(steps).to_toml().unwrap(), &all).unwrap()
}

/// Returns the weights, their EMA and the optimiser's tensors.
fn kept(trained: &Trained) -> Vec<(String, Vec<f32>)> {
    trained.with_memory(|memory| {
        let names = memory.names_where(|role| role.is_network() || role == Role::Optimizer);
        let names = names.filter(|name| !name.ends_with(".step"));
        let mut kept: Vec<_> = names.map(|name| (name.to_owned(), memory.read(name).unwrap())).collect();
        kept.sort_by(|a, b| a.0.cmp(&b.0));
        kept
    })
}

/// Checks that filled gaps reduce the error where snapshots are sparse, in each mode, and that the misses fall.
#[test]
fn filled_gaps_make_predictions_better() {
    let set = oscillators(60);
    let error = |keys: &[&str]| {
        let trained = trained(&sparse(1500, 0.2, keys), &set, None, false).unwrap();
        let misses: Vec<f64> = trained.history().iter().filter_map(|report| report.miss).collect();
        (trained.evaluate(set.test()).unwrap().relative_l2.mean, misses)
    };
    let (before, none) = error(&[]);
    assert!(none.is_empty());
    for mode in ["auto", "blend", "forward", "backward"] {
        let (after, misses) = error(&["refine.rounds=6", &format!("refine.mode={mode}")]);
        assert!(after < 0.5 * before, "{mode}: {before} became {after}");
        assert_eq!(misses.len(), 6, "{mode}");
        assert!(misses[5] < 0.5 * misses[0], "{mode}: {misses:?}");
    }
}

/// Checks that a run stopped at any step ends bit-identically: before the first round, at one, between two, after the last, and in
/// fine-tuning; also with streamed data, and with other uses of the training data.
#[test]
fn a_run_with_rounds_goes_on_where_it_stopped() {
    let (set, folder) = (oscillators(20), tempfile::tempdir().unwrap());
    let variants: [&[&str]; 6] = [
        &["refine.spacing=0.05"],
        &["path.draw=snapshots", "path.trust=0.01", "refine.mode=forward"],
        &["path.smoothing=0.01", "train.ema=0"],
        &["operator.time=true", "path.clock=0.1"],
        &["finetune.steps=20", "finetune.window=2"],
        &["path.noise={amplitude=0.01,exponent=0,decay=5}", "data.normalize=range"],
    ];
    for (number, keys) in variants.into_iter().enumerate() {
        let keys: Vec<&str> = keys.iter().copied().chain(["refine.rounds=4"]).collect();
        let whole = sparse(400, 0.2, &keys);
        let run = folder.path().join(format!("{number}"));
        let expected = trained(&whole, &set, Some(&run), false).unwrap();
        // Rounds are before steps 80, 160, 240 and 320.
        let misses = |trained: &Trained| -> Vec<f64> {
            trained.history().iter().filter_map(|report| report.miss).collect()
        };
        assert_eq!(misses(&expected).len(), 4, "{keys:?}");
        // Fine-tuning starts with an optimiser of its own.
        let is_tuned = whole.finetune.steps > 0;
        let copies = kept(&expected).iter().filter(|(name, _)| name.starts_with("refine/")).count();
        assert!(is_tuned || copies > 0, "{keys:?}: nothing was filled");
        for stop in [50, 80, 200, 319, 350] {
            let run = folder.path().join(format!("{number}-{stop}"));
            stopped(&whole, &set, &run, stop);
            let resumed = trained(&whole, &set, Some(&run), true).unwrap();
            assert!(kept(&resumed) == kept(&expected), "{keys:?}: stopped after {stop}");
            assert_eq!(misses(&resumed), misses(&expected), "{keys:?}: stopped after {stop}");
        }
        let mut streamed = whole.clone();
        streamed.data.stream = Some(true);
        assert!(
            kept(&trained(&streamed, &set, None, false).unwrap()) == kept(&expected),
            "{keys:?}: streamed"
        );
    }
}

/// Trains until an observer ends the run after `stop` steps.
fn stopped(recipe: &Recipe, set: &Trajectories, run: &Path, stop: u32) {
    let mut recipe = recipe.clone();
    recipe.train.report_every = 1;
    let training = Training::from_recipe(&recipe).device(Device::Cpu).folder(run);
    let training = training.observe(move |report| match report.step < stop {
        true => ControlFlow::Continue(()),
        false => ControlFlow::Break(()),
    });
    assert_eq!(training.fit(set).unwrap().steps(), stop);
}

/// Checks that data whose splines are accurate are trained on as they are.
#[test]
fn gaps_that_a_spline_fills_well_stay_as_they_are() {
    let set = oscillators(20);
    let weights = |rounds: &str| -> Vec<(String, Vec<f32>)> {
        let trained = trained(&sparse(100, 1.0, &["path.stencil=7", rounds]), &set, None, false).unwrap();
        kept(&trained).into_iter().filter(|(name, _)| !name.starts_with("refine")).collect()
    };
    assert!(weights("refine.rounds=0") == weights("refine.rounds=3"));
}

/// Checks that a recipe is refused whose objective has no path, and that data without gaps are trained on as they are.
#[test]
fn rounds_need_a_path_and_gaps() {
    let set = oscillators(10);
    let refused = Recipe::parse("", &["refine.rounds=3".into(), "objective.kind=autoregressive".into()]);
    let Err(refused @ CfoError::InvalidKey { .. }) = refused else { panic!("{refused:?}") };
    assert!(refused.to_string().contains("refine.rounds"), "{refused}");
    let [plain, refined] = [&[][..], &["refine.rounds=3", "refine.spacing=100.0"]]
        .map(|keys| kept(&trained(&sparse(40, 1.0, keys), &set, None, false).unwrap()));
    assert!(plain == refined);
}
