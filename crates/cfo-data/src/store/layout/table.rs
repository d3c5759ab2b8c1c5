//! The layout `cfo`, in HDF5 and in `.npz`: arrays with fixed names and one row per trajectory.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use super::input_arrays::InputArrays;
use super::unknown::{Unknown, warnings};
use super::{Contents, TrajectorySource};
use crate::store::container::array::{Array, Slab, read_all, read_counts, read_row, shape_text};
use crate::store::container::hdf5::Hdf5;
use crate::store::container::npy::NpyArray;
use crate::store::container::zip::Member;
use crate::{DataError, Description, FieldShape, InputNames, Place, Split, TrajectoryInputs};

/// Value of the attribute `format` of our files.
pub(crate) const FORMAT: &str = "cfo-trajectories";
/// The only version so far.
pub(crate) const VERSION: i64 = 1;
/// Attribute with the checksum of the texts. HDF5 stores texts in its only structure without a checksum.
pub(crate) const LABELS_CHECKSUM: &str = "labels_crc32";

/// Numeric arrays of the layout.
pub(super) const ARRAYS: [&str; 8] =
    ["values", "times", "lengths", "split", "parameters", "controls", "control_times", "statics"];
/// Arrays whose columns have names.
const INPUTS: [&str; 3] = ["parameters", "controls", "statics"];
/// Numeric attributes of the layout.
const ATTRIBUTES: [&str; 4] = ["version", "periodic", "domain", LABELS_CHECKSUM];
/// Array with the positions of scattered points.
const COORDINATES: &str = "coordinates";

