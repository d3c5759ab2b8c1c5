//! Time variables of a path: physical time, or a logarithmic time for fields that slow down.
//!
//! Diffusion-reaction starts a hundred times faster than it ends, so a spline between its early snapshots misses most
//! of the change there. In logarithmic time the field changes nearly evenly. Splines then follow it, solver steps are
//! short where they have to be, and velocities have the same size at all times.

/// The time variable of a path: a function of the elapsed fraction of the horizon, 0 at its start and 1 at its end.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub enum Clock {
    /// The fraction itself.
    #[default]
    Even,
    /// `ln(1 + share / half) / ln(1 + 1 / half)`: at the fraction `half` the rate is half the initial rate.
    Logarithmic {
        /// Positive.
        half: f64,
    },
}

impl Clock {
    /// A logarithmic clock for `Some(half)`, an even one for `None`.
    pub fn of(half: Option<f64>) -> Self {
        half.map_or(Self::Even, |half| Self::Logarithmic { half })
    }

    /// The `half` of a logarithmic clock.
    pub fn half(self) -> Option<f64> {
        match self {
            Self::Even => None,
            Self::Logarithmic { half } => Some(half),
        }
    }

    /// The reading at a fraction of the horizon. Before the start, a logarithmic clock continues at its initial rate.
    pub fn reading(self, share: f64) -> f64 {
        match self {
            Self::Even => share,
            Self::Logarithmic { .. } if share < 0.0 => share * self.rate(0.0),
            Self::Logarithmic { half } => (share / half).ln_1p() / half.recip().ln_1p(),
        }
    }

    /// The fraction of the horizon at a reading; the inverse of [`reading`](Self::reading).
    pub fn share(self, reading: f64) -> f64 {
        match self {
            Self::Even => reading,
            Self::Logarithmic { .. } if reading < 0.0 => reading / self.rate(0.0),
            Self::Logarithmic { half } => half * (reading * half.recip().ln_1p()).exp_m1(),
        }
    }

    /// The derivative of the reading at a fraction of the horizon.
    pub fn rate(self, share: f64) -> f64 {
        match self {
            Self::Even => 1.0,
            Self::Logarithmic { half } => 1.0 / ((share.max(0.0) + half) * half.recip().ln_1p()),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// The reading increases from 0 to 1 over the horizon and is invertible before and after it; the rate is its
        /// derivative.
        #[test]
        fn a_clock_goes_one_way_and_back(half in 1e-4..1e2_f64, share in -2.0..5.0_f64, later in 1e-3..1.0_f64) {
            for clock in [Clock::Even, Clock::Logarithmic { half }] {
                prop_assert!(clock.reading(0.0) == 0.0 && (clock.reading(1.0) - 1.0).abs() < 1e-12);
                prop_assert!(clock.reading(share + later) > clock.reading(share));
                prop_assert!((clock.share(clock.reading(share)) - share).abs() < 1e-9 * (1.0 + share.abs()));
                let step = 1e-5 * (half + share.abs()).min(1.0);
                let slope = (clock.reading(share + step) - clock.reading(share - step)) / (2.0 * step);
                prop_assert!((slope / clock.rate(share) - 1.0).abs() < 1e-3, "{slope} {}", clock.rate(share));
            }
            prop_assert!(clock_is_half_as_fast(half));
        }
    }

    fn clock_is_half_as_fast(half: f64) -> bool {
        let clock = Clock::Logarithmic { half };
        (clock.rate(half) / clock.rate(0.0) - 0.5).abs() < 1e-12
    }
}
