//! Places in a file, for messages.

use std::fmt;

/// A place in a file; unknown parts are `None`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Place {
    /// Dataset, array or attribute, by its name in the file.
    pub dataset: Option<String>,
    /// Index of the trajectory.
    pub trajectory: Option<usize>,
    /// Index of the snapshot.
    pub frame: Option<usize>,
    /// Index along each space axis.
    pub point: Option<Vec<usize>>,
    /// Index of the channel.
    pub channel: Option<usize>,
}

impl Place {
    /// The place of a dataset, array or attribute.
    pub fn dataset(name: impl Into<String>) -> Self {
        Self { dataset: Some(name.into()), ..Self::default() }
    }

    /// The place of a trajectory.
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
        let index = |point: &Vec<usize>| point.iter().map(usize::to_string).collect::<Vec<_>>().join(", ");
        parts.extend(self.point.as_ref().map(|point| format!("point ({})", index(point))));
        parts.extend(self.channel.map(|index| format!("channel {index}")));
        if parts.is_empty() { write!(f, "the file") } else { write!(f, "{}", parts.join(", ")) }
    }
}
