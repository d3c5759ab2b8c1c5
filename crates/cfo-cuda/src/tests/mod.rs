//! Tests that need no GPU: every kernel of whole graphs compiles, and properties of lowering.

use std::io::Write as _;

use cfo_numerics::{DrawBy, NoiseSchedule, Path, Spline};
use rayon::prelude::*;

use crate::convolution::conv::{Algorithm, ConvPass, Geometry};
use crate::product::matmul::{Epilogue, Product};
use crate::program::listing::described;
use crate::program::lowered::{Bases, copied_leaves, lower_all};
use crate::program::lowering::{GpuCommand, Probe};
use crate::program::typed::Typed;
use crate::program::{GpuWork, Instruction, Lowering};
use crate::runtime::compile;
use crate::runtime::library::Library;
use cfo_engine::backend::fuse;
use cfo_engine::ops::{
    Activation, AdamConfig, Distribution, GroupNormInputs, Numbering, PadMode, PathData, PathTensors,
    Schedule, Wavelet, WaveletFamily,
};
use cfo_engine::{Element, Graph, Initial, Node, Plan, Precision, Result};

mod lines;
mod scaled_f16;
mod scratch;
use lines::lines;

/// Lowers a graph for a GPU of 132 multiprocessors with artificial addresses and a library that supports everything.
fn lowered(graph: &Graph, outputs: &[Node], precision: Precision) -> Lowering {
    lowered_with(graph, outputs, precision, None)
}

/// Lowers a graph with a library whose answers `probe` gives.
fn lowered_with(graph: &Graph, outputs: &[Node], precision: Precision, probe: Option<Probe>) -> Lowering {
    lowered_for(graph, outputs, (precision, true), probe)
}

/// Lowers a graph with or without warpgroup matrix instructions.
fn lowered_for(
    graph: &Graph,
    outputs: &[Node],
    (precision, warpgroups): (Precision, bool),
    probe: Option<Probe>,
) -> Lowering {
    let (fused, outputs) = fuse(graph, outputs);
    let mut typed = Typed::without_device(fused, outputs, precision, (132, 90));
    typed.warpgroups = warpgroups;
    if precision == Precision::Tf32 {
        for id in 0..typed.code.entries.len() {
            let geometry = Geometry::of(&typed.code, id, precision);
            if geometry.is_some_and(|geometry| geometry.form == ConvPass::Weight && geometry.x[1] > 1) {
                typed.convolutions.insert(id, Algorithm::LibraryF16 { algorithm: 1, math: 1, workspace: 64 });
            }
        }
    }
    let mut typed = typed.with_scaled_f16();
    // Every second one by patches, so that all kernels occur.
    for id in 0..typed.code.entries.len() {
        let Some(geometry) = Geometry::of(&typed.code, id, precision) else { continue };
        let own = Algorithm::own(&geometry, 132);
        let turn = if id.is_multiple_of(2) { Algorithm::Plain } else { Algorithm::Patches };
        let algorithm = if matches!(own, Algorithm::Plain | Algorithm::Patches) { turn } else { own };
        typed.convolutions.entry(id).or_insert(algorithm);
    }
    let plan = Plan::new(&typed);
    let leaves: Vec<u64> = (0..typed.code.entries.len() as u64).map(|id| (1 << 40) + (id << 30)).collect();
    let mut copies = vec![None; leaves.len()];
    for leaf in copied_leaves(&typed) {
        copies[leaf] = Some((1 << 50) + leaves[leaf]);
    }
    let bases = Bases { arena: 1 << 60, leaves: &leaves, copies: &copies };
    lower_all(&typed, &plan, &bases, probe).lowering
}

/// A library that supports only plain products.
fn poor_library() -> Option<Probe> {
    Some(Probe { can: Box::new(|_| false), time: Box::new(|_| None) })
}

