//! Training through a solver: correctness of gradients, accuracy, and resumed runs.

use std::cell::RefCell;

use cfo::numerics::Philox;
use cfo::numerics::ode::{Controller, OdeSolution, RK4, Steps, TSIT5, Tableau, integrate};
use cfo::objective::{ObjectiveConfig, ThroughSolver};
use cfo::recipe::Integration;
use cfo::training::TrainingStep;
use cfo::{Device, Recipe, Trajectories};
use cfo_engine::{Data, Memory, Program, Role};

use crate::util::{oscillators, recipe, trained};

/// Returns the recipe of a short training with these keys of the objective.
fn neural_ode(steps: u32, keys: &[&str]) -> Recipe {
    let mut all: Vec<String> = vec!["objective.kind=neural-ode".into()];
    all.extend(keys.iter().map(|key| (*key).to_owned()));
    Recipe::parse(&recipe(steps).to_toml().unwrap(), &all).unwrap()
}

/// Returns the error of a constant prediction: the distance from the first snapshot to the others, relative to them.
fn persistence(set: &Trajectories) -> f64 {
    let errors = set.part(cfo::data::Split::Test).map(|(_, trajectory)| {
        let size = trajectory.values.len() / trajectory.times.len();
        let first = trajectory.values[..size].to_vec();
        let later = &trajectory.values[size..];
        let square = |values: &mut dyn Iterator<Item = f32>| values.map(|x| f64::from(x * x)).sum::<f64>();
        let mut differences = later.iter().zip(first.iter().cycle()).map(|(a, b)| a - b);
        (square(&mut differences) / square(&mut later.iter().copied())).sqrt()
    });
    let errors: Vec<f64> = errors.collect();
    errors.iter().sum::<f64>() / errors.len() as f64
}

/// A training step in double precision that does not change the weights.
struct Fixed {
    prepared: TrainingStep,
    step: cfo::training::CompiledStep,
    names: Vec<String>,
}

impl Fixed {
    fn new(set: &Trajectories, keys: &[&str]) -> Self {
        Self::with_batch(set, keys, 12)
    }

    fn with_batch(set: &Trajectories, keys: &[&str], batch: usize) -> Self {
        let mut recipe = neural_ode(1, keys);
        recipe.operator = Recipe::parse(
            "[operator]\nkind = \"mlp\"\nhidden = [8, 8]\nactivation = \"silu\"\ntime = false\n",
            &[],
        )
        .unwrap()
        .operator;
        recipe.train.precision = "f64".parse().unwrap();
        recipe.train.learning_rate = 1e-30;
        recipe.train.batch = batch;
        let mut prepared = TrainingStep::new(&recipe, set, Device::Cpu).unwrap();
        prepared.initialize().unwrap();
        let step = prepared.compile(&[prepared.loss]).unwrap();
        let names = prepared.graph.parameters().iter().map(|of| of.name.clone()).collect();
        Self { prepared, step, names }
    }

    fn weights(&self) -> Vec<Vec<f64>> {
        self.names.iter().map(|name| self.prepared.memory.read_f64(name).unwrap()).collect()
    }

    /// Returns the loss of the first batch at these weights.
    fn loss(&mut self, weights: &[Vec<f64>]) -> f64 {
        let memory = &mut self.prepared.memory;
        for (name, values) in self.names.iter().zip(weights) {
            memory.write(name, Data::F64(values)).unwrap();
        }
        memory.write("train.step", Data::Index(&[0])).unwrap();
        self.step.run(memory).unwrap();
        self.step.loss().unwrap()
    }

    /// Returns the gradient at the first step, from Adam's first moment, which is a tenth of it.
    fn gradient(&mut self) -> Vec<Vec<f64>> {
        let weights = self.weights();
        self.loss(&weights);
        let moment = |name: &String| self.prepared.memory.read_f64(&format!("adam.first/{name}")).unwrap();
        let tenths = self.names.iter().map(moment);
        tenths.map(|values| values.iter().map(|value| value / 0.1).collect()).collect()
    }
}

