//! Every derivative against central differences, at irregular shapes.

use cfo_device::Device;
use cfo_engine::{
    Activation, Graph, GroupNormInputs, Memory, Node, Precision, Program, Result, Wavelet, WaveletFamily,
    spectral_modes,
};

use crate::check::gradients;

#[test]
pub fn pointwise_functions() {
    type Function = fn(&mut Graph, Node) -> Result<Node>;
    let functions: [(&str, Function); 12] = [
        ("square", Graph::square),
        ("exp", Graph::exp),
        ("sin", Graph::sin),
        ("cos", Graph::cos),
        ("tanh", Graph::tanh),
        ("sigmoid", Graph::sigmoid),
        ("abs", Graph::abs),
        ("relu", Graph::relu),
        ("silu", Graph::silu),
        ("gelu", Graph::gelu),
        ("reciprocal", Graph::reciprocal),
        ("affine", |g, x| g.affine(x, -0.7, 0.3)),
    ];
    for (name, function) in functions {
        for shape in [&[1][..], &[3, 1, 5], &[]] {
            gradients(name, &[shape], &|g, x| function(g, x[0]));
        }
    }
    gradients("log", &[&[7]], &|g, x| {
        let square = g.square(x[0])?;
        let shifted = g.affine(square, 1.0, 0.5)?;
        g.log(shifted)
    });
    gradients("sqrt", &[&[7]], &|g, x| {
        let square = g.square(x[0])?;
        let shifted = g.affine(square, 1.0, 0.5)?;
        g.sqrt(shifted)
    });
}

#[test]
pub fn arithmetic_broadcasts() {
    type Function = fn(&mut Graph, Node, Node) -> Result<Node>;
    let functions: [(&str, Function); 6] = [
        ("add", Graph::add),
        ("subtract", Graph::subtract),
        ("multiply", Graph::multiply),
        ("divide", Graph::divide),
        ("maximum", Graph::maximum),
        ("minimum", Graph::minimum),
    ];
    let shapes: [[&[usize]; 2]; 6] = [
        [&[4, 3], &[4, 3]],
        [&[4, 3], &[3]],
        [&[4, 3], &[4, 1]],
        [&[], &[2, 2]],
        [&[2, 1, 3], &[5, 1]],
        [&[1], &[1]],
    ];
    for (name, function) in functions {
        for pair in shapes {
            gradients(name, &pair, &|g, x| function(g, x[0], x[1]));
        }
    }
    gradients("a value used twice", &[&[3, 2]], &|g, x| {
        let square = g.multiply(x[0], x[0])?;
        let sin = g.sin(square)?;
        g.add(sin, square)
    });
}

#[test]
pub fn reductions_and_layout() {
    for axes in [&[0][..], &[1], &[2], &[0, 1], &[0, 2], &[1, 2], &[0, 1, 2]] {
        gradients("sum", &[&[3, 4, 5]], &|g, x| g.sum(x[0], axes));
        gradients("mean", &[&[1, 4, 1]], &|g, x| g.mean(x[0], axes));
    }
    gradients("permute", &[&[2, 3, 4]], &|g, x| g.permute(x[0], &[2, 0, 1]));
    gradients("slice", &[&[2, 5, 3]], &|g, x| g.slice(x[0], 1, 1, 3));
    gradients("slice of last", &[&[2, 5, 3]], &|g, x| g.slice(x[0], 2, 2, 1));
    gradients("concat", &[&[2, 1, 3], &[2, 4, 3]], &|g, x| g.concat(&[x[0], x[1], x[0]], 1));
    gradients("broadcast", &[&[2, 1, 3]], &|g, x| g.broadcast(x[0], [4, 2, 5, 3]));
    gradients("reshape", &[&[2, 6]], &|g, x| {
        let shaped = g.reshape(x[0], [3, 4])?;
        let sin = g.sin(shaped)?;
        g.reshape(sin, [12])
    });
    gradients("patches", &[&[2, 4, 6, 3]], &|g, x| {
        let patches = g.patches(x[0], 2)?;
        let sin = g.sin(patches)?;
        g.unpatch(sin, 2, 4, 6)
    });
}

#[test]
pub fn matrix_products() {
    for activation in [Activation::Identity, Activation::Relu, Activation::Silu, Activation::Gelu] {
        for (rows, inner, columns) in [(1, 1, 1), (5, 3, 7), (17, 33, 2)] {
            gradients("linear", &[&[rows, inner], &[inner, columns], &[columns]], &|g, x| {
                g.linear(x[0], x[1], Some(x[2]), activation)
            });
        }
        gradients("linear without bias", &[&[2, 3, 4], &[4, 5]], &|g, x| {
            g.linear(x[0], x[1], None, activation)
        });
    }
    for (ta, tb) in [(false, false), (true, false), (false, true), (true, true)] {
        let a: &[usize] = if ta { &[3, 4, 2] } else { &[3, 2, 4] };
        let b: &[usize] = if tb { &[3, 5, 4] } else { &[3, 4, 5] };
        gradients("batched matmul", &[a, b], &|g, x| g.matmul(x[0], x[1], ta, tb));
        gradients("matmul with a shared left side", &[&a[1..], b], &|g, x| g.matmul(x[0], x[1], ta, tb));
    }
}

#[test]
pub fn losses() {
    gradients("mean squared error", &[&[3, 5], &[3, 5]], &|g, x| g.mean_squared_error(x[0], x[1]));
}

