//! Positions of a dataset's chunks, from any of HDF5's indexes.

use hdf5_reader::btree_v1::{BTreeV1Key, collect_btree_v1_leaves_storage};
use hdf5_reader::chunk_index::{
    ChunkEntry, collect_implicit_chunk_entries, collect_v2_chunk_entries_storage, single_chunk_entry,
};
use hdf5_reader::error::Error;
use hdf5_reader::extensible_array::collect_extensible_array_chunk_entries_storage;
use hdf5_reader::fixed_array::collect_fixed_array_chunk_entries_storage;
use hdf5_reader::messages::layout::ChunkIndexing;
use hdf5_reader::{Dataset, Hdf5File};

/// All entries of a chunk index.
pub(super) fn collect(
    file: &Hdf5File,
    dataset: &Dataset,
    address: u64,
    dims: &[u32],
    indexing: Option<&ChunkIndexing>,
    size: usize,
) -> Result<Vec<ChunkEntry>, Error> {
    let (storage, shape) = (file.storage(), dataset.shape());
    let (offset, length) = (file.superblock().offset_size, file.superblock().length_size);
    let axes = shape.len();
    match indexing {
        None => {
            let leaves = collect_btree_v1_leaves_storage(
                storage,
                address,
                offset,
                length,
                Some(axes as u32),
                dims,
                None,
            )?;
            leaves.into_iter().map(|(key, address)| leaf_entry(key, address, axes)).collect()
        }
        Some(ChunkIndexing::SingleChunk { filtered_size, filters }) => {
            Ok(vec![single_chunk_entry(address, *filtered_size, *filters, axes)])
        }
        Some(ChunkIndexing::Implicit) => {
            collect_implicit_chunk_entries(address, shape, dims, size, None, storage.len())
        }
        Some(ChunkIndexing::FixedArray { .. }) => {
            collect_fixed_array_chunk_entries_storage(storage, address, offset, length, shape, dims, None)
        }
        Some(ChunkIndexing::ExtensibleArray { .. }) => {
            let limits = dataset.max_dims();
            collect_extensible_array_chunk_entries_storage(
                storage, address, offset, length, shape, limits, dims, None,
            )
        }
        Some(ChunkIndexing::BTreeV2) => {
            collect_v2_chunk_entries_storage(storage, address, offset, length, axes as u32, dims, None)
        }
    }
}

fn leaf_entry(key: BTreeV1Key, address: u64, axes: usize) -> Result<ChunkEntry, Error> {
    match key {
        BTreeV1Key::RawData { chunk_size, filter_mask, mut offsets } if offsets.len() >= axes => {
            offsets.truncate(axes);
            Ok(ChunkEntry { address, size: u64::from(chunk_size), filter_mask, offsets })
        }
        _ => Err(Error::InvalidData("the index of its chunks has entries of another kind".to_string())),
    }
}
