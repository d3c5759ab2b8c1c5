//! Times whole training steps (sampler, network, loss, Adam) of the paper's networks on random data.
//!
//!     cargo run --release -p cfo-engine --example network_speed -- cuda bf16 unet2d 256 [forward] [profile|details|text] [side=64]

use std::time::Instant;

use cfo_engine::{
    Activation, AdamConfig, Data, Device, Element, Graph, GroupNormInputs, Initial, Memory, Node, PadMode,
    PathData, PathTensors, Precision, Program, Result, spectral_modes,
};
use cfo_numerics::{NoiseSchedule, Path, Philox};

struct Sizes {
    field: [usize; 3],
    trajectories: usize,
    frames: usize,
    batch: usize,
}

fn linear(g: &mut Graph, name: &str, x: Node, outputs: usize, activation: Activation) -> Result<Node> {
    let inputs = g.shape(x).last();
    let w = g.parameter(&format!("{name}.weight"), [inputs, outputs], Initial::fan_in(inputs))?;
    let b = g.parameter(&format!("{name}.bias"), [outputs], Initial::ZEROS)?;
    g.linear(x, w, Some(b), activation)
}

fn sinusoids(g: &mut Graph, time: Node, width: usize) -> Result<Node> {
    let batch = g.shape(time).len();
    let half = width / 2;
    let rates = (0..half).map(|i| 1000.0 * (-(1e4_f64.ln()) * i as f64 / half as f64).exp()).collect();
    let rates = g.constant([1, half], rates)?;
    let time = g.reshape(time, [batch, 1])?;
    let angle = g.multiply(time, rates)?;
    let (cos, sin) = (g.cos(angle)?, g.sin(angle)?);
    g.concat(&[cos, sin], 1)
}

fn mlp(g: &mut Graph, time: Node, u: Node) -> Result<Node> {
    let shape = g.shape(u).clone();
    let (batch, size) = (shape.axes()[0], shape.len() / shape.axes()[0]);
    let flat = g.reshape(u, [batch, size])?;
    let code = sinusoids(g, time, 32)?;
    let mut x = g.concat(&[flat, code], 1)?;
    for (layer, width) in [128, 256, 256, 256, 128].into_iter().enumerate() {
        x = linear(g, &format!("{layer}"), x, width, Activation::Relu)?;
    }
    let y = linear(g, "last", x, size, Activation::Identity)?;
    g.reshape(y, shape)
}

struct Unet {
    flat: bool,
    mode: PadMode,
}

impl Unet {
    fn extent(&self, k: usize) -> [usize; 2] {
        if self.flat { [1, k] } else { [k, k] }
    }

    fn amount(&self, n: usize) -> [usize; 2] {
        if self.flat { [0, n] } else { [n, n] }
    }

    fn weight(&self, g: &mut Graph, name: &str, outputs: usize, k: usize, inputs: usize) -> Result<Node> {
        let [h, w] = self.extent(k);
        g.parameter(&format!("{name}.weight"), [outputs, h, w, inputs], Initial::fan_in(inputs * h * w))
    }

    fn norm(&self, g: &mut Graph, name: &str, x: Node, shift: Option<Node>) -> Result<Node> {
        let c = g.shape(x).last();
        let offset = Some(g.parameter(&format!("{name}.offset"), [c], Initial::ZEROS)?);
        let scale = g.parameter(&format!("{name}.scale"), [c], Initial::ONES)?;
        let bias = g.parameter(&format!("{name}.bias"), [c], Initial::ZEROS)?;
        g.group_norm(x, GroupNormInputs { scale, bias, offset, shift }, 8, Activation::Silu)
    }

    fn block(&self, g: &mut Graph, name: &str, x: Node, outputs: usize, code: Node) -> Result<Node> {
        let inputs = g.shape(x).last();
        let w = self.weight(g, &format!("{name}.1"), outputs, 3, inputs)?;
        let x = g.conv(x, w, self.extent(1), self.mode, self.amount(1))?;
        let shift = linear(g, &format!("{name}.time"), code, outputs, Activation::Identity)?;
        let x = self.norm(g, &format!("{name}.norm1"), x, Some(shift))?;
        let w = self.weight(g, &format!("{name}.2"), outputs, 3, outputs)?;
        let x = g.conv(x, w, self.extent(1), self.mode, self.amount(1))?;
        self.norm(g, &format!("{name}.norm2"), x, None)
    }

