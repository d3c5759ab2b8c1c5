//! Fused graphs with the type of every value, and their lowering.

use std::collections::HashMap;
use std::sync::Arc;

use crate::convolution::{algorithm, conv, conv_row};
use crate::norm::group_norm;
use crate::op::expression;
use crate::passes::merge::merge;
use crate::passes::recompute::recompute;
use crate::passes::scaled_f16::with_scaled_f16;
use crate::passes::types::{self, with_rounding};
use crate::passes::{conv_row_norm, periodic};
use crate::program::select::select;
use crate::program::{Code, Gpu, Instruction, Scalar, Scalars};
use crate::runtime::compile;
use crate::runtime::driver::CudaContext;
use cfo_engine::backend::{PlannedSteps, StepKind};
use cfo_engine::{Element, EngineError, Graph, Node, Plan, Precision, Result, Type};

/// Maximum bytes of values of programs that share no buffers, about the size of the L2 cache.
const UNSHARED: usize = 48 << 20;
/// Shared memory of a block if there is no device.
const SHARED: u32 = 227 << 10;
/// Minimum bytes of norms' results that are recomputed in the backward pass if that lowers the peak.
const RECOMPUTED: usize = 64 << 20;
#[derive(Clone, Debug)]
pub(crate) struct Typed {
    pub(crate) code: Code,
    scalars: Vec<Vec<Scalar>>,
    precision: Precision,
    multiprocessors: u32,
    shared: u32,
    /// Whether there are warpgroup matrix instructions (`wgmma`).
    pub(crate) warpgroups: bool,
    /// Whether every run must be bit-identical.
    pub(crate) deterministic: bool,
    /// Whether there are several ranks, so that sums over ranks differ from the values.
    pub(crate) ranks: bool,
    /// Whether instructions have scratch memory; not before algorithms of convolutions are known.
    has_scratch: bool,
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
        context: &Arc<CudaContext>,
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

    pub(crate) fn with_scaled_f16(mut self) -> Self {
        (self.code, self.convolutions) = with_scaled_f16(self.code, self.convolutions);
        self.scalars = types::assign(&self.code, self.precision);
        self
    }

    /// Checks, before anything is measured, that the graph's values fit into the device's free memory.
    fn refuse_what_cannot_fit(&self, context: &CudaContext) -> Result<()> {
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
            // The f16 copies are kept instead; they would have to be created again.
            Precision::Tf32 => code,
            _ => recompute(code, large, |code| {
                Self::assigned(code.clone(), precision, multiprocessors).bare_plan().live_bytes()
            }),
        };
        let code = if rows { conv_row_norm::merge(code, precision) } else { code };
        Self::assigned(code, precision, multiprocessors)
    }

    /// The code with the types of its values, and with rounding where products need it.
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
            ranks: false,
            has_scratch: true,
            convolutions: HashMap::new(),
        }
    }

    pub(crate) fn bare_plan(&self) -> Plan {
        Plan::new(&Self { has_scratch: false, ..self.clone() })
    }

    pub(crate) fn target(&self) -> Gpu {
        let Self { precision, multiprocessors, shared, warpgroups, .. } = *self;
        Gpu { precision, multiprocessors, shared, warpgroups }
    }

    /// Algorithm of a convolution; one of our own kernels if there is no device.
    pub(crate) fn convolution(&self, id: usize) -> conv::Algorithm {
        let own = || {
            let geometry = conv::Geometry::of(&self.code, id, self.precision)?;
            Some(conv::Algorithm::own(&geometry, self.multiprocessors))
        };
        self.convolutions.get(&id).copied().or_else(own).unwrap_or(conv::Algorithm::Plain)
    }

    pub(crate) fn output_scalar(&self, id: usize) -> Scalar {
        self.scalars[id].first().copied().unwrap_or(Scalar::F32)
    }

    pub(crate) fn scalar(&self, node: Node) -> Scalar {
        self.scalars[node.index()][node.output()]
    }

    /// Whether an instruction reads an input, or the leaf of which it is a view, from a bf16 copy.
    pub(crate) fn reads_copy(&self, id: usize, input: usize) -> bool {
        let (op, node) = (&self.code.entries[id].op, self.code.entries[id].inputs[input]);
        self.precision == Precision::Bf16
            && types::takes_bf16(op, input, self.output_scalar(id))
            && self.code.entry(self.code.owner(node)).op.is_leaf()
    }

    /// The types in which an instruction reads and writes its values.
    pub(crate) fn scalars_of(&self, id: usize) -> Scalars {
        let inputs = &self.code.entries[id].inputs;
        let read = |(index, &node): (usize, &Node)| match self.reads_copy(id, index) {
            true => Scalar::Bf16,
            false => self.scalar(node),
        };
        Scalars { inputs: inputs.iter().enumerate().map(read).collect(), outputs: self.scalars[id].clone() }
    }
}

impl PlannedSteps for Typed {
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
        if self.has_scratch { select(self, id, false).scratch } else { 0 }
    }

    fn in_place(&self, id: usize) -> Option<usize> {
        let entry = &self.code.entries[id];
        let owner = |input: usize| self.code.owner(entry.inputs[input]);
        let input = match &entry.op {
            Instruction::Expression(op) => expression::in_place(op, |a, b| owner(a) == owner(b))?,
            Instruction::AllReduce(_) => 0,
            // Each thread writes only what it has read before.
            Instruction::GroupNormBackward(op) => op.cotangent(),
            _ => return None,
        };
        (self.scalar(entry.inputs[input]) == self.scalars[id][0]).then_some(input)
    }

    fn unshared_bytes(&self) -> usize {
        UNSHARED
    }
}
