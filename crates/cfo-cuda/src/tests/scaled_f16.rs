//! Compares convolutions of f16 operands on the GPU with the CPU; skipped without a GPU.

use std::io::Write as _;

use cfo_numerics::Philox;

use crate::convolution::algorithm;
use crate::convolution::conv::{ConvPass, Geometry};
use crate::program::executor::CudaExecutor;
use crate::program::typed::Typed;
use cfo_cpu::Cpu;
use cfo_engine::backend::{Executable, Open, fuse};
use cfo_engine::ops::{Activation, Conv, GroupNormInputs, Op, PadMode};
use cfo_engine::{Memory, Plan, Precision, Program};

use crate::backend::{Cuda, context};
use cfo_engine::{Graph, Node};

/// Named values.
type Values = Vec<(String, Vec<usize>, Vec<f32>)>;

fn memory(device: impl Open, precision: Precision, values: &Values) -> Memory {
    let mut memory = Memory::new(device, precision).unwrap();
    for (name, shape, values) in values {
        memory.insert_real(name, shape.as_slice(), values).unwrap();
    }
    memory
}

/// Outputs of a graph on the GPU with f16 operands wherever the library supports them, regardless of speed, and the
/// number of such convolutions.
fn found(graph: &Graph, outputs: &[Node], values: &Values) -> (Vec<Vec<f64>>, usize) {
    let mut memory = memory(Cuda(0), Precision::Tf32, values);
    let context = &context(0);
    let (fused, outputs) = fuse(graph, outputs);
    let mut typed = Typed::without_device(
        fused,
        outputs,
        Precision::Tf32,
        (context.properties.multiprocessors, context.properties.architecture),
    );
    let mut f16 = 0;
    for id in 0..typed.code.entries.len() {
        if let Some(geometry) = Geometry::of(&typed.code, id, Precision::Tf32) {
            let first = algorithm::first_f16(context, &geometry);
            f16 += usize::from(first.is_some());
            let choice = first.unwrap_or_else(|| algorithm::choose(context, &geometry, false).unwrap().usual);
            typed.convolutions.insert(id, choice);
        }
    }
    let typed = typed.with_scaled_f16();
    let plan = Plan::new(&typed);
    let mut executor = CudaExecutor::new(context, &typed, &plan, &memory).unwrap();
    executor.run(&mut memory, 2).unwrap();
    let outputs = (0..typed.code.requested.len()).map(|output| executor.output(output).unwrap());
    (outputs.collect(), f16)
}

fn expected(graph: &Graph, outputs: &[Node], values: &Values) -> Vec<Vec<f64>> {
    let mut memory = memory(Cpu, Precision::F64, values);
    let mut program = Program::compile(graph, outputs, &memory).unwrap();
    program.run(&mut memory).unwrap();
    (0..outputs.len()).map(|output| program.output_f64(output).unwrap()).collect()
}

fn error(found: &[f64], expected: &[f64]) -> f64 {
    let norm = |values: &mut dyn Iterator<Item = f64>| values.map(|v| v * v).sum::<f64>().sqrt();
    norm(&mut found.iter().zip(expected).map(|(a, b)| a - b)) / norm(&mut expected.iter().copied())
}

/// Normal numbers times the given size; `spread` mixes sizes in powers of e.
fn numbers(count: usize, seed: u64, size: f64, spread: f64) -> Vec<f32> {
    let mut random = Philox::new(seed, 0);
    (0..count).map(|_| (size * random.normal() * (spread * random.normal()).exp()) as f32).collect()
}

fn on_gpu(test: &str) -> bool {
    let answer = Cuda(0).open();
    if let Err(error) = &answer {
        let line = format!("test scaled_f16::{test} ... skipped: {error}\n");
        let _ = std::io::stderr().write_all(line.as_bytes());
    }
    answer.is_ok()
}

/// Batch, height and width, channels in and out, kernel, stride.
type Sizes = (ConvPass, [usize; 3], [usize; 2], usize, usize);

const SIZES: [Sizes; 9] = [
    (ConvPass::Weight, [3, 16, 16], [64, 32], 3, 1),
    (ConvPass::Weight, [2, 33, 20], [8, 24], 3, 1),
    (ConvPass::Weight, [5, 32, 32], [64, 64], 4, 2),
    (ConvPass::Weight, [2, 9, 7], [2, 64], 3, 1),
    (ConvPass::Forward, [3, 16, 16], [64, 32], 3, 1),
    (ConvPass::Forward, [2, 33, 20], [8, 24], 3, 1),
    (ConvPass::Forward, [5, 32, 32], [64, 64], 4, 2),
    (ConvPass::Input, [3, 16, 16], [64, 32], 3, 1),
    (ConvPass::Input, [2, 33, 20], [8, 24], 3, 1),
];

/// One convolution of two values, which are computed from their length and index by a rule.
fn convolution(
    (form, field, [inputs, outputs], kernel, stride): Sizes,
    rule: impl Fn(usize, usize) -> Vec<f32>,
) -> (Graph, Node, Values) {
    let [batch, height, width] = field;
    let after = |length: usize| (length + 2 - kernel) / stride + 1;
    let x = vec![batch, height, width, inputs];
    let w = vec![outputs, kernel, kernel, inputs];
    let y = vec![batch, after(height), after(width), outputs];
    let (stride, padding, kernel) = ([stride; 2], [1, 1], [kernel; 2]);
    let [first, second, _] = form.ordered([x, w, y]);
    let shapes = [first, second];
    let op = Op::Conv(Conv { pass: form, stride, padding, field: [height, width], kernel });
    let mut graph = Graph::new();
    let mut values = Vec::new();
    let mut nodes = Vec::new();
    for (place, shape) in shapes.into_iter().enumerate() {
        let name = format!("{place}");
        nodes.push(graph.input(&name, shape.as_slice()).unwrap());
        let numbers = rule(shape.iter().product(), place);
        values.push((name, shape, numbers));
    }
    let result = graph.push_one(op, &nodes).unwrap();
    (graph, result, values)
}

