//! The Gray-Scott reaction of two substances in a periodic box with one to three axes.

use std::f64::consts::TAU;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use cfo_numerics::{Grid, Philox};
use rustfft::num_complex::Complex;
use rustfft::{Fft, FftPlanner};
use serde::{Deserialize, Serialize};

use super::spectral::EtdWeights;
use super::{Equation, SimulationError, options};
use crate::{Description, FieldShape, Trajectory};

/// Two substances in the periodic unit box:
///
/// ```text
/// u_t = substrate_diffusion Lap u - u v^2 + feed (1 - u)
/// v_t = catalyst_diffusion  Lap v + u v^2 - (feed + kill) v
/// ```
///
/// The initial state has `v = b/(2 + 2 b)` and `u = 1 - v` for a sum b of periodic bumps at random places. The method is
/// a Fourier spectral one on the stored grid with steps of fourth order (ETDRK4). Stored as `[(z, (y,)) x, channel]`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct GrayScott {
    /// Number of space axes, 1 to 3; 3 by default.
    pub dimensions: usize,
    /// Number of points along each axis; 32 by default.
    pub grid: usize,
    /// Number of stored times, equally spaced with both ends included; 21 by default.
    pub frames: usize,
    /// Last time; 200 by default.
    pub horizon: f64,
    /// Rate at which substrate is added; 0.04 by default.
    pub feed: f64,
    /// Rate at which catalyst is removed, beside `feed`; 0.06 by default.
    pub kill: f64,
    /// Diffusion coefficient of the substrate u; 5e-5 by default.
    pub substrate_diffusion: f64,
    /// Diffusion coefficient of the catalyst v; 2.5e-5 by default.
    pub catalyst_diffusion: f64,
    /// Longest internal time step; 1 by default.
    pub step: f64,
}

impl Default for GrayScott {
    fn default() -> Self {
        Self {
            dimensions: 3,
            grid: 32,
            frames: 21,
            horizon: 200.0,
            feed: 0.04,
            kill: 0.06,
            substrate_diffusion: 5e-5,
            catalyst_diffusion: 2.5e-5,
            step: 1.0,
        }
    }
}

/// Number of bumps of an initial state along each axis.
const BUMPS: usize = 2;
/// Smallest and largest radius of a bump.
const RADII: [f64; 2] = [0.08, 0.14];
/// Largest number of points along an axis.
const MAX_GRID: usize = 1 << 13;
/// Limit on internal steps of a trajectory; more would take days.
const MAX_STEPS: f64 = 1e7;

impl Equation for GrayScott {
    fn name(&self) -> &'static str {
        "gray-scott"
    }

    fn check(&self) -> Result<(), SimulationError> {
        options::between("dimensions", self.dimensions, 1, Grid::MOST_AXES)?;
        options::between("grid", self.grid, 4, MAX_GRID)?;
        options::not_negative("feed", self.feed)?;
        options::not_negative("kill", self.kill)?;
        options::not_negative("substrate_diffusion", self.substrate_diffusion)?;
        options::not_negative("catalyst_diffusion", self.catalyst_diffusion)?;
        options::positive("step", self.step)?;
        options::frames(self.frames, self.horizon, 2 * self.grid.pow(self.dimensions as u32))?;
        options::between("horizon", self.horizon, 0.0, MAX_STEPS * self.step)
    }

    fn description(&self) -> Description {
        let axes = self.dimensions;
        let shape = FieldShape { grid: self.points(), channels: 2 };
        Description {
            system: self.name().into(),
            channel_names: vec!["substrate".into(), "catalyst".into()],
            ..Description::unnamed(shape, vec![true; axes], vec![[0.0, 1.0]; axes])
        }
    }

    fn times(&self) -> Vec<f64> {
        options::uniform_times(self.frames, self.horizon)
    }

    fn simulate(&self, seed: u64, index: u64, interrupt: &AtomicBool) -> Result<Trajectory, SimulationError> {
        self.check()?;
        let times = self.times();
        let interval = self.horizon / (self.frames - 1) as f64;
        let steps = (interval / self.step).ceil().max(1.0);
        let mut reaction = Reaction::new(self, interval / steps);
        let mut state = reaction.transform.modes(&self.start(&mut Philox::new(seed, index)));
        let mut values = Vec::with_capacity(self.frames * 2 * self.points().points());
        for frame in 0..self.frames {
            if frame > 0 {
                for _ in 0..steps as usize {
                    options::heed(interrupt)?;
                    reaction.step(&mut state);
                }
            }
            let stored = values.len();
            values
                .extend(reaction.transform.field(&state).iter().flat_map(|at| [at.re as f32, at.im as f32]));
            if values[stored..].iter().any(|value| !value.is_finite()) {
                return Err(SimulationError::Diverged {
                    system: self.name(),
                    time: times[frame.saturating_sub(1)],
                });
            }
        }
        Ok(Trajectory::new(times, values, vec![])?)
    }
}

