//! Properties of lowering for fields of one row.

use super::lowered;
use cfo_engine::ops::{Activation, GroupNormInputs, PadMode};
use cfo_engine::{Graph, Initial, Node, Precision, Result};

/// A small network of one-row fields with its gradients: down, up and a residual.
pub(crate) fn lines(mode: PadMode, channels: usize) -> Result<(Graph, Vec<Node>)> {
    let mut graph = Graph::new();
    let g = &mut graph;
    let x = g.parameter("x", [128, 1, 20, channels], Initial::ONES)?;
    let [same, half, double] = [("same", 3), ("half", 4), ("double", 4)]
        .map(|(name, taps)| g.parameter(name, [channels, 1, taps, channels], Initial::ONES));
    let same = same?;
    let y = g.conv(x, same, [1, 1], mode, [0, 1])?;
    let row = g.parameter("row", [channels], Initial::ONES)?;
    let inputs = GroupNormInputs { scale: row, bias: row, offset: Some(row), shift: None };
    let y = g.group_norm(y, inputs, 8, Activation::Silu)?;
    let y = g.conv(y, half?, [1, 2], mode, [0, 1])?;
    let y = g.conv_transpose(y, double?, [1, 2], mode, [0, 1])?;
    let shift = g.parameter("shift", [128, channels], Initial::ONES)?;
    let inputs = GroupNormInputs { scale: row, bias: row, offset: None, shift: Some(shift) };
    let y = g.group_norm(y, inputs, 8, Activation::Relu)?;
    let y = g.conv(y, same, [1, 1], mode, [0, 1])?;
    let y = g.square(y)?;
    let loss = g.sum_all(y)?;
    let parameters: Vec<Node> = g.parameters().iter().map(|parameter| parameter.node).collect();
    let mut outputs = vec![loss];
    outputs.extend(g.gradients(loss, &parameters)?);
    Ok((graph, outputs))
}

#[test]
fn periodic_lines_are_never_padded() {
    let margins = |mode: PadMode, channels: usize, precision: Precision| {
        let (graph, outputs) = lines(mode, channels).expect("a valid graph");
        let commands = lowered(&graph, &outputs, precision).commands;
        let moves = |command: &&crate::program::lowering::GpuCommand| {
            command.label.starts_with("pad") || command.label.starts_with("fold")
        };
        commands.iter().filter(moves).count()
    };
    for precision in [Precision::Tf32, Precision::Bf16] {
        assert_eq!(margins(PadMode::Circular, 64, precision), 0);
        assert_eq!(margins(PadMode::Zero, 64, precision), 0);
        // Four layers, forward and backward.
        assert_eq!(margins(PadMode::Replicate, 64, precision), 8);
        assert_eq!(margins(PadMode::Circular, 24, precision), 8);
    }
    assert_eq!(margins(PadMode::Circular, 64, Precision::F32), 8);
}

#[test]
fn norms_of_lines_go_with_their_convolutions() {
    let (graph, outputs) = lines(PadMode::Circular, 64).expect("a valid graph");
    let launches = |precision: Precision, name: &str| {
        let commands = lowered(&graph, &outputs, precision).commands;
        commands.iter().filter(|command| command.label.split(' ').next() == Some(name)).count()
    };
    // The second norm belongs to a transposed convolution.
    assert_eq!(launches(Precision::Bf16, "conv") - launches(Precision::Tf32, "conv"), 1);
    assert_eq!(launches(Precision::Bf16, "conv_input"), launches(Precision::Tf32, "conv_input"));
}