/// The checksum of the texts of a file: its system, and the names and units of channels and inputs.
pub(crate) fn labels_checksum(system: &str, channels: [&[String]; 2], inputs: &InputNames) -> i64 {
    let mut hasher = crc32fast::Hasher::new();
    let mut add = |text: &str, end: u8| {
        hasher.update(text.as_bytes());
        hasher.update(&[end]);
    };
    add(system, 1);
    let [names, units] = channels;
    let more =
        [(&inputs.controls, 1), (&inputs.statics, 2)].into_iter().filter(|(names, _)| !names.is_empty());
    for (list, end) in [names, units, &inputs.parameters]
        .map(|list| (list, 1))
        .into_iter()
        .chain(more.map(|(list, end)| (&list[..], end)))
    {
        list.iter().for_each(|text| add(text, 0));
        add("", end);
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
    inputs: InputArrays,
}

/// Arrays and attributes of a container under the names of the layout.
struct Parts {
    path: PathBuf,
    /// All names in the container.
    names: Vec<String>,
    /// Those of [`ARRAYS`] that exist.
    arrays: HashMap<&'static str, Box<dyn Array>>,
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
    /// Names of the [`INPUTS`].
    input_names: [Option<Vec<String>>; 3],
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
        let (mut arrays, mut input_names) = (HashMap::new(), [None, None, None]);
        for name in ARRAYS {
            let Some(array) = file.find_dataset(name)? else { continue };
            if let Some(place) = INPUTS.iter().position(|input| *input == name) {
                input_names[place] = array.texts("names")?;
            }
            arrays.insert(name, Box::new(array) as Box<dyn Array>);
        }
        let labels = Labels {
            system: file.group_texts("/", "system")?.and_then(|texts| texts.into_iter().next()),
            periodic: file.group_numbers("/", "periodic")?,
            domain: file.group_numbers("/", "domain")?,
            channel_names: file.group_texts("/", "channel_names")?,
            channel_units: file.group_texts("/", "channel_units")?,
            input_names,
        };
        labels.check(file)?;
        let names = file.members("/")?.datasets;
        let other = |name: &&String| !ARRAYS.contains(&name.as_str());
        // Arrays of anything but numbers are ignored.
        let numbers = |name: &String| Some((name.clone(), file.dataset(name).ok()?.shape().to_vec()));
        let mut unknown: Vec<Unknown> = names.iter().filter(other).filter_map(numbers).collect();
        let attributes = file.numeric_attributes("/").into_iter();
        unknown.extend(attributes.filter(|(name, _)| !ATTRIBUTES.contains(&name.as_str())));
        Self::build(Parts { path: file.path().to_owned(), names, unknown, arrays, labels })
    }

    pub fn open_npz(path: PathBuf, members: Vec<Member>) -> Result<Self, DataError> {
        let names = names_of(&members);
        let mut members: Vec<Option<Member>> = members.into_iter().map(Some).collect();
        let mut take = |name: &str| taken(&mut members, name);
        let mut texts = |name: &str| take(name)?.map(|array| array.texts()).transpose();
        let system = texts("system")?.and_then(|texts| texts.into_iter().next());
        let (channel_names, channel_units) = (texts("channel_names")?, texts("channel_units")?);
        let input_names = [texts("parameter_names")?, texts("control_names")?, texts("static_names")?];
        let mut numbers = |name: &str| take(name)?.map(|array| read_all(&array)).transpose();
        let (periodic, domain) = (numbers("periodic")?, numbers("domain")?);
        let labels = Labels { system, periodic, domain, channel_names, channel_units, input_names };
        let mut arrays = HashMap::new();
        for name in ARRAYS {
            arrays.extend(take(name)?.map(|array| (name, Box::new(array) as Box<dyn Array>)));
        }
        let mut unknown = Vec::new();
        for member in members.into_iter().flatten() {
            // Members that are not used must not be damaged either.
            member.check()?;
            let array = NpyArray::open(member).ok().filter(NpyArray::has_numbers);
            unknown.extend(array.map(|array| (array.origin().name.clone(), array.shape().to_vec())));
        }
        Self::build(Parts { path, names, unknown, arrays, labels })
    }

    fn build(mut parts: Parts) -> Result<Self, DataError> {
        let absent = |name: &str| DataError::Absent {
            path: parts.path.clone(),
            name: name.to_string(),
            found: parts.names.clone(),
        };
        let mut take = |name: &str| parts.arrays.remove(name);
        let values = take("values").ok_or_else(|| absent("values"))?;
        let times = take("times").ok_or_else(|| absent("times"))?;
        let shape = values.shape().to_vec();
        if !(3..=6).contains(&shape.len()) || shape[1..].contains(&0) {
            let needed = "[trajectories, frames, (one to three space axes,) channels]";
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
        let lengths = take("lengths").map(|lengths| read_lengths(&*lengths, rows, frames)).transpose()?;
        let splits = take("split").map(|split| read_splits(&*split, rows)).transpose()?;
        let inputs = InputArrays::open(take, absent, rows, &shape[2..2 + axes])?;
        let description = parts.labels.describe(&parts.path, &shape[2..], inputs.counts())?;
        let contents = Contents {
            warnings,
            is_sequential: values.is_sequential(),
            ..Contents::new(parts.path, description, rows, values.is_double())
        };
        Ok(Self { contents, values, times, lengths, splits, inputs })
    }

    /// The block of consecutive snapshots of a trajectory.
    fn block(&self, trajectory: usize, first: usize, count: usize) -> Slab {
        Slab::whole(self.values.shape()).narrow(0, trajectory, 1).narrow(1, first, count)
    }
}

/// Names of the arrays of an archive.
pub(super) fn names_of(members: &[Member]) -> Vec<String> {
    let bare = |name: &str| name.strip_suffix(".npy").unwrap_or(name).to_string();
    members.iter().map(|member| bare(&member.origin.name)).collect()
}

/// Takes the array with a name out of an archive, if it is there.
pub(super) fn taken(members: &mut [Option<Member>], name: &str) -> Result<Option<NpyArray>, DataError> {
    let named = |member: &Member| member.origin.name.strip_suffix(".npy") == Some(name);
    let found = members.iter_mut().find(|member| member.as_ref().is_some_and(named));
    let Some(member) = found.and_then(Option::take) else { return Ok(None) };
    member.check()?;
    NpyArray::open(member).map(Some)
}

/// Names of inputs without names.
pub(super) fn numbered(kind: &str, count: usize) -> Vec<String> {
    (0..count).map(|index| format!("{kind} {index}")).collect()
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
        let lists = [&self.channel_names, &self.channel_units].map(list);
        let system = self.system.as_deref().unwrap_or_default();
        let [parameters, controls, statics] = self.input_names.each_ref().map(list);
        let inputs = InputNames { parameters, controls, statics };
        let found = labels_checksum(system, lists.each_ref().map(Vec::as_slice), &inputs);
        if stored == [found as f64] {
            return Ok(());
        }
        let detail = format!(
            "the names in it do not agree with their checksum; if they were changed on purpose, delete the attribute \
             `{LABELS_CHECKSUM}`"
        );
        Err(DataError::damaged(file.path(), Place::default(), detail))
    }

    fn describe(self, path: &Path, field: &[usize], inputs: [usize; 3]) -> Result<Description, DataError> {
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
        let mut named = Vec::new();
        for ((kind, names), count) in
            ["parameter", "control", "static"].into_iter().zip(self.input_names).zip(inputs)
        {
            let names = names.unwrap_or_else(|| numbered(kind, count));
            fits(&format!("names` of the {kind}s"), names.len(), count)?;
            named.push(names);
        }
        let [parameters, controls, statics] = [0, 1, 2].map(|kind| std::mem::take(&mut named[kind]));
        Ok(Description {
            system: self.system.unwrap_or_default(),
            shape: FieldShape::from_dimensions(field).expect("at most three space axes"),
            periodic: periodic.iter().map(|&flag| flag != 0.0).collect(),
            domain,
            channel_names,
            channel_units,
            inputs: InputNames { parameters, controls, statics },
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

    fn inputs(&self, trajectory: usize) -> Result<TrajectoryInputs, DataError> {
        self.inputs.read(&self.contents.path, trajectory)
    }

    fn split(&self, trajectory: usize) -> Option<Split> {
        self.splits.as_ref().map(|splits| splits[trajectory])
    }
}
