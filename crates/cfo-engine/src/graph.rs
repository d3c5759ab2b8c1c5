//! Graphs: operations are appended one by one, and their shapes are checked.

use std::collections::HashMap;
use std::fmt;

use crate::error::{EngineError, Result};
use crate::initial::Initial;
use crate::ops::{Constant, Inputs, Op, Tensor};
use crate::role::Role;
use crate::shape::{Element, Shape, Type};

/// A value of a graph: one output of one operation. Cheap to copy; valid only for the graph that created it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Node {
    id: u32,
    output: u32,
}

impl Node {
    /// The output `output` of the operation `id`.
    pub fn new(id: usize, output: usize) -> Self {
        Self { id: id as u32, output: output as u32 }
    }

    /// Index of the operation.
    pub fn index(self) -> usize {
        self.id as usize
    }

    /// Index among the operation's outputs.
    pub fn output(self) -> usize {
        self.output as usize
    }

    /// The value that owns this value's memory; `source` returns the original of a reshaped value, else `None`.
    pub fn owner(self, source: impl Fn(Self) -> Option<Self>) -> Self {
        let mut node = self;
        while let Some(before) = source(node) {
            node = before;
        }
        node
    }
}

/// An operation, or a backend's instruction, with its inputs and outputs.
#[derive(Clone, Debug)]
pub struct Entry<O = Op> {
    /// The operation.
    pub op: O,
    /// Values that the operation reads.
    pub inputs: Vec<Node>,
    /// Types of the operation's outputs.
    pub outputs: Vec<Type>,
}

/// A trainable tensor of a graph.
#[derive(Clone, Debug)]
pub struct Parameter {
    /// Its name in [`Memory`](crate::Memory) and in checkpoints.
    pub name: String,
    /// Its value in the graph.
    pub node: Node,
    /// Its shape.
    pub shape: Shape,
    /// Distribution of its initial values.
    pub initial: Initial,
    /// Whether the last axis holds real and imaginary parts.
    pub complex: bool,
}

impl Parameter {
    /// Number of trainable numbers; a complex number counts once.
    pub fn count(&self) -> usize {
        self.shape.len() / if self.complex { 2 } else { 1 }
    }
}

/// A tensor of real numbers that a graph keeps between runs.
#[derive(Clone, Copy, Debug)]
pub struct KeptTensor<'a> {
    /// Its name in [`Memory`](crate::Memory).
    pub name: &'a str,
    /// Its shape.
    pub shape: &'a Shape,
    /// Purpose of the tensor.
    pub role: Role,
}

/// A tensor other than a parameter that a program keeps between runs.
#[derive(Clone, Debug)]
pub(crate) struct Retained {
    pub(crate) name: String,
    pub(crate) shape: Shape,
    pub(crate) role: Role,
    /// The parameter that gives its initial value; zeros if `None`.
    pub(crate) copy_of: Option<String>,
}

/// A static graph of tensor operations.
///
/// Operations are appended by methods that check shapes and return the new value. The methods are defined with the
/// operations in [`ops`](crate::ops). Leaves are tensors named in [`Memory`](crate::Memory): inputs, parameters and
/// everything that is kept between runs. *Effects* (optimiser steps, counters) change tensors in place at the end of a
/// run.
#[derive(Clone, Debug, Default)]
pub struct Graph {
    pub(crate) entries: Vec<Entry>,
    pub(crate) effects: Vec<usize>,
    parameters: Vec<Parameter>,
    states: Vec<Retained>,
    prefix: String,
    tensors: HashMap<String, Node>,
    /// The first error of the formula that is being written.
    pub(crate) failure: Option<EngineError>,
}

impl Graph {
    /// Creates an empty graph.
    pub fn new() -> Self {
        Self::default()
    }

    /// Creates a graph whose parameters have names with the given prefix, for instance `ema/` to read the EMA weights.
    pub fn with_prefix(prefix: &str) -> Self {
        Self { prefix: prefix.into(), ..Self::default() }
    }

