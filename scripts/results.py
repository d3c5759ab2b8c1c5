#!/usr/bin/env python3
"""Writes docs/results.md and the README's table from docs/measured/*.jsonl and the paper's numbers.

    scripts/results.py                   # write both
    scripts/results.py --check           # fail if either is out of date
    scripts/results.py print FILES...    # table 1 from other files of `scripts/paper_queue.py`

Two kinds of lines are read. Lines of `scripts/paper_queue.py` have a key `cell`; they fill tables 1 and 5 to 7 and the rows of CFO
in table 3. Other lines have the keys `table`, `system`, `row`, `column` and `value`. Every line has `commit`; lines under
docs/measured also have `machine`.
"""
import argparse
import json
import math
import statistics
import sys
import textwrap
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PAPER = ROOT / "crates/cfo-paper/src/published.toml"
PAGE = ROOT / "docs/results.md"
README = ROOT / "README.md"
BEGIN, END = "<!-- results: written by scripts/results.py -->", "<!-- end of results -->"

NAMES = {
    "lorenz": "Lorenz",
    "burgers": "Burgers",
    "diffusion-reaction": "diffusion-reaction",
    "shallow-water": "shallow water",
    "kuramoto-sivashinsky": "Kuramoto-Sivashinsky",
}
FOUR = list(NAMES)[:4]
# The network of the paper's baseline in table 1.
NETWORK = {"lorenz": "mlp", "burgers": "mlp", "diffusion-reaction": "unet", "shallow-water": "dit"}
NETWORKS = {"mlp": "MLP", "unet": "U-Net", "dit": "DiT", "fno": "FNO"}
RECIPES = {"paper": "paper's hyperparameters", "ours": "our recipe"}
SHARES = ["100 %", "50 %", "25 %"]
MISSING = "not measured"
COMMAND = "scripts/paper_queue.py run"


# -- numbers


def error(value):
    mantissa, exponent = f"{value:.2e}".split("e")
    return f"{mantissa}e{int(exponent)}"


def number(value, column):
    """A number as its column has it: an order, a time, or an error."""
    if column.startswith("order"):
        return f"{value:.2f}"
    if "seconds" in column:
        return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"
    return error(value)


def mean(lines):
    """Mean and sample deviation over seeds; the mean is None if a seed diverged."""
    errors = [line["relative_l2"] for line in lines]
    if not errors or None in errors:
        return None, None
    return statistics.fmean(errors), statistics.stdev(errors) if len(errors) > 1 else None


def change(ours, other):
    """The relative difference in words: -25 %."""
    return f"{100 * (ours / other - 1):+.0f} %".replace("-", "−")


# -- sources


class Notes:
    """Numbered notes of a page, each text once."""

    def __init__(self):
        self.texts = []

    def mark(self, *texts):
        marks = []
        for text in filter(None, texts):
            if text not in self.texts:
                self.texts.append(text)
            marks.append(str(self.texts.index(text) + 1))
        return f" [{', '.join(marks)}]" if marks else ""

    def lines(self):
        return [fill(f"{at}. {text[0].upper()}{text[1:]}.", "   ") for at, text in enumerate(self.texts, 1)]


class Paper:
    """The paper's numbers by table, system, row and column."""

    def __init__(self):
        self.tables = {table["label"]: table for table in tomllib.loads(PAPER.read_text())["table"]}

    def find(self, label, system, row, column):
        table = self.tables[label]
        for of, name, numbers in table["rows"]:
            if (of, name) == (system, row) and column in table["columns"]:
                value = numbers[table["columns"].index(column)]
                return None if math.isnan(value) else value
        return None


