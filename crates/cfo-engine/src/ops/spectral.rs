//! Truncated Fourier multiplication for Fourier neural operators, as products with constant matrices. They are exact
//! for any length and differentiated like other products.
//!
//! There are no complex numbers. A transformed field has real and imaginary parts as two rows (*part*), a weight has
//! them as two blocks of columns. The signs in the matrices of the inverse transform combine their four products.

use std::f64::consts::TAU;

use super::Operand;
use crate::error::{EngineError, Result};
use crate::graph::{Graph, Node};
use crate::shape::Shape;

/// Number of complex weights of a Fourier multiplication for each pair of channels, for fields with some sides.
///
/// The last of `modes` is the number of frequencies along the last axis. Along each other axis that is longer than 1 there
/// are as many positive and as many negative frequencies as its entry.
pub fn spectral_modes(sides: &[usize], modes: &[usize]) -> usize {
    let Some((last, others)) = modes.split_last() else { return 0 };
    let both = others.iter().zip(sides).map(|(modes, &side)| if side == 1 { 1 } else { 2 * modes });
    last * both.product::<usize>()
}

/// Cosine and sine of `2 pi k n / length`. The product is first reduced modulo the length, so that large products lose
/// no accuracy.
fn angle(k: i64, n: usize, length: usize) -> (f64, f64) {
    let turns = (k * n as i64).rem_euclid(length as i64) as f64 / length as f64;
    ((TAU * turns).cos(), (TAU * turns).sin())
}

/// Frequencies kept along an axis before the last: `0 .. modes`, then `-modes .. 0`.
fn signed_frequencies(modes: usize) -> Vec<i64> {
    let modes = modes as i64;
    (0..modes).chain(-modes..0).collect()
}

/// `[(part, k), n]`: transforms real values along the width to coefficients.
fn width_forward(width: usize, modes: usize) -> Vec<f64> {
    let row = |k: usize, part: usize| {
        (0..width).map(move |n| {
            let (cos, sin) = angle(k as i64, n, width);
            [cos, -sin][part]
        })
    };
    (0..2).flat_map(|part| (0..modes).flat_map(move |k| row(k, part))).collect()
}

/// `[(part', k), (n, part)]`: transforms complex values along an axis before the last to coefficients.
fn complex_forward(length: usize, modes: usize) -> Vec<f64> {
    let mut matrix = Vec::new();
    for to in 0..2 {
        for &k in &signed_frequencies(modes) {
            for n in 0..length {
                let (cos, sin) = angle(k, n, length);
                matrix.extend([[cos, sin], [-sin, cos]][to]);
            }
        }
    }
    matrix
}

/// `[(n, part'), (part, k)]`: transforms coefficients to complex values along an axis before the last.
fn complex_inverse(length: usize, modes: usize) -> Vec<f64> {
    let mut matrix = Vec::new();
    for n in 0..length {
        for to in 0..2 {
            for from in 0..2 {
                matrix.extend(signed_frequencies(modes).into_iter().map(|k| {
                    let (cos, sin) = angle(k, n, length);
                    [[cos, -sin], [sin, cos]][to][from]
                }));
            }
        }
    }
    matrix
}

/// `[n, (part, k, column part)]`: transforms the four products of coefficient and weight to real values along the
/// width, for fields of `points` points.
fn width_inverse(points: usize, width: usize, modes: usize) -> Vec<f64> {
    let mut matrix = Vec::new();
    for n in 0..width {
        for part in 0..2 {
            for k in 0..modes {
                // Every frequency also represents its negative, except for zero and the highest one of an even width.
                let single = k == 0 || 2 * k == width;
                let share = if single { 1.0 } else { 2.0 } / points as f64;
                let (cos, sin) = angle(k as i64, n, width);
                matrix.extend([[cos, -sin], [-sin, -cos]][part].map(|value| share * value));
            }
        }
    }
    matrix
}

impl Graph {
    /// Multiplies the lowest Fourier coefficients of fields `[batch, axes..., channels]` by complex matrices and drops the
    /// others; the result is `[batch, axes..., outputs]`.
    ///
    /// `modes` has an entry for each axis. The frequencies kept are `0 .. modes` along the last axis, and `0 .. modes`
    /// and `-modes .. 0`, in this order, along each other axis that is longer than 1. `weight` is `[spectral_modes,
    /// channels, 2 * outputs]`: real parts, then imaginary parts. Two of its numbers count as one complex parameter.
    ///
    /// # Errors
    /// If the shapes do not fit or the field has fewer modes.
    pub fn spectral(&mut self, x: Node, weight: Node, modes: &[usize]) -> Result<Node> {
        let shape = self.shape(x).clone();
        let field = match *shape.axes() {
            [batch, ref sides @ .., channels]
                if !sides.is_empty() && sides.len() == modes.len() && !sides.contains(&0) =>
            {
                Transform { batch, sides: sides.to_vec(), modes: modes.to_vec(), channels }
            }
            _ => {
                let needed = format!("[batch, {} axes, channels]", modes.len());
                return Err(EngineError::bad_shape("spectral", &shape, needed));
            }
        };
        if !field.fits() {
            let problem = format!("{modes:?} modes do not fit a field of {:?} points", field.sides);
            return Err(EngineError::bad_attribute("spectral", problem));
        }
        let (count, c) = (spectral_modes(&field.sides, modes), field.channels);
        let outputs = match *self.shape(weight).axes() {
            [m, ci, parts] if m == count && ci == c && parts % 2 == 0 => parts / 2,
            _ => {
                let needed = format!("the weight must have shape [{count}, {c}, 2 * outputs]");
                return Err(EngineError::shape_mismatch("spectral", &shape, self.shape(weight), needed));
            }
        };
        let coefficients = field.coefficients(self, x)?;
        let products = self.per_mode(coefficients, weight, [field.batch, count, c, 2 * outputs])?;
        Transform { channels: outputs, ..field }.fields(self, products)
    }

