//! The key `time` of a network: whether time is an input, and with how many features.

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};
use toml::Value;

use super::{MOST_FEATURES, at_most};
use crate::error::{CfoError, Result};

/// The time embedding of a network: sines and cosines of the time at several frequencies.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "Value", into = "Value")]
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

impl From<TimeEmbedding> for Value {
    fn from(time: TimeEmbedding) -> Self {
        match time {
            TimeEmbedding::Features(count) => Self::Integer(i64::try_from(count).unwrap_or(i64::MAX)),
            TimeEmbedding::Off | TimeEmbedding::On => Self::Boolean(time.is_on()),
        }
    }
}

impl TryFrom<Value> for TimeEmbedding {
    type Error = String;

    fn try_from(value: Value) -> std::result::Result<Self, String> {
        let count = value.as_integer().and_then(|count| usize::try_from(count).ok());
        let found = value.as_bool().map(Self::from).or(count.map(Self::Features));
        found.ok_or_else(|| {
            format!("invalid value: {value}, expected `true`, `false` or the number of features")
        })
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
