//! Hashes of training data, which show whether a run is resumed on other data.

use xxhash_rust::xxh3::Xxh3;

/// The start of every fingerprint.
pub(crate) const PREFIX: &str = "3:";

/// Returns the hash of a trajectory's values, as their little-endian bytes; it is not cryptographic.
pub(crate) fn digest(values: &[f32]) -> [u8; 16] {
    const PORTION: usize = 4096;
    let (mut hasher, mut bytes) = (Xxh3::new(), [0; 4 * PORTION]);
    for portion in values.chunks(PORTION) {
        for (place, value) in bytes.as_chunks_mut().0.iter_mut().zip(portion) {
            *place = value.to_le_bytes();
        }
        hasher.update(&bytes[..4 * portion.len()]);
    }
    hasher.digest128().to_le_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_value_and_its_place_count() {
        let values: Vec<f32> = (0..10_000).map(|i| i as f32).collect();
        let found = digest(&values);
        let mut other = values.clone();
        other[9_999] = f32::from_bits(other[9_999].to_bits() ^ 1);
        assert_ne!(digest(&other), found);
        other = values.clone();
        other.swap(10, 4096);
        assert_ne!(digest(&other), found);
        assert_ne!(digest(&values[..9_999]), found);
        // Hash of the empty message, as computed by other programs.
        assert_eq!(digest(&[])[..4], [0x7f, 0x49, 0x8d, 0x46]);
    }
}
