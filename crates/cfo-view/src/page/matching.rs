//! Matches predictions with trajectories, and finds the times and channels that both have.

use anyhow::{Result, bail};
use cfo::CfoError;
use cfo::data::store::TrajectoryFile;
use cfo::data::{Description, Offset};

/// Times that differ by less than this share of their span are the same: files may keep them in single precision.
const SAME_TIME: f64 = 1e-6;

/// A file that a page shows.
pub struct PageSource {
    /// Its name on the page.
    pub label: String,
    /// The file.
    pub file: TrajectoryFile,
    /// For each of its trajectories the predicted trajectory of the first file, if known.
    pub of: Option<Vec<usize>>,
}

/// The predictions of each trajectory of the first file, for each other file.
pub struct Pairing {
    /// `partners[file - 1][index]`.
    partners: Vec<Vec<Option<usize>>>,
}

impl Pairing {
    /// Pairs trajectories by number if both files have equally many, otherwise by their first states.
    ///
    /// # Errors
    /// If a file has another shape or other channels than the first.
    pub fn new(files: &[PageSource]) -> Result<Self> {
        let Some((PageSource { label, file: truth, .. }, predictions)) = files.split_first() else {
            return Ok(Self { partners: Vec::new() });
        };
        let mut partners = Vec::new();
        for PageSource { label: other, file, of } in predictions {
            if file.description().shape != truth.description().shape {
                bail!(CfoError::bad_data(
                    format!(
                        "snapshots of `{other}` are {:?}, those of `{label}` {:?}",
                        file.description().shape.dimensions(),
                        truth.description().shape.dimensions()
                    ),
                    "show files of different systems on pages of their own"
                ));
            }
            partners.push(match of {
                Some(of) => {
                    (0..truth.len()).map(|index| of.iter().position(|&other| other == index)).collect()
                }
                None if file.len() == truth.len() => (0..truth.len()).map(Some).collect(),
                None => by_start(truth, file)?,
            });
        }
        Ok(Self { partners })
    }

    /// The trajectory of a file (counted from 1) that belongs to one of the first.
    pub fn partner(&self, file: usize, index: usize) -> Option<usize> {
        self.partners[file - 1][index]
    }

    /// Returns all trajectories of the first file, those with predictions first.
    pub fn order(&self, count: usize) -> Vec<usize> {
        let has = |index: &usize| self.partners.iter().any(|partners| partners[*index].is_some());
        let (predicted, others): (Vec<usize>, Vec<usize>) = (0..count).partition(has);
        predicted.into_iter().chain(others).collect()
    }

    /// Returns notes on pairs that were not made by number.
    pub fn notes(&self, files: &[PageSource]) -> Vec<String> {
        let truth = &files[0].file;
        let matched = self.partners.iter().zip(&files[1..]);
        let by_state = matched.filter(|(_, source)| source.of.is_none() && source.file.len() != truth.len());
        let sentence = |(partners, source): (&Vec<Option<usize>>, &PageSource)| {
            format!(
                "{} of the {} trajectories of {} were matched by the state that they start from",
                partners.iter().flatten().count(),
                source.file.len(),
                source.label
            )
        };
        by_state.map(sentence).collect()
    }
}

/// Trajectories whose state at the prediction's first time equals the prediction's.
fn by_start(truth: &TrajectoryFile, file: &TrajectoryFile) -> Result<Vec<Option<usize>>> {
    let mut partners = vec![None; truth.len()];
    let order = channels(truth.description(), file.description());
    for number in 0..file.len() {
        let start = file.times(number)?[0];
        let state = reordered(&file.frames(number, &[0])?, &order);
        for (index, partner) in partners.iter_mut().enumerate().filter(|(_, partner)| partner.is_none()) {
            let times = truth.times(index)?;
            let Some(frame) = place(&times, start) else { continue };
            if relative_error(&state, &truth.frames(index, &[frame])?).is_some_and(|error| error < 1e-5) {
                *partner = Some(number);
                break;
            }
        }
    }
    Ok(partners)
}

/// Returns the position of each of the `own` times among the `known` ones, if it is there.
pub fn common(own: &[f64], known: &[f64]) -> Vec<Option<usize>> {
    own.iter().map(|&time| place(known, time)).collect()
}

/// Whether a time is among others.
pub fn holds(times: &[f64], time: f64) -> bool {
    place(times, time).is_some()
}

fn place(times: &[f64], time: f64) -> Option<usize> {
    let (first, last) = (*times.first()?, *times.last()?);
    let tolerance = SAME_TIME * (last - first).max(first.abs() * f64::EPSILON);
    let after = times.partition_point(|&other| other < time);
    let near = [after.saturating_sub(1), after].into_iter().filter(|&place| place < times.len());
    let nearest = near.min_by(|&a, &b| (times[a] - time).abs().total_cmp(&(times[b] - time).abs()))?;
    ((times[nearest] - time).abs() <= tolerance).then_some(nearest)
}

/// The position of each channel of one description in another: by name if both have the same names, else by number.
pub fn channels(description: &Description, other: &Description) -> Vec<usize> {
    let (names, others) = (&description.channel_names, &other.channel_names);
    let found: Option<Vec<usize>> =
        names.iter().map(|name| others.iter().position(|other| other == name)).collect();
    match found {
        Some(order) if order.len() == description.shape.channels => order,
        _ => (0..description.shape.channels).collect(),
    }
}

/// Returns `file` with the offsets of `truth`, matched by channel.
pub fn about(file: TrajectoryFile, truth: &TrajectoryFile) -> TrajectoryFile {
    let order = channels(truth.description(), file.description());
    let mut offset = vec![0.0; file.description().shape.channels];
    for (channel, &place) in order.iter().enumerate() {
        if let Some(own) = offset.get_mut(place) {
            *own = truth.offset().of(channel);
        }
    }
    file.relative_to(&Offset::new(offset))
}

/// A snapshot with its channels in another order.
pub fn reordered(snapshot: &[f32], order: &[usize]) -> Vec<f32> {
    snapshot.chunks(order.len()).flat_map(|point| order.iter().map(|&channel| point[channel])).collect()
}

/// The norm of the difference over that of the truth; `None` where the truth is zero.
pub fn relative_error(predicted: &[f32], truth: &[f32]) -> Option<f64> {
    relative_error_about(&Offset::NONE, predicted, truth)
}

/// Relative error of values that are relative to an offset. The norm is that of the absolute truth.
pub fn relative_error_about(offset: &Offset, predicted: &[f32], truth: &[f32]) -> Option<f64> {
    let norm: f64 = offset.absolute(truth).iter().map(|x| x * x).sum();
    let difference: f64 =
        predicted.iter().zip(truth).map(|(&p, &t)| (f64::from(p) - f64::from(t)).powi(2)).sum();
    (norm > 0.0).then(|| (difference / norm).sqrt())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_found_again_to_single_precision() {
        let times: Vec<f64> = (0..100).map(|n| 0.1 * f64::from(n)).collect();
        let rounded: Vec<f64> = times.iter().map(|&time| f64::from(time as f32)).collect();
        assert!(common(&rounded, &times).into_iter().eq((0..100).map(Some)));
        assert_eq!(common(&[0.05, -1.0, 11.0], &times), [None; 3]);
    }

    #[test]
    fn errors_are_relative_to_the_truth() {
        assert_eq!(relative_error(&[3.0, 4.0], &[0.0, 4.0]), Some(0.75));
        assert_eq!(relative_error(&[1.0], &[0.0]), None);
    }
}
