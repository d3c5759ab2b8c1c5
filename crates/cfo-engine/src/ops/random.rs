//! Counter-based random numbers, equal on every device for equal seed, stream and step.

use super::{Derivative, Inputs, Op, Operation};
use crate::error::{EngineError, Result};
use crate::graph::{Graph, Node};
use crate::shape::{Element, Shape, Type};

/// The distribution of random numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Distribution {
    /// Uniform in `[0, 1)`.
    Uniform,
    /// Normal with mean 0 and variance 1.
    Normal,
}

/// How the elements of a tensor are numbered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Numbering {
    /// Element `i` is draw `i`.
    Elements,
    /// Each row of the first axis has its own sequence, with the number `first + row + 1`, and does not depend on other
    /// rows. Rows are numbered over all ranks that share a batch.
    Rows {
        /// The number of the first row.
        first: u32,
    },
    /// Each row of the first axis has its own sequence, with a given counter and number.
    Given,
}

/// Philox numbers keyed by seed, stream and the value of a counter. Input: the counter, `index []`, or the counter and
/// the number of each row, `index [rows, 2]`.
#[derive(Clone, Debug)]
pub struct Random {
    /// How the elements are numbered.
    pub numbering: Numbering,
    /// The distribution.
    pub distribution: Distribution,
    /// Key of the random numbers.
    pub seed: u64,
    /// The stream of the seed.
    pub stream: u32,
    /// Shape of the result.
    pub shape: Shape,
}

impl Operation for Random {
    fn infer(&self, inputs: &Inputs<'_>) -> Result<Vec<Type>> {
        inputs.require(&[Element::Index])?;
        let rows = self.shape.axes().first().copied();
        let (counter, fits) = (&inputs[0].shape, self.numbering == Numbering::Elements || rows.is_some());
        let needed = match self.numbering {
            Numbering::Given => vec![rows.unwrap_or_default(), 2],
            _ => Vec::new(),
        };
        if !fits || counter.axes() != needed {
            let needed =
                format!("counters of shape {needed:?}, for a tensor of rows where rows draw for themselves");
            return Err(EngineError::shape_mismatch(inputs.operation, &self.shape, counter, needed));
        }
        Ok(vec![Type::real(self.shape.clone())])
    }

    fn derivative(&self, _: &mut Derivative<'_>) -> Result<Vec<Option<Node>>> {
        Ok(vec![None])
    }

    fn attributes(&self) -> String {
        let numbering = match self.numbering {
            Numbering::Elements => String::new(),
            other => format!(" {other:?}"),
        };
        format!(" {:?} seed={} stream={}{numbering}", self.distribution, self.seed, self.stream)
    }
}

impl Graph {
    /// Random numbers that depend only on seed, stream and the counter's value; element `i` is draw `i`.
    ///
    /// # Errors
    /// If the counter is not an index scalar.
    pub fn random(
        &mut self,
        distribution: Distribution,
        shape: impl Into<Shape>,
        (seed, stream): (u64, u32),
        counter: Node,
    ) -> Result<Node> {
        self.random_as(Numbering::Elements, distribution, shape, (seed, stream), counter)
    }

    /// Random numbers with another [`Numbering`], for instance one sequence per row.
    ///
    /// # Errors
    /// If the counter is not an index scalar, or for [`Numbering::Given`] not one counter and one number per row.
    pub fn random_as(
        &mut self,
        numbering: Numbering,
        distribution: Distribution,
        shape: impl Into<Shape>,
        (seed, stream): (u64, u32),
        counter: Node,
    ) -> Result<Node> {
        let random = Random { numbering, distribution, seed, stream, shape: shape.into() };
        self.push_one(Op::Random(random), &[counter])
    }
}
