//! Single Runge-Kutta steps.

use super::tableau::Tableau;
use super::{VectorField, control};

/// One nonzero coefficient: slope and weight.
type Term = (usize, f64);

/// A state and the workspace of a method. Nothing is allocated after [`Stepper::new`].
///
/// A step is attempted and then accepted, or attempted again with another end:
///
/// ```
/// use cfo_numerics::ode::{RK4, Stepper};
///
/// let decay = |_t: f64, u: &[f64], out: &mut [f64]| out[0] = -u[0];
/// let mut stepper = Stepper::new(&RK4, 0.0, &[1.0]);
/// for n in 1..=10 {
///     stepper.step(&decay, f64::from(n) / 10.0);
/// }
/// assert!((stepper.state()[0] - (-1.0_f64).exp()).abs() < 1e-6);
/// assert_eq!((stepper.time(), stepper.evaluations()), (1.0, 40));
/// ```
#[derive(Clone, Debug)]
pub struct Stepper {
    tableau: Tableau,
    rows: Vec<Vec<Term>>,
    output: Vec<Term>,
    error: Vec<Term>,
    dense: Vec<Term>,
    time: f64,
    next_time: f64,
    state: Vec<f64>,
    next_state: Vec<f64>,
    scratch: Vec<f64>,
    slopes: Vec<Vec<f64>>,
    first_known: bool,
    evaluations: u64,
}

impl Stepper {
    /// Creates a stepper at state `u` and time `t`.
    pub fn new(tableau: &Tableau, t: f64, u: &[f64]) -> Self {
        let terms = |row: &[f64]| -> Vec<Term> {
            row.iter().copied().enumerate().filter(|&(_, weight)| weight != 0.0).collect()
        };
        Self {
            tableau: *tableau,
            rows: tableau.a.iter().map(|row| terms(row)).collect(),
            output: terms(tableau.b),
            error: terms(tableau.error),
            dense: Vec::with_capacity(tableau.stages()),
            time: t,
            next_time: t,
            state: u.to_vec(),
            next_state: u.to_vec(),
            scratch: vec![0.0; u.len()],
            slopes: vec![vec![0.0; u.len()]; tableau.stages()],
            first_known: false,
            evaluations: 0,
        }
    }

    /// Restarts at another state and time with a counter of 0. Allocates only if no earlier state was as long.
    pub fn reset(&mut self, t: f64, u: &[f64]) {
        (self.time, self.next_time) = (t, t);
        self.first_known = false;
        self.evaluations = 0;
        for vector in
            [&mut self.state, &mut self.next_state, &mut self.scratch].into_iter().chain(&mut self.slopes)
        {
            vector.resize(u.len(), 0.0);
        }
        self.state.copy_from_slice(u);
        self.next_state.copy_from_slice(u);
    }

    /// The method.
    pub fn tableau(&self) -> &Tableau {
        &self.tableau
    }

    /// Time reached by accepted steps.
    pub fn time(&self) -> f64 {
        self.time
    }

    /// State at [`time`](Self::time).
    pub fn state(&self) -> &[f64] {
        &self.state
    }

    /// The attempted step's end.
    pub fn next_time(&self) -> f64 {
        self.next_time
    }

    /// The attempted step's state at its end.
    pub fn next_state(&self) -> &[f64] {
        &self.next_state
    }

    /// Evaluations of the field since the start.
    pub fn evaluations(&self) -> u64 {
        self.evaluations
    }

    /// Attempts a step to the time `end`, which may be earlier; [`accept`](Self::accept) accepts it.
    pub fn attempt<F: VectorField + ?Sized>(&mut self, field: &F, end: f64) {
        let (t, h) = (self.time, end - self.time);
        self.evaluate_first(field);
        let stages = self.tableau.stages();
        let inner = self.tableau.evaluations_per_step();
        for i in 1..inner {
            let (known, rest) = self.slopes.split_at_mut(i);
            combine(&self.state, h, &self.rows[i], known, &mut self.scratch);
            let c = self.tableau.c[i];
            field.velocity(if c == 1.0 { end } else { t + c * h }, &self.scratch, &mut rest[0]);
        }
        combine(&self.state, h, &self.output, &self.slopes, &mut self.next_state);
        if self.tableau.first_same_as_last {
            field.velocity(end, &self.next_state, &mut self.slopes[stages - 1]);
        }
        self.evaluations += stages as u64 - 1;
        self.next_time = end;
    }

    /// The attempted step's scaled error `E`: the root mean square of `err_i / (atol + rtol max(|u_i|, |u'_i|))`. NaN
    /// for methods without an error estimate.
    pub fn error(&self, rtol: f64, atol: f64) -> f64 {
        if self.error.is_empty() {
            return f64::NAN;
        }
        let h = self.next_time - self.time;
        let sum = match self.error.len() {
            2 => self.error_sum::<2>(h, rtol, atol),
            6 => self.error_sum::<6>(h, rtol, atol),
            7 => self.error_sum::<7>(h, rtol, atol),
            _ => (0..self.state.len())
                .map(|i| {
                    let error: f64 = self.error.iter().map(|&(slope, e)| e * self.slopes[slope][i]).sum();
                    (h * error / (atol + rtol * self.state[i].abs().max(self.next_state[i].abs()))).powi(2)
                })
                .sum(),
        };
        (sum / self.state.len().max(1) as f64).sqrt()
    }

