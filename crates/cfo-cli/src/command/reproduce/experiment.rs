//! What the experiments share: data simulated once for each system, training runs that continue after an interruption,
//! and the measurement of each.
//!
//! A target describes its training runs and turns each [`Outcome`] into rows; everything between is here.

use std::path::PathBuf;
use std::sync::atomic::AtomicBool;

use anyhow::{Context, Result};
use cfo::checkpoint::Checkpoints;
use cfo::data::{Split, Trajectory};
use cfo::engine::Device;
use cfo::ranks;
use cfo::recipe::EvaluateConfig;
use cfo::training::TrainingData;
use cfo::{CfoError, Recipe, Report, Request, Solver, Trained, Trajectories, Watch};
use serde::Deserialize;

use super::system::{SYSTEMS, Setup, System};
use super::training::{Training, print_plan};
use crate::args;
use crate::diagnostics::say;
use crate::interrupt;
use crate::job;
use crate::progress;

/// A network that was trained, beside its data.
pub(super) struct Outcome<'a> {
    pub trained: Trained,
    /// Whole trajectories, whatever part of the horizon was trained on.
    pub set: &'a Trajectories,
    /// Step and mean loss of every report before fine-tuning, whose loss is another.
    pub losses: Vec<(f64, f64)>,
    /// Seconds of training until each report, validation not counted.
    pub clock: Vec<f64>,
    /// Seconds of training, validation not counted.
    pub seconds: f64,
    interrupt: &'a AtomicBool,
}

impl Outcome<'_> {
    /// The test trajectories.
    pub fn test(&self) -> Vec<&Trajectory> {
        self.set.part(Split::Test).map(|(_, trajectory)| trajectory).collect()
    }

    /// The test trajectories from the first snapshot that is predicted from, over all their later times.
    pub fn request(&self) -> Request {
        let (size, first) = (self.trained.model().shape().len(), usize::from(self.recipe().data.drop_first));
        let mut request = Request::default();
        for trajectory in self.test() {
            request.start.push(trajectory.times[first]);
            request.states.push(trajectory.values[first * size..(first + 1) * size].to_vec());
            request.times.push(trajectory.times[first + 1..].to_vec());
            request.conditions.push(trajectory.parameters.clone());
        }
        request
    }

    /// The predicted snapshots of every test trajectory, from the snapshot where predictions start; if one diverged, those before.
    pub fn predictions(&self) -> Result<Vec<Vec<f32>>> {
        let request = self.request();
        let mut found = self.trained.predict_each(&request, &self.watch())?.states;
        for (states, first) in found.iter_mut().zip(&request.states) {
            states.splice(0..0, first.iter().copied());
        }
        Ok(found)
    }

    /// Steps from the first snapshot that is predicted from to the last: the evaluations of a next-step prediction.
    pub fn intervals(&self) -> usize {
        let first = usize::from(self.recipe().data.drop_first);
        self.set.trajectories.iter().map(|trajectory| trajectory.times.len() - 1 - first).max().unwrap_or(0)
    }

    /// Rollouts of the test trajectories as the recipe asks; nothing if one of them diverges.
    pub fn evaluate(&self) -> Result<Option<Report>> {
        self.evaluate_with(&self.recipe().evaluate)
    }

    /// Rollouts of the test trajectories; nothing if one of them diverges.
    pub fn evaluate_with(&self, config: &EvaluateConfig) -> Result<Option<Report>> {
        let trained = self.trained.with_solver(Solver::from_config(config)?);
        let report = trained.evaluate_each(&self.set.test(), false, self.watch())?;
        // The states are not used, and would stay in memory with the report.
        Ok(report.diverged.is_empty().then_some(Report { worst: None, ..report }))
    }

    /// Lets Ctrl-C end its rollouts.
    pub fn watch(&self) -> Watch<'_> {
        Watch::default().with_interrupt(self.interrupt)
    }

    /// The recipe it was trained with.
    pub fn recipe(&self) -> &Recipe {
        self.trained.recipe()
    }
}

/// An experiment of `all` that has none of the systems that were asked for.
#[derive(Debug)]
pub(super) struct NotAsked;

impl std::error::Error for NotAsked {}

impl std::fmt::Display for NotAsked {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("none of this experiment's systems was asked for")
    }
}

/// The environment of the experiments: device, folders, and what the command line changes.
pub(super) struct Laboratory<'a> {
    arguments: &'a args::Reproduce,
    device: Device,
    folder: PathBuf,
    interrupt: &'static AtomicBool,
}

impl<'a> Laboratory<'a> {
    pub fn new(arguments: &'a args::Reproduce) -> Result<Self> {
        let device = job::device(&arguments.device)?;
        let own = format!("{}-seed-{}", arguments.scale.name(), arguments.seed);
        let folder = arguments.runs.join(own);
        Ok(Self { arguments, device, folder, interrupt: interrupt::flag()? })
    }

