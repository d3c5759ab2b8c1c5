//! Formulas: arithmetic on the values of a graph with operators, and one error at the end.

use std::cell::Cell;
use std::ops::{Add, Div, Mul, Neg, Sub};

use crate::error::{EngineError, Result};
use crate::graph::{Graph, Node};
use crate::initial::Initial;
use crate::ops::Activation;
use crate::shape::Shape;

/// Appends formulas to a graph, which it borrows; made by [`Graph::formula`].
///
/// Every operator and every method appends the node of the [`Graph`] method of its name at once, in the order of
/// evaluation. An operation that does not fit appends nothing, nor does what depends on it; [`Var::node`] returns the
/// first error of the formula.
///
/// ```
/// use cfo_engine::Graph;
///
/// let mut graph = Graph::new();
/// let [state, slope] = [graph.input("state", [8, 3])?, graph.input("slope", [8, 3])?];
/// let f = graph.formula();
/// let size = f.var(state).abs().maximum(1e-6);
/// let ratio = (slope / size * 0.01).square().mean(&[1]).sqrt().node()?;
/// assert_eq!(graph.shape(ratio).axes(), [8]);
///
/// let error = (graph.var(ratio) + slope).exp().node().unwrap_err();
/// assert!(error.to_string().starts_with("`add` cannot combine shapes [8] and [8, 3]"));
/// # Ok::<(), cfo_engine::EngineError>(())
/// ```
#[derive(Clone, Copy)]
pub struct Formula<'g> {
    graph: &'g Cell<Graph>,
}

/// A value in a formula. It is combined with other values, with nodes of the graph, and with fixed numbers.
///
/// `+`, `-` and `*` with a number append one `affine`; division by a number multiplies by its reciprocal.
#[derive(Clone, Copy)]
#[must_use = "a formula's error is lost unless `Var::node` is called"]
pub struct Var<'g> {
    formula: Formula<'g>,
    /// Nothing after an error, which the graph keeps.
    node: Option<Node>,
}

/// A second operand: a [`Var`], a [`Node`] or a fixed number, which becomes a scalar constant.
pub trait IntoVar {
    /// Returns its value in a formula.
    fn var(self, formula: Formula<'_>) -> Var<'_>;
}

impl IntoVar for Node {
    fn var(self, formula: Formula<'_>) -> Var<'_> {
        Var { formula, node: Some(self) }
    }
}

impl IntoVar for Var<'_> {
    fn var(self, formula: Formula<'_>) -> Var<'_> {
        Var { formula, node: self.node }
    }
}

impl IntoVar for f64 {
    fn var(self, formula: Formula<'_>) -> Var<'_> {
        formula.append(|graph| Ok(graph.scalar(self)))
    }
}

impl Graph {
    /// Starts a formula.
    pub fn formula(&mut self) -> Formula<'_> {
        self.failure = None;
        Formula { graph: Cell::from_mut(self) }
    }

    /// Starts a formula with a value of the graph.
    pub fn var(&mut self, node: Node) -> Var<'_> {
        self.formula().var(node)
    }
}

impl<'g> Formula<'g> {
    /// A value of the graph.
    pub fn var(self, node: Node) -> Var<'g> {
        Var { formula: self, node: Some(node) }
    }

    /// Several values of the graph.
    pub fn vars<const N: usize>(self, nodes: [Node; N]) -> [Var<'g>; N] {
        nodes.map(|node| self.var(node))
    }

    /// A named tensor; see [`Graph::input`].
    pub fn input(self, name: &str, shape: impl Into<Shape>) -> Var<'g> {
        self.append(|graph| graph.input(name, shape))
    }

    /// A trainable tensor; see [`Graph::parameter`].
    pub fn parameter(self, name: &str, shape: impl Into<Shape>, initial: Initial) -> Var<'g> {
        self.append(|graph| graph.parameter(name, shape, initial))
    }

    /// Fixed numbers; see [`Graph::constant`].
    pub fn constant(self, shape: impl Into<Shape>, values: Vec<f64>) -> Var<'g> {
        self.append(|graph| graph.constant(shape, values))
    }

    /// A value that a function appends. The function must not use this formula.
    pub fn append(self, append: impl FnOnce(&mut Graph) -> Result<Node>) -> Var<'g> {
        let mut graph = self.graph.take();
        // The function may write a formula itself.
        let failure = graph.failure.take();
        let (node, error) = match append(&mut graph) {
            Ok(node) => (Some(node), None),
            Err(error) => (None, Some(error)),
        };
        graph.failure = failure.or(error);
        self.graph.set(graph);
        Var { formula: self, node }
    }
}

