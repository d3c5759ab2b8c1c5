//! The miss of an evaluation against predictions of single intervals.

use cfo::data::Trajectory;
use cfo::{Budget, Report, Solver, Trained, Trajectories, Watch};

use crate::util::{described, oscillators, recipe, trained};

/// Returns rotations with equal times and a third channel that is constant.
fn rotations(count: usize) -> Trajectories {
    let rotation = |i: usize| {
        let times: Vec<f64> = (0..13).map(|frame| 0.1 * f64::from(frame)).collect();
        let state = |t: &f64| {
            let (sine, cosine) = (i as f64 * 2.4 + 1.5 * t).sin_cos();
            [cosine as f32, 3.0 * sine as f32, 1.5]
        };
        Trajectory::new(times.clone(), times.iter().flat_map(state).collect(), vec![]).unwrap()
    };
    described(3, (0..count).map(rotation).collect())
}

/// Returns a model after a few steps of training, with other keys of the recipe.
fn model(set: &Trajectories, sets: &[&str]) -> Trained {
    let sets: Vec<String> = sets.iter().map(|&set| set.to_owned()).collect();
    trained(&recipe(40).with(&sets).unwrap(), set, None, false).unwrap()
}

fn evaluation(trained: &Trained, set: &Trajectories) -> Report {
    trained.evaluate_each(&set.into(), true, Watch::default()).unwrap()
}

/// One interval: its end, and the squared error of each channel there.
struct Predicted {
    time: f64,
    squares: Vec<f64>,
}

/// Predicts each interval separately, with its share of a number of steps for the trajectory.
fn predicted(trained: &Trained, set: &Trajectories, steps: Option<usize>) -> Vec<Predicted> {
    let (size, first) = (set.description.shape.len(), usize::from(trained.recipe().data.drop_first));
    let mut found = Vec::new();
    for one in &set.trajectories {
        let whole = one.times[one.times.len() - 1] - one.times[first];
        for frame in first + 1..one.times.len() {
            let [from, to] = [one.times[frame - 1], one.times[frame]];
            let count = |steps: usize| (steps as f64 * (to - from) / whole).round().max(1.0) as usize;
            let solver = steps.map_or(trained.solver(), |steps| trained.solver().steps(count(steps)));
            let state = &one.values[(frame - 1) * size..frame * size];
            let reached = trained.with_solver(solver).predict(state, from, &[to]).unwrap();
            let goal = &one.values[frame * size..(frame + 1) * size];
            let squares = reached.state(0).iter().zip(goal).map(|(a, b)| f64::from(a - b).powi(2)).collect();
            found.push(Predicted { time: to, squares });
        }
    }
    found
}

/// Returns the root mean square of the channels with a deviation.
fn miss(intervals: &[&Predicted], deviations: &[f64]) -> (Vec<Option<f64>>, f64) {
    let channel = |(channel, &deviation): (usize, &f64)| {
        let sum: f64 = intervals.iter().map(|one| one.squares[channel]).sum();
        (deviation > 0.0).then(|| (sum / intervals.len() as f64).sqrt() / deviation)
    };
    let channels: Vec<Option<f64>> = deviations.iter().enumerate().map(channel).collect();
    let known: Vec<f64> = channels.iter().flatten().copied().collect();
    let mean = (known.iter().map(|miss| miss * miss).sum::<f64>() / known.len() as f64).sqrt();
    (channels, mean)
}

/// Asserts that a miss equals that of separate predictions, also over time if all trajectories share their times.
fn assert_is_that_of(report: &Report, intervals: &[Predicted], shared: bool, what: &str) {
    // Single precision: states have rounding errors of about 1e-7, and the misses are about 0.1.
    let near = |a: f64, b: f64| assert!((a - b).abs() <= 1e-5 * b, "{what}: {a} and {b}");
    let found = report.miss.as_ref().unwrap();
    let deviations: Vec<f64> = report.channels.iter().map(|channel| channel.deviation).collect();
    let (channels, mean) = miss(&intervals.iter().collect::<Vec<_>>(), &deviations);
    assert_eq!(found.channels.len(), channels.len());
    for (found, expected) in found.channels.iter().zip(channels) {
        assert_eq!(found.is_some(), expected.is_some(), "{what}");
        near(found.unwrap_or(1.0), expected.unwrap_or(1.0));
    }
    near(found.mean, mean);
    assert!(!shared || found.per_time.len() + 1 == report.per_time.len());
    for (at, expected) in found.per_time.iter().zip(&report.per_time[1..]).filter(|_| shared) {
        let there: Vec<&Predicted> =
            intervals.iter().filter(|one| (one.time - at.time).abs() < 1e-9).collect();
        assert!((at.time - expected.time).abs() < 1e-9);
        near(at.miss, miss(&there, &deviations).1);
    }
}

/// Checks the miss for steps per interval, a number of steps or evaluations per trajectory, and tolerances; at irregular times, and at
/// shared ones with a constant channel.
#[test]
fn the_miss_is_that_of_separate_predictions() {
    for (set, shared) in [(oscillators(9), false), (rotations(9), true)] {
        for drop_first in ["data.drop_first=false", "data.drop_first=true"] {
            let rk4 = model(&set, &[drop_first]).with_solver(Solver::rk4());
            let cases = [
                (Solver::rk4(), None),
                (Solver { budget: Budget::StepAtMost(0.03), ..Solver::rk4() }, None),
                // Tolerances far above rounding, which would change the steps.
                (Solver::tsit5(1e-3, 1e-3).unwrap(), None),
                (Solver::rk4().steps(50), Some(50)),
                (Solver::rk4().evaluations(200), Some(50)),
            ];
            for (solver, steps) in cases {
                let model = rk4.with_solver(solver);
                let what =
                    format!("{}, {drop_first}, {solver:?}", if shared { "rotations" } else { "oscillators" });
                assert_is_that_of(&evaluation(&model, &set), &predicted(&model, &set, steps), shared, &what);
            }
        }
    }
}

#[test]
fn models_with_fixed_steps_have_a_miss() {
    let set = rotations(9);
    for kind in ["autoregressive", "pde-refiner"] {
        let model = model(&set, &[&format!("objective.kind={kind}"), "operator.time=true"]);
        assert_is_that_of(&evaluation(&model, &set), &predicted(&model, &set, None), true, kind);
    }
}

#[test]
fn models_of_whole_trajectories_and_validations_have_no_miss() {
    let set = rotations(9);
    let generator = model(&set, &["objective.kind=conditional-flow-matching", "operator.time=true"]);
    assert!(evaluation(&generator, &set).miss.is_none());
    assert!(model(&set, &[]).evaluate(&set).unwrap().miss.is_none());
}

#[test]
fn of_many_trajectories_evenly_chosen_ones_contribute() {
    let many = rotations(128);
    let model = model(&many, &[]);
    let chosen: Vec<usize> = (0..64).map(|number| 2 * number).collect();
    let half = evaluation(&model, &many.subset(&chosen));
    assert_eq!(evaluation(&model, &many).miss, half.miss);
}
