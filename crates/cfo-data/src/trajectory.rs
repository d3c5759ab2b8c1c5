//! Trajectories: snapshots of a field at increasing times.

use cfo_numerics::{Grid, TimeGrid};
use serde::{Deserialize, Serialize};

use crate::simd::vectorized;
use crate::{InputNames, Place, TrajectoryError, TrajectoryInputs};

/// The shape of one snapshot: the grid of its points, and the channels at each point.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FieldShape {
    /// The points of the field.
    pub grid: Grid,
    /// Values at a point.
    pub channels: usize,
}

impl FieldShape {
    /// The shape of an ODE system without space.
    pub const fn system(channels: usize) -> Self {
        Self { grid: Grid::system(), channels }
    }

    /// The shape of a field on a line of points.
    pub const fn line(points: usize, channels: usize) -> Self {
        Self { grid: Grid::line(points), channels }
    }

    /// The shape of a field on a plane.
    pub const fn plane(height: usize, width: usize, channels: usize) -> Self {
        Self { grid: Grid::plane(height, width), channels }
    }

    /// The shape with these [`dimensions`](Self::dimensions); `None` without channels or with more than three space axes.
    pub fn from_dimensions(dimensions: &[usize]) -> Option<Self> {
        let (&channels, sides) = dimensions.split_last()?;
        Some(Self { grid: Grid::new(sides)?, channels })
    }

    /// Number of space axes.
    pub const fn axes(&self) -> usize {
        self.grid.axes()
    }

    /// Number of values in a snapshot.
    pub const fn len(&self) -> usize {
        self.grid.points() * self.channels
    }

    /// Whether a snapshot has no values.
    pub const fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Extents of the space axes and the channels, as in files: `[C]`, `[X, C]`, `[Y, X, C]` or `[Z, Y, X, C]`.
    pub fn dimensions(&self) -> Vec<usize> {
        self.grid.sides().iter().copied().chain([self.channels]).collect()
    }

    /// The axes of a tensor of snapshots, `[batch, rows, width, channels]`: the rows are all lines of points along the
    /// last space axis.
    pub const fn tensor(&self, batch: usize) -> [usize; 4] {
        [batch, self.grid.rows(), self.grid.width(), self.channels]
    }

    /// The plane in the middle of the first of three axes: its shape, and its values in snapshots of this shape.
    ///
    /// # Panics
    /// If there are fewer than three axes.
    pub fn middle_plane(&self, values: &[f32]) -> (Self, Vec<f32>) {
        let [depth, height, width] = self.grid.padded();
        assert_eq!(self.axes(), 3, "a volume has three axes");
        let plane = Self::plane(height, width, self.channels);
        let planes = values.chunks_exact(plane.len()).skip(depth / 2).step_by(depth);
        (plane, planes.flatten().copied().collect())
    }

    /// Frame, point and channel of a position in `[frames, points, channels]`.
    pub fn place(&self, position: usize) -> Place {
        let point = position / self.channels.max(1);
        let points = self.grid.points().max(1);
        Place {
            frame: Some(point / points),
            point: (self.axes() > 0).then(|| self.grid.place(point % points)),
            channel: Some(position % self.channels.max(1)),
            ..Place::default()
        }
    }
}

/// One trajectory: its times and a snapshot for each, flattened `[frames, points, channels]`.
#[derive(Clone, Debug, PartialEq)]
pub struct Trajectory {
    /// Times of the snapshots, in the user's units.
    pub times: TimeGrid,
    /// Values of all snapshots; empty if they were left in a file.
    pub values: Vec<f32>,
    /// The inputs beside the state, as [`Description::inputs`] names them.
    pub inputs: TrajectoryInputs,
}

impl Trajectory {
    /// Creates a trajectory from snapshots. A list of numbers as `inputs` are PDE parameters.
    ///
    /// ```
    /// use cfo_data::Trajectory;
    ///
    /// let decay = Trajectory::new(vec![0.0, 0.5], vec![1.0, 0.6], vec![])?;
    /// assert_eq!(decay.times[1], 0.5);
    /// let unsorted = Trajectory::new(vec![0.5, 0.0], vec![0.6, 1.0], vec![]).unwrap_err();
    /// assert_eq!(unsorted.hint().unwrap(), "sort the snapshots of each trajectory by time");
    /// # Ok::<(), cfo_data::TrajectoryError>(())
    /// ```
    ///
    /// # Errors
    /// If the times are not a [`TimeGrid`], the snapshots have different numbers of values, or a parameter is not
    /// finite.
    pub fn new(
        times: Vec<f64>,
        values: Vec<f32>,
        inputs: impl Into<TrajectoryInputs>,
    ) -> Result<Self, TrajectoryError> {
        let times = TimeGrid::new(times)?;
        let (found, frames) = (values.len(), times.len());
        if found == 0 || found % frames != 0 {
            return Err(TrajectoryError::Values { found, frames, size: None });
        }
        let inputs = inputs.into();
        inputs.check_parameters()?;
        Ok(Self { times, values, inputs })
    }
}

