//! Your own network: trained, saved, loaded and integrated backward in time.
//! `cargo run --release -p cfo --example own_operator`

use cfo::data::simulate::Lorenz;
use cfo::graph::{Activation, Graph, Initial, Node};
use cfo::operator::{Context, Operator, Setting};
use cfo::{Result, Trained, Training, Trajectories};

/// Features multiplied with each other: `out (sin(waves u) * tanh(gates u)) + linear u`.
struct Products {
    features: usize,
}

impl Operator for Products {
    fn name(&self) -> &str {
        "products"
    }

    fn apply(&self, graph: &mut Graph, setting: &Setting, field: Node, _: &Context) -> Result<Node> {
        let f = graph.formula();
        let weight = |name: &str, from, to| f.parameter(name, [from, to], Initial::fan_in(from));
        let layer = |name: &str, outputs| {
            let weight = weight(&format!("{name}.weight"), setting.inputs, outputs);
            let bias = f.parameter(&format!("{name}.bias"), [outputs], Initial::ZEROS);
            f.var(field).linear(weight, Some(bias), Activation::Identity)
        };
        let [waves, gates] = ["waves", "gates"].map(|name| layer(name, self.features));
        let linear = layer("linear", setting.outputs);
        let out = weight("out", self.features, setting.outputs);
        let curved = (waves.sin() * gates.tanh()).linear(out, None, Activation::Identity);
        Ok((curved + linear).node()?)
    }
}

fn main() -> Result<()> {
    run(4000)
}

pub(crate) fn run(steps: u32) -> Result<()> {
    let lorenz = Lorenz { frames: 201, horizon: 1.0, ..Lorenz::default() };
    let data = Trajectories::simulate(&lorenz, 200, 1, &false.into())?;
    let products = || Products { features: 128 };
    let trained = Training::new(products()).steps(steps).batch(512).learning_rate(3e-3).fit(&data)?;
    println!("relative L2 error {:.2e}", trained.evaluate(data.test())?.relative_l2.mean);

    let run = std::env::temp_dir().join(format!("cfo-own-operator-{}", std::process::id()));
    trained.save(&run)?;
    let loaded = Trained::loader(&run).operator(products()).load()?;
    std::fs::remove_dir_all(&run)?;
    let state = data.trajectories[0].values[..3].to_vec();
    let there = loaded.predict(&state, 0.0, &[0.03, 0.1, 0.2])?;
    let back = loaded.predict(there.state(2), 0.2, &[0.0])?;
    println!("{state:?} at 0, {:?} at 0.2, back at {:?}", there.state(2), back.state(0));
    Ok(())
}
