//! The key `time` of a network: whether time is an input, and with how many features.

use std::fmt;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

use super::{MOST_FEATURES, at_most};
use crate::error::{CfoError, Result};

/// The time embedding of a network: sines and cosines of the time at several frequencies.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TimeEmbedding {
    /// Time is not an input of the network.
    Off,
    /// As many features as in the paper.
    #[default]
    On,
    /// This number of features: even, half of them sines and half cosines.
    Features(usize),
}

impl TimeEmbedding {
    const EXPECTED: &'static str = "`true`, `false` or the number of features";

    /// Returns whether time is an input of the network.
    pub fn is_on(self) -> bool {
        self != Self::Off
    }

    /// Returns the number of features, or `usual` if it is not set.
    pub(super) fn features(self, usual: usize) -> usize {
        match self {
            Self::Off | Self::On => usual,
            Self::Features(count) => count,
        }
    }

    /// Returns an error if the number of features is odd, 0 or too large.
    pub(super) fn check(self) -> Result<()> {
        match self {
            Self::Features(count) if count == 0 || !count.is_multiple_of(2) => {
                Err(CfoError::invalid("operator.time", format!("{count} features must be positive and even")))
            }
            Self::Features(count) => at_most("operator.time", count, MOST_FEATURES),
            Self::Off | Self::On => Ok(()),
        }
    }
}

impl From<bool> for TimeEmbedding {
    fn from(on: bool) -> Self {
        if on { Self::On } else { Self::Off }
    }
}

impl Serialize for TimeEmbedding {
    fn serialize<S: Serializer>(&self, serializer: S) -> std::result::Result<S::Ok, S::Error> {
        match self {
            Self::Features(count) => serializer.serialize_u64(*count as u64),
            Self::Off | Self::On => serializer.serialize_bool(self.is_on()),
        }
    }
}

impl<'de> Deserialize<'de> for TimeEmbedding {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> std::result::Result<Self, D::Error> {
        struct Visitor;
        impl de::Visitor<'_> for Visitor {
            type Value = TimeEmbedding;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(TimeEmbedding::EXPECTED)
            }

            fn visit_bool<E: de::Error>(self, on: bool) -> std::result::Result<TimeEmbedding, E> {
                Ok(on.into())
            }

            fn visit_u64<E: de::Error>(self, count: u64) -> std::result::Result<TimeEmbedding, E> {
                Ok(TimeEmbedding::Features(usize::try_from(count).unwrap_or(usize::MAX)))
            }

            fn visit_i64<E: de::Error>(self, count: i64) -> std::result::Result<TimeEmbedding, E> {
                u64::try_from(count)
                    .map_err(|_| E::invalid_value(de::Unexpected::Signed(count), &self))
                    .and_then(|count| self.visit_u64(count))
            }
        }
        deserializer.deserialize_any(Visitor)
    }
}

impl JsonSchema for TimeEmbedding {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "TimeEmbedding".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "anyOf": [{ "type": "boolean" }, { "type": "integer" }] })
    }
}
