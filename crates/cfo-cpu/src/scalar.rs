//! The two types of real numbers of the CPU backend, and vectorisable functions of them.

use std::ops::{Add, AddAssign, Div, Mul, MulAssign, Neg, Sub, SubAssign};

use super::buffer::Plain;
use super::gemm::Dispatch;

/// Real numbers: `f32` for work, `f64` for checks.
pub(crate) trait Real:
    Plain
    + Dispatch
    + Default
    + PartialOrd
    + Add<Output = Self>
    + Sub<Output = Self>
    + Mul<Output = Self>
    + Div<Output = Self>
    + Neg<Output = Self>
    + AddAssign
    + SubAssign
    + MulAssign
    + std::iter::Sum
{
    /// Whether the type is used for work, so that vector instructions are worth while, rather than only for checks.
    const WORKS: bool;
    const ZERO: Self;
    const ONE: Self;
    fn of(value: f64) -> Self;
    fn double(self) -> f64;
    fn exp(self) -> Self;
    fn ln(self) -> Self;
    fn sin(self) -> Self;
    fn cos(self) -> Self;
    fn tanh(self) -> Self;
    fn sqrt(self) -> Self;
    fn abs(self) -> Self;
    fn larger(self, other: Self) -> Self;
    fn smaller(self, other: Self) -> Self;

    #[inline(always)]
    fn sigmoid(self) -> Self {
        Self::ONE / (Self::ONE + (-self).exp())
    }

    /// `x` clamped to the bounds; NaN stays NaN.
    #[inline(always)]
    fn within(self, low: f64, high: f64) -> Self {
        let (low, high) = (Self::of(low), Self::of(high));
        // In this order, each selection is one instruction.
        let x = if self < low { low } else { self };
        if x > high { high } else { x }
    }

    #[inline(always)]
    fn silu(self) -> Self {
        let x = self.within(-SILU_FLAT, f64::INFINITY);
        x * x.sigmoid()
    }

    #[inline(always)]
    fn silu_slope(self) -> Self {
        let x = self.within(-SILU_FLAT, SILU_FLAT);
        let s = x.sigmoid();
        s * (Self::ONE + x * (Self::ONE - s))
    }

    /// `x / 2 (1 + tanh(w))` with `w = sqrt(2/pi) (x + 0.044715 x^3)`, written as `x sigmoid(2w)`.
    #[inline(always)]
    fn gelu(self) -> Self {
        let (c, d) = (Self::of(GELU_SCALE), Self::of(GELU_CUBE));
        let x = self.within(-GELU_FLAT, f64::INFINITY);
        x * (c * x * (Self::ONE + d * x * x)).sigmoid()
    }

    #[inline(always)]
    fn gelu_slope(self) -> Self {
        let (c, d) = (Self::of(GELU_SCALE), Self::of(GELU_SCALE * GELU_CUBE));
        let x = self.within(-GELU_FLAT, GELU_FLAT);
        let square = x * x;
        let s = (x * (c + d * square)).sigmoid();
        s + s * (Self::ONE - s) * (x * (c + Self::of(3.0) * d * square))
    }
}

/// Magnitude beyond which the sigmoid inside SiLU is exactly 0 or 1. Arguments are clamped: infinity times 0 is NaN.
const SILU_FLAT: f64 = 800.0;
/// `SILU_FLAT` for GELU, whose square must not overflow either.
const GELU_FLAT: f64 = 40.0;
/// `2 sqrt(2 / pi)`.
const GELU_SCALE: f64 = 1.595_769_121_605_730_9;
const GELU_CUBE: f64 = 0.044_715;

/// Defines functions of a type as those of the standard library, and selections that keep a NaN of the first operand.
macro_rules! of_the_standard_library {
    ($($function:ident),*) => {
        $(
            #[inline(always)]
            fn $function(self) -> Self {
                self.$function()
            }
        )*

        #[inline(always)]
        fn larger(self, other: Self) -> Self {
            if self > other || self.is_nan() { self } else { other }
        }

        #[inline(always)]
        fn smaller(self, other: Self) -> Self {
            if self < other || self.is_nan() { self } else { other }
        }
    };
}

impl Real for f32 {
    const WORKS: bool = true;
    const ZERO: Self = 0.0;
    const ONE: Self = 1.0;
    of_the_standard_library!(ln, sin, cos, sqrt, abs);

    #[inline(always)]
    fn of(value: f64) -> Self {
        value as Self
    }

