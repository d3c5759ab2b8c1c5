//! Execution of planned graphs on a GPU: lowered once, captured on the first run, replayed afterwards.

use std::sync::Arc;

use rayon::prelude::*;

use crate::backend::device_tensor;
use crate::convolution::{cudnn, cudnn_plan};
use crate::product::cublas::{self, PreparedProduct};
use crate::product::matmul::Product;
use crate::program::launch::Launch;
use crate::program::lowered::{Bases, Lowered, copied_leaves, lower_all};
use crate::program::lowering::{GpuCommand, Probe};
use crate::program::scalar::f16_to_f64;
use crate::program::schedule::{Access, Slot, spread};
use crate::program::typed::Typed;
use crate::program::{Argument, GpuWork, Instruction, Scalar};
use crate::runtime::compile;
use crate::runtime::driver::{Allocation, CudaContext, quiet};
use crate::runtime::replay::{Event, KernelFunction, Module, Replay, Stream};
use crate::runtime::sums::{PreparedSums, Way};
use cfo_engine::backend::Executable;
use cfo_engine::{EngineError, Memory, Plan, Result};

/// Number of streams for the commands of small programs, and the maximum size of such programs.
const STREAMS: usize = 4;
const SPREAD: usize = 256 << 20;

/// A command with all data for its execution.
enum Ready {
    Launch { function: KernelFunction, grid: [u32; 3], threads: u32, shared: u32, arguments: Vec<u64> },
    Product(Box<PreparedProduct>),
    Convolution(Box<cudnn::PreparedConvolution>),
    Planned(Box<cudnn_plan::PreparedPlan>),
    Sums(PreparedSums),
}

struct Leaves {
    addresses: Vec<u64>,
    /// Address of the bf16 copy of each leaf that has one.
    copies: Vec<Option<u64>>,
    buffers: Vec<Allocation>,
    tensors: Vec<Arc<Allocation>>,
}

impl Leaves {
    fn new(context: &Arc<CudaContext>, typed: &Typed, memory: &Memory) -> Result<Self> {
        let entries = &typed.code.entries;
        let (mut buffers, mut tensors) = (Vec::new(), Vec::new());
        let mut addresses = vec![0; entries.len()];
        for (id, entry) in entries.iter().enumerate() {
            match &entry.op {
                Instruction::Tensor(tensor) => {
                    let tensor = device_tensor(memory, &tensor.name, &entry.outputs[0])?;
                    addresses[id] = tensor.address();
                    tensors.push(tensor);
                }
                Instruction::Constant(constant) => {
                    let values: Vec<u8> =
                        constant.values.iter().flat_map(|&value| (value as f32).to_le_bytes()).collect();
                    let buffer = uploaded(context, &values)?;
                    addresses[id] = buffer.address();
                    buffers.push(buffer);
                }
                _ => {}
            }
        }
        let mut copies = vec![None; entries.len()];
        for leaf in copied_leaves(typed) {
            let buffer = Allocation::zeroed(context, 2 * entries[leaf].outputs[0].shape.len())?;
            copies[leaf] = Some(buffer.address());
            buffers.push(buffer);
        }
        Ok(Self { addresses, copies, buffers, tensors })
    }
}

fn uploaded(context: &Arc<CudaContext>, bytes: &[u8]) -> Result<Allocation> {
    let buffer = Allocation::zeroed(context, bytes.len())?;
    buffer.write(bytes)?;
    Ok(buffer)
}

/// Refuses a plan for which the device has too little free memory.
fn require_memory(context: &CudaContext, plan: &Plan) -> Result<()> {
    let (available, _) = context.memory()?;
    let needed = (plan.arena_bytes() + STREAMS * cublas::WORKSPACE) as u64;
    if needed > available { Err(EngineError::OutOfMemory { needed, available }) } else { Ok(()) }
}

fn probe(context: &Arc<CudaContext>, workspace: &Arc<Allocation>, deterministic: bool) -> Probe {
    let (context, workspace) = (Arc::clone(context), Arc::clone(workspace));
    let prepare = Arc::new(move |product: &Product| PreparedProduct::new(&context, *product, &workspace));
    let can = Arc::clone(&prepare);
    let time = move |product: &Product| {
        let mut prepared = prepare(product).ok()?;
        prepared.tune(deterministic).ok()?;
        prepared.time().ok()
    };
    Probe { can: Box::new(move |product| can(product).is_ok()), time: Box::new(time) }
}

