//! Convolutions: derivatives, adjointness through second derivatives, values from PyTorch, refusals.

use cfo_engine::{Graph, PadMode, Precision, Shape};

use crate::check::{evaluate, gradients, normals};

const MODES: [PadMode; 3] = [PadMode::Zero, PadMode::Circular, PadMode::Replicate];

/// Cases for Winograd's minimal filtering, which needs three taps, stride 1 and dozens of channels: whole and cut
/// tiles, single rows, filters computed in advance and on the way, odd padding.
const FILTERED: [Case; 7] = [
    ([2, 8, 8, 32], 32, [3, 3], [1, 1], [1, 1]),
    ([3, 5, 6, 32], 64, [3, 3], [1, 1], [1, 1]),
    ([1, 13, 10, 64], 32, [3, 3], [1, 1], [2, 0]),
    ([2, 9, 7, 96], 96, [3, 3], [1, 1], [1, 1]),
    ([1, 36, 36, 96], 96, [3, 3], [1, 1], [1, 1]),
    ([5, 1, 26, 64], 32, [1, 3], [1, 1], [0, 1]),
    ([2, 3, 37, 32], 96, [1, 3], [1, 1], [0, 2]),
];

/// Field `[batch, height, width, inputs]`, outputs, kernel, stride, padding.
type Case = ([usize; 4], usize, [usize; 2], [usize; 2], [usize; 2]);

const CASES: [Case; 12] = [
    ([2, 5, 7, 3], 4, [3, 3], [1, 1], [1, 1]),
    ([1, 1, 1, 1], 1, [3, 3], [1, 1], [1, 1]),
    ([1, 3, 3, 1], 2, [3, 3], [2, 2], [1, 1]),
    ([2, 4, 5, 17], 1, [3, 3], [1, 1], [1, 1]),
    ([1, 9, 8, 2], 19, [3, 3], [1, 1], [1, 1]),
    ([2, 3, 5, 4], 3, [1, 1], [1, 1], [0, 0]),
    ([2, 3, 5, 1], 3, [1, 1], [2, 2], [0, 0]),
    ([3, 1, 11, 2], 3, [1, 3], [1, 1], [0, 1]),
    ([2, 1, 10, 3], 2, [1, 4], [1, 2], [0, 1]),
    ([1, 6, 8, 2], 3, [4, 4], [2, 2], [1, 1]),
    ([1, 7, 5, 2], 2, [4, 4], [2, 2], [1, 1]),
    ([1, 6, 4, 2], 2, [2, 3], [3, 1], [0, 2]),
];

#[test]
pub fn convolutions_are_differentiated() {
    for (field, outputs, kernel, stride, amount) in CASES {
        for mode in MODES {
            let name = format!("conv {field:?} -> {outputs} {kernel:?} {stride:?} {mode:?}");
            let w = [outputs, kernel[0], kernel[1], field[3]];
            gradients(&name, &[&field, &w], &|g, x| g.conv(x[0], x[1], stride, mode, amount));
        }
    }
}

#[test]
pub fn filtered_convolutions_are_differentiated() {
    for (field, outputs, kernel, stride, amount) in [FILTERED[0], FILTERED[5]] {
        let w = [outputs, kernel[0], kernel[1], field[3]];
        for mode in MODES {
            let name = format!("conv {field:?} -> {outputs} {kernel:?} {mode:?}");
            gradients(&name, &[&field, &w], &|g, x| g.conv(x[0], x[1], stride, mode, amount));
        }
    }
}

#[test]
pub fn transposed_convolutions_are_differentiated() {
    for (field, outputs, kernel, stride, amount) in CASES {
        if amount[0] * 2 >= kernel[0] + field[1] - 1 || amount[1] * 2 >= kernel[1] + field[2] - 1 {
            continue;
        }
        for mode in MODES {
            let name = format!("conv transpose {field:?} -> {outputs} {kernel:?} {stride:?} {mode:?}");
            let w = [field[3], kernel[0], kernel[1], outputs];
            gradients(&name, &[&field, &w], &|g, x| g.conv_transpose(x[0], x[1], stride, mode, amount));
        }
    }
}