    #[inline(always)]
    fn double(self) -> f64 {
        f64::from(self)
    }

    /// Exponential by range reduction by `ln 2` in two parts and a polynomial of degree 6, accurate to 2 units in the
    /// last place. It has no branches and no conversions, so that loops over it vectorise. Results below the smallest
    /// normal number are 0.
    #[inline(always)]
    fn exp(self) -> Self {
        /// Adding this number rounds to an integer in the lowest bits.
        const ROUND: f32 = 12_582_912.0;
        /// The first argument whose exponential is infinite.
        const OVERFLOW: f32 = 88.722_84;
        /// The first argument whose exponential is a normal number.
        const NORMAL: f32 = -87.336_54;
        let shifted = self * std::f32::consts::LOG2_E + ROUND;
        let n = shifted - ROUND;
        let r = (self - n * 0.693_359_4) - n * -2.121_944_4e-4;
        let p = 1.987_569_2e-4;
        let p = p * r + 1.398_199_9e-3;
        let p = p * r + 8.333_452e-3;
        let p = p * r + 4.166_579_6e-2;
        let p = p * r + 1.666_666_5e-1;
        let p = p * r + 0.5;
        let value = p * (r * r) + r + 1.0;
        // From NORMAL to OVERFLOW, n is between -126 and 128 and is added to the exponent. The value is at least 1
        // where n is -126, and below 1 where n is 128, so the sum is the exponent of a normal number. Outside, the bits
        // have no meaning.
        let power = (shifted.to_bits().wrapping_sub(ROUND.to_bits())) << 23;
        let result = Self::from_bits(value.to_bits().wrapping_add(power));
        let result = if self < NORMAL { 0.0 } else { result };
        let result = if self >= OVERFLOW { Self::INFINITY } else { result };
        if self.is_nan() { self } else { result }
    }

    /// Uses a polynomial near 0, where the difference of two numbers near 1 would lose relative accuracy. The
    /// coefficients are those of the Cephes library.
    #[inline(always)]
    fn tanh(self) -> Self {
        let square = self * self;
        let p = -5.704_988_7e-3;
        let p = p * square + 2.063_909e-2;
        let p = p * square - 5.373_971_5e-2;
        let p = p * square + 1.333_144_2e-1;
        let p = p * square - 3.333_328e-1;
        let near = self + self * square * p;
        let far = 1.0 - 2.0 / (1.0 + Real::exp(self + self));
        if self.abs() < 0.625 { near } else { far }
    }
}

impl Real for f64 {
    const WORKS: bool = false;
    const ZERO: Self = 0.0;
    const ONE: Self = 1.0;
    of_the_standard_library!(exp, ln, sin, cos, tanh, sqrt, abs);

    #[inline(always)]
    fn of(value: f64) -> Self {
        value
    }

    #[inline(always)]
    fn double(self) -> f64 {
        self
    }
}

#[cfg(test)]
mod tests {
    use super::Real;

    #[test]
    fn exponential_is_accurate_to_its_last_places() {
        let mut worst = 0.0_f64;
        for i in -870_000..887_000 {
            let x = i as f32 * 1e-4;
            let exact = f64::from(x).exp();
            worst = worst.max(((f64::from(Real::exp(x)) - exact) / exact).abs());
        }
        assert!(worst < 2.5e-7, "relative error {worst}");
        assert_eq!(Real::exp(0.0_f32), 1.0);
        assert_eq!(Real::exp(100.0_f32), f32::INFINITY);
        assert!(Real::exp(f32::NAN).is_nan());
        assert_eq!(Real::exp(-200.0_f32), 0.0);
    }

    #[test]
    fn activations_agree_with_their_definitions() {
        for i in -400..400 {
            let x = f64::from(i) * 0.025;
            let w = (2.0 / std::f64::consts::PI).sqrt() * (x + 0.044_715 * x.powi(3));
            let gelu = 0.5 * x * (1.0 + w.tanh());
            let near =
                |found: f32, exact: f64| (f64::from(found) - exact).abs() <= 1e-6 * exact.abs().max(1e-3);
            assert!(near(Real::gelu(x as f32), gelu), "gelu({x})");
            assert!(near(Real::tanh(x as f32), x.tanh()), "tanh({x}) {} {}", Real::tanh(x as f32), x.tanh());
            assert!(near(Real::silu(x as f32), x / (1.0 + (-x).exp())), "silu({x})");
        }
    }
}
