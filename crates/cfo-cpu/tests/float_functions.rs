//! Functions of one number, their derivatives as the engine computes them, their values in `f64`, and the allowed
//! errors.

use cfo_cpu::{Level, apply};
use cfo_engine::ops::Unary;

/// Number of inputs that are evaluated together.
pub const BLOCK: usize = 1 << 12;

/// A function with its error bounds.
pub struct Function {
    pub name: &'static str,
    /// The chain of operations that computes the function.
    chain: &'static [Unary],
    /// If set, the result is multiplied by the value after this number of operations.
    times: Option<usize>,
    exact: fn(f64) -> f64,
    /// The size relative to which an error is measured, from the input and the exact value.
    size: fn(f64, f64) -> f64,
    /// Largest error in units of `f32::EPSILON` times the size.
    pub bound: f64,
    /// Largest error where the exact value is so small that the function returns 0.
    flushed: f64,
}

/// The largest error of a function found so far.
#[derive(Clone, Copy, Debug, Default)]
pub struct Worst {
    /// The error in units of `f32::EPSILON` times the function's size; infinite for an unexpected NaN or infinity.
    pub error: f64,
    /// The input with this error.
    pub input: f32,
    /// The value computed there.
    pub found: f32,
}

impl Worst {
    /// The larger of two errors.
    pub fn or(self, other: Self) -> Self {
        if other.error > self.error { other } else { self }
    }
}

const SMALLEST: f64 = f32::MIN_POSITIVE as f64;

/// Size for functions with a small relative error everywhere.
fn own(_: f64, exact: f64) -> f64 {
    exact.abs()
}

/// Size for functions of magnitude 1.
fn one(_: f64, _: f64) -> f64 {
    1.0
}

fn sigmoid(x: f64) -> f64 {
    1.0 / (1.0 + (-x).exp())
}

/// `sigmoid(x) (1 - sigmoid(x))` without cancellation.
fn bell(x: f64) -> f64 {
    sigmoid(x) * sigmoid(-x)
}

/// The argument of the sigmoid in GELU, and its derivative.
fn inner(x: f64) -> (f64, f64) {
    let c = 2.0 * (2.0 / std::f64::consts::PI).sqrt();
    (c * x * (1.0 + 0.044_715 * x * x), c * (1.0 + 3.0 * 0.044_715 * x * x))
}

/// A product that is 0 where its first factor is 0, also if the second is infinite.
fn product(a: f64, b: f64) -> f64 {
    if a == 0.0 { 0.0 } else { a * b }
}

fn gelu_slope(x: f64) -> f64 {
    let (w, steep) = inner(x);
    sigmoid(w) + product(bell(w), x * steep)
}

/// The rounding error of the sigmoid's argument is proportional to the argument, where the sigmoid is not flat.
fn gelu_size(x: f64, exact: f64) -> f64 {
    let w = inner(x).0.abs();
    exact.abs() * (1.0 + if x < 0.0 { w } else { w * (-w).exp() })
}

const SIGMOID: &[Unary] = &[Unary::Sigmoid, Unary::Affine { scale: -1.0, shift: 1.0 }];
const TANH_SLOPE: &[Unary] = &[Unary::Tanh, Unary::Square, Unary::Affine { scale: -1.0, shift: 1.0 }];
const ROOT_SLOPE: &[Unary] = &[Unary::Sqrt, Unary::Reciprocal, Unary::Affine { scale: 0.5, shift: 0.0 }];

