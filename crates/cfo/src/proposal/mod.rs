//! Proposals: recipes for a trajectory file, with a reason for each key. `cfo init` writes them.

mod machine;
mod network;
mod survey;

use std::fmt::Write;

use cfo_data::store::TrajectoryFile;
use cfo_data::{ChannelNoise, SamplingAudit, Verdict};
use cfo_numerics::Path;

use crate::error::{CfoError, Result};
use crate::recipe::{LearningRateSchedule, Recipe, Smoothing, TrainConfig};
pub use machine::Machine;
use network::Network;
pub use survey::warnings_of_file;
use survey::{ControlSurvey, FileSurvey};

/// Number of rounds in which gaps are filled.
const ROUNDS: u32 = 20;

/// A recipe for a trajectory file, with a reason for each choice.
#[derive(Clone, Debug, PartialEq)]
pub struct Proposal {
    /// The recipe.
    pub recipe: Recipe,
    /// A description of the file in one sentence.
    summary: String,
    /// Warnings about the data that no choice of a recipe avoids.
    warnings: Vec<String>,
    /// Keys with section, in the order of the recipe, each with the reason for its value.
    choices: Vec<(String, String)>,
}

impl Proposal {
    /// Chooses a recipe for a file and a machine. The cost is bounded for files of any size.
    ///
    /// # Errors
    /// If the file cannot be read.
    pub fn new(file: &TrajectoryFile, machine: Machine) -> Result<Self> {
        // Training also merges snapshots at nearly equal times.
        let survey = FileSurvey::new(&file.merged())?;
        let (summary, warnings) = (survey.summary(), survey.warnings());
        let mut proposal = Self { recipe: Recipe::default(), summary, warnings, choices: Vec::new() };
        proposal.choose_data(&survey);
        proposal.choose_path(&survey);
        let network = Network::choose(&survey, machine)?;
        proposal.recipe.operator = network.operator.clone();
        proposal.choices.extend(network.reasons.iter().cloned());
        proposal.choose_training(&survey, &network, machine);
        proposal.choose_rounds(&survey);
        proposal.choose_solver(&survey);
        proposal.recipe.check()?;
        Ok(proposal)
    }

    /// Returns warnings about the data that no recipe can solve: times that are too sparse, inputs among the channels, a state that does
    /// not determine its velocity.
    pub fn warnings(&self) -> &[String] {
        &self.warnings
    }

    fn say(&mut self, key: &str, reason: impl Into<String>) {
        self.choices.push((key.into(), reason.into()));
    }

    fn choose_data(&mut self, survey: &FileSurvey) {
        let names = survey.inputs.parameters.join("`, `");
        if survey.conditioned() {
            self.recipe.data.condition = true;
            self.say(
                "data.condition",
                format!("`{names}` differs between trajectories and is an input of the network"),
            );
        } else if !survey.inputs.parameters.is_empty() {
            self.say("data.condition", format!("`{names}` is the same in all trajectories"));
        }
        if let Some(ControlSurvey { kind, unexplained }) = &survey.controls {
            self.recipe.data.controls = *kind;
            let names = survey.inputs.controls.join("`, `");
            let explains = unexplained.map_or_else(String::new, |[without, with]| {
                let [without, with] = [without, with].map(|share| format!("{:.2} %", 100.0 * share));
                format!(
                    ": a fit leaves {with} of the velocity's variance unexplained with it, {without} without"
                )
            });
            self.say("data.controls", format!("`{names}` between its times{explains}"));
        }
    }

    fn choose_path(&mut self, survey: &FileSurvey) {
        let noise = survey.noise.iter().filter(|noise| noise.matters());
        if let Some(most) = noise.map(|noise| noise.relative).max_by(f64::total_cmp) {
            let Path { spline, stencil } = SamplingAudit::SMOOTHED;
            (self.recipe.path.spline, self.recipe.path.stencil) = (spline, stencil);
            self.recipe.path.smoothing = Smoothing::Auto;
            self.say("path.spline", "suited to smoothed snapshots");
            self.say("path.stencil", "number of snapshots from which a velocity is estimated");
            let share = 100.0 * most;
            self.say(
                "path.smoothing",
                format!("removes the noise, up to {share:.1} % of a channel's standard deviation"),
            );
            return;
        }
        let Some(best) = survey.audit.recommended() else {
            self.say("path.spline", "the paper's; there are too few snapshots to compare splines");
            return;
        };
        let error = format!("{:.1e}", best.curve_error);
        self.recipe.path.spline = best.path.spline;
        self.say(
            "path.spline",
            format!("interpolates left-out snapshots best: error {error} of the standard deviation"),
        );
        if best.path.spline.smoothness() > 0 {
            self.recipe.path.stencil = best.path.stencil;
            self.say(
                "path.stencil",
                "number of snapshots from which a velocity is estimated; chosen with the spline",
            );
        }
    }

