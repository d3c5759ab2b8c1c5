//! Writing HDF5. Only this file uses the encoding crate.

use std::io;
use std::path::{Path, PathBuf};

use rust_hdf5::format::messages::filter::{FILTER_FLETCHER32, FLAG_MANDATORY};
use rust_hdf5::{
    DatatypeMessage, Filter, FilterPipeline, H5Dataset, H5File, H5Group, H5Type, HBool, Hdf5Error,
    VarLenUnicode,
};

use super::Compression;
use crate::{DataError, Place};

/// Target size of chunks: small enough to read single frames of large fields, large enough for a short index.
const CHUNK_BYTES: usize = 256 << 10;

/// An HDF5 file that is being written.
pub(crate) struct Hdf5Output {
    file: H5File,
    temporary: PathBuf,
    /// The path in messages; the file itself is temporary.
    target: PathBuf,
}

impl Hdf5Output {
    /// Creates a file; if `ordered`, it records the order in which its members were created, as NetCDF requires.
    pub fn create(temporary: &Path, target: &Path, ordered: bool) -> Result<Self, DataError> {
        let file = H5File::options().no_locking().track_order(ordered).create(temporary);
        let file = file.map_err(|error| failure(target, error))?;
        Ok(Self { file, temporary: temporary.to_owned(), target: target.to_owned() })
    }

    /// The root group.
    pub fn root(&self) -> Hdf5Group {
        Hdf5Group { group: self.file.root_group(), target: self.target.clone() }
    }

    /// Completes the file and writes its bytes to the operating system.
    pub fn close(self) -> Result<(), DataError> {
        self.file.close_no_sync().map_err(|error| failure(&self.target, error))
    }

    /// Abandons the file. Write errors are ignored.
    pub fn abandon(self) {
        // Truncated first, so that the writer's last bytes fit on a full disk.
        let _ = fs_err::OpenOptions::new().write(true).truncate(true).open(&self.temporary);
        let _ = self.file.close_no_sync();
    }
}

/// A group of a file that is being written.
pub(crate) struct Hdf5Group {
    group: H5Group,
    target: PathBuf,
}

impl Hdf5Group {
    /// The error that a trajectory does not fit the layout of the file.
    pub fn unfit(&self, trajectory: usize, found: impl Into<String>, needed: impl Into<String>) -> DataError {
        DataError::unfit(&self.target, Place::trajectory(trajectory), found, needed)
    }

    pub fn text(&self, name: &str, text: &str) -> Result<(), DataError> {
        self.check(self.group.set_attr_string(name, text))
    }

    /// Writes a text of fixed length, the only kind that VTK reads.
    pub fn short_text(&self, name: &str, text: &str) -> Result<(), DataError> {
        let kind = DatatypeMessage::FixedString { size: text.len() as u32, padding: 1, charset: 0 };
        self.check(self.group.set_attr_typed(name, kind, text.as_bytes().to_vec()))
    }

    pub fn texts(&self, name: &str, texts: &[String]) -> Result<(), DataError> {
        if texts.is_empty() {
            // Like h5py for an empty list: an empty array of numbers.
            return self.numbers::<f64>(name, &[], &[0]);
        }
        let texts: Vec<&str> = texts.iter().map(String::as_str).collect();
        self.check(self.group.set_attr_string_array(name, &texts))
    }

    pub fn number<T: H5Type>(&self, name: &str, value: T) -> Result<(), DataError> {
        self.check(self.group.set_attr_numeric(name, &value))
    }

    pub fn numbers<T: H5Type>(&self, name: &str, values: &[T], shape: &[usize]) -> Result<(), DataError> {
        self.check(self.group.set_attr_array_numeric_nd(name, values, shape))
    }

    pub fn flag(&self, name: &str, flag: bool) -> Result<(), DataError> {
        self.number(name, HBool::from(flag))
    }

    pub fn group(&self, name: &str) -> Result<Self, DataError> {
        Ok(Self { group: self.check(self.group.create_group(name))?, target: self.target.clone() })
    }

    /// Writes a whole dataset at once without compression.
    pub fn dataset<T: H5Type>(
        &self,
        name: &str,
        shape: &[usize],
        data: &[T],
    ) -> Result<Hdf5Dataset, DataError> {
        let mut builder = self.group.new_dataset::<T>().shape(shape);
        if !data.is_empty() {
            builder = builder
                .chunk(&piece(shape, T::element_size()))
                .filter_pipeline(filters(T::element_size(), Compression::None));
        }
        let dataset = self.dataset_of(builder.create(name))?;
        self.check(dataset.dataset.write_raw(data))?;
        Ok(dataset)
    }

