//! Reads a recipe from a TOML table. Errors contain what was found, and what is known or expected.

use std::fmt::Display;

use serde::de::value::{MapDeserializer, SeqDeserializer};
use serde::de::{self, Deserialize, Deserializer, Expected, IntoDeserializer, Unexpected, Visitor};
use serde::forward_to_deserialize_any;
use toml::Value;

/// The reason why a value cannot be read.
#[derive(Debug, thiserror::Error)]
pub(super) enum Problem {
    #[error("unknown key `{found}`; known are `{}`", known.join("`, `"))]
    UnknownKey { found: String, known: &'static [&'static str] },
    #[error("unknown choice `{found}`; known are `{}`", known.join("`, `"))]
    UnknownChoice { found: String, known: &'static [&'static str] },
    #[error("{0}")]
    Invalid(String),
}

impl Problem {
    fn invalid(found: String, expected: &dyn Expected) -> Self {
        let expected = expected.to_string();
        let plain = match expected.as_str() {
            "usize" | "u32" | "u64" => "a whole number, 0 or more",
            "f64" => "a number",
            "a boolean" => "`true` or `false`",
            other => other,
        };
        Self::Invalid(format!("invalid {found}, expected {plain}"))
    }
}

impl de::Error for Problem {
    fn custom<T: Display>(text: T) -> Self {
        Self::Invalid(text.to_string())
    }

    fn unknown_field(found: &str, known: &'static [&'static str]) -> Self {
        Self::UnknownKey { found: found.into(), known }
    }

    fn unknown_variant(found: &str, known: &'static [&'static str]) -> Self {
        Self::UnknownChoice { found: found.into(), known }
    }

    fn invalid_type(found: Unexpected<'_>, expected: &dyn Expected) -> Self {
        Self::invalid(format!("type: {found}"), expected)
    }

    fn invalid_value(found: Unexpected<'_>, expected: &dyn Expected) -> Self {
        Self::invalid(format!("value: {found}"), expected)
    }

    fn invalid_length(found: usize, expected: &dyn Expected) -> Self {
        Self::invalid(format!("length {found}"), expected)
    }
}

/// Reads a table. An error contains the path of the invalid key.
pub(super) fn read<'de, T: Deserialize<'de>>(table: toml::Table) -> Result<T, (String, Problem)> {
    serde_path_to_error::deserialize(Source(Value::Table(table))).map_err(|error| {
        let path = error.path().to_string();
        // Without the place in a list.
        let key = path.split('[').next().unwrap_or_default();
        (key.to_owned(), error.into_inner())
    })
}

struct Source(Value);

impl IntoDeserializer<'_, Problem> for Source {
    type Deserializer = Self;

    fn into_deserializer(self) -> Self {
        self
    }
}

impl<'de> Deserializer<'de> for Source {
    type Error = Problem;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Problem> {
        match self.0 {
            Value::String(text) => visitor.visit_string(text),
            Value::Integer(number) => visitor.visit_i64(number),
            Value::Float(number) => visitor.visit_f64(number),
            Value::Boolean(flag) => visitor.visit_bool(flag),
            Value::Datetime(time) => visitor.visit_string(time.to_string()),
            Value::Array(values) => {
                SeqDeserializer::new(values.into_iter().map(Self)).deserialize_any(visitor)
            }
            Value::Table(table) => {
                let entries = table.into_iter().map(|(key, value)| (key, Self(value)));
                MapDeserializer::new(entries).deserialize_any(visitor)
            }
        }
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Problem> {
        visitor.visit_some(self)
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _: &'static str,
        known: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Problem> {
        match self.0 {
            Value::String(word) => visitor.visit_enum(word.into_deserializer()),
            other => Err(Problem::UnknownChoice { found: other.to_string(), known }),
        }
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf unit unit_struct seq tuple tuple_struct
        newtype_struct map struct identifier ignored_any
    }
}
