//! Where in a file something is, for messages.

use std::fmt;

/// Where in a file something was found; unknown parts stay `None`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Place {
    /// Dataset, array or attribute, as the file names it.
    pub dataset: Option<String>,
    /// Trajectory, counted from 0.
    pub trajectory: Option<usize>,
    /// Snapshot of that trajectory, counted from 0.
    pub frame: Option<usize>,
    /// Row and column of that snapshot, counted from 0.
    pub point: Option<(usize, usize)>,
    /// Channel at that point, counted from 0.
    pub channel: Option<usize>,
}

impl Place {
    /// A dataset, array or attribute.
    pub fn dataset(name: impl Into<String>) -> Self {
        Self { dataset: Some(name.into()), ..Self::default() }
    }

    /// A trajectory.
    pub fn trajectory(index: usize) -> Self {
        Self { trajectory: Some(index), ..Self::default() }
    }

    /// Adds the trajectory to the place.
    #[must_use]
    pub fn in_trajectory(self, index: usize) -> Self {
        Self { trajectory: Some(index), ..self }
    }

    /// Adds the snapshot to the place.
    #[must_use]
    pub fn at_frame(self, frame: usize) -> Self {
        Self { frame: Some(frame), ..self }
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut parts = Vec::new();
        parts.extend(self.dataset.as_ref().map(|name| format!("`{name}`")));
        parts.extend(self.trajectory.map(|index| format!("trajectory {index}")));
        parts.extend(self.frame.map(|index| format!("frame {index}")));
        parts.extend(self.point.map(|(row, column)| format!("point ({row}, {column})")));
        parts.extend(self.channel.map(|index| format!("channel {index}")));
        if parts.is_empty() { write!(f, "the file") } else { write!(f, "{}", parts.join(", ")) }
    }
}
