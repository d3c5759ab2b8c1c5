//! Fuses operations that the device executes in one call: a GEMM with its epilogue (sum, activation or derivative), the
//! gradient of a bias with that of its weight, a sum with the expression that it sums, and a layer norm with the
//! residuals around it (`gates.rs`).
//!
//! The meaning of merged operations is defined in [`Extras`](crate::program::instruction::Extras) and
//! [`Sum`](crate::program::instruction::Sum). If the library has no such epilogue, or a slower one, one of our kernels
//! executes it.

use crate::passes::rewrite::Rewrite;
use crate::product::gemm_gelu_sm90;
use crate::program::instruction::MatMul;
use crate::program::{Code, CodeEntry, Instruction};
use cfo_engine::ops::{Activation, Binary, Expression, Line, Unary};
use cfo_engine::{Node, Shape};

pub(crate) fn merge(code: Code) -> Code {
    let mut rewrite = Rewrite::new(code);
    for id in 0..rewrite.len() {
        rewrite.absorb_activation(id);
        rewrite.absorb_product(id);
        rewrite.absorb_residual(id);
        rewrite.absorb_gated_sum(id);
    }
    for id in 0..rewrite.len() {
        rewrite.absorb_gate(id);
    }
    for id in 0..rewrite.len() {
        rewrite.absorb_bias_gradient(id);
    }
    for id in 0..rewrite.len() {
        rewrite.absorb_expression(id);
        rewrite.absorb_bias(id);
    }
    rewrite.finish().0
}

/// Effect of an expression on the result of a product, with its operands.
struct Finish {
    /// The operands that are added, one of which may be the product.
    terms: Vec<usize>,
    /// The operand at which the derivative of GELU is taken.
    slope: Option<usize>,
}

fn load(op: &Expression, line: usize) -> Option<usize> {
    match op.code[line] {
        Line::Load(operand) => Some(operand),
        _ => None,
    }
}

/// The terms of a line: one operand, or two that are added.
fn terms(op: &Expression, line: usize) -> Option<Vec<usize>> {
    match op.code[line] {
        Line::Load(operand) => Some(vec![operand]),
        Line::Binary(Binary::Add, a, b) => Some(vec![load(op, a)?, load(op, b)?]),
        _ => None,
    }
}

/// Whether every operand is read whole and in order.
pub(crate) fn dense(op: &Expression) -> bool {
    op.shape.rank() == 1 && op.views.iter().all(|view| view.offset == 0 && view.strides == [1])
}

/// The expression with the sum of two values replaced by one value; `None` if it uses them in another way.
fn without_sum(entry: &CodeEntry, [first, second]: [Node; 2], sum: Node) -> Option<CodeEntry> {
    let Instruction::Expression(op) = &entry.op else { return None };
    let place = |node: Node| entry.inputs.iter().position(|&input| input == node);
    let (a, b) = (place(first)?, place(second)?);
    let line = |operand: usize| op.code.iter().position(|line| *line == Line::Load(operand));
    let (x, y) = (line(a)?, line(b)?);
    let total = op
        .code
        .iter()
        .position(|line| [Line::Binary(Binary::Add, x, y), Line::Binary(Binary::Add, y, x)].contains(line))?;
    let reads = |line: &Line| match *line {
        Line::Load(_) => vec![],
        Line::Unary(_, a) => vec![a],
        Line::Binary(_, a, b) => vec![a, b],
    };
    let elsewhere = op
        .code
        .iter()
        .enumerate()
        .any(|(i, line)| i != total && reads(line).iter().any(|r| [x, y].contains(r)));
    if !dense(op) || elsewhere {
        return None;
    }
    // The sum's line loads the first operand; the second operand is removed.
    let operand = |operand: usize| if operand > b { operand - 1 } else { operand };
    let (mut code, mut lines) = (Vec::new(), vec![usize::MAX; op.code.len()]);
    for (i, line) in op.code.iter().enumerate() {
        if i == x || i == y {
            continue;
        }
        lines[i] = code.len();
        code.push(match *line {
            _ if i == total => Line::Load(operand(a)),
            Line::Load(from) => Line::Load(operand(from)),
            Line::Unary(function, a) => Line::Unary(function, lines[a]),
            Line::Binary(function, a, b) => Line::Binary(function, lines[a], lines[b]),
        });
    }
    let (mut inputs, mut views) = (entry.inputs.clone(), op.views.clone());
    inputs[a] = sum;
    inputs.remove(b);
    views.remove(b);
    let op = Instruction::Expression(Expression { shape: op.shape.clone(), views, code });
    Some(CodeEntry { op, inputs, outputs: entry.outputs.clone() })
}

impl Finish {
    fn of(op: &Expression) -> Option<Self> {
        let last = op.code.len().checked_sub(1).filter(|_| dense(op))?;
        if let Line::Binary(Binary::Multiply, a, b) = op.code[last] {
            for (value, slope) in [(a, b), (b, a)] {
                if let Line::Unary(Unary::GeluSlope, at) = op.code[slope] {
                    return Some(Self { terms: terms(op, value)?, slope: Some(load(op, at)?) });
                }
            }
        }
        let terms = terms(op, last).filter(|terms| terms.len() == 2 && terms[0] != terms[1])?;
        Some(Self { terms, slope: None })
    }
}

