//! Storage of an HDF5 file with a check of the number of header messages, for which the decoding crate allocates memory
//! without a bound.

use std::sync::Arc;

use hdf5_reader::error::{Error, Result};
use hdf5_reader::{FileStorage, Storage, StorageBuffer};

/// Bytes before the messages of an object header of version 1. The crate reads nothing else of this length.
const PREFIX_BYTES: usize = 16;
/// Minimum size of a message.
const MESSAGE_BYTES: u64 = 8;

/// A file in which no object header can declare more messages than fit into the file. Reads of numbers bypass the
/// check, since four of them can look like such a prefix.
pub(crate) struct BoundedStorage(pub Arc<FileStorage>);

impl Storage for BoundedStorage {
    fn len(&self) -> u64 {
        self.0.len()
    }

    fn read_range(&self, offset: u64, length: usize) -> Result<StorageBuffer> {
        let bytes = self.0.read_range(offset, length)?;
        match declared_messages(bytes.as_ref()) {
            Some(count) if u64::from(count) * MESSAGE_BYTES > self.len() => {
                Err(Error::InvalidData(format!("{count} header messages in a file of {} bytes", self.len())))
            }
            _ => Ok(bytes),
        }
    }
}

/// The number of messages, if these bytes are the start of an object header.
fn declared_messages(bytes: &[u8]) -> Option<u16> {
    match *bytes {
        [1, _, low, high, ..] if bytes.len() == PREFIX_BYTES => Some(u16::from_le_bytes([low, high])),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_prefixes_of_headers_declare_messages() {
        let mut prefix = [0; PREFIX_BYTES];
        prefix[..4].copy_from_slice(&[1, 0, 0x34, 0x12]);
        assert_eq!(declared_messages(&prefix), Some(0x1234));
        assert_eq!(declared_messages(&prefix[..8]), None);
        prefix[0] = b'O';
        assert_eq!(declared_messages(&prefix), None);
    }
}
