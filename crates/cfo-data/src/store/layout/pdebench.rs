//! PDEBench's files: a group for each trajectory, or one dataset for each channel of all trajectories.

use super::{Contents, TrajectorySource};
use crate::store::container::array::{Array, Float, Slab, read_all, read_row, shape_text};
use crate::store::container::hdf5::{Hdf5, Hdf5Array};
use crate::{DataError, Description, FieldShape, TrajectoryInputs};
use cfo_numerics::Grid;

/// Groups `0000`, `0001`, ... with `data`, `[frames, (space...,) channels]`, and `grid`.
pub(crate) struct Groups {
    contents: Contents,
    file: Hdf5,
    names: Vec<String>,
}

impl Groups {
    /// The numbered groups of a file, if it has this layout.
    pub fn recognise(file: &Hdf5, groups: &[String]) -> Result<Option<Vec<String>>, DataError> {
        let numbered = |name: &&String| !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_digit());
        let names: Vec<String> = groups.iter().filter(numbered).cloned().collect();
        let Some(first) = names.first() else { return Ok(None) };
        let has_data = file.members(first)?.datasets.iter().any(|name| name == "data");
        Ok(has_data.then_some(names))
    }

    pub fn open(file: Hdf5, names: Vec<String>) -> Result<Self, DataError> {
        let data = file.dataset(&format!("{}/data", names[0]))?;
        let extent = data.shape();
        if !(3..=5).contains(&extent.len()) || extent.contains(&0) {
            return Err(data
                .origin()
                .unfit(shape_text(extent), "[frames, (one to three space axes,) channels]"));
        }
        let axes = extent.len() - 2;
        let shape = FieldShape::from_dimensions(&extent[1..]).expect("one to three space axes");
        let mut coordinates: Vec<Option<Vec<f64>>> = (["z", "y", "x"][3 - axes..].iter())
            .map(|axis| coordinates(&file, &format!("{}/grid/{axis}", names[0])))
            .collect::<Result<_, _>>()?;
        // Some files store x first, which is detected only for grids that are not square.
        let sides = shape.grid.sides();
        if coordinates[0].as_ref().is_some_and(|first| first.len() != sides[0]) {
            coordinates.reverse();
        }
        let domain = coordinates.into_iter().zip(sides).map(|(axis, &points)| domain(axis, points)).collect();
        let description = Description::unnamed(shape, vec![false; axes], domain);
        let contents = Contents::new(file.path(), description, names.len(), data.is_double());
        Ok(Self { contents, file, names })
    }

    fn data(&self, trajectory: usize) -> Result<Hdf5Array, DataError> {
        let data = self.file.dataset(&format!("{}/data", self.names[trajectory]))?;
        let expected = self.contents.description.shape.dimensions();
        if data.shape().len() != expected.len() + 1 || data.shape()[1..] != expected || data.shape()[0] == 0 {
            let needed = format!("at least one frame of {}, as in the first group", shape_text(&expected));
            return Err(data.origin().unfit(shape_text(data.shape()), needed));
        }
        Ok(data)
    }

    fn numbers<T: Float>(&self, trajectory: usize, first: usize, count: usize) -> Result<Vec<T>, DataError> {
        let data = self.data(trajectory)?;
        T::read(&data, &Slab::whole(data.shape()).narrow(0, first, count))
    }
}

impl TrajectorySource for Groups {
    fn contents(&self) -> &Contents {
        &self.contents
    }

    fn frames(&self, trajectory: usize) -> Result<usize, DataError> {
        Ok(self.data(trajectory)?.shape()[0])
    }

    fn times(&self, trajectory: usize) -> Result<Vec<f64>, DataError> {
        let frames = self.frames(trajectory)?;
        let times = self.file.dataset(&format!("{}/grid/t", self.names[trajectory]))?;
        check_times(&times, 0, frames)?;
        read_row(&times, 0, frames)
    }

    fn values(&self, trajectory: usize, first: usize, count: usize) -> Result<Vec<f32>, DataError> {
        self.numbers(trajectory, first, count)
    }

    fn doubles(&self, trajectory: usize, first: usize, count: usize) -> Result<Vec<f64>, DataError> {
        self.numbers(trajectory, first, count)
    }
}

