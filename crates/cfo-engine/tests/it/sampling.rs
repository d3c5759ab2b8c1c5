//! Sampling: random numbers per row, and whole trajectories.

use cfo_device::Device;
use cfo_engine::{
    BatchDraw, Data, Distribution, Element, Graph, Memory, Node, Numbering, PathData, PathTensors, Precision,
    Program, Shape,
};
use cfo_numerics::{DrawBy, NoiseSchedule, Path, Spline};

const SIZE: usize = 5;

/// Random numbers of rows with the given counters and numbers.
fn given(numbers: &[[u32; 2]], distribution: Distribution) -> Vec<f64> {
    let (mut graph, rows) = (Graph::new(), numbers.len());
    let counters = graph.tensor("numbers", Element::Index, [rows, 2]).unwrap();
    let drawn = graph.random_as(Numbering::Given, distribution, [rows, SIZE], (7, 1), counters).unwrap();
    let mut memory = Memory::new(Device::Cpu, Precision::F64).unwrap();
    memory.insert("numbers", Element::Index, [rows, 2], Data::Index(&numbers.concat())).unwrap();
    run(&graph, drawn, &mut memory)
}

fn run(graph: &Graph, output: Node, memory: &mut Memory) -> Vec<f64> {
    let mut program = Program::compile(graph, &[output], memory).unwrap();
    program.run(memory).unwrap();
    program.output_f64(0).unwrap()
}

/// A row's numbers depend only on its counter and number, not on its position or other rows.
#[test]
fn rows_draw_for_themselves() {
    for distribution in [Distribution::Normal, Distribution::Uniform] {
        let many = given(&[[0, 1], [0, 2], [3, 2], [0, 1]], distribution);
        let row = |i: usize| &many[i * SIZE..(i + 1) * SIZE];
        for (i, numbers) in [[0, 1], [0, 2], [3, 2]].into_iter().enumerate() {
            assert_eq!(row(i), given(&[numbers], distribution), "{distribution:?}");
        }
        assert_eq!(row(0), row(3));
        assert!(row(0) != row(1) && row(1) != row(2) && row(0) != row(2), "{distribution:?}");
    }
}

/// The rows of a step are numbered from its first, so that ranks that share a batch draw the batch of one rank.
#[test]
fn machines_that_share_a_batch_draw_what_one_would() {
    let drawn = |first: u32, rows: usize| {
        let mut graph = Graph::new();
        let counter = graph.counter("step").unwrap();
        let numbering = Numbering::Rows { first };
        let drawn = graph.random_as(numbering, Distribution::Normal, [rows, SIZE], (7, 1), counter).unwrap();
        let mut memory = Memory::new(Device::Cpu, Precision::F64).unwrap();
        memory.insert("step", Element::Index, Shape::scalar(), Data::Index(&[9])).unwrap();
        run(&graph, drawn, &mut memory)
    };
    let whole = drawn(0, 6);
    assert_eq!(whole, [drawn(0, 2), drawn(2, 3), drawn(5, 1)].concat());
    let named: Vec<[u32; 2]> = (1..=6).map(|number| [9, number]).collect();
    assert_eq!(whole, given(&named, Distribution::Normal));
}

/// Counters of wrong shapes are rejected.
#[test]
fn rows_need_a_counter_and_a_number_each() {
    let mut graph = Graph::new();
    let counter = graph.counter("step").unwrap();
    let numbers = graph.tensor("numbers", Element::Index, [3, 2]).unwrap();
    let mut draw = |numbering, shape: &[usize], counter| {
        graph.random_as(numbering, Distribution::Normal, shape.to_vec(), (7, 1), counter)
    };
    assert!(draw(Numbering::Given, &[3, 4], numbers).is_ok());
    assert!(draw(Numbering::Given, &[4, 4], numbers).is_err());
    assert!(draw(Numbering::Given, &[3, 4], counter).is_err());
    assert!(draw(Numbering::Elements, &[3, 4], numbers).is_err());
    assert!(draw(Numbering::Rows { first: 0 }, &[], counter).is_err());
}

