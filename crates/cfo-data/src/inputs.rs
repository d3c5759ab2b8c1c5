//! The inputs of a trajectory beside its state: parameters, controls and static fields.

use std::sync::Arc;

use cfo_numerics::{Interpolation, Signal, TimeGrid};
use serde::{Deserialize, Serialize};

use crate::TrajectoryError;
use crate::trajectory::first_not_finite;

/// Names of the inputs of all trajectories of a set, in their order.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct InputNames {
    /// PDE parameters: constants of a trajectory.
    #[serde(rename = "parameter_names")]
    pub parameters: Vec<String>,
    /// Controls: known functions of time.
    #[serde(default, rename = "control_names", skip_serializing_if = "Vec::is_empty")]
    pub controls: Vec<String>,
    /// Static fields: they do not change, such as a conductivity or a mask.
    #[serde(default, rename = "static_names", skip_serializing_if = "Vec::is_empty")]
    pub statics: Vec<String>,
}

impl InputNames {
    /// Returns the names of parameters; there are no other inputs.
    pub fn of_parameters<S: Into<String>>(names: impl IntoIterator<Item = S>) -> Self {
        Self { parameters: names.into_iter().map(Into::into).collect(), ..Self::default() }
    }
}

/// The inputs of one trajectory. They are cheap to clone.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct TrajectoryInputs {
    /// PDE parameters, in the order of [`InputNames::parameters`].
    pub parameters: Vec<f64>,
    /// Controls, in the order of [`InputNames::controls`]; `None` if there are none.
    pub controls: Option<Arc<Controls>>,
    /// Static fields `[points, statics]`, in the order of [`InputNames::statics`]; `None` if there are none. Trajectories may share them.
    pub statics: Option<Arc<[f32]>>,
}

impl From<Vec<f64>> for TrajectoryInputs {
    /// Creates inputs of parameters alone.
    fn from(parameters: Vec<f64>) -> Self {
        Self { parameters, ..Self::default() }
    }
}

impl TrajectoryInputs {
    /// Sets the controls.
    #[must_use]
    pub fn with_controls(self, controls: Controls) -> Self {
        Self { controls: Some(Arc::new(controls)), ..self }
    }

    /// Sets the static fields, `[points, statics]`.
    #[must_use]
    pub fn with_statics(self, statics: impl Into<Arc<[f32]>>) -> Self {
        Self { statics: Some(statics.into()), ..self }
    }

    /// Checks that all parameters are finite.
    pub(crate) fn check_parameters(&self) -> Result<(), TrajectoryError> {
        match self.parameters.iter().position(|value| !value.is_finite()) {
            Some(column) => Err(TrajectoryError::Parameter { column, value: self.parameters[column] }),
            None => Ok(()),
        }
    }

    fn statics_at(&self, position: usize) -> f64 {
        self.statics.as_ref().map_or(f64::NAN, |own| f64::from(own[position]))
    }

    /// Checks the numbers of inputs for a grid of `points`, and that all are finite.
    pub(crate) fn check(&self, names: &InputNames, points: usize) -> Result<(), TrajectoryError> {
        let (found, needed) = (self.parameters.len(), names.parameters.len());
        if found != needed {
            return Err(TrajectoryError::Parameters { found, needed });
        }
        self.check_parameters()?;
        let (found, needed) = (self.controls.as_ref().map_or(0, |own| own.channels()), names.controls.len());
        if found != needed {
            return Err(TrajectoryError::Controls { found, needed });
        }
        let (found, needed) =
            (self.statics.as_ref().map_or(0, |own| own.len()), points * names.statics.len());
        if found != needed {
            return Err(TrajectoryError::Statics { found, needed });
        }
        match self.statics.as_ref().and_then(|own| first_not_finite(own)) {
            Some(position) => Err(TrajectoryError::Static { position, value: self.statics_at(position) }),
            None => Ok(()),
        }
    }
}

/// Known functions of time, given at times of their own.
#[derive(Clone, Debug, PartialEq)]
pub struct Controls {
    times: TimeGrid,
    /// `[times, controls]`, finite.
    values: Vec<f64>,
}

