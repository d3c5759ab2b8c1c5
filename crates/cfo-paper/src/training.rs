//! A network to be trained: its recipe, its name, and the paper's figure to compare it with.

use anyhow::Result;
use cfo::Recipe;
use cfo::numerics::{Path, Spline};
use cfo::objective::ObjectiveConfig;
use cfo::paper::Edition;
use serde::Serialize;

use crate::options::{ChoiceName, Experiment, Reproduce, Scale};
use crate::published;
use crate::system::{Setup, TableSystem, for_objective};
use cfo_view::text::{
    CellAlignment::{Left, Right},
    TextTable, json,
};

#[derive(Clone, Debug)]
pub(crate) struct NetworkTraining {
    pub setup: Setup,
    /// Unique within its system and recipe; the name of its folder.
    pub name: String,
    /// Recipe without the seed and overrides of the command line.
    pub recipe: Recipe,
    /// Share of the horizon that training and validation see.
    pub horizon: f64,
    /// The paper's relative L2 error, and its deviation.
    pub paper: Option<f64>,
    pub paper_std: Option<f64>,
}

/// Names follow from what is trained, so that experiments that need the same network share it.
impl NetworkTraining {
    /// A continuous flow operator with the system's own network and the recipe's stencil.
    pub fn flow(setup: Setup, spline: Spline, keep_rate: f64) -> Self {
        let mut recipe = setup.recipe_at(keep_rate);
        recipe.path.spline = spline;
        let name = format!("cfo-{spline}-{:.0}", 100.0 * keep_rate);
        let [paper, paper_std] = published::flow(setup.system.name(), spline, keep_rate);
        Self { setup, name, recipe, horizon: 1.0, paper, paper_std }
    }

    /// Sets another stencil, if the spline has one.
    pub fn with_stencil(mut self, path: Path) -> Self {
        if path.spline != Spline::Linear && path.stencil != self.recipe.path.stencil {
            self.name += &format!("-stencil-{}", path.stencil);
            self.recipe.path.stencil = path.stencil;
            return self.beside(None);
        }
        self
    }

    /// Sets another network.
    pub fn on(mut self, backbone: &str) -> Self {
        if backbone != self.setup.system.backbones[0] {
            self.name += &format!("-{backbone}");
            let other = self.setup.recipe_on(backbone);
            (self.recipe.operator, self.recipe.train) = (other.operator, other.train);
            return self.beside(None);
        }
        self
    }

    /// Sets another amplitude of the path's noise.
    pub fn with_noise(mut self, amplitude: f64) -> Self {
        if amplitude != self.recipe.path.noise.amplitude {
            self.name += &format!("-noise-{amplitude:e}");
            self.recipe.path.noise.amplitude = amplitude;
            return self.beside(None);
        }
        self
    }

    /// Sets refined paths, which take the place of weights by the spline's error and of fine-tuning.
    pub fn refined(mut self, rounds: u32) -> Self {
        self.name += "-refined";
        self.recipe.train.steps += self.recipe.finetune.steps;
        self.recipe.finetune.steps = 0;
        (self.recipe.path.trust, self.recipe.refine.rounds) = (None, rounds);
        self.beside(None)
    }

    /// Next-step prediction on all times; it predicts the change if `residual`.
    pub fn baseline(setup: Setup, backbone: &str, residual: bool) -> Self {
        let recipe = for_objective(setup.recipe_on(backbone), ObjectiveConfig::Autoregressive { residual });
        let prediction = if residual { "change" } else { "next-state" };
        let name = format!("autoregressive-{backbone}-{prediction}");
        let papers = published::next_state(setup.system.name(), backbone);
        let [paper, paper_std] = papers.map(|number| number.filter(|_| !residual));
        Self { setup, name, recipe, horizon: 1.0, paper, paper_std }
    }

