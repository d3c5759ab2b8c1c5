//! Choices that a recipe spells as words and whose types live elsewhere: parsed once, refused with the words that are known.

use std::str::FromStr;

use cfo_engine::Precision;
use cfo_numerics::ode::Tableau;
use cfo_numerics::{DrawBy, Spline};
use schemars::{Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serializer, de};

use super::evaluate::{RolloutPrecision, RolloutSolver};

/// A value that a word stands for.
pub(crate) trait Choice: Sized {
    /// The words, for people.
    const WORDS: &'static [&'static str];

    /// The value of a word.
    fn of(word: &str) -> Option<Self>;

    /// The word of a value.
    fn word(&self) -> String;
}

pub(crate) fn serialize<T: Choice, S: Serializer>(value: &T, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(&value.word())
}

pub(crate) fn deserialize<'de, T: Choice, D: Deserializer<'de>>(deserializer: D) -> Result<T, D::Error> {
    let word = String::deserialize(deserializer)?;
    T::of(&word).ok_or_else(|| de::Error::unknown_variant(&word, T::WORDS))
}

/// The words, for the page of all keys.
pub(crate) fn schema<T: Choice>(_: &mut SchemaGenerator) -> Schema {
    json_schema!({ "type": "string", "enum": T::WORDS })
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

    /// Double precision too, which is for checks.
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

impl Choice for Tableau {
    const WORDS: &'static [&'static str] = &["euler", "heun", "rk4", "dopri5", "tsit5"];

    fn of(word: &str) -> Option<Self> {
        Self::by_name(word)
    }

    fn word(&self) -> String {
        self.name.into()
    }
}

impl Choice for RolloutSolver {
    const WORDS: &'static [&'static str] = &["auto", "euler", "heun", "rk4", "dopri5", "tsit5"];

    fn of(word: &str) -> Option<Self> {
        match word {
            "auto" => Some(Self::Auto),
            word => Tableau::of(word).map(Self::Method),
        }
    }

    fn word(&self) -> String {
        match self {
            Self::Auto => "auto".into(),
            Self::Method(tableau) => tableau.word(),
        }
    }
}
