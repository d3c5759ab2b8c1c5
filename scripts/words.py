#!/usr/bin/env python3
"""Checks the wording, line lengths and links of the documentation.

    python3 scripts/words.py          # all checks; prints one line per finding and exits with 1 if there is any

- Markdown lines have at most 120 characters, except rows of tables and what a link or an address makes longer.
- Prose has no phrase of `PHRASES`, and doc comments have no opening of `OPENINGS`. Checked are all Markdown files and
  the doc comments and strings below `CLEAN`; a path is added there once its text has been rewritten.
- Relative links and their anchors exist, and so do files of this repository that any text file mentions by path.
- Every page below docs/ is linked from docs/README.md.
"""

import argparse
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
WIDTH = 120
# Printed by programs and kept as they were.
RAW = "docs/measured/"
# Files and folders, besides all Markdown, whose doc comments and strings follow the rules.
CLEAN = [
    "benchmarks",
    "crates/cfo-cli",
    "crates/cfo-cpu",
    "crates/cfo-cuda",
    "crates/cfo-data",
    "crates/cfo-device",
    "crates/cfo-engine",
    "crates/cfo-numerics",
    "crates/cfo-paper",
    "crates/cfo-python",
    "crates/cfo-view",
    "crates/cfo-wheel",
    "crates/cfo/examples",
    "crates/cfo/src/error",
    "crates/cfo/src/lib.rs",
    "crates/cfo/src/measure",
    "crates/cfo/src/model",
    "crates/cfo/src/objective",
    "crates/cfo/src/operator",
    "crates/cfo/src/paper.rs",
    "crates/cfo/src/predict",
    "crates/cfo/src/proposal",
    "crates/cfo/src/ranks.rs",
    "crates/cfo/src/recipe",
    "crates/cfo/src/run",
    "crates/cfo/src/train",
    "crates/cfo/src/trajectories",
    "crates/cfo/tests",
    "python/cfo",
    "recipes",
    "scripts",
]
UNITS = "ms|us|milliseconds|seconds?|steps?|samples?|evaluations?|frames|launch(?:es)?|lines?"
WHOLES = "batch|step|sample|second|snapshot|trajectory|frame|evaluation|launch|run|rank|GPU|machine|call"
PROGRAMS = "commands?|programs?|library|libraries|pages?|scripts?|engine|networks?|models?|solvers?|paths?|server|recipes?"
# A pattern, where a space stands for any white space, and what to write instead.
PHRASES = {
    r"so many": "the number, or `this number of`",
    r"is none of": "`is not one of`, or the fact itself",
    r"what is left": "`the rest`, `the remaining ...`",
    r"learnt": "`learned`",
    r"by heart": "`overfits`, `memorised`",
    r"in the small": "`at reduced scale`",
    r"(?:drawn|counted|treated) alike": "`uniformly`, `equally`",
    r"one's own": "`your own`",
    r"by (?:the paper's|our|this|that|its|a|one|another) recipes?": "`with the ... recipe`",
    rf"(?:{UNITS}) an? (?:{WHOLES})": "`per`: seconds per batch",
    r"an? (?:batch|step) takes": "`... per batch`",
    r"without a word": "`without an error message`",
    rf"(?:`|\b(?:{PROGRAMS})) (?:says?|speaks?|knows?|talks?|tells)": "`prints`, `reports`, `shows`, or what happens",
    r"(?<!multilayer\x20)(?<!multi-layer\x20)perceptrons?": "`MLP`",
    r"margins?": "`padding`",
    r"(?<!moving\x20)averages? of (?:the )?weights|averages (?:its|their) weights": "`EMA`",
    r"next-state prediction": "`autoregressive model`",
    r"prediction of the change": "`residual autoregressive model`",
}
# How a doc comment does not begin: its first line says what the item is or does.
OPENINGS = {
    r"The same": "what the item is or does",
    r"Of an? ": "what the item is or does",
}
# The roots of this repository that no other project shares: a path below them in any text is one of our files.
MENTION = re.compile(r"\b((?:docs|scripts|benchmarks|recipes)/[\w./-]*\w\.(?:md|py|sh|toml|jsonl|png|txt))\b")
FENCE = re.compile(r"^ *(```|~~~).*?^ *\1 *$", re.DOTALL | re.MULTILINE)
CODE = re.compile(r"(`+)(?!`).+?(?<!`)\1(?!`)", re.DOTALL)
LINK = re.compile(r"\[(?:[^\[\]]|\[[^\]]*\])*\]\(<?([^)\s>]+)>?(?: \"[^\"]*\")?\)")
RUST = re.compile(
    r"(?P<doc>//[/!][^\n]*)|(?P<string>r(?P<h>#*)\".*?\"(?P=h)|b?\"(?:\\.|[^\"\\])*\")"
    r"|(?P<rest>b?'(?:\\.[^'\n]*|[^'\\\n])'|//[^\n]*|/\*.*?\*/)",
    re.DOTALL,
)


def tracked(*patterns):
    """Paths in the repository, of files that git has or would add."""
    words = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "--", *patterns]
    found = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=True).stdout.splitlines()
    return sorted({path for path in found if (ROOT / path).is_file()})


def blank(text):
    """Spaces in place of a text, with its line breaks."""
    return re.sub(r"[^\n]", " ", text)


def hide_code(text):
    """A text with the content of its code spans blank."""
    return CODE.sub(lambda match: "`" + blank(match[0])[2:] + "`", text)


