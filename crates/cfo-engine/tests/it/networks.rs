//! Whole networks: the memory of their training steps, and that training reduces the loss.

use cfo_device::Device;
use cfo_engine::{
    Activation, AdamConfig, Graph, GroupNormInputs, Initial, Memory, Node, PadMode, Precision, Program,
    Result, spectral_modes,
};

/// Convolution, normalisation, activation, and a time term if there is one.
fn block(g: &mut Graph, name: &str, x: Node, channels: usize, time: Option<Node>) -> Result<Node> {
    let inputs = g.shape(x).last();
    let w = g.parameter(&format!("{name}.w"), [channels, 3, 3, inputs], Initial::fan_in(9 * inputs))?;
    let offset = g.parameter(&format!("{name}.b"), [channels], Initial::ZEROS)?;
    let scale = g.parameter(&format!("{name}.scale"), [channels], Initial::Constant(1.0))?;
    let bias = g.parameter(&format!("{name}.bias"), [channels], Initial::ZEROS)?;
    let shift = match time {
        Some(time) => {
            let w =
                g.parameter(&format!("{name}.time"), [g.shape(time).last(), channels], Initial::fan_in(8))?;
            Some(g.linear(time, w, None, Activation::Identity)?)
        }
        None => None,
    };
    let y = g.conv(x, w, [1, 1], PadMode::Circular, [1, 1])?;
    g.group_norm(y, GroupNormInputs { scale, bias, offset: Some(offset), shift }, 4, Activation::Silu)
}

/// A U-Net: down, bottom, up, with skips.
fn unet(g: &mut Graph, x: Node, time: Node, scales: &[usize]) -> Result<Node> {
    let channels = g.shape(x).last();
    let (mut x, mut skips) = (x, Vec::new());
    for (i, &c) in scales.iter().enumerate() {
        x = block(g, &format!("down.{i}.0"), x, c, Some(time))?;
        x = block(g, &format!("down.{i}.1"), x, c, None)?;
        skips.push(x);
        let w = g.parameter(&format!("down.{i}.w"), [c, 4, 4, c], Initial::fan_in(16 * c))?;
        x = g.conv(x, w, [2, 2], PadMode::Circular, [1, 1])?;
    }
    x = block(g, "bottom", x, *scales.last().unwrap(), Some(time))?;
    for (i, &c) in scales.iter().enumerate().rev() {
        let inputs = g.shape(x).last();
        let w = g.parameter(&format!("up.{i}.w"), [inputs, 4, 4, c], Initial::fan_in(4 * inputs))?;
        x = g.conv_transpose(x, w, [2, 2], PadMode::Circular, [1, 1])?;
        x = g.concat(&[x, skips[i]], 3)?;
        x = block(g, &format!("up.{i}.0"), x, c, Some(time))?;
        x = block(g, &format!("up.{i}.1"), x, c, None)?;
    }
    let inputs = g.shape(x).last();
    let w = g.parameter("head", [inputs, channels], Initial::fan_in(inputs))?;
    g.linear(x, w, None, Activation::Identity)
}

fn dense(g: &mut Graph, name: &str, x: Node, outputs: usize, activation: Activation) -> Result<Node> {
    let inputs = g.shape(x).last();
    let w = g.parameter(&format!("{name}.w"), [inputs, outputs], Initial::fan_in(inputs))?;
    let b = g.parameter(&format!("{name}.b"), [outputs], Initial::ZEROS)?;
    g.linear(x, w, Some(b), activation)
}

/// Blocks of attention and MLP, each modulated by a code.
fn transformer(g: &mut Graph, x: Node, code: Node, width: usize, depth: usize) -> Result<Node> {
    let [b, h, w, c] = <[usize; 4]>::try_from(g.shape(x).axes()).unwrap();
    let patches = g.patches(x, 4)?;
    let mut x = dense(g, "patch", patches, width, Activation::Identity)?;
    for i in 0..depth {
        let modulation = dense(g, &format!("{i}.modulation"), code, 6 * width, Activation::Identity)?;
        let mut part = |j: usize| g.slice(modulation, 1, j * width, width);
        let [s1, c1, g1, s2, c2, g2] = [part(0)?, part(1)?, part(2)?, part(3)?, part(4)?, part(5)?];
        for (name, shift, scale, gate) in [("attention", s1, c1, g1), ("mlp", s2, c2, g2)] {
            let name = format!("{i}.{name}");
            let y = g.layer_norm(x, Some((shift, scale)), 1e-6)?;
            let y = if name.ends_with("attention") {
                let qkv = dense(g, &format!("{name}.0"), y, 3 * width, Activation::Identity)?;
                g.attention(qkv, 4)?
            } else {
                dense(g, &format!("{name}.0"), y, 4 * width, Activation::Gelu)?
            };
            let y = dense(g, &format!("{name}.1"), y, width, Activation::Identity)?;
            let gate = g.reshape(gate, [b, 1, width])?;
            let gated = g.multiply(y, gate)?;
            x = g.add(x, gated)?;
        }
    }
    let y = g.layer_norm(x, None, 1e-6)?;
    let y = dense(g, "head", y, 16 * c, Activation::Identity)?;
    g.unpatch(y, 4, h, w)
}

