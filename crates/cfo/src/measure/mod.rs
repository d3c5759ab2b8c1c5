//! Measurements of the training data: scaling, profile of speeds, noise, trust in the path, fingerprint. They are made once.

mod fingerprint;
pub(crate) mod latent;
mod profile;
pub mod scaling;
pub(crate) mod selection;
mod smoothing;
mod survey;
mod trust;

use cfo_numerics::{Clock, DrawBy, Path};
use rayon::prelude::*;

use crate::error::Result;
use crate::recipe::{Normalize, PathConfig, Smoothing};
use crate::trajectories::Trajectories;
use latent::Latent;
use scaling::{Scaling, Unit};
use selection::Selection;
pub(crate) use smoothing::Denoiser;
use survey::{Source, Survey};
pub(crate) use trust::trust;

/// The measurements that a model needs.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Question {
    pub(crate) path: Path,
    /// How points of the path are sampled.
    pub(crate) by: DrawBy,
    /// The clock that defines the time of the velocity.
    pub(crate) clock: Clock,
    /// The tolerance of the path's error; `None` if errors are not estimated.
    pub(crate) trust: Option<f64>,
    pub(crate) smoothing: Smoothing,
    pub(crate) normalize: Normalize,
    /// The latent space that the network works in; `None` if it works in the space of the data.
    pub(crate) latent: Option<Latent>,
    /// The unit of the network's output.
    pub(crate) unit: Unit,
    /// Whether the time of the data is an input of the network.
    pub(crate) timed: bool,
}

pub(crate) struct Measured {
    /// The conversion between the user's units and the network's.
    pub(crate) scaling: Scaling,
    /// Removes noise from the snapshots, if there is noise to remove.
    pub(crate) denoiser: Option<Denoiser>,
    /// The error of the path's velocity at each snapshot, if the question includes it.
    pub(crate) path_errors: Vec<f32>,
    /// Hash of the values, times and parameters.
    pub(crate) fingerprint: String,
    pub(crate) warnings: Vec<String>,
}

impl Measured {
    /// Measures the selected snapshots in one pass. The scaled values are written to `place`, which must have exactly their size. An
    /// existing model's scaling and denoiser are kept, and only the rest is measured.
    pub(crate) fn of(
        question: &Question,
        set: &Trajectories,
        selections: &[Selection],
        known: Option<(&Scaling, &Option<Denoiser>)>,
        mut place: Option<&mut [f32]>,
    ) -> Result<Self> {
        let denoiser = match known {
            Some((_, denoiser)) => denoiser.clone(),
            None => Denoiser::new(question.smoothing, set, selections)?,
        };
        let source = Source { set, denoiser: denoiser.as_ref(), latent: question.latent };
        let survey = Survey::new(question, source, selections, place.as_deref_mut())?;
        let scaling = match known {
            Some((scaling, _)) => scaling.clone(),
            None => Scaling::new(question, set, selections, &survey),
        };
        if let Some(values) = place {
            normalize(&scaling, values);
        }
        let Survey { path_errors, fingerprint, warnings, .. } = survey;
        Ok(Self { scaling, denoiser, path_errors, fingerprint, warnings })
    }
}

/// Returns a hash of the selected snapshots. It shows whether a run is resumed on other data.
pub(crate) fn fingerprint(path: &PathConfig, set: &Trajectories, selections: &[Selection]) -> Result<String> {
    let source = Source { set, denoiser: None, latent: None };
    // The hash is that of the stored values, whatever the question is.
    let question = Question {
        path: path.path(),
        by: DrawBy::Time,
        clock: Clock::Even,
        trust: None,
        smoothing: Smoothing::None,
        normalize: Normalize::None,
        latent: None,
        unit: Unit::State,
        timed: true,
    };
    Ok(Survey::new(&question, source, selections, None)?.fingerprint)
}

/// Scales values in place, in parallel.
fn normalize(scaling: &Scaling, values: &mut [f32]) {
    const POINTS: usize = 1 << 16;
    values
        .par_chunks_mut(POINTS * scaling.mean.len().max(1))
        .for_each(|part| scaling.normalize_in_place(part));
}
