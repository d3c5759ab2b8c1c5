//! Bias and activation of a block after the product, while it is in a near cache.

use super::Block;
use crate::Io;
use crate::gemm::Shared;
use crate::scalar::Real;
use crate::simd::vectorized;
use cfo_engine::ops::{Activation, MatMul};

pub(super) struct MatMulEpilogue<'a, T> {
    bias: &'a [T],
    activation: Activation,
    kept: Option<Shared<T>>,
}

impl<'a, T: Real> MatMulEpilogue<'a, T> {
    pub(super) fn new(op: &MatMul, io: &Io<'a>) -> Self {
        Self {
            bias: if op.bias { io.input::<T>(2) } else { &[] },
            activation: op.activation,
            kept: op.keep_input.then(|| Shared::new(io.output::<T>(1))),
        }
    }

    pub(super) fn apply(&self, block: &Block<'_, T>) {
        if self.bias.is_empty() && self.activation == Activation::Identity {
            return;
        }
        let columns = block.columns();
        let bias = if self.bias.is_empty() { &[] } else { &self.bias[columns.clone()] };
        let start = block.start(&block.product.c) + columns.start;
        for row in block.rows() {
            let at = start + row * block.product.c.row;
            let range = at..at + columns.len();
            // SAFETY: this task's part of the outputs, which have the same layout and which no other task accesses.
            let (c, kept) = unsafe {
                let kept = self.kept.map_or(&mut [][..], |kept| kept.range(range.clone()));
                (block.c.range(range), kept)
            };
            finish(self.activation, bias, c, kept);
        }
    }
}

vectorized! {
/// Adds the bias if there is one, keeps the sum if there is memory for it, and applies the activation.
fn finish<T>(activation: Activation, bias: &[T], row: &mut [T], kept: &mut [T]) {
    for (c, &bias) in row.iter_mut().zip(bias) {
        *c += bias;
    }
    if !kept.is_empty() {
        kept.copy_from_slice(row);
    }
    match activation {
        Activation::Identity => {}
        Activation::Relu => row.iter_mut().for_each(|x| *x = x.larger(T::ZERO)),
        Activation::Silu => row.iter_mut().for_each(|x| *x = x.silu()),
        Activation::Gelu => row.iter_mut().for_each(|x| *x = x.gelu()),
    }
}
}
