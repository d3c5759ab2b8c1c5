//! Arithmetic and functions of single elements, with broadcasting.

use super::{Derivative, Inputs, Named, Op, Operation};
use crate::error::{EngineError, Result};
use crate::graph::{Graph, Node};
use crate::shape::Type;

/// Declares an enumeration of functions with methods of [`Graph`]; those after the semicolon have none.
macro_rules! functions {
    (
        $(#[$about:meta])* $kind:ident, $append:ident $operands:tt, $errors:literal;
        $($(#[$doc:meta])* $function:ident $name:ident,)*;
        $($(#[$inner_doc:meta])* $inner:ident $({ $($fields:tt)* })? $inner_name:ident,)*
    ) => {
        $(#[$about])*
        pub enum $kind {
            $($(#[$doc])* $function,)*
            $($(#[$inner_doc])* $inner $({ $($fields)* })?,)*
        }

        impl $kind {
            pub(super) fn name(self) -> &'static str {
                match self {
                    $(Self::$function => stringify!($name),)*
                    $(Self::$inner { .. } => stringify!($inner_name),)*
                }
            }
        }

        $(method! { $(#[$doc])* $errors, $name $operands => $append, $kind::$function })*
    };
}

macro_rules! method {
    ($(#[$doc:meta])* $errors:literal, $name:ident ($($operand:ident),*) => $append:ident, $function:path) => {
        impl Graph {
            $(#[$doc])*
            ///
            /// # Errors
            #[doc = $errors]
            pub fn $name(&mut self, $($operand: Node),*) -> Result<Node> {
                self.$append($function, $($operand),*)
            }
        }
    };
}

functions! {
    /// A function of one number.
    #[derive(Clone, Copy, Debug, PartialEq)]
    Unary, unary(x), "If `x` does not hold real numbers.";
    /// `1 / x`.
    Reciprocal reciprocal,
    /// `x * x`.
    Square square,
    /// Square root.
    Sqrt sqrt,
    /// Exponential.
    Exp exp,
    /// Natural logarithm.
    Log log,
    /// Sine.
    Sin sin,
    /// Cosine.
    Cos cos,
    /// Hyperbolic tangent.
    Tanh tanh,
    /// `1 / (1 + exp(-x))`.
    Sigmoid sigmoid,
    /// Absolute value.
    Abs abs,
    /// `max(x, 0)`.
    Relu relu,
    /// `x * sigmoid(x)`, also called swish.
    Silu silu,
    /// Gaussian error linear unit (GELU), in its tanh form.
    Gelu gelu,
    ;
    /// `scale * x + shift`.
    Affine {
        /// Factor.
        scale: f64,
        /// Term.
        shift: f64,
    } affine,
    /// Slope of ReLU: 1 where `x > 0`, else 0.
    Step step,
    /// -1, 0 or 1.
    Sign sign,
    /// Slope of SiLU.
    SiluSlope silu_slope,
    /// Slope of GELU.
    GeluSlope gelu_slope,
}

functions! {
    /// A function of two numbers.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    Binary, binary(a, b), "If the shapes do not broadcast to a common one.";
    /// `a + b`.
    Add add,
    /// `a - b`.
    Subtract subtract,
    /// `a * b`.
    Multiply multiply,
    /// `a / b`.
    Divide divide,
    /// The larger of two values.
    Maximum maximum,
    /// The smaller of two values.
    Minimum minimum,
    /// 1 where `a` is at least `b`, else 0, also where one is NaN; its derivative is 0.
    AtLeast at_least,
    /// `a` where `b` is not 0, else 0, even where `a` is NaN.
    Mask mask,
    ;
}

/// One function applied to every element.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Pointwise {
    /// A function of one number.
    Unary(Unary),
    /// A function of two numbers.
    Binary(Binary),
}

impl Named for Pointwise {
    fn name(&self) -> &'static str {
        match self {
            Self::Unary(function) => function.name(),
            Self::Binary(function) => function.name(),
        }
    }
}

impl Operation for Pointwise {
    fn infer(&self, inputs: &Inputs<'_>) -> Result<Vec<Type>> {
        inputs.reals()?;
        let mut shape = inputs[0].shape.clone();
        for input in &inputs[1..] {
            let needed = "axes aligned at the last must be equal or 1";
            shape = shape.broadcast(&input.shape).ok_or_else(|| inputs.mismatch(&input.shape, needed))?;
        }
        Ok(vec![Type::real(shape)])
    }

    fn derivative(&self, at: &mut Derivative<'_>) -> Result<Vec<Option<Node>>> {
        match self {
            Self::Unary(function) => Ok(vec![Some(function.derivative(at)?)]),
            Self::Binary(function) => {
                let slopes = function.derivative(at)?;
                let mut cotangents = Vec::with_capacity(2);
                for (i, slope) in slopes.into_iter().enumerate() {
                    let shape = at.graph.shape(at.inputs[i]).clone();
                    cotangents.push(match slope {
                        Some(slope) => Some(at.graph.sum_to(slope, &shape)?),
                        None => None,
                    });
                }
                Ok(cotangents)
            }
        }
    }

    fn attributes(&self) -> String {
        match self {
            Self::Unary(Unary::Affine { scale, shift }) => format!(" scale={scale} shift={shift}"),
            _ => String::new(),
        }
    }
}

impl Unary {
    /// The table of derivatives: cotangent times slope at the input.
    fn derivative(self, at: &mut Derivative<'_>) -> Result<Node> {
        let (x, y, dy) = (at.inputs[0], at.outputs[0], at.cotangent());
        let g = &mut *at.graph;
        let slope = match self {
            Self::Affine { scale, .. } => return g.scale(dy, scale),
            Self::Reciprocal => {
                let square = g.square(y)?;
                g.scale(square, -1.0)?
            }
            Self::Square => g.scale(x, 2.0)?,
            Self::Sqrt => {
                let reciprocal = g.unary(Self::Reciprocal, y)?;
                g.scale(reciprocal, 0.5)?
            }
            Self::Exp => y,
            Self::Log => return g.divide(dy, x),
            Self::Sin => g.cos(x)?,
            Self::Cos => {
                let sin = g.sin(x)?;
                g.scale(sin, -1.0)?
            }
            Self::Tanh => {
                let square = g.square(y)?;
                g.affine(square, -1.0, 1.0)?
            }
            Self::Sigmoid => {
                let rest = g.affine(y, -1.0, 1.0)?;
                g.multiply(y, rest)?
            }
            Self::Abs => g.unary(Self::Sign, x)?,
            Self::Relu => g.unary(Self::Step, y)?,
            Self::Silu => g.unary(Self::SiluSlope, x)?,
            Self::Gelu => g.unary(Self::GeluSlope, x)?,
            Self::Step | Self::Sign => return g.scale(dy, 0.0),
            Self::SiluSlope | Self::GeluSlope => {
                return Err(EngineError::NotDifferentiable(self.name()));
            }
        };
        g.multiply(dy, slope)
    }
}

impl Binary {
    /// Cotangents before they are summed over broadcast axes, where they are needed.
    fn derivative(self, at: &mut Derivative<'_>) -> Result<[Option<Node>; 2]> {
        let (a, b, y, dy) = (at.inputs[0], at.inputs[1], at.outputs[0], at.cotangent());
        let [first, second] = [at.wanted[0], at.wanted[1]];
        let g = &mut *at.graph;
        let when = |wanted: bool, make: &mut dyn FnMut() -> Result<Node>| wanted.then(make).transpose();
        Ok(match self {
            Self::Add => [Some(dy), Some(dy)],
            Self::Subtract => [Some(dy), when(second, &mut || g.scale(dy, -1.0))?],
            Self::Multiply => {
                [when(first, &mut || g.multiply(dy, b))?, when(second, &mut || g.multiply(dy, a))?]
            }
            Self::Divide => {
                let da = g.divide(dy, b)?;
                let db = when(second, &mut || {
                    let product = g.multiply(da, y)?;
                    g.scale(product, -1.0)
                })?;
                [Some(da), db]
            }
            Self::Maximum | Self::Minimum => {
                let (left, right) = if self == Self::Maximum { (a, b) } else { (b, a) };
                let mask = g.binary(Self::AtLeast, left, right)?;
                let rest = g.affine(mask, -1.0, 1.0)?;
                [Some(g.multiply(dy, mask)?), Some(g.multiply(dy, rest)?)]
            }
            Self::AtLeast => [Some(g.scale(dy, 0.0)?), Some(g.scale(dy, 0.0)?)],
            Self::Mask => [Some(g.mask(dy, b)?), when(second, &mut || g.scale(dy, 0.0))?],
        })
    }
}

impl Graph {
    /// `scale * x`.
    ///
    /// # Errors
    /// If `x` does not hold real numbers.
    pub fn scale(&mut self, x: Node, scale: f64) -> Result<Node> {
        self.affine(x, scale, 0.0)
    }

    /// `scale * x + shift`.
    ///
    /// # Errors
    /// If `x` does not hold real numbers.
    pub fn affine(&mut self, x: Node, scale: f64, shift: f64) -> Result<Node> {
        if scale == 1.0 && shift == 0.0 {
            return Ok(x);
        }
        self.unary(Unary::Affine { scale, shift }, x)
    }

    pub(crate) fn unary(&mut self, function: Unary, x: Node) -> Result<Node> {
        self.push_one(Op::Pointwise(Pointwise::Unary(function)), &[x])
    }

    pub(crate) fn binary(&mut self, function: Binary, a: Node, b: Node) -> Result<Node> {
        self.push_one(Op::Pointwise(Pointwise::Binary(function)), &[a, b])
    }
}
