//! `key=value` assignments by their path.

use crate::error::{CfoError, Result};
use crate::objective::ObjectiveConfig;
use crate::operator::OperatorConfig;
use crate::recipe::Recipe;

/// Sets `a.b.c = value` in a table. The value is TOML, or a bare word that is read as a string.
pub(super) fn apply(table: &mut toml::Table, assignment: &str) -> Result<()> {
    let Some((key, value)) = assignment.split_once('=') else {
        return Err(CfoError::BadRecipe { problem: format!("`{assignment}` is not of the form key=value") });
    };
    let value = value.trim();
    let parsed =
        format!("value = {value}").parse::<toml::Table>().ok().and_then(|mut table| table.remove("value"));
    let value = parsed.unwrap_or_else(|| toml::Value::String(value.into()));
    let mut parts: Vec<&str> = key.trim().split('.').collect();
    let last = parts.pop().filter(|part| !part.is_empty());
    let Some(last) = last else {
        return Err(CfoError::BadRecipe { problem: format!("`{assignment}` names no key") });
    };
    let at_top = parts.is_empty();
    let mut at = table;
    for part in parts {
        let next = at.entry(part).or_insert_with(|| toml::Value::Table(toml::Table::new()));
        // The short form of a solver: the name of a method.
        if let ("solver", toml::Value::String(method)) = (part, &next) {
            *next = toml::Value::Table(
                [("method".into(), toml::Value::String(method.clone()))].into_iter().collect(),
            );
        }
        at = next.as_table_mut().ok_or_else(|| CfoError::BadRecipe {
            problem: format!("`{key}` goes through `{part}`, which is not a section"),
        })?;
    }
    if at_top && !value.is_table() && Recipe::is_section(last) {
        return Err(not_a_section(last, &value));
    }
    if last == "kind" {
        leave_what_both_have(at, key.trim(), &value);
    }
    at.insert(last.into(), value);
    Ok(())
}

/// Returns the error for a plain value in place of a section.
pub(super) fn not_a_section(section: &str, value: &toml::Value) -> CfoError {
    let problem = format!("{value} is not a section: `{section}` has keys");
    let hint = match (section, value.as_str()) {
        ("operator" | "objective", Some(word)) => format!("`{section}.kind = \"{word}\"` chooses its kind"),
        _ => format!(
            "set its keys one by one, as in `{section}.KEY = VALUE`; docs/reference/recipe.md lists them"
        ),
    };
    CfoError::bad_data(problem, hint)
}

/// Returns whether an override sets the kind of the operator or the objective.
pub(super) fn sets_kind(assignment: &str) -> bool {
    assignment
        .split_once('=')
        .is_some_and(|(key, _)| matches!(key.trim(), "operator.kind" | "objective.kind"))
}

/// Removes the keys of the old kind that the new kind does not have. The other keys of the new kind have their defaults.
fn leave_what_both_have(section: &mut toml::Table, key: &str, kind: &toml::Value) {
    let Some(old) = section.get("kind").cloned().filter(|old| old != kind) else { return };
    let takes = |kind: &toml::Value, name: &str, value: &toml::Value| {
        takes(key.trim_end_matches(".kind"), kind, name, value)
    };
    section.retain(|name, value| name == "kind" || !takes(&old, name, value) || takes(kind, name, value));
}

/// Returns whether a kind of operator or objective accepts a key with this value. Other sections have no kinds and accept all keys.
pub(super) fn takes(section: &str, kind: &toml::Value, name: &str, value: &toml::Value) -> bool {
    let pair = [("kind", kind), (name, value)].map(|(name, value)| (name.to_owned(), value.clone()));
    let table: toml::Table = pair.into_iter().collect();
    match section {
        "operator" => table.try_into::<OperatorConfig>().is_ok(),
        "objective" => table.try_into::<ObjectiveConfig>().is_ok(),
        _ => true,
    }
}
