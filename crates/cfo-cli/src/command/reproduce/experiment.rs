//! What the experiments share: data simulated once for each system, trainings that go on where they were killed,
//! and the measurement of each.
//!
//! A target describes its trainings and turns each [`Outcome`] into rows; everything between is here.

use std::path::PathBuf;
use std::str::FromStr;
use std::sync::atomic::AtomicBool;

use anyhow::{Context, Result};
use cfo::data::{Split, Trajectory};
use cfo::engine::Device;
use cfo::numerics::{Path, Spline};
use cfo::{
    CfoError, Checkpoints, EvaluateConfig, Model, Recipe, Report, Session, Solver, StepReport, Trained,
    TrainingData, TrajectorySet, evaluate, prepare_folder, train,
};
use serde::Deserialize;

use super::system::{Backbone, SYSTEMS, System};
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

/// Names follow from what is trained, so that experiments that need the same network share it.
impl Training {
    /// A continuous flow operator on the system's own network.
    pub fn flow(system: &'static System, path: Path, keep_rate: f64) -> Self {
        let points = match (path.spline, path.stencil) {
            (Spline::Linear, _) | (_, 3) => String::new(),
            (_, points) => format!("-{points}"),
        };
        let changes = vec![
            format!("path.spline={}", path.spline),
            format!("path.stencil={}", path.stencil),
            format!("data.keep_rate={keep_rate}"),
        ];
        let name = format!("cfo-{}{points}-{:.0}", path.spline, 100.0 * keep_rate);
        Self { system, name, changes, horizon: 1.0 }
    }

    /// The same with another network.
    pub fn on(mut self, backbone: &Backbone, scale: Scale) -> Self {
        if backbone.kind != self.system.backbones[0].kind {
            self.name += &format!("-{}", backbone.kind);
            self.changes.push(backbone.overrides(scale));
        }
        self
    }

    /// Next-step prediction on all times; of the change if `residual`.
    pub fn baseline(system: &'static System, backbone: &Backbone, residual: bool, scale: Scale) -> Self {
        let changes = vec![
            backbone.overrides(scale),
            format!("objective={{kind=\"autoregressive\", residual={residual}}}"),
        ];
        let prediction = if residual { "change" } else { "next-state" };
        Self { system, name: format!("autoregressive-{}-{prediction}", backbone.kind), changes, horizon: 1.0 }
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
    /// The trajectories that nothing was fitted to.
    pub fn test(&self) -> Vec<&Trajectory> {
        self.set.part(Split::Test).map(|(_, trajectory)| trajectory).collect()
    }

    /// Steps from the first snapshot that is predicted from to the last: the evaluations of a next-step prediction.
    pub fn intervals(&self) -> usize {
        let first = usize::from(self.recipe().data.drop_first);
        self.set.trajectories.iter().map(|trajectory| trajectory.times.len() - 1 - first).max().unwrap_or(0)
    }

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
        let shortened = (training.horizon < 1.0).then(|| shortened(set, training.horizon));
        let seen = shortened.as_ref().unwrap_or(set);
        if !is_finished(&run, recipe, seen).with_context(context)? {
            self.go_on(&run, recipe, seen).with_context(context)?;
        }
        let weights = if run.join("checkpoints/best").exists() { "best" } else { "latest" };
        let trained = Trained::load(&run, weights, self.device).with_context(context)?;
        let reports = reports(&run.join("metrics.jsonl"))?;
        let losses = reports.iter().map(|report| (f64::from(report.step), report.loss)).collect();
        Ok(Outcome { trained, set, losses, seconds: seconds(&reports) })
    }

    /// Trains in a folder, from its latest checkpoint if it has one.
    fn go_on(&self, run: &std::path::Path, recipe: &Recipe, set: &TrajectorySet) -> Result<()> {
        let resume = Checkpoints::of(run).exist();
        prepare_folder(run, recipe, resume)?;
        let mut progress = progress::Training::new(recipe.train.steps);
        let mut observer = |report: &StepReport| progress.report(report);
        let session = Session {
            device: self.device,
            folder: Some(run),
            resume,
            interrupt: self.interrupt,
            observer: &mut observer,
        };
        train(recipe, set, session)?;
        Ok(())
    }
}

/// Whether a folder holds the finished run of this recipe on these data.
fn is_finished(run: &std::path::Path, recipe: &Recipe, set: &TrajectorySet) -> Result<bool> {
    let checkpoints = Checkpoints::of(run);
    if !checkpoints.exist() {
        return Ok(false);
    }
    let state = checkpoints.state("latest")?;
    if state.model.recipe != *recipe {
        return Err(CfoError::BadData {
            problem: format!("`{}` holds a run by another recipe", run.display()),
            hint: "remove it, or choose another `--out` or `--runs`".into(),
        }
        .into());
    }
    let model = Model::new(recipe, set)?;
    let data = TrainingData::new(&model, set)?;
    Ok(state.step == recipe.train.steps && state.data_fingerprint == data.fingerprint(&model, set)?)
}

/// What of a line of `metrics.jsonl` is used.
#[derive(Deserialize)]
struct Logged {
    step: u32,
    loss: f64,
    steps_per_second: f64,
}

fn reports(path: &std::path::Path) -> Result<Vec<Logged>> {
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
