//! The survey of the training data: one pass reads, measures, hashes and stores every value.

use cfo_data::{ChangeProducts, Normalization, RoundingCheck, Statistics, TrajectoryInputs};
use cfo_numerics::{DrawBy, Energy};
use rayon::prelude::*;
use sha2::{Digest, Sha256};

use crate::error::Result;
use crate::measure::fingerprint::{PREFIX, digest};
use crate::measure::latent::Latent;
use crate::measure::profile::ProfileSums;
use crate::measure::selection::{Selection, Times};
use crate::measure::smoothing::Denoiser;
use crate::measure::{Question, trust};
use crate::recipe::Normalize;
use crate::trajectories::Trajectories;

/// The snapshots to survey: those of a set, smoothed if there is a denoiser, in the space that the network works in.
#[derive(Clone, Copy)]
pub(crate) struct Source<'a> {
    pub(crate) set: &'a Trajectories,
    pub(crate) denoiser: Option<&'a Denoiser>,
    pub(crate) latent: Option<Latent>,
}

impl Source<'_> {
    fn channels(self) -> usize {
        let channels = self.set.description.shape.channels;
        self.latent.map_or(channels, |latent| channels * latent.expansion())
    }
}

/// The results of one pass over the training data, in the user's units. Training samples all trajectories with equal probability. Changes
/// and velocities are therefore averaged over each trajectory first.
pub(crate) struct Survey {
    /// Statistics of all values, in the space that the network works in.
    pub(crate) values: Statistics,
    /// Statistics of all values in the space of the data, if the network works in another one.
    data: Option<Statistics>,
    /// Root mean square of the change between neighbouring snapshots of each channel.
    pub(crate) change: Vec<f64>,
    /// Root mean square of the path's velocity of each channel.
    pub(crate) velocity: Vec<f64>,
    channels: usize,
    /// The speed over time.
    pub(crate) profile: ProfileSums,
    /// The relative error of the path's velocity at each snapshot of all trajectories; empty if errors are not estimated.
    pub(crate) path_errors: Vec<f32>,
    /// Start, durations and mean interval of the times.
    pub(crate) times: Times,
    /// Warnings about channels whose variation is lost in rounding.
    pub(crate) warnings: Vec<String>,
    /// Hash of the values, times and parameters. It shows whether a run is resumed on other data.
    pub(crate) fingerprint: String,
}

struct Found {
    values: Statistics,
    data: Option<Statistics>,
    change: Vec<f64>,
    velocity: Vec<f64>,
    profile: ProfileSums,
    path_errors: Vec<f32>,
    hash: [u8; 16],
}

/// The previous times and their weights, which most often apply to all trajectories.
type Known = Option<(Vec<f64>, Energy)>;

impl Survey {
    /// Reads trajectories in parallel and joins their measurements in order. The result does not depend on the number of threads. The
    /// values, smoothed if there is a denoiser, are written to `place`, which must have exactly their size.
    pub(crate) fn new(
        question: &Question,
        source: Source<'_>,
        selections: &[Selection],
        place: Option<&mut [f32]>,
    ) -> Result<Self> {
        let times = Times::of(selections, source.set)?;
        let size = source.set.description.shape.len();
        let surveyor = Surveyor { source, question, times, size };
        let mut rest = place;
        let places = selections.iter().map(|selection| {
            let (now, later) = rest.take()?.split_at_mut(selection.len() * size);
            rest = Some(later);
            Some(now)
        });
        let found = surveyor.survey(selections, places.collect())?;
        Ok(Self::join(source, selections, times, found))
    }