/// Checks the gradient against differences of the loss along random directions: over one interval and several, with adaptive and equal
/// steps, and with stored and recomputed states. Tolerances are tight, because the choice of steps is not differentiated.
#[test]
fn gradients_agree_with_central_differences() {
    let (set, tight) = (oscillators(10), ["objective.solver.rtol=1e-11", "objective.solver.atol=1e-13"]);
    let variants: [(&[&str], bool); 7] = [
        (&[], true),
        (&["objective.window=3"], true),
        (&["objective.solver=dopri5"], true),
        // Order 2 takes thousands of steps at those tolerances.
        (
            &[
                "objective.solver=heun",
                "objective.window=2",
                "objective.solver.rtol=1e-9",
                "objective.solver.atol=1e-11",
            ],
            true,
        ),
        (&["objective.solver=rk4"], false),
        (&["objective.solver=rk4", "objective.window=2", "objective.solver.steps=2"], false),
        (&["objective.solver=tsit5", "objective.window=2", "objective.solver.steps=1"], false),
    ];
    for (keys, adaptive) in variants {
        let keys: Vec<&str> = (if adaptive { &tight[..] } else { &[] }).iter().chain(keys).copied().collect();
        let mut fixed = Fixed::new(&set, &keys);
        let (weights, gradient) = (fixed.weights(), fixed.gradient());
        let counts = fixed.step.solver_counts();
        assert_eq!(counts.is_some(), adaptive, "{keys:?}");
        if keys.contains(&"objective.solver=heun") {
            assert!(counts.unwrap().recomputed > 200, "{counts:?}");
        }
        let mut random = Philox::new(3, 1);
        for _ in 0..3 {
            let direction: Vec<Vec<f64>> =
                weights.iter().map(|values| values.iter().map(|_| random.normal()).collect()).collect();
            let moved = |by: f64| -> Vec<Vec<f64>> {
                let pairs = weights.iter().zip(&direction);
                pairs.map(|(w, d)| w.iter().zip(d).map(|(w, d)| w + by * d).collect()).collect()
            };
            // The cube of this number and the rounding error of the loss divided by it are both far below 1e-6.
            let by = 1e-5;
            let difference = (fixed.loss(&moved(by)) - fixed.loss(&moved(-by))) / (2.0 * by);
            let product: f64 =
                gradient.iter().flatten().zip(direction.iter().flatten()).map(|(g, d)| g * d).sum();
            let error = (product - difference).abs() / difference.abs();
            assert!(error < 1e-6, "{keys:?}: {product} and {difference} differ by {error:.1e}");
        }
    }
}

/// Checks the steps in training against the host's integrator, for every method that estimates its error. Numbers of steps and rejections
/// are equal, and so are the states in the loss. Tolerances are loose, so that a wrong slope at the start of a step is visible.
#[test]
fn adaptive_training_takes_the_hosts_steps() {
    let set = oscillators(10);
    for tableau in Tableau::ALL.into_iter().filter(Tableau::estimates_error) {
        // The interval between snapshots takes a few steps with each method.
        let rtol = 10.0_f64.powi(-2 * tableau.error_order as i32);
        let keys = [
            format!("objective.solver={}", tableau.name),
            "objective.window=3".to_owned(),
            format!("objective.solver.rtol={rtol:e}"),
            format!("objective.solver.atol={:e}", rtol / 100.0),
        ];
        let keys = keys.each_ref().map(String::as_str);
        let mut fixed = Fixed::with_batch(&set, &keys, 1);
        let mut most = 0;
        for draw in 0..6 {
            fixed.prepared.memory.write("train.step", Data::Index(&[draw])).unwrap();
            fixed.step.run(&mut fixed.prepared.memory).unwrap();
            let counts = fixed.step.solver_counts().unwrap();
            let loss = fixed.step.loss().unwrap();
            let (expected, solution) = on_host(&mut fixed.prepared, tableau, rtol);
            let name = tableau.name;
            assert_eq!(counts.accepted as u64, solution.steps, "{name}, draw {draw}");
            assert_eq!(counts.attempts as u64, solution.steps + solution.rejections, "{name}, draw {draw}");
            let error = (loss - expected).abs() / expected;
            // Both sum in f64, in other orders, over some hundred steps.
            assert!(error < 1e-10, "{name}, draw {draw}: {loss} and {expected} differ by {error:.1e}");
            most = most.max(counts.accepted);
        }
        assert!(most > 3, "{}: {most} steps for three intervals", tableau.name);
    }
}