#[test]
pub fn gradients_of_convolutions_are_differentiated() {
    for (field, outputs, kernel, stride, amount) in CASES {
        for wanted in 0..2 {
            let name = format!("gradient {wanted} of conv {field:?} -> {outputs} {kernel:?} {stride:?}");
            let w = [outputs, kernel[0], kernel[1], field[3]];
            gradients(&name, &[&field, &w], &|g, x| {
                let y = g.conv(x[0], x[1], stride, PadMode::Zero, amount)?;
                let sin = g.sin(y)?;
                let loss = g.sum_all(sin)?;
                Ok(g.gradients(loss, &[x[wanted]])?[0])
            });
        }
    }
}

#[test]
pub fn margins_wider_than_the_field_are_differentiated() {
    for mode in MODES {
        gradients("pad", &[&[2, 2, 3, 2]], &|g, x| g.pad(x[0], mode, [5, 0], [1, 7]));
        gradients("pad one", &[&[1, 1, 1, 1]], &|g, x| g.pad(x[0], mode, [2, 3], [0, 1]));
    }
}

/// The result or a gradient of a convolution with the given weight.
fn form(case: Case, kernel: [usize; 2], w: &[f64], precision: Precision, wanted: usize) -> Vec<f64> {
    let (field, outputs, small, _, amount) = case;
    let amount = [amount[0] + (kernel[0] - small[0]) / 2, amount[1] + (kernel[1] - small[1]) / 2];
    let shapes = [Shape::from(field), Shape::from([outputs, kernel[0], kernel[1], field[3]])];
    let values = [normals(shapes[0].len(), 5), w.to_vec()];
    evaluate(&shapes, &values, precision, &|g: &mut Graph, x| {
        let y = g.conv(x[0], x[1], [1, 1], PadMode::Zero, amount)?;
        if wanted == 0 {
            return Ok(y);
        }
        let cotangent = normals(g.shape(y).len(), 6);
        let cotangent = g.constant(g.shape(y).clone(), cotangent)?;
        let product = g.multiply(y, cotangent)?;
        let loss = g.sum_all(product)?;
        Ok(g.gradients(loss, &[x[wanted - 1]])?[0])
    })
}

/// Adds two rows and columns of zero taps around each kernel; rows only if it has more than one.
fn widened(kernel: [usize; 2], inputs: usize, w: &[f64]) -> ([usize; 2], Vec<f64>) {
    let large = [if kernel[0] == 1 { 1 } else { kernel[0] + 2 }, kernel[1] + 2];
    let shift = [(large[0] - kernel[0]) / 2, 1];
    let size = kernel[0] * kernel[1] * inputs;
    let mut wide = vec![0.0; w.len() / size * large[0] * large[1] * inputs];
    for (i, &value) in w.iter().enumerate() {
        let (o, rest) = (i / size, i % size);
        let (p, q, c) = (rest / (kernel[1] * inputs), rest / inputs % kernel[1], rest % inputs);
        wide[((o * large[0] + p + shift[0]) * large[1] + q + shift[1]) * inputs + c] = value;
    }
    (large, wide)
}

/// Minimal filtering agrees with the definition, which zero taps around the kernel enforce. In `f64` to rounding, in
/// `f32` to 2e-6 of the norm (measured: up to 8e-7; the definition has 4e-7).
#[test]
pub fn minimal_filtering_agrees_with_the_definition() {
    for case in FILTERED {
        let (field, outputs, kernel, ..) = case;
        let w = normals(outputs * kernel[0] * kernel[1] * field[3], 7);
        let (large, wide) = widened(kernel, field[3], &w);
        for wanted in 0..3 {
            let mut expected = form(case, large, &wide, Precision::F64, wanted);
            if wanted == 2 {
                let places = (1..=w.len()).map(|i| i as f64).collect::<Vec<_>>();
                let inside = widened(kernel, field[3], &places).1;
                expected = expected
                    .into_iter()
                    .zip(inside)
                    .filter(|(_, place)| *place > 0.0)
                    .map(|(e, _)| e)
                    .collect();
            }
            let norm = expected.iter().map(|e| e * e).sum::<f64>().sqrt();
            for (precision, bound) in [(Precision::F64, 1e-14), (Precision::F32, 2e-6)] {
                let found = form(case, kernel, &w, precision, wanted);
                assert_eq!(found.len(), expected.len());
                let error = found.iter().zip(&expected).map(|(f, e)| (f - e).powi(2)).sum::<f64>().sqrt();
                assert!(error <= bound * norm, "{case:?} {precision:?} form {wanted}: {:e}", error / norm);
            }
        }
    }
}

