//! The batch sampler: random trajectories at random times, evaluated from their splines without stored coefficients.

use std::ops::Range;

use cfo_numerics::{DrawBy, NoiseSchedule, Path, PathWeights, philox4x32};

use super::{Inputs, Op, Operation};
use crate::error::{EngineError, Result};
use crate::graph::{Graph, Node};
use crate::shape::{Element, Shape, Type};

/// The data of a sample from a trajectory.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum PathData {
    /// A point of the path. The state is the spline's value plus noise; the target is its velocity plus the noise's
    /// contribution.
    Flow {
        /// How training points are sampled.
        by: DrawBy,
        /// The spline and its stencil.
        path: Path,
        /// The noise schedule.
        noise: NoiseSchedule,
    },
    /// A uniformly drawn snapshot other than the last; the target is the next one.
    Pair,
    /// A snapshot and the `intervals` snapshots after it, which are the targets. Starts are uniform among the snapshots
    /// with enough successors. Shorter trajectories start at their first snapshot, and their last snapshot is repeated.
    Window {
        /// Number of snapshots after the first, at least 1.
        intervals: usize,
    },
    /// The whole trajectory. The state is its first snapshot. The target is `[frames, ...]`, its values at equidistant
    /// times from the first to the last.
    Whole {
        /// The spline and its stencil.
        path: Path,
        /// Number of times.
        frames: usize,
        /// Snapshots of the longest trajectory.
        longest: usize,
    },
}

impl PathData {
    /// Largest number of snapshots that a sample needs.
    pub fn window(&self) -> usize {
        match self {
            Self::Pair => 2,
            Self::Window { intervals } => intervals + 1,
            Self::Flow { path, .. } if path.spline.smoothness() == 0 => 2,
            Self::Flow { path, .. } => path.stencil.clamp(2, Path::MAX_STENCIL) + 1,
            Self::Whole { longest, .. } => *longest,
        }
    }

    /// Number of times of a target of [`PathData::Whole`].
    pub fn frames(&self) -> Option<usize> {
        match self {
            Self::Whole { frames, .. } => Some(*frames),
            Self::Flow { .. } | Self::Pair | Self::Window { .. } => None,
        }
    }

    /// Time `frame` of `frames` equidistant times from the first to the last of a trajectory.
    pub fn frame_time(times: &[f64], frame: usize, frames: usize) -> f64 {
        let (start, stop) = (times[0], times[times.len() - 1]);
        start + (stop - start) * (frame as f64 / (frames.max(2) - 1) as f64)
    }
}

/// How batches are drawn: the data and the random numbers. Sample `i` of step `n` uses Philox's counter `[i, n, stream,
/// 0]` with the seed as key. Samples are numbered over all ranks that share a batch.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct BatchDraw {
    /// The data of a sample.
    pub data: PathData,
    /// Key of the random numbers.
    pub seed: u64,
    /// The stream of the seed.
    pub stream: u32,
    /// The number of the first sample: 0, or the number of samples of the ranks before this one.
    pub first: u32,
}

/// A sample before its snapshots are read.
#[derive(Clone, Copy, Debug)]
pub struct Drawn {
    /// Index of the trajectory.
    pub trajectory: usize,
    /// The time.
    pub time: f64,
    /// The first snapshot needed, as an index among all snapshots.
    pub row: usize,
    /// Number of snapshots needed.
    pub count: usize,
    /// Weights of the snapshots, for samples of a path.
    pub weights: Option<PathWeights>,
}

