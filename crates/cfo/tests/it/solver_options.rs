//! The options `solver`, `steps`, `nfe`, `rtol` and `atol`, and the warnings of rollouts.

use std::cell::RefCell;

use cfo::data::{Trajectory, TrajectoryInputs};
use cfo::numerics::metric::relative_l2;
use cfo::numerics::ode::{Controller, EULER, HEUN, RK4, Steps, TSIT5, Tableau, integrate};
use cfo::rollout::{Excursion, Rollout};
use cfo::{
    Budget, CfoError, Model, Precision, Recipe, Request, Solver, SolverOptions, Trained, Trajectories, Watch,
};
use cfo_engine::{Data, Memory, Program};

use crate::util::{described, oscillators, recipe, trained, weights_in};

/// Parses options such as `solver=rk4 steps=10`.
fn options(text: &str) -> SolverOptions {
    let mut options = SolverOptions::default();
    for (key, value) in text.split_whitespace().map(|word| word.split_once('=').unwrap()) {
        match key {
            "solver" => options.solver = Some(value.into()),
            "steps" => options.steps = value.parse().ok(),
            "nfe" => options.nfe = value.parse().ok(),
            "rtol" => options.rtol = value.parse().ok(),
            "atol" => options.atol = value.parse().ok(),
            other => panic!("{other}"),
        }
    }
    options
}

fn resolved(keys: &str, text: &str) -> Result<Solver, CfoError> {
    let keys: Vec<String> = keys.split_whitespace().map(Into::into).collect();
    Solver::resolve(&Recipe::parse("", &keys).unwrap(), &options(text))
}

fn adaptive(tableau: Tableau, rtol: f64, atol: f64) -> Solver {
    Solver::adaptive(tableau, rtol, atol).unwrap()
}

#[test]
fn options_mean_what_the_table_says() {
    let fixed = |tableau, budget| Solver { tableau, budget };
    // The recipe's solver, which is adaptive by default.
    assert_eq!(resolved("", "").unwrap(), adaptive(TSIT5, 1e-4, 1e-6));
    assert_eq!(resolved("evaluate.solver.rtol=1e-3", "").unwrap(), adaptive(TSIT5, 1e-3, 1e-6));
    let one = |tableau| fixed(tableau, Budget::StepPerOutput);
    assert_eq!(resolved("evaluate.solver=rk4", "").unwrap(), one(RK4));
    let shared = |tableau, nfe| fixed(tableau, Budget::EvaluationsPerHorizon(nfe));
    assert_eq!(resolved("evaluate.solver=rk4 evaluate.nfe=40", "").unwrap(), shared(RK4, 40));
    for tableau in Tableau::ALL {
        let asked = |keys: &str, more: &str| resolved(keys, &format!("solver={} {more}", tableau.name));
        let alone = asked("evaluate.solver.rtol=1e-3 evaluate.nfe=80", "").unwrap();
        let taken = asked("evaluate.solver.rtol=1e-3", "atol=1e-5");
        if tableau.estimates_error() {
            assert_eq!(alone, adaptive(tableau, 1e-3, 1e-6), "{}", tableau.name);
            assert_eq!(taken.unwrap(), adaptive(tableau, 1e-3, 1e-5), "{}", tableau.name);
        } else {
            assert_eq!(alone, shared(tableau, 80), "{}", tableau.name);
            assert_eq!(asked("", "").unwrap(), one(tableau), "{}", tableau.name);
            let refused = taken.unwrap_err();
            assert!(refused.to_string().contains("does not estimate its error"), "{refused}");
            assert!(refused.hint().unwrap().contains("`tsit5`") && refused.is_bad_input());
        }
        assert_eq!(asked("", "steps=9").unwrap(), fixed(tableau, Budget::Steps(9)), "{}", tableau.name);
        assert_eq!(asked("", "nfe=90").unwrap(), shared(tableau, 90), "{}", tableau.name);
        let few = format!("nfe={}", tableau.stages() - 1);
        assert!(
            asked("", &few).unwrap_err().to_string().contains("evaluations are too few"),
            "{}",
            tableau.name
        );
    }
    // Tolerances without a solver need one that estimates its error.
    assert_eq!(resolved("evaluate.solver=dopri5", "rtol=1e-7").unwrap().tableau.name, "dopri5");
    assert_eq!(resolved("evaluate.solver=rk4", "rtol=1e-7").unwrap(), adaptive(TSIT5, 1e-7, 1e-6));
    for (contradiction, said) in [
        ("steps=3 nfe=40", "`steps` and `nfe`"),
        ("steps=3 rtol=1e-3", "`steps` sets"),
        ("nfe=40 atol=1e-3", "`nfe` sets"),
        ("steps=0", "`steps` is 0"),
        ("nfe=0", "evaluations are too few"),
        ("rtol=0 atol=0", "must be positive"),
        ("rtol=-1", "must be positive"),
        ("solver=rk5", "`rk5`"),
    ] {
        let refused = resolved("", contradiction).unwrap_err();
        assert!(refused.to_string().contains(said), "{contradiction}: {refused}");
        assert!(refused.hint().is_some() && refused.is_bad_input(), "{contradiction}");
    }
}

