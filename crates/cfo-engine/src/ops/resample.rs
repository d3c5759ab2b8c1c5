//! Interpolation of fields to grids of another size.

use super::{Derivative, Inputs, Op, Operation};
use crate::error::Result;
use crate::graph::{Graph, Node};
use crate::shape::{Shape, Type};

/// Interpolation between grid points. Points are centres of cells that tile the same square for any grid size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ResampleMode {
    /// The value of the cell that contains the new centre.
    Nearest,
    /// Linear in each direction between the nearest centres, constant beyond the outermost.
    Bilinear,
}

/// Resamples fields `[b, h, w, c]` to `[b, height, width, c]`.
#[derive(Clone, Debug)]
pub struct Resample {
    /// The interpolation.
    pub mode: ResampleMode,
    /// New height.
    pub height: usize,
    /// New width.
    pub width: usize,
}

/// The transpose of [`Resample`]: maps cotangents to the height and width before resampling.
#[derive(Clone, Debug)]
pub struct ResampleBackward(pub Resample);

impl Resample {
    /// The operation with the same interpolation to the height and width of a field.
    fn sized_as(&self, field: &Shape) -> Self {
        Self { mode: self.mode, height: field.axes()[1], width: field.axes()[2] }
    }
}

impl Operation for Resample {
    fn infer(&self, inputs: &Inputs<'_>) -> Result<Vec<Type>> {
        inputs.reals()?;
        let Self { height, width, .. } = *self;
        match *inputs[0].shape.axes() {
            [b, h, w, c] if h * w * height * width > 0 => Ok(vec![Type::real([b, height, width, c])]),
            _ => Err(inputs.bad_shape("[batch, height, width, channels] and a size that is not 0")),
        }
    }

    fn derivative(&self, at: &mut Derivative<'_>) -> Result<Vec<Option<Node>>> {
        let back = ResampleBackward(self.sized_as(at.graph.shape(at.inputs[0])));
        Ok(vec![Some(at.graph.push_one(Op::ResampleBackward(back), &[at.cotangent()])?)])
    }

    fn attributes(&self) -> String {
        format!(" {:?} {}x{}", self.mode, self.height, self.width)
    }
}

impl Operation for ResampleBackward {
    fn infer(&self, inputs: &Inputs<'_>) -> Result<Vec<Type>> {
        self.0.infer(inputs)
    }

    fn derivative(&self, at: &mut Derivative<'_>) -> Result<Vec<Option<Node>>> {
        let forward = self.0.sized_as(at.graph.shape(at.inputs[0]));
        Ok(vec![Some(at.graph.push_one(Op::Resample(forward), &[at.cotangent()])?)])
    }

    fn attributes(&self) -> String {
        self.0.attributes()
    }
}

impl ResampleMode {
    /// Position of point `to` of `new` among `old` points: two neighbours and the weight of the second.
    #[inline]
    pub fn neighbors(self, to: usize, new: usize, old: usize) -> (usize, usize, f64) {
        match self {
            Self::Nearest => {
                let cell = (2 * to + 1) * old / (2 * new);
                (cell, cell, 0.0)
            }
            Self::Bilinear => {
                let at = ((to as f64 + 0.5) * old as f64 / new as f64 - 0.5).max(0.0);
                let first = (at as usize).min(old - 1);
                let second = (first + 1).min(old - 1);
                (first, second, if second == first { 0.0 } else { at - first as f64 })
            }
        }
    }
}

impl Graph {
    /// Resamples fields `[batch, height, width, channels]` to a grid of the given height and width.
    ///
    /// # Errors
    /// If the value is not such a field or a size is 0.
    pub fn resample(&mut self, x: Node, mode: ResampleMode, height: usize, width: usize) -> Result<Node> {
        self.push_one(Op::Resample(Resample { mode, height, width }), &[x])
    }
}