class Measured:
    """Our lines: cells of the queue by recipe and place, and values of the other tables."""

    def __init__(self, files):
        self.lines = [json.loads(line) for file in files for line in Path(file).read_text().splitlines() if line]
        newest = {}
        for line in sorted((line for line in self.lines if "cell" in line), key=lambda line: line["time"]):
            newest[line["cell"], changes(line)] = line
        self.cells = list(newest.values())
        self.values = {(line["table"], line["system"], line["row"], line["column"]): line for line in self.lines if "table" in line}

    def flow(self, system, recipe, spline, share):
        return [
            line
            for line in self.cells
            if plain_flow(line) and (line["system"], line["recipe"], line["spline"], percent(line)) == (system, recipe, spline, share)
        ]

    def baseline(self, system, recipe, network, prediction):
        found = [line for line in self.cells if line["method"] == "autoregressive" and not changes(line)]
        place = (system, recipe, network, prediction)
        return [line for line in found if (line["system"], line["recipe"], line["operator"], line["prediction"]) == place]

    def best_baseline(self, system, recipe, prediction):
        """The network with the least error, and its lines."""
        found = {network: self.baseline(system, recipe, network, prediction) for network in NETWORKS}
        found = {network: lines for network, lines in found.items() if mean(lines)[0] is not None}
        return min(found.items(), key=lambda item: mean(item[1])[0], default=(None, []))


def changes(line):
    return " ".join(sorted(line.get("set", [])))


def percent(line):
    return f"{100 * line['keep_rate']:.0f} %"


def plain_flow(line):
    return line["method"] == "cfo" and not changes(line) and line["cell"].split("/")[2] == f"cfo-{line['spline']}-{100 * line['keep_rate']:.0f}"


def training_until(line):
    """Where a training was stopped: its step, or its time limit if the step was not kept."""
    if line["steps_done"] is None:
        return f"{line['limit_seconds']} s of a training of {line['steps']:,} steps"
    return f"{line['steps_done']:,} of {line['steps']:,} steps"


def remarks(lines):
    """What a reader of a cell must know of its trainings: a part through the solver, an early end."""
    tuned = next((line for line in lines if line.get("finetune_steps")), None)
    tuned = f"the last {tuned['finetune_steps']:,} of {tuned['steps']:,} steps were trained through the solver" if tuned else ""
    stopped = next((line for line in lines if line.get("stopped")), None)
    return tuned, f"stopped after {training_until(stopped)}" if stopped else ""


def cell(lines, notes):
    """An error with its deviation over seeds and its notes."""
    if not lines:
        return MISSING
    middle, deviation = mean(lines)
    if middle is None:
        return "diverged"
    seeds = "" if len(lines) == 1 else f"mean and deviation over {len(lines)} seeds"
    return error(middle) + (f" ± {error(deviation)}" if deviation is not None else "") + notes.mark(seeds, *remarks(lines))


def value(line, notes):
    if line is None:
        return MISSING
    stopped = f"{line['steps_done']:,} of {line['steps']:,} steps" if line.get("steps_done") else ""
    return number(line["value"], line["column"]) + notes.mark(stopped, line["note"])


# -- Markdown


def fill(text, indent=""):
    return textwrap.fill(" ".join(text.split()), 120, subsequent_indent=indent, break_on_hyphens=False, break_long_words=False)


def table(header, rows):
    align = ["---" if name in ("system", "method", "numbers", "machine", "commit", "command", "network", "cells") else "---:" for name in header]
    return "\n".join("| " + " | ".join(row) + " |" if row is not align else "|" + "|".join(row) + "|" for row in [header, align, *rows])


# -- tables


