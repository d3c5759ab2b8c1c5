//! Work that is ready to be timed.

use std::time::Instant;

use anyhow::Result;
use cfo::numerics::ode::RK4;
use cfo::ranks::waited;
use cfo::rollout::Rollout;
use cfo::training::{CompiledStep, Counts, TrainingStep};
use cfo::{Budget, CfoError, Request, Trajectories};
use cfo_engine::{Feed, Memory, Page, Program};

use crate::args::{self, BenchWork};

pub(super) enum TimedWork {
    Program(CompiledStep),
    Rollout { rollout: Box<Rollout>, request: Request, nfe: usize },
    Streamed { program: CompiledStep, feed: Feed, pages: Vec<Page> },
}

impl TimedWork {
    pub fn new(arguments: &args::Bench, prepared: &mut TrainingStep, set: &Trajectories) -> Result<Self> {
        let program = compile(arguments.what, prepared)?;
        let TrainingStep { model, data, memory, .. } = prepared;
        if let (BenchWork::Rollout, Some(nfe)) = (arguments.what, arguments.nfe) {
            let batch = model.recipe.train.batch;
            let rollout = Box::new(Rollout::new(model, memory, batch, RK4, "")?);
            let first = usize::from(model.recipe.data.drop_first);
            return Ok(Self::Rollout { rollout, request: request(set, first, batch), nfe });
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
            return Ok(Self::Streamed { program, feed, pages });
        }
        Ok(Self::Program(program))
    }

    /// Runs it once and waits for the device.
    pub fn run(&mut self, memory: &mut Memory) -> Result<()> {
        self.start(memory)?;
        self.wait()
    }

    /// Runs it once, without waiting where that is possible.
    pub fn start(&mut self, memory: &mut Memory) -> Result<()> {
        match self {
            Self::Program(program) => program.run(memory)?,
            Self::Rollout { rollout, request, nfe } => {
                rollout.predict(memory, request, Budget::Evaluations(*nfe))?;
            }
            Self::Streamed { program, feed, pages } => {
                let page = pages.pop().expect("one page is always free");
                pages.extend(feed.send(memory, page).map_err(CfoError::from)?);
                program.run(memory)?;
            }
        }
        Ok(())
    }

    fn program(&self) -> Option<&CompiledStep> {
        match self {
            Self::Program(program) | Self::Streamed { program, .. } => Some(program),
            Self::Rollout { .. } => None,
        }
    }

    pub fn wait(&self) -> Result<()> {
        self.program().map_or(Ok(()), |program| Ok(program.wait()?))
    }

    pub fn operations(&self) -> usize {
        self.program().map_or(0, CompiledStep::operations)
    }

    pub fn bytes(&self) -> usize {
        self.program().map_or(0, CompiledStep::bytes)
    }

    pub fn solver_counts(&self) -> Option<Counts> {
        self.program()?.solver_counts()
    }

    pub fn evaluations(&self) -> Option<usize> {
        match self {
            Self::Rollout { nfe, .. } => Some(*nfe),
            _ => None,
        }
    }
}

/// The set's trajectories, repeated, from a snapshot to all later times.
fn request(set: &Trajectories, first: usize, count: usize) -> Request {
    let size = set.description.shape.len();
    let chosen = || set.trajectories.iter().cycle().take(count);
    Request {
        start: chosen().map(|trajectory| trajectory.times[first]).collect(),
        states: chosen()
            .map(|trajectory| trajectory.values[first * size..(first + 1) * size].to_vec())
            .collect(),
        times: chosen().map(|trajectory| trajectory.times[first + 1..].to_vec()).collect(),
        inputs: chosen().map(|trajectory| trajectory.inputs.clone()).collect(),
    }
}

/// Milliseconds per run, short runs in groups, and the mean time a run waited for sums over ranks.
pub(super) fn time(work: &mut TimedWork, memory: &mut Memory, repetitions: usize) -> Result<(Vec<f64>, f64)> {
    /// Least time of a group, in seconds.
    const GROUP: f64 = 0.02;
    let once = Instant::now();
    work.run(memory)?;
    let group = (GROUP / once.elapsed().as_secs_f64()).ceil().clamp(1.0, 1000.0) as usize;
    // Ranks that sum with each other make equally many runs.
    let group = cfo::ranks::from_first(group)?;
    let mut times = Vec::with_capacity(repetitions);
    let before = waited();
    for _ in 0..repetitions {
        let started = Instant::now();
        for _ in 0..group {
            work.start(memory)?;
        }
        work.wait()?;
        times.push(1e3 * started.elapsed().as_secs_f64() / group as f64);
    }
    let waited = 1e3 * (waited() - before).as_secs_f64() / (repetitions * group) as f64;
    Ok((times, waited))
}

/// Draws weights, puts everything into memory and compiles what is timed.
pub(super) fn compile(what: BenchWork, prepared: &mut TrainingStep) -> Result<CompiledStep> {
    prepared.initialize()?;
    if let BenchWork::TrainStep | BenchWork::Overhead = what {
        return Ok(prepared.compile(&[prepared.loss])?);
    }
    prepared.upload()?;
    let TrainingStep { model, data, memory, .. } = prepared;
    let batch = model.recipe.train.batch;
    let (graph, outputs) = match what {
        BenchWork::Rollout => return Ok(Rollout::new(model, memory, batch, RK4, "")?.into_step().into()),
        BenchWork::Forward => {
            let (graph, moved) = model.forward(batch, memory)?;
            (graph, vec![moved])
        }
        _ => {
            let (graph, sample) = cfo::training::sampler(model, data)?;
            (graph, vec![sample.time, sample.state, sample.target])
        }
    };
    Ok(Program::compile(&graph, &outputs, memory).map_err(CfoError::from)?.into())
}
