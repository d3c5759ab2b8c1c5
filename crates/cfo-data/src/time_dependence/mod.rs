//! Test whether the velocity depends explicitly on time, as in a driven system, or only on the state.
//!
//! Velocities at knots are fitted by ridge regression on functions of the state (around a point, if there is space), of
//! the position and of the trajectory's parameters. One fit includes time, the other does not. They are compared on
//! trajectories that were not fitted. The frequencies of the time features come from the residuals of the first fit.

mod ridge;
mod samples;

use std::f64::consts::TAU;

use cfo_numerics::{Interpolation, Philox};

use crate::DataError;
use crate::store::TrajectoryFile;
use ridge::{Fit, SampleColumns};
use samples::VelocitySamples;

/// Number of random waves in the state, as features in addition to powers.
const WAVES: usize = 64;

/// Largest number of inputs for which their products are features.
const MOST_FACTORS: usize = 20;

const FREQUENCIES: usize = 4;

const MOST_FREQUENCIES: usize = 2000;

/// Largest ratio of the errors with and without time at which the velocity counts as time-dependent. Autonomous systems
/// have ratios of 0.95 and more, driven ones 0.3 and less.
const SHARE: f64 = 0.6;

/// Fraction of the velocity's variance that is not worth another input: a hundredth of its size.
const NEGLIGIBLE: f64 = 1e-4;

/// Unexplained fraction of the velocity's variance from which on the state is incomplete; smooth systems have far less.
const UNDETERMINED: f64 = 0.1;

/// Errors of predicted velocities on trajectories that were not fitted, with and without time.
#[derive(Clone, Debug, PartialEq)]
pub struct TimeDependence {
    /// Number of velocities compared.
    pub samples: usize,
    /// Fraction of the variance that a fit by the state leaves unexplained.
    pub without_time: f64,
    /// Fraction of the variance that a fit by state and time leaves unexplained.
    pub with_time: f64,
    /// For each channel, the fraction of its velocity's variance that the better of the two fits leaves unexplained.
    pub channels: Vec<f64>,
}

impl TimeDependence {
    /// Compares velocities of some trajectories of a file. `smooth` estimates them from more snapshots, for noisy data.
    /// With `controls` the fits also use the controls of the file, between their times as given. The cost is bounded for
    /// files of any size. `None` if there are too few snapshots.
    ///
    /// A value used that is not finite is an error.
    pub fn new(
        file: &TrajectoryFile,
        trajectories: &[usize],
        smooth: bool,
        controls: Option<Interpolation>,
    ) -> Result<Option<Self>, DataError> {
        let groups = VelocitySamples::read(file, trajectories, smooth, controls)?;
        let found: Vec<Self> = groups.iter().filter_map(Self::of).collect();
        // If the edges are driven and the inside is not, the edges decide.
        Ok(found.iter().find(|one| one.is_explicit()).or(found.first()).cloned())
    }

    /// Channels whose velocity is determined by neither state nor time, each with the fraction that is unexplained.
    pub fn undetermined(&self) -> impl Iterator<Item = (usize, f64)> {
        self.channels.iter().copied().enumerate().filter(|&(_, share)| share > UNDETERMINED)
    }

    /// Fraction of the variance that the better of the two fits leaves unexplained.
    pub fn unexplained(&self) -> f64 {
        self.with_time.min(self.without_time)
    }

    /// Whether the velocity depends explicitly on time.
    pub fn is_explicit(&self) -> bool {
        self.without_time > NEGLIGIBLE && self.with_time < SHARE * self.without_time
    }

    fn of(samples: &VelocitySamples) -> Option<Self> {
        let models = state_features(samples);
        let folds = [true, false].map(|fold| {
            let rows = |wanted: bool| -> Vec<usize> {
                (0..samples.len()).filter(|&i| (samples.fold[i] == fold) == wanted).collect()
            };
            (rows(true), rows(false))
        });
        if folds.iter().any(|(fitted, others)| fitted.len() < 16 || others.len() < 16) {
            return None;
        }
        let (mut without, mut with, mut total) = (0.0, 0.0, 0.0);
        let mut channels = vec![[0.0; 2]; samples.velocity.len()];
        for (fitted, others) in &folds {
            let (mut least, mut least_with) = (f64::INFINITY, f64::INFINITY);
            let mut least_of_each = vec![f64::INFINITY; channels.len()];
            for model in &models {
                let plain = Fit::new(model, &samples.velocity, fitted, others);
                let frequencies = frequencies(samples, fitted, &plain.residuals);
                let mut wide = model.clone();
                wide.extend(time_features(samples, &frequencies));
                let timed = Fit::new(&wide, &samples.velocity, fitted, others);
                (least, least_with) = (least.min(plain.error()), least_with.min(timed.error()));
                for (least, errors) in least_of_each.iter_mut().zip(plain.errors.iter().zip(&timed.errors)) {
                    *least = least.min(*errors.0).min(*errors.1);
                }
                total += plain.totals.iter().sum::<f64>() / models.len() as f64;
                let share = 1.0 / models.len() as f64;
                channels.iter_mut().zip(&plain.totals).for_each(|([_, sum], total)| *sum += share * total);
            }
            without += least;
            // The fit may ignore time, so overfitting does not count against it.
            with += least_with.min(least);
            channels.iter_mut().zip(&least_of_each).for_each(|([sum, _], least)| *sum += least);
        }
        let share = |error: f64, total: f64| error / total.max(f64::MIN_POSITIVE);
        Some(Self {
            samples: samples.len(),
            without_time: share(without, total),
            with_time: share(with, total),
            channels: channels.into_iter().map(|[error, total]| share(error, total)).collect(),
        })
    }
}