def first_table(paper, measured, notes):
    rows = []
    for system in FOUR:
        network = NETWORK[system]
        published = paper.find("Table 1", system, "autoregressive", "100 %")
        deviation = paper.find("Table 1, deviations", system, "autoregressive", "100 %")
        rows.append([NAMES[system], f"autoregressive, {NETWORKS[network]}", "paper", f"{error(published)} ± {error(deviation)}", "", ""])
        for recipe in RECIPES:
            found = cell(measured.baseline(system, recipe, network, "next-state"), notes)
            rows.append([NAMES[system], f"autoregressive, {NETWORKS[network]}", RECIPES[recipe], found, "", ""])
        for spline in ("linear", "quintic"):
            texts = []
            for share in SHARES:
                value, deviation = (paper.find(label, system, spline, share) for label in ("Table 1", "Table 1, deviations"))
                texts.append(f"{error(value)} ± {error(deviation)}")
            rows.append([NAMES[system], f"CFO, {spline}", "paper", *texts])
            for recipe in RECIPES:
                found = [cell(measured.flow(system, recipe, spline, share), notes) for share in SHARES]
                rows.append([NAMES[system], f"CFO, {spline}", RECIPES[recipe], *found])
    return table(["system", "method", "numbers", *SHARES], rows)


def networks(paper, measured, notes):
    """Tables 5 to 7, with the residual model that the paper does not have."""
    rows = []
    for label, system in (("Table 5", "burgers"), ("Table 6", "diffusion-reaction"), ("Table 7", "shallow-water")):
        for network in paper.tables[label]["columns"]:
            published = error(paper.find(label, system, "autoregressive", network))
            ours = [
                cell(measured.baseline(system, recipe, network, prediction), notes)
                for recipe, prediction in (("paper", "next-state"), ("ours", "next-state"), ("paper", "change"), ("ours", "change"))
            ]
            rows.append([f"{label}, {NAMES[system]}", NETWORKS[network], published, *ours])
    ours = [
        cell(measured.baseline("lorenz", recipe, "mlp", prediction), notes)
        for recipe, prediction in (("paper", "next-state"), ("ours", "next-state"), ("paper", "change"), ("ours", "change"))
    ]
    rows.append(["Table 1, Lorenz", "MLP", error(paper.find("Table 1", "lorenz", "autoregressive", "100 %")), *ours])
    header = ["system", "network", "paper", "paper's hyperparameters", "our recipe", "residual, paper's hyperparameters", "residual, our recipe"]
    return table(header, rows)


def claim(measured, recipe, notes):
    """CFO on a quarter of the times beside both baselines on all of them."""
    rows = []
    for system in FOUR:
        lines = measured.flow(system, recipe, "quintic", "25 %")
        flow = mean(lines)[0]
        row = [NAMES[system], MISSING if flow is None else error(flow) + notes.mark(*remarks(lines))]
        for prediction in ("next-state", "change"):
            network, lines = measured.best_baseline(system, recipe, prediction)
            other = mean(lines)[0]
            row += [MISSING if other is None else f"{error(other)} ({NETWORKS[network]})"]
            row += [change(flow, other) if flow and other else MISSING]
        rows.append(row)
    header = ["system", "CFO, 25 %", "autoregressive, 100 %", "CFO has", "residual autoregressive, 100 %", "CFO has"]
    return table(header, rows)


def counts(paper, measured, recipe):
    """Our cells of CFO in table 1, each as its lines: those better than the paper's, and the others."""
    better, worse = [], []
    for system in FOUR:
        for spline in ("linear", "quintic"):
            for share in SHARES:
                lines = measured.flow(system, recipe, spline, share)
                ours = mean(lines)[0]
                if ours is not None:
                    (better if ours < paper.find("Table 1", system, spline, share) else worse).append(lines)
    return better, worse


def where(cells):
    """The systems of some cells, and how many of their trainings were stopped."""
    systems = " and ".join(NAMES[system] for system in FOUR if any(lines[0]["system"] == system for lines in cells))
    stopped = sum(any(line.get("stopped") for line in lines) for lines in cells)
    return f"all on {systems}" + (f" ({stopped} of these trainings were stopped early)" if stopped else "")


