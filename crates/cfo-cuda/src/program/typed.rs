//! A fused graph with the type of every value, and its lowering.

use std::collections::HashMap;
use std::sync::Arc;

use crate::convolution::algorithm;
use crate::convolution::conv;
use crate::convolution::conv_row;
use crate::norm::group_norm;
use crate::op::expression;
use crate::op::optimizer;
use crate::passes::merge::merge;
use crate::passes::recompute::recompute;
use crate::passes::scaled_f16::with_scaled_f16;
use crate::passes::types::{self, takes_bf16, with_rounding};
use crate::passes::{conv_row_norm, periodic};
use crate::program::code::Code;
use crate::program::instruction::Instruction;
use crate::program::lower::{lower, scratch};
use crate::program::lowering::{Io, Lowering, Probe, Target, Value};
use crate::program::scalar::Scalar;
use crate::program::schedule::Access;
use crate::runtime::compile;
use crate::runtime::driver::Context;
use cfo_engine::Plan;
use cfo_engine::Precision;
use cfo_engine::backend::{Place, StepKind, Steps};
use cfo_engine::{Element, Type};
use cfo_engine::{EngineError, Result};
use cfo_engine::{Graph, Node};

/// Programs whose values take no more bytes than this, about the second cache's size, keep them all apart.
const UNSHARED: usize = 48 << 20;
/// Shared memory of a block where there is no device to ask.
const SHARED: u32 = 227 << 10;
/// Results of norms that take at least so many bytes are computed again in the backward pass where that lowers the peak.
const RECOMPUTED: usize = 64 << 20;
/// Code with the types of its values.
#[derive(Clone, Debug)]
pub(crate) struct Typed {
    pub(crate) code: Code,
    scalars: Vec<Vec<Scalar>>,
    precision: Precision,
    multiprocessors: u32,
    /// Bytes of shared memory that a block may have.
    shared: u32,
    /// Whether tensor cores work for warpgroups.
    pub(crate) warpgroups: bool,
    /// Whether every run must yield the same bits.
    pub(crate) deterministic: bool,
    /// How each convolution is done.
    pub(crate) convolutions: HashMap<usize, conv::Algorithm>,
}

impl Typed {
    /// # Errors
    /// If the GPU lacks a library that the graph needs.
    pub(crate) fn new(
        graph: Graph,
        outputs: Vec<Node>,
        precision: Precision,
        deterministic: bool,
        context: &Arc<Context>,
    ) -> Result<Self> {
        let multiprocessors = context.properties.multiprocessors;
        let architecture = context.properties.architecture;
        let mut typed = Self::without_device(graph, outputs, precision, (multiprocessors, architecture));
        typed.deterministic = deterministic;
        typed.shared = context.properties.shared;
        typed.warpgroups = context.properties.architecture == compile::WARPGROUPS;
        typed.refuse_what_cannot_fit(context)?;
        let geometries: Vec<_> = (0..typed.code.entries.len())
            .filter_map(|id| conv::Geometry::of(&typed.code, id, precision))
            .collect();
        algorithm::prepare(context, &geometries, deterministic);
        let mut options = HashMap::new();
        for (id, entry) in typed.code.entries.iter().enumerate() {
            if let Instruction::GroupNorm(_) | Instruction::GroupNormBackward(_) = entry.op
                && !group_norm::supported(typed.code.shape(entry.inputs[0]))
            {
                return Err(EngineError::BadShape {
                    operation: "group_norm",
                    found: typed.code.shape(entry.inputs[0]).clone(),
                    needed: "on CUDA at most 65535 samples and 1024 channels".into(),
                });
            }
            if let Some(geometry) = conv::Geometry::of(&typed.code, id, precision) {
                let ways = match conv_row::supported(architecture) && conv_row::fits(&geometry) {
                    true => conv::Algorithm::ConvRow.into(),
                    false => algorithm::choose(context, &geometry, deterministic)?,
                };
                options.insert(id, ways);
            }
        }
        typed.convolutions = algorithm::settle(&typed.code, &options);
        Ok(typed.with_scaled_f16())
    }

