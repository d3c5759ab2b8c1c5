//! The use of each trajectory of a simulation.

use crate::split::{self, Portions};
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
) -> Result<Vec<Option<Split>>, DataError> {
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
    match split {
        Some(_) if Some(samples) != total => misfit(
            format!("{samples} in `samples` and {} in `split`", total.unwrap_or(0)),
            "the same in both, or only one of them",
        ),
        Some([train, validation, test]) => {
            split::assign(samples, Portions::Counts { train, validation, test })
        }
        None => {
            let [train, validation, _] = usual.map(|count| count as f64 / usual.iter().sum::<usize>() as f64);
            split::assign(samples, Portions::Fractions { train, validation })
        }
    }
}
