//! The public library: user-defined operators and objectives, saved and loaded models, the examples.

use std::sync::Arc;

use cfo::data::simulate::Lorenz;
use cfo::data::{Split, TrajectoryInputs};
use cfo::graph::{Activation, Graph, Initial, Node};
use cfo::objective::{Batch, Draw, FlowMatching, Motion, MotionKind, Objective, Point, Unit};
use cfo::operator::{Context, Mlp, Operator, Setting, StateSpace};
use cfo::{Device, Model, Recipe, Request, Result, Solver, Trained, Training, Trajectories, Watch};

use crate::util::oscillators;

#[path = "../../examples/irregular_times.rs"]
#[allow(dead_code, reason = "an example has its own main")]
mod irregular_times;
#[path = "../../examples/own_data.rs"]
#[allow(dead_code, reason = "an example has its own main")]
mod own_data;
#[path = "../../examples/own_objective.rs"]
#[allow(dead_code, reason = "an example has its own main")]
mod own_objective;
#[path = "../../examples/own_operator.rs"]
#[allow(dead_code, reason = "an example has its own main")]
mod own_operator;
#[path = "../../examples/reverse_time.rs"]
#[allow(dead_code, reason = "an example has its own main")]
mod reverse_time;

#[test]
fn examples_run() {
    own_operator::run(20).unwrap();
    own_objective::run(20).unwrap();
    own_data::run(20).unwrap();
    irregular_times::run(20).unwrap();
    reverse_time::run(20).unwrap();
}

/// A single matrix: exact for a linear oscillator.
struct Matrix;

impl Operator for Matrix {
    fn name(&self) -> &str {
        "matrix"
    }

    fn sees_time(&self) -> bool {
        false
    }

    fn apply(&self, graph: &mut Graph, setting: &Setting, field: Node, _: &Context) -> Result<Node> {
        let weight = graph.parameter("matrix", [setting.inputs, setting.outputs], Initial::ZEROS)?;
        Ok(graph.linear(field, weight, None, Activation::Identity)?)
    }
}

/// Flow matching with absolute errors, on a network with two copies of the state as input.
struct Absolute;

impl Objective for Absolute {
    fn name(&self) -> &str {
        "absolute"
    }

    fn draw(&self) -> Draw {
        FlowMatching::quintic().draw()
    }

    fn motion(&self) -> Arc<dyn Motion> {
        Arc::new(Self)
    }

    fn loss(&self, graph: &mut Graph, model: &Model, batch: &Batch) -> Result<Node> {
        let twice = graph.concat(&[batch.state, batch.state], 3)?;
        let found = model.network(graph, twice, &batch.context)?;
        let wanted = model.in_units(graph, batch.context.time, batch.target)?;
        Ok((graph.var(found) - wanted).abs().mean_all().node()?)
    }
}

impl Motion for Absolute {
    fn kind(&self) -> MotionKind {
        MotionKind::Velocity
    }

    fn unit(&self) -> Unit {
        Unit::Velocity
    }

    fn setting(&self, states: &StateSpace) -> Setting {
        let setting = Setting::of(states);
        Setting { inputs: 2 * setting.outputs, ..setting }
    }

    fn append(&self, graph: &mut Graph, model: &Model, point: &Point) -> Result<Node> {
        let twice = graph.concat(&[point.state, point.state], 3)?;
        let found = model.network(graph, twice, &point.context)?;
        model.of_units(graph, point.context.time, found)
    }
}

fn training(steps: u32) -> Training<'static> {
    Training::new(Matrix).device(Device::Cpu).steps(steps).batch(64).learning_rate(2e-2)
}

