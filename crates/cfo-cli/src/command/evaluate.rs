//! `cfo evaluate`: rollouts against trajectories, with a report and figures.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use cfo::data::Description;
use cfo::evaluate::{ChannelReport, Metrics, Miss};
use cfo::{CfoError, Model, Report, Run, ShorterSteps, Trained, Trajectories, Watch, write_evaluation};
use serde::Serialize;

use super::predict::{Diverged, conclude};
use crate::args::{self, IntegrationOptions, SplitPart};
use crate::diagnostics::{Incomplete, say};
use crate::interrupt;
use crate::job;
use crate::progress::TerminalProgress;
use crate::report::CellAlignment::{Left, Right};
use crate::report::{self, TextTable, scientific};
use crate::terminal;
use cfo_view::figures::{self, FigureFile};

#[derive(Debug, Serialize)]
struct EvaluationDocument {
    #[serde(serialize_with = "report::path")]
    run: PathBuf,
    #[serde(serialize_with = "report::path")]
    data: PathBuf,
    checkpoint: String,
    solver: String,
    precision: String,
    trajectories: usize,
    #[serde(flatten)]
    report: Report,
    diverged: Vec<Diverged>,
    #[serde(skip_serializing_if = "Option::is_none")]
    shorter_steps: Option<ShorterSteps>,
    warnings: Vec<String>,
}

pub fn run(arguments: &args::Evaluate) -> Result<()> {
    let (trained, checkpoint) = load(&arguments.run, &arguments.integration)?;
    let set = divided(&arguments.data, trained.model(), arguments.split)?;
    let part = part(&set, arguments.split)?;
    let trained = trained.on_grid(set.description.shape)?;
    let alignment = cfo::Alignment::new(trained.model(), &set.description, set.offset())?;
    let found = compare(&trained, &part)?;
    let watch = Watch::default().with_interrupt(interrupt::flag()?);
    let shorter_steps = trained.shorter_steps(&part, &found, watch)?;
    let mut warnings = alignment.notes.clone();
    warnings.extend(found.warnings(trained.model()));
    warnings.extend(shorter_steps.as_ref().and_then(too_long));
    let document = EvaluationDocument {
        run: arguments.run.clone(),
        data: arguments.data.clone(),
        checkpoint,
        solver: trained.solver().tableau.name.into(),
        precision: trained.precision().to_string(),
        trajectories: part.len(),
        diverged: found.diverged.iter().map(|one| Diverged::new(one, one.trajectory)).collect(),
        report: found,
        shorter_steps,
        warnings,
    };
    let table = table(&document);
    // The result is printed first, so that a full disk does not lose it.
    let printed = report::print_result(arguments.json, &document, || table.text());
    document.warnings.iter().for_each(|warning| say(&format!("warning: {warning}")));
    if !cfo::ranks::is_first() {
        return conclude(&document.diverged, document.trajectories);
    }
    let folder = arguments.out.clone().unwrap_or_else(|| Run::at(&arguments.run).evaluation_folder());
    // Pictures are of what is kept in single precision.
    let description = trained.model().scaling.offset().named(&alignment.describe(&set.description));
    if let (false, Some(worst)) = (arguments.json, &document.report.worst) {
        terminal::show(&description, &worst.truth.values, Some(&worst.prediction))?;
    }
    let written = write(arguments, &document, &table, &description, &folder);
    let place = || format!("writing the report into `{}`", folder.display());
    match written.with_context(place) {
        Err(error) if arguments.out.is_none() => {
            let hint = "`--out DIR` writes the report elsewhere".into();
            bail!(Incomplete { problem: format!("{error:#}"), hint });
        }
        written => written?,
    }
    printed?;
    conclude(&document.diverged, document.trajectories)
}

fn compare(trained: &Trained, part: &cfo::Part<'_>) -> Result<Report> {
    // Rank 0 counts its own share of the rollouts of all ranks.
    let ranks = cfo::ranks::world().map_or(1, |ranks| ranks.size() as u64);
    let snapshots = cfo::evaluate::snapshots(trained.model(), part) as u64;
    let mut progress = TerminalProgress::new("evaluating", snapshots / ranks);
    let watch = Watch::default()
        .with_interrupt(interrupt::flag()?)
        .with_observer(|snapshots| progress.advance_by(snapshots as u64));
    let report = trained.evaluate_each(part, true, watch)?;
    drop(progress);
    Ok(report)
}

