//! Properties of fusion and planning for random graphs.

use proptest::prelude::*;

use crate::backend::Cpu;
use crate::executor::{CpuExecutor, Sizing};
use cfo_engine::Plan;
use cfo_engine::Precision;
use cfo_engine::Result;
use cfo_engine::backend::Executable;
use cfo_engine::backend::{BufferPlace, PlannedSteps};
use cfo_engine::backend::{fuse, separate};
use cfo_engine::ops::Activation;
use cfo_engine::{Data, Memory};
use cfo_engine::{Element, Shape};
use cfo_engine::{Graph, Node};

/// A random choice: an operation, and numbers that determine its operands and attributes.
type Choice = (u8, usize, usize, usize);

/// A graph built from random choices, and the values to request of it: some of its own, a loss and the gradients of
/// every input. Choices that do not fit the available shapes are skipped.
fn grow(choices: &[Choice], large: bool) -> (Graph, Vec<Node>, Vec<Shape>) {
    // The larger shapes are divided into several tasks.
    let shapes: Vec<Shape> = if large {
        vec![[30, 40, 20].into(), [40, 1].into(), [20].into(), [30, 40, 20].into(), [20, 20].into()]
    } else {
        vec![[2, 3, 4].into(), [3, 1].into(), [4].into(), [2, 3, 4].into(), [4, 4].into(), Shape::scalar()]
    };
    let mut graph = Graph::new();
    let mut nodes: Vec<Node> =
        shapes.iter().enumerate().map(|(i, s)| graph.input(&format!("x{i}"), s.clone()).unwrap()).collect();
    for &choice in choices {
        if let Some(node) = apply(&mut graph, &nodes, choice)
            && graph.shape(node).len() <= 50_000
        {
            nodes.push(node);
        }
    }
    let inputs = nodes[..shapes.len()].to_vec();
    let last = *nodes.last().unwrap();
    let bounded = graph.tanh(last).unwrap();
    let loss = graph.mean_all(bounded).unwrap();
    let gradients = graph.gradients(loss, &inputs).unwrap();
    let mut requested = vec![loss, nodes[nodes.len() / 2], inputs[0]];
    requested.extend(gradients);
    (graph, requested, shapes)
}

fn apply(graph: &mut Graph, nodes: &[Node], (operation, a, b, c): Choice) -> Option<Node> {
    // Recent values are more likely than old ones, so that chains are long.
    let pick = |i: usize| nodes[nodes.len() - 1 - i % nodes.len().min(6)];
    let (x, y) = (pick(a), nodes[b % nodes.len()]);
    let axes = graph.shape(x).axes().to_vec();
    let axis = c % axes.len().max(1);
    let result: Result<Node> = match operation % 18 {
        0 => graph.sin(x),
        1 => graph.tanh(x),
        2 => graph.relu(x),
        3 => graph.affine(x, 0.5, 0.1),
        4 => graph.silu(x),
        5 => graph.square(x).and_then(|square| graph.tanh(square)),
        6 | 7 => graph.add(x, y),
        8 => graph.subtract(x, y),
        9 => graph.maximum(x, y),
        10 | 11 => graph.multiply(x, y).and_then(|product| graph.sin(product)),
        12 => graph.mean(x, &(0..axes.len()).filter(|i| c >> i & 1 == 1).collect::<Vec<_>>()),
        13 => {
            let order: Vec<usize> = (0..axes.len()).map(|i| (i + 1 + c % 2) % axes.len()).collect();
            graph.permute(x, &order)
        }
        14 if !axes.is_empty() => graph.slice(x, axis, axes[axis] / 2, axes[axis].div_ceil(2)),
        15 if !axes.is_empty() => graph.concat(&[x, y], axis),
        16 => {
            let scaled = graph.scale(x, 0.2).ok()?;
            match c % 3 {
                0 => graph.linear(scaled, y, None, Activation::Gelu),
                1 => graph.matmul(scaled, y, false, true),
                _ => graph.matmul(scaled, y, true, false),
            }
        }
        17 if c % 2 == 0 => {
            let wider: Vec<usize> = std::iter::once(2).chain(axes).collect();
            graph.broadcast(x, wider)
        }
        _ => graph.reshape(x, axes.into_iter().rev().collect::<Vec<_>>()),
    };
    result.ok()
}

fn memory(shapes: &[Shape]) -> Memory {
    let mut memory = Memory::new(Cpu, Precision::F32).unwrap();
    for (k, shape) in shapes.iter().enumerate() {
        let values: Vec<f64> =
            (0..shape.len()).map(|i| 1.5 * ((i * (k + 3) + k) as f64 * 0.7).sin()).collect();
        memory.insert(&format!("x{k}"), Element::Real, shape.clone(), Data::F64(&values)).unwrap();
    }
    memory
}