    /// The setups of an experiment that were asked for: by default all systems that `belongs` accepts, each with every recipe.
    pub fn setups(&self, belongs: impl Fn(&System) -> bool) -> Result<Vec<Setup>> {
        let scale = self.arguments.scale;
        let systems: Vec<&'static System> =
            SYSTEMS.iter().filter(|system| belongs(system) && system.exists_at(scale)).collect();
        let names: Vec<&str> = systems.iter().map(|system| system.name()).collect();
        let mut asked = self.arguments.system.clone();
        if self.arguments.part_of_all && !asked.is_empty() {
            asked.retain(|name| names.contains(&name.as_str()));
            if asked.is_empty() {
                return Err(NotAsked.into());
            }
        }
        if let Some(unknown) = asked.iter().find(|asked| !names.contains(&asked.as_str())) {
            let problem =
                format!("`{unknown}` is not among this experiment's systems `{}`", names.join("`, `"));
            return Err(CfoError::InvalidKey { key: "--system".into(), problem }.into());
        }
        let chosen = systems
            .into_iter()
            .filter(|system| asked.is_empty() || asked.iter().any(|name| name == system.name()));
        let editions = self.arguments.editions().list();
        let each = |system: &'static System| {
            system.editions(editions).into_iter().map(move |edition| Setup { system, edition, scale })
        };
        Ok(chosen.flat_map(each).collect())
    }

    /// Does every training run with every seed, or this process's share of them, and measures each unless only a share was
    /// asked for. Returns the measurements, for each network one value per seed; nothing if some are missing.
    ///
    /// Training runs of one system follow each other, so that only one system's data are in memory.
    pub fn each<T>(
        &self,
        trainings: &[Training],
        mut measure: impl FnMut(&Training, Outcome<'_>) -> Result<T>,
    ) -> Result<Option<Vec<Vec<T>>>> {
        if self.arguments.dry_run {
            let seeds = self.arguments.training_seeds();
            let every = trainings.iter().flat_map(|one| seeds.iter().map(move |&seed| (one, seed)));
            let planned = every.map(|(one, seed)| Ok((one, self.recipe(one, seed)?)));
            print_plan(self.arguments, &planned.collect::<Result<Vec<_>>>()?)?;
            return Ok(None);
        }
        let seeds = self.arguments.training_seeds();
        let runs = trainings.len() * seeds.len();
        let mut held: Option<(&str, Trajectories)> = None;
        let mut measured = Vec::new();
        for (i, training) in trainings.iter().enumerate() {
            let mut of_training = Vec::new();
            for (k, &seed) in seeds.iter().enumerate() {
                let position = i * seeds.len() + k;
                if self.arguments.share.is_some_and(|share| !share.includes(position)) {
                    continue;
                }
                let recipe = self.recipe(training, seed)?;
                let system = training.system();
                let set = match held.take() {
                    Some((name, set)) if name == system.name() => set,
                    _ => self.simulate(system, &recipe)?,
                };
                let (_, set) = held.insert((system.name(), set));
                let (label, edition) = (system.label(), training.setup.edition.name());
                say(&format!(
                    "{} of {runs}: {label}, {edition}, {}, seed {seed}",
                    position + 1,
                    training.name
                ));
                let outcome = self.train(training, &recipe, set)?;
                if self.arguments.share.is_none() {
                    of_training.push(measure(training, outcome)?);
                }
            }
            measured.push(of_training);
        }
        Ok(self.arguments.share.is_none().then_some(measured))
    }

    fn recipe(&self, training: &Training, seed: u64) -> Result<Recipe> {
        let mut recipe = training.recipe.clone();
        recipe.train.seed = seed;
        Ok(recipe.with(&self.arguments.set)?)
    }

    /// The system's trajectories: as many as its recipe splits.
    fn simulate(&self, system: &System, recipe: &Recipe) -> Result<Trajectories> {
        let counts = recipe.data.split.and_then(|split| split.counts()).unwrap_or([80, 10, 10]);
        let samples: usize = counts.iter().sum();
        say(&format!("simulating {samples} trajectories: {}", system.label()));
        let equation = system.equation(self.arguments.scale);
        let set = Trajectories::simulate(&*equation, samples, self.arguments.seed, self.interrupt)?;
        Ok(set.with_split(counts)?)
    }

    /// Trains, continues, or loads a finished run; then takes the weights with the lowest validation error.
    fn train<'s>(&self, training: &Training, recipe: &Recipe, set: &'s Trajectories) -> Result<Outcome<'s>> {
        let name = format!("{}-seed-{}", training.name, recipe.train.seed);
        let run = self.folder.join(training.system().name()).join(training.setup.edition.name()).join(name);
        let context = || format!("in `{}`", run.display());
        let shortened = (training.horizon < 1.0).then(|| shortened(set, training.horizon));
        let seen = shortened.as_ref().unwrap_or(set);
        if !ranks::by_first(|| is_finished(&run, recipe, seen).with_context(context))? {
            self.go_on(&run, recipe, seen).with_context(context)?;
        }
        let trained = Trained::loader(&run).device(self.device).load().with_context(context)?;
        let reports = reports(&run.join("metrics.jsonl"))?;
        let before = reports.iter().filter(|report| report.step <= recipe.train.steps);
        let losses = before.map(|report| (f64::from(report.step), report.loss)).collect();
        let clock = clock(&reports);
        let seconds = clock.last().copied().unwrap_or(0.0);
        Ok(Outcome { trained, set, losses, clock, seconds, interrupt: self.interrupt })
    }

    /// Trains in a folder, from its latest checkpoint if it has one.
    fn go_on(&self, run: &std::path::Path, recipe: &Recipe, set: &Trajectories) -> Result<()> {
        let mut observer = progress::Training::new(recipe.total_steps());
        cfo::Training::from_recipe(recipe)
            .device(self.device)
            .folder(run)
            .resume(true)
            .interrupt(self.interrupt)
            .observer(&mut observer)
            .fit(set)?;
        Ok(())
    }
}