TITLES = {
    "Figure 4": ("Figure 4: largest error of a test trajectory of Burgers", "figures"),
    "Table 2": ("Table 2: error at the final time against network evaluations, RK4", "nfe"),
    "Table 3": ("Table 3: neural ODE and PDE-Refiner", "baselines"),
    "Table 4, quintic": ("Table 4: velocity error of quintic splines on Lorenz", "spline-order"),
    "Table 4, linear": ("Table 4: velocity error of linear splines on Lorenz", "spline-order"),
    "Table 8": ("Table 8: error at the final time against network evaluations, Euler", "nfe"),
    "Table 9": ("Table 9: error at the final time against network evaluations, Heun", "nfe"),
    "Table 10": ("Table 10: run time of rollouts", "runtime"),
    "Table 11": ("Table 11: past the training horizon", "extrapolation"),
    "Table 12": ("Table 12: other networks under CFO", "backbones"),
    "Table 13": ("Table 13: Kuramoto-Sivashinsky", "ks"),
    "Table 14": ("Table 14: CFO on wavelet coefficients", "latent"),
}
REMARKS = {
    "Table 2": "The columns are network evaluations relative to the autoregressive model's.",
    "Table 3": "The paper's seconds are of an NVIDIA A6000, ours of an NVIDIA H200: do not compare them with each other.",
    "Table 4, quintic": "Rows are the step in snapshots; columns are the error and the observed order at τ = 0 and τ = 1.",
    "Table 10": "The paper's columns: milliseconds per trajectory on an NVIDIA A6000, and the error at the final time.",
    "Table 11": "Trained on the whole horizon and on its first half; the error is over the whole horizon.",
    "Table 13": """The data are ours (`cfo simulate kuramoto-sivashinsky`), not the paper's, so the columns are not comparable. The neural
        ODE is better than CFO here. A residual autoregressive model has 0.367 (5d88170, one NVIDIA H200;
        [Experiments](experiments.md#noise-that-fades-kuramoto-sivashinsky)).""",
    "Table 14": "The paper does not name its wavelet; ours is Haar.",
}


def other(label, paper, measured, notes):
    published = paper.tables[label]
    rows = []
    for system, row, numbers in published["rows"]:
        ours = []
        for column, theirs in zip(published["columns"], numbers):
            if math.isnan(theirs):
                ours.append("")
                continue
            line = measured.values.get((label, system, row, column))
            flow = measured.flow(system, "paper", "quintic", "100 %") if (label, row) == ("Table 3", "cfo") else []
            if label == "Table 11" and column == "whole":
                flow = measured.flow(system, "paper", "quintic", "100 %")
            if flow and column in ("relative L2", "whole"):
                ours.append(cell(flow, notes))
            elif column == "seconds per batch" and any(line["ms_per_step"] for line in flow):
                timed = next(line for line in flow if line["ms_per_step"])
                note = "several trainings ran side by side on the GPU" if timed["side_by_side"] > 1 else ""
                ours.append(number(timed["ms_per_step"] / 1e3, column) + notes.mark(note))
            else:
                ours.append(value(line, notes))
        name = f"{NAMES[system]}, {row}"
        rows.append([name, "paper", *("" if math.isnan(x) else number(x, column) for x, column in zip(numbers, published["columns"]))])
        rows.append([name, "ours", *ours])
    return table(["system", "numbers", *published["columns"]], rows)


def sources(measured):
    """Which line is of which commit, machine and command."""
    places = {}
    for line in measured.cells:
        system, recipe, name, seed = line["cell"].split("/")
        key = (line["commit"], line["machine"], f"`{COMMAND} --cells '{system}/{recipe}/...'`")
        places.setdefault(key, {}).setdefault(name, []).append(seed)
    rows = []
    for (commit, machine, command), names in sorted(places.items(), key=lambda item: (item[0][2], item[0][0])):
        cells = ", ".join(f"{name}" + (f" (seeds {', '.join(seeds)})" if seeds != ["0"] else "") for name, seeds in sorted(names.items()))
        rows.append([command, cells, commit, machine])
    others = {}
    for line in measured.values.values():
        label = f"{line['table'].split(',')[0]}, {NAMES[line['system']]}"
        others.setdefault((label, line["commit"], line["machine"], line["command"]), []).append(line["row"])
    for (label, commit, machine, command), names in others.items():
        names = "all rows" if label.startswith("Table 4") else ", ".join(sorted(set(names)))
        command, _, settings = command.partition("; ")
        row = [f"`{command}`" + (f", with {settings}" if settings else ""), f"{label}: {names}", commit, machine]
        if row not in rows:
            rows.append(row)
    return table(["command", "cells", "commit", "machine"], rows)


