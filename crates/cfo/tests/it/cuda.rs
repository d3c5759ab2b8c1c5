//! Networks and training on a GPU compared with the CPU. Without a GPU each test prints that it was skipped.

use std::sync::atomic::AtomicBool;

use cfo::data::FieldShape;
use cfo::data::simulate::{Burgers, Equation, Lorenz};
use cfo::numerics::{Grid, Philox};
use cfo::operator::{Context, Dit, Fno, Mlp, OperatorConfig, Setting, Unet};
use cfo::training::TrainingStep;
use cfo::{Device, Precision, Recipe, Trajectories};
use cfo_engine::{Data, Element, Graph, Memory, Node, Program, Shape};

/// Returns the GPU, or prints that the test is skipped if there is none.
fn device(test: &str) -> Option<Device> {
    match Device::Cuda(0).check() {
        Ok(()) => Some(Device::Cuda(0)),
        Err(error) => {
            // Written directly to standard error, which the test harness does not capture, so that `.ci/run` can count skipped tests.
            let line = format!("test cuda::{test} ... skipped: {error}\n");
            let _ = std::io::Write::write_all(&mut std::io::stderr(), line.as_bytes());
            None
        }
    }
}

/// Precisions with their allowed relative error and the relative rounding error of one operand.
const PRECISIONS: [(Precision, f64, f64); 3] = [
    (Precision::F32, 1e-5, 1.0 / (1 << 24) as f64),
    (Precision::Tf32, 1e-3, 1.0 / (1 << 11) as f64),
    (Precision::Bf16, 1e-2, 1.0 / (1 << 9) as f64),
];

/// Allowed error of a network, in multiples of the change of the exact result when inputs and weights are rounded once. It applies if it
/// exceeds the precision's own bound.
const ROUNDINGS: f64 = 8.0;

fn volume(sides: [usize; 3], channels: usize) -> FieldShape {
    FieldShape { grid: Grid::new(&sides).unwrap(), channels }
}

fn networks() -> Vec<(&'static str, OperatorConfig, Setting)> {
    let setting = |shape, periodic: &[bool]| Setting::new(shape, periodic, 2);
    let unet = |channels: Vec<usize>, groups: usize| {
        OperatorConfig::Unet(Unet { channels: Some(channels), groups, ..Unet::default() })
    };
    let fno = |width, modes| OperatorConfig::Fno(Fno { width, blocks: 2, modes, ..Fno::default() });
    let dit = |patch, hidden, heads| {
        OperatorConfig::Dit(Dit { patch, hidden, depth: 2, heads, mlp_ratio: 2, ..Dit::default() })
    };
    let mlp = |hidden| OperatorConfig::Mlp(Mlp { hidden, ..Mlp::default() });
    vec![
        ("mlp, odd", mlp(vec![5, 7]), setting(FieldShape::system(3), &[])),
        ("mlp", mlp(vec![128, 64]), setting(FieldShape::system(3), &[])),
        ("fno1d, odd", fno(6, 3), setting(FieldShape::line(9, 1), &[true])),
        ("fno1d", fno(32, 6), setting(FieldShape::line(100, 1), &[true])),
        ("fno2d", fno(16, 3), setting(FieldShape::plane(12, 16, 2), &[true, true])),
        ("unet1d, odd", unet(vec![4, 8], 2), setting(FieldShape::line(12, 1), &[true])),
        ("unet1d", unet(vec![16, 32], 8), setting(FieldShape::line(100, 1), &[true])),
        ("unet2d, odd", unet(vec![4, 8], 2), setting(FieldShape::plane(4, 8, 3), &[true, false])),
        ("unet2d", unet(vec![16, 32], 8), setting(FieldShape::plane(32, 32, 2), &[false, false])),
        ("dit, odd", dit(2, 8, 2), setting(FieldShape::plane(4, 6, 2), &[false, false])),
        ("dit", dit(4, 64, 2), setting(FieldShape::plane(32, 32, 2), &[false, false])),
        ("fno3d", fno(16, 3), setting(volume([8, 6, 12], 2), &[true; 3])),
        ("unet3d, odd", unet(vec![4, 8], 2), setting(volume([5, 4, 7], 3), &[true, false, true])),
        ("unet3d", unet(vec![16, 32], 8), setting(volume([16, 16, 16], 2), &[true; 3])),
        ("dit3d", dit(4, 48, 2), setting(volume([8, 8, 16], 2), &[false; 3])),
    ]
}

