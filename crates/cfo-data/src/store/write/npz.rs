//! Writing `.npz` in one pass: members are stored uncompressed, and sizes are filled in at the end.

use std::fs::File;
use std::io::{self, BufWriter, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use super::table::{TableColumns, statics_shape};
use super::{Compression, Head, LayoutOutput, WriteOptions};
use crate::{DataError, Description, Place};

/// Bytes before the numbers of an array: enough for five extents of twenty digits.
const HEADER_BYTES: usize = 256;
/// ZIP version that supports 64-bit sizes.
const VERSION: u16 = 45;
/// 1 January 1980, the earliest date in ZIP, so that equal content gives equal bytes.
const DATE: u16 = 0x21;

/// A NumPy archive that is being written.
pub(crate) struct NpzOutput {
    file: BufWriter<File>,
    target: PathBuf,
    description: Description,
    frames: Option<usize>,
    is_double: bool,
    /// Checksum of the values written so far.
    checksum: crc32fast::Hasher,
    /// Numbers of the row that are still to be written, and padding after them for missing snapshots.
    awaited: usize,
    padding: usize,
    first_times: Vec<f64>,
    /// Rows of times, from the first trajectory with different times on.
    spool: Option<TimesSpool>,
    columns: TableColumns,
}

/// An entry of the central directory.
struct Entry {
    name: String,
    checksum: u32,
    size: u64,
    start: u64,
}

impl NpzOutput {
    pub fn create(
        temporary: &Path,
        target: &Path,
        description: &Description,
        options: &WriteOptions,
    ) -> Result<Self, DataError> {
        if options.compression != Compression::None {
            return Err(DataError::unsupported(target, "compression in the layout `npz`"));
        }
        let failed = |error| DataError::writing(target, error);
        let file = fs_err::OpenOptions::new().write(true).open(temporary).map_err(failed)?.into_file();
        let mut output = Self {
            file: BufWriter::with_capacity(1 << 18, file),
            target: target.to_owned(),
            description: description.clone(),
            frames: options.frames,
            is_double: options.is_double(),
            checksum: crc32fast::Hasher::new(),
            awaited: 0,
            padding: 0,
            first_times: Vec::new(),
            spool: None,
            columns: TableColumns::default(),
        };
        // Reserves space for the headers of the values, which are known at the end.
        let room = member_header("values", 0, 0).len() + HEADER_BYTES;
        output.file.write_all(&vec![0; room]).map_err(failed)?;
        Ok(output)
    }

    /// Bytes of a value.
    fn size(&self) -> usize {
        if self.is_double { 8 } else { 4 }
    }

    fn write_values(&mut self, bytes: &[u8]) -> io::Result<()> {
        let size = self.size();
        self.checksum.update(bytes);
        self.file.write_all(bytes)?;
        self.awaited -= bytes.len() / size;
        if self.awaited > 0 {
            return Ok(());
        }
        // In portions: a short trajectory may need much padding.
        const PORTION: usize = 1 << 16;
        let one =
            if self.is_double { f64::NAN.to_le_bytes().to_vec() } else { f32::NAN.to_le_bytes().to_vec() };
        let nothing = one.repeat(PORTION.min(self.padding));
        while self.padding > 0 {
            let portion = &nothing[..size * self.padding.min(PORTION)];
            self.checksum.update(portion);
            self.file.write_all(portion)?;
            self.padding -= portion.len() / size;
        }
        Ok(())
    }

    fn push_times(&mut self, times: &[f64], frames: usize) -> io::Result<()> {
        if self.columns.lengths.is_empty() {
            self.first_times = times.to_vec();
        } else if self.spool.is_none() && times != self.first_times {
            let directory = self.target.parent().filter(|parent| !parent.as_os_str().is_empty());
            let file = BufWriter::new(tempfile::tempfile_in(directory.unwrap_or(Path::new(".")))?);
            let mut spool = TimesSpool { file, checksum: crc32fast::Hasher::new() };
            for _ in 0..self.columns.lengths.len() {
                spool.push(&self.first_times, frames)?;
            }
            self.spool = Some(spool);
        }
        match &mut self.spool {
            Some(spool) => spool.push(times, frames),
            None => Ok(()),
        }
    }

    fn write_rest(&mut self) -> io::Result<()> {
        let count = self.columns.lengths.len();
        let frames = self.frames.unwrap_or(self.first_times.len());
        let mut shape = vec![count, frames];
        shape.extend(self.description.shape.dimensions());
        let header = array_header(if self.is_double { "<f8" } else { "<f4" }, &shape);
        let size = (header.len() + shape.iter().product::<usize>() * self.size()) as u64;
        let checksum = checksum_of(&header, &self.checksum);
        let values = Entry { name: "values".to_string(), checksum, size, start: 0 };
        let mut entries = vec![];
        match self.spool.take() {
            Some(spool) => entries.push(self.append_spool(spool, &[count, frames])?),
            None => {
                let mut times = self.first_times.clone();
                times.resize(frames, f64::NAN);
                entries.push(self.append("times", "<f8", &[frames], &bytes_of(&times, f64::to_le_bytes))?);
            }
        }
        entries.extend(self.append_columns(frames)?);
        entries.extend(self.append_labels()?);
        entries.insert(0, values);
        write_directory(&mut self.file, &entries)?;
        self.file.seek(SeekFrom::Start(0))?;
        self.file.write_all(&member_header("values", entries[0].checksum, size))?;
        self.file.write_all(&header)?;
        self.file.flush()
    }

    fn append_columns(&mut self, frames: usize) -> io::Result<Vec<Entry>> {
        let columns = std::mem::take(&mut self.columns);
        let count = columns.lengths.len();
        let mut entries = vec![];
        if columns.are_ragged(frames) {
            let lengths = bytes_of(&columns.lengths, i64::to_le_bytes);
            entries.push(self.append("lengths", "<i8", &[count], &lengths)?);
        }
        if !columns.splits.is_empty() {
            let splits = bytes_of(&columns.splits, i8::to_le_bytes);
            entries.push(self.append("split", "|i1", &[count], &splits)?);
        }
        let width = self.description.inputs.parameters.len();
        if width > 0 {
            let parameters = bytes_of(&columns.parameters, f64::to_le_bytes);
            entries.push(self.append("parameters", "<f8", &[count, width], &parameters)?);
        }
        for (name, (shape, numbers)) in
            ["controls", "control_times"].into_iter().zip(columns.controls().into_iter().flatten())
        {
            entries.push(self.append(name, "<f8", &shape, &bytes_of(&numbers, f64::to_le_bytes))?);
        }
        if let Some((rows, statics)) = columns.statics() {
            let shape = statics_shape(&self.description, rows);
            entries.push(self.append("statics", "<f4", &shape, &bytes_of(&statics, f32::to_le_bytes))?);
        }
        Ok(entries)
    }

    fn append_labels(&mut self) -> io::Result<Vec<Entry>> {
        let Description { system, shape, periodic, domain, channel_names, channel_units, inputs } =
            self.description.clone();
        let mut entries = vec![];
        if shape.axes() > 0 {
            let periodic: Vec<u8> = periodic.iter().map(|&flag| u8::from(flag)).collect();
            entries.push(self.append("periodic", "|i1", &[shape.axes()], &periodic)?);
            let domain = bytes_of(domain.as_flattened(), f64::to_le_bytes);
            entries.push(self.append("domain", "<f8", &[shape.axes(), 2], &domain)?);
        }
        let lists = [
            ("channel_names", channel_names),
            ("channel_units", channel_units),
            ("parameter_names", inputs.parameters),
            ("control_names", inputs.controls),
            ("static_names", inputs.statics),
        ];
        for (name, texts) in lists {
            if !texts.is_empty() {
                entries.push(self.append_texts(name, &[texts.len()], &texts)?);
            }
        }
        if !system.is_empty() {
            entries.push(self.append_texts("system", &[], &[system])?);
        }
        Ok(entries)
    }

    fn append_texts(&mut self, name: &str, shape: &[usize], texts: &[String]) -> io::Result<Entry> {
        let longest = texts.iter().map(|text| text.chars().count()).max().unwrap_or(0).max(1);
        let padded = |text: &String| {
            let codes: Vec<u32> =
                text.chars().map(u32::from).chain(std::iter::repeat(0)).take(longest).collect();
            bytes_of(&codes, u32::to_le_bytes)
        };
        let bytes: Vec<u8> = texts.iter().flat_map(padded).collect();
        self.append(name, &format!("<U{longest}"), shape, &bytes)
    }

    /// Appends an array in memory.
    fn append(&mut self, name: &str, kind: &str, shape: &[usize], data: &[u8]) -> io::Result<Entry> {
        let mut checksum = crc32fast::Hasher::new();
        checksum.update(data);
        let entry = self.append_header(name, kind, shape, data.len(), &checksum)?;
        self.file.write_all(data)?;
        Ok(entry)
    }

    /// Appends the headers of an array whose data have this length and checksum.
    fn append_header(
        &mut self,
        name: &str,
        kind: &str,
        shape: &[usize],
        bytes: usize,
        data: &crc32fast::Hasher,
    ) -> io::Result<Entry> {
        let start = self.file.stream_position()?;
        let header = array_header(kind, shape);
        let (checksum, size) = (checksum_of(&header, data), (header.len() + bytes) as u64);
        self.file.write_all(&member_header(name, checksum, size))?;
        self.file.write_all(&header)?;
        Ok(Entry { name: name.to_string(), checksum, size, start })
    }

    /// Appends the spooled times.
    fn append_spool(&mut self, spool: TimesSpool, shape: &[usize]) -> io::Result<Entry> {
        let mut times = spool.file.into_inner().map_err(io::IntoInnerError::into_error)?;
        times.seek(SeekFrom::Start(0))?;
        let bytes = shape.iter().product::<usize>() * 8;
        let entry = self.append_header("times", "<f8", shape, bytes, &spool.checksum)?;
        io::copy(&mut times, &mut self.file)?;
        Ok(entry)
    }
}

impl LayoutOutput for NpzOutput {
    fn start(&mut self, head: &Head<'_>) -> Result<(), DataError> {
        let length = head.times.len();
        let frames = *self.frames.get_or_insert(length);
        if length > frames {
            let needed = format!("at most {frames}, the first trajectory's: announce the longest");
            let place = Place::trajectory(self.columns.lengths.len());
            return Err(DataError::unfit(&self.target, place, format!("{length} frames"), needed));
        }
        self.push_times(head.times, frames).map_err(|error| DataError::writing(&self.target, error))?;
        self.columns.push(head);
        let size = self.description.shape.len();
        (self.awaited, self.padding) = (length * size, (frames - length) * size);
        Ok(())
    }

    fn frames(&mut self, values: &[f32]) -> Result<(), DataError> {
        let bytes = bytes_of(values, f32::to_le_bytes);
        self.write_values(&bytes).map_err(|error| DataError::writing(&self.target, error))
    }

    fn doubles(&mut self, values: &[f64]) -> Result<(), DataError> {
        let bytes = bytes_of(values, f64::to_le_bytes);
        self.write_values(&bytes).map_err(|error| DataError::writing(&self.target, error))
    }

    fn complete(&mut self) -> Result<(), DataError> {
        self.write_rest().map_err(|error| DataError::writing(&self.target, error))
    }
}

/// Rows of times in a temporary file.
struct TimesSpool {
    file: BufWriter<File>,
    checksum: crc32fast::Hasher,
}

impl TimesSpool {
    fn push(&mut self, times: &[f64], frames: usize) -> io::Result<()> {
        let padding = std::iter::repeat_n(f64::NAN, frames - times.len());
        let times: Vec<f64> = times.iter().copied().chain(padding).collect();
        let bytes = bytes_of(&times, f64::to_le_bytes);
        self.checksum.update(&bytes);
        self.file.write_all(&bytes)
    }
}

/// The checksum of an array's header and of its data.
fn checksum_of(header: &[u8], data: &crc32fast::Hasher) -> u32 {
    let mut checksum = crc32fast::Hasher::new();
    checksum.update(header);
    checksum.combine(data);
    checksum.finalize()
}

fn bytes_of<T: Copy, const N: usize>(values: &[T], encode: impl Fn(T) -> [u8; N]) -> Vec<u8> {
    let mut bytes = vec![0; values.len() * N];
    for (place, &value) in bytes.chunks_exact_mut(N).zip(values) {
        place.copy_from_slice(&encode(value));
    }
    bytes
}

/// NumPy's header, padded to a fixed length.
fn array_header(kind: &str, shape: &[usize]) -> Vec<u8> {
    let extents: String = shape.iter().map(|extent| format!("{extent},")).collect();
    let text = format!("{{'descr': '{kind}', 'fortran_order': False, 'shape': ({extents}), }}");
    let mut header = b"\x93NUMPY\x01\x00".to_vec();
    header.extend(((HEADER_BYTES - 10) as u16).to_le_bytes());
    header.extend(text.as_bytes());
    assert!(header.len() < HEADER_BYTES, "five extents of twenty digits fit");
    header.resize(HEADER_BYTES - 1, b' ');
    header.push(b'\n');
    header
}

/// ZIP's header before a stored member, with 64-bit sizes.
fn member_header(name: &str, checksum: u32, size: u64) -> Vec<u8> {
    let name = format!("{name}.npy");
    let mut header = b"PK\x03\x04".to_vec();
    for word in [VERSION, 0, 0, 0, DATE] {
        header.extend(word.to_le_bytes());
    }
    header.extend(checksum.to_le_bytes());
    header.extend([0xff; 8]);
    header.extend((name.len() as u16).to_le_bytes());
    header.extend(20u16.to_le_bytes());
    header.extend(name.as_bytes());
    header.extend([1, 0, 16, 0]);
    header.extend(size.to_le_bytes());
    header.extend(size.to_le_bytes());
    header
}

/// ZIP's directory after all members.
fn write_directory(file: &mut BufWriter<File>, entries: &[Entry]) -> io::Result<()> {
    let start = file.stream_position()?;
    let mut directory = Vec::new();
    for entry in entries {
        let name = format!("{}.npy", entry.name);
        directory.extend(b"PK\x01\x02");
        for word in [VERSION, VERSION, 0, 0, 0, DATE] {
            directory.extend(word.to_le_bytes());
        }
        directory.extend(entry.checksum.to_le_bytes());
        directory.extend([0xff; 8]);
        directory.extend((name.len() as u16).to_le_bytes());
        directory.extend(28u16.to_le_bytes());
        directory.extend([0; 10]);
        directory.extend([0xff; 4]);
        directory.extend(name.as_bytes());
        directory.extend([1, 0, 24, 0]);
        for number in [entry.size, entry.size, entry.start] {
            directory.extend(number.to_le_bytes());
        }
    }
    let size = directory.len() as u64;
    let end = start + size;
    directory.extend(b"PK\x06\x06");
    directory.extend(44u64.to_le_bytes());
    directory.extend(VERSION.to_le_bytes());
    directory.extend(VERSION.to_le_bytes());
    directory.extend([0; 8]);
    for number in [entries.len() as u64, entries.len() as u64, size, start] {
        directory.extend(number.to_le_bytes());
    }
    directory.extend(b"PK\x06\x07\0\0\0\0");
    directory.extend(end.to_le_bytes());
    directory.extend(1u32.to_le_bytes());
    directory.extend(b"PK\x05\x06\0\0\0\0");
    directory.extend((entries.len() as u16).to_le_bytes());
    directory.extend((entries.len() as u16).to_le_bytes());
    directory.extend([0xff; 8]);
    directory.extend([0; 2]);
    file.write_all(&directory)
}
