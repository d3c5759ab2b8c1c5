//! Properties of integration for every method and every problem.

use proptest::prelude::*;

use super::*;
use crate::test_problems::{DECAY, Lorenz, OSCILLATOR, PROBLEMS, Problem, blow_up};

/// Slope of the least-squares line through `(ln x, ln y)`.
fn slope(points: &[(f64, f64)]) -> f64 {
    let count = points.len() as f64;
    let logs: Vec<(f64, f64)> = points.iter().map(|(x, y)| (x.ln(), y.ln())).collect();
    let (mean_x, mean_y) = logs.iter().fold((0.0, 0.0), |(a, b), (x, y)| (a + x / count, b + y / count));
    let (over, under) = logs.iter().fold((0.0, 0.0), |(over, under), (x, y)| {
        (over + (x - mean_x) * (y - mean_y), under + (x - mean_x).powi(2))
    });
    over / under
}

fn distance(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(a, b)| (a - b).powi(2)).sum::<f64>().sqrt()
}

fn adaptive(tolerance: f64) -> Steps {
    Steps::Adaptive(Controller::new(tolerance, tolerance))
}

/// Step counts at which errors lie between round-off and the onset of the asymptotic slope.
fn counts(method: &Tableau) -> [usize; 3] {
    if method.order >= 4 { [27, 40, 60] } else { [64, 96, 144] }
}

/// Largest error over all steps, which, unlike the error at the end, does not pass through zero by chance.
fn worst_error(problem: &Problem, method: &Tableau, [start, end]: [f64; 2], count: usize) -> f64 {
    let times: Vec<f64> = (1..=count).map(|i| start + (end - start) * (i as f64 / count as f64)).collect();
    let initial = (problem.exact)(start);
    let solution = integrate(problem, method, start, &initial, &times, Steps::PerInterval(1)).unwrap();
    let errors = times.iter().enumerate().map(|(i, &t)| distance(solution.state(i), &(problem.exact)(t)));
    errors.fold(0.0, f64::max)
}

#[test]
fn error_falls_with_the_order_of_the_method() {
    for method in Tableau::ALL {
        for problem in PROBLEMS {
            for span in [problem.span, [problem.span[1], problem.span[0]]] {
                let points = counts(&method)
                    .map(|count| (1.0 / count as f64, worst_error(&problem, &method, span, count)));
                // Terms of neighbouring orders compete at these steps; the circle below is cleaner.
                let (found, order) = (slope(&points), method.order as f64);
                assert!(
                    found > order - 0.5 && found < order + 0.9,
                    "{} {}: {found}",
                    method.name,
                    problem.name
                );
            }
        }
        let circle = |count| (1.0 / count as f64, worst_error(&OSCILLATOR, &method, OSCILLATOR.span, count));
        let found = slope(&counts(&method).map(circle));
        assert!((found - method.order as f64).abs() < 0.15, "{}: {found}", method.name);
    }
}

#[test]
fn forward_and_backward_returns_to_the_order_of_the_method() {
    for method in Tableau::ALL {
        for problem in PROBLEMS {
            let [start, end] = problem.span;
            let initial = (problem.exact)(start);
            let points = counts(&method).map(|count| {
                let steps = Steps::PerInterval(count);
                let there = integrate(&problem, &method, start, &initial, &[end], steps).unwrap();
                let back = integrate(&problem, &method, end, &there.states, &[start], steps).unwrap();
                (1.0 / count as f64, distance(&back.states, &initial))
            });
            // Methods of even order gain one: the leading errors of the two directions cancel.
            let found = slope(&points);
            assert!(found > method.order as f64 - 0.3, "{} {}: {found}", method.name, problem.name);
        }
    }
}

