//! `cfo bench`: how long the parts of training and inference take.

mod ranks;
mod setting;
mod sums;
mod work;

use std::time::Instant;

use anyhow::Result;
use cfo::training::{Counts, TrainingStep};
use cfo::{CfoError, Device, Training};
use cfo_paper::ChoiceName;
use serde::Serialize;

use crate::args::{self, BenchNetwork, BenchWork};
use crate::interrupt;
use crate::job;
use crate::report;
use ranks::RankTime;
use setting::setting;
use work::{TimedWork, compile, time};

#[derive(Debug, Serialize)]
struct Report {
    what: String,
    model: String,
    device: String,
    precision: String,
    batch: usize,
    shape: Vec<usize>,
    parameters: usize,
    operations: usize,
    median_ms: f64,
    p10_ms: f64,
    p90_ms: f64,
    first_ms: f64,
    /// Bytes of memory of the program and the tensors.
    peak_bytes: usize,
    /// The share of the training data in these.
    data_bytes: usize,
    repetitions: usize,
    #[serde(skip_serializing_if = "Option::is_none")]
    nfe: Option<usize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    ms_per_trajectory: Option<f64>,
    /// Steps in the last training step of a solver that chooses its steps.
    #[serde(skip_serializing_if = "Option::is_none")]
    solver: Option<Counts>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    ranks: Vec<RankTime>,
}

#[derive(Debug, Serialize)]
struct Table {
    rows: Vec<Report>,
}

pub fn run(arguments: &args::Bench) -> Result<()> {
    if arguments.what == BenchWork::AllReduce {
        return sums::run(arguments);
    }
    if arguments.model == BenchNetwork::All {
        return table(arguments);
    }
    if arguments.what == BenchWork::Overhead {
        return overhead(arguments);
    }
    let found = measure(arguments)?;
    report::print_result(arguments.json, &found, || found.line())
}

/// One row for each network; on the CPU with batches and grids that two cores finish in tenths of a second.
fn table(arguments: &args::Bench) -> Result<()> {
    let cpu = job::device(&arguments.device)? == Device::Cpu;
    let mut rows = Vec::new();
    for (model, batch, grid) in [
        (BenchNetwork::Mlp, 2048, None),
        (BenchNetwork::Unet1d, 64, None),
        (BenchNetwork::Fno, 64, None),
        (BenchNetwork::Unet2d, 2, Some(64)),
        (BenchNetwork::Dit, 2, Some(64)),
    ] {
        let mut one = args::Bench { model, ..arguments.clone() };
        if cpu {
            one.batch = one.batch.or(Some(batch));
            one.grid = one.grid.or(grid);
        }
        if one.what == BenchWork::Overhead {
            overhead(&one)?;
            continue;
        }
        let found = measure(&one)?;
        if !arguments.json {
            report::print(&found.line())?;
        }
        rows.push(found);
    }
    if arguments.json && !rows.is_empty() {
        return report::print_json(&Table { rows });
    }
    Ok(())
}

fn measure(arguments: &args::Bench) -> Result<Report> {
    let device = job::device(&arguments.device)?;
    let (recipe, set) = setting(arguments)?;
    let mut prepared = TrainingStep::new(&recipe, &set, device)?;
    let started = Instant::now();
    let mut work = TimedWork::new(arguments, &mut prepared, &set)?;
    let TrainingStep { model, memory, .. } = &mut prepared;
    work.run(memory)?;
    let first_ms = 1e3 * started.elapsed().as_secs_f64();
    let (mut times, waited) = time(&mut work, memory, arguments.repetitions.max(3))?;
    let ranks = RankTime::of_all(arguments.what, memory, &times, waited)?;
    times.sort_by(f64::total_cmp);
    let at = |share: f64| times[((times.len() - 1) as f64 * share).round() as usize];
    let batch = model.recipe.train.batch;
    Ok(Report {
        what: arguments.what.name(),
        model: arguments.model.name(),
        device: device.to_string(),
        precision: memory.precision().to_string(),
        batch,
        shape: model.setting.field.dimensions(),
        parameters: model.parameters()?,
        operations: work.operations(),
        median_ms: at(0.5),
        p10_ms: at(0.1),
        p90_ms: at(0.9),
        first_ms,
        peak_bytes: work.bytes() + memory.bytes(),
        data_bytes: 4 * memory.value_type("data.values").map_err(CfoError::from)?.shape.len(),
        repetitions: times.len(),
        nfe: work.evaluations(),
        ms_per_trajectory: work.evaluations().map(|_| at(0.5) / batch as f64),
        solver: work.solver_counts(),
        ranks,
    })
}

