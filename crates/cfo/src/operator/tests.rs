//! Laws that hold for all networks.

use cfo_device::Device;
use cfo_engine::{Data, Element, Graph, Memory, PadMode, Precision, Program};

use super::boundary::{Boundary, Volume};
use super::*;

/// Returns each network with its setting and the paper's number of parameters, with and without time as an input.
fn networks() -> Vec<(OperatorConfig, Setting, usize)> {
    let setting = |shape: FieldShape| Setting::new(shape, &[false, true][2 - shape.axes()..], 0);
    vec![
        (OperatorConfig::Mlp(Mlp::default()), setting(FieldShape::system(3)), 202_499),
        (OperatorConfig::Fno(Fno::default()), setting(FieldShape::line(100, 1)), 591_105),
        (OperatorConfig::Unet(Unet::default()), setting(FieldShape::line(100, 1)), 602_433),
        (OperatorConfig::Unet(Unet::default()), setting(FieldShape::plane(16, 8, 2)), 8_161_794),
        (OperatorConfig::Dit(Dit::default()), setting(FieldShape::plane(128, 128, 2)), 13_643_264),
    ]
}

fn volume(sides: [usize; 3], channels: usize) -> FieldShape {
    FieldShape { grid: Grid::new(&sides).unwrap(), channels }
}

/// Returns small networks of each kind with their settings.
fn small_networks() -> Vec<(OperatorConfig, Setting)> {
    let setting = |shape, periodic: &[bool]| Setting::new(shape, periodic, 2);
    let unet = Unet { channels: Some(vec![4, 8]), groups: 2, ..Unet::default() };
    let fno = Fno { width: 6, blocks: 2, modes: 3, ..Fno::default() };
    let dit = Dit { patch: 2, hidden: 8, depth: 2, heads: 2, mlp_ratio: 2, ..Dit::default() };
    vec![
        (
            OperatorConfig::Mlp(Mlp { hidden: vec![5, 7], ..Mlp::default() }),
            setting(FieldShape::system(3), &[]),
        ),
        (OperatorConfig::Fno(fno.clone()), setting(FieldShape::line(9, 1), &[true])),
        (OperatorConfig::Fno(fno.clone()), setting(FieldShape::plane(8, 7, 2), &[true, true])),
        (OperatorConfig::Fno(fno), setting(volume([6, 7, 5], 2), &[true, false, true])),
        (OperatorConfig::Unet(unet.clone()), setting(FieldShape::line(12, 1), &[true])),
        (OperatorConfig::Unet(unet.clone()), setting(FieldShape::plane(8, 4, 2), &[true, true])),
        (OperatorConfig::Unet(unet.clone()), setting(FieldShape::plane(4, 8, 3), &[true, false])),
        (OperatorConfig::Unet(unet.clone()), setting(FieldShape::line(11, 1), &[true])),
        (OperatorConfig::Unet(unet.clone()), setting(FieldShape::plane(5, 7, 2), &[true, false])),
        (OperatorConfig::Unet(unet.clone()), setting(FieldShape::plane(2, 3, 1), &[false, false])),
        (OperatorConfig::Unet(unet.clone()), setting(volume([8, 4, 6], 2), &[true; 3])),
        (OperatorConfig::Unet(unet.clone()), setting(volume([5, 3, 7], 1), &[true, false, true])),
        (OperatorConfig::Unet(unet), setting(volume([2, 3, 2], 1), &[false; 3])),
        (OperatorConfig::Dit(dit.clone()), setting(FieldShape::plane(4, 6, 2), &[false, false])),
        (OperatorConfig::Dit(dit.clone()), setting(FieldShape::plane(5, 7, 2), &[true, false])),
        (OperatorConfig::Dit(dit.clone()), setting(FieldShape::line(9, 1), &[true])),
        (OperatorConfig::Dit(dit.clone()), setting(volume([4, 2, 6], 2), &[true; 3])),
        (OperatorConfig::Dit(dit), setting(volume([3, 5, 4], 1), &[true, false, false])),
    ]
}

