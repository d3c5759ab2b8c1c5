//! Layers of tokens on CUDA at sizes with special kernels, against the CPU.

use cfo_engine::{Activation, Shape};

use super::{agree, device, report};
use crate::check::{Build, normals};

type Tensor = (Shape, Vec<f64>);

/// Random numbers of a given size.
fn small(shape: &[usize], seed: u64, factor: f64) -> Tensor {
    let values = normals(shape.iter().product(), seed);
    (Shape::from(shape), values.iter().map(|value| value * factor).collect())
}

fn agree_on(name: &str, values: &[Tensor], build: Build<'_>) {
    let (shapes, values): (Vec<_>, Vec<_>) = values.iter().cloned().unzip();
    agree(name, &shapes, &values, build);
}

#[test]
fn large_attentions() {
    if device("large_attentions").is_none() {
        return;
    }
    // Whole heads in shared memory, more heads than multiprocessors, and heads or rows of tokens too long for shared
    // memory.
    for (batch, tokens, width, heads) in [
        (1, 256, 384, 8),
        (9, 256, 256, 16),
        (1, 250, 144, 3),
        (1, 256, 128, 2),
        (2, 100, 128, 2),
        (2, 64, 96, 6),
        (3, 33, 64, 2),
        (1, 300, 96, 2),
        (1, 70, 160, 2),
    ] {
        agree_on("large attention", &[small(&[batch, tokens, 3 * width], 1, 1.0)], &|g, x| {
            g.attention(x[0], heads)
        });
    }
    report("large_attentions");
}

#[test]
fn large_layer_norms() {
    if device("large_layer_norms").is_none() {
        return;
    }
    agree_on(
        "large layer norm",
        &[small(&[2, 256, 384], 1, 1.0), small(&[2, 384], 2, 1.0), small(&[2, 384], 3, 1.0)],
        &|g, x| g.layer_norm(x[0], Some((x[1], x[2])), 1e-6),
    );
    for [b, n, d] in [[2, 256, 384], [5, 37, 100], [2, 300, 96]] {
        let factor = 1.0 / (d as f64).sqrt();
        let row = |seed: u64| small(&[b, d], seed, 0.5);
        let values = [
            small(&[b, n, d], 1, 1.0),
            row(2),
            row(3),
            row(4),
            row(5),
            small(&[d, d], 6, factor),
            small(&[d, d], 7, factor),
        ];
        agree_on("gated residuals", &values, &|g, x| {
            let mut sum = x[0];
            for (gate, weight) in [(x[3], x[5]), (x[4], x[6])] {
                let normal = g.layer_norm(sum, Some((x[1], x[2])), 1e-6)?;
                let y = g.linear(normal, weight, None, Activation::Identity)?;
                let gate = g.reshape(gate, [b, 1, d])?;
                let gated = g.multiply(gate, y)?;
                sum = g.add(sum, gated)?;
            }
            g.layer_norm(sum, None, 1e-6)
        });
    }
    report("large_layer_norms");
}

/// Products and sums with enough rows for special kernels.
#[test]
fn many_rows() {
    if device("many_rows").is_none() {
        return;
    }
    // The last tile is not full.
    let values = [
        small(&[16_400, 64], 1, 1.0),
        small(&[64, 192], 2, 0.125),
        small(&[192], 3, 0.5),
        small(&[192, 64], 4, 0.05),
    ];
    agree_on("MLP of many rows", &values, &|g, x| {
        let y = g.linear(x[0], x[1], Some(x[2]), Activation::Gelu)?;
        let y = g.linear(y, x[3], None, Activation::Identity)?;
        g.scale(y, 0.1)
    });
    // A value that a product also reads, and that is therefore stored in the layout of products.
    let values = [small(&[16_401, 64], 6, 0.2), small(&[64, 256], 7, 0.1), small(&[256, 8], 8, 0.05)];
    agree_on("sums of many rows", &values, &|g, x| {
        let y = g.linear(x[0], x[1], None, Activation::Identity)?;
        let z = g.linear(y, x[2], None, Activation::Identity)?;
        let sums = [g.sum(y, &[0])?, g.sum(z, &[0])?];
        g.concat(&sums, 0)
    });
    report("many_rows");
}