    fn biased(&self, g: &mut Graph, name: &str, x: Node) -> Result<Node> {
        let b = g.parameter(&format!("{name}.bias"), [g.shape(x).last()], Initial::ZEROS)?;
        g.add(x, b)
    }

    fn network(&self, g: &mut Graph, time: Node, u: Node) -> Result<Node> {
        let (channels, code, hidden): (&[usize], usize, usize) =
            if self.flat { (&[64, 128], 64, 128) } else { (&[64, 128, 256], 256, 256) };
        let outputs = g.shape(u).last();
        let code_of_time = sinusoids(g, time, code)?;
        let e = linear(g, "time1", code_of_time, hidden, Activation::Silu)?;
        let e = linear(g, "time2", e, code, Activation::Silu)?;
        let stride = if self.flat { [1, 2] } else { [2, 2] };
        let (mut x, mut skips) = (u, Vec::new());
        for (level, &c) in channels.iter().enumerate() {
            x = self.block(g, &format!("down{level}"), x, c, e)?;
            skips.push(x);
            let w = self.weight(g, &format!("down{level}.halve"), c, 4, c)?;
            x = g.conv(x, w, stride, self.mode, self.amount(1))?;
            x = self.biased(g, &format!("down{level}.halve"), x)?;
        }
        x = self.block(g, "middle", x, channels[channels.len() - 1], e)?;
        for (level, &c) in channels.iter().enumerate().rev() {
            let inputs = g.shape(x).last();
            let [h, w] = self.extent(4);
            let name = format!("up{level}.double");
            let w = g.parameter(&format!("{name}.weight"), [inputs, h, w, c], Initial::fan_in(c * h * w))?;
            x = g.conv_transpose(x, w, stride, self.mode, self.amount(1))?;
            x = self.biased(g, &name, x)?;
            x = g.concat(&[x, skips.pop().expect("one skip a level")], 3)?;
            x = self.block(g, &format!("up{level}"), x, c, e)?;
        }
        linear(g, "head", x, outputs, Activation::Identity)
    }
}

/// Lifting, five blocks of a Fourier product beside a linear map, two layers at the end.
fn fno(g: &mut Graph, time: Node, u: Node) -> Result<Node> {
    let (width, modes) = (128, 6);
    let shape = g.shape(u).clone();
    let [batch, _, points, channels] = [0, 1, 2, 3].map(|axis| shape.axes()[axis]);
    let grid = g.constant([1, 1, points, 1], (0..points).map(|i| i as f64 / points as f64).collect())?;
    let grid = g.broadcast(grid, [batch, 1, points, 1])?;
    let input = g.concat(&[u, grid], 3)?;
    let lifted = linear(g, "lift", input, width, Activation::Identity)?;
    let code = sinusoids(g, time, width)?;
    let code = g.reshape(code, [batch, 1, 1, width])?;
    let mut x = g.add(lifted, code)?;
    for block in 0..5 {
        let size = [spectral_modes(1, [1, modes]), width, 2 * width];
        let w =
            g.parameter(&format!("{block}.spectral"), size, Initial::Uniform(1.0 / (width * width) as f64))?;
        let spectral = g.spectral(x, w, [1, modes])?;
        let local = linear(g, &format!("{block}.local"), x, width, Activation::Identity)?;
        let sum = g.add(spectral, local)?;
        x = g.gelu(sum)?;
    }
    let x = linear(g, "head1", x, width, Activation::Gelu)?;
    linear(g, "head2", x, channels, Activation::Identity)
}

