//! The layout `cfo`, in HDF5 and in `.npz`: arrays with fixed names and one row per trajectory.

use std::path::{Path, PathBuf};

use super::unknown::{Unknown, warnings};
use super::{Contents, TrajectorySource};
use crate::store::container::array::{Array, Slab, read_all, read_counts, read_row, shape_text};
use crate::store::container::hdf5::Hdf5;
use crate::store::container::npy::NpyArray;
use crate::store::container::zip::Member;
use crate::{DataError, Description, FieldShape, Place, Split};

/// Value of the attribute `format` of our files.
pub(crate) const FORMAT: &str = "cfo-trajectories";
/// The only version so far.
pub(crate) const VERSION: i64 = 1;
/// Attribute with the checksum of the texts. HDF5 stores texts in its only structure without a checksum.
pub(crate) const LABELS_CHECKSUM: &str = "labels_crc32";

/// Numeric arrays of the layout.
pub(super) const ARRAYS: [&str; 5] = ["values", "times", "lengths", "split", "parameters"];
/// Numeric attributes of the layout.
const ATTRIBUTES: [&str; 4] = ["version", "periodic", "domain", LABELS_CHECKSUM];
/// Array with the positions of scattered points.
const COORDINATES: &str = "coordinates";

/// The checksum of the texts of a file: its system, and the lists of names in the order given.
pub(crate) fn labels_checksum(system: &str, lists: [&[String]; 3]) -> i64 {
    let mut hasher = crc32fast::Hasher::new();
    let mut add = |text: &str, end: u8| {
        hasher.update(text.as_bytes());
        hasher.update(&[end]);
    };
    add(system, 1);
    for list in lists {
        list.iter().for_each(|text| add(text, 0));
        add("", 1);
    }
    i64::from(hasher.finalize())
}

/// Trajectories as rows of arrays.
pub(crate) struct TableSource {
    contents: Contents,
    values: Box<dyn Array>,
    times: Box<dyn Array>,
    lengths: Option<Vec<usize>>,
    splits: Option<Vec<Split>>,
    parameters: Option<Box<dyn Array>>,
}

/// Arrays and attributes of a container under the names of the layout.
struct Parts {
    path: PathBuf,
    /// All names in the container.
    names: Vec<String>,
    values: Option<Box<dyn Array>>,
    times: Option<Box<dyn Array>>,
    lengths: Option<Box<dyn Array>>,
    split: Option<Box<dyn Array>>,
    parameters: Option<Box<dyn Array>>,
    labels: Labels,
    /// Numeric arrays and attributes with unknown names.
    unknown: Vec<Unknown>,
}

/// Texts of a container that describe its numbers.
#[derive(Default)]
struct Labels {
    system: Option<String>,
    periodic: Option<Vec<f64>>,
    domain: Option<Vec<f64>>,
    channel_names: Option<Vec<String>>,
    channel_units: Option<Vec<String>>,
    parameter_names: Option<Vec<String>>,
}

impl TableSource {
    /// Whether an HDF5 file has this layout.
    pub fn recognises(file: &Hdf5, datasets: &[String]) -> bool {
        let declared = file.group_texts("/", "format").ok().flatten();
        declared.is_some_and(|texts| texts.first().is_some_and(|text| text == FORMAT))
            || ["values", "times"].iter().all(|name| datasets.iter().any(|dataset| dataset == name))
    }

