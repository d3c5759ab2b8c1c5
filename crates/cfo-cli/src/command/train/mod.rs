//! `cfo train`: trains on trajectories with a recipe and fills a run folder.

mod dry_run;

use std::path::{Path, PathBuf};
use std::time::Instant;

use anyhow::{Context, Result};
use cfo::data::store::TrajectoryFile;
use cfo::objective::ObjectiveConfig;
use cfo::proposal::{Machine, Proposal, warnings_of_file};
use cfo::ranks;
use cfo::{CfoError, Device, Ending, Model, Recipe, Run, Trained, Training, Trajectories, WallTime};
use serde::Serialize;

use crate::args;
use crate::diagnostics::say;
use crate::interrupt;
use crate::job;
use crate::progress;
use crate::report;
use cfo_view::figures::loss_curves;
use cfo_view::plot;

/// The result of a training run; the JSON document.
#[derive(Debug, Serialize)]
struct Report {
    #[serde(serialize_with = "report::path")]
    run: PathBuf,
    system: String,
    operator: &'static str,
    objective: &'static str,
    parameters: usize,
    device: String,
    /// Steps made, those of earlier sessions included.
    steps: u32,
    ending: &'static str,
    loss: f64,
    #[serde(skip)]
    relative: bool,
    validation: Option<f64>,
    smoothed: Vec<Smoothed>,
    warnings: Vec<String>,
    seconds: f64,
    time: WallTime,
}

#[derive(Debug, Serialize)]
struct Smoothed {
    name: String,
    deviation: f64,
    relative: f64,
}

impl Smoothed {
    fn of(model: &Model) -> Vec<Self> {
        let channels = model.denoiser.iter().flat_map(|denoiser| denoiser.channels.iter().enumerate());
        let smoothed = channels.filter_map(|(channel, removed)| {
            let removed = removed.as_ref()?;
            let name = model.channel_names.get(channel).cloned().unwrap_or_else(|| channel.to_string());
            Some(Self { name, deviation: removed.deviation, relative: removed.relative })
        });
        smoothed.collect()
    }

    fn text(all: &[Self]) -> String {
        let one = |smoothed: &Self| format!("{} {:.1} %", smoothed.name, 100.0 * smoothed.relative);
        let all: Vec<String> = all.iter().map(one).collect();
        format!("{} of the standard deviation", all.join(", "))
    }
}

fn ending(ending: Ending) -> &'static str {
    match ending {
        Ending::Complete => "complete",
        Ending::Patience => "patience",
        Ending::Observer => "stopped",
        Ending::Earlier => "finished-earlier",
    }
}

/// The recipe of a training run, with what the options change.
fn recipe(arguments: &args::Train) -> Result<Recipe> {
    // Only rank 0 may see the folder of a run that is resumed.
    let (text, origin) = ranks::by_first(|| recipe_text(arguments))?;
    let mut recipe = Recipe::parse(&text, &arguments.set).with_context(|| format!("reading {origin}"))?;
    if let Some(path) = &arguments.data {
        if let Some(system) = recipe.data.simulate.take() {
            say(&format!(
                "warning: `data.simulate = \"{system}\"` of the recipe is not used: `--data` names a file"
            ));
        }
        recipe.data.path = Some(path.clone()).filter(|path| path.to_str().is_some());
        if recipe.data.path.is_none() {
            say(&format!(
                "warning: the name of `{}` is not UTF-8 and cannot be stored in the recipe of the run: give `--data` again to resume",
                path.display()
            ));
        }
    }
    if let Some(run) = &arguments.from {
        recipe.train.from = Some(run.clone());
    }
    Ok(recipe)
}

pub fn run(arguments: &args::Train) -> Result<()> {
    let recipe = recipe(arguments)?;
    let device = job::device(&arguments.device)?;
    let interrupt = interrupt::flag()?;
    let begun = Instant::now();
    let set = Trajectories::from_recipe(&recipe, arguments.data.as_deref(), interrupt)?;
    let opening = begun.elapsed().as_secs_f64();
    warn_of_sampling(arguments, &recipe, &set)?;
    if arguments.dry_run {
        return dry_run::run(&recipe, &set, device, arguments.json);
    }
    let folder = default_folder(arguments);
    let checkpoints = Run::at(&folder).checkpoints();
    if arguments.resume && ranks::is_first() && checkpoints.exist() {
        let (newest, problems) = checkpoints.newest_whole()?;
        for problem in problems {
            say(&format!("warning: {problem}; continuing from `{newest}`"));
        }
    }
    let mut progress = progress::TrainingProgress::new(recipe.total_steps());
    let trained = Training::from_recipe(&recipe)
        .device(device)
        .folder(&folder)
        .resume(arguments.resume)
        .interrupt(interrupt)
        .observer(&mut progress)
        .fit(&set)?;
    let validation = progress.validation();
    drop(progress);
    if ranks::is_first()
        && let Some(curves) = loss_curves(&Run::at(&folder))?
    {
        plot::write(&curves, &folder, "training")?;
    }
    let mut time = trained.wall_time();
    time.reading += opening;
    time.close(begun);
    let report = Report { validation, time, ..Report::of(&trained, folder, device)? };
    say(&format!("wall time {time}"));
    report::print_result(arguments.json, &report, || summary(&report))?;
    for doubt in trained.doubts() {
        say(&format!("warning: {doubt}"));
    }
    Ok(())
}

