//! The use of each trajectory of a simulation.

use crate::{DataError, Split};

/// A larger number is more likely a typing error.
const MOST_SAMPLES: usize = 1_000_000_000;

/// Assigns each trajectory to training, validation or test: by the counts `split`, or else in the proportions `usual`.
/// The number of trajectories is `samples`, or else the sum of these counts.
///
/// # Errors
/// If the number of trajectories is 0, too large, or another one than the sum of `split`.
pub fn parts(
    samples: Option<usize>,
    split: Option<[usize; 3]>,
    usual: [usize; 3],
) -> Result<Vec<Split>, DataError> {
    let total = split.unwrap_or(usual).into_iter().try_fold(0usize, usize::checked_add);
    let samples = samples.or(total).unwrap_or(usize::MAX);
    let misfit = |found: String, needed: &str| {
        Err(DataError::Argument { what: "the number of trajectories", found, needed: needed.to_owned() })
    };
    if samples == 0 {
        return misfit("0".into(), "at least 1");
    }
    if total.is_none() || samples > MOST_SAMPLES {
        return misfit(samples.to_string(), "at most 1000000000");
    }
    let sizes = match split {
        Some(_) if Some(samples) != total => {
            return misfit(
                format!("{samples} in `samples` and {} in `split`", total.unwrap_or(0)),
                "the same in both, or only one of them",
            );
        }
        Some(split) => split,
        None => proportional(samples, usual),
    };
    let parts = Split::ALL.into_iter().zip(sizes);
    Ok(parts.flat_map(|(split, size)| std::iter::repeat_n(split, size)).collect())
}

/// Returns the sizes of the parts of `count` trajectories in the proportions `usual`, rounded to the nearest numbers.
fn proportional(count: usize, usual: [usize; 3]) -> [usize; 3] {
    let total: usize = usual.iter().sum();
    let [train, validation, _] = usual.map(|part| part as f64 / total as f64);
    // At least one trajectory of a part that is not empty; a rest of rounding is empty.
    let size = |share: f64, left: usize| {
        ((share * count as f64).round() as usize).max(usize::from(share > 1e-9)).min(left)
    };
    let test = size((1.0 - train - validation).max(0.0), count);
    let validation = size(validation, count - test);
    [count - test - validation, validation, test]
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn sizes(parts: &[Split]) -> [usize; 3] {
        Split::ALL.map(|split| parts.iter().filter(|&&part| part == split).count())
    }

    #[test]
    fn the_papers_split_is_900_50_50() {
        let usual = [900, 50, 50];
        let assigned = parts(None, None, usual).unwrap();
        assert_eq!(sizes(&assigned), usual);
        assert_eq!((assigned[899], assigned[950]), (Split::Train, Split::Test));
        assert_eq!(sizes(&parts(Some(10), None, usual).unwrap()), [8, 1, 1]);
        assert_eq!(sizes(&parts(Some(30), None, usual).unwrap()), [27, 2, 1]);
        assert_eq!(sizes(&parts(Some(10), Some([9, 1, 0]), usual).unwrap()), [9, 1, 0]);
    }

    #[test]
    fn numbers_that_contradict_each_other_are_refused() {
        for (samples, split) in
            [(Some(0), None), (Some(10), Some([9, 1, 1])), (None, Some([usize::MAX, 1, 1]))]
        {
            assert!(parts(samples, split, [900, 50, 50]).is_err(), "{samples:?} {split:?}");
        }
    }

    proptest! {
        #[test]
        fn proportions_cover_everything_and_stay_near(
            count in 3usize..500, usual in prop::array::uniform3(1usize..1000),
        ) {
            let found = proportional(count, usual);
            prop_assert_eq!(found.iter().sum::<usize>(), count);
            let total: usize = usual.iter().sum();
            for (size, share) in found.into_iter().zip(usual) {
                let expected = share as f64 / total as f64 * count as f64;
                prop_assert!((size as f64 - expected).abs() <= 2.0, "{:?} of {} as {:?}", found, count, usual);
            }
        }
    }
}