impl Controls {
    /// Creates controls from their values `[times, controls]`.
    ///
    /// ```
    /// use cfo_data::Controls;
    ///
    /// let force = Controls::new(vec![0.0, 0.5, 2.0], vec![1.0, -1.0, 0.0])?;
    /// assert_eq!((force.channels(), force.range()), (1, [0.0, 2.0]));
    /// assert!(Controls::new(vec![0.0, 0.5], vec![1.0, f64::NAN]).is_err());
    /// # Ok::<(), cfo_data::TrajectoryError>(())
    /// ```
    ///
    /// # Errors
    /// If the times are not a [`TimeGrid`], their numbers of values differ, or a value is not finite.
    pub fn new(times: Vec<f64>, values: Vec<f64>) -> Result<Self, TrajectoryError> {
        let times = TimeGrid::new(times).map_err(TrajectoryError::ControlTimes)?;
        let (found, rows) = (values.len(), times.len());
        if found == 0 || found % rows != 0 {
            return Err(TrajectoryError::ControlValues { found, times: rows });
        }
        match values.iter().position(|value| !value.is_finite()) {
            None => Ok(Self { times, values }),
            Some(place) => {
                let width = found / rows;
                Err(TrajectoryError::Control {
                    row: place / width,
                    column: place % width,
                    value: values[place],
                })
            }
        }
    }

    /// The times at which the controls are given.
    pub fn times(&self) -> &[f64] {
        &self.times
    }

    /// The values, `[times, controls]`.
    pub fn values(&self) -> &[f64] {
        &self.values
    }

    /// Number of controls.
    pub fn channels(&self) -> usize {
        self.values.len() / self.times.len()
    }

    /// The first and the last time.
    pub fn range(&self) -> [f64; 2] {
        [self.times[0], self.times[self.times.len() - 1]]
    }

    /// The first of the two ends of an interval, in either direction, at which the controls are not known; `None` if they cover it.
    /// Times may be rounded.
    pub fn uncovered(&self, [from, to]: [f64; 2]) -> Option<f64> {
        let [first, last] = self.range();
        let room = 1e-9 * (last - first).abs().max((to - from).abs())
            + 4.0 * f64::EPSILON * to.abs().max(from.abs());
        let known = |time: f64| (first - room..=last + room).contains(&time);
        [from, to]
            .into_iter()
            .find(|&time| !known(time))
            .map(|time| if time == from { from } else { time.clamp(first, last) })
    }

    /// The controls as functions of time, each value converted by `value`, which gets the index of the control, and each time by `time`.
    pub fn signal(
        &self,
        interpolation: Interpolation,
        time: impl Fn(f64) -> f64,
        value: impl Fn(usize, f64) -> f64,
    ) -> Signal {
        let width = self.channels();
        let values = self.values.iter().enumerate().map(|(place, &one)| value(place % width, one)).collect();
        Signal::new(self.times.iter().map(|&one| time(one)).collect(), values, interpolation)
    }

    /// The controls in another order: entry `i` is control `places[i]`.
    #[must_use]
    pub fn chosen(&self, places: &[usize]) -> Self {
        let rows = self.values.chunks(self.channels());
        let values = rows.flat_map(|row| places.iter().map(|&place| row[place])).collect();
        Self { times: self.times.clone(), values }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_time_that_is_not_covered_is_found_in_both_directions() {
        let controls = Controls::new(vec![0.0, 1.0, 2.0], vec![0.0; 6]).unwrap();
        assert_eq!(controls.uncovered([0.0, 2.0]), None);
        assert_eq!(controls.uncovered([2.0, 0.0]), None);
        assert_eq!(controls.uncovered([0.5, 2.0 + 1e-12]), None);
        assert_eq!(controls.uncovered([0.5, 2.5]), Some(2.0));
        assert_eq!(controls.uncovered([1.0, -1.0]), Some(0.0));
        assert_eq!(controls.uncovered([-1.0, 1.0]), Some(-1.0));
    }

    #[test]
    fn controls_are_checked_and_reordered() {
        let made = |times: &[f64], values: &[f64]| Controls::new(times.to_vec(), values.to_vec());
        assert!(matches!(made(&[1.0, 0.0], &[0.0; 2]), Err(TrajectoryError::ControlTimes(_))));
        assert!(matches!(
            made(&[0.0, 1.0], &[0.0; 3]),
            Err(TrajectoryError::ControlValues { found: 3, times: 2 })
        ));
        let bad = made(&[0.0, 1.0], &[0.0, 1.0, f64::NAN, 2.0]).unwrap_err();
        assert!(matches!(bad, TrajectoryError::Control { row: 1, column: 0, .. }));
        let two = made(&[0.0, 1.0], &[1.0, 2.0, 3.0, 4.0]).unwrap();
        assert_eq!(two.chosen(&[1]).values(), [2.0, 4.0]);
    }
}
