//! The weights of a trained model, and the programs compiled for them.

use std::fmt;
use std::sync::Arc;

use cfo_device::Device;
use cfo_engine::{Data, Memory, Role};
use cfo_numerics::ode::Tableau;

use super::field::Field;
use crate::error::Result;
use crate::model::Model;
use crate::predict::rollout::Rollout;
use crate::recipe::RolloutPrecision;

/// Rollouts of any number of trajectories that are compiled before numbers are rounded up.
const FREE: usize = 8;
/// Compiled rollouts and velocities that are kept, each.
const KEPT: usize = 16;

/// Weights in memory, with what was compiled for them so far.
pub(crate) struct Weights {
    /// As they were trained: those with the lowest validation error, else the latest.
    trained: Memory,
    /// The latest with the optimiser's tensors, where others predict.
    latest: Option<Memory>,
    /// The weights in the precision of rollouts, if it differs from that of training.
    rolled: Option<Memory>,
    /// The last used last.
    rollouts: Vec<Rollout>,
    /// The last used last.
    fields: Vec<Field>,
}

impl Weights {
    /// The latest weights, with the optimiser's tensors if this process trained, and the best ones where they are others.
    pub(crate) fn new(model: &Model, latest: Memory, best: Option<Memory>) -> Result<Self> {
        let (trained, latest) = match best {
            Some(best) => (best, Some(latest)),
            None => (latest, None),
        };
        let rolled = for_rollouts(model, &trained)?;
        Ok(Self { trained, latest, rolled, rollouts: Vec::new(), fields: Vec::new() })
    }

    /// A copy for a model that differs in its grid.
    pub(super) fn copied(&self, model: &Model) -> Result<Self> {
        let memory = self.rolled.as_ref().unwrap_or(&self.trained);
        let device = Device::of(memory)?;
        let mut copy = Memory::new(device, memory.precision())?.with_determinism(memory.is_deterministic());
        copy_weights(memory, &mut copy)?;
        Self::new(model, copy, None)
    }

    /// The latest, and the best ones where they are others.
    pub(super) fn both(&self) -> (&Memory, Option<&Memory>) {
        match &self.latest {
            Some(latest) => (latest, Some(&self.trained)),
            None => (&self.trained, None),
        }
    }

    /// What rollouts read.
    pub(super) fn memory(&mut self) -> &mut Memory {
        self.rolled.as_mut().unwrap_or(&mut self.trained)
    }

    /// Returns a rollout for a batch size, or for a slightly larger one that is already compiled, and its memory.
    pub(super) fn rollout(
        &mut self,
        model: &Arc<Model>,
        tableau: Tableau,
        count: usize,
    ) -> Result<(&mut Rollout, &mut Memory)> {
        let fits =
            |rollout: &Rollout| rollout.tableau() == tableau && (count..2 * count).contains(&rollout.batch());
        let memory = self.rolled.as_mut().unwrap_or(&mut self.trained);
        let mut rollout = match self.rollouts.iter().position(fits) {
            Some(place) => self.rollouts.remove(place),
            None => {
                // However many different numbers come, the programs stay few.
                let count = if self.rollouts.len() < FREE { count } else { count.next_power_of_two() };
                Rollout::new(model, memory, count, tableau, model.weight_prefix())?
            }
        };
        rollout.set_seed(model.recipe.evaluate.seed);
        Ok((last_of(&mut self.rollouts, rollout), memory))
    }

    /// Returns the velocity for a batch size, and its memory.
    pub(super) fn field(&mut self, model: &Model, count: usize) -> Result<(&mut Field, &mut Memory)> {
        let memory = self.rolled.as_mut().unwrap_or(&mut self.trained);
        let field = match self.fields.iter().position(|field| field.batch() == count) {
            Some(place) => self.fields.remove(place),
            None => Field::new(model, memory, count)?,
        };
        Ok((last_of(&mut self.fields, field), memory))
    }
}

/// Puts what is used now last, and drops what was not used for longest where too many are kept.
fn last_of<T>(kept: &mut Vec<T>, used: T) -> &mut T {
    if kept.len() == KEPT {
        kept.remove(0);
    }
    kept.push(used);
    let last = kept.len() - 1;
    &mut kept[last]
}

impl fmt::Debug for Weights {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Weights").field("precision", &self.trained.precision()).finish_non_exhaustive()
    }
}

/// A copy of the weights in the precision of rollouts, where that is another one than in training.
pub(crate) fn for_rollouts(model: &Model, memory: &Memory) -> Result<Option<Memory>> {
    let device = Device::of(memory)?;
    let precision = model.recipe.rollout_precision_on(device);
    if model.recipe.evaluate.precision == RolloutPrecision::Same || precision == memory.precision() {
        return Ok(None);
    }
    let mut copy = Memory::new(device, precision)?.with_determinism(model.recipe.train.deterministic);
    copy_weights(memory, &mut copy)?;
    Ok(Some(copy))
}

/// Writes the weights of one memory into another.
pub(crate) fn copy_weights(from: &Memory, to: &mut Memory) -> Result<()> {
    for name in from.names_where(Role::is_network) {
        let (value_type, values) = (from.value_type(name)?, from.read(name)?);
        let shape = value_type.shape.clone();
        to.insert_as(from.role(name)?, name, value_type.element, shape, Data::F32(&values))?;
    }
    Ok(())
}