impl<'g> Var<'g> {
    /// Returns the node of the value.
    ///
    /// # Errors
    /// If an operation that it depends on did not fit; the error is the first one of the formula.
    pub fn node(self) -> Result<Node> {
        self.node.ok_or_else(|| {
            let graph = self.formula.graph.take();
            let failure = graph.failure.clone();
            self.formula.graph.set(graph);
            let other = "an operand failed in another formula";
            failure.unwrap_or_else(|| EngineError::bad_attribute("formula", other))
        })
    }

    /// Writes the value into a named tensor after everything else of a run; see [`Graph::assign`].
    ///
    /// # Errors
    /// If the tensor has another shape, or [`Var::node`] returns an error.
    pub fn assign_to(self, tensor: impl IntoVar) -> Result<()> {
        let assigned = self.with(tensor, |graph, value, tensor| graph.assign(tensor, value).map(|()| value));
        assigned.node().map(|_| ())
    }

    /// Applies a function that appends to the graph, such as another method of [`Graph`]; it must not use this formula.
    pub fn then(self, append: impl FnOnce(&mut Graph, Node) -> Result<Node>) -> Self {
        match self.node {
            Some(node) => self.formula.append(|graph| append(graph, node)),
            None => self,
        }
    }

    /// A linear layer; see [`Graph::linear`].
    pub fn linear(self, weight: impl IntoVar, bias: Option<Var<'_>>, activation: Activation) -> Self {
        if bias.is_some_and(|bias| bias.node.is_none()) {
            return Self { node: None, ..self };
        }
        let bias = bias.and_then(|bias| bias.node);
        self.with(weight, |graph, x, weight| graph.linear(x, weight, bias, activation))
    }

    /// Applies a function of two values that appends to the graph.
    fn with(self, other: impl IntoVar, append: impl FnOnce(&mut Graph, Node, Node) -> Result<Node>) -> Self {
        let other = other.var(self.formula);
        match (self.node, other.node) {
            (Some(left), Some(right)) => self.formula.append(|graph| append(graph, left, right)),
            _ => Self { node: None, ..self },
        }
    }
}

macro_rules! methods {
    ($($method:ident($($argument:ident: $type:ty),*);)*) => {
        impl Var<'_> {
            $(
                #[doc = concat!("See [`Graph::", stringify!($method), "`].")]
                pub fn $method(self, $($argument: $type),*) -> Self {
                    self.then(|graph, x| graph.$method(x, $($argument),*))
                }
            )*
        }
    };
}

methods! {
    affine(scale: f64, shift: f64); reciprocal(); square(); sqrt(); exp(); log(); sin(); cos(); tanh(); sigmoid();
    abs(); relu(); silu(); gelu(); sum(axes: &[usize]); sum_all(); mean(axes: &[usize]); mean_all();
    reshape(shape: impl Into<Shape>); broadcast(shape: impl Into<Shape>); permute(order: &[usize]);
    slice(axis: usize, start: usize, length: usize);
}

macro_rules! functions {
    ($($method:ident),*) => {
        impl Var<'_> {
            $(
                #[doc = concat!("See [`Graph::", stringify!($method), "`].")]
                pub fn $method(self, other: impl IntoVar) -> Self {
                    self.with(other, Graph::$method)
                }
            )*
        }
    };
}

functions!(maximum, minimum, at_least, mask);

macro_rules! operators {
    ($($left:ty, $operator:ident::$method:ident, $right:ty: |$a:ident, $b:ident| $value:expr;)*) => {
        $(
            impl<'g> $operator<$right> for $left {
                type Output = Var<'g>;

                fn $method(self, $b: $right) -> Var<'g> {
                    let $a = self;
                    $value
                }
            }
        )*
    };
}