/// Returns a warning if the solver's steps are too long.
fn too_long(found: &ShorterSteps) -> Option<String> {
    let nfe = 2 * found.evaluations[0];
    Some(format!(
        "{}; use `--solver tsit5`, which chooses its steps, or `--nfe {nfe}`, or set `evaluate.solver` and `evaluate.nfe` in the recipe, also for validation",
        found.problem()?
    ))
}

fn write(
    arguments: &args::Evaluate,
    document: &EvaluationDocument,
    table: &TextTable,
    description: &Description,
    folder: &Path,
) -> Result<()> {
    fs_err::create_dir_all(folder)?;
    let pictures = draw(arguments, description, &document.report, folder)?;
    let shown: String =
        pictures.iter().map(|picture| format!("\n![{}]({})\n", picture.caption, picture.file)).collect();
    let warnings: String =
        document.warnings.iter().map(|warning| format!("\nWarning: {warning}.\n")).collect();
    let markdown = format!("# Evaluation\n\n{}.\n\n{}{warnings}{shown}", setting(document), table.markdown());
    write_evaluation(folder, &report::json(document)?, &markdown)?;
    say(&format!("written: `{}` and {} figures", folder.join("report.md").display(), pictures.len()));
    Ok(())
}

fn draw(
    arguments: &args::Evaluate,
    description: &Description,
    found: &Report,
    folder: &Path,
) -> Result<Vec<FigureFile>> {
    let errors = || {
        let figure = (!found.per_time.is_empty()).then(|| figures::error_over_time(found));
        figures::chart(figure, folder, "error-over-time", "Error over time")
    };
    let training =
        || figures::chart(figures::loss_curves(&Run::at(&arguments.run))?, folder, "training", "Training");
    let worst = || figures::worst(description, found, folder);
    let (worst, (errors, training)) = rayon::join(worst, || rayon::join(errors, training));
    Ok(errors?.into_iter().chain(worst?).chain(training?).collect())
}

/// The run's model with the solver that the options and its recipe describe, and the name of its checkpoint.
pub(super) fn load(run: &Path, options: &IntegrationOptions) -> Result<(Trained, String)> {
    let device = job::device(&options.device)?;
    let mut loader = Trained::loader(run).device(device);
    if let Some(name) = &options.checkpoint {
        loader = loader.checkpoint(name);
    }
    let checkpoint = loader.checkpoint_name()?;
    if let Some(warning) = loader.warning() {
        say(&format!("warning: {warning}"));
    }
    if let Some(name) = options.precision.as_deref() {
        loader = loader.precision(match name {
            "same" => Run::at(run).checkpoints().state(&checkpoint)?.model.recipe.train.precision_on(device),
            name => job::precision(name)?,
        });
    }
    let trained = loader.load()?;
    let asked = options.solver_options();
    trained.ignores(&asked).iter().for_each(|note| say(&format!("warning: {note}")));
    Ok((trained.with_options(&asked)?, checkpoint))
}

/// A file with the run's split into train, validation and test; without a split for [`SplitPart::All`].
pub(super) fn divided(path: &Path, model: &Model, part: SplitPart) -> Result<Trajectories> {
    Ok(match part {
        SplitPart::All => Trajectories::open(path)?,
        _ => Trajectories::open_for_run(&model.recipe, path)?,
    })
}

pub(super) fn part(set: &Trajectories, part: SplitPart) -> Result<cfo::Part<'_>> {
    let chosen = match part {
        SplitPart::Train => set.train(),
        SplitPart::Validation => set.validation(),
        SplitPart::Test => set.test(),
        SplitPart::All => set.into(),
    };
    if chosen.is_empty() {
        bail!(CfoError::bad_data(
            format!("the file has no {part:?} trajectories").to_lowercase(),
            "`--split all` uses every trajectory"
        ));
    }
    Ok(chosen)
}

fn setting(document: &EvaluationDocument) -> String {
    format!(
        "`{}`, checkpoint `{}`: rollouts from the first snapshot of {} trajectories of `{}` with `{}`, compared at all their times",
        document.run.display(),
        document.checkpoint,
        document.trajectories,
        document.data.display(),
        document.solver
    )
}

