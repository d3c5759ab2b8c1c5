//! Accuracy of trained operators.

use std::sync::atomic::AtomicBool;

use cfo::data::Trajectory;
use cfo::data::simulate::KuramotoSivashinsky;
use cfo::numerics::ode::{DOPRI5, EULER, HEUN, RK4, TSIT5, Tableau};
use cfo::{Budget, Recipe, Request, Solver, SolverOptions, Trained, Trajectories, Watch};

use crate::util::{described, oscillators, recipe, trained};

fn test_error(trained: &Trained, set: &Trajectories, options: &SolverOptions) -> f64 {
    trained.with_options(options).unwrap().evaluate(set.test()).unwrap().relative_l2.mean
}

#[test]
fn irregular_ragged_data_are_learnt_and_every_solver_agrees() {
    let set = oscillators(60);
    let trained = trained(&recipe(1500), &set, None, false).unwrap();
    let error = test_error(&trained, &set, &SolverOptions::default());
    assert!(error < 0.05, "relative L2 {error}");
    for (solver, nfe) in
        [("euler", 2000), ("heun", 400), ("rk4", 400), ("rk4", 60), ("dopri5", 0), ("tsit5", 0)]
    {
        let tolerance = |tolerance| (nfe == 0).then_some(tolerance);
        let options = SolverOptions {
            solver: Some(solver.into()),
            nfe: (nfe > 0).then_some(nfe),
            rtol: tolerance(1e-5),
            atol: tolerance(1e-7),
            ..SolverOptions::default()
        };
        let other = test_error(&trained, &set, &options);
        assert!(
            (other - error).abs() < 0.01,
            "{solver} with {nfe} evaluations: {other}, the recipe's solver: {error}"
        );
    }
}

/// Checks noise with decay on data on a circle, which do not define the field beside it. With decay, a state beside the circle approaches
/// it and rotates with the data. Without decay, it remains beside the circle.
#[test]
fn fading_noise_leads_back_to_the_data() {
    let times: Vec<f64> = (0..31).map(|k| 0.1 * f64::from(k)).collect();
    let round = |start: f64| {
        let values = times.iter().flat_map(|t| [(start + t).cos() as f32, (start + t).sin() as f32]);
        Trajectory::new(times.clone(), values.collect(), vec![]).unwrap()
    };
    let set = described(2, (0..20).map(|i| round(f64::from(i) * 0.3)).collect());
    let radius = |decay: f64| {
        let mut recipe = recipe(800);
        (recipe.path.noise.amplitude, recipe.path.noise.exponent, recipe.path.noise.decay) = (0.05, 0, decay);
        let trained = trained(&recipe, &set, None, false).unwrap();
        let end = integrate(&trained, RK4, (0.0, vec![1.06, 0.0]), 2.5, 50);
        // Noise limits the accuracy of the angle to a tenth of a radian, on the circle and beside it.
        let turned = f64::from(end[1]).atan2(f64::from(end[0]));
        assert!((turned - 2.5).abs() < 0.1, "decay {decay}: turned by {turned} instead of 2.5");
        f64::from(end[0]).hypot(f64::from(end[1]))
    };
    // Full decay would remove the distance after 2.5 units of time; after 800 steps, the network reduces it by less.
    let [kept, led] = [0.0, 30.0].map(radius);
    assert!((led - 1.0).abs() < 0.25 * (kept - 1.0).abs(), "radius {kept} without decay, {led} with it");
}

/// Returns the states at the end of an integration in `steps` steps.
fn integrate(trained: &Trained, tableau: Tableau, from: (f64, Vec<f32>), to: f64, steps: usize) -> Vec<f32> {
    let times: Vec<f64> = (1..=steps).map(|i| from.0 + (to - from.0) * i as f64 / steps as f64).collect();
    let solver = Solver { tableau, budget: Budget::StepPerOutput };
    trained.with_solver(solver).predict(&from.1, from.0, &times).unwrap().state(steps - 1).to_vec()
}

#[test]
fn forward_then_backward_returns_to_the_start() {
    let set = oscillators(30);
    let trained = trained(&recipe(400), &set, None, false).unwrap();
    let start = vec![0.7_f32, -0.2];
    for (tableau, tolerance) in [(EULER, 0.3), (HEUN, 5e-3), (RK4, 1e-4), (DOPRI5, 1e-4), (TSIT5, 1e-4)] {
        let end = integrate(&trained, tableau, (0.2, start.clone()), 1.7, 60);
        let back = integrate(&trained, tableau, (1.7, end.clone()), 0.2, 60);
        let distance = (back[0] - start[0]).hypot(back[1] - start[1]);
        let moved = (end[0] - start[0]).hypot(end[1] - start[1]);
        assert!(
            moved > 0.1 && distance < tolerance,
            "{}: moved {moved}, came back to {distance}",
            tableau.name
        );
    }
}

/// Checks that the recipe of the Kuramoto-Sivashinsky equation has length and time step, which differ between trajectories, as inputs. An
/// autoregressive model without the step as a parameter is refused.
#[test]
fn lengths_and_steps_are_told_to_the_network() {
    let equation = KuramotoSivashinsky {
        grid: 32,
        resolution: 256,
        frames: 10,
        horizon: 2.0,
        spin_up: 20.0,
        ..Default::default()
    };
    let set = Trajectories::simulate(&equation, 12, 0, &AtomicBool::new(false)).unwrap();
    let shipped = include_str!("../../recipes/kuramoto-sivashinsky.toml");
    let recipe = |more: &[&str]| {
        let small = ["operator.channels=[8,16]", "train.steps=8", "train.batch=4", "train.validate_every=0"];
        let all: Vec<String> = small.iter().chain(more).map(ToString::to_string).collect();
        Recipe::parse(shipped, &all).unwrap()
    };
    for objective in ["flow-matching", "autoregressive"] {
        let kind = format!("objective.kind={objective}");
        let trained = trained(&recipe(&[&kind]), &set, None, false).unwrap();
        let error = test_error(&trained, &set, &SolverOptions::default());
        assert!(error.is_finite() && error < 10.0, "{objective}: {error}");
        let (first, step) = (&set.trajectories[0], set.trajectories[0].inputs.parameters[2]);
        let states = vec![first.values[..32].to_vec(); 2];
        let inputs = [58.0, 70.0].map(|length| vec![length, 1.0, step].into()).to_vec();
        let request = Request { start: vec![0.0; 2], states, times: vec![vec![step]; 2], inputs };
        let ends = trained.predict_each(&request, &Watch::default()).unwrap().states;
        assert_ne!(ends[0], ends[1], "{objective}: the length makes no difference");
    }
    let blind = recipe(&["objective.kind=autoregressive", "data.condition=false"]);
    let refused = trained(&blind, &set, None, false).unwrap_err();
    assert!(refused.to_string().contains("needs the step as a parameter"), "{refused}");
    assert!(refused.hint().unwrap().contains("data.condition"));
}
