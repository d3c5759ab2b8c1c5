//! Fields of one row on a GPU: their convolutions, also fused with norms, against the CPU.

use cfo_engine::{Activation, GroupNormInputs, PadMode, Shape};

use super::{agree, device, report};
use crate::check::normals;

fn real(shape: &[usize], seed: u64, factor: f64) -> (Shape, Vec<f64>) {
    let values = normals(shape.iter().product(), seed);
    (Shape::from(shape), values.iter().map(|value| value * factor).collect())
}

/// Convolutions of one row, direct and transposed. Cases: batch, length, channels in and out, taps, stride, padding.
fn lines(test: &str, mode: PadMode, cases: &[[usize; 7]]) {
    if device(test).is_none() {
        return;
    }
    for &[batch, length, inputs, outputs, taps, stride, margin] in cases {
        let factor = 0.3 / ((taps * inputs) as f64).sqrt();
        let field = real(&[batch, 1, length, inputs], 1, 1.0);
        let (shapes, values): (Vec<_>, Vec<_>) =
            [field.clone(), real(&[outputs, 1, taps, inputs], 2, factor)].into_iter().unzip();
        agree(&format!("line {mode:?}"), &shapes, &values, &|g, x| {
            g.conv(x[0], x[1], [1, stride], mode, [0, margin])
        });
        if stride == 2 {
            let (shapes, values): (Vec<_>, Vec<_>) =
                [field, real(&[inputs, 1, taps, outputs], 2, factor)].into_iter().unzip();
            agree(&format!("transposed line {mode:?}"), &shapes, &values, &|g, x| {
                g.conv_transpose(x[0], x[1], [1, stride], mode, [0, margin])
            });
        }
    }
    report(test);
}

#[test]
fn periodic_lines() {
    let cases = [[5, 25, 64, 96, 3, 1, 1], [3, 26, 32, 64, 4, 2, 1]];
    lines("periodic_lines", PadMode::Circular, &cases);
}

#[test]
fn lines_between_zeros() {
    let cases = [[9, 50, 64, 128, 3, 1, 1], [2, 41, 32, 64, 3, 2, 1], [2, 33, 32, 32, 5, 1, 2]];
    lines("lines_between_zeros", PadMode::Zero, &cases);
}

/// Rows shorter than the kernel or longer than a block, and channels that only one precision's kernels support.
#[test]
fn odd_lines() {
    let cases = [[7, 2, 32, 32, 3, 1, 1], [2, 400, 32, 32, 3, 1, 1], [3, 37, 48, 80, 3, 1, 1]];
    lines("odd_lines", PadMode::Circular, &cases);
}

/// Cases that the kernels for rows do not support.
#[test]
fn lines_left_to_others() {
    lines("lines_left_to_others", PadMode::Replicate, &[[4, 26, 64, 64, 3, 1, 1]]);
    lines("lines_left_to_others", PadMode::Circular, &[[4, 20, 20, 24, 3, 1, 1], [4, 21, 32, 32, 4, 2, 1]]);
}

/// Convolutions between norms. Cases: batch, length, channels, groups.
fn normed(test: &str, mode: PadMode, cases: &[[usize; 4]]) {
    if device(test).is_none() {
        return;
    }
    for &[batch, length, c, groups] in cases {
        let factor = 1.0 / ((3 * c) as f64).sqrt();
        let weight = |seed: u64| real(&[c, 1, 3, c], seed, factor);
        let row = |seed: u64| real(&[c], seed, 1.0);
        let (field, shift) = (real(&[batch, 1, length, c], 1, 1.0), real(&[batch, c], 7, 1.0));
        let (shapes, values): (Vec<_>, Vec<_>) =
            [field, weight(2), weight(3), row(4), row(5), row(6), shift].into_iter().unzip();
        agree(&format!("normed line {mode:?}"), &shapes, &values, &|g, x| {
            let y = g.conv(x[0], x[1], [1, 1], mode, [0, 1])?;
            let inputs = GroupNormInputs { scale: x[3], bias: x[4], offset: Some(x[5]), shift: Some(x[6]) };
            let y = g.group_norm(y, inputs, groups, Activation::Silu)?;
            let y = g.conv(y, x[2], [1, 1], mode, [0, 1])?;
            let inputs = GroupNormInputs { scale: x[4], bias: x[3], offset: None, shift: None };
            let y = g.group_norm(y, inputs, groups, Activation::Silu)?;
            g.scale(y, 0.1)
        });
    }
    report(test);
}

/// Many short samples: each convolution is fused with its norm.
#[test]
fn normed_lines() {
    normed("normed_lines", PadMode::Circular, &[[130, 20, 64, 8], [96, 10, 128, 4]]);
}

/// Channels that do not fill the last block, groups of one channel, and too few samples to fill a block.
#[test]
fn odd_normed_lines() {
    normed("odd_normed_lines", PadMode::Zero, &[[66, 12, 96, 6], [150, 7, 32, 32], [9, 100, 32, 4]]);
}
