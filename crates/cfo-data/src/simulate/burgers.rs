//! Burgers' equation from a Gaussian random field.

use std::f64::consts::TAU;
use std::sync::atomic::AtomicBool;

use cfo_numerics::Philox;
use serde::{Deserialize, Serialize};

use super::spectral::{Etdrk4, Modes, PeriodicGrid, tail_share};
use super::{Equation, RandomField, SimulationError, options};
use crate::{Description, FieldShape, InputNames, Trajectory};

/// `u_t + u u_x = viscosity u_xx` on the periodic unit interval.
///
/// Pseudospectral on a finer grid that contains the stored points `j/grid`, 2/3 rule, ETDRK4. The solution stays
/// within the range of its initial state (maximum principle), which bounds the step for the whole horizon.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Burgers {
    /// Diffusion coefficient; 0.01 by default.
    pub viscosity: f64,
    /// Distribution of the initial states.
    #[serde(flatten)]
    pub field: RandomField,
    /// Number of stored points; 100 by default: `0, 0.01, ..., 0.99`.
    pub grid: usize,
    /// Number of stored times, equally spaced with both ends included; 101 by default.
    pub frames: usize,
    /// Last time; 1 by default.
    pub horizon: f64,
    /// Minimum number of points of the internal grid; 512 by default. It grows for viscosities below 0.005, where
    /// shocks get thinner, and is rounded up to a multiple of `grid`.
    pub resolution: usize,
    /// Longest internal time step; 0.001 by default.
    pub step: f64,
}

impl Default for Burgers {
    fn default() -> Self {
        Self {
            viscosity: 0.01,
            field: RandomField::default(),
            grid: 100,
            frames: 101,
            horizon: 1.0,
            resolution: 512,
            step: 1e-3,
        }
    }
}

pub(super) const MAX_POINTS: usize = 1 << 22;
/// Largest amplitude of the finest modes in a resolved field, relative to the largest mode.
pub(super) const RESOLVED: f64 = 1e-7;
/// Longest step in units of `1/(last wavenumber * largest speed)`. Explicit fourth-order methods are stable up to 2.8.
const COURANT: f64 = 2.0;
/// Viscosity down to which `resolution` points resolve shocks.
const THIN: f64 = 0.005;
/// Limit on internal steps of a trajectory; more would take hours.
const MAX_STEPS: f64 = 1e8;

impl Equation for Burgers {
    fn name(&self) -> &'static str {
        "burgers"
    }

    fn check(&self) -> Result<(), SimulationError> {
        options::positive("viscosity", self.viscosity)?;
        options::between("grid", self.grid, 2, MAX_POINTS / 2)?;
        options::between("resolution", self.resolution, 4, MAX_POINTS / 2)?;
        options::frames(self.frames, self.horizon, self.grid)?;
        options::positive("step", self.step)?;
        if self.wanted_points() > (MAX_POINTS / 2) as f64 {
            let points = self.wanted_points() as usize;
            return Err(SimulationError::TooLarge { frames: self.frames, points });
        }
        self.field.check(PeriodicGrid::last_mode(self.points()))
    }

    fn description(&self) -> Description {
        Description {
            system: self.name().into(),
            channel_names: vec!["u".into()],
            inputs: InputNames::of_parameters(["viscosity"]),
            ..Description::unnamed(FieldShape::line(self.grid, 1), vec![true], vec![[0.0, 1.0]])
        }
    }

    fn times(&self) -> Vec<f64> {
        options::uniform_times(self.frames, self.horizon)
    }

    fn simulate(&self, seed: u64, index: u64, interrupt: &AtomicBool) -> Result<Trajectory, SimulationError> {
        self.check()?;
        let mut grid = PeriodicGrid::new(self.points());
        let mut start = grid.zero_modes();
        self.field.draw(&mut Philox::new(seed, index), &mut start);
        let times = self.times();
        let values = self.integrate(&mut grid, start, &times, interrupt)?;
        Ok(Trajectory::new(times, values, vec![self.viscosity])?)
    }
}

impl Burgers {
    fn wanted_points(&self) -> f64 {
        (self.resolution as f64 * (THIN / self.viscosity).max(1.0)).ceil()
    }

    fn points(&self) -> usize {
        self.grid * (self.wanted_points() as usize).div_ceil(self.grid)
    }

    fn integrate(
        &self,
        grid: &mut PeriodicGrid,
        mut modes: Modes,
        times: &[f64],
        interrupt: &AtomicBool,
    ) -> Result<Vec<f32>, SimulationError> {
        let interval = self.horizon / (self.frames - 1) as f64;
        let fastest = grid.field(&modes).iter().fold(0.0f64, |most, value| most.max(value.abs()));
        let courant = COURANT / (TAU * PeriodicGrid::last_mode(grid.points()) as f64 * fastest);
        let steps = (interval / self.step.min(courant)).ceil().max(1.0);
        if steps * self.frames as f64 > MAX_STEPS {
            return Err(SimulationError::Diverged { system: self.name(), time: 0.0 });
        }
        let mut method = Etdrk4::new(grid, 1.0, interval / steps, |kappa| -self.viscosity * kappa * kappa);
        let mut values = Vec::with_capacity(times.len() * self.grid);
        for (frame, &time) in times.iter().enumerate() {
            if frame > 0 {
                options::heed(interrupt)?;
                for _ in 0..steps as usize {
                    method.step(grid, &mut modes);
                }
            }
            let share = tail_share(&modes);
            if share > RESOLVED {
                let points = grid.points();
                return Err(SimulationError::Unresolved { system: self.name(), time, share, points });
            }
            store(grid, &modes, self.grid, &mut values)
                .ok_or(SimulationError::Diverged { system: self.name(), time })?;
        }
        Ok(values)
    }
}