/// A training step with the sampler, layers of every activation, and the optimiser.
fn training_step(by: DrawBy, spline: Spline, stencil: usize, size: usize) -> Result<(Graph, Vec<Node>)> {
    let (batch, rows) = (96, 500);
    let mut graph = Graph::new();
    let tensors = PathTensors {
        values: graph.input("values", [rows, size])?,
        times: graph.tensor("times", Element::Double, [rows])?,
        offsets: graph.tensor("offsets", Element::Index, [11])?,
    };
    let counter = graph.counter("step")?;
    let path = Path::new(spline, stencil).expect("a path that exists");
    let data = PathData::Flow { by, path, noise: NoiseSchedule::default() };
    let sample = graph.sample_path(tensors, data, batch, (1, 2), counter)?;
    let time = graph.reshape(sample.time, [batch, 1])?;
    let mut x = graph.concat(&[sample.state, time], 1)?;
    let mut inputs = size + 1;
    for (layer, activation) in [Activation::Relu, Activation::Gelu, Activation::Silu].into_iter().enumerate()
    {
        let w = graph.parameter(&format!("{layer}.w"), [inputs, 64], Initial::fan_in(inputs))?;
        let b = graph.parameter(&format!("{layer}.b"), [64], Initial::ZEROS)?;
        x = graph.linear(x, w, Some(b), activation)?;
        inputs = 64;
    }
    let w = graph.parameter("last.w", [inputs, size], Initial::fan_in(inputs))?;
    let y = graph.linear(x, w, None, Activation::Identity)?;
    let loss = graph.mean_squared_error(y, sample.target)?;
    let schedule = Schedule::Cosine { warmup: 3, total: 10, floor: 0.1 };
    let config = AdamConfig { clip: Some(1.0), ema: Some(0.9), schedule, ..AdamConfig::default() };
    graph.adam(loss, counter, config)?;
    Ok((graph, vec![loss]))
}

/// Windows of snapshots with their times.
fn windows(intervals: usize, size: usize) -> Result<(Graph, Vec<Node>)> {
    let mut graph = Graph::new();
    let tensors = PathTensors {
        values: graph.input("values", [500, size])?,
        times: graph.tensor("times", Element::Double, [500])?,
        offsets: graph.tensor("offsets", Element::Index, [11])?,
    };
    let counter = graph.counter("step")?;
    let sample = graph.sample_path(tensors, PathData::Window { intervals }, 96, (1, 2), counter)?;
    let window = sample.window.expect("windows have times");
    Ok((graph, vec![sample.state, sample.target, window.times, window.lengths]))
}

/// Whole trajectories, with all snapshots in memory or only those of the batch.
fn whole_trajectories(stencil: usize) -> Result<(Graph, Vec<Node>)> {
    let mut graph = Graph::new();
    let counter = graph.counter("step")?;
    let times = graph.tensor("times", Element::Double, [40])?;
    let offsets = graph.tensor("offsets", Element::Index, [6])?;
    let path = Path::new(Spline::Quintic, stencil).expect("a path that exists");
    let data = PathData::Whole { path, frames: 11, longest: 9 };
    let values = graph.input("values", [40, 1, 13, 2])?;
    let whole = graph.sample_path(PathTensors { values, times, offsets }, data, 7, (1, 2), counter)?;
    let values = graph.input("staged", [63, 1, 13, 2])?;
    let draw = cfo_engine::BatchDraw { data, seed: 1, stream: 2, first: 0 };
    let staged = graph.sample_staged(PathTensors { values, times, offsets }, draw, 7, counter)?;
    Ok((graph, vec![whole.time, whole.state, whole.target, staged.target, staged.trajectory]))
}