#[test]
fn dense_output_has_its_order_inside_a_step() {
    for method in Tableau::ALL {
        for problem in PROBLEMS {
            let start = problem.span[0];
            let points = [0.1, 0.05, 0.025].map(|h| {
                let mut stepper = Stepper::new(&method, start, &(problem.exact)(start));
                stepper.attempt(&problem, start + h);
                let mut out = (problem.exact)(start);
                let worst = (1..10).fold(0.0, |worst, tenth| {
                    let t = start + h * f64::from(tenth) / 10.0;
                    stepper.interpolate(t, &mut out);
                    f64::max(worst, distance(&out, &(problem.exact)(t)))
                });
                (h, worst)
            });
            let found = slope(&points);
            assert!(found > method.dense_order as f64 + 0.7, "{} {}: {found}", method.name, problem.name);
        }
    }
}

/// States between steps are as accurate as the steps (one order may be lost inside a step, but does not accumulate).
#[test]
fn outputs_between_steps_converge() {
    for method in Tableau::ALL {
        for problem in PROBLEMS {
            let [start, end] = problem.span;
            let times: Vec<f64> = (0..=97).map(|i| start + (end - start) * f64::from(i) / 97.0).collect();
            let points = counts(&method).map(|count| {
                let initial = (problem.exact)(start);
                let solution =
                    integrate(&problem, &method, start, &initial, &times, Steps::Total(count)).unwrap();
                let errors =
                    times.iter().enumerate().map(|(i, &t)| distance(solution.state(i), &(problem.exact)(t)));
                (1.0 / count as f64, errors.fold(0.0, f64::max))
            });
            let found = slope(&points);
            assert!(found > method.order as f64 - 0.3, "{} {}: {found}", method.name, problem.name);
        }
    }
}

#[test]
fn adaptive_steps_keep_the_tolerance() {
    for method in Tableau::ALL.into_iter().filter(Tableau::estimates_error) {
        for problem in PROBLEMS {
            let [start, end] = problem.span;
            let times: Vec<f64> = (1..=20).map(|i| start + (end - start) * f64::from(i) / 20.0).collect();
            for tolerance in [1e-3, 1e-5, 1e-7] {
                for stop_at_outputs in [false, true] {
                    for controller in [
                        Controller::new(tolerance, tolerance),
                        Controller::scipy(tolerance, tolerance),
                        Controller {
                            proportional: 0.4,
                            integral: 0.3,
                            ..Controller::new(tolerance, tolerance)
                        },
                    ] {
                        let steps = Steps::Adaptive(Controller { stop_at_outputs, ..controller });
                        let initial = (problem.exact)(start);
                        let solution = integrate(&problem, &method, start, &initial, &times, steps).unwrap();
                        for (i, &t) in times.iter().enumerate() {
                            // Local errors of the size of the tolerance accumulate over a few dozen steps.
                            let error = distance(solution.state(i), &(problem.exact)(t));
                            assert!(error < 50.0 * tolerance, "{} {} {error}", method.name, problem.name);
                        }
                        assert!(!stop_at_outputs || solution.steps >= 20);
                    }
                }
            }
        }
    }
}

#[test]
fn costs_are_counted() {
    let times: Vec<f64> = (0..=10).map(f64::from).collect();
    let cost = |method: &Tableau, steps: Steps| {
        let evaluations = std::cell::Cell::new(0);
        let field = |_: f64, u: &[f64], out: &mut [f64]| {
            evaluations.set(evaluations.get() + 1);
            out[0] = -0.1 * u[0];
        };
        let solution = integrate(&field, method, 0.0, &[1.0], &times, steps).unwrap();
        assert_eq!(solution.evaluations, evaluations.get(), "{}", method.name);
        (solution.steps, solution.evaluations)
    };
    assert_eq!(cost(&EULER, Steps::PerInterval(3)), (30, 30));
    assert_eq!(cost(&HEUN, Steps::PerInterval(3)), (30, 60));
    assert_eq!(cost(&RK4, Steps::PerInterval(3)), (30, 120));
    assert_eq!(cost(&DOPRI5, Steps::PerInterval(3)), (30, 181));
    assert_eq!(cost(&TSIT5, Steps::PerInterval(3)), (30, 181));
    assert_eq!(cost(&RK4, Steps::Fixed { step: 0.1 }), (100, 400));
    assert_eq!(cost(&RK4, Steps::Fixed { step: 0.3 }), (40, 160));
    assert_eq!(cost(&RK4, Steps::Fixed { step: 100.0 }), (10, 40));
    // Fewer steps than outputs: dense output needs no evaluation.
    assert_eq!(cost(&RK4, Steps::Total(4)), (4, 16));
    assert_eq!(cost(&RK4, Steps::Total(10)), (10, 40));
    for method in [HEUN, DOPRI5, TSIT5] {
        cost(&method, adaptive(1e-6));
    }
}

