//! Chunked HDF5 datasets. The index is read once, and chunks are copied in pieces that are as long as possible.
//!
//! The decoding crate copies slices by innermost rows, which are a few bytes when channels come last.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};

use hdf5_reader::chunk_index::ChunkEntry;
use hdf5_reader::error::Error;
use hdf5_reader::filters::{FILTER_FLETCHER32, FilterRegistry, apply_pipeline_with_limit};
use hdf5_reader::messages::HdfMessage;
use hdf5_reader::messages::filter_pipeline::FilterDescription;
use hdf5_reader::messages::layout::DataLayout;
use hdf5_reader::{Dataset, FileStorage, Hdf5File, Storage, StorageBuffer};

use super::chunk_cache::RecentChunks;
use super::chunk_index::collect;
use super::fletcher32::verified;
use super::overlap::Overlap;
use crate::store::container::array::{Slab, elements};

/// Bytes read from the file at a time, for long pieces.
const PORTION: usize = 1 << 20;

/// Positions and storage of the chunks of a dataset.
pub(crate) struct Chunks {
    numbers: Arc<FileStorage>,
    /// Base of addresses.
    base: u64,
    registry: Arc<FilterRegistry>,
    /// Extent of a chunk.
    extent: Vec<usize>,
    /// Number of chunks along each axis.
    grid: Vec<usize>,
    /// Bytes of one number.
    size: usize,
    filters: Vec<FilterDescription>,
    /// The bytes of a number that was never written.
    fill: Vec<u8>,
    /// Chunks by their number in the grid.
    places: HashMap<usize, Place>,
    recent: Mutex<RecentChunks>,
}

#[derive(Clone, Copy)]
struct Place {
    address: u64,
    size: u64,
    filter_mask: u32,
}

impl Chunks {
    /// The chunks of a dataset of this shape; one chunk if it is not chunked. `None` if its numbers are not stored
    /// separately in the file.
    pub fn open(
        file: &Hdf5File,
        numbers: &Arc<FileStorage>,
        registry: &Arc<FilterRegistry>,
        dataset: &Dataset,
        shape: &[usize],
        size: usize,
    ) -> Result<Option<Self>, Error> {
        let header = file.get_or_parse_header(dataset.address())?;
        let layout = header.messages.iter().find_map(|message| match message {
            HdfMessage::DataLayout(message) => Some(&message.layout),
            _ => None,
        });
        let undefined = u64::MAX >> (64 - 8 * u32::from(file.superblock().offset_size.clamp(1, 8)));
        let elsewhere = header.messages.iter().any(|message| matches!(message, HdfMessage::ExternalFiles(_)));
        let (address, extent) = match layout {
            Some(DataLayout::Chunked { address, dims, .. }) => (*address, chunk_extent(dims, shape)?),
            Some(DataLayout::Contiguous { address, .. })
                if *address != undefined && !elsewhere && !shape.is_empty() && !shape.contains(&0) =>
            {
                (*address, shape.to_vec())
            }
            _ => return Ok(None),
        };
        let filters = header.messages.iter().find_map(|message| match message {
            HdfMessage::FilterPipeline(pipeline) => Some(pipeline.filters.clone()),
            _ => None,
        });
        let grid = chunk_grid(shape, &extent, size)?;
        let stored = dataset.fill_value().and_then(|fill| fill.value.clone());
        let mut chunks = Self {
            numbers: numbers.clone(),
            base: file.superblock().base_address,
            registry: registry.clone(),
            extent,
            grid,
            size,
            filters: filters.unwrap_or_default(),
            fill: stored.filter(|fill| fill.len() == size).unwrap_or_else(|| vec![0; size]),
            places: HashMap::new(),
            recent: Mutex::default(),
        };
        match layout {
            Some(DataLayout::Chunked { dims, chunk_indexing, .. })
                if address != undefined && !shape.contains(&0) =>
            {
                let dims = &dims[..shape.len()];
                chunks.index(collect(file, dataset, address, dims, chunk_indexing.as_ref(), size)?)?;
            }
            Some(DataLayout::Contiguous { .. }) => {
                let place = Place { address, size: chunks.chunk_bytes() as u64, filter_mask: 0 };
                chunks.places.insert(0, place);
            }
            _ => {}
        }
        Ok(Some(chunks))
    }

    fn index(&mut self, entries: Vec<ChunkEntry>) -> Result<(), Error> {
        let bytes = self.chunk_bytes() as u64;
        for entry in entries {
            let mut number = 0;
            let mut inside = entry.offsets.len() == self.grid.len();
            for ((&offset, &extent), &count) in entry.offsets.iter().zip(&self.extent).zip(&self.grid) {
                if offset % extent as u64 != 0 {
                    return Err(Error::InvalidData(format!(
                        "a chunk at {:?} is off the grid",
                        entry.offsets
                    )));
                }
                // Chunks beyond a shrunken extent may remain in the index.
                inside &= offset / (extent as u64) < count as u64;
                number = number * count + (offset / extent as u64) as usize % count.max(1);
            }
            // Chunks without filters have their full size, which some indexes omit.
            let size = if self.filters.is_empty() { bytes } else { entry.size };
            let place = Place { address: entry.address, size, filter_mask: entry.filter_mask };
            if inside && self.places.insert(number, place).is_some() {
                return Err(Error::InvalidData(format!("two chunks at {:?}", entry.offsets)));
            }
        }
        Ok(())
    }