impl GrayScott {
    fn points(&self) -> Grid {
        Grid::new(&vec![self.grid; self.dimensions]).expect("the number of axes was checked")
    }

    /// The initial `u + i v` at every point. All numbers are drawn before the grid is used, so that grids of any size have
    /// the same state.
    fn start(&self, random: &mut Philox) -> Vec<Complex<f64>> {
        let bumps: Vec<(Vec<f64>, f64)> = (0..BUMPS.pow(self.dimensions as u32))
            .map(|_| {
                let place = (0..self.dimensions).map(|_| random.uniform_between(0.0, 1.0)).collect();
                (place, TAU * random.uniform_between(RADII[0], RADII[1]))
            })
            .collect();
        let points = self.points();
        let at = |point: usize| {
            let place = points.place(point);
            let bump = |(center, radius): &(Vec<f64>, f64)| {
                let away = place
                    .iter()
                    .zip(center)
                    .map(|(&index, c)| (TAU * (index as f64 / self.grid as f64 - c)).cos() - 1.0);
                (away.sum::<f64>() / radius.powi(2)).exp()
            };
            let sum: f64 = bumps.iter().map(bump).sum();
            let catalyst = sum / (2.0 + 2.0 * sum);
            Complex::new(1.0 - catalyst, catalyst)
        };
        (0..points.points()).map(at).collect()
    }
}

/// Fourier transforms along all axes of a periodic box.
struct BoxTransform {
    side: usize,
    forward: Arc<dyn Fft<f64>>,
    inverse: Arc<dyn Fft<f64>>,
    /// The place of each frequency's opposite.
    opposite: Vec<usize>,
    field: Vec<Complex<f64>>,
    line: Vec<Complex<f64>>,
    scratch: Vec<Complex<f64>>,
}

impl BoxTransform {
    fn new(grid: Grid) -> Self {
        let (side, points) = (grid.width(), grid.points());
        let opposite = |place: usize| {
            let mirrored: Vec<usize> =
                grid.place(place).into_iter().map(|index| (side - index) % side).collect();
            grid.point(&mirrored)
        };
        let mut planner = FftPlanner::new();
        let (forward, inverse) = (planner.plan_fft_forward(side), planner.plan_fft_inverse(side));
        let scratch = forward.get_inplace_scratch_len().max(inverse.get_inplace_scratch_len());
        Self {
            side,
            forward,
            inverse,
            field: vec![Complex::ZERO; points],
            line: vec![Complex::ZERO; side],
            scratch: vec![Complex::ZERO; scratch],
            opposite: (0..points).map(opposite).collect(),
        }
    }

    /// Transforms the field along each axis.
    fn all_axes(&mut self, plan: &dyn Fft<f64>) {
        let mut stride = 1;
        while stride < self.field.len() {
            let blocks = (0..self.field.len()).step_by(stride * self.side);
            for first in blocks.flat_map(|block| block..block + stride) {
                let places = (first..).step_by(stride).take(self.side);
                self.line
                    .iter_mut()
                    .zip(places.clone())
                    .for_each(|(value, place)| *value = self.field[place]);
                plan.process_with_scratch(&mut self.line, &mut self.scratch);
                self.line.iter().zip(places).for_each(|(value, place)| self.field[place] = *value);
            }
            stride *= self.side;
        }
    }

