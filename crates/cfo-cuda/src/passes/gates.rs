//! Fuses gated residuals, `x + gate * value` with a gate for each sample, into layer norms. The sum is fused into the
//! norm that reads it. Both cotangents are fused into the backward pass that produces the sum's cotangent.

use crate::passes::merge::dense;
use crate::passes::rewrite::Rewrite;
use crate::program::{CodeEntry, Instruction};
use cfo_engine::ops::{Binary, Expression, Line, View};
use cfo_engine::{Node, Type};

/// Whether an operand of `[b, n, d]` is read in order.
fn in_order(op: &Expression, view: &View) -> bool {
    view.offset == 0 && view.strides == op.shape.strides()
}

/// Whether an operand is a row `[d]` for each sample, broadcast over tokens.
fn row_a_sample(op: &Expression, view: &View) -> bool {
    view.offset == 0 && view.strides == [op.shape.last(), 0, 1]
}

/// Whether the expression is only the product of two operands.
fn factors(op: &Expression) -> bool {
    op.code == [Line::Load(0), Line::Load(1), Line::Binary(Binary::Multiply, 0, 1)]
}

/// The operands of `x + gate * value`, in this order.
fn gated_sum(op: &Expression, inputs: &[Node]) -> Option<[Node; 3]> {
    let [
        Line::Load(x),
        Line::Load(a),
        Line::Load(b),
        Line::Binary(Binary::Multiply, 1, 2),
        Line::Binary(Binary::Add, 0, 3),
    ] = op.code[..]
    else {
        return None;
    };
    let (gate, value) = if row_a_sample(op, &op.views[a]) { (a, b) } else { (b, a) };
    let fits = in_order(op, &op.views[x])
        && row_a_sample(op, &op.views[gate])
        && in_order(op, &op.views[value])
        && [gate, value] != [x; 2]
        && op.shape.rank() == 3;
    fits.then(|| [x, gate, value].map(|operand| inputs[operand]))
}

impl Rewrite {
    pub(crate) fn absorb_gated_sum(&mut self, id: usize) {
        let Some(CodeEntry { op: Instruction::LayerNorm(norm), inputs, .. }) = self.entry(id) else { return };
        let sum = inputs[0];
        if norm.residual || sum.output() != 0 || self.is_moved(sum) {
            return;
        }
        let Some(CodeEntry { op: Instruction::Expression(op), inputs, outputs }) = self.entry(sum.index())
        else {
            return;
        };
        let Some([x, gate, value]) = gated_sum(op, inputs) else { return };
        let kind = outputs[0].clone();
        // Other readers of the sum come after the norm.
        if kind.shape != op.shape || self.readers(sum).iter().any(|&reader| reader < id) {
            return;
        }
        self.remove(sum.index());
        let entry = self.entry_mut(id).expect("looked at above");
        entry.inputs[0] = x;
        entry.inputs.extend([gate, value]);
        entry.outputs.push(kind);
        let output = entry.outputs.len() - 1;
        if let Instruction::LayerNorm(norm) = &mut entry.op {
            norm.residual = true;
        }
        self.move_value(sum, Node::new(id, output));
    }

    /// Fuses the gate before a layer norm into the norm's backward pass: `id` multiplies the cotangent by the gate. The
    /// gate's cotangent is a sum over tokens of the result times the gated value.
    pub(crate) fn absorb_gate(&mut self, id: usize) {
        let Some(CodeEntry { op: Instruction::Expression(op), inputs, outputs }) = self.entry(id) else {
            return;
        };
        if !factors(op) || op.shape.rank() != 3 || outputs[0].shape != op.shape {
            return;
        }
        let order = if row_a_sample(op, &op.views[1]) { [0, 1] } else { [1, 0] };
        let [slope, gate] = order.map(|operand| inputs[operand]);
        let [first, second] = order.map(|operand| &op.views[operand]);
        if !in_order(op, first) || !row_a_sample(op, second) {
            return;
        }
        let product = outputs[0].clone();
        let norm = self.place(slope);
        let Some(CodeEntry { op: Instruction::LayerNormBackward(backward), .. }) = self.entry(norm.index())
        else {
            return;
        };
        if backward.gated || norm.output() != 0 || self.place(gate).index() >= norm.index() {
            return;
        }
        let Some((value, sum, total)) = self.gate_slope(slope, norm, &product) else { return };
        self.remove(id);
        self.remove(sum);
        let entry = self.entry_mut(norm.index()).expect("looked at above");
        entry.inputs.extend([gate, value]);
        let count = entry.outputs.len();
        entry.outputs.extend([product, total]);
        if let Instruction::LayerNormBackward(backward) = &mut entry.op {
            backward.gated = true;
        }
        self.move_value(Node::new(id, 0), Node::new(norm.index(), count));
        self.move_value(Node::new(sum, 0), Node::new(norm.index(), count + 1));
    }

    /// The sum over tokens of a cotangent times a value known before the norm, which replaces the product.
    fn gate_slope(&mut self, slope: Node, norm: Node, product: &Type) -> Option<(Node, usize, Type)> {
        let found = self.readers(slope).iter().find_map(|&reader| {
            let Some(CodeEntry { op: Instruction::Expression(op), inputs, .. }) = self.entry(reader) else {
                return None;
            };
            let value = *inputs.iter().find(|&&input| input != slope)?;
            let &[sum] = self.readers(Node::new(reader, 0)) else { return None };
            let Some(CodeEntry { op: Instruction::Sum(total), outputs, .. }) = self.entry(sum) else {
                return None;
            };
            let fits = factors(op)
                && dense(op)
                && op.shape.len() == product.shape.len()
                && self.place(value).index() < norm.index()
                && total.of.is_none()
                && total.axes == [1];
            let [batch, _, width] = product.shape.axes() else { return None };
            let rows = outputs[0].shape.axes() == [*batch, *width];
            (fits && rows).then(|| (reader, value, sum, outputs[0].clone()))
        });
        let (reader, value, sum, total) = found?;
        self.remove(reader);
        Some((value, sum, total))
    }
}
