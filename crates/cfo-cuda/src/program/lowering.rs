//! Programs during lowering: commands, the kernels that they launch, and their tables.

use std::collections::HashMap;

use cfo_engine::Precision;

use super::kernel::{self, Kernel};
use super::launch::{Launch, THREADS};
use super::schedule::Access;
use super::{Argument, KernelFile, Parameters, Scalar, Scalars};
use crate::convolution::conv::Convolution;
use crate::convolution::cudnn_plan::Planned;
use crate::product::matmul;
use crate::runtime::compile;
use crate::runtime::nccl::Message;

#[derive(Clone, Debug)]
pub(crate) enum GpuWork {
    Launch(Launch),
    Product(matmul::Product),
    Convolution(Convolution),
    Planned(Planned),
    AllReduce(Vec<Message>),
}

#[derive(Clone, Debug)]
pub(crate) struct GpuCommand {
    pub(crate) label: String,
    /// Whether it changes tensors that are kept after the run.
    pub(crate) effect: bool,
    pub(crate) access: Access,
    pub(crate) work: GpuWork,
}

impl GpuCommand {
    /// Memory that it accesses, and whether it communicates with other ranks.
    pub(crate) fn access(&self) -> Access {
        Access { apart: matches!(self.work, GpuWork::AllReduce(_)), ..self.access.clone() }
    }
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Value {
    pub(crate) address: u64,
    pub(crate) scalar: Scalar,
    pub(crate) count: usize,
}

/// Inputs, outputs and scratch memory of an operation.
#[derive(Clone, Debug)]
pub(crate) struct OpIo {
    pub(crate) inputs: Vec<Value>,
    pub(crate) outputs: Vec<Value>,
    pub(crate) scratch: u64,
}

impl OpIo {
    pub(crate) fn scalars(&self) -> Scalars {
        let of = |values: &[Value]| values.iter().map(|value| value.scalar).collect();
        Scalars { inputs: of(&self.inputs), outputs: of(&self.outputs) }
    }
}

/// Properties of the device for which programs are lowered.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Gpu {
    pub(crate) precision: Precision,
    pub(crate) multiprocessors: u32,
    pub(crate) shared: u32,
    /// Whether there are warpgroup matrix instructions (`wgmma`).
    pub(crate) warpgroups: bool,
}

#[derive(Debug)]
pub(crate) struct Lowering {
    pub(crate) target: Gpu,
    kernels: Vec<Kernel>,
    known: HashMap<Kernel, usize>,
    pub(crate) commands: Vec<GpuCommand>,
    pub(crate) tables: Vec<Vec<u8>>,
    pub(crate) tickets: usize,
    label: String,
    effect: bool,
    access: Access,
    supports: Option<Probe>,
    /// Whether every run must be bit-identical.
    pub(crate) deterministic: bool,
    /// Whether a kernel has blocks that wait for each other, so that no other kernel may run concurrently.
    pub(crate) alone: bool,
}

type Question<T> = Box<dyn Fn(&matmul::Product) -> T>;

pub(crate) struct Probe {
    pub(crate) can: Question<bool>,
    /// Milliseconds of a product, if the library supports it.
    pub(crate) time: Question<Option<f32>>,
}

impl std::fmt::Debug for Probe {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Probe")
    }
}

impl Lowering {
    pub(crate) fn new(target: Gpu, deterministic: bool, supports: Option<Probe>) -> Self {
        Self {
            deterministic,
            alone: false,
            target,
            kernels: Vec::new(),
            known: HashMap::new(),
            commands: Vec::new(),
            tables: Vec::new(),
            tickets: 0,
            label: String::new(),
            effect: false,
            access: Access::default(),
            supports,
        }
    }

    /// Whether the library supports a product; assumed if there is no device.
    pub(crate) fn supports(&self, product: &matmul::Product) -> bool {
        self.supports.as_ref().is_none_or(|probe| (probe.can)(product))
    }