/// Values moved and summed in every way.
fn layouts() -> Result<(Graph, Vec<Node>)> {
    let mut graph = Graph::new();
    let x = graph.input("x", [6, 5, 16])?;
    let counter = graph.counter("n")?;
    let noise = graph.random(Distribution::Normal, [6, 5, 16], (1, 1), counter)?;
    let uniform = graph.random(Distribution::Uniform, [7], (1, 1), counter)?;
    let counters = graph.tensor("rows", Element::Index, [6, 2])?;
    let given = graph.random_as(Numbering::Given, Distribution::Normal, [6, 5, 16], (1, 1), counters)?;
    let rows =
        graph.random_as(Numbering::Rows { first: 3 }, Distribution::Uniform, [6, 7], (1, 1), counter)?;
    let noise = graph.add(noise, given)?;
    let x = graph.add(x, noise)?;
    let mut outputs = vec![uniform, rows];
    for axes in [&[0][..], &[1], &[2], &[0, 1], &[0, 2], &[1, 2], &[0, 1, 2]] {
        outputs.push(graph.sum(x, axes)?);
    }
    let large = graph.broadcast(x, [512, 6, 5, 16])?;
    let large = graph.sin(large)?;
    for axes in [&[0, 1, 2][..], &[0, 1, 2, 3], &[0, 2], &[1, 2, 3]] {
        outputs.push(graph.sum(large, axes)?);
    }
    let turned = graph.permute(x, &[2, 0, 1])?;
    outputs.push(graph.exp(turned)?);
    let part = graph.slice(x, 2, 8, 8)?;
    let joined = graph.concat(&[x, part], 2)?;
    outputs.push(joined);
    let bias = graph.input("bias", [16])?;
    let square = graph.matmul(x, x, true, false)?;
    let biased = graph.add(square, bias)?;
    let wide = graph.slice(square, 1, 0, 16)?;
    outputs.push(graph.concat(&[biased, wide, biased], 2)?);
    let other = graph.affine(square, 2.0, 0.0)?;
    let plus = graph.matmul(other, square, false, false)?;
    let plus = graph.add(plus, bias)?;
    outputs.push(graph.concat(&[plus, square], 2)?);
    let loss = graph.sum_all(joined)?;
    outputs.extend(graph.gradients(loss, &[part])?);
    let product = graph.matmul(x, x, false, true)?;
    outputs.push(product);
    // Both are requested, so that the sum over ranks cannot reuse the memory.
    outputs.push(graph.all_reduce(product)?);
    let target = graph.input("kept", [6, 5, 16])?;
    graph.assign(target, x)?;
    Ok((graph, outputs))
}

/// Layers of fields and tokens with their gradients: convolutions, norms, attention.
fn layers([batch, side, channels]: [usize; 3]) -> Result<(Graph, Vec<Node>)> {
    let mut graph = Graph::new();
    let g = &mut graph;
    let c = channels;
    let mut x = g.parameter("x", [batch, side, side, c], Initial::ONES)?;
    let shift = g.parameter("shift", [batch, c], Initial::ONES)?;
    for (i, mode) in [PadMode::Zero, PadMode::Circular, PadMode::Replicate].into_iter().enumerate() {
        let parameter = |g: &mut Graph, name: &str, shape: &[usize]| {
            g.parameter(&format!("{name}{i}"), shape, Initial::ONES)
        };
        let w = parameter(g, "w", &[c, 3, 3, c])?;
        x = g.conv(x, w, [1, 1], mode, [1, 1])?;
        let [scale, bias, offset] =
            [parameter(g, "scale", &[c])?, parameter(g, "bias", &[c])?, parameter(g, "offset", &[c])?];
        let shift = (i > 0).then_some(shift);
        let inputs = GroupNormInputs { scale, bias, offset: (i < 2).then_some(offset), shift };
        x = g.group_norm(x, inputs, 2, [Activation::Silu, Activation::Gelu, Activation::Relu][i])?;
    }
    let w = g.parameter("up", [c, 4, 4, c], Initial::ONES)?;
    let halved = g.conv(x, w, [2, 2], PadMode::Zero, [1, 1])?;
    x = g.conv_transpose(halved, w, [2, 2], PadMode::Circular, [1, 1])?;
    for family in [WaveletFamily::Haar, WaveletFamily::Daubechies4] {
        let wavelet = Wavelet { family, levels: 2, periodic: [true, family == WaveletFamily::Haar] };
        let waves = g.wavelet(x, wavelet)?;
        let waves = g.scale(waves, 0.5)?;
        x = g.wavelet_inverse(waves, wavelet)?;
    }
    let tokens = g.reshape(x, [batch, side * side, c])?;
    let scale = g.scale(shift, 0.1)?;
    let normal = g.layer_norm(tokens, Some((shift, scale)), 1e-6)?;
    let w = g.parameter("qkv", [c, 3 * c], Initial::ONES)?;
    let qkv = g.linear(normal, w, None, Activation::Identity)?;
    let mixed = g.attention(qkv, 2)?;
    let plain = g.layer_norm(mixed, None, 1e-5)?;
    let all = g.add(plain, tokens)?;
    let loss = g.sum_all(all)?;
    let parameters: Vec<Node> = g.parameters().iter().map(|parameter| parameter.node).collect();
    let mut outputs = vec![loss];
    outputs.extend(g.gradients(loss, &parameters)?);
    Ok((graph, outputs))
}