/// Appends the field at the stored points; `None` if it is not finite.
pub(super) fn store(
    grid: &mut PeriodicGrid,
    modes: &Modes,
    stored: usize,
    values: &mut Vec<f32>,
) -> Option<()> {
    let every = grid.points() / stored;
    let field = grid.field(modes).iter().step_by(every).map(|&value| value as f32);
    let first = values.len();
    values.extend(field);
    values[first..].iter().all(|value| value.is_finite()).then_some(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::simulate::tests::{assert_refused, relative_difference};

    /// Half the step and twice the resolution change the stored numbers by little more than their rounding to `f32`,
    /// 3e-8. This is well below the 1e-6 in the docs.
    #[test]
    fn step_and_resolution_are_fine_enough() {
        let coarse = Burgers::default();
        let fine = Burgers { step: coarse.step / 2.0, resolution: 2 * coarse.resolution, ..coarse.clone() };
        for index in 0..4 {
            let values = |burgers: &Burgers| burgers.trajectory(0, index).unwrap().values;
            let difference = relative_difference(&values(&coarse), &values(&fine));
            assert!(difference < 1e-7, "trajectory {index}: {difference:e}");
        }
    }

    #[test]
    fn a_small_viscosity_is_resolved_too() {
        let coarse = Burgers { viscosity: 1e-3, frames: 11, ..Burgers::default() };
        let fine = Burgers { step: coarse.step / 2.0, resolution: 2 * coarse.resolution, ..coarse.clone() };
        let difference = relative_difference(
            &coarse.trajectory(0, 0).unwrap().values,
            &fine.trajectory(0, 0).unwrap().values,
        );
        assert!(difference < 1e-7, "{difference:e}");
    }

    /// Other stored points and times give the same solution.
    #[test]
    fn the_grid_does_not_change_the_solution() {
        let fine = Burgers::default().trajectory(3, 1).unwrap();
        let coarse = Burgers { grid: 50, frames: 51, ..Burgers::default() }.trajectory(3, 1).unwrap();
        let picked: Vec<f32> = (0..51)
            .flat_map(|frame| (0..50).map(move |point| (frame, point)))
            .map(|(frame, point)| fine.values[2 * frame * 100 + 2 * point])
            .collect();
        let difference = relative_difference(&coarse.values, &picked);
        assert!(difference < 1e-7, "{difference:e}");
    }

    #[test]
    fn mean_stays_zero_and_energy_falls() {
        let trajectory = Burgers::default().trajectory(0, 7).unwrap();
        let mut before = f64::INFINITY;
        for frame in trajectory.values.chunks(100) {
            let mean = frame.iter().map(|&value| f64::from(value)).sum::<f64>() / 100.0;
            let energy = frame.iter().map(|&value| f64::from(value).powi(2)).sum::<f64>() / 100.0;
            // At the stored points the modes from 100 on alias to the mean: below 1e-7 in total.
            assert!(mean.abs() < 1e-7, "{mean:e}");
            assert!(energy < before);
            before = energy;
        }
    }

    /// At the amplitude of the published formula the equation is nearly linear diffusion: mode k decays by
    /// `exp(-viscosity kappa^2 t)`.
    #[test]
    fn a_tiny_field_only_diffuses() {
        let field = RandomField { sigma: 1e-4, modes: 1, ..RandomField::default() };
        let burgers = Burgers { field, frames: 2, ..Burgers::default() };
        let values = burgers.trajectory(0, 0).unwrap().values;
        let decay = (-0.01 * TAU * TAU).exp();
        for (start, end) in values[..100].iter().zip(&values[100..]) {
            assert!((f64::from(*end) - decay * f64::from(*start)).abs() < 1e-6 * f64::from(values[0].abs()));
        }
    }

    #[test]
    fn an_unresolved_shock_is_an_error() {
        let field = RandomField { sigma: 1e6, modes: 1, ..RandomField::default() };
        let burgers = Burgers { field, ..Burgers::default() };
        let error = burgers.trajectory(0, 0).unwrap_err();
        assert!(matches!(error, SimulationError::Unresolved { .. }), "{error}");
        assert!(error.hint().unwrap().contains("resolution"));
    }

    #[test]
    fn senseless_options_are_refused() {
        let good = Burgers::default;
        let field = RandomField::default;
        assert_refused(&Burgers { grid: 0, ..good() }, "grid");
        assert_refused(&Burgers { frames: 1, ..good() }, "frames");
        assert_refused(&Burgers { horizon: 0.0, ..good() }, "horizon");
        assert_refused(&Burgers { horizon: f64::NAN, ..good() }, "horizon");
        assert_refused(&Burgers { viscosity: f64::NAN, ..good() }, "viscosity");
        assert_refused(&Burgers { viscosity: -0.1, ..good() }, "viscosity");
        assert_refused(&Burgers { step: 0.0, ..good() }, "step");
        assert_refused(&Burgers { resolution: 0, ..good() }, "resolution");
        assert_refused(&Burgers { field: RandomField { modes: 1000, ..field() }, ..good() }, "modes");
        assert_refused(&Burgers { field: RandomField { sigma: 0.0, ..field() }, ..good() }, "sigma");
        let thin = Burgers { viscosity: 1e-300, ..good() };
        assert!(matches!(thin.check(), Err(SimulationError::TooLarge { .. })));
    }
}
