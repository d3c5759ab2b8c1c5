//! Measurements on a training step that diverged.

use cfo_engine::{Data, Memory, Program, Role};

use super::step::{COUNTER, sampler};
use crate::error::{BatchSize, Result};
use crate::model::Model;
use crate::train::training_data::TrainingData;

/// The tensor of the latest gradient norm, if gradients are clipped.
pub(super) const GRADIENT: &str = "train.gradient";

/// Draws the batch of a step again and measures it.
pub(super) fn batch_size(
    model: &Model,
    data: &TrainingData,
    memory: &mut Memory,
    step: u32,
) -> Result<BatchSize> {
    let (graph, sample) = sampler(model, data)?;
    let mut program = Program::compile(&graph, &[sample.state, sample.target], memory)?;
    let made = memory.read_index(COUNTER)?;
    memory.write(COUNTER, Data::Index(&[step - 1]))?;
    let run = program.run(memory);
    memory.write(COUNTER, Data::Index(&made))?;
    run?;
    let [state, target] = [program.output_f64(0)?, program.output_f64(1)?];
    let finite = state.iter().chain(&target).all(|value| value.is_finite());
    let units = &model.scaling.velocity;
    let ratios = target.iter().zip(units.iter().cycle()).map(|(value, unit)| (value / unit).abs());
    let velocity = (!units.is_empty()).then(|| ratios.fold(0.0, f64::max));
    Ok(BatchSize { finite, velocity })
}

/// Returns the number of weights that are not finite, and the number of all weights.
pub(super) fn count_weights(memory: &Memory) -> Result<[usize; 2]> {
    let mut counts = [0; 2];
    for name in memory.names_where(|role| role == Role::Weight) {
        let values = memory.read(name)?;
        counts[0] += values.iter().filter(|value| !value.is_finite()).count();
        counts[1] += values.len();
    }
    Ok(counts)
}
