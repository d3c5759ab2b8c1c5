//! Values of a recipe that are written as words and whose types are defined elsewhere. Errors list the known words.

use std::str::FromStr;

use cfo_engine::Precision;
use cfo_numerics::ode::Tableau;
use cfo_numerics::{DrawBy, Spline};
use schemars::{Schema, SchemaGenerator, json_schema};
use serde::de::{self, DeserializeOwned, Unexpected};
use serde::{Deserialize, Deserializer, Serializer};

use super::evaluate::RolloutPrecision;

/// A type whose values are written as words.
pub(crate) trait Choice: Sized {
    /// The words, for messages and the reference.
    const WORDS: &'static [&'static str];

    /// Returns the value of a word.
    fn of(word: &str) -> Option<Self>;

    fn word(&self) -> String;
}

pub(crate) fn serialize<T: Choice, S: Serializer>(value: &T, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(&value.word())
}

pub(crate) fn deserialize<'de, T: Choice, D: Deserializer<'de>>(deserializer: D) -> Result<T, D::Error> {
    let word = String::deserialize(deserializer)?;
    T::of(&word).ok_or_else(|| de::Error::unknown_variant(&word, T::WORDS))
}

/// Returns the schema of a choice, for the reference of recipes.
pub(crate) fn schema<T: Choice>(_: &mut SchemaGenerator) -> Schema {
    json_schema!({ "type": "string", "enum": T::WORDS })
}

/// A type whose values are written as words, except for one variant with a number.
pub(crate) trait WordOrNumber: DeserializeOwned {
    /// The words.
    const WORDS: &'static [&'static str];
    /// The words and the meaning of a number, for messages.
    const EXPECTED: &'static str;
}

/// Reads a word or a number.
pub(crate) fn word_or_number<'de, T: WordOrNumber, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<T, D::Error> {
    let value = toml::Value::deserialize(deserializer)?;
    T::deserialize(value.clone()).map_err(|_| match value.as_str() {
        Some(word) => de::Error::unknown_variant(word, T::WORDS),
        None => de::Error::invalid_value(Unexpected::Other(&value.to_string()), &T::EXPECTED),
    })
}

impl Choice for Spline {
    const WORDS: &'static [&'static str] = &[
        "linear",
        "cubic",
        "quintic",
        "hermite-7",
        "hermite-9",
        "hermite-11",
        "hermite-13",
        "hermite-15",
        "hermite-17",
    ];

    fn of(word: &str) -> Option<Self> {
        Self::from_str(word).ok()
    }

    fn word(&self) -> String {
        self.to_string()
    }
}

impl Choice for DrawBy {
    const WORDS: &'static [&'static str] = &["times", "intervals", "snapshots"];

    fn of(word: &str) -> Option<Self> {
        [Self::Time, Self::Interval, Self::Snapshot].into_iter().find(|by| by.word() == word)
    }

    fn word(&self) -> String {
        let place = match self {
            Self::Time => 0,
            Self::Interval => 1,
            Self::Snapshot => 2,
        };
        Self::WORDS[place].into()
    }
}

impl Choice for Precision {
    const WORDS: &'static [&'static str] = &["f32", "tf32", "bf16"];

    /// Accepts double precision too, which is for checks.
    fn of(word: &str) -> Option<Self> {
        Self::from_str(word).ok()
    }

    fn word(&self) -> String {
        self.to_string()
    }
}

impl Choice for RolloutPrecision {
    const WORDS: &'static [&'static str] = &["same", "f32", "tf32", "bf16"];

    fn of(word: &str) -> Option<Self> {
        match word {
            "same" => Some(Self::Same),
            word => Precision::of(word).map(Self::Own),
        }
    }

    fn word(&self) -> String {
        match self {
            Self::Same => "same".into(),
            Self::Own(precision) => precision.word(),
        }
    }
}

/// A Runge-Kutta method; `None` is that of the section.
impl Choice for Option<Tableau> {
    const WORDS: &'static [&'static str] = &["auto", "euler", "heun", "rk4", "dopri5", "tsit5"];

    fn of(word: &str) -> Option<Self> {
        match word {
            "auto" => Some(None),
            word => Tableau::by_name(word).map(Some),
        }
    }

    fn word(&self) -> String {
        self.map_or("auto", |tableau| tableau.name).into()
    }
}