/// Runs a graph twice and returns the bits of all outputs, which must be equal in both runs.
fn bits((graph, outputs): (Graph, Vec<Node>), memory: &mut Memory, threads: usize) -> Vec<Vec<u64>> {
    let sizing = Sizing { graph: &graph, outputs: &outputs, memory };
    let plan = Plan::new(&sizing);
    simulate(&graph, &outputs, &plan, &sizing);
    let mut executor = CpuExecutor::new(graph, &plan, &outputs, memory).unwrap();
    let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
    let mut run = || {
        pool.install(|| executor.run(memory, 1).unwrap());
        let output = |i: usize| executor.output(i).unwrap().into_iter().map(f64::to_bits).collect();
        (0..outputs.len()).map(output).collect::<Vec<Vec<u64>>>()
    };
    let first = run();
    assert_eq!(first, run(), "a second run differs");
    first
}

/// Simulates the steps of a plan and records which value owns every byte.
fn simulate(graph: &Graph, outputs: &[Node], plan: &Plan, sizes: &dyn PlannedSteps) {
    let owner = |node: Node| graph.owner(node);
    let range = |node: Node| match plan.place(node) {
        BufferPlace::Leaf(_) => None,
        BufferPlace::Arena(offset) => {
            let value = graph.value_type(node);
            Some(offset..offset + value.shape.len() * sizes.element_bytes(node, value.element))
        }
    };
    let overlap = |a: &std::ops::Range<usize>, b: &std::ops::Range<usize>| a.start < b.end && b.start < a.end;
    let mut present: Vec<(Node, std::ops::Range<usize>)> = Vec::new();
    for &id in plan.steps() {
        let inputs: Vec<Node> = graph.entries()[id].inputs.iter().map(|&node| owner(node)).collect();
        for &input in &inputs {
            let there = range(input).is_none() || present.iter().any(|(node, _)| *node == input);
            assert!(there, "step %{id} reads %{} after it was overwritten", input.index());
        }
        let taken = sizes.in_place(id).map(|input| inputs[input]);
        let (offset, bytes) = plan.scratch(id);
        let mut written: Vec<std::ops::Range<usize>> =
            std::iter::once(offset..offset + bytes).filter(|range| !range.is_empty()).collect();
        for output in 0..graph.entries()[id].outputs.len() {
            let range = range(Node::new(id, output)).expect("a computed value lies in the arena");
            assert!(range.end <= plan.arena_bytes() && range.start % 64 == 0);
            assert!(!written.iter().any(|other| overlap(other, &range)), "%{id} writes one place twice");
            written.push(range);
        }
        for (i, write) in written.iter().enumerate() {
            for &input in &inputs {
                let first_output = i == usize::from(bytes > 0);
                let in_place = first_output
                    && taken == Some(input)
                    && range(input).is_some_and(|r| r.start == write.start);
                let clash = range(input).is_some_and(|read| overlap(&read, write));
                assert!(in_place || !clash, "%{id} overwrites its operand %{}", input.index());
            }
            present.retain(|(_, other)| !overlap(other, write));
        }
        for output in 0..graph.entries()[id].outputs.len() {
            let node = Node::new(id, output);
            present.push((node, range(node).expect("a computed value lies in the arena")));
        }
    }
    for &output in outputs {
        let output = owner(output);
        assert!(present.iter().any(|(node, _)| *node == output), "an output was overwritten");
    }
}

fn choices() -> impl Strategy<Value = Vec<Choice>> {
    proptest::collection::vec((any::<u8>(), 0..64_usize, 0..64_usize, 0..64_usize), 1..40)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]

    /// Fusion, a second run and a second thread change no bit, and no plan overwrites a value that is still needed.
    #[test]
    fn fused_graphs_compute_the_same(choices in choices()) {
        let (graph, requested, shapes) = grow(&choices, false);
        let mut memory = memory(&shapes);
        let fused = bits(fuse(&graph, &requested), &mut memory, 2);
        prop_assert_eq!(fused, bits(separate(&graph, &requested), &mut memory, 1));
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 20, ..ProptestConfig::default() })]

    /// The property of the previous test for values that are divided into several tasks.
    #[test]
    fn large_fused_graphs_compute_the_same(choices in choices()) {
        let (graph, requested, shapes) = grow(&choices, true);
        let mut memory = memory(&shapes);
        let fused = bits(fuse(&graph, &requested), &mut memory, 2);
        prop_assert_eq!(fused, bits(separate(&graph, &requested), &mut memory, 1));
    }
}

#[test]
fn a_value_read_in_two_orders_is_not_overwritten() {
    let mut graph = Graph::new();
    let x = graph.input("x0", [3, 3]).unwrap();
    let sin = graph.sin(x).unwrap();
    let product = graph.matmul(sin, sin, false, false).unwrap();
    let turned = graph.permute(product, &[1, 0]).unwrap();
    let both = graph.subtract(product, turned).unwrap();
    let mut memory = memory(&[[3, 3].into()]);
    let fused = bits(fuse(&graph, &[both]), &mut memory, 1);
    assert_eq!(fused, bits(separate(&graph, &[both]), &mut memory, 1));
}
