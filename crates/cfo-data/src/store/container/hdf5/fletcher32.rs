//! HDF5's checksum of a chunk, in lanes that the compiler can vectorise. The decoding crate processes one word at a
//! time.

use hdf5_reader::error::Error;

use crate::simd::vectorized;

/// Bytes of the checksum behind a chunk.
const CHECKSUM_BYTES: usize = 4;
/// Words of a block, few enough that their weighted sum stays below `2^32`.
const WORDS: usize = 256;
/// Both sums use ones' complement arithmetic of 16 bits: modulo this, with 65535 for nonzero multiples.
const MODULUS: u64 = 65_535;

/// The bytes before the checksum, if it is correct.
pub(super) fn verified(data: &[u8]) -> Result<&[u8], Error> {
    let Some((payload, stored)) = data.split_last_chunk::<CHECKSUM_BYTES>() else {
        return Err(Error::FilterError("a chunk is shorter than its checksum".to_string()));
    };
    let (expected, actual) = (u32::from_le_bytes(*stored), checksum(payload));
    if expected == actual { Ok(payload) } else { Err(Error::ChecksumMismatch { expected, actual }) }
}

vectorized! {
    /// The sum of the words, and above it the sum of the sums after each word. Words are big-endian, an odd byte at the
    /// end is the high half of one.
    fn checksum(data: &[u8]) -> u32 {
        let (mut plain, mut weighted, mut is_zero) = (0, 0, true);
        for block in data.chunks(2 * WORDS) {
            let (words, odd) = block.split_at(block.len() / 2 * 2);
            // Of n words, word i is part of n - i of the sums.
            let (mut sum, mut sums) = (0_u32, 0_u32);
            let count = words.len() / 2 + odd.len();
            for (i, word) in words.chunks_exact(2).enumerate() {
                let word = u32::from(u16::from_le_bytes([word[0], word[1]]));
                sum += word;
                sums += (count - i) as u32 * word;
            }
            if let [last] = odd {
                (sum, sums) = (sum + u32::from(*last), sums + u32::from(*last));
            }
            is_zero &= sum == 0;
            weighted = (weighted + count as u64 * plain + u64::from(sums)) % MODULUS;
            plain = (plain + u64::from(sum)) % MODULUS;
        }
        if is_zero {
            return 0;
        }
        // Swapping the bytes of all words multiplies their sum by 256.
        let [plain, weighted] = [plain, weighted].map(|sum| match sum * 256 % MODULUS {
            0 => MODULUS as u32,
            sum => sum as u32,
        });
        weighted << 16 | plain
    }
}

#[cfg(test)]
mod tests {
    use hdf5_reader::checksum::fletcher32;
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn known_sums() {
        assert_eq!(checksum(&[0, 1, 0, 2]), 0x0004_0003);
        assert_eq!(checksum(&[1, 2, 3]), 0x0504_0402);
        assert_eq!(checksum(&[0; 5000]), 0);
        assert_eq!(checksum(&[255; 5000]), fletcher32(&[255; 5000]));
    }

    #[test]
    fn a_changed_byte_is_noticed() {
        let mut data = b"a chunk of bytes".to_vec();
        data.extend(checksum(&data).to_le_bytes());
        assert_eq!(verified(&data).unwrap(), b"a chunk of bytes");
        data[3] ^= 1;
        assert!(matches!(verified(&data), Err(Error::ChecksumMismatch { .. })));
        assert!(verified(&data[..3]).is_err());
    }

    proptest! {
        #[test]
        fn sums_are_those_of_the_decoding_crate(data in prop::collection::vec(any::<u8>(), 0..3000)) {
            prop_assert_eq!(checksum(&data), fletcher32(&data));
        }
    }
}
