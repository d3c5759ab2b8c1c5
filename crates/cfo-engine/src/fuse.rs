//! Fusion: removes unused values and combines pointwise operations, broadcasts and slices into one-pass expressions.
//!
//! A value with one reader is fused into it when both have the same shape. A value with several readers is fused into
//! all of them, and so recomputed instead of stored, when that is cheap and reads only one whole operand. Forward
//! values are then not kept until the backward pass.

use std::collections::HashMap;

use crate::graph::{Entry, Graph, Node};
use crate::ops::{Expression, Line, Op, Pointwise, Unary, View};
use crate::shape::{Shape, Type};

/// Limit on the lines and operands of a fused expression; CPU registers and kernel arguments are bounded.
const MAX_LINES: usize = 32;
const MAX_OPERANDS: usize = 8;

/// Fuses a graph. Returns the fused graph and the requested values in it.
pub fn fuse(graph: &Graph, outputs: &[Node]) -> (Graph, Vec<Node>) {
    fold(graph, outputs, true)
}

/// Converts a graph without fusion: every operation is a pass of its own, with the same values. Tests use it.
pub fn separate(graph: &Graph, outputs: &[Node]) -> (Graph, Vec<Node>) {
    fold(graph, outputs, false)
}

fn fold(graph: &Graph, outputs: &[Node], together: bool) -> (Graph, Vec<Node>) {
    let uses = Uses::count(graph, outputs);
    let mut pass = Pass {
        source: graph,
        uses: &uses,
        together,
        fused: Graph::new(),
        placed: HashMap::new(),
        folded: HashMap::new(),
    };
    for id in 0..graph.entries.len() {
        if uses.live[id] {
            pass.visit(id);
        }
    }
    let outputs = outputs.iter().map(|&node| pass.request(node)).collect();
    (pass.fused, outputs)
}

struct Uses {
    live: Vec<bool>,
    readers: HashMap<Node, Vec<usize>>,
    requested: Vec<Node>,
}

impl Uses {
    fn count(graph: &Graph, outputs: &[Node]) -> Self {
        let mut live = vec![false; graph.entries.len()];
        for id in outputs.iter().map(|node| node.index()).chain(graph.effects.iter().copied()) {
            live[id] = true;
        }
        let mut readers: HashMap<Node, Vec<usize>> = HashMap::new();
        for id in (0..graph.entries.len()).rev() {
            if live[id] {
                for &input in &graph.entries[id].inputs {
                    live[input.index()] = true;
                    readers.entry(input).or_default().push(id);
                }
            }
        }
        Self { live, readers, requested: outputs.to_vec() }
    }

    fn readers(&self, node: Node) -> &[usize] {
        self.readers.get(&node).map_or(&[], Vec::as_slice)
    }
}

/// An expression that is not stored yet: its operands are values of the fused graph.
#[derive(Clone, Debug)]
struct Folded {
    shape: Shape,
    operands: Vec<(Node, View)>,
    code: Vec<Line>,
}

impl Folded {
    fn load(node: Node, shape: &Shape) -> Self {
        let view = View { offset: 0, strides: shape.strides() };
        Self { shape: shape.clone(), operands: vec![(node, view)], code: vec![Line::Load(0)] }
    }

    fn broadcast(mut self, shape: &Shape) -> Self {
        let lead = shape.rank() - self.shape.rank();
        for (_, view) in &mut self.operands {
            view.strides = (0..shape.rank())
                .map(|axis| {
                    if axis < lead || self.shape.axes()[axis - lead] == 1 {
                        0
                    } else {
                        view.strides[axis - lead]
                    }
                })
                .collect();
        }
        self.shape = shape.clone();
        self
    }

    fn slice(mut self, axis: usize, start: usize, shape: &Shape) -> Self {
        for (_, view) in &mut self.operands {
            view.offset += start * view.strides[axis];
        }
        self.shape = shape.clone();
        self
    }

    fn permute(mut self, order: &[usize], shape: &Shape) -> Self {
        for (_, view) in &mut self.operands {
            view.strides = order.iter().map(|&axis| view.strides[axis]).collect();
        }
        self.shape = shape.clone();
        self
    }