/// A network with a loss and the gradients of all its parameters.
struct Built {
    graph: Graph,
    /// Velocity, loss, gradients.
    outputs: Vec<Node>,
    /// Names and shapes of all its inputs and parameters.
    tensors: Vec<(String, Shape)>,
}

fn build(config: &OperatorConfig, setting: &Setting, batch: usize) -> Built {
    let mut graph = Graph::new();
    let mut tensors: Vec<(String, Shape)> = vec![
        ("time".into(), [batch].into()),
        ("state".into(), setting.input(batch).into()),
        ("conditions".into(), [batch, setting.conditions].into()),
        ("target".into(), setting.input(batch).into()),
    ];
    let inputs: Vec<Node> =
        tensors.iter().map(|(name, shape)| graph.input(name, shape.clone()).unwrap()).collect();
    let context = Context { conditions: Some(inputs[2]), ..Context::at(inputs[0]) };
    let velocity = config.operator().apply(&mut graph, setting, inputs[1], &context).unwrap();
    let loss = graph.mean_squared_error(velocity, inputs[3]).unwrap();
    let parameters = graph.parameters().to_vec();
    let nodes: Vec<Node> = parameters.iter().map(|parameter| parameter.node).collect();
    let gradients = graph.gradients(loss, &nodes).unwrap();
    tensors.extend(parameters.into_iter().map(|parameter| (parameter.name, parameter.shape)));
    Built { graph, outputs: [velocity, loss].into_iter().chain(gradients).collect(), tensors }
}

/// Returns velocity, loss and all gradients as three lists.
fn run(built: &Built, values: &[Vec<f64>], device: Device, precision: Precision) -> [Vec<f64>; 3] {
    let mut memory = Memory::new(device, precision).unwrap();
    for ((name, shape), values) in built.tensors.iter().zip(values) {
        memory.insert(name, Element::Real, shape.clone(), Data::F64(values)).unwrap();
    }
    let mut program = Program::compile(&built.graph, &built.outputs, &memory).unwrap();
    program.run(&mut memory).unwrap();
    let output = |i: usize| program.output_f64(i).unwrap();
    [output(0), output(1), (2..built.outputs.len()).flat_map(output).collect()]
}

fn norm(values: impl Iterator<Item = f64>) -> f64 {
    values.map(|value| value * value).sum::<f64>().sqrt()
}

fn errors(found: &[Vec<f64>; 3], expected: &[Vec<f64>; 3]) -> [f64; 3] {
    [0, 1, 2].map(|i| {
        let difference = found[i].iter().zip(&expected[i]).map(|(a, b)| a - b);
        norm(difference) / norm(expected[i].iter().copied()).max(1e-30)
    })
}

#[test]
fn networks_and_their_gradients_agree() {
    let Some(device) = device("networks_and_their_gradients_agree") else { return };
    // The seed is the clock's, so that inputs differ between runs.
    let seed = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_nanos() as u64;
    let mut random = Philox::new(seed, 0);
    let mut failures = Vec::new();
    for (name, config, setting) in networks() {
        let built = build(&config, &setting, 5);
        let values: Vec<Vec<f64>> = built
            .tensors
            .iter()
            .enumerate()
            .map(|(i, (tensor, shape))| {
                let inputs = if shape.rank() > 1 { shape.len() / shape.last() } else { 1 };
                let size =
                    if i < 4 || tensor.ends_with("scale") { 1.0 } else { 1.0 / (inputs as f64).sqrt() };
                let lift = if tensor == "time" { 0.5 } else { 0.0 };
                (0..shape.len()).map(|_| lift + size * 0.5 * random.normal()).collect()
            })
            .collect();
        let expected = run(&built, &values, Device::Cpu, Precision::F64);
        for (precision, tolerance, rounding) in PRECISIONS {
            let mut moved = [0.0_f64; 3];
            for _ in 0..3 {
                let mut shake = |x: &f64| x * (1.0 + rounding * random.uniform_between(-1.0, 1.0));
                // The time embedding multiplies by a thousand, so the time is not rounded here.
                let shaken: Vec<Vec<f64>> = values
                    .iter()
                    .enumerate()
                    .map(|(i, v)| if i == 0 { v.clone() } else { v.iter().map(&mut shake).collect() })
                    .collect();
                let found = errors(&run(&built, &shaken, Device::Cpu, Precision::F64), &expected);
                moved.iter_mut().zip(found).for_each(|(most, error)| *most = most.max(error));
            }
            let found = errors(&run(&built, &values, device, precision), &expected);
            for (what, (error, moved)) in
                ["velocity", "loss", "gradients"].iter().zip(found.iter().zip(moved))
            {
                let allowed = tolerance.max(ROUNDINGS * moved);
                eprintln!("{name} {precision} {what}: {error:.2e} (allowed {allowed:.2e})");
                if error.is_nan() || *error > allowed {
                    failures
                        .push(format!("{name} {precision} {what}: {error:.2e} > {allowed:.2e}, seed {seed}"));
                }
            }
        }
    }
    assert!(failures.is_empty(), "{failures:#?}");
}

