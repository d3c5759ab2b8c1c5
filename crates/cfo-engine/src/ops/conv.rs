//! Convolution over height and width, its two adjoints, and padding with its adjoint.
//!
//! The three passes of a convolution are closed under differentiation: each one's derivatives are the other two.

use super::{Derivative, Inputs, Named, Op, Operation};
use crate::error::{EngineError, Result};
use crate::graph::{Graph, Node};
use crate::shape::{Shape, Type};

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
    fn infer(&self, inputs: &Inputs<'_>) -> Result<Vec<Type>> {
        inputs.reals()?;
        let [batch, height, width, channels] = field(inputs.operation, &inputs[0].shape)?;
        let size = |axis: usize, length: usize| self.before[axis] + length + self.after[axis];
        Ok(vec![Type::real([batch, size(0, height), size(1, width), channels])])
    }

    fn derivative(&self, at: &mut Derivative<'_>) -> Result<Vec<Option<Node>>> {
        Ok(vec![Some(at.graph.push_one(Op::Fold(Fold(self.clone())), &[at.cotangent()])?)])
    }

    fn attributes(&self) -> String {
        format!(" {:?} before={:?} after={:?}", self.mode, self.before, self.after)
    }
}

/// The adjoint of [`Pad`]: values in the padding are added to the positions from which they were copied.
#[derive(Clone, Debug)]
pub struct Fold(pub Pad);

impl Operation for Fold {
    fn infer(&self, inputs: &Inputs<'_>) -> Result<Vec<Type>> {
        inputs.reals()?;
        let [batch, height, width, channels] = field(inputs.operation, &inputs[0].shape)?;
        let padding = [0, 1].map(|axis| self.0.before[axis] + self.0.after[axis]);
        if height <= padding[0] || width <= padding[1] {
            return Err(inputs.bad_shape(format!("height and width must exceed the padding {padding:?}")));
        }
        Ok(vec![Type::real([batch, height - padding[0], width - padding[1], channels])])
    }

    fn derivative(&self, at: &mut Derivative<'_>) -> Result<Vec<Option<Node>>> {
        Ok(vec![Some(at.graph.push_one(Op::Pad(self.0.clone()), &[at.cotangent()])?)])
    }

    fn attributes(&self) -> String {
        self.0.attributes()
    }
}

/// Which of the three tensors of a convolution is computed from the other two.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ConvPass {
    /// The result `y`, from `x` and `w`.
    Forward,
    /// The adjoint in the field, a transposed convolution: `dx` from `dy` and `w`.
    Input,
    /// The adjoint in the weight: `dw` from `x` and `dy`.
    Weight,
}

impl ConvPass {
    /// Both operands and the result of the pass, given those of the field, the weight and the convolution's result.
    pub fn ordered<T>(self, [x, w, y]: [T; 3]) -> [T; 3] {
        match self {
            Self::Forward => [x, w, y],
            Self::Input => [y, w, x],
            Self::Weight => [x, y, w],
        }
    }
}

/// The cross-correlation of `x [B, H, W, Ci]` with `w [Co, kh, kw, Ci]`, `y [B, Ho, Wo, Co]`, or one of its adjoints.
///
/// `y[b, i, j, o] = sum over p, q, c of x[b, i s + p - padding, j s + q - padding, c] w[o, p, q, c]` with zeros outside
/// and `Ho = (H + 2 padding - kh) / s + 1`.
#[derive(Clone, Debug)]
pub struct Conv {
    /// The tensor that is computed.
    pub pass: ConvPass,
    /// Strides along height and width.
    pub stride: [usize; 2],
    /// Zero padding on both sides of height and width.
    pub padding: [usize; 2],
    /// Height and width of the field.
    pub field: [usize; 2],
    /// Height and width of the weight.
    pub kernel: [usize; 2],
}

impl Conv {
    /// Height and width of the convolution's result; `None` if there are no positions of the kernel.
    fn result(&self) -> Option<[usize; 2]> {
        let extent = |axis: usize| {
            let room = (self.field[axis] + 2 * self.padding[axis]).checked_sub(self.kernel[axis])?;
            room.checked_div(self.stride[axis]).map(|steps| steps + 1)
        };
        Some([extent(0)?, extent(1)?])
    }

    /// Appends another pass of the same convolution.
    fn pass(&self, pass: ConvPass, graph: &mut Graph, a: Node, b: Node) -> Result<Node> {
        graph.push_one(Op::Conv(Self { pass, ..self.clone() }), &[a, b])
    }
}

impl Named for Conv {
    fn name(&self) -> &'static str {
        match self.pass {
            ConvPass::Forward => "conv",
            ConvPass::Input => "conv input",
            ConvPass::Weight => "conv weight",
        }
    }
}

