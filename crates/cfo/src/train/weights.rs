//! Where a training's first weights come from: a checkpoint of its own, another run, or chance.

use std::path::Path;

use cfo_device::Device;
use cfo_engine::{Data, Element, Graph, Memory, Precision, Role, Shape};

use super::step::COUNTER;
use crate::checkpoint::{Checkpoints, State};
use crate::error::{CfoError, Result};
use crate::model::Model;

/// Reads all tensors of a run's own checkpoint.
///
/// # Errors
/// If one that the graph keeps between steps is missing or has another shape: chance must not fill it in.
pub(super) fn restore(
    checkpoints: &Checkpoints,
    (name, state): (&str, &State),
    graph: &Graph,
    memory: &mut Memory,
) -> Result<()> {
    checkpoints.load(name, state, memory, true)?;
    checkpoints.check_tensors(name, graph.kept(), memory)
}

/// Goes on from the weights of the stage before: those that it is evaluated by. Averages start from them, the optimiser knows nothing yet, and
/// so many steps are made.
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

/// Starts from the weights of another run: those that it is evaluated by, of its best checkpoint if it has one.
///
/// # Errors
/// If it cannot be read, or its weights have other names or shapes.
pub(super) fn inherit(run: &Path, graph: &Graph, memory: &mut Memory) -> Result<()> {
    let checkpoints = Checkpoints::of(run);
    let name = checkpoints.preferred()?;
    let state = checkpoints.state(name)?;
    let mut found = Memory::new(Device::Cpu, Precision::F32)?;
    checkpoints.load(name, &state, &mut found, false)?;
    let prefix = state.model.weight_prefix();
    let mut misfits = Vec::new();
    for parameter in graph.parameters() {
        let there = found.value_type(&format!("{prefix}{}", parameter.name)).map(|found| found.shape.clone());
        match there {
            Ok(shape) if shape == parameter.shape => {
                let values = found.read(&format!("{prefix}{}", parameter.name))?;
                memory.insert_real(&parameter.name, shape, &values)?;
            }
            Ok(shape) => misfits.push(misfit(&parameter.name, &shape, &parameter.shape)),
            Err(_) => misfits.push(format!("it has no `{}`", parameter.name)),
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
    Err(CfoError::BadData {
        problem: format!(
            "the weights of `{}` do not fit this network: {}{more}",
            run.display(),
            misfits.join("; ")
        ),
        hint: format!(
            "use the `[operator]` section of `{}`, with data of as many channels and parameters",
            run.join("recipe.toml").display()
        ),
    })
}

fn misfit(name: &str, there: &Shape, here: &Shape) -> String {
    format!("`{name}` is {there} there and {here} here")
}
