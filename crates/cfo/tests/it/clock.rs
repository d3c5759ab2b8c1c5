//! Networks with a clock, whose time is not uniform in the user's time.

use cfo::numerics::metric::relative_l2;
use cfo::numerics::ode::{Controller, DOPRI5};
use cfo::{Budget, Device, Recipe, Solver, Trained, Training, Trajectories};
use cfo_data::Trajectory;
use cfo_numerics::Philox;

use crate::util::described;

/// The start time of trajectories.
const START: f64 = 3.0;

/// Returns trajectories of two components, one of which decays a hundred times faster than the other.
fn transients(seed: u64, count: u64) -> Trajectories {
    let times: Vec<f64> = (0..=50).map(|i| START + f64::from(i) / 50.0).collect();
    let one = |i: u64| {
        let mut random = Philox::new(seed, i);
        let [fast, slow] = [(); 2].map(|()| random.uniform_between(0.5, 1.5));
        let at = |time: f64| {
            let rest = slow * (-0.6 * (time - START)).exp();
            [fast * (-60.0 * (time - START)).exp() + rest, rest]
        };
        let values = times.iter().flat_map(|&time| at(time)).map(|value| value as f32).collect();
        Trajectory::new(times.clone(), values, vec![]).unwrap()
    };
    described(2, (0..count).map(one).collect())
}

const RECIPE: &str = r#"
[data]
keep_rate = 0.25
[operator]
kind = "mlp"
hidden = [48, 48]
activation = "silu"
time = 4
[train]
batch = 128
learning_rate = 3e-3
schedule = "cosine"
"#;

fn recipe(keys: &[&str]) -> cfo::Result<Recipe> {
    let keys: Vec<String> = keys.iter().map(|key| (*key).to_owned()).collect();
    Recipe::parse(RECIPE, &keys)
}

fn trained(keys: &[&str], steps: u32) -> Trained {
    let training = Training::from_recipe(&recipe(keys).unwrap()).device(Device::Cpu).steps(steps);
    training.fit(&transients(1, 100)).unwrap()
}

/// Returns the mean error of predictions of new trajectories.
fn error(trained: &Trained) -> f64 {
    let of = |one: &Trajectory| {
        let found = trained.predict(&one.values[..2], START, &one.times[1..]).unwrap();
        relative_l2(&found.states, &one.values[2..])
    };
    transients(2, 20).trajectories.iter().map(of).sum::<f64>() / 20.0
}

/// Checks that a clock reduces the error on a random quarter of the times. Without one, a spline misses the fast part.
#[test]
fn a_transient_at_sparse_times_is_learnt_by_its_own_clock() {
    let [even, own] = [&[][..], &["path.clock=0.02"]].map(|keys| error(&trained(keys, 8000)));
    // The ratio is one half (0.040 and 0.079); rounding differs between processors.
    assert!(own < 0.75 * even, "{own} by its own clock, {even} by an even one");
}

/// Checks that velocities are slopes in the user's time with a clock, also before and after the times of the data.
#[test]
fn velocities_are_slopes_by_the_users_time() {
    let trained = trained(&["path.clock=0.05"], 200);
    let scaling = &trained.model().scaling;
    let state = [0.7_f32, 0.4];
    let fine = trained.with_solver(Solver { budget: Budget::StepAtMost(1e-5), ..Solver::rk4() });
    for time in [START - 0.01, START, START + 0.02, START + 0.5, START + 1.2] {
        assert!((scaling.restore_time(scaling.time(time)) - time).abs() < 1e-12);
        let velocity = trained.velocity(&state, &[time]).unwrap();
        let step = 1e-4;
        let near = fine.predict(&state, time, &[time - step, time + step]).unwrap();
        for i in 0..2 {
            let slope = f64::from(near.state(1)[i] - near.state(0)[i]) / (2.0 * step);
            // Differences of numbers of size 1 in single precision over 2e-4; the slope changes over the step.
            let bound = 2e-3 + 1e-2 * slope.abs() + 1e-3 * f64::from(velocity[0].abs());
            assert!((slope - f64::from(velocity[i])).abs() < bound, "{time}, {i}: {slope} {velocity:?}");
        }
    }
}

