//! Reading HDF5: the only file that knows which crate decodes it.

use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use half::f16;
use hdf5_reader::datatype_api::dtype_element_size;
use hdf5_reader::error::{ByteOrder, Error};
use hdf5_reader::filters::{FILTER_FLETCHER32, FILTER_SHUFFLE, FilterRegistry};
use hdf5_reader::messages::HdfMessage;
use hdf5_reader::messages::datatype::Datatype;
use hdf5_reader::messages::filter_pipeline::FilterDescription;
use hdf5_reader::{Dataset, FileStorage, H5Type, Hdf5File, OpenOptions, SliceInfo, SliceInfoElem};

use super::array::{Array, Block, Origin, elements, shape_text};
use super::bounded::BoundedStorage;
use super::chunks::Chunks;
use super::lzf;
use crate::{DataError, Place};

const FILTER_LZF: u16 = 32000;

/// Filters that reorder or check bytes and so do not shrink them.
const KEEPING_FILTERS: [u16; 2] = [FILTER_SHUFFLE, FILTER_FLETCHER32];

/// The most that a compressed byte can grow: deflate's limit, above LZF's.
const GROWTH: u64 = 1032;

/// An open HDF5 file.
pub(crate) struct Hdf5 {
    file: Arc<Hdf5File>,
    numbers: Arc<FileStorage>,
    filters: Arc<FilterRegistry>,
    path: Arc<PathBuf>,
    bytes: u64,
}

/// The filters of HDF5, and h5py's LZF.
fn filters() -> FilterRegistry {
    let mut filters = FilterRegistry::new();
    let decompress = |description: &FilterDescription, data: &[u8], _| {
        // h5py's third parameter is the decoded size of a chunk.
        let size = description.client_data.get(2).map_or(usize::MAX, |&size| size as usize);
        lzf::decompress(data, size)
            .ok_or_else(|| Error::DecompressionError("LZF stream is damaged".to_string()))
    };
    filters.register(FILTER_LZF, Box::new(decompress));
    filters
}

/// What a group holds, each sorted by name.
pub(crate) struct Members {
    pub groups: Vec<String>,
    pub datasets: Vec<String>,
}