#[test]
pub fn the_number_of_threads_does_not_change_a_bit() {
    for case in FILTERED.into_iter().chain(CASES) {
        let (field, outputs, kernel, ..) = case;
        let w = normals(outputs * kernel[0] * kernel[1] * field[3], 7);
        for wanted in 0..3 {
            let [one, three] = [1, 3].map(|threads| {
                let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
                pool.install(|| form(case, kernel, &w, Precision::F32, wanted))
            });
            assert!(one == three, "{case:?} form {wanted}");
        }
    }
}

fn wave(shape: &Shape, phase: f64) -> Vec<f64> {
    (0..shape.len()).map(|i| (0.7 * i as f64 + phase).sin()).collect()
}

#[test]
pub fn values_and_gradients_agree_with_pytorch() {
    for line in include_str!("../fixtures/conv.txt").lines() {
        let numbers: Vec<f64> = line.split(' ').map(|number| number.parse().unwrap()).collect();
        let (head, expected) = numbers.split_at(13);
        let at = |i: usize| head[i] as usize;
        let pair = |i: usize| [at(i), at(i + 1)];
        let (transposed, mode, kernel, stride, amount) =
            (at(0) == 1, MODES[at(1)], pair(7), pair(9), pair(11));
        let (inputs, outputs) = (at(5), at(6));
        let w = match transposed {
            true => [inputs, kernel[0], kernel[1], outputs],
            false => [outputs, kernel[0], kernel[1], inputs],
        };
        let shapes = [Shape::from([at(2), at(3), at(4), inputs]), Shape::from(w)];
        let values = [wave(&shapes[0], 0.1), wave(&shapes[1], 0.5)];
        for precision in [Precision::F64, Precision::F32] {
            let mut found = Vec::new();
            for wanted in 0..3 {
                let all = evaluate(&shapes, &values, precision, &|g: &mut Graph, x| {
                    let y = match transposed {
                        true => g.conv_transpose(x[0], x[1], stride, mode, amount)?,
                        false => g.conv(x[0], x[1], stride, mode, amount)?,
                    };
                    let square = g.square(y)?;
                    let sum = g.sum_all(square)?;
                    let loss = g.affine(sum, 0.5, 0.0)?;
                    match wanted {
                        0 => Ok(y),
                        _ => Ok(g.gradients(loss, &[x[wanted - 1]])?[0]),
                    }
                });
                found.extend(all.into_iter().step_by(3));
            }
            assert_eq!(found.len(), expected.len(), "{head:?}");
            let scale = expected.iter().fold(0.0_f64, |scale, value| scale.max(value.abs()));
            for (found, expected) in found.iter().zip(expected) {
                let error = (found - expected).abs() / scale;
                assert!(error < 1e-5, "{precision:?} {head:?}: {found} but PyTorch says {expected}");
            }
        }
    }
}

#[test]
pub fn shapes_that_do_not_fit_are_refused_in_words() {
    let mut g = Graph::new();
    let x = g.input("x", [1, 4, 4, 3]).unwrap();
    let w = g.input("w", [8, 3, 3, 2]).unwrap();
    let message = g.conv(x, w, [1, 1], PadMode::Zero, [1, 1]).unwrap_err().to_string();
    assert!(message.contains("[1, 4, 4, 3]") && message.contains("[8, 3, 3, 2]"), "{message}");
    let large = g.input("large", [8, 7, 7, 3]).unwrap();
    assert!(g.conv(x, large, [1, 1], PadMode::Zero, [1, 1]).is_err());
    assert!(g.conv(x, large, [0, 1], PadMode::Zero, [3, 3]).is_err());
    assert!(g.conv_transpose(x, w, [2, 2], PadMode::Zero, [1, 1]).is_err());
    let flat = g.input("flat", [4, 3]).unwrap();
    assert!(g.pad(flat, PadMode::Circular, [1, 1], [1, 1]).is_err());
}
