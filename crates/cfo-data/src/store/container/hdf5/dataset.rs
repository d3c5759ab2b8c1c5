//! A dataset of real numbers with random access to blocks.

use std::sync::{Arc, OnceLock};

use hdf5_reader::error::{ByteOrder, Error};
use hdf5_reader::filters::{FILTER_FLETCHER32, FILTER_SHUFFLE, FilterRegistry};
use hdf5_reader::messages::HdfMessage;
use hdf5_reader::messages::datatype::Datatype;
use hdf5_reader::{Attribute, Dataset, FileStorage, H5Type, Hdf5File, SliceInfo, SliceInfoElem};

use super::chunks::Chunks;
use super::number::{StoredReal, number_size};
use super::{GROWTH, Hdf5, existing, failure, numbers, texts};
use crate::store::container::array::{Array, Origin, Slab, elements, shape_text};
use crate::{DataError, Place};

/// Filters that reorder or check bytes without compressing them.
const KEEPING_FILTERS: [u16; 2] = [FILTER_SHUFFLE, FILTER_FLETCHER32];

/// A dataset of real numbers.
pub(crate) struct Hdf5Array {
    dataset: Dataset,
    origin: Origin,
    shape: Vec<usize>,
    file: Arc<Hdf5File>,
    numbers: Arc<FileStorage>,
    filters: Arc<FilterRegistry>,
    /// The chunks, located by the first read; `None` if the numbers are stored elsewhere (in the header, in other
    /// files).
    chunks: OnceLock<Option<Chunks>>,
    /// Bytes of one number.
    size: usize,
    /// Maximum bytes of numbers that the file can represent.
    capacity: u64,
}

impl Hdf5Array {
    pub(super) fn new(file: &Hdf5, name: &str, dataset: Dataset) -> Result<Self, DataError> {
        let origin = Origin { path: file.path.clone(), name: name.to_string() };
        let shape: Option<Vec<usize>> =
            dataset.shape().iter().map(|&extent| usize::try_from(extent).ok()).collect();
        let shape =
            shape.ok_or_else(|| origin.damaged("its extent is larger than this machine can address"))?;
        let size = number_size(dataset.dtype()).ok_or_else(|| match dataset.dtype() {
            Datatype::VarLen { .. } => origin.ragged("lists of different lengths"),
            other => origin.unfit(format!("{other:?}"), "real numbers"),
        })?;
        let header = file.file.get_or_parse_header(dataset.address());
        let elsewhere = |message: &HdfMessage| matches!(message, HdfMessage::ExternalFiles(_));
        if header.is_ok_and(|header| header.messages.iter().any(elsewhere)) {
            let (path, place) = (origin.path.to_path_buf(), Box::new(origin.place()));
            return Err(DataError::Elsewhere { path, place, kind: "external" });
        }
        let capacity = file.bytes.saturating_mul(growth(file, &dataset)?);
        let (numbers, filters) = (file.numbers.clone(), file.filters.clone());
        let file = file.file.clone();
        let array =
            Self { dataset, origin, shape, file, numbers, filters, chunks: OnceLock::new(), size, capacity };
        array.check_extent()?;
        Ok(array)
    }

    /// Rejects an extent that the file cannot hold. Chunks that were never written, such as the ends of short
    /// trajectories, take no space. The second axis of a chunked array, which is time, is therefore counted as 1.
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

    /// The numbers of an attribute, if it exists.
    pub fn numbers(&self, name: &str) -> Result<Option<Vec<f64>>, DataError> {
        self.attribute(name)?.map(|attribute| numbers(&self.origin.path, &attribute)).transpose()
    }

    /// The texts of an attribute, if it exists.
    pub fn texts(&self, name: &str) -> Result<Option<Vec<String>>, DataError> {
        self.attribute(name)?.map(|attribute| texts(&self.origin.path, &attribute)).transpose()
    }

