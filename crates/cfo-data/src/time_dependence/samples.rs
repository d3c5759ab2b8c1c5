//! Velocities at knots, and the quantities on which they may depend.

use cfo_numerics::{Grid, Interpolation, Path, Philox, Segment, Spline};

use super::ridge::SampleColumns;
use crate::DataError;
use crate::sampling::spread;
use crate::store::TrajectoryFile;

const MOST_TRAJECTORIES: usize = 64;

/// Approximate number of velocities compared.
const SAMPLES: usize = 3000;

const POINTS: usize = 8;

/// Maximum number of values read, so that the cost does not grow with the file.
const MOST_VALUES: usize = 1 << 26;

/// Number of snapshots on either side of a knot for a smoothed velocity.
const SMOOTH_REACH: usize = 4;

/// Variance relative to the inside below which edges count as fixed.
const FIXED: f64 = 1e-4;

/// Velocities and the quantities on which they may depend, by column, with mean 0 and deviation 1.
#[derive(Default)]
pub(super) struct VelocitySamples {
    pub time: Vec<f64>,
    /// The fold of each sample. Folds contain whole trajectories, or parts of a single one.
    pub fold: Vec<bool>,
    /// State, its differences in space, and the trajectory's parameters and controls.
    pub inputs: SampleColumns,
    /// Functions of the position.
    pub places: SampleColumns,
    pub velocity: SampleColumns,
    /// Typical time between snapshots.
    pub interval: f64,
}

impl VelocitySamples {
    pub fn len(&self) -> usize {
        self.time.len()
    }

    /// First time and span.
    pub fn range(&self) -> (f64, f64) {
        let first = self.time.iter().copied().fold(f64::INFINITY, f64::min);
        let last = self.time.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        (first, (last - first).max(f64::MIN_POSITIVE))
    }

    /// Reads samples of the inside and, if an axis has edges that change, of these.
    pub fn read(
        file: &TrajectoryFile,
        trajectories: &[usize],
        smooth: bool,
        controls: Option<Interpolation>,
    ) -> Result<Vec<Self>, DataError> {
        let description = file.description();
        let shape = description.shape;
        let grid = Surroundings { grid: shape.grid, periodic: &description.periodic };
        let chosen: Vec<usize> =
            spread(trajectories.len(), MOST_TRAJECTORIES).into_iter().map(|i| trajectories[i]).collect();
        let points = if shape.axes() == 0 { 1 } else { POINTS };
        let window = 2 * SMOOTH_REACH + 1;
        let affordable = MOST_VALUES / (window * shape.len().max(1));
        let snapshots = (SAMPLES / points).min(affordable.max(32));
        let each = snapshots.div_ceil(chosen.len().max(1)).max(1);
        let mut groups = [Self::default(), Self::default()];
        let mut random = Philox::new(1, 0);
        for (order, &trajectory) in chosen.iter().enumerate() {
            let times = file.times(trajectory)?;
            let inputs = file.inputs(trajectory)?;
            let statics: Option<Vec<f64>> =
                inputs.statics.as_ref().map(|own| own.iter().map(|&value| f64::from(value)).collect());
            let signal = controls
                .zip(inputs.controls.as_ref())
                .map(|(interpolation, own)| own.signal(interpolation, |time| time, |_, value| value));
            let margin = Window::margin(times.len(), smooth);
            for knot in spread(times.len() - 2 * margin, each).into_iter().map(|knot| margin + knot) {
                let Some(window) = Window::read(file, trajectory, &times, knot, smooth)? else { continue };
                let mut parameters = inputs.parameters.clone();
                parameters.extend(signal.iter().flat_map(|signal| signal.at(times[knot])));
                let fold = if chosen.len() > 1 { order % 2 == 0 } else { (8 * knot / times.len()) % 2 == 0 };
                for (group, samples) in groups.iter_mut().enumerate() {
                    for _ in 0..points {
                        let Some(point) = grid.draw(&mut random, group == 1) else { break };
                        let fixed = statics.iter().flat_map(|own| grid.inputs(own, &point));
                        let own: Vec<f64> = parameters.iter().copied().chain(fixed).collect();
                        samples.push((times[knot], fold), &grid, point, &window, &own);
                    }
                }
            }
            let (first, last) = (times[0], times[times.len() - 1]);
            groups[0].interval += (last - first) / (times.len().max(2) - 1) as f64 / chosen.len() as f64;
        }
        groups[1].interval = groups[0].interval;
        let moves = |samples: &Self| samples.velocity.iter().map(|column| variance(column)).sum::<f64>();
        let edges_move = groups[1].len() > 0 && moves(&groups[1]) > FIXED * moves(&groups[0]);
        let kept = groups.into_iter().take(if edges_move { 2 } else { 1 });
        Ok(kept.filter(|samples| samples.len() > 0).map(Self::standardized).collect())
    }