const START: f64 = 0.25;
const STATE: [f32; 2] = [0.7, -0.4];

/// Returns states from the host's integrator in double precision. It shares only the methods' coefficients with rollouts.
fn on_host(
    trained: &Trained,
    memory: &mut Memory,
    tableau: &Tableau,
    times: &[f64],
    steps: Steps,
) -> Vec<f32> {
    let (graph, velocity) = trained.model().forward(1, memory).unwrap();
    let place = RefCell::new((Program::compile(&graph, &[velocity], memory).unwrap(), memory));
    let field = |t: f64, u: &[f64], out: &mut [f64]| {
        let (program, memory) = &mut *place.borrow_mut();
        memory.write("forward.time", Data::F64(&[t])).unwrap();
        memory.write("forward.state", Data::F64(u)).unwrap();
        program.run(memory).unwrap();
        out.copy_from_slice(&program.output_f64(0).unwrap());
    };
    let scaling = &trained.model().scaling;
    let start: Vec<f64> = scaling.normalize(&STATE).iter().map(|&u| f64::from(u)).collect();
    let times: Vec<f64> = times.iter().map(|&time| scaling.time(time)).collect();
    let found = integrate(&field, tableau, scaling.time(START), &start, &times, steps).unwrap();
    scaling.restore(&found.states.iter().map(|&u| u as f32).collect::<Vec<_>>())
}

/// Checks every method with steps, budgets and tolerances, forward and backward: states are the host's, and numbers of evaluations are as
/// requested.
#[test]
fn every_method_makes_the_steps_that_were_asked_for() {
    // Without EMA, the host reads the weights that rollouts use.
    let recipe = recipe(60).with(&["train.ema=0".into()]).unwrap();
    let trained = trained(&recipe, &oscillators(12), None, false).unwrap();
    let mut memory = weights_in(&trained, Precision::F64);
    let horizon = trained.model().scaling.horizon;
    for length in [0.9 * horizon, -0.5 * horizon] {
        let times: Vec<f64> = (1..=20).map(|i| START + length * f64::from(i) / 20.0).collect();
        for tableau in Tableau::ALL {
            let (name, each) = (tableau.name, tableau.evaluations_per_step());
            let once = usize::from(tableau.first_same_as_last);
            let asked = |more: &str| {
                let options = options(&format!("solver={name} {more}"));
                trained.with_options(&options).unwrap().predict(&STATE, START, &times).unwrap()
            };
            let mut host = |steps| on_host(&trained, &mut memory, &tableau, &times, steps);
            // Single precision against double over a hundred steps of states of order 1.
            let near = |found: &[f32], expected: &[f32], what: &str| {
                let error = relative_l2(found, expected);
                assert!(error < 2e-5, "{name}, {what}: {error}");
            };
            for steps in [1, 7, 100] {
                let found = asked(&format!("steps={steps}"));
                assert_eq!(found.evaluations, once + steps * each, "{name}, {steps} steps");
                near(&found.states, &host(Steps::Total(steps)), &format!("{steps} steps"));
            }
            let found = asked("nfe=200");
            let most = (200.0 * length.abs() / horizon).round() as usize;
            assert!((most - each + 1..=most).contains(&found.evaluations), "{name}: {}", found.evaluations);
            if tableau.estimates_error() {
                let controller = Controller { max_steps: 100_000, ..Controller::new(1e-7, 1e-9) };
                let expected = host(Steps::Adaptive(controller));
                near(&asked("rtol=1e-7 atol=1e-9").states, &expected, "tolerances");
                assert_eq!(asked("").states, asked("rtol=1e-4 atol=1e-6").states, "{name}");
            }
        }
    }
}