    fn attribute(&self, name: &str) -> Result<Option<Attribute>, DataError> {
        existing(&self.origin.path, name, self.dataset.attribute(name))
    }

    /// The chunks of the dataset, if it has any.
    pub fn chunks(&self) -> Result<Option<&Chunks>, Error> {
        if self.chunks.get().is_none() {
            let Self { file, numbers, filters, dataset, shape, size, .. } = self;
            let chunks = Chunks::open(file, numbers, filters, dataset, shape, *size)?;
            // Another thread may have been faster; both results are equal.
            let _ = self.chunks.set(chunks);
        }
        Ok(self.chunks.get().and_then(Option::as_ref))
    }

    fn read<T: H5Type>(&self, block: &Slab) -> Result<Vec<T>, DataError> {
        if block.len() == 0 {
            return Ok(Vec::new());
        }
        self.check_size(&block.count)?;
        let values = self
            .read_values(block)
            .map_err(|error| failure(&self.origin.path, self.origin.place(), error))?;
        if values.len() != block.len() {
            return Err(self.origin.damaged(format!("{} numbers instead of {}", values.len(), block.len())));
        }
        Ok(values)
    }

    fn read_values<T: H5Type>(&self, block: &Slab) -> Result<Vec<T>, Error> {
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
    fn is_double(&self) -> bool {
        let whole = !matches!(self.dataset.dtype(), Datatype::FloatingPoint { .. });
        self.size > if whole { 2 } else { 4 }
    }

    fn origin(&self) -> &Origin {
        &self.origin
    }

    fn shape(&self) -> &[usize] {
        &self.shape
    }

    fn read_f64(&self, block: &Slab) -> Result<Vec<f64>, DataError> {
        Ok(self.read::<StoredReal>(block)?.into_iter().map(|StoredReal(value)| value).collect())
    }

    fn read_f32(&self, block: &Slab) -> Result<Vec<f32>, DataError> {
        if matches!(self.dataset.dtype(), Datatype::FloatingPoint { size: 4, .. }) {
            return self.read::<f32>(block);
        }
        Ok(self.read::<StoredReal>(block)?.into_iter().map(|StoredReal(value)| value as f32).collect())
    }

    fn read_f32_into(&self, block: &Slab, out: &mut [f32]) -> Result<(), DataError> {
        let failed = |error| failure(&self.origin.path, self.origin.place(), error);
        let chunks = self.chunks().map_err(failed)?.filter(|_| block.len() > 0);
        // One copy for each byte order, so that each compiles to a loop without calls.
        let read = match (self.dataset.dtype(), chunks) {
            (Datatype::FloatingPoint { size: 4, byte_order }, Some(chunks)) => {
                self.check_size(&block.count)?;
                match byte_order {
                    ByteOrder::BigEndian => read_singles(chunks, block, out, f32::from_be_bytes),
                    ByteOrder::LittleEndian => read_singles(chunks, block, out, f32::from_le_bytes),
                }
            }
            _ => {
                out.copy_from_slice(&self.read_f32(block)?);
                return Ok(());
            }
        };
        read.map_err(failed)
    }
}

/// Reads a block of numbers of four bytes each into a buffer.
fn read_singles(
    chunks: &Chunks,
    block: &Slab,
    out: &mut [f32],
    number: impl Fn([u8; 4]) -> f32,
) -> Result<(), Error> {
    let (fill, []) = chunks.gaps().unwrap_or_default().as_chunks() else {
        return Err(Error::InvalidData("its fill value is not a number of four bytes".to_string()));
    };
    if let [fill] = *fill {
        out.fill(number(fill));
    }
    chunks.visit(block, &mut |place, piece| {
        let (words, _) = piece.as_chunks();
        out[place / 4..].iter_mut().zip(words).for_each(|(to, &word)| *to = number(word));
    })
}

/// Number of bytes that a stored byte of this dataset can represent.
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
