//! Every operation against values computed by PyTorch with `tests/fixtures/make_references.py`.

use std::collections::{HashMap, HashSet};

use cfo_device::Device;
use cfo_engine::{
    Activation, AdamConfig, Data, Element, Graph, GroupNormInputs, Initial, Memory, Node, PadMode, Precision,
    Program, Result, Shape, Wavelet, WaveletFamily,
};

use crate::check::{Build, evaluate};

/// The input formula, which the script uses too.
fn input(count: usize, k: usize) -> Vec<f64> {
    (0..count).map(|i| 1.5 * (12.9898 * i as f64 + 4.1414 * (k + 1) as f64).sin()).collect()
}

fn references() -> HashMap<&'static str, Vec<f64>> {
    include_str!("../fixtures/references.txt")
        .lines()
        .map(|line| {
            let mut words = line.split(' ');
            let name = words.next().unwrap();
            (name, words.map(|word| word.parse().unwrap()).collect())
        })
        .collect()
}

/// Cases compared so far, so that no stored case is missed.
struct Cases {
    references: HashMap<&'static str, Vec<f64>>,
    seen: HashSet<String>,
}

impl Cases {
    fn compare(&mut self, name: &str, found: &[f64]) {
        let needed = self.references.get(name).unwrap_or_else(|| panic!("no reference for {name}"));
        self.seen.insert(name.into());
        assert_eq!(found.len(), needed.len(), "{name}");
        let scale = needed.iter().fold(1.0_f64, |scale, value| scale.max(value.abs()));
        for (i, (found, needed)) in found.iter().zip(needed).enumerate() {
            let error = (found - needed).abs() / scale;
            assert!(error <= 1e-5, "{name}: element {i} is {found}, PyTorch says {needed}");
        }
    }

    fn check(&mut self, name: &str, shapes: &[&[usize]], build: Build<'_>) {
        let shapes: Vec<Shape> = shapes.iter().map(|&shape| shape.into()).collect();
        let values: Vec<Vec<f64>> = shapes.iter().enumerate().map(|(k, s)| input(s.len(), k)).collect();
        self.compare(name, &evaluate(&shapes, &values, Precision::F32, build));
    }
}

const ACTIVATIONS: [(&str, Activation); 4] = [
    ("identity", Activation::Identity),
    ("relu", Activation::Relu),
    ("silu", Activation::Silu),
    ("gelu", Activation::Gelu),
];

#[test]
fn forward_values_are_those_of_pytorch() {
    let mut cases = Cases { references: references(), seen: HashSet::new() };
    pointwise(&mut cases);
    products(&mut cases);
    reductions_and_layout(&mut cases);
    convolutions(&mut cases);
    norms(&mut cases);
    fields(&mut cases);
    losses(&mut cases);
    optimizers(&mut cases);
    let forgotten: Vec<_> = cases.references.keys().filter(|name| !cases.seen.contains(**name)).collect();
    assert!(forgotten.is_empty(), "{forgotten:?}");
}

fn pointwise(cases: &mut Cases) {
    type Unary = fn(&mut Graph, Node) -> Result<Node>;
    let functions: [(&str, Unary); 11] = [
        ("relu", Graph::relu),
        ("silu", Graph::silu),
        ("gelu", Graph::gelu),
        ("tanh", Graph::tanh),
        ("sigmoid", Graph::sigmoid),
        ("sin", Graph::sin),
        ("cos", Graph::cos),
        ("exp", Graph::exp),
        ("abs", Graph::abs),
        ("square", Graph::square),
        ("reciprocal", Graph::reciprocal),
    ];
    for (name, function) in functions {
        cases.check(name, &[&[3, 5]], &|g, x| function(g, x[0]));
    }
    let positive: [(&str, Unary); 2] = [("log", Graph::log), ("sqrt", Graph::sqrt)];
    for (name, function) in positive {
        cases.check(name, &[&[3, 5]], &|g, x| {
            let square = g.square(x[0])?;
            let shifted = g.affine(square, 1.0, 0.5)?;
            function(g, shifted)
        });
    }
    type Binary = fn(&mut Graph, Node, Node) -> Result<Node>;
    let functions: [(&str, Binary); 6] = [
        ("add", Graph::add),
        ("subtract", Graph::subtract),
        ("multiply", Graph::multiply),
        ("divide", Graph::divide),
        ("maximum", Graph::maximum),
        ("minimum", Graph::minimum),
    ];
    for (name, function) in functions {
        cases.check(name, &[&[2, 1, 3], &[4, 1]], &|g, x| function(g, x[0], x[1]));
    }
}