    /// Appends another expression of the same shape; returns the line with its result.
    fn append(&mut self, other: &Self) -> usize {
        let operands: Vec<usize> = other
            .operands
            .iter()
            .map(|operand| {
                self.operands.iter().position(|known| known == operand).unwrap_or_else(|| {
                    self.operands.push(operand.clone());
                    self.operands.len() - 1
                })
            })
            .collect();
        let mut lines: Vec<usize> = Vec::with_capacity(other.code.len());
        for line in &other.code {
            let line = match *line {
                Line::Load(operand) => Line::Load(operands[operand]),
                Line::Unary(function, a) => Line::Unary(function, lines[a]),
                Line::Binary(function, a, b) => Line::Binary(function, lines[a], lines[b]),
            };
            lines.push(self.code.iter().position(|known| *known == line).unwrap_or_else(|| {
                self.code.push(line);
                self.code.len() - 1
            }));
        }
        *lines.last().expect("an expression has a line")
    }

    /// The expression with contiguous neighbouring axes merged and axes of length 1 removed, in the same order.
    fn collapse(self) -> Self {
        let mut axes: Vec<usize> = Vec::new();
        let mut strides: Vec<Vec<usize>> = vec![Vec::new(); self.operands.len()];
        for (axis, &length) in self.shape.axes().iter().enumerate().filter(|(_, length)| **length != 1) {
            let merges = !axes.is_empty()
                && self.operands.iter().zip(&strides).all(|((_, view), merged)| {
                    merged.last().is_some_and(|&outer| outer == view.strides[axis] * length)
                });
            if merges {
                *axes.last_mut().expect("there is an axis to merge with") *= length;
            } else {
                axes.push(length);
            }
            for ((_, view), merged) in self.operands.iter().zip(&mut strides) {
                if merges {
                    merged.pop();
                }
                merged.push(view.strides[axis]);
            }
        }
        let operands = self.operands.into_iter().zip(strides);
        let operands =
            operands.map(|((node, view), strides)| (node, View { offset: view.offset, strides })).collect();
        Self { shape: axes.into(), operands, code: self.code }
    }

    fn fits(&self) -> bool {
        self.code.len() <= MAX_LINES && self.operands.len() <= MAX_OPERANDS
    }

    /// Whether recomputing the expression costs little and keeps at most one whole operand alive.
    fn cheap(&self) -> bool {
        let whole = self.operands.iter().filter(|(_, view)| view.strides == self.shape.strides()).count();
        let arithmetic = self.code.iter().all(|line| match line {
            Line::Unary(function, _) => matches!(
                function,
                Unary::Affine { .. } | Unary::Square | Unary::Relu | Unary::Step | Unary::Sign | Unary::Abs
            ),
            _ => true,
        });
        arithmetic && whole <= 1 && self.code.len() <= 6
    }
}

struct Pass<'a> {
    source: &'a Graph,
    uses: &'a Uses,
    /// Whether values are fused into their readers at all.
    together: bool,
    fused: Graph,
    /// Values of the source that are stored in the fused graph.
    placed: HashMap<Node, Node>,
    /// Values of the source that are fused into their readers.
    folded: HashMap<Node, Folded>,
}

