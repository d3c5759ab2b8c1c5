//! How the forward and the backward solution of a gap are joined, and which way is used.

use crate::recipe::RefineMode;

/// Ratio of the squared misses of both solutions above which the better one is used alone.
const CLEARLY: f64 = 4.0;

/// The forward and the backward solution of a gap, normalised and in the order of time. `forward` has the states after the first row,
/// `backward` those before the last; `None` if a solution is not usable.
#[derive(Default)]
pub(super) struct Solutions {
    pub forward: Option<Vec<f32>>,
    pub backward: Option<Vec<f32>>,
}

/// How a gap is filled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum GapPath {
    Blend,
    Forward,
    Backward,
}

/// The mean square of differences between states.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Difference {
    sum: f64,
    count: usize,
}

/// Returns a state of consecutive ones.
pub(super) fn state(values: &[f32], at: usize, size: usize) -> &[f32] {
    &values[at * size..(at + 1) * size]
}

/// Returns consecutive states in the opposite order.
pub(super) fn reversed(states: &[f32], count: usize) -> Vec<f32> {
    states.chunks(states.len() / count).rev().flatten().copied().collect()
}

impl Difference {
    /// Adds the difference of two states, if there are two.
    pub fn add(&mut self, pair: Option<(&[f32], &[f32])>) {
        let Some((one, other)) = pair else { return };
        self.sum += one.iter().zip(other).map(|(one, other)| f64::from(one - other).powi(2)).sum::<f64>();
        self.count += one.len();
    }

    /// Returns the root of the mean square; 0 without differences.
    pub fn root(&self) -> f64 {
        (self.sum / self.count.max(1) as f64).sqrt()
    }
}

impl Solutions {
    /// Returns a snapshot and the state that the forward solution, or else the backward one, reaches in its place. `rows` are those of the gap,
    /// from the snapshot before it to the one after it.
    pub fn miss<'s>(&'s self, rows: &'s [f32], size: usize) -> Option<(&'s [f32], &'s [f32])> {
        self.ahead(rows, size).or_else(|| self.behind(rows, size))
    }

    fn ahead<'s>(&'s self, rows: &'s [f32], size: usize) -> Option<(&'s [f32], &'s [f32])> {
        let states = self.forward.as_deref()?;
        Some((&rows[rows.len() - size..], &states[states.len() - size..]))
    }

    fn behind<'s>(&'s self, rows: &'s [f32], size: usize) -> Option<(&'s [f32], &'s [f32])> {
        Some((&rows[..size], &self.backward.as_deref()?[..size]))
    }
}

impl GapPath {
    /// Returns how a gap is filled; `None` if no solution is usable. To first order, the velocity of a filled path differs from the network's by
    /// the miss over the length of the gap: that of the solution that is corrected, or of both if they are blended. So the solution with the
    /// clearly smaller miss is used alone.
    pub fn of(mode: RefineMode, solutions: &Solutions, rows: &[f32], size: usize) -> Option<Self> {
        let error = |pair: Option<(&[f32], &[f32])>| {
            let mut difference = Difference::default();
            difference.add(pair);
            pair.map(|_| difference.sum)
        };
        match (error(solutions.ahead(rows, size)), error(solutions.behind(rows, size))) {
            (None, None) => None,
            (Some(_), None) => Some(Self::Forward),
            (None, Some(_)) => Some(Self::Backward),
            (Some(ahead), Some(behind)) if mode == RefineMode::Auto && behind > CLEARLY * ahead => {
                Some(Self::Forward)
            }
            (Some(ahead), Some(behind)) if mode == RefineMode::Auto && ahead > CLEARLY * behind => {
                Some(Self::Backward)
            }
            (Some(_), Some(_)) => Some(Self::Blend),
        }
    }

    /// Returns the filled states of a gap. `rows` are those of the gap, from the snapshot before it to the one after it.
    pub fn states(self, solutions: &Solutions, rows: &[f32], size: usize) -> Vec<f32> {
        let (parts, last) = (rows.len() / size - 1, rows.len() - size);
        let forward = solutions.forward.as_deref().unwrap_or_default();
        let backward = solutions.backward.as_deref().unwrap_or_default();
        let value = |part: usize, i: usize| {
            let share = part as f32 / parts as f32;
            let (ahead, behind) = ((part - 1) * size + i, part * size + i);
            match self {
                Self::Blend => (1.0 - share) * forward[ahead] + share * backward[behind],
                Self::Forward => forward[ahead] + share * (rows[last + i] - forward[last - size + i]),
                Self::Backward => backward[behind] + (1.0 - share) * (rows[i] - backward[i]),
            }
        };
        (1..parts).flat_map(|part| (0..size).map(move |i| value(part, i))).collect()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// Checks that each way removes an error of the field that is constant along the gap, whatever the true states are.
        #[test]
        fn a_constant_error_of_the_field_is_removed(
            truth in prop::collection::vec(-1.0..1.0_f32, 6..30),
            error in -1.0..1.0_f32,
            way in prop::sample::select(vec![GapPath::Blend, GapPath::Forward, GapPath::Backward]),
        ) {
            let size = 2;
            let rows = &truth[..truth.len() / size * size];
            let last = rows.len() / size - 1;
            let with_error = |row: usize, from: usize| -> Vec<f32> {
                let error = error * (row as f32 - from as f32);
                rows[row * size..][..size].iter().map(|value| value + error).collect()
            };
            let solutions = Solutions {
                forward: Some((1..=last).flat_map(|row| with_error(row, 0)).collect()),
                backward: Some((0..last).flat_map(|row| with_error(row, last)).collect()),
            };
            let filled = way.states(&solutions, rows, size);
            for (found, expected) in filled.iter().zip(&rows[size..]) {
                // Errors of up to 15 are removed in single precision.
                prop_assert!((found - expected).abs() < 1e-5, "{found} {expected}");
            }
            prop_assert_eq!(filled.len(), rows.len() - 2 * size);
            let (end, reached) = solutions.miss(rows, size).unwrap();
            prop_assert!((reached[0] - end[0] - error * last as f32).abs() < 1e-5);
        }
    }

    #[test]
    fn a_solution_with_a_clearly_smaller_miss_is_used_alone() {
        let rows = [0.0, f32::NAN, 1.0];
        let way = |mode, ahead: Option<f32>, behind: Option<f32>| {
            let forward = ahead.map(|miss| vec![0.5, 1.0 + miss]);
            let solutions = Solutions { forward, backward: behind.map(|miss| vec![miss, 0.5]) };
            GapPath::of(mode, &solutions, &rows, 1)
        };
        for mode in [RefineMode::Auto, RefineMode::Blend] {
            assert_eq!(way(mode, Some(0.1), Some(0.15)), Some(GapPath::Blend));
            assert_eq!(way(mode, Some(0.1), None), Some(GapPath::Forward));
            assert_eq!(way(mode, None, Some(0.1)), Some(GapPath::Backward));
            assert_eq!(way(mode, None, None), None);
        }
        assert_eq!(way(RefineMode::Auto, Some(0.1), Some(0.3)), Some(GapPath::Forward));
        assert_eq!(way(RefineMode::Auto, Some(0.3), Some(0.1)), Some(GapPath::Backward));
        assert_eq!(way(RefineMode::Blend, Some(0.3), Some(0.1)), Some(GapPath::Blend));
    }
}