/// Checks that steps are divided between both sides of the start, and that trajectories are independent.
#[test]
fn a_number_of_steps_is_that_of_each_trajectory() {
    let trained = trained(&recipe(20), &oscillators(12), None, false).unwrap();
    let solver = trained.with_solver(Solver::rk4().steps(12));
    let both = solver.predict(&STATE, 1.0, &[2.5, 0.5]).unwrap();
    assert_eq!(both.evaluations, 4 * 12);
    let request = |chosen: &[usize]| Request {
        start: chosen.iter().map(|&i| [0.0, 1.0, 2.0][i]).collect(),
        states: chosen.iter().map(|_| STATE.to_vec()).collect(),
        times: chosen.iter().map(|&i| [vec![2.0, 1.0], vec![0.5, 3.0], vec![1.5]][i].clone()).collect(),
        inputs: vec![],
    };
    for budget in [Budget::Steps(12), Budget::EvaluationsPerHorizon(48), Budget::StepsPerInterval(2)] {
        let solver = trained.with_solver(Solver { budget, ..Solver::rk4() });
        let together = solver.predict_each(&request(&[0, 1, 2]), &Watch::default()).unwrap();
        for i in 0..3 {
            let alone = solver.predict_each(&request(&[i]), &Watch::default()).unwrap();
            // A product of several rows has other rounding errors than that of one.
            let error = relative_l2(&alone.states[0], &together.states[i]);
            assert!(error < 1e-6, "{budget:?}, {i}: {error}");
            assert_eq!(alone.times[0], together.times[i]);
        }
    }
}

/// Checks that a fine-tuned model keeps its solver and steps, at the data's times and at denser ones.
#[test]
fn fine_tuned_models_keep_their_steps() {
    let times: Vec<f64> = (0..21).map(|k| 0.1 * f64::from(k)).collect();
    let round = |start: f64| {
        let values = times.iter().flat_map(|t| [(start + t).cos() as f32, (start + t).sin() as f32]);
        Trajectory::new(times.clone(), values.collect(), vec![]).unwrap()
    };
    let set = described(2, (0..20).map(|i| round(f64::from(i) * 0.3)).collect());
    let tuned = |keys: &[&str]| {
        let keys: Vec<String> =
            ["finetune.steps=3"].iter().chain(keys).map(|key| (*key).to_owned()).collect();
        trained(&recipe(10).with(&keys).unwrap(), &set, None, false).unwrap()
    };
    let dense: Vec<f64> = (1..=200).map(|k| 0.01 * f64::from(k)).collect();
    for substeps in [1, 2, 3] {
        let trained = tuned(&[&format!("finetune.solver.steps={substeps}")]);
        assert_eq!(trained.solver(), Solver { tableau: RK4, budget: Budget::StepsPerInterval(substeps) });
        assert_eq!(trained.evaluate(set.test()).unwrap().evaluations, 20 * 4 * substeps);
        let found = trained.predict(&STATE, 0.0, &dense).unwrap();
        assert_eq!(found.evaluations, 20 * 4 * substeps);
        let own = trained.predict(&STATE, 0.0, &times[1..]).unwrap();
        assert_eq!(own.state(19), found.state(199));
    }
    assert_eq!(
        tuned(&["finetune.solver=heun", "finetune.solver.steps=0"]).solver(),
        adaptive(HEUN, 1e-4, 1e-6)
    );
    assert_eq!(tuned(&["evaluate.solver=rk4"]).solver(), Solver::rk4());
    assert_eq!(
        tuned(&[]).with_options(&options("solver=euler")).unwrap().solver(),
        Solver { tableau: EULER, budget: Budget::StepsPerInterval(2) }
    );
}

#[test]
fn requests_that_contradict_themselves_are_refused() {
    let trained = trained(&recipe(1), &oscillators(8), None, false).unwrap();
    let sound = Request {
        start: vec![0.0; 2],
        states: vec![STATE.to_vec(); 2],
        times: vec![vec![1.0]; 2],
        inputs: vec![],
    };
    assert!(trained.predict_each(&sound, &Watch::default()).is_ok());
    let bad = [
        Request { start: vec![0.0; 3], ..sound.clone() },
        Request { states: vec![STATE.to_vec()], ..sound.clone() },
        Request { states: vec![vec![0.5]; 2], ..sound.clone() },
        Request { times: vec![], ..sound.clone() },
        Request { inputs: vec![TrajectoryInputs::default()], ..sound.clone() },
    ];
    let mut memory = weights_in(&trained, Precision::F32);
    let mut rollout = Rollout::new(trained.model(), &mut memory, 2, RK4, "").unwrap();
    for request in bad {
        let refused = trained.predict_each(&request, &Watch::default()).unwrap_err();
        assert!(refused.is_bad_input() && refused.hint().is_some(), "{refused}");
        let refused = rollout.predict(&mut memory, &request, Budget::StepPerOutput).unwrap_err();
        assert!(refused.is_bad_input(), "{refused}");
    }
}

