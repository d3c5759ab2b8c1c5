//! The Kuramoto-Sivashinsky equation on its attractor.

use std::f64::consts::TAU;
use std::sync::atomic::AtomicBool;

use cfo_numerics::Philox;
use realfft::num_complex::Complex;
use serde::{Deserialize, Serialize};

use super::burgers::{MAX_POINTS, RESOLVED, store};
use super::spectral::{Etdrk4, Modes, PeriodicGrid, tail_share};
use super::{Equation, SimulationError, options};
use crate::{Description, FieldShape, InputNames, Trajectory};

/// `u_t + u u_x + u_xx + viscosity u_xxxx = 0`, periodic.
///
/// The initial state is a sum of ten sines of the two longest waves. It is integrated for `spin_up` before the first
/// frame is stored. Each trajectory has its own length and frame spacing, both stored as parameters. Times start at 0
/// with the first stored frame. The stored points are `j length/grid`, in units of the trajectory's own length.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct KuramotoSivashinsky {
    /// Coefficient of the fourth derivative; 1 by default.
    pub viscosity: f64,
    /// Mean length of the domain; 64 by default.
    pub length: f64,
    /// Largest relative deviation of a trajectory's length from the mean, 0.1 by default, uniformly distributed.
    pub length_jitter: f64,
    /// Number of stored points; 256 by default.
    pub grid: usize,
    /// Number of stored times; 140 by default.
    pub frames: usize,
    /// Mean time from the first to the last stored frame. The default is 139 of the 499 intervals of 100 time units.
    pub horizon: f64,
    /// Mean time before the first stored frame. The default is 360 of these intervals; 0 stores the initial state.
    pub spin_up: f64,
    /// Largest relative deviation of a trajectory's time scale (spacing and spin-up); 0.1 by default. The distribution
    /// is uniform; 0 fixes the scale.
    pub time_jitter: f64,
    /// Minimum number of points of the internal grid for the default length and viscosity; 192 by default. It grows
    /// with the length in units of the shortest active waves, and is rounded up to a multiple of `grid`.
    pub resolution: usize,
    /// Longest internal time step for viscosities of 1 or more; 0.01 by default. It shrinks with smaller viscosities.
    pub step: f64,
}

impl Default for KuramotoSivashinsky {
    fn default() -> Self {
        Self {
            viscosity: 1.0,
            length: 64.0,
            length_jitter: 0.1,
            grid: 256,
            frames: 140,
            horizon: 139.0 * 100.0 / 499.0,
            spin_up: 360.0 * 100.0 / 499.0,
            time_jitter: 0.1,
            resolution: 192,
            step: 0.01,
        }
    }
}

const SINES: usize = 10;
/// Largest wave number of an initial state; the least is 1.
const LONGEST_WAVES: u64 = 2;
/// The length to which `resolution` refers.
const REFERENCE_LENGTH: f64 = 64.0;
/// Limit on internal steps of a trajectory; more would take hours.
const MAX_STEPS: f64 = 1e8;

