//! Numbers compressed for a page: quantised, differenced along their axes, deflated.
//!
//! A field of whole numbers is replaced by its differences along those of its three axes (time, rows, columns) that give
//! the smallest ones. Neighbours are alike, so most differences are small. They wrap around, so that sums restore the
//! numbers exactly. Zigzag coding maps small differences of either sign to small positive ones, and low and high bytes
//! are stored apart.

use std::io::Write;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use flate2::Compression;
use flate2::write::ZlibEncoder;
use serde::Serialize;

/// Bits of a number that is stored exactly.
pub const EXACT: u32 = 32;

/// Bits of numbers on a page, from the finest to the coarsest.
pub const PRECISIONS: [u32; 7] = [EXACT, 16, 14, 12, 10, 9, 8];

/// The rounding of numbers to `low + step * n` for whole `n`.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Quantization {
    pub bits: u32,
    pub low: f64,
    pub step: f64,
}

impl Quantization {
    /// The finest scale of `bits` bits for numbers from `low` to `high`.
    pub fn covering(low: f32, high: f32, bits: u32) -> Self {
        let (low, high) = (f64::from(low), f64::from(high));
        let most = 2f64.powi(bits as i32) - 1.0;
        match bits {
            EXACT => Self { bits, low: 0.0, step: 1.0 },
            _ if high > low => Self { bits, low, step: (high - low) / most },
            _ => Self { bits, low, step: 0.0 },
        }
    }

    /// The largest rounding error.
    pub fn precision(&self) -> f64 {
        if self.bits == EXACT { 0.0 } else { self.step / 2.0 }
    }

    fn whole(&self, value: f32) -> u16 {
        if self.step == 0.0 {
            return 0;
        }
        ((f64::from(value) - self.low) / self.step).round().clamp(0.0, 65535.0) as u16
    }
}

/// A field as a page stores it.
#[derive(Clone, Debug, Serialize)]
pub struct EncodedBlock {
    #[serde(flatten)]
    pub scale: Quantization,
    /// Axes along which differences were taken: 1 time, 2 rows, 4 columns, added up.
    pub axes: u8,
    /// Base64 of the deflated bytes.
    pub data: String,
}

impl EncodedBlock {
    /// Encode `[frames, height, width]` numbers.
    pub fn new(values: &[f32], [height, width]: [usize; 2], scale: Quantization) -> Self {
        let (axes, planes) = match scale.bits {
            EXACT => (0, planes(values.iter().map(|value| value.to_bits()), values.len(), 4)),
            bits => {
                let whole: Vec<u16> = values.iter().map(|&value| scale.whole(value)).collect();
                let strides = [height * width, width, 1];
                let (axes, differences) = best(&whole, strides, [height, width]);
                let bytes = if bits > 8 { 2 } else { 1 };
                let folded = differences.iter().map(|&difference| u32::from(folded(difference)));
                // Differences of 8-bit numbers have nine bits: they wrap around at eight instead.
                (axes, if bytes == 1 { narrow(&differences) } else { planes(folded, values.len(), bytes) })
            }
        };
        Self { scale, axes, data: STANDARD.encode(deflated(&planes)) }
    }
}

/// Number of snapshots that choose the axes.
const SAMPLE: usize = 6;

/// The axes whose differences are smallest, judged by some snapshots, and the differences along them.
fn best(whole: &[u16], strides: [usize; 3], extent: [usize; 2]) -> (u8, Vec<u16>) {
    let all = (0..8u8).filter(|axes| {
        // An axis of one point has no differences.
        (axes & 2 == 0 || extent[0] > 1) && (axes & 4 == 0 || extent[1] > 1)
    });
    let middle = whole.len() / strides[0] / 2 * strides[0];
    let sample = match whole.len() / strides[0] > 2 * SAMPLE {
        // A snapshot of a system is one number.
        true if strides[0] > 1 => &whole[middle..middle + SAMPLE * strides[0]],
        _ => whole,
    };
    let cost = |axes: &u8| {
        let differences = differences(sample, strides, extent, *axes);
        differences.iter().map(|&x| f64::from(1 + u32::from(folded(x))).log2()).sum::<f64>()
    };
    let least = all.min_by(|a, b| cost(a).total_cmp(&cost(b))).unwrap_or(0);
    (least, differences(whole, strides, extent, least))
}

fn differences(whole: &[u16], strides: [usize; 3], [height, width]: [usize; 2], axes: u8) -> Vec<u16> {
    let mut field = whole.to_vec();
    for (axis, &stride) in strides.iter().enumerate().filter(|(axis, _)| axes >> axis & 1 == 1) {
        for index in (0..field.len()).rev() {
            let place = match axis {
                0 => index / stride,
                1 => index / width % height,
                _ => index % width,
            };
            if place > 0 {
                field[index] = field[index].wrapping_sub(field[index - stride]);
            }
        }
    }
    field
}

