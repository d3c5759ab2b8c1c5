//! Fuses convolutions of fields of one row into the group norms of their results, if a block has whole samples.

use std::collections::HashMap;

use crate::convolution::conv::{ConvPass, Geometry};
use crate::convolution::conv_row;
use crate::passes::rewrite::Rewrite;
use crate::program::instruction::GroupNorm;
use crate::program::{Code, Instruction};
use cfo_engine::{Node, Precision};

pub(crate) fn merge(code: Code, precision: Precision) -> Code {
    if precision != Precision::Tf32 {
        return code;
    }
    // The first reader of each value.
    let mut first: HashMap<Node, usize> = HashMap::new();
    for (id, entry) in code.entries.iter().enumerate() {
        entry.inputs.iter().for_each(|&input| _ = first.entry(input).or_insert(id));
    }
    let mut rewrite = Rewrite::new(code.clone());
    for (id, entry) in code.entries.iter().enumerate() {
        let Instruction::GroupNorm(norm) = &entry.op else { continue };
        let node = entry.inputs[0];
        let source = code.entry(node);
        let Instruction::Conv(conv) = &source.op else { continue };
        if conv.pass != ConvPass::Forward {
            continue;
        }
        let fits = Geometry::of(&code, node.index(), precision)
            .is_some_and(|geometry| conv_row::fits(&geometry) && conv_row::has_whole(&geometry, norm.groups));
        if !fits || first[&node] != id {
            continue;
        }
        let mut new = entry.clone();
        new.op = Instruction::GroupNorm(GroupNorm { of: Some(conv.clone()), ..norm.clone() });
        new.outputs.push(source.outputs[0].clone());
        new.inputs[0] = source.inputs[0];
        new.inputs.push(source.inputs[1]);
        rewrite.move_value(node, Node::new(id, 3));
        rewrite.remove(node.index());
        rewrite.replace(id, new);
    }
    rewrite.finish().0
}
