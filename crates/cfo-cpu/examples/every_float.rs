//! Checks functions of one number on all 2^32 inputs against `f64`, for each level of vector instructions of this
//! processor. Exits with 1 if an error is larger than its bound.
//!
//!     cargo run --release -p cfo-cpu --example every_float [NAME...]

#[path = "../tests/float_functions.rs"]
mod functions;

use std::process::ExitCode;
use std::time::Instant;

use cfo_cpu::Level;
use functions::{Function, Worst};
use rayon::prelude::*;

/// Number of inputs of one task.
const TASK: u64 = 1 << 16;

fn main() -> ExitCode {
    let wanted: Vec<String> = std::env::args().skip(1).collect();
    let levels: Vec<Level> = Level::available().collect();
    println!("largest error in units of the function's size times 2^-23, over all 2^32 inputs");
    println!("{:18} {:>6}  {:7} {:>7}  {:>14}  {:>14}", "function", "bound", "level", "error", "at", "found");
    let mut within = true;
    for function in functions::all() {
        if !wanted.is_empty() && !wanted.iter().any(|name| name == function.name) {
            continue;
        }
        let start = Instant::now();
        let worst = over_all(&function, &levels);
        for (level, Worst { error, input, found }) in levels.iter().zip(worst) {
            let (name, bound, level) = (function.name, function.bound, format!("{level:?}"));
            println!("{name:18} {bound:>6.1}  {level:7} {error:>7.3}  {input:>14e}  {found:>14e}");
            within &= error <= bound;
        }
        eprintln!("{} took {:.0} s", function.name, start.elapsed().as_secs_f64());
    }
    if within {
        ExitCode::SUCCESS
    } else {
        println!("an error is above its bound");
        ExitCode::FAILURE
    }
}

/// The largest error of each level.
fn over_all(function: &Function, levels: &[Level]) -> Vec<Worst> {
    let none = || vec![Worst::default(); levels.len()];
    (0..(1_u64 << 32) / TASK)
        .into_par_iter()
        .fold(none, |mut worst, task| {
            let first = (task * TASK) as u32;
            let inputs: Vec<f32> = (0..TASK as u32).map(|i| f32::from_bits(first + i)).collect();
            function.worst(&inputs, levels, &mut worst);
            worst
        })
        .reduce(none, |a, b| a.into_iter().zip(b).map(|(a, b)| a.or(b)).collect())
}
