//! Checks that streamed batches equal those of data in memory.

use cfo::data::Split;
use cfo::data::store::{TrajectoryWriter, WriteOptions};
use cfo::training::TrainingStep;
use cfo::{Device, Model, Recipe, Training, Trajectories};
use cfo_engine::{Data, Role};

use crate::util::{oscillators, recipe, trained};

/// Returns all weights of a run.
fn weights(recipe: &Recipe, set: &Trajectories) -> Vec<Vec<f32>> {
    let trained = trained(recipe, set, None, false).unwrap();
    trained.with_memory(|memory| {
        let names = memory.names_where(|role| role.is_network() || role == Role::Optimizer);
        names.filter(|name| *name != "train.step").map(|name| memory.read(name).unwrap()).collect()
    })
}

#[test]
fn streamed_training_yields_the_same_bits() {
    let set = oscillators(20);
    let variants = [
        &[][..],
        &["path.spline=linear"],
        &["path.stencil=5", "data.keep_rate=0.5"],
        &["data.drop_first=true", "path.spline=cubic", "path.noise.amplitude=1e-2"],
        &["path.smoothing=0.05", "data.keep_rate=0.8"],
        &["path.trust=1e-3", "path.stencil=5", "data.keep_rate=0.5"],
        &["path.draw=intervals", "path.trust=1e-3", "data.keep_rate=0.5"],
        &["path.draw=snapshots", "path.stencil=5", "data.keep_rate=0.5"],
    ];
    for keys in variants {
        let keys: Vec<String> = keys.iter().map(|key| (*key).to_owned()).collect();
        let text = recipe(60).to_toml().unwrap();
        let resident = Recipe::parse(&text, &keys).unwrap();
        let mut streamed = resident.clone();
        streamed.data.stream = Some(true);
        assert!(weights(&resident, &set) == weights(&streamed, &set), "{keys:?}");
    }
}

#[test]
fn training_reads_a_file_that_is_not_in_memory() {
    let (set, folder) = (oscillators(20), tempfile::tempdir().unwrap());
    let path = folder.path().join("oscillators.npz");
    let mut writer = TrajectoryWriter::create(&path, &set.description, WriteOptions::default()).unwrap();
    for trajectory in &set.trajectories {
        writer.push(trajectory, None).unwrap();
    }
    writer.finish().unwrap();
    let whole = Trajectories::read(&path).unwrap();
    let opened = Trajectories::open(&path).unwrap();
    assert!(opened.is_in_file() && opened.trajectories.iter().all(|one| one.values.is_empty()));
    assert!(!whole.is_in_file() && whole.trajectories == set.trajectories);
    for (i, trajectory) in whole.trajectories.iter().enumerate() {
        assert_eq!(opened.trajectory(i).unwrap().as_ref(), trajectory, "{i}");
    }
    let recipe = recipe(40);
    assert_eq!(Model::new(&recipe, &whole).unwrap(), Model::new(&recipe, &opened).unwrap());
    assert!(weights(&recipe, &whole) == weights(&recipe, &opened));
    // A run with one kind of data can be resumed with the other: the fingerprints are equal.
    let run = folder.path().join("run");
    trained(&recipe, &whole, Some(&run), false).unwrap();
    let mut longer = recipe.clone();
    longer.train.steps = 80;
    assert!(trained(&longer, &opened, Some(&run), true).is_ok());
    // A missing file is an error and does not block.
    let torn = Trajectories::open(&path).unwrap();
    std::fs::write(&path, b"PK").unwrap();
    assert!(trained(&recipe, &torn, None, false).is_err());
}

