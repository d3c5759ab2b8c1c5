//! Translation of the TOML parser's errors into errors that name the key and the known choices.

use super::overrides::takes;
use crate::error::CfoError;

/// Converts the parser's message about a key or choice into one that names it, and the most similar known one if there is one.
pub(super) fn bad_recipe(error: &toml::de::Error, recipe: &toml::Table) -> CfoError {
    let message = error.message();
    let key = key(error).map(|key| within(recipe, &key).unwrap_or(key));
    let quoted: Vec<&str> = message.split('`').skip(1).step_by(2).collect();
    let unknown_choice = message.starts_with("unknown variant");
    match quoted.split_first() {
        Some((&found, known)) if unknown_choice && key.as_ref().is_some_and(|key| !key.ends_with("kind")) => {
            CfoError::UnknownChoice {
                key: key.unwrap_or_default(),
                found: found.into(),
                known: known.iter().map(ToString::to_string).collect(),
            }
        }
        Some((&found, known)) if unknown_choice || message.starts_with("unknown field") => {
            match near(found, known) {
                Some(nearest) => CfoError::UnknownKey { found: found.into(), nearest: Some(nearest.into()) },
                None => CfoError::BadRecipe {
                    problem: format!("unknown key or choice `{found}`; known are `{}`", known.join("`, `")),
                },
            }
        }
        // A number or a text where another kind of value belongs.
        _ if message.starts_with("invalid ") && key.as_ref().is_some_and(|key| key.contains('.')) => {
            CfoError::invalid(&key.unwrap_or_default(), plain(message))
        }
        // The full text says which key was at fault.
        _ => CfoError::BadRecipe {
            problem: error.to_string().split_whitespace().collect::<Vec<_>>().join(" "),
        },
    }
}

/// The key of a section that its kind does not take. The parser names only the section.
fn within(recipe: &toml::Table, section: &str) -> Option<String> {
    let keys = recipe.get(section)?.as_table()?;
    let kind = keys.get("kind")?;
    let mut others = keys.iter().filter(|(name, _)| *name != "kind");
    let (name, _) = others.find(|(name, value)| !takes(section, kind, name, value))?;
    Some(format!("{section}.{name}"))
}

/// The parser's words without the names of its types.
fn plain(message: &str) -> String {
    let words = [
        ("usize", "a whole number, 0 or more"),
        ("u32", "a whole number, 0 or more"),
        ("u64", "a whole number, 0 or more"),
        ("f64", "a number"),
        ("a boolean", "`true` or `false`"),
    ];
    let expected = |(word, plain): (&str, &str)| {
        Some(format!("{}, expected {plain}", message.strip_suffix(word)?.strip_suffix(", expected ")?))
    };
    words.into_iter().find_map(expected).unwrap_or_else(|| message.to_owned())
}

/// The key at fault, by its path.
fn key(error: &toml::de::Error) -> Option<String> {
    let text = error.to_string();
    let place = text.lines().find_map(|line| line.trim().strip_prefix("in `")?.strip_suffix('`'))?;
    Some(place.to_owned())
}

/// The nearest known word, if it is so near that it may be meant.
pub(crate) fn near<'a>(found: &str, known: &[&'a str]) -> Option<&'a str> {
    nearest(found, known).filter(|word| 2 * edits(found, word) <= found.len())
}

/// The known word with the fewest edits to the one found.
pub(crate) fn nearest<'a>(found: &str, known: &[&'a str]) -> Option<&'a str> {
    known.iter().copied().min_by_key(|word| edits(found, word))
}

fn edits(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.chars().enumerate() {
        let mut diagonal = i;
        row[0] = i + 1;
        for (j, y) in b.iter().enumerate() {
            let replaced = diagonal + usize::from(x != *y);
            diagonal = row[j + 1];
            row[j + 1] = replaced.min(row[j] + 1).min(diagonal + 1);
        }
    }
    row[b.len()]
}