fn products(cases: &mut Cases) {
    for (name, activation) in ACTIVATIONS {
        cases.check(&format!("linear_{name}"), &[&[2, 3, 5], &[5, 4], &[4]], &|g, x| {
            g.linear(x[0], x[1], Some(x[2]), activation)
        });
    }
    cases.check("matmul", &[&[3, 2, 4], &[3, 4, 5]], &|g, x| g.matmul(x[0], x[1], false, false));
    cases.check("matmul_transposed", &[&[3, 4, 2], &[3, 5, 4]], &|g, x| g.matmul(x[0], x[1], true, true));
}

fn reductions_and_layout(cases: &mut Cases) {
    cases.check("sum_first", &[&[3, 4, 5]], &|g, x| g.sum(x[0], &[0]));
    cases.check("sum_middle", &[&[3, 4, 5]], &|g, x| g.sum(x[0], &[1]));
    cases.check("mean_ends", &[&[3, 4, 5]], &|g, x| g.mean(x[0], &[0, 2]));
    cases.check("patches", &[&[1, 4, 6, 2]], &|g, x| g.patches(x[0], 2));
    cases.check("concat", &[&[2, 3], &[2, 2]], &|g, x| g.concat(&[x[0], x[1], x[0]], 1));
}

fn convolutions(cases: &mut Cases) {
    let modes = [("zero", PadMode::Zero), ("circular", PadMode::Circular), ("replicate", PadMode::Replicate)];
    for (name, mode) in modes {
        cases.check(&format!("conv_{name}"), &[&[1, 4, 5, 3], &[2, 3, 3, 3]], &|g, x| {
            g.conv(x[0], x[1], [1, 1], mode, [1, 1])
        });
        cases.check(&format!("conv_transpose_{name}"), &[&[1, 2, 3, 2], &[2, 4, 4, 3]], &|g, x| {
            g.conv_transpose(x[0], x[1], [2, 2], mode, [1, 1])
        });
    }
    cases.check("conv_stride", &[&[1, 6, 8, 2], &[3, 4, 4, 2]], &|g, x| {
        g.conv(x[0], x[1], [2, 2], PadMode::Zero, [1, 1])
    });
    cases.check("conv_line", &[&[2, 1, 9, 2], &[3, 1, 4, 2]], &|g, x| {
        g.conv(x[0], x[1], [1, 2], PadMode::Circular, [0, 1])
    });
}

fn norms(cases: &mut Cases) {
    for (name, activation) in ACTIVATIONS {
        let shapes: [&[usize]; 5] = [&[2, 2, 3, 6], &[6], &[6], &[6], &[2, 6]];
        cases.check(&format!("group_norm_{name}"), &shapes, &|g, x| {
            let inputs = GroupNormInputs { scale: x[1], bias: x[2], offset: Some(x[3]), shift: Some(x[4]) };
            g.group_norm(x[0], inputs, 3, activation)
        });
    }
    let shapes: [&[usize]; 3] = [&[2, 1, 7, 4], &[4], &[4]];
    cases.check("group_norm_one", &shapes, &|g, x| {
        let inputs = GroupNormInputs { scale: x[1], bias: x[2], offset: None, shift: None };
        g.group_norm(x[0], inputs, 1, Activation::Identity)
    });
    // In single precision the inputs have a resolution of 6e-5 this far from 0, so this case runs in double precision.
    let values = [input(56, 0).iter().map(|x| x + 1000.0).collect(), input(4, 1), input(4, 2)];
    let shapes: Vec<Shape> = shapes.iter().map(|&shape| shape.into()).collect();
    let far = evaluate(&shapes, &values, Precision::F64, &|g, x| {
        let inputs = GroupNormInputs { scale: x[1], bias: x[2], offset: None, shift: None };
        g.group_norm(x[0], inputs, 1, Activation::Identity)
    });
    cases.compare("group_norm_far", &far);
    cases.check("layer_norm", &[&[2, 3, 8], &[2, 8], &[2, 8]], &|g, x| {
        g.layer_norm(x[0], Some((x[1], x[2])), 1e-6)
    });
    cases.check("layer_norm_alone", &[&[2, 3, 8]], &|g, x| g.layer_norm(x[0], None, 1e-6));
}

