//! Operations that move elements without arithmetic: reshape, broadcast, permute, slice and its transpose, concatenate.

use super::{Derivative, Inputs, Op, Operation};
use crate::error::{EngineError, Result};
use crate::graph::{Graph, Node};
use crate::shape::{Shape, Type};

/// A value with another shape and the elements in the same order; free of cost.
#[derive(Clone, Debug)]
pub struct Reshape {
    /// The new shape.
    pub shape: Shape,
}

impl Operation for Reshape {
    fn infer(&self, inputs: &Inputs<'_>) -> Result<Vec<Type>> {
        if inputs[0].shape.len() != self.shape.len() {
            return Err(inputs.mismatch(&self.shape, "both must have the same number of elements"));
        }
        Ok(vec![Type { shape: self.shape.clone(), element: inputs[0].element }])
    }

    fn derivative(&self, at: &mut Derivative<'_>) -> Result<Vec<Option<Node>>> {
        let shape = at.graph.shape(at.inputs[0]).clone();
        Ok(vec![Some(at.graph.reshape(at.cotangent(), shape)?)])
    }
}

/// Repeats a value along axes of length 1 or along new leading axes.
#[derive(Clone, Debug)]
pub struct Broadcast {
    /// The new shape.
    pub shape: Shape,
}

impl Operation for Broadcast {
    fn infer(&self, inputs: &Inputs<'_>) -> Result<Vec<Type>> {
        if inputs[0].shape.broadcast(&self.shape).as_ref() != Some(&self.shape) {
            let needed = "every axis of the first must be 1 or equal to the second's";
            return Err(inputs.mismatch(&self.shape, needed));
        }
        Ok(vec![Type { shape: self.shape.clone(), element: inputs[0].element }])
    }

    fn derivative(&self, at: &mut Derivative<'_>) -> Result<Vec<Option<Node>>> {
        let shape = at.graph.shape(at.inputs[0]).clone();
        Ok(vec![Some(at.graph.sum_to(at.cotangent(), &shape)?)])
    }
}

/// Reorders axes: output axis `i` is input axis `order[i]`.
#[derive(Clone, Debug)]
pub struct Permute {
    /// Input axis of each output axis.
    pub order: Vec<usize>,
}

impl Operation for Permute {
    fn infer(&self, inputs: &Inputs<'_>) -> Result<Vec<Type>> {
        let shape = &inputs[0].shape;
        let mut sorted = self.order.clone();
        sorted.sort_unstable();
        if sorted != (0..shape.rank()).collect::<Vec<_>>() {
            return Err(inputs.bad_shape(format!("{:?} must name every axis once", self.order)));
        }
        let axes: Vec<usize> = self.order.iter().map(|&axis| shape.axes()[axis]).collect();
        Ok(vec![Type { shape: axes.into(), element: inputs[0].element }])
    }

    fn derivative(&self, at: &mut Derivative<'_>) -> Result<Vec<Option<Node>>> {
        let mut inverse = vec![0; self.order.len()];
        for (to, &from) in self.order.iter().enumerate() {
            inverse[from] = to;
        }
        Ok(vec![Some(at.graph.permute(at.cotangent(), &inverse)?)])
    }

    fn attributes(&self) -> String {
        format!(" order={:?}", self.order)
    }
}

/// A contiguous range of one axis.
#[derive(Clone, Debug)]
pub struct Slice {
    /// The axis.
    pub axis: usize,
    /// The first element.
    pub start: usize,
    /// The number of elements.
    pub length: usize,
}

impl Operation for Slice {
    fn infer(&self, inputs: &Inputs<'_>) -> Result<Vec<Type>> {
        let mut axes = inputs[0].shape.axes().to_vec();
        if self.axis >= axes.len() || self.start + self.length > axes[self.axis] {
            let Self { axis, start, length } = self;
            let needed = format!("axis {axis} must hold elements {start}..{}", start + length);
            return Err(inputs.bad_shape(needed));
        }
        axes[self.axis] = self.length;
        Ok(vec![Type { shape: axes.into(), element: inputs[0].element }])
    }

    fn derivative(&self, at: &mut Derivative<'_>) -> Result<Vec<Option<Node>>> {
        let whole = at.graph.shape(at.inputs[0]).axes()[self.axis];
        let embed = Embed { axis: self.axis, start: self.start, whole };
        Ok(vec![Some(at.graph.push_one(Op::Embed(embed), &[at.cotangent()])?)])
    }

    fn attributes(&self) -> String {
        format!(" axis={} start={} length={}", self.axis, self.start, self.length)
    }
}

/// The transpose of [`Slice`]: the value at its position along an axis, zeros elsewhere.
#[derive(Clone, Debug)]
pub struct Embed {
    /// The axis.
    pub axis: usize,
    /// Position of the value's first element.
    pub start: usize,
    /// Length of the axis in the result.
    pub whole: usize,
}

impl Operation for Embed {
    fn infer(&self, inputs: &Inputs<'_>) -> Result<Vec<Type>> {
        let mut axes = inputs[0].shape.axes().to_vec();
        if self.axis >= axes.len() || self.start + axes[self.axis] > self.whole {
            let Self { axis, start, whole } = self;
            return Err(inputs.bad_shape(format!("axis {axis} must fit into {whole} from {start}")));
        }
        axes[self.axis] = self.whole;
        Ok(vec![Type { shape: axes.into(), element: inputs[0].element }])
    }

    fn derivative(&self, at: &mut Derivative<'_>) -> Result<Vec<Option<Node>>> {
        let length = at.graph.shape(at.inputs[0]).axes()[self.axis];
        Ok(vec![Some(at.graph.slice(at.cotangent(), self.axis, self.start, length)?)])
    }