/// A convolution of few channels and a norm whose samples are kept, with their gradients.
fn kept([batch, side, channels]: [usize; 3]) -> Result<(Graph, Vec<Node>)> {
    let mut graph = Graph::new();
    let g = &mut graph;
    let field = g.parameter("field", [batch, side, side, 3], Initial::ONES)?;
    let w = g.parameter("w", [channels, 3, 3, 3], Initial::ONES)?;
    let x = g.conv(field, w, [1, 1], PadMode::Zero, [1, 1])?;
    let of = |g: &mut Graph, name: &str, shape: &[usize]| g.parameter(name, shape, Initial::ONES);
    let [scale, bias, offset] =
        [of(g, "s", &[channels])?, of(g, "b", &[channels])?, of(g, "o", &[channels])?];
    let shift = Some(of(g, "t", &[batch, channels])?);
    let y =
        g.group_norm(x, GroupNormInputs { scale, bias, offset: Some(offset), shift }, 8, Activation::Silu)?;
    let square = g.square(y)?;
    let loss = g.sum_all(square)?;
    let parameters: Vec<Node> = g.parameters().iter().map(|parameter| parameter.node).collect();
    let outputs = g.gradients(loss, &parameters)?;
    Ok((graph, outputs))
}

/// A training step of two Fourier blocks, a gated MLP and a layer with two outputs, with every kind of merged
/// operation.
fn merged() -> Result<(Graph, Vec<Node>)> {
    let mut graph = Graph::new();
    let g = &mut graph;
    let (batch, points, c) = (8, 256, 64);
    let linear = |g: &mut Graph, name: &str, x: Node, outputs: usize, activation: Activation| {
        let inputs = g.shape(x).last();
        let w = g.parameter(&format!("{name}.w"), [inputs, outputs], Initial::fan_in(inputs))?;
        let b = g.parameter(&format!("{name}.b"), [outputs], Initial::ZEROS)?;
        g.linear(x, w, Some(b), activation)
    };
    let u = g.input("u", [batch, 1, points, 2])?;
    let mut x = linear(g, "lift", u, c, Activation::Identity)?;
    for block in 0..2 {
        let w = g.parameter(&format!("{block}.spectral"), [5, c, 2 * c], Initial::ONES)?;
        let spectral = g.spectral(x, w, &[1, 5])?;
        let local = linear(g, &format!("{block}.local"), x, c, Activation::Identity)?;
        let sum = g.add(spectral, local)?;
        x = g.gelu(sum)?;
    }
    let tokens = g.reshape(x, [batch, points, c])?;
    let moved = g.parameter("shift", [batch, c], Initial::ZEROS)?;
    let normal = g.layer_norm(tokens, Some((moved, moved)), 1e-6)?;
    let hidden = linear(g, "hidden", normal, 4 * c, Activation::Gelu)?;
    let y = linear(g, "out", hidden, c, Activation::Identity)?;
    let gate = g.parameter("gate", [batch, 1, c], Initial::ONES)?;
    let gated = g.multiply(gate, y)?;
    let sum = g.add(tokens, gated)?;
    let last = linear(g, "last", sum, 2, Activation::Identity)?;
    let target = g.reshape(u, [batch, points, 2])?;
    let loss = g.mean_squared_error(last, target)?;
    let counter = g.counter("step")?;
    g.adam(loss, counter, AdamConfig::default())?;
    Ok((graph, vec![loss]))
}

/// Two gated residual blocks, each after a norm, and a norm at the end.
fn gated() -> Result<(Graph, Vec<Node>)> {
    let mut graph = Graph::new();
    let g = &mut graph;
    let (batch, tokens, c) = (3, 40, 32);
    let mut x = g.parameter("x", [batch, tokens, c], Initial::ONES)?;
    let row = g.parameter("row", [batch, c], Initial::ONES)?;
    for block in 0..2 {
        let normal = g.layer_norm(x, Some((row, row)), 1e-6)?;
        let w = g.parameter(&format!("{block}.w"), [c, c], Initial::ONES)?;
        let y = g.linear(normal, w, None, Activation::Identity)?;
        let gate = g.parameter(&format!("{block}.gate"), [batch, 1, c], Initial::ONES)?;
        let gated = g.multiply(gate, y)?;
        x = g.add(x, gated)?;
    }
    let last = g.layer_norm(x, None, 1e-6)?;
    let squares = g.multiply(last, last)?;
    let cubes = g.multiply(squares, last)?;
    let loss = g.sum_all(cubes)?;
    let parameters: Vec<Node> = g.parameters().iter().map(|parameter| parameter.node).collect();
    let mut outputs = vec![loss];
    outputs.extend(g.gradients(loss, &parameters)?);
    Ok((graph, outputs))
}