    /// Writes booleans as h5py does.
    pub fn flags(&self, name: &str, flags: &[bool]) -> Result<Hdf5Dataset, DataError> {
        let flags: Vec<HBool> = flags.iter().map(|&flag| HBool::from(flag)).collect();
        self.dataset(name, &[flags.len()], &flags)
    }

    /// Creates a dataset of known shape, to be filled later.
    pub fn planned<T: H5Type>(
        &self,
        name: &str,
        shape: &[usize],
        compression: Compression,
    ) -> Result<Hdf5Dataset, DataError> {
        let size = T::element_size();
        let builder = self.group.new_dataset::<T>().shape(shape).chunk(&piece(shape, size));
        self.dataset_of(builder.filter_pipeline(filters(size, compression)).create(name))
    }

    /// Creates a dataset that grows along its first axis, and along its second too if `frames_grow`. Entries that are
    /// never written read as `fill`.
    pub fn growing<T: H5Type>(
        &self,
        name: &str,
        row: &[usize],
        fill: T,
        frames_grow: bool,
        compression: Compression,
    ) -> Result<Growing, DataError> {
        let extent: Vec<usize> = std::iter::once(0).chain(row.iter().copied()).collect();
        let mut limits: Vec<Option<usize>> = extent.iter().map(|&extent| Some(extent)).collect();
        limits[0] = None;
        if frames_grow {
            limits[1] = None;
        }
        let builder = self
            .group
            .new_dataset::<T>()
            .shape(&extent)
            .chunk(&chunk(row, T::element_size()))
            .max_shape(&limits)
            .filter_pipeline(filters(T::element_size(), compression))
            .fill_value(fill);
        Ok(Growing { dataset: self.dataset_of(builder.create(name))?, extent, written: 0 })
    }

    fn dataset_of(&self, made: rust_hdf5::Result<H5Dataset>) -> Result<Hdf5Dataset, DataError> {
        Ok(Hdf5Dataset { dataset: self.check(made)?, target: self.target.clone() })
    }

    fn check<T>(&self, result: rust_hdf5::Result<T>) -> Result<T, DataError> {
        result.map_err(|error| failure(&self.target, error))
    }
}

/// A dataset of a file that is being written.
pub(crate) struct Hdf5Dataset {
    dataset: H5Dataset,
    target: PathBuf,
}

impl Hdf5Dataset {
    pub fn text(&self, name: &str, text: &str) -> Result<(), DataError> {
        let attribute = self.check(self.dataset.new_attr::<VarLenUnicode>().shape(()).create(name))?;
        self.check(attribute.write_string(text))
    }

    pub fn texts(&self, name: &str, texts: &[String]) -> Result<(), DataError> {
        let texts: Vec<&str> = texts.iter().map(String::as_str).collect();
        let shape = [texts.len()];
        let attribute = self.check(self.dataset.new_attr::<VarLenUnicode>().shape(shape).create(name))?;
        self.check(attribute.write_string_array(&texts))
    }

    pub fn numbers<T: H5Type>(&self, name: &str, values: &[T]) -> Result<(), DataError> {
        let attribute = self.check(self.dataset.new_attr::<T>().shape([values.len()]).create(name))?;
        self.check(attribute.write_array(values))
    }

    pub fn number<T: H5Type>(&self, name: &str, value: T) -> Result<(), DataError> {
        let attribute = self.check(self.dataset.new_attr::<T>().shape(()).create(name))?;
        self.check(attribute.write_numeric(&value))
    }

    pub fn flag(&self, name: &str, flag: bool) -> Result<(), DataError> {
        self.number(name, HBool::from(flag))
    }

    /// Writes an attribute of booleans, one for each of some axes.
    pub fn flags(&self, name: &str, flags: &[bool]) -> Result<(), DataError> {
        let flags: Vec<HBool> = flags.iter().map(|&flag| HBool::from(flag)).collect();
        self.numbers(name, &flags)
    }

    /// Writes entries `first..first + count` of the first axis.
    pub fn write<T: H5Type>(&self, first: usize, count: usize, data: &[T]) -> Result<(), DataError> {
        let mut start = vec![0; self.dataset.ndims()];
        start[0] = first;
        let mut counts = self.dataset.shape();
        counts[0] = count;
        self.check(self.dataset.write_slice(&start, &counts, data))
    }

