//! Your own trajectories, here of a predator-prey model: trains on them and predicts one outside the training set.
//!
//! `cargo run --release -p cfo --example own_data`

use cfo::data::{Description, FieldShape, InputNames, Trajectory};
use cfo::numerics::Philox;
use cfo::numerics::ode::{Controller, DOPRI5, Steps, integrate};
use cfo::{Recipe, StepReport, Training, Trajectories};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    run(6000)
}

pub(crate) fn run(steps: u32) -> Result<(), Box<dyn std::error::Error>> {
    let foxes_and_rabbits = |_: f64, u: &[f64], out: &mut [f64]| {
        out[0] = 1.1 * u[0] - 0.4 * u[0] * u[1];
        out[1] = 0.1 * u[0] * u[1] - 0.4 * u[1];
    };
    // Every trajectory has its own number of snapshots at its own times.
    let trajectories = (0..120).map(|i| {
        let mut random = Philox::new(1, i);
        let start = [random.uniform_between(4.0, 12.0), random.uniform_between(1.0, 5.0)];
        let frames = 60 + random.below(40) as usize;
        let mut times: Vec<f64> =
            (0..frames).map(|_| random.uniform_between(0.05, 9.95)).chain([0.0, 10.0]).collect();
        times.sort_by(f64::total_cmp);
        times.dedup_by(|a, b| *a - *b < 1e-3);
        let steps = Steps::Adaptive(Controller::new(1e-9, 1e-9));
        let solution = integrate(&foxes_and_rabbits, &DOPRI5, 0.0, &start, &times, steps)?;
        let values = solution.states.iter().map(|&u| u as f32).collect();
        Ok(Trajectory::new(times, values, vec![])?)
    });
    let description = Description {
        system: "predator-prey".into(),
        shape: FieldShape::system(2),
        periodic: vec![],
        domain: vec![],
        channel_names: vec!["rabbits".into(), "foxes".into()],
        channel_units: vec![],
        inputs: InputNames::default(),
    };
    let data =
        Trajectories::new(description, trajectories.collect::<Result<_, Box<dyn std::error::Error>>>()?)?;

    let recipe = Recipe::parse(include_str!("../recipes/own-data.toml"), &[])?;
    let show = |report: &StepReport| eprintln!("step {} loss {:.3e}", report.step, report.loss);
    let trained = Training::from_recipe(&recipe).steps(steps).observe(show).fit(&data)?;
    let report = trained.evaluate(data.test())?;
    println!(
        "relative L2 error on {} unseen trajectories: {:.4}",
        data.test().len(),
        report.relative_l2.mean
    );
    Ok(())
}
