//! The engine without the `cfo` crate: a graph of your own, trained on the velocities of an oscillator and integrated
//! with RK4.
use cfo_device::Device;
use cfo_engine::*;

/// The operator: features multiplied with each other, `w3 (sin(w1 u + b1) * tanh(w2 u))`.
fn velocity(g: &mut Graph, u: Node) -> Result<Node> {
    let mut layer = |name: &str, x: Node, from: usize, to: usize| {
        let w = g.parameter(&format!("{name}.w"), [from, to], Initial::fan_in(from))?;
        let b = g.parameter(&format!("{name}.b"), [to], Initial::ZEROS)?;
        g.linear(x, w, Some(b), Activation::Identity)
    };
    let (waves, gates) = (layer("waves", u, 2, 64)?, layer("gates", u, 2, 64)?);
    let (waves, gates) = (g.sin(waves)?, g.tanh(gates)?);
    let product = g.multiply(waves, gates)?;
    let w = g.parameter("out", [64, 2], Initial::fan_in(64))?;
    g.linear(product, w, None, Activation::Identity)
}

/// An oscillator with the unit circle as limit cycle: `u' = (1 - |u|^2) u` plus a rotation with angular velocity 3.
fn truth(g: &mut Graph, u: Node) -> Result<Node> {
    let square = g.square(u)?;
    let both = g.constant([2, 2], vec![-1.0; 4])?;
    let growth = g.matmul(square, both, false, false)?;
    let inward = g.multiply(growth, u)?;
    let turn = g.constant([2, 2], vec![1.0, 3.0, -3.0, 1.0])?;
    let around = g.matmul(u, turn, false, false)?;
    g.add(inward, around)
}

fn main() -> Result<()> {
    let mut g = Graph::new();
    let step = g.counter("step")?;
    let u = g.random(Distribution::Uniform, [256, 2], (1, 0), step)?;
    let u = g.affine(u, 3.0, -1.5)?;
    let (v, target) = (velocity(&mut g, u)?, truth(&mut g, u)?);
    let loss = g.mean_squared_error(v, target)?;
    let schedule = Schedule::Cosine { warmup: 0, total: 3000, floor: 0.0 };
    g.adam(loss, step, AdamConfig { learning_rate: 1e-2, schedule, ..AdamConfig::default() })?;
    let mut memory = Memory::new(Device::Cpu, Precision::F32)?;
    memory.initialize(&g, 1)?;
    let mut train = Program::compile(&g, &[loss], &memory)?;
    (0..3000).try_for_each(|_| train.run(&mut memory))?;
    let mut g = Graph::new();
    let (h, u) = (0.05, g.input("u", [1, 2])?);
    let (mut sum, mut at) = (u, u);
    for (weight, reach) in [(1.0, 0.5), (2.0, 0.5), (2.0, 1.0), (1.0, 0.0)] {
        let k = velocity(&mut g, at)?;
        let (part, ahead) = (g.scale(k, h * weight / 6.0)?, g.scale(k, h * reach)?);
        (sum, at) = (g.add(sum, part)?, g.add(u, ahead)?);
    }
    g.assign(u, sum)?;
    memory.insert("u", Element::Real, [1, 2], Data::F64(&[0.5, 0.0]))?;
    let mut rk4 = Program::compile(&g, &[], &memory)?;
    (0..60).try_for_each(|_| rk4.run(&mut memory))?;
    let radius = (1.0 + 3.0 * f64::exp(-6.0)).powf(-0.5);
    let u = memory.read_f64("u")?;
    let error = (u[0] - radius * f64::cos(9.0)).hypot(u[1] - radius * f64::sin(9.0));
    println!("loss {:.1e}, error after three units of time {error:.1e}", train.scalar(0)?);
    Ok(())
}