#[test]
fn convolutions_of_f16_operands_agree_at_every_scale() {
    if !on_gpu("convolutions_of_f16_operands_agree_at_every_scale") {
        return;
    }
    let scales = [[1.0, 1.0], [1e-12, 1.0], [1e-12, 1e-12], [1e12, 1e12], [1e-30, 1e20], [1e15, 1e-35]];
    for (case, sizes) in SIZES.into_iter().enumerate() {
        for (index, scale) in scales.into_iter().enumerate() {
            for spread in [0.0, 3.0] {
                let seed = (100 * case + index) as u64;
                let rule = |count: usize, place: usize| {
                    numbers(count, seed + 50 * place as u64, scale[place], spread)
                };
                let (graph, result, values) = convolution(sizes, rule);
                let (found, f16) = found(&graph, &[result], &values);
                let error = error(&found[0], &expected(&graph, &[result], &values)[0]);
                eprintln!("{sizes:?} {scale:?} spread {spread}, f16 {f16}: {error:.2e}");
                // The library's own tf32 has errors of 1.2e-3 in sums of numbers of very different size.
                assert!(error < 2e-3, "{sizes:?} {scale:?} {spread}: {error:e}");
            }
        }
    }
}

#[test]
fn f16_zeros_stay_zero_and_what_is_not_finite_stays_so() {
    if !on_gpu("f16_zeros_stay_zero_and_what_is_not_finite_stays_so") {
        return;
    }
    for sizes in [SIZES[0], SIZES[4], SIZES[7]] {
        let zeros = |count: usize, place: usize| match place {
            0 => vec![0.0; count],
            _ => numbers(count, 1, 1.0, 0.0),
        };
        let (graph, result, values) = convolution(sizes, zeros);
        assert!(found(&graph, &[result], &values).0[0].iter().all(|&value| value == 0.0));
        for bad in [f32::INFINITY, f32::NEG_INFINITY, f32::NAN] {
            for which in 0..2 {
                let rule = |count: usize, place: usize| {
                    let mut values = numbers(count, place as u64, [1.0, 1e-9][place], 0.0);
                    if place == which {
                        values[17] = bad;
                    }
                    values
                };
                let (graph, result, values) = convolution(sizes, rule);
                let (found, f16) = found(&graph, &[result], &values);
                assert!(f16 == 0 || found[0].iter().all(|value| !value.is_finite()));
            }
        }
    }
}

#[test]
fn what_norms_and_joins_yield_is_made_f16() {
    if !on_gpu("what_norms_and_joins_yield_is_made_f16") {
        return;
    }
    let mut graph = Graph::new();
    let mut values: Values = Vec::new();
    let mut input = |graph: &mut Graph, name: &str, shape: &[usize], size: f64| {
        let numbers = numbers(shape.iter().product(), values.len() as u64 + 900, size, 0.0);
        values.push((name.into(), shape.to_vec(), numbers));
        graph.input(name, shape).unwrap()
    };
    let g = &mut graph;
    let (batch, side, c) = (4, 16, 32);
    let x = input(g, "x", &[batch, side, side, c], 1e3);
    let weights = [
        input(g, "w1", &[c, 3, 3, c], 1e-5),
        input(g, "w2", &[c, 3, 3, c], 0.1),
        input(g, "w3", &[c, 3, 3, 2 * c], 10.0),
    ];
    let [scale, bias, offset] = ["scale", "bias", "offset"].map(|name| input(g, name, &[c], 1.0));
    let shift = input(g, "shift", &[batch, c], 3.0);
    let plus = input(g, "plus", &[c], 1.0);
    let same = |g: &mut Graph, x: Node, w: Node| g.conv(x, w, [1, 1], PadMode::Zero, [1, 1]).unwrap();
    let y = same(g, x, weights[0]);
    let inputs = GroupNormInputs { scale, bias, offset: Some(offset), shift: Some(shift) };
    let y = g.group_norm(y, inputs, 4, Activation::Silu).unwrap();
    let z = same(g, y, weights[1]);
    let z = g.add(z, plus).unwrap();
    let joined = g.concat(&[z, y], 3).unwrap();
    let last = same(g, joined, weights[2]);
    let square = g.square(last).unwrap();
    let loss = g.sum_all(square).unwrap();
    let mut outputs = vec![last];
    outputs.extend(g.gradients(loss, &[x, weights[0], weights[1], weights[2], shift]).unwrap());
    let (found, f16) = found(&graph, &outputs, &values);
    assert!(f16 >= 3, "{f16}");
    for (index, (found, expected)) in found.iter().zip(expected(&graph, &outputs, &values)).enumerate() {
        let error = error(found, &expected);
        eprintln!("output {index}: {error:.2e}, {f16} of f16 operands");
        // Three layers, each of which rounds its operands.
        assert!(error < 3e-3, "output {index}: {error:e}");
    }
}
