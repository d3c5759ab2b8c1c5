//! Reasons why numbers are not a trajectory.

use cfo_numerics::TimeGridError;
use thiserror::Error;

/// Reasons why numbers are not a trajectory.
#[derive(Clone, Debug, PartialEq, Error)]
pub enum TrajectoryError {
    /// The times do not increase, are not finite, or there are none.
    #[error(transparent)]
    Times(#[from] TimeGridError),
    /// The number of values does not match the number of snapshots.
    #[error(
        "there are {found} values for {frames} times; needed: {} for each time",
        size.map_or_else(|| "the same number of values".to_string(), |size| format!("{size} values"))
    )]
    Values {
        /// Number of values.
        found: usize,
        /// Snapshots of the trajectory.
        frames: usize,
        /// Values per snapshot, if a description gives it.
        size: Option<usize>,
    },
    /// The number of parameters differs from the number of names.
    #[error("there are {found} parameters where {needed} are named")]
    Parameters {
        /// Number of parameters.
        found: usize,
        /// Number of names in the description.
        needed: usize,
    },
    /// A parameter is NaN or infinite.
    #[error("parameter {column} is {value}; parameters must be finite")]
    Parameter {
        /// Index of the parameter.
        column: usize,
        /// The value.
        value: f64,
    },
    /// The number of controls differs from the number of names.
    #[error("there are {found} controls where {needed} are named")]
    Controls {
        /// Number of controls.
        found: usize,
        /// Number of names in the description.
        needed: usize,
    },
    /// The number of values of static fields differs from what the names and the grid need.
    #[error("there are {found} values of static fields; needed: {needed}, one at each point for each name")]
    Statics {
        /// Number of values.
        found: usize,
        /// Number of points times number of names.
        needed: usize,
    },
    /// A value of a static field is NaN or infinite.
    #[error("value {position} of the static fields is {value}; static fields must be finite")]
    Static {
        /// Position of the value.
        position: usize,
        /// The value.
        value: f64,
    },
    /// The times of controls do not increase, are not finite, or there are none.
    #[error("times of the controls: {}", .0.to_string().replacen("frame", "entry", 2))]
    ControlTimes(TimeGridError),
    /// The number of values of controls does not match the number of their times.
    #[error("there are {found} values of controls for {times} times; needed: the same number for each time")]
    ControlValues {
        /// Number of values.
        found: usize,
        /// Number of times.
        times: usize,
    },
    /// A value of a control is NaN or infinite.
    #[error("control {column} is {value} at its time {row}; controls must be finite")]
    Control {
        /// Index of the time.
        row: usize,
        /// Index of the control.
        column: usize,
        /// The value.
        value: f64,
    },
}

impl TrajectoryError {
    /// Advice on what to change.
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::Times(error) => error.hint(),
            Self::Values { .. } => Some("values are flattened `[frames, points, channels]`".into()),
            Self::Parameters { .. } => Some("give each trajectory one number for each name".into()),
            Self::Parameter { .. } => Some("correct the parameter, or remove the trajectory".into()),
            Self::Controls { .. } => Some("give each trajectory one control for each name".into()),
            Self::Statics { .. } => {
                Some("static fields are `[space..., statics]`, on the grid of the snapshots".into())
            }
            Self::Static { .. } => Some(
                "fill static fields at all points, for example with 0 and a mask as another field".into(),
            ),
            Self::ControlTimes(_) => Some(
                "`control_times` increase within each trajectory, with one entry for each row of `controls`"
                    .into(),
            ),
            Self::ControlValues { .. } => Some("values of controls are flattened `[times, controls]`".into()),
            Self::Control { .. } => {
                Some("a control is known at all its times: leave out times without a value".into())
            }
        }
    }
}
