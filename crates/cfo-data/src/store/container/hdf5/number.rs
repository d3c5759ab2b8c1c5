//! Stored real numbers of any width and byte order.

use half::f16;
use hdf5_reader::H5Type;
use hdf5_reader::datatype_api::dtype_element_size;
use hdf5_reader::error::{ByteOrder, Error};
use hdf5_reader::messages::datatype::Datatype;

/// A stored real number: floats of 2, 4 and 8 bytes, integers, and enumerations of them (h5py's booleans).
#[derive(Clone)]
pub(super) struct StoredReal(pub f64);

impl H5Type for StoredReal {
    fn hdf5_type() -> Datatype {
        f64::hdf5_type()
    }

    fn from_bytes(bytes: &[u8], dtype: &Datatype) -> hdf5_reader::error::Result<Self> {
        decode(bytes, dtype).map(Self).ok_or_else(|| Error::TypeMismatch {
            expected: "a real number".to_string(),
            actual: format!("{dtype:?} in {} bytes", bytes.len()),
        })
    }

    fn element_size(dtype: &Datatype) -> usize {
        dtype_element_size(dtype).unwrap_or(0)
    }

    fn decode_vec(
        raw: &[u8],
        dtype: &Datatype,
        count: usize,
    ) -> Option<hdf5_reader::error::Result<Vec<Self>>> {
        let size = number_size(dtype)?;
        let bytes = raw.get(..count.checked_mul(size)?)?;
        bytes
            .chunks_exact(size)
            .map(|chunk| decode(chunk, dtype).map(Self))
            .collect::<Option<Vec<_>>>()
            .map(Ok)
    }
}

/// Bytes of a number of this type; `None` if it is not a real number.
pub(super) fn number_size(dtype: &Datatype) -> Option<usize> {
    match dtype {
        Datatype::FloatingPoint { size: size @ (2 | 4 | 8), .. }
        | Datatype::FixedPoint { size: size @ (1 | 2 | 4 | 8), .. } => Some(usize::from(*size)),
        Datatype::Enum { base, .. } => number_size(base),
        _ => None,
    }
}

fn decode(bytes: &[u8], dtype: &Datatype) -> Option<f64> {
    let ordered = |order: &ByteOrder| {
        let mut word = [0; 8];
        let length = bytes.len().min(8);
        word[..length].copy_from_slice(&bytes[..length]);
        if matches!(order, ByteOrder::BigEndian) {
            word[..length].reverse();
        }
        u64::from_le_bytes(word)
    };
    match dtype {
        Datatype::Enum { base, .. } => decode(bytes, base),
        Datatype::FloatingPoint { size, byte_order } if bytes.len() == usize::from(*size) => {
            let word = ordered(byte_order);
            match size {
                2 => Some(f16::from_bits(word as u16).to_f64()),
                4 => Some(f64::from(f32::from_bits(word as u32))),
                8 => Some(f64::from_bits(word)),
                _ => None,
            }
        }
        Datatype::FixedPoint { size, signed, byte_order } if bytes.len() == usize::from(*size) => {
            let word = ordered(byte_order);
            let unused = 64 - 8 * u32::from(*size).min(8);
            if *signed { Some(((word << unused) as i64 >> unused) as f64) } else { Some(word as f64) }
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_width_and_order_of_numbers_is_decoded() {
        let big = ByteOrder::BigEndian;
        let little = ByteOrder::LittleEndian;
        let float = |size, byte_order| Datatype::FloatingPoint { size, byte_order };
        let fixed = |size, signed, byte_order| Datatype::FixedPoint { size, signed, byte_order };
        assert_eq!(decode(&(-2.5f64).to_be_bytes(), &float(8, big)), Some(-2.5));
        assert_eq!(decode(&0.1f32.to_le_bytes(), &float(4, little)), Some(f64::from(0.1f32)));
        assert_eq!(decode(&f16::from_f32(1.5).to_be_bytes(), &float(2, big)), Some(1.5));
        assert_eq!(decode(&(-3i16).to_be_bytes(), &fixed(2, true, big)), Some(-3.0));
        assert_eq!(decode(&[255], &fixed(1, true, little)), Some(-1.0));
        assert_eq!(decode(&[255], &fixed(1, false, little)), Some(255.0));
        assert_eq!(decode(&i64::MIN.to_le_bytes(), &fixed(8, true, little)), Some(-(2f64.powi(63))));
        assert_eq!(decode(&[1, 2], &fixed(4, true, little)), None);
        assert_eq!(number_size(&Datatype::Opaque { size: 4, tag: String::new() }), None);
    }
}
