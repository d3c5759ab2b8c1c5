//! Properties of rollouts for all solvers: budgets are kept, trajectories are independent, and every rollout ends.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use cfo::data::simulate::{Burgers, DiffusionReaction, Equation, KuramotoSivashinsky, Lorenz, ShallowWater};
use cfo::numerics::ode::{Controller, DOPRI5, EULER, HEUN, RK4, TSIT5, Tableau};
use cfo::recipe::RolloutPrecision;
use cfo::rollout::{Halt, Rollout};
use cfo::{
    Budget, CfoError, Device, Model, Precision, Recipe, Request, Solver, Trained, Trajectories, Watch,
};
use cfo_engine::Memory;

use crate::util::{oscillators, recipe, trained, weights_in};

/// Returns a model and its weights, for direct use of rollouts.
fn parts(trained: &Trained) -> (Arc<Model>, Memory) {
    (Arc::clone(trained.model()), weights_in(trained, Precision::F32))
}

/// Returns a network after one training step; its predictions are not accurate.
fn network(set: &Trajectories, text: &str) -> Trained {
    let recipe = Recipe::parse(
        &format!("{text}\n[train]\nsteps = 1\nbatch = 2\nvalidate_every = 0\nvalidate_trajectories = 0\n"),
        &[],
    )
    .unwrap();
    trained(&recipe, set, None, false).unwrap()
}

/// Returns small versions of the paper's systems, each with a kind of network.
fn systems() -> Vec<(Trajectories, &'static str)> {
    let frames = 21;
    let equations: [(Box<dyn Equation>, &str); 5] = [
        (
            Box::new(Lorenz { frames, horizon: 0.2, ..Lorenz::default() }),
            "[operator]\nkind = \"mlp\"\nhidden = [8]",
        ),
        (
            Box::new(Burgers { frames, grid: 16, horizon: 0.2, ..Burgers::default() }),
            "[operator]\nkind = \"fno\"\nwidth = 4\nmodes = 3\nblocks = 1",
        ),
        (
            Box::new(DiffusionReaction { frames, grid: 8, horizon: 0.2, ..DiffusionReaction::default() }),
            "[data]\ndrop_first = true\n[operator]\nkind = \"unet\"\nchannels = [8, 8]\ngroups = 4",
        ),
        (
            Box::new(ShallowWater { frames, grid: 8, horizon: 0.2, ..ShallowWater::default() }),
            "[data]\ndrop_first = true\n[operator]\nkind = \"dit\"\npatch = 4\nhidden = 16\ndepth = 1\nheads = 2",
        ),
        (
            Box::new(KuramotoSivashinsky {
                frames,
                grid: 16,
                spin_up: 1.0,
                horizon: 2.0,
                ..KuramotoSivashinsky::default()
            }),
            "[operator]\nkind = \"unet\"\nchannels = [8, 8]\ngroups = 4",
        ),
    ];
    let interrupt = AtomicBool::new(false);
    let simulated = |equation: &dyn Equation| Trajectories::simulate(equation, 3, 1, &interrupt).unwrap();
    equations.into_iter().map(|(equation, text)| (simulated(&*equation), text)).collect()
}