/// An MLP of many rows with GELU in between.
fn long() -> Result<(Graph, Vec<Node>)> {
    let mut graph = Graph::new();
    let g = &mut graph;
    let mut x = g.parameter("x", [20_000, 128], Initial::ONES)?;
    for (layer, [inputs, outputs], activation) in
        [(0, [128, 384], Activation::Gelu), (1, [384, 128], Activation::Identity)]
    {
        let w = g.parameter(&format!("{layer}.w"), [inputs, outputs], Initial::ONES)?;
        let b = g.parameter(&format!("{layer}.b"), [outputs], Initial::ONES)?;
        x = g.linear(x, w, Some(b), activation)?;
    }
    let loss = g.sum_all(x)?;
    let parameters: Vec<Node> = g.parameters().iter().map(|parameter| parameter.node).collect();
    let mut outputs = vec![loss];
    outputs.extend(g.gradients(loss, &parameters)?);
    Ok((graph, outputs))
}

/// Gradients of a Fourier operator at a network's size: two blocks, a hidden layer, two outputs.
fn fourier() -> Result<(Graph, Vec<Node>)> {
    let (batch, points, c) = (256, 100, 128);
    let mut graph = Graph::new();
    let g = &mut graph;
    let parameter = |g: &mut Graph, name: String, shape: &[usize]| g.parameter(&name, shape, Initial::ONES);
    let mut x = parameter(g, "x".into(), &[batch, 1, points, c])?;
    for block in 0..2 {
        let w = parameter(g, format!("{block}.spectral"), &[6, c, 2 * c])?;
        let spectral = g.spectral(x, w, &[1, 6])?;
        let [w, b] = [("w", &[c, c][..]), ("b", &[c])]
            .map(|(name, shape)| parameter(g, format!("{block}.{name}"), shape));
        let local = g.linear(x, w?, Some(b?), Activation::Identity)?;
        let sum = g.add(spectral, local)?;
        x = g.gelu(sum)?;
    }
    let [w, b] =
        [("w", &[c, c][..]), ("b", &[c])].map(|(name, shape)| parameter(g, format!("hidden.{name}"), shape));
    let hidden = g.linear(x, w?, Some(b?), Activation::Gelu)?;
    let loss = g.sum_all(hidden)?;
    let parameters: Vec<Node> = g.parameters().iter().map(|parameter| parameter.node).collect();
    let gradients = g.gradients(loss, &parameters)?;
    Ok((graph, gradients))
}

/// The parts of networks on volumes, with their gradients: the values that a kernel with a stride reads along the depth as
/// channels of planes, a Fourier multiplication along three axes, and patches with a depth.
fn volumes() -> Result<(Graph, Vec<Node>)> {
    let mut graph = Graph::new();
    let g = &mut graph;
    let [batch, depth, height, width, c] = [2, 6, 4, 8, 8];
    let x = g.input("x", [batch, depth * height, width, c])?;
    let stack = g.reshape(x, [batch, depth, height * width, c])?;
    let padded = g.pad(stack, PadMode::Circular, [1, 0], [1, 0])?;
    let steps = g.reshape(padded, [batch, depth / 2 + 1, 2, height * width, c])?;
    let mut taps = Vec::new();
    for tap in 0..4 {
        let tap = g.var(steps).slice(1, tap / 2, depth / 2).slice(2, tap % 2, 1);
        taps.push(tap.reshape([batch, depth / 2, height * width, c]).node()?);
    }
    let read = g.concat(&taps, 3)?;
    let planes = g.reshape(read, [batch * depth / 2, height, width, 4 * c])?;
    let w = g.parameter("w", [c, 4, 4, 4 * c], Initial::ONES)?;
    let halved = g.conv(planes, w, [2, 2], PadMode::Circular, [1, 1])?;
    let halved = g.reshape(halved, [batch, depth / 2, height / 2, width / 2, c])?;
    let weight = g.parameter("spectral", [2 * 2 * 2, c, 2 * c], Initial::ONES)?;
    let spectral = g.spectral(halved, weight, &[1, 1, 2])?;
    let tokens = g.var(spectral).reshape([batch, 1, 3, 4, 2 * c]).permute(&[0, 1, 3, 2, 4]);
    let loss = tokens.reshape([batch, 4, 6 * c]).square().sum_all().node()?;
    let gradients = g.gradients(loss, &[x, w, weight])?;
    Ok((graph, [loss].into_iter().chain(gradients).collect()))
}