    fn join(source: Source<'_>, selections: &[Selection], times: Times, found: Vec<Found>) -> Self {
        let (set, channels) = (source.set, source.channels());
        let (mut change, mut velocity) = (vec![0.0; channels], vec![0.0; channels]);
        let (mut values, mut hasher) = (Statistics::new(channels), Sha256::new());
        let (mut profile, mut path_errors) = (ProfileSums::new(channels), Vec::new());
        let mut data: Option<Statistics> = None;
        let mut precision = RoundingCheck::new(channels);
        for (one, selection) in found.iter().zip(selections) {
            precision.add(&one.values);
            values.merge(&one.values);
            match (&mut data, &one.data) {
                (Some(data), Some(more)) => data.merge(more),
                (data, more) => *data = more.clone(),
            }
            profile.merge(&one.profile);
            path_errors.extend_from_slice(&one.path_errors);
            for (sums, found) in [(&mut change, &one.change), (&mut velocity, &one.velocity)] {
                sums.iter_mut().zip(found).for_each(|(sum, found)| *sum += found);
            }
            let trajectory = &set.trajectories[selection.trajectory];
            hasher.update(one.hash);
            let numbers = selection.times(&trajectory.times);
            hash_inputs(&mut hasher, &numbers, &trajectory.inputs);
        }
        for number in set.offset().channels() {
            hasher.update(number.to_le_bytes());
        }
        let digest: String = hasher.finalize().iter().take(16).map(|byte| format!("{byte:02x}")).collect();
        let fingerprint = format!("{PREFIX}{digest}");
        let channels = set.description.shape.channels;
        for squares in profile.squares.iter_mut().chain([&mut change, &mut velocity]) {
            share(squares, channels);
        }
        // Coefficients are not channels.
        let warnings = match source.latent {
            None => precision.warnings(&set.description.channel_names, set.offset()),
            Some(_) => Vec::new(),
        };
        let roots = |sums: Vec<f64>| -> Vec<f64> {
            sums.into_iter().map(|sum| (sum / found.len().max(1) as f64).sqrt()).collect()
        };
        Self {
            values,
            data,
            change: roots(change),
            velocity: roots(velocity),
            channels,
            profile,
            path_errors,
            times,
            warnings,
            fingerprint,
        }
    }

    /// Returns the offset and the divisor of each channel; all coefficients of a channel of the data have one divisor.
    pub(crate) fn normalization(&self, normalize: Normalize) -> Normalization {
        let Normalization { mean, deviation } = match normalize {
            Normalize::Standard => self.values.normalization(),
            Normalize::Center => {
                let deviation = vec![1.0; self.change.len()];
                return Normalization { deviation, ..self.values.normalization() };
            }
            Normalize::Range => self.values.range_normalization(),
            Normalize::None => return Normalization::identity(self.change.len()),
        };
        let mut squares: Vec<f64> = deviation.iter().map(|deviation| deviation.powi(2)).collect();
        share(&mut squares, self.channels);
        Normalization { mean, deviation: squares.into_iter().map(f64::sqrt).collect() }
    }

    /// Returns the smallest and largest value of each channel of the data.
    pub(crate) fn range(&self) -> Vec<[f64; 2]> {
        let range = self.data.as_ref().unwrap_or(&self.values).range();
        range.into_iter().map(|ends| ends.map(f64::from)).collect()
    }

    /// Returns which channels change by more than the rounding error of single precision.
    pub(crate) fn moves(&self) -> Vec<bool> {
        let means = self.values.normalization().mean;
        let resolved = |(&change, mean): (&f64, f64)| change > mean.abs() * f64::from(f32::EPSILON) * 0.25;
        self.change.iter().zip(means).map(resolved).collect()
    }
}

/// Adds the times and the inputs of a trajectory to a hash.
fn hash_inputs(hasher: &mut Sha256, times: &[f64], inputs: &TrajectoryInputs) {
    let TrajectoryInputs { parameters, controls, statics } = inputs;
    let controls = controls.iter().flat_map(|own| own.times().iter().chain(own.values()));
    for number in times.iter().chain(parameters).chain(controls) {
        hasher.update(number.to_le_bytes());
    }
    if let Some(statics) = statics {
        hasher.update(digest(statics));
    }
}

/// Sets all coefficients of a channel of the data to their mean.
fn share(squares: &mut [f64], channels: usize) {
    let count = squares.len();
    for channel in 0..channels {
        let coefficients = || (channel..count).step_by(channels);
        let mean = coefficients().map(|i| squares[i]).sum::<f64>() / coefficients().count() as f64;
        coefficients().for_each(|i| squares[i] = mean);
    }
}

struct Surveyor<'a> {
    source: Source<'a>,
    question: &'a Question,
    times: Times,
    size: usize,
}