/// A diffusion transformer: patches of 8, four blocks with adaptive layer norms.
fn dit(g: &mut Graph, time: Node, u: Node) -> Result<Node> {
    let (patch, width, heads) = (8, 384, 8);
    let shape = g.shape(u).clone();
    let [batch, height, wide, channels] = [0, 1, 2, 3].map(|axis| shape.axes()[axis]);
    let tokens = (height / patch) * (wide / patch);
    let patches = g.patches(u, patch)?;
    let embedded = linear(g, "embed", patches, width, Activation::Identity)?;
    let position = g.constant([tokens, width], (0..tokens * width).map(|i| (i as f64).sin()).collect())?;
    let mut x = g.add(embedded, position)?;
    let code = sinusoids(g, time, 256)?;
    let e = linear(g, "time1", code, width, Activation::Silu)?;
    let e = linear(g, "time2", e, width, Activation::Silu)?;
    let part = |g: &mut Graph, all: Node, i: usize| g.slice(all, 1, i * width, width);
    for block in 0..4 {
        let all = linear(g, &format!("{block}.ada"), e, 6 * width, Activation::Identity)?;
        let (shift, scale) = (part(g, all, 0)?, part(g, all, 1)?);
        let normal = g.layer_norm(x, Some((shift, scale)), 1e-6)?;
        let qkv = linear(g, &format!("{block}.qkv"), normal, 3 * width, Activation::Identity)?;
        let mixed = g.attention(qkv, heads)?;
        let mixed = linear(g, &format!("{block}.out"), mixed, width, Activation::Identity)?;
        let gate = part(g, all, 2)?;
        let gate = g.reshape(gate, [batch, 1, width])?;
        let gated = g.multiply(gate, mixed)?;
        x = g.add(x, gated)?;
        let (shift, scale) = (part(g, all, 3)?, part(g, all, 4)?);
        let normal = g.layer_norm(x, Some((shift, scale)), 1e-6)?;
        let hidden = linear(g, &format!("{block}.mlp1"), normal, 6 * width, Activation::Gelu)?;
        let mixed = linear(g, &format!("{block}.mlp2"), hidden, width, Activation::Identity)?;
        let gate = part(g, all, 5)?;
        let gate = g.reshape(gate, [batch, 1, width])?;
        let gated = g.multiply(gate, mixed)?;
        x = g.add(x, gated)?;
    }
    let all = linear(g, "ada", e, 2 * width, Activation::Identity)?;
    let (shift, scale) = (part(g, all, 0)?, part(g, all, 1)?);
    let normal = g.layer_norm(x, Some((shift, scale)), 1e-6)?;
    let out = linear(g, "head", normal, patch * patch * channels, Activation::Identity)?;
    g.unpatch(out, patch, height, wide)
}

fn step(g: &mut Graph, network: &str, sizes: &Sizes, training: bool) -> Result<Node> {
    let [h, w, c] = sizes.field;
    let rows = sizes.trajectories * sizes.frames;
    let tensors = PathTensors {
        values: g.input("values", [rows, h, w, c])?,
        times: g.tensor("times", Element::Double, [rows])?,
        offsets: g.tensor("offsets", Element::Index, [sizes.trajectories + 1])?,
    };
    let counter = g.counter("step")?;
    let data = PathData::Flow { path: Path::default(), noise: NoiseSchedule::default() };
    let sample = g.sample_path(tensors, data, sizes.batch, (7, 1), counter)?;
    let y = match network {
        "mlp" => mlp(g, sample.time, sample.state)?,
        "fno1d" => fno(g, sample.time, sample.state)?,
        "dit" => dit(g, sample.time, sample.state)?,
        "unet1d" => Unet { flat: true, mode: PadMode::Circular }.network(g, sample.time, sample.state)?,
        _ => Unet { flat: false, mode: PadMode::Zero }.network(g, sample.time, sample.state)?,
    };
    let loss = g.mean_squared_error(y, sample.target)?;
    if training {
        g.adam(loss, counter, AdamConfig::default())?;
    }
    Ok(loss)
}

fn fill(memory: &mut Memory, sizes: &Sizes) -> Result<()> {
    let [h, w, c] = sizes.field;
    let (rows, size) = (sizes.trajectories * sizes.frames, h * w * c);
    let mut random = Philox::new(1, 0);
    let phases: Vec<f64> = (0..size).map(|_| random.uniform_between(0.0, std::f64::consts::TAU)).collect();
    let mut values = Vec::with_capacity(rows * size);
    let mut times = Vec::with_capacity(rows);
    for i in 0..sizes.trajectories {
        for k in 0..sizes.frames {
            let t = k as f64 / (sizes.frames - 1) as f64;
            times.push(t);
            values.extend(phases.iter().map(|phase| (3.0 * t + phase + i as f64).sin() as f32));
        }
    }
    let offsets: Vec<u32> = (0..=sizes.trajectories).map(|i| (i * sizes.frames) as u32).collect();
    memory.insert_real("values", [rows, h, w, c], &values)?;
    memory.insert("times", Element::Double, [rows], Data::F64(&times))?;
    memory.insert("offsets", Element::Index, [sizes.trajectories + 1], Data::Index(&offsets))
}