impl Hdf5 {
    pub fn open(path: &Path) -> Result<Self, DataError> {
        let bytes = fs_err::metadata(path).map_err(|error| DataError::reading(path, error))?.len();
        let limit = usize::try_from(bytes.saturating_mul(GROWTH)).unwrap_or(usize::MAX);
        let options = OpenOptions::default()
            .with_filter_registry(filters())
            .with_chunk_cache_bytes(0)
            .with_max_chunk_bytes(limit.min(hdf5_reader::DEFAULT_MAX_CHUNK_BYTES))
            .with_max_read_bytes(limit)
            // Headers are never compressed.
            .with_max_object_header_bytes(
                usize::try_from(bytes)
                    .unwrap_or(usize::MAX)
                    .min(hdf5_reader::DEFAULT_MAX_OBJECT_HEADER_BYTES),
            );
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

    /// What the group `name` holds; empty when there is no such group.
    pub fn members(&self, name: &str) -> Result<Members, DataError> {
        let failed = |error| failure(&self.path, Place::dataset(name), error);
        let group = match self.file.group(name) {
            Ok(group) => group,
            Err(error) if is_absent(&error) => return Ok(Members { groups: vec![], datasets: vec![] }),
            Err(error) => return Err(failed(error)),
        };
        let (mut groups, mut datasets) = group.member_names().map_err(failed)?;
        groups.sort_unstable();
        datasets.sort_unstable();
        Ok(Members { groups, datasets })
    }

    /// The dataset `name`, which must be there.
    pub fn dataset(&self, name: &str) -> Result<Hdf5Array, DataError> {
        self.find_dataset(name)?.ok_or_else(|| self.absent(name))
    }

    /// That something is not there, and what is beside the place where it should be.
    pub fn absent(&self, name: &str) -> DataError {
        let group = name.rsplit_once('/').map_or("/", |(group, _)| group);
        let found = self.members(group).map_or_else(|_| vec![], |held| [held.datasets, held.groups].concat());
        DataError::Absent { path: self.path.to_path_buf(), name: name.to_string(), found }
    }

    /// The dataset `name`, if it is there.
    pub fn find_dataset(&self, name: &str) -> Result<Option<Hdf5Array>, DataError> {
        match self.file.dataset(name) {
            Ok(dataset) => Hdf5Array::new(self, name, dataset).map(Some),
            Err(error) if is_absent(&error) => Ok(None),
            Err(error) => Err(failure(&self.path, Place::dataset(name), error)),
        }
    }

    /// The numbers of an attribute of a group, if it is there.
    pub fn group_numbers(&self, group: &str, name: &str) -> Result<Option<Vec<f64>>, DataError> {
        self.group_attribute(group, name)?.map(|attribute| numbers(&self.path, &attribute)).transpose()
    }

    /// The texts of an attribute of a group, if it is there.
    pub fn group_texts(&self, group: &str, name: &str) -> Result<Option<Vec<String>>, DataError> {
        self.group_attribute(group, name)?.map(|attribute| texts(&self.path, &attribute)).transpose()
    }

    fn group_attribute(&self, group: &str, name: &str) -> Result<Option<hdf5_reader::Attribute>, DataError> {
        let found = self.file.group(group).and_then(|group| group.attribute(name));
        match found {
            Ok(attribute) => Ok(Some(attribute)),
            Err(error) if is_absent(&error) => Ok(None),
            Err(error) => Err(failure(&self.path, Place::dataset(name), error)),
        }
    }
}

/// A dataset of real numbers.
pub(crate) struct Hdf5Array {
    dataset: Dataset,
    origin: Origin,
    shape: Vec<usize>,
    file: Arc<Hdf5File>,
    numbers: Arc<FileStorage>,
    filters: Arc<FilterRegistry>,
    /// The chunks, located by the first read; `None` when the numbers stand elsewhere (in the header, in other files).
    chunks: OnceLock<Option<Chunks>>,
    /// Bytes of one number.
    size: usize,
    /// The most bytes of numbers that the file can stand for.
    capacity: u64,
}

impl Hdf5Array {
    fn new(file: &Hdf5, name: &str, dataset: Dataset) -> Result<Self, DataError> {
        let origin = Origin { path: file.path.clone(), name: name.to_string() };
        let shape: Option<Vec<usize>> =
            dataset.shape().iter().map(|&extent| usize::try_from(extent).ok()).collect();
        let shape = shape.ok_or_else(|| origin.damaged("its extent is no number of this machine"))?;
        let size = number_size(dataset.dtype()).ok_or_else(|| match dataset.dtype() {
            Datatype::VarLen { .. } => origin.ragged("lists of different lengths"),
            other => origin.unfit(format!("{other:?}"), "real numbers"),
        })?;
        let capacity = file.bytes.saturating_mul(growth(file, &dataset)?);
        let (numbers, filters) = (file.numbers.clone(), file.filters.clone());
        let file = file.file.clone();
        let array =
            Self { dataset, origin, shape, file, numbers, filters, chunks: OnceLock::new(), size, capacity };
        array.check_extent()?;
        Ok(array)
    }

    /// Refuse an extent that the file cannot hold. Chunks that were never written take no room, as the ends of short
    /// trajectories; so of a chunked array the second axis, which is time, counts once.
    fn check_extent(&self) -> Result<(), DataError> {
        let mut extent = self.shape.clone();
        if let Some(chunk) = self.dataset.chunks().filter(|_| elements(&extent) != Some(0)) {
            let chunk: Vec<usize> = chunk.iter().map(|&extent| extent as usize).collect();
            self.check_size(&chunk)?;
            if let Some(frames) = extent.get_mut(1) {
                *frames = 1;
            }
        }
        self.check_size(&extent)
    }