impl Surveyor<'_> {
    /// Reads and measures each trajectory in its place. Trajectories without a place are not kept: at most one per thread is in memory.
    fn survey(&self, selections: &[Selection], places: Vec<Option<&mut [f32]>>) -> Result<Vec<Found>> {
        if !self.source.set.is_sequential() {
            let read_and_measure = |(known, room): &mut (Known, Vec<f32>), (selection, place)| {
                Ok(self.measure(selection, self.read(selection, place, room)?, known))
            };
            return selections
                .par_iter()
                .zip(places)
                .map_init(|| (None, Vec::new()), read_and_measure)
                .collect();
        }
        let mut found = Vec::with_capacity(selections.len());
        let mut rooms = vec![Vec::new(); rayon::current_num_threads().max(1)];
        let mut rest = selections.iter().zip(places);
        while found.len() < selections.len() {
            let mut read = Vec::new();
            for (room, (selection, place)) in rooms.iter_mut().zip(rest.by_ref()) {
                read.push((selection, self.read(selection, place, room)?));
            }
            let measure = |known: &mut Known, (selection, values): (&Selection, &mut [f32])| {
                self.measure(selection, values, known)
            };
            found.par_extend(read.into_par_iter().map_init(|| None, measure));
        }
        Ok(found)
    }

    /// Reads the snapshots of a trajectory to its place, or to `room` if it has none.
    fn read<'r>(
        &self,
        selection: &Selection,
        place: Option<&'r mut [f32]>,
        room: &'r mut Vec<f32>,
    ) -> Result<&'r mut [f32]> {
        let values = place.unwrap_or_else(|| {
            room.resize(selection.len() * self.size, 0.0);
            room
        });
        selection.read(self.source.set, 0..selection.len(), values)?;
        Ok(values)
    }

    /// Hashes the snapshots of the set, removes their noise, and measures the result.
    fn measure(&self, selection: &Selection, snapshots: &mut [f32], known: &mut Known) -> Found {
        let hash = digest(snapshots);
        let channels = self.source.channels();
        let times = selection.times(&self.source.set.trajectories[selection.trajectory].times);
        if let Some(denoiser) = self.source.denoiser {
            denoiser.smooth(&times, &selection.counts, snapshots);
        }
        let mut data = None;
        if let Some(latent) = self.source.latent {
            let shape = self.source.set.description.shape;
            data.insert(Statistics::new(channels)).add(snapshots);
            latent.encode(shape, snapshots);
        }
        let mut values = Statistics::new(channels);
        values.add(snapshots);
        let &Question { path, by, clock, .. } = self.question;
        let errors = self.question.trust.is_some();
        let times = self.times.by(clock, times);
        let mut reach = Energy::reach(path, times.len());
        if errors {
            reach = reach.max(trust::reach(path, times.len()));
        }
        let products = ChangeProducts::new(snapshots.chunks(self.size), channels, reach);
        let energy = match known {
            Some((seen, energy)) if *seen == times => energy,
            _ => &mut known.insert((times.clone(), Energy::new(path, by, &times))).1,
        };
        let changes = products.len() as f64;
        let change =
            |channel: usize| (0..products.len()).map(|j| products.mean(j, 0, channel)).sum::<f64>() / changes;
        let velocity = |channel: usize| energy.mean_square(|j, offset| products.mean(j, offset, channel));
        let mut profile = ProfileSums::new(channels);
        for (j, pair) in times.windows(2).enumerate() {
            let [from, to] = [pair[0], pair[1]].map(|time| (time - self.times.start) / self.times.duration);
            profile.add([from, to], density(by, &times, j), |channel| {
                products.mean(j, 0, channel) / (to - from).powi(2)
            });
        }
        let path_errors = match errors {
            true => trust::path_errors(path, &times, &products, channels),
            false => Vec::new(),
        };
        Found {
            values,
            data,
            profile,
            path_errors,
            change: (0..channels).map(change).collect(),
            velocity: (0..channels).map(velocity).collect(),
            hash,
        }
    }
}

/// Returns the density of samples in an interval, relative to uniform sampling in time.
fn density(by: DrawBy, times: &[f64], interval: usize) -> f64 {
    match by {
        DrawBy::Time => 1.0,
        _ => by.interval_share(times, interval) / DrawBy::Time.interval_share(times, interval),
    }
}
