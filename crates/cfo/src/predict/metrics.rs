//! PDEBench's metrics of a set of rollouts, and the times for which a rollout is valid.

use cfo_numerics::metric::{ChannelError, ChannelErrors, FieldErrors, correlation_time, valid_time};
use serde::{Deserialize, Serialize};

use crate::model::Model;

/// A prediction of a field is valid while its correlation with the truth is at least this.
const CORRELATION: f64 = 0.8;
/// A prediction is valid while its error is below this share of the truth's norm.
const VALIDITY: f64 = 0.4;

/// Errors of rollouts in the user's units, means over times and channels without the first snapshot.
///
/// [`FieldErrors`] has the definitions; the domain has length 1, as in PDEBench.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Metrics {
    /// Root mean square error.
    pub rmse: f64,
    /// Root mean square error relative to the root mean square of the data.
    pub nrmse: f64,
    /// Root mean square error of the sum over space, which many systems conserve.
    pub crmse: f64,
    /// Largest error, over trajectories and points.
    pub max: f64,
    /// Root mean square error on the boundary; `None` without space axes.
    pub brmse: Option<f64>,
    /// Error in Fourier space; `None` without space axes.
    pub frmse: Option<Bands>,
    /// Root mean square error relative to the standard deviation of the data in space; `None` without space axes.
    pub vrmse: Option<f64>,
    /// Mean time, from the first snapshot, until the error exceeds 0.4 times the root mean square norm of the data over time. It is the
    /// whole duration if the error never does.
    pub valid_time: f64,
    /// Share of the trajectories whose error never exceeds this limit.
    pub valid_throughout: f64,
    /// Mean time until the correlation of predicted and true fields falls below 0.8; `None` without space axes.
    pub correlation_time: Option<f64>,
}

/// Error in Fourier space by frequency; `None` for a band that the grid does not resolve.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Bands {
    /// Frequencies 0 to 3.
    pub low: f64,
    /// Frequencies 4 to 11.
    pub middle: Option<f64>,
    /// Frequencies 12 and above.
    pub high: Option<f64>,
}

/// The error of one channel in the user's units.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ChannelReport {
    /// Name of the channel.
    pub name: String,
    /// Root mean square error over all snapshots but the first.
    pub rmse: f64,
    /// Standard deviation of the data over the same snapshots.
    pub deviation: f64,
    /// Error relative to the standard deviation; always predicting the mean has 1. `None` for a constant channel.
    pub relative: Option<f64>,
}

/// Sums over trajectories from which the metrics are computed.
#[derive(Serialize, Deserialize)]
pub(crate) struct Sums {
    errors: FieldErrors,
    channels: ChannelErrors,
    has_space: bool,
    valid: f64,
    throughout: f64,
    correlated: f64,
}

impl Sums {
    pub(crate) fn new(model: &Model) -> Self {
        let shape = model.shape();
        let errors = FieldErrors::new(shape.grid, shape.channels);
        let channels = ChannelErrors::new(shape.channels);
        Self { errors, channels, has_space: shape.axes() > 0, valid: 0.0, throughout: 0.0, correlated: 0.0 }
    }

    pub(crate) fn of<V: Copy + Into<f64>>(
        model: &Model,
        prediction: &[V],
        truth: &[V],
        times: &[f64],
    ) -> Self {
        let (mut sums, size) = (Self::new(model), model.shape().len());
        sums.errors.push(&prediction[size..], &truth[size..]);
        sums.channels.push(&prediction[size..], &truth[size..]);
        let valid = valid_time(prediction, truth, times, VALIDITY);
        sums.valid = valid.time;
        sums.throughout = f64::from(u8::from(valid.complete));
        if sums.has_space {
            sums.correlated = correlation_time(prediction, truth, times, CORRELATION).time;
        }
        sums
    }

    pub(crate) fn merge(&mut self, other: Self) {
        self.errors.merge(other.errors);
        self.channels.merge(&other.channels);
        self.valid += other.valid;
        self.throughout += other.throughout;
        self.correlated += other.correlated;
    }

    pub(crate) fn channels(&self, names: &[String]) -> Vec<ChannelReport> {
        let found = self.channels.report().into_iter().enumerate();
        let report = |(channel, ChannelError { rmse, deviation, relative }): (usize, ChannelError)| {
            let name = names.get(channel).cloned().unwrap_or_else(|| channel.to_string());
            ChannelReport { name, rmse, deviation, relative }
        };
        found.map(report).collect()
    }

    pub(crate) fn metrics(&self, count: usize) -> Metrics {
        let found = self.errors.report();
        let resolved = |value: f64| (!value.is_nan()).then_some(value);
        let count = count as f64;
        Metrics {
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
            valid_time: self.valid / count,
            valid_throughout: self.throughout / count,
            correlation_time: self.has_space.then_some(self.correlated / count),
        }
    }
}