fn append(
    graph: &mut Graph,
    config: &OperatorConfig,
    setting: &Setting,
    timed: bool,
) -> [cfo_engine::Node; 2] {
    let setting = &Setting { timed, ..setting.clone() };
    let time = graph.input("time", [3]).unwrap();
    let field = graph.input("state", setting.input(3)).unwrap();
    let conditions =
        (setting.conditions > 0).then(|| graph.input("conditions", [3, setting.conditions]).unwrap());
    config.operator().check(setting).unwrap();
    let context = Context { conditions, ..Context::at(time) };
    let output = config.operator().apply(graph, setting, field, &context).unwrap();
    [field, output]
}

#[test]
fn sizes_are_the_papers() {
    for (config, setting, expected) in networks() {
        let mut graph = Graph::new();
        let [state, velocity] = append(&mut graph, &config, &setting, true);
        assert_eq!(graph.shape(velocity), graph.shape(state));
        assert_eq!(parameter_count(&graph), expected, "{}", config.name());
    }
}

#[test]
fn every_parameter_gets_a_gradient_once_the_zeros_are_gone() {
    for (config, setting) in small_networks() {
        for timed in [true, false] {
            let mut graph = Graph::new();
            let [state, velocity] = append(&mut graph, &config, &setting, timed);
            let loss = graph.var(velocity).square().sum_all().node().unwrap();
            let parameters = graph.parameters().to_vec();
            let nodes: Vec<_> = parameters.iter().map(|parameter| parameter.node).collect();
            let gradients = graph.gradients(loss, &nodes).unwrap();
            let mut memory = Memory::new(Device::Cpu, Precision::F32).unwrap();
            let draw = |count: usize, seed| {
                let mut random = cfo_numerics::Philox::new(seed, 0);
                (0..count).map(|_| random.normal() as f32).collect::<Vec<_>>()
            };
            for (i, parameter) in parameters.iter().enumerate() {
                let values: Vec<f32> =
                    draw(parameter.shape.len(), i as u64).iter().map(|v| 0.3 * v + 0.1).collect();
                memory.insert_real(&parameter.name, parameter.shape.clone(), &values).unwrap();
            }
            if timed {
                memory.insert_real("time", [3], &[0.1, 0.5, 0.9]).unwrap();
            }
            memory.insert_real("conditions", [3, 2], &draw(6, 99)).unwrap();
            let shape = graph.shape(state).clone();
            memory.insert_real("state", shape.clone(), &draw(shape.len(), 100)).unwrap();
            let mut program = Program::compile(&graph, &gradients, &memory).unwrap();
            program.run(&mut memory).unwrap();
            for (i, parameter) in parameters.iter().enumerate() {
                let gradient = program.output(i).unwrap();
                let alive = gradient.iter().all(|g| g.is_finite()) && gradient.iter().any(|&g| g != 0.0);
                assert!(alive, "{} {:?}: {}", config.name(), setting.grid, parameter.name);
            }
        }
    }
}

#[test]
fn grids_that_do_not_fit_are_refused_in_words() {
    let setting = |shape: FieldShape| Setting::new(shape, &vec![false; shape.axes()], 0);
    for (config, field, said) in [
        (OperatorConfig::Unet(Unet::default()), FieldShape::system(3), "it needs space axes"),
        (
            OperatorConfig::Unet(Unet { groups: 7, ..Unet::default() }),
            FieldShape::line(64, 1),
            "multiple of `operator.groups` = 7",
        ),
        (OperatorConfig::Fno(Fno::default()), FieldShape::line(10, 1), "6 modes need sides of 11 points"),
        (
            OperatorConfig::Fno(Fno::default()),
            FieldShape::plane(11, 12, 1),
            "6 modes need sides of 12 points",
        ),
        (OperatorConfig::Fno(Fno::default()), volume([12, 11, 12], 1), "a grid of 12 x 11 x 12"),
        (
            OperatorConfig::Dit(Dit { heads: 5, ..Dit::default() }),
            FieldShape::plane(64, 64, 1),
            "`hidden` = 384 divisible by `heads`",
        ),
        (
            OperatorConfig::Mlp(Mlp { hidden: vec![0], ..Mlp::default() }),
            FieldShape::system(1),
            "at least one unit",
        ),
    ] {
        let refused =
            config.operator().check(&setting(field)).expect_err("the grid does not fit").to_string();
        assert!(refused.contains(said), "{refused}");
    }
}

/// Returns random weights.
fn draw(count: usize, seed: u64) -> Vec<f32> {
    let mut random = cfo_numerics::Philox::new(seed, 0);
    (0..count).map(|_| random.normal() as f32).collect()
}

