//! Gradient norm, Adam, assignment, counters.
#![allow(unsafe_code)]

use super::Io;
use super::scalar::Real;
use super::simd::vectorized;
use super::thread_team::{Shared, for_each};
use cfo_engine::ops::Adam;

const TASK: usize = 1 << 13;

pub(super) fn global_norm<T: Real>(io: &Io<'_>) {
    let mut sum = 0.0;
    for index in 0..io.inputs.len() {
        for block in io.input::<T>(index).chunks(TASK) {
            sum += squares(block).double();
        }
    }
    io.output::<T>(0)[0] = T::of(sum.sqrt());
}

vectorized! {
/// Sum of squares in sixteen interleaved parts.
fn squares<T>(x: &[T]) -> T {
    let mut parts = [T::ZERO; 16];
    let whole = x.len() / 16 * 16;
    for chunk in x[..whole].chunks_exact(16) {
        for (part, &x) in parts.iter_mut().zip(chunk) {
            *part += x * x;
        }
    }
    let mut sum = T::ZERO;
    for part in parts {
        sum += part;
    }
    for &x in &x[whole..] {
        sum += x * x;
    }
    sum
}
}

#[derive(Clone, Copy)]
struct Factors<T> {
    betas: [T; 2],
    /// `1 - beta` for each.
    rest: [T; 2],
    /// Learning rate divided by the first moment's correction.
    rate: T,
    /// Reciprocal root of the second moment's correction.
    correction: T,
    epsilon: T,
    /// `1 - learning rate * weight decay`.
    decay: T,
    gradient: T,
    ema: T,
}

pub(super) fn adam<T: Real>(op: &Adam, io: &Io<'_>) {
    let config = &op.config;
    let step = io.input::<u32>(0)[0];
    let n = f64::from(step) + 1.0;
    let rate = config.learning_rate * config.schedule.factor(step);
    let gradient = match config.clip {
        Some(clip) => (clip / io.input::<T>(1)[0].double()).min(1.0),
        None => 1.0,
    };
    let factors = Factors {
        betas: config.betas.map(T::of),
        rest: config.betas.map(|beta| T::of(1.0 - beta)),
        rate: T::of(rate / (1.0 - config.betas[0].powf(n))),
        correction: T::of(1.0 / (1.0 - config.betas[1].powf(n)).sqrt()),
        epsilon: T::of(config.epsilon),
        decay: T::of(1.0 - rate * config.weight_decay),
        gradient: T::of(if gradient.is_nan() { 1.0 } else { gradient }),
        ema: T::of(config.ema.unwrap_or(0.0)),
    };
    let (leading, stride) = (op.leading(), op.stride());
    for at in (leading..io.inputs.len()).step_by(stride) {
        let gradient = io.input::<T>(at + stride - 1);
        let tensors = [0, 1, 2].map(|tensor| Shared::new(io.in_place::<T>(at + tensor)));
        let average = config.ema.map(|_| Shared::new(io.in_place::<T>(at + 3)));
        for_each(gradient.len().div_ceil(TASK), |task| {
            let range = task * TASK..gradient.len().min((task + 1) * TASK);
            // SAFETY: all have the gradient's length, and tasks use disjoint parts.
            let [parameter, first, second] = tensors.map(|tensor| unsafe { tensor.range(range.clone()) });
            update(factors, parameter, first, second, &gradient[range.clone()]);
            if let Some(average) = average {
                // SAFETY: as above.
                average_toward(factors.ema, parameter, unsafe { average.range(range) });
            }
        });
    }
}

vectorized! {
fn update<T>(factors: Factors<T>, parameter: &mut [T], first: &mut [T], second: &mut [T], gradient: &[T]) {
    let f = factors;
    for (((p, m), v), &g) in parameter.iter_mut().zip(first).zip(second).zip(gradient) {
        let g = f.gradient * g;
        *m = f.betas[0] * *m + f.rest[0] * g;
        *v = f.betas[1] * *v + f.rest[1] * g * g;
        *p = f.decay * *p - f.rate * *m / (f.correction * v.sqrt() + f.epsilon);
    }
}
}

vectorized! {
fn average_toward<T>(decay: T, parameter: &[T], average: &mut [T]) {
    for (a, &p) in average.iter_mut().zip(parameter) {
        *a = decay * *a + (T::ONE - decay) * p;
    }
}
}

pub(super) fn assign<T: Real>(io: &Io<'_>) {
    // For any element type the bytes are copied as words.
    io.in_place::<u32>(0).copy_from_slice(io.input::<u32>(1));
}

pub(super) fn advance(io: &Io<'_>) {
    let counter = io.in_place::<u32>(0);
    counter[0] = counter[0].wrapping_add(1);
}
