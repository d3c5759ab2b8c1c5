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

/// Number of complex weights of a Fourier multiplication for each pair of channels.
///
/// `modes[1]` frequencies along the width, times `modes[0]` positive and `modes[0]` negative ones along the height for
/// fields of more than one row.
pub fn spectral_modes(height: usize, modes: [usize; 2]) -> usize {
    if height == 1 { modes[1] } else { 2 * modes[0] * modes[1] }
}

/// Cosine and sine of `2 pi k n / length`. The product is first reduced modulo the length, so that large products lose
/// no accuracy.
fn angle(k: i64, n: usize, length: usize) -> (f64, f64) {
    let turns = (k * n as i64).rem_euclid(length as i64) as f64 / length as f64;
    ((TAU * turns).cos(), (TAU * turns).sin())
}

/// Frequencies kept along the height: `0 .. modes`, then `-modes .. 0`.
fn height_frequencies(modes: usize) -> Vec<i64> {
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

/// `[(part', k), (n, part)]`: transforms complex values along the height to coefficients.
fn height_forward(height: usize, modes: usize) -> Vec<f64> {
    let mut matrix = Vec::new();
    for to in 0..2 {
        for &k in &height_frequencies(modes) {
            for n in 0..height {
                let (cos, sin) = angle(k, n, height);
                matrix.extend([[cos, sin], [-sin, cos]][to]);
            }
        }
    }
    matrix
}

/// `[(n, part'), (part, k)]`: transforms coefficients to complex values along the height.
fn height_inverse(height: usize, modes: usize) -> Vec<f64> {
    let mut matrix = Vec::new();
    for n in 0..height {
        for to in 0..2 {
            for from in 0..2 {
                matrix.extend(height_frequencies(modes).into_iter().map(|k| {
                    let (cos, sin) = angle(k, n, height);
                    [[cos, -sin], [sin, cos]][to][from]
                }));
            }
        }
    }
    matrix
}

/// `[n, (part, k, column part)]`: transforms the four products of coefficient and weight to real values along the
/// width.
fn width_inverse(height: usize, width: usize, modes: usize) -> Vec<f64> {
    let mut matrix = Vec::new();
    for n in 0..width {
        for part in 0..2 {
            for k in 0..modes {
                // Every frequency also represents its negative, except for zero and the highest one of an even width.
                let single = k == 0 || 2 * k == width;
                let share = if single { 1.0 } else { 2.0 } / (height * width) as f64;
                let (cos, sin) = angle(k as i64, n, width);
                matrix.extend([[cos, -sin], [-sin, -cos]][part].map(|value| share * value));
            }
        }
    }
    matrix
}

impl Graph {
    /// Multiplies the lowest Fourier coefficients of fields `[batch, height, width, channels]` by complex matrices and
    /// drops the others; the result is `[batch, height, width, outputs]`.
    ///
    /// The frequencies kept are `0 .. modes[1]` along the width and, in fields of more than one row, `0 .. modes[0]`
    /// and `-modes[0] .. 0` along the height, in this order. `weight` is `[spectral_modes, channels, 2 * outputs]`:
    /// real parts, then imaginary parts. Two of its numbers count as one complex parameter.
    ///
    /// # Errors
    /// If the shapes do not fit or the field has fewer modes.
    pub fn spectral(&mut self, x: Node, weight: Node, modes: [usize; 2]) -> Result<Node> {
        let shape = self.shape(x).clone();
        let [b, h, w, c] = match *shape.axes() {
            [b, h, w, c] if w > 0 && h > 0 => [b, h, w, c],
            _ => return Err(EngineError::bad_shape("spectral", &shape, "[batch, height, width, channels]")),
        };
        let [rows, columns] = modes;
        if columns == 0 || columns > w / 2 + 1 || h > 1 && (rows == 0 || 2 * rows > h) {
            let problem = format!("{modes:?} modes do not fit a field of {h} x {w} points");
            return Err(EngineError::bad_attribute("spectral", problem));
        }
        let count = spectral_modes(h, modes);
        let outputs = match *self.shape(weight).axes() {
            [m, ci, parts] if m == count && ci == c && parts % 2 == 0 => parts / 2,
            _ => {
                let needed = format!("the weight must have shape [{count}, {c}, 2 * outputs]");
                return Err(EngineError::shape_mismatch("spectral", &shape, self.shape(weight), needed));
            }
        };
        let coefficients = self.coefficients_of(x, [b, h, w, c], modes)?;
        let products = self.per_mode(coefficients, weight, [b, count, c, 2 * outputs])?;
        self.fields_of(products, [b, h, w, outputs], modes)
    }

    /// Fields to coefficients `[batch, (part, mode), channels]`.
    fn coefficients_of(
        &mut self,
        x: Node,
        [b, h, w, c]: [usize; 4],
        [rows, columns]: [usize; 2],
    ) -> Result<Node> {
        let matrix = self.constant([2 * columns, w], width_forward(w, columns))?;
        let lines = self.reshape(x, [b * h, w, c])?;
        let along_width = self.matmul(matrix, lines, false, false)?;
        if h == 1 {
            return self.reshape(along_width, [b, 2 * columns, c]);
        }
        let matrix = self.constant([4 * rows, 2 * h], height_forward(h, rows))?;
        let lines = self.reshape(along_width, [b, 2 * h, columns * c])?;
        let along_height = self.matmul(matrix, lines, false, false)?;
        self.reshape(along_height, [b, 4 * rows * columns, c])
    }

    /// One product for each mode, over rows `(batch, part)`: `[batch, (part, mode), channels]` to
    /// `[batch, (part, mode), (column part, outputs)]`.
    fn per_mode(&mut self, x: Node, weight: Node, [b, count, c, parts]: [usize; 4]) -> Result<Node> {
        let interleaved = |width: usize| Operand { batch: [width, 0], row: count * width, column: 1 };
        let operands = [interleaved(c), Operand::dense(c * parts, parts), interleaved(parts)];
        let shape = Shape::from([b, 2 * count, parts]);
        self.strided_product([count, 1], [2 * b, c, parts], operands, shape, [x, weight])
    }

    /// Products of coefficients and weights to fields.
    fn fields_of(&mut self, x: Node, [b, h, w, c]: [usize; 4], [rows, columns]: [usize; 2]) -> Result<Node> {
        let mut lines = x;
        if h > 1 {
            let matrix = self.constant([2 * h, 4 * rows], height_inverse(h, rows))?;
            let modes = self.reshape(x, [b, 4 * rows, columns * 2 * c])?;
            lines = self.matmul(matrix, modes, false, false)?;
        }
        let lines = self.reshape(lines, [b * h, 4 * columns, c])?;
        let matrix = self.constant([w, 4 * columns], width_inverse(h, w, columns))?;
        let field = self.matmul(matrix, lines, false, false)?;
        self.reshape(field, [b, h, w, c])
    }
}
