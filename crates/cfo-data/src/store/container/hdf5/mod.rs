//! Reading HDF5. Only this folder uses the decoding crate.

mod bounded;
mod chunk_cache;
mod chunk_index;
mod chunks;
mod dataset;
mod fletcher32;
mod lzf;
mod number;
mod overlap;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use bounded::BoundedStorage;
pub(crate) use dataset::Hdf5Array;
use hdf5_reader::error::Error;
use hdf5_reader::filters::{FILTER_FLETCHER32, FilterRegistry};
use hdf5_reader::messages::filter_pipeline::FilterDescription;
use hdf5_reader::{Attribute, FileStorage, Hdf5File, OpenOptions};
use number::{StoredReal, number_size};

use crate::{DataError, Place};

const FILTER_LZF: u16 = 32000;

/// Layout class of virtual datasets.
const VIRTUAL: u8 = 3;

/// Largest growth of a compressed byte: deflate's limit, above LZF's.
const GROWTH: u64 = 1032;

/// An open HDF5 file.
pub(crate) struct Hdf5 {
    file: Arc<Hdf5File>,
    numbers: Arc<FileStorage>,
    filters: Arc<FilterRegistry>,
    path: Arc<PathBuf>,
    bytes: u64,
}

/// The filters of HDF5 with a faster checksum, and h5py's LZF.
fn filters() -> FilterRegistry {
    let mut filters = FilterRegistry::new();
    let decompress = |description: &FilterDescription, data: &[u8], _| {
        // h5py's third parameter is the decoded size of a chunk.
        let size = description.client_data.get(2).map_or(usize::MAX, |&size| size as usize);
        lzf::decompress(data, size)
            .ok_or_else(|| Error::DecompressionError("LZF stream is damaged".to_string()))
    };
    filters.register(FILTER_LZF, Box::new(decompress));
    let verify = |_: &FilterDescription, data: &[u8], _| fletcher32::verified(data).map(<[u8]>::to_vec);
    filters.register(FILTER_FLETCHER32, Box::new(verify));
    filters
}

/// Members of a group, sorted by name.
pub(crate) struct Members {
    pub groups: Vec<String>,
    pub datasets: Vec<String>,
}