/// Fourier blocks with a pointwise bypass.
fn fourier(g: &mut Graph, x: Node, width: usize, blocks: usize, modes: usize) -> Result<Node> {
    let count = spectral_modes(&g.shape(x).axes()[1..3], &[1, modes]);
    let mut x = dense(g, "lift", x, width, Activation::Identity)?;
    for i in 0..blocks {
        let w = g.parameter(&format!("{i}.modes"), [count, width, 2 * width], Initial::fan_in(width))?;
        let spectral = g.spectral(x, w, &[1, modes])?;
        let local = dense(g, &format!("{i}.local"), x, width, Activation::Identity)?;
        let sum = g.add(spectral, local)?;
        x = g.gelu(sum)?;
    }
    let hidden = dense(g, "head.0", x, width, Activation::Gelu)?;
    dense(g, "head.1", hidden, 1, Activation::Identity)
}

/// Runs training steps of a network on fields of the given shape and checks losses and plan.
fn step(field: [usize; 4], network: &dyn Fn(&mut Graph, Node, Node) -> Result<Node>) -> (Program, Memory) {
    let mut graph = Graph::new();
    let counter = graph.counter("step").unwrap();
    let draw = cfo_engine::Distribution::Uniform;
    let x = graph.input("x", field).unwrap();
    let time = graph.random(draw, [field[0], 8], (3, 1), counter).unwrap();
    let y = network(&mut graph, x, time).unwrap();
    let target = graph.sin(x).unwrap();
    let target =
        if graph.shape(y) == graph.shape(target) { target } else { graph.slice(target, 3, 0, 1).unwrap() };
    let loss = graph.mean_squared_error(y, target).unwrap();
    graph.adam(loss, counter, AdamConfig { learning_rate: 2e-3, ..AdamConfig::default() }).unwrap();
    let mut memory = Memory::new(Device::Cpu, Precision::F32).unwrap();
    let values: Vec<f32> = (0..field.iter().product()).map(|i| (0.37 * i as f32).sin()).collect();
    memory.insert_real("x", field, &values).unwrap();
    memory.initialize(&graph, 1).unwrap();
    (Program::compile(&graph, &[loss], &memory).unwrap(), memory)
}

fn learns_within_its_plan(name: &str, (mut program, mut memory): (Program, Memory)) {
    let (planned, live) = (program.plan().arena_bytes() as f64, program.plan().live_bytes() as f64);
    println!("{name}: {}, {:.3} of what is alive", program.plan(), planned / live);
    assert!(planned <= 1.1 * live, "{name}: {planned} bytes planned, {live} alive");
    let losses: Vec<f64> = (0..40)
        .map(|_| {
            program.run(&mut memory).unwrap();
            program.scalar(0).unwrap()
        })
        .collect();
    assert!(losses[39] < 0.5 * losses[0], "{name}: {losses:?}");
}

#[test]
fn networks_learn_within_their_plans() {
    learns_within_its_plan("u-net", step([2, 16, 16, 2], &|g, x, time| unet(g, x, time, &[8, 16])));
    learns_within_its_plan("deep u-net", step([3, 32, 32, 1], &|g, x, time| unet(g, x, time, &[8, 12, 16])));
    learns_within_its_plan("line u-net", step([4, 8, 8, 1], &|g, x, time| unet(g, x, time, &[8])));
    learns_within_its_plan("transformer", step([2, 16, 16, 2], &|g, x, time| transformer(g, x, time, 32, 3)));
    learns_within_its_plan("fourier", step([4, 1, 25, 2], &|g, x, _| fourier(g, x, 16, 3, 5)));
}

#[test]
fn the_paper_s_fourier_operator_has_as_many_parameters_as_it_says() {
    let mut graph = Graph::new();
    let x = graph.input("x", [1, 1, 100, 2]).unwrap();
    fourier(&mut graph, x, 128, 5, 6).unwrap();
    let complex = |name: &str| if name.ends_with("modes") { 2 } else { 1 };
    let count: usize = graph.parameters().iter().map(|p| p.shape.len() / complex(&p.name)).sum();
    assert_eq!(count, 591_105);
}