    fn check_size(&self, extent: &[usize]) -> Result<(), DataError> {
        let bytes = elements(extent).and_then(|count| count.checked_mul(self.size));
        if bytes.is_some_and(|bytes| bytes as u64 <= self.capacity) {
            return Ok(());
        }
        Err(self.origin.damaged(format!("{} is more than the file can hold", shape_text(extent))))
    }

    /// The numbers of an attribute, if it is there.
    pub fn numbers(&self, name: &str) -> Result<Option<Vec<f64>>, DataError> {
        self.attribute(name)?.map(|attribute| numbers(&self.origin.path, &attribute)).transpose()
    }

    /// The texts of an attribute, if it is there.
    pub fn texts(&self, name: &str) -> Result<Option<Vec<String>>, DataError> {
        self.attribute(name)?.map(|attribute| texts(&self.origin.path, &attribute)).transpose()
    }

    fn attribute(&self, name: &str) -> Result<Option<hdf5_reader::Attribute>, DataError> {
        match self.dataset.attribute(name) {
            Ok(attribute) => Ok(Some(attribute)),
            Err(error) if is_absent(&error) => Ok(None),
            Err(error) => Err(failure(&self.origin.path, Place::dataset(name), error)),
        }
    }

    /// The chunks of the dataset, if it has any.
    pub fn chunks(&self) -> Result<Option<&Chunks>, Error> {
        if self.chunks.get().is_none() {
            let chunks = Chunks::open(
                &self.file,
                &self.numbers,
                &self.filters,
                &self.dataset,
                &self.shape,
                self.size,
            )?;
            // Another thread may have been quicker; both found the same.
            let _ = self.chunks.set(chunks);
        }
        Ok(self.chunks.get().and_then(Option::as_ref))
    }

    fn read<T: H5Type>(&self, block: &Block) -> Result<Vec<T>, DataError> {
        if block.len() == 0 {
            return Ok(Vec::new());
        }
        self.check_size(&block.count)?;
        let values = self
            .read_values(block)
            .map_err(|error| failure(&self.origin.path, self.origin.place(), error))?;
        if values.len() != block.len() {
            return Err(self.origin.damaged(format!(
                "{} numbers where {} belong",
                values.len(),
                block.len()
            )));
        }
        Ok(values)
    }

    fn read_values<T: H5Type>(&self, block: &Block) -> Result<Vec<T>, Error> {
        if let Some(chunks) = self.chunks()? {
            let bytes = chunks.read(block)?;
            let decoded = T::decode_vec(&bytes, self.dataset.dtype(), block.len());
            return decoded
                .unwrap_or_else(|| Err(Error::InvalidData("its numbers cannot be decoded".to_string())));
        }
        let array = if self.shape.is_empty() {
            self.dataset.read_array::<T>()?
        } else {
            let axis = |(&start, &count): (&usize, &usize)| SliceInfoElem::Slice {
                start: start as u64,
                end: (start + count) as u64,
                step: 1,
            };
            let selections = block.start.iter().zip(&block.count).map(axis).collect();
            self.dataset.read_slice::<T>(&SliceInfo { selections })?
        };
        Ok(array.into_raw_vec_and_offset().0)
    }
}

impl Array for Hdf5Array {
    fn origin(&self) -> &Origin {
        &self.origin
    }

    fn shape(&self) -> &[usize] {
        &self.shape
    }

    fn read_f64(&self, block: &Block) -> Result<Vec<f64>, DataError> {
        Ok(self.read::<Real>(block)?.into_iter().map(|Real(value)| value).collect())
    }

    fn read_f32(&self, block: &Block) -> Result<Vec<f32>, DataError> {
        if matches!(self.dataset.dtype(), Datatype::FloatingPoint { size: 4, .. }) {
            return self.read::<f32>(block);
        }
        Ok(self.read::<Real>(block)?.into_iter().map(|Real(value)| value as f32).collect())
    }

