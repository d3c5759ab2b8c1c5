//! Matrix products, plain, batched or strided, with fused bias and activation.

use super::{Derivative, Inputs, Op, Operation, Unary};
use crate::error::{EngineError, Result};
use crate::graph::{Graph, Node};
use crate::shape::{Shape, Type};

/// A function applied to a layer's output.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Activation {
    /// No function.
    #[default]
    Identity,
    /// `max(x, 0)`.
    Relu,
    /// `x * sigmoid(x)`.
    Silu,
    /// Gaussian error linear unit, tanh form.
    Gelu,
}

impl Activation {
    /// The function; `None` for the identity.
    #[inline]
    pub fn function(self) -> Option<Unary> {
        match self {
            Self::Identity => None,
            Self::Relu => Some(Unary::Relu),
            Self::Silu => Some(Unary::Silu),
            Self::Gelu => Some(Unary::Gelu),
        }
    }

    /// Appends the slope at the layer's input, given the value before the activation, or after it for ReLU.
    pub(crate) fn slope(self, graph: &mut Graph, at: Node) -> Result<Option<Node>> {
        let function = match self {
            Self::Identity => return Ok(None),
            Self::Relu => Unary::Step,
            Self::Silu => Unary::SiluSlope,
            Self::Gelu => Unary::GeluSlope,
        };
        graph.unary(function, at).map(Some)
    }

    /// Whether the slope is computed from the value before the activation rather than after it.
    pub(crate) fn needs_input(self) -> bool {
        matches!(self, Self::Silu | Self::Gelu)
    }
}

/// Position of the elements of a batch of matrices in memory. Element `(i, j)` of matrix `(p, q)` is at `p * batch[0] +
/// q * batch[1] + i * row + j * column`. One of `row` and `column` is 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Operand {
    /// Distance of neighbouring matrices in each level of the batch.
    pub batch: [usize; 2],
    /// Distance of neighbouring rows.
    pub row: usize,
    /// Distance of neighbouring columns.
    pub column: usize,
}

impl Operand {
    /// Dense matrices of `columns` columns, at the given distance from each other.
    pub fn dense(batch: usize, columns: usize) -> Self {
        Self { batch: [batch, 0], row: columns, column: 1 }
    }

    /// The transposed matrices.
    pub fn transposed(self) -> Self {
        Self { batch: self.batch, row: self.column, column: self.row }
    }
}

/// `c = activation(a b + bias)` for each of `batch[0] * batch[1]` pairs of matrices; `a` is `rows x inner`, `b` is
/// `inner x columns`, `bias` has one entry per column.
///
/// Inputs: `a`, `b` and, if `bias` is true, the bias. Outputs: `c` and, if `keep_input` is true, the value before the
/// activation, in the layout of `c`.
#[derive(Clone, Debug)]
pub struct MatMul {
    /// Number of pairs of matrices in each level of the batch.
    pub batch: [usize; 2],
    /// Rows of `a` and `c`.
    pub rows: usize,
    /// Columns of `b` and `c`.
    pub columns: usize,
    /// Columns of `a` and rows of `b`.
    pub inner: usize,
    /// Layout of the first factor.
    pub a: Operand,
    /// Layout of the second factor.
    pub b: Operand,
    /// Layout of the result.
    pub c: Operand,
    /// Whether there is a bias.
    pub bias: bool,
    /// Function applied to the sum.
    pub activation: Activation,
    /// Whether the value before the activation is an output too.
    pub keep_input: bool,
    /// Shape of the output; its elements have the layout `c`.
    pub shape: Shape,
}

impl MatMul {
    /// A product without bias and activation.
    pub fn plain(
        batch: [usize; 2],
        [rows, inner, columns]: [usize; 3],
        [a, b, c]: [Operand; 3],
        shape: Shape,
    ) -> Self {
        let (bias, activation, keep_input) = (false, Activation::Identity, false);
        Self { batch, rows, columns, inner, a, b, c, bias, activation, keep_input, shape }
    }
}

impl Operation for MatMul {
    fn infer(&self, inputs: &Inputs<'_>) -> Result<Vec<Type>> {
        inputs.reals()?;
        let output = Type::real(self.shape.clone());
        Ok(vec![output; if self.keep_input { 2 } else { 1 }])
    }

    fn derivative(&self, at: &mut Derivative<'_>) -> Result<Vec<Option<Node>>> {
        let (a, b) = (at.inputs[0], at.inputs[1]);
        if at.cotangents.get(1).is_some_and(Option::is_some) {
            return Err(EngineError::NotDifferentiable("matmul input of the activation"));
        }
        let slope_at = if self.activation.needs_input() { at.outputs[1] } else { at.outputs[0] };
        let mut dy = at.cotangent();
        if let Some(slope) = self.activation.slope(at.graph, slope_at)? {
            dy = at.graph.multiply(dy, slope)?;
        }
        let [m, k, n] = [self.rows, self.inner, self.columns];
        let da = at.wanted[0].then(|| {
            let (shape, operands) = (at.graph.shape(a).clone(), [self.c, self.b.transposed(), self.a]);
            at.graph.product_summed(Self::plain(self.batch, [m, n, k], operands, shape), dy, b)
        });
        let db = at.wanted[1].then(|| {
            let (shape, operands) = (at.graph.shape(b).clone(), [self.a.transposed(), self.c, self.b]);
            at.graph.product_summed(Self::plain(self.batch, [k, m, n], operands, shape), a, dy)
        });
        let mut cotangents = vec![da.transpose()?, db.transpose()?];
        if self.bias {
            cotangents.push(at.wanted[2].then(|| at.graph.sum_leading(dy)).transpose()?);
        }
        Ok(cotangents)
    }

