//! Objectives with random numbers and several network evaluations per prediction: a user-defined one and the crate's.

use std::sync::Arc;

use cfo::data::{Description, FieldShape, InputNames, Trajectory, TrajectoryInputs};
use cfo::graph::{Graph, Node};
use cfo::objective::{
    Batch, ConditionalFlowKeys, ConditionalFlowMatching, Draw, FlowMatching, Motion, MotionKind, Objective,
    PdeRefiner, Point, RefinerForm, Unit,
};
use cfo::operator::{Mlp, Operator, Setting, StateSpace};
use cfo::{CfoError, Device, Model, Recipe, Request, Result, Solver, Trained, Training, Trajectories, Watch};

/// Returns rotations that shrink by a third over the horizon, all at the same times.
fn spirals(count: usize, frames: usize) -> Trajectories {
    let spiral = |i: usize| {
        let (phase, size) = (i as f64 * 2.4, 0.5 + (i as f64 * 0.618).fract());
        let times: Vec<f64> = (0..frames).map(|k| 2.0 * k as f64 / (frames - 1) as f64).collect();
        let state = |t: &f64| {
            let (sine, cosine) = (phase + 1.5 * t).sin_cos();
            [(size * (-0.2 * t).exp() * cosine) as f32, (size * (-0.2 * t).exp() * sine) as f32]
        };
        Trajectory::new(times.clone(), times.iter().flat_map(state).collect(), vec![]).unwrap()
    };
    let description = Description {
        system: "spiral".into(),
        shape: FieldShape::system(2),
        periodic: vec![],
        domain: vec![],
        channel_names: vec!["x".into(), "y".into()],
        channel_units: vec![],
        inputs: InputNames::default(),
    };
    Trajectories::new(description, (0..count).map(spiral).collect()).unwrap()
}

fn persistence(data: &Trajectories) -> f64 {
    let errors = data
        .test()
        .read()
        .unwrap()
        .iter()
        .map(|one| {
            let (first, values) = (&one.values[..2], &one.values);
            let distance: f32 =
                values.chunks(2).map(|now| (now[0] - first[0]).powi(2) + (now[1] - first[1]).powi(2)).sum();
            f64::from((distance / values.iter().map(|value| value * value).sum::<f32>()).sqrt())
        })
        .collect::<Vec<_>>();
    errors.iter().sum::<f64>() / errors.len() as f64
}

/// An autoregressive model whose network also has noise as input. It has two evaluations: a prediction and a correction.
struct Twice;

impl Twice {
    fn predict(graph: &mut Graph, model: &Model, point: &Point, guess: Node) -> Result<Node> {
        let seen = graph.concat(&[point.state, guess], 3)?;
        let change = model.network(graph, seen, &point.context)?;
        let change = model.of_units(graph, point.context.time, change)?;
        Ok(graph.add(point.state, change)?)
    }

    fn guess(graph: &mut Graph, point: &Point) -> Result<Node> {
        let shape = graph.shape(point.state).axes().to_vec();
        let noise = point.noise.normal(graph, &shape, 0)?;
        Ok((point.state + graph.var(noise) * 0.01).node()?)
    }
}

impl Objective for Twice {
    fn name(&self) -> &str {
        "twice"
    }

    fn draw(&self) -> Draw {
        Draw::Neighbours
    }

    fn motion(&self) -> Arc<dyn Motion> {
        Arc::new(Self)
    }

    fn loss(&self, graph: &mut Graph, model: &Model, batch: &Batch) -> Result<Node> {
        let found = model.moved(graph, &batch.at(batch.context.time, batch.state))?;
        batch.mean_squared_error(graph, found, batch.target)
    }
}

impl Motion for Twice {
    fn kind(&self) -> MotionKind {
        MotionKind::Step
    }

    fn unit(&self) -> Unit {
        Unit::Change
    }

    fn setting(&self, states: &StateSpace) -> Setting {
        let setting = Setting::of(states);
        Setting { inputs: 2 * setting.outputs, ..setting }
    }

    fn evaluations(&self) -> usize {
        2
    }

