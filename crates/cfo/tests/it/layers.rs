//! The layers of the crate. Each module uses only modules of its layer or of lower ones.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

/// Top-level modules from bottom to top. Models and objectives are one layer: models have objectives, which append the networks of models.
const LAYERS: [&[&str]; 12] = [
    &["error"],
    &["ranks"],
    &["operator"],
    &["recipe"],
    &["paper"],
    &["trajectories"],
    &["measure"],
    &["model", "objective"],
    &["run"],
    &["predict"],
    &["train"],
    &["proposal"],
];

/// A module that uses one of a higher layer: a recipe contains the keys of its objective, which are in the objective's file.
const UPWARD: (&str, &str) = ("recipe", "objective");

/// Returns the Rust files below a folder.
pub fn sources(folder: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let (folders, files): (Vec<_>, Vec<_>) = entries.partition(|path| path.is_dir());
    let rust = files.into_iter().filter(|path| path.extension().is_some_and(|extension| extension == "rs"));
    rust.chain(folders.iter().flat_map(|folder| sources(folder))).collect()
}

/// Returns source text without comments and without its module of tests.
fn code(text: &str) -> String {
    let text = text.split("#[cfg(test)]\nmod tests").next().unwrap_or_default();
    let lines = text.lines().map(|line| line.split("//").next().unwrap_or_default());
    lines.collect::<Vec<_>>().join("\n")
}

/// Returns the modules after `crate::`, in paths and in the braces of `use crate::{...}`.
fn modules(code: &str) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    let mut word = |text: &str| {
        let end = text.find(|c: char| !(c.is_alphanumeric() || c == '_')).unwrap_or(text.len());
        found.insert(text[..end].to_owned());
    };
    for rest in code.split("crate::").skip(1) {
        let Some(list) = rest.strip_prefix('{') else {
            word(rest);
            continue;
        };
        let mut depth = 0;
        let mut start = true;
        for (place, c) in list.char_indices() {
            match c {
                '{' => depth += 1,
                '}' if depth == 0 => break,
                '}' => depth -= 1,
                ',' if depth == 0 => start = true,
                _ if start && c.is_alphabetic() => {
                    word(&list[place..]);
                    start = false;
                }
                _ => {}
            }
        }
    }
    found
}

#[test]
fn layers_use_only_layers_below_them() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let layer = |module: &str| LAYERS.iter().position(|names| names.contains(&module));
    let mut wrong = Vec::new();
    for path in sources(&root) {
        let place = path.strip_prefix(&root).unwrap();
        let module = place.iter().next().unwrap().to_str().unwrap().trim_end_matches(".rs").to_owned();
        if module == "lib" || place.ends_with("tests.rs") {
            continue;
        }
        let own = layer(&module).unwrap_or_else(|| panic!("`{module}` has no layer"));
        for used in modules(&code(&std::fs::read_to_string(&path).unwrap())) {
            match layer(&used) {
                Some(other) if other <= own || (module.as_str(), used.as_str()) == UPWARD => {}
                Some(_) => wrong.push(format!("{} uses `{used}`", place.display())),
                None => wrong.push(format!("{} uses `crate::{used}`; name its module", place.display())),
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn modules_are_found_in_paths_and_in_lists() {
    let text =
        "use crate::run::{Log, timed};\nuse crate::{error::{A, b}, train, x_y::Z};\n crate::ranks::job();";
    let found: Vec<String> = modules(text).into_iter().collect();
    assert_eq!(found, ["error", "ranks", "run", "train", "x_y"]);
    assert!(
        !code("let a = 1; // crate::train\n#[cfg(test)]\nmod tests { use crate::train; }").contains("train")
    );
}