#[test]
fn outputs_may_start_at_the_start_and_repeat() {
    for method in Tableau::ALL {
        for steps in [Steps::PerInterval(2), Steps::Fixed { step: 0.1 }, Steps::Total(7), adaptive(1e-6)] {
            if matches!(steps, Steps::Adaptive(_)) && !method.estimates_error() {
                continue;
            }
            for sign in [1.0, -1.0] {
                let times = [0.0, 0.0, 0.5, 0.5, 0.8].map(|t| sign * t);
                let solution = integrate(&DECAY, &method, 0.0, &[1.0], &times, steps).unwrap();
                assert_eq!((solution.state(0), solution.state(1)), (&[1.0][..], &[1.0][..]));
                assert_eq!(solution.state(2), solution.state(3));
                assert_eq!(solution.times, times);
                let nothing = integrate(&DECAY, &method, 0.0, &[1.0], &[0.0], steps).unwrap();
                assert_eq!((nothing.states, nothing.evaluations), (vec![1.0], 0));
            }
            let empty = integrate(&DECAY, &method, 0.0, &[1.0], &[], steps).unwrap();
            assert!(empty.states.is_empty());
            let stateless = |_: f64, _: &[f64], _: &mut [f64]| ();
            assert!(integrate(&stateless, &method, 0.0, &[], &[1.0], steps).is_ok());
        }
    }
}

/// With fixed steps the states at output times are those of a stepper that steps exactly to them.
#[test]
fn output_times_are_hit_exactly() {
    let times = [0.1, 0.25, 1.0 / 3.0, 0.7];
    let solution =
        integrate(&Lorenz::default(), &RK4, 0.0, &[1.0, 2.0, 3.0], &times, Steps::PerInterval(1)).unwrap();
    let mut stepper = Stepper::new(&RK4, 0.0, &[1.0, 2.0, 3.0]);
    for (i, &t) in times.iter().enumerate() {
        stepper.step(&Lorenz::default(), t);
        assert_eq!((stepper.time(), stepper.state()), (t, solution.state(i)));
    }
}

#[test]
fn bad_input_is_refused() {
    let steps = Steps::PerInterval(1);
    let run =
        |t0, u0: &[f64], times: &[f64], steps| integrate(&DECAY, &TSIT5, t0, u0, times, steps).unwrap_err();
    assert!(matches!(run(f64::NAN, &[1.0], &[1.0], steps), OdeError::InitialTime(_)));
    assert!(matches!(run(0.0, &[f64::NAN], &[1.0], steps), OdeError::InitialState { index: 0, .. }));
    assert!(matches!(run(0.0, &[1.0], &[1.0, f64::NAN], steps), OdeError::OutputTimes { index: 1, .. }));
    assert!(matches!(run(0.0, &[1.0], &[1.0, f64::INFINITY], steps), OdeError::OutputTimes { index: 1, .. }));
    assert!(matches!(run(0.0, &[1.0], &[1.0, 0.5, 2.0], steps), OdeError::OutputTimes { index: 1, .. }));
    let turned = run(0.0, &[1.0], &[-1.0, 1.0], steps);
    assert_eq!(
        turned.to_string(),
        "output time 0 is `-1` after `0`; times must be finite and in one direction from `0`"
    );
    assert!(turned.hint().unwrap().contains("two calls"));
    for step in [0.0, -1.0, f64::NAN] {
        assert!(matches!(run(0.0, &[1.0], &[1.0], Steps::Fixed { step }), OdeError::InvalidStep(_)));
    }
    assert_eq!(run(0.0, &[1.0], &[1.0], Steps::PerInterval(0)), OdeError::NoSteps);
    assert_eq!(run(0.0, &[1.0], &[1.0], Steps::Total(0)), OdeError::NoSteps);
    assert!(matches!(run(0.0, &[1.0], &[1.0], adaptive(0.0)), OdeError::InvalidTolerance { .. }));
    let fixed_only = integrate(&DECAY, &RK4, 0.0, &[1.0], &[1.0], adaptive(1e-3)).unwrap_err();
    assert_eq!(fixed_only, OdeError::NoErrorEstimate("rk4"));
    assert!(fixed_only.hint().unwrap().contains("tsit5"));
}