impl Report {
    fn of(trained: &Trained, run: PathBuf, device: Device) -> Result<Self> {
        let (model, recipe) = (trained.model(), trained.recipe());
        Ok(Self {
            run,
            system: model.system.clone(),
            operator: recipe.operator.name(),
            objective: recipe.objective.name(),
            parameters: model.parameters()?,
            device: device.to_string(),
            steps: trained.steps(),
            ending: ending(trained.ending()),
            loss: trained.loss(),
            relative: model.has_relative_loss() && recipe.finetune.steps == 0,
            validation: None,
            smoothed: Smoothed::of(model),
            seconds: trained.seconds(),
            time: trained.wall_time(),
            warnings: trained.warnings(),
        })
    }
}

/// Numbers up to which a file is read once more to judge its times. `cfo init` and `cfo inspect` judge larger ones.
const SMALL: usize = 1 << 21;

/// Warns of times that no spline suits, where a recipe was given: a recipe that is made for the data comes with its own warnings.
fn warn_of_sampling(arguments: &args::Train, recipe: &Recipe, set: &Trajectories) -> Result<()> {
    let Some(path) = recipe.data.path.as_ref().filter(|_| arguments.recipe.is_some() && !arguments.resume)
    else {
        return Ok(());
    };
    let frames: usize = set.trajectories.iter().map(|one| one.times.len()).sum();
    let is_small = frames.saturating_mul(set.description.shape.len()) <= SMALL;
    let is_learned_from_splines = matches!(recipe.objective, ObjectiveConfig::FlowMatching);
    if is_small && is_learned_from_splines && recipe.data.keep_rate == 1.0 && ranks::is_first() {
        let warnings = warnings_of_file(&TrajectoryFile::open(path)?)?;
        warnings.iter().for_each(|warning| say(&format!("warning: {warning}")));
    }
    Ok(())
}

/// The recipe's text and its name in messages: the given file, the run's own when it continues, else one made for the data.
fn recipe_text(arguments: &args::Train) -> Result<(String, String)> {
    let run = Run::at(default_folder(arguments));
    let own = run.recipe_path();
    let path = match &arguments.recipe {
        Some(path) => Some(path.clone()),
        None => Some(own.clone()).filter(|own| arguments.resume && own.exists()),
    };
    if path.is_none()
        && arguments.resume
        && let Some((newest, state)) = run.newest_checkpoint()?
    {
        say(&format!(
            "warning: `{}` is missing; resuming with the recipe stored in checkpoint `{newest}`",
            own.display()
        ));
        return Ok((state.recipe().to_toml()?, "the recipe of the checkpoint".into()));
    }
    let Some(path) = path else {
        let Some(data) = &arguments.data else {
            let hint = "write `cfo train RECIPE`, or `cfo train --data FILE` for a recipe that is chosen for the file";
            return Err(CfoError::bad_data("neither a recipe nor data were given", hint).into());
        };
        let proposal = Proposal::new(&TrajectoryFile::open(data)?, Machine::here())?;
        proposal.warnings().iter().for_each(|warning| say(&format!("warning: {warning}")));
        let text = proposal.to_toml()?;
        say(&format!("no recipe was given: using the recipe that `cfo init {}` writes", data.display()));
        return Ok((text, "the recipe for the data".into()));
    };
    match String::from_utf8(fs_err::read(&path)?) {
        Ok(text) => Ok((text, format!("the recipe `{}`", path.display()))),
        Err(_) => {
            let hint = "`cfo train --data FILE` chooses a recipe for the file, `cfo train RECIPE --data FILE` uses yours";
            let problem = format!("`{}` is not a recipe: it is not text", path.display());
            Err(CfoError::bad_data(problem, hint).into())
        }
    }
}

/// The folder given, or `runs/NAME` for a recipe `.../NAME.toml` or, without one, for data `.../NAME.npz`.
fn default_folder(arguments: &args::Train) -> PathBuf {
    let named = arguments.recipe.as_deref().or(arguments.data.as_deref()).and_then(Path::file_stem);
    let unnamed = || Path::new("runs").join(named.unwrap_or_default());
    arguments.out.clone().unwrap_or_else(unnamed)
}

fn summary(report: &Report) -> String {
    let validation =
        report.validation.map_or(String::new(), |error| format!(", validation error {error:.3e}"));
    let relative = if report.relative { " (1 = predicting no change)" } else { "" };
    let loss = format!(", loss {:.3e}{relative}", report.loss);
    if report.ending == "finished-earlier" {
        let (run, steps) = (report.run.display(), report.steps);
        return format!("{run}: already finished after {steps} steps{loss}; nothing was trained\n");
    }
    let early = if report.ending == "patience" { ", ended early by `train.patience`" } else { "" };
    let smoothed = match report.smoothed.is_empty() {
        true => String::new(),
        false => format!("noise removed from the training data: {}\n", Smoothed::text(&report.smoothed)),
    };
    format!(
        "{}: {} with {} parameters, {} steps in {:.1} s on {}{early}{loss}{validation}\n{smoothed}",
        report.run.display(),
        report.operator,
        report.parameters,
        report.steps,
        report.seconds,
        report.device,
    )
}
