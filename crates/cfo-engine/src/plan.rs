//! Execution plans: the order of steps and the position of each value in one arena.

use std::fmt;

use crate::graph::Node;
use crate::shape::{Element, Type};

/// Alignment of every buffer, in bytes.
pub const ALIGNMENT: usize = 256;

/// Position of a value in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BufferPlace {
    /// At a byte offset of the arena.
    Arena(usize),
    /// In the tensor or constant of this leaf operation.
    Leaf(usize),
}

/// The order of execution, the place of every value and the size of the arena.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Operations in order, without leaves and reshapes.
    steps: Vec<usize>,
    /// `places[operation][output]`.
    places: Vec<Vec<BufferPlace>>,
    /// Offset of each operation's scratch memory, `(offset, bytes)`.
    scratch: Vec<(usize, usize)>,
    arena_bytes: usize,
    live_bytes: usize,
}

/// Kind of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StepKind {
    /// A tensor or a constant, with memory of its own.
    Leaf,
    /// A view of its input's memory with another shape.
    View,
    /// A step that is executed.
    Work,
}

/// Properties of a backend's program that the planner uses.
pub trait PlannedSteps {
    /// Number of steps, leaves and views included.
    fn count(&self) -> usize;
    /// Values that a step reads; earlier steps produce them.
    fn inputs(&self, id: usize) -> &[Node];
    /// Types of the values that a step produces.
    fn outputs(&self, id: usize) -> &[Type];
    /// Kind of a step.
    fn kind(&self, id: usize) -> StepKind;
    /// Steps that run after all others, in order.
    fn effects(&self) -> &[usize];
    /// Values that are read after a run.
    fn requested(&self) -> &[Node];
    /// Bytes of one element of a value.
    fn element_bytes(&self, node: Node, element: Element) -> usize;
    /// Bytes of scratch memory that a step needs while it runs.
    fn scratch_bytes(&self, id: usize) -> usize;
    /// The input whose memory the first output may reuse if no later step reads that input.
    fn in_place(&self, id: usize) -> Option<usize>;
    /// Up to this total size in bytes, no two buffers share memory, so that steps can run concurrently.
    fn unshared_bytes(&self) -> usize;

    /// The value that owns a value's memory: the original of a reshaped value, otherwise the value itself.
    fn owner(&self, node: Node) -> Node {
        node.owner(|node| (self.kind(node.index()) == StepKind::View).then(|| self.inputs(node.index())[0]))
    }
}

/// A buffer: its size and the first and last step between which it must not be overwritten.
#[derive(Clone, Debug)]
struct Buffer {
    bytes: usize,
    first: usize,
    last: usize,
}

impl Plan {
    /// Plans a program.
    pub fn new(program: &dyn PlannedSteps) -> Self {
        let steps = order(program);
        let mut layout = Layout::new(program, &steps);
        for (step, &id) in steps.iter().enumerate() {
            layout.place(step, id);
        }
        let Layout { buffers, buffer_of, scratch_buffer, .. } = layout;
        let all: usize = buffers.iter().map(|buffer| padded(buffer.bytes)).sum();
        let (offsets, arena_bytes) =
            if all <= program.unshared_bytes() { line_up(&buffers) } else { assign(&buffers) };
        let live_bytes = (0..steps.len())
            .map(|step| {
                buffers.iter().filter(|b| b.first <= step && step <= b.last).map(|b| padded(b.bytes)).sum()
            })
            .max()
            .unwrap_or(0);
        let place = |node: Node| {
            let node = program.owner(node);
            match program.kind(node.index()) {
                StepKind::Leaf => BufferPlace::Leaf(node.index()),
                _ => BufferPlace::Arena(
                    buffer_of[node.index()][node.output()].map_or(0, |buffer| offsets[buffer]),
                ),
            }
        };
        let places = (0..program.count())
            .map(|id| (0..program.outputs(id).len()).map(|output| place(Node::new(id, output))).collect())
            .collect();
        let scratch = scratch_buffer
            .iter()
            .map(|buffer| buffer.map_or((0, 0), |buffer: usize| (offsets[buffer], buffers[buffer].bytes)))
            .collect();
        Self { steps, places, scratch, arena_bytes, live_bytes }
    }

    /// Operations in order, without leaves and reshapes.
    pub fn steps(&self) -> &[usize] {
        &self.steps
    }

    /// Position of a value in memory.
    pub fn place(&self, node: Node) -> BufferPlace {
        self.places[node.index()][node.output()]
    }

    /// Offset and bytes of an operation's scratch memory.
    pub fn scratch(&self, id: usize) -> (usize, usize) {
        self.scratch[id]
    }

    /// Bytes of the arena that holds every intermediate value.
    pub fn arena_bytes(&self) -> usize {
        self.arena_bytes
    }

    /// Largest number of bytes alive at once: a lower bound for plans with this order.
    pub fn live_bytes(&self) -> usize {
        self.live_bytes
    }

    /// Number of operations that a run executes.
    pub fn len(&self) -> usize {
        self.steps.len()
    }

    /// Whether a run executes nothing.
    pub fn is_empty(&self) -> bool {
        self.steps.is_empty()
    }
}

impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mebibytes = |bytes: usize| bytes as f64 / (1u64 << 20) as f64;
        write!(
            f,
            "{} operations, {:.1} MiB of memory ({:.1} MiB alive at once)",
            self.len(),
            mebibytes(self.arena_bytes),
            mebibytes(self.live_bytes)
        )
    }
}

/// Assigns values to buffers, step by step.
struct Layout<'a> {
    program: &'a dyn PlannedSteps,
    last_read: Vec<Vec<usize>>,
    buffers: Vec<Buffer>,
    buffer_of: Vec<Vec<Option<usize>>>,
    scratch_buffer: Vec<Option<usize>>,
}

impl<'a> Layout<'a> {
    fn new(program: &'a dyn PlannedSteps, steps: &[usize]) -> Self {
        let count = program.count();
        Self {
            program,
            last_read: last_reads(program, steps),
            buffers: Vec::new(),
            buffer_of: (0..count).map(|id| vec![None; program.outputs(id).len()]).collect(),
            scratch_buffer: vec![None; count],
        }
    }

    /// The buffer that a step's first output may reuse.
    fn taken(&self, step: usize, id: usize) -> Option<usize> {
        let input = self.program.in_place(id)?;
        let inputs = self.program.inputs(id);
        let source = self.program.owner(inputs[input]);
        // Another operand that reads the same memory in another order would read overwritten values.
        let readers = inputs.iter().filter(|&&other| self.program.owner(other) == source);
        if readers.count() > 1 {
            return None;
        }
        let buffer = self.buffer_of[source.index()][source.output()]?;
        let last = self.last_read[source.index()][source.output()];
        (last == step && self.buffers[buffer].last == step).then_some(buffer)
    }

    /// Adds buffers for a step's outputs and for its scratch memory.
    fn place(&mut self, step: usize, id: usize) {
        let taken = self.taken(step, id);
        for (output, value) in self.program.outputs(id).iter().enumerate() {
            let node = Node::new(id, output);
            let last = self.last_read[id][output].max(step);
            let bytes = value.shape.len() * self.program.element_bytes(node, value.element);
            self.buffer_of[id][output] = Some(match taken {
                Some(buffer) if output == 0 && self.buffers[buffer].bytes >= bytes => {
                    self.buffers[buffer].last = last;
                    buffer
                }
                _ => {
                    self.buffers.push(Buffer { bytes, first: step, last });
                    self.buffers.len() - 1
                }
            });
        }
        let bytes = self.program.scratch_bytes(id);
        if bytes > 0 {
            self.scratch_buffer[id] = Some(self.buffers.len());
            self.buffers.push(Buffer { bytes, first: step, last: step });
        }
    }
}

/// All steps in the order in which they were added, effects last.
fn order(program: &dyn PlannedSteps) -> Vec<usize> {
    let plain = (0..program.count()).filter(|id| !program.effects().contains(id));
    let all = plain.chain(program.effects().iter().copied());
    all.filter(|&id| program.kind(id) == StepKind::Work).collect()
}

/// The last step that reads each value; requested values are read after the end.
fn last_reads(program: &dyn PlannedSteps, steps: &[usize]) -> Vec<Vec<usize>> {
    let mut last: Vec<Vec<usize>> =
        (0..program.count()).map(|id| vec![0; program.outputs(id).len()]).collect();
    for (step, &id) in steps.iter().enumerate() {
        for &input in program.inputs(id) {
            let node = program.owner(input);
            last[node.index()][node.output()] = step;
        }
    }
    for &output in program.requested() {
        let node = program.owner(output);
        last[node.index()][node.output()] = steps.len();
    }
    last
}

fn padded(bytes: usize) -> usize {
    bytes.next_multiple_of(ALIGNMENT)
}

/// Offsets of buffers that share no memory.
fn line_up(buffers: &[Buffer]) -> (Vec<usize>, usize) {
    let mut total = 0;
    let offsets = buffers
        .iter()
        .map(|buffer| {
            let offset = total;
            total += padded(buffer.bytes);
            offset
        })
        .collect();
    (offsets, total)
}

/// Offsets of buffers: largest first, each in the tightest gap that is free during its lifetime.
fn assign(buffers: &[Buffer]) -> (Vec<usize>, usize) {
    let mut by_size: Vec<usize> = (0..buffers.len()).collect();
    by_size.sort_by_key(|&buffer| (std::cmp::Reverse(buffers[buffer].bytes), buffers[buffer].first));
    let mut offsets = vec![0usize; buffers.len()];
    let mut placed: Vec<usize> = Vec::new();
    let mut total = 0usize;
    for buffer in by_size {
        let Buffer { bytes, first, last } = buffers[buffer];
        let size = padded(bytes);
        let mut start = 0usize;
        let mut best: Option<(usize, usize)> = None;
        for &other in
            placed.iter().filter(|&&other| buffers[other].first <= last && first <= buffers[other].last)
        {
            let gap = offsets[other].saturating_sub(start);
            if offsets[other] > start && gap >= size && best.is_none_or(|(width, _)| gap < width) {
                best = Some((gap, start));
            }
            start = start.max(offsets[other] + padded(buffers[other].bytes));
        }
        offsets[buffer] = best.map_or(start, |(_, offset)| offset);
        total = total.max(offsets[buffer] + size);
        let position = placed.partition_point(|&other| offsets[other] <= offsets[buffer]);
        placed.insert(position, buffer);
    }
    (offsets, total)
}
