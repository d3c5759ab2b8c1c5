//! Controls: known functions of time as inputs of the network.

use cfo::data::{Controls, Description, FieldShape, InputNames, Trajectory, TrajectoryInputs};
use cfo::numerics::Philox;
use cfo::recipe::ControlKind;
use cfo::{CfoError, Device, Model, Recipe, Request, SolverOptions, Training, Trajectories, Watch};

use crate::util::{recipe, trained};

/// Length of the trajectories.
const HORIZON: f64 = 4.0;

/// Returns trajectories of `x' = f(t) - x` with another force `f` each, which is constant between five times.
fn driven(count: usize) -> Trajectories {
    let trajectory = |i: usize| {
        let mut random = Philox::new(11, i as u64);
        let mut times: Vec<f64> = (0..4).map(|k| f64::from(k) + 0.6 * random.uniform()).collect();
        (times[0], _) = (0.0, times.push(HORIZON));
        let forces: Vec<f64> = times.iter().map(|_| random.normal()).collect();
        let frames: Vec<f64> = (0..41).map(|k| HORIZON * f64::from(k) / 40.0).collect();
        let start = random.normal();
        let values = frames.iter().map(|&time| solution(start, (&times, &forces), time) as f32).collect();
        let inputs = TrajectoryInputs::default().with_controls(Controls::new(times, forces).unwrap());
        Trajectory::new(frames, values, inputs).unwrap()
    };
    let description = Description {
        system: "driven".into(),
        shape: FieldShape::system(1),
        periodic: vec![],
        domain: vec![],
        channel_names: vec!["x".into()],
        channel_units: vec![],
        inputs: InputNames { controls: vec!["force".into()], ..InputNames::default() },
    };
    Trajectories::new(description, (0..count).map(trajectory).collect()).unwrap()
}

/// Returns the solution of `x' = f(t) - x` for a force that is constant between times.
fn solution(start: f64, (times, forces): (&[f64], &[f64]), time: f64) -> f64 {
    times.windows(2).zip(forces).fold(start, |x, (ends, force)| {
        let way = time.clamp(ends[0], ends[1]) - ends[0];
        force + (x - force) * (-way).exp()
    })
}

fn held(steps: u32) -> Recipe {
    let mut recipe = recipe(steps);
    recipe.data.controls = ControlKind::Hold;
    recipe
}

#[test]
fn a_force_is_learned_and_left_out_on_request() {
    let set = driven(60);
    let error = |kind: ControlKind| {
        let mut recipe = held(800);
        recipe.data.controls = kind;
        let trained = trained(&recipe, &set, None, false).unwrap();
        trained.evaluate(set.test()).unwrap().relative_l2.mean
    };
    // The spline through the snapshots rounds off the corners of the solution, about a tenth of a tenth of its size.
    let found = error(ControlKind::Hold);
    assert!(found < 0.06, "{found}");
    let without = error(ControlKind::None);
    assert!(without > 0.3, "{without}");
}

/// Checks that all solvers agree, forward and backward, with adaptive and equal steps: adaptive steps end at the jumps.
#[test]
fn solvers_agree_whatever_the_interpolation() {
    let set = driven(20);
    for kind in [ControlKind::Hold, ControlKind::Linear, ControlKind::Spline] {
        let mut recipe = held(40);
        recipe.data.controls = kind;
        let trained = trained(&recipe, &set, None, false).unwrap();
        for times in [vec![0.7, HORIZON], vec![0.3, 2.9]] {
            let request = Request {
                start: vec![if times[0] > 0.5 { 0.0 } else { 3.3 }],
                states: vec![vec![0.4]],
                times: vec![times],
                inputs: vec![set.trajectories[3].inputs.clone()],
            };
            let states = |options: SolverOptions| {
                let model = trained.with_options(&options).unwrap();
                model.predict_each(&request, &Watch::default()).unwrap().states.remove(0)
            };
            let by = |name: &str| SolverOptions { solver: Some(name.into()), ..SolverOptions::default() };
            let fine = states(SolverOptions { rtol: Some(1e-7), atol: Some(1e-9), ..by("tsit5") });
            let equal = |name: &str, steps| states(SolverOptions { steps: Some(steps), ..by(name) });
            let tight = states(SolverOptions { rtol: Some(1e-6), atol: Some(1e-8), ..by("dopri5") });
            for (found, tolerance) in [
                // States have single precision, and straight lines have kinks that no error estimate expects.
                (tight, 1e-3),
                (states(by("heun")), 1e-2),
                // A step across a jump has an error of first order.
                (equal("rk4", 400), 2e-2),
                (equal("tsit5", 400), 2e-2),
                (equal("euler", 4000), 1e-2),
            ] {
                assert_eq!(found.len(), 2, "{kind:?}: all times are reached");
                for (found, fine) in found.iter().zip(&fine) {
                    assert!((found - fine).abs() < tolerance, "{kind:?}: {found} for {fine}");
                }
            }
        }
    }
}