impl Operation for Conv {
    fn infer(&self, inputs: &Inputs<'_>) -> Result<Vec<Type>> {
        inputs.reals()?;
        let [a, b] = [field(inputs.operation, &inputs[0].shape)?, field(inputs.operation, &inputs[1].shape)?];
        let Self { pass, stride, padding, field, kernel } = self;
        let middle = |shape: [usize; 4]| [shape[1], shape[2]];
        let whole = |first: usize, [height, width]: [usize; 2], last: usize| [first, height, width, last];
        let (fits, needed, result) = match pass {
            ConvPass::Forward if a[3] != b[3] => {
                (false, "the last axes, the input channels, must be equal".into(), None)
            }
            ConvPass::Forward => {
                let needed = "the kernel must fit into the padded field, the stride be at least 1".into();
                (true, needed, self.result().map(|size| whole(a[0], size, b[0])))
            }
            ConvPass::Input if a[3] != b[0] => {
                (false, "the last axis of the first must equal the first of the second".into(), None)
            }
            ConvPass::Input => {
                let [height, width] = field;
                let needed = format!(
                    "with stride {stride:?} and padding {padding:?} they cannot yield a field of {height}x{width}"
                );
                (self.result() == Some(middle(a)), needed, Some(whole(a[0], *field, b[3])))
            }
            ConvPass::Weight => {
                let needed = format!(
                    "the second must be what kernel {kernel:?}, stride {stride:?} and padding {padding:?} make of the first"
                );
                let fits = a[0] == b[0] && self.result() == Some(middle(b));
                (fits, needed, Some(whole(b[3], *kernel, a[3])))
            }
        };
        let shape = result.filter(|_| fits).ok_or_else(|| inputs.mismatch(&inputs[1].shape, needed))?;
        Ok(vec![Type::real(shape)])
    }

    fn derivative(&self, at: &mut Derivative<'_>) -> Result<Vec<Option<Node>>> {
        use ConvPass::{Forward, Input, Weight};
        let (a, b, g) = (at.inputs[0], at.inputs[1], at.cotangent());
        // The pass that computes each operand, and its operands.
        let [first, second] = match self.pass {
            Forward => [(Input, g, b), (Weight, a, g)],
            Input => [(Forward, g, b), (Weight, g, a)],
            Weight => [(Input, b, g), (Forward, a, g)],
        };
        let to_a = at.wanted[0].then(|| self.pass(first.0, at.graph, first.1, first.2));
        let to_b = at.wanted[1].then(|| self.pass(second.0, at.graph, second.1, second.2));
        Ok(vec![to_a.transpose()?, to_b.transpose()?])
    }

    fn attributes(&self) -> String {
        let size = match self.pass {
            ConvPass::Forward => String::new(),
            ConvPass::Input => format!(" size={:?}", self.field),
            ConvPass::Weight => format!(" kernel={:?}", self.kernel),
        };
        format!(" stride={:?} padding={:?}{size}", self.stride, self.padding)
    }
}

fn field(operation: &'static str, shape: &Shape) -> Result<[usize; 4]> {
    match *shape.axes() {
        [a, b, c, d] if a * b * c * d > 0 => Ok([a, b, c, d]),
        _ => Err(EngineError::bad_shape(operation, shape, "four axes that are not empty")),
    }
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
                let needed =
                    format!("with stride {stride:?} and padding {amount:?} the result would be empty");
                let (left, right) = (self.shape(x), self.shape(w));
                return Err(EngineError::shape_mismatch("conv_transpose", left, right, needed));
            }
            if mode != PadMode::Zero {
                ghosts[axis] = (kernels[axis] - 1).saturating_sub(amount[axis]) / stride[axis];
                padding[axis] += ghosts[axis] * stride[axis];
            }
        }
        let x = if ghosts == [0, 0] { x } else { self.pad(x, mode, ghosts, ghosts)? };
        let conv = Conv { pass: ConvPass::Input, stride, padding, field: size, kernel: kernels };
        self.push_one(Op::Conv(conv), &[x, w])
    }

    /// Pads `x [batch, height, width, channels]` around height and width.
    ///
    /// # Errors
    /// If `x` does not have this form.
    pub fn pad(&mut self, x: Node, mode: PadMode, before: [usize; 2], after: [usize; 2]) -> Result<Node> {
        self.push_one(Op::Pad(Pad { mode, before, after }), &[x])
    }

    fn conv_plain(&mut self, x: Node, w: Node, stride: [usize; 2], padding: [usize; 2]) -> Result<Node> {
        let [[_, height, width, _], [_, rows, columns, _]] =
            [field("conv", self.shape(x))?, field("conv", self.shape(w))?];
        let (field, kernel) = ([height, width], [rows, columns]);
        self.push_one(Op::Conv(Conv { pass: ConvPass::Forward, stride, padding, field, kernel }), &[x, w])
    }
}
