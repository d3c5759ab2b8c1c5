//! CUDA instructions: the graph's operations after fusion, some of them extended by the passes.
//!
//! Instructions with more content than the operation of the same name are types of this file; all others are the
//! operations themselves. The graph does not depend on this file.

use std::fmt;
use std::ops::{Deref, DerefMut};

use cfo_engine::Shape;
use cfo_engine::ops::{self, Activation, Expression, Named, Operation};

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

/// Defines instructions that are an operation of the same name with extras; an operation has none of them.
macro_rules! extends {
    ($($(#[$doc:meta])* $name:ident { $($(#[$about:meta])* $field:ident: $type:ty,)* })*) => {
        $(
            $(#[$doc])*
            #[derive(Clone, Debug)]
            pub(crate) struct $name {
                pub(crate) op: ops::$name,
                $($(#[$about])* pub(crate) $field: $type,)*
            }

            impl From<ops::$name> for $name {
                fn from(op: ops::$name) -> Self {
                    Self { op, $($field: Default::default(),)* }
                }
            }

            impl Deref for $name {
                type Target = ops::$name;

                fn deref(&self) -> &Self::Target {
                    &self.op
                }
            }

            impl DerefMut for $name {
                fn deref_mut(&mut self) -> &mut Self::Target {
                    &mut self.op
                }
            }
        )*
    };
}

extends! {
    Sum {
        /// The expression that is summed, with its shape. `None`: the input itself is summed.
        of: Option<(Expression, Shape)>,
    }

    Concat {
        /// Which values get a bias along the last axis; biases follow the values in the inputs. Empty for none.
        biased: Vec<bool>,
    }

    MatMul {
        extras: Extras,
    }

    Conv {
        /// Whether the field is continued periodically along the width instead of by zeros. The field's width is then
        /// the result's times the stride.
        periodic: bool,
    }

    /// A group norm.
    GroupNorm {
        /// The convolution of input 0 with the last input. Its result replaces `x` and is the fourth output.
        of: Option<Conv>,
    }

    /// The cotangents of a group norm's inputs.
    ///
    /// Inputs are those of the operation and, if the norm's result is recomputed, `shift` if there is one. Outputs are
    /// those of the operation and, if it is recomputed, the norm's result.
    GroupNormBackward {
        /// Whether the norm's result is recomputed, so that it need not be kept from the forward pass.
        again: bool,
    }

    /// A layer norm.
    LayerNorm {
        /// Whether `gate [b, d]` times `value [b, n, d]`, the last two inputs, is added to `x` first. The sum is then
        /// the last output.
        residual: bool,
    }

    LayerNormBackward {
        /// Whether another input, after the cotangent, is added to the cotangent of `x`.
        add: bool,
        /// Whether the total cotangent of `x` is passed through a gate. `gate [b, d]` and `value [b, n, d]` are then
        /// the last two inputs. The last two outputs are the cotangent times `gate` and the sum over tokens of the
        /// cotangent times `value`.
        gated: bool,
    }
}

impl Concat {
    /// The inputs that are values, without biases.
    pub(crate) fn values<'a, T>(&self, inputs: &'a [T]) -> &'a [T] {
        if self.biased.is_empty() { inputs } else { &inputs[..self.biased.len()] }
    }
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
            /// Name in listings and profiles.
            pub(crate) fn name(&self) -> &'static str {
                match self {
                    Self::ScaleF16(_) => "scale_f16",
                    $(Self::$changed(instruction) => instruction.op.name(),)*
                    $(Self::$same(op) => op.name(),)*
                }
            }

            fn operation(&self) -> Option<&dyn Operation> {
                match self {
                    Self::ScaleF16(_) => None,
                    $(Self::$changed(instruction) => Some(&instruction.op),)*
                    $(Self::$same(op) => Some(op),)*
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
        Sum, Concat, MatMul, Conv, GroupNorm, GroupNormBackward, LayerNorm, LayerNormBackward;
    same:
        Tensor, Constant, Expression, Reshape, Embed, Pad, Fold, Attention, AttentionBackward,
        WaveletTransform, MeanSquaredError, Random, SamplePath, Gather, AllReduce, GlobalNorm, Adam, Assign, Advance,
}

impl Instruction {
    /// Attributes for listings, as ` key=value ...`.
    pub(crate) fn attributes(&self) -> String {
        if let Self::ScaleF16(ScaleF16 { joined, norm }) = self {
            let concat = joined.as_ref().map(|concat| format!(" of concat axis={}", concat.axis));
            return norm.map_or(concat.unwrap_or_default(), |_| " of a norm".into());
        }
        let extras: &[(bool, &str)] = match self {
            Self::Sum(op) => &[(op.of.is_some(), " of an expression")],
            Self::Concat(op) => &[(!op.biased.is_empty(), " biased")],
            Self::MatMul(MatMul { extras: Extras { add, slope, sums, totals }, .. }) => {
                &[(*add, " add"), (slope.is_some(), " slope"), (*sums, " sums"), (*totals, " totals")]
            }
            Self::Conv(op) => &[(op.periodic, " periodic")],
            Self::GroupNorm(op) => &[(op.of.is_some(), " of a convolution")],
            Self::GroupNormBackward(op) => &[(op.again, " again")],
            Self::LayerNorm(op) => &[(op.residual, " residual")],
            Self::LayerNormBackward(op) => &[(op.add, " add"), (op.gated, " gated")],
            _ => &[],
        };
        let own = self.operation().map(Operation::attributes).unwrap_or_default();
        extras.iter().filter(|(there, _)| *there).fold(own, |all, (_, text)| all + text)
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