    fn choose_training(&mut self, survey: &FileSurvey, network: &Network, machine: Machine) {
        let train = &mut self.recipe.train;
        (train.batch, train.steps) = (network.batch, network.steps);
        train.learning_rate = 2e-3;
        train.schedule = LearningRateSchedule::Cosine;
        train.ema = 0.99;
        train.clip = 1.0;
        pace(train);
        train.validate_trajectories = Some(if survey.shape.axes() > 2 { 2 } else { 16 });
        let visits = f64::from(network.steps) * network.batch as f64 / survey.snapshots.max(1) as f64;
        self.say(
            "train.steps",
            format!(
                "about {} on {machine}, estimated from the number of operations",
                duration(network.seconds)
            ),
        );
        self.say("train.batch", format!("with these steps each snapshot is used about {visits:.0} times"));
        self.say("train.learning_rate", "halve it if the loss jumps");
        self.say("train.schedule", "the rate falls to 0 at the end, which helps more than additional steps");
        self.say("train.warmup", "steps until the learning rate is reached");
        self.say("train.ema", "EMA of the weights over about the last hundred steps, used for evaluation");
        self.say("train.clip", "limits the effect of a single batch");
        self.say("train.report_every", "steps between lines of the log");
        self.say(
            "train.validate_every",
            "five validations; the checkpoint with the lowest error is kept as `best`",
        );
        self.say("train.validate_trajectories", "at most, so that validation is cheap");
        self.say("train.checkpoint_every", "at most a tenth of the training is lost in a crash");
    }

    /// Proposes refined paths where splines through the snapshots are not accurate. Noise would be taken for the solution.
    fn choose_rounds(&mut self, survey: &FileSurvey) {
        let noisy = survey.noise.iter().any(ChannelNoise::matters);
        let verdict = survey.audit.verdict(noisy);
        if noisy || !matches!(verdict, Some(Verdict::Coarse | Verdict::TooSparse)) {
            return;
        }
        self.recipe.refine.rounds = ROUNDS;
        self.say(
            "refine.rounds",
            "snapshots are too far apart for a spline: the network's own solution fills the gaps, this many times",
        );
    }

    /// Keeps the default solver, whose steps follow the tolerances and thus suit every field. A fine-tuned network keeps its own steps. The
    /// reason mentions snapshots whose times follow the speed of the field.
    fn choose_solver(&mut self, survey: &FileSurvey) {
        let noisy = survey.noise.iter().any(ChannelNoise::matters);
        let reason = match !noisy && survey.pace.follows_the_field {
            true => {
                let [short, long] = survey.pace.intervals;
                format!(
                    "`tsit5`, which chooses its steps; so did the solver of the data: intervals are {short:.2e} where the field is fast and {long:.2e} where it is slow"
                )
            }
            false => "`tsit5`, which chooses its steps by tolerances".into(),
        };
        self.say("evaluate.solver", reason);
    }

    /// Sets the number of training steps, and the keys that depend on it.
    #[must_use]
    pub fn for_steps(mut self, steps: u32) -> Self {
        self.recipe.train.steps = steps;
        pace(&mut self.recipe.train);
        self
    }

    /// Returns the recipe as TOML: the chosen keys, with their reasons as comments. All other keys have their defaults.
    ///
    /// # Errors
    /// Never for a proposal that was made.
    pub fn to_toml(&self) -> Result<String> {
        let bad = |problem: String| CfoError::BadRecipe { problem };
        let table = toml::Table::try_from(&self.recipe).map_err(|error| bad(error.to_string()))?;
        let mut text = format!("# {}\n", self.summary);
        for warning in &self.warnings {
            let _ = writeln!(text, "# warning: {warning}");
        }
        text.push_str("# All other keys have their defaults; docs/reference/recipe.md lists every key.\n");
        let mut section = "";
        for (path, reason) in &self.choices {
            let (of, key) = path.split_once('.').ok_or_else(|| bad(format!("`{path}` has no section")))?;
            if of != section {
                let _ = write!(text, "\n[{of}]\n");
                section = of;
            }
            let value = table
                .get(of)
                .and_then(|table| table.get(key))
                .ok_or_else(|| bad(format!("`{path}` has no value")))?;
            let assignment = format!("{key} = {value}");
            let _ = writeln!(text, "{assignment:<32} # {reason}");
        }
        Ok(text)
    }
}

/// Sets the keys that are counted in steps, depending on the number of steps.
fn pace(train: &mut TrainConfig) {
    let steps = train.steps;
    train.warmup = (steps / 20).min(200);
    train.report_every = (steps / 50).max(1);
    train.validate_every = steps.div_ceil(5).max(1);
    train.checkpoint_every = steps.div_ceil(10).max(1);
}

/// Returns a duration in words.
fn duration(seconds: f64) -> String {
    match seconds {
        s if s < 10.0 => "a few seconds".into(),
        s if s < 90.0 => format!("{:.0} seconds", 10.0 * (s / 10.0).round()),
        s if s < 5400.0 => format!("{:.0} minutes", (s / 60.0).round()),
        s => format!("{:.0} hours", (s / 3600.0).round().max(2.0)),
    }
}

#[cfg(test)]
mod tests;