/// Returns the velocity of a state without time or parameters. The weights depend only on the order of their names.
fn velocity(config: &OperatorConfig, setting: &Setting, state: &[f32]) -> Vec<f32> {
    let mut graph = Graph::new();
    let node = graph.input("state", setting.input(1)).unwrap();
    let context = Context::at(graph.input("time", [1]).unwrap());
    let setting = &Setting { timed: false, ..setting.clone() };
    let velocity = config.operator().apply(&mut graph, setting, node, &context).unwrap();
    let mut memory = Memory::new(Device::Cpu, Precision::F32).unwrap();
    for (i, parameter) in graph.parameters().iter().enumerate() {
        let values: Vec<f32> = draw(parameter.shape.len(), i as u64).iter().map(|v| 0.3 * v).collect();
        memory.insert_real(&parameter.name, parameter.shape.clone(), &values).unwrap();
    }
    memory.insert_real("state", setting.input(1), state).unwrap();
    let mut program = Program::compile(&graph, &[velocity], &memory).unwrap();
    program.run(&mut memory).unwrap();
    program.output(0).unwrap()
}

#[test]
fn a_transformer_sees_a_grid_that_does_not_divide_as_one_that_goes_on() {
    let dit = Dit { patch: 4, hidden: 8, depth: 1, heads: 2, mlp_ratio: 2, ..Dit::default() };
    let config = OperatorConfig::Dit(dit);
    let setting =
        |[height, width]: [usize; 2]| Setting::new(FieldShape::plane(height, width, 1), &[true, false], 0);
    let (small, large) = ([5, 7], [8, 8]);
    let state = draw(small[0] * small[1], 9);
    // Circular padding along the height, replicate padding along the width.
    let places = (0..large[0] * large[1]).map(|i| (i / large[1], i % large[1]));
    let continued = places.map(|(row, column)| state[row % small[0] * small[1] + column.min(small[1] - 1)]);
    let whole = velocity(&config, &setting(large), &continued.collect::<Vec<_>>());
    let cropped: Vec<f32> =
        whole.chunks(large[1]).take(small[0]).flat_map(|row| &row[..small[1]]).copied().collect();
    assert_eq!(velocity(&config, &setting(small), &state), cropped);
}

#[test]
fn a_convolution_of_an_odd_periodic_line_finds_its_neighbours_across_the_edge() {
    // With one scale, the two edges affect each other only through convolutions on the full grid.
    let unet = Unet { channels: Some(vec![4]), groups: 1, ..Unet::default() };
    let config = OperatorConfig::Unet(unet);
    let field = FieldShape::line(11, 1);
    let mut state = draw(11, 3);
    let moved = |periodic: bool, state: &mut Vec<f32>| {
        let setting = Setting::new(field, &[periodic], 0);
        // Normalisation spreads any change over the whole line. The change at the other edge is therefore compared with that in the middle.
        let before = velocity(&config, &setting, state);
        state[10] += 1e-2;
        let after = velocity(&config, &setting, state);
        state[10] -= 1e-2;
        let change = |i: usize| f64::from((after[i] - before[i]).abs());
        change(0) / (change(4) + change(5) + change(6))
    };
    let (periodic, bounded) = (moved(true, &mut state), moved(false, &mut state));
    assert!(periodic > 3.0 * bounded, "{periodic} {bounded}");
}

#[test]
fn grids_that_divide_are_neither_padded_nor_cropped() {
    for (config, setting, _) in networks() {
        let mut graph = Graph::new();
        append(&mut graph, &config, &setting, true);
        let text = graph.to_string();
        let uneven = |line: &str| {
            let margins = line.split(" pad ").nth(1)?.split_once("before=")?.1.split_once(" after=")?;
            let after = margins.1.split_inclusive(']').next()?;
            (margins.0 != after).then(|| line.to_owned())
        };
        assert_eq!(text.lines().find_map(uneven), None, "{}", config.name());
        // Of the transformer, only the modulation is sliced.
        let cropped = |line: &&str| {
            line.contains(" slice axis=2") || config.name() == "unet" && line.contains(" slice ")
        };
        assert_eq!(text.lines().find(cropped), None, "{}", config.name());
    }
}

