//! Recipe and trajectories with which a network is timed.

use anyhow::Result;
use cfo::data::simulate::{Burgers, DiffusionReaction, Equation};
use cfo::operator::{Dit, Fno, OperatorConfig};
use cfo::paper::{self, Edition};
use cfo::{Recipe, Trajectories};

use crate::args::{self, BenchNetwork};
use crate::interrupt;
use crate::job;

/// The recipe of a network and trajectories of its system, on the grid asked for: what `cfo train` would train.
pub(super) fn setting(arguments: &args::Bench) -> Result<(Recipe, Trajectories)> {
    let (system, operator) = match arguments.model {
        // The caller has replaced `all` by each network in turn.
        BenchNetwork::Mlp | BenchNetwork::All => ("lorenz", None),
        BenchNetwork::Unet1d => ("burgers", None),
        BenchNetwork::Fno => ("burgers", Some(OperatorConfig::Fno(Fno::default()))),
        BenchNetwork::Unet2d => ("diffusion-reaction", None),
        BenchNetwork::Dit => ("diffusion-reaction", Some(OperatorConfig::Dit(Dit::default()))),
    };
    let system = paper::System::find(system)?;
    let mut recipe = system.recipe(Edition::Paper);
    recipe.data.stream = Some(arguments.stream);
    recipe.operator = operator.unwrap_or(recipe.operator);
    recipe.train.batch = arguments.batch.unwrap_or(recipe.train.batch);
    if let Some(precision) = &arguments.precision {
        recipe.train.precision = job::precision(precision)?;
    }
    let recipe = recipe.with(&arguments.set)?;
    let equation: Box<dyn Equation> = match (arguments.grid, system.name) {
        (Some(grid), "burgers") => Box::new(Burgers { grid, ..Burgers::default() }),
        (Some(grid), "diffusion-reaction") => {
            Box::new(DiffusionReaction { grid, ..DiffusionReaction::default() })
        }
        _ => system.equation(),
    };
    let set = trajectories(&*equation, arguments.trajectories.max(4))?;
    Ok((recipe, set))
}

/// Trajectories of a system. The first few are repeated: simulating more would take minutes, and no timing depends on it.
fn trajectories(equation: &dyn Equation, count: usize) -> Result<Trajectories> {
    const DIFFERENT: usize = 4;
    let few = Trajectories::simulate(equation, DIFFERENT.min(count), 0, interrupt::flag()?)?;
    let all = few.trajectories.iter().cycle().take(count).cloned().collect();
    Ok(Trajectories::new(few.description, all)?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::{Arguments, Verb};
    use cfo::data::Split;
    use clap::Parser;

    #[test]
    fn what_is_timed_is_what_the_recipes_train() {
        for (model, system) in [
            ("mlp", "lorenz"),
            ("unet1d", "burgers"),
            ("unet2d", "diffusion-reaction"),
            ("dit", "diffusion-reaction"),
        ] {
            let line =
                ["cfo", "bench", "train-step", "--model", model, "--grid", "16", "--trajectories", "6"];
            let Verb::Bench(arguments) = Arguments::parse_from(line).command else { panic!("{line:?}") };
            let (timed, set) = setting(&arguments).unwrap();
            let mut recipe = paper::System::find(system).unwrap().recipe(Edition::Paper);
            recipe.data.stream = Some(false);
            if model == "dit" {
                recipe.operator = timed.operator.clone();
            }
            assert_eq!(timed, recipe);
            assert_eq!((set.description.system.as_str(), set.trajectories.len()), (system, 6));
            assert!(set.part(Split::Train).count() >= 4);
        }
    }
}