    fn push(
        &mut self,
        (time, fold): (f64, bool),
        grid: &Surroundings<'_>,
        point: Vec<usize>,
        window: &Window,
        parameters: &[f64],
    ) {
        self.time.push(time);
        self.fold.push(fold);
        let inputs = grid.inputs(&window.state, &point).into_iter().chain(parameters.iter().copied());
        append(&mut self.inputs, inputs);
        append(&mut self.places, grid.position(&point));
        let channels = window.state.len() / grid.grid.points();
        let at = grid.grid.point(&point) * channels;
        append(&mut self.velocity, window.velocity[at..at + channels].iter().copied());
    }

    fn standardized(mut self) -> Self {
        for column in self.inputs.iter_mut().chain(&mut self.velocity) {
            let mean = column.iter().sum::<f64>() / column.len() as f64;
            let deviation = variance(column).sqrt();
            let scale = if deviation > 0.0 { 1.0 / deviation } else { 0.0 };
            column.iter_mut().for_each(|x| *x = (*x - mean) * scale);
        }
        self
    }
}

fn append(columns: &mut SampleColumns, values: impl Iterator<Item = f64>) {
    for (i, value) in values.enumerate() {
        if i == columns.len() {
            columns.push(Vec::new());
        }
        columns[i].push(value);
    }
}

fn variance(column: &[f64]) -> f64 {
    let mean = column.iter().sum::<f64>() / column.len().max(1) as f64;
    column.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / column.len().max(1) as f64
}

struct Window {
    state: Vec<f64>,
    velocity: Vec<f64>,
}

impl Window {
    /// Snapshots at either end that are not used, because estimates there are one-sided; 0 for short trajectories.
    fn margin(frames: usize, smooth: bool) -> usize {
        let reach = if smooth { SMOOTH_REACH } else { 2 };
        if frames > 2 * reach { reach } else { 0 }
    }

    fn read(
        file: &TrajectoryFile,
        trajectory: usize,
        times: &[f64],
        knot: usize,
        smooth: bool,
    ) -> Result<Option<Self>, DataError> {
        let (first, last) = match Self::margin(times.len(), smooth) {
            0 => (0, times.len() - 1),
            reach => (knot - reach, knot + reach),
        };
        if last < first + 1 {
            return Ok(None);
        }
        let frames: Vec<usize> = (first..=last).collect();
        let values = file.frames(trajectory, &frames)?;
        let size = file.description().shape.len();
        let weights = match smooth {
            true => line_weights(&times[first..=last], knot - first),
            false => knot_weights(&times[first..=last], knot - first),
        };
        let sum = |part: usize, position: usize| -> f64 {
            let frames = values.iter().skip(position).step_by(size);
            frames.zip(&weights).map(|(&value, weights)| f64::from(value) * weights[part]).sum()
        };
        let [state, velocity] = [0, 1].map(|part| (0..size).map(|position| sum(part, position)).collect());
        Ok(Some(Self { state, velocity }))
    }
}

/// Weights of the snapshots in the state and in the velocity at a knot: the snapshot itself, and a five-point stencil.
fn knot_weights(times: &[f64], knot: usize) -> Vec<[f64; 2]> {
    let path = Path { spline: Spline::Quintic, stencil: 5 };
    let index = knot.min(times.len() - 2);
    let length = times[index + 1] - times[index];
    let found = path.weights_in(times, Segment { index, tau: (times[knot] - times[index]) / length, length });
    let mut weights = vec![[0.0; 2]; times.len()];
    for ((place, &value), &velocity) in found.range().zip(found.value()).zip(found.velocity()) {
        weights[place] = [value, velocity];
    }
    weights
}