    fn append(&self, graph: &mut Graph, model: &Model, point: &Point) -> Result<Node> {
        let guess = Self::guess(graph, point)?;
        let first = Self::predict(graph, model, point, guess)?;
        Self::predict(graph, model, point, first)
    }
}

fn training(steps: u32) -> Training<'static> {
    let mlp = Mlp { hidden: vec![32, 32], time: false.into(), ..Mlp::default() };
    Training::new(mlp).device(Device::Cpu).objective(Twice).steps(steps).batch(64).learning_rate(3e-3)
}

/// Checks that a user-defined sampler is trained, resumed and rolled out. Its random numbers depend on the seed and on a trajectory's first
/// state, not on the rest of the batch.
#[test]
fn a_sampler_of_ones_own_goes_the_whole_way() {
    let (data, folder) = (spirals(30, 21), tempfile::tempdir().unwrap());
    let run = folder.path().join("run");
    let trained = training(300).folder(&run).fit(&data).unwrap();
    let report = trained.evaluate(data.test()).unwrap();
    assert_eq!(report.evaluations, 40, "two for each of 20 steps");
    let (error, still) = (report.relative_l2.mean, persistence(&data));
    assert!(5.0 * error < still, "relative L2 {error}; of a constant prediction {still}");
    let resumed = training(330).folder(&run).resume(true).fit(&data).unwrap();
    let whole = training(330).fit(&data).unwrap();
    let predict = |trained: &Trained| trained.predict(&[0.7, -0.3], 0.0, &[0.1, 0.2, 0.3]).unwrap();
    assert_eq!(predict(&resumed), predict(&whole));
    assert_eq!(predict(&whole), predict(&whole));

    let request = |states: &[[f32; 2]]| Request {
        start: vec![0.0; states.len()],
        states: states.iter().map(|state| state.to_vec()).collect(),
        times: vec![vec![0.1, 0.2]; states.len()],
        inputs: vec![TrajectoryInputs::default(); states.len()],
    };
    let all = |trained: &Trained, states: &[[f32; 2]]| {
        trained.predict_each(&request(states), &Watch::default()).unwrap().states
    };
    let (a, b) = ([0.7, -0.3], [-0.4, 0.9]);
    assert_eq!(all(&whole, &[a, b, a])[1..], [all(&whole, &[b]), all(&whole, &[a])].concat());
    let other = whole.with_seed(7);
    assert_ne!(all(&other, &[a]), all(&whole, &[a]));
    assert_eq!(all(&other, &[a]), all(&whole.with_seed(7), &[b, a])[1..]);
    assert_eq!(all(&whole, &[a]), all(&other.with_seed(0), &[a]));
}

fn refiner(steps: u32, refiner: PdeRefiner) -> Training<'static> {
    let mlp = Mlp { hidden: vec![64, 64], ..Mlp::default() };
    Training::new(mlp)
        .device(Device::Cpu)
        .objective(refiner)
        .steps(steps)
        .batch(64)
        .learning_rate(3e-3)
        .configure(|recipe| recipe.train.ema = 0.98)
}

/// Checks every form of PDE-Refiner, of the change or of the next state. It is accurate, it makes one evaluation for the prediction and one
/// per refinement, and resumed runs are bit-identical.
#[test]
fn pde_refiner_learns_and_resumes() {
    let (data, folder) = (spirals(30, 21), tempfile::tempdir().unwrap());
    let still = persistence(&data);
    let kinds =
        [(RefinerForm::Noise, true, 3), (RefinerForm::Noise, false, 2), (RefinerForm::Velocity, true, 3)];
    for (form, residual, refinements) in kinds {
        let kind = PdeRefiner { form, residual, refinements, deviation: 1e-2 };
        let run = folder.path().join(format!("{form:?}{residual}"));
        let trained = refiner(1200, kind).folder(&run).fit(&data).unwrap();
        let report = trained.evaluate(data.test()).unwrap();
        let error = report.relative_l2.mean;
        assert_eq!(report.evaluations, 20 * (1 + refinements));
        assert!(5.0 * error < still, "{kind:?}: relative L2 {error}; of a constant prediction {still}");
        let predict = |trained: &Trained| trained.predict(&[0.7, -0.3], 0.0, &[0.1, 0.2, 0.3]).unwrap();
        let loaded = Trained::loader(&run).checkpoint("latest").device(Device::Cpu).load().unwrap();
        assert_eq!(predict(&loaded), predict(&trained));
        let resumed = refiner(1220, kind).folder(&run).resume(true).latest(true).fit(&data).unwrap();
        assert_eq!(predict(&resumed), predict(&refiner(1220, kind).latest(true).fit(&data).unwrap()));
    }
}

