//! The steps of one trajectory: from its start through its output times.

use std::ops::Range;
use std::sync::Arc;

/// Outputs whose distance from a step's end is at most this share of the step are at the end.
const NEAR: f64 = 1e-9;

/// An output beyond an interval by at most this share of it still belongs to the interval, since times and mean intervals are rounded.
const LATE: f64 = 1e-3;

/// One step and the outputs on it, in the network's units of time.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Step {
    pub(super) start: f64,
    /// Length; negative backward in time.
    pub(super) length: f64,
    /// Outputs before the step's end, which are interpolated.
    pub(super) inside: Range<usize>,
    /// Outputs at the step's end.
    pub(super) at_end: Range<usize>,
    /// Whether a control jumps at the step's start.
    pub(super) follows_jump: bool,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Cut {
    /// One step from output to output.
    PerOutput,
    /// From output to output, with the number of steps whose length is nearest to this one.
    About(f64),
    /// To the last output within an interval of this length, or to the next output if none is within it; this number of steps per interval.
    Intervals { interval: f64, steps: usize },
    /// From output to output, with the smallest number of equal steps that are not longer than this.
    AtMost(f64),
    /// This number of equal steps from the start to the last output; other outputs are interpolated.
    Equal(usize),
}

/// An iterator over the steps of a trajectory. They are not stored, since their number may be large.
pub(super) struct StepSchedule {
    times: Arc<[f64]>,
    cut: Cut,
    output: usize,
    /// Start of the current run of equal steps.
    from: f64,
    to: f64,
    count: usize,
    /// Number of steps already made.
    made: usize,
    /// Times at which a control jumps, in order; a run ends at each unless it has a given number of steps.
    jumps: Vec<f64>,
    /// Number of jumps passed.
    passed: usize,
}

impl StepSchedule {
    /// Creates the steps from a start through output times in order of their distance from it. Outputs at the start are skipped.
    pub(super) fn new(start: f64, times: Arc<[f64]>, cut: Cut) -> Self {
        let output = times.iter().take_while(|&&time| time == start).count();
        Self { times, cut, output, from: start, to: start, count: 0, made: 0, jumps: Vec::new(), passed: 0 }
    }

    /// Sets the times at which a control jumps, in order of their distance from the start.
    pub(super) fn with_jumps(self, jumps: Vec<f64>) -> Self {
        Self { jumps, ..self }
    }

    /// Advances past the jumps up to the start of a step and returns whether there are any.
    fn pass_jumps(&mut self, start: f64, end: f64) -> bool {
        let first = self.passed;
        let reached = |jump: &&f64| (**jump - start) / (end - start) <= NEAR;
        self.passed += self.jumps[first..].iter().take_while(reached).count();
        self.passed > first
    }

    /// Begins the next run of equal steps. Returns `false` after the last output.
    fn begin(&mut self) -> bool {
        if self.output >= self.times.len() {
            return false;
        }
        self.from = self.to;
        self.to = match self.cut {
            Cut::Equal(_) => self.times[self.times.len() - 1],
            Cut::Intervals { interval, .. } => {
                let near = |time: &&f64| (*time - self.from).abs() <= interval * (1.0 + LATE);
                let passed = self.times[self.output..].iter().take_while(near).count().max(1);
                self.times[self.output + passed - 1]
            }
            _ => self.times[self.output],
        };
        // Exact numbers of steps, and steps from output to output, do not end at jumps.
        if !matches!(self.cut, Cut::Equal(_) | Cut::PerOutput)
            && let Some(&jump) = self.jumps[self.passed..].iter().find(|&&jump| {
                let share = (jump - self.from) / (self.to - self.from);
                share > NEAR && share < 1.0 - NEAR
            })
        {
            self.to = jump;
        }
        let length = (self.to - self.from).abs();
        self.count = match self.cut {
            Cut::PerOutput => 1,
            Cut::About(interval) => (length / interval).round().max(1.0) as usize,
            Cut::Intervals { interval, steps } => (length / interval).round().max(1.0) as usize * steps,
            // A small tolerance: rounding of the division must not add a step.
            Cut::AtMost(limit) => (length / limit * (1.0 - NEAR)).ceil().max(1.0) as usize,
            Cut::Equal(count) => count,
        };
        self.made = 0;
        true
    }
}

impl Iterator for StepSchedule {
    type Item = Step;

