//! Sizes of a convolution, common to its three forms.

use cfo_engine::Shape;
use cfo_engine::ops::{Conv, ConvInput, ConvWeight};

/// A convolution from `[batch, height, width, inputs]` to `[batch, rows, columns, outputs]` with the weight `[outputs,
/// kernel[0], kernel[1], inputs]`. Pairs are (height, width).
#[derive(Clone, Copy, Debug)]
pub(crate) struct Geometry {
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

impl Geometry {
    pub(crate) fn of_conv(op: &Conv, x: &Shape, w: &Shape) -> Self {
        let (x, w) = (axes(x), axes(w));
        Self::new(x, [x[0], 0, 0, w[0]], [w[1], w[2]], op.stride, op.padding)
    }

    pub(crate) fn of_input(op: &ConvInput, dy: &Shape, w: &Shape) -> Self {
        let (dy, w) = (axes(dy), axes(w));
        Self::new([dy[0], op.height, op.width, w[3]], dy, [w[1], w[2]], op.stride, op.padding)
    }

    pub(crate) fn of_weight(op: &ConvWeight, x: &Shape, dy: &Shape) -> Self {
        Self::new(axes(x), axes(dy), op.kernel, op.stride, op.padding)
    }

    fn new(
        [batch, height, width, inputs]: [usize; 4],
        [_, _, _, outputs]: [usize; 4],
        kernel: [usize; 2],
        stride: [usize; 2],
        padding: [usize; 2],
    ) -> Self {
        let extent =
            |axis: usize, length: usize| (length + 2 * padding[axis] - kernel[axis]) / stride[axis] + 1;
        let (rows, columns) = (extent(0, height), extent(1, width));
        Self { batch, height, width, inputs, rows, columns, outputs, kernel, stride, padding }
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