/// Datasets `[trajectories, frames, space...]`, one for each channel, or one with channels on its last axis.
pub(crate) struct Fields {
    contents: Contents,
    fields: Vec<Hdf5Array>,
    /// Number of channels on the last axis of each field.
    widths: Vec<usize>,
    times: Hdf5Array,
    parameters: Vec<f64>,
}

/// Physical parameters that PDEBench stores as attributes of its files.
const PARAMETERS: [&str; 6] = ["Nu", "beta", "rho", "eta", "zeta", "M"];

impl Fields {
    /// A scalar field with one space axis: advection, Burgers, reaction and diffusion.
    pub fn open_tensor(file: &Hdf5) -> Result<Self, DataError> {
        let tensor = file.dataset("tensor")?;
        if tensor.shape().len() != 3 {
            let needed = "[trajectories, frames, points]: other tensors of PDEBench have no time";
            return Err(tensor.origin().unfit(shape_text(tensor.shape()), needed));
        }
        let mut fields = Self::build(file, vec![("tensor".to_string(), tensor, false)], "t-coordinate")?;
        let description = &mut fields.contents.description;
        description.channel_names = Vec::new();
        description.periodic = vec![true];
        let has = |name: &str| description.inputs.parameters.iter().any(|known| known == name);
        description.system = match (has("Nu"), has("rho"), has("beta")) {
            (true, true, _) => "reaction-diffusion",
            (true, false, _) => "burgers",
            (false, _, true) => "advection",
            _ => "",
        }
        .to_string();
        Ok(fields)
    }

    /// Compressible flow: `density`, `pressure` and the components of the velocity.
    pub fn open_compressible(file: &Hdf5) -> Result<Self, DataError> {
        let mut fields = Vec::new();
        for name in ["density", "pressure", "Vx", "Vy", "Vz"] {
            fields.extend(file.find_dataset(name)?.map(|field| (name.to_string(), field, false)));
        }
        Self::build(file, fields, "t-coordinate")
    }

    /// Incompressible flow: `velocity` and `particles`, channels last.
    pub fn open_incompressible(file: &Hdf5) -> Result<Self, DataError> {
        let mut fields = vec![("velocity".to_string(), file.dataset("velocity")?, true)];
        fields.extend(file.find_dataset("particles")?.map(|field| ("particles".to_string(), field, true)));
        Self::build(file, fields, "t")
    }

    fn build(file: &Hdf5, fields: Vec<(String, Hdf5Array, bool)>, times: &str) -> Result<Self, DataError> {
        let times = file.dataset(times)?;
        let (_, first, channels_last) = fields.first().expect("each layout needs its first field");
        let rank = first.shape().len() - usize::from(*channels_last && !first.shape().is_empty());
        let extent = first.shape().get(..rank).unwrap_or_default().to_vec();
        if !(3..=5).contains(&rank) || extent.contains(&0) {
            let needed = "[trajectories, frames, one to three space axes]";
            return Err(first.origin().unfit(shape_text(first.shape()), needed));
        }
        let mut names = Vec::new();
        let mut widths = Vec::new();
        for (name, field, channels_last) in &fields {
            let width = if *channels_last { field.shape().last().copied().unwrap_or(0) } else { 1 };
            let expected = field.shape().len() == rank + usize::from(*channels_last);
            if !expected || field.shape()[..rank] != extent || width == 0 {
                let needed = format!("{}, as the other fields", shape_text(&extent));
                return Err(field.origin().unfit(shape_text(field.shape()), needed));
            }
            widths.push(width);
            match width {
                1 => names.push(name.clone()),
                _ => names.extend(
                    (0..width).map(|index| format!("{name}_{}", ["x", "y", "z"].get(index).unwrap_or(&"?"))),
                ),
            }
        }
        let axes = rank - 2;
        let grid = Grid::new(&extent[2..]).expect("one to three space axes");
        let shape = FieldShape { grid, channels: names.len() };
        let axis_names = ["x-coordinate", "y-coordinate", "z-coordinate"];
        let mut domains = Vec::new();
        for (axis, name) in axis_names.iter().take(axes).enumerate() {
            domains.push(domain(coordinates(file, name)?, extent[2 + axis]));
        }
        let mut description = Description::unnamed(shape, vec![false; axes], domains);
        description.channel_names = names;
        let mut parameters = Vec::new();
        for name in PARAMETERS {
            if let Some(&value) = file.group_numbers("/", name)?.as_ref().and_then(|values| values.first()) {
                description.inputs.parameters.push(name.to_string());
                parameters.push(value);
            }
        }
        check_times(&times, extent[0], extent[1])?;
        let fields: Vec<Hdf5Array> = fields.into_iter().map(|(_, field, _)| field).collect();
        let is_double = fields.iter().any(Hdf5Array::is_double);
        let contents = Contents::new(file.path(), description, extent[0], is_double);
        Ok(Self { contents, fields, widths, times, parameters })
    }