    fn next(&mut self) -> Option<Step> {
        if self.made == self.count && !self.begin() {
            return None;
        }
        let at = |step: usize| match step {
            step if step == self.count => self.to,
            step => self.from + (self.to - self.from) * step as f64 / self.count as f64,
        };
        let (start, end) = (at(self.made), at(self.made + 1));
        let length = end - start;
        self.made += 1;
        let follows_jump = self.pass_jumps(start, end);
        let first = self.output;
        let upto = |share: f64, from: usize| {
            let passed = self.times[from..].iter().take_while(|&&time| (time - start) / length <= share);
            from + passed.count()
        };
        let inside = upto(1.0 - NEAR, first);
        let last = upto(1.0 + NEAR, inside);
        self.output = last;
        Some(Step { start, length, inside: first..inside, at_end: inside..last, follows_jump })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn steps(start: f64, times: &[f64], cut: Cut) -> Vec<Step> {
        StepSchedule::new(start, times.into(), cut).collect()
    }

    #[test]
    fn a_uniform_grid_takes_one_step_an_interval_however_it_is_cut() {
        let times: Vec<f64> = (1..=40).map(|i| f64::from(i) * 0.01).collect();
        for cut in [Cut::PerOutput, Cut::About(0.01), Cut::AtMost(0.01), Cut::Equal(40)] {
            let steps = steps(0.0, &times, cut);
            assert_eq!(steps.len(), 40, "{cut:?}");
            for (i, step) in steps.iter().enumerate() {
                assert_eq!((step.inside.clone(), step.at_end.clone()), (i..i, i..i + 1), "{cut:?}");
            }
        }
    }

    #[test]
    fn long_intervals_are_cut_and_outputs_at_the_start_take_no_step() {
        let steps = steps(1.0, &[1.0, 1.1, 1.35], Cut::About(0.1));
        let lengths: Vec<f64> = steps.iter().map(|step| (step.length * 1e3).round()).collect();
        assert_eq!(lengths, [100.0, 83.0, 83.0, 83.0]);
        assert_eq!(steps[0].at_end, 1..2);
        assert_eq!(super::tests::steps(1.0, &[1.0], Cut::Equal(3)), []);
        assert_eq!(super::tests::steps(1.0, &[], Cut::PerOutput), []);
    }

    #[test]
    fn steps_of_an_interval_pass_outputs_within_it_and_repeat_over_longer_ones() {
        let cut = Cut::Intervals { interval: 0.1, steps: 2 };
        let lengths = |times: &[f64]| -> Vec<f64> {
            steps(0.0, times, cut).iter().map(|step| (step.length * 1e3).round()).collect()
        };
        assert_eq!(lengths(&[0.1, 0.2]), [50.0; 4]);
        let dense: Vec<f64> = (1..=20).map(|i| f64::from(i) * 0.01).collect();
        assert_eq!(lengths(&dense), [50.0; 4]);
        assert_eq!(lengths(&[0.3]), [50.0; 6]);
        assert_eq!(lengths(&[0.04]), [20.0; 2]);
    }

    #[test]
    fn runs_end_at_jumps_unless_the_number_of_steps_is_given() {
        let jumps = vec![0.05, 0.2, 0.25];
        let ends = |cut: Cut, start: f64, last: f64, jumps: &[f64]| -> Vec<(f64, bool)> {
            let schedule = StepSchedule::new(start, vec![last].into(), cut).with_jumps(jumps.to_vec());
            schedule
                .map(|step| (((step.start + step.length) * 1e3).round() / 1e3, step.follows_jump))
                .collect()
        };
        let expected = [(0.05, false), (0.125, true), (0.2, false), (0.25, true), (0.3, true)];
        assert_eq!(ends(Cut::AtMost(0.1), 0.0, 0.3, &jumps), expected);
        let back = [(0.25, false), (0.2, true), (0.125, true), (0.05, false), (0.0, true)];
        assert_eq!(ends(Cut::AtMost(0.1), 0.3, 0.0, &[0.25, 0.2, 0.05]), back);
        let equal = [(0.1, false), (0.2, true), (0.3, true)];
        assert_eq!(ends(Cut::Equal(3), 0.0, 0.3, &jumps), equal);
    }

    proptest! {
        /// Checks that steps are contiguous, that every output belongs to exactly one of them, and that the last one ends at the last
        /// output.
        #[test]
        fn steps_join_and_pass_every_output(
            start in -2.0..2.0_f64,
            gaps in prop::collection::vec(1e-3..1.0_f64, 1..30),
            backward: bool,
            count in 1..50_usize,
        ) {
            let sign = if backward { -1.0 } else { 1.0 };
            let mut time = start;
            let times: Vec<f64> = gaps.iter().map(|gap| { time += sign * gap; time }).collect();
            for cut in [
                Cut::PerOutput,
                Cut::About(0.2),
                Cut::Intervals { interval: 0.2, steps: 2 },
                Cut::AtMost(0.2),
                Cut::Equal(count),
            ] {
                let steps = steps(start, &times, cut);
                let (mut at, mut output) = (start, 0);
                for step in &steps {
                    prop_assert!((step.start - at).abs() < 1e-12 && step.length * sign > 0.0);
                    at = step.start + step.length;
                    prop_assert_eq!(step.inside.start, output);
                    prop_assert_eq!(step.at_end.start, step.inside.end);
                    for time in &times[step.inside.clone()] {
                        prop_assert!((time - step.start) / step.length < 1.0);
                        prop_assert!((time - step.start) / step.length > 0.0);
                    }
                    for time in &times[step.at_end.clone()] {
                        prop_assert!((time - at).abs() < 1e-8);
                    }
                    output = step.at_end.end;
                }
                prop_assert_eq!(output, times.len());
                prop_assert!((at - times[times.len() - 1]).abs() < 1e-12);
                if let Cut::Equal(count) = cut {
                    prop_assert_eq!(steps.len(), count);
                }
                if let Cut::AtMost(limit) = cut {
                    prop_assert!(steps.iter().all(|step| step.length.abs() <= limit * (1.0 + 1e-8)));
                }
            }
        }
    }
}