    /// With operands in 16 bits for the convolutions that take them so.
    pub(crate) fn with_scaled_f16(mut self) -> Self {
        (self.code, self.convolutions) = with_scaled_f16(self.code, self.convolutions);
        self.scalars = types::assign(&self.code, self.precision);
        self
    }

    /// Refuses a graph whose values alone are more than the device has free, before anything is measured.
    fn refuse_what_cannot_fit(&self, context: &Context) -> Result<()> {
        let mut least = self.clone();
        for id in 0..self.code.entries.len() {
            if let Some(geometry) = conv::Geometry::of(&self.code, id, self.precision) {
                let choice = match algorithm::may_take_f16(&geometry) && !self.deterministic {
                    true => conv::Algorithm::PlannedF16 { workspace: 0 },
                    false => conv::Algorithm::Plain,
                };
                least.convolutions.insert(id, choice);
            }
        }
        let least = least.with_scaled_f16();
        let needed = Plan::new(&least).arena_bytes() as u64;
        let (available, _) = context.memory()?;
        match needed > available {
            true => Err(EngineError::OutOfMemory { needed, available }),
            false => Ok(()),
        }
    }

    pub(crate) fn without_device(
        graph: Graph,
        outputs: Vec<Node>,
        precision: Precision,
        (multiprocessors, architecture): (u32, u32),
    ) -> Self {
        let code = Code::new(&graph, outputs);
        let rows = conv_row::supported(architecture);
        let code = if rows { periodic::merge(code, precision) } else { code };
        let code = merge(code);
        let bytes = if precision == Precision::Bf16 { 2 } else { 4 };
        let large = |code: &Code, node: Node| bytes * code.shape(node).len() >= RECOMPUTED;
        let code = match precision {
            // Copies in 16 bits are kept instead, which would have to be made again.
            Precision::Tf32 => code,
            _ => recompute(code, large, |code| {
                let typed = Self::assigned(code.clone(), precision, multiprocessors);
                Plan::new(&Unworked(&typed)).live_bytes()
            }),
        };
        let code = if rows { conv_row_norm::merge(code, precision) } else { code };
        Self::assigned(code, precision, multiprocessors)
    }

    /// The code with rounding where products need it and with the types of its values.
    fn assigned(code: Code, precision: Precision, multiprocessors: u32) -> Self {
        let code = if precision == Precision::Bf16 { with_rounding(code) } else { code };
        let scalars = types::assign(&code, precision);
        Self {
            code,
            scalars,
            precision,
            multiprocessors,
            shared: SHARED,
            warpgroups: true,
            deterministic: false,
            convolutions: HashMap::new(),
        }
    }

    /// The plan without scratch memory.
    #[cfg(test)]
    pub(crate) fn bare_plan(&self) -> Plan {
        Plan::new(&Unworked(self))
    }

    fn target(&self) -> Target {
        let Self { precision, multiprocessors, warpgroups, .. } = *self;
        Target { precision, multiprocessors, warpgroups }
    }

    /// How a convolution is done; by our own kernels where there is no device to ask.
    fn convolution(&self, id: usize) -> conv::Algorithm {
        let own = || {
            let geometry = conv::Geometry::of(&self.code, id, self.precision)?;
            Some(conv::Algorithm::own(&geometry, self.multiprocessors))
        };
        self.convolutions.get(&id).copied().or_else(own).unwrap_or(conv::Algorithm::Plain)
    }

    fn scalar(&self, node: Node) -> Scalar {
        self.scalars[node.index()][node.output()]
    }
}

impl Steps for Typed {
    fn count(&self) -> usize {
        self.code.entries.len()
    }

    fn inputs(&self, id: usize) -> &[Node] {
        &self.code.entries[id].inputs
    }

    fn outputs(&self, id: usize) -> &[Type] {
        &self.code.entries[id].outputs
    }

