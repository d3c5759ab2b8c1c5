//! The two-dimensional diffusion-reaction system of PDEBench, with PDEBench's method.

use std::sync::atomic::{AtomicBool, Ordering};

use cfo_numerics::ode::{Controller, DOPRI5, Integrator, OdeError, Steps, VectorField};
use serde::{Deserialize, Serialize};

use super::legacy_random::LegacyRandom;
use super::{Equation, SimulationError, options};
use crate::{Description, FieldShape, Trajectory};

/// FitzHugh-Nagumo kinetics on the square (-1, 1)^2 with zero flux through its sides:
///
/// ```text
/// u_t = activator_diffusion Lap u + u - u^3 - k - v
/// v_t = inhibitor_diffusion Lap v + u - v
/// ```
///
/// with standard normal initial values in every cell. The method is cell-centred finite volumes, a five-point Laplacian
/// and Dormand-Prince 5(4) with SciPy's step control and dense output. With the default options trajectory i of seed 0
/// is sample i of the benchmark's generator. Stored as `[y, x, channel]`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct DiffusionReaction {
    /// Diffusion coefficient of u; 1e-3 by default.
    pub activator_diffusion: f64,
    /// Diffusion coefficient of v; 5e-3 by default.
    pub inhibitor_diffusion: f64,
    /// Constant in the kinetics of u; 5e-3 by default.
    pub k: f64,
    /// Cells along each side; 128 by default.
    pub grid: usize,
    /// Number of stored times, equally spaced with both ends included; 101 by default.
    pub frames: usize,
    /// Last time; 5 by default.
    pub horizon: f64,
    /// Relative tolerance of a step; the absolute one is a thousandth of it. The benchmark uses 1e-3, with an error of
    /// about 2e-5; 1e-6 has an error of about 3e-8.
    pub tolerance: f64,
}

impl Default for DiffusionReaction {
    fn default() -> Self {
        Self {
            activator_diffusion: 1e-3,
            inhibitor_diffusion: 5e-3,
            k: 5e-3,
            grid: 128,
            frames: 101,
            horizon: 5.0,
            tolerance: 1e-3,
        }
    }
}

const MAX_GRID: usize = 1 << 13;
/// Absolute tolerance relative to the relative one: SciPy's defaults are 1e-3 and 1e-6.
const ABSOLUTE: f64 = 1e-3;
/// Limit on the steps that stability requires; more would take days.
const MAX_STEPS: f64 = 2e6;
/// Additional steps for accuracy: the tightest tolerance takes a few thousand.
const SPARE_STEPS: f64 = 1e5;

impl Equation for DiffusionReaction {
    fn name(&self) -> &'static str {
        "diffusion-reaction"
    }

    fn check(&self) -> Result<(), SimulationError> {
        options::not_negative("activator_diffusion", self.activator_diffusion)?;
        options::not_negative("inhibitor_diffusion", self.inhibitor_diffusion)?;
        options::finite("k", self.k)?;
        options::between("grid", self.grid, 2, MAX_GRID)?;
        options::between("tolerance", self.tolerance, 1e-11, 0.1)?;
        options::frames(self.frames, self.horizon, 2 * self.grid * self.grid)?;
        if self.stable_steps() > MAX_STEPS {
            let need = format!(
                "at most {:.3e} for this diffusion and grid",
                self.horizon * MAX_STEPS / self.stable_steps()
            );
            return Err(SimulationError::Option {
                name: "horizon".into(),
                value: self.horizon.to_string(),
                need,
            });
        }
        Ok(())
    }

    fn description(&self) -> Description {
        Description {
            system: self.name().into(),
            channel_names: vec!["activator".into(), "inhibitor".into()],
            ..Description::unnamed(
                FieldShape::plane(self.grid, self.grid, 2),
                vec![false; 2],
                vec![[-1.0, 1.0]; 2],
            )
        }
    }

    fn times(&self) -> Vec<f64> {
        options::uniform_times(self.frames, self.horizon)
    }

    fn simulate(&self, seed: u64, index: u64, interrupt: &AtomicBool) -> Result<Trajectory, SimulationError> {
        self.check()?;
        let mut random = LegacyRandom::of_sample(seed, index)?;
        let start: Vec<f64> = (0..2 * self.grid * self.grid).map(|_| random.normal()).collect();
        let times = self.times();
        let values = self.integrate(&start, &times, interrupt)?;
        Ok(Trajectory::new(times, values, Vec::new())?)
    }
}

impl DiffusionReaction {
    fn per_area(&self) -> f64 {
        (self.grid as f64 / 2.0).powi(2)
    }

    /// Minimum number of steps of an explicit method, which is stable up to about 3.3 times the fastest decay.
    fn stable_steps(&self) -> f64 {
        let diffusion = self.activator_diffusion.max(self.inhibitor_diffusion);
        self.horizon * 8.0 * diffusion * self.per_area() / 3.3
    }

