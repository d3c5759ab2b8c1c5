//! The commands of the documentation. In README.md and the pages under `docs/`:
//!
//! - every `sh` block runs, from top to bottom, in one temporary folder per page, which has the repository's `recipes`;
//! - `cargo` and `pip` do nothing in it: `.ci/run` tests building and installing;
//! - a `text` block directly after an `sh` block is its stdout. Words are compared exactly, numbers within a quarter or a
//!   unit of their last digit, because training differs between machines in the last bits; `...` stands for any text;
//! - a `sh no-run` block is not run, but each of its `cfo` commands must have known subcommands and options;
//! - a `rust` block is an excerpt from a source file under `crates/`, where the compiler checks it; `// ...` stands for lines
//!   that are left out.
//!
//! Pages with `python` blocks run in `python/tests/test_docs.py`, their `sh` blocks included.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Mutex;

use crate::util::Folder;

/// Generated pages, and measurements that take hours.
const NOT_RUN: &[&str] = &["docs/measured", "docs/results.md"];

/// Pages that run at the same time: each command uses all cores.
const AT_ONCE: usize = 2;

struct Block {
    /// What follows the opening fence.
    info: String,
    /// Line of the opening fence, counted from 1.
    line: usize,
    text: String,
    /// Whether only blank lines separate it from the block before it.
    follows: bool,
}

struct Page {
    name: String,
    blocks: Vec<Block>,
}

impl Page {
    /// Whether `test_docs.py` runs this page.
    fn has_python(&self) -> bool {
        self.blocks.iter().any(|block| block.info == "python")
    }

    /// The `sh` blocks, those that are not run included.
    fn shell(&self) -> impl Iterator<Item = &Block> {
        self.blocks.iter().filter(|block| block.info.split(' ').next() == Some("sh"))
    }
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

/// The files with this extension in a folder and the folders below it.
fn files(folder: &Path, extension: &str) -> Vec<PathBuf> {
    let mut files = Vec::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|found| found == extension) {
                files.push(path);
            }
        }
    }
    files.sort();
    files
}

/// README.md and the pages under `docs/`.
fn pages() -> Vec<Page> {
    let page = |path: PathBuf| {
        let name = path.strip_prefix(root()).unwrap().to_str().unwrap().to_owned();
        Page { blocks: blocks(&std::fs::read_to_string(&path).unwrap(), &name), name }
    };
    std::iter::once(root().join("README.md"))
        .chain(files(&root().join("docs"), "md"))
        .map(page)
        .filter(|page| !NOT_RUN.iter().any(|name| page.name.starts_with(name)))
        .collect()
}

/// The fenced blocks of a page. A fence may be indented, as in a list.
fn blocks(page: &str, name: &str) -> Vec<Block> {
    let mut blocks = Vec::new();
    let mut open: Option<(Block, usize)> = None;
    let mut follows = false;
    for (number, line) in page.lines().enumerate() {
        let fence = line.trim_start().strip_prefix("```");
        match (&mut open, fence) {
            (None, Some(info)) => {
                let block =
                    Block { info: info.trim().into(), line: number + 1, text: String::new(), follows };
                open = Some((block, line.len() - line.trim_start().len()));
            }
            (None, None) => follows &= line.trim().is_empty(),
            (Some(_), Some("")) => {
                blocks.extend(open.take().map(|(block, _)| block));
                follows = true;
            }
            (Some((block, indent)), _) => {
                block.text += line.get(*indent..).unwrap_or_default();
                block.text.push('\n');
            }
        }
    }
    assert!(open.is_none(), "{name}: a block is not closed");
    blocks
}

#[derive(Debug, PartialEq)]
enum Token {
    Word(String),
    /// With a unit of its last printed digit.
    Number(f64, f64),
    Any,
}

/// Splits a text into numbers and what is between them, without white space.
fn tokens(text: &str) -> Vec<Token> {
    text.split_whitespace()
        .flat_map(|word| if word == "..." { vec![Token::Any] } else { parts(word) })
        .collect()
}

