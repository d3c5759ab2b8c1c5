//! What a trajectory is: snapshots of one field at its own increasing times.

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
