//! Sums over all ranks, in single precision.

use super::layout::copy_value;
use crate::program::{GpuWork, Lowering, OpIo, Scalar};
use crate::runtime::nccl::Message;

/// With one rank: copies every input to the output with its index.
pub(crate) fn alone(io: &OpIo, to: &mut Lowering) {
    for (&x, &y) in io.inputs.iter().zip(&io.outputs) {
        copy_value(x, y, to);
    }
}

/// Sums all inputs in one message; rounded values are first converted to single precision.
pub(crate) fn lower(io: &OpIo, to: &mut Lowering) {
    let mut messages = Vec::new();
    for (&x, &y) in io.inputs.iter().zip(&io.outputs) {
        let from = match x.scalar {
            Scalar::F32 => x.address,
            _ => {
                copy_value(x, y, to);
                y.address
            }
        };
        messages.push(Message { from, to: y.address, count: y.count });
    }
    to.append(GpuWork::AllReduce(messages));
}