    /// The stored frames from an initial state `[u, v]`, each `[y, x]`.
    fn integrate(
        &self,
        start: &[f64],
        times: &[f64],
        interrupt: &AtomicBool,
    ) -> Result<Vec<f32>, SimulationError> {
        let controller = Controller {
            max_steps: (2.0 * self.stable_steps() + SPARE_STEPS) as u64,
            ..Controller::scipy(self.tolerance, ABSOLUTE * self.tolerance)
        };
        let field = Kinetics { equation: self, interrupt };
        let mut values = Vec::with_capacity(start.len() * times.len());
        let keep = |_: usize, state: &[f64]| {
            let (u, v) = state.split_at(state.len() / 2);
            values.extend(u.iter().zip(v).flat_map(|(&u, &v)| [u as f32, v as f32]));
        };
        let result =
            Integrator::new(&DOPRI5, Steps::Adaptive(controller)).integrate(&field, 0.0, start, times, keep);
        options::heed(interrupt)?;
        match result {
            Ok(_) => Ok(values),
            Err(error) => Err(self.diverged(&error)),
        }
    }

    fn diverged(&self, error: &OdeError) -> SimulationError {
        SimulationError::Diverged { system: self.name(), time: error.time_reached().unwrap_or(0.0) }
    }
}

/// The right-hand side, with all terms in one pass over the rows.
struct Kinetics<'a> {
    equation: &'a DiffusionReaction,
    interrupt: &'a AtomicBool,
}

impl VectorField for Kinetics<'_> {
    fn velocity(&self, _t: f64, state: &[f64], out: &mut [f64]) {
        if self.interrupt.load(Ordering::Relaxed) {
            // NaN rejects every step, so the integration ends at once.
            out.fill(f64::NAN);
            return;
        }
        let DiffusionReaction { activator_diffusion, inhibitor_diffusion, k, grid: n, .. } = *self.equation;
        let per_area = self.equation.per_area();
        let (activator, inhibitor) = (activator_diffusion * per_area, inhibitor_diffusion * per_area);
        let (u, v) = state.split_at(n * n);
        let (u_out, v_out) = out.split_at_mut(n * n);
        for y in 0..n {
            let [below, row, above] =
                [y.saturating_sub(1), y, (y + 1).min(n - 1)].map(|y| y * n..(y + 1) * n);
            let [u_below, u_row, u_above] = [&u[below.clone()], &u[row.clone()], &u[above.clone()]];
            let [v_below, v_row, v_above] = [&v[below], &v[row.clone()], &v[above]];
            let reaction_u = |u: f64, v: f64| u - u * u * u - k - v;
            let reaction_v = |u: f64, v: f64| u - v;
            let u_out = &mut u_out[row.clone()];
            laplacian(u_below, u_row, u_above, activator, u_out);
            for ((out, &u), &v) in u_out.iter_mut().zip(u_row).zip(v_row) {
                *out += reaction_u(u, v);
            }
            let v_out = &mut v_out[row];
            laplacian(v_below, v_row, v_above, inhibitor, v_out);
            for ((out, &u), &v) in v_out.iter_mut().zip(u_row).zip(v_row) {
                *out += reaction_v(u, v);
            }
        }
    }
}

