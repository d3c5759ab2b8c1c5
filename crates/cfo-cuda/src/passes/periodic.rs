//! Removes periodic padding, and its adjoint, around convolutions of fields of one row, where kernels compute the
//! neighbours by index arithmetic.

use crate::convolution::conv::Geometry;
use crate::convolution::conv_row;
use crate::passes::rewrite::Rewrite;
use crate::program::code::{Code, Entry};
use crate::program::instruction::Instruction;
use cfo_engine::Node;
use cfo_engine::Precision;
use cfo_engine::ops::PadMode;

/// Periodic padding along the width.
#[derive(Clone, Copy, Debug)]
struct Margin {
    before: usize,
    after: usize,
}

impl Margin {
    fn of(mode: PadMode, before: [usize; 2], after: [usize; 2]) -> Option<Self> {
        let flat = before[0] == 0 && after[0] == 0 && mode == PadMode::Circular;
        flat.then(|| Self { before: before[1], after: after[1] })
    }

    /// The padding of the periodic convolution between a fine field of `fine` positions and a coarse one, where the
    /// fine one was padded.
    fn around_fine(self, fine: usize, coarse: usize, stride: usize, padding: usize) -> Option<usize> {
        (padding == 0 && fine == coarse * stride).then_some(self.before)
    }

    /// The padding of the periodic convolution where the coarse field was padded: it must contain every position within
    /// reach of a tap.
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

/// Returns the code with periodic convolutions.
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
        let kind = matches!(entry.op, Instruction::Pad(_) | Instruction::Conv(_) | Instruction::ConvInput(_));
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
    Some((entry.inputs[0], Margin::of(op.mode, op.before, op.after)?))
}

fn width(code: &Code, node: Node) -> usize {
    code.shape(node).axes()[2]
}

/// The equivalent periodic convolution of an operation, if it is a convolution of a periodic field or the adjoint of
/// padding after one.
fn rewritten(code: &Code, id: usize, readers: &[usize]) -> Option<Entry> {
    let entry = &code.entries[id];
    let mut new = entry.clone();
    let own = Node::new(id, 0);
    match &mut new.op {
        Instruction::Conv(op) => {
            let (x, margin) = padded(code, entry.inputs[0])?;
            new.inputs[0] = x;
            op.padding[1] =
                margin.around_fine(width(code, x), width(code, own), op.stride[1], op.padding[1])?;
            op.periodic = true;
        }
        Instruction::ConvInput(op) => {
            let (x, margin) = padded(code, entry.inputs[0])?;
            new.inputs[0] = x;
            let (sizes, kernel) = ([op.width, width(code, x)], width(code, entry.inputs[1]));
            op.padding[1] = margin.around_coarse(sizes, op.stride[1], op.padding[1], kernel)?;
            op.periodic = true;
        }
        Instruction::ConvWeight(op) => {
            let [x, dy] = [entry.inputs[0], entry.inputs[1]];
            if let Some((x, margin)) = padded(code, x) {
                new.inputs[0] = x;
                let sizes = (width(code, x), width(code, dy));
                op.padding[1] = margin.around_fine(sizes.0, sizes.1, op.stride[1], op.padding[1])?;
            } else {
                let (coarse, margin) = padded(code, dy)?;
                new.inputs[1] = coarse;
                let sizes = [width(code, x), width(code, coarse)];
                op.padding[1] = margin.around_coarse(sizes, op.stride[1], op.padding[1], op.kernel[1])?;
            }
            op.periodic = true;
        }
        Instruction::Fold(op) => {
            let margin = Margin::of(op.mode, op.before, op.after)?;
            return folded(code, id, margin).filter(|_| readers[entry.inputs[0].index()] == 1);
        }
        _ => return None,
    }
    Some(new)
}

/// The convolution whose result an operation folds, as a periodic one.
fn folded(code: &Code, id: usize, margin: Margin) -> Option<Entry> {
    let source = code.entry(code.entries[id].inputs[0]);
    let mut new = source.clone();
    new.outputs = code.entries[id].outputs.clone();
    let own = width(code, Node::new(id, 0));
    match &mut new.op {
        Instruction::ConvInput(op) if !op.periodic => {
            let coarse = width(code, source.inputs[0]);
            op.padding[1] = margin.around_fine(own, coarse, op.stride[1], op.padding[1])?;
            op.width = own;
            op.periodic = true;
        }
        Instruction::Conv(op) if !op.periodic => {
            let sizes = [width(code, source.inputs[0]), own];
            let kernel = width(code, source.inputs[1]);
            op.padding[1] = margin.around_coarse(sizes, op.stride[1], op.padding[1], kernel)?;
            op.periodic = true;
        }
        _ => return None,
    }
    Some(new)
}
