//! The split of a run's trajectories, which is reproducible whenever its file is opened.

use std::path::{Path, PathBuf};

use cfo::data::store::{TrajectoryWriter, WriteOptions};
use cfo::data::{Split, Trajectory};
use cfo::training::TrainingData;
use cfo::{Recipe, Trajectories};

use crate::util::{described, oscillators, recipe, trained};

fn with_keys(keys: &[&str]) -> Recipe {
    let keys: Vec<String> = keys.iter().map(|key| (*key).to_owned()).collect();
    Recipe::parse(&recipe(20).to_toml().unwrap(), &keys).unwrap()
}

fn written(folder: &Path, name: &str, trajectories: &[Trajectory], split: Option<Split>) -> PathBuf {
    let path = folder.join(name);
    let set = oscillators(1);
    let mut writer = TrajectoryWriter::create(&path, &set.description, WriteOptions::default()).unwrap();
    trajectories.iter().for_each(|trajectory| writer.push(trajectory, split).unwrap());
    writer.finish().unwrap();
    path
}

/// Returns the part and the first value of each trajectory.
fn parts(set: &mut Trajectories) -> Vec<(Split, f32)> {
    set.load(&Split::ALL).unwrap();
    set.splits.iter().copied().zip(set.trajectories.iter().map(|one| one.values[0])).collect()
}

#[test]
fn a_run_is_tested_on_what_it_did_not_train_on() {
    let folder = tempfile::tempdir().unwrap();
    let all = oscillators(30).trajectories;
    let path = written(folder.path(), "plain.h5", &all, None);
    let mut orders = Vec::new();
    for (keys, counts) in [
        (&["data.split=[10,5,12]"][..], [10, 5, 12]),
        (&["data.split=[0.5,0.2,0.3]"], [15, 6, 9]),
        (&["data.split=[0.5,0.2,0.3]", "data.shuffle=true"], [15, 6, 9]),
        (&["data.split=[10,5,12]", "data.shuffle=true", "data.seed=4"], [10, 5, 12]),
        (&["data.shuffle=true", "train.seed=4"], [24, 3, 3]),
        (&[], [24, 3, 3]),
    ] {
        let recipe = with_keys(keys);
        let mut opened = Trajectories::open_by(&recipe, &path).unwrap();
        let found = Split::ALL.map(|split| opened.part(split).count());
        assert_eq!(found, counts, "{keys:?}");
        let before = TrainingData::fingerprint(&recipe, &opened).unwrap();
        let parts_of_training = parts(&mut opened);
        assert_eq!(
            parts_of_training,
            parts(&mut Trajectories::open_for_run(&recipe, &path).unwrap()),
            "{keys:?}"
        );
        // Training must not depend on the test data: the fingerprint is unchanged if they change.
        let tested: Vec<f32> = opened.part(Split::Test).map(|(_, trajectory)| trajectory.values[0]).collect();
        let mut spoilt = all.clone();
        for trajectory in spoilt.iter_mut().filter(|one| tested.contains(&one.values[0])) {
            trajectory.values.fill(7.0);
        }
        let spoilt = written(folder.path(), &format!("spoilt-{}.h5", orders.len()), &spoilt, None);
        let spoilt = Trajectories::open_by(&recipe, &spoilt).unwrap();
        assert_eq!(TrainingData::fingerprint(&recipe, &spoilt).unwrap(), before, "{keys:?}");
        orders.push(tested);
    }
    assert_ne!(orders[1], orders[2], "shuffled");
}

#[test]
fn a_files_own_parts_hold_where_the_run_has_none_or_simulated_its_data() {
    let folder = tempfile::tempdir().unwrap();
    let all = oscillators(12).trajectories;
    let path = written(folder.path(), "named.h5", &all, Some(Split::Test));
    let count = |recipe: &Recipe| {
        let set = Trajectories::open_for_run(recipe, &path).unwrap();
        Split::ALL.map(|split| set.part(split).count())
    };
    assert_eq!(count(&with_keys(&[])), [0, 0, 12]);
    assert_eq!(count(&with_keys(&["data.split=[6,3,3]"])), [6, 3, 3]);
    assert_eq!(count(&with_keys(&["data.split=[6,3,3]", "data.simulate=lorenz"])), [0, 0, 12]);
    // A split that does not fit belongs to another file.
    assert_eq!(count(&with_keys(&["data.split=[600,3,3]"])), [0, 0, 12]);
    let recipe = with_keys(&["data.split=[600,3,3]"]);
    assert!(Trajectories::open_by(&recipe, &path).unwrap_err().to_string().contains("606"));
}

#[test]
fn data_and_training_have_seeds_of_their_own() {
    let set = oscillators(12);
    let of = |keys: &[&str]| TrainingData::fingerprint(&with_keys(keys), &set).unwrap();
    let thinned = "data.keep_rate=0.5";
    assert_eq!(of(&[thinned]), of(&[thinned, "data.seed=0"]));
    assert_eq!(of(&[thinned, "train.seed=3"]), of(&[thinned, "data.seed=3"]));
    assert_eq!(of(&[thinned, "train.seed=3", "data.seed=0"]), of(&[thinned]));
    assert_ne!(of(&[thinned]), of(&[thinned, "data.seed=1"]));
}

/// Checks that times are held out if there are too few trajectories: the first times are for training, the last for test.
#[test]
fn one_long_trajectory_is_cut_in_time() {
    let times: Vec<f64> = (0..200).map(|k| f64::from(k) * 0.05).collect();
    let values = times.iter().flat_map(|t| [t.sin() as f32, t.cos() as f32]).collect();
    let one = Trajectory::new(times.clone(), values, vec![]).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let path = written(folder.path(), "one.h5", std::slice::from_ref(&one), None);
    let recipe = with_keys(&["train.validate_every=10"]);
    let mut set = Trajectories::open_by(&recipe, &path).unwrap();
    let lengths: Vec<(Split, usize)> =
        set.splits.iter().copied().zip(set.trajectories.iter().map(|one| one.times.len())).collect();
    assert_eq!(lengths, [(Split::Train, 160), (Split::Validation, 20), (Split::Test, 20)]);
    let streamed = trained(&recipe, &set, None, false).unwrap();
    set.load(&Split::ALL).unwrap();
    assert_eq!(*set.trajectories[2].times, times[180..]);
    assert_eq!(set.trajectories[2].values, one.values[360..]);
    let loaded = trained(&recipe, &set, None, false).unwrap();
    assert!(streamed.loss() == loaded.loss() && streamed.model().scaling.last() == times[159]);
    // A set that the caller created keeps its split.
    assert_eq!(described(2, vec![one]).splits, [Split::Train]);
}