impl Report {
    fn line(&self) -> String {
        let each = match (self.nfe, self.ms_per_trajectory) {
            (Some(nfe), Some(each)) => format!(" ({each:.3} ms per trajectory of {nfe} evaluations)"),
            _ => match &self.solver {
                Some(Counts { attempts, .. }) => format!(" (the solver tried {attempts} steps)"),
                None => String::new(),
            },
        };
        format!(
            "{} of {} ({} parameters, batch {}, {:?}) on {} in {}: {:.3} ms{each} (10 % {:.3}, 90 % {:.3}), first {:.0} ms, {}\n{}",
            self.what,
            self.model,
            self.parameters,
            self.batch,
            self.shape,
            self.device,
            self.precision,
            self.median_ms,
            self.p10_ms,
            self.p90_ms,
            self.first_ms,
            report::bytes(self.peak_bytes as u64),
            ranks::text(&self.ranks),
        )
    }
}

/// The time that the loop and the sampler add to the bare step; the JSON document.
#[derive(Debug, Serialize)]
struct Overhead {
    model: String,
    device: String,
    batch: usize,
    /// A training step with a report every 25 steps and no checkpoint. Each time is the least over all rounds.
    loop_ms: f64,
    /// The compiled step alone, which draws its batch.
    step_ms: f64,
    sampler_ms: f64,
    /// Time of loop and sampler, relative to the step without its sampler.
    overhead_percent: f64,
}

/// Times the loop, its step and its sampler in turn, in several rounds, so that other load on the machine affects all alike.
fn overhead(arguments: &args::Bench) -> Result<()> {
    const STEPS: u32 = 25;
    let device = job::device(&arguments.device)?;
    let (mut recipe, set) = setting(arguments)?;
    let count = set.trajectories.len();
    let set = set.with_split([count, 0, 0])?;
    recipe.train.steps = STEPS;
    let mut prepared = TrainingStep::new(&recipe, &set, device)?;
    let mut step = compile(BenchWork::TrainStep, &mut prepared)?;
    let mut sampler = compile(BenchWork::Sampler, &mut prepared)?;
    let memory = &mut prepared.memory;
    let mut best = [f64::INFINITY; 3];
    for _ in 0..arguments.repetitions.max(3) {
        let training = Training::from_recipe(&recipe).device(device).interrupt(interrupt::flag()?);
        let seconds = training.fit(&set)?.seconds();
        best[0] = best[0].min(1e3 * seconds / f64::from(STEPS));
        for (program, best) in [&mut step, &mut sampler].into_iter().zip(&mut best[1..]) {
            let started = Instant::now();
            for _ in 0..STEPS {
                program.run(memory)?;
            }
            program.wait()?;
            *best = best.min(1e3 * started.elapsed().as_secs_f64() / f64::from(STEPS));
        }
    }
    let [loop_ms, step_ms, sampler_ms] = best;
    let bare = step_ms - sampler_ms;
    let found = Overhead {
        model: arguments.model.name(),
        device: device.to_string(),
        batch: recipe.train.batch,
        loop_ms,
        step_ms,
        sampler_ms,
        overhead_percent: 100.0 * (loop_ms - bare) / bare,
    };
    report::print_result(arguments.json, &found, || {
        format!(
            "{} with batch {} on {}: loop {:.3} ms per step, compiled step {:.3} ms, of which the sampler {:.3} ms; loop and sampler add {:.1} %\n",
            found.model,
            found.batch,
            found.device,
            found.loop_ms,
            found.step_ms,
            found.sampler_ms,
            found.overhead_percent
        )
    })
}
