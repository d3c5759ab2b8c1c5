//! Agreement with independent implementations, step for step: SciPy's RK45, and Tsit5 with a PID controller in NumPy.
//! `fixtures/make_ode.py` writes the numbers.

use std::collections::BTreeMap;

use cfo_numerics::ode::{Controller, DOPRI5, Stepper, Steps, TSIT5, VectorField, integrate};

mod problems;
use problems::Lorenz;

/// Tolerance on steps. Round-off of a state, 1e-16, is up to 1e-7 of an error estimate, which is a difference of states
/// of the size of the tolerance (1e-9). A step depends on its fifth root, and the next steps inherit the change.
const STEPS: f64 = 1e-7;

/// Tolerance on states. A changed step changes the state by that fraction of the local error.
const STATES: f64 = 1e-10;

/// The lines of the fixture: a name and numbers.
fn fixture() -> BTreeMap<&'static str, Vec<f64>> {
    let lines = include_str!("fixtures/ode.txt").lines();
    lines
        .map(|line| {
            let mut words = line.split(' ');
            let name = words.next().expect("a line starts with a name");
            (name, words.map(|word| word.parse().expect("a number")).collect())
        })
        .collect()
}

/// The cases of a kind: every prefix `kind/problem...` of the fixture, with its problem's name.
fn cases(all: &BTreeMap<&'static str, Vec<f64>>, kind: &str) -> Vec<(String, String)> {
    let initial = all.keys().filter(|name| name.starts_with(kind) && name.ends_with("/initial"));
    initial
        .map(|name| {
            let case = name.strip_suffix("/initial").expect("filtered above");
            (case.to_owned(), case.split('/').nth(1).expect("kind/problem").to_owned())
        })
        .collect()
}

fn field(problem: &str) -> Box<dyn VectorField> {
    match problem {
        "lorenz" | "lorenz-back" => Box::new(Lorenz::default()),
        "van-der-pol" => Box::new(|_: f64, u: &[f64], out: &mut [f64]| {
            out.copy_from_slice(&[u[1], 5.0 * (1.0 - u[0] * u[0]) * u[1] - u[0]]);
        }),
        "driven" => Box::new(|t: f64, u: &[f64], out: &mut [f64]| {
            for (out, u) in out.iter_mut().zip(u) {
                *out = u * t.cos() + (3.0 * t).sin();
            }
        }),
        _ => panic!("unknown problem {problem}"),
    }
}

fn assert_close(found: &[f64], expected: &[f64], tolerance: f64, what: &str) {
    assert_eq!(found.len(), expected.len(), "{what}");
    let size = expected.iter().fold(0.0, |size: f64, x| size.max(x.abs()));
    for (found, expected) in found.iter().zip(expected) {
        assert!((found - expected).abs() <= tolerance * size, "{what}: found {found}, expected {expected}");
    }
}

/// Long lists are stored as their first and last 20 entries.
fn shortened(list: &[f64]) -> Vec<f64> {
    if list.len() < 40 { list.to_vec() } else { [&list[..20], &list[list.len() - 20..]].concat() }
}

/// Times of the accepted steps, by the functions that other integrators use.
fn accepted_times(
    method: &cfo_numerics::ode::Tableau,
    field: &dyn VectorField,
    controller: &Controller,
    [start, end]: [f64; 2],
    initial: &[f64],
) -> Vec<f64> {
    let (rtol, atol) = (controller.rtol, controller.atol);
    let mut stepper = Stepper::new(method, start, initial);
    let mut control = controller.start(method.error_order);
    let mut step = stepper.first_step(field, end, rtol, atol);
    let direction = (end - start).signum();
    let mut times = vec![start];
    while stepper.time() != end {
        let next = stepper.time() + direction * step;
        stepper.attempt(field, if direction * (next - end) > -1e-13 { end } else { next });
        let decision = control.decide(stepper.error(rtol, atol));
        step = (stepper.next_time() - stepper.time()).abs() * decision.factor;
        if decision.accept {
            stepper.accept();
            times.push(stepper.time());
        }
    }
    times
}

#[test]
fn dormand_prince_is_scipys_step_for_step() {
    let all = fixture();
    let cases = cases(&all, "rk45/");
    assert_eq!(cases.len(), 8);
    for (case, problem) in cases {
        let get = |what: &str| &all[format!("{case}/{what}").as_str()][..];
        let field = field(&problem);
        let controller = Controller::scipy(get("tolerances")[0], get("tolerances")[1]);
        let (times, initial) = (get("times"), get("initial"));
        let solution =
            integrate(&*field, &DOPRI5, times[0], initial, times, Steps::Adaptive(controller)).unwrap();
        assert_eq!([solution.steps as f64, solution.evaluations as f64], get("counts"), "{case}");
        assert_close(&solution.states, get("states"), STATES, &case);
        let span = [times[0], times[times.len() - 1]];
        let steps = accepted_times(&DOPRI5, &*field, &controller, span, initial);
        assert_close(&shortened(&steps), get("steps"), STEPS, &case);
    }
}

#[test]
fn tsit5_agrees_to_round_off_on_the_same_steps() {
    let all = fixture();
    let cases = cases(&all, "tsit5/");
    assert_eq!(cases.len(), 4);
    for (case, problem) in cases {
        let get = |what: &str| &all[format!("{case}/{what}").as_str()][..];
        let (field, steps, width) = (field(&problem), get("steps"), get("initial").len());
        let mut stepper = Stepper::new(&TSIT5, steps[0], get("initial"));
        for (n, &end) in steps[1..].iter().enumerate() {
            stepper.attempt(&*field, end);
            let error = stepper.error(1e-4, 1e-6);
            // The estimate is a difference of states: their round-off, divided by the tolerance.
            assert!((error - get("errors")[n]).abs() <= 1e-12 / 1e-4 + 1e-10 * error, "{case}");
            let mut between = vec![0.0; width];
            for (i, theta) in [0.3, 0.75].into_iter().enumerate() {
                stepper.interpolate(stepper.time() + theta * (end - stepper.time()), &mut between);
                let row = 2 * n + i;
                assert_close(&between, &get("between")[row * width..(row + 1) * width], 1e-14, &case);
            }
            stepper.accept();
            assert_close(stepper.state(), &get("states")[n * width..(n + 1) * width], 1e-14, &case);
        }
    }
}

#[test]
fn pid_control_takes_the_same_steps() {
    let all = fixture();
    let cases = cases(&all, "pid/");
    assert_eq!(cases.len(), 12);
    for (case, problem) in cases {
        let get = |what: &str| &all[format!("{case}/{what}").as_str()][..];
        let gains = get("gains");
        let controller = Controller {
            proportional: gains[0],
            integral: gains[1],
            derivative: gains[2],
            ..Controller::new(1e-4, 1e-6)
        };
        let (field, initial, steps) = (field(&problem), get("initial"), get("steps"));
        let span = [steps[0], steps[steps.len() - 1]];
        let run = Steps::Adaptive(controller);
        let solution = integrate(&*field, &TSIT5, span[0], initial, &span[1..], run).unwrap();
        assert_eq!([solution.steps as f64, solution.rejections as f64], get("counts"), "{case}");
        assert_close(&solution.states, get("state"), STATES, &case);
        let found = accepted_times(&TSIT5, &*field, &controller, span, initial);
        assert_close(&shortened(&found), steps, STEPS, &case);
    }
}