    /// The Fourier coefficients of the real and the imaginary part of a field.
    fn modes(&mut self, field: &[Complex<f64>]) -> Coefficients {
        self.field.copy_from_slice(field);
        self.split()
    }

    /// The coefficients of the real and the imaginary part of the field, `(F(k) +- conj F(-k)) / 2`.
    fn split(&mut self) -> Coefficients {
        let plan = Arc::clone(&self.forward);
        self.all_axes(&*plan);
        let share = 0.5 / self.field.len() as f64;
        let pairs = self.field.iter().zip(&self.opposite).map(|(own, &opposite)| {
            let other = self.field[opposite].conj();
            [(own + other) * share, (own - other) * share * -Complex::I]
        });
        pairs.collect()
    }

    /// The field of `u + i v` for the coefficients of u and v.
    fn field(&mut self, modes: &Coefficients) -> &mut [Complex<f64>] {
        self.field
            .iter_mut()
            .zip(modes)
            .for_each(|(value, [u, v])| *value = Complex::new(u.re - v.im, u.im + v.re));
        let plan = Arc::clone(&self.inverse);
        self.all_axes(&*plan);
        &mut self.field
    }
}

/// Fourier coefficients of u and v.
type Coefficients = Vec<[Complex<f64>; 2]>;

/// A step of fixed size.
struct Reaction {
    transform: BoxTransform,
    /// EtdWeights of u and v at each frequency.
    weights: Vec<[EtdWeights; 2]>,
    feed: f64,
}

impl Reaction {
    fn new(equation: &GrayScott, h: f64) -> Self {
        let GrayScott { feed, kill, grid, .. } = *equation;
        let points = equation.points();
        let square = |index: usize| (TAU * index.min(grid - index) as f64).powi(2);
        let weights = |point: usize| {
            let kappa: f64 = points.place(point).into_iter().map(square).sum();
            let linear = [
                -equation.substrate_diffusion * kappa - feed,
                -equation.catalyst_diffusion * kappa - feed - kill,
            ];
            linear.map(|rate| EtdWeights::new(h, h * rate))
        };
        let count = points.points();
        Self { transform: BoxTransform::new(points), weights: (0..count).map(weights).collect(), feed }
    }

    /// The coefficients of `-u v^2 + feed` and `u v^2`.
    fn nonlinear(&mut self, modes: &Coefficients) -> Coefficients {
        let feed = self.feed;
        for value in self.transform.field(modes) {
            let rate = value.re * value.im.powi(2);
            *value = Complex::new(feed - rate, rate);
        }
        self.transform.split()
    }

    /// Advances the coefficients by one step of ETDRK4.
    fn step(&mut self, modes: &mut Coefficients) {
        let at_start = self.nonlinear(modes);
        let first = self.combined(|k, s, w| modes[k][s] * w.half + at_start[k][s] * w.stage);
        let at_first = self.nonlinear(&first);
        let second = self.combined(|k, s, w| modes[k][s] * w.half + at_first[k][s] * w.stage);
        let at_second = self.nonlinear(&second);
        let third = self
            .combined(|k, s, w| first[k][s] * w.half + (at_second[k][s] * 2.0 - at_start[k][s]) * w.stage);
        let at_third = self.nonlinear(&third);
        *modes = self.combined(|k, s, w| {
            let middle = at_first[k][s] + at_second[k][s];
            modes[k][s] * w.whole + at_start[k][s] * w.first + middle * w.middle + at_third[k][s] * w.last
        });
    }