    fn chunk_bytes(&self) -> usize {
        self.extent.iter().product::<usize>() * self.size
    }

    /// The bytes of a nonempty block, last axis fastest.
    pub fn read(&self, block: &Slab) -> Result<Vec<u8>, Error> {
        let mut out = match self.fill.iter().all(|&byte| byte == 0) {
            true => vec![0; block.len() * self.size],
            false => self.fill.repeat(block.len()),
        };
        self.visit(block, &mut |place, piece| out[place..place + piece.len()].copy_from_slice(piece))?;
        Ok(out)
    }

    /// The bytes of a number that was never written, if there can be one.
    pub fn gaps(&self) -> Option<&[u8]> {
        let written = Some(self.places.len()) == elements(&self.grid);
        (!written).then_some(self.fill.as_slice())
    }

    /// Passes the bytes of a nonempty block to `sink` in pieces, each with its offset in the block. Numbers that were
    /// never written are left out.
    pub fn visit(&self, block: &Slab, sink: &mut dyn FnMut(usize, &[u8])) -> Result<(), Error> {
        let axes = self.extent.len();
        let first: Vec<usize> = (0..axes).map(|axis| block.start[axis] / self.extent[axis]).collect();
        let last = |axis: usize| (block.start[axis] + block.count[axis] - 1) / self.extent[axis];
        let mut chunk = first.clone();
        loop {
            let number =
                chunk.iter().zip(&self.grid).fold(0, |number, (&index, &count)| number * count + index);
            if let Some(&place) = self.places.get(&number) {
                self.visit_chunk(number, place, &chunk, block, sink)?;
            }
            let Some(axis) = (0..axes).rev().find(|&axis| chunk[axis] < last(axis)) else { return Ok(()) };
            chunk[axis] += 1;
            chunk[axis + 1..].copy_from_slice(&first[axis + 1..]);
        }
    }

    /// Passes the intersection of a chunk and a block to `sink`.
    fn visit_chunk(
        &self,
        number: usize,
        place: Place,
        chunk: &[usize],
        block: &Slab,
        sink: &mut dyn FnMut(usize, &[u8]),
    ) -> Result<(), Error> {
        let overlap = Overlap::new(chunk, &self.extent, block);
        let (start, span, piece) = (overlap.start(), overlap.span(), overlap.piece * self.size);
        let address = || {
            let address = place.address.checked_add((start * self.size) as u64);
            address.ok_or(Error::OffsetOutOfBounds(place.address))
        };
        // Of a chunk without filters only the shared span is read. A single piece is read directly to its destination.
        let unfiltered = self.filters.is_empty();
        if unfiltered && overlap.piece == span {
            let mut read = Ok(());
            overlap.for_each_piece(|_, to| {
                read = (0..piece).step_by(PORTION).try_for_each(|done| {
                    let part = self.stored(address()? + done as u64, PORTION.min(piece - done))?;
                    sink(to * self.size + done, &part);
                    Ok(())
                });
            });
            return read;
        }
        if overlap.is_whole_chunk() && self.is_only_checked(place) {
            // Directly from the stored bytes: nothing is decoded that could be kept.
            let stored = self.stored(place.address, self.chunk_length(place)?)?;
            let data = self.whole(verified(&stored)?)?;
            overlap.for_each_piece(|from, to| {
                sink(to * self.size, &data[from * self.size..from * self.size + piece]);
            });
            return Ok(());
        }
        let (data, base) = match unfiltered {
            true => (Arc::new(self.stored(address()?, span * self.size)?.to_vec()), start),
            false => self.part(number, place, start..start + span, !overlap.is_whole_chunk())?,
        };
        overlap.for_each_piece(|from, to| {
            let from = (from - base) * self.size;
            sink(to * self.size, &data[from..from + piece]);
        });
        Ok(())
    }

    /// Decoded numbers of a chunk that contain a span, and the index of their first number in the chunk. `keep`:
    /// whether other spans may be read soon.
    fn part(
        &self,
        number: usize,
        place: Place,
        span: Range<usize>,
        keep: bool,
    ) -> Result<(Arc<Vec<u8>>, usize), Error> {
        {
            let recent = self.recent.lock().unwrap_or_else(PoisonError::into_inner);
            if let Some((_, data)) = recent.chunks.iter().find(|(known, _)| *known == number) {
                return Ok((data.clone(), 0));
            }
            if let Some(part) = recent.spilled.read(number, span.start * self.size, span.len() * self.size) {
                return Ok((Arc::new(part), span.start));
            }
        }
        Ok((self.decode(number, place, keep)?, 0))
    }

