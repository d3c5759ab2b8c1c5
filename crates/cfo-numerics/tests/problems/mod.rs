//! Vector fields, most with exact solutions, for tests of this crate.
#![allow(dead_code, reason = "each test uses some of them")]

use cfo_numerics::ode::VectorField;

/// A field with its exact solution.
#[derive(Clone, Copy, Debug)]
pub struct Problem {
    /// Name in messages of failing tests.
    pub name: &'static str,
    /// The right-hand side.
    pub velocity: fn(f64, &[f64], &mut [f64]),
    /// The exact state at a time.
    pub exact: fn(f64) -> Vec<f64>,
    /// First and last time between which the solution stays moderate.
    pub span: [f64; 2],
}

impl VectorField for Problem {
    fn velocity(&self, t: f64, u: &[f64], out: &mut [f64]) {
        (self.velocity)(t, u, out);
    }
}

/// All problems with exact solutions.
pub const PROBLEMS: [Problem; 4] = [DECAY, OSCILLATOR, LOGISTIC, DRIVEN];

/// `u' = -u`.
pub const DECAY: Problem = Problem {
    name: "decay",
    velocity: |_, u, out| out[0] = -u[0],
    exact: |t| vec![(-t).exp()],
    span: [0.0, 1.0],
};

/// `x' = y, y' = -x`: a circle.
pub const OSCILLATOR: Problem = Problem {
    name: "oscillator",
    velocity: |_, u, out| {
        out[0] = u[1];
        out[1] = -u[0];
    },
    exact: |t| vec![t.sin(), t.cos()],
    span: [-0.5, 2.0],
};

/// `u' = u (1 - u)`: nonlinear.
pub const LOGISTIC: Problem = Problem {
    name: "logistic",
    velocity: |_, u, out| out[0] = u[0] * (1.0 - u[0]),
    exact: |t| vec![1.0 / (1.0 + 3.0 * (-t).exp())],
    span: [0.0, 3.0],
};

/// `u' = u cos t`: the field depends on time.
pub const DRIVEN: Problem = Problem {
    name: "driven",
    velocity: |t, u, out| out[0] = u[0] * t.cos(),
    exact: |t| vec![t.sin().exp()],
    span: [-1.0, 2.0],
};

/// `u' = u^2` from `u(0) = 1`: infinite at `t = 1`.
pub fn blow_up(_: f64, u: &[f64], out: &mut [f64]) {
    for (out, u) in out.iter_mut().zip(u) {
        *out = u * u;
    }
}

/// The Lorenz system, `x' = sigma (y - x), y' = x (rho - z) - y, z' = x y - beta z`, with the paper's constants by
/// default.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Lorenz {
    /// 10 by default.
    pub sigma: f64,
    /// 28 by default.
    pub rho: f64,
    /// 8/3 by default.
    pub beta: f64,
}

impl Default for Lorenz {
    fn default() -> Self {
        Self { sigma: 10.0, rho: 28.0, beta: 8.0 / 3.0 }
    }
}

impl VectorField for Lorenz {
    fn velocity(&self, _: f64, u: &[f64], out: &mut [f64]) {
        let &[x, y, z] = u else { panic!("a Lorenz state has 3 numbers; found {}", u.len()) };
        out.copy_from_slice(&[self.sigma * (y - x), x * (self.rho - z) - y, x * y - self.beta * z]);
    }
}
