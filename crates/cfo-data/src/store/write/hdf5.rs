//! Writing HDF5: the only file that knows which crate encodes it.

use std::io;
use std::path::{Path, PathBuf};

use rust_hdf5::format::messages::filter::{FILTER_FLETCHER32, FLAG_MANDATORY};
use rust_hdf5::{Filter, FilterPipeline, H5Dataset, H5File, H5Group, Hdf5Error, VarLenUnicode};

use super::Compression;
use crate::DataError;

/// Chunks aim at this size: small enough to fetch single frames of large fields, large enough for a short index.
const CHUNK_BYTES: usize = 256 << 10;

/// An HDF5 file that is being written.
pub(crate) struct Hdf5Output {
    file: H5File,
    /// The name that messages use; the file itself is temporary.
    target: PathBuf,
}

/// A dataset that grows.
pub(crate) struct Growing {
    dataset: H5Dataset,
    target: PathBuf,
    extent: Vec<usize>,
}

impl Hdf5Output {
    pub fn create(temporary: &Path, target: &Path) -> Result<Self, DataError> {
        let file = H5File::options().no_locking().create(temporary);
        let file = file.map_err(|error| failure(target, error))?;
        Ok(Self { file, target: target.to_owned() })
    }

    pub fn text(&self, name: &str, text: &str) -> Result<(), DataError> {
        self.check(self.file.set_attr_string(name, text))
    }

    pub fn texts(&self, name: &str, texts: &[String]) -> Result<(), DataError> {
        let texts: Vec<&str> = texts.iter().map(String::as_str).collect();
        self.check(self.file.set_attr_string_array(name, &texts))
    }

    pub fn integer(&self, name: &str, value: i64) -> Result<(), DataError> {
        self.check(self.file.set_attr_numeric(name, &value))
    }

    pub fn number(&self, name: &str, value: f64) -> Result<(), DataError> {
        self.check(self.file.set_attr_numeric(name, &value))
    }

    pub fn flags(&self, name: &str, flags: &[bool]) -> Result<(), DataError> {
        let flags: Vec<i64> = flags.iter().map(|&flag| i64::from(flag)).collect();
        self.check(self.file.set_attr_array_numeric(name, &flags))
    }

    pub fn pairs(&self, name: &str, pairs: &[[f64; 2]]) -> Result<(), DataError> {
        self.check(self.file.set_attr_array_numeric_nd(name, pairs.as_flattened(), &[pairs.len(), 2]))
    }

    /// A dataset whole at once.
    pub fn dataset<T: rust_hdf5::H5Type>(
        &self,
        name: &str,
        shape: &[usize],
        data: &[T],
    ) -> Result<(), DataError> {
        self.write_dataset(name, shape, data).map(drop)
    }

    /// A dataset whole at once, with names for its last axis.
    pub fn named_dataset<T: rust_hdf5::H5Type>(
        &self,
        name: &str,
        shape: &[usize],
        data: &[T],
        names: &[String],
    ) -> Result<(), DataError> {
        let dataset = self.write_dataset(name, shape, data)?;
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        let attribute =
            self.check(dataset.new_attr::<VarLenUnicode>().shape([names.len()]).create("names"))?;
        self.check(attribute.write_string_array(&names))
    }

    fn write_dataset<T: rust_hdf5::H5Type>(
        &self,
        name: &str,
        shape: &[usize],
        data: &[T],
    ) -> Result<H5Dataset, DataError> {
        let mut builder = self.file.new_dataset::<T>().shape(shape);
        if !data.is_empty() {
            builder = builder
                .chunk(&piece(shape, T::element_size()))
                .filter_pipeline(filters(T::element_size(), Compression::None));
        }
        let dataset = self.check(builder.create(name))?;
        self.check(dataset.write_raw(data))?;
        Ok(dataset)
    }

    /// A dataset that grows along its first axis, and along its second too when `frames_grow`. Entries that are never
    /// written read as `fill`.
    pub fn growing<T: rust_hdf5::H5Type>(
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
            .file
            .new_dataset::<T>()
            .shape(&extent)
            .chunk(&chunk(row, T::element_size()))
            .max_shape(&limits)
            .filter_pipeline(filters(T::element_size(), compression))
            .fill_value(fill);
        let dataset = self.check(builder.create(name))?;
        Ok(Growing { dataset, target: self.target.clone(), extent })
    }

    pub fn group(&self, name: &str) -> Result<Hdf5Group<'_>, DataError> {
        Ok(Hdf5Group { group: self.check(self.file.create_group(name))?, output: self })
    }

    /// Complete the file and hand its bytes to the operating system.
    pub fn close(self) -> Result<(), DataError> {
        self.file.close_no_sync().map_err(|error| failure(&self.target, error))
    }

    /// Give the file up. Its bytes no longer matter, so neither does whether they can be written.
    pub fn abandon(self, temporary: &Path) {
        // Emptied first, so that what the writer still flushes finds room on a full disk.
        let _ = fs_err::OpenOptions::new().write(true).truncate(true).open(temporary);
        let _ = self.file.close_no_sync();
    }

    fn check<T>(&self, result: rust_hdf5::Result<T>) -> Result<T, DataError> {
        result.map_err(|error| failure(&self.target, error))
    }
}

/// A group of a file that is being written.
pub(crate) struct Hdf5Group<'a> {
    group: H5Group,
    output: &'a Hdf5Output,
}

impl Hdf5Group<'_> {
    pub fn group(&self, name: &str) -> Result<Self, DataError> {
        Ok(Self { group: self.output.check(self.group.create_group(name))?, output: self.output })
    }

    /// A dataset whole at once.
    pub fn dataset(
        &self,
        name: &str,
        shape: &[usize],
        data: &[f32],
        compression: Compression,
    ) -> Result<(), DataError> {
        let builder = self.group.new_dataset::<f32>().shape(shape).chunk(&piece(shape, 4));
        let builder = builder.filter_pipeline(filters(4, compression));
        let dataset = self.output.check(builder.create(name))?;
        self.output.check(dataset.write_raw(data))
    }
}

impl Growing {
    /// Add a row with entries from `data`, `[frames, ...]`, which may be shorter or (where frames grow) longer than
    /// the rows before.
    pub fn push<T: rust_hdf5::H5Type>(&mut self, frames: usize, data: &[T]) -> Result<(), DataError> {
        let row = self.extent[0];
        self.extent[0] += 1;
        self.extent[1] = self.extent[1].max(frames);
        let mut start = vec![0; self.extent.len()];
        start[0] = row;
        let mut count = self.extent.clone();
        count[0] = 1;
        count[1] = frames;
        let written =
            self.dataset.extend(&self.extent).and_then(|()| self.dataset.write_slice(&start, &count, data));
        written.map_err(|error| failure(&self.target, error))
    }
}

/// The chunk of a dataset with rows of this shape: one row, or the piece of it that fits.
fn chunk(row: &[usize], size: usize) -> Vec<usize> {
    std::iter::once(1).chain(piece(row, size)).collect()
}

/// As many of the first axis' entries as a chunk should hold, at least one.
fn piece(shape: &[usize], size: usize) -> Vec<usize> {
    let entry: usize = shape[1..].iter().product::<usize>() * size;
    let first = (CHUNK_BYTES / entry.max(1)).clamp(1, shape[0].max(1));
    std::iter::once(first).chain(shape[1..].iter().copied()).collect()
}

/// What each chunk passes through: compression if asked for, and always a checksum, so that no flipped bit is read as
/// a number.
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

/// The operating system's error inside a printed one: the crate wraps it in a type without a name or a source.
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
