//! Hashes of training data, to notice that a run is resumed on other data.

use sha2::{Digest, Sha256};
use xxhash_rust::xxh3::Xxh3;

/// How the values of a trajectory are hashed; the prefix of a fingerprint says which way it was. Those of the first versions, of
/// normalised values, have none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Hash {
    /// Of earlier versions.
    Sha256,
    /// Not cryptographic, and much faster.
    Xxh3,
}

impl Hash {
    /// What new runs have.
    pub const NEW: Self = Self::Xxh3;

    /// How a fingerprint was made.
    pub fn of(fingerprint: &str) -> Option<Self> {
        [Self::Sha256, Self::Xxh3].into_iter().find(|hash| fingerprint.starts_with(hash.prefix()))
    }

    /// What its fingerprints begin with.
    pub fn prefix(self) -> &'static str {
        match self {
            Self::Sha256 => "2:",
            Self::Xxh3 => "3:",
        }
    }

    /// The hash of values as their little-endian bytes.
    pub fn digest(self, values: &[f32]) -> Vec<u8> {
        match self {
            Self::Sha256 => {
                let mut hasher = Sha256::new();
                for_each_portion(values, |bytes| hasher.update(bytes));
                hasher.finalize().to_vec()
            }
            Self::Xxh3 => {
                let mut hasher = Xxh3::new();
                for_each_portion(values, |bytes| hasher.update(bytes));
                hasher.digest128().to_le_bytes().to_vec()
            }
        }
    }
}

/// Hands over the bytes of values a few at a time.
fn for_each_portion(values: &[f32], mut sink: impl FnMut(&[u8])) {
    const PORTION: usize = 4096;
    let mut bytes = [0; 4 * PORTION];
    for portion in values.chunks(PORTION) {
        for (place, value) in bytes.as_chunks_mut().0.iter_mut().zip(portion) {
            *place = value.to_le_bytes();
        }
        sink(&bytes[..4 * portion.len()]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_value_and_its_place_count() {
        let values: Vec<f32> = (0..10_000).map(|i| i as f32).collect();
        for hash in [Hash::Sha256, Hash::Xxh3] {
            assert_eq!(Hash::of(hash.prefix()), Some(hash));
            let found = hash.digest(&values);
            let mut other = values.clone();
            other[9_999] = f32::from_bits(other[9_999].to_bits() ^ 1);
            assert_ne!(hash.digest(&other), found);
            other = values.clone();
            other.swap(10, 4096);
            assert_ne!(hash.digest(&other), found);
            assert_ne!(hash.digest(&values[..9_999]), found);
        }
        assert_eq!(Hash::of("0123456789abcdef"), None);
        // Of the empty message, as other programs compute them.
        assert_eq!(Hash::Sha256.digest(&[])[..4], [0xe3, 0xb0, 0xc4, 0x42]);
        assert_eq!(Hash::Xxh3.digest(&[])[..4], [0x7f, 0x49, 0x8d, 0x46]);
    }
}