#[test]
fn nothing_loops_for_ever() {
    // A singularity at t = 1: the error names a time close to it, from either kind of step.
    for method in [HEUN, DOPRI5, TSIT5] {
        let error = integrate(&blow_up, &method, 0.0, &[1.0], &[2.0], adaptive(1e-8)).unwrap_err();
        let time = error.time_reached().unwrap();
        assert!((time - 1.0).abs() < 1e-3, "{}: {error}", method.name);
        assert!(error.to_string().contains("reached t = "), "{error}");
    }
    for method in Tableau::ALL {
        let error =
            integrate(&blow_up, &method, 0.0, &[1.0], &[9.0], Steps::Fixed { step: 0.01 }).unwrap_err();
        assert!(matches!(error, OdeError::Diverged { time } if time > 0.99 && time < 1.3), "{}", method.name);
    }
    // Stiff: steps stay small until their limit is reached.
    let stiff = |_: f64, u: &[f64], out: &mut [f64]| out[0] = -1e9 * (u[0] - 1.0);
    let error = integrate(&stiff, &TSIT5, 0.0, &[0.0], &[100.0], adaptive(1e-6)).unwrap_err();
    assert!(matches!(error, OdeError::TooManySteps { target: 100.0, limit: 100_000, .. }), "{error}");
    assert!(error.hint().unwrap().contains("stiff"));
    // A field that is NaN, from the start or later.
    let nowhere = |_: f64, _: &[f64], out: &mut [f64]| out[0] = f64::NAN;
    let later = |t: f64, _: &[f64], out: &mut [f64]| out[0] = (0.5 - t).sqrt();
    for steps in [adaptive(1e-6), Steps::PerInterval(100)] {
        let error = integrate(&nowhere, &DOPRI5, 0.0, &[0.0], &[1.0], steps).unwrap_err();
        assert_eq!(error, OdeError::Diverged { time: 0.0 });
        let error = integrate(&later, &DOPRI5, 0.0, &[0.0], &[1.0], steps).unwrap_err();
        assert!((error.time_reached().unwrap() - 0.5).abs() < 0.02, "{error}");
    }
    // Steps below the resolution of time.
    let error = integrate(&DECAY, &RK4, 1e9, &[1.0], &[1e9 + 1.0], Steps::Fixed { step: 1e-12 }).unwrap_err();
    assert!(matches!(error, OdeError::StepTooSmall { time: 1e9, .. }), "{error}");
    let error = integrate(&DECAY, &RK4, 0.0, &[1.0], &[1.0], Steps::Fixed { step: 1e-12 }).unwrap_err();
    assert!(matches!(error, OdeError::TooManySteps { time: 0.0, target: 1.0, .. }), "{error}");
    // A state that overflows although the field is bounded.
    let steep = |_: f64, _: &[f64], out: &mut [f64]| out[0] = 1e306;
    let error = integrate(&steep, &TSIT5, 0.0, &[0.0], &[1e6], adaptive(1e-3)).unwrap_err();
    assert!(error.time_reached().unwrap() <= 200.0, "{error}");
}