impl Pass<'_> {
    fn visit(&mut self, id: usize) {
        let entry = &self.source.entries[id];
        let node = Node::new(id, 0);
        let Some(folded) = self.fold(entry) else {
            return self.copy(id, entry);
        };
        self.folded.insert(node, folded);
        if !self.together || !self.foldable(node) {
            self.materialize(node);
        }
    }

    /// The expression of a pointwise or layout operation over real numbers; `None` for any other.
    fn fold(&mut self, entry: &Entry) -> Option<Folded> {
        let shape = entry.outputs.first()?.shape.clone();
        match &entry.op {
            Op::Pointwise(pointwise) => Some(self.fold_pointwise(*pointwise, &entry.inputs, &shape)),
            Op::Broadcast(_) => Some(self.expression(entry.inputs[0]).broadcast(&shape)),
            Op::Slice(slice) => Some(self.expression(entry.inputs[0]).slice(slice.axis, slice.start, &shape)),
            Op::Permute(permute) => Some(self.expression(entry.inputs[0]).permute(&permute.order, &shape)),
            _ => None,
        }
    }

    fn fold_pointwise(&mut self, pointwise: Pointwise, inputs: &[Node], shape: &Shape) -> Folded {
        let combined = self.combine(pointwise, inputs, shape);
        if combined.fits() {
            return combined;
        }
        for &input in inputs {
            self.materialize(input);
        }
        self.combine(pointwise, inputs, shape)
    }

    fn combine(&mut self, pointwise: Pointwise, inputs: &[Node], shape: &Shape) -> Folded {
        let mut combined = Folded { shape: shape.clone(), operands: Vec::new(), code: Vec::new() };
        let lines: Vec<usize> = inputs
            .iter()
            .map(|&input| {
                let expression = self.expression(input).broadcast(shape);
                combined.append(&expression)
            })
            .collect();
        combined.code.push(match pointwise {
            Pointwise::Unary(function) => Line::Unary(function, lines[0]),
            Pointwise::Binary(function) => Line::Binary(function, lines[0], lines[1]),
        });
        combined
    }

    /// A value as an expression: its own if it is fused, otherwise one that loads it.
    fn expression(&mut self, node: Node) -> Folded {
        if !self.placed.contains_key(&node)
            && let Some(folded) = self.folded.get(&node)
        {
            return folded.clone();
        }
        let shape = self.source.shape(node).clone();
        Folded::load(self.materialize(node), &shape)
    }

    /// Whether a value should stay fused rather than be stored.
    fn foldable(&self, node: Node) -> bool {
        let readers = self.uses.readers(node);
        if self.uses.requested.contains(&node) || readers.is_empty() {
            return false;
        }
        let shape = self.source.shape(node);
        let views_only = !matches!(self.source.entry(node).op, Op::Pointwise(_));
        let fits_reader = |&id: &usize| {
            let reader = &self.source.entries[id];
            match &reader.op {
                Op::Pointwise(_) | Op::Slice(_) => views_only || reader.outputs[0].shape == *shape,
                Op::Broadcast(_) => views_only || self.folded[&node].cheap(),
                _ => false,
            }
        };
        let folded = &self.folded[&node];
        readers.iter().all(fits_reader)
            && (readers.len() == 1 || views_only && folded.code.len() == 1 || folded.cheap())
    }

    /// A requested value in the fused graph. A leaf is copied, because the run may change or move it.
    fn request(&mut self, node: Node) -> Node {
        let placed = self.materialize(node);
        let owner = self.fused.owner(placed);
        if !matches!(self.fused.entry(owner).op, Op::Tensor(_) | Op::Constant(_)) {
            return placed;
        }
        let copy = Folded::load(placed, self.source.shape(node));
        self.emit(copy, self.source.value_type(node).clone())
    }

    /// Stores a value in the fused graph, if it is not stored yet.
    fn materialize(&mut self, node: Node) -> Node {
        if let Some(&placed) = self.placed.get(&node) {
            return placed;
        }
        let folded = self.folded.get(&node).expect("a value is placed or folded before it is read").clone();
        let placed = self.emit(folded, self.source.value_type(node).clone());
        self.placed.insert(node, placed);
        placed
    }

    fn emit(&mut self, folded: Folded, output: Type) -> Node {
        let folded = folded.collapse();
        let inputs: Vec<Node> = folded.operands.iter().map(|(operand, _)| *operand).collect();
        let views = folded.operands.into_iter().map(|(_, view)| view).collect();
        let op = Op::Expression(Expression { shape: folded.shape, views, code: folded.code });
        self.fused.entries.push(Entry { op, inputs, outputs: vec![output] });
        Node::new(self.fused.entries.len() - 1, 0)
    }

    /// Copies an operation that is not fused. Unused optional outputs are removed.
    fn copy(&mut self, id: usize, entry: &Entry) {
        let inputs: Vec<Node> = entry.inputs.iter().map(|&input| self.materialize(input)).collect();
        let (mut op, mut outputs) = (entry.op.clone(), entry.outputs.clone());
        if let Op::MatMul(product) = &mut op
            && product.keep_input
            && self.uses.readers(Node::new(id, 1)).is_empty()
            && !self.uses.requested.contains(&Node::new(id, 1))
        {
            product.keep_input = false;
            outputs.truncate(1);
        }
        let place = self.fused.entries.len();
        for output in 0..outputs.len() {
            self.placed.insert(Node::new(id, output), Node::new(place, output));
        }
        if self.source.effects.contains(&id) {
            self.fused.effects.push(place);
        }
        self.fused.entries.push(Entry { op, inputs, outputs });
    }
}