# -- pages

INTRODUCTION = """
# Results

Our numbers beside the paper's, for every cell of every table. This page is generated by `scripts/results.py` from
[measured/](measured/) and the paper's printed numbers; CI checks that it is up to date. Unless a section states
otherwise, a number is the relative L2 error of rollouts on the test trajectories.

## What to know before you read the numbers

- **One seed** of the training, except where a note gives more. A ± behind the paper's numbers is its deviation over
  runs.
- **"Paper's hyperparameters"** means the paper's data, network, steps, batch and learning rate, plus choices that the
  paper does not state: an EMA of the weights (all but Lorenz), velocities divided by their root mean square,
  standardised values (`center` on shallow water), SiLU in the MLP of Burgers, and reduced precision (tf32 or bf16, all
  but Lorenz). The recipes are `recipes/SYSTEM.toml`; their comments name each choice.
- **"Our recipe"** (`recipes/ours/`) keeps data, network and batch and chooses the rest, for CFO and the baselines. Some
  recipes train CFO with fewer steps, and shallow water at 25 % with 400 last steps through the solver.
- **Some choices were made on test errors** of smaller runs, so these numbers are optimistic by an unknown amount.
- **The residual autoregressive model is ours.** It predicts the change to the next snapshot of a uniform time grid.
  With the same network and hyperparameters it has less error than the paper's autoregressive model on Lorenz, Burgers
  and shallow water, and more on diffusion-reaction and Kuramoto-Sivashinsky.
- **Shallow water** (the radial dam break) has at most 81 different trajectories, so nearly every test trajectory is
  also in the training part. The paper uses this data.
- **Kuramoto-Sivashinsky** is on our data, not the paper's. Without noise that fades, CFO has an error of 0.94 there.
- Tables at reduced scale, which `cfo reproduce all` fills in minutes on a CPU, are in
  [measured/smoke.md](measured/smoke.md).
""".strip()


def page(paper, measured):
    notes = Notes()
    better, worse = counts(paper, measured, "paper")
    ours_better, ours_worse = counts(paper, measured, "ours")
    parts = [
        "<!-- Generated by scripts/results.py. Do not edit. -->",
        INTRODUCTION,
        "## Summary",
        fill(
            f"With the paper's hyperparameters {len(better) + len(worse)} of the 24 CFO cells of table 1 (linear and quintic) are measured: "
            f"{len(better)} are better than the paper's and {len(worse)} are worse, {where(worse)}. With our recipes "
            f"{len(ours_better) + len(ours_worse)} cells are measured: {len(ours_better)} are better and {len(ours_worse)} are worse."
        ),
        "## The paper's main claim",
        fill(
            "The claim: CFO on 25 % of the times has less error than an autoregressive model on all of them. Per system, the tables show the "
            "measured network of each baseline that has the least error. The residual U-Net with the paper's hyperparameters is not measured."
        ),
        "With the paper's hyperparameters:",
        claim(measured, "paper", notes),
        "With our recipes:",
        claim(measured, "ours", notes),
        "## Table 1: keep rates of 100, 50 and 25 %",
        first_table(paper, measured, notes),
        "## Tables 5 to 7: networks of the autoregressive model",
        networks(paper, measured, notes),
    ]
    for label, (title, target) in TITLES.items():
        parts += [f"## {title}"]
        if label in REMARKS:
            parts += [fill(REMARKS[label])]
        parts += [other(label, paper, measured, notes), f"`cfo reproduce {target} --scale paper`"]
    parts += ["## Notes", "\n".join(notes.lines()), "## Sources"]
    parts += [fill("Each number above is from one of these commands, at this commit, on this machine.")]
    parts += [sources(measured)]
    return "\n\n".join(parts) + "\n"


