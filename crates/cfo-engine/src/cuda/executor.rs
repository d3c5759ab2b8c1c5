//! Runs a planned graph on a GPU: lowered once, captured on the first run, replayed afterwards.

use std::collections::HashMap;
use std::sync::Arc;

use rayon::prelude::*;

use super::driver::{Allocation, Context, Event, Function, Module, Replay, Stream};
use super::lower::{Argument, Command, Io, Lowering, Probe, Value, Work, lower, scratch};
use super::matmul::{self, Prepared};
use super::scalar::{self, Scalar};
use super::schedule::{Access, Slot, spread};
use super::{compile, conv, expression, group_norm, optimizer};
use crate::device::Precision;
use crate::error::{EngineError, Result};
use crate::graph::{Entry, Graph, Node};
use crate::memory::Memory;
use crate::ops::{Expression, Instruction, Op, View};
use crate::plan::{Place, Plan, Sizes};
use crate::shape::{Element, Type};

/// Programs whose values take no more bytes than this, about the second cache's size, keep them all apart.
const UNSHARED: usize = 48 << 20;
/// Streams on which the commands of small programs are spread, and how small they are.
const STREAMS: usize = 4;
const SPREAD: usize = 256 << 20;

/// A fused graph as this backend stores it.
#[derive(Debug)]
pub(crate) struct Typed {
    pub(crate) graph: Graph,
    pub(crate) outputs: Vec<Node>,
    scalars: Vec<Vec<Scalar>>,
    precision: Precision,
    multiprocessors: u32,
    /// How each convolution is done.
    convolutions: HashMap<usize, conv::Choice>,
}

impl Typed {
    /// # Errors
    /// If the GPU lacks a library that the graph needs.
    pub(crate) fn new(
        graph: Graph,
        outputs: Vec<Node>,
        precision: Precision,
        context: &Arc<Context>,
    ) -> Result<Self> {
        let mut typed = Self::without_device(graph, outputs, precision, context.properties.multiprocessors);
        for (id, entry) in typed.graph.entries.iter().enumerate() {
            if let Op::GroupNorm(_) | Op::GroupNormBackward(_) = entry.op
                && !group_norm::supported(typed.graph.shape(entry.inputs[0]))
            {
                return Err(EngineError::BadShape {
                    operation: "group_norm",
                    found: typed.graph.shape(entry.inputs[0]).clone(),
                    needed: "on CUDA at most 65535 samples and 1024 channels".into(),
                });
            }
            if let Some(geometry) = conv::Geometry::of(&typed.graph, id, precision) {
                typed.convolutions.insert(id, conv::choose(context, &geometry)?);
            }
        }
        Ok(typed)
    }

    pub(super) fn without_device(
        graph: Graph,
        outputs: Vec<Node>,
        precision: Precision,
        multiprocessors: u32,
    ) -> Self {
        let (graph, outputs) = match precision {
            Precision::Bf16 => with_rounding(graph, outputs),
            _ => (graph, outputs),
        };
        let scalars = scalar::assign(&graph, &outputs, precision);
        Self { graph, outputs, scalars, precision, multiprocessors, convolutions: HashMap::new() }
    }

    /// How a convolution is done; by our own kernels where there is no device to ask.
    fn convolution(&self, id: usize) -> conv::Choice {
        self.convolutions.get(&id).copied().unwrap_or(match id % 2 {
            0 => conv::Choice::Plain,
            _ => conv::Choice::Patches,
        })
    }

    fn scalar(&self, node: Node) -> Scalar {
        self.scalars[node.index()][node.output as usize]
    }
}

impl Sizes for Typed {
    fn element_bytes(&self, node: Node, _: Element) -> usize {
        self.scalar(node).bytes()
    }

    fn scratch_bytes(&self, id: usize) -> usize {
        match conv::Geometry::of(&self.graph, id, self.precision) {
            Some(geometry) => geometry.scratch(self.convolution(id)),
            None => scratch(&self.graph, id, self.multiprocessors),
        }
    }

    fn in_place(&self, id: usize) -> Option<usize> {
        let entry = &self.graph.entries[id];
        let Op::Expression(op) = &entry.op else { return None };
        let owner = |input: usize| owner(&self.graph, entry.inputs[input]);
        let input = expression::in_place(op, |a, b| owner(a) == owner(b))?;
        (self.scalar(entry.inputs[input]) == self.scalars[id][0]).then_some(input)
    }

