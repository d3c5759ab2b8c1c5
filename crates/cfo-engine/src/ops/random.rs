//! Counter-based random numbers: the same for the same seed, stream and step on every device.

use super::{Derivative, Op, Operation};
use crate::error::Result;
use crate::graph::{Graph, Node};
use crate::shape::{Element, Shape, Type};

/// What is drawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Distribution {
    /// Uniform in `[0, 1)`.
    Uniform,
    /// Normal with mean 0 and variance 1.
    Normal,
}

/// Philox numbers keyed by seed, stream and the value of a counter. Input: the counter, `index []`.
#[derive(Clone, Debug)]
pub struct Random {
    /// What is drawn.
    pub distribution: Distribution,
    /// Key of the random numbers.
    pub seed: u64,
    /// Which of the seed's streams.
    pub stream: u32,
    /// How many are drawn.
    pub shape: Shape,
}

impl Operation for Random {
    fn name(&self) -> &'static str {
        "random"
    }

    fn infer(&self, inputs: &[&Type]) -> Result<Vec<Type>> {
        super::require("random", inputs, Element::Index)?;
        Ok(vec![Type::real(self.shape.clone())])
    }

    fn derivative(&self, _: &mut Derivative<'_>) -> Result<Vec<Option<Node>>> {
        Ok(vec![None])
    }

    fn attributes(&self) -> String {
        format!(" {:?} seed={} stream={}", self.distribution, self.seed, self.stream)
    }
}

impl Graph {
    /// Random numbers that depend on seed, stream and the counter's value alone; element `i` is draw `i`.
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
        self.push_one(Op::Random(Random { distribution, seed, stream, shape: shape.into() }), &[counter])
    }
}