/// Checks that a user-defined operator and objective are trained, saved, loaded, resumed and integrated.
#[test]
fn operators_and_objectives_of_ones_own_go_the_whole_way() {
    let (data, folder) = (oscillators(40), tempfile::tempdir().unwrap());
    let run = folder.path().join("run");
    let trained = training(400).objective(Absolute).folder(&run).fit(&data).unwrap();
    let error = trained.evaluate(data.test()).unwrap().relative_l2.mean;
    // The error of a constant prediction is about 1.
    assert!(error < 0.1, "relative L2 {error}");
    let loader = || Trained::loader(&run).device(Device::Cpu);
    let loaded = loader().operator(Matrix).objective(Absolute).load().unwrap();
    let predict = |trained: &Trained| trained.predict(&[0.7, -0.3], 0.2, &[0.0, 0.1, 1.7, 2.9]).unwrap();
    assert_eq!(predict(&loaded), predict(&trained));
    // Loading requires the operator with the right name.
    let refused = loader().load().unwrap_err();
    assert!(
        refused.to_string().contains("`matrix`") && refused.hint().unwrap().contains("loader"),
        "{refused}"
    );
    let refused = loader().operator(own_operator_of_another_name()).objective(Absolute).load().unwrap_err();
    assert!(refused.to_string().contains("not with `other`"), "{refused}");
    let refused = loader().operator(Matrix).load().unwrap_err();
    assert!(refused.to_string().contains("`absolute`"), "{refused}");
    // A resumed run is bit-identical. The first part also validates at its end, and its weights may be the best.
    let whole = training(450).objective(Absolute).latest(true).fit(&data).unwrap();
    let resumed =
        training(450).objective(Absolute).folder(&run).resume(true).latest(true).fit(&data).unwrap();
    assert_eq!(predict(&resumed), predict(&whole));
    assert_eq!(resumed.history().last().unwrap().step, 450);
    let refused = training(500).folder(&run).resume(true).fit(&data).unwrap_err();
    assert!(refused.to_string().contains("`absolute`"), "{refused}");
}

fn own_operator_of_another_name() -> impl Operator {
    struct Other;
    impl Operator for Other {
        fn name(&self) -> &str {
            "other"
        }

        fn apply(
            &self,
            graph: &mut Graph,
            setting: &Setting,
            field: Node,
            context: &Context,
        ) -> Result<Node> {
            Matrix.apply(graph, setting, field, context)
        }
    }
    Other
}

#[test]
fn a_saved_model_is_the_same_model() {
    let (data, folder) = (oscillators(20), tempfile::tempdir().unwrap());
    let mlp = Mlp { hidden: vec![16], ..Mlp::default() };
    let trained = Training::new(mlp)
        .objective(FlowMatching::linear().noise(1e-3))
        .device(Device::Cpu)
        .steps(120)
        .batch(32)
        .configure(|recipe| recipe.train.ema = 0.9)
        .fit(&data)
        .unwrap();
    let run = folder.path().join("run");
    trained.save(&run).unwrap();
    assert!(trained.save(&run).unwrap_err().to_string().contains("already holds a run"));
    let loaded = Trained::load(&run).unwrap();
    assert_eq!(loaded.model(), trained.model());
    assert_eq!(loaded.recipe().path.spline, cfo::numerics::Spline::Linear);
    assert_eq!((loaded.history(), loaded.loss()), (trained.history(), trained.loss()));
    assert!(!loaded.history().is_empty());
    let state = [0.4, -1.0, 0.1, 0.2];
    let times = [0.05, 0.3, 2.0];
    assert_eq!(loaded.predict(&state, 0.0, &times).unwrap(), trained.predict(&state, 0.0, &times).unwrap());
    // A saved model is resumed like one that was not saved.
    let on = |training: Training<'_>| training.device(Device::Cpu).steps(160).fit(&data).unwrap();
    let resumed = on(Training::from_recipe(loaded.recipe()).folder(&run).resume(true));
    let whole = on(Training::from_recipe(loaded.recipe()));
    assert_eq!(resumed.predict(&state, 0.0, &times).unwrap(), whole.predict(&state, 0.0, &times).unwrap());
}

