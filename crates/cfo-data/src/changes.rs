//! Inner products of changes between neighbouring snapshots, which give the mean square of a path's velocity.

use crate::simd::vectorized;

/// Inner products of the changes between neighbouring snapshots, for each channel.
///
/// For snapshots `u_j` and changes `d_j = u_{j+1} - u_j`: `<d_j, d_{j+o}>` for every offset `o` below a reach.
#[derive(Clone, Debug, PartialEq)]
pub struct ChangeProducts {
    channels: usize,
    reach: usize,
    /// At `(j * reach + offset) * channels + channel`.
    products: Vec<f64>,
    points: usize,
}

impl ChangeProducts {
    /// Computes the products for snapshots of equal length, channels last.
    pub fn new<'a>(snapshots: impl Iterator<Item = &'a [f32]>, channels: usize, reach: usize) -> Self {
        let (channels, reach) = (channels.max(1), reach.max(1));
        let mut found = Self { channels, reach, products: Vec::new(), points: 0 };
        // The last few changes, the newest at `j % reach`.
        let mut recent: Vec<Vec<f32>> = vec![Vec::new(); reach];
        let mut before: Option<&[f32]> = None;
        for (frame, snapshot) in snapshots.enumerate() {
            if let Some(before) = before {
                found.add(frame - 1, before, snapshot, &mut recent);
            }
            before = Some(snapshot);
        }
        found
    }

    fn add(&mut self, newest: usize, before: &[f32], after: &[f32], recent: &mut [Vec<f32>]) {
        let (channels, reach) = (self.channels, self.reach);
        self.points = after.len() / channels;
        self.products.resize((newest + 1) * reach * channels, 0.0);
        let change = &mut recent[newest % reach];
        change.clear();
        change.extend(after.iter().zip(before).map(|(after, before)| after - before));
        for offset in 0..reach.min(newest + 1) {
            let older = newest - offset;
            let place = (older * reach + offset) * channels;
            let sums = &mut self.products[place..place + channels];
            add_products(&recent[older % reach], &recent[newest % reach], sums);
        }
    }

    /// Number of changes, one less than snapshots.
    pub fn len(&self) -> usize {
        self.products.len() / (self.reach * self.channels)
    }

    /// Whether there are no changes.
    pub fn is_empty(&self) -> bool {
        self.products.is_empty()
    }

    /// The mean, over a snapshot's points, of the product of change `j` with change `j + offset` in one channel.
    pub fn mean(&self, j: usize, offset: usize, channel: usize) -> f64 {
        self.products[(j * self.reach + offset) * self.channels + channel] / self.points.max(1) as f64
    }
}

fn add_products(one: &[f32], other: &[f32], sums: &mut [f64]) {
    match sums.len() {
        1 | 2 | 4 | 8 => add_in_lanes::<8>(one, other, sums),
        3 | 6 | 12 => add_in_lanes::<12>(one, other, sums),
        5 | 10 => add_in_lanes::<10>(one, other, sums),
        _ => add_rest(one, other, sums),
    }
}

/// Adds the products in independent partial sums, which vectorise; `LANES` is a multiple of the channels.
fn add_in_lanes<const LANES: usize>(one: &[f32], other: &[f32], sums: &mut [f64]) {
    let ((ones, rest_of_one), (others, rest_of_other)) = (one.as_chunks(), other.as_chunks());
    for (i, lane) in products::<LANES>(ones, others).into_iter().enumerate() {
        sums[i % sums.len()] += lane;
    }
    add_rest(rest_of_one, rest_of_other, sums);
}

vectorized! {
    fn products<const LANES: usize>(ones: &[[f32; LANES]], others: &[[f32; LANES]]) -> [f64; LANES] {
        let mut lanes = [0.0_f64; LANES];
        for (one, other) in ones.iter().zip(others) {
            for ((lane, &a), &b) in lanes.iter_mut().zip(one).zip(other) {
                *lane += f64::from(a) * f64::from(b);
            }
        }
        lanes
    }
}

fn add_rest(one: &[f32], other: &[f32], sums: &mut [f64]) {
    let channels = sums.len();
    for (one, other) in one.chunks(channels).zip(other.chunks(channels)) {
        for ((sum, &a), &b) in sums.iter_mut().zip(one).zip(other) {
            *sum += f64::from(a) * f64::from(b);
        }
    }
}

#[cfg(test)]
mod tests {
    use cfo_numerics::Philox;
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn are_the_means_of_products(
            channels in 1usize..9, points in 1usize..30, frames in 1usize..9, reach in 1usize..6, seed: u64,
        ) {
            let (mut random, size) = (Philox::new(seed, 0), points * channels);
            // Integers, so that every sum is exact.
            let values: Vec<f32> = (0..frames * size).map(|_| random.below(200) as f32 - 100.0).collect();
            let found = ChangeProducts::new(values.chunks(size), channels, reach);
            prop_assert_eq!(found.len(), frames - 1);
            prop_assert_eq!(found.is_empty(), frames == 1);
            let change = |j: usize, i: usize| f64::from(values[(j + 1) * size + i] - values[j * size + i]);
            for j in 0..frames - 1 {
                for offset in (0..reach).take_while(|offset| j + offset < frames - 1) {
                    for channel in 0..channels {
                        let sum: f64 = (channel..size).step_by(channels)
                            .map(|i| change(j, i) * change(j + offset, i)).sum();
                        prop_assert_eq!(found.mean(j, offset, channel), sum / points as f64);
                    }
                }
            }
        }
    }
}
