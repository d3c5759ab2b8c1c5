//! What the experiments share: data simulated once for each system, trainings that go on where they were killed,
//! and the measurement of each.
//!
//! A target describes its trainings and turns each [`Outcome`] into rows; everything between is here.

use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::atomic::AtomicBool;

use anyhow::{Context, Result};
use cfo::data::{Split, Trajectory};
use cfo::engine::Device;
use cfo::{
    CfoError, Checkpoints, EvaluateConfig, Recipe, Report, Session, Solver, StepReport, Trained,
    TrajectorySet, evaluate, prepare_folder, train,
};
use serde::Deserialize;

use super::system::{SYSTEMS, System};
use crate::args::{self, Scale};
use crate::diagnostics::say;
use crate::interrupt;
use crate::progress;

/// A network to be trained: what sets it apart from the system's own recipe.
#[derive(Clone)]
pub(super) struct Training {
    pub system: &'static System,
    /// Tells it apart from the others of its system; the name of its folder.
    pub name: String,
    /// Changes of the recipe.
    pub changes: Vec<String>,
    /// Share of the horizon that training and validation see.
    pub horizon: f64,
}

impl Training {
    /// A training on the whole horizon.
    pub fn new(system: &'static System, name: &str, changes: &[&str]) -> Self {
        let changes = changes.iter().map(|&change| change.to_owned()).collect();
        Self { system, name: name.into(), changes, horizon: 1.0 }
    }
}

/// A network that was trained, beside its data.
pub(super) struct Outcome<'a> {
    pub trained: Trained,
    /// Whole trajectories, whatever part of the horizon was trained on.
    pub set: &'a TrajectorySet,
    /// Step and mean loss of every report.
    pub losses: Vec<(f64, f64)>,
    /// Seconds of training, validation not counted.
    pub seconds: f64,
}

impl Outcome<'_> {
    /// Rollouts of the test trajectories as the recipe asks; nothing if one of them diverges.
    pub fn evaluate(&mut self) -> Result<Option<Report>> {
        let config = self.trained.model.recipe.evaluate.clone();
        self.evaluate_with(&config)
    }

    /// Rollouts of the test trajectories; nothing if one of them diverges.
    pub fn evaluate_with(&mut self, config: &EvaluateConfig) -> Result<Option<Report>> {
        let solver = Solver::from_config(config)?;
        let test: Vec<&Trajectory> = self.set.part(Split::Test).map(|(_, trajectory)| trajectory).collect();
        let prefix = self.trained.prefix();
        let Trained { model, memory, .. } = &mut self.trained;
        match evaluate(model, memory, &test, &solver, prefix) {
            Ok(report) => Ok(Some(report)),
            Err(CfoError::RolloutDiverged { .. }) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// The recipe it was trained by.
    pub fn recipe(&self) -> &Recipe {
        &self.trained.model.recipe
    }
}

/// Where experiments are made: device, folders, and what the command line changes.
pub(super) struct Laboratory<'a> {
    arguments: &'a args::Reproduce,
    device: Device,
    folder: PathBuf,
    interrupt: &'static AtomicBool,
}

impl<'a> Laboratory<'a> {
    pub fn new(arguments: &'a args::Reproduce) -> Result<Self> {
        let device = Device::from_str(&arguments.device).map_err(CfoError::from)?;
        let own = format!("{}-seed-{}", arguments.scale.name(), arguments.seed);
        let folder = match &arguments.runs {
            Some(folder) => folder.clone(),
            None => super::folder(arguments).join("runs"),
        };
        Ok(Self { arguments, device, folder: folder.join(own), interrupt: interrupt::flag()? })
    }

