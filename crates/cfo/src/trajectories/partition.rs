//! Splits of a set into training, validation and test.

use cfo_data::Split;
use cfo_numerics::Philox;

/// Stream of the shuffle, apart from what else the data's seed is used for ("part" in ASCII).
const STREAM: u64 = 0x7061_7274 << 32;

/// Returns the part of each of `count` trajectories, `None` for those left out: in their order, or shuffled with a seed.
pub(crate) fn assign(count: usize, counts: [usize; 3], shuffle: Option<u64>) -> Vec<Option<Split>> {
    let mut order: Vec<usize> = (0..count).collect();
    if let Some(seed) = shuffle {
        let mut random = Philox::new(seed, STREAM);
        for last in (1..count).rev() {
            order.swap(last, random.below(last as u64 + 1) as usize);
        }
    }
    let mut parts = vec![None; count];
    let mut rest = order.into_iter();
    for (size, split) in counts.into_iter().zip(Split::ALL) {
        rest.by_ref().take(size).for_each(|i| parts[i] = Some(split));
    }
    parts
}

/// 80 % for training, 10 % each for validation and test; one each at least if there are three.
pub(crate) fn default_counts(count: usize) -> [usize; 3] {
    let held_out = (count / 10).max(usize::from(count > 2));
    [count.saturating_sub(2 * held_out), held_out.min(count), held_out.min(count)]
}

/// Snapshots of a trajectory for training, validation and test, one after another, where there are too few trajectories
/// to hold any out: a tenth each for the last two, three at least. `None` if that leaves too few to train on.
pub(crate) fn held_out_times(frames: usize) -> Option<[usize; 3]> {
    let held_out = (frames / 10).max(3);
    (frames >= 5 * held_out).then(|| [frames - 2 * held_out, held_out, held_out])
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn shuffling_keeps_the_counts_and_depends_on_the_seed_alone(count in 30usize..200, seed: u64) {
            let counts = [count / 2, count / 4, 3];
            let parts = assign(count, counts, Some(seed));
            for (size, split) in counts.into_iter().zip(Split::ALL) {
                prop_assert_eq!(parts.iter().filter(|part| **part == Some(split)).count(), size);
            }
            prop_assert_eq!(&parts, &assign(count, counts, Some(seed)));
            prop_assert_ne!(&parts, &assign(count, counts, None));
        }
    }

    #[test]
    fn few_snapshots_are_kept_together() {
        assert_eq!(held_out_times(14), None);
        assert_eq!(held_out_times(15), Some([9, 3, 3]));
        assert_eq!(held_out_times(100), Some([80, 10, 10]));
    }
}