fn parts(word: &str) -> Vec<Token> {
    let bytes = word.as_bytes();
    let digit = |at: usize| bytes.get(at).is_some_and(u8::is_ascii_digit);
    let (mut parts, mut from, mut at) = (Vec::new(), 0, 0);
    while at < bytes.len() {
        let start = at;
        let sign = bytes[at] == b'-' && (at == from || !bytes[at - 1].is_ascii_alphanumeric());
        let mut end = at + usize::from(sign);
        if !digit(end) {
            at += 1;
            continue;
        }
        let mut decimals = 0;
        while digit(end) {
            end += 1;
        }
        if bytes.get(end) == Some(&b'.') {
            end += 1;
            while digit(end) {
                (end, decimals) = (end + 1, decimals + 1);
            }
        }
        let mut exponent = 0;
        if bytes.get(end) == Some(&b'e') {
            let sign = usize::from(matches!(bytes.get(end + 1), Some(b'-' | b'+')));
            let mut last = end + 1 + sign;
            while digit(last) {
                last += 1;
            }
            if let Ok(power) = word[end + 1..last].parse::<i32>() {
                (end, exponent) = (last, power);
            }
        }
        if from < start {
            parts.push(Token::Word(word[from..start].into()));
        }
        parts.push(Token::Number(word[start..end].parse().unwrap(), 10f64.powi(exponent - decimals)));
        (from, at) = (end, end);
    }
    if from < word.len() {
        parts.push(Token::Word(word[from..].into()));
    }
    parts
}

/// Whether a program's output is what a page shows.
fn agree(shown: &str, printed: &str) -> bool {
    let (shown, printed) = (tokens(shown), tokens(printed));
    let equal = |shown: &Token, printed: &Token| match (shown, printed) {
        (Token::Number(ours, unit), Token::Number(theirs, _)) => {
            (ours - theirs).abs() <= (0.25 * ours.abs().max(theirs.abs())).max(1.001 * unit)
        }
        _ => shown == printed,
    };
    let (mut i, mut j, mut back) = (0, 0, None);
    while j < printed.len() {
        match shown.get(i) {
            Some(Token::Any) => {
                back = Some((i + 1, j));
                i += 1;
            }
            Some(token) if equal(token, &printed[j]) => (i, j) = (i + 1, j + 1),
            _ => match back {
                Some((after, from)) => {
                    back = Some((after, from + 1));
                    (i, j) = (after, from + 1);
                }
                None => return false,
            },
        }
    }
    shown[i..].iter().all(|token| *token == Token::Any)
}