fn graphs() -> Vec<(Graph, Vec<Node>)> {
    let mut graphs =
        vec![volumes(), layouts(), merged(), gated(), long(), whole_trajectories(3), whole_trajectories(5)]
            .into_iter()
            .map(|graph| graph.expect("a valid graph"))
            .collect::<Vec<_>>();
    graphs.extend([PadMode::Zero, PadMode::Circular].map(|mode| lines(mode, 32).expect("a valid graph")));
    graphs.extend([[2, 8, 32], [300, 16, 6], [3, 64, 96]].map(|size| layers(size).expect("a valid graph")));
    graphs.extend([[4, 32, 64], [3, 72, 64]].map(|size| kept(size).expect("a valid graph")));
    graphs.extend([(1, 3), (4, 128), (4, 50)].map(|(k, size)| windows(k, size).expect("a valid graph")));
    for (spline, stencil, size) in [
        (Spline::Linear, 3, 3),
        (Spline::Quintic, 3, 3),
        (Spline::Quintic, 3, 128),
        (Spline::Hermite { smoothness: 4 }, 9, 3),
    ] {
        for by in [DrawBy::Time, DrawBy::Interval, DrawBy::Snapshot] {
            graphs.push(training_step(by, spline, stencil, size).expect("a valid graph"));
        }
    }
    graphs
}

/// Writes listings of all graphs to the folder `CFO_LISTING`, to compare two versions.
#[test]
fn listings_are_written_where_asked() {
    let Some(folder) = std::env::var_os("CFO_LISTING").map(std::path::PathBuf::from) else { return };
    std::fs::create_dir_all(folder.join("kernels")).unwrap();
    let mut all = graphs();
    all.push(fourier().unwrap());
    all.push(lines(PadMode::Circular, 64).unwrap());
    for (index, (graph, outputs)) in all.iter().enumerate() {
        for precision in [Precision::F32, Precision::Tf32, Precision::Bf16] {
            for (kind, probe) in [("rich", None), ("poor", poor_library())] {
                let listing = described("", &lowered_with(graph, outputs, precision, probe));
                std::fs::write(folder.join(format!("{index}-{precision}-{kind}.txt")), listing.text).unwrap();
                for (name, source) in listing.sources {
                    std::fs::write(folder.join("kernels").join(name + ".cu"), source).unwrap();
                }
            }
        }
    }
}

