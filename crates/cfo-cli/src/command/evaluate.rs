//! `cfo evaluate`: rollouts against trajectories, with a report and figures.

use std::path::{Path, PathBuf};
use std::str::FromStr;

use anyhow::{Result, bail};
use cfo::data::{Description, Split, Trajectory};
use cfo::engine::Device;
use cfo::{
    CfoError, Checkpoints, EvaluateConfig, Metrics, Model, Report, Solver, Trained, TrajectorySet, evaluate,
    write_atomically,
};
use serde::Serialize;

use super::figures::{self, Picture};
use crate::args::{self, Integration, Part};
use crate::diagnostics::say;
use crate::plot;
use crate::report::{self, Alignment, Table, scientific};

/// The JSON document.
#[derive(Debug, Serialize)]
struct Document {
    run: PathBuf,
    data: PathBuf,
    checkpoint: String,
    solver: String,
    trajectories: usize,
    #[serde(flatten)]
    report: Report,
    metrics: Metrics,
}

pub fn run(arguments: &args::Evaluate) -> Result<()> {
    let (mut trained, solver, checkpoint) = load(&arguments.run, &arguments.integration)?;
    let mut set = TrajectorySet::open_for_run(&trained.model.recipe, &arguments.data)?;
    trained.model = trained.model.on_grid(set.description.shape)?;
    check_fit(&trained.model, &set.description)?;
    set.load(&parts(arguments.split))?;
    let chosen = part(&set, arguments.split)?;
    let prefix = trained.prefix();
    let found = evaluate(&trained.model, &mut trained.memory, &chosen, &solver, prefix)?;
    let metrics = Metrics::new(&trained.model, &chosen, &found);
    let folder = arguments.out.clone().unwrap_or_else(|| arguments.run.join("evaluation"));
    fs_err::create_dir_all(&folder)?;
    let document = Document {
        run: arguments.run.clone(),
        data: arguments.data.clone(),
        checkpoint,
        solver: solver.tableau.name.into(),
        trajectories: chosen.len(),
        report: found,
        metrics,
    };
    let table = table(&document);
    write_atomically(&folder.join("report.json"), report::json(&document)?.as_bytes())?;
    let pictures = draw(arguments, &trained.model, &set, &chosen, &document.report, &folder)?;
    let shown: String =
        pictures.iter().map(|picture| format!("\n![{}]({})\n", picture.caption, picture.file)).collect();
    let markdown = format!("# Evaluation\n\n{}.\n\n{}{shown}", setting(&document), table.markdown());
    write_atomically(&folder.join("report.md"), markdown.as_bytes())?;
    say(&format!("written: `{}` and {} figures", folder.join("report.md").display(), pictures.len()));
    if arguments.json { report::print_json(&document) } else { Ok(report::print(&table.text())?) }
}

/// Draws what there is to see and returns what was written.
fn draw(
    arguments: &args::Evaluate,
    model: &Model,
    set: &TrajectorySet,
    chosen: &[&Trajectory],
    found: &Report,
    folder: &Path,
) -> Result<Vec<Picture>> {
    let picture = |file: &str, caption: &str| Picture { file: file.into(), caption: caption.into() };
    plot::write(&figures::error_over_time(found), folder, "error-over-time")?;
    let mut pictures = vec![picture("error-over-time.png", "Error over time")];
    pictures.extend(figures::worst(model, &set.description, chosen, found, folder)?);
    if let Some(curves) = figures::loss_curves(&arguments.run)? {
        plot::write(&curves, folder, "training")?;
        pictures.push(picture("training.png", "Training"));
    }
    Ok(pictures)
}