def readme(paper, measured):
    """The README's table: quintic CFO and both baselines."""
    notes, rows = Notes(), []
    for system in FOUR:
        published = [paper.find("Table 1", system, "quintic", share) for share in SHARES]
        baseline = paper.find("Table 1", system, "autoregressive", "100 %")
        rows.append([NAMES[system], "paper", *map(error, published), error(baseline), ""])
        for recipe in RECIPES:
            row = [NAMES[system], RECIPES[recipe]]
            row += [short(measured.flow(system, recipe, "quintic", share), notes) for share in SHARES]
            for prediction in ("next-state", "change"):
                network, lines = measured.best_baseline(system, recipe, prediction)
                row.append(f"{short(lines, notes)} ({NETWORKS[network]})" if network else short(lines, notes))
            rows.append(row)
    header = ["system", "numbers", *(f"CFO, {share}" for share in SHARES), "AR, 100 %", "residual AR, 100 %"]
    better, worse = counts(paper, measured, "paper")
    marks = " ".join(f"[{at}] {text[0].upper()}{text[1:]}." for at, text in enumerate(notes.texts, 1))
    summary = fill(
        f"Relative L2 error on test trajectories, CFO with quintic splines. AR: autoregressive model, with the best measured network; –: not measured. {marks} With the paper's hyperparameters "
        f"{len(better)} of {len(better) + len(worse)} measured CFO cells (linear and quintic) are better than the paper's. {len(worse)} are worse, "
        f"{where(worse)}."
    )
    return f"{BEGIN}\n{table(header, rows)}\n\n{summary}\n{END}"


def short(lines, notes):
    middle, _ = mean(lines)
    return "–" if middle is None else error(middle) + notes.mark(*remarks(lines))


def insert(text, block):
    head, _, rest = text.partition(BEGIN)
    _, found, tail = rest.partition(END)
    if not found:
        raise SystemExit(f"README.md has no lines `{BEGIN}` and `{END}`")
    return head + block + tail


def print_queue(files):
    """Table 1 and all other cells of files of the queue."""
    measured, notes, groups = Measured(files), Notes(), {}
    for line in measured.cells:
        name = line["cell"].split("/")[2]
        groups.setdefault((line["system"], line["recipe"], name, changes(line)), []).append(line)
    rows = []
    for (system, recipe, name, changed), lines in sorted(groups.items()):
        published = lines[0]["paper"]
        name += f", `{changed}`" if changed else ""
        commits = ", ".join(sorted({line["commit"] for line in lines}))
        rows.append([NAMES.get(system, system), name, RECIPES[recipe], "–" if published is None else error(published), cell(lines, notes), commits])
    print(table(["system", "method", "numbers", "paper", "ours", "commit"], rows))
    print("\n" + "\n".join(notes.lines()))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="fail if a page is out of date, write nothing")
    commands = parser.add_subparsers(dest="command")
    commands.add_parser("print", help="a table of files of the queue").add_argument("files", nargs="+")
    options = parser.parse_args()
    if options.command == "print":
        print_queue(options.files)
        return
    paper, measured = Paper(), Measured(sorted((ROOT / "docs/measured").glob("*.jsonl")))
    texts = {PAGE: page(paper, measured), README: insert(README.read_text(), readme(paper, measured))}
    for path, text in texts.items():
        if options.check and (not path.exists() or path.read_text() != text):
            sys.exit(f"{path.relative_to(ROOT)} is out of date; run `scripts/results.py`")
        if not options.check:
            path.write_text(text)


if __name__ == "__main__":
    main()
