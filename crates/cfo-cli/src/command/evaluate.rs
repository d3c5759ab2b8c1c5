//! `cfo evaluate`: rollouts against trajectories, with a report and figures.

use std::path::PathBuf;
use std::str::FromStr;

use anyhow::{Result, bail};
use cfo::data::{Description, Split, Trajectory};
use cfo::engine::Device;
use cfo::{CfoError, Checkpoints, EvaluateConfig, Model, Report, Solver, Trained, TrajectorySet, evaluate};
use serde::Serialize;

use super::figures;
use crate::args::{self, Integration, Part};
use crate::plot;
use crate::report;

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
    metrics: figures::Metrics,
}

pub fn run(arguments: &args::Evaluate) -> Result<()> {
    let (mut trained, solver, checkpoint) = load(&arguments.run, &arguments.integration)?;
    let set = TrajectorySet::read(&arguments.data)?;
    check_fit(&trained.model, &set.description)?;
    let chosen = part(&set, arguments.split)?;
    let prefix = trained.prefix();
    let found = evaluate(&trained.model, &mut trained.memory, &chosen, &solver, prefix)?;
    let metrics = figures::Metrics::new(&trained.model, &chosen, &found);
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
    let text = summary(&document);
    fs_err::write(folder.join("report.json"), report::json(&document)?)?;
    let figure = figures::error_over_time(&document.report);
    plot::write(&figure, &folder, "error-over-time")?;
    let pictures = figures::worst(&trained.model, &chosen, &document.report, &folder)?;
    let shown: String = pictures.iter().map(|name| format!("\n![{name}]({name})\n")).collect();
    let markdown =
        format!("# Evaluation\n\n```text\n{text}```\n\n![error over time](error-over-time.png)\n{shown}");
    fs_err::write(folder.join("report.md"), markdown)?;
    if arguments.json { report::print_json(&document) } else { Ok(report::print(&text)?) }
}

/// The run's weights and the solver that the options and its recipe describe.
pub(super) fn load(run: &std::path::Path, options: &Integration) -> Result<(Trained, Solver, String)> {
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
    if adaptive && !solver.tableau.estimates_error() {
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

/// Refuses trajectories of another grid, or without the PDE parameters that the model takes.
pub(super) fn check_fit(model: &Model, description: &Description) -> Result<()> {
    let (found, needed) = (description.shape, model.shape());
    if found != needed {
        bail!(CfoError::BadData {
            problem: format!(
                "the file has snapshots of shape {:?}, but the model was trained on {:?}",
                found.dimensions(),
                needed.dimensions()
            ),
            hint: "give data on the grid and with the channels of the training data".into(),
        });
    }
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

fn part(set: &TrajectorySet, part: Part) -> Result<Vec<&Trajectory>> {
    let split = match part {
        Part::Train => Split::Train,
        Part::Validation => Split::Validation,
        Part::Test => Split::Test,
        Part::All => return Ok(set.trajectories.iter().collect()),
    };
    let chosen: Vec<&Trajectory> = set.part(split).map(|(_, trajectory)| trajectory).collect();
    if chosen.is_empty() {
        bail!(CfoError::BadData {
            problem: format!("the file has no {part:?} trajectories").to_lowercase(),
            hint: "`--split all` takes every one of them".into(),
        });
    }
    Ok(chosen)
}

fn summary(document: &Document) -> String {
    let error = &document.report.relative_l2;
    format!(
        "relative L2 error  {:.4e} ± {:.1e} over {} trajectories\nat the final time  {:.4e}\n\
         evaluations        {} by {} for one trajectory, {:.3} ms\nRMSE {:.3e}, nRMSE {:.3e}\n",
        error.mean,
        error.std,
        document.trajectories,
        error.final_time,
        document.report.evaluations,
        document.solver,
        1e3 * document.report.seconds_per_trajectory,
        document.metrics.rmse,
        document.metrics.nrmse,
    )
}
