//! What a trajectory is: snapshots of one field at its own increasing times.

use crate::Place;

/// The shape of one snapshot, channels last: `[height, width, channels]`.
///
/// A one-dimensional field has height 1, an ODE system is 1 x 1; `axes` remembers how many of the two are real
/// space axes, so that files keep the rank their user gave them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FieldShape {
    /// Space axes that the data have: 0 for an ODE, 1 or 2 for a field.
    pub axes: usize,
    /// Points along the first of two space axes; 1 otherwise.
    pub height: usize,
    /// Points along the last space axis; 1 for an ODE.
    pub width: usize,
    /// Values at a point.
    pub channels: usize,
}

impl FieldShape {
    /// Numbers in one snapshot.
    pub fn len(&self) -> usize {
        self.height * self.width * self.channels
    }

    /// Whether a snapshot holds no number at all.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The space axes and the channels, as files store them: `[C]`, `[X, C]` or `[Y, X, C]`.
    pub fn dimensions(&self) -> Vec<usize> {
        let space = [self.height, self.width];
        space[2 - self.axes..].iter().copied().chain([self.channels]).collect()
    }

    /// Frame, point and channel of a position among `[frames, height, width, channels]` numbers.
    pub fn place(&self, position: usize) -> Place {
        let point = position / self.channels.max(1);
        let row = point / self.width.max(1);
        Place {
            frame: Some(row / self.height.max(1)),
            point: (self.axes > 0).then_some((row % self.height.max(1), point % self.width.max(1))),
            channel: Some(position % self.channels.max(1)),
            ..Place::default()
        }
    }
}

/// One trajectory: strictly increasing times and a snapshot for each, flattened `[frames, height, width, channels]`.
#[derive(Clone, Debug, PartialEq)]
pub struct Trajectory {
    /// Strictly increasing, finite, in the user's units.
    pub times: Vec<f64>,
    /// `times.len() * shape.len()` numbers.
    pub values: Vec<f32>,
    /// PDE parameters of this trajectory, in the order of [`Description::parameter_names`].
    pub parameters: Vec<f64>,
}

impl Trajectory {
    /// What is wrong with the times, the values and the parameters.
    pub fn defects(&self, shape: &FieldShape) -> Defects {
        let mut defects = Defects::default();
        let mut previous = f64::NEG_INFINITY;
        for (frame, &time) in self.times.iter().enumerate() {
            if !time.is_finite() || time <= previous {
                let place = Place::default().at_frame(frame);
                defects.times += 1;
                defects.keep(Defect::Time { place, previous, time });
            }
            if time.is_finite() {
                previous = time;
            }
        }
        let mut next = 0;
        while let Some(found) = first_not_finite(&self.values[next..]) {
            let position = next + found;
            defects.values += 1;
            defects.keep(Defect::Value { place: shape.place(position), value: self.values[position] });
            next = position + 1;
        }
        for (column, &value) in self.parameters.iter().enumerate().filter(|(_, value)| !value.is_finite()) {
            defects.parameters += 1;
            defects.keep(Defect::Parameter { place: Place::dataset("parameters"), column, value });
        }
        defects
    }
}

/// The first value that is NaN or infinite. Whole portions are tested without a branch, since nearly all are sound.
pub(crate) fn first_not_finite(values: &[f32]) -> Option<usize> {
    const PORTION: usize = 256;
    let bad = values
        .chunks(PORTION)
        .position(|portion| portion.iter().fold(false, |bad, value| bad | !value.is_finite()))?;
    let start = bad * PORTION;
    values[start..].iter().position(|value| !value.is_finite()).map(|offset| start + offset)
}

/// One thing wrong with a trajectory.
#[derive(Clone, Debug, PartialEq)]
pub enum Defect {
    /// A time that is not finite or not after the one before.
    Time {
        /// The snapshot.
        place: Place,
        /// The last finite time before it; `-inf` for the first.
        previous: f64,
        /// The time itself.
        time: f64,
    },
    /// A value that is NaN or infinite.
    Value {
        /// Snapshot, point and channel.
        place: Place,
        /// The value itself.
        value: f32,
    },
    /// A parameter that is NaN or infinite.
    Parameter {
        /// The parameters.
        place: Place,
        /// Which of them, counted from 0.
        column: usize,
        /// The value itself.
        value: f64,
    },
}

impl Defect {
    /// The same defect, of this trajectory.
    #[must_use]
    pub fn in_trajectory(mut self, index: usize) -> Self {
        let (Self::Time { place, .. } | Self::Value { place, .. } | Self::Parameter { place, .. }) =
            &mut self;
        place.trajectory = Some(index);
        self
    }
}

/// All that is wrong with a trajectory: how much, and the first places.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Defects {
    /// Times out of order or not finite.
    pub times: usize,
    /// Values that are not finite.
    pub values: usize,
    /// Parameters that are not finite.
    pub parameters: usize,
    /// The first places, at most [`Defects::KEPT`].
    pub first: Vec<Defect>,
}

impl Defects {
    /// Most places that are remembered.
    pub const KEPT: usize = 16;

    /// Whether nothing is wrong.
    pub fn is_empty(&self) -> bool {
        self.times + self.values + self.parameters == 0
    }

    fn keep(&mut self, defect: Defect) {
        if self.first.len() < Self::KEPT {
            self.first.push(defect);
        }
    }
}

/// What holds for every trajectory of a set.
#[derive(Clone, Debug, PartialEq)]
pub struct Description {
    /// Name of the system, for people and for defaults; empty when unknown.
    pub system: String,
    /// Shape of one snapshot.
    pub shape: FieldShape,
    /// Whether each space axis is periodic; `axes` entries.
    pub periodic: Vec<bool>,
    /// Lower and upper end of each space axis; `axes` entries.
    pub domain: Vec<[f64; 2]>,
    /// Names of the channels; empty when unknown.
    pub channel_names: Vec<String>,
    /// Units of the channels; empty when unknown.
    pub channel_units: Vec<String>,
    /// Names of the per-trajectory PDE parameters; empty when there are none.
    pub parameter_names: Vec<String>,
}