    fn attributes(&self) -> String {
        let epilogue = match (self.bias, self.activation) {
            (false, Activation::Identity) => String::new(),
            (bias, activation) => format!(" bias={bias} {activation:?}"),
        };
        format!(" {:?} {}x{}x{}{epilogue}", self.batch, self.rows, self.inner, self.columns)
    }
}

impl Graph {
    /// `activation(x w + bias)` `[..., outputs]` of `x [..., inputs]`, `w [inputs, outputs]` and `bias [outputs]`.
    ///
    /// # Errors
    /// If the shapes do not fit.
    pub fn linear(&mut self, x: Node, w: Node, bias: Option<Node>, activation: Activation) -> Result<Node> {
        let (left, right) = (self.shape(x).clone(), self.shape(w).clone());
        let fits = right.rank() == 2 && left.rank() >= 1 && left.last() == right.axes()[0];
        if !fits {
            let needed = "the last axis of the first must equal the first of two axes of the second";
            return Err(EngineError::shape_mismatch("linear", &left, &right, needed));
        }
        let (inner, columns) = (right.axes()[0], right.axes()[1]);
        if let Some(bias) = bias
            && self.shape(bias).axes() != [columns]
        {
            let needed = "the bias needs one entry an output";
            return Err(EngineError::shape_mismatch("linear", self.shape(bias), &right, needed));
        }
        let rows = left.len() / inner.max(1);
        let mut shape = left.axes().to_vec();
        *shape.last_mut().expect("the rank was checked") = columns;
        let operands = [Operand::dense(0, inner), Operand::dense(0, columns), Operand::dense(0, columns)];
        let mut product = MatMul::plain([1, 1], [rows, inner, columns], operands, shape.into());
        product.bias = bias.is_some();
        product.activation = activation;
        product.keep_input = activation.needs_input();
        let inputs: Vec<Node> = [x, w].into_iter().chain(bias).collect();
        self.push_one(Op::MatMul(product), &inputs)
    }

    /// The product of `[..., m, k]` and `[..., k, n]`, each optionally transposed; leading axes equal or missing.
    ///
    /// # Errors
    /// If the shapes do not fit.
    pub fn matmul(&mut self, a: Node, b: Node, transpose_a: bool, transpose_b: bool) -> Result<Node> {
        let (left, right) = (self.shape(a).clone(), self.shape(b).clone());
        let mismatch = |needed: &str| EngineError::shape_mismatch("matmul", &left, &right, needed);
        if left.rank() < 2 || right.rank() < 2 {
            return Err(mismatch("both must have two axes or more"));
        }
        let split = |shape: &Shape, transpose: bool| {
            let axes = shape.axes();
            let (lead, matrix) = axes.split_at(axes.len() - 2);
            let dense = Operand::dense(if lead.is_empty() { 0 } else { matrix[0] * matrix[1] }, matrix[1]);
            match transpose {
                false => (lead.to_vec(), matrix[0], matrix[1], dense),
                true => (lead.to_vec(), matrix[1], matrix[0], dense.transposed()),
            }
        };
        let (lead_a, rows, inner, operand_a) = split(&left, transpose_a);
        let (lead_b, inner_b, columns, operand_b) = split(&right, transpose_b);
        if inner != inner_b {
            return Err(mismatch("the inner axes must be equal"));
        }
        if !lead_a.is_empty() && !lead_b.is_empty() && lead_a != lead_b {
            return Err(mismatch("the leading axes must be equal, or absent on one side"));
        }
        let mut shape = if lead_a.is_empty() { lead_b } else { lead_a };
        let batch = shape.iter().product();
        let distance = if shape.is_empty() { 0 } else { rows * columns };
        shape.extend([rows, columns]);
        let operands = [operand_a, operand_b, Operand::dense(distance, columns)];
        let product = MatMul::plain([batch, 1], [rows, inner, columns], operands, shape.into());
        self.push_one(Op::MatMul(product), &[a, b])
    }

    /// Appends a product. If all matrices of the batch share its output, the batch is summed.
    fn product_summed(&mut self, mut product: MatMul, a: Node, b: Node) -> Result<Node> {
        let shared = product.batch[0] > 1 && product.c.batch[0] == 0;
        if !shared {
            return self.push_one(Op::MatMul(product), &[a, b]);
        }
        let shape = product.shape.clone();
        let axes: Vec<usize> = [product.batch[0]].iter().chain(shape.axes()).copied().collect();
        product.c.batch[0] = shape.len();
        product.shape = axes.into();
        let each = self.push_one(Op::MatMul(product), &[a, b])?;
        self.sum(each, &[0])
    }

    pub(crate) fn sum_leading(&mut self, x: Node) -> Result<Node> {
        let axes: Vec<usize> = (0..self.shape(x).rank().saturating_sub(1)).collect();
        self.sum(x, &axes)
    }

    pub(crate) fn strided_product(
        &mut self,
        batch: [usize; 2],
        sizes: [usize; 3],
        operands: [Operand; 3],
        shape: Shape,
        [a, b]: [Node; 2],
    ) -> Result<Node> {
        self.push_one(Op::MatMul(MatMul::plain(batch, sizes, operands, shape)), &[a, b])
    }
}
