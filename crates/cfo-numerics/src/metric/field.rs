//! Errors of fields on a grid: PDEBench's metrics and The Well's.

use serde::{Deserialize, Serialize};

use super::spectrum::Spectrum;
use super::{lanes, ratio};
use crate::Grid;

/// First frequency of the middle band of fRMSE.
const LOW_BAND_END: usize = 4;
/// First frequency of the high band of fRMSE.
const MIDDLE_BAND_END: usize = 12;
const VARIANCE_FLOOR: f64 = 1e-7;

/// Entries of a field's spectrum: frequencies `0..=width/2` on a line, shells below half the shortest side on others.
fn shells(grid: &Grid) -> usize {
    match *grid.sides() {
        [] => 0,
        [points] => points / 2 + 1,
        ref sides => sides.iter().min().map_or(0, |side| side / 2),
    }
}

/// Accumulates the errors of predicted fields over trajectories, which may differ in length.
///
/// With `e = p - q` (prediction minus truth) on `n` points and `mean_b` the mean over trajectories, for each time and
/// channel:
///
/// ```text
/// RMSE   mean_b sqrt(mean_x e^2)
/// nRMSE  mean_b sqrt(mean_x e^2) / sqrt(mean_x q^2)
/// cRMSE  sqrt(mean_b (sum_x p - sum_x q)^2) / n
/// max    max_b max_x |e|
/// bRMSE  mean_b sqrt(mean e^2 over the boundary)            1D: both ends; 2D: four edges, corners counted twice
/// fRMSE  mean over a band of f(k), f(k) = 1/n sqrt(mean_b |F_k|^2)
///        F the unnormalised DFT of e; 2D: |F|^2 summed over shells floor(|k|) = s of the non-negative quadrant
/// VRMSE  mean_b sqrt(mean_x e^2 / (var_x q + 1e-7))          The Well's, with the unbiased variance of its code
/// ```
///
/// PDEBench's own driver divides by one batch too few and leaves out context frames. Here every pushed frame counts
/// once; context frames are left out by not pushing them.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct FieldErrors {
    grid: Grid,
    channels: usize,
    /// `[time, channel]`.
    cells: Vec<Cell>,
    /// Created with the first trajectory.
    #[serde(skip)]
    workspace: Option<Workspace>,
}

/// Sums over trajectories at one time, of one channel.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
struct Cell {
    count: f64,
    rmse: f64,
    nrmse: f64,
    squared_sum_error: f64,
    maximum: f64,
    brmse: f64,
    vrmse: f64,
    spectrum: Vec<f64>,
}

/// The metrics of a test set, each the mean over times and channels; see [`FieldErrors`] for the definitions.
#[derive(Clone, Debug, PartialEq)]
pub struct FieldReport {
    /// Root mean square error.
    pub rmse: f64,
    /// Root mean square error relative to the truth's root mean square.
    pub nrmse: f64,
    /// Root mean square error of the conserved quantity, the sum over space.
    pub crmse: f64,
    /// Largest absolute error (its mean over times and channels, as PDEBench reports it).
    pub maximum: f64,
    /// Root mean square error on the boundary; `None` without space axes.
    pub brmse: Option<f64>,
    /// Error in Fourier space at frequencies 0-3, 4-11, 12 and above; NaN if not resolved, `None` without space axes.
    pub frmse: Option<[f64; 3]>,
    /// Root mean square error relative to the truth's deviation in space; `None` where a frame has one point.
    pub vrmse: Option<f64>,
}

impl FieldErrors {
    /// Creates an empty collection for frames of `channels` values at each point of a grid, a domain of volume 1.
    pub fn new(grid: Grid, channels: usize) -> Self {
        Self { grid, channels, cells: Vec::new(), workspace: None }
    }

    /// Adds a trajectory, frame after frame, each `[points, channels]`.
    ///
    /// # Panics
    /// If the lengths differ or are not whole frames.
    pub fn push<P: Copy + Into<f64>, T: Copy + Into<f64>>(&mut self, prediction: &[P], truth: &[T]) {
        super::assert_same_length(prediction, truth);
        let channels = self.channels;
        let size = self.grid.points() * channels;
        assert!(truth.len().is_multiple_of(size), "{} numbers are not whole frames of {size}", truth.len());
        let times = truth.len() / size;
        if self.cells.len() < times * channels {
            let empty = Cell { spectrum: vec![0.0; shells(&self.grid)], ..Cell::default() };
            self.cells.resize(times * channels, empty);
        }
        let workspace = self.workspace.get_or_insert_with(|| Workspace::new(&self.grid));
        for (time, (p, q)) in prediction.chunks_exact(size).zip(truth.chunks_exact(size)).enumerate() {
            for channel in 0..channels {
                let pairs = p.chunks_exact(channels).zip(q.chunks_exact(channels));
                workspace.load(pairs.map(|(p, q)| (p[channel].into(), q[channel].into())));
                workspace.add_to(&mut self.cells[time * channels + channel], &self.grid);
            }
        }
    }