/// Checks that budgets, limits and tolerances apply to the user's time and all give the same solution.
#[test]
fn every_way_of_stepping_solves_the_same_equation() {
    let trained = trained(&["path.clock=0.02"], 200);
    let state = [1.2_f32, 0.8];
    let times = [START + 0.03, START + 0.1, START + 1.0, START + 1.3];
    let by = |budget| {
        trained.with_solver(Solver { budget, ..Solver::rk4() }).predict(&state, START, &times).unwrap()
    };
    let truth = by(Budget::StepAtMost(2e-4));
    // No step is longer than the limit.
    assert!(truth.evaluations >= 4 * 6500, "{}", truth.evaluations);
    for budget in [Budget::StepPerOutput, Budget::StepAtMost(0.02), Budget::Evaluations(400)] {
        let found = by(budget);
        let error = relative_l2(&found.states, &truth.states);
        // One step per interval of the data resolves the fast part to a thousandth.
        assert!(error < 3e-3, "{budget:?}: {error}");
    }
    for controller in
        [Controller::new(1e-6, 1e-8), Controller { max_step: 0.01, ..Controller::new(1e-3, 1e-5) }]
    {
        let solver = Solver { tableau: DOPRI5, budget: Budget::Adaptive(controller) };
        let found = trained.with_solver(solver).predict(&state, START, &times).unwrap();
        let error = relative_l2(&found.states, &truth.states);
        assert!(error < 1e-3, "{error}");
        // At least 130 steps, with six evaluations each.
        assert!(!controller.max_step.is_finite() || found.evaluations >= 6 * 130, "{}", found.evaluations);
    }
    // Forward and backward.
    let there = by(Budget::StepAtMost(2e-3));
    let back = trained.predict(there.state(0), times[0], &[START]).unwrap();
    assert!(relative_l2(back.state(0), &state) < 3e-3, "{:?}", back.states);
    // A budget for the horizon is divided by the network's time, in which steps are equal.
    let share = |to: f64| {
        let solver = Solver { budget: Budget::EvaluationsPerHorizon(400), ..Solver::rk4() };
        trained.with_solver(solver).predict(&state, START, &[START + to]).unwrap().evaluations
    };
    assert_eq!(share(1.0), 400);
    // A share of ln 3 / ln 51, in whole steps of four evaluations.
    assert!((100..120).contains(&share(0.04)), "{}", share(0.04));
}

/// Checks that a run keeps its clock and is resumed bit-identically.
#[test]
fn a_run_goes_on_by_its_clock() {
    let (folder, set) = (tempfile::tempdir().unwrap(), transients(1, 20));
    let run = |name: &str, steps: u32, resume: bool| {
        let keys = recipe(&["path.clock=0.02", "train.schedule=constant"]).unwrap();
        let training = Training::from_recipe(&keys).device(Device::Cpu).steps(steps).resume(resume);
        training.folder(folder.path().join(name)).fit(&set).unwrap()
    };
    let whole = run("whole", 40, false);
    run("parts", 20, false);
    run("parts", 40, true);
    let loaded = Trained::loader(folder.path().join("parts")).device(Device::Cpu).load().unwrap();
    assert_eq!(loaded.model().scaling, whole.model().scaling);
    assert_eq!(loaded.model().scaling.clock, Some(0.02));
    let predicted = |trained: &Trained| trained.predict(&[1.0, 0.5], START, &[START + 0.7]).unwrap().states;
    assert_eq!(predicted(&loaded), predicted(&whole));
}

#[test]
fn clocks_that_make_no_sense_are_refused() {
    let refused = |keys: &[&str]| recipe(keys).unwrap_err().to_string();
    for half in ["0", "-1", "nan", "inf"] {
        assert!(refused(&[&format!("path.clock={half}")]).contains("positive"));
    }
    let untimed = refused(&["path.clock=0.1", "operator.time=false"]);
    assert!(untimed.contains("path.clock") && untimed.contains("operator.time"), "{untimed}");
    assert!(refused(&["path.clock=0.1", "path.smoothing=auto"]).contains("path.smoothing"));
    // An autoregressive model has no velocity and cannot have a clock.
    let steps = ["path.clock=0.1", "data.keep_rate=1.0", "objective.kind=autoregressive"];
    let even = trained(&steps[1..], 5);
    assert_eq!(trained(&steps, 5).model().scaling, even.model().scaling);
}
