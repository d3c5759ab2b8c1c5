//! Whether the velocity depends on the time itself, as that of a driven system does, or on the state alone.
//!
//! Velocities at knots are fitted by ridge regression on functions of the state (around a point, where there is space), of
//! the place and of the trajectory's parameters, once without the time and once with it, and compared on trajectories that
//! were not fitted. Which frequencies of the time are offered is read from what the first fit leaves over.

mod ridge;
mod samples;

use std::f64::consts::TAU;

use cfo_numerics::Philox;

use crate::DataError;
use crate::store::TrajectoryFile;
use ridge::{Columns, Fit};
use samples::Samples;

/// Random waves in the state that a fit is offered beside powers.
const WAVES: usize = 64;

/// States with more inputs than this get no products of them.
const MOST_FACTORS: usize = 20;

/// Frequencies of the time that a fit is offered.
const FREQUENCIES: usize = 4;

/// Frequencies that are looked at.
const MOST_FREQUENCIES: usize = 2000;

/// With the time this share or less of the error is left if the velocity depends on it. Fits of systems that do not depend on the
/// time come to 0.95 and more, those of driven ones to 0.3 and less.
const SHARE: f64 = 0.6;

/// A share of the velocity's variance that is not worth another input: a hundredth of its size.
const NEGLIGIBLE: f64 = 1e-4;

/// A share of the velocity's variance that points to something missing in the state. Fits of smooth systems leave far less.
const UNDETERMINED: f64 = 0.1;

/// How well velocities are predicted on trajectories that were not fitted, without the time and with it.
#[derive(Clone, Debug, PartialEq)]
pub struct TimeDependence {
    /// Number of velocities that were compared.
    pub samples: usize,
    /// Share of their variance that a fit by the state leaves unexplained.
    pub without_time: f64,
    /// Share that a fit by state and time leaves unexplained.
    pub with_time: f64,
    /// For each channel, the share of its velocity's variance that the better of the two fits leaves unexplained.
    pub channels: Vec<f64>,
}

impl TimeDependence {
    /// Compares velocities of some trajectories of a file; `smooth` estimates them from more snapshots, for noisy data. The cost
    /// is bounded whatever the size of the file. Nothing if there are too few snapshots to compare.
    ///
    /// A value that is not finite where it looks is an error.
    pub fn new(
        file: &TrajectoryFile,
        trajectories: &[usize],
        smooth: bool,
    ) -> Result<Option<Self>, DataError> {
        let groups = Samples::read(file, trajectories, smooth)?;
        let found: Vec<Self> = groups.iter().filter_map(Self::of).collect();
        // Where edges are driven and the inside is not, the edges decide.
        Ok(found.iter().find(|one| one.is_explicit()).or(found.first()).cloned())
    }

    /// Channels whose velocity neither the state nor the time determines, each with the share of its variance that is unexplained.
    pub fn undetermined(&self) -> impl Iterator<Item = (usize, f64)> {
        self.channels.iter().copied().enumerate().filter(|&(_, share)| share > UNDETERMINED)
    }

    /// Whether the velocity depends on the time itself.
    pub fn is_explicit(&self) -> bool {
        self.without_time > NEGLIGIBLE && self.with_time < SHARE * self.without_time
    }

    fn of(samples: &Samples) -> Option<Self> {
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
            // The time may be ignored: what overfits is not held against it.
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

/// What velocities are fitted by, from the simplest to the richest, each with what the one before has: the inputs and the place;
/// cubes and products; random waves. What is too rich for a few trajectories does worse on the others and is not counted.
fn state_features(samples: &Samples) -> [Columns; 3] {
    let inputs = &samples.inputs;
    let mut linear: Columns = inputs.clone();
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
        // Lengths from half a deviation to four.
        let length = 0.5 * f64::from(1 << (wave % 4)) * (inputs.len() as f64).sqrt();
        let slopes: Vec<f64> = inputs.iter().map(|_| random.normal() / length).collect();
        let phase = TAU * random.uniform();
        let angle = |i: usize| inputs.iter().zip(&slopes).map(|(x, slope)| slope * x[i]).sum::<f64>() + phase;
        waves.push((0..samples.len()).map(|i| angle(i).cos()).collect());
    }
    [linear, powers, waves]
}

/// The time, its square and waves of it, each alone and times the inputs and places.
fn time_features(samples: &Samples, frequencies: &[f64]) -> Columns {
    let (start, span) = samples.range();
    let local: Vec<f64> = samples.time.iter().map(|t| 2.0 * (t - start) / span - 1.0).collect();
    let mut alone: Columns = vec![local.clone(), local.iter().map(|t| t * t).collect()];
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

/// The frequencies at which what is left over, alone or times an input, swings most.
fn frequencies(samples: &Samples, rows: &[usize], residuals: &Columns) -> Vec<f64> {
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
        // Neighbours of a peak belong to it.
        if chosen.len() < FREQUENCIES && chosen.iter().all(|other| (other - frequency).abs() >= 0.75 / span) {
            chosen.push(frequency);
        }
    }
    chosen
}

#[cfg(test)]
mod tests;
