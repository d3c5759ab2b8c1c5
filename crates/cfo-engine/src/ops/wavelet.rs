//! Orthogonal wavelet transforms of fields.

use cfo_numerics::Wavelet;

use super::{Derivative, Inputs, Op, Operation};
use crate::error::Result;
use crate::graph::{Graph, Node};
use crate::shape::Type;

/// The transform of `[b, h, w, c]` over height and width, or its inverse. The averages of each level are in the corner
/// at the origin and are transformed again by the next level. An axis of length 1 is not transformed.
#[derive(Clone, Debug)]
pub struct WaveletTransform {
    /// Wavelet family, number of levels and boundaries.
    pub wavelet: Wavelet,
    /// Whether it is the inverse.
    pub inverse: bool,
}

impl Operation for WaveletTransform {
    fn infer(&self, inputs: &Inputs<'_>) -> Result<Vec<Type>> {
        inputs.reals()?;
        let wavelet = self.wavelet;
        let form = "[batch, height, width, channels]";
        match *inputs[0].shape.axes() {
            [_, h, w, _] if wavelet.divides(h) && wavelet.divides(w) => Ok(vec![inputs[0].clone()]),
            _ => Err(inputs
                .bad_shape(format!("{form} whose sides are 1 or can be halved {} times", wavelet.levels))),
        }
    }

    fn derivative(&self, at: &mut Derivative<'_>) -> Result<Vec<Option<Node>>> {
        let transposed = Self { inverse: !self.inverse, ..self.clone() };
        Ok(vec![Some(at.graph.push_one(Op::WaveletTransform(transposed), &[at.cotangent()])?)])
    }

    fn attributes(&self) -> String {
        let Wavelet { family, levels, periodic } = self.wavelet;
        format!(" {family:?} levels={levels} periodic={periodic:?} inverse={}", self.inverse)
    }
}

impl Graph {
    /// The orthogonal wavelet transform of `[batch, height, width, channels]`: averages at the origin, recursively.
    ///
    /// # Errors
    /// If a side other than 1 cannot be halved once per level.
    pub fn wavelet(&mut self, x: Node, wavelet: Wavelet) -> Result<Node> {
        self.push_one(Op::WaveletTransform(WaveletTransform { wavelet, inverse: false }), &[x])
    }

    /// The inverse of [`Graph::wavelet`].
    ///
    /// # Errors
    /// If a side other than 1 cannot be halved once per level.
    pub fn wavelet_inverse(&mut self, x: Node, wavelet: Wavelet) -> Result<Node> {
        self.push_one(Op::WaveletTransform(WaveletTransform { wavelet, inverse: true }), &[x])
    }
}