struct Loaded<'a> {
    modules: &'a [Module],
    /// For each kernel its unit and its name in the unit.
    places: &'a [(usize, String)],
    tables: &'a [Allocation],
    tickets: &'a Allocation,
}

impl Loaded<'_> {
    fn launch(&self, launch: &Launch) -> Result<Ready> {
        let word = |argument: &Argument| match *argument {
            Argument::Word(word) => word,
            Argument::Table(table) => self.tables[table].address(),
            Argument::Tickets(first) => self.tickets.address() + 4 * first as u64,
        };
        let (unit, name) = &self.places[launch.kernel];
        Ok(Ready::Launch {
            function: self.modules[*unit].function(name, launch.shared, launch.cluster)?,
            grid: launch.grid,
            threads: launch.threads,
            shared: launch.shared,
            arguments: launch.arguments.iter().map(word).collect(),
        })
    }
}

fn called(
    context: &Arc<CudaContext>,
    work: &GpuWork,
    workspace: &Arc<Allocation>,
    deterministic: bool,
) -> Result<Ready> {
    Ok(match work {
        GpuWork::Launch(_) | GpuWork::AllReduce(_) => unreachable!("these are not calls of libraries"),
        GpuWork::Product(product) => {
            let mut prepared = PreparedProduct::new(context, *product, workspace)?;
            prepared.tune(deterministic)?;
            Ready::Product(Box::new(prepared))
        }
        GpuWork::Convolution(call) => {
            Ready::Convolution(Box::new(cudnn::PreparedConvolution::new(context, call)?))
        }
        GpuWork::Planned(call) => Ready::Planned(Box::new(cudnn_plan::PreparedPlan::new(context, call)?)),
    })
}

pub(crate) struct CudaExecutor {
    // Fields drop in this order: users of memory and kernels before both.
    replay: Option<Replay>,
    commands: Vec<(String, bool, Ready)>,
    slots: Vec<Slot>,
    streams: Vec<Stream>,
    requested: Vec<(u64, Scalar, usize)>,
    way: Option<Way>,
    _modules: Vec<Module>,
    _buffers: Vec<Allocation>,
    /// Tensors of the memory for which the program was compiled, kept alive.
    _tensors: Vec<Arc<Allocation>>,
    context: Arc<CudaContext>,
}

impl std::fmt::Debug for CudaExecutor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Executor({} commands on {:?})", self.commands.len(), self.context)
    }
}

impl CudaExecutor {
    pub(crate) fn new(
        context: &Arc<CudaContext>,
        typed: &Typed,
        plan: &Plan,
        memory: &Memory,
    ) -> Result<Self> {
        let Leaves { addresses, copies, mut buffers, tensors } = Leaves::new(context, typed, memory)?;
        require_memory(context, plan)?;
        let arena = Allocation::zeroed(context, plan.arena_bytes())?;
        let side_by_side = if plan.arena_bytes() <= SPREAD { STREAMS } else { 1 };
        let workspace = Arc::new(Allocation::zeroed(context, side_by_side * cublas::WORKSPACE)?);
        let bases = Bases { arena: arena.address(), leaves: &addresses, copies: &copies };
        let probe = probe(context, &workspace, typed.deterministic);
        let Lowered { lowering, requested } = lower_all(typed, plan, &bases, Some(probe));
        let (units, places) = lowering.units(context.properties.architecture);
        let images: Vec<Vec<u8>> = units.par_iter().map(compile::image).collect::<Result<_>>()?;
        let modules: Vec<Module> =
            images.iter().map(|image| Module::load(context, image)).collect::<Result<_>>()?;
        let tables: Vec<Allocation> =
            lowering.tables.iter().map(|table| uploaded(context, table)).collect::<Result<_>>()?;
        let tickets = Allocation::zeroed(context, 4 * lowering.tickets.max(1))?;
        let loaded = Loaded { modules: &modules, places: &places, tables: &tables, tickets: &tickets };
        let way = Self::way(context, &lowering.commands, memory)?;
        let ready = |GpuCommand { label, effect, work, .. }: &GpuCommand| {
            let ready = match (work, &way) {
                (GpuWork::AllReduce(messages), Some(way)) => {
                    Ready::Sums(PreparedSums::new(way, context, messages)?)
                }
                (GpuWork::Launch(launch), _) => loaded.launch(launch)?,
                (work, _) => called(context, work, &workspace, typed.deterministic)?,
            };
            Ok((label.clone(), *effect, ready))
        };
        let commands = lowering.commands.iter().map(ready).collect::<Result<_>>()?;
        cublas::save_tuned();
        let accesses: Vec<Access> = lowering.commands.iter().map(GpuCommand::access).collect();
        let streams = if lowering.alone { 1 } else { side_by_side + usize::from(way.is_some()) };
        let slots = spread(&accesses, streams);
        let streams = (1..streams).map(|_| Stream::new(context)).collect::<Result<_>>()?;
        // The probe holds the workspace too.
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
            way,
            _modules: modules,
            _buffers: buffers,
            _tensors: tensors,
            context: Arc::clone(context),
        })
    }

    /// Captures all commands once, after a run without effects in which libraries load what they need.
    fn capture(&self) -> Result<Replay> {
        {
            let _quiet = quiet();
            for (_, effect, command) in &self.commands {
                if !effect {
                    self.enqueue(command, 0)?;
                }
            }
            self.context.synchronize()?;
        }
        Replay::capture(&self.context, || self.enqueue_all())
    }

    /// Enqueues everything on the program's streams, starting and ending on the main one.
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
            Ready::Planned(convolution) => convolution.run(stream),
            Ready::Sums(sums) => match &self.way {
                Some(way) => sums.run(way, stream),
                None => Ok(()),
            },
        }
    }

    fn way(context: &Arc<CudaContext>, commands: &[GpuCommand], memory: &Memory) -> Result<Option<Way>> {
        let sums = commands.iter().any(|command| matches!(command.work, GpuWork::AllReduce(_)));
        match memory.collective().filter(|_| sums) {
            Some(ranks) => Way::choose(context, ranks).map(Some),
            None => Ok(None),
        }
    }
}

