//! Convolution over height and width, its two adjoints, and padding with its adjoint.
//!
//! The three convolutions are closed under differentiation: each one's derivatives are the other two.

use super::{Derivative, Op, Operation, require};
use crate::error::{EngineError, Result};
use crate::graph::{Graph, Node};
use crate::shape::{Element, Shape, Type};

/// Values outside a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub enum PadMode {
    /// Zeros.
    #[default]
    Zero,
    /// Periodic continuation of the field.
    Circular,
    /// The nearest value at the edge.
    Replicate,
}

impl PadMode {
    /// The position on an axis of length `length` whose value a position of the padded axis has; `None` if it is zero.
    #[inline]
    pub fn source(self, position: usize, before: usize, length: usize) -> Option<usize> {
        let inside = position >= before && position - before < length;
        match self {
            _ if inside => Some(position - before),
            Self::Zero => None,
            Self::Circular => Some((position + length * before.div_ceil(length) - before) % length),
            Self::Replicate => Some(if position < before { 0 } else { length - 1 }),
        }
    }
}

/// `x [B, H, W, C]` with padding around height and width: `[B, before + H + after, before + W + after, C]`.
#[derive(Clone, Debug)]
pub struct Pad {
    /// Content of the padding.
    pub mode: PadMode,
    /// Padding before the first row and column.
    pub before: [usize; 2],
    /// Padding after the last row and column.
    pub after: [usize; 2],
}

impl Operation for Pad {
    fn name(&self) -> &'static str {
        "pad"
    }

    fn infer(&self, inputs: &[&Type]) -> Result<Vec<Type>> {
        require("pad", inputs, Element::Real)?;
        let [batch, height, width, channels] = field("pad", &inputs[0].shape)?;
        let size = |axis: usize, length: usize| self.before[axis] + length + self.after[axis];
        Ok(vec![Type::real([batch, size(0, height), size(1, width), channels])])
    }

    fn derivative(&self, at: &mut Derivative<'_>) -> Result<Vec<Option<Node>>> {
        let fold = Fold { mode: self.mode, before: self.before, after: self.after };
        Ok(vec![Some(at.graph.push_one(Op::Fold(fold), &[at.cotangent()])?)])
    }

    fn attributes(&self) -> String {
        format!(" {:?} before={:?} after={:?}", self.mode, self.before, self.after)
    }
}

/// The adjoint of [`Pad`]: values in the padding are added to the positions from which they were copied.
#[derive(Clone, Debug)]
pub struct Fold {
    /// Content of the padding.
    pub mode: PadMode,
    /// Padding before the first row and column.
    pub before: [usize; 2],
    /// Padding after the last row and column.
    pub after: [usize; 2],
}

impl Operation for Fold {
    fn name(&self) -> &'static str {
        "fold"
    }

    fn infer(&self, inputs: &[&Type]) -> Result<Vec<Type>> {
        require("fold", inputs, Element::Real)?;
        let [batch, height, width, channels] = field("fold", &inputs[0].shape)?;
        let padding = [self.before[0] + self.after[0], self.before[1] + self.after[1]];
        if height <= padding[0] || width <= padding[1] {
            return Err(EngineError::BadShape {
                operation: "fold",
                found: inputs[0].shape.clone(),
                needed: format!("height and width must exceed the padding {padding:?}"),
            });
        }
        Ok(vec![Type::real([batch, height - padding[0], width - padding[1], channels])])
    }

    fn derivative(&self, at: &mut Derivative<'_>) -> Result<Vec<Option<Node>>> {
        let pad = Pad { mode: self.mode, before: self.before, after: self.after };
        Ok(vec![Some(at.graph.push_one(Op::Pad(pad), &[at.cotangent()])?)])
    }

    fn attributes(&self) -> String {
        format!(" {:?} before={:?} after={:?}", self.mode, self.before, self.after)
    }
}