impl BatchDraw {
    /// Draws sample `sample` of a step.
    #[inline]
    pub fn sample(&self, sample: usize, step: u32, times: &[f64], offsets: &[u32]) -> Drawn {
        let key = [self.seed as u32, (self.seed >> 32) as u32];
        let words = philox4x32([self.first + sample as u32, step, self.stream, 0], key);
        let trajectory = scaled(words[0], offsets.len() - 1);
        let (first, end) = (offsets[trajectory] as usize, offsets[trajectory + 1] as usize);
        match self.data {
            PathData::Pair => {
                let row = first + scaled(words[1], end - first - 1);
                Drawn { trajectory, time: times[row], row, count: 2, weights: None }
            }
            PathData::Window { intervals } => {
                let starts = (end - first).saturating_sub(intervals).max(1);
                let row = first + scaled(words[1], starts);
                let count = (intervals + 1).min(end - row);
                Drawn { trajectory, time: times[row], row, count, weights: None }
            }
            PathData::Whole { .. } => {
                Drawn { trajectory, time: times[first], row: first, count: end - first, weights: None }
            }
            PathData::Flow { path, by, .. } => {
                let times = &times[first..end];
                let (from, to) = match by {
                    DrawBy::Time => (0, times.len() - 1),
                    DrawBy::Interval => {
                        let interval = scaled(words[3], (times.len() - 1).max(1));
                        (interval, (interval + 1).min(times.len() - 1))
                    }
                    DrawBy::Snapshot => [scaled(words[3], times.len()); 2].into(),
                };
                let time = times[from] + (times[to] - times[from]) * unit(words[1], words[2]);
                let weights = path.supported(times.len()).weights(times, time);
                let (row, count) = (first + weights.first, weights.count);
                Drawn { trajectory, time, row, count, weights: Some(weights) }
            }
        }
    }

    /// The range of snapshots that a sample of a step needs, for times and offsets as in [`PathTensors`].
    pub fn rows(&self, sample: usize, step: u32, times: &[f64], offsets: &[u32]) -> Range<usize> {
        let Drawn { row, count, .. } = self.sample(sample, step, times, offsets);
        row..row + count
    }
}

/// Maps a random word uniformly to `0..count`.
fn scaled(word: u32, count: usize) -> usize {
    ((u64::from(word) * count as u64) >> 32) as usize
}

/// Two words as a number in `[0, 1)` with 53 random bits.
fn unit(low: u32, high: u32) -> f64 {
    ((u64::from(high) << 32 | u64::from(low)) >> 11) as f64 * (1.0 / (1u64 << 53) as f64)
}

/// The tensors that hold trajectories: snapshot `k` of trajectory `i` is row `offsets[i] + k`.
#[derive(Clone, Copy, Debug)]
pub struct PathTensors {
    /// `real [rows, ...]`: all snapshots of all trajectories, one after another.
    pub values: Node,
    /// `double [rows]`: their times, strictly increasing within a trajectory.
    pub times: Node,
    /// `index [trajectories + 1]`: where each trajectory starts; the last entry is the number of rows.
    pub offsets: Node,
}

/// A sampled batch.
#[derive(Clone, Copy, Debug)]
pub struct PathSample {
    /// Times, `real [batch]`.
    pub time: Node,
    /// States, `real [batch, ...]`.
    pub state: Node,
    /// Targets, `real [batch, ...]`: velocities, or the next snapshots.
    ///
    /// For windows `real [intervals * batch, ...]`: the snapshots after the first, with the second ones of all samples
    /// first. For whole trajectories `real [batch, frames, ...]`.
    pub target: Node,
    /// Indices of the trajectories, `index [batch]`.
    pub trajectory: Node,
    /// Times of windows.
    pub window: Option<WindowTimes>,
}

/// The times of sampled windows.
#[derive(Clone, Copy, Debug)]
pub struct WindowTimes {
    /// `real [intervals + 1, batch]`: the times of the snapshots.
    pub times: Node,
    /// `real [intervals, batch]`: the distance from each snapshot to the next, subtracted in double precision.
    pub lengths: Node,
}

/// Draws the samples of a batch. Inputs: values, times, offsets, counter. Outputs: see [`PathSample`].
#[derive(Clone, Debug)]
pub struct SamplePath {
    /// How samples are drawn.
    pub draw: BatchDraw,
    /// Number of samples.
    pub batch: usize,
    /// Whether the values are only the snapshots of the batch, [`PathData::window`] rows per sample, instead of all
    /// snapshots.
    pub staged: bool,
}