    pub fn open_hdf5(file: &Hdf5) -> Result<Self, DataError> {
        let version = file.group_numbers("/", "version")?;
        if let Some(&found) = version.as_ref().and_then(|version| version.first())
            && found != VERSION as f64
        {
            let what = format!("version {found} of the layout `cfo` (this program reads version {VERSION})");
            return Err(DataError::unsupported(file.path(), what));
        }
        let array = |name: &str| -> Result<Option<Box<dyn Array>>, DataError> {
            Ok(file.find_dataset(name)?.map(|array| Box::new(array) as Box<dyn Array>))
        };
        let parameter_names = match file.find_dataset("parameters")? {
            Some(parameters) => parameters.texts("names")?,
            None => None,
        };
        let labels = Labels {
            system: file.group_texts("/", "system")?.and_then(|texts| texts.into_iter().next()),
            periodic: file.group_numbers("/", "periodic")?,
            domain: file.group_numbers("/", "domain")?,
            channel_names: file.group_texts("/", "channel_names")?,
            channel_units: file.group_texts("/", "channel_units")?,
            parameter_names,
        };
        labels.check(file)?;
        let names = file.members("/")?.datasets;
        let other = |name: &&String| !ARRAYS.contains(&name.as_str());
        // Arrays of anything but numbers are ignored.
        let numbers = |name: &String| Some((name.clone(), file.dataset(name).ok()?.shape().to_vec()));
        let mut unknown: Vec<Unknown> = names.iter().filter(other).filter_map(numbers).collect();
        let attributes = file.numeric_attributes("/").into_iter();
        unknown.extend(attributes.filter(|(name, _)| !ATTRIBUTES.contains(&name.as_str())));
        Self::build(Parts {
            path: file.path().to_owned(),
            names,
            unknown,
            values: array("values")?,
            times: array("times")?,
            lengths: array("lengths")?,
            split: array("split")?,
            parameters: array("parameters")?,
            labels,
        })
    }

    pub fn open_npz(path: PathBuf, members: Vec<Member>) -> Result<Self, DataError> {
        let bare = |name: &str| name.strip_suffix(".npy").unwrap_or(name).to_string();
        let names = members.iter().map(|member| bare(&member.origin.name)).collect();
        let mut arrays: Vec<_> =
            members.into_iter().map(|member| (member.origin.name.clone(), Some(member))).collect();
        let mut take = |name: &str| -> Result<Option<NpyArray>, DataError> {
            let named = |member: &str| member.strip_suffix(".npy") == Some(name);
            let found = arrays.iter_mut().find(|(member, _)| named(member));
            let Some(member) = found.and_then(|(_, member)| member.take()) else { return Ok(None) };
            member.check()?;
            NpyArray::open(member).map(Some)
        };
        let mut texts = |name: &str| take(name)?.map(|array| array.texts()).transpose();
        let system = texts("system")?.and_then(|texts| texts.into_iter().next());
        let (channel_names, channel_units) = (texts("channel_names")?, texts("channel_units")?);
        let parameter_names = texts("parameter_names")?;
        let mut numbers = |name: &str| take(name)?.map(|array| read_all(&array)).transpose();
        let (periodic, domain) = (numbers("periodic")?, numbers("domain")?);
        let labels = Labels { system, periodic, domain, channel_names, channel_units, parameter_names };
        let mut array =
            |name: &str| take(name).map(|found| found.map(|array| Box::new(array) as Box<dyn Array>));
        let (values, times) = (array("values")?, array("times")?);
        let (lengths, split, parameters) = (array("lengths")?, array("split")?, array("parameters")?);
        let mut unknown = Vec::new();
        for member in arrays.into_iter().filter_map(|(_, member)| member) {
            // Members that are not used must not be damaged either.
            member.check()?;
            let array = NpyArray::open(member).ok().filter(NpyArray::has_numbers);
            unknown.extend(array.map(|array| (array.origin().name.clone(), array.shape().to_vec())));
        }
        Self::build(Parts { path, names, unknown, values, times, lengths, split, parameters, labels })
    }

