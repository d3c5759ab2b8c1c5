//! `cfo simulate`: simulates one of the paper's systems and writes a trajectory file.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Instant;

use anyhow::{Context, Result};
use cfo::paper;
use cfo_data::simulate::{self, Equation};
use cfo_data::store::{OutputLayout, TrajectoryWriter, WriteOptions};
use cfo_data::{DataError, Split};
use serde::Serialize;
use serde_json::{Value, to_value};

use super::output::layout_of;
use crate::args::{self, SimulatedSystem, SimulationLayout, SimulationOutput};
use crate::interrupt;
use crate::progress::TerminalProgress;
use crate::report;

#[derive(Debug, Serialize)]
struct Report {
    out: PathBuf,
    system: &'static str,
    layout: String,
    seed: u64,
    trajectories: usize,
    /// Number of distinct trajectories that the system has, if that is fewer than were asked for.
    distinct: Option<usize>,
    frames: usize,
    shape: Vec<usize>,
    split: SplitReport,
    bytes: u64,
    threads: usize,
    seconds: f64,
    trajectories_per_second: f64,
}

#[derive(Debug, Serialize)]
struct SplitReport {
    train: usize,
    validation: usize,
    test: usize,
}

pub fn run(arguments: &args::Simulate) -> Result<()> {
    let (system, typed, output) = match &arguments.system {
        SimulatedSystem::Lorenz(typed) => ("lorenz", to_value(typed), &typed.output),
        SimulatedSystem::Burgers(typed) => ("burgers", to_value(typed), &typed.output),
        SimulatedSystem::DiffusionReaction(typed) => ("diffusion-reaction", to_value(typed), &typed.output),
        SimulatedSystem::ShallowWater(typed) => ("shallow-water", to_value(typed), &typed.output),
        SimulatedSystem::KuramotoSivashinsky(typed) => {
            ("kuramoto-sivashinsky", to_value(typed), &typed.output)
        }
        SimulatedSystem::GrayScott(typed) => ("gray-scott", to_value(typed), &typed.output),
    };
    let typed: BTreeMap<String, Value> = serde_json::from_value(typed?)?;
    let text = |value: Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    let options: Vec<_> = typed.into_iter().map(|(name, value)| (name, text(value))).collect();
    let report = simulate(&*simulate::named(system, &options)?, output)?;
    report::print_result(output.json, &report, || self::text(&report))
}

fn simulate(equation: &dyn Equation, output: &SimulationOutput) -> Result<Report> {
    equation.check()?;
    let usual = paper::System::find(equation.name()).map_or([80, 10, 10], |system| system.counts());
    let splits = simulate::parts(output.samples, output.split, usual)?;
    let frames = equation.times().len();
    let description = equation.description();
    let options = WriteOptions {
        layout: layout(output)?,
        force: output.force,
        frames: Some(frames),
        ..Default::default()
    };
    let layout = options.layout;
    let mut writer = TrajectoryWriter::create(&output.out, &description, options)?;

    let interrupt = interrupt::flag()?;
    let started = Instant::now();
    let mut progress = TerminalProgress::new("simulating", splits.len() as u64);
    simulate::run(equation, splits.len(), output.seed, interrupt, |index, trajectory| -> Result<()> {
        writer.push(&trajectory, Some(splits[index]))?;
        progress.advance();
        Ok(())
    })
    .context("nothing was written")?;
    writer.finish()?;
    drop(progress);

    let seconds = started.elapsed().as_secs_f64();
    let count = |part| splits.iter().filter(|&&split| split == part).count();
    Ok(Report {
        out: output.out.clone(),
        system: equation.name(),
        layout: layout.to_string(),
        seed: output.seed,
        trajectories: splits.len(),
        distinct: equation.distinct().filter(|&distinct| distinct < splits.len()),
        frames,
        shape: description.shape.dimensions(),
        split: SplitReport {
            train: count(Split::Train),
            validation: count(Split::Validation),
            test: count(Split::Test),
        },
        bytes: fs_err::metadata(&output.out)?.len(),
        threads: rayon::current_num_threads(),
        seconds,
        trajectories_per_second: splits.len() as f64 / seconds,
    })
}

fn layout(output: &SimulationOutput) -> Result<OutputLayout, DataError> {
    match (output.layout, layout_of(&output.out)?) {
        (SimulationLayout::Cfo, layout) => Ok(layout),
        (SimulationLayout::Pdebench, OutputLayout::Npz) => Err(DataError::Argument {
            what: "the name of the file",
            found: format!("`{}`", output.out.display()),
            needed: "a name that does not end with `.npz`: PDEBench's layout is HDF5".to_owned(),
        }),
        (SimulationLayout::Pdebench, _) => Ok(OutputLayout::Pdebench),
    }
}

fn text(report: &Report) -> String {
    let shape: Vec<String> = report.shape.iter().map(ToString::to_string).collect();
    let repeats = report.distinct.map_or_else(String::new, |distinct| {
        format!(
            "at most {distinct} of them are distinct, so test trajectories are also training trajectories; \
             with `--variant varied` all are distinct\n"
        )
    });
    format!(
        "{} trajectories of {} frames [{}] in `{}` (layout {}, {})\n\
         train {}, validation {}, test {}; seed {}\n\
         {:.1} trajectories per second on {} threads, {:.2} s in all\n{repeats}",
        report.trajectories,
        report.frames,
        shape.join(", "),
        report.out.display(),
        report.layout,
        report::bytes(report.bytes),
        report.split.train,
        report.split.validation,
        report.split.test,
        report.seed,
        report.trajectories_per_second,
        report.threads,
        report.seconds,
    )
}
