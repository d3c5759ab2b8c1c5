//! `cfo bench`: how long the pieces of training and inference take.

use std::str::FromStr;
use std::time::Instant;

use anyhow::Result;
use cfo::data::simulate::{Burgers, DiffusionReaction, Equation};
use cfo::engine::{Device, Feed, Graph, Memory, Node, Page, Program, Shape};
use cfo::numerics::ode::RK4;
use cfo::paper::{self, Edition};
use cfo::{
    Budget, CfoError, DitConfig, FnoConfig, Model, OperatorConfig, Request, Rollout, Session, StepReport,
    TrainingData, TrajectorySet, train, training_step,
};
use serde::Serialize;

use crate::args::{self, Network, Work};
use crate::interrupt;
use crate::report;

/// The JSON document.
#[derive(Debug, Serialize)]
struct Report {
    what: String,
    model: String,
    device: String,
    precision: String,
    batch: usize,
    shape: [usize; 3],
    parameters: usize,
    operations: usize,
    median_ms: f64,
    p10_ms: f64,
    p90_ms: f64,
    first_ms: f64,
    /// Bytes that the program and the tensors take.
    peak_bytes: usize,
    /// Of these, the training data's.
    data_bytes: usize,
    repetitions: usize,
    /// Network evaluations of a whole rollout, and milliseconds a trajectory.
    #[serde(skip_serializing_if = "Option::is_none")]
    nfe: Option<usize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    ms_per_trajectory: Option<f64>,
}

/// The JSON document for all networks.
#[derive(Debug, Serialize)]
struct Table {
    rows: Vec<Report>,
}

pub fn run(arguments: &args::Bench) -> Result<()> {
    if arguments.model == Network::All {
        return table(arguments);
    }
    if arguments.what == Work::Overhead {
        return overhead(arguments);
    }
    let found = measure(arguments)?;
    if arguments.json {
        return report::print_json(&found);
    }
    Ok(report::print(&found.line())?)
}