/// Whether a folder holds the finished run of this recipe on these data.
fn is_finished(run: &std::path::Path, recipe: &Recipe, set: &Trajectories) -> Result<bool> {
    let checkpoints = Checkpoints::of(run);
    if !checkpoints.exist() {
        return Ok(false);
    }
    let state = checkpoints.state("latest")?;
    if state.recipe() != *recipe {
        return Err(CfoError::BadData {
            problem: format!("`{}` is a run with another recipe", run.display()),
            hint: "remove it, or choose another `--out` or `--runs`".into(),
        }
        .into());
    }
    Ok(state.step == recipe.total_steps()
        && TrainingData::has_fingerprint(recipe, set, &state.data_fingerprint)?)
}

/// The keys of a line of `metrics.jsonl` that are used.
#[derive(Deserialize)]
struct Logged {
    step: u32,
    loss: f64,
    steps_per_second: f64,
}

fn reports(path: &std::path::Path) -> Result<Vec<Logged>> {
    let text = fs_err::read_to_string(path)?;
    let is_report = |line: &&str| !line.contains("\"notice\":");
    text.lines()
        .filter(is_report)
        .map(|line| serde_json::from_str(line).with_context(|| format!("reading `{}`", path.display())))
        .collect()
}

/// Seconds until each report of a run, without the pauses between its attempts.
fn clock(reports: &[Logged]) -> Vec<f64> {
    let before = std::iter::once(0).chain(reports.iter().map(|report| report.step));
    let between = reports
        .iter()
        .zip(before)
        .map(|(report, before)| f64::from(report.step.saturating_sub(before)) / report.steps_per_second);
    between
        .scan(0.0, |total, seconds| {
            *total += seconds;
            Some(*total)
        })
        .collect()
}

/// The set with training and validation trajectories cut off after a share of their time; test trajectories stay whole.
fn shortened(set: &Trajectories, share: f64) -> Trajectories {
    let size = set.description.shape.len();
    let mut short = set.clone();
    for (trajectory, split) in short.trajectories.iter_mut().zip(&set.splits) {
        let (first, last) = (trajectory.times.first(), trajectory.times.last());
        if *split != Split::Test {
            let end = first + share * (last - first);
            let kept =
                trajectory.times.iter().take_while(|&&time| time <= end + 1e-9 * (last - first)).count();
            trajectory.times = trajectory.times.part(0..kept.max(1)).expect("the first time at least");
            trajectory.values.truncate(kept.max(1) * size);
        }
    }
    short
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_interrupt_ends_rollouts() {
        let equation = cfo::data::simulate::Lorenz { frames: 11, horizon: 0.1, ..Default::default() };
        let set = Trajectories::simulate(&equation, 10, 0, &AtomicBool::new(false)).unwrap();
        let trained = cfo::Training::new(cfo::operator::Mlp::default()).steps(1).batch(4).fit(&set).unwrap();
        let interrupt = AtomicBool::new(false);
        let outcome = Outcome {
            trained,
            set: &set,
            losses: vec![],
            clock: vec![],
            seconds: 0.0,
            interrupt: &interrupt,
        };
        assert!(outcome.evaluate().unwrap().is_some());
        interrupt.store(true, std::sync::atomic::Ordering::Relaxed);
        let ended = outcome.evaluate().unwrap_err();
        assert!(matches!(ended.downcast_ref(), Some(CfoError::RolloutInterrupted)), "{ended}");
        assert!(outcome.trained.predict_each(&outcome.request(), &outcome.watch()).is_err());
    }

    #[test]
    fn seconds_count_every_step_once() {
        let logged = |step, steps_per_second| Logged { step, loss: 0.0, steps_per_second };
        assert_eq!(clock(&[logged(100, 10.0), logged(150, 25.0)]), [10.0, 12.0]);
        assert!(clock(&[]).is_empty());
    }
}