impl Equation for KuramotoSivashinsky {
    fn name(&self) -> &'static str {
        "kuramoto-sivashinsky"
    }

    fn check(&self) -> Result<(), SimulationError> {
        options::positive("viscosity", self.viscosity)?;
        options::positive("length", self.length)?;
        options::between("length_jitter", self.length_jitter, 0.0, 0.9)?;
        options::between("time_jitter", self.time_jitter, 0.0, 0.9)?;
        options::between("grid", self.grid, 2, MAX_POINTS / 2)?;
        options::between("resolution", self.resolution, 16, MAX_POINTS / 2)?;
        options::frames(self.frames, self.horizon, self.grid)?;
        options::not_negative("spin_up", self.spin_up)?;
        options::positive("step", self.step)?;
        let points = self.wanted_points(self.length * (1.0 + self.length_jitter));
        if points > (MAX_POINTS / 2) as f64 {
            return Err(SimulationError::TooLarge { frames: self.frames, points: points as usize });
        }
        let steps = (self.spin_up + self.horizon) * (1.0 + self.time_jitter) / self.longest_step();
        if steps > MAX_STEPS {
            let need = format!("at most {:e} at this step and viscosity", MAX_STEPS * self.longest_step());
            return Err(SimulationError::Option {
                name: "horizon".into(),
                value: format!("{} after a spin-up of {}", self.horizon, self.spin_up),
                need,
            });
        }
        Ok(())
    }

    fn description(&self) -> Description {
        Description {
            system: self.name().into(),
            channel_names: vec!["u".into()],
            inputs: InputNames::of_parameters(["length", "viscosity", "time_step"]),
            ..Description::unnamed(FieldShape::line(self.grid, 1), vec![true], vec![[0.0, self.length]])
        }
    }

    fn times(&self) -> Vec<f64> {
        options::uniform_times(self.frames, self.horizon)
    }

    fn simulate(&self, seed: u64, index: u64, interrupt: &AtomicBool) -> Result<Trajectory, SimulationError> {
        self.check()?;
        let mut random = Philox::new(seed, index);
        let mut jitter = |width: f64| random.uniform_between(1.0 - width, 1.0 + width);
        let stretch = jitter(self.time_jitter);
        let length = self.length * jitter(self.length_jitter);
        let points = self.grid * (self.wanted_points(length) as usize).div_ceil(self.grid);
        let mut grid = PeriodicGrid::new(points);
        let mut modes = start(&mut random, &grid);
        let times = options::uniform_times(self.frames, stretch * self.horizon);
        let interval = stretch * self.horizon / (self.frames - 1) as f64;

        let mut advance = Advance { equation: self, length, interrupt, now: 0.0 };
        advance.by(stretch * self.spin_up, 1, &mut grid, &mut modes, |_, _| Some(()))?;
        let mut values = Vec::with_capacity(self.frames * self.grid);
        let mut keep = |grid: &mut PeriodicGrid, modes: &Modes| store(grid, modes, self.grid, &mut values);
        keep(&mut grid, &modes).ok_or(advance.diverged())?;
        advance.by(interval, self.frames - 1, &mut grid, &mut modes, keep)?;
        Ok(Trajectory::new(times, values, vec![length, self.viscosity, interval])?)
    }
}

impl KuramotoSivashinsky {
    /// Internal points for a length: the shortest active waves are longer than `2 pi sqrt(viscosity)`.
    fn wanted_points(&self, length: f64) -> f64 {
        let waves = length / (REFERENCE_LENGTH * self.viscosity.sqrt());
        (self.resolution as f64 * waves.max(1.0)).ceil()
    }

    /// The fastest growth is `1/(4 viscosity)`, so a small viscosity shortens the step.
    fn longest_step(&self) -> f64 {
        self.step * self.viscosity.min(1.0)
    }
}

/// `sum_i A_i sin(2 pi l_i x/length + phi_i)`; all amplitudes are drawn first, then the phases, then the counts.
fn start(random: &mut Philox, grid: &PeriodicGrid) -> Modes {
    let amplitudes: [f64; SINES] = std::array::from_fn(|_| random.uniform_between(-0.5, 0.5));
    let phases: [f64; SINES] = std::array::from_fn(|_| random.uniform_between(0.0, TAU));
    let mut modes = grid.zero_modes();
    for (amplitude, phase) in amplitudes.into_iter().zip(phases) {
        let wave = 1 + random.below(LONGEST_WAVES) as usize;
        modes[wave] += Complex::new(phase.sin(), -phase.cos()) * (amplitude / 2.0);
    }
    modes
}

/// State of an integration of one trajectory.
struct Advance<'a> {
    equation: &'a KuramotoSivashinsky,
    length: f64,
    interrupt: &'a AtomicBool,
    now: f64,
}