/// Checks that a rollout never exceeds its number of evaluations, and that less than one step remains. All solvers and systems are covered,
/// with and without the first snapshot. Times are those of the data, irregular ones, a few, or one.
#[test]
fn a_budget_is_kept_whatever_the_outputs_are() {
    for (set, text) in systems() {
        let network = network(&set, text);
        let (model, mut memory) = parts(&network);
        let name = &set.description.system;
        let times = &set.trajectories[0].times;
        let (size, last) = (set.description.shape.len(), times[times.len() - 1]);
        let (start, span) = (times[2], last - times[2]);
        let irregular = [start + 0.11 * span, start + 0.113 * span, start + 0.7 * span, last];
        let state = set.trajectories[0].values[2 * size..3 * size].to_vec();
        let conditions = set.trajectories[0].inputs.clone();
        for tableau in Tableau::ALL {
            let mut rollout = Rollout::new(&model, &mut memory, 1, tableau, "").unwrap();
            for share in [0.5, 1.0, 2.0, 4.0] {
                let nfe = (share * 20.0) as usize;
                let kept = |found: usize, what: &str| {
                    let near = found <= nfe && found + tableau.stages() > nfe;
                    assert!(near, "{name}, {}, {what}: {found} of {nfe}", tableau.name);
                };
                let solver = Solver { tableau, budget: Budget::Evaluations(nfe) };
                kept(network.with_solver(solver).evaluate(&set).unwrap().evaluations, "its own times");
                for times in [&irregular[..], &irregular[2..], &[last][..], &[start, last][..]] {
                    let request = Request {
                        start: vec![start],
                        states: vec![state.clone()],
                        times: vec![times.to_vec()],
                        inputs: vec![conditions.clone()],
                    };
                    let found = rollout.predict(&mut memory, &request, solver.budget).unwrap();
                    assert_eq!(found.states[0].len(), times.len() * size);
                    kept(found.evaluations, &format!("{} outputs", times.len()));
                }
            }
        }
    }
}

#[test]
fn a_budget_below_one_step_is_refused() {
    let (model, mut memory) = parts(&trained(&recipe(1), &oscillators(3), None, false).unwrap());
    for tableau in Tableau::ALL {
        let mut rollout = Rollout::new(&model, &mut memory, 1, tableau, "").unwrap();
        for nfe in 0..tableau.stages() {
            let request = request(&[(0.0, [0.5, 0.1])], &[1.0]);
            let refused = rollout.predict(&mut memory, &request, Budget::Evaluations(nfe)).unwrap_err();
            assert!(refused.to_string().contains(&format!("{nfe} evaluations are too few")), "{refused}");
            assert!(refused.hint().is_some());
        }
    }
}

/// Returns a request with equal output times for several starts.
fn request(from: &[(f64, [f32; 2])], times: &[f64]) -> Request {
    Request {
        start: from.iter().map(|(start, _)| *start).collect(),
        states: from.iter().map(|(_, state)| state.to_vec()).collect(),
        times: vec![times.to_vec(); from.len()],
        inputs: vec![cfo::data::TrajectoryInputs::default(); from.len()],
    }
}

const SOUND: [(f64, [f32; 2]); 2] = [(0.0, [0.7, -0.4]), (0.25, [-0.2, 1.1])];
/// A state whose velocity exceeds the range of single precision after a few steps at most.
const WILD: (f64, [f32; 2]) = (0.0, [3e38, -3e38]);

/// Returns a network with enlarged weights, whose output grows with its input without bound.
fn explosive() -> Trained {
    let trained = trained(&recipe(60), &oscillators(8), None, false).unwrap();
    trained.with_memory(|memory| scale_weights(memory, 4.0));
    trained
}

fn scale_weights(memory: &mut Memory, factor: f32) {
    let names: Vec<String> = memory
        .names()
        .filter(|name| name.starts_with("hidden") || name.starts_with("head"))
        .map(String::from)
        .collect();
    assert!(!names.is_empty(), "{:?}", memory.names().collect::<Vec<_>>());
    for name in names {
        let values: Vec<f32> = memory.read(&name).unwrap().iter().map(|value| factor * value).collect();
        memory.write(&name, cfo_engine::Data::F32(&values)).unwrap();
    }
}

