//! The reference of the command line, `docs/reference/command-line.md`, generated from the arguments.

use std::fmt::Write;

use clap::{Arg, Command, CommandFactory};

use crate::args::Arguments;

/// Width at which paragraphs are wrapped.
const WIDTH: usize = 120;

const INTRODUCTION: &str = "\
# Command line

This page lists every command with its arguments. It is generated from the program. `cfo COMMAND --help` prints the same for one \
command; `cfo --version` prints the version.

- Results are printed to stdout, progress and messages to stderr. With `--json`, stdout has one JSON document and nothing else; see \
[json.md](json.md).
- Exit codes: 0 success, 1 the work failed, 2 wrong usage or bad input; see [errors.md](errors.md).
- No file is overwritten without `--force`, except the reports of `cfo evaluate` and `cfo reproduce`.
- `--device auto` is a GPU if there is one, else the CPU. `cfo devices` lists the devices.
- Environment variables are listed in [environment.md](environment.md).
";

/// Returns the page.
fn page() -> String {
    let mut root = Arguments::command();
    root.build();
    let mut text = String::new();
    for paragraph in INTRODUCTION.lines() {
        wrap(&mut text, paragraph);
    }
    text.push_str("\n| command | purpose |\n|---|---|\n");
    for command in commands(&root) {
        let name = name(command);
        let link = format!("#{}", name.replace(' ', "-"));
        let _ = writeln!(text, "| [`{name}`]({link}) | {} |", about(command));
    }
    for command in commands(&root) {
        section(&mut text, command);
    }
    text
}

/// Returns all subcommands, each before its own subcommands.
fn commands(root: &Command) -> Vec<&Command> {
    let visible = root.get_subcommands().filter(|command| command.get_name() != "help");
    visible.flat_map(|command| std::iter::once(command).chain(commands(command))).collect()
}

/// Returns the words with which a command is called.
fn name(command: &Command) -> String {
    command.get_bin_name().unwrap_or(command.get_name()).to_owned()
}

/// Returns the first line of a command's help.
fn about(command: &Command) -> String {
    command.get_about().map(ToString::to_string).unwrap_or_default()
}

/// Appends the section of a command.
fn section(text: &mut String, command: &Command) {
    let _ = write!(text, "\n## `{}`\n\n", name(command));
    wrap(text, &format!("{}.", about(command)));
    let usage = command.clone().render_usage().to_string();
    let _ = write!(text, "\n```text\n{}\n```\n", usage.strip_prefix("Usage: ").unwrap_or(&usage));
    let shown = |arg: &&Arg| !arg.is_hide_set() && !["help", "version"].contains(&arg.get_id().as_str());
    let arguments: Vec<&Arg> = command.get_arguments().filter(shown).collect();
    if !arguments.is_empty() {
        text.push_str("\n| argument | default | meaning |\n|---|---|---|\n");
    }
    for argument in &arguments {
        let (meaning, default) = meaning(argument);
        let _ = writeln!(text, "| {} | {default} | {} |", spelling(argument), meaning.replace('|', "\\|"));
    }
    for argument in arguments {
        let values: Vec<_> =
            argument.get_possible_values().into_iter().filter(|value| !value.is_hide_set()).collect();
        if !values.iter().any(|value| value.get_help().is_some()) {
            continue;
        }
        let _ = write!(text, "\nValues of {}:\n\n| value | meaning |\n|---|---|\n", spelling(argument));
        for value in values {
            let help = value.get_help().map(ToString::to_string).unwrap_or_default();
            let _ = writeln!(text, "| `{}` | {help} |", value.get_name());
        }
    }
    if let Some(after) = command.get_after_help() {
        text.push('\n');
        wrap(text, &after.to_string());
    }
}

/// Returns an argument as it is typed.
fn spelling(argument: &Arg) -> String {
    let names = argument.get_value_names().unwrap_or_default();
    let value = names.iter().map(ToString::to_string).collect::<Vec<_>>().join(" ").replace('|', "\\|");
    match argument.get_long() {
        Some(long) if argument.get_action().takes_values() => format!("`--{long} {value}`"),
        Some(long) => format!("`--{long}`"),
        None => format!("`{value}`"),
    }
}

/// Returns the meaning of an argument and its default. Defaults that depend on other arguments stand in brackets in the help.
fn meaning(argument: &Arg) -> (String, String) {
    let help = argument.get_help().map(ToString::to_string).unwrap_or_default();
    if let Some((meaning, default)) = help.split_once(" [default: ") {
        return (meaning.to_owned(), default.trim_end_matches(']').to_owned());
    }
    let default = match argument.get_default_values() {
        _ if !argument.get_action().takes_values() => String::new(),
        [] if argument.is_required_set() => "required".into(),
        [] => String::new(),
        values => {
            let values = values.iter().map(|value| format!("`{}`", value.to_string_lossy()));
            values.collect::<Vec<_>>().join(" ")
        }
    };
    (help, default)
}

/// Appends a paragraph or an entry of a list, wrapped.
fn wrap(text: &mut String, paragraph: &str) {
    let indent = if paragraph.starts_with("- ") { "  " } else { "" };
    let mut length = 0;
    for word in paragraph.split_whitespace() {
        if length > 0 && length + 1 + word.len() > WIDTH {
            text.push('\n');
            text.push_str(indent);
            length = indent.len();
        } else if length > 0 {
            text.push(' ');
            length += 1;
        }
        text.push_str(word);
        length += word.len();
    }
    text.push('\n');
}

/// The page has every command and argument. `CFO_BLESS=1 cargo test -p cfo-cli --lib reference` writes it.
#[test]
fn the_page_lists_every_command_and_argument() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/reference/command-line.md");
    let made = page();
    if std::env::var_os("CFO_BLESS").is_some() {
        std::fs::write(path, &made).unwrap();
    }
    let found = std::fs::read_to_string(path).unwrap_or_default();
    assert!(
        found == made,
        "docs/reference/command-line.md differs from the arguments; `CFO_BLESS=1 cargo test -p cfo-cli --lib reference` writes it"
    );
}
