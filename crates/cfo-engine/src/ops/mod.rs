//! The operations: one file each, with the shape rule, the derivative rule and the builder methods.
//!
//! A backend has a kernel for each of them, in a file of the same name.

use std::fmt;

use crate::error::{EngineError, Result};
use crate::graph::{Graph, Node};
use crate::shape::{Element, Type};

mod all_reduce;
mod attention;
mod conv;
mod expression;
mod group_norm;
mod layer_norm;
mod layout;
mod leaf;
mod loss;
mod matmul;
mod optimizer;
mod pointwise;
mod random;
mod reduce;
mod resample;
mod sample_path;
mod spectral;
mod wavelet;

pub use all_reduce::AllReduce;
pub use attention::{Attention, AttentionBackward};
pub use conv::{Conv, ConvInput, ConvWeight, Fold, Pad};
pub use expression::{Expression, Line, View};
pub use group_norm::{GroupNorm, GroupNormBackward};
pub use layer_norm::{LayerNorm, LayerNormBackward};
pub use layout::{Broadcast, Concat, Embed, Permute, Reshape, Slice};
pub use leaf::{Constant, Tensor};
pub use loss::MeanSquaredError;
pub use matmul::{MatMul, Operand};
pub use optimizer::{Adam, Advance, Assign, GlobalNorm};
pub use pointwise::{Binary, Pointwise, Unary};
pub use random::Random;
pub use reduce::Sum;
pub use resample::{Resample, ResampleBackward};
pub use sample_path::{Gather, SamplePath};
pub use wavelet::WaveletTransform;

pub use cfo_numerics::{Wavelet, WaveletFamily};
pub use conv::PadMode;
pub use group_norm::GroupNormInputs;
pub use matmul::Activation;
pub use optimizer::{AdamConfig, Schedule};
pub use random::{Distribution, Numbering};
pub use resample::ResampleMode;
pub use sample_path::{Draw, PathData, PathSample, PathTensors, WindowTimes};
pub use spectral::spectral_modes;

/// Properties of an operation that the graph uses.
pub trait Operation {
    /// Name in dumps and messages.
    fn name(&self) -> &'static str;

    /// The types of the outputs for the given inputs, or an error if it does not accept them.
    fn infer(&self, inputs: &[&Type]) -> Result<Vec<Type>>;

    /// Appends the cotangents of the inputs; `None` for an input without one.
    fn derivative(&self, _at: &mut Derivative<'_>) -> Result<Vec<Option<Node>>> {
        Err(EngineError::NotDifferentiable { operation: self.name() })
    }

    /// Attributes to show in a dump, as ` key=value ...`.
    fn attributes(&self) -> String {
        String::new()
    }
}

/// Arguments of a derivative rule: the operation's values, and the cotangents of its outputs.
pub struct Derivative<'a> {
    /// The graph that the rule appends to.
    pub graph: &'a mut Graph,
    /// The operation's inputs.
    pub inputs: &'a [Node],
    /// The operation's outputs.
    pub outputs: &'a [Node],
    /// One for each output; `None` where the loss does not depend on it.
    pub cotangents: &'a [Option<Node>],
    /// For each input, whether its cotangent is needed.
    pub wanted: &'a [bool],
}

impl Derivative<'_> {
    /// The cotangent of the first output. It exists whenever an operation with one output is differentiated.
    pub fn cotangent(&self) -> Node {
        self.cotangents[0].expect("an operation is differentiated only when a cotangent arrived")
    }
}

macro_rules! operations {
    ($($name:ident),* $(,)?) => {
        /// All operations. A backend that misses one does not compile.
        #[derive(Clone, Debug)]
        pub enum Op {
            $(
                #[doc = concat!("`", stringify!($name), "`.")]
                $name($name)
            ),*
        }

        impl Op {
            /// The operation's properties.
            pub fn operation(&self) -> &dyn Operation {
                match self {
                    $(Self::$name(operation) => operation),*
                }
            }
        }
    };
}

operations! {
    Tensor, Constant,
    Pointwise, Expression, Sum,
    Reshape, Broadcast, Permute, Slice, Embed, Concat,
    MatMul,
    Pad, Fold, Conv, ConvInput, ConvWeight,
    GroupNorm, GroupNormBackward, LayerNorm, LayerNormBackward,
    Attention, AttentionBackward,
    Resample, ResampleBackward, WaveletTransform,
    MeanSquaredError, Random, SamplePath, Gather,
    AllReduce, GlobalNorm, Adam, Assign, Advance,
}

impl fmt::Display for Op {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", self.operation().name(), self.operation().attributes())
    }
}

/// Checks that operands have the required element type.
pub(crate) fn require(operation: &'static str, inputs: &[&Type], needed: Element) -> Result<()> {
    match inputs.iter().position(|input| input.element != needed) {
        None => Ok(()),
        Some(operand) => Err(EngineError::BadElement {
            operation,
            operand,
            found: inputs[operand].element.name(),
            needed: needed.name(),
        }),
    }
}