#[test]
fn every_kernel_compiles() {
    if !Library::Nvrtc.loaded() {
        let install = Library::Nvrtc.install();
        let line = format!("test every_kernel_compiles ... skipped: NVRTC was not found; {install}\n");
        let _ = std::io::stderr().write_all(line.as_bytes());
        return;
    }
    let mut compiled = std::collections::BTreeMap::new();
    for (graph, outputs) in graphs() {
        // Functions in tf32 are computed as in bf16, other than in f32.
        for precision in [Precision::F32, Precision::Bf16] {
            let (units, places) = lowered(&graph, &outputs, precision).units(90);
            assert!(!places.is_empty());
            compiled.extend(units.into_iter().map(|unit| (unit.key(""), unit)));
        }
    }
    // Compact operands.
    let (graph, outputs) = layers([2, 8, 32]).expect("a valid graph");
    let (units, _) = lowered(&graph, &outputs, Precision::Tf32).units(90);
    compiled.extend(units.into_iter().map(|unit| (unit.key(""), unit)));
    // One-row convolutions use other algorithms in tf32 than in f32.
    let (graph, outputs) = lines(PadMode::Circular, 64).expect("a valid graph");
    let (units, _) = lowered(&graph, &outputs, Precision::Tf32).units(90);
    compiled.extend(units.into_iter().map(|unit| (unit.key(""), unit)));
    // Products in single precision on tensor cores.
    let (graph, outputs) = fourier().expect("a valid graph");
    let (units, _) = lowered(&graph, &outputs, Precision::F32).units(90);
    compiled.extend(units.into_iter().map(|unit| (unit.key(""), unit)));
    // Operations that a limited library leaves to our kernels.
    let (graph, outputs) = merged().expect("a valid graph");
    for precision in [Precision::F32, Precision::Bf16] {
        let (units, _) = lowered_with(&graph, &outputs, precision, poor_library()).units(90);
        compiled.extend(units.into_iter().map(|unit| (unit.key(""), unit)));
    }
    compiled.par_iter().for_each(|(_, unit)| {
        compile::compile(unit).unwrap_or_else(|error| panic!("{error}\n{}", unit.source));
    });
    eprintln!("{} units of kernels compiled", compiled.len());
}

#[test]
fn equal_kernels_are_compiled_once_and_effects_are_marked() {
    let (graph, outputs) = training_step(DrawBy::Time, Spline::Quintic, 3, 3).unwrap();
    let lowering = lowered(&graph, &outputs, Precision::Bf16);
    // Both blocks of this graph are equal.
    let (twice, requested) = merged().unwrap();
    let alike = lowered_with(&twice, &requested, Precision::Bf16, poor_library());
    let launches = alike.commands.iter().filter(|command| matches!(command.work, GpuWork::Launch(_))).count();
    let (_, places) = alike.units(90);
    assert!(places.len() < launches, "{} kernels for {launches} launches", places.len());
    let effects: Vec<&str> = lowering
        .commands
        .iter()
        .filter(|command| command.effect)
        .filter_map(|command| command.label.split(' ').next())
        .collect();
    assert_eq!(effects, ["adam"], "Adam moves its counter itself");
}

#[test]
fn products_read_bf16_where_the_precision_asks_for_it() {
    let (graph, outputs) = training_step(DrawBy::Time, Spline::Quintic, 3, 128).unwrap();
    for (precision, half) in [(Precision::F32, false), (Precision::Bf16, true)] {
        for command in lowered(&graph, &outputs, precision).commands {
            if let GpuWork::Product(product) = command.work {
                assert_eq!(product.a.scalar.bytes() == 2, half, "{product:?}");
                assert_eq!(product.b.scalar.bytes() == 2, half, "{product:?}");
                assert!(product.a.distance >= product.a.rows && product.b.distance >= product.b.rows);
            }
        }
    }
}

#[test]
fn leaves_that_products_read_are_rounded_together() {
    let (graph, outputs) = training_step(DrawBy::Time, Spline::Quintic, 3, 3).unwrap();
    let (fused, outputs) = fuse(&graph, &outputs);
    let typed = Typed::without_device(fused, outputs, Precision::Bf16, (132, 90));
    let copied = copied_leaves(&typed);
    assert!(copied.iter().all(|&leaf| matches!(
        typed.code.entries[leaf].op,
        Instruction::Tensor(_) | Instruction::Constant(_)
    )));
    // Four weights; biases too if the product adds them.
    assert!(copied.len() >= 4, "{copied:?}");
}