/// Two half steps of RK4 as one method of eight stages: tableaus of any size need no other code.
const TWICE_RK4: Tableau = {
    const SIXTH: f64 = 1.0 / 6.0;
    const TWELFTH: f64 = 1.0 / 12.0;
    Tableau {
        name: "twice-rk4",
        order: 4,
        c: &[0.0, 0.25, 0.25, 0.5, 0.5, 0.75, 0.75, 1.0],
        a: &[
            &[],
            &[0.25],
            &[0.0, 0.25],
            &[0.0, 0.0, 0.5],
            &[TWELFTH, SIXTH, SIXTH, TWELFTH],
            &[TWELFTH, SIXTH, SIXTH, TWELFTH, 0.25],
            &[TWELFTH, SIXTH, SIXTH, TWELFTH, 0.0, 0.25],
            &[TWELFTH, SIXTH, SIXTH, TWELFTH, 0.0, 0.0, 0.5],
        ],
        b: &[TWELFTH, SIXTH, SIXTH, TWELFTH, TWELFTH, SIXTH, SIXTH, TWELFTH],
        error: &[TWELFTH, SIXTH, SIXTH, TWELFTH, TWELFTH, SIXTH, SIXTH, TWELFTH],
        error_order: 1,
        // The cubic through both ends, with the first slope and, in the middle, that of the fifth stage.
        dense: &[
            &[1.0, -1.0 - 0.25, 2.0 * SIXTH],
            &[0.0, -0.5, 4.0 * SIXTH],
            &[0.0, -0.5, 4.0 * SIXTH],
            &[0.0, -0.25, 2.0 * SIXTH],
            &[0.0, 4.0 - 0.25, 2.0 * SIXTH - 4.0],
            &[0.0, -0.5, 4.0 * SIXTH],
            &[0.0, -0.5, 4.0 * SIXTH],
            &[0.0, -0.25, 2.0 * SIXTH],
        ],
        dense_order: 3,
        first_same_as_last: false,
    }
};

#[test]
fn tables_of_any_size_work() {
    let initial = [1.0, 2.0, 3.0];
    let lorenz = Lorenz::default();
    let once = integrate(&lorenz, &TWICE_RK4, 0.0, &initial, &[0.1, 0.2], Steps::PerInterval(1)).unwrap();
    let twice = integrate(&lorenz, &RK4, 0.0, &initial, &[0.1, 0.2], Steps::PerInterval(2)).unwrap();
    assert!(distance(&once.states, &twice.states) < 1e-13);
    assert_eq!(once.evaluations, twice.evaluations);
    let mut stepper = Stepper::new(&TWICE_RK4, 0.0, &initial);
    stepper.attempt(&lorenz, 0.02);
    // Its error weights are those of the state, so the "error" is the whole step.
    let squares = stepper.next_state().iter().zip(initial).map(|(new, old)| (new - old).powi(2));
    assert!((stepper.error(0.0, 1.0) - (squares.sum::<f64>() / 3.0).sqrt()).abs() < 1e-13);
    let mut between = initial;
    stepper.interpolate(0.01, &mut between);
    // The error of a cubic is h^4 / 384 of the fourth derivative, about 1e5 here.
    assert!(distance(&between, &close_state(&lorenz, &initial)) < 1e-4);
}

/// An accurate Lorenz state at t = 0.01.
fn close_state(lorenz: &Lorenz, initial: &[f64]) -> Vec<f64> {
    integrate(lorenz, &TSIT5, 0.0, initial, &[0.01], adaptive(1e-10)).expect("Lorenz is tame").states
}

/// A given first step is used, within the limit on steps; steps end at outputs only if requested.
#[test]
fn first_step_and_outputs_are_honoured() {
    let lengths = |controller: Controller, outputs: &[f64]| {
        let times = std::cell::RefCell::new(Vec::new());
        let field = |t: f64, u: &[f64], out: &mut [f64]| {
            times.borrow_mut().push(t);
            out[0] = -u[0];
        };
        let solution = integrate(&field, &TSIT5, 0.0, &[1.0], outputs, Steps::Adaptive(controller)).unwrap();
        // The last stage of a step is at its end.
        (times.into_inner()[6], solution.steps)
    };
    let loose = Controller::new(1e-1, 1e-1);
    let short = Controller { first_step: Some(1e-3), ..loose };
    assert_eq!(lengths(short, &[1.0]).0, 1e-3);
    assert_eq!(lengths(Controller { max_step: 1e-4, max_steps: 1 << 20, ..short }, &[1.0]).0, 1e-4);
    let outputs: Vec<f64> = (1..=50).map(|i| f64::from(i) / 50.0).collect();
    assert!(lengths(loose, &outputs).1 < 10);
    assert!(lengths(Controller { stop_at_outputs: true, ..loose }, &outputs).1 >= 50);
}