fn simulated(equation: &dyn Equation, count: usize) -> Trajectories {
    Trajectories::simulate(equation, count, 3, &AtomicBool::new(false)).unwrap()
}

/// Returns the losses of the first steps and the final weights.
fn losses(recipe: &Recipe, set: &Trajectories, device: Device, steps: usize) -> (Vec<f64>, Vec<Vec<f32>>) {
    let mut prepared = TrainingStep::new(recipe, set, device).unwrap();
    prepared.initialize().unwrap();
    let mut program = prepared.compile(&[prepared.loss]).unwrap();
    let TrainingStep { graph, memory, .. } = &mut prepared;
    let losses = (0..steps)
        .map(|_| {
            program.run(memory).unwrap();
            program.loss().unwrap()
        })
        .collect();
    let weights = graph.parameters().iter().map(|parameter| memory.read(&parameter.name).unwrap()).collect();
    (losses, weights)
}

#[test]
fn losses_of_lorenz_and_burgers_agree() {
    let Some(device) = device("losses_of_lorenz_and_burgers_agree") else { return };
    // The paper's rate and batch: at ten times the rate, rounding errors grow from step to step.
    let lorenz = "[operator]\nkind = \"mlp\"\n[train]\nbatch = 2048\nlearning_rate = 1e-4\n";
    let burgers =
        "[operator]\nkind = \"unet\"\nchannels = [16, 32]\n[train]\nbatch = 16\nlearning_rate = 1e-4\n";
    for (name, text, set) in [
        ("lorenz", lorenz, simulated(&Lorenz::default(), 40)),
        ("burgers", burgers, simulated(&Burgers::default(), 12)),
    ] {
        let recipe = Recipe::parse(text, &[]).unwrap();
        let host = losses(&recipe, &set, Device::Cpu, 1000).0;
        let found = losses(&recipe, &set, device, 1000).0;
        let mean = |values: &[f64]| values.iter().sum::<f64>() / values.len() as f64;
        let windows = host.chunks(50).zip(found.chunks(50));
        let worst = windows.map(|(a, b)| (mean(b) / mean(a) - 1.0).abs()).fold(0.0, f64::max);
        eprintln!("{name}: windows of 50 losses differ by {:.3} % at most", 100.0 * worst);
        assert!(worst < 0.02, "{name}: {worst}");
        assert!(mean(&found[950..]) < 0.8 * mean(&found[..50]), "{name} does not learn");
    }
}

/// Checks the neural ODE with adaptive and with equal steps, over more intervals than stored states.
#[test]
fn losses_of_neural_odes_agree() {
    let Some(device) = device("losses_of_neural_odes_agree") else { return };
    let set = simulated(&Lorenz::default(), 20);
    let text = "[operator]\nkind = \"mlp\"\nactivation = \"silu\"\n[train]\nbatch = 256\n";
    for keys in [
        &["objective.window=3", "objective.checkpoints=2"][..],
        &["objective.solver=rk4", "objective.window=2", "objective.solver.steps=2"],
    ] {
        let mut all = vec!["objective.kind=neural-ode".to_owned()];
        all.extend(keys.iter().map(|key| (*key).to_owned()));
        let recipe = Recipe::parse(text, &all).unwrap();
        let (host, found) = (losses(&recipe, &set, Device::Cpu, 30).0, losses(&recipe, &set, device, 30).0);
        let worst = host.iter().zip(&found).map(|(a, b)| (b / a - 1.0).abs()).fold(0.0, f64::max);
        eprintln!("{keys:?}: losses differ by {:.3} % at most", 100.0 * worst);
        // Rounding in single precision affects the step sizes and thirty updates.
        assert!(worst < 0.02, "{keys:?}: {worst}");
    }
}

