//! The reference of recipes, `docs/reference/recipe.md`, generated from the types: every key with its type, default and meaning.

use std::fmt::Write;

use schemars::schema_for;
use serde_json::Value;

use crate::recipe::reference::resolve;
use crate::recipe::{Integration, Recipe};

/// A key of a section.
#[derive(Clone, Debug, PartialEq)]
struct Key {
    name: String,
    kind: String,
    /// As TOML; `None` if it is not set by default.
    default: Option<String>,
    meaning: String,
}

/// A section, or the part of it that belongs to one `kind`.
#[derive(Clone, Debug, PartialEq)]
struct Section {
    name: String,
    /// The `kind` to which it belongs.
    kind: Option<String>,
    meaning: String,
    keys: Vec<Key>,
}

/// Returns the reference of recipes as Markdown: every key with its type, default and meaning.
fn reference() -> String {
    let mut text = String::from(
        "# Recipe\n\n\
             A recipe is a training configuration in TOML. This page lists every key with its type, default and meaning. It is\n\
             generated from the types in `crates/cfo/src/recipe/`.\n\n\
             - A key that is left out has its default. Networks, splines and noise have the paper's values by default; other\n\
             \x20 keys, such as `path.unit` and `evaluate.solver`, have our choice.\n\
             - `cfo init FILE` writes a recipe for a trajectory file, with a reason for each choice.\n\
             - `--set section.key=VALUE` overrides a key. `--set operator.kind=KIND` uses the defaults of that kind and keeps the\n\
             \x20 keys that both kinds have.\n\
             - The `recipe.toml` in the folder of a run lists every key.\n",
    );
    for section in sections().into_iter().chain([solver_table()]) {
        let kind = section.kind.as_ref().map(|kind| format!(" with `kind = \"{kind}\"`"));
        let _ = write!(
            text,
            "\n## `[{}]`{}\n\n{}\n\n",
            section.name,
            kind.unwrap_or_default(),
            wrapped(&section.meaning)
        );
        if section.keys.is_empty() {
            text.push_str("This kind has no keys.\n");
            continue;
        }
        text.push_str("| key | type | default | meaning |\n|---|---|---|---|\n");
        for key in &section.keys {
            let default = key.default.as_ref().map_or("not set".into(), |default| format!("`{default}`"));
            let _ = writeln!(text, "| `{}` | {} | {default} | {} |", key.name, key.kind, key.meaning);
        }
    }
    text
}

/// Returns all sections in the order of the recipe, with one for each kind of operator and objective.
fn sections() -> Vec<Section> {
    let schema = schema_for!(Recipe);
    let root = schema.as_value();
    let mut sections = Vec::new();
    for name in ["data", "path", "latent", "operator", "objective", "train", "refine", "finetune", "evaluate"]
    {
        let property = &root["properties"][name];
        let target = resolve(root, property);
        let meaning = text(property).or_else(|| text(target)).unwrap_or_default();
        let Some(kinds) = target["oneOf"].as_array() else {
            sections.push(Section { name: name.into(), kind: None, meaning, keys: keys(root, target, "") });
            continue;
        };
        for variant in kinds {
            let body = resolve(root, variant);
            let kind = variant["properties"]["kind"]["const"].as_str().map(ToOwned::to_owned);
            let both = [text(variant), text(body).filter(|_| body != variant)];
            let meaning = both.into_iter().flatten().collect::<Vec<_>>().join(" ");
            sections.push(Section { name: name.into(), kind, meaning, keys: keys(root, body, "") });
        }
    }
    let known: Vec<&String> = root["properties"].as_object().into_iter().flat_map(|map| map.keys()).collect();
    debug_assert!(
        known.iter().all(|key| sections.iter().any(|section| &section.name == *key)),
        "a section of the recipe is missing here: {known:?}"
    );
    sections
}

/// Returns the keys of the table that describes a solver.
fn solver_table() -> Section {
    let schema = schema_for!(Integration);
    let meaning = "The key `solver` of these sections is the name of a method or a table with these keys, as in `solver = { method = \"rk4\", steps = 2 }`.";
    let keys = keys(schema.as_value(), schema.as_value(), "");
    Section {
        name: "objective.solver]`, `[finetune.solver]` and `[evaluate.solver".into(),
        kind: None,
        meaning: meaning.into(),
        keys,
    }
}

/// Returns the doc comment on one line.
fn text(schema: &Value) -> Option<String> {
    let text = schema["description"].as_str()?;
    let line = text.split_whitespace().collect::<Vec<_>>().join(" ");
    Some(line.replace('|', "\\|"))
}

/// Returns the keys of an object; those of nested tables with their path.
fn keys(root: &Value, object: &Value, prefix: &str) -> Vec<Key> {
    let properties = object["properties"].as_object();
    let mut found = Vec::new();
    for (name, property) in properties.into_iter().flatten().filter(|(name, _)| *name != "kind") {
        let target = resolve(root, property);
        let path = format!("{prefix}{name}");
        if target["properties"].is_object() {
            let mut inside = keys(root, target, &format!("{path}."));
            for key in &mut inside {
                let own = property["default"].pointer(&format!("/{}", &key.name[path.len() + 1..]));
                key.default = own.and_then(toml).or(key.default.take());
            }
            found.extend(inside);
            continue;
        }
        let meaning = text(property).or_else(|| text(target)).unwrap_or_default();
        let default = property.get("default").and_then(toml);
        found.push(Key { name: path, kind: kind(root, property), default, meaning });
    }
    found
}

