//! The key `solver` of three sections: a Runge-Kutta method and how its step sizes are chosen.

use std::fmt;

use cfo_numerics::ode::{Controller, Tableau};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::value::MapAccessDeserializer;
use serde::de::{self, IntoDeserializer};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::choice;
use super::choice::Choice;
use super::ranges::not_negative;
use crate::error::{CfoError, Result};

/// How a field is integrated. In a recipe it is the name of a method, or a table with the keys below.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(remote = "Self", deny_unknown_fields, default)]
pub struct Integration {
    /// Method: `auto`, `euler`, `heun`, `rk4`, `dopri5` or `tsit5`; what `auto` is depends on the section.
    #[serde(with = "choice")]
    #[schemars(schema_with = "choice::schema::<Option<Tableau>>")]
    pub method: Option<Tableau>,
    /// Equal steps per interval between snapshots. With 0, methods that estimate their error choose steps by the tolerances, and the others
    /// take one step.
    pub steps: usize,
    /// Relative tolerance of adaptive steps.
    pub rtol: f64,
    /// Absolute tolerance of adaptive steps, in normalised units.
    pub atol: f64,
}

impl Default for Integration {
    fn default() -> Self {
        Self { method: None, steps: 0, rtol: 1e-4, atol: 1e-6 }
    }
}

impl Integration {
    /// Returns the method alone, with the default tolerances.
    pub fn by(method: Tableau) -> Self {
        Self { method: Some(method), ..Self::default() }
    }

    /// Returns whether steps are chosen by the tolerances, where `usual` is the method of the section.
    pub(crate) fn is_adaptive(&self, usual: Tableau) -> bool {
        self.steps == 0 && self.method.unwrap_or(usual).estimates_error()
    }

    pub(crate) fn controller(&self) -> Controller {
        Controller::new(self.rtol, self.atol)
    }

    pub(super) fn check(&self, key: &str) -> Result<()> {
        for (name, value) in [("rtol", self.rtol), ("atol", self.atol)] {
            not_negative(&format!("{key}.{name}"), value)?;
        }
        if self.rtol + self.atol <= 0.0 {
            return Err(CfoError::invalid(format!("{key}.rtol"), "one of the tolerances must be positive"));
        }
        Ok(())
    }
}

/// Returns the schema of a key `solver`: the name of a method or a table.
pub(super) fn schema(generator: &mut SchemaGenerator) -> Schema {
    let table = generator.subschema_for::<Integration>();
    json_schema!({ "anyOf": [{ "type": "string", "enum": Option::<Tableau>::WORDS }, table] })
}

// `Integration::serialize` and `Integration::deserialize` are the derived functions, for the table.
impl Serialize for Integration {
    fn serialize<S: Serializer>(&self, serializer: S) -> std::result::Result<S::Ok, S::Error> {
        match *self == (Self { method: self.method, ..Self::default() }) {
            true => choice::serialize(&self.method, serializer),
            false => Self::serialize(self, serializer),
        }
    }
}

impl<'de> Deserialize<'de> for Integration {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> std::result::Result<Self, D::Error> {
        struct Visitor;
        impl<'de> de::Visitor<'de> for Visitor {
            type Value = Integration;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("the name of a method, or a table with `method`, `steps`, `rtol` and `atol`")
            }

            fn visit_str<E: de::Error>(self, word: &str) -> std::result::Result<Integration, E> {
                let method = choice::deserialize(word.into_deserializer())?;
                Ok(Integration { method, ..Integration::default() })
            }

            fn visit_map<A: de::MapAccess<'de>>(self, map: A) -> std::result::Result<Integration, A::Error> {
                Integration::deserialize(MapAccessDeserializer::new(map))
            }
        }
        deserializer.deserialize_any(Visitor)
    }
}

#[cfg(test)]
mod tests {
    use cfo_numerics::ode::{RK4, TSIT5};

    use crate::recipe::{Integration, Recipe};

    fn solver(text: &str, keys: &[&str]) -> Integration {
        let keys: Vec<String> = keys.iter().map(ToString::to_string).collect();
        let recipe = Recipe::parse(text, &keys).unwrap();
        let again = Recipe::parse(&recipe.to_toml().unwrap(), &[]).unwrap();
        assert_eq!(again, recipe, "{}", recipe.to_toml().unwrap());
        recipe.evaluate.solver
    }

    #[test]
    fn a_name_and_a_table_describe_a_solver() {
        assert_eq!(solver("", &[]), Integration::default());
        assert_eq!(solver("[evaluate]\nsolver = \"rk4\"\n", &[]), Integration::by(RK4));
        let table = "[evaluate]\nsolver = { method = \"rk4\", steps = 2 }\n";
        assert_eq!(solver(table, &[]), Integration { steps: 2, ..Integration::by(RK4) });
        // An override of one key keeps the others, also where a name was given.
        let loose = Integration { rtol: 1e-2, ..Integration::by(TSIT5) };
        assert_eq!(solver("[evaluate]\nsolver = \"tsit5\"\n", &["evaluate.solver.rtol=1e-2"]), loose);
        assert_eq!(solver(table, &["evaluate.solver=tsit5", "evaluate.solver.rtol=0.01"]), loose);
    }

    #[test]
    fn what_is_wrong_is_named_by_its_path() {
        let refused = |key: &str| Recipe::parse("", &[key.into()]).unwrap_err();
        assert_eq!(refused("evaluate.solver.rtoll=1").nearest(), Some("rtol"));
        assert!(refused("evaluate.solver=rk5").to_string().contains("`rk5`"));
        assert!(
            refused("objective={kind=\"neural-ode\",solver={atol=-1}}")
                .to_string()
                .contains("objective.solver.atol")
        );
        assert!(refused("finetune.solver=3").to_string().contains("the name of a method"));
    }
}