/// Checks the gradients of all parameters and of the state in double precision: their product with a direction against a central
/// difference.
#[test]
fn gradients_are_differences() {
    for (config, setting) in small_networks() {
        let mut graph = Graph::new();
        let [state, velocity] = append(&mut graph, &config, &setting, true);
        let loss = graph.var(velocity).sin().sum_all().node().unwrap();
        let parameters = graph.parameters().to_vec();
        let mut nodes: Vec<_> = parameters.iter().map(|parameter| parameter.node).collect();
        nodes.push(state);
        let outputs: Vec<_> = [loss].into_iter().chain(graph.gradients(loss, &nodes).unwrap()).collect();
        let mut tensors: Vec<(String, cfo_engine::Shape)> =
            parameters.into_iter().map(|parameter| (parameter.name, parameter.shape)).collect();
        tensors.push(("state".into(), graph.shape(state).clone()));
        let numbers = |seed: u64, scale: f64| -> Vec<Vec<f64>> {
            let lists = tensors.iter().zip(seed..);
            lists
                .map(|((_, shape), seed)| {
                    draw(shape.len(), seed).iter().map(|&v| scale * f64::from(v)).collect()
                })
                .collect()
        };
        let (values, direction) = (numbers(0, 0.4), numbers(1000, 1.0));
        let at = |step: f64| -> Vec<Vec<f64>> {
            let mut memory = Memory::new(Device::Cpu, Precision::F64).unwrap();
            memory.insert("time", Element::Real, [3], Data::F64(&[0.1, 0.5, 0.9])).unwrap();
            memory
                .insert("conditions", Element::Real, [3, 2], Data::F64(&[0.3, -0.2, 0.8, 0.1, -0.5, 0.4]))
                .unwrap();
            for (((name, shape), values), direction) in tensors.iter().zip(&values).zip(&direction) {
                let moved: Vec<f64> = values.iter().zip(direction).map(|(v, d)| v + step * d).collect();
                memory.insert(name, Element::Real, shape.clone(), Data::F64(&moved)).unwrap();
            }
            let mut program = Program::compile(&graph, &outputs, &memory).unwrap();
            program.run(&mut memory).unwrap();
            (0..outputs.len()).map(|i| program.output_f64(i).unwrap()).collect()
        };
        let step = 1e-6;
        let difference = (at(step)[0][0] - at(-step)[0][0]) / (2.0 * step);
        let exact: f64 =
            at(0.0)[1..].iter().flatten().zip(direction.iter().flatten()).map(|(g, d)| g * d).sum();
        // Rounding of the loss divided by the step, and the third derivative.
        let room = 1e-6 * (1.0 + exact.abs());
        assert!(
            (difference - exact).abs() < room,
            "{} {}: {difference} {exact}",
            config.name(),
            setting.grid
        );
    }
}

/// Returns the position on an axis of length `length` whose value position `at` has.
fn source(mode: PadMode, at: isize, length: usize) -> Option<usize> {
    let length = length as isize;
    match mode {
        PadMode::Circular => Some(at.rem_euclid(length) as usize),
        PadMode::Replicate => Some(at.clamp(0, length - 1) as usize),
        PadMode::Zero => (0..length).contains(&at).then_some(at as usize),
    }
}

