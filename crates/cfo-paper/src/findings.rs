//! A report about trained networks: table, verdict and figures, with the setting and the command that repeats it.

use serde::Serialize;

use crate::columns::{TableColumn, table};
use crate::experiment::MeasuredNetworks;
use crate::options::{ChoiceName, Reproduce, Scale};
use crate::system::{Setup, TableSystem};
use crate::{Record, ReportDocument};
use cfo_view::plot::{Axis, Curve, Figure, Panels};

/// Results of an experiment, from which its report is made.
pub(crate) struct Findings<R> {
    pub title: &'static str,
    /// Explanation of the columns.
    pub about: String,
    pub rows: Vec<R>,
    pub columns: Vec<TableColumn<R>>,
    /// Conclusions from the table, one per line.
    pub verdict: String,
    /// Figures by the stem of their file names.
    pub figures: Vec<(String, Figure)>,
    /// Images, likewise.
    pub pictures: Vec<(String, Panels)>,
}

/// Returns a figure about a setup, and the stem of its file's name.
pub(crate) fn setup_figure(
    setup: &Setup,
    stem: &str,
    title: &str,
    [x, y]: [Axis; 2],
    series: Vec<Curve>,
) -> (String, Figure) {
    let figure = Figure { title: format!("{title}: {}", setup.title()), x, y, series, size: (720, 400) };
    (format!("{stem}-{}", setup.stem()), figure)
}

impl<R: Serialize> Findings<R> {
    /// The report for the terminal and for the folder.
    pub fn record<T>(self, arguments: &Reproduce, measured: &MeasuredNetworks<T>) -> Record<R> {
        let mut systems: Vec<&TableSystem> = measured.setups.iter().map(|setup| setup.system).collect();
        systems.dedup_by_key(|system| system.name());
        let setting = setting(arguments, &systems);
        let caveats: Vec<String> = systems
            .iter()
            .filter_map(|system| Some(format!("{}: {}", system.name(), system.caveat(arguments.scale)?)))
            .collect();
        let missing: Vec<String> = measured
            .failures
            .iter()
            .map(|failure| format!("Missing, because it failed: {failure}"))
            .collect();
        let footnotes: String = caveats
            .iter()
            .map(|note| format!("{MARK} {note}\n"))
            .chain(missing.iter().map(|note| format!("{note}\n")))
            .collect();
        let titles = self.figures.iter().map(|(stem, figure)| (stem, &figure.title));
        let titles = titles.chain(self.pictures.iter().map(|(stem, picture)| (stem, &picture.title)));
        let shown: String = titles.map(|(stem, title)| format!("![{title}]({stem}.png)\n\n")).collect();
        let verdict = if self.verdict.is_empty() { String::new() } else { format!("{}\n", self.verdict) };
        let table = table(&self.columns, &self.rows);
        let markdown = format!(
            "# {}\n\n{}\n\n{setting}\n{}\n{}{}{shown}    {}\n",
            self.title,
            self.about,
            table.markdown(),
            footnotes.replace('\n', "\n\n"),
            verdict.replace('\n', "\n\n"),
            command(arguments)
        );
        let text = format!("{}\n\n{setting}\n{}\n{footnotes}{}", self.about, table.text(), self.verdict);
        let notes = caveats.into_iter().chain(missing).collect();
        let document = ReportDocument { notes, ..ReportDocument::new(arguments, self.rows) };
        let (figures, pictures) = (self.figures, self.pictures);
        let failures = measured.failures.clone();
        Record { document, text, markdown, figures, pictures, files: Vec::new(), failures }
    }
}

/// Marks a row of a table that has a note below.
pub(crate) const MARK: &str = "†";

/// A system's name in a table, marked if there is a note on its errors.
pub(crate) fn marked(setup: Setup) -> String {
    let mark = setup.system.caveat(setup.scale).map_or_else(String::new, |_| format!(" {MARK}"));
    format!("{}{mark}", setup.system.name())
}

/// Describes the setting: reductions of `smoke`, overrides, the seed.
fn setting(arguments: &Reproduce, systems: &[&TableSystem]) -> String {
    let mut text = match arguments.scale {
        Scale::Smoke => {
            let reductions: Vec<String> =
                systems.iter().map(|system| format!("- {}: {}.", system.label(), system.reduction())).collect();
            format!(
                "`smoke` is a reduced version that runs in minutes; its numbers cannot be compared with the paper's. Reductions:\n\n{}\n\nThe learning rate is 1e-3 in the recipe `paper` and 2e-3 in \
                 `ours`, which also has a shorter warm-up and EMA.\n",
                reductions.join("\n")
            )
        }
        Scale::Paper => "The paper's data, networks, steps and batches; the recipes `paper` are in `recipes/`, `ours` in `recipes/ours/`.\n".into(),
    };
    if !arguments.set.is_empty() {
        text += &format!("\nOverridden in every recipe: `{}`.\n", arguments.set.join("`, `"));
    }
    let seeds = arguments.training_seeds();
    let seeds = match seeds.as_slice() {
        [one] => format!("One seed ({one})"),
        [first, .., last] => format!(
            "Seeds {first} to {last} of training (weights, batches, left-out snapshots) on the same data; mean and standard deviation over the {} runs",
            seeds.len()
        ),
        [] => String::new(),
    };
    text + &format!("\n{seeds}; weights with the lowest validation error.\n")
}

pub(crate) fn command(arguments: &Reproduce) -> String {
    let mut words =
        vec![format!("cfo reproduce {} --scale {}", arguments.target.name(), arguments.scale.name())];
    words.extend(arguments.system.iter().map(|system| format!("--system {system}")));
    words.extend(arguments.set.iter().map(|set| format!("--set '{set}'")));
    words.extend(arguments.recipe.map(|recipe| format!("--recipe {}", recipe.name())));
    words.extend(arguments.seeds.map(|seeds| format!("--seeds {seeds}")));
    words.push(format!("--device {} --seed {}", arguments.device, arguments.seed));
    words.join(" ")
}
