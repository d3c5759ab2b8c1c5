//! Convolutions of lines and the group norms of their results in one launch, where a block has whole samples.

use crate::convolution::conv::Geometry;
use crate::convolution::conv_row;
use crate::norm::group_norm::activation_number;
use crate::program::code::Code;
use crate::program::instruction::GroupNorm;
use crate::program::lower::{Argument, File, Io, Lowering, Value};

/// Appends the launch of a norm with a convolution in it.
pub(crate) fn lower(op: &GroupNorm, code: &Code, id: usize, io: &Io, to: &mut Lowering) {
    let (entry, weight) = (&code.entries[id], io.inputs[io.inputs.len() - 1]);
    let conv = op.of.as_ref().expect("merged with a convolution");
    let filter = code.shape(*entry.inputs.last().expect("the weight"));
    let shapes = [code.shape(entry.inputs[0]), filter, &entry.outputs[3].shape];
    let geometry = Geometry::within(conv, shapes, to.precision);
    let body = format!(
        "extern __shared__ __align__(16) char shared[];
conv_row_norm<{}, float, {}u, {}, {}, {}>(x, w, scale, bias, offset, shift, y, mean, inverse, kept, epsilon, shared);",
        conv_row::product(&geometry),
        op.groups,
        activation_number(op.activation),
        op.offset,
        op.shift
    );
    let parameters = "const float* x, const float* w, const float* scale, const float* bias, const float* offset, \
                      const float* shift, float* y, float* mean, float* inverse, float* kept, float epsilon";
    let address = |value: Option<Value>| Argument::from(value.map_or(0, |value| value.address));
    let offset = op.offset.then(|| io.inputs[3]);
    let shift = op.shift.then(|| io.inputs[3 + usize::from(op.offset)]);
    let mut arguments: Vec<Argument> =
        [io.inputs[0], weight, io.inputs[1], io.inputs[2]].map(|value| value.address.into()).to_vec();
    arguments.extend([address(offset), address(shift)]);
    arguments.extend(io.outputs.iter().map(|value| Argument::from(value.address)));
    arguments.push((op.epsilon as f32).to_bits().into());
    to.launch_with(File::ConvRowNorm, parameters, body, conv_row::launch(&geometry), arguments);
}
