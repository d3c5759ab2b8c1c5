//! Units of the network, which are measured on the data that training uses.

use cfo::data::{Split, Trajectory, thin};
use cfo::numerics::{DrawBy, Philox};
use cfo::scaling::Scaling;
use cfo::{Device, Model, Recipe, Trained, Trajectories};
use proptest::prelude::*;

use crate::util::{described, recipe, trained};

fn with_keys(steps: u32, keys: &[&str]) -> Recipe {
    let keys: Vec<String> = keys.iter().map(|key| (*key).to_owned()).collect();
    Recipe::parse(&recipe(steps).to_toml().unwrap(), &keys).unwrap()
}

fn scaling(set: &Trajectories, keys: &[&str]) -> Scaling {
    Model::new(&with_keys(1, keys), set).unwrap().scaling
}

/// Returns trajectories of two channels, each at other irregular times.
fn ragged(seed: u64, count: usize) -> Trajectories {
    let trajectories = (0..count).map(|i| {
        let mut random = Philox::new(seed, i as u64);
        let frames = 4 + random.below(12) as usize;
        let mut time = random.uniform_between(-3.0, 3.0);
        let mut times = Vec::new();
        for _ in 0..frames {
            time += random.uniform_between(0.05, 0.4);
            times.push(time);
        }
        let values = (0..2 * frames).map(|i| (1e-3 * random.normal() + (i % 2) as f64) as f32).collect();
        Trajectory::new(times, values, vec![]).unwrap()
    });
    described(2, trajectories.collect())
}

/// Returns the mean square of the velocity at many points of each training trajectory, weighted as by the sampler.
fn sampled(set: &Trajectories, recipe: &Recipe, scaling: &Scaling, channel: usize) -> f64 {
    const EACH: usize = 4000;
    let path = recipe.path.path();
    let (mut sum, mut trajectories) = (0.0, 0);
    for (i, trajectory) in set.part(Split::Train) {
        let first = usize::from(recipe.data.drop_first);
        let kept = thin::kept(trajectory.times.len() - first, recipe.data.keep_rate, recipe.train.seed, i);
        let times: Vec<f64> = kept.iter().map(|&k| scaling.time(trajectory.times[first + k])).collect();
        let span = times[times.len() - 1] - times[0];
        for sample in 0..EACH {
            let share = (sample as f64 + 0.5) / EACH as f64;
            let place = share * (times.len() - 1) as f64;
            let time = match recipe.path.draw {
                DrawBy::Time => times[0] + span * share,
                DrawBy::Interval => {
                    let pair = &times[place as usize..][..2];
                    pair[0] + (pair[1] - pair[0]) * place.fract()
                }
                DrawBy::Snapshot => times[(share * times.len() as f64) as usize],
            };
            let weights = path.weights(&times, time);
            let term =
                |(w, k): (&f64, usize)| w * f64::from(trajectory.values[2 * (first + kept[k]) + channel]);
            let velocity: f64 = weights.velocity().iter().zip(weights.range()).map(term).sum();
            sum += (velocity / scaling.deviation[channel]).powi(2) / EACH as f64;
        }
        trajectories += 1;
    }
    sum / f64::from(trajectories)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]
    #[test]
    fn the_scale_is_the_root_mean_square_of_what_is_drawn(
        seed: u64, choice in 0usize..3, draw in 0usize..3, drop_first: bool, timed: bool, keep_rate in 0.4..1.0f64, clock in prop::option::of(1e-3..1.0f64),
    ) {
        let set = ragged(seed, 7);
        let path = ["path.spline=linear", "path.spline=cubic", "path.stencil=5"][choice];
        let mut keys = vec![
            path.to_owned(), ["path.draw=times", "path.draw=intervals", "path.draw=snapshots"][draw].to_owned(), format!("data.drop_first={drop_first}"), format!("data.keep_rate={keep_rate}"),
            format!("operator.time={timed}"), "data.normalize=range".into(),
        ];
        // Time is an input of a network with a clock.
        keys.extend(clock.filter(|_| timed).map(|half| format!("path.clock={half}")));
        let recipe = Recipe::parse(&recipe(1).to_toml().unwrap(), &keys).unwrap();
        let scaling = Model::new(&recipe, &set).unwrap().scaling;
        for channel in 0..2 {
            let found = scaling.velocity[channel].powi(2);
            let expected = sampled(&set, &recipe, &scaling, channel);
            // Midpoints have a distance of 1/4000 of a trajectory. A linear path's velocity jumps at up to 15 knots, and each jump affects
            // at most one midpoint.
            let bound = if choice == 0 { 15.0 / 4000.0 * 10.0 } else { 1e-3 };
            prop_assert!((found / expected - 1.0).abs() < bound, "{found} {expected}");
        }
    }
}

