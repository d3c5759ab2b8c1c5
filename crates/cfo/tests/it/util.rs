//! A small system with a known solution, and a recipe that trains on it in seconds.

use std::path::Path;

use cfo::data::{Description, FieldShape, InputNames, Trajectory};
use cfo::numerics::Philox;
use cfo::{Device, Precision, Recipe, Result, Trained, Training, Trajectories};
use cfo_engine::{Memory, Role};

/// Returns trajectories of a damped oscillator `x'' = -4 x - 0.5 x'` from random starts, each at other irregular times.
pub fn oscillators(count: usize) -> Trajectories {
    let trajectories = (0..count).map(|i| oscillator(&mut Philox::new(5, i as u64), 24 + i % 9)).collect();
    described(2, trajectories)
}

/// Returns a set of trajectories of a system with `channels` variables.
pub fn described(channels: usize, trajectories: Vec<Trajectory>) -> Trajectories {
    let description = Description {
        system: "oscillator".into(),
        shape: FieldShape::system(channels),
        periodic: vec![],
        domain: vec![],
        channel_names: (0..channels).map(|channel| format!("x{channel}")).collect(),
        channel_units: vec![],
        inputs: InputNames::default(),
    };
    Trajectories::new(description, trajectories).unwrap()
}

fn oscillator(random: &mut Philox, frames: usize) -> Trajectory {
    let (a, b) = (random.normal(), random.normal());
    let mut times: Vec<f64> = (0..frames).map(|_| random.uniform_between(0.02, 2.98)).collect();
    times.extend([0.0, 3.0]);
    times.sort_by(f64::total_cmp);
    times.dedup_by(|a, b| *a - *b < 1e-3);
    let (damping, frequency) = (0.25, (4.0_f64 - 0.0625).sqrt());
    let state = |t: &f64| {
        let (sine, cosine) = (frequency * t).sin_cos();
        let envelope = (-damping * t).exp();
        let x = envelope * (a * cosine + b * sine);
        let v = envelope * frequency * (b * cosine - a * sine) - damping * x;
        [x as f32, v as f32]
    };
    let values = times.iter().flat_map(state).collect();
    Trajectory::new(times, values, vec![]).unwrap()
}

pub fn recipe(steps: u32) -> Recipe {
    let text = format!(
        "[operator]\nkind = \"mlp\"\nhidden = [32, 32]\ntime = false\n\
         [train]\nsteps = {steps}\nbatch = 128\nlearning_rate = 3e-3\nschedule = \"cosine\"\nema = 0.9\n\
         report_every = 20\ncheckpoint_every = 40\nvalidate_every = 0\n"
    );
    Recipe::parse(&text, &[]).unwrap()
}

pub fn trained(recipe: &Recipe, set: &Trajectories, folder: Option<&Path>, resume: bool) -> Result<Trained> {
    let mut training = Training::from_recipe(recipe).device(Device::Cpu).resume(resume);
    if let Some(folder) = folder {
        training = training.folder(folder);
    }
    training.fit(set)
}

/// Returns the weights of a model in a separate memory.
pub fn weights_in(trained: &Trained, precision: Precision) -> Memory {
    let mut memory = Memory::new(Device::Cpu, precision).unwrap();
    trained.with_memory(|from| {
        for name in from.names_where(Role::is_network) {
            let shape = from.value_type(name).unwrap().shape.clone();
            memory.insert_real(name, shape, &from.read(name).unwrap()).unwrap();
        }
    });
    memory
}
