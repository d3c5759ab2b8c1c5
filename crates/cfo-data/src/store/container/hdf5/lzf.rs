//! The LZF decompressor: HDF5 filter 32000, which h5py writes and PDEBench's files use.

/// Largest growth of an LZF instruction: three bytes can represent 264.
const GROWTH: usize = 88;

/// Decodes a whole LZF stream; `None` if it is damaged or grows beyond `limit`.
pub(crate) fn decompress(input: &[u8], limit: usize) -> Option<Vec<u8>> {
    let mut output = Vec::with_capacity(limit.min(input.len().saturating_mul(GROWTH)));
    let mut bytes = input.iter();
    while let Some(control) = bytes.next() {
        let control = usize::from(*control);
        if control < 32 {
            let length = control + 1;
            let literals = bytes.as_slice().get(..length)?;
            output.extend_from_slice(literals);
            bytes.nth(length - 1);
        } else {
            let mut length = (control >> 5) + 2;
            if length == 9 {
                length += usize::from(*bytes.next()?);
            }
            let distance = ((control & 31) << 8) + usize::from(*bytes.next()?) + 1;
            let start = output.len().checked_sub(distance)?;
            if output.len() + length > limit {
                return None;
            }
            // Source and target may overlap: a short distance repeats what it has just written.
            for index in start..start + length {
                output.push(output[index]);
            }
        }
        if output.len() > limit {
            return None;
        }
    }
    Some(output)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn literals_and_references() {
        // "abc" as literals, then 7 bytes from distance 3, then a long reference of 9 + 5 bytes from distance 1.
        let input = [2, b'a', b'b', b'c', 5 << 5, 2, 7 << 5, 5, 0];
        let expected = b"abcabcabcaaaaaaaaaaaaaaa";
        assert_eq!(decompress(&input, 100).unwrap(), expected);
        assert_eq!(decompress(&input, expected.len()).unwrap(), expected);
        assert_eq!(decompress(&input, expected.len() - 1), None);
        assert_eq!(decompress(&[], 0).unwrap(), b"");
    }

    #[test]
    fn damage_is_noticed() {
        for input in [&[5, b'a'][..], &[32], &[32, 0], &[0, b'a', 32, 7], &[7 << 5], &[0, b'a', 7 << 5, 1]] {
            assert_eq!(decompress(input, 1000), None, "{input:?}");
        }
    }
}
