//! Tests with systems whose velocity does or does not depend on time.

use super::*;
use crate::store::{TrajectoryWriter, WriteOptions};
use crate::{Description, FieldShape, InputNames, Trajectory};

/// The result for trajectories of `velocity(t, u)`, each with its own initial state and time, by RK4 with ten steps
/// between snapshots.
fn found(
    shape: FieldShape,
    periodic: bool,
    noise: f64,
    velocity: impl Fn(f64, &[f64]) -> Vec<f64>,
) -> TimeDependence {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.h5");
    let description = Description {
        system: String::new(),
        shape,
        periodic: vec![periodic; shape.axes()],
        domain: vec![[0.0, 1.0]; shape.axes()],
        channel_names: vec![],
        channel_units: vec![],
        inputs: InputNames::default(),
    };
    let mut writer = TrajectoryWriter::create(&path, &description, WriteOptions::default()).unwrap();
    let mut random = Philox::new(7, 0);
    for trajectory in 0..24 {
        let mut u = start(shape, trajectory, &mut random);
        let mut t = random.uniform_between(0.0, 3.0);
        let (mut times, mut values) = (Vec::new(), Vec::new());
        for _ in 0..41 {
            times.push(t);
            values.extend(u.iter().map(|u| (u + noise * random.normal()) as f32));
            for _ in 0..10 {
                (t, u) = step(t, &u, 0.01, &velocity);
            }
        }
        writer.push(&Trajectory::new(times, values, vec![]).unwrap(), None).unwrap();
    }
    writer.finish().unwrap();
    let file = TrajectoryFile::open(&path).unwrap();
    let all: Vec<usize> = (0..file.len()).collect();
    TimeDependence::new(&file, &all, noise > 0.0, None).unwrap().unwrap()
}

fn start(shape: FieldShape, trajectory: usize, random: &mut Philox) -> Vec<f64> {
    if shape.axes() == 0 {
        return (0..shape.len()).map(|_| random.uniform_between(-1.5, 1.5)).collect();
    }
    let (a, b) = (random.normal(), random.normal());
    let wave = |i: usize| std::f64::consts::PI * (i as f64) / (shape.grid.width() - 1) as f64;
    (0..shape.len()).map(|i| a * wave(i).sin() + b * ((2 + trajectory % 2) as f64 * wave(i)).sin()).collect()
}

fn step(t: f64, u: &[f64], h: f64, velocity: &impl Fn(f64, &[f64]) -> Vec<f64>) -> (f64, Vec<f64>) {
    let ahead = |slope: &[f64], h: f64| u.iter().zip(slope).map(|(u, v)| u + h * v).collect::<Vec<f64>>();
    let a = velocity(t, u);
    let b = velocity(t + h / 2.0, &ahead(&a, h / 2.0));
    let c = velocity(t + h / 2.0, &ahead(&b, h / 2.0));
    let d = velocity(t + h, &ahead(&c, h));
    let slope: Vec<f64> = (0..u.len()).map(|i| (a[i] + 2.0 * b[i] + 2.0 * c[i] + d[i]) / 6.0).collect();
    (t + h, ahead(&slope, h))
}

const SYSTEM: FieldShape = FieldShape::system(2);
const LINE: FieldShape = FieldShape::line(21, 1);

fn oscillator(forcing: f64) -> impl Fn(f64, &[f64]) -> Vec<f64> {
    move |t, u| vec![u[1], -0.2 * u[1] - u[0] - u[0].powi(3) + forcing * (1.7 * t).cos()]
}

/// Diffusion with fixed or driven ends, and a source.
fn diffusion(source: f64, edge: f64) -> impl Fn(f64, &[f64]) -> Vec<f64> {
    move |t, u| {
        let last = u.len() - 1;
        (0..u.len())
            .map(|i| match i {
                0 => edge * (2.0 * t).cos(),
                i if i == last => 0.0,
                i => 4.0 * (u[i + 1] - 2.0 * u[i] + u[i - 1]) - u[i].powi(3) + source * (2.0 * t).sin(),
            })
            .collect()
    }
}

#[test]
fn systems_of_the_state_alone_do_not_depend_on_the_time() {
    for (name, found) in [
        ("oscillator", found(SYSTEM, false, 0.0, oscillator(0.0))),
        ("noisy oscillator", found(SYSTEM, false, 0.05, oscillator(0.0))),
        ("diffusion", found(LINE, false, 0.0, diffusion(0.0, 0.0))),
    ] {
        assert!(!found.is_explicit(), "{name}: {found:?}");
    }
}

#[test]
fn driven_systems_do() {
    let parametric = |t: f64, u: &[f64]| vec![u[1], -0.1 * u[1] - (1.0 + 0.6 * (2.3 * t).sin()) * u[0]];
    for (name, found) in [
        ("oscillator", found(SYSTEM, false, 0.0, oscillator(0.5))),
        ("hardly driven oscillator", found(SYSTEM, false, 0.0, oscillator(0.1))),
        ("noisy oscillator", found(SYSTEM, false, 0.05, oscillator(1.0))),
        ("spring", found(SYSTEM, false, 0.0, parametric)),
        ("source", found(LINE, false, 0.0, diffusion(1.0, 0.0))),
        ("edge", found(LINE, false, 0.0, diffusion(0.0, 1.0))),
    ] {
        assert!(found.is_explicit(), "{name}: {found:?}");
    }
}