#[test]
fn the_number_of_threads_does_not_matter() {
    let set = ragged(3, 40);
    let found = [1, 2, 5].map(|threads| {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
        pool.install(|| scaling(&set, &["data.keep_rate=0.7"]))
    });
    assert!(found[0] == found[1] && found[1] == found[2]);
}

/// Checks that a dropped first snapshot with other values at another time has no effect.
#[test]
fn a_dropped_first_snapshot_is_not_measured() {
    let set = ragged(8, 20);
    let spoilt = set.trajectories.iter().map(|trajectory| {
        let (mut times, mut values) = (trajectory.times.to_vec(), trajectory.values.clone());
        times.insert(0, times[0] - 100.0);
        values.splice(0..0, [1e6, -1e6]);
        Trajectory::new(times, values, vec![]).unwrap()
    });
    let spoilt = described(2, spoilt.collect());
    for keys in
        [&[][..], &["data.normalize=range"], &["data.normalize=center"], &["objective.kind=autoregressive"]]
    {
        let dropped: Vec<&str> = keys.iter().copied().chain(["data.drop_first=true"]).collect();
        assert_eq!(scaling(&spoilt, &dropped), scaling(&set, keys), "{keys:?}");
    }
}

#[test]
fn thinned_away_snapshots_are_not_measured() {
    let set = ragged(8, 20);
    let recipe = with_keys(1, &["data.keep_rate=0.5"]);
    let mut spoilt = set.trajectories.clone();
    for (i, trajectory) in spoilt.iter_mut().enumerate() {
        let kept = thin::kept(trajectory.times.len(), 0.5, recipe.train.seed, i);
        for (frame, values) in trajectory.values.chunks_mut(2).enumerate() {
            if !kept.contains(&frame) {
                values.fill(1e9);
            }
        }
    }
    let spoilt = described(2, spoilt);
    assert_eq!(Model::new(&recipe, &spoilt).unwrap().scaling, Model::new(&recipe, &set).unwrap().scaling);
}

#[test]
fn channels_that_do_not_move_keep_their_size_and_the_scale_can_be_left_out() {
    let mut set = ragged(1, 10);
    for trajectory in &mut set.trajectories {
        trajectory.values.iter_mut().step_by(2).for_each(|value| *value = 0.1);
    }
    let found = scaling(&set, &[]);
    assert_eq!((found.velocity[0], found.change[0]), (1.0, 1.0));
    assert!(found.velocity[1] > 1.0);
    let off = scaling(&set, &["path.unit=state"]);
    assert_eq!(off, Scaling { velocity: vec![], ..found });
    assert!(scaling(&set, &["objective.kind=autoregressive", "operator.time=true"]).velocity.is_empty());
}

#[test]
fn ranges_become_the_unit_interval() {
    let set = ragged(5, 10);
    let found = scaling(&set, &["data.normalize=range"]);
    let trained = set.part(Split::Train).flat_map(|(_, trajectory)| found.normalize(&trajectory.values));
    let values: Vec<f32> = trained.collect();
    for channel in 0..2 {
        let own = || values.iter().skip(channel).step_by(2).copied();
        assert_eq!((own().fold(1.0, f32::min), own().fold(0.0, f32::max)), (0.0, 1.0));
    }
}

#[test]
fn centred_values_keep_their_unit() {
    let set = ragged(5, 10);
    let (centred, standard) = (scaling(&set, &["data.normalize=center"]), scaling(&set, &[]));
    assert_eq!((&centred.mean, &centred.deviation), (&standard.mean, &vec![1.0; 2]));
    for channel in 0..2 {
        let unit = standard.deviation[channel];
        let close = |found: f64, expected: f64| (found / expected - 1.0).abs() < 1e-12;
        assert!(close(centred.velocity[channel], standard.velocity[channel] * unit));
        assert!(close(centred.change[channel], standard.change[channel] * unit));
    }
}

/// Returns data with ninety turns over the horizon: velocities of 565 in units of deviation and horizon.
fn turning() -> Trajectories {
    let trajectories = (0..20).map(|i| {
        let phase = Philox::new(2, i).uniform_between(0.0, std::f64::consts::TAU);
        let times: Vec<f64> = (0..=2000).map(|k| f64::from(k) * 1.5e-3).collect();
        let values: Vec<f32> = times
            .iter()
            .flat_map(|t| {
                let angle = 188.5 * t + phase;
                [angle.cos() as f32, angle.sin() as f32]
            })
            .collect();
        Trajectory::new(times, values, vec![]).unwrap()
    });
    described(2, trajectories.collect())
}

