//! What the parser refuses, said with the key at fault and the words that are known.

use crate::error::CfoError;

/// Turns the parser's message about an unknown key or choice into one that names the nearest known one, if any is near.
pub(super) fn bad_recipe(error: &toml::de::Error) -> CfoError {
    let message = error.message();
    let quoted: Vec<&str> = message.split('`').skip(1).step_by(2).collect();
    let unknown_choice = message.starts_with("unknown variant");
    match quoted.split_first() {
        Some((&found, known)) if unknown_choice && key(error).is_some_and(|key| !key.ends_with("kind")) => {
            CfoError::UnknownChoice {
                key: key(error).unwrap_or_default(),
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
        // The full text says which key was at fault.
        _ => CfoError::BadRecipe {
            problem: error.to_string().split_whitespace().collect::<Vec<_>>().join(" "),
        },
    }
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
