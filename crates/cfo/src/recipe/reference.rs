//! The keys that are not set, as comments in a run's `recipe.toml`.

use std::fmt::Write;

use schemars::schema_for;
use serde_json::Value;

use crate::recipe::Recipe;

impl Recipe {
    /// Returns the TOML text of this recipe with a comment for each key that is not set.
    pub(crate) fn with_unset_keys(&self, text: &str) -> String {
        let schema = schema_for!(Recipe);
        let root = schema.as_value();
        let table: toml::Table = text.parse().unwrap_or_default();
        let mut whole = String::new();
        for line in text.lines() {
            let _ = writeln!(whole, "{line}");
            let Some(section) = line.strip_prefix('[').and_then(|line| line.strip_suffix(']')) else {
                continue;
            };
            let own = table.get(section).and_then(toml::Value::as_table);
            let kind = match section {
                "operator" => Some(self.operator.name()),
                "objective" => Some(self.objective.name()),
                _ => None,
            };
            for key in keys(root, section, kind).filter(|key| own.is_none_or(|own| !own.contains_key(*key))) {
                let _ = writeln!(whole, "# {key} is not set");
            }
        }
        whole
    }
}

/// Returns the names of the keys of a section, for one of its kinds if it has several.
fn keys<'a>(root: &'a Value, section: &str, kind: Option<&str>) -> impl Iterator<Item = &'a str> {
    let target = resolve(root, &root["properties"][section]);
    let mut kinds = target["oneOf"].as_array().into_iter().flatten();
    let body = kinds.find(|variant| variant["properties"]["kind"]["const"].as_str() == kind);
    let properties = resolve(root, body.unwrap_or(target))["properties"].as_object();
    properties.into_iter().flatten().map(|(name, _)| name.as_str()).filter(|name| *name != "kind")
}

/// Returns the definition that a schema refers to, or the schema itself.
pub(super) fn resolve<'a>(root: &'a Value, schema: &'a Value) -> &'a Value {
    match schema["$ref"].as_str().and_then(|reference| reference.strip_prefix("#/$defs/")) {
        Some(name) => &root["$defs"][name],
        None => schema,
    }
}
