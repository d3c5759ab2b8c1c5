//! Attention by blocks of queries and keys: scores stay in the L2 cache, no memory grows with the square of the tokens.
#![allow(unsafe_code)]

use super::Io;
use super::gemm::{Strided, for_each_task, lanes};
use super::matmul::{LOCAL_PANEL, Local};
use super::scalar::Real;
use super::simd::vectorized;
use super::thread_team::Shared;
use cfo_engine::Shape;

const QUERIES: usize = 64;
const KEYS: usize = 128;

/// Sizes of the operation, and positions of a head's elements.
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

    /// Offset of the queries (0), keys (1) or values (2) of a token.
    fn qkv(&self, (sample, head): (usize, usize), part: usize, token: usize) -> usize {
        (sample * self.tokens + token) * 3 * self.width + part * self.width + head * self.head
    }

    /// Matrix of the queries (0), keys (1) or values (2) of a head from a token on, with a row for each token.
    fn matrix<T>(&self, qkv: &[T], at: (usize, usize), part: usize, token: usize) -> Strided<T> {
        Strided { start: qkv[self.qkv(at, part, token)..].as_ptr(), row: 3 * self.width, column: 1 }
    }

    fn result(&self, (sample, head): (usize, usize), token: usize) -> usize {
        (sample * self.tokens + token) * self.width + head * self.head
    }

    /// Reciprocal square root of a head's width.
    fn temperature<T: Real>(&self) -> T {
        T::of(1.0 / (self.head as f64).sqrt())
    }
}

/// Elements of a task's memory: two blocks of scores and one panel of a product.
fn lane_elements(by: &Heads) -> usize {
    2 * QUERIES * KEYS + by.head.max(KEYS) * LOCAL_PANEL
}

/// Real elements of scratch memory, for both operations.
pub(super) fn scratch(heads: usize, shape: &Shape) -> usize {
    lanes() * lane_elements(&Heads::new(heads, shape))
}

pub(super) fn run<T: Real>(heads: usize, shape: &Shape, io: &Io<'_>) {
    let by = Heads::new(heads, shape);
    let qkv = io.input::<T>(0);
    let (out, logs) = (Shared::new(io.output::<T>(0)), Shared::new(io.output::<T>(1)));
    let blocks = by.tokens.div_ceil(QUERIES);
    let each = lane_elements(&by);
    for_each_task(shape.axes()[0] * heads * blocks, io.scratch::<T>(), each, |task, lane| {
        let (head, first) = (task / blocks, task % blocks * QUERIES);
        let at = (head / heads, head % heads);
        let last = by.tokens.min(first + QUERIES);
        // SAFETY: tasks have disjoint queries.
        let logs = unsafe { logs.range(head * by.tokens + first..head * by.tokens + last) };
        forward_block(by, at, (qkv, out), first, logs, lane);
    });
}

/// The result of one block of queries. Partial sums are rescaled whenever a block of keys has a larger score.
fn forward_block<T: Real>(
    by: Heads,
    at: (usize, usize),
    (qkv, out): (&[T], Shared<T>),
    first: usize,
    logs: &mut [T],
    lane: &mut [T],
) {
    let rows = logs.len();
    let (scores, panel) = lane.split_at_mut(QUERIES * KEYS);
    let panel = panel.as_mut_ptr();
    let mut largest = [T::ZERO; QUERIES];
    let mut sums = [T::ZERO; QUERIES];
    // SAFETY: the block's first query exists.
    let result = unsafe { out.pointer().add(by.result(at, first)) };
    // SAFETY: a block's queries exist; only this task writes the result's rows of this head.
    let result_row =
        |row: usize| unsafe { std::slice::from_raw_parts_mut(result.add(row * by.width), by.head) };
    let part = |part: usize, token: usize| by.matrix(qkv, at, part, token);
    for key in (0..by.tokens).step_by(KEYS) {
        let keys = KEYS.min(by.tokens - key);
        let [q, k, v] = [part(0, first), part(1, key), part(2, key)];
        let c = (scores.as_mut_ptr(), KEYS);
        let (sizes, accumulate) = ([rows, by.head, keys], false);
        // SAFETY: rows `first..first + rows` and keys `key..key + keys` exist, a head wide.
        unsafe { Local { sizes, a: q, b: k.transposed(), c, accumulate, panel }.run() };
        for row in 0..rows {
            let scores = &mut scores[row * KEYS..][..keys];
            let before = (key > 0).then_some((largest[row], sums[row]));
            let (top, sum, factor) = exponentials(scores, by.temperature(), before);
            (largest[row], sums[row]) = (top, sum);
            if key > 0 {
                multiply(result_row(row), factor);
            }
        }
        let a = Strided { start: scores.as_ptr(), row: KEYS, column: 1 };
        let (sizes, accumulate) = ([rows, keys, by.head], key > 0);
        // SAFETY: as above.
        unsafe { Local { sizes, a, b: v, c: (result, by.width), accumulate, panel }.run() };
    }
    for row in 0..rows {
        multiply(result_row(row), T::ONE / sums[row]);
        logs[row] = largest[row] + sums[row].ln();
    }
}