    fn read_f32_into(&self, block: &Block, out: &mut [f32]) -> Result<(), DataError> {
        let failed = |error| failure(&self.origin.path, self.origin.place(), error);
        let single = match self.dataset.dtype() {
            Datatype::FloatingPoint { size: 4, byte_order: ByteOrder::BigEndian } => f32::from_be_bytes,
            Datatype::FloatingPoint { size: 4, .. } => f32::from_le_bytes,
            _ => {
                out.copy_from_slice(&self.read_f32(block)?);
                return Ok(());
            }
        };
        match self.chunks().map_err(failed)? {
            Some(chunks) if block.len() > 0 => {
                self.check_size(&block.count)?;
                let number = |word: &[u8]| single([word[0], word[1], word[2], word[3]]);
                if let Some(fill) = chunks.gaps() {
                    out.fill(number(fill));
                }
                let mut copy = |place: usize, piece: &[u8]| {
                    let words = piece.chunks_exact(4).map(number);
                    out[place / 4..].iter_mut().zip(words).for_each(|(to, value)| *to = value);
                };
                chunks.visit(block, &mut copy).map_err(failed)
            }
            _ => {
                out.copy_from_slice(&self.read_f32(block)?);
                Ok(())
            }
        }
    }
}

/// How many bytes of numbers a stored byte of this dataset can stand for.
fn growth(file: &Hdf5, dataset: &Dataset) -> Result<u64, DataError> {
    if dataset.chunks().is_none() {
        return Ok(1);
    }
    let header = file.file.get_or_parse_header(dataset.address());
    let header = header.map_err(|error| failure(&file.path, Place::dataset(dataset.name()), error))?;
    let shrinks = |message: &HdfMessage| match message {
        HdfMessage::FilterPipeline(pipeline) => {
            pipeline.filters.iter().any(|filter| !KEEPING_FILTERS.contains(&filter.id))
        }
        _ => false,
    };
    Ok(if header.messages.iter().any(shrinks) { GROWTH } else { 1 })
}

/// Any stored real number: floats of 2, 4 and 8 bytes, integers, and enumerations of them (h5py's booleans).
#[derive(Clone)]
struct Real(f64);

impl H5Type for Real {
    fn hdf5_type() -> Datatype {
        f64::hdf5_type()
    }

    fn from_bytes(bytes: &[u8], dtype: &Datatype) -> hdf5_reader::error::Result<Self> {
        decode(bytes, dtype).map(Self).ok_or_else(|| Error::TypeMismatch {
            expected: "a real number".to_string(),
            actual: format!("{dtype:?} in {} bytes", bytes.len()),
        })
    }

    fn element_size(dtype: &Datatype) -> usize {
        dtype_element_size(dtype).unwrap_or(0)
    }