#[test]
pub fn group_norms() {
    // One group, one channel per group, one channel, odd sides, more than one block, and lanes that do not divide the
    // size.
    let cases: [([usize; 4], usize); 6] = [
        ([2, 3, 5, 6], 1),
        ([2, 3, 5, 6], 6),
        ([3, 1, 7, 4], 2),
        ([1, 5, 5, 1], 1),
        ([2, 1, 1, 8], 2),
        ([2, 33, 25, 20], 4),
    ];
    for activation in [Activation::Identity, Activation::Relu, Activation::Silu, Activation::Gelu] {
        // Among thousands of elements, a step of the difference crosses a kink of ReLU somewhere.
        let large = |field: [usize; 4]| field.iter().product::<usize>() > 1000;
        let smooth = activation != Activation::Relu;
        for (field, groups) in cases.into_iter().filter(|&(field, _)| smooth || !large(field)) {
            let (b, c) = (field[0], field[3]);
            let shapes: [&[usize]; 5] = [&field, &[c], &[c], &[c], &[b, c]];
            gradients("group norm", &shapes, &|g, x| {
                let inputs =
                    GroupNormInputs { scale: x[1], bias: x[2], offset: Some(x[3]), shift: Some(x[4]) };
                g.group_norm(x[0], inputs, groups, activation)
            });
            gradients("group norm alone", &shapes[..3], &|g, x| {
                let inputs = GroupNormInputs { scale: x[1], bias: x[2], offset: None, shift: None };
                g.group_norm(x[0], inputs, groups, activation)
            });
        }
    }
}

#[test]
pub fn layer_norms() {
    for shape in [[2, 3, 5], [1, 1, 4], [2, 67, 33], [3, 5, 2]] {
        let [b, _, d] = shape;
        gradients("layer norm", &[&shape, &[b, d], &[b, d]], &|g, x| {
            g.layer_norm(x[0], Some((x[1], x[2])), 1e-6)
        });
        gradients("layer norm alone", &[&shape], &|g, x| g.layer_norm(x[0], None, 1e-5));
    }
}

#[test]
pub fn attentions() {
    // One token, one head, heads of one element, and more tokens than blocks of queries and of keys.
    for (shape, heads) in [([2, 5, 12], 2), ([1, 1, 6], 1), ([2, 3, 9], 3), ([1, 131, 12], 2)] {
        gradients("attention", &[&shape], &|g, x| g.attention(x[0], heads));
    }
}

#[test]
pub fn spectral_products() {
    let cases: [(&[usize], &[usize], usize); 9] = [
        (&[3, 1, 10, 2], &[1, 3], 4),
        (&[2, 1, 7, 3], &[1, 4], 1),
        (&[1, 1, 1, 1], &[1, 1], 2),
        (&[2, 6, 5, 2], &[2, 3], 3),
        (&[1, 4, 8, 1], &[2, 5], 2),
        (&[2, 5, 4, 3], &[1, 1], 1),
        (&[2, 7, 2], &[3], 1),
        (&[2, 4, 5, 3, 2], &[2, 1, 2], 2),
        (&[1, 3, 1, 4, 1], &[1, 1, 3], 2),
    ];
    for (field, modes, outputs) in cases {
        let (sides, channels) = (&field[1..field.len() - 1], field[field.len() - 1]);
        let weight = [spectral_modes(sides, modes), channels, 2 * outputs];
        gradients("spectral", &[field, &weight], &|g, x| g.spectral(x[0], x[1], modes));
    }
}

#[test]
pub fn wavelets() {
    for family in [WaveletFamily::Haar, WaveletFamily::Daubechies4] {
        for (field, levels) in [([2, 4, 12, 3], 2), ([1, 1, 8, 1], 3), ([2, 2, 2, 1], 1), ([1, 3, 5, 2], 0)] {
            for periodic in [[true; 2], [false; 2], [false, true]] {
                let wavelet = Wavelet { family, levels, periodic };
                gradients("wavelet", &[&field], &|g, x| g.wavelet(x[0], wavelet));
                gradients("inverse wavelet", &[&field], &|g, x| {
                    let square = g.square(x[0])?;
                    g.wavelet_inverse(square, wavelet)
                });
            }
        }
    }
}

#[test]
fn slices_that_tile_an_axis_meet_side_by_side() {
    let parts = |g: &mut Graph, x: Node| -> Result<Node> {
        let first = g.slice(x, 1, 0, 2)?;
        let second = g.slice(x, 1, 2, 1)?;
        let third = g.slice(x, 1, 3, 2)?;
        let product = g.multiply(first, third)?;
        let again = g.slice(x, 1, 0, 2)?;
        let sin = g.sin(again)?;
        let sum = g.add(product, sin)?;
        g.multiply(sum, second)
    };
    gradients("tiling slices", &[&[3, 5, 2]], &|g, x| parts(g, x[0]));
    gradients("slices with a gap", &[&[3, 5, 2]], &|g, x| {
        let first = g.slice(x[0], 1, 0, 2)?;
        let third = g.slice(x[0], 1, 3, 2)?;
        g.multiply(first, third)
    });
    let mut graph = Graph::new();
    let x = graph.input("x", [3, 5, 2]).unwrap();
    let value = parts(&mut graph, x).unwrap();
    let loss = graph.sum_all(value).unwrap();
    let gradient = graph.gradients(loss, &[x]).unwrap();
    let mut memory = Memory::new(Device::Cpu, Precision::F32).unwrap();
    memory.insert_real("x", [3, 5, 2], &[0.5; 30]).unwrap();
    let program = Program::compile(&graph, &gradient, &memory).unwrap();
    assert!(program.text().contains("concat") && !program.text().contains("embed"), "{}", program.text());
}
