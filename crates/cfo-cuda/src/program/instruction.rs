//! CUDA instructions: the graph's operations after fusion, some of them extended by the passes.
//!
//! Instructions with more content than the operation of the same name are types of this file; all others are the
//! operations themselves. The graph does not depend on this file.

use std::fmt;
use std::ops::{Deref, DerefMut};

use cfo_engine::Shape;
use cfo_engine::ops::{self, Activation, Expression, Operation};

/// The sum over some axes, which are removed.
#[derive(Clone, Debug)]
pub(crate) struct Sum {
    /// Strictly increasing.
    pub(crate) axes: Vec<usize>,
    /// The expression that is summed, with its shape. `None`: the input itself is summed.
    pub(crate) of: Option<(Expression, Shape)>,
}

/// Values concatenated along one axis.
#[derive(Clone, Debug)]
pub(crate) struct Concat {
    pub(crate) axis: usize,
    /// Which values get a bias along the last axis; biases follow the values in the inputs. Empty for none.
    pub(crate) biased: Vec<bool>,
}

impl Concat {
    /// The inputs that are values, without biases.
    pub(crate) fn values<'a, T>(&self, inputs: &'a [T]) -> &'a [T] {
        if self.biased.is_empty() { inputs } else { &inputs[..self.biased.len()] }
    }
}

/// Fused extras of a product.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Extras {
    /// Adds another input with the layout of `c` before the activation.
    pub(crate) add: bool,
    /// Multiplies by the derivative of this activation at another input with the layout of `c`, after the sum.
    pub(crate) slope: Option<Activation>,
    /// Returns the sum over the rows of `b` as another output.
    pub(crate) sums: bool,
    /// Returns the sum over the rows of `c` as another output.
    pub(crate) totals: bool,
}

/// A product with extras.
#[derive(Clone, Debug)]
pub(crate) struct MatMul {
    pub(crate) product: ops::MatMul,
    pub(crate) extras: Extras,
}

impl From<ops::MatMul> for MatMul {
    fn from(product: ops::MatMul) -> Self {
        Self { product, extras: Extras::default() }
    }
}

/// A convolution.
#[derive(Clone, Debug)]
pub(crate) struct Conv {
    pub(crate) stride: [usize; 2],
    pub(crate) padding: [usize; 2],
    /// Whether the field is continued periodically along the width instead of by zeros. The field's width is then the
    /// result's times the stride.
    pub(crate) periodic: bool,
}

/// The adjoint of a convolution in its input.
#[derive(Clone, Debug)]
pub(crate) struct ConvInput {
    pub(crate) stride: [usize; 2],
    pub(crate) padding: [usize; 2],
    pub(crate) height: usize,
    pub(crate) width: usize,
    /// As in [`Conv`].
    pub(crate) periodic: bool,
}

/// The adjoint of a convolution in its weight.
#[derive(Clone, Debug)]
pub(crate) struct ConvWeight {
    pub(crate) stride: [usize; 2],
    pub(crate) padding: [usize; 2],
    pub(crate) kernel: [usize; 2],
    /// As in [`Conv`].
    pub(crate) periodic: bool,
}

/// 16-bit operands of convolutions. They are numbers of 11 significant bits, `x 2^k` rounded, and the factor `2^-k`.
/// `k` is such that the largest number is just below the format's largest.
#[derive(Clone, Debug, Default)]
pub(crate) struct ScaleF16 {
    /// Concatenates the inputs first.
    pub(crate) joined: Option<Concat>,
    /// The square root of a group's size if the input is the result of a group norm, whose scale, bias and shift
    /// follow. No number exceeds this root times a scale, plus a bias and a shift, so the numbers need not be read.
    pub(crate) norm: Option<f64>,
}

/// A group norm.
#[derive(Clone, Debug)]
pub(crate) struct GroupNorm {
    pub(crate) norm: ops::GroupNorm,
    /// The convolution of input 0 with the last input. Its result replaces `x` and is the fourth output.
    pub(crate) of: Option<Conv>,
}

/// The cotangents of a group norm's inputs.
///
/// Inputs are those of the operation and, if the norm's result is recomputed, `shift` if there is one. Outputs are
/// those of the operation and, if it is recomputed, the norm's result.
#[derive(Clone, Debug)]
pub(crate) struct GroupNormBackward {
    pub(crate) forward: ops::GroupNorm,
    /// Whether the norm's result is recomputed, so that it need not be kept from the forward pass.
    pub(crate) again: bool,
}