    fn build(parts: Parts) -> Result<Self, DataError> {
        let absent = |name: &str| DataError::Absent {
            path: parts.path.clone(),
            name: name.to_string(),
            found: parts.names.clone(),
        };
        let values = parts.values.ok_or_else(|| absent("values"))?;
        let times = parts.times.ok_or_else(|| absent("times"))?;
        let shape = values.shape().to_vec();
        if !(3..=5).contains(&shape.len()) || shape[1..].contains(&0) {
            let needed = "[trajectories, frames, (one or two space axes,) channels]";
            return Err(values.origin().unfit(shape_text(&shape), needed));
        }
        let (rows, frames) = (shape[0], shape[1]);
        if times.shape() != [frames] && times.shape() != [rows, frames] {
            let needed = format!("[{frames}] or [{rows}, {frames}], as in `values`");
            return Err(times.origin().unfit(shape_text(times.shape()), needed));
        }
        let axes = shape.len() - 3;
        if axes > 0 && parts.unknown.iter().any(|(name, _)| name == COORDINATES) {
            return Err(DataError::Scattered { path: parts.path });
        }
        let mut extents = vec![rows, frames, shape[2..2 + axes].iter().product()];
        extents.extend(&shape[2..2 + axes]);
        extents.retain(|&extent| extent > 1);
        let warnings = warnings(&parts.unknown, &extents);
        let lengths = parts.lengths.map(|lengths| read_lengths(&*lengths, rows, frames)).transpose()?;
        let splits = parts.split.map(|split| read_splits(&*split, rows)).transpose()?;
        let parameters = parts.parameters;
        if let Some(parameters) = &parameters {
            let found = parameters.shape();
            if found.len() != 2 || found[0] != rows {
                return Err(parameters.origin().unfit(shape_text(found), format!("[{rows}, parameters]")));
            }
        }
        let width = parameters.as_ref().map_or(0, |parameters| parameters.shape()[1]);
        let description = parts.labels.describe(&parts.path, &shape[2..], width)?;
        let contents = Contents {
            warnings,
            is_sequential: values.is_sequential(),
            ..Contents::new(parts.path, description, rows, values.is_double())
        };
        Ok(Self { contents, values, times, lengths, splits, parameters })
    }

    /// The block of consecutive snapshots of a trajectory.
    fn block(&self, trajectory: usize, first: usize, count: usize) -> Slab {
        Slab::whole(self.values.shape()).narrow(0, trajectory, 1).narrow(1, first, count)
    }
}

fn read_lengths(lengths: &dyn Array, rows: usize, frames: usize) -> Result<Vec<usize>, DataError> {
    if lengths.shape() != [rows] {
        let needed = format!("[{rows}], one per trajectory");
        return Err(lengths.origin().unfit(shape_text(lengths.shape()), needed));
    }
    let counts = read_counts(lengths)?;
    match counts.iter().position(|&count| count == 0 || count > frames) {
        None => Ok(counts),
        Some(row) => {
            let needed = format!("1 to {frames}, the frames that `values` has");
            Err(lengths.origin().unfit_in(row, format!("length {}", counts[row]), needed))
        }
    }
}

fn read_splits(split: &dyn Array, rows: usize) -> Result<Vec<Split>, DataError> {
    if split.shape() != [rows] {
        return Err(split.origin().unfit(shape_text(split.shape()), format!("[{rows}], one per trajectory")));
    }
    let codes = read_all(split)?;
    let part = |code: f64| if code.fract() == 0.0 { Split::from_code(code as i64) } else { None };
    let parts = codes.iter().enumerate().map(|(row, &code)| {
        let needed = "0 (train), 1 (validation) or 2 (test)";
        part(code).ok_or_else(|| split.origin().unfit_in(row, format!("{code}"), needed))
    });
    parts.collect()
}

impl Labels {
    /// Verifies the checksum of the texts, if the file has one.
    fn check(&self, file: &Hdf5) -> Result<(), DataError> {
        let Some(stored) = file.group_numbers("/", LABELS_CHECKSUM)? else { return Ok(()) };
        let list = |texts: &Option<Vec<String>>| texts.clone().unwrap_or_default();
        let lists = [&self.channel_names, &self.channel_units, &self.parameter_names].map(list);
        let system = self.system.as_deref().unwrap_or_default();
        let found = labels_checksum(system, lists.each_ref().map(Vec::as_slice));
        if stored == [found as f64] {
            return Ok(());
        }
        let detail = format!(
            "the names in it do not agree with their checksum; if they were changed on purpose, delete the attribute \
             `{LABELS_CHECKSUM}`"
        );
        Err(DataError::damaged(file.path(), Place::default(), detail))
    }