    fn kind(&self, id: usize) -> StepKind {
        match &self.code.entries[id].op {
            op if op.is_leaf() => StepKind::Leaf,
            Instruction::Reshape(_) => StepKind::View,
            _ => StepKind::Work,
        }
    }

    fn effects(&self) -> &[usize] {
        &self.code.effects
    }

    fn requested(&self) -> &[Node] {
        &self.code.requested
    }

    fn element_bytes(&self, node: Node, _: Element) -> usize {
        self.scalar(node).bytes()
    }

    fn scratch_bytes(&self, id: usize) -> usize {
        match conv::Geometry::of(&self.code, id, self.precision) {
            Some(geometry) => geometry.scratch(self.convolution(id)),
            None => scratch(&self.code, id, self.target()),
        }
    }

    fn in_place(&self, id: usize) -> Option<usize> {
        let entry = &self.code.entries[id];
        let owner = |input: usize| self.code.owner(entry.inputs[input]);
        let input = match &entry.op {
            Instruction::Expression(op) => expression::in_place(op, |a, b| owner(a) == owner(b))?,
            Instruction::AllReduce(_) => 0,
            // Each thread writes what it alone read before.
            Instruction::GroupNormBackward(op) => op.cotangent(),
            _ => return None,
        };
        (self.scalar(entry.inputs[input]) == self.scalars[id][0]).then_some(input)
    }

    fn unshared_bytes(&self) -> usize {
        UNSHARED
    }
}

/// The same before it is known how convolutions are done, without scratch memory.
struct Unworked<'a>(&'a Typed);

impl Steps for Unworked<'_> {
    fn count(&self) -> usize {
        self.0.count()
    }

    fn inputs(&self, id: usize) -> &[Node] {
        self.0.inputs(id)
    }

    fn outputs(&self, id: usize) -> &[Type] {
        self.0.outputs(id)
    }

    fn kind(&self, id: usize) -> StepKind {
        self.0.kind(id)
    }

    fn effects(&self) -> &[usize] {
        self.0.effects()
    }

    fn requested(&self) -> &[Node] {
        self.0.requested()
    }

    fn element_bytes(&self, node: Node, element: Element) -> usize {
        self.0.element_bytes(node, element)
    }

    fn scratch_bytes(&self, _: usize) -> usize {
        0
    }

    fn in_place(&self, id: usize) -> Option<usize> {
        self.0.in_place(id)
    }

    fn unshared_bytes(&self) -> usize {
        self.0.unshared_bytes()
    }
}

/// The lowered program before it meets a device: addresses are offsets from the bases given.
pub(crate) struct Lowered {
    pub(crate) lowering: Lowering,
    /// Address, type and length of each requested output.
    pub(crate) requested: Vec<(u64, Scalar, usize)>,
}

/// Where things lie on the device.
pub(crate) struct Bases<'a> {
    pub(crate) arena: u64,
    /// Address of each leaf.
    pub(crate) leaves: &'a [u64],
    /// Address of the bf16 copy of each leaf that has one.
    pub(crate) copies: &'a [Option<u64>],
}

/// Leaves that products read, in bf16 programs.
pub(crate) fn copied_leaves(typed: &Typed) -> Vec<usize> {
    let mut copied = Vec::new();
    if typed.precision != Precision::Bf16 {
        return copied;
    }
    for (id, entry) in typed.code.entries.iter().enumerate() {
        let output = typed.scalars[id].first().copied().unwrap_or(Scalar::F32);
        for (index, &input) in entry.inputs.iter().enumerate() {
            let leaf = typed.code.owner(input).index();
            if takes_bf16(&entry.op, index, output)
                && typed.code.entries[leaf].op.is_leaf()
                && !copied.contains(&leaf)
            {
                copied.push(leaf);
            }
        }
    }
    copied
}

