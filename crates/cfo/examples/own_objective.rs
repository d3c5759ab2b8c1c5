//! Your own objective: flow matching with a Huber loss, which is robust to a few outliers.
//! `cargo run --release -p cfo --example own_objective`

use cfo::data::simulate::Lorenz;
use cfo::graph::{Graph, Node};
use cfo::objective::{Batch, Draw, FlowMatching, Objective};
use cfo::{Model, Result, Trained, Training, Trajectories, operator::Mlp};

/// A loss that is quadratic up to errors of `bend` times the velocity's root mean square, and linear beyond.
struct HuberFlow {
    bend: f64,
}

impl Objective for HuberFlow {
    fn name(&self) -> &str {
        "huber-flow"
    }

    fn draw(&self) -> Draw {
        FlowMatching::quintic().draw()
    }

    /// The mean of `bend^2 (sqrt(1 + (error / bend)^2) - 1)`, a smooth variant of Huber's loss.
    fn loss(&self, graph: &mut Graph, model: &Model, batch: &Batch) -> Result<Node> {
        let found = model.network(graph, batch.state, &batch.context)?;
        let wanted = model.in_units(graph, batch.context.time, batch.target)?;
        let error = graph.var(found) - wanted;
        let excess = ((error / self.bend).square() + 1.0).sqrt() - 1.0;
        Ok((self.bend * self.bend * excess.mean_all()).node()?)
    }
}

fn main() -> Result<()> {
    run(3000)
}

pub(crate) fn run(steps: u32) -> Result<()> {
    let lorenz = Lorenz { frames: 201, horizon: 1.0, ..Lorenz::default() };
    let mut data = Trajectories::simulate(&lorenz, 200, 1, &false.into())?;
    for trajectory in &mut data.trajectories[..160] {
        // One number in two hundred of the training set is an outlier.
        trajectory.values.iter_mut().skip(7).step_by(199).for_each(|value| *value += 20.0);
    }
    let mlp = Mlp { hidden: vec![128, 128], time: false.into(), ..Mlp::default() };
    let training = || Training::new(mlp.clone()).steps(steps).batch(256).learning_rate(2e-3);
    let trained = training().objective(HuberFlow { bend: 0.1 }).fit(&data)?;
    let [huber, squared] = [trained.evaluate(data.test())?, training().fit(&data)?.evaluate(data.test())?];
    println!("error {:.2e}, by squares {:.2e}", huber.relative_l2.mean, squared.relative_l2.mean);
    let run = std::env::temp_dir().join(format!("cfo-own-objective-{}", std::process::id()));
    trained.save(&run)?;
    let loaded = Trained::loader(&run).objective(HuberFlow { bend: 0.1 }).load()?;
    std::fs::remove_dir_all(&run)?;
    println!("at 0.1: {:?}", loaded.predict(&[1.0, 2.0, 20.0], 0.0, &[0.1])?.states);
    Ok(())
}
