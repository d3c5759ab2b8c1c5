//! Reverse time: trains on Lorenz trajectories, then integrates the network backward to find where a state came from.
//!
//! `cargo run --release -p cfo --example reverse_time`

use cfo::data::simulate::Lorenz;
use cfo::numerics::metric::relative_l2;
use cfo::{Recipe, Training, Trajectories};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    run(3000)
}

pub(crate) fn run(steps: u32) -> Result<(), Box<dyn std::error::Error>> {
    let lorenz = Lorenz { frames: 201, horizon: 1.0, ..Lorenz::default() };
    let data = Trajectories::simulate(&lorenz, 300, 1, &false.into())?;
    let recipe = Recipe::parse(include_str!("../recipes/own-data.toml"), &[])?;
    let trained = Training::from_recipe(&recipe).steps(steps).fit(&data)?;

    // From the state at 4/5 of the horizon back to the state at 3/5.
    let (late, early) = (160, 120);
    let mut errors = Vec::new();
    for one in data.test().read()? {
        let state = |frame: usize| &one.values[3 * frame..3 * (frame + 1)];
        // The time is earlier than the initial time, so integration runs backward.
        let found = trained.predict(state(late), one.times[late], &[one.times[early]])?;
        errors.push(relative_l2(found.state(0), state(early)));
    }
    errors.sort_by(f64::total_cmp);
    println!(
        "{} states, {} steps back: median relative L2 error {:.4}",
        errors.len(),
        late - early,
        errors[errors.len() / 2]
    );
    Ok(())
}