/// Trajectories that are cubic in time are resampled at equidistant times: the quintic spline on five snapshots is
/// exact for them. Resident and staged values give the same bits.
#[test]
fn whole_trajectories_are_resampled() {
    let cubic = |i: usize, t: f64, point: usize| {
        let (i, point) = (i as f64, point as f64);
        1.0 + i - point * t + (2.0 - i) * t * t + 0.5 * point * t * t * t
    };
    let lengths = [9, 14, 7];
    let (mut times, mut values, mut offsets) = (Vec::new(), Vec::new(), vec![0_u32]);
    for (i, &length) in lengths.iter().enumerate() {
        for k in 0..length {
            let t = 0.2 + (k as f64 / (length - 1) as f64).powf(1.3) * (1.0 + i as f64 * 0.1);
            times.push(t);
            values.extend((0..SIZE).map(|point| cubic(i, t, point)));
        }
        offsets.push(times.len() as u32);
    }
    let path = Path::new(Spline::Quintic, 5).unwrap();
    let (frames, batch, longest) = (6, 20, 14);
    let data = PathData::Whole { path, frames, longest };
    let draw = BatchDraw { data, seed: 3, stream: 1, first: 0 };
    let sampled = |staged: bool| {
        let mut graph = Graph::new();
        let rows = if staged { batch * longest } else { times.len() };
        let tensors = PathTensors {
            values: graph.input("values", [rows, SIZE]).unwrap(),
            times: graph.tensor("times", Element::Double, [times.len()]).unwrap(),
            offsets: graph.tensor("offsets", Element::Index, [4]).unwrap(),
        };
        let counter = graph.counter("step").unwrap();
        let sample = match staged {
            true => graph.sample_staged(tensors, draw, batch, counter).unwrap(),
            false => graph.sample_path(tensors, data, batch, (3, 1), counter).unwrap(),
        };
        let mut memory = Memory::new(Device::Cpu, Precision::F64).unwrap();
        let mut held = vec![0.0; rows * SIZE];
        if staged {
            for i in 0..batch {
                let from = draw.rows(i, 5, &times, &offsets);
                let rows = &values[from.start * SIZE..from.end * SIZE];
                held[i * longest * SIZE..][..rows.len()].copy_from_slice(rows);
            }
        } else {
            held.copy_from_slice(&values);
        }
        memory.insert("values", Element::Real, [rows, SIZE], Data::F64(&held)).unwrap();
        memory.insert("times", Element::Double, [times.len()], Data::F64(&times)).unwrap();
        memory.insert("offsets", Element::Index, [4], Data::Index(&offsets)).unwrap();
        memory.insert("step", Element::Index, Shape::scalar(), Data::Index(&[5])).unwrap();
        let outputs = [sample.time, sample.state, sample.target];
        let mut program = Program::compile(&graph, &outputs, &memory).unwrap();
        program.run(&mut memory).unwrap();
        [0, 1, 2].map(|i| program.output_f64(i).unwrap())
    };
    let [time, state, target] = sampled(false);
    assert_eq!([time, state.clone(), target.clone()], sampled(true));
    let mut seen = [false; 3];
    for sample in 0..batch {
        let drawn = draw.sample(sample, 5, &times, &offsets);
        let (i, first) = (drawn.trajectory, offsets[drawn.trajectory] as usize);
        seen[i] = true;
        assert_eq!(state[sample * SIZE..][..SIZE], values[first * SIZE..][..SIZE]);
        for frame in 0..frames {
            let t = 0.2 + frame as f64 / (frames - 1) as f64 * (1.0 + i as f64 * 0.1);
            for point in 0..SIZE {
                let found = target[(sample * frames + frame) * SIZE + point];
                // Exact up to rounding: differences of snapshots 0.01 apart lose four digits in the second derivative.
                let expected = cubic(i, t, point);
                assert!((found - expected).abs() < 1e-10, "{found} for {expected} at {t}");
            }
        }
    }
    assert_eq!(seen, [true; 3]);
}

/// Each sampling mode draws every interval of irregular grids with its declared frequency. Samples at snapshots are
/// exact: the state is the snapshot, the velocity is its stencil's.
#[test]
fn draws_fall_where_they_say() {
    let times = [0.0, 0.1, 0.9, 1.0, 3.0, 7.0, 7.25, 7.5];
    let offsets = [0_u32, 5, 8];
    let path = Path::new(Spline::Cubic, 3).unwrap();
    const DRAWS: usize = 40_000;
    for by in [DrawBy::Time, DrawBy::Interval, DrawBy::Snapshot] {
        let data = PathData::Flow { by, path, noise: NoiseSchedule::NONE };
        let draw = BatchDraw { data, seed: 11, stream: 2, first: 0 };
        let mut nearest = [0.0; 8];
        for sample in 0..DRAWS {
            let drawn = draw.sample(sample, 3, &times, &offsets);
            let (first, end) = (offsets[drawn.trajectory] as usize, offsets[drawn.trajectory + 1] as usize);
            let own = &times[first..end];
            assert!(own[0] <= drawn.time && drawn.time <= own[own.len() - 1], "{by:?} {drawn:?}");
            let after = own.partition_point(|&time| time <= drawn.time).min(own.len() - 1);
            let place = (drawn.time - own[after - 1]) / (own[after] - own[after - 1]);
            nearest[first + after - 1] += 1.0 - place;
            nearest[first + after] += place;
            if by == DrawBy::Snapshot {
                assert!(own.contains(&drawn.time));
                let (weights, rows) = (drawn.weights.unwrap(), &times[drawn.row..drawn.row + drawn.count]);
                for (weight, &time) in weights.value().iter().zip(rows) {
                    assert_eq!(*weight, f64::from(u8::from(time == drawn.time)), "{drawn:?}");
                }
                // Three points are exact for squares, up to rounding.
                let slope: f64 =
                    weights.velocity().iter().zip(rows).map(|(weight, time)| weight * time * time).sum();
                assert!((slope - 2.0 * drawn.time).abs() < 1e-10, "{slope} {drawn:?}");
            }
        }
        for pair in offsets.windows(2) {
            let rows = pair[0] as usize..pair[1] as usize;
            for (found, share) in nearest[rows.clone()].iter().zip(by.snapshot_shares(&times[rows])) {
                // Half of the samples belong to each trajectory; the bound is five standard deviations of a count.
                let (expected, room) = (0.5 * share, 5.0 * (0.5 * share / DRAWS as f64).sqrt());
                assert!(
                    (found / DRAWS as f64 - expected).abs() < room,
                    "{by:?}: {found} of {DRAWS}, not {expected}"
                );
            }
        }
    }
}

/// A trajectory of one snapshot has velocity zero in every sampling mode.
#[test]
fn single_snapshots_are_at_rest() {
    for by in [DrawBy::Time, DrawBy::Interval, DrawBy::Snapshot] {
        let data = PathData::Flow { by, path: Path::default(), noise: NoiseSchedule::NONE };
        let drawn = BatchDraw { data, seed: 1, stream: 0, first: 0 }.sample(0, 0, &[2.5], &[0, 1]);
        let weights = drawn.weights.unwrap();
        assert_eq!(
            (drawn.time, weights.value(), weights.velocity()),
            (2.5, &[1.0][..], &[0.0][..]),
            "{by:?}"
        );
    }
}
