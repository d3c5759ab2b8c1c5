//! Convolutions of fields with few channels, for which the library reads far more data than necessary.

use crate::convolution::conv::{Algorithm, ConvPass, Geometry};
use crate::program::{KernelFile, Lowering, OpIo, Parameters};
use cfo_engine::Precision;

/// Maximum number of channels of the field.
const CHANNELS: usize = 4;
/// Number of rows of the result computed from one tile of the field.
const ROWS: usize = 8;
/// Maximum bytes of a tile.
const TILE: usize = 40 << 10;
/// Maximum number of 8 x 8 pieces (elements by channels) of the weights per thread.
const PIECES: usize = 64;
/// Number of pieces of dy that a warp prefetches.
const RING: usize = 4;
/// Number of blocks per multiprocessor.
const RESIDENT: u32 = 3;

/// Number of elements of a patch.
fn elements(geometry: &Geometry) -> usize {
    geometry.w[1..].iter().product()
}

/// Number of elements of a tile.
fn tile(geometry: &Geometry) -> usize {
    let ([_, kh, kw, channels], columns) = (geometry.w, geometry.y[2]);
    ((ROWS + kh - 1) * (columns + kw - 1) * channels + 16 * channels).next_multiple_of(8)
}

/// The parameters of our kernels for a convolution; `None` if they do not support it.
pub(crate) fn choice(geometry: &Geometry, multiprocessors: u32) -> Option<Algorithm> {
    let Geometry { form, w: [outputs, _, _, channels], y: [batch, rows, columns, _], .. } = *geometry;
    let fits = match form {
        ConvPass::Forward => outputs % 32 == 0,
        ConvPass::Weight => outputs % 64 == 0 && columns % 16 == 0,
        ConvPass::Input => false,
    };
    let small = channels <= CHANNELS
        && elements(geometry).div_ceil(8) * outputs.div_ceil(8) <= PIECES
        && 2 * tile(geometry) <= TILE;
    let plain = geometry.precision == Precision::Bf16 && geometry.stride == [1, 1] && rows > 1;
    let strips = batch * rows.div_ceil(ROWS);
    let blocks = (RESIDENT as usize * multiprocessors as usize).min(strips) as u32;
    (fits && small && plain).then_some(Algorithm::FewChannels { blocks })
}

pub(crate) fn lower(geometry: &Geometry, blocks: u32, io: &OpIo, to: &mut Lowering) {
    let Geometry { x: [batch, h, w, ci], w: [co, kh, kw, _], y: [_, ho, wo, _], padding, .. } = *geometry;
    let [top, left] = padding;
    let few = format!(
        "FewChannels<{batch}u, {h}u, {w}u, {ci}u, {co}u, {kh}u, {kw}u, {ho}u, {wo}u, {top}, {left}, {ROWS}u>"
    );
    let [a, b, c] = [io.inputs[0], io.inputs[1], io.outputs[0]];
    if geometry.form == ConvPass::Forward {
        let grid = [(batch * ho.div_ceil(ROWS)) as u32, 1, 1];
        let parameters = Parameters::new().reads("x", a).reads("w", b).writes("y", c).restrict();
        let body = format!("few_channels_forward<{few}>(x, w, y);");
        to.launch(KernelFile::ConvFewChannels, parameters, body, grid);
        return;
    }
    let weights = co * elements(geometry);
    let ring = 2 * 8 * RING * 16 * co;
    // The tile follows the ring; at the end the sums overwrite both.
    let shared = (ring + 2 * tile(geometry)).max(4 * co * elements(geometry).next_multiple_of(8));
    let parameters = Parameters::new().reads("x", a).reads("dy", b).scratch("partial", io.scratch).restrict();
    let body = format!("few_channels_weight<{few}, {RING}>(x, dy, partial);");
    let resident = if co > 64 { 1 } else { RESIDENT };
    to.launch_resident(
        KernelFile::ConvFewChannels,
        parameters,
        body,
        ([blocks, 1, 1], 256, shared as u32),
        resident,
    );
    let parameters = Parameters::new().with("const float*", "partial", io.scratch).writes("dw", c).restrict();
    let body = format!("few_channels_totals<{blocks}u, {weights}u>(partial, dw);");
    to.launch(KernelFile::ConvFewChannels, parameters, body, [weights.div_ceil(32) as u32, 1, 1]);
}
