//! Division of trajectories into training, validation and test sets.

use std::fmt;
use std::str::FromStr;

use crate::DataError;

/// Use of a trajectory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Split {
    /// Training set: the network is trained on it.
    Train,
    /// Validation set: its error is monitored during training.
    Validation,
    /// Test set: used only to report errors.
    Test,
}

impl Split {
    /// All parts, in the order of their codes.
    pub const ALL: [Self; 3] = [Self::Train, Self::Validation, Self::Test];

    /// The number stored in files.
    pub fn code(self) -> i8 {
        self as i8
    }

    /// The part with this stored number.
    pub fn from_code(code: i64) -> Option<Self> {
        usize::try_from(code).ok().and_then(|code| Self::ALL.get(code).copied())
    }
}

impl fmt::Display for Split {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Train => "train",
            Self::Validation => "validation",
            Self::Test => "test",
        })
    }
}

impl FromStr for Split {
    type Err = DataError;

    fn from_str(text: &str) -> Result<Self, DataError> {
        let known = Self::ALL.into_iter().find(|split| split.to_string() == text);
        let needed = "`train`, `validation` or `test`";
        known.ok_or_else(|| DataError::argument("the split", format!("`{text}`"), needed))
    }
}

/// Sizes of the parts, in file order: training, validation, test.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Portions {
    /// Exact numbers of trajectories; the others are not used.
    Counts {
        /// Trajectories for training.
        train: usize,
        /// Trajectories for validation.
        validation: usize,
        /// Trajectories for testing.
        test: usize,
    },
    /// Fractions of the whole; the rest is the test set.
    Fractions {
        /// Fraction for training.
        train: f64,
        /// Fraction for validation.
        validation: f64,
    },
}

/// Assigns a part to each of `count` trajectories; `None` beyond the last part.
///
/// Fractions are rounded to the nearest number of trajectories. A part with a positive fraction gets at least one
/// trajectory if there are enough.
pub fn assign(count: usize, portions: Portions) -> Result<Vec<Option<Split>>, DataError> {
    let [train, validation, test] = match portions {
        Portions::Counts { train, validation, test } => [train, validation, test],
        Portions::Fractions { train, validation } => counts(count, train, validation)?,
    };
    let needed = train.saturating_add(validation).saturating_add(test);
    if needed > count {
        let found = format!("{train} + {validation} + {test} trajectories");
        let needed = format!("at most the {count} that there are");
        return Err(DataError::argument("the split", found, needed));
    }
    let parts = [(train, Split::Train), (validation, Split::Validation), (test, Split::Test)];
    let mut assigned: Vec<Option<Split>> =
        parts.iter().flat_map(|&(size, split)| std::iter::repeat_n(Some(split), size)).collect();
    assigned.resize(count, None);
    Ok(assigned)
}

fn counts(count: usize, train: f64, validation: f64) -> Result<[usize; 3], DataError> {
    let valid = |fraction: f64| (0.0..=1.0).contains(&fraction);
    // A sum such as 0.7 + 0.2 + 0.1 may exceed 1 by rounding.
    if !valid(train) || !valid(validation) || train + validation > 1.0 + 1e-9 {
        let found = format!("fractions {train} and {validation}");
        let needed = "fractions between 0 and 1 with a sum of at most 1";
        return Err(DataError::argument("the split", found, needed));
    }
    let test = (1.0 - train - validation).max(0.0);
    let share = |fraction: f64, left: usize| {
        let least = usize::from(fraction > 1e-9);
        ((fraction * count as f64).round() as usize).max(least).min(left)
    };
    let test_size = share(test, count);
    let validation_size = share(validation, count - test_size);
    Ok([count - test_size - validation_size, validation_size, test_size])
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn sizes(assigned: &[Option<Split>]) -> [usize; 4] {
        let of = |part| assigned.iter().filter(|&&split| split == part).count();
        [of(Some(Split::Train)), of(Some(Split::Validation)), of(Some(Split::Test)), of(None)]
    }

    #[test]
    fn the_papers_split_is_900_50_50() {
        let counts = Portions::Counts { train: 900, validation: 50, test: 50 };
        let fractions = Portions::Fractions { train: 0.9, validation: 0.05 };
        let assigned = assign(1000, counts).unwrap();
        assert_eq!(assigned, assign(1000, fractions).unwrap());
        assert_eq!(sizes(&assigned), [900, 50, 50, 0]);
        assert_eq!(assigned[899], Some(Split::Train));
        assert_eq!(assigned[950], Some(Split::Test));
    }

    #[test]
    fn too_many_or_strange_portions_are_refused() {
        assert!(assign(10, Portions::Counts { train: 9, validation: 1, test: 1 }).is_err());
        assert!(assign(10, Portions::Counts { train: usize::MAX, validation: 1, test: 1 }).is_err());
        assert!(assign(10, Portions::Fractions { train: 0.9, validation: 0.2 }).is_err());
        assert!(assign(10, Portions::Fractions { train: f64::NAN, validation: 0.2 }).is_err());
    }

    #[test]
    fn codes_and_names_return() {
        for split in Split::ALL {
            assert_eq!(Split::from_code(i64::from(split.code())), Some(split));
            assert_eq!(split.to_string().parse::<Split>().unwrap(), split);
        }
        assert_eq!(Split::from_code(-1), None);
        assert!("valid".parse::<Split>().is_err());
    }

    proptest! {
        #[test]
        fn fractions_cover_everything_and_stay_near(
            count in 3usize..500, train in 0.0..1.0f64, rest in 0.0..1.0f64,
        ) {
            let validation = (1.0 - train) * rest;
            let [first, second, third, none] =
                sizes(&assign(count, Portions::Fractions { train, validation }).unwrap());
            prop_assert_eq!(first + second + third, count);
            prop_assert_eq!(none, 0);
            let near = |size: usize, fraction: f64| (size as f64 - fraction * count as f64).abs() <= 2.0;
            prop_assert!(near(first, train) && near(second, validation));
        }
    }
}