/// A trajectory as stored in a file, possibly invalid.
#[derive(Clone, Debug, PartialEq)]
pub struct StoredTrajectory {
    /// One time for each snapshot.
    pub times: Vec<f64>,
    /// Values of all snapshots.
    pub values: Vec<f32>,
    /// The inputs beside the state.
    pub inputs: TrajectoryInputs,
}

impl StoredTrajectory {
    /// Finds the defects of the times, the values and the parameters.
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
            defects.keep(Defect::Value {
                place: shape.place(position),
                value: f64::from(self.values[position]),
            });
            next = position + 1;
        }
        for (column, &value) in
            self.inputs.parameters.iter().enumerate().filter(|(_, value)| !value.is_finite())
        {
            defects.parameters += 1;
            defects.keep(Defect::Parameter { place: Place::dataset("parameters"), column, value });
        }
        defects
    }
}

vectorized! {
    /// The first value that is NaN or infinite. Portions are tested without branches, since nearly all are finite.
    pub(crate) fn first_not_finite(values: &[f32]) -> Option<usize> {
        const PORTION: usize = 256;
        let bad = values
            .chunks(PORTION)
            .position(|portion| portion.iter().fold(false, |bad, value| bad | !value.is_finite()))?;
        let start = bad * PORTION;
        values[start..].iter().position(|value| !value.is_finite()).map(|offset| start + offset)
    }
}

/// A defect of a trajectory.
#[derive(Clone, Debug, PartialEq)]
pub enum Defect {
    /// A time that is not finite or does not exceed the one before.
    Time {
        /// Place of the snapshot.
        place: Place,
        /// The last finite time before it; `-inf` for the first.
        previous: f64,
        /// The time.
        time: f64,
    },
    /// A value that is NaN, infinite or beyond single precision.
    Value {
        /// Snapshot, point and channel.
        place: Place,
        /// The value.
        value: f64,
    },
    /// A parameter that is NaN or infinite.
    Parameter {
        /// Place of the parameters.
        place: Place,
        /// Index of the parameter.
        column: usize,
        /// The value.
        value: f64,
    },
}

impl Defect {
    /// Sets the trajectory of the defect.
    #[must_use]
    pub fn in_trajectory(mut self, index: usize) -> Self {
        let (Self::Time { place, .. } | Self::Value { place, .. } | Self::Parameter { place, .. }) =
            &mut self;
        place.trajectory = Some(index);
        self
    }
}

/// Defects of a trajectory: their numbers, and the first of them.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Defects {
    /// Times out of order or not finite.
    pub times: usize,
    /// Values that are not finite.
    pub values: usize,
    /// Parameters that are not finite.
    pub parameters: usize,
    /// The first defects, at most [`Defects::KEPT`].
    pub first: Vec<Defect>,
}

impl Defects {
    /// Maximum number of defects that are listed.
    pub const KEPT: usize = 16;

    /// Whether there are no defects.
    pub fn is_empty(&self) -> bool {
        self.times + self.values + self.parameters == 0
    }

    fn keep(&mut self, defect: Defect) {
        if self.first.len() < Self::KEPT {
            self.first.push(defect);
        }
    }
}

/// Common properties of all trajectories of a data set.
#[derive(Clone, Debug, PartialEq)]
pub struct Description {
    /// Name of the system, for display and for defaults; empty if unknown.
    pub system: String,
    /// Shape of one snapshot.
    pub shape: FieldShape,
    /// Whether each space axis is periodic; `axes` entries.
    pub periodic: Vec<bool>,
    /// Lower and upper end of each space axis; `axes` entries.
    pub domain: Vec<[f64; 2]>,
    /// Names of the channels; empty if unknown.
    pub channel_names: Vec<String>,
    /// Units of the channels; empty if unknown.
    pub channel_units: Vec<String>,
    /// Names of the inputs beside the state.
    pub inputs: InputNames,
}