/// The cross-correlation of `x [B, H, W, Ci]` with `w [Co, kh, kw, Ci]`: `y [B, Ho, Wo, Co]`.
///
/// `y[b, i, j, o] = sum over p, q, c of x[b, i s + p - padding, j s + q - padding, c] w[o, p, q, c]` with zeros outside
/// and `Ho = (H + 2 padding - kh) / s + 1`.
#[derive(Clone, Debug)]
pub struct Conv {
    /// Strides along height and width.
    pub stride: [usize; 2],
    /// Zero padding on both sides of height and width.
    pub padding: [usize; 2],
}

impl Operation for Conv {
    fn name(&self) -> &'static str {
        "conv"
    }

    fn infer(&self, inputs: &[&Type]) -> Result<Vec<Type>> {
        require("conv", inputs, Element::Real)?;
        let [batch, height, width, channels] = field("conv", &inputs[0].shape)?;
        let [outputs, kernel_height, kernel_width, inputs_of_w] = field("conv", &inputs[1].shape)?;
        if channels != inputs_of_w {
            return Err(mismatch("conv", inputs, "the last axes, the input channels, must be equal"));
        }
        let size = |axis: usize, length: usize, kernel: usize| {
            extent(length, kernel, self.stride[axis], self.padding[axis]).ok_or_else(|| {
                mismatch(
                    "conv",
                    inputs,
                    "the kernel must fit into the padded field, the stride be at least 1",
                )
            })
        };
        let (rows, columns) = (size(0, height, kernel_height)?, size(1, width, kernel_width)?);
        Ok(vec![Type::real([batch, rows, columns, outputs])])
    }

    fn derivative(&self, at: &mut Derivative<'_>) -> Result<Vec<Option<Node>>> {
        let (x, w, dy) = (at.inputs[0], at.inputs[1], at.cotangent());
        let (size, kernel) = (plane(at.graph, x), plane(at.graph, w));
        let dx = at.wanted[0].then(|| at.graph.conv_input(dy, w, self.stride, self.padding, size));
        let dw = at.wanted[1].then(|| at.graph.conv_weight(x, dy, self.stride, self.padding, kernel));
        Ok(vec![dx.transpose()?, dw.transpose()?])
    }

    fn attributes(&self) -> String {
        format!(" stride={:?} padding={:?}", self.stride, self.padding)
    }
}

/// The adjoint of [`Conv`] in its input, a transposed convolution: `dy [B, Ho, Wo, Co]` and `w [Co, kh, kw, Ci]` to `dx
/// [B, height, width, Ci]`.
#[derive(Clone, Debug)]
pub struct ConvInput {
    /// Strides along height and width.
    pub stride: [usize; 2],
    /// Zero padding on both sides of height and width.
    pub padding: [usize; 2],
    /// Height of the result.
    pub height: usize,
    /// Width of the result.
    pub width: usize,
}

impl Operation for ConvInput {
    fn name(&self) -> &'static str {
        "conv input"
    }

    fn infer(&self, inputs: &[&Type]) -> Result<Vec<Type>> {
        require("conv input", inputs, Element::Real)?;
        let [batch, rows, columns, outputs] = field("conv input", &inputs[0].shape)?;
        let [outputs_of_w, kernel_height, kernel_width, channels] = field("conv input", &inputs[1].shape)?;
        if outputs != outputs_of_w {
            let needed = "the last axis of the first must equal the first of the second";
            return Err(mismatch("conv input", inputs, needed));
        }
        let fits = extent(self.height, kernel_height, self.stride[0], self.padding[0]) == Some(rows)
            && extent(self.width, kernel_width, self.stride[1], self.padding[1]) == Some(columns);
        if !fits {
            let needed = format!(
                "with stride {:?} and padding {:?} they cannot yield a field of {}x{}",
                self.stride, self.padding, self.height, self.width
            );
            return Err(mismatch("conv input", inputs, &needed));
        }
        Ok(vec![Type::real([batch, self.height, self.width, channels])])
    }

    fn derivative(&self, at: &mut Derivative<'_>) -> Result<Vec<Option<Node>>> {
        let (dy, w, g) = (at.inputs[0], at.inputs[1], at.cotangent());
        let kernel = plane(at.graph, w);
        let to_dy = at.wanted[0].then(|| at.graph.conv_plain(g, w, self.stride, self.padding));
        let to_w = at.wanted[1].then(|| at.graph.conv_weight(g, dy, self.stride, self.padding, kernel));
        Ok(vec![to_dy.transpose()?, to_w.transpose()?])
    }

    fn attributes(&self) -> String {
        format!(" stride={:?} padding={:?} size={:?}", self.stride, self.padding, [self.height, self.width])
    }
}

