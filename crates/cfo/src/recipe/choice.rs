//! Choices that a recipe spells as words and whose types live elsewhere: parsed once, refused with the words that are known.

use std::str::FromStr;

use cfo_engine::Precision;
use cfo_numerics::{DrawBy, Spline};
use schemars::{Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serializer, de};

use super::evaluate::RolloutPrecision;

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

/// A value that a word or a number stands for.
pub(crate) trait WordOrNumber: Sized {
    /// The words.
    const WORDS: &'static [&'static str];
    /// The words and the meaning of a number, for messages.
    const EXPECTED: &'static str;

    /// The value of a word.
    fn of_word(word: &str) -> Option<Self>;

    /// The value of a number.
    fn of_number(number: f64) -> Self;

    /// The word or the number of a value.
    fn written(&self) -> std::result::Result<&'static str, f64>;
}

/// Reads and writes values that are a word or a number; for `#[serde(with)]`.
pub(crate) mod word_or_number {
    use std::fmt;
    use std::marker::PhantomData;

    use serde::{Deserializer, Serializer, de};

    use super::WordOrNumber;

    pub(crate) fn serialize<T: WordOrNumber, S: Serializer>(
        value: &T,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        match value.written() {
            Ok(word) => serializer.serialize_str(word),
            Err(number) => serializer.serialize_f64(number),
        }
    }

    pub(crate) fn deserialize<'de, T: WordOrNumber, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<T, D::Error> {
        struct Visitor<T>(PhantomData<T>);
        impl<T: WordOrNumber> de::Visitor<'_> for Visitor<T> {
            type Value = T;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(T::EXPECTED)
            }

            fn visit_str<E: de::Error>(self, word: &str) -> Result<T, E> {
                T::of_word(word).ok_or_else(|| E::unknown_variant(word, T::WORDS))
            }

            fn visit_f64<E: de::Error>(self, number: f64) -> Result<T, E> {
                Ok(T::of_number(number))
            }

            fn visit_i64<E: de::Error>(self, number: i64) -> Result<T, E> {
                Ok(T::of_number(number as f64))
            }

            fn visit_u64<E: de::Error>(self, number: u64) -> Result<T, E> {
                Ok(T::of_number(number as f64))
            }
        }
        deserializer.deserialize_any(Visitor(PhantomData))
    }
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