fn main() -> std::result::Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let at = |i: usize, default: &str| arguments.get(i).cloned().unwrap_or_else(|| default.into());
    let (device, precision): (Device, Precision) = (at(0, "auto").parse()?, at(1, "f32").parse()?);
    let network = at(2, "mlp");
    let (field, trajectories, frames, batch) = match network.as_str() {
        "mlp" => ([1, 1, 3], 2000, 101, 2048),
        "unet1d" | "fno1d" => ([1, 100, 1], 500, 101, 256),
        _ => ([128, 128, 2], 20, 20, 256),
    };
    let side = arguments.iter().find_map(|option| option.strip_prefix("side="));
    let field = match side {
        Some(side) => {
            field.map(|length| side.parse().map_or(length, |side| if length > 3 { side } else { length }))
        }
        None => field,
    };
    let sizes = Sizes { field, trajectories, frames, batch: at(3, &batch.to_string()).parse()? };
    let options = &arguments[arguments.len().min(4)..];
    let training = !options.iter().any(|option| option == "forward");
    let begin = Instant::now();
    let mut graph = Graph::new();
    let loss = step(&mut graph, &network, &sizes, training)?;
    let mut memory = Memory::new(device, precision)?;
    fill(&mut memory, &sizes)?;
    memory.initialize(&graph, 1)?;
    let prepared = begin.elapsed().as_secs_f64();
    let mut program = Program::compile(&graph, &[loss], &memory)?;
    let compiled = begin.elapsed().as_secs_f64() - prepared;
    if options.iter().any(|option| option == "text") {
        print!("{}", program.text());
        return Ok(());
    }
    program.run(&mut memory)?;
    let first = program.scalar(0)?;
    let started = begin.elapsed().as_secs_f64() - prepared - compiled;
    let mut steps = 5;
    let mut best = f64::INFINITY;
    let mut times = Vec::new();
    for round in 0..8 {
        let clock = Instant::now();
        program.run_many(&mut memory, steps)?;
        program.wait()?;
        let each = clock.elapsed().as_secs_f64() / steps as f64;
        if round == 0 {
            steps = ((0.3 / each) as usize).clamp(3, 4000);
        } else {
            times.push(1e3 * each);
            best = best.min(1e3 * each);
        }
    }
    times.sort_by(f64::total_cmp);
    let parameters: usize = graph.parameters().iter().map(|parameter| parameter.shape.len()).sum();
    println!(
        "{network:7} {} {precision:4} batch {:5} {:9} parameters: {:9.4} ms a step (best {best:.4}), compile {compiled:.2} s, first run {started:.2} s, arena {:.2} GiB, loss {first:.4} -> {:.4}",
        if training { "train  " } else { "forward" },
        sizes.batch,
        parameters,
        times[times.len() / 2],
        program.plan().arena_bytes() as f64 / (1u64 << 30) as f64,
        program.scalar(0)?,
    );
    let detailed = options.iter().any(|option| option == "details");
    if detailed || options.iter().any(|option| option == "profile") {
        let mut sums: Vec<(String, f32, usize)> = Vec::new();
        let mut least = program.profile(&mut memory)?;
        for _ in 0..9 {
            for (least, again) in least.iter_mut().zip(program.profile(&mut memory)?) {
                least.1 = least.1.min(again.1);
            }
        }
        println!("    {:9.4} ms in all", least.iter().map(|(_, milliseconds)| milliseconds).sum::<f32>());
        for (label, milliseconds) in least {
            let name = label.split(' ').next().unwrap_or_default().to_owned();
            let label = if detailed { label } else { name };
            match sums.iter_mut().find(|(known, ..)| *known == label) {
                Some((_, sum, count)) => (*sum, *count) = (*sum + milliseconds, *count + 1),
                None => sums.push((label, milliseconds, 1)),
            }
        }
        sums.sort_by(|a, b| b.1.total_cmp(&a.1));
        for (label, sum, count) in sums {
            println!("    {sum:9.4} ms {count:4} x {label}");
        }
    }
    Ok(())
}