/// Returns the loss of the one window in the latest batch, from the host's integrator.
fn on_host(prepared: &mut TrainingStep, tableau: Tableau, rtol: f64) -> (f64, OdeSolution) {
    let model = prepared.model.clone();
    let memory = &mut prepared.memory;
    let read = |memory: &Memory, name: &str| memory.read_f64(name).unwrap();
    let (start, from) = (read(memory, "solve.slot.0"), read(memory, "solve.time")[0]);
    let lengths = read(memory, "solve.lengths");
    let targets: Vec<f64> =
        (0..lengths.len()).flat_map(|interval| read(memory, &format!("solve.target.{interval}"))).collect();
    let times: Vec<f64> = lengths
        .iter()
        .scan(from, |time, length| {
            *time += length;
            Some(*time)
        })
        .collect();
    let (graph, velocity) = model.forward(1, memory).unwrap();
    let program = Program::compile(&graph, &[velocity], memory).unwrap();
    let place = RefCell::new((program, memory));
    let field = |t: f64, u: &[f64], out: &mut [f64]| {
        let (program, memory) = &mut *place.borrow_mut();
        memory.write("forward.time", Data::F64(&[t])).unwrap();
        memory.write("forward.state", Data::F64(u)).unwrap();
        program.run(memory).unwrap();
        out.copy_from_slice(&program.output_f64(0).unwrap());
    };
    let controller = Controller { stop_at_outputs: true, ..Controller::new(rtol, rtol / 100.0) };
    let solution = integrate(&field, &tableau, from, &start, &times, Steps::Adaptive(controller)).unwrap();
    let unit = model.scaling.change.iter().cycle();
    let pairs = solution.states.iter().zip(&targets).zip(unit);
    let squares: f64 = pairs.map(|((found, wanted), unit)| ((found - wanted) / unit).powi(2)).sum();
    (squares / targets.len() as f64, solution)
}

/// Checks that without gradients through time the loss is equal and the gradient differs.
#[test]
fn gradients_may_stop_at_each_snapshot() {
    let set = oscillators(10);
    for solver in ["objective.solver=tsit5", "objective.solver=rk4"] {
        let of = |stop: &str| {
            let mut fixed = Fixed::new(&set, &[solver, "objective.window=2", stop]);
            let weights = fixed.weights();
            (fixed.loss(&weights), fixed.gradient())
        };
        let (whole, stopped) = (of("objective.through_time=true"), of("objective.through_time=false"));
        assert_eq!(whole.0, stopped.0);
        assert_ne!(whole.1, stopped.1, "{solver}");
    }
}

/// Checks that more equal steps need little more memory, since they are recomputed in the backward pass.
#[test]
fn more_equal_steps_need_hardly_more_memory() {
    let set = oscillators(10);
    let bytes = |substeps: &str| {
        let keys = ["objective.solver=rk4", "objective.window=6", substeps];
        Fixed::new(&set, &keys).step.arena_bytes()
    };
    let (few, many) = (bytes("objective.solver.steps=2"), bytes("objective.solver.steps=8"));
    assert!(many < 2 * few, "{few} and {many} bytes");
}

#[test]
fn a_neural_ode_learns_at_irregular_times() {
    let set = oscillators(60);
    let limit = persistence(&set) / 5.0;
    for keys in [&["objective.window=2"][..], &["objective.solver=rk4", "objective.solver.steps=2"]] {
        let error = trained(&neural_ode(300, keys), &set, None, false).unwrap().evaluate(set.test()).unwrap();
        let error = error.relative_l2.mean;
        assert!(error < limit, "{keys:?}: {error}; of a constant prediction {}", 5.0 * limit);
    }
}