/// The adjoint of [`Conv`] in its weight: `x [B, H, W, Ci]` and `dy [B, Ho, Wo, Co]` to `dw [Co, kh, kw, Ci]`.
#[derive(Clone, Debug)]
pub struct ConvWeight {
    /// Strides along height and width.
    pub stride: [usize; 2],
    /// Zero padding on both sides of height and width.
    pub padding: [usize; 2],
    /// Height and width of the weight.
    pub kernel: [usize; 2],
}

impl Operation for ConvWeight {
    fn name(&self) -> &'static str {
        "conv weight"
    }

    fn infer(&self, inputs: &[&Type]) -> Result<Vec<Type>> {
        require("conv weight", inputs, Element::Real)?;
        let [batch, height, width, channels] = field("conv weight", &inputs[0].shape)?;
        let [batch_of_dy, rows, columns, outputs] = field("conv weight", &inputs[1].shape)?;
        let fits = extent(height, self.kernel[0], self.stride[0], self.padding[0]) == Some(rows)
            && extent(width, self.kernel[1], self.stride[1], self.padding[1]) == Some(columns);
        if batch != batch_of_dy || !fits {
            let needed = format!(
                "the second must be what kernel {:?}, stride {:?} and padding {:?} make of the first",
                self.kernel, self.stride, self.padding
            );
            return Err(mismatch("conv weight", inputs, &needed));
        }
        Ok(vec![Type::real([outputs, self.kernel[0], self.kernel[1], channels])])
    }

    fn derivative(&self, at: &mut Derivative<'_>) -> Result<Vec<Option<Node>>> {
        let (x, dy, g) = (at.inputs[0], at.inputs[1], at.cotangent());
        let size = plane(at.graph, x);
        let to_x = at.wanted[0].then(|| at.graph.conv_input(dy, g, self.stride, self.padding, size));
        let to_dy = at.wanted[1].then(|| at.graph.conv_plain(x, g, self.stride, self.padding));
        Ok(vec![to_x.transpose()?, to_dy.transpose()?])
    }

    fn attributes(&self) -> String {
        format!(" stride={:?} padding={:?} kernel={:?}", self.stride, self.padding, self.kernel)
    }
}

/// Number of positions of a kernel along an axis; `None` if there are none.
fn extent(length: usize, kernel: usize, stride: usize, padding: usize) -> Option<usize> {
    (length + 2 * padding).checked_sub(kernel)?.checked_div(stride).map(|steps| steps + 1)
}

fn field(operation: &'static str, shape: &Shape) -> Result<[usize; 4]> {
    match *shape.axes() {
        [a, b, c, d] if a * b * c * d > 0 => Ok([a, b, c, d]),
        _ => Err(EngineError::BadShape {
            operation,
            found: shape.clone(),
            needed: "four axes that are not empty".into(),
        }),
    }
}

fn mismatch(operation: &'static str, inputs: &[&Type], needed: &str) -> EngineError {
    EngineError::ShapeMismatch {
        operation,
        left: inputs[0].shape.clone(),
        right: inputs[1].shape.clone(),
        needed: needed.into(),
    }
}

/// Lengths of the two middle axes.
fn plane(graph: &Graph, node: Node) -> [usize; 2] {
    let axes = graph.shape(node).axes();
    [axes[1], axes[2]]
}