#[test]
fn deterministic_runs_yield_the_same_bits() {
    let Some(device) = device("deterministic_runs_yield_the_same_bits") else { return };
    let set = simulated(&Burgers::default(), 8);
    let plane = planes(8);
    for (text, set) in [
        ("[operator]\nkind = \"fno\"\n", &set),
        ("[operator]\nkind = \"unet\"\n", &set),
        ("[operator]\nkind = \"unet\"\nchannels = [32, 64]\n", &plane),
        ("[operator]\nkind = \"dit\"\nhidden = 128\ndepth = 2\n", &plane),
    ] {
        for precision in ["tf32", "bf16"] {
            let keys = [
                "train.batch=16".to_owned(),
                "train.deterministic=true".into(),
                "train.clip=1.0".into(),
                format!("train.precision={precision}"),
            ];
            let recipe = Recipe::parse(text, &keys).unwrap();
            let (first, second) = (losses(&recipe, set, device, 30), losses(&recipe, set, device, 30));
            assert!(first == second, "{text} {precision}");
        }
    }
}

/// Returns travelling waves on a plane of 32 x 32 points.
pub fn planes(count: usize) -> Trajectories {
    use cfo::data::{Description, InputNames, Trajectory};
    let shape = FieldShape::plane(32, 32, 2);
    let description = Description {
        system: "waves".into(),
        shape,
        periodic: vec![true; 2],
        domain: vec![[0.0, 1.0]; 2],
        channel_names: vec![],
        channel_units: vec![],
        inputs: InputNames::default(),
    };
    let trajectory = |i: usize| {
        let times: Vec<f64> = (0..12).map(|k| k as f64 / 11.0).collect();
        let values = times.iter().flat_map(|t| {
            (0..shape.len()).map(move |j| ((0.1 + 0.01 * i as f64) * j as f64 + 5.0 * t).sin() as f32)
        });
        Trajectory::new(times.clone(), values.collect(), vec![]).unwrap()
    };
    Trajectories::new(description, (0..count).map(trajectory).collect()).unwrap()
}

/// Checks objectives with random numbers and latent spaces on a GPU against the CPU: graph and random numbers are equal. Training uses
/// equal batches and noise, so that the weights after a few steps are nearly equal.
#[test]
fn samplers_and_latent_spaces_agree() {
    let Some(device) = device("samplers_and_latent_spaces_agree") else { return };
    let burgers = Burgers { grid: 16, frames: 9, ..Burgers::default() };
    let set = Trajectories::simulate(&burgers, 10, 0, &AtomicBool::new(false)).unwrap();
    for sets in [
        &["objective.kind=pde-refiner"][..],
        &["objective.kind=pde-refiner", "objective.form=velocity", "objective.residual=false"],
        &["objective.kind=conditional-flow-matching", "objective.frames=8"],
        &["latent.wavelet=haar", "latent.levels=2"],
        &["latent.wavelet=daubechies4"],
    ] {
        let small = [
            "operator.kind=unet",
            "operator.channels=[8]",
            "train.steps=20",
            "train.batch=8",
            "train.ema=0.5",
        ];
        let all: Vec<String> = small.iter().chain(sets).map(ToString::to_string).collect();
        let recipe = Recipe::parse("", &all).unwrap();
        let [host, found] = [Device::Cpu, device].map(|device| {
            let trained = cfo::Training::from_recipe(&recipe).device(device).fit(&set).unwrap();
            trained.predict(&set.trajectories[0].values[..16], 0.0, &[0.125, 0.25, 0.375]).unwrap().states
        });
        let error = norm(found.iter().zip(&host).map(|(a, b)| f64::from(a - b)))
            / norm(host.iter().map(|&value| f64::from(value)));
        // Twenty steps of an optimiser that divides by small gradients amplify rounding errors of single precision.
        assert!(error < 1e-2, "{sets:?}: relative error {error:.2e}");
    }
}