/// Checks predictions on both sides of the start against two requests, and several states against single ones.
#[test]
fn predictions_run_both_ways_and_side_by_side() {
    let data = oscillators(20);
    let trained = Training::new(Mlp { hidden: vec![16], ..Mlp::default() })
        .device(Device::Cpu)
        .steps(60)
        .batch(32)
        .fit(&data)
        .unwrap();
    let (state, start) = ([0.5, -0.25], 1.0);
    let both = trained.predict(&state, start, &[0.2, 0.7, 1.0, 1.4, 2.0]).unwrap();
    let ahead = trained.predict(&state, start, &[1.4, 2.0]).unwrap();
    let back = trained.predict(&state, start, &[0.7, 0.2]).unwrap();
    assert_eq!([both.state(0), both.state(1)], [back.state(1), back.state(0)]);
    assert_eq!(both.state(2), state);
    assert_eq!([both.state(3), both.state(4)], [ahead.state(0), ahead.state(1)]);
    assert_eq!(both.evaluations, ahead.evaluations + back.evaluations);
    let falling = trained.predict(&state, start, &[2.0, 1.4, 1.0, 0.7, 0.2]).unwrap();
    let turned: Vec<f32> = falling.states.chunks(2).rev().flatten().copied().collect();
    assert_eq!(turned, both.states);
    let pair = trained.predict(&[0.5, -0.25, 0.1, 0.9], start, &[1.4, 2.0]).unwrap();
    assert_eq!(pair.states[..4], ahead.states);
    for (states, times, said) in [
        (&[0.5][..], &[1.4][..], "positive multiple of the state size"),
        (&[], &[1.4], "positive multiple of the state size"),
        (&state, &[1.4, f64::NAN, 2.0], "is NaN"),
    ] {
        let refused = trained.predict(states, start, times).unwrap_err();
        assert!(refused.to_string().contains(said), "{refused}");
    }
    // Unordered and repeated times.
    let mixed = trained.predict(&state, start, &[1.4, 0.2, 2.0, 1.0, 1.4, 0.7]).unwrap();
    let expected: Vec<f32> = [3, 0, 4, 2, 3, 1].into_iter().flat_map(|i| both.state(i)).copied().collect();
    assert_eq!(mixed.states, expected);
    // A budget for the horizon is divided between both directions; a budget for one integration is not.
    let solver = |budget| Solver { budget, ..Solver::rk4() };
    let evaluations = |budget, to: f64| {
        trained.with_solver(solver(budget)).predict(&state, 0.0, &[to]).unwrap().evaluations
    };
    let horizon = trained.model().scaling.span;
    assert_eq!(evaluations(cfo::Budget::EvaluationsPerHorizon(80), 0.5 * horizon), 40);
    assert_eq!(evaluations(cfo::Budget::Evaluations(80), 0.5 * horizon), 80);
}

