//! Orthogonal wavelet transforms of periodic fields.

use super::{Derivative, Op, Operation, require};
use crate::error::{EngineError, Result};
use crate::graph::{Graph, Node};
use crate::shape::{Element, Type};

/// A family of orthogonal wavelets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WaveletFamily {
    /// Averages and differences of neighbours.
    Haar,
    /// Daubechies' wavelet of four taps, with two vanishing moments.
    Daubechies4,
}

impl WaveletFamily {
    /// The taps of the averaging filter.
    #[inline]
    pub fn taps(self) -> &'static [f64] {
        const HALF: f64 = std::f64::consts::FRAC_1_SQRT_2;
        const ROOT: f64 = 1.732_050_807_568_877_2;
        match self {
            Self::Haar => &[HALF, HALF],
            Self::Daubechies4 => &[
                (1.0 + ROOT) * HALF / 4.0,
                (3.0 + ROOT) * HALF / 4.0,
                (3.0 - ROOT) * HALF / 4.0,
                (1.0 - ROOT) * HALF / 4.0,
            ],
        }
    }
}

/// The transform of `[b, h, w, c]` over height and width, or its inverse. Averages of each level lie in the corner at
/// the origin and are transformed again by the next; an axis of length 1 is left alone.
#[derive(Clone, Debug)]
pub struct Wavelet {
    /// Which wavelets.
    pub family: WaveletFamily,
    /// How many levels.
    pub levels: usize,
    /// Whether it is the inverse.
    pub inverse: bool,
}

impl Operation for Wavelet {
    fn name(&self) -> &'static str {
        "wavelet"
    }

    fn infer(&self, inputs: &[&Type]) -> Result<Vec<Type>> {
        require("wavelet", inputs, Element::Real)?;
        let shape = &inputs[0].shape;
        let halves = |axis: usize| axis == 1 || axis > 0 && axis.trailing_zeros() as usize >= self.levels;
        match *shape.axes() {
            [_, h, w, _] if halves(h) && halves(w) => Ok(vec![inputs[0].clone()]),
            _ => Err(EngineError::BadShape {
                operation: "wavelet",
                found: shape.clone(),
                needed: format!(
                    "[batch, height, width, channels] whose sides are 1 or can be halved {} times",
                    self.levels
                ),
            }),
        }
    }

    fn derivative(&self, at: &mut Derivative<'_>) -> Result<Vec<Option<Node>>> {
        let transposed = Self { inverse: !self.inverse, ..self.clone() };
        Ok(vec![Some(at.graph.push_one(Op::Wavelet(transposed), &[at.cotangent()])?)])
    }

    fn attributes(&self) -> String {
        format!(" {:?} levels={} inverse={}", self.family, self.levels, self.inverse)
    }
}

impl Graph {
    /// The orthogonal wavelet transform of periodic fields `[batch, height, width, channels]`, in place: averages in
    /// the corner at the origin, details beside them, level within level.
    ///
    /// # Errors
    /// If a side that is not 1 cannot be halved `levels` times.
    pub fn wavelet(&mut self, x: Node, family: WaveletFamily, levels: usize) -> Result<Node> {
        self.push_one(Op::Wavelet(Wavelet { family, levels, inverse: false }), &[x])
    }

    /// The inverse of [`Graph::wavelet`].
    ///
    /// # Errors
    /// If a side that is not 1 cannot be halved `levels` times.
    pub fn wavelet_inverse(&mut self, x: Node, family: WaveletFamily, levels: usize) -> Result<Node> {
        self.push_one(Op::Wavelet(Wavelet { family, levels, inverse: true }), &[x])
    }
}
