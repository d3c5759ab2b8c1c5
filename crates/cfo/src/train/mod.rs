//! The training loop.

mod cautions;
mod compiled;
mod divergence;
mod gradients;
mod input_tables;
mod observer;
mod phase;
mod refine;
mod share;
mod signals;
mod solve;
mod step;
mod supply;
mod trainer;
mod training;
pub(crate) mod training_data;
mod training_loop;
mod training_step;
mod validation;
mod weights;
mod witness;

use std::time::Instant;

use cfo_data::Split;
use cfo_device::Device;

use crate::error::{CfoError, Result};
use crate::predict::Trained;
use crate::ranks;
use crate::recipe::Recipe;
use crate::run::checkpoint::fingerprint;
use crate::run::{Claim, Log, Progress, Run};
use crate::trajectories::Trajectories;
pub use compiled::CompiledStep;
pub use observer::{Observer, Reply};
use phase::Phase;
pub(crate) use share::{Share, collective};
pub use solve::Counts;
pub(crate) use step::draw;
pub use step::sampler;
use trainer::Trainer;
pub use training::Training;
pub use training_step::TrainingStep;

/// Largest number of times that the learning rate is halved because the network diverges at once.
const MOST_HALVINGS: u32 = 4;
/// Number of first reports within which divergence restarts the training.
const FIRST_REPORTS: u32 = 3;

/// Trains on a set. If the network diverges at once, the learning rate is halved and training restarts, a few times at most.
///
/// # Errors
/// If recipe and data do not fit, another process trains in the folder, the disk or the device has an error, the loss diverges,
/// or the run is interrupted (its latest step is then saved).
fn train(training: Training<'_>, set: &Trajectories) -> Result<Trained> {
    let Training { method, device, folder, resume, latest, interrupt, mut observer } = training;
    let device = device.unwrap_or_else(Device::best);
    let (recipe, begun) = (&method.recipe, Instant::now());
    require_same_recipe(recipe)?;
    let mut phases = ranks::agree(check_patience(recipe, set).and_then(|()| Phase::all(&method, set)))?;
    // Only rank 0 reads and writes the folder; it sends the checkpoint's state to the others.
    let folder = folder.filter(|_| ranks::is_first());
    let claimed = folder.map(|path| Claim::new(Run::at(path), resume)).transpose();
    let folder = ranks::agree(claimed)?;
    let newest = match &folder {
        Some(folder) if resume => folder.run.newest_checkpoint(),
        _ => Ok(None),
    };
    let mut start = ranks::from_first(ranks::agree(newest)?)?;
    for caution in cautions::of(&method, set, start.as_ref().map(|(_, state)| state))? {
        observer.notice(&caution);
    }
    let mut halvings = start.as_ref().map_or(0, |(_, state)| state.loop_state.halvings);
    loop {
        let mut halved = method.clone();
        halved.recipe.train.learning_rate *= (-f64::from(halvings)).exp2();
        if halvings > 0 {
            phases = Phase::all(&halved, set)?;
        }
        let trainer = Trainer {
            given: recipe,
            method: &halved,
            set,
            folder: folder.as_ref(),
            device,
            interrupt,
            halvings,
            latest,
        };
        let (step, loss) = match trainer.run(&phases, start.take(), observer.as_mut(), begun) {
            Err(CfoError::Diverged { step, loss, seen, .. })
                if halvings < MOST_HALVINGS && is_early(step, recipe) && seen.depends_on_rate(step) =>
            {
                (step, loss)
            }
            outcome => return outcome,
        };
        halvings += 1;
        let rate = halved.recipe.train.learning_rate / 2.0;
        let notice = format!(
            "the loss became {loss:.3e} at step {step}: `train.learning_rate` may be too high; training restarts with {rate}"
        );
        if let Some(folder) = &folder {
            folder.checkpoints.clear()?;
        }
        Log::restart(folder.as_ref().map(|folder| folder.run.folder()), &notice, rate)?;
        observer.notice(&notice);
    }
}

/// Returns an error if ranks have different recipes. Only the paths of their data may differ.
fn require_same_recipe(recipe: &Recipe) -> Result<()> {
    if ranks::job().is_none() {
        return Ok(());
    }
    let mut recipe = recipe.clone();
    recipe.data.path = None;
    let hash = fingerprint([recipe.to_toml()?.into_bytes()].into_iter());
    ranks::require_same("recipe", &hash)
}

fn is_early(step: u32, recipe: &Recipe) -> bool {
    let every = if recipe.train.report_every > 0 { recipe.train.report_every } else { 100 };
    step <= FIRST_REPORTS.saturating_mul(every)
}

/// Returns whether all steps were made, or the patience of the recipe is used up.
fn is_finished(progress: &Progress, recipe: &Recipe) -> bool {
    let patience = recipe.train.patience;
    progress.steps >= recipe.total_steps() || (patience > 0 && progress.loop_state.stale >= patience)
}

/// Returns an error if `train.patience` is set and the data have no validation trajectories.
fn check_patience(recipe: &Recipe, set: &Trajectories) -> Result<()> {
    if recipe.train.patience > 0 && set.part(Split::Validation).next().is_none() {
        let problem = "the data have no validation trajectories";
        return Err(CfoError::invalid("train.patience", problem));
    }
    Ok(())
}