/// `scale` times the five-point sum of differences of a row. A neighbour beyond a side is replaced by the cell itself.
fn laplacian(below: &[f64], row: &[f64], above: &[f64], scale: f64, out: &mut [f64]) {
    let n = row.len();
    let (below, above, out) = (&below[..n], &above[..n], &mut out[..n]);
    let at = |x: usize, left: f64, right: f64| {
        scale * (((left - row[x]) + (right - row[x])) + ((below[x] - row[x]) + (above[x] - row[x])))
    };
    for x in 1..n - 1 {
        out[x] = at(x, row[x - 1], row[x + 1]);
    }
    out[0] = at(0, row[0], row[1]);
    out[n - 1] = at(n - 1, row[n - 2], row[n - 1]);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::simulate::tests::{assert_refused, relative_difference};

    fn small() -> DiffusionReaction {
        DiffusionReaction { grid: 16, ..DiffusionReaction::default() }
    }

    fn velocity(equation: &DiffusionReaction, state: &[f64]) -> Vec<f64> {
        let mut out = vec![f64::NAN; state.len()];
        Kinetics { equation, interrupt: &AtomicBool::new(false) }.velocity(0.0, state, &mut out);
        out
    }

    fn draw(count: usize) -> Vec<f64> {
        let mut random = LegacyRandom::of_sample(9, 0).unwrap();
        (0..count).map(|_| random.normal()).collect()
    }

    /// The fused right-hand side agrees with the formula: the sum of differences over existing neighbours, one cell at
    /// a time.
    #[test]
    fn the_right_hand_side_is_the_formula() {
        let equation = DiffusionReaction { grid: 7, ..small() };
        let state = draw(2 * 49);
        let out = velocity(&equation, &state);
        let area = (2.0f64 / 7.0).powi(2);
        for (y, x) in (0..7i64).flat_map(|y| (0..7i64).map(move |x| (y, x))) {
            let at = |field: usize, y: i64, x: i64| state[field * 49 + (y * 7 + x) as usize];
            let spread = |field: usize| -> f64 {
                [(y - 1, x), (y + 1, x), (y, x - 1), (y, x + 1)]
                    .into_iter()
                    .filter(|(y, x)| (0..7).contains(y) && (0..7).contains(x))
                    .map(|(j, i)| (at(field, j, i) - at(field, y, x)) / area)
                    .sum()
            };
            let (u, v) = (at(0, y, x), at(1, y, x));
            let cell = (y * 7 + x) as usize;
            assert!((out[cell] - (1e-3 * spread(0) + u - u.powi(3) - 5e-3 - v)).abs() < 1e-13);
            assert!((out[49 + cell] - (5e-3 * spread(1) + u - v)).abs() < 1e-13);
        }
    }

    /// Diffusion conserves mass: the sum of the Laplacian is zero to round-off of its 512 terms of size 1.
    #[test]
    fn diffusion_conserves() {
        let state = draw(2 * 256);
        let still = DiffusionReaction { activator_diffusion: 0.0, inhibitor_diffusion: 0.0, ..small() };
        let (with, without) = (velocity(&small(), &state), velocity(&still, &state));
        for half in 0..2 {
            let sum: f64 = (256 * half..256 * (half + 1)).map(|i| with[i] - without[i]).sum();
            assert!(sum.abs() < 1e-11, "{sum:e}");
        }
    }

    #[test]
    fn the_start_is_the_benchmarks() {
        let equation = DiffusionReaction { frames: 2, horizon: 1e-3, ..DiffusionReaction::default() };
        let values = equation.trajectory(0, 0).unwrap().values;
        assert_eq!([values[0], values[2]], [1.764052345967664f64 as f32, 0.4001572083672233f64 as f32]);
        assert_ne!(equation.trajectory(1, 4).unwrap().values, equation.trajectory(0, 5).unwrap().values);
    }

    /// The benchmark's tolerance gives an error of its own order, a tight one less than 1e-6.
    #[test]
    fn tolerance_controls_the_error() {
        let values = |tolerance| DiffusionReaction { tolerance, ..small() }.trajectory(0, 0).unwrap().values;
        let exact = values(1e-10);
        let [benchmark, tight] =
            [1e-3, 1e-7].map(|tolerance| relative_difference(&values(tolerance), &exact));
        assert!(benchmark < 1e-3, "{benchmark:e}");
        assert!(tight < 1e-7, "{tight:e}");
    }

    #[test]
    fn divergence_names_its_time() {
        // The kinetics drive u to 1e100 within 1e-200, where no step is short enough.
        let wild = DiffusionReaction { k: -1e300, grid: 2, ..small() };
        let error = wild.trajectory(0, 0).unwrap_err();
        assert!(matches!(error, SimulationError::Diverged { time, .. } if time < 1e-3), "{error}");
    }

    #[test]
    fn a_trajectory_can_be_interrupted() {
        let result = DiffusionReaction::default().simulate(0, 0, &AtomicBool::new(true));
        assert_eq!(result, Err(SimulationError::Interrupted));
    }

    #[test]
    fn senseless_options_are_refused() {
        assert_refused(&DiffusionReaction { grid: 0, ..small() }, "grid");
        assert_refused(&DiffusionReaction { grid: 1, ..small() }, "grid");
        assert_refused(&DiffusionReaction { frames: 0, ..small() }, "frames");
        assert_refused(&DiffusionReaction { horizon: -5.0, ..small() }, "horizon");
        assert_refused(&DiffusionReaction { tolerance: 0.0, ..small() }, "tolerance");
        assert_refused(&DiffusionReaction { tolerance: f64::NAN, ..small() }, "tolerance");
        assert_refused(&DiffusionReaction { activator_diffusion: -1.0, ..small() }, "activator_diffusion");
        assert_refused(
            &DiffusionReaction { inhibitor_diffusion: f64::NAN, ..small() },
            "inhibitor_diffusion",
        );
        assert_refused(&DiffusionReaction { k: f64::INFINITY, ..small() }, "k");
        assert_refused(&DiffusionReaction { inhibitor_diffusion: 1e300, ..small() }, "horizon");
        let large = DiffusionReaction { grid: 8192, ..small() };
        assert!(matches!(large.trajectory(0, 0), Err(SimulationError::TooLarge { .. })));
    }
}
