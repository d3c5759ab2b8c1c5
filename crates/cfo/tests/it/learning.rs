//! What a trained operator can do.

use cfo::data::Split;
use cfo::numerics::ode::{DOPRI5, EULER, HEUN, RK4, TSIT5, Tableau};
use cfo::{Budget, EvaluateConfig, Request, Rollout, Solver, Trained, evaluate};

use crate::util::{oscillators, recipe, trained};

fn test_error(trained: &mut Trained, set: &cfo::TrajectorySet, config: &EvaluateConfig) -> f64 {
    let chosen: Vec<_> = set.part(Split::Test).map(|(_, trajectory)| trajectory).collect();
    let solver = Solver::from_config(config).unwrap();
    let prefix = trained.prefix();
    evaluate(&trained.model, &mut trained.memory, &chosen, &solver, prefix).unwrap().relative_l2.mean
}

#[test]
fn irregular_ragged_data_are_learnt_and_every_solver_agrees() {
    let set = oscillators(60);
    let mut trained = trained(&recipe(1500), &set, None, false).unwrap();
    let error = test_error(&mut trained, &set, &EvaluateConfig::default());
    assert!(error < 0.05, "relative L2 {error}");
    for (solver, nfe) in
        [("euler", 2000), ("heun", 400), ("rk4", 400), ("rk4", 60), ("dopri5", 0), ("tsit5", 0)]
    {
        let config = EvaluateConfig { solver: solver.into(), nfe, rtol: 1e-5, atol: 1e-7 };
        let other = test_error(&mut trained, &set, &config);
        assert!(
            (other - error).abs() < 0.01,
            "{solver} with {nfe} evaluations: {other}, one RK4 step an output: {error}"
        );
    }
}

/// States at the end of an integration in so many steps.
fn integrate(
    trained: &mut Trained,
    tableau: Tableau,
    from: (f64, Vec<f32>),
    to: f64,
    steps: usize,
) -> Vec<f32> {
    let times = (1..=steps).map(|i| from.0 + (to - from.0) * i as f64 / steps as f64).collect();
    let request =
        Request { start: vec![from.0], states: vec![from.1], times: vec![times], conditions: vec![vec![]] };
    let prefix = trained.prefix();
    let mut rollout = Rollout::new(&trained.model, &mut trained.memory, 1, tableau, prefix).unwrap();
    let states = rollout.predict(&mut trained.memory, &request, Budget::StepPerOutput).unwrap().states;
    states[0][2 * (steps - 1)..].to_vec()
}

#[test]
fn forward_then_backward_returns_to_the_start() {
    let set = oscillators(30);
    let mut trained = trained(&recipe(400), &set, None, false).unwrap();
    let start = vec![0.7_f32, -0.2];
    for (tableau, tolerance) in [(EULER, 0.3), (HEUN, 5e-3), (RK4, 1e-4), (DOPRI5, 1e-4), (TSIT5, 1e-4)] {
        let end = integrate(&mut trained, tableau, (0.2, start.clone()), 1.7, 60);
        let back = integrate(&mut trained, tableau, (1.7, end.clone()), 0.2, 60);
        let distance = (back[0] - start[0]).hypot(back[1] - start[1]);
        let moved = (end[0] - start[0]).hypot(end[1] - start[1]);
        assert!(
            moved > 0.1 && distance < tolerance,
            "{}: moved {moved}, came back to {distance}",
            tableau.name
        );
    }
}
