//! The Well's files: fields by tensor order. Axes along which a field is constant may be omitted.

use super::pdebench::{Mixer, domain};
use super::{Contents, TrajectorySource};
use crate::store::container::array::{Array, Float, Slab, read_row, shape_text};
use crate::store::container::hdf5::{Hdf5, Hdf5Array};
use crate::{Controls, DataError, Description, FieldShape, Place, TrajectoryInputs};
use cfo_numerics::Grid;

/// Groups of fields by tensor order: scalars, vectors, matrices.
const ORDERS: [&str; 3] = ["t0_fields", "t1_fields", "t2_fields"];

/// Trajectories of a file of The Well. Fields that are constant in time are static fields, scalars that vary in time are controls.
pub(crate) struct TheWell {
    contents: Contents,
    times: Hdf5Array,
    frames: usize,
    fields: Vec<Field>,
    statics: Vec<Field>,
    parameters: Vec<Parameter>,
    controls: Vec<Hdf5Array>,
}

struct Field {
    array: Hdf5Array,
    /// Whether the field has a trajectory axis.
    by_sample: bool,
    /// Whether the field has a time axis.
    by_time: bool,
    /// Points along the axes of a snapshot, 1 along those that the field does not have.
    grid: Grid,
    /// Number of components at a point.
    width: usize,
}

enum Parameter {
    /// One value for all trajectories.
    Common(f64),
    /// One value for each trajectory.
    PerTrajectory(Box<Hdf5Array>),
}

impl TheWell {
    /// Whether a file has this layout.
    pub fn recognises(groups: &[String]) -> bool {
        let has = |name: &str| groups.iter().any(|group| group == name);
        has("dimensions") && ORDERS.iter().any(|order| has(order))
    }

    pub fn open(file: &Hdf5) -> Result<Self, DataError> {
        let axes = file.group_texts("dimensions", "spatial_dims")?;
        let axes = axes.ok_or_else(|| file.absent("dimensions/spatial_dims"))?;
        if axes.is_empty() || axes.len() > 3 {
            let what = format!("{} space axes", axes.len());
            return Err(DataError::unsupported(file.path(), what));
        }
        let count = file.group_numbers("/", "n_trajectories")?.and_then(|numbers| numbers.first().copied());
        let count = count.filter(|count| *count >= 0.0 && count.fract() == 0.0 && *count < 1e15);
        let count = count.ok_or_else(|| file.absent("n_trajectories"))? as usize;
        let times = file.dataset("dimensions/time")?;
        let frames = match times.shape() {
            [frames] => *frames,
            [rows, frames] if *rows == count => *frames,
            other => {
                let needed = format!("[frames] or [{count}, frames]");
                return Err(times.origin().unfit(shape_text(other), needed));
            }
        };
        let mut description = describe(file, &axes)?;
        let (mut fields, mut statics) = (Vec::new(), Vec::new());
        for (order, group) in ORDERS.iter().enumerate() {
            for name in file.group_texts(group, "field_names")?.unwrap_or_default() {
                let array = file.dataset(&format!("{group}/{name}"))?;
                let field = Field::open(array, order, [count, frames], &description.shape)?;
                let names = component_names(&name, order, &axes);
                if field.by_time {
                    description.channel_names.extend(names);
                    fields.push(field);
                } else {
                    description.inputs.statics.extend(names);
                    statics.push(field);
                }
            }
        }
        description.shape.channels = description.channel_names.len();
        if fields.is_empty() || frames == 0 {
            return Err(DataError::UnknownLayout {
                path: file.path().to_owned(),
                found: "a file of The Well without fields that vary in time".to_string(),
            });
        }
        let parameters = read_parameters(file, count, &mut description)?;
        let controls = read_controls(file, [count, frames], &mut description)?;
        let is_double = fields.iter().any(|field| field.array.is_double());
        let contents = Contents::new(file.path(), description, count, is_double);
        Ok(Self { contents, times, frames, fields, statics, parameters, controls })
    }

    fn numbers<T: Float>(&self, trajectory: usize, first: usize, count: usize) -> Result<Vec<T>, DataError> {
        let shape = &self.contents.description.shape;
        if let [field] = self.fields.as_slice() {
            return field.read(trajectory, first, count, shape);
        }
        let mut mixer = Mixer::new(count * shape.len(), shape.channels);
        for field in &self.fields {
            mixer.add(&field.read(trajectory, first, count, shape)?, field.width);
        }
        Ok(mixer.values)
    }
}