/// Returns all stored tensors of a training.
fn kept(trained: &cfo::Trained) -> Vec<Vec<f32>> {
    trained.with_memory(|memory| {
        let names = memory.names_where(|role| role.is_network() || role == Role::Optimizer);
        let mut names: Vec<&str> = names.filter(|name| *name != "train.step").collect();
        names.sort_unstable();
        names.into_iter().map(|name| memory.read(name).unwrap()).collect()
    })
}

#[test]
fn a_neural_ode_goes_on_where_it_stopped() {
    let (set, folder) = (oscillators(20), tempfile::tempdir().unwrap());
    for (number, keys) in [&["objective.window=2"][..], &["objective.solver=rk4"]].into_iter().enumerate() {
        let (whole, half) = (neural_ode(40, keys), neural_ode(20, keys));
        // The learning rate must not depend on the number of steps.
        let constant = |mut recipe: Recipe| {
            recipe.train.schedule = Default::default();
            recipe
        };
        let (whole, half) = (constant(whole), constant(half));
        let run = folder.path().join(number.to_string());
        trained(&half, &set, Some(&run), false).unwrap();
        let resumed = trained(&whole, &set, Some(&run), true).unwrap();
        let mut streamed = whole.clone();
        streamed.data.stream = Some(true);
        let once = kept(&trained(&whole, &set, None, false).unwrap());
        assert!(kept(&resumed) == once, "{keys:?}: resumed");
        assert!(kept(&trained(&streamed, &set, None, false).unwrap()) == once, "{keys:?}: streamed");
    }
}

#[test]
fn what_a_neural_ode_cannot_take_is_refused() {
    let text = recipe(1).to_toml().unwrap();
    let cases = [
        ("objective.window=0", "positive"),
        ("objective.solver.rtol=-1", "objective.solver.rtol"),
        ("objective.solver=rk5", "rk5"),
        ("objective.stepps=2", "stepps"),
    ];
    for (key, problem) in cases {
        let keys = ["objective.kind=neural-ode".to_owned(), key.to_owned()];
        let refused = Recipe::parse(&text, &keys).unwrap_err().to_string();
        assert!(refused.contains(problem), "{key}: {refused}");
    }
    let refused =
        trained(&neural_ode(1, &["objective.window=40"]), &oscillators(20), None, false).unwrap_err();
    assert!(refused.hint().is_some_and(|hint| hint.contains("shorten the window")), "{refused}");
    let set = oscillators(20);
    let prepared = TrainingStep::new(&neural_ode(1, &[]), &set, Device::Cpu);
    let mut prepared = prepared.unwrap();
    prepared.initialize().unwrap();
    let text = prepared.compile(&[]).unwrap().to_string();
    assert!(text.contains("64 states kept at most"), "{text}");
}

/// Checks that the recipes differ from the paper's only in the training. On Kuramoto-Sivashinsky the steps are equal, because adaptive
/// steps would take hours.
#[test]
fn the_recipes_of_neural_odes_are_those_of_their_systems() {
    let by = |method| ThroughSolver { solver: Integration::by(method), ..ThroughSolver::default() };
    let (papers, equal) = (by(TSIT5), by(RK4));
    let recipes = [
        (
            include_str!("../../recipes/lorenz.toml"),
            include_str!("../../recipes/neural-ode/lorenz.toml"),
            papers,
        ),
        (
            include_str!("../../recipes/burgers.toml"),
            include_str!("../../recipes/neural-ode/burgers.toml"),
            papers,
        ),
        (
            include_str!("../../recipes/kuramoto-sivashinsky.toml"),
            include_str!("../../recipes/neural-ode/kuramoto-sivashinsky.toml"),
            equal,
        ),
    ];
    for (flow, through, steps) in recipes {
        let (flow, mut through) = (Recipe::parse(flow, &[]).unwrap(), Recipe::parse(through, &[]).unwrap());
        assert_eq!(through.objective, ObjectiveConfig::NeuralOde(steps));
        through.objective = flow.objective;
        through.train.precision = flow.train.precision;
        assert_eq!(through, flow);
    }
}