impl Executable for CudaExecutor {
    fn run(&mut self, _: &mut Memory, times: usize) -> Result<()> {
        self.context.enter()?;
        let replay = match self.replay.take() {
            Some(replay) => replay,
            None => self.capture()?,
        };
        let replay = self.replay.insert(replay);
        (0..times).try_for_each(|_| replay.launch())
    }

    fn wait(&self) -> Result<()> {
        self.context.synchronize()
    }

    /// Times each command alone on the device; effects are left out.
    fn profile(&mut self, _: &mut Memory) -> Result<Vec<(String, f32)>> {
        self.context.enter()?;
        let mut times = Vec::new();
        for (label, effect, command) in &self.commands {
            // Other ranks do not wait for a sum that only this rank computes.
            if !effect && !matches!(command, Ready::Sums(_)) {
                self.enqueue(command, 0)?;
                let repeats = 5;
                let spent = self.context.time(|| (0..repeats).try_for_each(|_| self.enqueue(command, 0)))?;
                times.push((label.clone(), spent / repeats as f32));
            }
        }
        Ok(times)
    }

    fn output(&self, index: usize) -> Result<Vec<f64>> {
        let (address, scalar, count) = self.requested[index];
        let mut bytes = vec![0; count * scalar.bytes()];
        self.context.copy_to_host(address, &mut bytes)?;
        Ok(numbers(&bytes, scalar))
    }

    fn bytes(&self) -> usize {
        self._buffers.iter().map(Allocation::len).sum()
    }
}

/// Elements as double-precision numbers.
pub(crate) fn numbers(bytes: &[u8], scalar: Scalar) -> Vec<f64> {
    fn words<const N: usize>(bytes: &[u8]) -> impl Iterator<Item = [u8; N]> {
        bytes.chunks_exact(N).map(|word| word.try_into().expect("chunks have that length"))
    }
    match scalar {
        Scalar::Bf16 => words::<2>(bytes)
            .map(|word| f64::from(f32::from_bits(u32::from(u16::from_le_bytes(word)) << 16)))
            .collect(),
        Scalar::F16 => words::<2>(bytes).map(|word| f16_to_f64(u16::from_le_bytes(word))).collect(),
        Scalar::F32 => words::<4>(bytes).map(|word| f64::from(f32::from_le_bytes(word))).collect(),
        Scalar::F64 => words::<8>(bytes).map(f64::from_le_bytes).collect(),
        Scalar::Index => words::<4>(bytes).map(|word| f64::from(u32::from_le_bytes(word))).collect(),
    }
}
