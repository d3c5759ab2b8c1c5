//! Errors that name the key of a recipe and the known choices.

use super::overrides::takes;
use super::read::Problem;
use crate::error::{CfoError, near};

/// Returns the error for a key, with the most similar known key or choice if there is one.
pub(super) fn bad_recipe((path, problem): (String, Problem), recipe: &toml::Table) -> CfoError {
    let key = within(recipe, &path).unwrap_or(path);
    match problem {
        Problem::UnknownChoice { found, known } if !key.ends_with("kind") => {
            CfoError::UnknownChoice { key, found, known: known.iter().map(ToString::to_string).collect() }
        }
        Problem::UnknownChoice { found, known } | Problem::UnknownKey { found, known } => {
            match near(&found, known) {
                Some(nearest) => CfoError::UnknownKey { nearest: Some(nearest.into()), found },
                None => CfoError::BadRecipe {
                    problem: format!("unknown key or choice `{found}`; known are `{}`", known.join("`, `")),
                },
            }
        }
        Problem::Invalid(problem) => CfoError::invalid(&key, problem),
    }
}

/// Returns the key of a section that its kind does not accept. Sections with kinds are read as a whole, so that errors name only the
/// section.
fn within(recipe: &toml::Table, section: &str) -> Option<String> {
    let keys = recipe.get(section)?.as_table()?;
    let kind = keys.get("kind")?;
    let mut others = keys.iter().filter(|(name, _)| *name != "kind");
    let (name, _) = others.find(|(name, value)| !takes(section, kind, name, value))?;
    Some(format!("{section}.{name}"))
}
