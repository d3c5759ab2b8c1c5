//! Seconds a trajectory of each simulator on one thread: `cargo run --release -p cfo-data --example simulator_speed`.

use std::time::Instant;

use cfo_data::simulate::{Burgers, Equation, KuramotoSivashinsky, Lorenz, SimulationError};

fn main() -> Result<(), SimulationError> {
    let systems: [(&dyn Equation, u64); 3] =
        [(&Lorenz::default(), 2000), (&Burgers::default(), 20), (&KuramotoSivashinsky::default(), 8)];
    for (equation, samples) in systems {
        let begin = Instant::now();
        for index in 0..samples {
            equation.trajectory(0, index)?;
        }
        let milliseconds = 1e3 * begin.elapsed().as_secs_f64() / samples as f64;
        println!("{:<22}{milliseconds:>10.3} ms a trajectory", equation.name());
    }
    Ok(())
}
