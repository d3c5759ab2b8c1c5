//! Parts of all experiments: data simulated once per system, training runs that can continue, measurement.
//!
//! An experiment describes its training runs and converts each [`TrainedRun`] to rows.

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::{Context, Result};
use cfo::data::Split;
use cfo::ranks;
use cfo::training::TrainingData;
use cfo::{CfoError, Device, Recipe, Run, Trained, Trajectories};

use crate::Incomplete;
use crate::data::Simulated;
use crate::network::TrainedNetwork;
use crate::options::{ChoiceName, Reproduce};
use crate::system::{SYSTEMS, Setup, TableSystem};
use crate::trained_run::TrainedRun;
use crate::training::{NetworkTraining, print_plan};

/// Measurements of the setups that did not fail.
pub(crate) struct MeasuredNetworks<T> {
    pub setups: Vec<Setup>,
    /// Networks in the order of the setups and their trainings.
    pub networks: Vec<TrainedNetwork<T>>,
    /// Setups that failed, with the reasons.
    pub failures: Vec<String>,
}

/// Creates the error of a report that lacks failed parts.
pub(crate) fn incomplete(failures: &[String]) -> Incomplete {
    Incomplete {
        problem: failures.join("; "),
        hint: "remove the cause and repeat the command: it does only what is missing".into(),
    }
}

fn has_ranks() -> bool {
    ranks::world().is_some_and(|ranks| ranks.size() > 1)
}

struct RunCount {
    done: usize,
    all: usize,
}

/// An experiment of `all` without a system that was requested.
#[derive(Debug, thiserror::Error)]
#[error("`--system` names no system of this experiment")]
pub(crate) struct NotAsked;

/// A plan or a share of the training runs, which have no report.
#[derive(Debug, thiserror::Error)]
#[error("a plan or a share of the training runs has no report")]
pub(crate) struct NoReport;

/// The environment of the experiments: device, folders, and what the command line changes.
pub(crate) struct Laboratory<'a> {
    arguments: &'a Reproduce,
    device: Device,
    folder: PathBuf,
    interrupt: &'static AtomicBool,
}

impl<'a> Laboratory<'a> {
    fn new(arguments: &'a Reproduce) -> Result<Self> {
        let device = arguments.console.device(&arguments.device)?;
        let own = format!("{}-seed-{}", arguments.scale.name(), arguments.seed);
        let folder = arguments.runs.join(own);
        Ok(Self { arguments, device, folder, interrupt: arguments.console.interrupt()? })
    }