    fn numbers<T: Float>(&self, trajectory: usize, first: usize, count: usize) -> Result<Vec<T>, DataError> {
        let read = |field: &Hdf5Array| {
            T::read(field, &Slab::whole(field.shape()).narrow(0, trajectory, 1).narrow(1, first, count))
        };
        if let [field] = self.fields.as_slice() {
            return read(field);
        }
        let shape = &self.contents.description.shape;
        let mut mixer = Mixer::new(count * shape.len(), shape.channels);
        for (field, &width) in self.fields.iter().zip(&self.widths) {
            mixer.add(&read(field)?, width);
        }
        Ok(mixer.values)
    }
}

impl TrajectorySource for Fields {
    fn contents(&self) -> &Contents {
        &self.contents
    }

    fn frames(&self, _trajectory: usize) -> Result<usize, DataError> {
        Ok(self.fields[0].shape()[1])
    }

    fn times(&self, trajectory: usize) -> Result<Vec<f64>, DataError> {
        read_row(&self.times, trajectory, self.fields[0].shape()[1])
    }

    fn values(&self, trajectory: usize, first: usize, count: usize) -> Result<Vec<f32>, DataError> {
        self.numbers(trajectory, first, count)
    }

    fn doubles(&self, trajectory: usize, first: usize, count: usize) -> Result<Vec<f64>, DataError> {
        self.numbers(trajectory, first, count)
    }

    fn inputs(&self, _trajectory: usize) -> Result<TrajectoryInputs, DataError> {
        Ok(self.parameters.clone().into())
    }
}

/// Interleaves fields that are stored separately, channels last.
pub(crate) struct Mixer<T> {
    pub values: Vec<T>,
    channels: usize,
    next: usize,
}

impl<T: Float> Mixer<T> {
    pub fn new(count: usize, channels: usize) -> Self {
        Self { values: vec![T::default(); count], channels, next: 0 }
    }

    /// Adds a field with `width` channels at each point.
    pub fn add(&mut self, field: &[T], width: usize) {
        for (point, own) in self.values.chunks_exact_mut(self.channels).zip(field.chunks_exact(width)) {
            point[self.next..self.next + width].copy_from_slice(own);
        }
        self.next += width;
    }
}

/// The coordinates of a space axis, if they are stored as a list.
pub(crate) fn coordinates(file: &Hdf5, name: &str) -> Result<Option<Vec<f64>>, DataError> {
    match file.find_dataset(name)? {
        Some(axis) if axis.shape().len() == 1 => read_all(&axis).map(Some),
        _ => Ok(None),
    }
}

/// The ends of a uniform axis of cell centres; the unit interval when there is none.
pub(crate) fn domain(centres: Option<Vec<f64>>, points: usize) -> [f64; 2] {
    let centres = centres.unwrap_or_default();
    let ends = centres.first().zip(centres.last()).filter(|_| centres.len() == points && points > 1);
    let Some((&first, &last)) = ends else { return [0.0, 1.0] };
    let half = (last - first) / (2.0 * (points - 1) as f64);
    if half.is_finite() && half > 0.0 { [first - half, last + half] } else { [0.0, 1.0] }
}

/// Checks the shape of times: PDEBench's lists may have one more.
fn check_times(times: &dyn Array, rows: usize, frames: usize) -> Result<(), DataError> {
    let fits = match times.shape() {
        [count] => *count == frames || *count == frames + 1,
        [count, own] => *count == rows && *own == frames,
        _ => false,
    };
    if fits {
        return Ok(());
    }
    let needed = format!("a time for each of {frames} frames, and at most one more");
    Err(times.origin().unfit(shape_text(times.shape()), needed))
}
