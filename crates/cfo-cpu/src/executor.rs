//! Execution of planned graphs on all cores.

use cfo_engine::backend::{BufferPlace, Executable, PlannedSteps, StepKind};
use cfo_engine::ops::{Op, Operand};
use cfo_engine::{Element, EngineError, Graph, Memory, Node, Plan, Precision, Result, Type};

use crate::all_reduce::Reduction;
use crate::backend::host;
use crate::buffer::{Buffer, Io, Region};
use crate::kernel::{run, scratch};
use crate::room::available_memory;
use crate::{expression, thread_team};

/// Properties of a graph's operations for the planner.
pub(crate) struct Sizing<'a> {
    pub(crate) graph: &'a Graph,
    pub(crate) outputs: &'a [Node],
    pub(crate) memory: &'a Memory,
}

impl PlannedSteps for Sizing<'_> {
    fn count(&self) -> usize {
        self.graph.entries().len()
    }

    fn inputs(&self, id: usize) -> &[Node] {
        &self.graph.entries()[id].inputs
    }

    fn outputs(&self, id: usize) -> &[Type] {
        &self.graph.entries()[id].outputs
    }

    fn kind(&self, id: usize) -> StepKind {
        match &self.graph.entries()[id].op {
            Op::Tensor(_) | Op::Constant(_) => StepKind::Leaf,
            Op::Reshape(_) => StepKind::View,
            _ => StepKind::Work,
        }
    }

    fn effects(&self) -> &[usize] {
        self.graph.effects()
    }

    fn requested(&self) -> &[Node] {
        self.outputs
    }

    fn element_bytes(&self, _: Node, element: Element) -> usize {
        self.memory.element_bytes(element)
    }

    fn scratch_bytes(&self, id: usize) -> usize {
        scratch(self.graph, id) * self.memory.element_bytes(Element::Real)
    }

    fn in_place(&self, id: usize) -> Option<usize> {
        match &self.graph.entries()[id].op {
            Op::Expression(expression) => expression::in_place(expression),
            // With shards the message has more than one value for each output.
            Op::AllReduce(op) => op.shards.is_none().then_some(0),
            _ => None,
        }
    }

    fn unshared_bytes(&self) -> usize {
        0
    }
}

#[derive(Clone, Copy, Debug)]
enum Source {
    Arena { offset: usize, bytes: usize },
    Tensor(usize),
    Constant(usize),
}

#[derive(Debug)]
struct Step {
    id: usize,
    inputs: std::ops::Range<usize>,
    outputs: std::ops::Range<usize>,
    scratch: (usize, usize),
    /// The scratch memory in the current run.
    room: Region,
}

#[derive(Debug)]
pub(crate) struct CpuExecutor {
    graph: Graph,
    steps: Vec<Step>,
    sources: Vec<Source>,
    regions: Vec<Region>,
    requested: Vec<(Source, Type)>,
    arena: Buffer,
    constants: Vec<Buffer>,
    precision: Precision,
    reductions: Vec<Reduction>,
}

impl CpuExecutor {
    pub(crate) fn new(graph: Graph, plan: &Plan, outputs: &[Node], memory: &Memory) -> Result<Self> {
        check_fits(plan.arena_bytes() as u64)?;
        let reductions = Reduction::all(&Sizing { graph: &graph, outputs, memory }, plan, memory);
        let mut constants = Vec::new();
        let mut leaves = vec![None; graph.entries().len()];
        for (id, entry) in graph.entries().iter().enumerate() {
            match &entry.op {
                Op::Tensor(tensor) => {
                    leaves[id] = Some(Source::Tensor(memory.bind(&tensor.name, &entry.outputs[0])?))
                }
                Op::Constant(constant) => {
                    leaves[id] = Some(Source::Constant(constants.len()));
                    constants.push(constant_buffer(&constant.values, memory.precision()));
                }
                _ => {}
            }
        }
        let source = |node: Node| match plan.place(node) {
            BufferPlace::Leaf(id) => leaves[id].expect("every leaf has a source"),
            BufferPlace::Arena(offset) => {
                let value = graph.value_type(node);
                Source::Arena { offset, bytes: value.shape.len() * memory.element_bytes(value.element) }
            }
        };
        let (mut steps, mut sources) = (Vec::with_capacity(plan.steps().len()), Vec::new());
        for &id in plan.steps() {
            let start = sources.len();
            sources.extend(graph.entries()[id].inputs.iter().map(|&node| source(node)));
            let middle = sources.len();
            sources
                .extend((0..graph.entries()[id].outputs.len()).map(|output| source(Node::new(id, output))));
            let end = sources.len();
            let (scratch, room) = (plan.scratch(id), Region::default());
            steps.push(Step { id, inputs: start..middle, outputs: middle..end, scratch, room });
        }
        let requested = outputs.iter().map(|&node| (source(node), graph.value_type(node).clone())).collect();
        let regions = vec![Region::default(); sources.len()];
        let arena = Buffer::zeroed(plan.arena_bytes());
        let precision = memory.precision();
        Ok(Self { graph, steps, sources, regions, requested, arena, constants, precision, reductions })
    }

