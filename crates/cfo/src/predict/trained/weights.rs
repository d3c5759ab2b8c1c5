//! The weights of a trained model and the programs compiled for them.

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

/// Number of compiled rollouts from which new batch sizes are rounded up to a power of two.
const FREE: usize = 8;
/// Largest number of compiled rollouts that are kept, and of compiled velocities.
const KEPT: usize = 16;

/// Weights in memory, with the programs compiled for them.
pub(crate) struct Weights {
    /// The weights that predictions use: those with the lowest validation error, or else the latest.
    trained: Memory,
    /// The latest weights with the optimiser's tensors, if predictions use others.
    latest: Option<Memory>,
    /// The weights in the precision of rollouts, if it differs from that of training.
    rolled: Option<Memory>,
    /// Ordered by their last use.
    rollouts: Vec<Rollout>,
    /// Ordered by their last use.
    fields: Vec<Field>,
}

impl Weights {
    /// Creates the weights from the latest and, if they differ, the best ones.
    pub(crate) fn new(model: &Model, latest: Memory, best: Option<Memory>) -> Result<Self> {
        let (trained, latest) = match best {
            Some(best) => (best, Some(latest)),
            None => (latest, None),
        };
        let rolled = for_rollouts(model, &trained)?;
        Ok(Self { trained, latest, rolled, rollouts: Vec::new(), fields: Vec::new() })
    }

    pub(super) fn copied(&self, model: &Model) -> Result<Self> {
        let memory = self.rolled.as_ref().unwrap_or(&self.trained);
        let device = Device::of(memory)?;
        let mut copy = Memory::new(device, memory.precision())?.with_determinism(memory.is_deterministic());
        copy_weights(memory, &mut copy)?;
        Self::new(model, copy, None)
    }

    /// Returns the latest weights, and the best ones if they differ.
    pub(super) fn both(&self) -> (&Memory, Option<&Memory>) {
        match &self.latest {
            Some(latest) => (latest, Some(&self.trained)),
            None => (&self.trained, None),
        }
    }

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
        // Few programs are compiled, whatever numbers are requested.
        let rounded = if self.rollouts.len() < FREE { count } else { count.next_power_of_two() };
        let create = || Rollout::new(model, memory, rounded, tableau, model.weight_prefix());
        let rollout = reused(&mut self.rollouts, KEPT, fits, create)?;
        rollout.set_seed(model.recipe.evaluate.seed);
        Ok((rollout, memory))
    }

    /// Returns the velocity for a batch size, and its memory.
    pub(super) fn field(&mut self, model: &Model, count: usize) -> Result<(&mut Field, &mut Memory)> {
        let memory = self.rolled.as_mut().unwrap_or(&mut self.trained);
        let fits = |field: &Field| field.batch() == count;
        let field = reused(&mut self.fields, KEPT, fits, || Field::new(model, memory, count))?;
        Ok((field, memory))
    }
}

/// Returns the entry that fits, or creates it. It becomes the last one; the least recently used one is removed if there are `most`.
pub(super) fn reused<T>(
    kept: &mut Vec<T>,
    most: usize,
    fits: impl Fn(&T) -> bool,
    create: impl FnOnce() -> Result<T>,
) -> Result<&mut T> {
    let used = match kept.iter().position(fits) {
        Some(place) => kept.remove(place),
        None => create()?,
    };
    if kept.len() == most {
        kept.remove(0);
    }
    kept.push(used);
    let last = kept.len() - 1;
    Ok(&mut kept[last])
}

impl fmt::Debug for Weights {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Weights").field("precision", &self.trained.precision()).finish_non_exhaustive()
    }
}

/// Returns a copy of the weights in the precision of rollouts, if it differs from that of training.
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

pub(crate) fn copy_weights(from: &Memory, to: &mut Memory) -> Result<()> {
    for name in from.names_where(Role::is_network) {
        let (value_type, values) = (from.value_type(name)?, from.read(name)?);
        let shape = value_type.shape.clone();
        to.insert_as(from.role(name)?, name, value_type.element, shape, Data::F32(&values))?;
    }
    Ok(())
}