    fn describe(self, path: &Path, field: &[usize], parameters: usize) -> Result<Description, DataError> {
        let axes = field.len() - 1;
        let fits = |name: &str, found: usize, needed: usize| {
            if found == needed {
                return Ok(());
            }
            let needed = format!("{needed}, to match `values`");
            Err(DataError::unfit(path, Place::dataset(name), format!("{found} entries"), needed))
        };
        let channels = field[axes];
        let periodic = self.periodic.unwrap_or_else(|| vec![0.0; axes]);
        fits("periodic", periodic.len(), axes)?;
        let domain = self.domain.unwrap_or_else(|| [0.0, 1.0].repeat(axes));
        fits("domain", domain.len(), 2 * axes)?;
        let domain: Vec<[f64; 2]> = domain.chunks_exact(2).map(|ends| [ends[0], ends[1]]).collect();
        if let Some(ends) = domain.iter().find(|[low, high]| !(low < high && (high - low).is_finite())) {
            let (place, found) = (Place::dataset("domain"), format!("[{}, {}]", ends[0], ends[1]));
            return Err(DataError::unfit(path, place, found, "a lower end below the upper"));
        }
        let channel_names = self.channel_names.unwrap_or_default();
        let channel_units = self.channel_units.unwrap_or_default();
        for (name, texts) in [("channel_names", &channel_names), ("channel_units", &channel_units)] {
            if !texts.is_empty() {
                fits(name, texts.len(), channels)?;
            }
        }
        let numbered = || (0..parameters).map(|index| format!("parameter {index}")).collect();
        let parameter_names = self.parameter_names.unwrap_or_else(numbered);
        fits("names", parameter_names.len(), parameters)?;
        Ok(Description {
            system: self.system.unwrap_or_default(),
            shape: FieldShape::from_dimensions(field).expect("at most two space axes"),
            periodic: periodic.iter().map(|&flag| flag != 0.0).collect(),
            domain,
            channel_names,
            channel_units,
            parameter_names,
        })
    }
}

impl TrajectorySource for TableSource {
    fn contents(&self) -> &Contents {
        &self.contents
    }

    fn frames(&self, trajectory: usize) -> Result<usize, DataError> {
        Ok(self.lengths.as_ref().map_or(self.values.shape()[1], |lengths| lengths[trajectory]))
    }

    fn times(&self, trajectory: usize) -> Result<Vec<f64>, DataError> {
        read_row(&*self.times, trajectory, self.frames(trajectory)?)
    }

    fn values(&self, trajectory: usize, first: usize, count: usize) -> Result<Vec<f32>, DataError> {
        self.values.read_f32(&self.block(trajectory, first, count))
    }

    fn doubles(&self, trajectory: usize, first: usize, count: usize) -> Result<Vec<f64>, DataError> {
        self.values.read_f64(&self.block(trajectory, first, count))
    }

    fn values_into(
        &self,
        trajectory: usize,
        first: usize,
        count: usize,
        out: &mut [f32],
    ) -> Result<(), DataError> {
        self.values.read_f32_into(&self.block(trajectory, first, count), out)
    }

    fn parameters(&self, trajectory: usize) -> Result<Vec<f64>, DataError> {
        match &self.parameters {
            Some(parameters) => {
                parameters.read_f64(&Slab::whole(parameters.shape()).narrow(0, trajectory, 1))
            }
            None => Ok(Vec::new()),
        }
    }

    fn split(&self, trajectory: usize) -> Option<Split> {
        self.splits.as_ref().map(|splits| splits[trajectory])
    }
}