/// Runs the `sh` blocks of a page; what went wrong, if anything.
fn run(page: &Page) -> Result<(), String> {
    let folder = Folder::new();
    std::os::unix::fs::symlink(root().join("recipes"), folder.path("recipes")).unwrap();
    let program = Path::new(env!("CARGO_BIN_EXE_cfo")).parent().unwrap();
    let path = format!("{}:{}", program.display(), std::env::var("PATH").unwrap_or_default());
    for (at, block) in page.blocks.iter().enumerate().filter(|(_, block)| block.info == "sh") {
        let script = format!("cargo() {{ :; }}; pip() {{ :; }}\n{}", block.text);
        let mut bash = Command::new("bash");
        bash.args(["-euo", "pipefail", "-c", &script]).env("PATH", &path).current_dir(folder.path(""));
        let output = bash.stdin(Stdio::null()).output().unwrap();
        let (stdout, stderr) =
            (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        let place = format!("{}:{}", page.name, block.line);
        if !output.status.success() {
            return Err(format!("{place}: this block failed\n{}\n{stdout}\n{stderr}", block.text));
        }
        if let Some(shown) = page.blocks.get(at + 1).filter(|next| next.info == "text" && next.follows)
            && !agree(&shown.text, &stdout)
        {
            return Err(format!("{place}: the page shows\n{}\nand the block prints\n{stdout}", shown.text));
        }
    }
    Ok(())
}

#[test]
fn the_commands_of_every_page_run() {
    let pages: Vec<Page> = pages().into_iter().filter(|page| !page.has_python()).collect();
    assert!(
        pages.iter().any(|page| page.blocks.iter().any(|block| block.info == "sh")),
        "no `sh` block was found"
    );
    let (queue, failures) = (Mutex::new(pages), Mutex::new(Vec::new()));
    std::thread::scope(|scope| {
        for _ in 0..AT_ONCE {
            scope.spawn(|| {
                loop {
                    let next = queue.lock().unwrap().pop();
                    let Some(page) = next else { break };
                    if let Err(failure) = run(&page) {
                        failures.lock().unwrap().push(failure);
                    }
                }
            });
        }
    });
    let failures = failures.into_inner().unwrap();
    assert!(failures.is_empty(), "{}", failures.join("\n\n"));
}

/// The `cfo` commands of a script, alone or behind a launcher, with the number of their line: what follows the word `cfo`, up to
/// a comment, a pipe or a redirection.
fn commands(script: &str) -> Vec<(usize, Vec<String>)> {
    const JOINED: char = '\u{1f}';
    let script = script.replace("\\\n", &JOINED.to_string());
    let mut number = 0;
    let mut found = Vec::new();
    for line in script.lines() {
        let words = line.split([' ', JOINED]).filter(|word| !word.is_empty());
        let command: Vec<String> = words
            .take_while(|word| !word.starts_with('#'))
            .skip_while(|word| *word != "cfo")
            .skip(1)
            .take_while(|word| !["|", ">", ">>", "2>", "<", "&", "&&", "||", ";"].contains(word))
            .map(|word| word.replace(['"', '\''], ""))
            .collect();
        let first = line.split(' ').next().unwrap_or_default();
        if !command.is_empty() && ["cfo", "mpiexec", "srun"].contains(&first) {
            found.push((number, command));
        }
        number += 1 + line.matches(JOINED).count();
    }
    found
}

/// With `--help` at its end, the command refuses what it does not know before it prints the help, and does nothing.
#[test]
fn every_command_of_the_docs_exists() {
    let folder = Folder::new();
    let (mut count, mut failures) = (0, String::new());
    for page in pages() {
        for block in page.shell() {
            for (line, words) in commands(&block.text) {
                let mut command = folder.command("");
                let output = command.args(&words).arg("--help").output().unwrap();
                count += 1;
                if !output.status.success() {
                    let refused = String::from_utf8_lossy(&output.stderr);
                    let (name, line) = (&page.name, block.line + 1 + line);
                    failures += &format!("{name}:{line}: `cfo {}`\n{refused}\n", words.join(" "));
                }
            }
        }
    }
    assert!(count > 0, "no command was found");
    assert!(failures.is_empty(), "{failures}");
}

#[test]
fn the_rust_of_the_docs_is_in_the_sources() {
    let lines = |text: &str| text.lines().map(|line| line.trim().to_owned() + "\n").collect::<String>();
    let sources =
        files(&root().join("crates"), "rs").into_iter().map(|file| std::fs::read_to_string(file).unwrap());
    let sources: Vec<String> = sources.map(|text| lines(&text)).collect();
    for page in pages() {
        for block in page.blocks.iter().filter(|block| block.info == "rust") {
            let excerpt = lines(&block.text);
            let parts: Vec<&str> = excerpt.split("// ...\n").filter(|part| !part.trim().is_empty()).collect();
            let found = sources.iter().any(|source| parts.iter().all(|part| source.contains(part.trim())));
            assert!(found, "{}:{}: no source file has this excerpt", page.name, block.line);
        }
    }
}

#[test]
fn shown_and_printed_numbers_may_differ_in_their_last_digits() {
    assert!(agree("error 2.8e-04\n[[ 1.  0.]\n [-1. -0.]]", "error 2.9e-04\n[[ 1.  0.]\n [-1. 0.]]\n"));
    assert!(agree("90 train\n...\nwall 3 s", "90 train\nstep 100: loss 2e-3\nwall 3.1 s"));
    assert!(agree("in ... s on cpu", "in 19.9 s on cpu"));
    assert!(!agree("error 2.8e-04", "error 2.8e-03"));
    assert!(!agree("10 trajectories", "10 snapshots"));
    assert!(!agree("a\n...\nb", "a\nc"));
    assert!(!agree("a", "a b") && !agree("a b", "a") && agree("", ""));
    assert_eq!(
        parts("step-10:"),
        [Token::Word("step-".into()), Token::Number(10.0, 1.0), Token::Word(":".into())]
    );
}

#[test]
fn commands_end_at_comments_and_pipes() {
    let script = "cfo inspect a.h5 # shows it\ncargo run -p cfo -- x\nsrun cfo train \\\n  r.toml --set 'a.b=1'\n\ncfo init a.h5 > b.toml";
    let found = commands(script);
    let words: Vec<String> =
        found.iter().map(|(line, words)| format!("{line} {}", words.join(" "))).collect();
    assert_eq!(words, ["0 inspect a.h5", "2 train r.toml --set a.b=1", "5 init a.h5"]);
}