    fn unshared_bytes(&self) -> usize {
        UNSHARED
    }
}

/// The value whose memory a value shares.
fn owner(graph: &Graph, mut node: Node) -> Node {
    while let Op::Reshape(_) = graph.entry(node).op {
        node = graph.entry(node).inputs[0];
    }
    node
}

fn is_leaf(op: &Op) -> bool {
    matches!(op, Op::Tensor(_) | Op::Constant(_))
}

/// Whether an operation takes an input in bf16 only, in a program of that precision.
fn takes_half(op: &Op, input: usize, output: Scalar) -> bool {
    match op {
        Op::MatMul(_) => input < 2 || output == Scalar::Half,
        Op::Conv(_) | Op::ConvInput(_) | Op::ConvWeight(_) | Op::Attention(_) => true,
        Op::AttentionBackward(_) => input != 2,
        _ => false,
    }
}

/// The graph with values that are stored in single precision rounded before products read them. Leaves are not
/// touched: they are rounded together when a run starts.
fn with_rounding(graph: Graph, outputs: Vec<Node>) -> (Graph, Vec<Node>) {
    let scalars = scalar::assign(&graph, &outputs, Precision::Bf16);
    let mut rounded = Graph::new();
    let mut place: Vec<usize> = Vec::with_capacity(graph.entries.len());
    let mut copies: HashMap<Node, Node> = HashMap::new();
    let effects = graph.effects.clone();
    for (id, entry) in graph.entries.iter().enumerate() {
        let mut inputs = Vec::with_capacity(entry.inputs.len());
        for (index, &input) in entry.inputs.iter().enumerate() {
            let moved = Node::new(place[input.index()], input.output as usize);
            let output = scalars[id].first().copied().unwrap_or(Scalar::Single);
            let plain = is_leaf(&graph.entry(owner(&graph, input)).op);
            let single = scalars[input.index()][input.output as usize] == Scalar::Single;
            if !single || plain || !takes_half(&entry.op, index, output) {
                inputs.push(moved);
                continue;
            }
            let copy = *copies.entry(moved).or_insert_with(|| {
                let value = graph.value_type(input).clone();
                let length = value.shape.len();
                let view = View { offset: 0, strides: vec![1] };
                let op = Op::Expression(Expression {
                    shape: [length].into(),
                    views: vec![view],
                    code: vec![Instruction::Load(0)],
                });
                rounded.entries.push(Entry { op, inputs: vec![moved], outputs: vec![value] });
                Node::new(rounded.entries.len() - 1, 0)
            });
            inputs.push(copy);
        }
        place.push(rounded.entries.len());
        if effects.contains(&id) {
            rounded.effects.push(rounded.entries.len());
        }
        rounded.entries.push(Entry { op: entry.op.clone(), inputs, outputs: entry.outputs.clone() });
    }
    let outputs = outputs.iter().map(|node| Node::new(place[node.index()], node.output as usize)).collect();
    (rounded, outputs)
}

/// The lowered program before it meets a device: addresses are offsets from the bases given.
pub(super) struct Lowered {
    pub(super) lowering: Lowering,
    requested: Vec<(u64, Scalar, usize)>,
}

/// Where things lie on the device.
pub(super) struct Bases<'a> {
    pub(super) arena: u64,
    /// Address of each leaf.
    pub(super) leaves: &'a [u64],
    /// Address of the bf16 copy of each leaf that has one.
    pub(super) copies: &'a [Option<u64>],
}

/// Leaves that products read, in bf16 programs.
pub(super) fn copied_leaves(typed: &Typed) -> Vec<usize> {
    let mut copied = Vec::new();
    if typed.precision != Precision::Bf16 {
        return copied;
    }
    for (id, entry) in typed.graph.entries.iter().enumerate() {
        let output = typed.scalars[id].first().copied().unwrap_or(Scalar::Single);
        for (index, &input) in entry.inputs.iter().enumerate() {
            let leaf = owner(&typed.graph, input).index();
            if takes_half(&entry.op, index, output)
                && is_leaf(&typed.graph.entries[leaf].op)
                && !copied.contains(&leaf)
            {
                copied.push(leaf);
            }
        }
    }
    copied
}

