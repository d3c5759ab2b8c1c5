//! Compares the simulators with independent methods, starting from the stored frames.
//!
//! `fixtures/simulator_references.txt` was written by `fixtures/make_simulator_references.py`.

use std::collections::HashMap;

use cfo_data::simulate::{
    Burgers, DiffusionReaction, Equation, GrayScott, KuramotoSivashinsky, Lorenz, ShallowWater, Variant,
};

type References = HashMap<(&'static str, &'static str), Vec<f64>>;

fn references() -> References {
    include_str!("fixtures/simulator_references.txt")
        .lines()
        .map(|line| {
            let mut words = line.split(' ');
            let mut word = || words.next().expect("a case and a name begin each line");
            let key = (word(), word());
            (key, words.map(|word| word.parse().expect("a number")).collect())
        })
        .collect()
}

/// Checks that trajectory `index` of seed 0 starts with the reference's first frame and that the relative L2 difference
/// of all stored values is at most `tolerance`.
fn assert_agrees(case: &'static str, equation: &dyn Equation, index: u64, tolerance: f64) {
    let references = references();
    let get = |name| references.get(&(case, name));
    let known = |name| get(name).expect("the fixture has every case");
    let trajectory = equation.trajectory(0, index).expect("a simulation of good options");
    let width = equation.description().shape.len();
    if let Some(start) = get("start") {
        let stored: Vec<f64> = trajectory.values[..width].iter().map(|&value| f64::from(value)).collect();
        let start: Vec<f64> = start.iter().map(|&value| f64::from(value as f32)).collect();
        assert_eq!(stored, start, "{case}: the first frame is not the one that the reference began with");
    }
    let places = known("frames")
        .iter()
        .flat_map(|&frame| known("points").iter().map(move |&point| frame as usize * width + point as usize));
    let values = known("values");
    let (mut difference, mut size, mut count) = (0.0, 0.0, 0);
    for (place, reference) in places.zip(values) {
        difference += (f64::from(trajectory.values[place]) - reference).powi(2);
        size += reference.powi(2);
        count += 1;
    }
    assert_eq!(count, values.len());
    let error = (difference / size).sqrt();
    println!("{case}: {error:.1e}");
    assert!(error < tolerance, "{case}: relative difference {error:e}, at most {tolerance:e} allowed");
}

#[test]
fn lorenz_agrees_with_dop853() {
    for (index, case) in ["lorenz-0", "lorenz-1", "lorenz-2"].into_iter().enumerate() {
        assert_agrees(case, &Lorenz::default(), index as u64, 1e-6);
    }
}

/// The first frame has 100 points, the initial state 128 modes. Modes that the points do not resolve are below 1e-6 and
/// decay at once.
#[test]
fn burgers_agrees_with_radau() {
    for (index, case) in ["burgers-0", "burgers-1"].into_iter().enumerate() {
        assert_agrees(case, &Burgers::default(), index as u64, 1e-6);
    }
}

/// Ten time units; rounding errors of the first frame grow by a factor of about three.
#[test]
fn kuramoto_sivashinsky_agrees_with_radau() {
    assert_agrees("kuramoto-sivashinsky-0", &KuramotoSivashinsky::default(), 0, 1e-5);
}

/// The error of the simulator's steps is 4e-6.
#[test]
fn gray_scott_agrees_with_dop853() {
    let cube = GrayScott { grid: 16, frames: 3, horizon: 40.0, ..GrayScott::default() };
    assert_agrees("gray-scott-0", &cube, 0, 1e-5);
}

/// Both use the same method at the same tolerance and take the same steps, so only rounding to `f32` differs.
#[test]
fn diffusion_reaction_agrees_with_scipy() {
    assert_agrees("diffusion-reaction-default", &DiffusionReaction::default(), 0, 2e-7);
}

#[test]
fn diffusion_reaction_agrees_with_the_exact_solution_at_a_tight_tolerance() {
    let tight = DiffusionReaction { tolerance: 1e-7, ..DiffusionReaction::default() };
    assert_agrees("diffusion-reaction-tight", &tight, 0, 1e-6);
}

/// Two implementations of one scheme differ by round-off, far below the rounding to `f32`.
#[test]
fn shallow_water_agrees_with_a_second_implementation() {
    assert_agrees("shallow-water-dam-break", &ShallowWater::default(), 0, 1e-7);
    let varied = ShallowWater { variant: Variant::Varied, grid: 16, frames: 21, horizon: 1.0 };
    assert_agrees("shallow-water-varied-0", &varied, 0, 1e-7);
}