operators! {
    Var<'g>, Add::add, Var<'g>: |x, y| x.with(y, Graph::add);
    Var<'g>, Add::add, Node: |x, y| x.with(y, Graph::add);
    Node, Add::add, Var<'g>: |x, y| y.formula.var(x).with(y, Graph::add);
    Var<'g>, Sub::sub, Var<'g>: |x, y| x.with(y, Graph::subtract);
    Var<'g>, Sub::sub, Node: |x, y| x.with(y, Graph::subtract);
    Node, Sub::sub, Var<'g>: |x, y| y.formula.var(x).with(y, Graph::subtract);
    Var<'g>, Mul::mul, Var<'g>: |x, y| x.with(y, Graph::multiply);
    Var<'g>, Mul::mul, Node: |x, y| x.with(y, Graph::multiply);
    Node, Mul::mul, Var<'g>: |x, y| y.formula.var(x).with(y, Graph::multiply);
    Var<'g>, Div::div, Var<'g>: |x, y| x.with(y, Graph::divide);
    Var<'g>, Div::div, Node: |x, y| x.with(y, Graph::divide);
    Node, Div::div, Var<'g>: |x, y| y.formula.var(x).with(y, Graph::divide);
    Var<'g>, Add::add, f64: |x, number| x.affine(1.0, number);
    Var<'g>, Sub::sub, f64: |x, number| x.affine(1.0, -number);
    Var<'g>, Mul::mul, f64: |x, number| x.affine(number, 0.0);
    Var<'g>, Div::div, f64: |x, number| x.affine(1.0 / number, 0.0);
    f64, Add::add, Var<'g>: |number, x| x.affine(1.0, number);
    f64, Sub::sub, Var<'g>: |number, x| x.affine(-1.0, number);
    f64, Mul::mul, Var<'g>: |number, x| x.affine(number, 0.0);
}

