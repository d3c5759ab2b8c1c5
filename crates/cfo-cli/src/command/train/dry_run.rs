//! `cfo train --dry-run`: the plan of a training run.

use anyhow::Result;
use cfo::data::{Offset, Split};
use cfo::training::{CompiledStep, TrainingStep};
use cfo::{Device, Model, Recipe, Trajectories};
use serde::Serialize;

use super::Smoothed;
use crate::diagnostics::say;
use crate::report::CellAlignment::Left;
use crate::report::{self, TextTable};

/// The plan of a training run; the JSON document of `--dry-run`.
#[derive(Debug, Serialize)]
struct DryRun {
    system: String,
    operator: &'static str,
    objective: &'static str,
    parameters: usize,
    device: String,
    precision: String,
    training_trajectories: usize,
    training_snapshots: usize,
    validation_trajectories: usize,
    test_trajectories: usize,
    steps: u32,
    finetune_steps: u32,
    batch: usize,
    shape: Vec<usize>,
    mean: Vec<f64>,
    deviation: Vec<f64>,
    velocity: Vec<f64>,
    smoothed: Vec<Smoothed>,
    first_time: f64,
    last_time: f64,
    operations: usize,
    arena_bytes: usize,
    tensor_bytes: usize,
    warnings: Vec<String>,
}

pub(super) fn run(recipe: &Recipe, set: &Trajectories, device: Device, json: bool) -> Result<()> {
    let mut prepared = TrainingStep::new(recipe, set, device)?;
    prepared.initialize()?;
    let program = prepared.compile(&[])?;
    let found = DryRun::new(&prepared, set, device, &program)?;
    if json {
        return report::print_json(&found);
    }
    found.warnings.iter().for_each(|warning| say(&format!("warning: {warning}")));
    say("nothing was trained (`--dry-run`)");
    Ok(report::print(&found.table(&prepared.model, &program).text())?)
}

/// Mean of each channel, including its offset. Wavelet coefficients have no offset.
fn means(model: &Model) -> Vec<f64> {
    let channels = model.scaling.mean.len() == model.shape().channels;
    let offset = if channels { model.scaling.offset() } else { Offset::NONE };
    model.scaling.mean.iter().enumerate().map(|(channel, mean)| mean + offset.of(channel)).collect()
}

impl DryRun {
    fn new(prepared: &TrainingStep, set: &Trajectories, device: Device, step: &CompiledStep) -> Result<Self> {
        let TrainingStep { model, data, memory, .. } = prepared;
        let recipe = &model.recipe;
        Ok(Self {
            system: model.system.clone(),
            operator: recipe.operator.name(),
            objective: recipe.objective.name(),
            parameters: model.parameters()?,
            device: device.to_string(),
            precision: memory.precision().to_string(),
            training_trajectories: data.trajectories(),
            training_snapshots: data.rows(),
            validation_trajectories: set.part(Split::Validation).count(),
            test_trajectories: set.part(Split::Test).count(),
            steps: recipe.train.steps,
            finetune_steps: recipe.finetune.steps,
            batch: recipe.train.batch,
            shape: model.setting.field.dimensions(),
            mean: means(model),
            deviation: model.scaling.deviation.clone(),
            velocity: model.scaling.velocity.clone(),
            smoothed: Smoothed::of(model),
            first_time: model.scaling.start,
            last_time: model.scaling.last(),
            operations: step.operations(),
            arena_bytes: step.arena_bytes(),
            tensor_bytes: memory.bytes(),
            warnings: data.warnings.clone(),
        })
    }

    /// One line for each property.
    fn table(&self, model: &Model, step: &CompiledStep) -> TextTable {
        let numbers =
            |values: &[f64]| values.iter().map(|x| format!("{x:.4}")).collect::<Vec<_>>().join(", ");
        let dimensions: Vec<String> = model.shape().dimensions().iter().map(ToString::to_string).collect();
        let mut table = TextTable::new([("what", Left), ("found", Left)]);
        let mut push = |what: &str, found: String| table.push([what.into(), found]);
        push("system", if self.system.is_empty() { "unnamed".into() } else { self.system.clone() });
        push(
            "training data",
            format!("{} trajectories, {} snapshots", self.training_trajectories, self.training_snapshots),
        );
        push(
            "held out",
            format!("{} for validation, {} for test", self.validation_trajectories, self.test_trajectories),
        );
        push("snapshot", format!("{} values", dimensions.join(" x ")));
        push("times", format!("{} to {}", self.first_time, self.last_time));
        push("mean", numbers(&self.mean));
        push("deviation", numbers(&self.deviation));
        if !self.velocity.is_empty() {
            push("velocity", format!("{} per unit of normalised time", numbers(&self.velocity)));
        }
        if !self.smoothed.is_empty() {
            push("noise removed", Smoothed::text(&self.smoothed));
        }
        push("operator", format!("{} with {} parameters", self.operator, self.parameters));
        push("objective", format!("{}, {} steps of {} samples", self.objective, self.steps, self.batch));
        if self.finetune_steps > 0 {
            push("fine-tuning", format!("through the solver, {} steps", self.finetune_steps));
        }
        push("device", format!("{} in {}", self.device, self.precision));
        push("plan of a step", step.to_string());
        push("data and weights", report::bytes(self.tensor_bytes as u64));
        table
    }
}