impl Graph {
    /// Convolution after padding by `amount` on both sides of height and width: `[batch, height', width', outputs]`
    /// with `height' = (height + 2 amount - kernel) / stride + 1`.
    ///
    /// As usual in networks, it is the cross-correlation of `x [batch, height, width, inputs]` with `w [outputs, kernel
    /// height, kernel width, inputs]`.
    ///
    /// # Errors
    /// If the shapes do not fit.
    pub fn conv(
        &mut self,
        x: Node,
        w: Node,
        stride: [usize; 2],
        mode: PadMode,
        amount: [usize; 2],
    ) -> Result<Node> {
        if mode == PadMode::Zero {
            return self.conv_plain(x, w, stride, amount);
        }
        let padded = self.pad(x, mode, amount, amount)?;
        self.conv_plain(padded, w, stride, [0, 0])
    }

    /// Transposed convolution, the transpose of the convolution that maps fields of the result's size to fields of
    /// `x`'s size.
    ///
    /// It maps `x [batch, height, width, inputs]` and `w [inputs, kernel height, kernel width, outputs]` to `[batch,
    /// height', width', outputs]` with `height' = (height - 1) stride - 2 amount + kernel`. With a `mode` other than
    /// zero, `x` is first padded as far as the result depends on the padding.
    ///
    /// # Errors
    /// If the shapes do not fit.
    pub fn conv_transpose(
        &mut self,
        x: Node,
        w: Node,
        stride: [usize; 2],
        mode: PadMode,
        amount: [usize; 2],
    ) -> Result<Node> {
        let [_, height, width, _] = field("conv_transpose", self.shape(x))?;
        let [_, kernel_height, kernel_width, _] = field("conv_transpose", self.shape(w))?;
        let (lengths, kernels) = ([height, width], [kernel_height, kernel_width]);
        let (mut size, mut ghosts, mut padding) = ([0; 2], [0; 2], amount);
        for axis in 0..2 {
            let whole = (lengths[axis] - 1) * stride[axis] + kernels[axis];
            size[axis] = whole.saturating_sub(2 * amount[axis]);
            if size[axis] == 0 || stride[axis] == 0 {
                return Err(EngineError::ShapeMismatch {
                    operation: "conv_transpose",
                    left: self.shape(x).clone(),
                    right: self.shape(w).clone(),
                    needed: format!(
                        "with stride {stride:?} and padding {amount:?} the result would be empty"
                    ),
                });
            }
            if mode != PadMode::Zero {
                ghosts[axis] = (kernels[axis] - 1).saturating_sub(amount[axis]) / stride[axis];
                padding[axis] += ghosts[axis] * stride[axis];
            }
        }
        let x = if ghosts == [0, 0] { x } else { self.pad(x, mode, ghosts, ghosts)? };
        self.conv_input(x, w, stride, padding, size)
    }

    /// Pads `x [batch, height, width, channels]` around height and width.
    ///
    /// # Errors
    /// If `x` does not have this form.
    pub fn pad(&mut self, x: Node, mode: PadMode, before: [usize; 2], after: [usize; 2]) -> Result<Node> {
        self.push_one(Op::Pad(Pad { mode, before, after }), &[x])
    }

    fn conv_plain(&mut self, x: Node, w: Node, stride: [usize; 2], padding: [usize; 2]) -> Result<Node> {
        self.push_one(Op::Conv(Conv { stride, padding }), &[x, w])
    }

    fn conv_input(
        &mut self,
        dy: Node,
        w: Node,
        stride: [usize; 2],
        padding: [usize; 2],
        [height, width]: [usize; 2],
    ) -> Result<Node> {
        self.push_one(Op::ConvInput(ConvInput { stride, padding, height, width }), &[dy, w])
    }

    fn conv_weight(
        &mut self,
        x: Node,
        dy: Node,
        stride: [usize; 2],
        padding: [usize; 2],
        kernel: [usize; 2],
    ) -> Result<Node> {
        self.push_one(Op::ConvWeight(ConvWeight { stride, padding, kernel }), &[x, dy])
    }
}