/// Returns a default as TOML; `None` for null.
fn toml(value: &Value) -> Option<String> {
    toml::Value::try_from(value).ok().filter(|_| !value.is_null()).map(|value| value.to_string())
}

/// Returns the type in words.
fn kind(root: &Value, schema: &Value) -> String {
    let schema = resolve(root, schema);
    if let Some(choice) = schema["const"].as_str() {
        return format!("`\"{choice}\"`");
    }
    if let Some(choices) = schema["enum"].as_array() {
        return words(choices.iter());
    }
    if let Some(options) = schema["oneOf"].as_array().or(schema["anyOf"].as_array()) {
        let constants: Vec<&Value> = options.iter().filter_map(|option| option.get("const")).collect();
        if constants.len() == options.len() {
            return words(constants.into_iter());
        }
        return joined(options.iter().map(|option| kind(root, option)));
    }
    let named = |name: &Value| match name.as_str().unwrap_or_default() {
        "boolean" => "`true` or `false`".to_owned(),
        "integer" => "whole number".into(),
        "number" => "number".into(),
        "string" => "text".into(),
        "array" => {
            let item = kind(root, &schema["items"]);
            let item = if item.is_empty() { kind(root, &schema["prefixItems"][0]) } else { item };
            match schema["minItems"].as_u64().filter(|_| schema["minItems"] == schema["maxItems"]) {
                Some(count) => format!("list of {count}: {item}"),
                None => format!("list: {item}"),
            }
        }
        "null" => String::new(),
        "object" => "table".into(),
        other => other.into(),
    };
    let names = schema["type"].as_array().map_or(std::slice::from_ref(&schema["type"]), Vec::as_slice);
    joined(names.iter().map(named))
}

/// Returns a paragraph with lines of at most 120 characters.
fn wrapped(paragraph: &str) -> String {
    let mut lines = vec![String::new()];
    for word in paragraph.split_whitespace() {
        let is_full = lines.last().is_some_and(|line| !line.is_empty() && line.len() + 1 + word.len() > 120);
        if is_full {
            lines.push(String::new());
        }
        if let Some(line) = lines.last_mut() {
            let space = if line.is_empty() { "" } else { " " };
            line.push_str(space);
            line.push_str(word);
        }
    }
    lines.join("\n")
}

/// Joins the types that are not empty.
fn joined(kinds: impl Iterator<Item = String>) -> String {
    kinds.filter(|kind| !kind.is_empty()).collect::<Vec<_>>().join(" or ")
}

/// Returns a list of choices.
fn words<'a>(choices: impl Iterator<Item = &'a Value>) -> String {
    choices
        .filter(|choice| !choice.is_null())
        .map(|choice| format!("`{choice}`"))
        .collect::<Vec<_>>()
        .join(", ")
}

/// Checks the page. `CFO_BLESS=1 cargo test -p cfo reference` rewrites it.
#[test]
fn the_page_lists_every_key_as_the_types_have_it() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/reference/recipe.md");
    let made = reference();
    if std::env::var_os("CFO_BLESS").is_some() {
        std::fs::write(path, &made).unwrap();
    }
    let found = std::fs::read_to_string(path).unwrap_or_default();
    assert!(
        found == made,
        "docs/reference/recipe.md is out of date; `CFO_BLESS=1 cargo test -p cfo reference` rewrites it"
    );
}

#[test]
fn keys_have_types_defaults_and_meanings() {
    let sections = sections();
    let key = |section: &str, name: &str| {
        let keys = sections.iter().filter(|one| one.name == section).flat_map(|one| &one.keys);
        keys.clone().find(|key| key.name == name).cloned().unwrap_or_else(|| panic!("{section}.{name}"))
    };
    let steps = key("train", "steps");
    assert_eq!((steps.kind.as_str(), steps.default.as_deref()), ("whole number", Some("60000")));
    assert_eq!(key("data", "path").default, None);
    assert_eq!(key("path", "noise.amplitude").default.as_deref(), Some("0.00001"));
    assert!(key("operator", "padding").kind.contains("`\"circular\"`"));
    for section in &sections {
        assert!(!section.meaning.is_empty(), "{section:?}");
        for key in &section.keys {
            assert!(!key.meaning.is_empty() && !key.kind.is_empty(), "{}: {key:?}", section.name);
        }
    }
}

#[test]
fn a_written_recipe_names_every_key() {
    let recipe = Recipe::parse("[operator]\nkind = \"unet\"", &[]).unwrap();
    let text = recipe.to_toml().unwrap();
    assert_eq!(Recipe::parse(&text, &[]).unwrap(), recipe);
    for (name, kind) in [("data", None), ("train", None), ("operator", Some("unet")), ("evaluate", None)] {
        let section =
            sections().into_iter().find(|one| one.name == name && one.kind.as_deref() == kind).unwrap();
        for key in section.keys {
            let last = key.name.rsplit('.').next().unwrap();
            let named = text.lines().any(|line| {
                line.starts_with(&format!("{last} = ")) || line == format!("# {} is not set", key.name)
            });
            assert!(named, "{name}.{}:\n{text}", key.name);
        }
    }
    assert!(text.contains("# channels is not set"), "{text}");
}