    /// One product for each mode, over rows `(batch, part)`: `[batch, (part, mode), channels]` to
    /// `[batch, (part, mode), (column part, outputs)]`.
    fn per_mode(&mut self, x: Node, weight: Node, [b, count, c, parts]: [usize; 4]) -> Result<Node> {
        let interleaved = |width: usize| Operand { batch: [width, 0], row: count * width, column: 1 };
        let operands = [interleaved(c), Operand::dense(c * parts, parts), interleaved(parts)];
        let shape = Shape::from([b, 2 * count, parts]);
        self.strided_product([count, 1], [2 * b, c, parts], operands, shape, [x, weight])
    }
}

/// The transform of fields `[batch, sides..., channels]` and its inverse, one product for each axis.
struct Transform {
    batch: usize,
    sides: Vec<usize>,
    modes: Vec<usize>,
    channels: usize,
}

impl Transform {
    /// The last side and its modes.
    fn last(&self) -> (usize, usize) {
        (self.sides[self.sides.len() - 1], self.modes[self.modes.len() - 1])
    }

    /// The other axes that are longer than 1: the fields before the axis, its side and modes, and the coefficients of the
    /// axes between it and the last.
    fn others(&self) -> Vec<[usize; 4]> {
        let last = self.sides.len() - 1;
        let own = |axis: usize| {
            let before = self.batch * self.sides[..axis].iter().product::<usize>();
            let between = spectral_modes(&self.sides[axis + 1..], &self.modes[axis + 1..]) / self.last().1;
            [before, self.sides[axis], self.modes[axis], between]
        };
        (0..last).map(own).filter(|[_, side, ..]| *side > 1).collect()
    }

    fn fits(&self) -> bool {
        let (width, columns) = self.last();
        let fits = |&[_, side, modes, _]: &[usize; 4]| modes > 0 && 2 * modes <= side;
        columns > 0 && columns <= width / 2 + 1 && self.others().iter().all(fits)
    }

    /// Fields to coefficients `[batch, (part, mode), channels]`.
    fn coefficients(&self, graph: &mut Graph, x: Node) -> Result<Node> {
        let ((w, columns), c) = (self.last(), self.channels);
        let lines = self.batch * self.sides[..self.sides.len() - 1].iter().product::<usize>();
        let matrix = graph.constant([2 * columns, w], width_forward(w, columns))?;
        let x = graph.reshape(x, [lines, w, c])?;
        let mut found = graph.matmul(matrix, x, false, false)?;
        for [before, side, modes, between] in self.others().into_iter().rev() {
            let matrix = graph.constant([4 * modes, 2 * side], complex_forward(side, modes))?;
            let lines = graph.reshape(found, [before, 2 * side, between * columns * c])?;
            found = graph.matmul(matrix, lines, false, false)?;
        }
        graph.reshape(found, [self.batch, 2 * spectral_modes(&self.sides, &self.modes), c])
    }

    /// Products of coefficients and weights, with two column parts, to fields.
    fn fields(&self, graph: &mut Graph, x: Node) -> Result<Node> {
        let ((w, columns), c, mut found) = (self.last(), self.channels, x);
        for [before, side, modes, between] in self.others() {
            let matrix = graph.constant([2 * side, 4 * modes], complex_inverse(side, modes))?;
            let lines = graph.reshape(found, [before, 4 * modes, between * columns * 2 * c])?;
            found = graph.matmul(matrix, lines, false, false)?;
        }
        let lines = self.batch * self.sides[..self.sides.len() - 1].iter().product::<usize>();
        let x = graph.reshape(found, [lines, 4 * columns, c])?;
        let points = self.sides.iter().product();
        let matrix = graph.constant([w, 4 * columns], width_inverse(points, w, columns))?;
        let field = graph.matmul(matrix, x, false, false)?;
        let mut shape = vec![self.batch];
        shape.extend(&self.sides);
        shape.push(c);
        graph.reshape(field, shape)
    }
}
