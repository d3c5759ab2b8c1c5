//! Chains of pointwise operations fused into one pass.

use super::{Binary, Inputs, Operation, Unary};
use crate::error::Result;
use crate::shape::{Shape, Type};

/// One line of a fused expression; its index names its result.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Line {
    /// The element of an operand.
    Load(usize),
    /// A function of an earlier line.
    Unary(Unary, usize),
    /// A function of two earlier lines.
    Binary(Binary, usize, usize),
}

/// How an operand of a fused expression is read: element `offset + sum(index * stride)`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct View {
    /// The first element read.
    pub offset: usize,
    /// One stride for each axis of the result; 0 where the operand is broadcast.
    pub strides: Vec<usize>,
}

/// A fused chain of pointwise operations; the last line is the result. Only the fusion pass creates it.
#[derive(Clone, Debug)]
pub struct Expression {
    /// Shape of the result.
    pub shape: Shape,
    /// How each operand is read.
    pub views: Vec<View>,
    /// The lines.
    pub code: Vec<Line>,
}

impl Operation for Expression {
    fn infer(&self, _: &Inputs<'_>) -> Result<Vec<Type>> {
        Ok(vec![Type::real(self.shape.clone())])
    }

    fn attributes(&self) -> String {
        let mut text = String::from(" {");
        for (i, line) in self.code.iter().enumerate() {
            let line = match line {
                Line::Load(operand) => format!("in{operand}"),
                Line::Unary(Unary::Affine { scale, shift }, a) => format!("{scale}*r{a}+{shift}"),
                Line::Unary(function, a) => format!("{}(r{a})", function.name()),
                Line::Binary(function, a, b) => format!("{}(r{a}, r{b})", function.name()),
            };
            text += &format!("{}r{i}={line}", if i == 0 { "" } else { "; " });
        }
        text + "}"
    }
}
