//! PDEBench's metrics of a set of rollouts, and how long a rollout is of use.

use cfo_data::Trajectory;
use cfo_numerics::metric::{FieldErrors, Grid, correlation_time, valid_time};
use rayon::prelude::*;
use serde::{Deserialize, Serialize};

use crate::evaluate::{Report, first_frame};
use crate::model::Model;

/// Trajectories whose sums are made together; fixed, so that sums do not depend on the number of threads.
const PORTION: usize = 8;
/// A prediction of a field is of use while it correlates with the truth by this much.
const CORRELATION: f64 = 0.8;
/// A prediction is of use while its error is below this share of the truth's norm.
const VALIDITY: f64 = 0.4;

/// Errors of rollouts in the user's units, means over times and channels; the exact first snapshot does not count. The definitions are
/// those of [`FieldErrors`], with a domain of length 1 as in PDEBench.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Metrics {
    /// Root mean square error.
    pub rmse: f64,
    /// Root mean square error relative to the truth's root mean square.
    pub nrmse: f64,
    /// Root mean square error of the sum over space, which many systems conserve.
    pub crmse: f64,
    /// Largest error, over trajectories and points.
    pub max: f64,
    /// Root mean square error on the boundary; none without space axes.
    pub brmse: Option<f64>,
    /// Error in Fourier space; none without space axes.
    pub frmse: Option<Bands>,
    /// Root mean square error relative to the truth's deviation in space; none without space axes.
    pub vrmse: Option<f64>,
    /// Mean time until the error first exceeds 0.4 of the truth's root mean square norm over time, from the first snapshot; the whole
    /// length where it never does.
    pub valid_time: f64,
    /// Share of the trajectories whose error never does.
    pub valid_throughout: f64,
    /// Mean time until the correlation of predicted and true fields first falls below 0.8; none without space axes.
    pub correlation_time: Option<f64>,
}

/// Error in Fourier space by frequency; none for a band that the grid does not resolve.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Bands {
    /// Frequencies 0 to 3.
    pub low: f64,
    /// Frequencies 4 to 11.
    pub middle: Option<f64>,
    /// Frequencies 12 and above.
    pub high: Option<f64>,
}

impl Metrics {
    /// Of a model's rollouts of trajectories, as [`evaluate`](crate::evaluate) made them.
    pub fn new(model: &Model, trajectories: &[&Trajectory], report: &Report) -> Self {
        let shape = model.shape();
        let grid = Grid {
            axes: shape.axes,
            height: shape.height,
            width: shape.width,
            channels: shape.channels,
            extent: [1.0; 2],
        };
        let (size, first) = (shape.len(), first_frame(model));
        let pairs: Vec<(&Trajectory, &Vec<f32>)> =
            trajectories.iter().copied().zip(&report.predictions).collect();
        let portions: Vec<(FieldErrors, Horizons)> = pairs
            .par_chunks(PORTION)
            .map(|portion| {
                let (mut errors, mut horizons) = (FieldErrors::new(grid), Horizons::default());
                for (trajectory, prediction) in portion {
                    let truth = &trajectory.values[first * size..];
                    errors.push(&prediction[size..], &truth[size..]);
                    horizons.add(prediction, truth, &trajectory.times[first..]);
                }
                (errors, horizons)
            })
            .collect();
        let (mut errors, mut horizons) = (FieldErrors::new(grid), Horizons::default());
        for (portion, theirs) in portions {
            errors.merge(portion);
            horizons.merge(theirs);
        }
        let found = errors.report();
        let resolved = |value: f64| (!value.is_nan()).then_some(value);
        let count = pairs.len() as f64;
        Self {
            rmse: found.rmse,
            nrmse: found.nrmse,
            crmse: found.crmse,
            max: found.maximum,
            brmse: found.brmse,
            frmse: found.frmse.map(|[low, middle, high]| Bands {
                low,
                middle: resolved(middle),
                high: resolved(high),
            }),
            vrmse: found.vrmse,
            valid_time: horizons.valid / count,
            valid_throughout: horizons.throughout / count,
            correlation_time: (shape.axes > 0).then_some(horizons.correlated / count),
        }
    }
}

/// Sums over trajectories.
#[derive(Clone, Copy, Debug, Default)]
struct Horizons {
    valid: f64,
    throughout: f64,
    correlated: f64,
}

impl Horizons {
    fn add(&mut self, prediction: &[f32], truth: &[f32], times: &[f64]) {
        let valid = valid_time(prediction, truth, times, VALIDITY);
        self.valid += valid.time;
        self.throughout += f64::from(u8::from(valid.complete));
        self.correlated += correlation_time(prediction, truth, times, CORRELATION).time;
    }

    fn merge(&mut self, other: Self) {
        self.valid += other.valid;
        self.throughout += other.throughout;
        self.correlated += other.correlated;
    }
}
