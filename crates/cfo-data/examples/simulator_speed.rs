//! Time a trajectory of each simulator takes on one thread:
//! `cargo run --release -p cfo-data --example simulator_speed [SYSTEM]`.

use std::time::Instant;

use cfo_data::simulate::{
    Burgers, DiffusionReaction, Equation, KuramotoSivashinsky, Lorenz, ShallowWater, SimulationError,
};

fn main() -> Result<(), SimulationError> {
    let systems: [(&dyn Equation, u64); 5] = [
        (&Lorenz::default(), 2000),
        (&Burgers::default(), 20),
        (&DiffusionReaction::default(), 3),
        (&ShallowWater::default(), 5),
        (&KuramotoSivashinsky::default(), 8),
    ];
    let only = std::env::args().nth(1);
    for (equation, samples) in systems {
        if only.as_deref().is_some_and(|name| name != equation.name()) {
            continue;
        }
        let begin = Instant::now();
        for index in 0..samples {
            equation.trajectory(0, index)?;
        }
        let milliseconds = 1e3 * begin.elapsed().as_secs_f64() / samples as f64;
        println!("{:<22}{milliseconds:>10.3} ms a trajectory", equation.name());
    }
    Ok(())
}