/// Checks that a diverged trajectory is reported with its index in the request (not in its batch) and the last time reached. Other
/// trajectories must be bit-identical to a rollout without it.
#[test]
fn a_diverging_trajectory_costs_the_others_nothing() {
    let (model, mut memory) = parts(&explosive());
    let times: Vec<f64> = (0..8).map(|i| 0.3 + 0.1 * f64::from(i)).collect();
    for (tableau, budget) in [
        (RK4, Budget::StepPerOutput),
        (EULER, Budget::Evaluations(16)),
        (RK4, Budget::Evaluations(64)),
        (HEUN, Budget::Adaptive(Controller::new(1e-2, 1e-4))),
        (TSIT5, Budget::Adaptive(Controller::new(1e-3, 1e-5))),
        (DOPRI5, Budget::Adaptive(Controller::new(1e-3, 1e-5))),
    ] {
        let mut rollout = Rollout::new(&model, &mut memory, 2, tableau, "").unwrap();
        let alone = rollout.predict(&mut memory, &request(&[SOUND[0], SOUND[1]], &times), budget).unwrap();
        let mixed = request(&[SOUND[0], SOUND[1], SOUND[0], WILD], &times);
        let found = rollout.predict_each(&mut memory, &mixed, budget, &Watch::default()).unwrap();
        assert_eq!(found.diverged.len(), 1, "{}: {:?}", tableau.name, found.diverged);
        let divergence = found.diverged[0];
        assert_eq!(divergence.trajectory, 3, "{}", tableau.name);
        assert_eq!(divergence.halt, Halt::NotFinite, "{}", tableau.name);
        let whole = found.states[3].len() / 2;
        assert!(whole < times.len() && found.states[3].iter().all(|value| value.is_finite()));
        let reached = if whole == 0 { 0.0 } else { times[whole - 1] };
        let next = times[whole];
        assert!(
            (reached..next).contains(&divergence.time),
            "{}: {divergence:?} after {whole} outputs",
            tableau.name
        );
        for (mine, theirs) in [(0, 0), (1, 1), (2, 0)] {
            assert_eq!(found.states[mine], alone.states[theirs], "{}", tableau.name);
        }
        let refused = rollout.predict(&mut memory, &mixed, budget).unwrap_err();
        assert!(matches!(refused, CfoError::RolloutDiverged { trajectory: 3, .. }), "{refused}");
        let text = refused.to_string();
        assert!(text.contains("trajectory 3") && text.contains("became infinite"), "{text}");
    }
}

/// Checks that the last time reached is the start if the first output is not finite.
#[test]
fn the_time_of_a_divergence_before_the_first_output_is_the_start() {
    let (model, mut memory) = parts(&explosive());
    let mut rollout = Rollout::new(&model, &mut memory, 1, RK4, "").unwrap();
    let wild = Request { start: vec![0.125], ..request(&[WILD], &[2.5, 2.75]) };
    let found =
        rollout.predict_each(&mut memory, &wild, Budget::StepAtMost(0.01), &Watch::default()).unwrap();
    assert_eq!((found.diverged[0].time, found.states[0].len()), (0.125, 0));
}

/// Checks that a rollout of a field that is NaN everywhere ends after a few dozen attempts.
#[test]
fn adaptive_steps_give_up_soon() {
    let trained = trained(&recipe(1), &oscillators(8), None, false).unwrap();
    trained.with_memory(|memory| scale_weights(memory, f32::NAN));
    let (model, mut memory) = parts(&trained);
    for tableau in [HEUN, DOPRI5, TSIT5] {
        let mut rollout = Rollout::new(&model, &mut memory, 1, tableau, "").unwrap();
        let solver = Solver::adaptive(tableau, 1e-6, 1e-8).unwrap();
        let from = Request { start: vec![0.25], ..request(&SOUND[..1], &[3.0]) };
        let found = rollout.predict_each(&mut memory, &from, solver.budget, &Watch::default()).unwrap();
        assert!(found.evaluations < 300, "{}: {}", tableau.name, found.evaluations);
        assert_eq!((found.diverged[0].time, found.diverged[0].halt), (0.25, Halt::NotFinite));
    }
}

