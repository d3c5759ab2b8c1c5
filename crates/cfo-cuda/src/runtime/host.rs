//! Conversion of numbers on the host to the bytes of the device.
#![allow(unsafe_code)]

use cfo_engine::{Data, Number, Result};

/// A number without padding bytes.
trait Plain: Copy {}
impl Plain for f32 {}
impl Plain for f64 {}
impl Plain for u32 {}

fn bytes<T: Plain>(values: &[T]) -> &[u8] {
    // SAFETY: numbers have no padding, and any of their bytes may be read.
    unsafe { std::slice::from_raw_parts(values.as_ptr().cast(), size_of_val(values)) }
}

/// Passes the bytes of numbers to a function, converted if the stored precision differs.
pub(crate) fn with_bytes(
    data: Data<'_>,
    number: Number,
    take: impl FnOnce(&[u8]) -> Result<()>,
) -> Result<()> {
    match (data, number) {
        (Data::F32(values), Number::F32) => take(bytes(values)),
        (Data::F64(values), Number::F64) => take(bytes(values)),
        (Data::Index(values), Number::U32) => take(bytes(values)),
        (_, Number::F32) => {
            let mut converted = vec![0.0_f32; data.len()];
            data.copy_to_f32(&mut converted);
            take(bytes(&converted))
        }
        (_, Number::F64) => {
            let mut converted = vec![0.0_f64; data.len()];
            data.copy_to_f64(&mut converted);
            take(bytes(&converted))
        }
        (_, Number::U32) => unreachable!("memory checks that indices are given for indices"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_arrive_in_the_precision_of_the_tensor() {
        let check = |data: Data<'_>, number: Number, expected: Vec<u8>| {
            with_bytes(data, number, |bytes| {
                assert_eq!(bytes, expected);
                Ok(())
            })
            .unwrap();
        };
        let (single, double) = (0.1_f32, 0.1_f64);
        check(Data::F32(&[single]), Number::F32, single.to_le_bytes().to_vec());
        check(Data::F32(&[single]), Number::F64, f64::from(single).to_le_bytes().to_vec());
        check(Data::F64(&[double]), Number::F32, (double as f32).to_le_bytes().to_vec());
        check(Data::F64(&[double, 2.0]), Number::F64, [double.to_le_bytes(), 2f64.to_le_bytes()].concat());
        check(Data::Index(&[7]), Number::U32, 7_u32.to_le_bytes().to_vec());
    }
}
