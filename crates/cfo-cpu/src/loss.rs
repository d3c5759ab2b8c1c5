//! Losses.

use super::Io;
use super::scalar::Real;
use super::simd::vectorized;
use super::thread_team::chunks;

const BLOCK: usize = 1 << 12;

pub(super) fn mean_squared_error<T: Real>(io: &Io<'_>) {
    let (a, b) = (io.input::<T>(0), io.input::<T>(1));
    let partial = |i: usize| {
        let range = i * BLOCK..((i + 1) * BLOCK).min(a.len());
        squared_difference(&a[range.clone()], &b[range]).double()
    };
    let blocks = a.len().div_ceil(BLOCK);
    // Summed in the order of the blocks, independently of threads.
    let sum: f64 = (0..blocks.div_ceil(64))
        .map(|group| {
            let mut parts = [0.0; 64];
            let first = group * 64;
            let count = (blocks - first).min(64);
            chunks(&mut parts[..count], 1, |i, part| part[0] = partial(first + i));
            parts[..count].iter().sum::<f64>()
        })
        .sum();
    io.output::<T>(0)[0] = T::of(sum / a.len() as f64);
}

vectorized! {
/// Sum of squared differences in sixteen interleaved parts.
fn squared_difference<T>(a: &[T], b: &[T]) -> T {
    let mut parts = [T::ZERO; 16];
    let whole = a.len() / 16 * 16;
    for (a, b) in a[..whole].chunks_exact(16).zip(b[..whole].chunks_exact(16)) {
        for ((part, &a), &b) in parts.iter_mut().zip(a).zip(b) {
            *part += (a - b) * (a - b);
        }
    }
    let mut sum = T::ZERO;
    for part in parts {
        sum += part;
    }
    for (&a, &b) in a[whole..].iter().zip(&b[whole..]) {
        sum += (a - b) * (a - b);
    }
    sum
}
}