/// Checks that the values of loaded parts are in memory and others are not, after any splits.
#[test]
fn parts_are_read_when_they_are_asked_for() {
    let (set, folder) = (oscillators(20), tempfile::tempdir().unwrap());
    let path = folder.path().join("oscillators.h5");
    let mut writer = TrajectoryWriter::create(&path, &set.description, WriteOptions::default()).unwrap();
    for trajectory in &set.trajectories {
        writer.push(trajectory, None).unwrap();
    }
    writer.finish().unwrap();
    let mut opened =
        Trajectories::open(&path).unwrap().with_split([16, 2, 2]).unwrap().with_split([4, 6, 10]).unwrap();
    opened.load(&[Split::Test]).unwrap();
    for (i, (found, split)) in opened.trajectories.iter().zip(&opened.splits).enumerate() {
        match split {
            Split::Test => assert_eq!(*found, set.trajectories[i]),
            _ => assert!(found.values.is_empty()),
        }
    }
    let mut recipe = recipe(30);
    recipe.train.validate_every = 10;
    let whole = Trajectories::read(&path).unwrap().with_split([4, 6, 10]).unwrap();
    assert!(weights(&recipe, &opened) == weights(&recipe, &whole));
    // Evaluation reads values that are not in memory and gives the results of values in memory.
    let trained = trained(&recipe, &opened, None, false).unwrap();
    let found = |set: &Trajectories| trained.evaluate(set.train()).unwrap().relative_l2.per_trajectory;
    assert_eq!(found(&opened), found(&whole));
}

/// A change of a trajectory.
type Change<'a> = &'a dyn Fn(&mut cfo::data::Trajectory);

#[test]
fn sets_that_make_no_sense_are_refused() {
    let good = oscillators(4);
    let with = |change: &dyn Fn(&mut cfo::data::Trajectory)| {
        let mut trajectories = good.trajectories.clone();
        change(&mut trajectories[2]);
        Trajectories::new(good.description.clone(), trajectories)
    };
    assert!(with(&|_| {}).is_ok());
    let cases: [(&str, Change); 2] = [
        ("parameters", &|one| one.inputs.parameters.push(1.0)),
        ("values for", &|one| one.values.truncate(7)),
    ];
    for (problem, change) in cases {
        let refused = with(change).unwrap_err();
        assert!(refused.to_string().contains(problem) && refused.to_string().contains('2'), "{refused}");
        assert!(refused.hint().is_some());
    }
    let mut described = good.description.clone();
    described.inputs.parameters = vec!["nu".into()];
    let mut trajectories = good.trajectories.clone();
    trajectories.iter_mut().for_each(|one| one.inputs.parameters = vec![1.0]);
    trajectories[1].inputs.parameters[0] = f64::INFINITY;
    let refused = Trajectories::new(described, trajectories).unwrap_err();
    assert!(refused.to_string().contains("inf"), "{refused}");
}

/// Pages are copied to a GPU from pinned memory, on a separate stream.
#[test]
fn streamed_batches_on_a_gpu_are_those_of_resident_data() {
    let device = Device::Cuda(0);
    if let Err(error) = device.check() {
        let line = format!(
            "test streaming::streamed_batches_on_a_gpu_are_those_of_resident_data ... skipped: {error}\n"
        );
        let _ = std::io::Write::write_all(&mut std::io::stderr(), line.as_bytes());
        return;
    }
    let set = crate::cuda::planes(10);
    let text = "[operator]\nkind = \"unet\"\nchannels = [16, 32]\n[train]\nbatch = 24\ndeterministic = true\nsteps = 40\n\
                validate_every = 0\n";
    let run = |stream: bool| {
        let recipe = Recipe::parse(text, &[format!("data.stream={stream}")]).unwrap();
        let trained = Training::from_recipe(&recipe).device(device).fit(&set).unwrap();
        (trained.loss(), trained.with_memory(|memory| memory.read("head.weight").unwrap()))
    };
    assert!(run(false) == run(true));
}

/// Checks that the graph reads only the snapshots of a batch, whatever the data's size.
#[test]
fn streamed_data_takes_the_memory_of_a_batch() {
    let set = oscillators(60);
    let mut recipe = recipe(1);
    recipe.data.stream = Some(true);
    let mut prepared = TrainingStep::new(&recipe, &set, Device::Cpu).unwrap();
    prepared.initialize().unwrap();
    let mut program = prepared.compile(&[prepared.loss]).unwrap();
    let memory = &mut prepared.memory;
    // Four snapshots of two values for each of 128 samples.
    assert_eq!(memory.value_type("data.values").unwrap().shape.axes(), [128 * 4, 1, 1, 2]);
    memory.write("data.values", Data::F32(&vec![f32::NAN; 128 * 8])).unwrap();
    program.run(memory).unwrap();
    assert!(program.loss().unwrap().is_nan(), "the step reads nothing but the page");
}
