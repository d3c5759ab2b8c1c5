//! The Kuramoto-Sivashinsky files of LPSDA and PDE-Refiner. A group `train`, `valid` or `test` has one dataset `pde_*`
//! with all trajectories and grids per trajectory in `x` and `t`.

use super::{Contents, TrajectorySource};
use crate::store::container::array::{Array, Float, Slab, shape_text};
use crate::store::container::hdf5::{Hdf5, Hdf5Array};
use crate::{DataError, Description, FieldShape, InputNames, Split, TrajectoryInputs};

/// Names of groups and the corresponding parts.
const GROUPS: [(&str, Split); 3] =
    [("train", Split::Train), ("valid", Split::Validation), ("test", Split::Test)];

/// Trajectories of all such groups of a file, group by group.
pub(crate) struct Lpsda {
    contents: Contents,
    parts: Vec<Part>,
}

struct Part {
    split: Split,
    /// `[trajectories, frames, points]`.
    values: Hdf5Array,
    /// `[trajectories, frames]`.
    times: Hdf5Array,
    /// `[trajectories, points]`.
    points: Hdf5Array,
}

impl Lpsda {
    pub fn open(file: &Hdf5, groups: &[String]) -> Result<Option<Self>, DataError> {
        let mut parts = Vec::new();
        for (group, split) in GROUPS {
            if !groups.iter().any(|name| name == group) {
                continue;
            }
            let members = file.members(group)?;
            if let Some(name) = members.datasets.iter().find(|name| name.starts_with("pde_")) {
                parts.push(Part::open(file, group, name, split)?);
            }
        }
        let Some(first) = parts.first() else { return Ok(None) };
        let width = first.values.shape()[2];
        if let Some(other) = parts.iter().find(|part| part.values.shape()[2] != width) {
            let found = shape_text(other.values.shape());
            return Err(other.values.origin().unfit(found, format!("{width} points, as in the first group")));
        }
        let domain = vec![[0.0, first.length(0)?]];
        let description = Description {
            inputs: InputNames::of_parameters(["length"]),
            ..Description::unnamed(FieldShape::line(width, 1), vec![true], domain)
        };
        let count = parts.iter().map(|part| part.values.shape()[0]).sum();
        let is_double = parts.iter().any(|part| part.values.is_double());
        Ok(Some(Self { contents: Contents::new(file.path(), description, count, is_double), parts }))
    }

    /// The group of a trajectory and its row in the group.
    fn find(&self, mut trajectory: usize) -> (&Part, usize) {
        for part in &self.parts {
            let rows = part.values.shape()[0];
            if trajectory < rows {
                return (part, trajectory);
            }
            trajectory -= rows;
        }
        unreachable!("trajectory numbers are checked against the count")
    }

    fn numbers<T: Float>(&self, trajectory: usize, first: usize, count: usize) -> Result<Vec<T>, DataError> {
        let (part, row) = self.find(trajectory);
        T::read(&part.values, &Slab::whole(part.values.shape()).narrow(0, row, 1).narrow(1, first, count))
    }
}

impl Part {
    fn open(file: &Hdf5, group: &str, name: &str, split: Split) -> Result<Self, DataError> {
        let values = file.dataset(&format!("{group}/{name}"))?;
        let &[rows, frames, width] = values.shape() else {
            return Err(values.origin().unfit(shape_text(values.shape()), "[trajectories, frames, points]"));
        };
        if rows == 0 || frames == 0 || width < 2 {
            return Err(values
                .origin()
                .unfit(shape_text(values.shape()), "at least two points, one trajectory and one frame"));
        }
        let times = file.dataset(&format!("{group}/t"))?;
        let points = file.dataset(&format!("{group}/x"))?;
        for (array, extent) in [(&times, [rows, frames]), (&points, [rows, width])] {
            if array.shape() != extent {
                return Err(array.origin().unfit(shape_text(array.shape()), shape_text(&extent)));
            }
        }
        Ok(Self { split, values, times, points })
    }

    /// The period of a trajectory. The grid does not contain the last point.
    fn length(&self, row: usize) -> Result<f64, DataError> {
        let points = self.points.read_f64(&Slab::whole(self.points.shape()).narrow(0, row, 1))?;
        let span = points[points.len() - 1] - points[0];
        let length = span * points.len() as f64 / (points.len() - 1) as f64;
        if length.is_finite() && length > 0.0 {
            return Ok(length);
        }
        Err(self.points.origin().unfit_in(
            row,
            format!("points over a span of {span}"),
            "points that increase",
        ))
    }
}

impl TrajectorySource for Lpsda {
    fn contents(&self) -> &Contents {
        &self.contents
    }

    fn frames(&self, trajectory: usize) -> Result<usize, DataError> {
        Ok(self.find(trajectory).0.values.shape()[1])
    }

    fn times(&self, trajectory: usize) -> Result<Vec<f64>, DataError> {
        let (part, row) = self.find(trajectory);
        part.times.read_f64(&Slab::whole(part.times.shape()).narrow(0, row, 1))
    }

    fn values(&self, trajectory: usize, first: usize, count: usize) -> Result<Vec<f32>, DataError> {
        self.numbers(trajectory, first, count)
    }

    fn doubles(&self, trajectory: usize, first: usize, count: usize) -> Result<Vec<f64>, DataError> {
        self.numbers(trajectory, first, count)
    }

    fn inputs(&self, trajectory: usize) -> Result<TrajectoryInputs, DataError> {
        let (part, row) = self.find(trajectory);
        Ok(vec![part.length(row)?].into())
    }

    fn split(&self, trajectory: usize) -> Option<Split> {
        Some(self.find(trajectory).0.split)
    }
}