    fn attributes(&self) -> String {
        format!(" axis={} start={} whole={}", self.axis, self.start, self.whole)
    }
}

/// Values concatenated along one axis.
#[derive(Clone, Debug)]
pub struct Concat {
    /// The axis.
    pub axis: usize,
}

impl Operation for Concat {
    fn infer(&self, inputs: &Inputs<'_>) -> Result<Vec<Type>> {
        let mut axes = inputs[0].shape.axes().to_vec();
        if self.axis >= axes.len() {
            return Err(inputs.bad_shape(format!("axis {} must exist", self.axis)));
        }
        for input in &inputs[1..] {
            let other = input.shape.axes();
            let fits = other.len() == axes.len()
                && input.element == inputs[0].element
                && (0..axes.len()).all(|i| i == self.axis || axes[i] == other[i]);
            if !fits {
                let needed = format!("all axes but {} must agree", self.axis);
                return Err(inputs.mismatch(&input.shape, needed));
            }
            axes[self.axis] += other[self.axis];
        }
        Ok(vec![Type { shape: axes.into(), element: inputs[0].element }])
    }

    fn derivative(&self, at: &mut Derivative<'_>) -> Result<Vec<Option<Node>>> {
        let mut start = 0;
        let mut cotangents = Vec::with_capacity(at.inputs.len());
        for (i, &input) in at.inputs.iter().enumerate() {
            let length = at.graph.shape(input).axes()[self.axis];
            cotangents.push(match at.wanted[i] {
                true => Some(at.graph.slice(at.cotangent(), self.axis, start, length)?),
                false => None,
            });
            start += length;
        }
        Ok(cotangents)
    }

    fn attributes(&self) -> String {
        format!(" axis={}", self.axis)
    }
}

impl Graph {
    /// Changes the shape of a value; the elements keep their order.
    ///
    /// # Errors
    /// If the number of elements differs.
    pub fn reshape(&mut self, x: Node, shape: impl Into<Shape>) -> Result<Node> {
        let shape = shape.into();
        if *self.shape(x) == shape {
            return Ok(x);
        }
        self.push_one(Op::Reshape(Reshape { shape }), &[x])
    }

    /// Repeats a value along axes of length 1 and along new leading axes until it has the given shape.
    ///
    /// # Errors
    /// If the value's shape does not broadcast to it.
    pub fn broadcast(&mut self, x: Node, shape: impl Into<Shape>) -> Result<Node> {
        let shape = shape.into();
        if *self.shape(x) == shape {
            return Ok(x);
        }
        self.push_one(Op::Broadcast(Broadcast { shape }), &[x])
    }

    /// Reorders axes: axis `i` of the result is axis `order[i]` of `x`.
    ///
    /// # Errors
    /// If `order` does not name every axis once.
    pub fn permute(&mut self, x: Node, order: &[usize]) -> Result<Node> {
        self.push_one(Op::Permute(Permute { order: order.to_vec() }), &[x])
    }

    /// Elements `start .. start + length` of one axis.
    ///
    /// # Errors
    /// If the axis is shorter.
    pub fn slice(&mut self, x: Node, axis: usize, start: usize, length: usize) -> Result<Node> {
        self.push_one(Op::Slice(Slice { axis, start, length }), &[x])
    }

    /// Concatenates values along an axis.
    ///
    /// # Errors
    /// If the list is empty or the other axes differ.
    pub fn concat(&mut self, values: &[Node], axis: usize) -> Result<Node> {
        match values {
            [] => Err(EngineError::bad_attribute("concat", "nothing to concatenate")),
            [only] => Ok(*only),
            _ => self.push_one(Op::Concat(Concat { axis }), values),
        }
    }

    /// Divides `[batch, height, width, channels]` into patches `[batch, rows * columns, patch * patch * channels]`.
    ///
    /// # Errors
    /// If the value is not such a field or the patch does not divide its sides.
    pub fn patches(&mut self, x: Node, patch: usize) -> Result<Node> {
        let [b, h, w, c] = match *self.shape(x).axes() {
            [b, h, w, c] if patch > 0 && h % patch == 0 && w % patch == 0 => [b, h, w, c],
            _ => {
                let needed = format!("[batch, height, width, channels] with sides divisible by {patch}");
                return Err(EngineError::bad_shape("patches", self.shape(x), needed));
            }
        };
        let split = self.reshape(x, [b, h / patch, patch, w / patch, patch, c])?;
        let ordered = self.permute(split, &[0, 1, 3, 2, 4, 5])?;
        self.reshape(ordered, [b, (h / patch) * (w / patch), patch * patch * c])
    }

    /// The inverse of [`Graph::patches`] for fields of the given height and width.
    ///
    /// # Errors
    /// If the sizes do not fit together.
    pub fn unpatch(&mut self, x: Node, patch: usize, height: usize, width: usize) -> Result<Node> {
        let shape = self.shape(x).clone();
        let fits = shape.rank() == 3
            && patch > 0
            && height.is_multiple_of(patch)
            && width.is_multiple_of(patch)
            && shape.axes()[1] == (height / patch) * (width / patch)
            && shape.axes()[2].is_multiple_of(patch * patch);
        if !fits {
            let needed = format!("patches of side {patch} that tile {height} x {width}");
            return Err(EngineError::bad_shape("unpatch", &shape, needed));
        }
        let (b, c) = (shape.axes()[0], shape.axes()[2] / (patch * patch));
        let split = self.reshape(x, [b, height / patch, width / patch, patch, patch, c])?;
        let ordered = self.permute(split, &[0, 1, 3, 2, 4, 5])?;
        self.reshape(ordered, [b, height, width, c])
    }
}
