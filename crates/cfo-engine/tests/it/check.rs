//! Checks that the tests of all operations share.

use std::cell::Cell;

use cfo_device::Device;
use cfo_engine::{Data, Element, Graph, Memory, Node, Precision, Program, Result, Shape};
use cfo_numerics::Philox;

/// Normal random numbers, kept away from 0, where kinks are.
pub fn normals(count: usize, seed: u64) -> Vec<f64> {
    let mut random = Philox::new(seed, 0);
    (0..count)
        .map(|_| {
            let value = random.normal();
            value + 0.05 * value.signum()
        })
        .collect()
}

/// A graph under test: from real inputs of the given shapes to a value of any shape.
pub type Build<'a> = &'a dyn Fn(&mut Graph, &[Node]) -> Result<Node>;

fn memory(shapes: &[Shape], values: &[Vec<f64>], precision: Precision) -> Memory {
    memory_on(Device::Cpu, shapes, values, precision)
}

/// A memory that holds the inputs.
pub fn memory_on(device: Device, shapes: &[Shape], values: &[Vec<f64>], precision: Precision) -> Memory {
    let mut memory = Memory::new(device, precision).unwrap();
    for (i, (shape, values)) in shapes.iter().zip(values).enumerate() {
        memory.insert(&format!("x{i}"), Element::Real, shape.clone(), Data::F64(values)).unwrap();
    }
    memory
}

/// The inputs as values of a graph.
pub fn inputs(graph: &mut Graph, shapes: &[Shape]) -> Vec<Node> {
    shapes
        .iter()
        .enumerate()
        .map(|(i, shape)| graph.input(&format!("x{i}"), shape.clone()).unwrap())
        .collect()
}

/// The value of a graph for given inputs.
pub fn evaluate(shapes: &[Shape], values: &[Vec<f64>], precision: Precision, build: Build<'_>) -> Vec<f64> {
    let mut graph = Graph::new();
    let nodes = inputs(&mut graph, shapes);
    let output = build(&mut graph, &nodes).unwrap();
    let mut memory = memory(shapes, values, precision);
    memory.initialize(&graph, 1).unwrap();
    let mut program = Program::compile(&graph, &[output], &memory).unwrap();
    program.run(&mut memory).unwrap();
    program.output_f64(0).unwrap()
}

/// Checks derivatives. Every input's gradient of a random weighting of the output agrees with central differences in
/// `f64` to 1e-6. The output in `f32` agrees with that in `f64` to 1e-4 of its scale.
///
/// The value is used twice in the loss, so that its cotangents are summed.
pub fn gradients(name: &str, shapes: &[&[usize]], build: Build<'_>) {
    let shapes: Vec<Shape> = shapes.iter().map(|&shape| shape.into()).collect();
    let values: Vec<Vec<f64>> =
        shapes.iter().enumerate().map(|(i, s)| normals(s.len(), 10 + i as u64)).collect();
    gradients_at(name, &shapes, &values, build);
}

/// Replacement of [`gradients`] in comparisons of another device with the CPU.
pub type Compare = fn(&str, &[Shape], &[Vec<f64>], Build<'_>);

thread_local! {
    static COMPARE: Cell<Option<Compare>> = const { Cell::new(None) };
}

/// Runs tests of gradients with every check replaced by `compare`.
pub fn compared(compare: Compare, tests: &dyn Fn()) {
    COMPARE.set(Some(compare));
    tests();
    COMPARE.set(None);
}

/// Checks derivatives at given inputs; see [`gradients`].
pub fn gradients_at(name: &str, shapes: &[Shape], values: &[Vec<f64>], build: Build<'_>) {
    if let Some(compare) = COMPARE.get() {
        return compare(name, shapes, values, build);
    }
    let mut graph = Graph::new();
    let nodes = inputs(&mut graph, shapes);
    let output = build(&mut graph, &nodes).unwrap_or_else(|error| panic!("{name}: {error}"));
    let weights = normals(graph.shape(output).len(), 99);
    let weights = graph.constant(graph.shape(output).clone(), weights).unwrap();
    let weighted = graph.multiply(output, weights).unwrap();
    let square = graph.square(output).unwrap();
    let both = graph.add(weighted, square).unwrap();
    let loss = graph.sum_all(both).unwrap();
    let gradients = graph.gradients(loss, &nodes).unwrap_or_else(|error| panic!("{name}: {error}"));

    let mut all = vec![loss];
    all.extend(&gradients);
    let mut tensors = memory(shapes, values, Precision::F64);
    tensors.initialize(&graph, 1).unwrap();
    let mut program = Program::compile(&graph, &all, &tensors).unwrap();
    program.run(&mut tensors).unwrap();
    let size = program.scalar(0).unwrap().abs();
    let analytic: Vec<Vec<f64>> = (0..shapes.len()).map(|i| program.output_f64(i + 1).unwrap()).collect();

    let mut forward = Program::compile(&graph, &[loss], &tensors).unwrap();
    for (i, values) in values.iter().enumerate() {
        let scale = analytic[i].iter().fold(1e-3_f64, |scale, g| scale.max(g.abs()));
        let stride = (values.len() / 40).max(1);
        for j in (0..values.len()).step_by(stride) {
            let step = 1e-5 * values[j].abs().max(1.0);
            let mut at = |shift: f64| {
                let mut moved = values.clone();
                moved[j] += shift;
                tensors.write(&format!("x{i}"), Data::F64(&moved)).unwrap();
                forward.run(&mut tensors).unwrap();
                forward.scalar(0).unwrap()
            };
            // Fourth-order differences: round-off and truncation are both far below 1e-6.
            let slope = (8.0 * (at(step) - at(-step)) - (at(2.0 * step) - at(-2.0 * step))) / (12.0 * step);
            // Sums of some hundred terms have rounding errors, which division by the step magnifies.
            let noise = 32.0 * f64::EPSILON * size / step;
            assert!(
                (slope - analytic[i][j]).abs() < 1e-6 * scale + noise,
                "{name}: input {i} element {j}: {} but differences say {slope}",
                analytic[i][j]
            );
        }
        tensors.write(&format!("x{i}"), Data::F64(values)).unwrap();
    }
    single_agrees_with_double(name, shapes, values, build);
}

fn single_agrees_with_double(name: &str, shapes: &[Shape], values: &[Vec<f64>], build: Build<'_>) {
    let double = evaluate(shapes, values, Precision::F64, build);
    let single = evaluate(shapes, values, Precision::F32, build);
    let scale = double.iter().fold(1e-3_f64, |scale, value| scale.max(value.abs()));
    for (i, (double, single)) in double.iter().zip(&single).enumerate() {
        assert!(
            (double - single).abs() <= 1e-4 * scale,
            "{name}: output {i} is {single} in f32, {double} in f64"
        );
    }
}