    fn label(&self, id: usize) -> String {
        let entry = &self.graph.entries()[id];
        let mut label = entry.op.to_string();
        if let Op::MatMul(product) = &entry.op {
            let side = |operand: Operand| if operand.column == 1 { "straight" } else { "transposed" };
            let sides = [product.a, product.b, product.c].map(side).join(", ");
            label = format!("{label} ({sides})");
        }
        match entry.outputs.first() {
            Some(output) => format!("{label} : {output}"),
            None => label,
        }
    }

    /// Determines the position of every value for the next run.
    fn locate(&mut self, memory: &mut Memory) {
        for (region, source) in self.regions.iter_mut().zip(&self.sources) {
            *region = match *source {
                Source::Arena { offset, bytes } => self.arena.region(offset, bytes),
                Source::Tensor(index) => whole(host(memory.storage_mut(index))),
                Source::Constant(index) => whole(&mut self.constants[index]),
            };
        }
        for step in &mut self.steps {
            step.room = self.arena.region(step.scratch.0, step.scratch.1);
        }
    }

    fn io(&self, step: &Step) -> Io<'_> {
        Io {
            inputs: &self.regions[step.inputs.clone()],
            outputs: &self.regions[step.outputs.clone()],
            scratch: step.room,
        }
    }

    fn step(&self, step: &Step) {
        let io = self.io(step);
        match self.precision {
            Precision::F64 => run::<f64>(&self.graph, step.id, &io),
            _ => run::<f32>(&self.graph, step.id, &io),
        }
    }

    /// One run; sums over ranks are computed concurrently with the steps.
    fn run_with(&self, reductions: &mut [Reduction]) {
        for (position, step) in self.steps.iter().enumerate() {
            match reductions.iter_mut().find(|reduction| reduction.position == position) {
                Some(reduction) => reduction.finish(&self.io(step)),
                None => self.step(step),
            }
            for reduction in reductions.iter_mut().filter(|reduction| reduction.after == Some(position)) {
                reduction.start(&self.io(&self.steps[reduction.position]));
            }
        }
    }
}

impl Executable for CpuExecutor {
    fn run(&mut self, memory: &mut Memory, times: usize) -> Result<()> {
        for _ in 0..times {
            self.locate(memory);
            let mut reductions = std::mem::take(&mut self.reductions);
            let executor = &*self;
            thread_team::lead(|| match reductions.is_empty() {
                true => executor.steps.iter().for_each(|step| executor.step(step)),
                false => executor.run_with(&mut reductions),
            });
            self.reductions = reductions;
        }
        Ok(())
    }

    fn wait(&self) -> Result<()> {
        Ok(())
    }

    /// One run with timing: the description of each step and its milliseconds.
    fn profile(&mut self, memory: &mut Memory) -> Result<Vec<(String, f32)>> {
        self.locate(memory);
        let executor = &*self;
        Ok(thread_team::lead(|| {
            let time = |step: &Step| {
                let started = std::time::Instant::now();
                executor.step(step);
                (executor.label(step.id), 1e3 * started.elapsed().as_secs_f32())
            };
            executor.steps.iter().map(time).collect()
        }))
    }

    fn output(&self, index: usize) -> Result<Vec<f64>> {
        let (source, value) = &self.requested[index];
        let double = value.element == Element::Double || self.precision == Precision::F64;
        let (buffer, offset) = match *source {
            Source::Arena { offset, .. } => (&self.arena, offset),
            Source::Constant(_) | Source::Tensor(_) => {
                unreachable!("requested leaves are copied into the arena")
            }
        };
        let count = value.shape.len();
        Ok(match double {
            true => buffer.as_slice::<f64>()[offset / 8..][..count].to_vec(),
            false => buffer.as_slice::<f32>()[offset / 4..][..count]
                .iter()
                .map(|&value| f64::from(value))
                .collect(),
        })
    }

    fn bytes(&self) -> usize {
        self.arena.len()
    }
}

/// Checks that this process can allocate `needed` bytes. Succeeds if the system does not report the available memory.
pub(crate) fn check_fits(needed: u64) -> Result<()> {
    match available_memory() {
        Some(available) if needed > available => Err(EngineError::OutOfMemory { needed, available }),
        _ => Ok(()),
    }
}

fn whole(buffer: &mut Buffer) -> Region {
    let bytes = buffer.len();
    buffer.region(0, bytes)
}

fn constant_buffer(values: &[f64], precision: Precision) -> Buffer {
    match precision {
        Precision::F64 => {
            let mut buffer = Buffer::zeroed(values.len() * 8);
            buffer.as_mut_slice::<f64>().copy_from_slice(values);
            buffer
        }
        _ => {
            let mut buffer = Buffer::zeroed(values.len() * 4);
            for (to, &from) in buffer.as_mut_slice::<f32>().iter_mut().zip(values) {
                *to = from as f32;
            }
            buffer
        }
    }
}
