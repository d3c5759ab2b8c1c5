//! Smooths a noisy series and differentiates it as in training.
//!
//! Reads lines `t,y` from stdin and writes lines `smoothed,velocity,deviation` to stdout. `deviation` is the posterior
//! standard deviation of the velocity. The estimated noise goes to stderr.
//!
//! `cargo run --release -p cfo-numerics --example smooth < series.csv`

use std::error::Error;
use std::io::{BufRead, Write, stdin, stdout};

use cfo_numerics::{Evidence, Path, Smoother, Spline, TimeGrid};

fn main() -> Result<(), Box<dyn Error>> {
    let (mut times, mut series) = (Vec::new(), Vec::new());
    for line in stdin().lock().lines() {
        let line = line?;
        let (time, value) = line.split_once(',').ok_or("each line is a time, a comma and a value")?;
        times.push(time.trim().parse::<f64>()?);
        series.push(value.trim().parse::<f64>()?);
    }
    let grid = TimeGrid::new(times)?;
    let (times, unit) = (&*grid, grid.span() / grid.segments() as f64);
    let mut evidence = Evidence::new(unit);
    evidence.add(times, &[], &series, 1);
    let noise = evidence.fit();
    eprintln!("noise of deviation {:e}, ratio {:e}", noise.deviation, noise.ratio);
    let smoother = Smoother::new(times, &[], unit, noise.ratio);
    smoother.smooth(&mut series, 1);
    let path = Path { spline: Spline::Quintic, stencil: 5 };
    let weights: Vec<_> = times.iter().map(|&time| path.weights(times, time)).collect();
    let sums: Vec<_> = weights.iter().map(|weights| (weights.first, weights.velocity())).collect();
    let mut out = stdout().lock();
    for ((weights, value), left) in weights.iter().zip(&series).zip(smoother.deviations(&sums)) {
        let terms = weights.velocity().iter().zip(&series[weights.range()]);
        let velocity: f64 = terms.map(|(weight, value)| weight * value).sum();
        writeln!(out, "{value:e},{velocity:e},{:e}", noise.deviation * left)?;
    }
    Ok(())
}
