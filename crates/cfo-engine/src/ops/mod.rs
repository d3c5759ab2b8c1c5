//! The operations: one file each, with the shape rule, the derivative rule and the builder methods.
//!
//! A backend has a kernel for each of them, in a file of the same name.

use std::fmt;
use std::ops::Deref;

use crate::error::{EngineError, Result};
use crate::graph::{Graph, Node};
use crate::shape::{Element, Shape, Type};

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
mod sample_path;
mod spectral;
mod wavelet;

pub use all_reduce::AllReduce;
pub use attention::{Attention, AttentionBackward};
pub use conv::{Conv, ConvPass, Fold, Pad};
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
pub use sample_path::{Gather, SamplePath};
pub use wavelet::WaveletTransform;

pub use cfo_numerics::{Wavelet, WaveletFamily};
pub use conv::PadMode;
pub use group_norm::GroupNormInputs;
pub use matmul::Activation;
pub use optimizer::{AdamConfig, Schedule};
pub use random::{Distribution, Numbering};
pub use sample_path::{BatchDraw, PathData, PathSample, PathTensors, WindowTimes};
pub use spectral::spectral_modes;

/// Properties of an operation that the graph uses.
pub trait Operation {
    /// The types of the outputs for the given inputs, or an error if it does not accept them.
    fn infer(&self, inputs: &Inputs<'_>) -> Result<Vec<Type>>;

    /// Appends the cotangents of the inputs; `None` for an input without one.
    fn derivative(&self, at: &mut Derivative<'_>) -> Result<Vec<Option<Node>>> {
        Err(EngineError::NotDifferentiable(at.operation))
    }

    /// Attributes to show in a dump, as ` key=value ...`.
    fn attributes(&self) -> String {
        String::new()
    }
}

/// The types of an operation's inputs, with errors that name the operation.
pub struct Inputs<'a> {
    /// Name of the operation.
    pub operation: &'static str,
    /// The types, in order.
    pub types: Vec<&'a Type>,
}

impl<'a> Deref for Inputs<'a> {
    type Target = [&'a Type];

    fn deref(&self) -> &[&'a Type] {
        &self.types
    }
}

impl Inputs<'_> {
    /// Checks the element types of the inputs; the last one given is that of all further inputs.
    fn require(&self, needed: &[Element]) -> Result<()> {
        let needed = |operand: usize| needed[operand.min(needed.len() - 1)];
        match (0..self.len()).find(|&operand| self[operand].element != needed(operand)) {
            None => Ok(()),
            Some(operand) => Err(EngineError::BadElement {
                operation: self.operation,
                operand,
                found: self[operand].element.name(),
                needed: needed(operand).name(),
            }),
        }
    }

    fn reals(&self) -> Result<()> {
        self.require(&[Element::Real])
    }

    /// The error that the first input's shape and another one are incompatible.
    fn mismatch(&self, right: &Shape, needed: impl Into<String>) -> EngineError {
        EngineError::shape_mismatch(self.operation, &self[0].shape, right, needed)
    }

    /// The error that the operation does not accept the first input's shape.
    fn bad_shape(&self, needed: impl Into<String>) -> EngineError {
        EngineError::bad_shape(self.operation, &self[0].shape, needed)
    }
}

/// Arguments of a derivative rule: the operation's values, and the cotangents of its outputs.
pub struct Derivative<'a> {
    /// Name of the operation.
    pub operation: &'static str,
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

/// The name of an operation.
pub trait Named {
    /// Name in dumps and messages.
    fn name(&self) -> &'static str;
}

macro_rules! operations {
    ($($named:ident),*; $($name:ident: $text:literal),* $(,)?) => {
        operations! { @all $($named,)* $($name),* }

        $(
            impl Named for $name {
                fn name(&self) -> &'static str {
                    $text
                }
            }
        )*
    };
    (@all $($name:ident),*) => {
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

            /// Name in dumps and messages.
            pub fn name(&self) -> &'static str {
                match self {
                    $(Self::$name(operation) => operation.name()),*
                }
            }
        }
    };
}

// Those with names of their own, then those with one name.
operations! {
    Pointwise, Conv;
    Tensor: "tensor", Constant: "constant", Expression: "expression", Sum: "sum",
    Reshape: "reshape", Broadcast: "broadcast", Permute: "permute", Slice: "slice", Embed: "embed", Concat: "concat",
    MatMul: "matmul",
    Pad: "pad", Fold: "fold",
    GroupNorm: "group_norm", GroupNormBackward: "group_norm_backward",
    LayerNorm: "layer_norm", LayerNormBackward: "layer_norm_backward",
    Attention: "attention", AttentionBackward: "attention_backward",
    WaveletTransform: "wavelet",
    MeanSquaredError: "mean_squared_error", Random: "random", SamplePath: "sample_path", Gather: "gather",
    AllReduce: "all_reduce", GlobalNorm: "global_norm", Adam: "adam", Assign: "assign", Advance: "advance",
}

impl fmt::Display for Op {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", self.name(), self.operation().attributes())
    }
}
