//! Planned programs lowered to commands, independently of a device.

use cfo_engine::backend::BufferPlace;
use cfo_engine::{Node, Plan};

use super::lowering::Probe;
use super::schedule::Access;
use super::select::select;
use super::typed::Typed;
use super::{Code, Instruction, Lowering, OpIo, Scalar, Value};
use crate::op::optimizer;

/// A lowered program, independent of a device: addresses are relative to the given bases.
pub(crate) struct Lowered {
    pub(crate) lowering: Lowering,
    /// Address, type and length of each requested output.
    pub(crate) requested: Vec<(u64, Scalar, usize)>,
}

/// Positions on the device.
pub(crate) struct Bases<'a> {
    pub(crate) arena: u64,
    pub(crate) leaves: &'a [u64],
    /// Address of the bf16 copy of each leaf that has one.
    pub(crate) copies: &'a [Option<u64>],
}

impl Bases<'_> {
    /// A value's position, or that of its bf16 copy if `half` is true and there is one.
    fn value(&self, typed: &Typed, plan: &Plan, node: Node, half: bool) -> Value {
        let (count, mut scalar) = (typed.code.shape(node).len(), typed.scalar(node));
        let address = match plan.place(node) {
            BufferPlace::Arena(offset) => self.arena + offset as u64,
            BufferPlace::Leaf(leaf) => match self.copies[leaf].filter(|_| half) {
                Some(copy) => {
                    scalar = Scalar::Bf16;
                    copy
                }
                None => self.leaves[leaf],
            },
        };
        Value { address, scalar, count }
    }
}

/// Rounds the leaves that products read to their bf16 copies.
fn round_leaves(code: &Code, bases: &Bases<'_>, lowering: &mut Lowering) {
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
        apart: false,
    };
    lowering.begin("round weights", false, rounding);
    optimizer::round_copies(&copies, lowering);
}

pub(crate) fn copied_leaves(typed: &Typed) -> Vec<usize> {
    let mut copied = Vec::new();
    for (id, entry) in typed.code.entries.iter().enumerate() {
        for (index, &input) in entry.inputs.iter().enumerate() {
            let leaf = typed.code.owner(input).index();
            if typed.reads_copy(id, index) && !copied.contains(&leaf) {
                copied.push(leaf);
            }
        }
    }
    copied
}

pub(crate) fn lower_all(typed: &Typed, plan: &Plan, bases: &Bases<'_>, probe: Option<Probe>) -> Lowered {
    let code = &typed.code;
    let mut lowering = Lowering::new(typed.target(), typed.deterministic, probe);
    let value = |node: Node, half: bool| bases.value(typed, plan, node, half);
    round_leaves(code, bases, &mut lowering);
    for (place, &id) in plan.steps().iter().enumerate() {
        let entry = &code.entries[id];
        let io = OpIo {
            inputs: entry
                .inputs
                .iter()
                .enumerate()
                .map(|(index, &node)| value(node, typed.reads_copy(id, index)))
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
        select(typed, id, advances).lower(&io, &mut lowering);
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

/// An operation's name without blanks, then its sizes and result.
fn label(op: &Instruction, result: Option<String>) -> String {
    let name = op.name().replace(' ', "_");
    let attributes = match op {
        Instruction::MatMul(_) => op.attributes(),
        Instruction::Sum(sum) => format!(" axes={:?}", sum.axes),
        _ => String::new(),
    };
    result.map_or(name.clone(), |result| format!("{name}{attributes} -> {result}"))
}

/// Memory that an operation reads and writes; effects may write all of their operands.
fn access(io: &OpIo, scratch: usize, effect: bool) -> Access {
    let range = |value: &Value| (value.address, value.address + (value.count * value.scalar.bytes()) as u64);
    let inputs = || io.inputs.iter().map(range);
    let mut writes: Vec<_> = io.outputs.iter().map(range).collect();
    writes.push((io.scratch, io.scratch + scratch as u64));
    if effect {
        writes.extend(inputs());
    }
    writes.retain(|(first, end)| first < end);
    Access { reads: inputs().collect(), writes, apart: false }
}