    fn stored(&self, address: u64, length: usize) -> Result<StorageBuffer, Error> {
        let address = address.checked_add(self.base).ok_or(Error::OffsetOutOfBounds(address))?;
        self.numbers.read_range(address, length)
    }

    /// Whether a checksum is the only filter of a chunk.
    fn is_only_checked(&self, place: Place) -> bool {
        matches!(&self.filters[..], [filter] if filter.id == FILTER_FLETCHER32) && place.filter_mask == 0
    }

    /// Bytes of a chunk in the file.
    fn chunk_length(&self, place: Place) -> Result<usize, Error> {
        usize::try_from(place.size).map_err(|_| Error::OffsetOutOfBounds(place.address))
    }

    /// The numbers of a chunk, if it is complete.
    fn whole<'a>(&self, data: &'a [u8]) -> Result<&'a [u8], Error> {
        let bytes = self.chunk_bytes();
        match data.len() == bytes {
            true => Ok(data),
            false => {
                let detail = format!("a chunk decodes to {} bytes instead of {bytes}", data.len());
                Err(Error::InvalidData(detail))
            }
        }
    }

    /// A chunk after its filters are undone. `keep`: whether it may be read again soon.
    fn decode(&self, number: usize, place: Place, keep: bool) -> Result<Arc<Vec<u8>>, Error> {
        let stored = self.stored(place.address, self.chunk_length(place)?)?;
        let bytes = self.chunk_bytes();
        let (mask, size) = (place.filter_mask, self.size);
        let data = apply_pipeline_with_limit(
            &stored,
            &self.filters,
            mask,
            size,
            Some(&self.registry),
            Some(bytes + 1),
        )?;
        self.whole(&data)?;
        let data = Arc::new(data);
        let mut recent = self.recent.lock().unwrap_or_else(PoisonError::into_inner);
        if !recent.decoded.insert(number) {
            recent.spilled.keep(number, &data);
        }
        if !keep {
            return Ok(data);
        }
        recent.hold(number, data.clone());
        Ok(data)
    }
}

/// Extent of a chunk along each axis. Version 3 of the layout has the bytes of a number as a last axis.
fn chunk_extent(dims: &[u32], shape: &[usize]) -> Result<Vec<usize>, Error> {
    let dims = dims.get(..shape.len()).unwrap_or_default();
    if shape.is_empty() || dims.len() != shape.len() || dims.contains(&0) {
        return Err(Error::InvalidData(format!("chunks of extent {dims:?} in shape {shape:?}")));
    }
    Ok(dims.iter().map(|&extent| extent as usize).collect())
}

/// Number of chunks along each axis, unless it or the bytes of a chunk overflow.
fn chunk_grid(shape: &[usize], extent: &[usize], size: usize) -> Result<Vec<usize>, Error> {
    let grid: Vec<usize> = shape.iter().zip(extent).map(|(&shape, &chunk)| shape.div_ceil(chunk)).collect();
    let bytes = elements(extent).and_then(|count| count.checked_mul(size));
    if elements(&grid).is_none() || bytes.is_none() {
        return Err(Error::InvalidData("it has more chunks than can be counted".to_string()));
    }
    Ok(grid)
}

#[cfg(test)]
mod tests {
    use rust_hdf5::H5File;

    use super::super::Hdf5;
    use super::super::chunk_cache::CACHE_BYTES;
    use super::*;
    use crate::store::container::array::Array;

    /// Chunks shared by all trajectories that exceed the cache: without temporary storage each trajectory would decode
    /// the whole file.
    #[test]
    fn chunks_that_trajectories_share_are_kept_from_their_second_decoding_on() {
        let (rows, width, extent) = (4_usize, 3 << 20, 1 << 18);
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("shared.h5");
        let number = |row: usize, column: usize| (row * 31 + column % 1021) as f32;
        let data: Vec<f32> =
            (0..rows).flat_map(|row| (0..width).map(move |column| number(row, column))).collect();
        let file = H5File::create(&path).unwrap();
        let dataset = file.new_dataset::<f32>().shape([rows, width]).chunk(&[rows, extent]).deflate(1);
        dataset.create("values").unwrap().write_raw(&data).unwrap();
        file.close().unwrap();
        let array = Hdf5::open(&path).unwrap().dataset("values").unwrap();
        for row in 0..rows {
            let read = array.read_f32(&Slab::whole(&[rows, width]).narrow(0, row, 1)).unwrap();
            assert!(read == data[row * width..(row + 1) * width], "row {row}");
            let recent = array.chunks().unwrap().unwrap().recent.lock().unwrap();
            assert_eq!(recent.decoded.len(), width / extent);
            assert!(recent.bytes <= CACHE_BYTES);
            assert_eq!(recent.spilled.starts.len(), if row == 0 { 0 } else { width / extent }, "row {row}");
        }
    }
}
