//! Tests of whole training steps.

use cfo_device::Device;
use cfo_engine::{
    Activation, AdamConfig, BatchDraw, Data, Element, Graph, Initial, Memory, Node, PathData, PathTensors,
    Precision, Program, Result, Shape,
};
use cfo_numerics::{DrawBy, NoiseSchedule, Path};

const TRAJECTORIES: usize = 5;
const FRAMES: usize = 21;

/// Adds trajectories on circles: `u' = (-v, u)` times a rate.
pub fn circles(memory: &mut Memory) {
    let (mut values, mut times, mut offsets) = (Vec::new(), Vec::new(), vec![0]);
    for i in 0..TRAJECTORIES {
        for k in 0..FRAMES {
            let t = k as f64 / (FRAMES - 1) as f64;
            let angle = 3.0 * t + i as f64;
            values.extend([angle.cos(), angle.sin()]);
            times.push(t);
        }
        offsets.push(times.len() as u32);
    }
    let rows = times.len();
    memory.insert("values", Element::Real, [rows, 1, 1, 2], Data::F64(&values)).unwrap();
    memory.insert("times", Element::Double, [rows], Data::F64(&times)).unwrap();
    memory.insert("offsets", Element::Index, [TRAJECTORIES + 1], Data::Index(&offsets)).unwrap();
}

pub fn step(graph: &mut Graph, batch: usize, config: AdamConfig) -> Result<Node> {
    let rows = TRAJECTORIES * FRAMES;
    let tensors = PathTensors {
        values: graph.input("values", [rows, 1, 1, 2])?,
        times: graph.tensor("times", Element::Double, [rows])?,
        offsets: graph.tensor("offsets", Element::Index, [TRAJECTORIES + 1])?,
    };
    let counter = graph.counter("step")?;
    let data = PathData::Flow {
        by: DrawBy::Time,
        path: Path::default(),
        noise: NoiseSchedule { amplitude: 1e-5, exponent: 3, decay: 0.0 },
    };
    let sample = graph.sample_path(tensors, data, batch, (7, 1), counter)?;
    let mut x = graph.reshape(sample.state, [batch, 2])?;
    for (layer, (inputs, outputs)) in [(2, 32), (32, 32), (32, 2)].into_iter().enumerate() {
        let w = graph.parameter(&format!("{layer}.weight"), [inputs, outputs], Initial::fan_in(inputs))?;
        let b = graph.parameter(&format!("{layer}.bias"), [outputs], Initial::ZEROS)?;
        let activation = if layer < 2 { Activation::Gelu } else { Activation::Identity };
        x = graph.linear(x, w, Some(b), activation)?;
    }
    let target = graph.reshape(sample.target, [batch, 2])?;
    let loss = graph.mean_squared_error(x, target)?;
    graph.adam(loss, counter, config)?;
    Ok(loss)
}

fn train(steps: usize, threads: usize) -> (Vec<f64>, Memory) {
    let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
    pool.install(|| {
        let mut graph = Graph::new();
        let config =
            AdamConfig { learning_rate: 3e-3, clip: Some(1.0), ema: Some(0.9), ..AdamConfig::default() };
        let loss = step(&mut graph, 300, config).unwrap();
        let mut memory = Memory::new(Device::Cpu, Precision::F32).unwrap();
        circles(&mut memory);
        memory.initialize(&graph, 3).unwrap();
        let mut program = Program::compile(&graph, &[loss], &memory).unwrap();
        let losses = (0..steps)
            .map(|_| {
                program.run(&mut memory).unwrap();
                program.scalar(0).unwrap()
            })
            .collect();
        (losses, memory)
    })
}

#[test]
fn a_small_network_learns_a_rotation() {
    let (losses, memory) = train(400, 2);
    assert!(losses[399] < 0.01 * losses[0], "{} -> {}", losses[0], losses[399]);
    assert_eq!(memory.read_index("step").unwrap(), [400]);
}

#[test]
fn the_number_of_threads_does_not_change_a_bit() {
    let ((one, a), (two, b)) = (train(20, 1), train(20, 2));
    assert_eq!(one, two);
    for name in a.names() {
        if !["times", "offsets", "step"].contains(&name) {
            assert_eq!(a.read(name).unwrap(), b.read(name).unwrap(), "{name}");
        }
    }
}

#[test]
fn the_plan_is_close_to_what_lives_at_once() {
    let mut graph = Graph::new();
    let loss = step(&mut graph, 300, AdamConfig::default()).unwrap();
    let mut memory = Memory::new(Device::Cpu, Precision::F32).unwrap();
    circles(&mut memory);
    memory.initialize(&graph, 3).unwrap();
    let program = Program::compile(&graph, &[loss], &memory).unwrap();
    let (planned, live) = (program.plan().arena_bytes() as f64, program.plan().live_bytes() as f64);
    assert!(planned <= 1.1 * live, "{planned} bytes planned, {live} alive");
}