#[test]
fn too_many_attempts_are_called_that() {
    let (model, mut memory) = parts(&trained(&recipe(60), &oscillators(8), None, false).unwrap());
    let mut rollout = Rollout::new(&model, &mut memory, 1, TSIT5, "").unwrap();
    let controller = Controller { max_steps: 5, max_step: 0.1, ..Controller::new(1e-3, 1e-5) };
    let times = [0.05, 0.2, 3.0];
    let found = rollout
        .predict_each(
            &mut memory,
            &request(&[SOUND[0]], &times),
            Budget::Adaptive(controller),
            &Watch::default(),
        )
        .unwrap();
    assert_eq!(found.diverged[0].halt, Halt::TooManySteps);
    assert_eq!(found.states[0].len(), 4, "earlier outputs are kept");
    assert!((0.2..0.6).contains(&found.diverged[0].time), "{:?}", found.diverged);
}

#[test]
fn a_flag_ends_a_rollout() {
    let (model, mut memory) = parts(&trained(&recipe(1), &oscillators(3), None, false).unwrap());
    let interrupt = AtomicBool::new(true);
    let mut rollout = Rollout::new(&model, &mut memory, 1, RK4, "").unwrap();
    let watch = Watch::default().with_interrupt(&interrupt);
    let far: Vec<f64> = (1..1_000_000).map(|i| f64::from(i) * 1e-3).collect();
    let stopped = rollout
        .predict_each(&mut memory, &request(&SOUND[..1], &far), Budget::StepPerOutput, &watch)
        .unwrap_err();
    assert!(matches!(stopped, CfoError::RolloutInterrupted), "{stopped}");
}

#[test]
fn times_to_and_fro_and_absurdly_far_are_refused() {
    let (model, mut memory) = parts(&trained(&recipe(1), &oscillators(3), None, false).unwrap());
    let mut rollout = Rollout::new(&model, &mut memory, 1, RK4, "").unwrap();
    for (times, words) in [
        (&[0.5, 0.4][..], "in one direction"),
        (&[-0.5, 0.4], "in one direction"),
        (&[0.5, f64::NAN], "is NaN"),
        (&[f64::INFINITY], "is inf"),
        (&[0.5, 1e300], "times the horizon"),
        (&[-1e7], "times the horizon"),
    ] {
        let refused =
            rollout.predict(&mut memory, &request(&SOUND[..1], times), Budget::StepPerOutput).unwrap_err();
        assert!(refused.to_string().contains(words), "{times:?}: {refused}");
    }
}

/// Checks that steps have the mean length of the data's intervals, however far apart outputs are. On the times of the data, there is one
/// step per output.
#[test]
fn steps_are_capped_by_the_intervals_of_the_data() {
    let set = oscillators(10);
    let (model, mut memory) = parts(&trained(&recipe(1), &set, None, false).unwrap());
    let mut rollout = Rollout::new(&model, &mut memory, 1, RK4, "").unwrap();
    let interval = model.scaling.interval;
    let mut steps = |times: &[f64]| {
        let request = request(&SOUND[..1], times);
        rollout.predict(&mut memory, &request, Budget::StepPerOutput).unwrap().evaluations / 4
    };
    assert_eq!(steps(&[10.0 * interval]), 10);
    assert_eq!(steps(&[0.3 * interval, 0.6 * interval]), 2);
    assert_eq!(steps(&[1.4 * interval, 4.0 * interval]), 1 + 3);
}