    fn decode_vec(
        raw: &[u8],
        dtype: &Datatype,
        count: usize,
    ) -> Option<hdf5_reader::error::Result<Vec<Self>>> {
        let size = number_size(dtype)?;
        let bytes = raw.get(..count.checked_mul(size)?)?;
        bytes
            .chunks_exact(size)
            .map(|chunk| decode(chunk, dtype).map(Self))
            .collect::<Option<Vec<_>>>()
            .map(Ok)
    }
}

/// Bytes of one number of this type; `None` when it is no real number.
fn number_size(dtype: &Datatype) -> Option<usize> {
    match dtype {
        Datatype::FloatingPoint { size: size @ (2 | 4 | 8), .. }
        | Datatype::FixedPoint { size: size @ (1 | 2 | 4 | 8), .. } => Some(usize::from(*size)),
        Datatype::Enum { base, .. } => number_size(base),
        _ => None,
    }
}

fn decode(bytes: &[u8], dtype: &Datatype) -> Option<f64> {
    let ordered = |order: &ByteOrder| {
        let mut word = [0; 8];
        let length = bytes.len().min(8);
        word[..length].copy_from_slice(&bytes[..length]);
        if matches!(order, ByteOrder::BigEndian) {
            word[..length].reverse();
        }
        u64::from_le_bytes(word)
    };
    match dtype {
        Datatype::Enum { base, .. } => decode(bytes, base),
        Datatype::FloatingPoint { size, byte_order } if bytes.len() == usize::from(*size) => {
            let word = ordered(byte_order);
            match size {
                2 => Some(f16::from_bits(word as u16).to_f64()),
                4 => Some(f64::from(f32::from_bits(word as u32))),
                8 => Some(f64::from_bits(word)),
                _ => None,
            }
        }
        Datatype::FixedPoint { size, signed, byte_order } if bytes.len() == usize::from(*size) => {
            let word = ordered(byte_order);
            let unused = 64 - 8 * u32::from(*size).min(8);
            if *signed { Some(((word << unused) as i64 >> unused) as f64) } else { Some(word as f64) }
        }
        _ => None,
    }
}

fn numbers(path: &Path, attribute: &hdf5_reader::Attribute) -> Result<Vec<f64>, DataError> {
    if number_size(&attribute.datatype).is_none() {
        return Err(DataError::Unfit {
            path: path.to_owned(),
            place: Box::new(Place::dataset(&attribute.name)),
            found: format!("{:?}", attribute.datatype),
            needed: "real numbers".to_string(),
        });
    }
    let values = attribute.read_1d::<Real>();
    let values = values.map_err(|error| failure(path, Place::dataset(&attribute.name), error))?;
    Ok(values.into_iter().map(|Real(value)| value).collect())
}

fn texts(path: &Path, attribute: &hdf5_reader::Attribute) -> Result<Vec<String>, DataError> {
    let texts = match attribute.shape.as_slice() {
        [] => attribute.read_string().map(|text| vec![text]),
        _ => attribute.read_strings(),
    };
    texts.map_err(|error| failure(path, Place::dataset(&attribute.name), error))
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
        Error::UnsupportedFilter(what) => DataError::Unsupported {
            path: path.to_owned(),
            what: format!("the compression of {place} ({what})"),
        },
        Error::UnsupportedEncoding(what) => DataError::Unsupported {
            path: path.to_owned(),
            what: format!("the encoding of {place} ({what})"),
        },
        other => {
            DataError::Damaged { path: path.to_owned(), place: Box::new(place), detail: other.to_string() }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_width_and_order_of_numbers_is_decoded() {
        let big = ByteOrder::BigEndian;
        let little = ByteOrder::LittleEndian;
        let float = |size, byte_order| Datatype::FloatingPoint { size, byte_order };
        let fixed = |size, signed, byte_order| Datatype::FixedPoint { size, signed, byte_order };
        assert_eq!(decode(&(-2.5f64).to_be_bytes(), &float(8, big)), Some(-2.5));
        assert_eq!(decode(&0.1f32.to_le_bytes(), &float(4, little)), Some(f64::from(0.1f32)));
        assert_eq!(decode(&f16::from_f32(1.5).to_be_bytes(), &float(2, big)), Some(1.5));
        assert_eq!(decode(&(-3i16).to_be_bytes(), &fixed(2, true, big)), Some(-3.0));
        assert_eq!(decode(&[255], &fixed(1, true, little)), Some(-1.0));
        assert_eq!(decode(&[255], &fixed(1, false, little)), Some(255.0));
        assert_eq!(decode(&i64::MIN.to_le_bytes(), &fixed(8, true, little)), Some(-(2f64.powi(63))));
        assert_eq!(decode(&[1, 2], &fixed(4, true, little)), None);
        assert_eq!(number_size(&Datatype::Opaque { size: 4, tag: String::new() }), None);
    }
}