impl Rewrite {
    /// A product without extras whose only reader is `reader`.
    fn product(&self, node: Node, reader: usize) -> Option<(MatMul, Vec<Node>)> {
        self.plain_product(node).filter(|_| self.readers(node) == [reader])
    }

    /// A product without extras.
    fn plain_product(&self, node: Node) -> Option<(MatMul, Vec<Node>)> {
        if node.output() != 0 {
            return None;
        }
        let entry = self.entry(node.index())?;
        let Instruction::MatMul(op) = &entry.op else { return None };
        let plain =
            op.batch == [1, 1] && op.activation == Activation::Identity && op.extras == Default::default();
        let whole = op.c.column == 1 && op.c.row == op.columns && op.inner > 0 && !op.shape.is_empty();
        (plain && whole && !op.keep_input).then(|| (op.clone(), entry.inputs.clone()))
    }

    /// Makes an expression that reads a product its epilogue.
    fn absorb_product(&mut self, id: usize) {
        let Some(entry) = self.entry(id) else { return };
        let Instruction::Expression(op) = &entry.op else { return };
        let Some(finish) = Finish::of(op) else { return };
        let operands = entry.inputs.clone();
        let output = entry.outputs[0].clone();
        let product = finish.terms.iter().find_map(|&term| {
            let (product, inputs) = self.product(operands[term], id)?;
            let fits = product.shape.len() == output.shape.len();
            // The derivative must not be taken at the product itself.
            (fits && finish.slope.map(|at| operands[at]) != Some(operands[term]))
                .then_some((term, product, inputs))
        });
        let Some((term, mut product, mut inputs)) = product else { return };
        // The library has no epilogue with both a bias and a derivative.
        if product.bias && finish.slope.is_some() {
            return;
        }
        let source = operands[term].index();
        if let Some(&other) = finish.terms.iter().find(|&&other| other != term) {
            product.extras.add = true;
            inputs.push(operands[other]);
        }
        if let Some(at) = finish.slope {
            product.extras.slope = Some(Activation::Gelu);
            inputs.push(operands[at]);
        }
        product.shape = output.shape.clone();
        self.remove(source);
        self.replace(id, CodeEntry { op: Instruction::MatMul(product), inputs, outputs: vec![output] });
    }

    /// Fuses a sum and its GELU into the product that is one of its terms and that also returns the sum.
    fn absorb_activation(&mut self, id: usize) {
        let code =
            [Line::Load(0), Line::Load(1), Line::Binary(Binary::Add, 0, 1), Line::Unary(Unary::Gelu, 2)];
        let Some(CodeEntry { op: Instruction::Expression(op), inputs, outputs }) = self.entry(id) else {
            return;
        };
        if !dense(op) || op.code != code {
            return;
        }
        let (operands, output) = (inputs.clone(), outputs[0].clone());
        for (term, other) in [(operands[0], operands[1]), (operands[1], operands[0])] {
            let Some((mut product, mut inputs)) = self.plain_product(term) else { continue };
            let others: Vec<usize> =
                self.readers(term).iter().copied().filter(|&reader| reader != id).collect();
            let rewritten: Option<Vec<CodeEntry>> = others
                .iter()
                .map(|&reader| {
                    let entry = self.entry(reader).filter(|_| reader > id)?;
                    without_sum(entry, [term, other], Node::new(id, 1))
                })
                .collect();
            let Some(rewritten) = rewritten.filter(|_| product.shape.len() == output.shape.len()) else {
                continue;
            };
            for (reader, entry) in others.into_iter().zip(rewritten) {
                self.replace(reader, entry);
            }
            product.extras.add = true;
            product.activation = Activation::Gelu;
            product.keep_input = true;
            product.shape = output.shape.clone();
            inputs.push(other);
            self.remove(term.index());
            let outputs = vec![output.clone(), output];
            self.replace(id, CodeEntry { op: Instruction::MatMul(product), inputs, outputs });
            return;
        }
    }

    /// Fuses another cotangent of a layer norm's input into the norm's backward pass.
    fn absorb_residual(&mut self, id: usize) {
        let Some(CodeEntry { op: Instruction::Expression(op), inputs, .. }) = self.entry(id) else { return };
        let Some(Finish { terms, slope: None }) = Finish::of(op) else { return };
        let operands = inputs.clone();
        for (term, other) in [(terms[0], terms[1]), (terms[1], terms[0])] {
            let (term, other) = (operands[term], operands[other]);
            let place = self.place(other).index();
            let alone = term.output() == 0 && self.readers(term) == [id] && place < term.index();
            if let Some(CodeEntry { op: Instruction::LayerNormBackward(op), inputs, .. }) =
                self.entry_mut(term.index())
                && alone
                && !op.add
            {
                op.add = true;
                inputs.push(other);
                self.remove(id);
                self.move_value(Node::new(id, 0), term);
                return;
            }
        }
    }

