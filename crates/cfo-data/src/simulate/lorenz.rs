//! The Lorenz system, integrated by Taylor series.

use std::sync::atomic::AtomicBool;

use cfo_numerics::Philox;
use serde::{Deserialize, Serialize};

use super::{Equation, SimulationError, options};
use crate::{Description, FieldShape, Trajectory};

/// `x' = sigma (y - x)`, `y' = x (rho - z) - y`, `z' = x y - beta z`, from a uniform state in a cube about the origin.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Lorenz {
    /// Prandtl number; 10 by default.
    pub sigma: f64,
    /// Reduced Rayleigh number; 28 by default.
    pub rho: f64,
    /// Geometric factor; 8/3 by default.
    pub beta: f64,
    /// Half the side of the cube of initial states; 5 by default.
    pub spread: f64,
    /// Number of stored times, equally spaced with both ends included; 1001 by default.
    pub frames: usize,
    /// Last time; 5 by default.
    pub horizon: f64,
}

impl Default for Lorenz {
    fn default() -> Self {
        Self { sigma: 10.0, rho: 28.0, beta: 8.0 / 3.0, spread: 5.0, frames: 1001, horizon: 5.0 }
    }
}

impl Equation for Lorenz {
    fn name(&self) -> &'static str {
        "lorenz"
    }

    fn check(&self) -> Result<(), SimulationError> {
        options::finite("sigma", self.sigma)?;
        options::finite("rho", self.rho)?;
        options::finite("beta", self.beta)?;
        options::positive("spread", self.spread)?;
        options::frames(self.frames, self.horizon, 3)
    }

    fn description(&self) -> Description {
        Description {
            system: self.name().into(),
            channel_names: ["x", "y", "z"].map(String::from).into(),
            ..Description::unnamed(FieldShape::system(3), Vec::new(), Vec::new())
        }
    }

    fn times(&self) -> Vec<f64> {
        options::uniform_times(self.frames, self.horizon)
    }

    fn simulate(&self, seed: u64, index: u64, interrupt: &AtomicBool) -> Result<Trajectory, SimulationError> {
        self.check()?;
        let mut random = Philox::new(seed, index);
        let start: [f64; 3] =
            std::array::from_fn(|_| f64::from(random.uniform_between(-self.spread, self.spread) as f32));
        let times = self.times();
        let values = self.integrate(start, &times, interrupt)?;
        Ok(Trajectory::new(times, values, Vec::new())?)
    }
}

/// Order of the series.
const ORDER: usize = 16;
/// Size of the last terms of the series at the end of a step, relative to the state.
const TRUNCATION: f64 = 1e-17;
/// Shortest step, relative to the whole span; the attractor needs about a thousandth.
const SHORTEST: f64 = 1e-7;
/// Number of times between checks of the interrupt flag.
const HEED_EVERY: usize = 4096;

impl Lorenz {
    /// The states at `times`, from `state` at the first of them.
    ///
    /// The right-hand side is quadratic, so the Taylor coefficients follow from each other by Cauchy products. An
    /// expansion is used as far as its last terms stay below round-off, for all times in that range.
    fn integrate(
        &self,
        mut state: [f64; 3],
        times: &[f64],
        interrupt: &AtomicBool,
    ) -> Result<Vec<f32>, SimulationError> {
        let mut values = Vec::with_capacity(3 * times.len());
        values.extend(state.map(|value| value as f32));
        let mut now = times[0];
        let span = times[times.len() - 1] - now;
        let mut next = 1;
        while next < times.len() {
            let diverged = SimulationError::Diverged { system: "lorenz", time: now };
            let series = self.series(state);
            let reach = reach(&series);
            if reach.is_nan() || reach < SHORTEST * span {
                return Err(diverged);
            }
            while next < times.len() && times[next] <= now + reach {
                let reached = evaluate(&series, times[next] - now);
                if !reached.iter().all(|value| value.abs() < f64::from(f32::MAX)) {
                    return Err(diverged);
                }
                values.extend(reached.map(|value| value as f32));
                next += 1;
                if next % HEED_EVERY == 0 {
                    options::heed(interrupt)?;
                }
            }
            state = evaluate(&series, reach);
            now += reach;
        }
        Ok(values)
    }

    /// The Taylor coefficients of x, y and z about `state`.
    fn series(&self, state: [f64; 3]) -> [[f64; 3]; ORDER + 1] {
        let mut series = [[0.0; 3]; ORDER + 1];
        series[0] = state;
        for k in 0..ORDER {
            let [x, y, z] = series[k];
            let (mut xy, mut xz) = (0.0, 0.0);
            for j in 0..=k {
                xy += series[j][0] * series[k - j][1];
                xz += series[j][0] * series[k - j][2];
            }
            let scale = 1.0 / (k + 1) as f64;
            series[k + 1] = [
                scale * (self.sigma * (y - x)),
                scale * (self.rho * x - xz - y),
                scale * (xy - self.beta * z),
            ];
        }
        series
    }
}

