//! Layers on CUDA at sizes with special kernels, against the CPU.

use cfo_device::Device;
use cfo_engine::{Graph, GroupNormInputs, Memory, PadMode, Precision, Program, Shape};

use super::{agree, device, relative, report};
use crate::check::normals;

/// Group norms of a field, fused and alone.
fn kept_norm(test: &str, field: [usize; 4]) {
    if device(test).is_none() {
        return;
    }
    let real = |shape: &[usize], seed: u64| (Shape::from(shape), normals(shape.iter().product(), seed));
    let [b, _, _, c] = field;
    let values = [real(&field, 1), real(&[c], 2), real(&[c], 3), real(&[c], 4), real(&[b, c], 5)];
    let (shapes, values): (Vec<_>, Vec<_>) = values.into_iter().unzip();
    agree("kept group norm", &shapes, &values, &|g, x| {
        let inputs = GroupNormInputs { scale: x[1], bias: x[2], offset: Some(x[3]), shift: Some(x[4]) };
        g.group_norm(x[0], inputs, 8, cfo_engine::Activation::Silu)
    });
    agree("kept plain group norm", &shapes[..3], &values[..3], &|g, x| {
        let inputs = GroupNormInputs { scale: x[1], bias: x[2], offset: None, shift: None };
        g.group_norm(x[0], inputs, 8, cfo_engine::Activation::Gelu)
    });
    report(test);
}

/// A convolution `[outputs, k, k, channels]` of a field with few channels.
fn few_channels(test: &str, field: [usize; 4], k: usize, outputs: usize) {
    if device(test).is_none() {
        return;
    }
    let inputs = field[3];
    let shapes = [Shape::from(field), Shape::from([outputs, k, k, inputs])];
    let factor = 1.0 / ((k * k * inputs) as f64).sqrt();
    let weights = normals(shapes[1].len(), 2).into_iter().map(|value| factor * value).collect();
    agree("conv of few channels", &shapes, &[normals(shapes[0].len(), 1), weights], &|g, x| {
        let y = g.conv(x[0], x[1], [1, 1], PadMode::Zero, [1, 1])?;
        g.scale(y, 0.3)
    });
    report(test);
}

macro_rules! sizes {
    ($check:ident: $($test:ident($($argument:expr),*)),* $(,)?) => {
        $(
            #[test]
            fn $test() {
                $check(stringify!($test), $($argument),*);
            }
        )*
    };
}

// Kept by a block, by clusters (whole and not) and by teams; and one that fits none of them.
sizes!(
    kept_norm: a_block_keeps_a_norm([3, 16, 16, 64]), a_part_of_a_cluster_keeps_a_norm([2, 20, 30, 128]),
    a_cluster_keeps_a_norm([2, 64, 64, 128]), a_part_of_a_team_keeps_a_norm([5, 70, 61, 64]),
    a_team_keeps_a_norm([2, 128, 128, 64]), nobody_keeps_a_norm([2, 40, 40, 96]),
);
sizes!(
    few_channels: one_channel_is_few([3, 48, 48, 1], 3, 64), two_channels_are_few([2, 19, 66, 2], 5, 64),
    two_channels_of_an_odd_width([2, 20, 23, 2], 3, 32), three_channels_are_few([2, 16, 32, 3], 3, 128),
);

/// Norms whose results are recomputed have the same gradients as norms whose results are kept.
#[test]
fn large_results_are_computed_again() {
    if device("large_results_are_computed_again").is_none() {
        return;
    }
    // The whole is large enough; the parts of the batch, which are independent, are not.
    let (batch, c) = (32, 64);
    let gradients = |batch: usize, first: usize| -> Vec<Vec<f64>> {
        let mut graph = Graph::new();
        let g = &mut graph;
        let mut memory = Memory::new(Device::Cuda(0), Precision::Bf16).unwrap();
        let mut named = |g: &mut Graph, name: &str, shape: &[usize], values: Vec<f64>| {
            let values: Vec<f32> = values.into_iter().map(|value| value as f32).collect();
            memory.insert_real(name, shape, &values).unwrap();
            g.input(name, shape).unwrap()
        };
        let size = 128 * 128 * 2;
        let field = normals(32 * size, 1)[first * size..(first + batch) * size].to_vec();
        let mut x = named(g, "x", &[batch, 128, 128, 2], field);
        let shift =
            named(g, "shift", &[batch, c], normals(32 * c, 2)[first * c..(first + batch) * c].to_vec());
        let mut weights = Vec::new();
        for (layer, inputs) in [2, c, c].into_iter().enumerate() {
            let factor = 1.0 / (9.0 * inputs as f64).sqrt();
            let values = normals(9 * inputs * c, 3 + layer as u64).into_iter().map(|value| value * factor);
            let w = named(g, &format!("w{layer}"), &[c, 3, 3, inputs], values.collect());
            let scale = named(g, &format!("s{layer}"), &[c], normals(c, 9));
            x = g.conv(x, w, [1, 1], PadMode::Zero, [1, 1]).unwrap();
            let shift = (layer == 1).then_some(shift);
            let inputs = GroupNormInputs { scale, bias: scale, offset: None, shift };
            x = g.group_norm(x, inputs, 8, cfo_engine::Activation::Silu).unwrap();
            weights.extend([w, scale]);
        }
        let square = g.square(x).unwrap();
        let loss = g.sum_all(square).unwrap();
        let outputs = g.gradients(loss, &weights).unwrap();
        let mut program = Program::compile(g, &outputs, &memory).unwrap();
        program.run(&mut memory).unwrap();
        (0..outputs.len()).map(|i| program.output_f64(i).unwrap()).collect()
    };
    let whole = gradients(batch, 0);
    let mut parts = gradients(8, 0);
    for first in [8, 16, 24] {
        for (sum, part) in parts.iter_mut().zip(gradients(8, first)) {
            sum.iter_mut().zip(part).for_each(|(sum, part)| *sum += part);
        }
    }
    for (whole, parts) in whole.iter().zip(&parts) {
        let error = relative(whole, parts, 0.0);
        assert!(error < 1e-2, "{error}");
    }
}