/// Checks the velocity against the slope of short predictions, and its derivative against differences of velocities.
#[test]
fn the_learned_field_and_its_derivative_are_functions() {
    let lorenz = Lorenz { frames: 41, horizon: 0.4, ..Lorenz::default() };
    let data = Trajectories::simulate(&lorenz, 12, 3, &false.into()).unwrap();
    // The time embedding has high frequencies, for which such a slope is not accurate.
    let mlp = Mlp { hidden: vec![24], activation: cfo::operator::MlpActivation::Silu, time: false.into() };
    let training = Training::new(mlp).device(Device::Cpu).steps(100).batch(64).learning_rate(1e-3);
    let trained = training.fit(&data).unwrap();
    let state = [1.5_f32, -2.0, 21.0];
    let time = 0.13;
    let velocity = trained.velocity(&state, &[time]).unwrap();
    let step = 1e-3;
    let near = trained.predict(&state, time, &[time - step, time + step]).unwrap();
    for i in 0..3 {
        let slope = f64::from(near.state(1)[i] - near.state(0)[i]) / (2.0 * step);
        // Differences of numbers of size 20 in single precision over 2e-3.
        assert!(
            (slope - f64::from(velocity[i])).abs() < 0.02 + 1e-3 * slope.abs(),
            "{i}: {slope} {velocity:?}"
        );
    }
    let vector = [0.3_f32, -1.0, 0.7];
    let product = trained.vector_jacobian(&state, &[time], &vector).unwrap();
    for j in 0..3 {
        let moved = |by: f32| {
            let mut there = state;
            there[j] += by;
            let found = trained.velocity(&there, &[time]).unwrap();
            found.iter().zip(vector).map(|(v, w)| f64::from(v * w)).sum::<f64>()
        };
        let difference = (moved(0.05) - moved(-0.05)) / 0.1;
        let size = product.iter().fold(0.0_f32, |most, g| most.max(g.abs()));
        let error = (difference - f64::from(product[j])).abs();
        assert!(error < 0.01 * f64::from(size) + 1e-3, "{j}: {difference} {product:?}");
    }
    let twice: Vec<f32> = state.into_iter().chain(state).collect();
    assert_eq!(trained.velocity(&twice, &[time]).unwrap(), [velocity.clone(), velocity].concat());
    assert!(trained.vector_jacobian(&state, &[time], &vector[..2]).is_err());
    // Each state has another time, in a batch whose size is not a power of two.
    let times = [0.01, 0.05, 0.17];
    let each = trained.velocity(&state.repeat(3), &times).unwrap();
    let alone: Vec<f32> = times.iter().flat_map(|&time| trained.velocity(&state, &[time]).unwrap()).collect();
    // A product of several rows has other rounding errors than that of one.
    let near = |a: &[f32], b: &[f32]| a.iter().zip(b).all(|(a, b)| (a - b).abs() <= 1e-4 * (1.0 + b.abs()));
    assert!(near(&each, &alone), "{each:?} {alone:?}");
    let product = trained.vector_jacobian(&state.repeat(3), &times, &vector.repeat(3)).unwrap();
    let alone = times.iter().flat_map(|&time| trained.vector_jacobian(&state, &[time], &vector).unwrap());
    assert!(near(&product, &alone.collect::<Vec<f32>>()));
    assert!(trained.velocity(&state.repeat(3), &times[..2]).is_err());
}

/// Checks that threads can share a model.
#[test]
fn a_model_is_shared_between_threads() {
    fn is_shared<T: Send + Sync>(_: &T) {}
    let data = oscillators(8);
    let trained = Training::new(Matrix).device(Device::Cpu).steps(5).batch(8).fit(&data).unwrap();
    is_shared(&trained);
    let alone = trained.predict(&[0.5, 0.1], 0.0, &[1.0]).unwrap();
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| assert_eq!(trained.predict(&[0.5, 0.1], 0.0, &[1.0]).unwrap(), alone));
        }
    });
    let request = Request {
        start: vec![0.0],
        states: vec![vec![0.5, 0.1]],
        times: vec![vec![]],
        inputs: vec![TrajectoryInputs::default()],
    };
    assert_eq!(trained.predict_each(&request, &Watch::default()).unwrap().states, [Vec::<f32>::new()]);
}

/// Checks that a selection of trajectories is a set with the original indices.
#[test]
fn a_subset_keeps_parts_and_numbers() {
    let lorenz = Lorenz { frames: 5, horizon: 0.2, ..Lorenz::default() };
    let all = Trajectories::simulate(&lorenz, 10, 1, &false.into()).unwrap();
    assert!(!all.has_splits());
    let some = all.subset(&[9, 0, 8]);
    assert_eq!(some.trajectories[0], all.trajectories[9]);
    assert_eq!((some.place(0).0, some.place(2).0), (9, 8));
    assert_eq!(some.test().numbers().collect::<Vec<_>>(), [9]);
    assert_eq!(all.chosen(&[9, 0]).numbers().collect::<Vec<_>>(), [9, 0]);
    assert!(some.clone().with_splits(vec![Split::Train; 2]).is_err());
    let marked = some.with_splits(vec![Split::Train, Split::Test, Split::Test]).unwrap();
    assert!(marked.has_splits());
    assert_eq!(marked.divided_by(&Recipe::default()).unwrap().test().len(), 2);
}
