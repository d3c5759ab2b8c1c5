//! Work that is ready to be timed.

use std::time::Instant;

use anyhow::Result;
use cfo::engine::{Feed, Graph, Memory, Node, Page, Program, Shape};
use cfo::numerics::ode::RK4;
use cfo::{Budget, CfoError, Model, Request, Rollout, TrainingData, TrajectorySet, training_step};

use crate::args::{self, Work};

/// What is timed.
pub(super) enum Prepared<'a> {
    Program(Box<Program>),
    Rollout { rollout: Box<Rollout<'a>>, request: Request, nfe: usize },
    Streamed { program: Box<Program>, feed: Feed, pages: Vec<Page> },
}

impl<'a> Prepared<'a> {
    pub fn new(
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
            return Ok(Self::Streamed { program: Box::new(program), feed, pages });
        }
        Ok(Self::Program(Box::new(program)))
    }

    /// Once, until the device is done.
    pub fn run(&mut self, memory: &mut Memory) -> Result<()> {
        self.start(memory)?;
        match self {
            Self::Program(program) | Self::Streamed { program, .. } => {
                Ok(program.wait().map_err(CfoError::from)?)
            }
            Self::Rollout { .. } => Ok(()),
        }
    }

    /// Once, without waiting where that can be.
    pub fn start(&mut self, memory: &mut Memory) -> Result<()> {
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

    pub fn wait(&self) -> Result<()> {
        match self {
            Self::Program(program) | Self::Streamed { program, .. } => {
                Ok(program.wait().map_err(CfoError::from)?)
            }
            Self::Rollout { .. } => Ok(()),
        }
    }

    pub fn operations(&self) -> usize {
        match self {
            Self::Program(program) | Self::Streamed { program, .. } => program.plan().len(),
            Self::Rollout { .. } => 0,
        }
    }

    pub fn bytes(&self) -> usize {
        match self {
            Self::Program(program) | Self::Streamed { program, .. } => program.bytes(),
            Self::Rollout { .. } => 0,
        }
    }

    pub fn evaluations(&self) -> Option<usize> {
        match self {
            Self::Rollout { nfe, .. } => Some(*nfe),
            _ => None,
        }
    }
}

/// The set's trajectories again and again, from a snapshot to all later times.
fn request(set: &TrajectorySet, first: usize, count: usize) -> Request {
    let size = set.description.shape.len();
    let chosen = || set.trajectories.iter().cycle().take(count);
    Request {
        start: chosen().map(|trajectory| trajectory.times[first]).collect(),
        states: chosen()
            .map(|trajectory| trajectory.values[first * size..(first + 1) * size].to_vec())
            .collect(),
        times: chosen().map(|trajectory| trajectory.times[first + 1..].to_vec()).collect(),
        conditions: chosen().map(|trajectory| trajectory.parameters.clone()).collect(),
    }
}

/// Milliseconds a run, the device's work included; short runs are timed in groups.
pub(super) fn time(work: &mut Prepared<'_>, memory: &mut Memory, repetitions: usize) -> Result<Vec<f64>> {
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

/// Puts everything into memory and compiles what is timed.
pub(super) fn compile(
    what: Work,
    model: &Model,
    data: &TrainingData,
    memory: &mut Memory,
) -> Result<Program> {
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
