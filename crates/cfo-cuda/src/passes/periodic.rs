//! Removes periodic padding, and its adjoint, around convolutions of one row, whose kernels compute neighbours.

use crate::convolution::conv::{ConvPass, Geometry};
use crate::convolution::conv_row;
use crate::passes::rewrite::Rewrite;
use crate::program::{Code, CodeEntry, Instruction};
use cfo_engine::ops::{Pad, PadMode};
use cfo_engine::{Node, Precision};

/// Periodic padding along the width.
#[derive(Clone, Copy, Debug)]
struct Margin {
    before: usize,
    after: usize,
}

impl Margin {
    fn of(Pad { mode, before, after }: &Pad) -> Option<Self> {
        let flat = before[0] == 0 && after[0] == 0 && *mode == PadMode::Circular;
        flat.then_some(Self { before: before[1], after: after[1] })
    }

    /// The padding of the periodic convolution of `fine` and `coarse` positions, if the fine field was padded.
    fn around_fine(self, fine: usize, coarse: usize, stride: usize, padding: usize) -> Option<usize> {
        (padding == 0 && fine == coarse * stride).then_some(self.before)
    }

    /// The padding of the periodic convolution if the coarse field was padded, with all positions in reach of a tap.
    fn around_coarse(
        self,
        [fine, coarse]: [usize; 2],
        stride: usize,
        padding: usize,
        kernel: usize,
    ) -> Option<usize> {
        let reached =
            padding + stride >= kernel && (fine + padding - 1) / stride < coarse + self.before + self.after;
        if fine != coarse * stride || !reached {
            return None;
        }
        padding.checked_sub(self.before * stride)
    }
}

pub(crate) fn merge(mut code: Code, precision: Precision) -> Code {
    let mut readers = vec![0_usize; code.entries.len()];
    let inputs = code.entries.iter().flat_map(|entry| &entry.inputs);
    inputs.chain(&code.requested).for_each(|node| readers[node.index()] += 1);
    for id in 0..code.entries.len() {
        let Some(entry) = rewritten(&code, id, &readers) else { continue };
        let old = std::mem::replace(&mut code.entries[id], entry);
        if !Geometry::of(&code, id, precision).is_some_and(|geometry| conv_row::fits(&geometry)) {
            code.entries[id] = old;
            continue;
        }
        old.inputs.iter().for_each(|node| readers[node.index()] -= 1);
        code.entries[id].inputs.iter().for_each(|node| readers[node.index()] += 1);
    }
    without_unread(code, readers)
}

/// Removes values that only removed instructions read, from the last to the first, since one may read another.
fn without_unread(code: Code, mut readers: Vec<usize>) -> Code {
    let effects = code.effects.clone();
    let mut rewrite = Rewrite::new(code);
    for id in (0..rewrite.len()).rev() {
        let Some(entry) = rewrite.entry(id) else { continue };
        let kind = match &entry.op {
            Instruction::Pad(_) => true,
            Instruction::Conv(op) => op.pass != ConvPass::Weight,
            _ => false,
        };
        if kind && readers[id] == 0 && !effects.contains(&id) {
            entry.inputs.iter().for_each(|node| readers[node.index()] -= 1);
            rewrite.remove(id);
        }
    }
    rewrite.finish().0
}

/// The original of a padded value and its padding.
fn padded(code: &Code, node: Node) -> Option<(Node, Margin)> {
    let entry = code.entry(node);
    let Instruction::Pad(op) = &entry.op else { return None };
    Some((entry.inputs[0], Margin::of(op)?))
}

fn width(code: &Code, node: Node) -> usize {
    code.shape(node).axes()[2]
}

/// The equivalent periodic convolution of a convolution of a periodic field, or of the adjoint of padding after one.
fn rewritten(code: &Code, id: usize, readers: &[usize]) -> Option<CodeEntry> {
    let entry = &code.entries[id];
    let mut new = entry.clone();
    let own = Node::new(id, 0);
    match &mut new.op {
        Instruction::Conv(op) => {
            let ([a, b], stride, padding) = ([entry.inputs[0], entry.inputs[1]], op.stride[1], op.padding[1]);
            let (place, (value, margin)) = match padded(code, a) {
                Some(found) => (0, found),
                None if op.pass == ConvPass::Weight => (1, padded(code, b)?),
                None => return None,
            };
            new.inputs[place] = value;
            let fine =
                |coarse: Node| margin.around_fine(width(code, value), width(code, coarse), stride, padding);
            let coarse =
                |fine: usize| margin.around_coarse([fine, width(code, value)], stride, padding, op.kernel[1]);
            op.padding[1] = match (op.pass, place) {
                (ConvPass::Forward, _) => fine(own)?,
                (ConvPass::Input, _) => coarse(op.field[1])?,
                (ConvPass::Weight, 0) => fine(b)?,
                (ConvPass::Weight, _) => coarse(width(code, a))?,
            };
            op.periodic = true;
        }
        Instruction::Fold(op) => {
            let margin = Margin::of(&op.0)?;
            return folded(code, id, margin).filter(|_| readers[entry.inputs[0].index()] == 1);
        }
        _ => return None,
    }
    Some(new)
}

/// The convolution whose result an operation folds, as a periodic one.
fn folded(code: &Code, id: usize, margin: Margin) -> Option<CodeEntry> {
    let source = code.entry(code.entries[id].inputs[0]);
    let mut new = source.clone();
    new.outputs = code.entries[id].outputs.clone();
    let own = width(code, Node::new(id, 0));
    let Instruction::Conv(op) = &mut new.op else { return None };
    let (given, stride, padding) = (width(code, source.inputs[0]), op.stride[1], op.padding[1]);
    op.padding[1] = match op.pass {
        _ if op.periodic => return None,
        ConvPass::Forward => margin.around_coarse([given, own], stride, padding, op.kernel[1])?,
        ConvPass::Input => {
            op.field[1] = own;
            margin.around_fine(own, given, stride, padding)?
        }
        ConvPass::Weight => return None,
    };
    op.periodic = true;
    Some(new)
}