/// One row for each network; on the CPU with batches and grids that two cores finish in tenths of a second.
fn table(arguments: &args::Bench) -> Result<()> {
    let cpu = Device::from_str(&arguments.device).map_err(CfoError::from)? == Device::Cpu;
    let mut rows = Vec::new();
    for (model, batch, grid) in [
        (Network::Mlp, 2048, None),
        (Network::Unet1d, 64, None),
        (Network::Fno, 64, None),
        (Network::Unet2d, 2, Some(64)),
        (Network::Dit, 2, Some(64)),
    ] {
        let mut one = args::Bench { model, ..arguments.clone() };
        if cpu {
            one.batch = one.batch.or(Some(batch));
            one.grid = one.grid.or(grid);
        }
        if one.what == Work::Overhead {
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
    let device = Device::from_str(&arguments.device).map_err(CfoError::from)?;
    let (model, set) = setting(arguments)?;
    let precision = model.recipe.train.precision_on(device)?;
    let data = TrainingData::new(&model, &set)?;
    let mut memory = Memory::new(device, precision).map_err(CfoError::from)?;
    let started = Instant::now();
    let mut work = Prepared::new(arguments, &model, &data, &set, &mut memory)?;
    work.run(&mut memory)?;
    let first_ms = 1e3 * started.elapsed().as_secs_f64();
    let mut times = time(&mut work, &mut memory, arguments.repetitions.max(3))?;
    times.sort_by(f64::total_cmp);
    let at = |share: f64| times[((times.len() - 1) as f64 * share).round() as usize];
    let batch = model.recipe.train.batch;
    Ok(Report {
        what: format!("{:?}", arguments.what).to_lowercase(),
        model: format!("{:?}", arguments.model).to_lowercase(),
        device: device.to_string(),
        precision: precision.to_string(),
        batch,
        shape: model.setting.field,
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
    })
}

impl Report {
    fn line(&self) -> String {
        let each = match (self.nfe, self.ms_per_trajectory) {
            (Some(nfe), Some(each)) => format!(" ({each:.3} ms a trajectory of {nfe} evaluations)"),
            _ => String::new(),
        };
        format!(
            "{} of {} ({} parameters, batch {}, {:?}) on {} in {}: {:.3} ms{each} (10 % {:.3}, 90 % {:.3}), first {:.0} ms, {}\n",
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
        )
    }
}

/// What the loop and the sampler add to the bare step; the JSON document.
#[derive(Debug, Serialize)]
struct Overhead {
    model: String,
    device: String,
    batch: usize,
    /// A step of the training loop with a report every 25 steps and no checkpoint; the least of all rounds, as all three are.
    loop_ms: f64,
    /// The compiled step alone, which draws its batch.
    step_ms: f64,
    /// The drawing alone.
    sampler_ms: f64,
    /// What loop and drawing add to the step without drawing.
    overhead_percent: f64,
}

/// Times the loop, its step and its sampler in turn, several times over, so that a busy machine disturbs all alike.
fn overhead(arguments: &args::Bench) -> Result<()> {
    /// Steps of one round.
    const STEPS: u32 = 25;
    let device = Device::from_str(&arguments.device).map_err(CfoError::from)?;
    let (model, set) = setting(arguments)?;
    let count = set.trajectories.len();
    let set = set.with_split([count, 0, 0])?;
    let mut recipe = model.recipe.clone();
    recipe.train.steps = STEPS;
    let data = TrainingData::new(&model, &set)?;
    let mut memory = Memory::new(device, recipe.train.precision_on(device)?).map_err(CfoError::from)?;
    let mut step = compile(Work::TrainStep, &model, &data, &mut memory)?;
    let mut sampler = compile(Work::Sampler, &model, &data, &mut memory)?;
    let mut best = [f64::INFINITY; 3];
    for _ in 0..arguments.repetitions.max(3) {
        let session = Session {
            device,
            folder: None,
            resume: false,
            interrupt: interrupt::flag()?,
            observer: &mut |_: &StepReport| {},
        };
        let trained = train(&recipe, &set, session)?;
        best[0] = best[0].min(1e3 * trained.seconds / f64::from(STEPS));
        for (program, best) in [&mut step, &mut sampler].into_iter().zip(&mut best[1..]) {
            let started = Instant::now();
            for _ in 0..STEPS {
                program.run(&mut memory).map_err(CfoError::from)?;
            }
            program.wait().map_err(CfoError::from)?;
            *best = best.min(1e3 * started.elapsed().as_secs_f64() / f64::from(STEPS));
        }
    }
    let [loop_ms, step_ms, sampler_ms] = best;
    let bare = step_ms - sampler_ms;
    let found = Overhead {
        model: format!("{:?}", arguments.model).to_lowercase(),
        device: device.to_string(),
        batch: recipe.train.batch,
        loop_ms,
        step_ms,
        sampler_ms,
        overhead_percent: 100.0 * (loop_ms - bare) / bare,
    };
    if arguments.json {
        return report::print_json(&found);
    }
    Ok(report::print(&format!(
        "{} with batch {} on {}: loop {:.3} ms a step, compiled step {:.3} ms, drawing of it {:.3} ms; loop and drawing add {:.1} %\n",
        found.model,
        found.batch,
        found.device,
        found.loop_ms,
        found.step_ms,
        found.sampler_ms,
        found.overhead_percent
    ))?)
}

/// What is timed.
enum Prepared<'a> {
    Program(Box<Program>),
    Rollout { rollout: Box<Rollout<'a>>, request: Request, nfe: usize },
    Streamed { program: Box<Program>, feed: Feed, pages: Vec<Page> },
}

impl<'a> Prepared<'a> {
    fn new(
        arguments: &args::Bench,
        model: &'a Model,
        data: &TrainingData,
        set: &TrajectorySet,
        memory: &mut Memory,
    ) -> Result<Self> {
        let program = compile(arguments.what, model, data, memory)?;
        if let (Work::Rollout, Some(nfe)) = (arguments.what, arguments.nfe) {
            let batch = model.recipe.train.batch;
            let rollout = Box::new(Rollout::new(model, memory, batch, RK4, "")?);
            return Ok(Self::Rollout { rollout, request: request(set, batch), nfe });
        }
        if data.is_streamed() {
            let feed = Feed::new(memory, "data.values").map_err(CfoError::from)?;
            let mut pages = Vec::new();
            for _ in 0..2 {
                let mut page = feed.page().map_err(CfoError::from)?;
                let values = page.values().iter_mut().enumerate();
                values.for_each(|(i, value)| *value = (i as f32 * 0.01).sin());
                pages.push(page);
            }
            return Ok(Self::Streamed { program: Box::new(program), feed, pages });
        }
        Ok(Self::Program(Box::new(program)))
    }

    /// Once, until the device is done.
    fn run(&mut self, memory: &mut Memory) -> Result<()> {
        self.start(memory)?;
        match self {
            Self::Program(program) | Self::Streamed { program, .. } => {
                Ok(program.wait().map_err(CfoError::from)?)
            }
            Self::Rollout { .. } => Ok(()),
        }
    }

    /// Once, without waiting where that can be.
    fn start(&mut self, memory: &mut Memory) -> Result<()> {
        match self {
            Self::Program(program) => program.run(memory).map_err(CfoError::from)?,
            Self::Rollout { rollout, request, nfe } => {
                rollout.predict(memory, request, Budget::Evaluations(*nfe))?;
            }
            Self::Streamed { program, feed, pages } => {
                let page = pages.pop().expect("one page is always free");
                pages.extend(feed.send(memory, page).map_err(CfoError::from)?);
                program.run(memory).map_err(CfoError::from)?;
            }
        }
        Ok(())
    }

    fn wait(&self) -> Result<()> {
        match self {
            Self::Program(program) | Self::Streamed { program, .. } => {
                Ok(program.wait().map_err(CfoError::from)?)
            }
            Self::Rollout { .. } => Ok(()),
        }
    }

    fn operations(&self) -> usize {
        match self {
            Self::Program(program) | Self::Streamed { program, .. } => program.plan().len(),
            Self::Rollout { .. } => 0,
        }
    }

    fn bytes(&self) -> usize {
        match self {
            Self::Program(program) | Self::Streamed { program, .. } => program.bytes(),
            Self::Rollout { .. } => 0,
        }
    }

    fn evaluations(&self) -> Option<usize> {
        match self {
            Self::Rollout { nfe, .. } => Some(*nfe),
            _ => None,
        }
    }
}

/// The set's trajectories again and again, from their first snapshots to all their times.
fn request(set: &TrajectorySet, count: usize) -> Request {
    let size = set.description.shape.len();
    let chosen = || set.trajectories.iter().cycle().take(count);
    Request {
        start: chosen().map(|trajectory| trajectory.times[0]).collect(),
        states: chosen().map(|trajectory| trajectory.values[..size].to_vec()).collect(),
        times: chosen().map(|trajectory| trajectory.times[1..].to_vec()).collect(),
        conditions: chosen().map(|trajectory| trajectory.parameters.clone()).collect(),
    }
}

/// Milliseconds a run, the device's work included; short runs are timed in groups.
fn time(work: &mut Prepared<'_>, memory: &mut Memory, repetitions: usize) -> Result<Vec<f64>> {
    /// Least time of a group, in seconds.
    const GROUP: f64 = 0.02;
    let once = Instant::now();
    work.run(memory)?;
    let group = (GROUP / once.elapsed().as_secs_f64()).ceil().clamp(1.0, 1000.0) as usize;
    let mut times = Vec::with_capacity(repetitions);
    for _ in 0..repetitions {
        let started = Instant::now();
        for _ in 0..group {
            work.start(memory)?;
        }
        work.wait()?;
        times.push(1e3 * started.elapsed().as_secs_f64() / group as f64);
    }
    Ok(times)
}

/// The recipe of a network and trajectories of its system, on the grid asked for: what `cfo train` would train.
fn setting(arguments: &args::Bench) -> Result<(Model, TrajectorySet)> {
    let (system, operator) = match arguments.model {
        // All of them are taken one by one before.
        Network::Mlp | Network::All => ("lorenz", None),
        Network::Unet1d => ("burgers", None),
        Network::Fno => ("burgers", Some(OperatorConfig::Fno(FnoConfig::default()))),
        Network::Unet2d => ("diffusion-reaction", None),
        Network::Dit => ("diffusion-reaction", Some(OperatorConfig::Dit(DitConfig::default()))),
    };
    let system = paper::System::find(system)?;
    let mut recipe = system.recipe(Edition::Paper);
    recipe.data.stream = Some(arguments.stream);
    recipe.operator = operator.unwrap_or(recipe.operator);
    recipe.train.batch = arguments.batch.unwrap_or(recipe.train.batch);
    if let Some(precision) = &arguments.precision {
        recipe.train.precision.clone_from(precision);
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
    Ok((Model::new(&recipe, &set)?, set))
}

/// Trajectories of a system; the first few again and again, since more of them would take minutes and nothing that is timed depends on it.
fn trajectories(equation: &dyn Equation, count: usize) -> Result<TrajectorySet> {
    const DIFFERENT: usize = 4;
    let few = TrajectorySet::simulate(equation, DIFFERENT.min(count), 0, interrupt::flag()?)?;
    let all = few.trajectories.iter().cycle().take(count).cloned().collect();
    Ok(TrajectorySet::new(few.description, all)?)
}

fn compile(what: Work, model: &Model, data: &TrainingData, memory: &mut Memory) -> Result<Program> {
    let (graph, loss) = training_step(model, data)?;
    memory.initialize(&graph, 0).map_err(CfoError::from)?;
    memory.insert_real("train.loss", Shape::scalar(), &[0.0]).map_err(CfoError::from)?;
    data.upload(model, memory)?;
    let batch = model.recipe.train.batch;
    let compiled = |graph: &Graph, outputs: &[Node], memory: &Memory| {
        Program::compile(graph, outputs, memory).map_err(CfoError::from)
    };
    Ok(match what {
        Work::TrainStep | Work::Overhead => compiled(&graph, &[loss], memory)?,
        Work::Forward => {
            let graph = model.forward(batch, memory)?;
            compiled(&graph.0, &[graph.1], memory)?
        }
        Work::Sampler => {
            let (graph, sample) = cfo::sampler(model, data)?;
            compiled(&graph, &[sample.time, sample.state, sample.target], memory)?
        }
        Work::Rollout => Rollout::new(model, memory, batch, RK4, "")?.into_step(),
    })
}
