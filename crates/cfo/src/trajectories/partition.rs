//! Splits of a set into training, validation and test.

use cfo_data::Split;
use cfo_numerics::Philox;

/// Random stream of the shuffle, separate from other uses of the data's seed ("part" in ASCII).
const STREAM: u64 = 0x7061_7274 << 32;

/// Returns the part of each of `count` trajectories, in their order or shuffled with a seed. Unused trajectories have `None`.
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

/// Returns 80 % for training and 10 % each for validation and test; at least one each if there are three trajectories.
pub(crate) fn default_counts(count: usize) -> [usize; 3] {
    let held_out = (count / 10).max(usize::from(count > 2));
    [count.saturating_sub(2 * held_out), held_out.min(count), held_out.min(count)]
}

/// Returns the numbers of consecutive snapshots of a trajectory for training, validation and test, for sets with too few trajectories to
/// hold any out. Validation and test get a tenth each, at least three. `None` if too few remain for training.
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