vectorized! {
/// Replaces scores, times the temperature, by `exp(score - largest)`. Returns the largest score so far, the sum so far
/// relative to it, and the factor that rescales earlier results.
fn exponentials<T>(scores: &mut [T], temperature: T, before: Option<(T, T)>) -> (T, T, T) {
    for score in scores.iter_mut() {
        *score *= temperature;
    }
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
    let dqkv = Shared::new(io.output::<T>(0));
    for_each_task(shape.axes()[0] * heads, io.scratch::<T>(), lane_elements(&by), |task, lane| {
        let at = (task / heads, task % heads);
        for key in (0..by.tokens).step_by(KEYS) {
            for query in (0..by.tokens).step_by(QUERIES) {
                inputs.block(at, [query, key], dqkv, lane);
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
    /// Adds the contribution of one block of scores to the cotangents of its queries, keys and values.
    fn block(&self, at: (usize, usize), [query, key]: [usize; 2], dqkv: Shared<T>, lane: &mut [T]) {
        let by = self.by;
        let (rows, keys) = (QUERIES.min(by.tokens - query), KEYS.min(by.tokens - key));
        let part = |part: usize, token: usize| by.matrix(self.qkv, at, part, token);
        let (q, k, v) = (part(0, query), part(1, key), part(2, key));
        let dout = Strided { start: self.dout[by.result(at, query)..].as_ptr(), row: by.width, column: 1 };
        let (scores, rest) = lane.split_at_mut(QUERIES * KEYS);
        let (slopes, panel) = rest.split_at_mut(QUERIES * KEYS);
        let panel = panel.as_mut_ptr();
        let times =
            |sizes: [usize; 3], a: Strided<T>, b: Strided<T>, c: (*mut T, usize), accumulate: bool| {
                // SAFETY: the tokens exist, a head wide; only this task writes this head of this sample.
                unsafe { Local { sizes, a, b, c, accumulate, panel }.run() };
            };
        times([rows, by.head, keys], q, k.transposed(), (scores.as_mut_ptr(), KEYS), false);
        times([rows, by.head, keys], dout, v.transposed(), (slopes.as_mut_ptr(), KEYS), false);
        for row in 0..rows {
            let token = by.result(at, query + row);
            let log = self.logs[(at.0 * by.heads + at.1) * by.tokens + query + row];
            let result = (&self.out[token..][..by.head], &self.dout[token..][..by.head]);
            let range = row * KEYS..row * KEYS + keys;
            score_slopes(&mut scores[range.clone()], &mut slopes[range], result, log, by.temperature());
        }
        // SAFETY: the tokens exist.
        let to = |part, token| (unsafe { dqkv.pointer().add(by.qkv(at, part, token)) }, 3 * by.width);
        let [scores, slopes] =
            [&*scores, &*slopes].map(|of| Strided { start: of.as_ptr(), row: KEYS, column: 1 });
        times([keys, rows, by.head], scores.transposed(), dout, to(2, key), query > 0);
        times([keys, rows, by.head], slopes.transposed(), q, to(1, key), query > 0);
        times([rows, keys, by.head], slopes, k, to(0, query), key > 0);
    }
}

vectorized! {
/// For one query: scores to probabilities, and cotangents of probabilities to those of the scores.
fn score_slopes<T>(scores: &mut [T], slopes: &mut [T], result: (&[T], &[T]), log: T, temperature: T) {
    let mut mean = T::ZERO;
    for (&out, &dout) in result.0.iter().zip(result.1) {
        mean += out * dout;
    }
    for (score, slope) in scores.iter_mut().zip(slopes) {
        *score = (temperature * *score - log).exp();
        *slope = *score * (*slope - mean) * temperature;
    }
}
}