    /// The setups of an experiment that were asked for: by default all systems that `belongs` accepts, each with every recipe.
    fn setups(&self, belongs: impl Fn(&TableSystem) -> bool) -> Result<Vec<Setup>> {
        let scale = self.arguments.scale;
        let systems: Vec<&'static TableSystem> =
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
                format!("`{unknown}` is not a system of this experiment; known are `{}`", names.join("`, `"));
            return Err(CfoError::invalid("--system", problem).into());
        }
        let chosen = systems
            .into_iter()
            .filter(|system| asked.is_empty() || asked.iter().any(|name| name == system.name()));
        let editions = self.arguments.editions().list();
        let each = |system: &'static TableSystem| {
            system.editions(editions).into_iter().map(move |edition| Setup { system, edition, scale })
        };
        Ok(chosen.flat_map(each).collect())
    }

    /// Does every training run of the setups with every seed, or this process's share of them, and measures each unless only a share was
    /// asked for; nothing is returned then. If a system fails, the others are still measured.
    ///
    /// Training runs of one system follow each other, so that only one system's data are in memory.
    pub fn measure<T>(
        arguments: &'a Reproduce,
        belongs: impl Fn(&TableSystem) -> bool,
        trainings: impl Fn(Setup) -> Vec<NetworkTraining>,
        mut measure: impl FnMut(&NetworkTraining, &TrainedRun<'_>) -> Result<T>,
    ) -> Result<MeasuredNetworks<T>> {
        let laboratory = Self::new(arguments)?;
        let setups = laboratory.setups(belongs)?;
        let trainings: Vec<Vec<NetworkTraining>> = setups.iter().map(|&setup| trainings(setup)).collect();
        if arguments.dry_run {
            laboratory.plan(trainings.iter().flatten())?;
            return Err(NoReport.into());
        }
        let seeds = arguments.training_seeds().len();
        let mut progress = RunCount { done: 0, all: trainings.iter().flatten().count() * seeds };
        let mut held: Option<(&str, Trajectories)> = None;
        let mut measured = MeasuredNetworks { setups: vec![], networks: vec![], failures: vec![] };
        let mut failed: Option<(&str, anyhow::Error)> = None;
        for (&setup, of_setup) in setups.iter().zip(&trainings) {
            let name = setup.system.name();
            if failed.as_ref().is_some_and(|(system, _)| *system == name) {
                progress.done += of_setup.len() * seeds;
                continue;
            }
            let before = progress.done;
            match laboratory.networks(of_setup, &mut held, &mut progress, &mut measure) {
                Ok(networks) => {
                    measured.setups.push(setup);
                    measured.networks.extend(networks);
                }
                // Other ranks may be in the middle of something: none goes on alone.
                Err(error) if laboratory.interrupt.load(Ordering::Relaxed) || has_ranks() => {
                    return Err(error);
                }
                Err(error) => {
                    progress.done = before + of_setup.len() * seeds;
                    measured.failures.push(format!("{}: {error:#}", setup.title()));
                    arguments.console.say(&format!("{} failed: {error:#}", setup.title()));
                    failed = Some((name, error));
                }
            }
        }
        match failed {
            // There is nothing to report.
            Some((_, error)) if measured.setups.is_empty() => Err(error),
            Some(_) if arguments.share.is_some() => Err(incomplete(&measured.failures).into()),
            _ if arguments.share.is_some() => Err(NoReport.into()),
            _ => Ok(measured),
        }
    }

    fn plan<'t>(&self, trainings: impl Iterator<Item = &'t NetworkTraining>) -> Result<()> {
        let seeds = self.arguments.training_seeds();
        let every = trainings.flat_map(|one| seeds.iter().map(move |&seed| (one, seed)));
        let planned = every.map(|(one, seed)| Ok((one, self.recipe(one, seed)?)));
        print_plan(self.arguments, &planned.collect::<Result<Vec<_>>>()?)
    }

    /// Trains and measures the networks of one setup. `held` are the data that the last training saw.
    fn networks<T>(
        &self,
        trainings: &[NetworkTraining],
        held: &mut Option<(&'static str, Trajectories)>,
        progress: &mut RunCount,
        measure: &mut impl FnMut(&NetworkTraining, &TrainedRun<'_>) -> Result<T>,
    ) -> Result<Vec<TrainedNetwork<T>>> {
        let mut networks = Vec::new();
        for training in trainings {
            let (system, edition) = (training.system(), training.setup.edition.name());
            let (mut runs, mut seconds, mut size) = (Vec::new(), 0.0, (0, 0, 0));
            for seed in self.arguments.training_seeds() {
                progress.done += 1;
                if self.arguments.share.is_some_and(|share| !share.includes(progress.done - 1)) {
                    continue;
                }
                let recipe = self.recipe(training, seed)?;
                let set = match held.take() {
                    Some((name, set)) if name == system.name() => set,
                    _ => self.data(system, &recipe)?,
                };
                let (_, set) = held.insert((system.name(), set));
                let (label, name) = (system.label(), &training.name);
                self.arguments.console.say(&format!(
                    "{} of {}: {label}, {edition}, {name}, seed {seed}",
                    progress.done, progress.all
                ));
                let outcome = self.train(training, &recipe, set)?;
                seconds += outcome.seconds;
                let parameters = outcome.trained.model().parameters()?;
                size = (parameters, recipe.total_steps(), recipe.finetune.steps);
                if self.arguments.share.is_none() {
                    runs.push(measure(training, &outcome)?);
                }
            }
            let (parameters, steps, finetune_steps) = size;
            let (seconds, training) = (seconds / runs.len().max(1) as f64, training.clone());
            networks.push(TrainedNetwork { training, parameters, steps, finetune_steps, seconds, runs });
        }
        Ok(networks)
    }

    fn recipe(&self, training: &NetworkTraining, seed: u64) -> Result<Recipe> {
        let mut recipe = training.recipe.clone();
        recipe.train.seed = seed;
        Ok(recipe.with(&self.arguments.set)?)
    }

    /// The system's trajectories: as many as its recipe splits, simulated once for all experiments.
    fn data(&self, system: &TableSystem, recipe: &Recipe) -> Result<Trajectories> {
        let counts = recipe.data.split.and_then(|split| split.counts()).unwrap_or([80, 10, 10]);
        let samples: usize = counts.iter().sum();
        let simulated = Simulated {
            equation: &*system.equation(self.arguments.scale),
            label: system.label(),
            samples,
            seed: self.arguments.seed,
            file: self.folder.join("data").join(format!("{}-{samples}.h5", system.name())),
            interrupt: self.interrupt,
            console: self.arguments.console,
        };
        Ok(simulated.trajectories()?.with_split(counts)?)
    }

    /// Trains, continues, or loads a finished run; then takes the weights with the lowest validation error.
    fn train<'s>(
        &self,
        training: &NetworkTraining,
        recipe: &Recipe,
        set: &'s Trajectories,
    ) -> Result<TrainedRun<'s>> {
        let name = format!("{}-seed-{}", training.name, recipe.train.seed);
        let run = self.folder.join(training.system().name()).join(training.setup.edition.name()).join(name);
        let context = || format!("in `{}`", run.display());
        let shortened = (training.horizon < 1.0).then(|| shortened(set, training.horizon));
        let seen = shortened.as_ref().unwrap_or(set);
        if !ranks::by_first(|| is_finished(&run, recipe, seen).with_context(context))? {
            self.go_on(&run, recipe, seen).with_context(context)?;
        }
        let trained = Trained::loader(&run).device(self.device).load().with_context(context)?;
        Ok(TrainedRun::new(trained, set, self.interrupt))
    }

    /// Trains in a folder, from its latest checkpoint if it has one.
    fn go_on(&self, run: &std::path::Path, recipe: &Recipe, set: &Trajectories) -> Result<()> {
        let mut observer = self.arguments.console.training(recipe.total_steps());
        cfo::Training::from_recipe(recipe)
            .device(self.device)
            .folder(run)
            .resume(true)
            .interrupt(self.interrupt)
            .observer(&mut *observer)
            .fit(set)?;
        Ok(())
    }
}

/// Whether a folder holds the finished run of this recipe on these data.
fn is_finished(run: &std::path::Path, recipe: &Recipe, set: &Trajectories) -> Result<bool> {
    let checkpoints = Run::at(run).checkpoints();
    if !checkpoints.exist() {
        return Ok(false);
    }
    let state = checkpoints.state("latest")?;
    if state.recipe() != *recipe {
        return Err(CfoError::bad_data(
            format!("`{}` is a run with another recipe", run.display()),
            "remove it, or choose another `--out` or `--runs`",
        )
        .into());
    }
    Ok(state.step == recipe.total_steps()
        && TrainingData::fingerprint(recipe, set)? == state.data_fingerprint)
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