    /// The systems of an experiment that were asked for: all of `names` by default.
    pub fn systems(&self, names: &[&str]) -> Result<Vec<&'static System>> {
        for asked in &self.arguments.system {
            if !names.contains(&asked.as_str()) {
                return Err(CfoError::InvalidKey {
                    key: "--system".into(),
                    problem: format!(
                        "`{asked}` is none of this experiment's systems `{}`",
                        names.join("`, `")
                    ),
                }
                .into());
            }
        }
        let asked = &self.arguments.system;
        let chosen = |system: &&System| {
            names.contains(&system.name) && (asked.is_empty() || asked.iter().any(|name| name == system.name))
        };
        Ok(SYSTEMS.iter().filter(chosen).collect())
    }

    /// Makes every training, or this process's share of them, and hands each outcome to `measure` unless only
    /// a share was asked for. Returns whether everything was measured.
    ///
    /// Trainings of one system follow each other, so that only one system's data are in memory.
    pub fn each(
        &self,
        trainings: &[Training],
        mut measure: impl FnMut(usize, Outcome<'_>) -> Result<()>,
    ) -> Result<bool> {
        let mut held: Option<(&str, TrajectorySet)> = None;
        for (position, training) in trainings.iter().enumerate() {
            if self.arguments.share.is_some_and(|share| !share.includes(position)) {
                continue;
            }
            let recipe = self.recipe(training)?;
            let set = match held.take() {
                Some((name, set)) if name == training.system.name => set,
                _ => self.simulate(training.system, &recipe)?,
            };
            let (_, set) = held.insert((training.system.name, set));
            say(&format!(
                "{} of {}: {}, {}",
                position + 1,
                trainings.len(),
                training.system.label,
                training.name
            ));
            let outcome = self.train(training, &recipe, set)?;
            if self.arguments.share.is_none() {
                measure(position, outcome)?;
            }
        }
        Ok(self.arguments.share.is_none())
    }

    fn recipe(&self, training: &Training) -> Result<Recipe> {
        let seed = format!("train.seed={}", self.arguments.seed);
        let changes: Vec<String> =
            training.changes.iter().chain([&seed]).chain(&self.arguments.set).cloned().collect();
        Ok(training.system.recipe(self.arguments.scale, &changes)?)
    }

    /// The system's trajectories: as many as its recipe splits.
    fn simulate(&self, system: &System, recipe: &Recipe) -> Result<TrajectorySet> {
        let counts = recipe.data.split.unwrap_or([80, 10, 10]);
        let samples: usize = counts.iter().sum();
        say(&format!("simulating {samples} trajectories: {}", system.label));
        let equation = system.equation(self.arguments.scale);
        let set = TrajectorySet::simulate(&*equation, samples, self.arguments.seed, self.interrupt)?;
        Ok(set.with_split(counts)?)
    }

    /// Trains, goes on, or just loads what is finished; then takes the weights of the lowest validation error.
    fn train<'s>(&self, training: &Training, recipe: &Recipe, set: &'s TrajectorySet) -> Result<Outcome<'s>> {
        let run = self.folder.join(training.system.name).join(&training.name);
        let context = || format!("in `{}`", run.display());
        let checkpoints = Checkpoints::of(&run);
        let resume = checkpoints.exist();
        if resume && checkpoints.state("latest").with_context(context)?.model.recipe != *recipe {
            return Err(CfoError::BadData {
                problem: format!("`{}` holds a run by another recipe", run.display()),
                hint: "remove it, or choose another `--out` or `--runs`".into(),
            }
            .into());
        }
        prepare_folder(&run, recipe, resume).with_context(context)?;
        let shortened = (training.horizon < 1.0).then(|| shortened(set, training.horizon));
        let mut progress = progress::Training::new(recipe.train.steps);
        let mut observer = |report: &StepReport| progress.report(report);
        let session = Session {
            device: self.device,
            folder: Some(&run),
            resume,
            interrupt: self.interrupt,
            observer: &mut observer,
        };
        let mut trained = train(recipe, shortened.as_ref().unwrap_or(set), session).with_context(context)?;
        drop(progress);
        if run.join("checkpoints/best").exists() {
            trained = Trained::load(&run, "best", self.device).with_context(context)?;
        }
        let reports = reports(&run.join("metrics.jsonl"))?;
        let losses = reports.iter().map(|report| (f64::from(report.step), report.loss)).collect();
        Ok(Outcome { trained, set, losses, seconds: seconds(&reports) })
    }
}

/// What of a line of `metrics.jsonl` is used.
#[derive(Deserialize)]
struct Logged {
    step: u32,
    loss: f64,
    steps_per_second: f64,
}

fn reports(path: &Path) -> Result<Vec<Logged>> {
    let text = fs_err::read_to_string(path)?;
    text.lines()
        .map(|line| serde_json::from_str(line).with_context(|| format!("reading `{}`", path.display())))
        .collect()
}

/// Seconds between the reports of a run, whatever stood still between its attempts.
fn seconds(reports: &[Logged]) -> f64 {
    let before = std::iter::once(0).chain(reports.iter().map(|report| report.step));
    reports
        .iter()
        .zip(before)
        .map(|(report, before)| f64::from(report.step.saturating_sub(before)) / report.steps_per_second)
        .sum()
}

/// The set with training and validation trajectories cut off after a share of their time; test trajectories whole.
fn shortened(set: &TrajectorySet, share: f64) -> TrajectorySet {
    let size = set.description.shape.len();
    let mut short = set.clone();
    for (trajectory, split) in short.trajectories.iter_mut().zip(&set.splits) {
        let (Some(&first), Some(&last)) = (trajectory.times.first(), trajectory.times.last()) else {
            continue;
        };
        if *split != Split::Test {
            let end = first + share * (last - first);
            let kept =
                trajectory.times.iter().take_while(|&&time| time <= end + 1e-9 * (last - first)).count();
            trajectory.times.truncate(kept);
            trajectory.values.truncate(kept * size);
        }
    }
    short
}

/// What a reader must know of how the figures came about: reductions of `smoke`, overrides, the seed.
pub(super) fn setting(arguments: &args::Reproduce, systems: &[&System]) -> String {
    let mut text = match arguments.scale {
        Scale::Smoke => {
            let reductions: Vec<String> =
                systems.iter().map(|system| format!("- {}: {}.", system.label, system.reduction)).collect();
            format!(
                "`smoke` is a reduced version, made to run in minutes; its figures do not repeat the paper's. Reduced are:\n\n{}\n",
                reductions.join("\n")
            )
        }
        Scale::Paper => "The paper's data, networks and budget (`recipes/`), values normalised.\n".into(),
    };
    if !arguments.set.is_empty() {
        text += &format!("\nChanged by hand in every recipe: `{}`.\n", arguments.set.join("`, `"));
    }
    text + &format!("\nOne seed ({}); weights of the lowest validation error.\n", arguments.seed)
}

/// The command that repeats a report.
pub(super) fn command(arguments: &args::Reproduce) -> String {
    let mut words =
        vec![format!("cfo reproduce {} --scale {}", arguments.target.name(), arguments.scale.name())];
    words.extend(arguments.system.iter().map(|system| format!("--system {system}")));
    words.extend(arguments.set.iter().map(|set| format!("--set '{set}'")));
    words.push(format!("--device {} --seed {}", arguments.device, arguments.seed));
    words.join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seconds_count_every_step_once() {
        let logged = |step, steps_per_second| Logged { step, loss: 0.0, steps_per_second };
        assert_eq!(seconds(&[logged(100, 10.0), logged(150, 25.0)]), 12.0);
        assert_eq!(seconds(&[]), 0.0);
    }
}
