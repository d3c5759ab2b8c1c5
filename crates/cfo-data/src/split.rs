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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_and_names_return() {
        for split in Split::ALL {
            assert_eq!(Split::from_code(i64::from(split.code())), Some(split));
            assert_eq!(split.to_string().parse::<Split>().unwrap(), split);
        }
        assert_eq!(Split::from_code(-1), None);
        assert!("valid".parse::<Split>().is_err());
    }
}