impl Operation for SamplePath {
    fn infer(&self, inputs: &Inputs<'_>) -> Result<Vec<Type>> {
        inputs.require(&[Element::Real, Element::Double, Element::Index])?;
        let (values, times) = (&inputs[0].shape, &inputs[1].shape);
        let rows = match self.staged {
            true => self.batch * self.draw.data.window(),
            false => times.len(),
        };
        if values.rank() < 2 || times.rank() != 1 || values.axes()[0] != rows {
            return Err(inputs.mismatch(times, format!("{rows} rows of values")));
        }
        let axes: Vec<usize> = [self.batch].iter().chain(&values.axes()[1..]).copied().collect();
        let field = Type::real(axes.clone());
        let time = Type::real([self.batch]);
        let trajectory = Type { shape: Shape::from([self.batch]), element: Element::Index };
        let PathData::Window { intervals } = self.draw.data else {
            let frames = self.draw.data.frames();
            let target: Vec<usize> =
                axes[..1].iter().copied().chain(frames).chain(axes[1..].iter().copied()).collect();
            return Ok(vec![time, field, Type::real(target), trajectory]);
        };
        if intervals == 0 {
            return Err(EngineError::bad_attribute(inputs.operation, "a window has one interval at least"));
        }
        let after: Vec<usize> = [intervals * self.batch].iter().chain(&axes[1..]).copied().collect();
        let [times, lengths] = [intervals + 1, intervals].map(|count| Type::real([count, self.batch]));
        Ok(vec![time, field, Type::real(after), trajectory, times, lengths])
    }

    fn attributes(&self) -> String {
        let BatchDraw { data, seed, stream, first } = self.draw;
        let from = if first == 0 { String::new() } else { format!(" first={first}") };
        let staged = if self.staged { " staged" } else { "" };
        format!(" batch={} seed={seed} stream={stream}{from} {data:?}{staged}", self.batch)
    }
}

/// Rows of a table, selected by index. Inputs: the table `real [rows, ...]`, `index [batch]`.
#[derive(Clone, Debug)]
pub struct Gather;

impl Operation for Gather {
    fn infer(&self, inputs: &Inputs<'_>) -> Result<Vec<Type>> {
        inputs.require(&[Element::Real, Element::Index])?;
        let (table, index) = (&inputs[0].shape, &inputs[1].shape);
        if table.rank() < 1 || index.rank() != 1 {
            return Err(inputs.mismatch(index, "a table of rows and a list of row numbers"));
        }
        let axes: Vec<usize> = index.axes().iter().chain(&table.axes()[1..]).copied().collect();
        Ok(vec![Type::real(axes)])
    }
}

impl Graph {
    /// Draws `batch` samples that depend only on seed, stream and the counter's value.
    ///
    /// # Errors
    /// If the tensors do not fit together.
    pub fn sample_path(
        &mut self,
        tensors: PathTensors,
        data: PathData,
        batch: usize,
        (seed, stream): (u64, u32),
        counter: Node,
    ) -> Result<PathSample> {
        self.sample_draw(tensors, BatchDraw { data, seed, stream, first: 0 }, batch, counter)
    }

    /// Draws `batch` samples as described by `draw`, for instance a part of a batch that ranks share.
    ///
    /// # Errors
    /// If the tensors do not fit together.
    pub fn sample_draw(
        &mut self,
        tensors: PathTensors,
        draw: BatchDraw,
        batch: usize,
        counter: Node,
    ) -> Result<PathSample> {
        self.sample(SamplePath { draw, batch, staged: false }, tensors, counter)
    }

    /// Draws samples from values that contain only the snapshots of the batch.
    ///
    /// The values have [`PathData::window`] rows per sample, given by [`BatchDraw::rows`], in the order of the samples.
    ///
    /// # Errors
    /// If the tensors do not fit together.
    pub fn sample_staged(
        &mut self,
        tensors: PathTensors,
        draw: BatchDraw,
        batch: usize,
        counter: Node,
    ) -> Result<PathSample> {
        self.sample(SamplePath { draw, batch, staged: true }, tensors, counter)
    }

    fn sample(&mut self, op: SamplePath, tensors: PathTensors, counter: Node) -> Result<PathSample> {
        let inputs = [tensors.values, tensors.times, tensors.offsets, counter];
        let nodes = self.push(Op::SamplePath(op), &inputs)?;
        let window = nodes.get(4..6).map(|of| WindowTimes { times: of[0], lengths: of[1] });
        Ok(PathSample { time: nodes[0], state: nodes[1], target: nodes[2], trajectory: nodes[3], window })
    }

    /// Rows `index` of a table; not differentiated.
    ///
    /// # Errors
    /// If `index` is not a list of indices.
    pub fn gather(&mut self, table: Node, index: Node) -> Result<Node> {
        self.push_one(Op::Gather(Gather), &[table, index])
    }
}