/// Checks that the steps of a trajectory do not depend on the other trajectories of its batch.
#[test]
fn batches_with_fixed_steps_do_not_mix_their_trajectories() {
    let (model, mut memory) = parts(&trained(&recipe(60), &oscillators(12), None, false).unwrap());
    let times = [vec![0.4, 1.9], vec![0.1], vec![1.0, 1.1, 2.9]];
    let request = |chosen: &[usize]| Request {
        start: chosen.iter().map(|&i| [0.0, 0.3, 0.5][i]).collect(),
        states: chosen.iter().map(|&i| vec![0.5 - 0.4 * i as f32, 0.3]).collect(),
        times: chosen.iter().map(|&i| times[i].clone()).collect(),
        inputs: vec![cfo::data::TrajectoryInputs::default(); chosen.len()],
    };
    for budget in [Budget::StepPerOutput, Budget::StepAtMost(0.07), Budget::Evaluations(22)] {
        let mut together = Rollout::new(&model, &mut memory, 3, RK4, "").unwrap();
        let all = together.predict(&mut memory, &request(&[0, 1, 2]), budget).unwrap();
        let mut alone = Rollout::new(&model, &mut memory, 1, RK4, "").unwrap();
        let mut most = 0;
        for (i, times) in times.iter().enumerate() {
            let one = alone.predict(&mut memory, &request(&[i]), budget).unwrap();
            assert_eq!(one.states[0].len(), 2 * times.len());
            let error = cfo::numerics::metric::relative_l2(&one.states[0], &all.states[i]);
            assert!(error < 1e-6, "{budget:?}, trajectory {i}: {error}");
            most = most.max(one.evaluations);
        }
        assert_eq!(all.evaluations, most, "{budget:?}");
    }
}

/// Checks Heun's method with tolerances: its error estimate, from Euler's method, controls its steps.
#[test]
fn heun_takes_tolerances() {
    let (model, mut memory) = parts(&trained(&recipe(60), &oscillators(8), None, false).unwrap());
    let times = [0.3, 1.0, 2.9];
    let mut found = |tableau: Tableau, budget: Budget| {
        let mut rollout = Rollout::new(&model, &mut memory, 1, tableau, "").unwrap();
        rollout.predict(&mut memory, &request(&SOUND[..1], &times), budget).unwrap()
    };
    let truth = found(RK4, Budget::StepAtMost(0.001));
    for tolerance in [1e-3, 1e-5] {
        let solver = Solver::adaptive(HEUN, tolerance, tolerance).unwrap();
        let heun = found(HEUN, solver.budget);
        let error = cfo::numerics::metric::relative_l2(&heun.states[0], &truth.states[0]);
        // Local errors of the size of the tolerance accumulate over some dozen to some hundred steps.
        assert!(error < 50.0 * tolerance, "{error} at {tolerance}, {} evaluations", heun.evaluations);
    }
    assert!(Solver::adaptive(RK4, 1e-3, 1e-5).unwrap_err().to_string().contains("`rk4`"));
}

/// Checks rollouts in double precision during a training in single precision. The weights must be bit-identical, the validation error
/// nearly equal.
#[test]
fn rollouts_have_a_precision_of_their_own() {
    let set = oscillators(12);
    let folder = tempfile::tempdir().unwrap();
    let run = |name: &str, precision: RolloutPrecision| {
        // Adaptive steps would depend on the rounding.
        let mut recipe = recipe(40).with(&["evaluate.solver=rk4".into()]).unwrap();
        recipe.train.validate_every = 20;
        recipe.evaluate.precision = precision;
        let path = folder.path().join(name);
        trained(&recipe, &set, Some(&path), false).unwrap();
        let weights = std::fs::read(path.join("checkpoints/latest/weights.safetensors")).unwrap();
        let log = std::fs::read_to_string(path.join("metrics.jsonl")).unwrap();
        let last: serde_json::Value = serde_json::from_str(log.lines().last().unwrap()).unwrap();
        let loaded = Trained::loader(&path).checkpoint("latest").device(Device::Cpu).load().unwrap();
        (weights, last["validation"].as_f64().unwrap(), loaded.precision())
    };
    let (single, double) =
        (run("single", RolloutPrecision::Same), run("double", RolloutPrecision::Own(Precision::F64)));
    assert!(single.0 == double.0);
    assert_ne!(single.1, double.1);
    assert!((single.1 - double.1).abs() < 1e-4 * single.1, "{} and {}", single.1, double.1);
    assert_eq!((single.2, double.2), (Precision::F32, Precision::F64));
    assert!(Recipe::parse("[evaluate]\nprecision = \"f8\"\n", &[]).is_err());
}