/// Weights of a least-squares fit: a quadratic through all snapshots of the window.
fn line_weights(times: &[f64], knot: usize) -> Vec<[f64; 2]> {
    let scale = (times[times.len() - 1] - times[0]).max(f64::MIN_POSITIVE);
    let powers: Vec<[f64; 3]> = times
        .iter()
        .map(|t| {
            let x = (t - times[knot]) / scale;
            [1.0, x, x * x]
        })
        .collect();
    let moment = |k: usize| powers.iter().map(|p| p[1].powi(k as i32)).sum::<f64>();
    let m: Vec<f64> = (0..5).map(moment).collect();
    let matrix = [[m[0], m[1], m[2]], [m[1], m[2], m[3]], [m[2], m[3], m[4]]];
    let minor = |r: usize, c: usize| {
        let (a, b) = ((r + 1) % 3, (r + 2) % 3);
        let (d, e) = ((c + 1) % 3, (c + 2) % 3);
        matrix[a][d] * matrix[b][e] - matrix[a][e] * matrix[b][d]
    };
    let determinant: f64 = (0..3).map(|c| matrix[0][c] * minor(0, c)).sum();
    // The rows of the inverse for the value and the slope at the knot; the inverse is symmetric.
    let row = |r: usize, p: &[f64; 3]| (0..3).map(|c| minor(r, c) * p[c]).sum::<f64>() / determinant;
    powers.iter().map(|p| [row(0, p), row(1, p) / scale]).collect()
}

/// The points of a field and their neighbours.
struct Surroundings<'a> {
    grid: Grid,
    periodic: &'a [bool],
}

impl Surroundings<'_> {
    /// A random point inside or on an edge; `None` if there is no such point.
    fn draw(&self, random: &mut Philox, on_edge: bool) -> Option<Vec<usize>> {
        let sides = self.grid.sides();
        let inside = |(&side, &periodic): (&usize, &bool)| match !periodic && side > 6 {
            true => 2 + random.below(side as u64 - 4) as usize,
            false => random.below(side as u64) as usize,
        };
        let mut point: Vec<usize> = sides.iter().zip(self.periodic).map(inside).collect();
        if on_edge {
            let edges: Vec<usize> = (0..sides.len()).filter(|&axis| !self.periodic[axis]).collect();
            let axis = *edges.get(random.below(edges.len().max(1) as u64) as usize)?;
            point[axis] = if random.below(2) == 0 { 0 } else { sides[axis] - 1 };
        }
        Some(point)
    }

    /// The state at a point and its differences along each axis: of fourth order on a line, of second order on others.
    fn inputs(&self, state: &[f64], point: &[usize]) -> Vec<f64> {
        let channels = state.len() / self.grid.points();
        let here = self.grid.point(point);
        let at = |axis: usize, offset: i64| {
            let mut place = point.to_vec();
            let (length, moved) = (self.grid.sides()[axis] as i64, point[axis] as i64 + offset);
            place[axis] = match self.periodic[axis] {
                true => moved.rem_euclid(length) as usize,
                false => moved.clamp(0, length - 1) as usize,
            };
            self.grid.point(&place)
        };
        let mut inputs = Vec::new();
        for channel in 0..channels {
            let value = |point: usize| state[point * channels + channel];
            let here = value(here);
            inputs.push(here);
            for axis in 0..self.grid.axes() {
                let u = |offset: i64| value(at(axis, offset));
                inputs.push(u(1) - u(-1));
                inputs.push(u(1) - 2.0 * here + u(-1));
                if self.grid.axes() == 1 {
                    inputs.push(u(2) - 2.0 * u(1) + 2.0 * u(-1) - u(-2));
                    inputs.push(u(2) - 4.0 * u(1) + 6.0 * here - 4.0 * u(-1) + u(-2));
                }
            }
        }
        inputs
    }

    /// The position along each axis, and waves of it.
    fn position(&self, point: &[usize]) -> impl Iterator<Item = f64> {
        let axes =
            point.iter().zip(self.grid.sides()).map(|(&index, &side)| index as f64 / side.max(1) as f64);
        axes.flat_map(|x| {
            let (sin, cos) = (std::f64::consts::TAU * x).sin_cos();
            [x, sin, cos]
        })
    }
}