fn flow(steps: u32, keys: ConditionalFlowKeys) -> Training<'static> {
    let mlp = Mlp { hidden: vec![128, 128], ..Mlp::default() };
    let path = FlowMatching::quintic().path;
    Training::new(mlp)
        .device(Device::Cpu)
        .objective(ConditionalFlowMatching { path, keys })
        .steps(steps)
        .batch(128)
        .learning_rate(3e-3)
        .configure(|recipe| recipe.train.ema = 0.98)
}

/// Checks generation of whole trajectories from noise and the first snapshot, with and without guidance, by any solver. Between frames they
/// are interpolated.
#[test]
fn conditional_flow_matching_learns_and_resumes() {
    let (data, folder) = (spirals(60, 21), tempfile::tempdir().unwrap());
    let still = persistence(&data);
    for guidance in [1.0, 1.5] {
        let keys = ConditionalFlowKeys { frames: 8, guidance, ..ConditionalFlowKeys::default() };
        let run = folder.path().join(format!("{guidance}"));
        let trained = flow(1500, keys).folder(&run).fit(&data).unwrap();
        let report = trained.evaluate(data.test()).unwrap();
        let (error, each) = (report.relative_l2.mean, if guidance == 1.0 { 1 } else { 2 });
        assert_eq!(report.evaluations, 20 * 4 * each, "20 steps of four stages");
        assert!(5.0 * error < still, "{guidance}: relative L2 {error}; of a constant prediction {still}");
        for solver in [Solver::rk4().evaluations(40 * each), Solver::tsit5(1e-4, 1e-4).unwrap()] {
            let other = trained.with_solver(solver).evaluate(data.test()).unwrap().relative_l2.mean;
            assert!((other - error).abs() < 0.1 * error, "{solver:?}: {other} for {error}");
        }
        let predict = |trained: &Trained| trained.predict(&[0.7, -0.3], 0.0, &[0.03, 0.2, 1.9]).unwrap();
        // The first part also validates at its end, and its weights may be the best.
        let resumed = flow(1520, keys).folder(&run).resume(true).latest(true).fit(&data).unwrap();
        assert_eq!(predict(&resumed), predict(&flow(1520, keys).latest(true).fit(&data).unwrap()));
        let beyond = trained.predict(&[0.7, -0.3], 0.5, &[1.0, 2.6]).unwrap_err();
        assert!(beyond.to_string().contains("to 2.5"), "{beyond}");
        assert!(beyond.hint().unwrap().contains("horizon"));
    }
}

/// Returns the trajectories at later times.
fn shifted(data: &Trajectories, shift: impl Fn(usize) -> f64) -> Trajectories {
    let later = |(i, one): (usize, &Trajectory)| {
        let times = one.times.iter().map(|time| time + shift(i)).collect();
        Trajectory::new(times, one.values.clone(), vec![]).unwrap()
    };
    let trajectories = data.trajectories.iter().enumerate().map(later).collect();
    Trajectories::new(data.description.clone(), trajectories).unwrap()
}

/// Checks that a model of whole trajectories does not depend on the start time.
#[test]
fn trajectories_that_start_at_other_times_are_learnt_alike() {
    let keys = ConditionalFlowKeys { frames: 8, ..ConditionalFlowKeys::default() };
    let data = spirals(20, 21);
    let [early, late] = [0.0, 4.0].map(|apart| {
        let trained = flow(40, keys).fit(&shifted(&data, |i| apart * i as f64)).unwrap();
        trained.predict(&[0.7, -0.3], 4.0, &[4.03, 4.7, 6.0]).unwrap()
    });
    for (early, late) in early.states.iter().zip(&late.states) {
        // Times have different rounding errors.
        assert!((early - late).abs() < 1e-4, "{early} {late}");
    }
}