impl Description {
    /// Creates a description without names and units.
    pub(crate) fn unnamed(shape: FieldShape, periodic: Vec<bool>, domain: Vec<[f64; 2]>) -> Self {
        let (system, channel_names, channel_units, inputs) = Default::default();
        Self { system, shape, periodic, domain, channel_names, channel_units, inputs }
    }

    /// The description of [`FieldShape::middle_plane`], and the values there.
    ///
    /// # Panics
    /// If there are fewer than three space axes.
    pub fn middle_plane(&self, values: &[f32]) -> (Self, Vec<f32>) {
        let (shape, values) = self.shape.middle_plane(values);
        let (periodic, domain) = (self.periodic[1..].to_vec(), self.domain[1..].to_vec());
        (Self { shape, periodic, domain, ..self.clone() }, values)
    }

    /// Checks that a trajectory with its values in memory has the shape and the inputs described here.
    ///
    /// # Errors
    /// If a snapshot has another number of values, or there is not one finite parameter or one control for each name.
    pub fn check(&self, trajectory: &Trajectory) -> Result<(), TrajectoryError> {
        let (found, frames, size) = (trajectory.values.len(), trajectory.times.len(), self.shape.len());
        if found != frames * size {
            return Err(TrajectoryError::Values { found, frames, size: Some(size) });
        }
        self.check_inputs(&trajectory.inputs)
    }

    /// Checks that there is one finite parameter and one control for each name.
    ///
    /// # Errors
    /// If there is not.
    pub fn check_inputs(&self, inputs: &TrajectoryInputs) -> Result<(), TrajectoryError> {
        inputs.check(&self.inputs, self.shape.grid.points())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn described(parameters: usize) -> Description {
        Description {
            system: String::new(),
            shape: FieldShape::line(3, 2),
            periodic: vec![true],
            domain: vec![[0.0, 1.0]],
            channel_names: vec![],
            channel_units: vec![],
            inputs: InputNames::of_parameters((0..parameters).map(|i| i.to_string())),
        }
    }

    #[test]
    fn shapes_have_names() {
        assert_eq!(FieldShape::system(3).dimensions(), [3]);
        assert_eq!(FieldShape::line(8, 2).dimensions(), [8, 2]);
        assert_eq!(FieldShape::plane(4, 8, 2).dimensions(), [4, 8, 2]);
        for shape in [FieldShape::system(3), FieldShape::line(1, 2), FieldShape::plane(1, 1, 2)] {
            assert_eq!(FieldShape::from_dimensions(&shape.dimensions()), Some(shape));
        }
        assert_eq!(FieldShape::from_dimensions(&[2, 2, 2, 1]).unwrap().axes(), 3);
        assert_eq!(FieldShape::from_dimensions(&[2, 2, 2, 2, 1]), None);
    }

    /// Invalid times are rejected: none, out of order, repeated or not finite.
    #[test]
    fn times_are_checked_when_a_trajectory_is_made() {
        for times in [vec![], vec![0.0, 2.0, 1.0], vec![0.0, 0.0], vec![0.0, f64::NAN]] {
            let values = vec![0.0; 2 * times.len()];
            let error = Trajectory::new(times.clone(), values, vec![]).unwrap_err();
            assert!(matches!(error, TrajectoryError::Times(_)), "{times:?}: {error}");
            assert!(error.hint().is_some(), "{times:?}");
        }
    }

    #[test]
    fn snapshots_have_equally_many_values() {
        for count in [0, 1, 3, 5] {
            let error = Trajectory::new(vec![0.0, 1.0], vec![0.0; count], vec![]).unwrap_err();
            assert_eq!(error, TrajectoryError::Values { found: count, frames: 2, size: None });
        }
        let bad = Trajectory::new(vec![0.0], vec![0.0], vec![f64::INFINITY]).unwrap_err();
        assert_eq!(bad, TrajectoryError::Parameter { column: 0, value: f64::INFINITY });
    }

    #[test]
    fn a_description_asks_for_its_shape_and_parameters() {
        let trajectory = |size: usize, parameters: Vec<f64>| {
            Trajectory::new(vec![0.0, 1.0], vec![0.0; 2 * size], parameters).unwrap()
        };
        assert_eq!(described(1).check(&trajectory(6, vec![2.0])), Ok(()));
        let error = described(0).check(&trajectory(5, vec![])).unwrap_err();
        assert_eq!(error.to_string(), "there are 10 values for 2 times; needed: 6 values for each time");
        let error = described(2).check(&trajectory(6, vec![1.0])).unwrap_err();
        assert_eq!(error, TrajectoryError::Parameters { found: 1, needed: 2 });
    }
}