/// Checks that contradictory sets are refused when they are used. The fields of a set are public.
#[test]
fn sets_that_contradict_themselves_are_refused() {
    let set = oscillators(8);
    let model = trained(&recipe(1), &set, None, false).unwrap();
    let changed = |change: &dyn Fn(&mut Trajectories)| {
        let mut set = set.clone();
        change(&mut set);
        set
    };
    for bad in [
        changed(&|set| set.splits.truncate(2)),
        changed(&|set| set.trajectories.truncate(3)),
        changed(&|set| set.trajectories[0].values.truncate(5)),
        changed(&|set| set.trajectories[7].inputs.parameters.push(1.0)),
        changed(&|set| set.description.inputs.parameters.push("k".into())),
    ] {
        for refused in [
            trained(&recipe(1), &bad, None, false).unwrap_err(),
            model.evaluate(&bad).unwrap_err(),
            Model::new(&recipe(1), &bad).unwrap_err(),
        ] {
            assert!(refused.is_bad_input() && refused.hint().is_some(), "{refused}");
        }
    }
}

/// Checks the warning about excursions on data whose velocity is `u`. An extrapolated rollout grows by orders of magnitude but stays
/// finite.
#[test]
fn rollouts_far_out_of_the_data_are_named() {
    let grow = |i: i32| {
        let times: Vec<f64> = (0..21).map(|k| 0.1 * f64::from(k)).collect();
        let values = times.iter().map(|t| (0.05 * f64::from(i - 10) * t.exp()) as f32).collect();
        Trajectory::new(times, values, vec![]).unwrap()
    };
    let set: Trajectories = described(1, (0..20).map(grow).collect());
    let trained = trained(&recipe(400), &set, None, false).unwrap();
    let near = trained.evaluate_each(&set.test(), false, Watch::default()).unwrap();
    assert!(near.excursions.is_empty(), "{:?}", near.excursions);
    let request = Request {
        start: vec![0.0; 2],
        states: vec![vec![0.1], vec![300.0]],
        times: vec![vec![0.5, 1.0]; 2],
        inputs: vec![],
    };
    let found = trained.predict_each(&request, &Watch::default()).unwrap();
    assert!(found.diverged.is_empty());
    let [far] = &found.excursions[..] else { panic!("{:?}", found.excursions) };
    assert_eq!((far.trajectory, far.channel, far.time), (1, 0, 0.5));
    assert_eq!(far.range, trained.model().scaling.range[0]);
    let text = Excursion::warning(trained.model(), &found.excursions).unwrap();
    assert!(text.contains("trajectory 1 leaves the range") && text.contains("`x0`"), "{text}");
}

/// Checks that programs compiled for another grid are cached. The states of a second call must be those of a fresh copy.
#[test]
fn grids_are_kept_until_weights_change() {
    use cfo::data::FieldShape;
    use cfo::data::simulate::Burgers;
    let burgers = Burgers { grid: 16, frames: 5, viscosity: 0.05, ..Burgers::default() };
    let set = Trajectories::simulate(&burgers, 8, 0, &false.into()).unwrap();
    let text = "[operator]\nkind = \"fno\"\nwidth = 4\nmodes = 4\nblocks = 1\n[train]\nsteps = 2\nbatch = 4\nvalidate_every = 0\n";
    let trained = trained(&Recipe::parse(text, &[]).unwrap(), &set, None, false).unwrap();
    let shape = |points| FieldShape::line(points, 1);
    let at = |points: usize| {
        let state = vec![0.5; points];
        trained.on_grid(shape(points)).unwrap().predict(&state, 0.0, &[0.1]).unwrap().states
    };
    let first = at(24);
    assert_eq!(at(24), first);
    for points in [18, 20, 22, 26, 28] {
        assert_eq!(at(points).len(), points);
    }
    assert_eq!(at(24), first);
    trained.with_memory(|memory| {
        let names: Vec<String> = memory.names_where(cfo_engine::Role::is_network).map(String::from).collect();
        for name in names {
            let values: Vec<f32> = memory.read(&name).unwrap().iter().map(|value| 2.0 * value).collect();
            memory.write(&name, Data::F32(&values)).unwrap();
        }
    });
    assert_ne!(at(24), first);
}