    /// A combination for each frequency and substance.
    fn combined(&self, at: impl Fn(usize, usize, &EtdWeights) -> Complex<f64>) -> Coefficients {
        self.weights.iter().enumerate().map(|(k, weights)| [0, 1].map(|s| at(k, s, &weights[s]))).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{assert_refused, relative_difference};
    use super::*;

    fn small(dimensions: usize) -> GrayScott {
        GrayScott { dimensions, grid: 16, frames: 3, horizon: 20.0, ..GrayScott::default() }
    }

    /// Halving the step divides the error by 16.
    #[test]
    fn steps_have_order_four() {
        let last = |step: f64| {
            let equation = GrayScott { step, ..small(1) };
            let mut reaction = Reaction::new(&equation, step);
            let mut state = reaction.transform.modes(&equation.start(&mut Philox::new(0, 0)));
            for _ in 0..(20.0 / step) as usize {
                reaction.step(&mut state);
            }
            reaction.transform.field(&state).to_vec()
        };
        let exact = last(0.05);
        let error = |step: f64| -> f64 {
            last(step).iter().zip(&exact).map(|(a, b)| (a - b).norm_sqr()).sum::<f64>().sqrt()
        };
        let order = (error(2.0) / error(1.0)).log2();
        // The next term of the error changes the order by a few tenths at these steps.
        assert!((3.6..4.6).contains(&order), "{order}");
    }

    /// Each number of dimensions is the one below for states that do not vary along the first axis.
    #[test]
    fn dimensions_agree() {
        for dimensions in 1..Grid::MOST_AXES {
            let (thin, thick) = (small(dimensions), small(dimensions + 1));
            let mut runs = [&thin, &thick].map(|equation| Reaction::new(equation, 1.0));
            let start = thin.start(&mut Philox::new(0, 1));
            let mut states = [runs[0].transform.modes(&start), runs[1].transform.modes(&start.repeat(16))];
            for _ in 0..5 {
                runs.iter_mut().zip(&mut states).for_each(|(run, state)| run.step(state));
            }
            let [low, high] = runs.each_mut();
            let low = low.transform.field(&states[0]).to_vec();
            for layer in high.transform.field(&states[1]).chunks(low.len()) {
                // A few hundred roundings of f64.
                assert!(layer.iter().zip(&low).all(|(a, b)| (a - b).norm() < 1e-12), "{dimensions}");
            }
        }
    }

    /// A grid that resolves the field gives the values of a finer grid at the shared points.
    #[test]
    fn grids_agree() {
        let coarse = GrayScott { grid: 32, ..small(2) };
        let fine = GrayScott { grid: 64, ..small(2) };
        let [few, many] = [&coarse, &fine].map(|equation| equation.trajectory(0, 0).unwrap().values);
        let shared: Vec<f32> = (0..3 * 32 * 32)
            .flat_map(|i| {
                let (frame, y, x) = (i / 1024, i / 32 % 32, i % 32);
                let place = ((frame * 64 + 2 * y) * 64 + 2 * x) * 2;
                many[place..place + 2].to_vec()
            })
            .collect();
        // The coefficients beyond the coarse grid's last frequency are below 1e-3 of the largest.
        assert!(relative_difference(&few, &shared) < 1e-3);
    }

    #[test]
    fn trajectories_depend_on_seed_and_index_alone() {
        let equation = small(3);
        let one = equation.trajectory(3, 5).unwrap();
        assert_eq!(one, equation.trajectory(3, 5).unwrap());
        assert_ne!(one, equation.trajectory(3, 6).unwrap());
        assert_ne!(one, equation.trajectory(4, 5).unwrap());
        assert_eq!(one.values.len(), 3 * 16 * 16 * 16 * 2);
        // Substances stay positive, and the substrate below its concentration in the feed.
        assert!(one.values.iter().all(|value| (-1e-3..1.001).contains(value)));
    }

    #[test]
    fn options_out_of_range_are_refused() {
        for dimensions in [0, 4] {
            assert_refused(&GrayScott { dimensions, ..GrayScott::default() }, "dimensions");
        }
        assert_refused(&GrayScott { grid: 3, ..GrayScott::default() }, "grid");
        assert_refused(&GrayScott { feed: -1.0, ..GrayScott::default() }, "feed");
        assert_refused(&GrayScott { step: 0.0, ..GrayScott::default() }, "step");
        assert_refused(&GrayScott { step: 1e-9, ..GrayScott::default() }, "horizon");
    }
}
