//! Sizes of a convolution, common to its three forms.

use cfo_engine::Shape;
use cfo_engine::ops::{Conv, ConvPass};

/// A convolution from `[batch, height, width, inputs]` to `[batch, rows, columns, outputs]` with the weight `[outputs,
/// kernel[0], kernel[1], inputs]`. Pairs are (height, width).
#[derive(Clone, Copy, Debug)]
pub(crate) struct ConvGeometry {
    pub(super) batch: usize,
    pub(super) height: usize,
    pub(super) width: usize,
    pub(super) inputs: usize,
    pub(super) rows: usize,
    pub(super) columns: usize,
    pub(super) outputs: usize,
    pub(super) kernel: [usize; 2],
    pub(super) stride: [usize; 2],
    pub(super) padding: [usize; 2],
}

impl ConvGeometry {
    /// The sizes of a pass with operands of these shapes.
    pub(crate) fn new(op: &Conv, a: &Shape, b: &Shape) -> Self {
        let (a, b) = (axes(a), axes(b));
        let (inputs, outputs) = match op.pass {
            ConvPass::Forward => (a[3], b[0]),
            ConvPass::Input => (b[3], a[3]),
            ConvPass::Weight => (a[3], b[3]),
        };
        let Conv { stride, padding, kernel, field: [height, width], .. } = *op;
        let extent =
            |axis: usize, length: usize| (length + 2 * padding[axis] - kernel[axis]) / stride[axis] + 1;
        let (rows, columns) = (extent(0, height), extent(1, width));
        Self { batch: a[0], height, width, inputs, rows, columns, outputs, kernel, stride, padding }
    }

    /// The input row for output row `i` and kernel row `p`, if it is in the field.
    pub(super) fn y(&self, i: usize, p: usize) -> Option<usize> {
        (i * self.stride[0] + p).checked_sub(self.padding[0]).filter(|&y| y < self.height)
    }

    /// The input column for output column `j` and kernel column `q`, if it is in the field.
    pub(super) fn x(&self, j: usize, q: usize) -> Option<usize> {
        (j * self.stride[1] + q).checked_sub(self.padding[1]).filter(|&x| x < self.width)
    }
}

fn axes(shape: &Shape) -> [usize; 4] {
    shape.axes().try_into().expect("the graph checked that there are four axes")
}