    /// A named tensor in memory: an input, a data set or a state. Calls with the same name return the same value.
    ///
    /// # Errors
    /// If the name belongs to a tensor of another type.
    pub fn tensor(&mut self, name: &str, element: Element, shape: impl Into<Shape>) -> Result<Node> {
        let wanted = Type { shape: shape.into(), element };
        if let Some(&node) = self.tensors.get(name) {
            let found = self.value_type(node);
            if *found == wanted {
                return Ok(node);
            }
            return Err(EngineError::TensorMismatch {
                name: name.into(),
                found: found.to_string(),
                needed: wanted.to_string(),
            });
        }
        let node = self.leaf(Op::Tensor(Tensor { name: name.into() }), wanted);
        self.tensors.insert(name.into(), node);
        Ok(node)
    }

    /// A named real tensor that the caller writes before a run.
    ///
    /// # Errors
    /// If the name belongs to a tensor of another type.
    pub fn input(&mut self, name: &str, shape: impl Into<Shape>) -> Result<Node> {
        self.tensor(name, Element::Real, shape)
    }

    /// A trainable tensor; [`Memory::initialize`](crate::Memory::initialize) draws its values from `initial`.
    ///
    /// # Errors
    /// If the name belongs to another tensor.
    pub fn parameter(&mut self, name: &str, shape: impl Into<Shape>, initial: Initial) -> Result<Node> {
        self.declare(name, shape.into(), initial, false)
    }

    /// A trainable tensor of complex numbers: the last axis holds the real parts, then the imaginary parts.
    ///
    /// # Errors
    /// If the name belongs to another tensor.
    pub fn complex_parameter(
        &mut self,
        name: &str,
        shape: impl Into<Shape>,
        initial: Initial,
    ) -> Result<Node> {
        self.declare(name, shape.into(), initial, true)
    }

    fn declare(&mut self, name: &str, shape: Shape, initial: Initial, complex: bool) -> Result<Node> {
        let name = &format!("{}{name}", self.prefix);
        let known = self.tensors.contains_key(name);
        let node = self.tensor(name, Element::Real, shape.clone())?;
        if !known {
            self.parameters.push(Parameter { name: name.clone(), node, shape, initial, complex });
        }
        Ok(node)
    }

    /// A counter: an index scalar that starts at 0 and that [`Graph::advance`] increments.
    ///
    /// # Errors
    /// If the name belongs to another tensor.
    pub fn counter(&mut self, name: &str) -> Result<Node> {
        self.tensor(name, Element::Index, Shape::scalar())
    }

    /// A tensor kept between runs. Its initial value is zero or equals the named parameter.
    pub(crate) fn state(&mut self, name: &str, shape: Shape, copy_of: Option<&str>) -> Result<Node> {
        let known = self.tensors.contains_key(name);
        let node = self.tensor(name, Element::Real, shape.clone())?;
        if !known {
            let role = if copy_of.is_some() { Role::Average } else { Role::Optimizer };
            self.states.push(Retained { name: name.into(), shape, role, copy_of: copy_of.map(Into::into) });
        }
        Ok(node)
    }

