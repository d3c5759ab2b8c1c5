//! Attention: a block of queries meets a block of keys at a time, so that scores never leave the second cache and no
//! memory grows with the square of the tokens.
#![allow(unsafe_code)]

use rayon::prelude::*;

use super::Io;
use super::matmul::product;
use super::real::Real;
use super::simd::vectorized;
use crate::shape::Shape;

/// Queries and keys of one block of scores.
const QUERIES: usize = 64;
const KEYS: usize = 128;

/// Sizes of the operation, and where a head's elements lie.
#[derive(Clone, Copy)]
struct Heads {
    heads: usize,
    tokens: usize,
    width: usize,
    /// Width of one head.
    head: usize,
}

impl Heads {
    fn new(heads: usize, qkv: &Shape) -> Self {
        let width = qkv.last() / 3;
        Self { heads, tokens: qkv.axes()[1], width, head: width / heads }
    }

    /// Start of the queries (0), keys (1) or values (2) of a token.
    fn qkv(&self, (sample, head): (usize, usize), part: usize, token: usize) -> usize {
        (sample * self.tokens + token) * 3 * self.width + part * self.width + head * self.head
    }

    /// Start of the result of a token.
    fn result(&self, (sample, head): (usize, usize), token: usize) -> usize {
        (sample * self.tokens + token) * self.width + head * self.head
    }

    /// One over the root of a head's width.
    fn temperature<T: Real>(&self) -> T {
        T::of(1.0 / (self.head as f64).sqrt())
    }
}

/// Memory that tasks write disjoint parts of.
struct Shared<T>(*mut T);

// SAFETY: every task writes other elements.
unsafe impl<T: Send> Sync for Shared<T> {}

impl<T> Shared<T> {
    fn at(&self, offset: usize) -> *mut T {
        // SAFETY: callers stay inside the output that it was made from.
        unsafe { self.0.add(offset) }
    }
}

pub(super) fn run<T: Real>(heads: usize, shape: &Shape, io: &Io<'_>) {
    let by = Heads::new(heads, shape);
    let qkv = io.input::<T>(0);
    let out = Shared(io.output::<T>(0).as_mut_ptr());
    let rows = io.output::<T>(1).par_chunks_mut(by.tokens).enumerate();
    rows.for_each(|(task, logs)| {
        let at = (task / heads, task % heads);
        logs.par_chunks_mut(QUERIES).enumerate().for_each(|(block, logs)| {
            forward_block(by, at, qkv, &out, block * QUERIES, logs);
        });
    });
}

/// The result of one block of queries: keys come block by block, and what was summed so far is rescaled whenever a
/// larger score appears.
fn forward_block<T: Real>(
    by: Heads,
    at: (usize, usize),
    qkv: &[T],
    out: &Shared<T>,
    first: usize,
    logs: &mut [T],
) {
    let rows = logs.len();
    let stride = 3 * by.width;
    let mut scores = [T::ZERO; QUERIES * KEYS];
    let mut largest = [T::ZERO; QUERIES];
    let mut sums = [T::ZERO; QUERIES];
    let result = out.at(by.result(at, first));
    for key in (0..by.tokens).step_by(KEYS) {
        let keys = KEYS.min(by.tokens - key);
        let q = qkv[by.qkv(at, 0, first)..].as_ptr();
        let k = qkv[by.qkv(at, 1, key)..].as_ptr();
        let v = qkv[by.qkv(at, 2, key)..].as_ptr();
        // SAFETY: rows `first..first + rows` and keys `key..key + keys` exist, a head wide; this task alone writes
        // the result's rows of this head.
        unsafe {
            let scores = scores.as_mut_ptr();
            product(
                [rows, by.head, keys],
                by.temperature(),
                (q, stride, 1),
                (k, 1, stride),
                T::ZERO,
                (scores, KEYS),
            );
        }
        for row in 0..rows {
            let scores = &mut scores[row * KEYS..][..keys];
            let before = (key > 0).then_some((largest[row], sums[row]));
            let (top, sum, factor) = exponentials(scores, before);
            (largest[row], sums[row]) = (top, sum);
            if key > 0 {
                // SAFETY: as above.
                let result = unsafe { std::slice::from_raw_parts_mut(result.add(row * by.width), by.head) };
                multiply(result, factor);
            }
        }
        let beta = if key > 0 { T::ONE } else { T::ZERO };
        // SAFETY: as above.
        unsafe {
            let scores = scores.as_ptr();
            product(
                [rows, keys, by.head],
                T::ONE,
                (scores, KEYS, 1),
                (v, stride, 1),
                beta,
                (result, by.width),
            );
        }
    }
    for row in 0..rows {
        // SAFETY: as above.
        let result = unsafe { std::slice::from_raw_parts_mut(result.add(row * by.width), by.head) };
        multiply(result, T::ONE / sums[row]);
        logs[row] = largest[row] + sums[row].ln();
    }
}