/// The distance up to which a series is used: its last two terms stay below [`TRUNCATION`] times the state.
fn reach(series: &[[f64; 3]; ORDER + 1]) -> f64 {
    let size = |order: usize| series[order].iter().fold(0.0f64, |most, value| most.max(value.abs()));
    let allowed = TRUNCATION * size(0).max(1.0);
    // A term of exactly zero (a fixed point) allows any step; an infinite or NaN one allows none.
    let limit = |order: usize| (allowed / size(order)).powf(1.0 / order as f64);
    let reach = limit(ORDER - 1).min(limit(ORDER));
    if series[ORDER].iter().all(|value| value.is_finite()) { reach } else { 0.0 }
}

/// The value of the polynomial at a distance from its centre, by Horner's rule.
fn evaluate(series: &[[f64; 3]; ORDER + 1], distance: f64) -> [f64; 3] {
    let last = series[ORDER];
    series[..ORDER].iter().rev().fold(last, |sum, term| std::array::from_fn(|i| sum[i] * distance + term[i]))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::simulate::tests::assert_refused;

    fn end(lorenz: &Lorenz, start: [f64; 3]) -> [f32; 3] {
        let values = lorenz.integrate(start, &lorenz.times(), &AtomicBool::new(false)).unwrap();
        values[values.len() - 3..].try_into().unwrap()
    }

    /// The number of frames does not influence the steps, so results differ only by rounding to `f32`.
    #[test]
    fn frames_do_not_change_the_solution() {
        let start = [1.0, -2.0, 3.0];
        let coarse = end(&Lorenz { frames: 2, ..Lorenz::default() }, start);
        assert_eq!(coarse, end(&Lorenz::default(), start));
        assert_eq!(coarse, end(&Lorenz { frames: 10_001, ..Lorenz::default() }, start));
    }

    /// A solution that is stopped in the middle and continued from there (in `f64`) takes other steps. The results
    /// agree to the states' round-off times the growth of errors over the horizon, about e^4.5 on average.
    #[test]
    fn other_steps_give_the_same_solution() {
        let lorenz = Lorenz::default();
        let mut state = [1.0, -2.0, 3.0];
        let whole = end(&lorenz, state);
        for _ in 0..5000 {
            state = evaluate(&lorenz.series(state), 0.001);
        }
        for (a, b) in state.iter().zip(whole) {
            assert!((a - f64::from(b)).abs() < 4e-6, "{state:?} {whole:?}");
        }
    }

    #[test]
    fn fixed_points_stay() {
        let lorenz = Lorenz { frames: 3, ..Lorenz::default() };
        assert_eq!(end(&lorenz, [0.0; 3]), [0.0; 3]);
        let c = (lorenz.beta * (lorenz.rho - 1.0)).sqrt();
        let wing = [c, c, lorenz.rho - 1.0];
        for (a, b) in end(&lorenz, wing).iter().zip(wing) {
            assert!((f64::from(*a) - b).abs() < 1e-5);
        }
    }

    #[test]
    fn starts_fill_the_cube() {
        let lorenz = Lorenz { frames: 2, horizon: 0.01, ..Lorenz::default() };
        let starts: Vec<f32> =
            (0..1000).flat_map(|index| lorenz.trajectory(1, index).unwrap().values[..3].to_vec()).collect();
        assert!(starts.iter().all(|value| value.abs() <= 5.0));
        let mean = starts.iter().sum::<f32>() / 3000.0;
        let square = starts.iter().map(|value| value * value).sum::<f32>() / 3000.0;
        // Standard errors: 5/sqrt(3)/sqrt(3000) = 0.053 and sqrt(625/5 - (25/3)^2)/sqrt(3000) = 0.14.
        assert!(mean.abs() < 0.25 && (square - 25.0 / 3.0).abs() < 0.6, "{mean} {square}");
    }

    #[test]
    fn senseless_options_are_refused() {
        let good = Lorenz::default;
        assert_refused(&Lorenz { frames: 1, ..good() }, "frames");
        assert_refused(&Lorenz { horizon: -1.0, ..good() }, "horizon");
        assert_refused(&Lorenz { horizon: f64::INFINITY, ..good() }, "horizon");
        assert_refused(&Lorenz { sigma: f64::NAN, ..good() }, "sigma");
        assert_refused(&Lorenz { spread: 0.0, ..good() }, "spread");
        let huge = Lorenz { frames: usize::MAX, ..good() };
        assert!(matches!(huge.trajectory(0, 0), Err(SimulationError::TooLarge { .. })));
    }
}