/// The run's weights and the solver that the options and its recipe describe.
pub(super) fn load(run: &Path, options: &Integration) -> Result<(Trained, Solver, String)> {
    let device = Device::from_str(&options.device).map_err(CfoError::from)?;
    let checkpoints = Checkpoints::of(run);
    if !checkpoints.exist() {
        return Err(CfoError::BadData {
            problem: format!("`{}` is not the folder of a run: it has no checkpoint", run.display()),
            hint: "`cfo train RECIPE --out RUN` makes one".into(),
        }
        .into());
    }
    let checkpoint = options.checkpoint.clone().unwrap_or_else(|| {
        let best = run.join("checkpoints/best").exists();
        if best { "best".into() } else { "latest".into() }
    });
    let trained = Trained::load(run, &checkpoint, device)?;
    let defaults = trained.model.recipe.evaluate.clone();
    let adaptive = options.rtol.is_some() || options.atol.is_some();
    let config = EvaluateConfig {
        solver: options.solver.clone().unwrap_or(defaults.solver),
        nfe: options.nfe.unwrap_or(if adaptive { 0 } else { defaults.nfe }),
        rtol: options.rtol.unwrap_or(defaults.rtol),
        atol: options.atol.unwrap_or(defaults.atol),
    };
    let solver = Solver::from_config(&config)?;
    if adaptive && !solver.tableau.first_same_as_last {
        bail!(CfoError::InvalidKey {
            key: "--rtol".into(),
            problem: format!(
                "`{}` has fixed steps; tolerances need `--solver dopri5` or `tsit5`",
                solver.tableau.name
            ),
        });
    }
    Ok((trained, solver, checkpoint))
}

/// Refuses trajectories without the PDE parameters that the model takes.
pub(super) fn check_fit(model: &Model, description: &Description) -> Result<()> {
    if model.setting.conditions > 0 && description.parameter_names.len() != model.setting.conditions {
        bail!(CfoError::BadData {
            problem: format!(
                "the file comes with {} PDE parameters, but the model takes {}",
                description.parameter_names.len(),
                model.setting.conditions
            ),
            hint: "add `/parameters` to the file".into(),
        });
    }
    Ok(())
}

/// The parts of a set that are meant.
fn parts(part: Part) -> Vec<Split> {
    match part {
        Part::Train => vec![Split::Train],
        Part::Validation => vec![Split::Validation],
        Part::Test => vec![Split::Test],
        Part::All => Split::ALL.to_vec(),
    }
}

fn part(set: &TrajectorySet, part: Part) -> Result<Vec<&Trajectory>> {
    let wanted = parts(part);
    let trajectories = set.trajectories.iter().zip(&set.splits);
    let chosen: Vec<&Trajectory> =
        trajectories.filter(|(_, split)| wanted.contains(split)).map(|(trajectory, _)| trajectory).collect();
    if chosen.is_empty() {
        bail!(CfoError::BadData {
            problem: format!("the file has no {part:?} trajectories").to_lowercase(),
            hint: "`--split all` takes every one of them".into(),
        });
    }
    Ok(chosen)
}

/// What was compared, in a sentence.
fn setting(document: &Document) -> String {
    format!(
        "`{}`, checkpoint `{}`, rolled out from the first snapshot of {} trajectories of `{}` by `{}` and compared at all their times",
        document.run.display(),
        document.checkpoint,
        document.trajectories,
        document.data.display(),
        document.solver
    )
}

/// One number a line. A metric that the data do not have is left out.
fn table(document: &Document) -> Table {
    let Document { report, metrics, .. } = document;
    let mut table =
        Table::new([("metric", Alignment::Left), ("value", Alignment::Right), ("of", Alignment::Left)]);
    let mut push = |metric: &str, value: String, of: &str| table.push([metric.into(), value, of.into()]);
    let error = &report.relative_l2;
    push(
        "relative L2 error",
        scientific(error.mean),
        &format!("mean over {} trajectories", document.trajectories),
    );
    push("", scientific(error.std), "deviation over trajectories");
    push("", scientific(error.final_time), "mean at the final time");
    push("RMSE", scientific(metrics.rmse), "root mean square error");
    push("nRMSE", scientific(metrics.nrmse), "relative to the truth's root mean square");
    push("max", scientific(metrics.max), "largest error at a time");
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
        push("VRMSE", scientific(value), "relative to the truth's deviation in space");
    }
    let throughout = format!("error below 0.4; {:.0} % throughout", 100.0 * metrics.valid_throughout);
    push("valid time", format!("{:.3}", metrics.valid_time), &throughout);
    if let Some(value) = metrics.correlation_time {
        push("correlation time", format!("{value:.3}"), "correlation above 0.8");
    }
    push(
        "evaluations",
        report.evaluations.to_string(),
        &format!("of the network for one trajectory by `{}`", document.solver),
    );
    push(
        "milliseconds",
        format!("{:.3}", 1e3 * report.seconds_per_trajectory),
        "for one trajectory, many at once",
    );
    table
}