/// Checks that all ways to train take controls: streamed and resumed to the same bits, through solvers, refined and as the next state.
#[test]
fn all_trainings_take_controls_and_resume_to_the_same_bits() {
    let (set, folder) = (driven(20), tempfile::tempdir().unwrap());
    let through = "objective.kind=neural-ode";
    for (number, keys) in [
        &["data.stream=true"][..],
        &["data.controls=spline", "operator.time=true"],
        &[through, "objective.solver={ method = \"rk4\", steps = 2 }"],
        &[through, "objective.solver=tsit5"],
        &["finetune.steps=6", "finetune.window=2"],
        &["refine.rounds=2", "data.keep_rate=0.3"],
        &["objective.kind=autoregressive"],
        &["objective.kind=pde-refiner", "operator.time=true"],
    ]
    .into_iter()
    .enumerate()
    {
        let keys: Vec<String> = keys.iter().map(|key| (*key).to_owned()).collect();
        let recipe = |steps: u32| {
            let mut recipe = Recipe::parse(&held(24).to_toml().unwrap(), &keys).unwrap();
            recipe.train.schedule = cfo::recipe::LearningRateSchedule::Constant;
            (recipe.train.steps, recipe.train.checkpoint_every, recipe.train.batch) = (steps, 12, 16);
            recipe
        };
        let run = |name: &str| folder.path().join(format!("{number}-{name}"));
        let weights =
            |name: &str| std::fs::read(run(name).join("checkpoints/latest/weights.safetensors")).unwrap();
        trained(&recipe(24), &set, Some(&run("whole")), false).unwrap();
        if !keys[0].starts_with("refine") && !keys[0].starts_with("finetune") {
            trained(&recipe(12), &set, Some(&run("parts")), false).unwrap();
            trained(&recipe(24), &set, Some(&run("parts")), true).unwrap();
            assert!(weights("whole") == weights("parts"), "{keys:?}");
        }
        let resident =
            Recipe { data: cfo::recipe::DataConfig { stream: None, ..recipe(24).data }, ..recipe(24) };
        trained(&resident, &set, Some(&run("resident")), false).unwrap();
        assert!(weights("whole") == weights("resident"), "{keys:?}");
        let loaded = cfo::Trained::load(run("whole")).unwrap();
        assert_eq!(loaded.model().inputs.controls, ["force"]);
        let times = if keys[0].contains("autoregressive") || keys[0].contains("refiner") {
            [0.1, 0.2]
        } else {
            [1.3, 0.2]
        };
        let own = loaded.with_inputs(&set.trajectories[0].inputs);
        assert!(own.predict(&[0.5], 0.0, &times).unwrap().states.iter().all(|value| value.is_finite()));
    }
}

#[test]
fn controls_that_are_missing_or_too_short_are_refused() {
    let set = driven(20);
    let model = trained(&held(4), &set, None, false).unwrap();
    let short =
        TrajectoryInputs::default().with_controls(Controls::new(vec![0.0, 2.0], vec![0.0; 2]).unwrap());
    let two = TrajectoryInputs::default().with_controls(Controls::new(vec![0.0, 4.0], vec![0.0; 4]).unwrap());
    let ways = [(&short, 3.0), (&short, -0.5), (&two, 1.0), (&TrajectoryInputs::default(), 1.0)];
    let words = [
        "missing beyond 2",
        "missing beyond 0",
        "has 2 controls; the model takes 1: `force`",
        "has 0 controls",
    ];
    for ((inputs, time), words) in ways.into_iter().zip(words) {
        let refused = model.with_inputs(inputs).predict(&[0.5], 0.0, &[time]).unwrap_err();
        assert!(refused.to_string().contains(words) && refused.hint().is_some(), "{refused}");
    }
    let refused = model.with_inputs(&short).velocity(&[0.5], &[3.0]).unwrap_err();
    assert!(refused.to_string().contains("missing at 3"), "{refused}");
    let mut uncovered = driven(20);
    uncovered.trajectories[7].inputs = short;
    let refused = Model::new(&held(4), &uncovered).unwrap_err();
    assert!(refused.to_string().contains("controls of trajectory 7 are known from time 0 to 2"), "{refused}");
    let generated = Recipe::parse(
        &held(4).to_toml().unwrap(),
        &["objective.kind=conditional-flow-matching".into(), "operator.time=true".into()],
    );
    let refused = Training::from_recipe(&generated.unwrap()).device(Device::Cpu).fit(&set).unwrap_err();
    assert!(
        matches!(&refused, CfoError::BadData { problem, .. } if problem.contains("cannot take controls"))
    );
}
