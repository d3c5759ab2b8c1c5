//! Segments of trajectories with rows between their snapshots, and the states of these rows.

use super::gap_path::{Difference, GapPath, Solutions, reversed, state};
use super::gaps::{Gaps, WideGap};
use super::solver::Task;
use crate::error::Result;
use crate::model::Model;
use crate::recipe::RefineMode;
use crate::train::training_data::TrainingData;
use crate::trajectories::Trajectories;

/// Segments whose gaps are filled together.
pub(super) struct Filled {
    pub data: TrainingData,
    /// The states of all rows.
    pub values: Vec<f32>,
    gaps: Vec<WideGap>,
    /// Number of values of a state.
    size: usize,
}

/// All trajectories of a training, without filled states.
#[derive(Clone, Copy)]
pub(super) struct Snapshots<'s> {
    pub data: &'s TrainingData,
    pub set: &'s Trajectories,
    pub gaps: &'s Gaps,
}

impl Filled {
    /// Reads segments and places their snapshots. There are at least `capacity` rows.
    pub fn new(of: Snapshots<'_>, chosen: &[usize], capacity: usize, model: &Model) -> Result<Self> {
        let rows: usize = chosen.iter().map(|&segment| of.gaps.rows_of(segment)).sum();
        let (data, values) = of.data.with_gaps((of.gaps, chosen), rows.max(capacity), model, of.set)?;
        let size = model.batch_shape(1).iter().product();
        Ok(Self { data, values, gaps: of.gaps.of_segments(chosen), size })
    }

    /// Keeps at most `count` gaps of nearly equal lengths: the longest but a quarter of all.
    pub fn keep_middle(&mut self, count: usize) {
        let (all, count) = (self.gaps.len(), count.min(self.gaps.len()));
        let first = (all / 4).min(all - count);
        self.gaps = self.gaps[first..first + count].to_vec();
    }

    /// Returns the standard deviation of the snapshots, around the mean of each channel.
    pub fn deviation(&self, gaps: &Gaps, chosen: &[usize], channels: usize) -> f64 {
        let (mut sums, mut squares, mut count) = (vec![0.0; channels], 0.0, 0);
        for (block, &segment) in chosen.iter().enumerate() {
            let first = self.data.range_of(block).start;
            for &row in gaps.knots(segment) {
                let snapshot = state(&self.values, first + row as usize, self.size);
                for (i, &value) in snapshot.iter().enumerate() {
                    sums[i % channels] += f64::from(value);
                    squares += f64::from(value).powi(2);
                }
                count += self.size;
            }
        }
        let each = (count / channels).max(1) as f64;
        let means: f64 = sums.iter().map(|sum| (sum / each).powi(2)).sum::<f64>() / channels as f64;
        (squares / count.max(1) as f64 - means).max(f64::MIN_POSITIVE).sqrt()
    }

    /// Returns the rows of a gap, with those of the snapshots at its ends.
    fn rows(&self, gap: WideGap) -> &[f32] {
        let first = self.data.range_of(gap.block).start + gap.row;
        &self.values[first * self.size..(first + gap.parts + 1) * self.size]
    }

    /// Returns the solutions to compute, in each of some directions (`true` for backward) for each gap.
    pub fn tasks<'t>(&'t self, of: Snapshots<'t>, ways: &'t [bool]) -> Vec<Task<'t>> {
        let task = |gap: WideGap, backward: bool| {
            let mut times = self.data.times_of(gap.block)[gap.row..=gap.row + gap.parts].to_vec();
            if backward {
                times.reverse();
            }
            let start = if backward { gap.parts } else { 0 };
            let inputs = of.data.inputs_of(of.gaps.segment(gap.segment).trajectory, of.set);
            Task { state: state(self.rows(gap), start, self.size), times, inputs }
        };
        self.gaps.iter().flat_map(|&gap| ways.iter().map(move |&backward| task(gap, backward))).collect()
    }

    /// Returns the miss of forward solutions, one for each gap: the root mean square over gaps.
    pub fn missed(&self, found: &[Option<Vec<f32>>]) -> f64 {
        let mut missed = Difference::default();
        for (&gap, forward) in self.gaps.iter().zip(found) {
            let end = state(self.rows(gap), gap.parts, self.size);
            missed.add(forward.as_deref().map(|states| (state(states, gap.parts - 1, self.size), end)));
        }
        missed.root()
    }

    /// Fills the gaps with solutions as [`Filled::tasks`] lists them, or with the path where none is usable.
    pub fn fill(
        &mut self,
        (mode, ways): (RefineMode, &[bool]),
        found: Vec<Option<Vec<f32>>>,
        (gaps, model): (&Gaps, &Model),
    ) -> Outcome {
        let (mut found, mut outcome) = (found.into_iter(), Outcome::default());
        for gap in std::mem::take(&mut self.gaps) {
            let mut solutions = Solutions::default();
            for &backward in ways {
                let states = found.next().flatten();
                match backward {
                    true => solutions.backward = states.map(|states| reversed(&states, gap.parts)),
                    false => solutions.forward = states,
                }
            }
            outcome.missed.add(solutions.miss(self.rows(gap), self.size));
            let block = self.data.range_of(gap.block);
            let all = &self.values[block.start * self.size..block.end * self.size];
            let path = gaps.path_states(model.question().path, gap, self.data.times_of(gap.block), all);
            let joined = GapPath::of(mode, &solutions, self.rows(gap), self.size);
            let states =
                joined.map_or_else(|| path.clone(), |way| way.states(&solutions, self.rows(gap), self.size));
            outcome.moved.add(Some((&states, &path)));
            let first = block.start + gap.row + 1;
            self.values[first * self.size..][..states.len()].copy_from_slice(&states);
        }
        outcome
    }
}

/// What filling gaps has changed.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Outcome {
    /// The differences of snapshots and the solutions that lead to them.
    pub missed: Difference,
    /// The differences of filled states and the path through the snapshots alone.
    pub moved: Difference,
    /// The standard deviation of the snapshots.
    pub deviation: f64,
}