impl Neg for Var<'_> {
    type Output = Self;

    fn neg(self) -> Self {
        self * -1.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A formula appends what the methods of `Graph` append.
    fn same(
        formula: impl for<'g> FnOnce([Var<'g>; 2], [Node; 2]) -> Var<'g>,
        calls: impl FnOnce(&mut Graph, Node, Node) -> Result<Node>,
    ) {
        let start = || {
            let mut graph = Graph::new();
            let nodes = ["a", "b"].map(|name| graph.input(name, [2, 3]).unwrap());
            (graph, nodes)
        };
        let (mut written, nodes) = start();
        let f = written.formula();
        let found = formula(f.vars(nodes), nodes).node().unwrap();
        let (mut called, [a, b]) = start();
        let expected = calls(&mut called, a, b).unwrap();
        assert_eq!(written.to_string(), called.to_string());
        assert_eq!(found, expected, "{called}");
    }

    #[test]
    fn operators_append_the_nodes_of_the_methods_of_a_graph() {
        same(|[a, b], _| a + b, Graph::add);
        same(|[a, _], [_, b]| a + b, Graph::add);
        same(|[_, b], [a, _]| a + b, Graph::add);
        same(|[a, b], _| a - b, Graph::subtract);
        same(|[a, _], [_, b]| a - b, Graph::subtract);
        same(|[_, b], [a, _]| a - b, Graph::subtract);
        same(|[a, b], _| a * b, Graph::multiply);
        same(|[a, _], [_, b]| a * b, Graph::multiply);
        same(|[_, b], [a, _]| a * b, Graph::multiply);
        same(|[a, b], _| a / b, Graph::divide);
        same(|[a, _], [_, b]| a / b, Graph::divide);
        same(|[_, b], [a, _]| a / b, Graph::divide);
        same(|[a, _], _| a + 2.0, |g, a, _| g.affine(a, 1.0, 2.0));
        same(|[a, _], _| a - 2.0, |g, a, _| g.affine(a, 1.0, -2.0));
        same(|[a, _], _| 2.0 + a, |g, a, _| g.affine(a, 1.0, 2.0));
        same(|[a, _], _| 2.0 - a, |g, a, _| g.affine(a, -1.0, 2.0));
        same(|[a, _], _| a * 2.0, |g, a, _| g.scale(a, 2.0));
        same(|[a, _], _| 2.0 * a, |g, a, _| g.scale(a, 2.0));
        same(|[a, _], _| a / 8.0, |g, a, _| g.scale(a, 0.125));
        same(|[a, _], _| -a, |g, a, _| g.scale(a, -1.0));
    }

    #[test]
    fn methods_append_the_nodes_of_the_methods_of_a_graph() {
        macro_rules! methods {
            ($($method:ident($($argument:expr),*);)*) => {
                $(same(|[a, _], _| a.$method($($argument),*), |g, a, _| g.$method(a, $($argument),*));)*
            };
        }
        methods! {
            affine(2.0, 3.0); reciprocal(); square(); sqrt(); exp(); log(); sin(); cos(); tanh(); sigmoid();
            abs(); relu(); silu(); gelu(); sum(&[1]); sum_all(); mean(&[0, 1]); mean_all(); reshape([3, 2]);
            broadcast([4, 2, 3]); permute(&[1, 0]); slice(1, 1, 2);
        }
        macro_rules! functions {
            ($($method:ident),*) => {
                $(
                    same(|[a, b], _| a.$method(b), Graph::$method);
                    same(|[a, _], [_, b]| a.$method(b), Graph::$method);
                    same(|[a, _], _| a.$method(0.5), |g, a, _| {
                        let b = g.scalar(0.5);
                        g.$method(a, b)
                    });
                )*
            };
        }
        functions!(maximum, minimum, at_least, mask);
        same(|[a, _], _| a.then(|g, a| g.square(a)), |g, a, _| g.square(a));
    }

    #[test]
    fn leaves_layers_and_assignments_append_the_nodes_of_the_methods_of_a_graph() {
        let mut written = Graph::new();
        let f = written.formula();
        let weight = f.parameter("w", [3, 5], Initial::ZEROS);
        let bias = f.constant([5], vec![1.0; 5]);
        let x = f.input("x", [2, 3]);
        let layer = x.linear(weight, Some(bias), Activation::Relu);
        let sum = layer + x.linear(weight, None, Activation::Identity);
        sum.assign_to(f.input("sum", [2, 5])).unwrap();
        let found = sum.node().unwrap();
        let mut called = Graph::new();
        let weight = called.parameter("w", [3, 5], Initial::ZEROS).unwrap();
        let bias = called.constant([5], vec![1.0; 5]).unwrap();
        let x = called.input("x", [2, 3]).unwrap();
        let layer = called.linear(x, weight, Some(bias), Activation::Relu).unwrap();
        let plain = called.linear(x, weight, None, Activation::Identity).unwrap();
        let expected = called.add(layer, plain).unwrap();
        let tensor = called.input("sum", [2, 5]).unwrap();
        called.assign(tensor, expected).unwrap();
        assert_eq!(written.to_string(), called.to_string());
        assert_eq!(found, expected);
    }

    #[test]
    fn the_first_error_wins_and_names_its_operation() {
        let mut graph = Graph::new();
        let [a, b] = [("a", 3), ("b", 2)].map(|(name, length)| graph.input(name, [length]).unwrap());
        let f = graph.formula();
        let good = f.var(a).square();
        let failed = (a * f.var(b)).exp();
        let later = failed + (f.var(a) - b) + good.then(|graph, x| graph.var(x).maximum(b).node());
        let expected = "`multiply` cannot combine shapes [3] and [2]";
        for var in [failed, later] {
            for error in [var.node().map(|_| ()), var.assign_to(a)] {
                assert!(error.unwrap_err().to_string().starts_with(expected));
            }
        }
        let good = good.node().unwrap();
        assert_eq!(graph.entries().len(), 3, "only what fits is appended");
        let error = graph.var(good).sum(&[7]).node().unwrap_err();
        assert!(error.to_string().starts_with("`sum` cannot take shape [3]"), "{error}");
        assert!(graph.var(good).sqrt().node().is_ok());
    }
}