/// The limit on the step holds, also where the error would allow more.
#[test]
fn longest_step_is_kept() {
    let controller = Controller { max_step: 0.1, ..Controller::new(1e-2, 1e-2) };
    let solution = integrate(&DECAY, &TSIT5, 0.0, &[1.0], &[10.0], Steps::Adaptive(controller)).unwrap();
    assert!(solution.steps >= 100 && solution.steps < 110, "{}", solution.steps);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// A run with more outputs takes the same steps and ends in the same state.
    #[test]
    fn outputs_do_not_disturb_adaptive_steps(mut inner in prop::collection::vec(0.0..5.0_f64, 0..20)) {
        inner.sort_by(f64::total_cmp);
        inner.push(5.0);
        for method in [DOPRI5, TSIT5] {
            let run = |times: &[f64]| {
                integrate(&Lorenz::default(), &method, 0.0, &[1.0, 1.0, 1.0], times, adaptive(1e-6)).unwrap()
            };
            let (few, many) = (run(&[5.0]), run(&inner));
            prop_assert_eq!(few.state(0), many.state(inner.len() - 1));
            prop_assert_eq!((few.steps, few.evaluations), (many.steps, many.evaluations));
        }
    }

    /// The origin, unit and direction of time do not matter: with `t -> c t` and `f -> f / c` the states are equal.
    /// Powers of two are exact.
    #[test]
    fn time_may_be_scaled_and_reversed(exponent in -20..20_i32, negative: bool, count in 1..30_usize) {
        let scale = if negative { -1.0 } else { 1.0 } * 2.0_f64.powi(exponent);
        let plain = |_: f64, u: &[f64], out: &mut [f64]| Lorenz::default().velocity(0.0, u, out);
        let scaled = |_: f64, u: &[f64], out: &mut [f64]| {
            Lorenz::default().velocity(0.0, u, out);
            out.iter_mut().for_each(|x| *x /= scale);
        };
        let times: Vec<f64> = (1..=4).map(|i| f64::from(i) * 0.125).collect();
        let scaled_times: Vec<f64> = times.iter().map(|t| t * scale).collect();
        let steps = Steps::PerInterval(count);
        for method in Tableau::ALL {
            let initial = [1.0, -2.0, 15.0];
            let a = integrate(&plain, &method, 0.0, &initial, &times, steps).unwrap();
            let b = integrate(&scaled, &method, 0.0, &initial, &scaled_times, steps).unwrap();
            prop_assert_eq!(a.states, b.states);
        }
    }

    /// Results of a reused integrator do not depend on its earlier states.
    #[test]
    fn reuse_leaves_no_trace(lengths in prop::collection::vec(1..40_usize, 1..6)) {
        let field = |t: f64, u: &[f64], out: &mut [f64]| {
            for (i, (out, u)) in out.iter_mut().zip(u).enumerate() {
                *out = -u * (i as f64 * 0.1) + t.sin();
            }
        };
        for (method, steps) in [(RK4, Steps::Total(3)), (TSIT5, adaptive(1e-5)), (HEUN, Steps::PerInterval(2))] {
            let mut integrator = Integrator::new(&method, steps);
            for &length in &lengths {
                let initial: Vec<f64> = (0..length).map(|i| (i as f64).cos()).collect();
                let fresh = integrate(&field, &method, -1.0, &initial, &[0.3, 1.0], steps).unwrap();
                let mut states = Vec::new();
                let counts = integrator
                    .integrate(&field, -1.0, &initial, &[0.3, 1.0], |_, u| states.extend_from_slice(u))
                    .unwrap();
                prop_assert_eq!(states, fresh.states);
                prop_assert_eq!(counts.evaluations, fresh.evaluations);
            }
        }
    }
}