/// Checks that a model with fixed steps is compared only with snapshots at these steps.
#[test]
fn times_that_a_step_does_not_reach_are_never_compared() {
    let (data, other) = (spirals(20, 21), spirals(20, 11));
    let trained = training(20).fit(&data).unwrap();
    trained.evaluate(shifted(&data, |i| 3.0 * i as f64).test()).unwrap();
    let refused = trained.evaluate(other.test()).unwrap_err();
    assert!(refused.to_string().contains("0.1 apart"), "{refused}");
    assert!(refused.hint().unwrap().contains("flow matching"));
    // Validation on them is refused too.
    let mut mixed = data.clone();
    let validated = mixed.validation().indices()[0];
    mixed.trajectories[validated] = other.trajectories[0].clone();
    let training = || refiner(10, PdeRefiner::default());
    let refused = training().fit(&mixed).unwrap_err().to_string();
    assert!(refused.contains(&format!("trajectory {validated} of 0.2")), "{refused}");
    training().configure(|recipe| recipe.train.validate_every = 0).fit(&mixed).unwrap();
}

/// Checks that unsuitable data and keys are refused with a hint.
#[test]
fn samplers_refuse_what_they_cannot_take() {
    let said = |error: CfoError| format!("{error} {}", error.hint().unwrap_or_default());
    let mut uneven = spirals(10, 21);
    let times = uneven.trajectories[3].times.to_vec();
    let bent = times.iter().map(|t| t + 0.1 * (3.0 * t).sin().powi(2)).collect();
    let values = uneven.trajectories[3].values.clone();
    uneven.trajectories[3] = Trajectory::new(bent, values, vec![]).unwrap();
    let refused = said(refiner(10, PdeRefiner::default()).fit(&uneven).unwrap_err());
    assert!(refused.contains("`pde-refiner` needs steps of 0.1"), "{refused}");
    assert!(refused.contains("flow-matching"), "{refused}");
    let thinned = refiner(10, PdeRefiner::default()).configure(|recipe| recipe.data.keep_rate = 0.5);
    let refused = said(thinned.fit(&spirals(10, 21)).unwrap_err());
    assert!(refused.contains("`data.keep_rate`: 0.5 leaves irregular times"), "{refused}");
    let refused = said(flow(10, ConditionalFlowKeys::default()).fit(&uneven).unwrap_err());
    assert!(refused.contains("makes trajectories of one length"), "{refused}");
    let blind = |recipe: &mut Recipe| {
        recipe.operator = Mlp { time: false.into(), ..Mlp::default() }.config().unwrap();
    };
    for training in [refiner(10, PdeRefiner::default()), flow(10, ConditionalFlowKeys::default())] {
        let refused = said(training.configure(blind).fit(&spirals(10, 21)).unwrap_err());
        assert!(refused.contains("`operator.time`"), "{refused}");
    }
    for (set, expected) in [
        ("refinements=0", "autoregressive"),
        ("deviation=0", "(0, 1)"),
        ("deviation=1.5", "(0, 1)"),
        ("form=energy", "energy"),
    ] {
        let sets = ["objective.kind=pde-refiner".to_owned(), format!("objective.{set}")];
        let refused = said(Recipe::parse("", &sets).unwrap_err());
        assert!(refused.contains(expected), "{set}: {refused}");
    }
    for (set, expected) in [
        ("frames=1", "2 or more"),
        ("drop_rate=1", "[0, 1)"),
        ("guidance=-1", "positive"),
        ("drop_rate=0", "needs `objective.drop_rate` above 0"),
    ] {
        let sets = ["objective.kind=conditional-flow-matching".to_owned(), format!("objective.{set}")];
        let refused = said(Recipe::parse("", &sets).unwrap_err());
        assert!(refused.contains(expected), "{set}: {refused}");
    }
}
