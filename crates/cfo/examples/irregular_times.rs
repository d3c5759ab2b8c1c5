//! Irregular times: trains on a damped pendulum with a few random times per trajectory, and predicts on a regular, much
//! finer grid.
//!
//! `cargo run --release -p cfo --example irregular_times`

use cfo::data::{Description, FieldShape, InputNames, Trajectory};
use cfo::numerics::Philox;
use cfo::numerics::metric::relative_l2;
use cfo::numerics::ode::{Controller, DOPRI5, Steps, integrate};
use cfo::{Recipe, Solver, Training, Trajectories};

/// Angle and velocity at some times.
fn pendulum(start: [f64; 2], times: &[f64]) -> Result<Vec<f32>, Box<dyn std::error::Error>> {
    let field = |_: f64, u: &[f64], out: &mut [f64]| {
        out[0] = u[1];
        out[1] = -0.2 * u[1] - 4.0 * u[0].sin();
    };
    let solution =
        integrate(&field, &DOPRI5, 0.0, &start, times, Steps::Adaptive(Controller::new(1e-9, 1e-9)))?;
    Ok(solution.states.iter().map(|&u| u as f32).collect())
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    run(3000)
}

pub(crate) fn run(steps: u32) -> Result<(), Box<dyn std::error::Error>> {
    let mut trajectories = Vec::new();
    for i in 0..100 {
        let mut random = Philox::new(7, i);
        let start = [random.uniform_between(-2.0, 2.0), random.uniform_between(-1.0, 1.0)];
        let frames = 30 + random.below(30) as usize;
        let mut times: Vec<f64> =
            (0..frames).map(|_| random.uniform_between(0.05, 5.95)).chain([0.0, 6.0]).collect();
        times.sort_by(f64::total_cmp);
        times.dedup_by(|a, b| *a - *b < 1e-2);
        let values = pendulum(start, &times)?;
        trajectories.push(Trajectory::new(times, values, vec![])?);
    }
    let description = Description {
        system: "pendulum".into(),
        shape: FieldShape::system(2),
        periodic: vec![],
        domain: vec![],
        channel_names: vec!["angle".into(), "velocity".into()],
        channel_units: vec![],
        inputs: InputNames::default(),
    };
    let data = Trajectories::new(description, trajectories)?;
    let recipe = Recipe::parse(include_str!("../recipes/own-data.toml"), &[])?;
    let trained = Training::from_recipe(&recipe).steps(steps).fit(&data)?;

    // Prediction times are arbitrary: here a thousand of them, from an initial state outside the training set.
    let times: Vec<f64> = (1..=1000).map(|i| 6.0 * f64::from(i) / 1000.0).collect();
    let start = [1.3, -0.4];
    // A budget of 240 network evaluations is 60 steps; states between them are interpolated.
    let solver = Solver::rk4().evaluations(240);
    let found = trained.with_solver(solver).predict(&start.map(|u| u as f32), 0.0, &times)?;
    let error = relative_l2(&found.states, &pendulum(start, &times)?);
    println!("{} times by {} evaluations: relative L2 error {error:.4}", times.len(), found.evaluations);
    Ok(())
}
