//! Weights that are kept, and the first weights of a training: those of a checkpoint or of another run.

use std::path::Path;

use cfo_device::Device;
use cfo_engine::{Data, Element, Graph, Memory, Precision, Role, Shape, Type};

use super::step::COUNTER;
use crate::error::{CfoError, Result};
use crate::model::Model;
use crate::ranks;
use crate::run::Run;
use crate::run::checkpoint::Checkpoints;

/// The weights of an earlier step, and their EMA.
#[derive(Debug)]
pub(super) struct Kept {
    /// The step.
    pub step: u32,
    /// Memory of the CPU, so that none of a GPU is used.
    pub memory: Memory,
}

impl Kept {
    /// Copies the weights in memory.
    pub fn of(memory: &Memory, step: u32) -> Result<Self> {
        let mut kept = Memory::new(Device::Cpu, host_precision(memory))?;
        copy(memory, &mut kept, Role::is_network)?;
        Ok(Self { step, memory: kept })
    }

    /// Reads the weights of a run's best checkpoint, if it is from this step. Rank 0 reads them and sends them to the others.
    pub fn best(
        checkpoints: Option<&Checkpoints>,
        step: u32,
        (graph, memory): (&Graph, &Memory),
        seed: u64,
    ) -> Result<Option<Self>> {
        let state = checkpoints.filter(|of| of.has("best")).and_then(|of| of.state("best").ok());
        let found = checkpoints.zip(state.filter(|state| state.step == step));
        if !ranks::from_first(found.is_some())? {
            return Ok(None);
        }
        let mut read = Memory::new(Device::Cpu, host_precision(memory))?;
        ranks::agree(found.map_or(Ok(()), |(of, state)| of.load("best", &state, &mut read, false)))?;
        if ranks::job().is_some() {
            // Creates tensors of the right shapes, which are then overwritten.
            read.initialize(graph, seed)?;
            ranks::share_weights(graph, &mut read)?;
        }
        Ok(Some(Self::of(&read, step)?))
    }

    /// Returns the weights on the training's device.
    pub fn beside(&self, memory: &Memory) -> Result<Memory> {
        copied(&self.memory, memory, Role::is_network)
    }
}

/// Returns double precision if the memory has it, else single.
fn host_precision(memory: &Memory) -> Precision {
    if memory.precision() == Precision::F64 { Precision::F64 } else { Precision::F32 }
}

/// Returns a memory like another one, with copies of the tensors of some roles.
pub(super) fn copied(from: &Memory, like: &Memory, chosen: impl Fn(Role) -> bool) -> Result<Memory> {
    let mut to = Memory::new(Device::of(like)?, like.precision())?.with_determinism(like.is_deterministic());
    copy(from, &mut to, chosen)?;
    Ok(to)
}

/// Copies the tensors of some roles from one memory into another.
fn copy(from: &Memory, to: &mut Memory, chosen: impl Fn(Role) -> bool) -> Result<()> {
    for name in from.names_where(chosen) {
        let (role, Type { element, shape }) = (from.role(name)?, from.value_type(name)?.clone());
        match element {
            Element::Index => {
                to.insert_as(role, name, element, shape, Data::Index(&from.read_index(name)?))?
            }
            _ => to.insert_as(role, name, element, shape, Data::F64(&from.read_f64(name)?))?,
        }
    }
    Ok(())
}

/// Starts from the weights with which the previous phase is evaluated, as does the EMA; the optimiser starts anew.
pub(super) fn carry(
    from: &Memory,
    model: &Model,
    graph: &Graph,
    (memory, made): (&mut Memory, u32),
) -> Result<()> {
    for parameter in graph.parameters() {
        let values = from.read_f64(&format!("{}{}", model.weight_prefix(), parameter.name))?;
        memory.insert(&parameter.name, Element::Real, parameter.shape.clone(), Data::F64(&values))?;
    }
    let counted = Data::Index(std::slice::from_ref(&made));
    Ok(memory.insert_as(Role::Optimizer, COUNTER, Element::Index, Shape::scalar(), counted)?)
}

/// Starts from the weights with which another run is evaluated: those of its best checkpoint if it has one.
///
/// # Errors
/// If it cannot be read, or its weights have other names or shapes.
pub(super) fn inherit(run: &Path, graph: &Graph, memory: &mut Memory) -> Result<()> {
    let checkpoints = Run::at(run).checkpoints();
    let name = checkpoints.preferred()?;
    let state = checkpoints.state(name)?;
    let mut found = Memory::new(Device::Cpu, Precision::F32)?;
    checkpoints.load(name, &state, &mut found, false)?;
    let prefix = state.model.weight_prefix();
    let mut misfits = Vec::new();
    for parameter in graph.parameters() {
        let (name, needed) = (&parameter.name, &parameter.shape);
        let stored = format!("{prefix}{name}");
        match found.value_type(&stored).map(|found| found.shape.clone()) {
            Ok(shape) if shape == *needed => memory.insert_real(name, shape, &found.read(&stored)?)?,
            Ok(shape) => misfits.push(format!("`{name}` is {shape} there and {needed} here")),
            Err(_) => misfits.push(format!("it has no `{name}`")),
        }
    }
    let needed = |name: &str| graph.parameters().iter().any(|parameter| parameter.name == name);
    let read = if prefix.is_empty() { Role::Weight } else { Role::Average };
    let left = found.names_where(|role| role == read).filter_map(|name| name.strip_prefix(prefix));
    misfits.extend(left.filter(|name| !needed(name)).map(|name| format!("it also has `{name}`")));
    if misfits.is_empty() {
        return Ok(());
    }
    let more = misfits.len().saturating_sub(4);
    misfits.truncate(4);
    let more = if more > 0 { format!("; and {more} more") } else { String::new() };
    Err(CfoError::bad_data(
        format!("the weights of `{}` do not fit this network: {}{more}", run.display(), misfits.join("; ")),
        format!(
            "use the `[operator]` section of `{}`, and data with the same number of channels and parameters",
            Run::at(run).recipe_path().display()
        ),
    ))
}
