//! Matrix products for every way in which they are divided, against sums in double precision, with the same bits for
//! any number of threads.

use cfo_device::Device;
use cfo_engine::{Activation, Data, Element, Graph, Memory, Precision, Program};

use crate::check::normals;

/// Sizes: rows, inner length, columns. Very few rows, few, many; short and long sums; columns that fill panels or do
/// not.
const SIZES: [[usize; 3]; 14] = [
    [1, 1, 1],
    [1, 300, 200],
    [2, 33, 130],
    [3, 700, 5],
    [4, 384, 192],
    [5, 7, 17],
    [128, 384, 64],
    [97, 650, 70],
    [192, 16, 300],
    [193, 40, 33],
    [300, 700, 130],
    [70, 1100, 90],
    [128, 5000, 66],
    [600, 3, 520],
];

/// Element `(i, j)` of a matrix with this number of rows and columns, stored as it is or transposed.
fn at(values: &[f64], [rows, columns]: [usize; 2], transposed: bool, i: usize, j: usize) -> f64 {
    if transposed { values[j * rows + i] } else { values[i * columns + j] }
}

fn run(
    graph: &Graph,
    output: cfo_engine::Node,
    operands: &[(&str, Vec<usize>, &[f64])],
    threads: usize,
) -> Vec<f32> {
    let mut memory = Memory::new(Device::Cpu, Precision::F32).unwrap();
    for (name, shape, values) in operands {
        memory.insert(name, Element::Real, shape.clone(), Data::F64(values)).unwrap();
    }
    let mut program = Program::compile(graph, &[output], &memory).unwrap();
    let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
    pool.install(|| program.run(&mut memory)).unwrap();
    program.output(0).unwrap()
}

fn check([m, k, n]: [usize; 3], transpose_a: bool, transpose_b: bool, batch: usize) {
    let round = |values: Vec<f64>| -> Vec<f64> { values.into_iter().map(|x| f64::from(x as f32)).collect() };
    let (a, b) = (round(normals(batch * m * k, 1)), round(normals(batch * k * n, 2)));
    let shape = |rows: usize, columns: usize, transposed: bool| {
        let mut axes = if transposed { vec![columns, rows] } else { vec![rows, columns] };
        if batch > 1 {
            axes.insert(0, batch);
        }
        axes
    };
    let (shape_a, shape_b) = (shape(m, k, transpose_a), shape(k, n, transpose_b));
    let mut graph = Graph::new();
    let (x, w) = (graph.input("a", shape_a.clone()).unwrap(), graph.input("b", shape_b.clone()).unwrap());
    let y = graph.matmul(x, w, transpose_a, transpose_b).unwrap();
    let operands = [("a", shape_a, &a[..]), ("b", shape_b, &b[..])];
    let found = run(&graph, y, &operands, 1);
    for threads in [2, 3] {
        assert_eq!(found, run(&graph, y, &operands, threads), "{m}x{k}x{n} with {threads} threads");
    }
    // Terms of size one, summed in any order: the error of a sum of k terms is at most k roundings, and their root on
    // average.
    let tolerance = 8.0 * f64::from(f32::EPSILON) * k as f64;
    for matrix in 0..batch {
        let (a, b) = (&a[matrix * m * k..][..m * k], &b[matrix * k * n..][..k * n]);
        // Every element of small results; a sample of large ones that includes the edges.
        let step = |length: usize| (length / 23).max(1);
        for i in (0..m).step_by(step(m)).chain([m - 1]) {
            for j in (0..n).step_by(step(n)).chain([n - 1]) {
                let terms =
                    (0..k).map(|l| at(a, [m, k], transpose_a, i, l) * at(b, [k, n], transpose_b, l, j));
                let exact: f64 = terms.sum();
                let found = f64::from(found[(matrix * m + i) * n + j]);
                assert!(
                    (found - exact).abs() <= tolerance,
                    "{m}x{k}x{n} {transpose_a} {transpose_b} ({i}, {j}): {found} {exact}"
                );
            }
        }
    }
}

#[test]
fn products_are_exact_to_rounding() {
    for size in SIZES {
        for (transpose_a, transpose_b) in [(false, false), (false, true), (true, false), (true, true)] {
            check(size, transpose_a, transpose_b, 1);
        }
    }
}

#[test]
fn batches_are_products_each() {
    for size in [[2, 20, 70], [12, 100, 128], [100, 12, 65], [230, 30, 20]] {
        for (transpose_a, transpose_b) in [(false, false), (false, true), (true, false), (true, true)] {
            check(size, transpose_a, transpose_b, 3);
        }
    }
}

#[test]
fn bias_and_activation_follow_the_product() {
    for [m, k, n] in SIZES {
        let (a, b, bias) = (normals(m * k, 1), normals(k * n, 2), normals(n, 3));
        let operands = [("a", vec![m, k], &a[..]), ("b", vec![k, n], &b[..]), ("bias", vec![n], &bias[..])];
        for activation in [Activation::Identity, Activation::Relu, Activation::Silu, Activation::Gelu] {
            let mut graph = Graph::new();
            let [x, w, c] =
                operands.each_ref().map(|(name, shape, _)| graph.input(name, shape.clone()).unwrap());
            let fused = graph.linear(x, w, Some(c), activation).unwrap();
            let product = graph.matmul(x, w, false, false).unwrap();
            let sum = graph.add(product, c).unwrap();
            let separate = match activation {
                Activation::Identity => sum,
                Activation::Relu => graph.relu(sum).unwrap(),
                Activation::Silu => graph.silu(sum).unwrap(),
                Activation::Gelu => graph.gelu(sum).unwrap(),
            };
            assert_eq!(
                run(&graph, fused, &operands, 2),
                run(&graph, separate, &operands, 2),
                "{m}x{k}x{n} {activation:?}"
            );
        }
    }
}
