//! `cfo predict`: initial states and times into a trajectory file.

use std::path::PathBuf;

use anyhow::{Context, Result, bail};
use cfo::data::Trajectory;
use cfo::data::store::{TrajectoryFile, TrajectoryWriter, WriteOptions};
use cfo::{Budget, CfoError, Model, Request, Rollout};
use serde::Serialize;

use super::evaluate::{check_fit, load};
use crate::args;
use crate::diagnostics::say;
use crate::report;

/// Trajectories integrated together at most.
const BATCH: usize = 256;

/// The JSON document.
#[derive(Debug, Serialize)]
struct Report {
    out: PathBuf,
    trajectories: usize,
    times: Vec<f64>,
    evaluations: usize,
}

pub fn run(arguments: &args::Predict) -> Result<()> {
    let times = parse_times(&arguments.times)?;
    if arguments.out.exists() && !arguments.force {
        bail!(CfoError::BadData {
            problem: format!("`{}` already exists", arguments.out.display()),
            hint: "`--force` replaces it".into(),
        });
    }
    let (mut trained, solver, _) = load(&arguments.run, &arguments.integration)?;
    let initial = TrajectoryFile::open(&arguments.initial)?;
    trained.model = trained.model.on_grid(initial.description().shape)?;
    check_fit(&trained.model, initial.description())?;
    let from = arguments.from.unwrap_or(trained.model.scaling.start);
    warn_beyond(&trained.model, from, &times);
    check_steps(&trained.model, from, &times)?;
    // A few far times are no reason for long steps: none is longer than those between the snapshots of the data.
    let interval = trained.model.scaling.interval;
    let budget = match solver.budget {
        Budget::StepPerOutput if interval > 0.0 => Budget::StepAtMost(interval),
        budget => budget,
    };

    let size = trained.model.shape().len();
    let states = (0..initial.len()).map(|i| initial.frames(i, &[0])).collect::<Result<Vec<_>, _>>()?;
    let parameters = (0..initial.len()).map(|i| initial.parameters(i)).collect::<Result<Vec<_>, _>>()?;
    let count = states.len();
    let prefix = trained.prefix();
    let batch = count.clamp(1, BATCH);
    let mut rollout = Rollout::new(&trained.model, &mut trained.memory, batch, solver.tableau, prefix)?;
    let mut values = vec![vec![0.0_f32; times.len() * size]; count];
    let mut evaluations = 0;
    // Times after the start and times before it are two integrations, each away from it.
    let (later, mut earlier): (Vec<usize>, Vec<usize>) = (0..times.len()).partition(|&i| times[i] >= from);
    earlier.reverse();
    for order in [later, earlier].into_iter().filter(|order| !order.is_empty()) {
        let request = Request {
            start: vec![from; count],
            states: states.clone(),
            times: vec![order.iter().map(|&i| times[i]).collect(); count],
            conditions: parameters.clone(),
        };
        let prediction = rollout.predict(&mut trained.memory, &request, budget)?;
        evaluations += prediction.evaluations;
        for (values, states) in values.iter_mut().zip(prediction.states) {
            for (&output, state) in order.iter().zip(states.chunks_exact(size)) {
                values[output * size..(output + 1) * size].copy_from_slice(state);
            }
        }
    }
    drop(rollout);

    let options = WriteOptions { force: arguments.force, ..WriteOptions::default() };
    let mut writer = TrajectoryWriter::create(&arguments.out, initial.description(), options)?;
    for (values, parameters) in values.into_iter().zip(parameters) {
        writer.push(&Trajectory { times: times.clone(), values, parameters }, None)?;
    }
    writer.finish()?;
    let found = Report { out: arguments.out.clone(), trajectories: count, times, evaluations };
    if arguments.json {
        return report::print_json(&found);
    }
    let text = format!(
        "{}: {} at {}, {} evaluations each\n",
        found.out.display(),
        report::count(found.trajectories, "trajectory", "trajectories"),
        report::count(found.times.len(), "time", "times"),
        found.evaluations
    );
    Ok(report::print(&text)?)
}

fn warn_beyond(model: &Model, from: f64, times: &[f64]) {
    let (first, last) = (model.scaling.start, model.scaling.last());
    let slack = 1e-9 * model.scaling.span;
    if times.iter().chain([&from]).any(|&time| time < first - slack || time > last + slack) {
        say(&format!(
            "warning: the model was trained on times {first} to {last}; beyond them it extrapolates"
        ));
    }
}

/// A model that predicts the next snapshot knows no other times than those one interval of its data after another.
fn check_steps(model: &Model, from: f64, times: &[f64]) -> Result<()> {
    let interval = model.scaling.interval;
    if !model.is_autoregressive() || interval <= 0.0 {
        return Ok(());
    }
    let rest = times.iter().filter(|&&time| time != from);
    let mut expected = (1..).map(|step| from + f64::from(step) * interval);
    if rest.zip(&mut expected).all(|(time, expected)| (time - expected).abs() < 1e-3 * interval) {
        return Ok(());
    }
    bail!(CfoError::BadData {
        problem: format!("the model predicts snapshot after snapshot, {interval} apart, and no other times"),
        hint: format!(
            "ask for {}, {}, ...; a model trained by flow matching predicts any times",
            from + interval,
            from + 2.0 * interval
        ),
    })
}

/// `a,b,c` or `start:stop:count`; increasing.
fn parse_times(text: &str) -> Result<Vec<f64>> {
    let bad = |problem: &str| CfoError::InvalidKey {
        key: "--times".into(),
        problem: format!("`{text}` {problem}"),
    };
    let number = |word: &str| word.trim().parse::<f64>().ok().filter(|value| value.is_finite());
    let times = match text.split(':').collect::<Vec<_>>()[..] {
        [start, stop, count] => {
            let (start, stop) = (number(start), number(stop));
            let count = count.trim().parse::<usize>().ok().filter(|count| (1..=10_000_000).contains(count));
            let (Some(start), Some(stop), Some(count)) = (start, stop, count) else {
                return Err(bad("is not of the form start:stop:count").into());
            };
            let step = (stop - start) / count.saturating_sub(1).max(1) as f64;
            (0..count)
                .map(|i| if i + 1 == count && count > 1 { stop } else { start + i as f64 * step })
                .collect()
        }
        _ => text
            .split(',')
            .map(number)
            .collect::<Option<Vec<f64>>>()
            .with_context(|| bad("is not a list of numbers").to_string())
            .map_err(|_| bad("is not a list of numbers"))?,
    };
    if times.windows(2).any(|pair| pair[1] <= pair[0]) {
        return Err(bad("must increase").into());
    }
    Ok(times)
}

#[cfg(test)]
mod tests {
    use super::parse_times;

    #[test]
    fn lists_and_ranges_are_times() {
        assert_eq!(parse_times("0, 0.5,2").unwrap(), [0.0, 0.5, 2.0]);
        assert_eq!(parse_times("0:1:5").unwrap(), [0.0, 0.25, 0.5, 0.75, 1.0]);
        assert_eq!(parse_times("3:9:1").unwrap(), [3.0]);
        for bad in ["", "1,0", "0:1", "0:1:0", "a", "0,nan", "1:0:3", "0,0"] {
            assert!(parse_times(bad).is_err(), "{bad}");
        }
    }
}