#[test]
fn what_follows_a_product_goes_into_it() {
    let (graph, outputs) = merged().unwrap();
    let products = |lowering: &Lowering| -> Vec<Product> {
        let of = |work: &GpuWork| if let GpuWork::Product(product) = work { Some(*product) } else { None };
        lowering.commands.iter().filter_map(|command| of(&command.work)).collect()
    };
    for precision in [Precision::F32, Precision::Bf16] {
        let rich = lowered(&graph, &outputs, precision);
        let found = products(&rich);
        let count = |epilogue: Epilogue| found.iter().filter(|product| product.epilogue == epilogue).count();
        // Both blocks forward, and the hidden layer.
        assert_eq!(count(Epilogue::GeluBias), 3, "{found:#?}");
        // Back into the hidden layer and into the first block; the second one's slope comes after the layer norm.
        assert_eq!(count(Epilogue::GeluSlope), 2, "{found:#?}");
        // Both blocks forward; backward, the first one's slope, and the cotangents of the lifted field.
        assert_eq!(found.iter().filter(|product| product.added != 0).count(), 4, "{found:#?}");
        // Both local maps, the hidden layer and the layer after it.
        assert_eq!(count(Epilogue::Sums), 4, "{found:#?}");
        // The first and the last layer do not use the library.
        assert!(found.iter().all(|product| product.d.rows.min(product.d.columns) > 2));
        let sums = rich.commands.iter().filter(|command| command.label.starts_with("sum")).count();
        let residuals =
            rich.commands.iter().filter(|command| command.label.starts_with("expression")).count();
        eprintln!("{precision}: {} commands, {sums} sums, {residuals} expressions", rich.commands.len());
        let poor = lowered_with(&graph, &outputs, precision, poor_library());
        assert!(products(&poor).iter().all(|product| product.epilogue == Epilogue::None));
        assert_eq!(products(&poor).len(), found.len());
        assert_eq!(
            rich.commands.iter().filter(|command| command.label.starts_with("sum axes=[1]")).count(),
            1
        );
        assert!(poor.commands.len() > rich.commands.len());
    }
}

#[test]
fn a_sum_over_one_machine_launches_nothing() {
    let launches = |reduced: bool| {
        let (mut graph, _) = long().unwrap();
        let w = graph.parameters()[0].node;
        let y = graph.square(w).unwrap();
        let z = if reduced { graph.all_reduce(y).unwrap() } else { y };
        let total = graph.exp(z).unwrap();
        lowered(&graph, &[total], Precision::F32).commands.len()
    };
    // Without the sum both functions are one expression.
    assert_eq!((launches(false), launches(true)), (1, 2));
}

#[test]
fn gates_go_into_the_norms_around_them() {
    let (graph, outputs) = gated().unwrap();
    let (fused, outputs) = fuse(&graph, &outputs);
    let typed = Typed::without_device(fused, outputs, Precision::Bf16, (132, 90));
    let entries = typed.code.entries.iter();
    let norms = entries
        .clone()
        .filter(|entry| matches!(&entry.op, Instruction::LayerNorm(op) if op.residual))
        .count();
    let backward = entries
        .clone()
        .filter(|entry| matches!(&entry.op, Instruction::LayerNormBackward(op) if op.gated))
        .count();
    // The sums of both blocks are normalised next; both norms after a gate pass their slopes through it.
    assert_eq!((norms, backward), (2, 2));
    let sums = entries.filter(|entry| matches!(&entry.op, Instruction::Sum(op) if op.axes == [1])).count();
    assert_eq!(sums, 0, "a gate's slope is not summed apart");
}

#[test]
fn long_products_with_gelu_are_ours_and_bring_the_bias_gradient() {
    let (graph, outputs) = long().unwrap();
    let found = |precision| {
        let lowering = lowered(&graph, &outputs, precision);
        let launched = |name: &str| {
            let launch = |command: &&GpuCommand| {
                matches!(command.work, GpuWork::Launch(_)) && command.label.contains(name)
            };
            lowering.commands.iter().filter(launch).count()
        };
        [launched("Gelu"), launched("slope totals")]
    };
    assert_eq!(found(Precision::Bf16), [1, 1]);
    // In tf32 the library computes both, and one of our kernels the sums.
    assert_eq!(found(Precision::Tf32), [0, 1]);
}

#[test]
fn products_in_single_precision_are_done_on_hopper_s_tensor_cores() {
    let (graph, outputs) = fourier().unwrap();
    let library = |precision: Precision, warpgroups: bool| {
        let lowering = lowered_for(&graph, &outputs, (precision, warpgroups), None);
        lowering.commands.iter().filter(|command| matches!(command.work, GpuWork::Product(_))).count()
    };
    // Three layers and three products for each mode of both blocks, forward and backward.
    assert_eq!((library(Precision::F32, true), library(Precision::F32, false)), (0, 15));
    assert_eq!(library(Precision::Tf32, true), library(Precision::Tf32, false));
    assert!(library(Precision::Bf16, true) > 0);
}