#[test]
fn bad_use_is_refused_in_words() {
    let mut graph = Graph::new();
    let a = graph.input("a", [2, 3]).unwrap();
    let b = graph.input("b", [4, 5]).unwrap();
    let message = graph.add(a, b).unwrap_err().to_string();
    assert!(message.contains("[2, 3]") && message.contains("[4, 5]") && message.contains("add"), "{message}");
    assert!(graph.gradients(a, &[b]).unwrap_err().hint().is_some());
    let loss = graph.sum_all(a).unwrap();
    let unrelated = graph.gradients(loss, &[b]).unwrap()[0];
    assert_eq!(*graph.shape(unrelated), Shape::from([4, 5]));
    let memory = Memory::new(Device::Cpu, Precision::F32).unwrap();
    assert!(Program::compile(&graph, &[loss], &memory).unwrap_err().to_string().contains("`a`"));
    let counter = graph.counter("step").unwrap();
    let huge = graph.random(cfo_engine::Distribution::Uniform, [1 << 44], (0, 0), counter).unwrap();
    let mut memory = Memory::new(Device::Cpu, Precision::F32).unwrap();
    memory.initialize(&graph, 0).unwrap();
    let refused = Program::compile(&graph, &[huge], &memory).unwrap_err();
    assert!(
        matches!(refused, cfo_engine::EngineError::OutOfMemory { .. }) && refused.hint().is_some(),
        "{refused}"
    );
    assert!(Memory::new(Device::Cpu, Precision::Bf16).is_err());
    assert!("gpu".parse::<Device>().is_err());
}

/// Samples `first .. first + batch` of a batch: times, states and trajectories.
fn draws(first: u32, batch: usize) -> (Vec<f32>, Vec<f32>) {
    let mut graph = Graph::new();
    let tensors = PathTensors {
        values: graph.input("values", [batch * 4, 6]).unwrap(),
        times: graph.tensor("times", Element::Double, [12]).unwrap(),
        offsets: graph.tensor("offsets", Element::Index, [3]).unwrap(),
    };
    let counter = graph.counter("step").unwrap();
    let data = PathData::Flow {
        by: DrawBy::Time,
        path: Path::default(),
        noise: NoiseSchedule { amplitude: 0.1, exponent: 2, decay: 0.0 },
    };
    let draw = BatchDraw { data, seed: 5, stream: 1, first };
    let sample = graph.sample_staged(tensors, draw, batch, counter).unwrap();
    let mut memory = Memory::new(Device::Cpu, Precision::F32).unwrap();
    memory.initialize(&graph, 1).unwrap();
    memory.insert_real("values", [batch * 4, 6], &vec![0.0; batch * 24]).unwrap();
    let times: Vec<f64> = (0..12).map(|k| f64::from(k % 6)).collect();
    memory.insert("times", Element::Double, [12], Data::F64(&times)).unwrap();
    memory.insert("offsets", Element::Index, [3], Data::Index(&[0, 6, 12])).unwrap();
    let mut program = Program::compile(&graph, &[sample.time, sample.state], &memory).unwrap();
    program.run(&mut memory).unwrap();
    (program.output(0).unwrap(), program.output(1).unwrap())
}

/// Two ranks that draw halves of a batch draw the batch of one rank. With values of 0 a state is its noise.
#[test]
fn parts_of_a_batch_are_drawn_as_the_whole() {
    let (times, states) = draws(0, 8);
    assert!(states.iter().any(|&noise| noise != 0.0));
    for (first, batch) in [(0, 3), (3, 5)] {
        let (part, noise) = draws(first as u32, batch);
        assert_eq!(part, times[first..first + batch]);
        assert_eq!(noise, states[6 * first..6 * (first + batch)]);
    }
}

/// With one rank, the sum over ranks changes nothing and uses no memory, whether the gradients are summed or not.
#[test]
fn a_sum_over_one_machine_is_nothing() {
    let train = |reduced: bool| {
        let mut graph = Graph::new();
        let x = graph.input("x", [4, 3]).unwrap();
        let w = graph.parameter("w", [3, 2], Initial::fan_in(3)).unwrap();
        let y = graph.matmul(x, w, false, false).unwrap();
        let square = graph.square(y).unwrap();
        let loss = graph.mean_all(square).unwrap();
        let mut gradients = graph.parameter_gradients(loss).unwrap();
        if reduced {
            gradients = gradients.into_iter().map(|node| graph.all_reduce(node).unwrap()).collect();
        }
        let counter = graph.counter("step").unwrap();
        graph.adam_step(&gradients, counter, AdamConfig::default()).unwrap();
        assert!(graph.adam_step(&[], counter, AdamConfig::default()).is_err());
        let mut memory = Memory::new(Device::Cpu, Precision::F32).unwrap();
        memory.initialize(&graph, 1).unwrap();
        let values: Vec<f32> = (0..12).map(|i| (i as f32).sin()).collect();
        memory.insert_real("x", [4, 3], &values).unwrap();
        let mut program = Program::compile(&graph, &[loss], &memory).unwrap();
        program.run_many(&mut memory, 3).unwrap();
        (memory.read("w").unwrap(), program.plan().arena_bytes(), program.plan().len())
    };
    let ((plain, bytes, steps), (summed, same, more)) = (train(false), train(true));
    assert_eq!(plain, summed);
    assert_eq!((bytes, steps + 1), (same, more), "the planner sees the sum, and gives it no memory");
}

