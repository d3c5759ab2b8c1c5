//! Arithmetic and functions of single elements, with broadcasting.

use super::{Derivative, Inputs, Named, Op, Operation};
use crate::error::{EngineError, Result};
use crate::graph::{Graph, Node};
use crate::shape::Type;

/// A function of one number.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Unary {
    /// `scale * x + shift`.
    Affine {
        /// Factor.
        scale: f64,
        /// Term.
        shift: f64,
    },
    /// `1 / x`.
    Reciprocal,
    /// `x * x`.
    Square,
    /// Square root.
    Sqrt,
    /// Exponential.
    Exp,
    /// Natural logarithm.
    Log,
    /// Sine.
    Sin,
    /// Cosine.
    Cos,
    /// Hyperbolic tangent.
    Tanh,
    /// `1 / (1 + exp(-x))`.
    Sigmoid,
    /// Absolute value.
    Abs,
    /// `max(x, 0)`.
    Relu,
    /// `x * sigmoid(x)`.
    Silu,
    /// GELU in its tanh form.
    Gelu,
    /// Slope of ReLU: 1 where `x > 0`, else 0.
    Step,
    /// -1, 0 or 1.
    Sign,
    /// Slope of SiLU.
    SiluSlope,
    /// Slope of GELU.
    GeluSlope,
}

/// A function of two numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Binary {
    /// Sum.
    Add,
    /// Difference.
    Subtract,
    /// Product.
    Multiply,
    /// Quotient.
    Divide,
    /// The larger one.
    Maximum,
    /// The smaller one.
    Minimum,
    /// 1 where the first is at least the second, else 0.
    AtLeast,
    /// The first where the second is not 0, else 0, even if the first is NaN.
    Mask,
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
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Affine { .. } => "affine",
            Self::Reciprocal => "reciprocal",
            Self::Square => "square",
            Self::Sqrt => "sqrt",
            Self::Exp => "exp",
            Self::Log => "log",
            Self::Sin => "sin",
            Self::Cos => "cos",
            Self::Tanh => "tanh",
            Self::Sigmoid => "sigmoid",
            Self::Abs => "abs",
            Self::Relu => "relu",
            Self::Silu => "silu",
            Self::Gelu => "gelu",
            Self::Step => "step",
            Self::Sign => "sign",
            Self::SiluSlope => "silu_slope",
            Self::GeluSlope => "gelu_slope",
        }
    }

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
                return Err(EngineError::NotDifferentiable { operation: self.name() });
            }
        };
        g.multiply(dy, slope)
    }
}

impl Binary {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Add => "add",
            Self::Subtract => "subtract",
            Self::Multiply => "multiply",
            Self::Divide => "divide",
            Self::Maximum => "maximum",
            Self::Minimum => "minimum",
            Self::AtLeast => "at_least",
            Self::Mask => "mask",
        }
    }

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

macro_rules! unary_methods {
    ($($(#[$doc:meta])* $method:ident => $function:ident),* $(,)?) => {
        impl Graph {
            $(
                $(#[$doc])*
                ///
                /// # Errors
                /// If `x` does not hold real numbers.
                pub fn $method(&mut self, x: Node) -> Result<Node> {
                    self.unary(Unary::$function, x)
                }
            )*
        }
    };
}

unary_methods! {
    /// `1 / x`.
    reciprocal => Reciprocal,
    /// `x * x`.
    square => Square,
    /// Square root.
    sqrt => Sqrt,
    /// Exponential.
    exp => Exp,
    /// Natural logarithm.
    log => Log,
    /// Sine.
    sin => Sin,
    /// Cosine.
    cos => Cos,
    /// Hyperbolic tangent.
    tanh => Tanh,
    /// `1 / (1 + exp(-x))`.
    sigmoid => Sigmoid,
    /// Absolute value.
    abs => Abs,
    /// `max(x, 0)`.
    relu => Relu,
    /// `x * sigmoid(x)`, also called swish.
    silu => Silu,
    /// Gaussian error linear unit, in its tanh form.
    gelu => Gelu,
}

macro_rules! binary_methods {
    ($($(#[$doc:meta])* $method:ident => $function:ident),* $(,)?) => {
        impl Graph {
            $(
                $(#[$doc])*
                ///
                /// # Errors
                /// If the shapes do not broadcast to a common one.
                pub fn $method(&mut self, a: Node, b: Node) -> Result<Node> {
                    self.binary(Binary::$function, a, b)
                }
            )*
        }
    };
}

binary_methods! {
    /// `a + b`.
    add => Add,
    /// `a - b`.
    subtract => Subtract,
    /// `a * b`.
    multiply => Multiply,
    /// `a / b`.
    divide => Divide,
    /// The larger of two values.
    maximum => Maximum,
    /// The smaller of two values.
    minimum => Minimum,
    /// 1 where `a` is at least `b`, else 0, also where one is NaN; its derivative is 0.
    at_least => AtLeast,
    /// `a` where `b` is not 0, else 0, even where `a` is NaN.
    mask => Mask,
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
