//! Sums over all ranks: started as soon as their values are computed, awaited where they are read.
//!
//! When the last value of a message has been computed, all are copied into it, and the communication thread sums it
//! while later steps run. The sums of the last layers' gradients thus overlap with the backward pass of the first.

use std::sync::Arc;

use cfo_engine::backend::PlannedSteps;
use cfo_engine::backend::StepKind;
use cfo_engine::ops::Op;
use cfo_engine::{Graph, Memory, Node, Plan, Precision};
use cfo_ranks::{Alone, Collective, Numbers, RankSum, Summing};

use crate::Io;
use crate::buffer::Plain;
use crate::executor::Sizing;
use crate::thread_team::chunks;

const TASK: usize = 1 << 16;

#[derive(Debug)]
pub(crate) struct Reduction {
    pub(crate) position: usize,
    /// The step after which all values are computed; `None` if they exist from the beginning.
    pub(crate) after: Option<usize>,
    order: RankSum,
    outputs: usize,
    /// The message, while it is not being summed.
    message: Option<Numbers>,
    pending: Option<Summing>,
    collective: Arc<dyn Collective>,
}

impl Reduction {
    /// The sums of a program that differ from the values themselves.
    pub(crate) fn all(sizing: &Sizing<'_>, plan: &Plan, memory: &Memory) -> Vec<Self> {
        let graph = sizing.graph;
        let position = |id: usize| plan.steps().iter().position(|&step| step == id);
        let found = plan.steps().iter().enumerate().filter_map(|(place, &id)| {
            let Op::AllReduce(op) = &graph.entries()[id].op else { return None };
            let collective = match (memory.collective(), op.shards) {
                (Some(collective), _) => Arc::clone(collective),
                (None, Some(_)) => Arc::new(Alone) as Arc<dyn Collective>,
                (None, None) => return None,
            };
            let ready = |&node: &Node| {
                let owner = sizing.owner(node);
                (sizing.kind(owner.index()) == StepKind::Work).then(|| position(owner.index())).flatten()
            };
            let inputs = &graph.entries()[id].inputs;
            Some(Self {
                position: place,
                after: inputs.iter().filter_map(ready).max(),
                order: op.shards.map_or(RankSum::Any, RankSum::Tree),
                outputs: inputs.len() / op.groups(),
                message: Some(message(graph, inputs, memory.precision())),
                pending: None,
                collective,
            })
        });
        found.collect()
    }

    pub(crate) fn start(&mut self, io: &Io<'_>) {
        let mut message = self.message.take().expect("a sum is started once a run");
        match &mut message {
            Numbers::F32(values) => collect(io, values),
            Numbers::F64(values) => collect(io, values),
        }
        self.pending = Some(self.collective.start_sum(message, self.order));
    }

    /// Waits for the sums and writes them to the outputs.
    pub(crate) fn finish(&mut self, io: &Io<'_>) {
        if self.pending.is_none() {
            self.start(io);
        }
        let message = self.pending.take().expect("it was started").wait();
        match &message {
            Numbers::F32(values) => distribute(values, self.outputs, io),
            Numbers::F64(values) => distribute(values, self.outputs, io),
        }
        self.message = Some(message);
    }
}

fn message(graph: &Graph, values: &[Node], precision: Precision) -> Numbers {
    let count = values.iter().map(|&value| graph.value_type(value).shape.len()).sum();
    match precision {
        Precision::F64 => Numbers::F64(vec![0.0; count]),
        _ => Numbers::F32(vec![0.0; count]),
    }
}

fn collect<T: Plain>(io: &Io<'_>, message: &mut [T]) {
    (0..io.inputs.len()).fold(0, |at, input| copy(&mut message[at..], io.input(input)) + at);
}

fn distribute<T: Plain>(message: &[T], outputs: usize, io: &Io<'_>) {
    (0..outputs).fold(message, |rest, output| {
        let to = io.output::<T>(output);
        let (from, rest) = rest.split_at(to.len());
        copy(to, from);
        rest
    });
}

/// Copies all of `from` to the beginning of `to`; returns the number of elements.
fn copy<T: Copy + Send + Sync>(to: &mut [T], from: &[T]) -> usize {
    chunks(&mut to[..from.len()], TASK, |task, part| {
        part.copy_from_slice(&from[task * TASK..][..part.len()]);
    });
    from.len()
}