/// Features of the state, from the simplest to the richest set: inputs and position; also cubes and products; also
/// random waves. Sets that are too rich for a few trajectories have larger errors on the others and are not selected.
fn state_features(samples: &VelocitySamples) -> [SampleColumns; 3] {
    let inputs = &samples.inputs;
    let mut linear: SampleColumns = inputs.clone();
    linear.extend(samples.places.iter().cloned());
    let mut powers = linear.clone();
    powers.extend(inputs.iter().map(|a| a.iter().map(|x| x.powi(3)).collect()));
    let product = |a: &[f64], b: &[f64]| a.iter().zip(b).map(|(a, b)| a * b).collect::<Vec<f64>>();
    if inputs.len() <= MOST_FACTORS {
        for (i, a) in inputs.iter().enumerate() {
            powers.extend(inputs[i..].iter().map(|b| product(a, b)));
        }
    }
    let mut waves = powers.clone();
    let mut random = Philox::new(0, 0);
    for wave in 0..WAVES {
        // Wavelengths from half a deviation to four.
        let length = 0.5 * f64::from(1 << (wave % 4)) * (inputs.len() as f64).sqrt();
        let slopes: Vec<f64> = inputs.iter().map(|_| random.normal() / length).collect();
        let phase = TAU * random.uniform();
        let angle = |i: usize| inputs.iter().zip(&slopes).map(|(x, slope)| slope * x[i]).sum::<f64>() + phase;
        waves.push((0..samples.len()).map(|i| angle(i).cos()).collect());
    }
    [linear, powers, waves]
}

/// Features of time: time, its square and waves, each alone and multiplied by the inputs and positions.
fn time_features(samples: &VelocitySamples, frequencies: &[f64]) -> SampleColumns {
    let (start, span) = samples.range();
    let local: Vec<f64> = samples.time.iter().map(|t| 2.0 * (t - start) / span - 1.0).collect();
    let mut alone: SampleColumns = vec![local.clone(), local.iter().map(|t| t * t).collect()];
    for frequency in frequencies {
        for phase in [0.0, 0.25] {
            alone
                .push(samples.time.iter().map(|t| (TAU * (frequency * (t - start) - phase)).cos()).collect());
        }
    }
    let factors = || samples.inputs.iter().take(8).chain(&samples.places);
    let mut columns = alone.clone();
    for one in &alone {
        columns.extend(factors().map(|other| one.iter().zip(other).map(|(a, b)| a * b).collect()));
    }
    columns
}

/// The frequencies at which the residuals, alone or times an input, have the largest amplitudes.
fn frequencies(samples: &VelocitySamples, rows: &[usize], residuals: &SampleColumns) -> Vec<f64> {
    let (start, span) = samples.range();
    let highest = (0.25 / samples.interval).max(1.0 / span);
    let step = (0.25 / span).max(highest / MOST_FREQUENCIES as f64);
    let candidates: Vec<f64> = (1..=(highest / step) as usize).map(|k| k as f64 * step).collect();
    let ones = vec![1.0; samples.len()];
    let factors: Vec<&Vec<f64>> = std::iter::once(&ones).chain(samples.inputs.iter().take(4)).collect();
    let energy = |frequency: f64| -> f64 {
        let mut sums = vec![[0.0; 2]; residuals.len() * factors.len()];
        for (r, &i) in rows.iter().enumerate() {
            let (sin, cos) = (TAU * frequency * (samples.time[i] - start)).sin_cos();
            for (c, residual) in residuals.iter().enumerate() {
                for (f, factor) in factors.iter().enumerate() {
                    let value = residual[r] * factor[i];
                    let sum = &mut sums[c * factors.len() + f];
                    sum[0] += value * cos;
                    sum[1] += value * sin;
                }
            }
        }
        sums.iter().map(|[a, b]| a * a + b * b).sum()
    };
    let mut found: Vec<(f64, f64)> = candidates.iter().map(|&f| (energy(f), f)).collect();
    found.sort_by(|a, b| b.0.total_cmp(&a.0));
    let mut chosen: Vec<f64> = Vec::new();
    for (_, frequency) in found {
        // Neighbours of a peak are part of it.
        if chosen.len() < FREQUENCIES && chosen.iter().all(|other| (other - frequency).abs() >= 0.75 / span) {
            chosen.push(frequency);
        }
    }
    chosen
}

#[cfg(test)]
mod tests;