/// Zigzag coding, which maps small numbers of either sign to small positive ones: 0, -1, 1, -2, ...
fn folded(difference: u16) -> u16 {
    let signed = difference as i16;
    ((signed << 1) ^ (signed >> 15)) as u16
}

/// Zigzag coding in one byte, for numbers of at most eight bits.
fn narrow(differences: &[u16]) -> Vec<u8> {
    let fold = |&difference: &u16| {
        let signed = difference as u8 as i8;
        ((signed << 1) ^ (signed >> 7)) as u8
    };
    differences.iter().map(fold).collect()
}

/// Splits numbers into bytes: all first bytes, then all second ones, and so on.
fn planes(numbers: impl Iterator<Item = u32>, count: usize, bytes: usize) -> Vec<u8> {
    let mut planes = vec![0; count * bytes];
    for (index, number) in numbers.enumerate() {
        for (byte, value) in number.to_le_bytes().into_iter().take(bytes).enumerate() {
            planes[byte * count + index] = value;
        }
    }
    planes
}

fn deflated(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = ZlibEncoder::new(Vec::new(), Compression::new(6));
    encoder.write_all(bytes).and_then(|()| encoder.finish()).expect("writing to a vector cannot fail")
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use flate2::read::ZlibDecoder;

    use super::*;

    /// Decodes a block as the page's script does.
    fn decoded(block: &EncodedBlock, [height, width]: [usize; 2], count: usize) -> Vec<f64> {
        let mut bytes = Vec::new();
        let packed = STANDARD.decode(&block.data).unwrap();
        ZlibDecoder::new(&packed[..]).read_to_end(&mut bytes).unwrap();
        let Quantization { bits, low, step } = block.scale;
        if bits == EXACT {
            let byte = |plane: usize, index: usize| u32::from(bytes[plane * count + index]) << (8 * plane);
            let number = |index| f32::from_bits((0..4).map(|plane| byte(plane, index)).sum());
            return (0..count).map(|index| f64::from(number(index))).collect();
        }
        let mask = if bits > 8 { 0xffff } else { 0xff };
        let unfolded = |index: usize| {
            let high = if bits > 8 { u32::from(bytes[count + index]) << 8 } else { 0 };
            let number = u32::from(bytes[index]) | high;
            ((number >> 1) ^ (number & 1).wrapping_neg()) & mask
        };
        let mut field: Vec<u32> = (0..count).map(unfolded).collect();
        for (axis, stride) in [height * width, width, 1].into_iter().enumerate() {
            if block.axes >> axis & 1 == 1 {
                for index in 0..count {
                    let place = [index / stride, index / width % height, index % width][axis];
                    if place > 0 {
                        field[index] = (field[index] + field[index - stride]) & mask;
                    }
                }
            }
        }
        field.iter().map(|&whole| low + step * f64::from(whole)).collect()
    }

    fn wave(frames: usize, [height, width]: [usize; 2]) -> Vec<f32> {
        let at = |index: usize| {
            let (n, y, x) = (index / (height * width), index / width % height, index % width);
            (0.3 * n as f32).sin() * (0.2 * y as f32).cos() + (0.1 * x as f32 + 0.05 * n as f32).sin()
        };
        (0..frames * height * width).map(at).collect()
    }

    /// Every number comes back to within the precision that is stated.
    #[test]
    fn blocks_keep_their_stated_precision() {
        for extent in [[1, 1], [1, 17], [8, 9]] {
            let values = wave(11, extent);
            let range = values.iter().fold((f32::MAX, f32::MIN), |(a, b), &x| (a.min(x), b.max(x)));
            for bits in PRECISIONS {
                let scale = Quantization::covering(range.0, range.1, bits);
                let found = decoded(&EncodedBlock::new(&values, extent, scale), extent, values.len());
                for (found, value) in found.iter().zip(&values) {
                    let error = (found - f64::from(*value)).abs();
                    assert!(error <= scale.precision() * (1.0 + 1e-9), "{bits} bits: {found} for {value}");
                }
            }
        }
    }

    #[test]
    fn a_constant_field_is_nothing_but_its_value() {
        let scale = Quantization::covering(2.5, 2.5, 8);
        let block = EncodedBlock::new(&[2.5; 1000], [10, 10], scale);
        assert!(block.data.len() < 40);
        assert!(decoded(&block, [10, 10], 1000).iter().all(|&value| value == 2.5));
    }

    /// Differences make a smooth field smaller.
    #[test]
    fn smooth_fields_shrink() {
        let values = wave(30, [32, 32]);
        let block = EncodedBlock::new(&values, [32, 32], Quantization::covering(-2.0, 2.0, 8));
        assert!(block.data.len() < values.len() / 2, "{} characters", block.data.len());
    }
}
