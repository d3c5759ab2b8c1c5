//! Reverse time: learn Lorenz forward, then find where a state came from by integrating the same network backward.
//!
//! `cargo run --release -p cfo --example reverse_time`

use std::sync::atomic::AtomicBool;

use cfo::data::Split;
use cfo::data::simulate::Lorenz;
use cfo::engine::Device;
use cfo::numerics::metric::relative_l2;
use cfo::numerics::ode::RK4;
use cfo::{Budget, Recipe, Request, Rollout, Session, StepReport, TrajectorySet, train};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let interrupt = AtomicBool::new(false);
    let equation = Lorenz { frames: 201, horizon: 1.0, ..Lorenz::default() };
    let set = TrajectorySet::simulate(&equation, 300, 1, &interrupt)?;
    let steps = std::env::args().nth(1).unwrap_or("3000".into());
    let recipe =
        Recipe::parse(include_str!("../../../recipes/own-data.toml"), &[format!("train.steps={steps}")])?;
    let mut observer = |_: &StepReport| {};
    let session = Session {
        device: Device::Cpu,
        folder: None,
        resume: false,
        interrupt: &interrupt,
        observer: &mut observer,
    };
    let mut trained = train(&recipe, &set, session)?;

    // From the state a fifth of the time before the end, back to where it was a fifth of the time earlier.
    let (late, early) = (160, 120);
    let test: Vec<_> = set.part(Split::Test).map(|(_, trajectory)| trajectory).collect();
    let state = |values: &[f32], frame: usize| values[3 * frame..3 * (frame + 1)].to_vec();
    let request = Request {
        start: test.iter().map(|one| one.times[late]).collect(),
        states: test.iter().map(|one| state(&one.values, late)).collect(),
        // Times before the start, in order away from it: nothing else says that time runs backward.
        times: test.iter().map(|one| one.times[early..late].iter().rev().copied().collect()).collect(),
        conditions: vec![vec![]; test.len()],
    };
    let prefix = trained.prefix();
    let mut rollout = Rollout::new(&trained.model, &mut trained.memory, test.len(), RK4, prefix)?;
    let prediction = rollout.predict(&mut trained.memory, &request, Budget::StepPerOutput)?;
    let errors = prediction
        .states
        .iter()
        .zip(&test)
        .map(|(states, one)| relative_l2(&states[states.len() - 3..], &state(&one.values, early)));
    let mut errors: Vec<f64> = errors.collect();
    errors.sort_by(f64::total_cmp);
    println!(
        "{} states, {} steps back: median relative L2 error {:.4}",
        errors.len(),
        late - early,
        errors[errors.len() / 2]
    );
    Ok(())
}