    /// Adds the sums of another collection, so that parts of a test set can be evaluated in parallel.
    ///
    /// # Panics
    /// If the grids differ.
    pub fn merge(&mut self, other: Self) {
        assert_eq!(
            (self.grid, self.channels),
            (other.grid, other.channels),
            "collections of different frames"
        );
        if self.cells.len() < other.cells.len() {
            let shorter = std::mem::replace(self, other);
            return self.merge(shorter);
        }
        for (mine, theirs) in self.cells.iter_mut().zip(other.cells) {
            mine.count += theirs.count;
            mine.rmse += theirs.rmse;
            mine.nrmse += theirs.nrmse;
            mine.squared_sum_error += theirs.squared_sum_error;
            mine.maximum = larger(mine.maximum, theirs.maximum);
            mine.brmse += theirs.brmse;
            mine.vrmse += theirs.vrmse;
            for (mine, theirs) in mine.spectrum.iter_mut().zip(theirs.spectrum) {
                *mine += theirs;
            }
        }
    }

    /// The metrics over all times and channels pushed so far; NaN if nothing was.
    pub fn report(&self) -> FieldReport {
        self.summarise(&self.cells)
    }

    /// The metrics of each time, averaged over channels.
    pub fn per_time(&self) -> Vec<FieldReport> {
        self.cells.chunks(self.channels).map(|cells| self.summarise(cells)).collect()
    }

    fn summarise(&self, cells: &[Cell]) -> FieldReport {
        let grid = &self.grid;
        let mean = |metric: &dyn Fn(&Cell) -> f64| cells.iter().map(metric).sum::<f64>() / cells.len() as f64;
        let points = grid.points() as f64;
        let spacing = 1.0 / points;
        let band = |from: usize, to: usize| {
            mean(&|cell| {
                let band = &cell.spectrum[from.min(cell.spectrum.len())..to.min(cell.spectrum.len())];
                band.iter().map(|square| (square / cell.count).sqrt() * spacing).sum::<f64>()
                    / band.len() as f64
            })
        };
        let space = grid.axes() > 0;
        FieldReport {
            rmse: mean(&|cell| cell.rmse / cell.count),
            nrmse: mean(&|cell| cell.nrmse / cell.count),
            crmse: mean(&|cell| (cell.squared_sum_error / cell.count).sqrt() / points),
            maximum: mean(&|cell| cell.maximum),
            brmse: space.then(|| mean(&|cell| cell.brmse / cell.count)),
            frmse: space.then(|| {
                [
                    band(0, LOW_BAND_END),
                    band(LOW_BAND_END, MIDDLE_BAND_END),
                    band(MIDDLE_BAND_END, usize::MAX),
                ]
            }),
            vrmse: (grid.points() > 1).then(|| mean(&|cell| cell.vrmse / cell.count)),
        }
    }
}

/// The larger of two numbers; unlike `f64::max` it keeps a NaN.
fn larger(a: f64, b: f64) -> f64 {
    if b <= a || a.is_nan() { a } else { b }
}

/// One frame of one channel.
#[derive(Clone, Debug)]
struct Workspace {
    error: Vec<f64>,
    truth: Vec<f64>,
    /// Spectrum of the error; `None` without space axes.
    spectrum: Option<Spectrum>,
}

impl Workspace {
    fn new(grid: &Grid) -> Self {
        Self {
            error: vec![0.0; grid.points()],
            truth: vec![0.0; grid.points()],
            spectrum: (grid.axes() > 0).then(|| Spectrum::new(grid)),
        }
    }

    fn load(&mut self, pairs: impl Iterator<Item = (f64, f64)>) {
        for ((error, truth), (p, q)) in self.error.iter_mut().zip(&mut self.truth).zip(pairs) {
            (*error, *truth) = (p - q, q);
        }
    }

    fn add_to(&mut self, cell: &mut Cell, grid: &Grid) {
        let points = grid.points() as f64;
        let [errors, error_squares, truths, truth_squares] =
            lanes::sums(&self.error, &self.truth, |error, q| [error, error * error, q, q * q]);
        let square = error_squares / points;
        cell.count += 1.0;
        cell.rmse += square.sqrt();
        cell.nrmse += ratio(square.sqrt(), (truth_squares / points).sqrt());
        cell.squared_sum_error += errors.powi(2);
        let maximum = if square.is_nan() { f64::NAN } else { lanes::largest(&self.error) };
        cell.maximum = larger(cell.maximum, maximum);
        let mean = truths / points;
        let [deviations] = lanes::sums(&self.truth, &self.truth, |q, _| [(q - mean) * (q - mean)]);
        let variance = deviations / (points - 1.0);
        cell.vrmse += (square / (variance + VARIANCE_FLOOR)).sqrt();
        if let Some(spectrum) = &mut self.spectrum {
            spectrum.add(&self.error, &mut cell.spectrum);
            cell.brmse += self.boundary_square(grid).sqrt();
        }
    }

