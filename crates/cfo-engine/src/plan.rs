//! The plan: what runs in which order, and where each value lies in one arena, before anything runs.

use std::fmt;

use crate::graph::{Graph, Node};
use crate::ops::Op;
use crate::shape::Element;

/// Every buffer starts at a multiple of this many bytes.
pub(crate) const ALIGNMENT: usize = 256;

/// Where a value lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// At a byte offset of the arena.
    Arena(usize),
    /// In the tensor or constant of this leaf operation.
    Leaf(usize),
}

/// The order of execution, the place of every value and the size of the arena.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Operations in order; leaves and reshapes take no step.
    pub(crate) steps: Vec<usize>,
    /// `places[operation][output]`.
    pub(crate) places: Vec<Vec<Place>>,
    /// Offset of each operation's scratch memory, `(offset, bytes)`.
    pub(crate) scratch: Vec<(usize, usize)>,
    arena_bytes: usize,
    live_bytes: usize,
}

/// What a backend says of an operation to the planner.
pub(crate) trait Sizes {
    /// Bytes of one element of a value.
    fn element_bytes(&self, node: Node, element: Element) -> usize;
    /// Bytes of scratch memory that an operation needs while it runs.
    fn scratch_bytes(&self, id: usize) -> usize;
    /// The input whose memory the first output may take over when nobody reads that input later.
    fn in_place(&self, id: usize) -> Option<usize>;
    /// Up to so many bytes in all no two buffers share memory, so that operations can run side by side.
    fn unshared_bytes(&self) -> usize;
}

/// One buffer: its size and the steps between which it must not be overwritten, both included.
#[derive(Clone, Debug)]
struct Buffer {
    bytes: usize,
    first: usize,
    last: usize,
}

impl Plan {
    /// Plans a fused graph.
    pub(crate) fn new(graph: &Graph, outputs: &[Node], sizes: &dyn Sizes) -> Self {
        let steps = order(graph);
        let mut step_of = vec![usize::MAX; graph.entries.len()];
        for (step, &id) in steps.iter().enumerate() {
            step_of[id] = step;
        }
        let owner = |mut node: Node| {
            while let Op::Reshape(_) = graph.entry(node).op {
                node = graph.entry(node).inputs[0];
            }
            node
        };
        let last_read = last_reads(graph, outputs, &steps, &owner);
        let mut buffers: Vec<Buffer> = Vec::new();
        let mut buffer_of: Vec<Vec<Option<usize>>> =
            graph.entries.iter().map(|e| vec![None; e.outputs.len()]).collect();
        let mut scratch_buffer = vec![None; graph.entries.len()];
        for (step, &id) in steps.iter().enumerate() {
            let taken = sizes.in_place(id).and_then(|input| {
                let source = owner(graph.entries[id].inputs[input]);
                // Another operand that reads the same memory in another order would find it overwritten.
                let readers = graph.entries[id].inputs.iter().filter(|&&other| owner(other) == source);
                if readers.count() > 1 {
                    return None;
                }
                let buffer = buffer_of[source.index()][source.output as usize]?;
                (last_read[source.index()][source.output as usize] == step && buffers[buffer].last == step)
                    .then_some(buffer)
            });
            for (output, value) in graph.entries[id].outputs.iter().enumerate() {
                let node = Node::new(id, output);
                let last = last_read[id][output].max(step);
                let bytes = value.shape.len() * sizes.element_bytes(node, value.element);
                buffer_of[id][output] = Some(match taken {
                    Some(buffer) if output == 0 && buffers[buffer].bytes >= bytes => {
                        buffers[buffer].last = last;
                        buffer
                    }
                    _ => {
                        buffers.push(Buffer { bytes, first: step, last });
                        buffers.len() - 1
                    }
                });
            }
            let bytes = sizes.scratch_bytes(id);
            if bytes > 0 {
                scratch_buffer[id] = Some(buffers.len());
                buffers.push(Buffer { bytes, first: step, last: step });
            }
        }
        let all: usize = buffers.iter().map(|buffer| padded(buffer.bytes)).sum();
        let (offsets, arena_bytes) =
            if all <= sizes.unshared_bytes() { line_up(&buffers) } else { assign(&buffers) };
        let live_bytes = (0..steps.len())
            .map(|step| {
                buffers.iter().filter(|b| b.first <= step && step <= b.last).map(|b| padded(b.bytes)).sum()
            })
            .max()
            .unwrap_or(0);
        let place = |node: Node| {
            let node = owner(node);
            match graph.entry(node).op {
                Op::Tensor(_) | Op::Constant(_) => Place::Leaf(node.index()),
                _ => Place::Arena(
                    buffer_of[node.index()][node.output as usize].map_or(0, |buffer| offsets[buffer]),
                ),
            }
        };
        let places = (0..graph.entries.len())
            .map(|id| {
                (0..graph.entries[id].outputs.len()).map(|output| place(Node::new(id, output))).collect()
            })
            .collect();
        let scratch = (0..graph.entries.len())
            .map(|id| {
                scratch_buffer[id].map_or((0, 0), |buffer: usize| (offsets[buffer], buffers[buffer].bytes))
            })
            .collect();
        Self { steps, places, scratch, arena_bytes, live_bytes }
    }

    /// Bytes of the arena that holds every intermediate value.
    pub fn arena_bytes(&self) -> usize {
        self.arena_bytes
    }

    /// Bytes alive at once at the worst moment: no plan in this order can be smaller.
    pub fn live_bytes(&self) -> usize {
        self.live_bytes
    }

    /// Operations that a run executes.
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

/// Everything but leaves and reshapes in the order it was added, effects last.
fn order(graph: &Graph) -> Vec<usize> {
    let runs =
        |id: &usize| !matches!(graph.entries[*id].op, Op::Tensor(_) | Op::Constant(_) | Op::Reshape(_));
    let plain = (0..graph.entries.len()).filter(|id| !graph.effects.contains(id));
    plain.chain(graph.effects.iter().copied()).filter(runs).collect()
}

/// The last step that reads each value; requested values are read after the end.
fn last_reads(
    graph: &Graph,
    outputs: &[Node],
    steps: &[usize],
    owner: &dyn Fn(Node) -> Node,
) -> Vec<Vec<usize>> {
    let mut last: Vec<Vec<usize>> = graph.entries.iter().map(|entry| vec![0; entry.outputs.len()]).collect();
    for (step, &id) in steps.iter().enumerate() {
        for &input in &graph.entries[id].inputs {
            let node = owner(input);
            last[node.index()][node.output as usize] = step;
        }
    }
    for &output in outputs {
        let node = owner(output);
        last[node.index()][node.output as usize] = steps.len();
    }
    last
}

fn padded(bytes: usize) -> usize {
    bytes.next_multiple_of(ALIGNMENT)
}

/// Offsets for all buffers one after another.
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

/// Offsets for all buffers, largest first, each in the tightest gap that is free during its life.
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