fn fields(cases: &mut Cases) {
    cases.check("attention", &[&[2, 5, 24]], &|g, x| g.attention(x[0], 2));
    cases.check("spectral_line", &[&[2, 1, 10, 3], &[4, 3, 4]], &|g, x| g.spectral(x[0], x[1], &[1, 4]));
    cases.check("spectral_plane", &[&[1, 7, 6, 2], &[16, 2, 6]], &|g, x| g.spectral(x[0], x[1], &[2, 4]));
    cases.check("spectral_volume", &[&[1, 4, 5, 6, 2], &[24, 2, 4]], &|g, x| {
        g.spectral(x[0], x[1], &[2, 1, 3])
    });
    for (name, family) in [("haar", WaveletFamily::Haar), ("daubechies4", WaveletFamily::Daubechies4)] {
        let wavelet = Wavelet { family, levels: 2, periodic: [true; 2] };
        cases.check(&format!("wavelet_{name}"), &[&[1, 4, 8, 2]], &|g, x| g.wavelet(x[0], wavelet));
        let there_and_back = evaluate(&[[1, 4, 8, 2].into()], &[input(64, 0)], Precision::F64, &|g, x| {
            let there = g.wavelet(x[0], wavelet)?;
            g.wavelet_inverse(there, wavelet)
        });
        let error = there_and_back.iter().zip(input(64, 0)).fold(0.0_f64, |e, (a, b)| e.max((a - b).abs()));
        assert!(error < 1e-14, "{name} is not orthogonal: {error}");
    }
}

fn losses(cases: &mut Cases) {
    cases.check("mean_squared_error", &[&[3, 4], &[3, 4]], &|g, x| g.mean_squared_error(x[0], x[1]));
}

fn optimizers(cases: &mut Cases) {
    let plain = AdamConfig { learning_rate: 0.02, ..AdamConfig::default() };
    for (name, config) in [
        ("adam", plain),
        ("adamw", AdamConfig { weight_decay: 0.1, ..plain }),
        ("adam_clipped", AdamConfig { clip: Some(0.05), ..plain }),
    ] {
        let mut graph = Graph::new();
        let p = graph.parameter("p", [7], Initial::ZEROS).unwrap();
        let [a, b] = ["a", "b"].map(|name| graph.input(name, [7]).unwrap());
        let product = graph.multiply(p, a).unwrap();
        let loss = graph.mean_squared_error(product, b).unwrap();
        let counter = graph.counter("step").unwrap();
        graph.adam(loss, counter, config).unwrap();
        let mut memory = Memory::new(Device::Cpu, Precision::F32).unwrap();
        for (k, name) in ["p", "a", "b"].into_iter().enumerate() {
            memory.insert(name, Element::Real, [7], Data::F64(&input(7, k))).unwrap();
        }
        memory.initialize(&graph, 0).unwrap();
        let mut program = Program::compile(&graph, &[loss], &memory).unwrap();
        for _ in 0..5 {
            program.run(&mut memory).unwrap();
        }
        cases.compare(name, &memory.read_f64("p").unwrap());
    }
}
