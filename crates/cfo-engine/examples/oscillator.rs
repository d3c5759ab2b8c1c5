//! The engine without the `cfo` crate: a graph of your own, trained on the velocities of an oscillator and integrated
//! with RK4.
use cfo_device::Device;
use cfo_engine::*;

/// The operator: features multiplied with each other, `w3 (sin(w1 u + b1) * tanh(w2 u))`.
fn velocity(g: &mut Graph, u: Node) -> Result<Node> {
    let f = g.formula();
    let [waves, gates] = ["waves", "gates"].map(|name| {
        let w = f.parameter(&format!("{name}.w"), [2, 64], Initial::fan_in(2));
        let b = f.parameter(&format!("{name}.b"), [64], Initial::ZEROS);
        f.var(u).linear(w, Some(b), Activation::Identity)
    });
    let product = waves.sin() * gates.tanh();
    let w = f.parameter("out", [64, 2], Initial::fan_in(64));
    product.linear(w, None, Activation::Identity).node()
}

/// An oscillator with the unit circle as limit cycle: `u' = (1 - |u|^2) u` plus a rotation with angular velocity 3.
fn truth(g: &mut Graph, u: Node) -> Result<Node> {
    let f = g.formula();
    let product = |x: Node, matrix: [f64; 4]| {
        f.constant([2, 2], matrix.into()).then(|g, y| g.matmul(x, y, false, false))
    };
    let square = f.var(u).square().node()?;
    (product(square, [-1.0; 4]) * u + product(u, [1.0, 3.0, -3.0, 1.0])).node()
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
        sum = (sum + g.var(k) * (h * weight / 6.0)).node()?;
        at = (u + g.var(k) * (h * reach)).node()?;
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