/// Lowers all steps of a plan.
pub(super) fn lower_all(typed: &Typed, plan: &Plan, bases: &Bases<'_>, probe: Option<Probe>) -> Lowered {
    let graph = &typed.graph;
    let mut lowering = Lowering::new(typed.precision, typed.multiprocessors, probe);
    let value = |node: Node, half: bool| {
        let (count, mut scalar) = (graph.shape(node).len(), typed.scalar(node));
        let address = match plan.places[node.index()][node.output as usize] {
            Place::Arena(offset) => bases.arena + offset as u64,
            Place::Leaf(leaf) => match bases.copies[leaf].filter(|_| half) {
                Some(copy) => {
                    scalar = Scalar::Half;
                    copy
                }
                None => bases.leaves[leaf],
            },
        };
        Value { address, scalar, count }
    };
    let copies: Vec<(u64, u64, usize)> = (0..graph.entries.len())
        .filter_map(|leaf| {
            let count = graph.entries[leaf].outputs.first()?.shape.len();
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
    for (place, &id) in plan.steps.iter().enumerate() {
        let entry = &graph.entries[id];
        let output = typed.scalars[id].first().copied().unwrap_or(Scalar::Single);
        let io = Io {
            inputs: entry
                .inputs
                .iter()
                .enumerate()
                .map(|(index, &node)| value(node, takes_half(&entry.op, index, output)))
                .collect(),
            outputs: (0..entry.outputs.len()).map(|output| value(Node::new(id, output), false)).collect(),
            scratch: bases.arena + plan.scratch[id].0 as u64,
        };
        let effect = graph.effects.contains(&id);
        lowering.begin(entry.op.operation().name(), effect, access(&io, plan.scratch[id].1, effect));
        if let (Op::Advance(_), Some(before)) = (&entry.op, place.checked_sub(1)) {
            let before = &graph.entries[plan.steps[before]];
            if matches!(before.op, Op::Adam(_)) && before.inputs[0] == entry.inputs[0] {
                continue;
            }
        }
        let advances = plan.steps.get(place + 1).is_some_and(|&next| {
            let next = &graph.entries[next];
            matches!(next.op, Op::Advance(_)) && Some(&next.inputs[0]) == entry.inputs.first()
        });
        lower(graph, id, typed.convolution(id), advances, &io, &mut lowering);
    }
    let requested = typed
        .outputs
        .iter()
        .map(|&node| {
            let Value { address, scalar, count } = value(node, false);
            (address, scalar, count)
        })
        .collect();
    Lowered { lowering, requested }
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

/// A command with everything that its execution needs.
enum Ready {
    Launch { function: Function, grid: [u32; 3], threads: u32, shared: u32, arguments: Vec<u64> },
    Product(Box<Prepared>),
    Convolution(Box<conv::Prepared>),
}

/// A program on a GPU.
pub(crate) struct Executor {
    // Fields drop in this order: what uses memory and kernels before both.
    replay: Option<Replay>,
    commands: Vec<(String, bool, Ready)>,
    slots: Vec<Slot>,
    streams: Vec<Stream>,
    requested: Vec<(u64, Scalar, usize)>,
    memory: u64,
    _modules: Vec<Module>,
    _buffers: Vec<Allocation>,
    /// Tensors of the memory that the program was compiled for, kept alive.
    _tensors: Vec<Arc<Allocation>>,
    context: Arc<Context>,
}

impl std::fmt::Debug for Executor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Executor({} commands on {:?})", self.commands.len(), self.context)
    }
}

impl Executor {
    pub(crate) fn new(context: &Arc<Context>, typed: &Typed, plan: &Plan, memory: &Memory) -> Result<Self> {
        let graph = &typed.graph;
        let mut buffers = Vec::new();
        let mut tensors = Vec::new();
        let mut leaves = vec![0; graph.entries.len()];
        for (id, entry) in graph.entries.iter().enumerate() {
            match &entry.op {
                Op::Tensor(tensor) => {
                    let tensor = memory.device_tensor(&tensor.name, &entry.outputs[0])?;
                    leaves[id] = tensor.address();
                    tensors.push(tensor);
                }
                Op::Constant(constant) => {
                    let values: Vec<u8> =
                        constant.values.iter().flat_map(|&value| (value as f32).to_le_bytes()).collect();
                    let buffer = Allocation::zeroed(context, values.len())?;
                    buffer.write(&values)?;
                    leaves[id] = buffer.address();
                    buffers.push(buffer);
                }
                _ => {}
            }
        }
        let mut copies = vec![None; graph.entries.len()];
        for leaf in copied_leaves(typed) {
            let buffer = Allocation::zeroed(context, 2 * graph.entries[leaf].outputs[0].shape.len())?;
            copies[leaf] = Some(buffer.address());
            buffers.push(buffer);
        }
        let (available, _) = context.memory()?;
        let needed = (plan.arena_bytes() + STREAMS * matmul::WORKSPACE) as u64;
        if needed > available {
            return Err(EngineError::OutOfMemory { needed, available });
        }
        let arena = Allocation::zeroed(context, plan.arena_bytes())?;
        let side_by_side = if plan.arena_bytes() <= SPREAD { STREAMS } else { 1 };
        let workspace = Arc::new(Allocation::zeroed(context, side_by_side * matmul::WORKSPACE)?);
        let bases = Bases { arena: arena.address(), leaves: &leaves, copies: &copies };
        let probe = {
            let (context, workspace) = (Arc::clone(context), Arc::clone(&workspace));
            Probe(Box::new(move |product| Prepared::new(&context, *product, &workspace).is_ok()))
        };
        let Lowered { lowering, requested } = lower_all(typed, plan, &bases, Some(probe));
        let (units, places) = lowering.units(context.properties.architecture);
        let images: Vec<Vec<u8>> = units.par_iter().map(compile::image).collect::<Result<_>>()?;
        let modules: Vec<Module> =
            images.iter().map(|image| Module::load(context, image)).collect::<Result<_>>()?;
        let tables: Vec<Allocation> = lowering
            .tables
            .iter()
            .map(|table| {
                let buffer = Allocation::zeroed(context, table.len())?;
                buffer.write(table)?;
                Ok(buffer)
            })
            .collect::<Result<_>>()?;
        let tickets = Allocation::zeroed(context, 4 * lowering.tickets.max(1))?;
        let word = |argument: &Argument| match *argument {
            Argument::Word(word) => word,
            Argument::Table(table) => tables[table].address(),
            Argument::Tickets(first) => tickets.address() + 4 * first as u64,
        };
        let commands = lowering
            .commands
            .iter()
            .map(|Command { label, effect, work, .. }| {
                let ready = match work {
                    Work::Launch(launch) => {
                        let (unit, name) = &places[launch.kernel];
                        Ready::Launch {
                            function: modules[*unit].function(name, launch.shared)?,
                            grid: launch.grid,
                            threads: launch.threads,
                            shared: launch.shared,
                            arguments: launch.arguments.iter().map(word).collect(),
                        }
                    }
                    Work::Product(product) => {
                        let mut prepared = Prepared::new(context, *product, &workspace)?;
                        prepared.tune()?;
                        Ready::Product(Box::new(prepared))
                    }
                    Work::Convolution(call) => {
                        Ready::Convolution(Box::new(conv::Prepared::new(context, call)?))
                    }
                };
                Ok((label.clone(), *effect, ready))
            })
            .collect::<Result<_>>()?;
        matmul::save_tuned();
        let accesses: Vec<Access> = lowering.commands.iter().map(|command| command.access.clone()).collect();
        let slots = spread(&accesses, side_by_side);
        let streams = (1..side_by_side).map(|_| Stream::new(context)).collect::<Result<_>>()?;
        drop(lowering);
        buffers.push(arena);
        buffers.push(tickets);
        buffers.extend(tables);
        buffers.extend(Arc::into_inner(workspace));
        context.synchronize()?;
        Ok(Self {
            replay: None,
            commands,
            slots,
            streams,
            requested,
            memory: memory.identity(),
            _modules: modules,
            _buffers: buffers,
            _tensors: tensors,
            context: Arc::clone(context),
        })
    }

    /// Enqueues `times` runs. The first ever runs everything without effects once beforehand, so that libraries load
    /// what they need outside of the capture.
    pub(crate) fn run(&mut self, memory: &Memory, times: usize) -> Result<()> {
        if memory.identity() != self.memory {
            return Err(EngineError::DeviceUnavailable {
                name: format!("cuda:{}", self.context.ordinal),
                reason: "the program was compiled for the tensors of another memory".into(),
            });
        }
        self.context.enter()?;
        if self.replay.is_none() {
            for (_, effect, command) in &self.commands {
                if !effect {
                    self.enqueue(command, 0)?;
                }
            }
            self.context.synchronize()?;
            let replay = Replay::capture(&self.context, || self.enqueue_all())?;
            self.replay = Some(replay);
        }
        let replay = self.replay.as_ref().expect("captured above");
        (0..times).try_for_each(|_| replay.launch())
    }

    /// Enqueues everything on the streams that it was spread over, beginning and ending on the main one.
    fn enqueue_all(&self) -> Result<()> {
        let main = self.context.stream;
        let stream = |index: usize| if index == 0 { main } else { self.streams[index - 1].raw() };
        let begin = Event::record(&self.context, main)?;
        for other in &self.streams {
            begin.hold(other.raw())?;
        }
        let mut awaited = vec![false; self.commands.len()];
        for slot in &self.slots {
            slot.after.iter().for_each(|&command| awaited[command] = true);
        }
        let mut events: Vec<Option<Event>> = Vec::with_capacity(self.commands.len());
        for (id, (slot, (_, _, command))) in self.slots.iter().zip(&self.commands).enumerate() {
            for &earlier in &slot.after {
                events[earlier].as_ref().expect("recorded after its command").hold(stream(slot.stream))?;
            }
            self.enqueue(command, slot.stream)?;
            let event = awaited[id].then(|| Event::record(&self.context, stream(slot.stream))).transpose()?;
            events.push(event);
        }
        for other in &self.streams {
            Event::record(&self.context, other.raw())?.hold(main)?;
        }
        Ok(())
    }

    fn enqueue(&self, command: &Ready, index: usize) -> Result<()> {
        let stream = if index == 0 { self.context.stream } else { self.streams[index - 1].raw() };
        match command {
            Ready::Launch { function, grid, threads, shared, arguments } => {
                function.launch(stream, *grid, *threads, *shared, arguments)
            }
            Ready::Product(product) => product.run(stream, index),
            Ready::Convolution(convolution) => convolution.run(stream),
        }
    }

    /// Milliseconds of each command, alone on the device: `(label, milliseconds)`. Effects are left out.
    pub(crate) fn profile(&self) -> Result<Vec<(String, f32)>> {
        self.context.enter()?;
        let mut times = Vec::new();
        for (label, effect, command) in &self.commands {
            if !effect {
                self.enqueue(command, 0)?;
                let repeats = 5;
                let spent = self.context.time(|| (0..repeats).try_for_each(|_| self.enqueue(command, 0)))?;
                times.push((label.clone(), spent / repeats as f32));
            }
        }
        Ok(times)
    }

    /// Waits until all runs are done.
    pub(crate) fn synchronize(&self) -> Result<()> {
        self.context.synchronize()
    }

    /// Values of a requested output, when the runs before are done.
    pub(crate) fn output(&self, index: usize) -> Result<Vec<f64>> {
        let (address, scalar, count) = self.requested[index];
        let mut bytes = vec![0; count * scalar.bytes()];
        self.context.copy_to_host(address, &mut bytes)?;
        Ok(numbers(&bytes, scalar))
    }
}

/// Elements as double-precision numbers.
pub(crate) fn numbers(bytes: &[u8], scalar: Scalar) -> Vec<f64> {
    fn words<const N: usize>(bytes: &[u8]) -> impl Iterator<Item = [u8; N]> {
        bytes.chunks_exact(N).map(|word| word.try_into().expect("chunks have that length"))
    }
    match scalar {
        Scalar::Half => words::<2>(bytes)
            .map(|word| f64::from(f32::from_bits(u32::from(u16::from_le_bytes(word)) << 16)))
            .collect(),
        Scalar::Single => words::<4>(bytes).map(|word| f64::from(f32::from_le_bytes(word))).collect(),
        Scalar::Double => words::<8>(bytes).map(f64::from_le_bytes).collect(),
        Scalar::Index => words::<4>(bytes).map(|word| f64::from(u32::from_le_bytes(word))).collect(),
    }
}

/// How memory stores a tensor: never in bf16.
pub(crate) fn stored(value: &Type) -> Scalar {
    match value.element {
        Element::Real => Scalar::Single,
        Element::Double => Scalar::Double,
        Element::Index => Scalar::Index,
    }
}