impl GroupNormBackward {
    /// The input that is the cotangent of the norm's result.
    pub(crate) fn cotangent(&self) -> usize {
        5 + usize::from(self.forward.offset)
    }

    /// The output that is the norm's result, if it is recomputed.
    pub(crate) fn result(&self) -> Option<usize> {
        self.again.then_some(3 + usize::from(self.forward.offset) + usize::from(self.forward.shift))
    }
}

/// A layer norm.
#[derive(Clone, Debug)]
pub(crate) struct LayerNorm {
    pub(crate) norm: ops::LayerNorm,
    /// Whether `gate [b, d]` times `value [b, n, d]`, the last two inputs, is added to `x` first. The sum is then the
    /// last output.
    pub(crate) residual: bool,
}

/// The cotangents of a layer norm's inputs.
#[derive(Clone, Debug)]
pub(crate) struct LayerNormBackward {
    pub(crate) modulated: bool,
    /// Whether another input, after the cotangent, is added to the cotangent of `x`.
    pub(crate) add: bool,
    /// Whether the total cotangent of `x` is passed through a gate. `gate [b, d]` and `value [b, n, d]` are then the
    /// last two inputs. The last two outputs are the cotangent times `gate` and the sum over tokens of the cotangent
    /// times `value`.
    pub(crate) gated: bool,
}

macro_rules! extends {
    ($($name:ident { $field:ident }),*) => {
        $(
            impl Deref for $name {
                type Target = ops::$name;

                fn deref(&self) -> &Self::Target {
                    &self.$field
                }
            }

            impl DerefMut for $name {
                fn deref_mut(&mut self) -> &mut Self::Target {
                    &mut self.$field
                }
            }
        )*
    };
}

extends! { MatMul { product }, GroupNorm { norm }, LayerNorm { norm } }

macro_rules! instructions {
    (changed: $($changed:ident),*; same: $($same:ident),* $(,)?) => {
        /// All instructions. One that is not lowered does not compile.
        #[derive(Clone, Debug)]
        pub(crate) enum Instruction {
            ScaleF16(ScaleF16),
            $($changed($changed),)*
            $($same(ops::$same),)*
        }

        impl Instruction {
            /// The operation, if the instruction has no extras.
            fn operation(&self) -> Option<&dyn Operation> {
                match self {
                    $(Self::$same(op) => Some(op),)*
                    _ => None,
                }
            }
        }

        impl From<ops::Op> for Instruction {
            fn from(op: ops::Op) -> Self {
                match op {
                    $(ops::Op::$same(op) => Self::$same(op),)*
                    $(ops::Op::$changed(op) => Self::$changed(op.into()),)*
                    ops::Op::Pointwise(_) | ops::Op::Broadcast(_) | ops::Op::Slice(_) | ops::Op::Permute(_) => {
                        unreachable!("fusion turns these into expressions")
                    }
                }
            }
        }
    };
}

instructions! {
    changed:
        Sum, Concat, MatMul, Conv, ConvInput, ConvWeight, GroupNorm, GroupNormBackward, LayerNorm, LayerNormBackward;
    same:
        Tensor, Constant, Expression, Reshape, Embed, Pad, Fold, Attention, AttentionBackward, Resample, ResampleBackward,
        WaveletTransform, MeanSquaredError, Random, SamplePath, Gather, AllReduce, GlobalNorm, Adam, Assign, Advance,
}

impl From<ops::Sum> for Sum {
    fn from(ops::Sum { axes }: ops::Sum) -> Self {
        Self { axes, of: None }
    }
}

impl From<ops::Concat> for Concat {
    fn from(ops::Concat { axis }: ops::Concat) -> Self {
        Self { axis, biased: Vec::new() }
    }
}

impl From<ops::Conv> for Conv {
    fn from(ops::Conv { stride, padding }: ops::Conv) -> Self {
        Self { stride, padding, periodic: false }
    }
}

impl From<ops::ConvInput> for ConvInput {
    fn from(ops::ConvInput { stride, padding, height, width }: ops::ConvInput) -> Self {
        Self { stride, padding, height, width, periodic: false }
    }
}

