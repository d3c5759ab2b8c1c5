//! The squared spectrum of a field.

use std::fmt;
use std::sync::Arc;

use realfft::num_complex::Complex;
use realfft::{RealFftPlanner, RealToComplex};
use rustfft::{Fft, FftPlanner};

use crate::Grid;

/// Fourier transforms `F_k = sum_x f_x exp(-2 pi i k x / n)` of fields on one grid, with their workspace.
///
/// The squared spectrum is `|F_k|^2` for `k` up to `n / 2` on a line. On other grids it is the sum of `|F|^2` over shells
/// `floor(|k|) = s` of the non-negative frequencies below half of each side.
#[derive(Clone)]
pub(super) struct Spectrum {
    grid: Grid,
    along_width: Arc<dyn RealToComplex<f64>>,
    along_height: Arc<dyn Fft<f64>>,
    along_depth: Arc<dyn Fft<f64>>,
    row: Vec<f64>,
    transformed: Vec<Complex<f64>>,
    scratch: Vec<Complex<f64>>,
    /// Transforms of the rows at the kept frequencies, `[frequency, depth, height]`.
    columns: Vec<Complex<f64>>,
    /// A line of points along the depth.
    line: Vec<Complex<f64>>,
}

impl fmt::Debug for Spectrum {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Spectrum").field("grid", &self.grid).finish_non_exhaustive()
    }
}

impl Spectrum {
    /// Plans the transforms of fields on a grid with space axes.
    pub fn new(grid: &Grid) -> Self {
        let [depth, height, width] = grid.padded();
        let along_width = RealFftPlanner::new().plan_fft_forward(width);
        let [along_height, along_depth] =
            [height, depth].map(|side| FftPlanner::new().plan_fft_forward(side));
        let across = along_height.get_inplace_scratch_len().max(along_depth.get_inplace_scratch_len());
        let scratch = along_width.get_scratch_len().max(across);
        let kept = if grid.axes() > 1 { width / 2 } else { 0 };
        Self {
            grid: *grid,
            row: along_width.make_input_vec(),
            transformed: along_width.make_output_vec(),
            scratch: vec![Complex::default(); scratch],
            columns: vec![Complex::default(); kept * depth * height],
            line: vec![Complex::default(); depth],
            along_width,
            along_height,
            along_depth,
        }
    }

    /// Adds the squared spectrum of a field in row-major order to `sums`; frequencies beyond its length are dropped.
    pub fn add(&mut self, field: &[f64], sums: &mut [f64]) {
        let rows = self.grid.rows();
        for (y, row) in field.chunks_exact(self.row.len()).enumerate() {
            self.row.copy_from_slice(row);
            let scratch = &mut self.scratch[..self.along_width.get_scratch_len()];
            self.along_width
                .process_with_scratch(&mut self.row, &mut self.transformed, scratch)
                .expect("the lengths are those of the plan");
            if self.columns.is_empty() {
                sums.iter_mut().zip(&self.transformed).for_each(|(sum, value)| *sum += value.norm_sqr());
            }
            for (column, &value) in self.columns.chunks_exact_mut(rows).zip(&self.transformed) {
                column[y] = value;
            }
        }
        let [depth, height, _] = self.grid.padded();
        let kept = if self.grid.axes() > 2 { depth / 2 } else { 1 };
        for (i, column) in self.columns.chunks_exact_mut(rows).enumerate() {
            self.along_height.process_with_scratch(column, &mut self.scratch);
            for j in 0..height / 2 {
                self.line
                    .iter_mut()
                    .zip(column.iter().skip(j).step_by(height))
                    .for_each(|(at, &value)| *at = value);
                self.along_depth.process_with_scratch(&mut self.line, &mut self.scratch);
                for (k, value) in self.line.iter().take(kept).enumerate() {
                    let shell = ((i * i + j * j + k * k) as f64).sqrt() as usize;
                    if let Some(sum) = sums.get_mut(shell) {
                        *sum += value.norm_sqr();
                    }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A wave of whole periods has its energy at its own frequency: `(n / 2)^2`, or `(n m / 2)^2` at one place of the
    /// quadrant.
    #[test]
    fn waves_stand_at_their_frequencies() {
        for width in [12, 15, 64] {
            let wave: Vec<f64> =
                (0..width).map(|x| (std::f64::consts::TAU * 3.0 * x as f64 / width as f64).cos()).collect();
            let mut sums = vec![0.0; width / 2 + 1];
            Spectrum::new(&Grid::line(width)).add(&wave, &mut sums);
            for (k, &sum) in sums.iter().enumerate() {
                let expected = if k == 3 { (width as f64 / 2.0).powi(2) } else { 0.0 };
                assert!((sum - expected).abs() < 1e-10 * (width * width) as f64, "{width} {k}: {sum}");
            }
            let height = 16;
            let turn = |y: usize| std::f64::consts::TAU * 4.0 * y as f64 / height as f64;
            let plane: Vec<f64> = (0..height)
                .flat_map(|y| {
                    (0..width)
                        .map(move |x| (std::f64::consts::TAU * 3.0 * x as f64 / width as f64 + turn(y)).cos())
                })
                .collect();
            let mut sums = vec![0.0; height.min(width) / 2];
            Spectrum::new(&Grid::plane(height, width)).add(&plane, &mut sums);
            for (shell, &sum) in sums.iter().enumerate() {
                let expected = if shell == 5 { (width as f64 * height as f64 / 2.0).powi(2) } else { 0.0 };
                assert!(
                    (sum - expected).abs() < 1e-10 * (width * height).pow(2) as f64,
                    "{width} {shell}: {sum}"
                );
            }
        }
    }
}