    /// The real tensors that are kept between runs: parameters, their EMA, and the optimiser's state.
    pub fn kept(&self) -> impl Iterator<Item = KeptTensor<'_>> {
        let weights =
            self.parameters().iter().map(|Parameter { name, shape, .. }| (name, shape, Role::Weight));
        let states = self.states().iter().map(|Retained { name, shape, role, .. }| (name, shape, *role));
        weights.chain(states).map(|(name, shape, role)| KeptTensor { name, shape, role })
    }

    pub(crate) fn states(&self) -> &[Retained] {
        &self.states
    }

    /// Constants, fixed when the graph is built.
    ///
    /// # Errors
    /// If the number of values is not the shape's number of elements.
    pub fn constant(&mut self, shape: impl Into<Shape>, values: Vec<f64>) -> Result<Node> {
        let shape = shape.into();
        if values.len() != shape.len() {
            let needed = format!("{} values were given", values.len());
            return Err(EngineError::bad_shape("constant", &shape, needed));
        }
        Ok(self.leaf(Op::Constant(Constant { values: values.into() }), Type::real(shape)))
    }

    /// A constant scalar.
    pub fn scalar(&mut self, value: f64) -> Node {
        self.leaf(Op::Constant(Constant { values: [value].into() }), Type::real(Shape::scalar()))
    }

    /// The trainable tensors, in the order in which they were added.
    pub fn parameters(&self) -> &[Parameter] {
        &self.parameters
    }

    /// Shape of a value.
    pub fn shape(&self, node: Node) -> &Shape {
        &self.value_type(node).shape
    }

    /// Shape and element type of a value.
    pub fn value_type(&self, node: Node) -> &Type {
        &self.entries[node.index()].outputs[node.output()]
    }

    /// The operations, in the order in which they were added.
    pub fn entries(&self) -> &[Entry] {
        &self.entries
    }

    /// Indices of the operations that change tensors at the end of a run.
    pub fn effects(&self) -> &[usize] {
        &self.effects
    }

    /// Appends an operation with any number of outputs.
    ///
    /// # Errors
    /// If the operation does not accept the inputs.
    pub fn push(&mut self, op: Op, inputs: &[Node]) -> Result<Vec<Node>> {
        let types = inputs.iter().map(|&node| self.value_type(node)).collect();
        let outputs = op.operation().infer(&Inputs { operation: op.name(), types })?;
        let id = self.entries.len();
        let nodes = (0..outputs.len()).map(|output| Node::new(id, output)).collect();
        self.entries.push(Entry { op, inputs: inputs.to_vec(), outputs });
        Ok(nodes)
    }

    /// Appends an operation with one output.
    ///
    /// # Errors
    /// If the operation does not accept the inputs.
    pub fn push_one(&mut self, op: Op, inputs: &[Node]) -> Result<Node> {
        Ok(self.push(op, inputs)?[0])
    }

    /// Appends an operation that changes tensors in place at the end of a run.
    pub(crate) fn push_effect(&mut self, op: Op, inputs: &[Node]) -> Result<()> {
        self.effects.push(self.entries.len());
        self.push(op, inputs).map(|_| ())
    }

    /// The operation that produces a value.
    pub fn entry(&self, node: Node) -> &Entry {
        &self.entries[node.index()]
    }

    /// The value that owns a value's memory: the original of a reshaped value, otherwise the value itself.
    pub fn owner(&self, node: Node) -> Node {
        node.owner(|node| matches!(self.entry(node).op, Op::Reshape(_)).then(|| self.entry(node).inputs[0]))
    }

    fn leaf(&mut self, op: Op, output: Type) -> Node {
        let id = self.entries.len();
        self.entries.push(Entry { op, inputs: Vec::new(), outputs: vec![output] });
        Node::new(id, 0)
    }
}

impl fmt::Display for Graph {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        list(f, &self.entries, &self.effects)
    }
}

/// Writes entries, one per line.
pub fn list<O: fmt::Display>(
    f: &mut fmt::Formatter<'_>,
    entries: &[Entry<O>],
    effects: &[usize],
) -> fmt::Result {
    for (id, entry) in entries.iter().enumerate() {
        let effect = if effects.contains(&id) { "effect " } else { "" };
        write!(f, "%{id} = {effect}{}", entry.op)?;
        for (i, input) in entry.inputs.iter().enumerate() {
            write!(f, "{}%{}", if i == 0 { " " } else { ", " }, input.id)?;
            if input.output() > 0 {
                write!(f, ".{}", input.output())?;
            }
        }
        for (i, output) in entry.outputs.iter().enumerate() {
            write!(f, "{}{output}", if i == 0 { " : " } else { ", " })?;
        }
        writeln!(f)?;
    }
    Ok(())
}