#[test]
fn huge_velocities_are_learnt_and_the_loss_is_relative() {
    let set = turning();
    let keys = ["train.report_every=400", "train.batch=64"];
    let scaled = trained(&with_keys(400, &keys), &set, None, false).unwrap();
    let expected = 188.5 * 3.0;
    for &scale in &scaled.model().scaling.velocity {
        // A uniformly sampled sine has a deviation of its amplitude over the square root of 2, and so has its velocity.
        assert!((scale / expected - 1.0).abs() < 0.01, "{scale}");
    }
    // The mean over 400 steps, including the first ones.
    assert!(scaled.loss() < 0.2, "loss {}", scaled.loss());
    let off: Vec<&str> = keys.into_iter().chain(["path.unit=state"]).collect();
    let unscaled = trained(&with_keys(400, &off), &set, None, false).unwrap();
    let relative = unscaled.loss() / (expected * expected);
    assert!(relative > 3.0 * scaled.loss(), "{relative} without the scale, {} with it", scaled.loss());
    // One step with a tiny learning rate shows the loss of random weights.
    let first = trained(&with_keys(1, &["train.learning_rate=1e-12"]), &set, None, false).unwrap();
    assert!((0.5..2.0).contains(&first.loss()), "loss {}", first.loss());
}

/// Loads the latest checkpoint of a run.
fn loaded(run: &std::path::Path) -> Trained {
    Trained::loader(run).checkpoint("latest").device(Device::Cpu).load().unwrap()
}

/// Returns data with two components that decay at rates 40 and 0.5 from random values. The speed decreases by a factor of a hundred.
fn decaying() -> Trajectories {
    let trajectories = (0..24).map(|i| {
        let mut random = Philox::new(4, i);
        let sizes: [f64; 2] = std::array::from_fn(|_| random.uniform_between(0.5, 2.0));
        let times: Vec<f64> = (0..=100).map(|k| 0.03 * (f64::from(k) / 100.0).powi(2) * 100.0).collect();
        let values: Vec<f32> = times
            .iter()
            .flat_map(|t| {
                let slow = sizes[1] * (-0.5 * t).exp();
                [sizes[0] * (-40.0 * t).exp() + slow, slow].map(|value| value as f32)
            })
            .collect();
        Trajectory::new(times, values, vec![]).unwrap()
    });
    described(2, trajectories.collect())
}

#[test]
fn speeds_that_fall_over_time_are_balanced_and_survive_a_checkpoint() {
    let (set, folder) = (decaying(), tempfile::tempdir().unwrap());
    let keys = ["path.unit=0.5", "operator.time=true", "train.batch=256"];
    // A network with random weights and small output has about the loss of a network whose output is 0.
    let still: Vec<&str> = keys.into_iter().chain(["train.learning_rate=1e-12"]).collect();
    for draw in ["path.draw=intervals", "path.draw=snapshots"] {
        let keys: Vec<&str> = still.iter().copied().chain([draw]).collect();
        let loss = trained(&with_keys(1, &keys), &set, None, false).unwrap().loss();
        assert!((0.5..2.0).contains(&loss), "{draw}: loss {loss}");
    }
    let first = trained(&with_keys(1, &still), &set, None, false).unwrap();
    assert!((0.5..2.0).contains(&first.loss()), "loss {}", first.loss());
    let run = folder.path().join("run");
    let found = trained(&with_keys(600, &keys), &set, Some(&run), false).unwrap();
    assert!(found.loss() < 0.05 * first.loss(), "loss {} after {}", found.loss(), first.loss());
    let loaded = loaded(&run);
    assert_eq!(loaded.model().scaling, found.model().scaling);
    assert!(loaded.model().scaling.profile.is_some());
    assert!(scaling(&set, &keys[1..]).profile.is_none(), "only if it is set");
    let refused = |keys: &[&str]| {
        let keys: Vec<String> = keys.iter().map(|key| (*key).to_owned()).collect();
        Recipe::parse("", &keys).unwrap_err().to_string()
    };
    assert!(refused(&["path.unit=1.5"]).contains("[0, 1]"));
    let untimed = refused(&["path.unit=0.5", "operator.kind=mlp", "operator.time=false"]);
    assert!(untimed.contains("operator.time"), "{untimed}");
}
