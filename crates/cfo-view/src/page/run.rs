//! The contents of a run's folder, for a page.

use std::path::Path;

use anyhow::Result;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use cfo::{Run, StepReport};
use serde_json::Value;

use super::document::{RunPart, TrainingPoint};
use crate::text::scientific;

/// Figures of an evaluation that a page shows, with their titles; the others it draws itself.
const FIGURES: [(&str, &str); 3] = [
    ("worst-trajectory.png", "The worst trajectory"),
    ("worst-profiles.png", "Profiles of the worst trajectory"),
    ("state-space.png", "State space of the worst trajectory"),
];

const LARGE_FIGURE: u64 = 400_000;

/// Most reports of a training run on a page; a screen shows no more.
const MOST_REPORTS: usize = 2000;

/// Training, evaluation and figures of a run, as far as they exist.
pub fn read(run: &Path, notes: &mut Vec<String>) -> Result<RunPart> {
    let name =
        run.file_name().map_or_else(|| run.display().to_string(), |name| name.to_string_lossy().into());
    let files = Run::at(run);
    let mut part = RunPart {
        name,
        facts: facts(&files),
        history: history(&files, notes)?,
        metrics: Vec::new(),
        per_time: Vec::new(),
        per_trajectory: Vec::new(),
        figures: Vec::new(),
    };
    if let Some(report) = files.evaluation()? {
        read_evaluation(&mut part, &report);
        let folder = files.evaluation_folder();
        for (file, title) in FIGURES {
            let path = folder.join(file);
            match fs_err::metadata(&path) {
                Ok(found) if found.len() <= LARGE_FIGURE => {
                    let data = format!("data:image/png;base64,{}", STANDARD.encode(fs_err::read(&path)?));
                    part.figures.push([title.to_string(), data]);
                }
                Ok(_) => notes.push(format!("the plot `{file}` of the evaluation, which is too large")),
                Err(_) => {}
            }
        }
    }
    Ok(part)
}

/// Facts from the recipe and the checkpoints.
fn facts(run: &Run) -> Vec<[String; 2]> {
    let mut facts = vec![["folder".to_string(), run.folder().display().to_string()]];
    let mut push = |name: &str, value: Option<String>| {
        facts.extend(value.map(|value| [name.to_string(), value]));
    };
    if let Ok(state) = run.checkpoints().state("latest") {
        let recipe = serde_json::to_value(&state.model.recipe).unwrap_or_default();
        let text = |path: [&str; 2]| match &recipe[path[0]][path[1]] {
            Value::String(text) => Some(text.clone()),
            Value::Number(number) => Some(number.to_string()),
            _ => None,
        };
        push("operator", text(["operator", "kind"]));
        push("objective", text(["objective", "kind"]));
        push("path", text(["path", "spline"]));
        push("batch", text(["train", "batch"]));
        push("learning rate", text(["train", "learning_rate"]));
        push("steps made", Some(format!("{} of {}", state.step, state.model.recipe.total_steps())));
    }
    facts
}

/// The reports of training, thinned where there are very many.
fn history(run: &Run, notes: &mut Vec<String>) -> Result<Vec<TrainingPoint>> {
    let reports = run.reports()?;
    let (count, every) = (reports.len(), reports.len().div_ceil(MOST_REPORTS).max(1));
    if every > 1 {
        notes.push(format!("every {every}th of {count} training reports"));
    }
    // Validation errors are rare, so every one of them is shown.
    let kept = reports
        .into_iter()
        .enumerate()
        .filter(|(number, report)| number % every == 0 || number + 1 == count || report.validation.is_some());
    let point = |(_, report): (usize, StepReport)| {
        let StepReport { step, loss, learning_rate, validation, .. } = report;
        TrainingPoint { step, loss, learning_rate, validation }
    };
    Ok(kept.map(point).collect())
}

fn read_evaluation(part: &mut RunPart, report: &Value) {
    let mut push = |name: &str, value: Option<String>| {
        part.metrics.extend(value.map(|value| [name.to_string(), value]));
    };
    let number = |value: &Value| value.as_f64().map(scientific);
    let text = |value: &Value| value.as_str().map(ToString::to_string);
    push("data", text(&report["data"]));
    push("trajectories", report["trajectories"].as_u64().map(|count| count.to_string()));
    push("solver", text(&report["solver"]));
    push("evaluations", report["evaluations"].as_u64().map(|count| count.to_string()));
    push("relative L2 error", number(&report["relative_l2"]["mean"]));
    push("deviation over trajectories", number(&report["relative_l2"]["std"]));
    push("at the final time", number(&report["relative_l2"]["final_time"]));
    for (key, name) in [("rmse", "RMSE"), ("nrmse", "nRMSE"), ("max", "largest error"), ("vrmse", "VRMSE")] {
        push(name, number(&report["metrics"][key]));
    }
    push("miss over one interval", number(&report["miss"]["mean"]));
    push("valid time", report["metrics"]["valid_time"].as_f64().map(|time| format!("{time:.3}")));
    push(
        "milliseconds per trajectory",
        report["seconds_per_trajectory"].as_f64().map(|seconds| format!("{:.3}", 1e3 * seconds)),
    );
    let list = |value: &Value| value.as_array().cloned().unwrap_or_default();
    for row in list(&report["per_time"]) {
        let entry = ["time", "relative_l2", "worst"].map(|key| row[key].as_f64());
        if let [Some(time), Some(mean), Some(worst)] = entry {
            part.per_time.push([time, mean, worst]);
        }
    }
    let indices = list(&report["relative_l2"]["indices"]);
    for (number, error) in list(&report["relative_l2"]["per_trajectory"]).iter().enumerate() {
        let index = indices.get(number).and_then(Value::as_u64).map_or(number, |index| index as usize);
        part.per_trajectory.push((index, error.as_f64()));
    }
}