    /// Another objective with the system's own network, on all times; with the recipe of the method if there is one.
    pub fn other(setup: Setup, objective: ObjectiveConfig) -> Self {
        let recipe = setup.recipe_by(objective.name()).unwrap_or_else(|| setup.recipe());
        let recipe = for_objective(recipe, objective);
        let name = objective.name().to_owned();
        Self { setup, name, recipe, horizon: 1.0, paper: None, paper_std: None }
    }

    /// Another of the paper's methods, if the paper has it on the system.
    pub fn by(setup: Setup, method: &str) -> Option<Self> {
        let recipe = setup.recipe_by(method)?;
        Some(Self { setup, name: method.to_owned(), recipe, horizon: 1.0, paper: None, paper_std: None })
    }

    /// Sets the error of the paper to compare with.
    pub fn beside(self, paper: Option<f64>) -> Self {
        Self { paper, paper_std: None, ..self }
    }

    pub fn system(&self) -> &'static TableSystem {
        self.setup.system
    }

    /// The baseline's form: whether the next state or the change is predicted.
    pub fn prediction(&self) -> Option<&'static str> {
        match self.recipe.objective {
            ObjectiveConfig::Autoregressive { residual: true } => Some("change"),
            ObjectiveConfig::Autoregressive { residual: false } => Some("next-state"),
            _ => None,
        }
    }

    /// `cfo`, or the objective's name.
    pub fn method(&self) -> &'static str {
        match self.recipe.objective {
            ObjectiveConfig::FlowMatching => "cfo",
            other => other.name(),
        }
    }

    /// The spline that is matched, for CFO.
    pub fn spline(&self) -> Option<String> {
        matches!(self.recipe.objective, ObjectiveConfig::FlowMatching)
            .then(|| self.recipe.path.spline.to_string())
    }
}

#[derive(Debug, Serialize)]
struct Planned<'a> {
    system: &'static str,
    recipe: Edition,
    method: &'static str,
    operator: &'static str,
    spline: Option<String>,
    prediction: Option<&'static str>,
    keep_rate: f64,
    horizon: f64,
    seed: u64,
    steps: u32,
    finetune_steps: u32,
    paper: Option<f64>,
    name: &'a str,
    toml: String,
}

#[derive(Debug, Serialize)]
struct Plan<'a> {
    target: Experiment,
    scale: Scale,
    trainings: Vec<Planned<'a>>,
}

/// Prints the training runs that would be done, each with its resolved recipe.
pub(crate) fn print_plan(arguments: &Reproduce, runs: &[(&NetworkTraining, Recipe)]) -> Result<()> {
    let mut trainings = Vec::new();
    for (training, recipe) in runs {
        trainings.push(Planned {
            system: training.system().name(),
            recipe: training.setup.edition,
            method: training.method(),
            operator: recipe.operator.name(),
            spline: training.spline(),
            prediction: training.prediction(),
            keep_rate: recipe.data.keep_rate,
            horizon: training.horizon,
            seed: recipe.train.seed,
            steps: recipe.total_steps(),
            finetune_steps: recipe.finetune.steps,
            paper: training.paper,
            name: &training.name,
            toml: recipe.to_toml()?,
        });
    }
    if arguments.json {
        let (target, scale) = (arguments.target, arguments.scale);
        return arguments.console.print_json(&json(&Plan { target, scale, trainings })?);
    }
    let mut table = TextTable::new([
        ("system", Left),
        ("recipe", Left),
        ("training", Left),
        ("seed", Right),
        ("steps", Right),
    ]);
    for one in trainings {
        let [system, recipe, name] = [one.system, one.recipe.name(), one.name].map(str::to_owned);
        table.push([system, recipe, name, one.seed.to_string(), one.steps.to_string()]);
    }
    let heading =
        if arguments.part_of_all { format!("{}\n\n", arguments.target.name()) } else { String::new() };
    arguments.console.print(&format!(
        "{heading}{}{}",
        table.text(),
        if heading.is_empty() { "" } else { "\n" }
    ))
}