/// One number per line. A metric that does not apply to the data is left out.
fn table(document: &EvaluationDocument) -> TextTable {
    let EvaluationDocument { report, .. } = document;
    let mut table = TextTable::new([("metric", Left), ("value", Right), ("meaning", Left)]);
    let mut push = |metric: &str, value: String, of: &str| table.push([metric.into(), value, of.into()]);
    let error = &report.relative_l2;
    let arrived = document.trajectories - document.diverged.len();
    let mut of = format!("mean over {arrived} trajectories");
    for (count, what) in [
        (document.diverged.len(), "diverged"),
        (report.excursions.len(), "left the range of the training data"),
    ] {
        if count > 0 {
            of += &format!("; {count} {what}");
        }
    }
    push("relative L2 error", scientific(error.mean), &of);
    push("", scientific(error.std), "standard deviation over trajectories");
    push("", scientific(error.final_time), "mean at the final time");
    push_channels(&mut push, &report.channels);
    if let Some(metrics) = &report.metrics {
        push_metrics(&mut push, metrics);
    }
    if let Some(Miss { mean, .. }) = &report.miss {
        let of = "of the standard deviation: forward solutions over one interval against the next snapshot";
        push("miss", scientific(*mean), of);
    }
    push(
        "evaluations",
        report.evaluations.to_string(),
        &format!("of the network for one trajectory with `{}`", document.solver),
    );
    push(
        "milliseconds",
        format!("{:.3}", 1e3 * report.seconds_per_trajectory),
        "per trajectory, computed in batches",
    );
    table
}

/// Channels whose errors are printed; of more only the worst.
const MOST_CHANNELS: usize = 8;

/// Errors of each channel relative to its deviation, in the order of the file; of many channels the worst.
fn push_channels(push: &mut impl FnMut(&str, String, &str), channels: &[ChannelReport]) {
    let mut worst: Vec<usize> = (0..channels.len()).collect();
    let size = |one: &ChannelReport| one.relative.unwrap_or(if one.rmse > 0.0 { f64::INFINITY } else { 0.0 });
    worst.sort_by(|&a, &b| size(&channels[b]).total_cmp(&size(&channels[a])));
    let left_out = channels.len().saturating_sub(MOST_CHANNELS);
    let mut shown: Vec<usize> = worst.into_iter().take(MOST_CHANNELS).collect();
    shown.sort_unstable();
    for (place, channel) in shown.into_iter().enumerate() {
        let ChannelReport { name, rmse, deviation, relative } = &channels[channel];
        let (value, of) = match relative {
            Some(relative) => {
                (*relative, format!("`{name}`: error relative to its standard deviation of {deviation:.3e}"))
            }
            None => (*rmse, format!("`{name}`: root mean square error; the channel is constant")),
        };
        let more = match left_out {
            0 => String::new(),
            count => format!("; {count} channels with smaller errors are in the JSON document"),
        };
        push(
            if place == 0 { "channels" } else { "" },
            scientific(value),
            &(of + if place == 0 { &more } else { "" }),
        );
    }
}

/// PDEBench's metrics and others, one per line.
fn push_metrics(push: &mut impl FnMut(&str, String, &str), metrics: &Metrics) {
    push("RMSE", scientific(metrics.rmse), "root mean square error");
    push("nRMSE", scientific(metrics.nrmse), "relative to the truth's root mean square");
    push("max", scientific(metrics.max), "largest error over space, mean over times");
    if let Some(value) = metrics.brmse {
        push("cRMSE", scientific(metrics.crmse), "of the sum over space");
        push("bRMSE", scientific(value), "on the boundary");
    }
    if let Some(bands) = metrics.frmse {
        push("fRMSE", scientific(bands.low), "in Fourier space, frequencies 0 to 3");
        for (value, range) in [(bands.middle, "4 to 11"), (bands.high, "12 and above")] {
            push("", value.map_or("-".into(), scientific), &format!("frequencies {range}"));
        }
    }
    if let Some(value) = metrics.vrmse {
        push("VRMSE", scientific(value), "relative to the truth's standard deviation in space");
    }
    let throughout = format!(
        "until the error exceeds 0.4; for {:.0} % of the trajectories it never does",
        100.0 * metrics.valid_throughout
    );
    push("valid time", format!("{:.3}", metrics.valid_time), &throughout);
    if let Some(value) = metrics.correlation_time {
        push("correlation time", format!("{value:.3}"), "until the correlation falls below 0.8");
    }
}