/// All functions. The slopes of `exp`, `sin` and `cos` are among them or their negatives.
pub fn all() -> Vec<Function> {
    let plain = |name, function: &'static [Unary], exact: fn(f64) -> f64, bound| Function {
        name,
        chain: function,
        times: None,
        exact,
        size: own,
        bound,
        flushed: 0.0,
    };
    vec![
        // At least half a unit in the last place; a whole one for the system's functions.
        Function { flushed: SMALLEST, ..plain("exp", &[Unary::Exp], f64::exp, 1.5) },
        plain("ln", &[Unary::Log], f64::ln, 1.0),
        plain("sin", &[Unary::Sin], f64::sin, 1.0),
        plain("cos", &[Unary::Cos], f64::cos, 1.0),
        plain("sqrt", &[Unary::Sqrt], f64::sqrt, 0.5),
        plain("tanh", &[Unary::Tanh], f64::tanh, 2.5),
        // Reciprocals of values that are infinite in f32 are 0.
        Function { flushed: SMALLEST, ..plain("sigmoid", &[Unary::Sigmoid], sigmoid, 2.5) },
        Function { flushed: 90.0 * SMALLEST, ..plain("silu", &[Unary::Silu], silu, 3.0) },
        Function { size: gelu_size, flushed: 11.0 * SMALLEST, ..plain("gelu", &[Unary::Gelu], gelu, 3.0) },
        // Slopes cross 0, and 1 - s is a multiple of EPSILON / 2 where the sigmoid s is near 1. There it is multiplied
        // by x, up to 17, in the slope of SiLU. In the slope of GELU the factor is x times the derivative of the
        // sigmoid's argument, up to 36.
        Function { size: one, ..plain("slope of silu", &[Unary::SiluSlope], silu_slope, 17.0 / 2.0) },
        Function { size: one, ..plain("slope of gelu", &[Unary::GeluSlope], gelu_slope, 36.0 / 2.0) },
        Function { size: one, ..plain("slope of tanh", TANH_SLOPE, |x| x.cosh().powi(-2), 4.0) },
        Function { size: one, times: Some(1), ..plain("slope of sigmoid", SIGMOID, bell, 1.0) },
        plain("slope of sqrt", ROOT_SLOPE, |x| 0.5 / x.sqrt(), 1.0),
        plain("slope of ln", &[Unary::Reciprocal], f64::recip, 0.5),
    ]
}

fn silu(x: f64) -> f64 {
    product(sigmoid(x), x)
}

fn gelu(x: f64) -> f64 {
    product(sigmoid(inner(x).0), x)
}

fn silu_slope(x: f64) -> f64 {
    sigmoid(x) + product(bell(x), x)
}

impl Function {
    /// The largest error over some inputs for each level of instructions, with one evaluation in `f64` for all levels.
    pub fn worst(&self, inputs: &[f32], levels: &[Level], found: &mut [Worst]) {
        for x in inputs.chunks(BLOCK) {
            let exact: Vec<f64> = x.iter().map(|&x| (self.exact)(f64::from(x))).collect();
            let largest = |values: &[f32]| {
                let all = x.iter().zip(&exact).zip(values);
                let errors = all.map(|((&input, &exact), &found)| Worst {
                    error: self.error(input, exact, found),
                    input,
                    found,
                });
                errors.fold(Worst::default(), Worst::or)
            };
            let bits = |values: &[f32]| values.iter().map(|value| value.to_bits()).collect::<Vec<_>>();
            let first = self.values(levels[0], x);
            let first = (bits(&first), largest(&first));
            for (&level, worst) in levels.iter().zip(&mut *found) {
                // Most levels give the same bits, so one comparison suffices.
                let values = self.values(level, x);
                *worst = worst.or(if bits(&values) == first.0 { first.1 } else { largest(&values) });
            }
        }
    }

    /// The function's values with a level's instructions.
    pub fn values(&self, level: Level, x: &[f32]) -> Vec<f32> {
        let mut steps = vec![x.to_vec()];
        for &function in self.chain {
            let mut y = vec![0.0; x.len()];
            apply(level, function, &steps[steps.len() - 1], &mut y);
            steps.push(y);
        }
        let last = steps.pop().unwrap_or_default();
        match self.times {
            Some(step) => last.iter().zip(&steps[step]).map(|(a, b)| a * b).collect(),
            None => last,
        }
    }

    /// The error in units of `f32::EPSILON` times the size.
    fn error(&self, input: f32, exact: f64, found: f32) -> f64 {
        let rounded = exact as f32;
        if rounded == found || (rounded.is_nan() && found.is_nan()) {
            return 0.0;
        }
        // The last number before infinity may round either way, with the error of other numbers.
        let found = if found.is_infinite() && exact.is_finite() {
            f64::from(f32::MAX) * (1.0 + f64::from(f32::EPSILON)) * f64::from(found.signum())
        } else {
            f64::from(found)
        };
        let size = (self.size)(f64::from(input), exact).max(SMALLEST);
        let error = (found - exact).abs();
        if error.is_nan() || (rounded.is_infinite() && exact.is_infinite()) {
            return f64::INFINITY;
        }
        if found == 0.0 && error <= self.flushed { 0.0 } else { error / size / f64::from(f32::EPSILON) }
    }
}