impl Hdf5 {
    pub fn open(path: &Path) -> Result<Self, DataError> {
        let bytes = fs_err::metadata(path).map_err(|error| DataError::reading(path, error))?.len();
        let [whole, limit] =
            [1, GROWTH].map(|growth| usize::try_from(bytes.saturating_mul(growth)).unwrap_or(usize::MAX));
        let options = OpenOptions::default()
            .with_filter_registry(filters())
            .with_chunk_cache_bytes(0)
            .with_max_chunk_bytes(limit.min(hdf5_reader::DEFAULT_MAX_CHUNK_BYTES))
            .with_max_read_bytes(limit)
            // Headers are never compressed.
            .with_max_object_header_bytes(whole.min(hdf5_reader::DEFAULT_MAX_OBJECT_HEADER_BYTES));
        let path = Arc::new(path.to_owned());
        let failed = |error| failure(&path, Place::default(), error);
        let numbers = Arc::new(FileStorage::open(path.as_path()).map_err(failed)?);
        let structures = Arc::new(BoundedStorage(numbers.clone()));
        let file = Hdf5File::from_storage_with_options(structures, options).map_err(failed)?;
        Ok(Self { file: Arc::new(file), numbers, filters: Arc::new(filters()), path, bytes })
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The members of the group `name`; empty if it does not exist.
    pub fn members(&self, name: &str) -> Result<Members, DataError> {
        let Some(group) = existing(&self.path, name, self.file.group(name))? else {
            return Ok(Members { groups: vec![], datasets: vec![] });
        };
        let failed = |error| failure(&self.path, Place::dataset(name), error);
        let (mut groups, mut datasets) = group.member_names().map_err(failed)?;
        groups.sort_unstable();
        datasets.sort_unstable();
        Ok(Members { groups, datasets })
    }

    /// The dataset `name`; an error if it does not exist.
    pub fn dataset(&self, name: &str) -> Result<Hdf5Array, DataError> {
        self.find_dataset(name)?.ok_or_else(|| self.absent(name))
    }

    /// The error that something does not exist, with the names beside it.
    pub fn absent(&self, name: &str) -> DataError {
        let group = name.rsplit_once('/').map_or("/", |(group, _)| group);
        let found = self.members(group).map_or_else(|_| vec![], |held| [held.datasets, held.groups].concat());
        DataError::Absent { path: self.path.to_path_buf(), name: name.to_string(), found }
    }

    /// The dataset `name`, if it exists.
    pub fn find_dataset(&self, name: &str) -> Result<Option<Hdf5Array>, DataError> {
        let found = existing(&self.path, name, self.file.dataset(name))?;
        found.map(|dataset| Hdf5Array::new(self, name, dataset)).transpose()
    }

    /// The numbers of an attribute of a group, if it exists.
    pub fn group_numbers(&self, group: &str, name: &str) -> Result<Option<Vec<f64>>, DataError> {
        self.group_attribute(group, name)?.map(|attribute| numbers(&self.path, &attribute)).transpose()
    }

    /// The texts of an attribute of a group, if it exists.
    pub fn group_texts(&self, group: &str, name: &str) -> Result<Option<Vec<String>>, DataError> {
        self.group_attribute(group, name)?.map(|attribute| texts(&self.path, &attribute)).transpose()
    }

    /// Names and extents of a group's numeric attributes.
    pub fn numeric_attributes(&self, group: &str) -> Vec<(String, Vec<usize>)> {
        let found = self.file.group(group).and_then(|group| group.attributes()).unwrap_or_default();
        let numbers = found.into_iter().filter(|attribute| number_size(&attribute.datatype).is_some());
        numbers
            .map(|attribute| (attribute.name, attribute.shape.iter().map(|&side| side as usize).collect()))
            .collect()
    }

    fn group_attribute(&self, group: &str, name: &str) -> Result<Option<Attribute>, DataError> {
        let found = self.file.group(group).and_then(|group| group.attribute(name));
        existing(&self.path, name, found)
    }
}

fn numbers(path: &Path, attribute: &Attribute) -> Result<Vec<f64>, DataError> {
    if number_size(&attribute.datatype).is_none() {
        let (place, found) = (Place::dataset(&attribute.name), format!("{:?}", attribute.datatype));
        return Err(DataError::unfit(path, place, found, "real numbers"));
    }
    let values = attribute.read_1d::<StoredReal>();
    let values = values.map_err(|error| failure(path, Place::dataset(&attribute.name), error))?;
    Ok(values.into_iter().map(|StoredReal(value)| value).collect())
}

fn texts(path: &Path, attribute: &Attribute) -> Result<Vec<String>, DataError> {
    let texts = match attribute.shape.as_slice() {
        [] => attribute.read_string().map(|text| vec![text]),
        // h5py writes an empty list as an empty array of numbers.
        shape if shape.contains(&0) => return Ok(Vec::new()),
        _ => attribute.read_strings(),
    };
    texts.map_err(|error| failure(path, Place::dataset(&attribute.name), error))
}

/// What was found under a name; `None` if there is nothing.
fn existing<T>(path: &Path, name: &str, found: Result<T, Error>) -> Result<Option<T>, DataError> {
    match found {
        Ok(found) => Ok(Some(found)),
        Err(error) if is_absent(&error) => Ok(None),
        Err(error) => Err(failure(path, Place::dataset(name), error)),
    }
}

fn is_absent(error: &Error) -> bool {
    match error {
        Error::GroupNotFound(_) | Error::DatasetNotFound(_) | Error::AttributeNotFound(_) => true,
        Error::Context { source, .. } => is_absent(source),
        _ => false,
    }
}

fn failure(path: &Path, place: Place, error: Error) -> DataError {
    match error {
        Error::Context { source, .. } => failure(path, place, *source),
        Error::Io(source) => DataError::reading(path, source),
        Error::UnsupportedFilter(what) => {
            DataError::unsupported(path, format!("the compression of {place} ({what})"))
        }
        Error::UnsupportedEncoding(what) => {
            DataError::unsupported(path, format!("the encoding of {place} ({what})"))
        }
        Error::UnsupportedLayoutClass(VIRTUAL) => {
            DataError::Elsewhere { path: path.to_owned(), place: Box::new(place), kind: "virtual" }
        }
        other => DataError::damaged(path, place, other.to_string()),
    }
}