impl Advance<'_> {
    fn diverged(&self) -> SimulationError {
        SimulationError::Diverged { system: self.equation.name(), time: self.now }
    }

    /// Integrates over `count` intervals and calls `after` after each.
    fn by(
        &mut self,
        interval: f64,
        count: usize,
        grid: &mut PeriodicGrid,
        modes: &mut Modes,
        mut after: impl FnMut(&mut PeriodicGrid, &Modes) -> Option<()>,
    ) -> Result<(), SimulationError> {
        if interval == 0.0 {
            return Ok(());
        }
        let viscosity = self.equation.viscosity;
        let steps = (interval / self.equation.longest_step()).ceil();
        let linear = |kappa: f64| kappa * kappa * (1.0 - viscosity * kappa * kappa);
        let mut method = Etdrk4::new(grid, self.length, interval / steps, linear);
        for _ in 0..count {
            for _ in 0..steps as usize {
                options::heed(self.interrupt)?;
                method.step(grid, modes);
            }
            if !modes.iter().all(|mode| mode.is_finite()) {
                return Err(self.diverged());
            }
            self.now += interval;
            let share = tail_share(modes);
            if share > RESOLVED {
                return Err(SimulationError::Unresolved {
                    system: self.equation.name(),
                    time: self.now,
                    share,
                    points: grid.points(),
                });
            }
            after(grid, modes).ok_or(self.diverged())?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::simulate::tests::{assert_refused, relative_difference};

    /// Half the step and four times the resolution, over ten time units from the same initial state. Runs are compared
    /// without a spin-up, because errors in it grow by about e^0.09 per time unit.
    #[test]
    fn step_and_resolution_are_fine_enough() {
        let coarse = KuramotoSivashinsky { spin_up: 0.0, horizon: 30.0, frames: 31, ..Default::default() };
        let fine = KuramotoSivashinsky { step: coarse.step / 2.0, resolution: 768, ..coarse.clone() };
        for index in 0..3 {
            let values = |equation: &KuramotoSivashinsky| equation.trajectory(0, index).unwrap().values;
            let difference = relative_difference(&values(&coarse), &values(&fine));
            // A thirtieth of the 1e-5 in the docs, for a third of the time.
            assert!(difference < 3e-7, "trajectory {index}: {difference:e}");
        }
    }

    #[test]
    fn each_trajectory_has_its_own_length_and_times() {
        let equation = KuramotoSivashinsky { frames: 3, spin_up: 0.0, horizon: 0.4, ..Default::default() };
        let mut seen = Vec::new();
        for index in 0..200 {
            let trajectory = equation.trajectory(0, index).unwrap();
            let [length, viscosity, step] = trajectory.inputs.parameters[..] else {
                panic!("three parameters")
            };
            assert!((57.6..=70.4).contains(&length) && (0.18..=0.22).contains(&step) && viscosity == 1.0);
            assert_eq!(*trajectory.times, [0.0, step, 2.0 * step]);
            seen.push(length);
        }
        seen.sort_by(f64::total_cmp);
        assert!(seen.windows(2).all(|pair| pair[0] < pair[1]));
        // For 200 uniform numbers, both extremes are within a twentieth of the ends with probability 1 - 7e-5.
        assert!(seen[0] < 58.3 && seen[199] > 69.7, "{} {}", seen[0], seen[199]);

        let fixed = KuramotoSivashinsky { length_jitter: 0.0, time_jitter: 0.0, ..equation };
        let trajectory = fixed.trajectory(0, 1).unwrap();
        assert_eq!(trajectory.inputs.parameters, [64.0, 1.0, 0.2]);
        assert_eq!(*trajectory.times, fixed.times());
    }

    #[test]
    fn the_default_is_the_window_of_the_published_data() {
        let trajectory = KuramotoSivashinsky::default().trajectory(0, 0).unwrap();
        let step = trajectory.inputs.parameters[2];
        assert_eq!((trajectory.times.len(), trajectory.values.len()), (140, 140 * 256));
        assert!((90.0 / 499.0..=110.0 / 499.0).contains(&step), "{step}");
        assert!((trajectory.times[139] - 139.0 * step).abs() < 1e-12);
        // On the attractor: mean zero, root mean square about 1.3.
        for frame in trajectory.values.chunks(256) {
            let mean = frame.iter().map(|&value| f64::from(value)).sum::<f64>() / 256.0;
            let square = frame.iter().map(|&value| f64::from(value).powi(2)).sum::<f64>() / 256.0;
            assert!(mean.abs() < 1e-6 && (0.8..1.8).contains(&square.sqrt()), "{mean} {square}");
        }
    }

    /// The initial state consists of only the two longest waves; from a tiny initial state each wave grows at its own
    /// rate.
    #[test]
    fn starts_are_two_waves() {
        let unspun = KuramotoSivashinsky { spin_up: 0.0, frames: 2, horizon: 0.1, ..Default::default() };
        let values = unspun.trajectory(4, 2).unwrap().values;
        for wave in 0..20 {
            let sum: Complex<f64> = (0..256)
                .map(|point| {
                    let angle = -TAU * (wave * point) as f64 / 256.0;
                    Complex::from_polar(f64::from(values[point]), angle)
                })
                .sum();
            assert_eq!(sum.norm() > 1e-4, (1..=2).contains(&wave), "wave {wave}: {sum}");
        }
    }

    /// With space in units of `sqrt(viscosity)`, time of `viscosity` and fields of `1/sqrt(viscosity)` the equation has
    /// viscosity 1. Trajectories at other viscosities are therefore resolved equally well.
    #[test]
    fn small_viscosities_are_resolved() {
        let coarse = KuramotoSivashinsky {
            viscosity: 0.25,
            spin_up: 0.0,
            horizon: 7.0,
            frames: 8,
            ..Default::default()
        };
        let fine = KuramotoSivashinsky { step: coarse.step / 2.0, resolution: 768, ..coarse.clone() };
        let difference = relative_difference(
            &coarse.trajectory(0, 0).unwrap().values,
            &fine.trajectory(0, 0).unwrap().values,
        );
        assert!(difference < 3e-7, "{difference:e}");
    }

    #[test]
    fn senseless_options_are_refused() {
        let good = KuramotoSivashinsky::default;
        assert_refused(&KuramotoSivashinsky { grid: 0, ..good() }, "grid");
        assert_refused(&KuramotoSivashinsky { frames: 1, ..good() }, "frames");
        assert_refused(&KuramotoSivashinsky { horizon: -1.0, ..good() }, "horizon");
        assert_refused(&KuramotoSivashinsky { horizon: 1e30, ..good() }, "horizon");
        assert_refused(&KuramotoSivashinsky { viscosity: f64::NAN, ..good() }, "viscosity");
        assert_refused(&KuramotoSivashinsky { viscosity: 0.0, ..good() }, "viscosity");
        assert_refused(&KuramotoSivashinsky { length: f64::INFINITY, ..good() }, "length");
        assert_refused(&KuramotoSivashinsky { length_jitter: 1.0, ..good() }, "length_jitter");
        assert_refused(&KuramotoSivashinsky { time_jitter: f64::NAN, ..good() }, "time_jitter");
        assert_refused(&KuramotoSivashinsky { spin_up: -1.0, ..good() }, "spin_up");
        assert_refused(&KuramotoSivashinsky { step: f64::NAN, ..good() }, "step");
        let long = KuramotoSivashinsky { length: 1e12, ..good() };
        assert!(matches!(long.check(), Err(SimulationError::TooLarge { .. })));
    }

    #[test]
    fn a_run_can_be_interrupted_within_a_trajectory() {
        let result = KuramotoSivashinsky::default().simulate(0, 0, &AtomicBool::new(true));
        assert_eq!(result, Err(SimulationError::Interrupted));
    }
}
