//! Results are bit-identical for any number of threads and in repeated runs: every operation and its derivative, at
//! sizes that are divided into several tasks.

use cfo_device::Device;
use cfo_engine::{
    Activation, Data, Distribution, Element, Graph, GroupNormInputs, Memory, Node, PadMode, Precision,
    Program, Result, Shape, Wavelet, WaveletFamily,
};

use crate::check::{Build, normals};

/// The bits of a value and of its inputs' gradients, from each of two runs.
fn bits(threads: usize, shapes: &[&[usize]], build: Build<'_>) -> [Vec<Vec<u32>>; 2] {
    let mut graph = Graph::new();
    let mut memory = Memory::new(Device::Cpu, Precision::F32).unwrap();
    let mut inputs: Vec<Node> = Vec::new();
    for (i, &shape) in shapes.iter().enumerate() {
        let name = format!("x{i}");
        inputs.push(graph.input(&name, shape).unwrap());
        let values = normals(Shape::from(shape).len(), i as u64);
        memory.insert(&name, Element::Real, shape, Data::F64(&values)).unwrap();
    }
    let value = build(&mut graph, &inputs).unwrap();
    let square = graph.square(value).unwrap();
    let loss = graph.mean_all(square).unwrap();
    let mut requested = vec![value];
    requested.extend(graph.gradients(loss, &inputs).unwrap());
    memory.initialize(&graph, 0).unwrap();
    let mut program = Program::compile(&graph, &requested, &memory).unwrap();
    let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
    [(); 2].map(|()| {
        pool.install(|| program.run(&mut memory)).unwrap();
        let output = |i: usize| program.output(i).unwrap().into_iter().map(f32::to_bits).collect();
        (0..requested.len()).map(output).collect()
    })
}

fn same(name: &str, shapes: &[&[usize]], build: Build<'_>) {
    let [first, second] = bits(1, shapes, build);
    assert_eq!(first, second, "{name}: a second run differs");
    for threads in [2, 3] {
        let [first_again, second_again] = bits(threads, shapes, build);
        assert!(first == first_again && first == second_again, "{name}: {threads} threads differ from one");
    }
}

#[test]
fn pointwise_and_reductions() {
    same("pointwise", &[&[30, 40, 50], &[40, 50]], &|g, x| {
        let product = g.multiply(x[0], x[1])?;
        let gelu = g.gelu(product)?;
        g.add(gelu, x[0])
    });
    for axes in [&[0][..], &[1], &[2], &[0, 1], &[0, 2], &[1, 2], &[0, 1, 2]] {
        same("sum", &[&[30, 40, 50]], &|g, x| g.sum(x[0], axes));
    }
    same("mean squared error", &[&[300, 400], &[300, 400]], &|g, x| g.mean_squared_error(x[0], x[1]));
    same("concat and slice", &[&[700, 3, 5], &[700, 2, 5]], &|g, x| {
        let both = g.concat(&[x[0], x[1]], 1)?;
        g.slice(both, 1, 1, 3)
    });
    same("random", &[&[1]], &|g, x| {
        let counter = g.counter("step")?;
        let random = g.random(Distribution::Normal, [40_000], (5, 2), counter)?;
        g.multiply(random, x[0])
    });
}

#[test]
fn products_and_convolutions() {
    same("linear", &[&[700, 60], &[60, 90], &[90]], &|g, x| {
        g.linear(x[0], x[1], Some(x[2]), Activation::Gelu)
    });
    same("matmul", &[&[7, 65, 40], &[7, 40, 33]], &|g, x| g.matmul(x[0], x[1], false, false));
    for mode in [PadMode::Zero, PadMode::Circular, PadMode::Replicate] {
        same("conv", &[&[3, 20, 18, 5], &[7, 3, 3, 5]], &|g, x| g.conv(x[0], x[1], [1, 1], mode, [1, 1]));
        same("conv_transpose", &[&[3, 12, 9, 5], &[5, 4, 4, 6]], &|g, x| {
            g.conv_transpose(x[0], x[1], [2, 2], mode, [1, 1])
        });
    }
    same("spectral", &[&[9, 12, 20, 6], &[24, 6, 10]], &|g, x| g.spectral(x[0], x[1], &[2, 6]));
}

#[test]
fn norms_and_attention() {
    let all = |g: &mut Graph, x: &[Node]| -> Result<Node> {
        let inputs = GroupNormInputs { scale: x[1], bias: x[2], offset: Some(x[3]), shift: Some(x[4]) };
        g.group_norm(x[0], inputs, 3, Activation::Silu)
    };
    for field in [[2, 50, 50, 12], [40, 1, 33, 6], [1, 128, 128, 3]] {
        let (b, c) = (field[0], field[3]);
        same("group norm", &[&field, &[c], &[c], &[c], &[b, c]], &|g, x| all(g, x));
    }
    same("layer norm", &[&[3, 100, 50], &[3, 50], &[3, 50]], &|g, x| {
        g.layer_norm(x[0], Some((x[1], x[2])), 1e-6)
    });
    same("attention", &[&[2, 150, 48]], &|g, x| g.attention(x[0], 4));
}

#[test]
fn wavelets() {
    let wavelet = Wavelet { family: WaveletFamily::Daubechies4, levels: 3, periodic: [true, false] };
    same("wavelet", &[&[4, 16, 32, 3]], &|g, x| g.wavelet(x[0], wavelet));
}