    /// Mean squared error on the boundary: both ends of each line of points along each axis.
    fn boundary_square(&self, grid: &Grid) -> f64 {
        let (mut sum, mut count, mut stride) = (0.0, 0, grid.points());
        for &side in grid.sides() {
            let block = stride;
            stride /= side;
            for first in (0..grid.points()).step_by(block).flat_map(|block| block..block + stride) {
                sum += self.error[first].powi(2) + self.error[first + block - stride].powi(2);
                count += 2;
            }
        }
        sum / f64::from(count)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_constant_error_is_seen_by_all() {
        for grid in [Grid::line(32), Grid::plane(30, 34), Grid::new(&[26, 27, 28]).unwrap()] {
            let size = grid.points() * 2;
            let truth: Vec<f32> = (0..3 * size).map(|i| (i as f32 * 0.37).sin()).collect();
            let prediction: Vec<f32> = truth.iter().map(|q| q + 0.5).collect();
            let mut errors = FieldErrors::new(grid, 2);
            errors.push(&prediction, &truth);
            let report = errors.report();
            let near = |found: f64, expected: f64| (found - expected).abs() < 1e-6;
            assert!(near(report.rmse, 0.5) && near(report.crmse, 0.5) && near(report.maximum, 0.5));
            assert!(near(report.brmse.unwrap(), 0.5));
            // The whole error is in frequency 0, the mean: f(0) = 0.5, the other three of the band 0.
            let [low, middle, high] = report.frmse.unwrap();
            assert!(near(low, 0.125) && near(middle, 0.0) && near(high, 0.0));
            assert_eq!(errors.per_time().len(), 3);
        }
    }

    #[test]
    fn systems_have_no_space() {
        let mut errors = FieldErrors::new(Grid::system(), 3);
        errors.push(&[1.0, 2.0, 3.0, 1.0, 2.0, 3.0], &[1.0, 2.0, 4.0, 1.0, 2.0, 3.0]);
        let report = errors.report();
        assert!((report.rmse - 1.0 / 6.0).abs() < 1e-15 && (report.nrmse - 0.25 / 6.0).abs() < 1e-15);
        assert_eq!((report.brmse, report.frmse, report.vrmse), (None, None, None));
    }

    #[test]
    fn trajectories_may_differ_in_length() {
        let mut errors = FieldErrors::new(Grid::line(2), 1);
        errors.push(&[1.0, 1.0], &[0.0, 0.0]);
        errors.push(&[3.0, 3.0, 5.0, 5.0], &[0.0, 0.0, 0.0, 0.0]);
        let per_time: Vec<f64> = errors.per_time().iter().map(|report| report.rmse).collect();
        assert_eq!(per_time, [2.0, 5.0]);
        assert_eq!(errors.report().maximum, 4.0);
        // A grid of two points has no middle or high band.
        let bands = errors.report().frmse.unwrap();
        assert!(bands[0].is_finite() && bands[1].is_nan() && bands[2].is_nan());
    }

    #[test]
    fn merging_is_pushing() {
        let frame =
            |n: u32| -> Vec<f64> { (0..n * 64).map(|i| f64::from(i * i % 17) - f64::from(n)).collect() };
        let parts = [(frame(2), frame(2)), (frame(3), vec![1.0; 192]), (frame(1), vec![0.5; 64])];
        let mut whole = FieldErrors::new(Grid::plane(8, 8), 1);
        let mut merged = FieldErrors::new(Grid::plane(8, 8), 1);
        for (p, q) in &parts {
            whole.push(p, q);
            let mut part = FieldErrors::new(Grid::plane(8, 8), 1);
            part.push(p, q);
            merged.merge(part);
        }
        // A grid of 8 points has an empty high band, NaN, so the reports are compared as text.
        assert_eq!(format!("{:?}", whole.per_time()), format!("{:?}", merged.per_time()));
    }

    #[test]
    fn nothing_and_not_a_number() {
        assert!(FieldErrors::new(Grid::line(4), 1).report().rmse.is_nan());
        let mut errors = FieldErrors::new(Grid::line(4), 1);
        errors.push(&[f64::NAN, 0.0, 0.0, 0.0], &[1.0; 4]);
        let report = errors.report();
        assert!(report.rmse.is_nan() && report.maximum.is_nan());
    }

    #[test]
    #[should_panic(expected = "not whole frames of 4")]
    fn frames_must_be_whole() {
        FieldErrors::new(Grid::line(4), 1).push(&[0.0; 6], &[0.0; 6]);
    }
}
