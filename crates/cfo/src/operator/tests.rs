//! Laws that hold for all networks.

use cfo_device::Device;
use cfo_engine::{Graph, Memory, Precision, Program};

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
        (OperatorConfig::Fno(fno), setting(FieldShape::plane(8, 7, 2), &[true, true])),
        (OperatorConfig::Unet(unet.clone()), setting(FieldShape::line(12, 1), &[true])),
        (OperatorConfig::Unet(unet.clone()), setting(FieldShape::plane(8, 4, 2), &[true, true])),
        (OperatorConfig::Unet(unet.clone()), setting(FieldShape::plane(4, 8, 3), &[true, false])),
        (OperatorConfig::Unet(unet.clone()), setting(FieldShape::line(11, 1), &[true])),
        (OperatorConfig::Unet(unet.clone()), setting(FieldShape::plane(5, 7, 2), &[true, false])),
        (OperatorConfig::Unet(unet), setting(FieldShape::plane(2, 3, 1), &[false, false])),
        (OperatorConfig::Dit(dit.clone()), setting(FieldShape::plane(4, 6, 2), &[false, false])),
        (OperatorConfig::Dit(dit.clone()), setting(FieldShape::plane(5, 7, 2), &[true, false])),
        (OperatorConfig::Dit(dit), setting(FieldShape::line(9, 1), &[true])),
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
        (OperatorConfig::Unet(Unet::default()), FieldShape::system(3), "it needs one or two space axes"),
        (
            OperatorConfig::Unet(Unet { groups: 7, ..Unet::default() }),
            FieldShape::line(64, 1),
            "multiple of `operator.groups` = 7",
        ),
        (OperatorConfig::Fno(Fno::default()), FieldShape::line(10, 1), "6 modes need sides of 11 points"),
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