def markdown_prose(text):
    """A page without its code blocks, links' targets and the content of its code spans."""
    text = FENCE.sub(lambda match: blank(match[0]), text)
    text = hide_code(text)
    return re.sub(r"\]\([^)\s]*", lambda match: "]" + blank(match[0])[1:], text)


def rust_prose(text):
    """Doc comments and strings of a source file, everything else blank."""
    prose, end = [], 0
    for match in RUST.finditer(text):
        prose.append(blank(text[end : match.start()]))
        if match["doc"]:
            prose.append("   " + match["doc"][3:])
        elif match["string"]:
            prose.append(match["string"].replace("\\\n", " \n"))
        else:
            prose.append(blank(match[0]))
        end = match.end()
    return "".join([*prose, blank(text[end:])])


def prose(path, text):
    """What of a file is read by people, in place."""
    if path.endswith(".md"):
        return markdown_prose(text)
    return hide_code(rust_prose(text)) if path.endswith(".rs") else text


def line_of(text, position):
    return text.count("\n", 0, position) + 1


def phrases(path, text):
    readable = prose(path, text)
    for phrase, instead in PHRASES.items():
        phrase = phrase.replace(" ", r"\s+")
        pattern = rf"(?<![\w-])(?:{phrase})\b" if not phrase.startswith("(?:`") else rf"{phrase}\b"
        for match in re.finditer(pattern, readable, re.IGNORECASE):
            found = " ".join(match[0].split())
            yield line_of(readable, match.start()), f"`{found}`: write {instead}"


def openings(text):
    inside = False
    for number, line in enumerate(text.splitlines(), 1):
        comment = re.match(r" *//[/!] ?(.*)", line)
        for opening, instead in OPENINGS.items() if comment and not inside else ():
            if re.match(opening, comment[1]):
                yield number, f"a doc comment opens with `{comment[1][:20]}`: write {instead}"
        inside = bool(comment)


def long_lines(text):
    fence = None
    for number, line in enumerate(text.splitlines(), 1):
        mark = re.match(r" *(```|~~~)", line)
        fence = None if mark and fence == mark[1] else mark[1] if mark and fence is None else fence
        short = re.sub(r"\]\([^)]*\)", "]", re.sub(r"https?://\S+", "", line))
        if len(short) > WIDTH and not line.lstrip().startswith("|"):
            yield number, f"{len(line)} characters, {WIDTH} are allowed"


def anchors(text):
    """The anchors that GitHub gives the headings of a page."""
    found, seen = set(), {}
    for heading in re.findall(r"^#{1,6} +(.+?) *#*$", FENCE.sub(lambda match: blank(match[0]), text), re.MULTILINE):
        plain = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading)
        name = re.sub(r"[^\w\- ]", "", plain.lower()).replace(" ", "-")
        count = seen.get(name, 0)
        seen[name] = count + 1
        found.add(f"{name}-{count}" if count else name)
    return found | set(re.findall(r"<a (?:id|name)=\"([^\"]+)\"", text))


def links(path, text):
    """Line and target of each link of a page to a file or an anchor."""
    text = FENCE.sub(lambda match: blank(match[0]), text)
    text = CODE.sub(lambda match: blank(match[0]), text)
    for match in LINK.finditer(text):
        if not re.match(r"[a-z][a-z+.-]*:", match[1]):
            yield line_of(text, match.start()), match[1]


def broken_links(path, text):
    for number, link in links(path, text):
        file, _, anchor = link.partition("#")
        target = (ROOT / path).parent / file if file else ROOT / path
        if not target.exists():
            yield number, f"{link}: there is no such file"
        elif anchor and target.suffix == ".md" and anchor not in anchors(target.read_text()):
            yield number, f"{link}: the page has no such heading"


def broken_mentions(text):
    for match in MENTION.finditer(text):
        before = text[max(0, match.start() - 1) : match.start()]
        # `recipes/SYSTEM.toml` stands for several files.
        named = Path(match[1]).stem
        placeholder = named.isupper() and named != "README"
        if before not in "/.-" and not placeholder and not (ROOT / match[1]).exists():
            yield line_of(text, match.start()), f"{match[1]}: there is no such file"


def unlisted_pages(pages):
    index = "docs/README.md"
    if index not in pages:
        yield f"{index}:1: the list of all pages is missing"
        return
    listed = {link.partition("#")[0] for _, link in links(index, pages[index])}
    for page in pages:
        if page.startswith("docs/") and page != index and page.removeprefix("docs/") not in listed:
            yield f"{index}:1: {page} is not linked"


def findings():
    pages = {path: (ROOT / path).read_text() for path in tracked("*.md") if not path.startswith(RAW)}
    sources = {path: (ROOT / path).read_text() for path in tracked("*.rs", "*.py", "*.pyi", "*.sh", "*.toml", ".ci/run")}
    for path, text in pages.items():
        for number, problem in [*long_lines(text), *phrases(path, text), *broken_links(path, text)]:
            yield f"{path}:{number}: {problem}"
    for path, text in sources.items():
        if path != "scripts/words.py" and any(path == clean or path.startswith(clean + "/") for clean in CLEAN):
            for number, problem in [*phrases(path, text), *openings(text)]:
                yield f"{path}:{number}: {problem}"
    for path, text in {**pages, **sources}.items():
        for number, problem in broken_mentions(text):
            yield f"{path}:{number}: {problem}"
    yield from unlisted_pages(pages)


def main():
    argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter).parse_args()
    found = list(dict.fromkeys(findings()))
    print("\n".join(found) or "words, lines and links are in order")
    sys.exit(1 if found else 0)


if __name__ == "__main__":
    main()
