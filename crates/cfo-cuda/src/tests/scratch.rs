//! The planned scratch memory is that of the selected kernel.

use cfo_engine::backend::{PlannedSteps as _, fuse};
use cfo_engine::ops::{Activation, GroupNormInputs};
use cfo_engine::{Graph, Node, Precision, Result};

use crate::program::typed::Typed;

/// Bytes for the instruction of this name in a graph and its gradients, for a GPU of 132 multiprocessors.
fn scratch(name: &str, precision: Precision, build: &dyn Fn(&mut Graph) -> Result<(Node, Node)>) -> usize {
    let mut graph = Graph::new();
    let (x, y) = build(&mut graph).unwrap();
    let square = graph.square(y).unwrap();
    let loss = graph.sum_all(square).unwrap();
    let gradients = graph.gradients(loss, &[x]).unwrap();
    let (fused, outputs) = fuse(&graph, &gradients);
    let typed = Typed::without_device(fused, outputs, precision, (132, 90));
    let entries = typed.code.entries.iter();
    let id = entries.enumerate().find(|(_, entry)| entry.op.name() == name).map(|(id, _)| id);
    typed.scratch_bytes(id.expect("the graph has such an instruction"))
}

#[test]
fn attention_with_whole_heads_takes_none() {
    let bytes = |precision: Precision, tokens: usize| {
        scratch("attention_backward", precision, &|g| {
            let x = g.input("x", [3, tokens, 3 * 128])?;
            Ok((x, g.attention(x, 4)?))
        })
    };
    assert_eq!(bytes(Precision::Bf16, 200), 0);
    // A number for each query of each head.
    assert_eq!(bytes(Precision::Bf16, 300), 4 * 3 * 4 * 300);
    assert_eq!(bytes(Precision::F32, 200), 4 * 3 * 4 * 200);
}

#[test]
fn norms_take_what_their_blocks_exchange() {
    let bytes = |name: &str, precision: Precision, [b, h, w, c]: [usize; 4]| {
        scratch(name, precision, &|g| {
            let x = g.input("x", [b, h, w, c])?;
            let (scale, bias) = (g.input("scale", [c])?, g.input("bias", [c])?);
            let inputs = GroupNormInputs { scale, bias, offset: None, shift: None };
            Ok((x, g.group_norm(x, inputs, 8, Activation::Silu)?))
        })
    };
    // A cluster exchanges sums through shared memory and writes each sample's contribution to three gradients.
    assert_eq!(bytes("group_norm", Precision::F32, [5, 32, 32, 64]), 0);
    assert_eq!(bytes("group_norm_backward", Precision::F32, [5, 32, 32, 64]), 4 * 3 * 5 * 64);
    // Teams of the persistent kernel exchange sums through memory, for any batch size.
    let team = |batch: usize| bytes("group_norm", Precision::F32, [batch, 128, 128, 64]);
    assert!(team(2) > 0 && team(2) == team(7));
    // Small samples: two sums for each channel of each chunk, here one chunk per sample.
    assert_eq!(bytes("group_norm", Precision::F32, [5, 10, 10, 64]), 4 * 2 * 5 * 64);
}