    /// Sum of the squared scaled errors in one pass, in eight interleaved sums that the compiler can vectorise.
    fn error_sum<const N: usize>(&self, h: f64, rtol: f64, atol: f64) -> f64 {
        let count = self.state.len();
        let (old, new) = (&self.state[..count], &self.next_state[..count]);
        let slopes: [&[f64]; N] = std::array::from_fn(|j| &self.slopes[self.error[j].0][..count]);
        let weights: [f64; N] = std::array::from_fn(|j| self.error[j].1);
        let square = |i: usize| {
            let mut error = weights[0] * slopes[0][i];
            for j in 1..N {
                error += weights[j] * slopes[j][i];
            }
            let scaled = h * error / (atol + rtol * larger(old[i].abs(), new[i].abs()));
            scaled * scaled
        };
        let mut sums = [0.0; 8];
        let whole = count / 8 * 8;
        for start in (0..whole).step_by(8) {
            for (lane, sum) in sums.iter_mut().enumerate() {
                *sum += square(start + lane);
            }
        }
        sums.iter().sum::<f64>() + (whole..count).map(square).sum::<f64>()
    }

    /// Accepts the attempted step.
    pub fn accept(&mut self) {
        std::mem::swap(&mut self.state, &mut self.next_state);
        self.time = self.next_time;
        self.first_known = self.tableau.first_same_as_last;
        if self.first_known {
            let last = self.slopes.len() - 1;
            self.slopes.swap(0, last);
        }
    }

    /// Attempts a step to the time `end` and accepts it.
    pub fn step<F: VectorField + ?Sized>(&mut self, field: &F, end: f64) {
        self.attempt(field, end);
        self.accept();
    }

    /// Dense output: writes the state at time `t` inside the attempted step, before it is accepted, into `out`.
    pub fn interpolate(&mut self, t: f64, out: &mut [f64]) {
        let h = self.next_time - self.time;
        let theta = (t - self.time) / h;
        self.dense.clear();
        let weights = (0..self.slopes.len()).map(|slope| (slope, self.tableau.dense_weight(slope, theta)));
        self.dense.extend(weights.filter(|&(_, weight)| weight != 0.0));
        combine(&self.state, h, &self.dense, &self.slopes, out);
    }

    /// Whether all values of the attempted state are finite.
    pub fn next_is_finite(&self) -> bool {
        self.next_state.iter().fold(true, |finite, x| finite & x.is_finite())
    }

    /// Length of a first step towards `end`; see [`first_step`](super::first_step). Evaluates the field once or twice.
    pub fn first_step<F: VectorField + ?Sized>(&mut self, field: &F, end: f64, rtol: f64, atol: f64) -> f64 {
        self.evaluate_first(field);
        let norm = |terms: &mut dyn Iterator<Item = (f64, f64)>| -> f64 {
            let (sum, count) = terms.fold((0.0, 0_usize), |(sum, count), (x, u)| {
                let scaled = x / (atol + rtol * f64::abs(u));
                (sum + scaled * scaled, count + 1)
            });
            (sum / count.max(1) as f64).sqrt()
        };
        let (state, slope) = (&self.state, &self.slopes[0]);
        let d0 = norm(&mut state.iter().map(|&u| (u, u)));
        let d1 = norm(&mut slope.iter().copied().zip(state.iter().copied()));
        let interval = (end - self.time).abs();
        let direction = (end - self.time).signum();
        let (scratch, spare) = (&mut self.scratch, &mut self.next_state);
        let time = self.time;
        let step = control::first_step(d0, d1, self.tableau.error_order, interval, |guess| {
            let h = direction * guess;
            for ((scratch, u), k) in scratch.iter_mut().zip(state).zip(slope) {
                *scratch = u + h * k;
            }
            field.velocity(time + h, scratch, spare);
            norm(&mut spare.iter().zip(slope).zip(state).map(|((new, old), &u)| (new - old, u))) / guess
        });
        self.evaluations += 1;
        step
    }

    fn evaluate_first<F: VectorField + ?Sized>(&mut self, field: &F) {
        if !self.first_known {
            field.velocity(self.time, &self.state, &mut self.slopes[0]);
            self.evaluations += 1;
            self.first_known = true;
        }
    }
}

/// The larger of two numbers; a comparison where `f64::max` would be two.
fn larger(a: f64, b: f64) -> f64 {
    if a > b { a } else { b }
}

/// `out = u + h sum_j weight_j slope_j` in one pass over memory.
fn combine(u: &[f64], h: f64, terms: &[Term], slopes: &[Vec<f64>], out: &mut [f64]) {
    match terms.len() {
        0 => out.copy_from_slice(u),
        1 => combine_terms::<1>(u, h, terms, slopes, out),
        2 => combine_terms::<2>(u, h, terms, slopes, out),
        3 => combine_terms::<3>(u, h, terms, slopes, out),
        4 => combine_terms::<4>(u, h, terms, slopes, out),
        5 => combine_terms::<5>(u, h, terms, slopes, out),
        6 => combine_terms::<6>(u, h, terms, slopes, out),
        7 => combine_terms::<7>(u, h, terms, slopes, out),
        _ => {
            for (i, (out, u)) in out.iter_mut().zip(u).enumerate() {
                *out = u + h * terms.iter().map(|&(slope, weight)| weight * slopes[slope][i]).sum::<f64>();
            }
        }
    }
}

fn combine_terms<const N: usize>(u: &[f64], h: f64, terms: &[Term], slopes: &[Vec<f64>], out: &mut [f64]) {
    let count = out.len();
    let u = &u[..count];
    let slopes: [&[f64]; N] = std::array::from_fn(|j| &slopes[terms[j].0][..count]);
    let weights: [f64; N] = std::array::from_fn(|j| terms[j].1);
    for i in 0..count {
        let mut sum = weights[0] * slopes[0][i];
        for j in 1..N {
            sum += weights[j] * slopes[j][i];
        }
        out[i] = u[i] + h * sum;
    }
}
