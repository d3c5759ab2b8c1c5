//! The key `data.split`: the sizes of training, validation and test set.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use toml::Value;

use crate::error::{CfoError, Result};

/// Largest rounding error of the sum of shares.
const ROUNDING: f64 = 1e-9;

/// The sizes of training, validation and test set.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(try_from = "Value", untagged)]
#[schemars(!try_from)]
pub enum Portions {
    /// Numbers of trajectories; the rest is left out.
    Counts([usize; 3]),
    /// Shares of the trajectories; if their sum is below 1 the rest is left out.
    Shares([f64; 3]),
}

impl From<[usize; 3]> for Portions {
    fn from(counts: [usize; 3]) -> Self {
        Self::Counts(counts)
    }
}

impl Portions {
    /// Returns the numbers, or `None` for shares.
    pub fn counts(&self) -> Option<[usize; 3]> {
        match *self {
            Self::Counts(counts) => Some(counts),
            Self::Shares(_) => None,
        }
    }

    /// Returns the number of trajectories in each part, for `count` trajectories. A part with a share has at least one if there are enough.
    ///
    /// # Errors
    /// If there are too few trajectories, or the shares are out of range.
    pub fn of(&self, count: usize) -> Result<[usize; 3]> {
        let shares = match *self {
            Self::Counts(counts) => {
                let needed = counts.iter().fold(0_usize, |sum, &count| sum.saturating_add(count));
                return match needed <= count {
                    true => Ok(counts),
                    false => Err(CfoError::bad_data(
                        format!("the split asks for {needed} trajectories, but there are {count}"),
                        "lower `data.split` or simulate more",
                    )),
                };
            }
            Self::Shares(shares) => shares,
        };
        self.check()?;
        let total: f64 = shares.iter().sum();
        let least = shares.map(|share| usize::from(share > ROUNDING));
        let all = ((total * count as f64).round() as usize).max(least.iter().sum()).min(count);
        let share = |part: usize, left: usize| {
            ((shares[part] * count as f64).round() as usize).max(least[part]).min(left)
        };
        // Training takes the rest, so that rounding loses no trajectory.
        let test = share(2, all.saturating_sub(least[0] + least[1]));
        let validation = share(1, all.saturating_sub(test + least[0]));
        let train = if least[0] > 0 { all - test - validation } else { 0 };
        Ok([train, validation, test])
    }

    /// Checks the shares.
    ///
    /// # Errors
    /// If a share is not between 0 and 1, or they exceed 1 together.
    pub fn check(&self) -> Result<()> {
        match self {
            Self::Shares(shares)
                if shares.iter().any(|share| !(0.0..=1.0).contains(share))
                    || shares.iter().sum::<f64>() > 1.0 + ROUNDING =>
            {
                Err(CfoError::invalid(
                    "data.split",
                    format!(
                        "{shares:?} are no shares between 0 and 1 whose sum is at most 1; whole numbers are counts"
                    ),
                ))
            }
            _ => Ok(()),
        }
    }
}

impl TryFrom<Value> for Portions {
    type Error = String;

    /// Reads three numbers: counts if all are whole, else shares.
    fn try_from(value: Value) -> std::result::Result<Self, String> {
        let Some([train, validation, test]) = value.as_array().map(Vec::as_slice) else {
            return Err(format!(
                "invalid value: {value}, expected three counts or three shares, for training, validation and test"
            ));
        };
        let number = |part: &Value| match *part {
            Value::Integer(count) if count >= 0 => Ok(count as f64),
            Value::Float(share) => Ok(share),
            _ => Err(format!("invalid value: {} `{part}`, expected a count or a share", part.type_str())),
        };
        let shares = [number(train)?, number(validation)?, number(test)?];
        Ok(match [train, validation, test].map(Value::as_integer) {
            [Some(train), Some(validation), Some(test)] => {
                Self::Counts([train, validation, test].map(|count| count as usize))
            }
            _ => Self::Shares(shares),
        })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[derive(Deserialize, Serialize, Debug, PartialEq)]
    struct Holder {
        split: Portions,
    }

    fn parsed(text: &str) -> std::result::Result<Portions, toml::de::Error> {
        toml::from_str::<Holder>(&format!("split = {text}")).map(|holder| holder.split)
    }

    #[test]
    fn whole_numbers_are_counts_and_others_shares() {
        assert_eq!(parsed("[900, 50, 50]").unwrap(), Portions::Counts([900, 50, 50]));
        for (text, shares) in [
            ("[0.8, 0.1, 0.1]", [0.8, 0.1, 0.1]),
            ("[0.9, 0.1, 0]", [0.9, 0.1, 0.0]),
            ("[1.0, 0, 0]", [1.0, 0.0, 0.0]),
        ] {
            let portions = parsed(text).unwrap();
            assert_eq!(portions, Portions::Shares(shares));
            let written = toml::to_string(&Holder { split: portions }).unwrap();
            assert_eq!(toml::from_str::<Holder>(&written).unwrap().split, portions, "{written}");
            let json = serde_json::to_string(&portions).unwrap();
            assert_eq!(serde_json::from_str::<Portions>(&json).unwrap(), portions, "{json}");
        }
        for bad in ["[1, 2]", "[1, 2, 3, 4]", "[-1, 2, 3]", "3", "[\"a\", 1, 1]"] {
            assert!(parsed(bad).is_err(), "{bad}");
        }
        // A large share leaves one trajectory to each of the small ones.
        assert_eq!(Portions::Shares([0.06, 0.06, 0.88]).of(3).unwrap(), [1, 1, 1]);
        assert_eq!(Portions::Shares([0.05, 0.05, 0.6]).of(3).unwrap(), [1, 1, 1]);
        assert!(Portions::Shares([0.9, 0.2, 0.0]).check().is_err());
        assert!(Portions::Shares([-0.1, 0.2, 0.0]).check().is_err());
        assert!(Portions::Shares([f64::NAN, 0.2, 0.0]).check().is_err());
    }

    #[test]
    fn too_many_are_refused() {
        assert!(Portions::Counts([9, 1, 1]).of(10).is_err());
        assert!(Portions::Counts([usize::MAX, 1, 1]).of(10).is_err());
    }

    proptest! {
        #[test]
        fn shares_are_near_and_lose_nothing(count in 3usize..400, a in 0.05..1.0f64, b in 0.05..1.0f64, c in 0.05..1.0f64) {
            let total = a + b + c;
            let shares = [a / total, b / total, c / total];
            let counts = Portions::Shares(shares).of(count).unwrap();
            prop_assert_eq!(counts.iter().sum::<usize>(), count);
            for (counted, share) in counts.iter().zip(shares) {
                prop_assert!(*counted >= 1);
                prop_assert!((*counted as f64 - share * count as f64).abs() <= 2.0);
            }
        }
    }
}