    /// Fuses the gradient of a bias into the product `a' b` that is the gradient of its weight: the row sum of `b`.
    fn absorb_bias_gradient(&mut self, id: usize) {
        let Some(CodeEntry { op: Instruction::MatMul(op), inputs, .. }) = self.entry(id) else { return };
        let gradient = op.batch == [1, 1]
            && op.a.row == 1
            && op.b.column == 1
            && op.b.row == op.columns
            && op.extras == Default::default()
            && op.activation == Activation::Identity
            && !op.bias
            && op.columns > 1
            && op.inner > 1;
        if !gradient {
            return;
        }
        let (factor, columns) = (inputs[1], op.columns);
        let sum = self.readers(factor).iter().copied().find(|&reader| {
            matches!(
                self.entry(reader),
                Some(CodeEntry { op: Instruction::Sum(sum), outputs, .. })
                    if sum.of.is_none() && outputs[0].shape.axes() == [columns] && leading(&sum.axes)
            )
        });
        let Some(sum) = sum else { return };
        if self.readers(Node::new(sum, 0)).iter().any(|&reader| reader <= id) {
            return;
        }
        let total = self.remove(sum).expect("found above").outputs[0].clone();
        // One of our kernels that computes the factor sums it as well.
        let made = matches!(
            self.entry(factor.index()),
            Some(CodeEntry { op: Instruction::MatMul(op), .. }) if factor.output() == 0 && op.extras.slope.is_some() && gemm_gelu_sm90::fits(op)
        );
        let place = if made { factor.index() } else { id };
        let entry = self.entry_mut(place).expect("looked at above");
        entry.outputs.push(total);
        let output = entry.outputs.len() - 1;
        if let Instruction::MatMul(op) = &mut entry.op {
            (op.extras.totals, op.extras.sums) = (made, !made);
        }
        self.move_value(Node::new(sum, 0), Node::new(place, output));
    }

    /// Fuses an expression into the sum that is its only reader.
    fn absorb_expression(&mut self, id: usize) {
        const OPERANDS: usize = 4;
        let Some(CodeEntry { op: Instruction::Sum(sum), inputs, .. }) = self.entry(id) else { return };
        let node = inputs[0];
        if sum.of.is_some() || self.readers(node) != [id] || self.is_moved(node) {
            return;
        }
        let Some(CodeEntry { op: Instruction::Expression(op), inputs, outputs }) = self.entry(node.index())
        else {
            return;
        };
        if !dense(op) || inputs.len() > OPERANDS {
            return;
        }
        let of = (op.clone(), Shape::from(outputs[0].shape.axes()));
        let inputs = inputs.clone();
        self.remove(node.index());
        let entry = self.entry_mut(id).expect("looked at above");
        entry.inputs = inputs;
        if let Instruction::Sum(sum) = &mut entry.op {
            sum.of = Some(of);
        }
    }

    /// Fuses the biases of concatenated values into a concatenation along the last axis.
    fn absorb_bias(&mut self, id: usize) {
        let Some(CodeEntry { op: Instruction::Concat(op), inputs, outputs }) = self.entry(id) else { return };
        if !op.biased.is_empty() || op.axis + 1 != outputs[0].shape.rank() {
            return;
        }
        let mut values = inputs.clone();
        let (mut biases, mut biased) = (Vec::new(), vec![false; values.len()]);
        for (value, biased) in values.iter_mut().zip(&mut biased) {
            if let Some([from, bias]) = self.biased_value(*value, id) {
                self.remove(value.index());
                (*value, *biased) = (from, true);
                biases.push(bias);
            }
        }
        if biases.is_empty() {
            return;
        }
        values.extend(biases);
        let entry = self.entry_mut(id).expect("looked at above");
        entry.inputs = values;
        if let Instruction::Concat(op) = &mut entry.op {
            op.biased = biased;
        }
    }

    /// The operands of an expression that only adds a row of numbers to a value and that only `reader` reads.
    fn biased_value(&self, node: Node, reader: usize) -> Option<[Node; 2]> {
        let Some(CodeEntry { op: Instruction::Expression(op), inputs, .. }) = self.entry(node.index()) else {
            return None;
        };
        let adds = op.code == [Line::Load(0), Line::Load(1), Line::Binary(Binary::Add, 0, 1)];
        let columns = op.shape.last();
        let rows = op.shape.rank() == 2 && op.views.iter().all(|view| view.offset == 0);
        let fits = rows && op.views[0].strides == [columns, 1] && op.views.get(1)?.strides == [0, 1];
        (self.readers(node) == [reader] && adds && fits).then(|| [inputs[0], inputs[1]])
    }
}

/// Whether the axes are all but the last.
fn leading(axes: &[usize]) -> bool {
    axes.iter().enumerate().all(|(i, &axis)| i == axis)
}
