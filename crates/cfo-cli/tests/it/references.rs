//! The reference pages are complete: keys of JSON documents, environment variables, and texts of messages.

use std::collections::BTreeSet;
use std::path::Path;

use serde_json::Value;

use crate::util::Folder;

/// Collects the paths of all keys: `a.b`, and `a[].b` in lists.
pub fn keys(value: &Value, path: &str, found: &mut BTreeSet<String>) {
    match value {
        Value::Object(entries) => {
            for (key, value) in entries {
                let path = if path.is_empty() { key.clone() } else { format!("{path}.{key}") };
                keys(value, &path, found);
            }
        }
        Value::Array(entries) => {
            found.insert(format!("{path}[]"));
            for entry in entries.iter().filter(|entry| entry.is_object()) {
                keys(entry, &format!("{path}[]"), found);
            }
        }
        _ => {
            found.insert(path.to_owned());
        }
    }
}

#[test]
fn every_key_is_in_the_reference() {
    let page = include_str!("../../../../docs/reference/json.md");
    let folder = Folder::new();
    let train = "--data burgers.h5 --set train.steps=4 --set operator.width=4 --json";
    for (section, line) in [
        ("cfo devices", "devices --json".to_owned()),
        (
            "cfo simulate",
            "simulate burgers --samples 12 --grid 32 --frames 11 --out burgers.h5 --json".into(),
        ),
        ("cfo inspect", "inspect burgers.h5 --json".into()),
        ("cfo train", format!("train {train} --out run --set operator.kind=fno --set operator.blocks=1")),
        ("cfo train", format!("train {train} --dry-run --set operator.kind=fno --set operator.blocks=1")),
        ("cfo evaluate", "evaluate run --data burgers.h5 --json".into()),
        (
            "cfo predict",
            "predict run --initial burgers.h5 --split test --times 0:1:3 --out p.h5 --json".into(),
        ),
        ("cfo view", "view run burgers.h5 --out page.html --json".into()),
        ("cfo export", "export burgers.h5 --out burgers.nc --json".into()),
        ("cfo bench", "bench sampler --model mlp --batch 16 --repetitions 1 --json".into()),
        ("cfo reproduce", "reproduce table1 --system lorenz --dry-run --json".into()),
    ] {
        let printed = folder.cfo(&line).done().json();
        let mut found = BTreeSet::new();
        keys(&printed, "", &mut found);
        let start = format!("`{section}`\n");
        let part = page.split("\n## ").find(|part| part.starts_with(&start));
        let part = part.unwrap_or_else(|| panic!("docs/reference/json.md has no section `{section}`"));
        for key in found {
            let named = part.contains(&format!("`{key}`")) || part.contains(&format!("`{key}."));
            assert!(named, "`{key}` of `cfo {line}` is missing in docs/reference/json.md");
        }
    }
}

/// Returns the text of all files with this extension in the folders of the workspace.
fn sources(extensions: &[&str]) -> String {
    fn collect(folder: &Path, extensions: &[&str], text: &mut String) {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                collect(&path, extensions, text);
            } else if path.extension().is_some_and(|found| extensions.iter().any(|one| found == *one)) {
                text.push_str(&std::fs::read_to_string(&path).unwrap());
            }
        }
    }
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut text = String::new();
    for folder in ["crates", "python", "scripts"] {
        collect(&root.join(folder), extensions, &mut text);
    }
    text
}

#[test]
fn every_variable_is_in_the_reference() {
    let page = include_str!("../../../../docs/reference/environment.md");
    let text = sources(&["rs", "py", "sh"]);
    let is_part = |c: char| c.is_ascii_uppercase() || c.is_ascii_digit() || c == '_';
    let names: BTreeSet<&str> =
        text.split(|c| !is_part(c)).filter(|name| name.starts_with("CFO_") && name.len() > 4).collect();
    assert!(names.len() > 8, "{names:?}");
    for name in names {
        assert!(page.contains(&format!("`{name}`")), "{name} is missing in docs/reference/environment.md");
    }
}

/// The messages of `docs/reference/errors.md` are those of the program; words in capitals stand for names and numbers.
#[test]
fn messages_of_the_reference_are_those_of_the_program() {
    let page = include_str!("../../../../docs/reference/errors.md");
    let plain = |text: &str| text.replace('`', "").split_whitespace().collect::<Vec<_>>().join(" ");
    let text = plain(&sources(&["rs"]).replace("\\\n", " "));
    let mut count = 0;
    for line in page.lines().filter(|line| line.starts_with("| `")) {
        let message = line[3..].split('`').next().unwrap_or_default();
        let is_placeholder = |word: &str| {
            let letters = word.trim_matches(|c: char| !c.is_ascii_alphanumeric());
            letters.chars().all(|c| c.is_ascii_uppercase()) || letters == "NaN"
        };
        let mut part = Vec::new();
        for word in message.split(' ').chain(["X"]) {
            if !is_placeholder(word) {
                part.push(word);
                continue;
            }
            let fixed = part.join(" ");
            assert!(fixed.len() < 8 || text.contains(&fixed), "no message has `{fixed}` of `{message}`");
            part.clear();
        }
        count += 1;
    }
    assert!(count > 40, "{count}");
}
