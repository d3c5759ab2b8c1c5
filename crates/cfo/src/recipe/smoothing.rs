//! The key `path.smoothing`: the measurement noise to remove.

use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

use crate::error::{CfoError, Result};

/// Measurement noise that is removed from the training snapshots.
#[derive(Clone, Copy, Debug, Default, PartialEq, JsonSchema)]
#[schemars(rename_all = "kebab-case")]
pub enum Smoothing {
    /// No removal: the spline passes through the snapshots.
    #[default]
    None,
    /// The noise that is estimated in each channel.
    Auto,
    /// Noise with this standard deviation, as a share of each channel's standard deviation.
    #[schemars(untagged)]
    Noise(f64),
}

impl Smoothing {
    /// The values in a recipe.
    const EXPECTED: &'static str =
        "`none`, `auto` or the noise as a share of each channel's standard deviation";

    /// Whether it can be done.
    ///
    /// # Errors
    /// If the noise is negative or no number.
    pub(crate) fn check(self) -> Result<()> {
        match self {
            Self::Noise(share) if !(share >= 0.0 && share.is_finite()) => Err(CfoError::InvalidKey {
                key: "path.smoothing".into(),
                problem: format!("{share} must be {}, 0 or positive", Self::EXPECTED),
            }),
            _ => Ok(()),
        }
    }
}

impl Serialize for Smoothing {
    fn serialize<S: Serializer>(&self, serializer: S) -> std::result::Result<S::Ok, S::Error> {
        match self {
            Self::None => serializer.serialize_str("none"),
            Self::Auto => serializer.serialize_str("auto"),
            Self::Noise(share) => serializer.serialize_f64(*share),
        }
    }
}

impl<'de> Deserialize<'de> for Smoothing {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> std::result::Result<Self, D::Error> {
        struct Visitor;
        impl de::Visitor<'_> for Visitor {
            type Value = Smoothing;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(Smoothing::EXPECTED)
            }

            fn visit_str<E: de::Error>(self, word: &str) -> std::result::Result<Smoothing, E> {
                match word {
                    "none" => Ok(Smoothing::None),
                    "auto" => Ok(Smoothing::Auto),
                    other => Err(E::unknown_variant(other, &["none", "auto"])),
                }
            }

            fn visit_f64<E: de::Error>(self, share: f64) -> std::result::Result<Smoothing, E> {
                Ok(Smoothing::Noise(share))
            }

            fn visit_i64<E: de::Error>(self, share: i64) -> std::result::Result<Smoothing, E> {
                Ok(Smoothing::Noise(share as f64))
            }

            fn visit_u64<E: de::Error>(self, share: u64) -> std::result::Result<Smoothing, E> {
                Ok(Smoothing::Noise(share as f64))
            }
        }
        deserializer.deserialize_any(Visitor)
    }
}
