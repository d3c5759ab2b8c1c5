//! The paper's networks at their sizes, built with the graph alone.

use cfo_engine::{
    Activation, AdamConfig, Element, Graph, GroupNormInputs, Initial, Node, PadMode, PathData, PathTensors,
    Result, spectral_modes,
};
use cfo_numerics::{DrawBy, NoiseSchedule, Path};

/// Size of the data and of a batch.
pub struct Sizes {
    /// Height, width and channels.
    pub field: [usize; 3],
    pub trajectories: usize,
    pub frames: usize,
    pub batch: usize,
}

impl Sizes {
    /// The paper's sizes for a network, by its name.
    pub fn of(network: &str) -> Self {
        let (field, trajectories, frames, batch) = match network {
            "mlp" => ([1, 1, 3], 2000, 101, 2048),
            "unet1d" | "fno1d" => ([1, 100, 1], 500, 101, 256),
            _ => ([128, 128, 2], 20, 20, 256),
        };
        Self { field, trajectories, frames, batch }
    }
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

/// Fourier neural operator: lifting, five blocks of a Fourier product beside a linear map, two layers at the end.
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

/// A diffusion transformer: patches of size 8, four blocks with adaptive layer norms.
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

/// Appends a training step of a network, or its forward pass alone, and returns the loss.
pub fn step(g: &mut Graph, network: &str, sizes: &Sizes, training: bool) -> Result<Node> {
    let [h, w, c] = sizes.field;
    let rows = sizes.trajectories * sizes.frames;
    let tensors = PathTensors {
        values: g.input("values", [rows, h, w, c])?,
        times: g.tensor("times", Element::Double, [rows])?,
        offsets: g.tensor("offsets", Element::Index, [sizes.trajectories + 1])?,
    };
    let counter = g.counter("step")?;
    let data = PathData::Flow { by: DrawBy::Time, path: Path::default(), noise: NoiseSchedule::default() };
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