    /// Whether the library's epilogue is as fast as the plain product and our kernel; assumed without a device.
    pub(crate) fn worthwhile(&self, fused: &matmul::Product, plain: &matmul::Product, bytes: usize) -> bool {
        /// Milliseconds of a launch.
        const LAUNCH: f32 = 0.002;
        /// Bytes per millisecond.
        const SPEED: f32 = 3.5e9;
        let Some(probe) = &self.supports else { return true };
        if self.deterministic {
            return (probe.can)(fused);
        }
        let Some(merged) = (probe.time)(fused) else { return false };
        let apart = (probe.time)(plain).map_or(f32::INFINITY, |time| time + LAUNCH + bytes as f32 / SPEED);
        merged <= apart
    }

    /// Sets the name and the memory accesses of the next command.
    pub(crate) fn begin(&mut self, label: &str, effect: bool, access: Access) {
        self.label = label.into();
        self.effect = effect;
        self.access = access;
    }

    /// Appends a launch of a kernel with 256 threads per block; the body is C++.
    pub(crate) fn launch(&mut self, file: KernelFile, parameters: Parameters, body: String, grid: [u32; 3]) {
        self.launch_with(file, parameters, body, (grid, THREADS, 0));
    }

    /// Appends a launch with another number of threads per block and with dynamic shared memory.
    pub(crate) fn launch_with(
        &mut self,
        file: KernelFile,
        parameters: Parameters,
        body: String,
        shape: ([u32; 3], u32, u32),
    ) {
        self.launch_resident(file, parameters, body, shape, 1);
    }

    /// Appends a launch of a kernel that limits its registers so that several of its blocks fit on a multiprocessor.
    pub(crate) fn launch_resident(
        &mut self,
        file: KernelFile,
        parameters: Parameters,
        body: String,
        shape: ([u32; 3], u32, u32),
        resident: u32,
    ) {
        self.launch_clusters(file, parameters, body, shape, (resident, 1));
    }

    pub(crate) fn launch_clusters(
        &mut self,
        file: KernelFile,
        parameters: Parameters,
        body: String,
        (grid, threads, shared): ([u32; 3], u32, u32),
        (resident, cluster): (u32, u32),
    ) {
        let signature = parameters.signature();
        let kernel = Kernel { file, parameters: signature, body, threads, resident, cluster };
        let next = self.kernels.len();
        let kernel = *self.known.entry(kernel.clone()).or_insert_with(|| {
            self.kernels.push(kernel);
            next
        });
        let arguments = parameters.into_arguments();
        self.append(GpuWork::Launch(Launch { kernel, grid, threads, shared, cluster, arguments }));
    }

    pub(crate) fn append(&mut self, work: GpuWork) {
        let (label, access) = (self.label.clone(), self.access.clone());
        self.commands.push(GpuCommand { label, effect: self.effect, access, work });
    }

    /// Adds a table that is uploaded with the program.
    pub(crate) fn table(&mut self, bytes: Vec<u8>) -> Argument {
        self.tables.push(bytes);
        Argument::Table(self.tables.len() - 1)
    }

    pub(crate) fn ticket(&mut self, count: usize) -> Argument {
        let first = self.tickets;
        self.tickets += count;
        Argument::Tickets(first)
    }

    /// Whether functions may be less accurate than single precision.
    pub(crate) fn fast(&self) -> bool {
        self.target.precision != Precision::F32
    }

    pub(crate) fn signature(&self, kernel: usize) -> String {
        let Kernel { parameters, body, threads, resident, cluster, .. } = &self.kernels[kernel];
        format!("({threads}, {resident}, {cluster}) ({parameters}) {{ {} }}", body.replace('\n', "\n    "))
    }

    pub(crate) fn units(&self, architecture: u32) -> (Vec<compile::CompileUnit>, Vec<(usize, String)>) {
        kernel::units(&self.kernels, architecture, self.fast())
    }
}