impl From<ops::ConvWeight> for ConvWeight {
    fn from(ops::ConvWeight { stride, padding, kernel }: ops::ConvWeight) -> Self {
        Self { stride, padding, kernel, periodic: false }
    }
}

impl From<ops::GroupNorm> for GroupNorm {
    fn from(norm: ops::GroupNorm) -> Self {
        Self { norm, of: None }
    }
}

impl From<ops::GroupNormBackward> for GroupNormBackward {
    fn from(ops::GroupNormBackward { forward }: ops::GroupNormBackward) -> Self {
        Self { forward, again: false }
    }
}

impl From<ops::LayerNorm> for LayerNorm {
    fn from(norm: ops::LayerNorm) -> Self {
        Self { norm, residual: false }
    }
}

impl From<ops::LayerNormBackward> for LayerNormBackward {
    fn from(ops::LayerNormBackward { modulated }: ops::LayerNormBackward) -> Self {
        Self { modulated, add: false, gated: false }
    }
}

impl Instruction {
    /// Name in listings and profiles.
    pub(crate) fn name(&self) -> &'static str {
        match self {
            Self::ScaleF16(_) => "scale_f16",
            Self::Sum(_) => "sum",
            Self::Concat(_) => "concat",
            Self::MatMul(_) => "matmul",
            Self::Conv(_) => "conv",
            Self::ConvInput(_) => "conv input",
            Self::ConvWeight(_) => "conv weight",
            Self::GroupNorm(_) => "group_norm",
            Self::GroupNormBackward(_) => "group_norm_backward",
            Self::LayerNorm(_) => "layer_norm",
            Self::LayerNormBackward(_) => "layer_norm_backward",
            _ => self.operation().map_or("", Operation::name),
        }
    }

    /// Attributes for listings, as ` key=value ...`.
    pub(crate) fn attributes(&self) -> String {
        let also = |there: bool, text: &str| if there { text.to_owned() } else { String::new() };
        match self {
            Self::ScaleF16(op) if op.norm.is_some() => " of a norm".into(),
            Self::ScaleF16(op) => {
                op.joined.as_ref().map_or(String::new(), |concat| format!(" of concat axis={}", concat.axis))
            }
            Self::Sum(op) => format!(" axes={:?}", op.axes) + &also(op.of.is_some(), " of an expression"),
            Self::Concat(op) => format!(" axis={}", op.axis) + &also(!op.biased.is_empty(), " biased"),
            Self::MatMul(op) => {
                let Extras { add, slope, sums, totals } = op.extras;
                let extras =
                    [(add, " add"), (slope.is_some(), " slope"), (sums, " sums"), (totals, " totals")];
                let extras: String = extras.iter().map(|&(there, name)| also(there, name)).collect();
                op.product.attributes() + &extras
            }
            Self::Conv(op) => {
                format!(" stride={:?} padding={:?}", op.stride, op.padding) + &also(op.periodic, " periodic")
            }
            Self::ConvInput(op) => {
                let size = [op.height, op.width];
                format!(" stride={:?} padding={:?} size={size:?}", op.stride, op.padding)
                    + &also(op.periodic, " periodic")
            }
            Self::ConvWeight(op) => {
                format!(" stride={:?} padding={:?} kernel={:?}", op.stride, op.padding, op.kernel)
                    + &also(op.periodic, " periodic")
            }
            Self::GroupNorm(op) => op.norm.attributes() + &also(op.of.is_some(), " of a convolution"),
            Self::GroupNormBackward(op) => op.forward.attributes() + &also(op.again, " again"),
            Self::LayerNorm(op) => op.norm.attributes() + &also(op.residual, " residual"),
            Self::LayerNormBackward(op) => {
                format!(" modulated={}", op.modulated) + &also(op.add, " add") + &also(op.gated, " gated")
            }
            _ => self.operation().map_or(String::new(), Operation::attributes),
        }
    }

    /// Whether it is a tensor or a constant.
    pub(crate) fn is_leaf(&self) -> bool {
        matches!(self, Self::Tensor(_) | Self::Constant(_))
    }
}

impl fmt::Display for Instruction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", self.name(), self.attributes())
    }
}