    /// Makes the dataset a dimension scale (the coordinates of an axis).
    pub fn make_scale(&self, name: &str) -> Result<(), DataError> {
        self.check(self.dataset.set_scale(Some(name)))
    }

    /// Attaches a dimension scale to an axis.
    pub fn attach(&self, axis: usize, scale: &Self) -> Result<(), DataError> {
        self.check(self.dataset.attach_scale(axis, &scale.dataset))
    }

    fn check<T>(&self, result: rust_hdf5::Result<T>) -> Result<T, DataError> {
        result.map_err(|error| failure(&self.target, error))
    }
}

/// A dataset that grows by rows with individual numbers of entries.
pub(crate) struct Growing {
    pub dataset: Hdf5Dataset,
    extent: Vec<usize>,
    /// Number of entries written to the last row.
    written: usize,
}

impl Growing {
    /// Adds a row of `frames` entries, which may be fewer or (if frames grow) more than in the rows before.
    pub fn start(&mut self, frames: usize) -> Result<(), DataError> {
        self.extent[0] += 1;
        self.extent[1] = self.extent[1].max(frames);
        self.written = 0;
        self.dataset.check(self.dataset.dataset.extend(&self.extent))
    }

    /// Writes the next entries of the last row.
    pub fn write<T: H5Type>(&mut self, data: &[T]) -> Result<(), DataError> {
        let entry: usize = self.extent[2..].iter().product();
        let frames = data.len() / entry.max(1);
        let mut start = vec![0; self.extent.len()];
        start[0] = self.extent[0] - 1;
        start[1] = self.written;
        let mut count = self.extent.clone();
        count[0] = 1;
        count[1] = frames;
        self.written += frames;
        self.dataset.check(self.dataset.dataset.write_slice(&start, &count, data))
    }

    /// Adds a row with these entries.
    pub fn push<T: H5Type>(&mut self, frames: usize, data: &[T]) -> Result<(), DataError> {
        self.start(frames)?;
        self.write(data)
    }
}

/// The chunk of a dataset with rows of this shape: one row, or a piece of it.
fn chunk(row: &[usize], size: usize) -> Vec<usize> {
    std::iter::once(1).chain(piece(row, size)).collect()
}

/// Number of entries of the first axis in a chunk, at least one.
fn piece(shape: &[usize], size: usize) -> Vec<usize> {
    let entry: usize = shape[1..].iter().product::<usize>() * size;
    let first = (CHUNK_BYTES / entry.max(1)).clamp(1, shape[0].max(1));
    std::iter::once(first).chain(shape[1..].iter().copied()).collect()
}

/// The filters of a chunk: compression if requested, and always a checksum, so that a flipped bit is detected.
fn filters(size: usize, compression: Compression) -> FilterPipeline {
    let mut pipeline = match compression {
        Compression::None => FilterPipeline { filters: Vec::new() },
        Compression::Gzip(level) => FilterPipeline::shuffle_deflate(size as u32, level),
    };
    pipeline.filters.push(Filter { id: FILTER_FLETCHER32, flags: FLAG_MANDATORY, cd_values: Vec::new() });
    pipeline
}

fn failure(target: &Path, error: Hdf5Error) -> DataError {
    match error {
        Hdf5Error::Io(source) => DataError::writing(target, source),
        other => match system_error(&format!("{other:?}")) {
            Some(source) => DataError::writing(target, source),
            None => DataError::Writer { path: target.to_owned(), detail: other.to_string() },
        },
    }
}

/// The operating system's error inside a printed one: the crate wraps it in a private type without a source.
fn system_error(printed: &str) -> Option<io::Error> {
    let (_, rest) = printed.split_once("Os { code: ")?;
    let (code, _) = rest.split_once(',')?;
    code.parse().ok().map(io::Error::from_raw_os_error)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn system_errors_are_found_again() {
        let printed = format!("IoLayer({:?})", io::Error::from_raw_os_error(28));
        assert_eq!(system_error(&printed).and_then(|error| error.raw_os_error()), Some(28));
        assert!(system_error("InvalidState(\"closed\")").is_none());
    }

    #[test]
    fn chunks_hold_one_row_or_a_part_of_it() {
        assert_eq!(chunk(&[1001, 3], 4), [1, 1001, 3]);
        assert_eq!(chunk(&[101, 128, 128, 2], 4), [1, 2, 128, 128, 2]);
        assert_eq!(chunk(&[101, 1024, 1024, 4], 4), [1, 1, 1024, 1024, 4]);
        assert_eq!(chunk(&[7], 8), [1, 7]);
    }
}