vectorized! {
/// Scores become `exp(score - largest)`; returns the largest so far, the sum so far in its units and the factor that
/// brings earlier results into them.
fn exponentials<T>(scores: &mut [T], before: Option<(T, T)>) -> (T, T, T) {
    let mut parts = [scores[0]; 16];
    let whole = scores.len() / 16 * 16;
    for chunk in scores[..whole].chunks_exact(16) {
        for (part, &score) in parts.iter_mut().zip(chunk) {
            *part = score.larger(*part);
        }
    }
    let mut top = parts[0];
    for &part in parts[1..].iter().chain(&scores[whole..]) {
        top = part.larger(top);
    }
    if let Some((earlier, _)) = before {
        top = earlier.larger(top);
    }
    for score in scores.iter_mut() {
        *score = (*score - top).exp();
    }
    let mut parts = [T::ZERO; 16];
    for chunk in scores[..whole].chunks_exact(16) {
        for (part, &score) in parts.iter_mut().zip(chunk) {
            *part += score;
        }
    }
    let mut sum = T::ZERO;
    for &part in parts.iter().chain(&scores[whole..]) {
        sum += part;
    }
    match before {
        Some((earlier, earlier_sum)) => {
            let factor = (earlier - top).exp();
            (top, sum + factor * earlier_sum, factor)
        }
        None => (top, sum, T::ZERO),
    }
}
}

vectorized! {
fn multiply<T>(row: &mut [T], factor: T) {
    for x in row {
        *x *= factor;
    }
}
}

pub(super) fn run_backward<T: Real>(heads: usize, shape: &Shape, io: &Io<'_>) {
    let by = Heads::new(heads, shape);
    let inputs = Backward { by, qkv: io.input(0), out: io.input(1), logs: io.input(2), dout: io.input(3) };
    let dqkv = Shared(io.output::<T>(0).as_mut_ptr());
    (0..shape.axes()[0] * heads).into_par_iter().for_each(|task| {
        let at = (task / heads, task % heads);
        for key in (0..by.tokens).step_by(KEYS) {
            for query in (0..by.tokens).step_by(QUERIES) {
                inputs.block(at, query, key, &dqkv);
            }
        }
    });
}

struct Backward<'a, T> {
    by: Heads,
    qkv: &'a [T],
    out: &'a [T],
    logs: &'a [T],
    dout: &'a [T],
}

impl<T: Real> Backward<'_, T> {
    /// What one block of scores adds to the cotangents of its queries, keys and values.
    fn block(&self, at: (usize, usize), query: usize, key: usize, dqkv: &Shared<T>) {
        let by = self.by;
        let (rows, keys) = (QUERIES.min(by.tokens - query), KEYS.min(by.tokens - key));
        let stride = 3 * by.width;
        let pointer = |part: usize, token: usize| self.qkv[by.qkv(at, part, token)..].as_ptr();
        let (q, k, v) = (pointer(0, query), pointer(1, key), pointer(2, key));
        let dout = self.dout[by.result(at, query)..].as_ptr();
        let mut scores = [T::ZERO; QUERIES * KEYS];
        let mut slopes = [T::ZERO; QUERIES * KEYS];
        let temperature = by.temperature::<T>();
        // SAFETY: the tokens exist, a head wide.
        unsafe {
            let (scores, slopes) = (scores.as_mut_ptr(), slopes.as_mut_ptr());
            product(
                [rows, by.head, keys],
                temperature,
                (q, stride, 1),
                (k, 1, stride),
                T::ZERO,
                (scores, KEYS),
            );
            product(
                [rows, by.head, keys],
                T::ONE,
                (dout, by.width, 1),
                (v, 1, stride),
                T::ZERO,
                (slopes, KEYS),
            );
        }
        for row in 0..rows {
            let token = by.result(at, query + row);
            let log = self.logs[(at.0 * by.heads + at.1) * by.tokens + query + row];
            let result = (&self.out[token..][..by.head], &self.dout[token..][..by.head]);
            let range = row * KEYS..row * KEYS + keys;
            score_slopes(&mut scores[range.clone()], &mut slopes[range], result, log, temperature);
        }
        let since = |first: bool| if first { T::ZERO } else { T::ONE };
        let to = |part: usize, token: usize| (dqkv.at(by.qkv(at, part, token)), stride);
        // SAFETY: as above; this task alone writes this head of this sample.
        unsafe {
            let (scores, slopes) = (scores.as_ptr(), slopes.as_ptr());
            let to_values = since(query == 0);
            product(
                [keys, rows, by.head],
                T::ONE,
                (scores, 1, KEYS),
                (dout, by.width, 1),
                to_values,
                to(2, key),
            );
            product([keys, rows, by.head], T::ONE, (slopes, 1, KEYS), (q, stride, 1), to_values, to(1, key));
            product(
                [rows, keys, by.head],
                T::ONE,
                (slopes, KEYS, 1),
                (k, stride, 1),
                since(key == 0),
                to(0, query),
            );
        }
    }
}

vectorized! {
/// For one query: scores become probabilities, their cotangents those of the scores before the temperature.
fn score_slopes<T>(scores: &mut [T], slopes: &mut [T], result: (&[T], &[T]), log: T, temperature: T) {
    let mut mean = T::ZERO;
    for (&out, &dout) in result.0.iter().zip(result.1) {
        mean += out * dout;
    }
    for (score, slope) in scores.iter_mut().zip(slopes) {
        *score = (*score - log).exp();
        *slope = *score * (*slope - mean) * temperature;
    }
}
}