/// The description from the file's space axes; channels are added field by field.
fn describe(file: &Hdf5, axes: &[String]) -> Result<Description, DataError> {
    let mut extents = Vec::new();
    let mut domains = Vec::new();
    for axis in axes {
        let array = file.dataset(&format!("dimensions/{axis}"))?;
        let Some(&points) = array.shape().last().filter(|&&points| points > 0) else {
            return Err(array.origin().unfit(shape_text(array.shape()), "at least one point"));
        };
        let first_row = match array.shape() {
            [_] => Some(array.read_f64(&Slab::whole(array.shape()))?),
            [rows, _] if *rows > 0 => Some(array.read_f64(&Slab::whole(array.shape()).narrow(0, 0, 1))?),
            _ => None,
        };
        extents.push(points);
        domains.push(domain(first_row, points));
    }
    let mut periodic = vec![false; axes.len()];
    for name in file.members("boundary_conditions")?.groups {
        let group = format!("boundary_conditions/{name}");
        let kind = file.group_texts(&group, "bc_type")?.unwrap_or_default();
        if kind.first().is_some_and(|kind| kind.eq_ignore_ascii_case("periodic")) {
            let along = file.group_texts(&group, "associated_dims")?.unwrap_or_default();
            for (axis, flag) in axes.iter().zip(&mut periodic) {
                *flag |= along.contains(axis);
            }
        }
    }
    let system = file.group_texts("/", "dataset_name")?.and_then(|texts| texts.into_iter().next());
    let shape = FieldShape { grid: Grid::new(&extents).expect("at most three axes"), channels: 0 };
    let system = system.unwrap_or_default();
    Ok(Description { system, ..Description::unnamed(shape, periodic, domains) })
}

/// Names such as `velocity_x`.
fn component_names(field: &str, order: usize, axes: &[String]) -> Vec<String> {
    let mut names = vec![String::new()];
    for _ in 0..order {
        names = names.iter().flat_map(|name| axes.iter().map(move |axis| format!("{name}{axis}"))).collect();
    }
    names
        .iter()
        .map(|suffix| if order == 0 { field.to_string() } else { format!("{field}_{suffix}") })
        .collect()
}

fn read_parameters(
    file: &Hdf5,
    count: usize,
    description: &mut Description,
) -> Result<Vec<Parameter>, DataError> {
    let mut parameters = Vec::new();
    for name in file.group_texts("/", "simulation_parameters")?.unwrap_or_default() {
        // Parameters that are texts name a setup; they are not numbers for conditioning.
        if let Ok(Some(values)) = file.group_numbers("/", &name)
            && let [value] = values[..]
        {
            description.inputs.parameters.push(name);
            parameters.push(Parameter::Common(value));
        }
    }
    for name in file.group_texts("scalars", "field_names")?.unwrap_or_default() {
        let known = description.inputs.parameters.contains(&name);
        let array = file.dataset(&format!("scalars/{name}"))?;
        if !known && !flag(&array, "time_varying", true)? && array.shape() == [count] {
            description.inputs.parameters.push(name);
            parameters.push(Parameter::PerTrajectory(Box::new(array)));
        }
    }
    Ok(parameters)
}

/// Scalars that vary in time, for all trajectories or for each.
fn read_controls(
    file: &Hdf5,
    [count, frames]: [usize; 2],
    description: &mut Description,
) -> Result<Vec<Hdf5Array>, DataError> {
    let mut controls = Vec::new();
    for name in file.group_texts("scalars", "field_names")?.unwrap_or_default() {
        let array = file.dataset(&format!("scalars/{name}"))?;
        let fits = array.shape() == [frames] || array.shape() == [count, frames];
        if flag(&array, "time_varying", true)? && fits {
            description.inputs.controls.push(name);
            controls.push(array);
        }
    }
    Ok(controls)
}

/// A boolean attribute of a field.
fn flag(array: &Hdf5Array, name: &str, default: bool) -> Result<bool, DataError> {
    Ok(array.numbers(name)?.and_then(|values| values.first().copied()).map_or(default, |value| value != 0.0))
}

