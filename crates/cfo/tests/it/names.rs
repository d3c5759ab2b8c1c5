//! Names of types: one word for one thing in the whole workspace.

use std::collections::BTreeMap;
use std::path::Path;

use crate::layers::sources;

/// The types that a file makes visible outside of itself: `pub`, `pub(crate)` or `pub(super)`.
fn types(text: &str) -> Vec<&str> {
    let visible = text.lines().filter_map(|line| line.trim_start().strip_prefix("pub"));
    let declared = visible.filter_map(|line| {
        let line =
            line.strip_prefix('(').map_or(line, |rest| rest.split_once(')').map_or("", |(_, rest)| rest));
        let (keyword, rest) = line.trim_start().split_once(' ')?;
        ["struct", "enum", "trait", "type"].contains(&keyword).then_some(rest)
    });
    let names = declared.map(|rest| &rest[..rest.find(|c: char| !c.is_alphanumeric()).unwrap_or(rest.len())]);
    // Macros declare types of any name.
    names.filter(|name| !name.is_empty()).collect()
}

#[test]
fn types_have_names_of_their_own() {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let mut places: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for entry in std::fs::read_dir(crates).unwrap() {
        for path in sources(&entry.unwrap().path().join("src")) {
            let text = std::fs::read_to_string(&path).unwrap();
            let place = path.strip_prefix(crates).unwrap().display().to_string();
            for name in types(&text) {
                places.entry(name.to_owned()).or_default().push(place.clone());
            }
        }
    }
    // Each crate has its own alias of `Result`, by convention.
    places.retain(|name, places| name != "Result" && places.len() > 1);
    assert!(places.is_empty(), "{places:#?}");
}

#[test]
fn visible_types_are_found() {
    let text = "pub struct A;\n    pub(crate) enum Bc { D }\npub(in crate::x) trait E<T> {}\nstruct F;\npub fn g() {}\npub type H = A;";
    assert_eq!(types(text), ["A", "Bc", "E", "H"]);
}
