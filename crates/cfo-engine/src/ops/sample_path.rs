//! The batch sampler: random trajectories at random times, read off their splines without storing a coefficient.

use cfo_numerics::{NoiseSchedule, Path};

use super::{Op, Operation};
use crate::error::{EngineError, Result};
use crate::graph::{Graph, Node};
use crate::shape::{Element, Shape, Type};

/// What is drawn from a trajectory.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum PathData {
    /// A uniform time; the state is the spline's value plus noise, the target its velocity plus the noise's.
    Flow {
        /// The spline and its stencil.
        path: Path,
        /// The noise between knots.
        noise: NoiseSchedule,
    },
    /// A uniform snapshot but the last; the target is the next one.
    Pair,
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

/// A drawn batch.
#[derive(Clone, Copy, Debug)]
pub struct PathSample {
    /// `real [batch]`.
    pub time: Node,
    /// `real [batch, ...]`.
    pub state: Node,
    /// `real [batch, ...]`: velocity, or the next snapshot.
    pub target: Node,
    /// `index [batch]`: which trajectory.
    pub trajectory: Node,
}

/// Draws a batch. Inputs: values, times, offsets, counter. Outputs: as in [`PathSample`].
#[derive(Clone, Debug)]
pub(crate) struct SamplePath {
    pub(crate) data: PathData,
    pub(crate) batch: usize,
    pub(crate) seed: u64,
    pub(crate) stream: u32,
}

impl Operation for SamplePath {
    fn name(&self) -> &'static str {
        "sample_path"
    }

    fn infer(&self, inputs: &[&Type]) -> Result<Vec<Type>> {
        let needed = [Element::Real, Element::Double, Element::Index, Element::Index];
        for (operand, (input, needed)) in inputs.iter().zip(needed).enumerate() {
            if input.element != needed {
                return Err(EngineError::BadElement {
                    operation: "sample_path",
                    operand,
                    found: input.element.name(),
                    needed: needed.name(),
                });
            }
        }
        let (values, times) = (&inputs[0].shape, &inputs[1].shape);
        if values.rank() < 2 || times.axes() != &values.axes()[..1] {
            return Err(EngineError::ShapeMismatch {
                operation: "sample_path",
                left: values.clone(),
                right: times.clone(),
                needed: "one time for each row of the values".into(),
            });
        }
        let axes: Vec<usize> = [self.batch].iter().chain(&values.axes()[1..]).copied().collect();
        let field = Type::real(axes);
        let trajectory = Type { shape: Shape::from([self.batch]), element: Element::Index };
        Ok(vec![Type::real([self.batch]), field.clone(), field, trajectory])
    }

    fn attributes(&self) -> String {
        format!(" batch={} seed={} stream={} {:?}", self.batch, self.seed, self.stream, self.data)
    }
}

/// Rows of a table, chosen by index. Inputs: the table `real [rows, ...]`, `index [batch]`.
#[derive(Clone, Debug)]
pub(crate) struct Gather;

impl Operation for Gather {
    fn name(&self) -> &'static str {
        "gather"
    }

    fn infer(&self, inputs: &[&Type]) -> Result<Vec<Type>> {
        super::require("gather", &inputs[..1], Element::Real)?;
        super::require("gather", &inputs[1..], Element::Index)?;
        let (table, index) = (&inputs[0].shape, &inputs[1].shape);
        if table.rank() < 1 || index.rank() != 1 {
            return Err(EngineError::ShapeMismatch {
                operation: "gather",
                left: table.clone(),
                right: index.clone(),
                needed: "a table of rows and a list of row numbers".into(),
            });
        }
        let axes: Vec<usize> = index.axes().iter().chain(&table.axes()[1..]).copied().collect();
        Ok(vec![Type::real(axes)])
    }
}

impl Graph {
    /// Draws `batch` samples that depend on seed, stream and the counter's value alone.
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
        let op = Op::SamplePath(SamplePath { data, batch, seed, stream });
        let nodes = self.push(op, &[tensors.values, tensors.times, tensors.offsets, counter])?;
        Ok(PathSample { time: nodes[0], state: nodes[1], target: nodes[2], trajectory: nodes[3] })
    }

    /// Rows `index` of a table; not differentiated.
    ///
    /// # Errors
    /// If `index` is not a list of indices.
    pub fn gather(&mut self, table: Node, index: Node) -> Result<Node> {
        self.push_one(Op::Gather(Gather), &[table, index])
    }
}