impl Field {
    /// Opens the field; `rows` are trajectories and frames.
    fn open(array: Hdf5Array, order: usize, rows: [usize; 2], shape: &FieldShape) -> Result<Self, DataError> {
        let by_time = flag(&array, "time_varying", true)?;
        let by_sample = flag(&array, "sample_varying", true)?;
        let varying = array.numbers("dim_varying")?.unwrap_or_else(|| vec![1.0; shape.axes()]);
        if varying.len() != shape.axes() {
            let found = format!("{} entries in `dim_varying`", varying.len());
            return Err(array.origin().unfit(found, "one for each space axis"));
        }
        let axes = || shape.grid.sides().iter().zip(&varying);
        let own: Vec<usize> = axes().map(|(&side, &flag)| if flag == 0.0 { 1 } else { side }).collect();
        let mut expected = Vec::new();
        expected.extend(by_sample.then_some(rows[0]));
        expected.extend(by_time.then_some(rows[1]));
        expected.extend(axes().filter(|(_, flag)| **flag != 0.0).map(|(side, _)| side));
        expected.extend(vec![shape.axes(); order]);
        if array.shape() != expected {
            return Err(array.origin().unfit(shape_text(array.shape()), shape_text(&expected)));
        }
        let grid = Grid::new(&own).expect("as many axes as the snapshot");
        Ok(Self { array, by_sample, by_time, grid, width: shape.axes().pow(order as u32) })
    }

    /// Reads frames, `[count, points, components]`, repeated along omitted axes.
    fn read<T: Float>(
        &self,
        trajectory: usize,
        first: usize,
        count: usize,
        shape: &FieldShape,
    ) -> Result<Vec<T>, DataError> {
        let mut block = Slab::whole(self.array.shape());
        if self.by_sample {
            block = block.narrow(0, trajectory, 1);
        }
        if self.by_time {
            block = block.narrow(usize::from(self.by_sample), first, count);
        }
        let stored = T::read(&self.array, &block)?;
        if self.grid == shape.grid {
            return Ok(stored);
        }
        let own = self.grid.sides();
        let source = |point: usize| {
            let place = shape.grid.place(point);
            let nearest: Vec<usize> =
                place.iter().zip(own).map(|(&index, &side)| index.min(side - 1)).collect();
            self.grid.point(&nearest)
        };
        let sources: Vec<usize> = (0..shape.grid.points()).map(source).collect();
        let mut values = Vec::with_capacity(count * sources.len() * self.width);
        for frame in stored.chunks_exact(self.grid.points() * self.width) {
            for &point in &sources {
                values.extend_from_slice(&frame[point * self.width..][..self.width]);
            }
        }
        Ok(values)
    }
}

impl TrajectorySource for TheWell {
    fn contents(&self) -> &Contents {
        &self.contents
    }

    fn frames(&self, _trajectory: usize) -> Result<usize, DataError> {
        Ok(self.frames)
    }

    fn times(&self, trajectory: usize) -> Result<Vec<f64>, DataError> {
        read_row(&self.times, trajectory, self.frames)
    }

    fn values(&self, trajectory: usize, first: usize, count: usize) -> Result<Vec<f32>, DataError> {
        self.numbers(trajectory, first, count)
    }

    fn doubles(&self, trajectory: usize, first: usize, count: usize) -> Result<Vec<f64>, DataError> {
        self.numbers(trajectory, first, count)
    }

    fn inputs(&self, trajectory: usize) -> Result<TrajectoryInputs, DataError> {
        let mut values = Vec::new();
        for parameter in &self.parameters {
            match parameter {
                Parameter::Common(value) => values.push(*value),
                Parameter::PerTrajectory(array) => {
                    values.extend(array.read_f64(&Slab::whole(array.shape()).narrow(0, trajectory, 1))?);
                }
            }
        }
        let mut inputs = TrajectoryInputs::from(values);
        let shape = &self.contents.description.shape;
        let names = &self.contents.description.inputs;
        if !self.statics.is_empty() {
            let count = names.statics.len();
            let mut mixer = Mixer::new(shape.grid.points() * count, count);
            for field in &self.statics {
                mixer.add(&field.read::<f32>(trajectory, 0, 1, shape)?, field.width);
            }
            inputs = inputs.with_statics(mixer.values);
        }
        if !self.controls.is_empty() {
            let times = self.times(trajectory)?;
            let mut mixer = Mixer::new(times.len() * names.controls.len(), names.controls.len());
            for control in &self.controls {
                mixer.add(&read_row(control, trajectory, times.len())?, 1);
            }
            let controls = Controls::new(times, mixer.values);
            inputs = inputs.with_controls(controls.map_err(|source| DataError::Misfit {
                path: self.contents.path.clone(),
                place: Box::new(Place::dataset("scalars").in_trajectory(trajectory)),
                source,
            })?);
        }
        Ok(inputs)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn components_are_named_row_by_row() {
        let axes = ["x".to_string(), "y".to_string()];
        assert_eq!(component_names("A", 0, &axes), ["A"]);
        assert_eq!(component_names("v", 1, &axes), ["v_x", "v_y"]);
        assert_eq!(component_names("s", 2, &axes), ["s_xx", "s_xy", "s_yx", "s_yy"]);
    }
}