/// Checks convolutions of volumes against their definition as loops, and transposed ones.
#[test]
fn convolutions_of_volumes_are_those_of_the_definition() {
    use PadMode::{Circular, Replicate, Zero};
    let (inputs, outputs) = (2, 3);
    for modes in
        [[Circular; 3], [Replicate; 3], [Zero; 3], [Zero, Circular, Replicate], [Circular, Replicate, Zero]]
    {
        let boundary = Boundary::of(modes);
        for sides in [[4, 6, 2], [3, 4, 5], [5, 1, 2], [1, 2, 1]] {
            for (kernel, stride, is_transposed) in [(3, 1, false), (4, 2, false), (4, 2, true)] {
                let [d, h, w] = sides;
                let mut graph = Graph::new();
                let x = graph.input("x", [2, d * h, w, inputs]).unwrap();
                let shape = match is_transposed {
                    true => [kernel * inputs, kernel, kernel, outputs],
                    false => [outputs, kernel, kernel, kernel * inputs],
                };
                let weight = graph.input("w", shape).unwrap();
                let field = Volume { node: x, depth: d };
                let y = match is_transposed {
                    true => boundary.conv_transpose(&mut graph, field, weight, [stride; 3], [1; 3]),
                    false => boundary.conv(&mut graph, field, weight, [stride; 3], [1; 3]),
                };
                let y = y.unwrap();
                let result =
                    sides.map(|side| if is_transposed { side * stride } else { side.div_ceil(stride) });
                assert_eq!(y.sides(&graph), result);
                let (values, weights) = (draw(2 * d * h * w * inputs, 1), draw(shape.iter().product(), 2));
                let mut memory = Memory::new(Device::Cpu, Precision::F32).unwrap();
                memory.insert_real("x", [2, d * h, w, inputs], &values).unwrap();
                memory.insert_real("w", shape, &weights).unwrap();
                let mut program = Program::compile(&graph, &[y.node], &memory).unwrap();
                program.run(&mut memory).unwrap();
                let found = program.output(0).unwrap();
                // The kernel's index along the depth in the order of the weight of a transposed convolution.
                let depth_of = |k: usize| {
                    if is_transposed { [3, 1, 2, 0].iter().position(|&i| i == k).unwrap() } else { k }
                };
                for (place, found) in found.iter().enumerate() {
                    let (o, point) = (place % outputs, place / outputs);
                    let at = [
                        point / result[2] / result[1] % result[0],
                        point / result[2] % result[1],
                        point % result[2],
                    ];
                    let sample = point / result.iter().product::<usize>();
                    let mut sum = 0.0;
                    for k in 0..kernel * kernel * kernel {
                        let k = [k / kernel / kernel, k / kernel % kernel, k % kernel];
                        let read = [0, 1, 2].map(|axis| {
                            let (at, k, stride) = (at[axis] as isize, k[axis] as isize, stride as isize);
                            // Output = stride * input + k - 1 in a transposed convolution, and the reverse in the other.
                            let from = if is_transposed { at + 1 - k } else { at * stride + k - 1 };
                            match is_transposed {
                                true if from.rem_euclid(stride) != 0 => None,
                                true => source(modes[axis], from.div_euclid(stride), sides[axis]),
                                false => source(modes[axis], from, sides[axis]),
                            }
                        });
                        let [Some(z), Some(row), Some(column)] = read else { continue };
                        for c in 0..inputs {
                            let value = values[((((sample * d) + z) * h + row) * w + column) * inputs + c];
                            let kz = depth_of(k[0]) * inputs + c;
                            let weight = match is_transposed {
                                true => weights[((kz * kernel + k[1]) * kernel + k[2]) * outputs + o],
                                false => {
                                    weights[((o * kernel + k[1]) * kernel + k[2]) * kernel * inputs + kz]
                                }
                            };
                            sum += f64::from(value) * f64::from(weight);
                        }
                    }
                    // Sums of up to 128 products of size 1 in single precision; fast convolutions lose another digit.
                    assert!(
                        (f64::from(*found) - sum).abs() < 1e-4,
                        "{modes:?} {sides:?} {kernel} {is_transposed}: {found} {sum}"
                    );
                }
            }
        }
    }
}

/// Checks that a U-Net on a periodic grid commutes with shifts by a point of its coarsest grid.
#[test]
fn shifted_states_have_shifted_velocities() {
    let unet = Unet { channels: Some(vec![4, 4]), groups: 2, ..Unet::default() };
    let config = OperatorConfig::Unet(unet);
    for sides in [&[12][..], &[4, 8], &[8, 4, 12]] {
        let grid = Grid::new(sides).unwrap();
        let setting = Setting::new(FieldShape { grid, channels: 1 }, &vec![true; sides.len()], 0);
        let state = draw(grid.points(), 7);
        for axis in 0..sides.len() {
            let shifted = |values: &[f32]| -> Vec<f32> {
                let from = |point: usize| {
                    let mut place = grid.place(point);
                    place[axis] = (place[axis] + 4) % sides[axis];
                    values[grid.point(&place)]
                };
                (0..grid.points()).map(from).collect()
            };
            let (found, expected) = (
                velocity(&config, &setting, &shifted(&state)),
                shifted(&velocity(&config, &setting, &state)),
            );
            // Sums in another order, in single precision.
            let near = |(a, b): (&f32, &f32)| (a - b).abs() < 1e-4;
            assert!(found.iter().zip(&expected).all(near), "{sides:?} {axis}");
        }
    }
}
