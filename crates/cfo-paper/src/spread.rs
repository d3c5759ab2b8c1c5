//! Errors over runs that differ only in the seed of their training.

use cfo::Report;
use cfo::numerics::metric::Summary;
use serde::Serialize;

/// Means and deviations over runs; everything but `per_seed` is absent if a rollout diverged.
#[derive(Clone, Debug, Default, Serialize)]
pub(crate) struct ErrorSpread {
    /// Mean over runs of the mean over test trajectories.
    pub relative_l2: Option<f64>,
    /// Deviation of that mean over runs, with the number of runs less one as divisor; absent for one run.
    pub std_runs: Option<f64>,
    /// Deviation over test trajectories, mean over runs.
    pub std_trajectories: Option<f64>,
    /// Error at the last snapshot, mean over runs.
    pub final_time: Option<f64>,
    /// The error of each run.
    pub per_seed: Vec<Option<f64>>,
}

impl ErrorSpread {
    /// Computes them from the reports of the runs; `None` stands for a run that diverged.
    pub fn of<'a>(reports: impl IntoIterator<Item = Option<&'a Report>>) -> Self {
        let reports: Vec<Option<&Report>> = reports.into_iter().collect();
        let per_seed: Vec<Option<f64>> =
            reports.iter().map(|report| report.map(|report| report.relative_l2.mean)).collect();
        let Some(whole) = reports.into_iter().collect::<Option<Vec<&Report>>>().filter(|all| !all.is_empty())
        else {
            return Self { per_seed, ..Self::default() };
        };
        let of = |value: fn(&Report) -> f64| -> Vec<f64> { whole.iter().map(|&one| value(one)).collect() };
        let mean = |value| Summary::of(&of(value)).mean;
        Self {
            relative_l2: Some(mean(|report| report.relative_l2.mean)),
            std_runs: deviation(&of(|report| report.relative_l2.mean)),
            std_trajectories: Some(mean(|report| report.relative_l2.std)),
            final_time: Some(mean(|report| report.relative_l2.final_time)),
            per_seed,
        }
    }
}

/// The mean over runs; `None` if a value is missing.
pub(crate) fn mean(values: impl IntoIterator<Item = Option<f64>>) -> Option<f64> {
    let values = values.into_iter().collect::<Option<Vec<f64>>>()?;
    (!values.is_empty()).then(|| Summary::of(&values).mean)
}

/// The standard deviation of a sample; a single value has none.
pub(crate) fn deviation(values: &[f64]) -> Option<f64> {
    let Summary { deviation, count, .. } = Summary::of(values);
    (count > 1).then(|| deviation * (count as f64 / (count - 1) as f64).sqrt())
}

#[cfg(test)]
mod tests {
    use super::*;
    use cfo::evaluate::RelativeL2;

    fn report(mean: f64) -> Report {
        let relative_l2 = RelativeL2 { mean, std: 0.5, final_time: 2.0 * mean, ..RelativeL2::default() };
        Report { relative_l2, ..Report::default() }
    }

    #[test]
    fn deviations_over_runs_and_over_trajectories_are_kept_apart() {
        let runs = [1.0, 2.0, 3.0].map(report);
        let spread = ErrorSpread::of(runs.iter().map(Some));
        assert_eq!((spread.relative_l2, spread.final_time), (Some(2.0), Some(4.0)));
        assert!((spread.std_runs.unwrap() - 1.0).abs() < 1e-12);
        assert_eq!(spread.std_trajectories, Some(0.5));
        assert_eq!(ErrorSpread::of([Some(&runs[0])]).std_runs, None);
    }

    #[test]
    fn a_run_that_diverged_is_not_averaged_away() {
        let spread = ErrorSpread::of([Some(&report(1.0)), None]);
        assert_eq!((spread.relative_l2, spread.std_runs), (None, None));
        assert_eq!(spread.per_seed, [Some(1.0), None]);
    }
}