/// Lowers all steps of a plan.
pub(crate) fn lower_all(typed: &Typed, plan: &Plan, bases: &Bases<'_>, probe: Option<Probe>) -> Lowered {
    let code = &typed.code;
    let mut lowering = Lowering::new(typed.target(), typed.shared, typed.deterministic, probe);
    let value = |node: Node, half: bool| {
        let (count, mut scalar) = (code.shape(node).len(), typed.scalar(node));
        let address = match plan.place(node) {
            Place::Arena(offset) => bases.arena + offset as u64,
            Place::Leaf(leaf) => match bases.copies[leaf].filter(|_| half) {
                Some(copy) => {
                    scalar = Scalar::Bf16;
                    copy
                }
                None => bases.leaves[leaf],
            },
        };
        Value { address, scalar, count }
    };
    let copies: Vec<(u64, u64, usize)> = (0..code.entries.len())
        .filter_map(|leaf| {
            let count = code.entries[leaf].outputs.first()?.shape.len();
            bases.copies[leaf].map(|copy| (bases.leaves[leaf], copy, count))
        })
        .collect();
    let range = |address: u64, bytes: usize| (address, address + bytes as u64);
    let rounding = Access {
        reads: copies.iter().map(|&(from, _, count)| range(from, 4 * count)).collect(),
        writes: copies.iter().map(|&(_, to, count)| range(to, 2 * count)).collect(),
    };
    lowering.begin("round weights", false, rounding);
    optimizer::round_copies(&copies, &mut lowering);
    for (place, &id) in plan.steps().iter().enumerate() {
        let entry = &code.entries[id];
        let output = typed.scalars[id].first().copied().unwrap_or(Scalar::F32);
        let io = Io {
            inputs: entry
                .inputs
                .iter()
                .enumerate()
                .map(|(index, &node)| value(node, takes_bf16(&entry.op, index, output)))
                .collect(),
            outputs: (0..entry.outputs.len()).map(|output| value(Node::new(id, output), false)).collect(),
            scratch: bases.arena + plan.scratch(id).0 as u64,
        };
        let effect = code.effects.contains(&id);
        let label = label(&entry.op, entry.outputs.first().map(|output| output.shape.to_string()));
        lowering.begin(&label, effect, access(&io, plan.scratch(id).1, effect));
        if let (Instruction::Advance(_), Some(before)) = (&entry.op, place.checked_sub(1)) {
            let before = &code.entries[plan.steps()[before]];
            if matches!(before.op, Instruction::Adam(_)) && before.inputs[0] == entry.inputs[0] {
                continue;
            }
        }
        let advances = plan.steps().get(place + 1).is_some_and(|&next| {
            let next = &code.entries[next];
            matches!(next.op, Instruction::Advance(_)) && Some(&next.inputs[0]) == entry.inputs.first()
        });
        lower(code, id, typed.convolution(id), advances, &io, &mut lowering);
    }
    let requested = code
        .requested
        .iter()
        .map(|&node| {
            let Value { address, scalar, count } = value(node, false);
            (address, scalar, count)
        })
        .collect();
    Lowered { lowering, requested }
}

/// An operation's name without blanks, then what tells it from its like: sizes and result.
fn label(op: &Instruction, result: Option<String>) -> String {
    let name = op.name().replace(' ', "_");
    let attributes = match op {
        Instruction::MatMul(_) => op.attributes(),
        Instruction::Sum(sum) => format!(" axes={:?}", sum.axes),
        _ => String::new(),
    };
    result.map_or(name.clone(), |result| format!("{name}{attributes} -> {result}"))
}

/// What an operation reads and writes; effects may write whatever they are given.
fn access(io: &Io, scratch: usize, effect: bool) -> Access {
    let range = |value: &Value| (value.address, value.address + (value.count * value.scalar.bytes()) as u64);
    let inputs = || io.inputs.iter().map(range);
    let mut writes: Vec<_> = io.outputs.iter().map(range).collect();
    writes.push((io.scratch, io.scratch + scratch as u64));
    if effect {
        writes.extend(inputs());
    }
    writes.retain(|(first, end)| first < end);
    Access { reads: inputs().collect(), writes }
}