/// Windows of trajectories of 5, 2 and 9 snapshots at irregular times; each value is its row index.
fn windows(intervals: usize, staged: bool) -> Vec<Vec<f64>> {
    let (batch, step, offsets) = (64, 3, [0, 5, 7, 16]);
    let times: Vec<f64> = (0..16).map(|row| f64::from(row) + 0.1 * f64::from(row).sin()).collect();
    let draw = BatchDraw { data: PathData::Window { intervals }, seed: 5, stream: 1, first: 0 };
    let values: Vec<f32> = match staged {
        false => (0..16).flat_map(|row| [row as f32, -(row as f32)]).collect(),
        true => (0..batch)
            .flat_map(|sample| {
                let rows = draw.rows(sample, step, &times, &offsets);
                let mut page: Vec<f32> = rows.flat_map(|row| [row as f32, -(row as f32)]).collect();
                page.resize(2 * (intervals + 1), f32::NAN);
                page
            })
            .collect(),
    };
    let mut graph = Graph::new();
    let tensors = PathTensors {
        values: graph.input("values", [values.len() / 2, 2]).unwrap(),
        times: graph.tensor("times", Element::Double, [16]).unwrap(),
        offsets: graph.tensor("offsets", Element::Index, [4]).unwrap(),
    };
    let counter = graph.counter("step").unwrap();
    let sample = match staged {
        true => graph.sample_staged(tensors, draw, batch, counter).unwrap(),
        false => graph.sample_path(tensors, draw.data, batch, (5, 1), counter).unwrap(),
    };
    let window = sample.window.unwrap();
    let mut memory = Memory::new(Device::Cpu, Precision::F32).unwrap();
    memory.insert_real("values", [values.len() / 2, 2], &values).unwrap();
    memory.insert("times", Element::Double, [16], Data::F64(&times)).unwrap();
    memory.insert("offsets", Element::Index, [4], Data::Index(&offsets)).unwrap();
    memory.insert("step", Element::Index, Shape::scalar(), Data::Index(&[step])).unwrap();
    let outputs = [sample.time, sample.state, sample.target, window.times, window.lengths];
    let mut program = Program::compile(&graph, &outputs, &memory).unwrap();
    program.run(&mut memory).unwrap();
    (0..outputs.len()).map(|output| program.output_f64(output).unwrap()).collect()
}

/// Windows are consecutive snapshots of one trajectory with their times. They start at every valid position and at no
/// other.
#[test]
fn windows_are_consecutive_and_stay_in_their_trajectory() {
    let (batch, ends) = (64, [5.0, 7.0, 16.0]);
    for intervals in [1, 3] {
        let resident = windows(intervals, false);
        assert_eq!(resident, windows(intervals, true), "staged rows are the same");
        let [start, state, target, times, lengths] = &resident[..] else { panic!("five outputs") };
        let mut starts: Vec<i64> = Vec::new();
        for i in 0..batch {
            let first = state[2 * i];
            let end = ends.into_iter().find(|&end| first < end).unwrap();
            starts.push(first as i64);
            for k in 0..=intervals {
                // The trajectory of two snapshots repeats its last one.
                let row = (first + k as f64).min(end - 1.0);
                let found = if k == 0 { first } else { target[2 * ((k - 1) * batch + i)] };
                assert_eq!(found, row, "sample {i}, snapshot {k}");
                let at = |row: f64| row + 0.1 * row.sin();
                assert!((times[k * batch + i] - at(row)).abs() < 1e-6);
                if k > 0 {
                    let before = (first + k as f64 - 1.0).min(end - 1.0);
                    assert!((lengths[(k - 1) * batch + i] - (at(row) - at(before))).abs() < 1e-6);
                }
            }
            assert_eq!(start[i], times[i]);
        }
        starts.sort_unstable();
        starts.dedup();
        let expected: Vec<i64> = match intervals {
            1 => (0..4).chain([5]).chain(7..15).collect(),
            _ => (0..2).chain([5]).chain(7..13).collect(),
        };
        assert_eq!(starts, expected, "every start that fits is drawn");
    }
    let mut graph = Graph::new();
    let tensors = PathTensors {
        values: graph.input("values", [4, 1]).unwrap(),
        times: graph.tensor("times", Element::Double, [4]).unwrap(),
        offsets: graph.tensor("offsets", Element::Index, [2]).unwrap(),
    };
    let counter = graph.counter("step").unwrap();
    assert!(graph.sample_path(tensors, PathData::Window { intervals: 0 }, 2, (0, 0), counter).is_err());
}
