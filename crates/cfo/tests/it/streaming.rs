//! Batches gathered ahead of the steps are the batches of data that is all in memory.

use cfo::data::Split;
use cfo::data::store::{TrajectoryWriter, WriteOptions};
use cfo::engine::{Data, Device, Memory, Program, Shape};
use cfo::{Model, Recipe, TrainingData, TrajectorySet, training_step};

use crate::util::{oscillators, recipe, trained};

/// All weights of a run.
fn weights(recipe: &Recipe, set: &TrajectorySet) -> Vec<Vec<f32>> {
    let trained = trained(recipe, set, None, false).unwrap();
    let names: Vec<String> =
        trained.memory.names().filter(|name| !name.starts_with("data.")).map(Into::into).collect();
    names.iter().filter(|name| *name != "train.step").map(|name| trained.memory.read(name).unwrap()).collect()
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
    let whole = TrajectorySet::read(&path).unwrap();
    let opened = TrajectorySet::open(&path, None).unwrap();
    assert!(
        opened.is_in_file() && opened.part(Split::Train).all(|(_, trajectory)| trajectory.values.is_empty())
    );
    assert!(opened.part(Split::Test).all(|(_, trajectory)| !trajectory.values.is_empty()));
    let recipe = recipe(40);
    assert_eq!(Model::new(&recipe, &whole).unwrap(), Model::new(&recipe, &opened).unwrap());
    assert!(weights(&recipe, &whole) == weights(&recipe, &opened));
    // A run of one kind goes on as the other: the fingerprints are of the same data.
    let run = folder.path().join("run");
    trained(&recipe, &whole, Some(&run), false).unwrap();
    let mut longer = recipe.clone();
    longer.train.steps = 80;
    assert!(trained(&longer, &opened, Some(&run), true).is_ok());
    // A file that is gone is an error, not a hang.
    let torn = TrajectorySet::open(&path, None).unwrap();
    std::fs::write(&path, b"PK").unwrap();
    assert!(trained(&recipe, &torn, None, false).is_err());
}

/// On a GPU the pages come from pinned memory on a stream of their own.
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
        let interrupt = std::sync::atomic::AtomicBool::new(false);
        let mut observer = |_: &cfo::StepReport| {};
        let session = cfo::Session {
            device,
            folder: None,
            resume: false,
            interrupt: &interrupt,
            observer: &mut observer,
        };
        let trained = cfo::train(&recipe, &set, session).unwrap();
        (trained.loss, trained.memory.read("head.weight").unwrap())
    };
    assert!(run(false) == run(true));
}

/// The graph reads only a batch's snapshots, whatever the data's size.
#[test]
fn streamed_data_takes_the_memory_of_a_batch() {
    let set = oscillators(60);
    let mut recipe = recipe(1);
    recipe.data.stream = Some(true);
    let model = Model::new(&recipe, &set).unwrap();
    let data = TrainingData::new(&model, &set).unwrap();
    let (graph, loss) = training_step(&model, &data).unwrap();
    let mut memory = Memory::new(Device::Cpu, cfo::engine::Precision::F32).unwrap();
    memory.initialize(&graph, 0).unwrap();
    memory.insert_real("train.loss", Shape::scalar(), &[0.0]).unwrap();
    data.upload(&model, &mut memory).unwrap();
    // Four snapshots of two numbers for each of 128 samples.
    assert_eq!(memory.value_type("data.values").unwrap().shape.axes(), [128 * 4, 1, 1, 2]);
    let mut program = Program::compile(&graph, &[loss], &memory).unwrap();
    memory.write("data.values", Data::F32(&vec![f32::NAN; 128 * 8])).unwrap();
    program.run(&mut memory).unwrap();
    assert!(program.scalar(0).unwrap().is_nan(), "the step reads nothing but the page");
}
