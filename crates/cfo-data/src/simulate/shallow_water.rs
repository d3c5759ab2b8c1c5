//! The two-dimensional shallow-water dam break of PDEBench, and a variant without repeated trajectories.

use std::collections::HashSet;
use std::f64::consts::PI;
use std::sync::atomic::AtomicBool;

use cfo_numerics::Philox;
use serde::{Deserialize, Serialize};

use super::legacy_random::LegacyRandom;
use super::roe::{CellLine, GHOSTS, Sweep};
use super::{Equation, SimulationError, options};
use crate::{Description, FieldShape, InputNames, Trajectory};

/// Distribution of the initial states.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Variant {
    /// The benchmark's distribution: depth 2 inside a circle about the origin, 1 outside, decided at the cell centres.
    /// Only the radius is random. On 128 x 128 cells there are just 81 different trajectories, so any split by index
    /// leaks test trajectories into training.
    #[default]
    DamBreak,
    /// Random centre, radius and depth, averaged over every cell: no two trajectories are equal.
    Varied,
}

impl Variant {
    /// All variants.
    pub const ALL: [Self; 2] = [Self::DamBreak, Self::Varied];

    /// Name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Self::DamBreak => "dam-break",
            Self::Varied => "varied",
        }
    }
}

impl std::fmt::Display for Variant {
    fn fmt(&self, formatter: &mut std::fmt::Formatter) -> std::fmt::Result {
        formatter.write_str(self.name())
    }
}

impl std::str::FromStr for Variant {
    type Err = SimulationError;

    fn from_str(name: &str) -> Result<Self, SimulationError> {
        Self::ALL.into_iter().find(|variant| variant.name() == name).ok_or_else(|| SimulationError::Option {
            name: "variant".into(),
            value: format!("`{name}`"),
            need: Self::ALL.map(|variant| format!("`{variant}`")).join(" or "),
        })
    }
}

/// The shallow-water equations on a flat bottom (gravity 1) in the square (-2.5, 2.5)^2 with open sides. The initial
/// state is water at rest that is deeper inside a circle.
///
/// The method is Roe's solver with entropy fix and monotonised central limiter, with one sweep along x and one along y
/// per step, as in the benchmark's solver. With the default options trajectory i of seed 0 is sample i of the
/// benchmark's generator. Only the depth is stored, as `[x, y]`. The momenta are not stored, so a snapshot is not the
/// whole state.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ShallowWater {
    /// Distribution of the initial states.
    pub variant: Variant,
    /// Cells along each side; 128 by default.
    pub grid: usize,
    /// Number of stored times, equally spaced with both ends included; 101 by default.
    pub frames: usize,
    /// Last time; 1 by default. The waves reach the sides later.
    pub horizon: f64,
}

impl Default for ShallowWater {
    fn default() -> Self {
        Self { variant: Variant::default(), grid: 128, frames: 101, horizon: 1.0 }
    }
}

const HALF_SIDE: f64 = 2.5;
const GRAVITY: f64 = 1.0;
const RADII: [f64; 2] = [0.3, 0.7];
/// Range of the varied dam's centre along each axis: its waves do not reach the sides within the default horizon.
const CENTERS: [f64; 2] = [-0.4, 0.4];
/// Range of the depth inside the varied dam; outside it is 1.
const DEPTHS: [f64; 2] = [1.5, 2.25];
/// Target Courant number of a step; a step above 1 is repeated with a smaller size.
const COURANT: f64 = 0.9;
const FIRST_STEP: f64 = 0.1;
/// Shortest step, relative to the horizon.
const SHORTEST: f64 = 1e-9;
const MAX_GRID: usize = 1 << 13;

impl Equation for ShallowWater {
    fn name(&self) -> &'static str {
        "shallow-water"
    }

    fn check(&self) -> Result<(), SimulationError> {
        options::between("grid", self.grid, 2, MAX_GRID)?;
        options::frames(self.frames, self.horizon, self.grid * self.grid)
    }

    fn description(&self) -> Description {
        Description {
            system: self.name().into(),
            channel_names: vec!["depth".into()],
            inputs: InputNames::of_parameters(["radius", "center_x", "center_y", "depth"]),
            ..Description::unnamed(
                FieldShape::plane(self.grid, self.grid, 1),
                vec![false; 2],
                vec![[-HALF_SIDE, HALF_SIDE]; 2],
            )
        }
    }

    fn times(&self) -> Vec<f64> {
        options::uniform_times(self.frames, self.horizon)
    }

    /// Radii that enclose the same cell centres give the same trajectory.
    fn distinct(&self) -> Option<usize> {
        let half_cell = HALF_SIDE / self.grid as f64;
        // Distances of cell centres are multiples of half a cell: odd ones for an even number of cells, else even ones.
        let first = (self.grid + 1) % 2;
        let reach = (first..self.grid).step_by(2).take_while(|&a| a as f64 * half_cell <= RADII[1]);
        let squares = reach.clone().flat_map(|a| reach.clone().map(move |b| a * a + b * b));
        let within = squares.filter(|&square| {
            let distance = (square as f64).sqrt() * half_cell;
            RADII[0] < distance && distance < RADII[1]
        });
        (self.variant == Variant::DamBreak).then(|| 1 + within.collect::<HashSet<_>>().len())
    }

    fn simulate(&self, seed: u64, index: u64, interrupt: &AtomicBool) -> Result<Trajectory, SimulationError> {
        self.check()?;
        let dam = Dam::draw(self.variant, seed, index)?;
        let depths = dam.depths(self.variant, self.grid);
        let times = self.times();
        let mut water = Water::at_rest(self.grid, &depths);
        let mut values = Vec::with_capacity(times.len() * depths.len());
        water.store(&mut values);
        for &time in &times[1..] {
            water.run_to(time, SHORTEST * self.horizon, interrupt)?;
            water.store(&mut values);
        }
        let parameters = vec![dam.radius, dam.center[0], dam.center[1], dam.depth];
        Ok(Trajectory::new(times, values, parameters)?)
    }
}

/// The cylinder of water behind the dam.
#[derive(Clone, Debug, PartialEq)]
struct Dam {
    radius: f64,
    center: [f64; 2],
    depth: f64,
}

impl Dam {
    fn draw(variant: Variant, seed: u64, index: u64) -> Result<Self, SimulationError> {
        let [least, most] = RADII;
        Ok(match variant {
            Variant::DamBreak => {
                let uniform = LegacyRandom::of_sample(seed, index)?.uniform();
                Self { radius: least + (most - least) * uniform, center: [0.0; 2], depth: 2.0 }
            }
            Variant::Varied => {
                let mut random = Philox::new(seed, index);
                let mut draw = |[low, high]: [f64; 2]| random.uniform_between(low, high);
                Self { radius: draw(RADII), center: [draw(CENTERS), draw(CENTERS)], depth: draw(DEPTHS) }
            }
        })
    }

    /// The depth of every cell, `[x, y]`.
    fn depths(&self, variant: Variant, grid: usize) -> Vec<f64> {
        let width = 2.0 * HALF_SIDE / grid as f64;
        let edge = |i: usize| -HALF_SIDE + i as f64 * width;
        let middle = |i: usize| -HALF_SIDE + (i as f64 + 0.5) * width;
        let cells = (0..grid).flat_map(|x| (0..grid).map(move |y| (x, y)));
        match variant {
            Variant::DamBreak => cells
                .map(|(x, y)| {
                    let distance = (middle(x) * middle(x) + middle(y) * middle(y)).sqrt();
                    if distance <= self.radius { self.depth } else { 1.0 }
                })
                .collect(),
            Variant::Varied => cells
                .map(|(x, y)| {
                    let reduced = |i: usize, axis: usize| (edge(i) - self.center[axis]) / self.radius;
                    let area = disc_in_rectangle(
                        [reduced(x, 0), reduced(x + 1, 0)],
                        [reduced(y, 1), reduced(y + 1, 1)],
                    );
                    let share = (area * (self.radius / width).powi(2)).clamp(0.0, 1.0);
                    // Rounded, so that the stored first frame is the integrated state.
                    f64::from((1.0 + (self.depth - 1.0) * share) as f32)
                })
                .collect(),
        }
    }
}

/// Area of the unit disc inside a rectangle.
fn disc_in_rectangle([x0, x1]: [f64; 2], [y0, y1]: [f64; 2]) -> f64 {
    disc_below(x1, y1) - disc_below(x0, y1) - disc_below(x1, y0) + disc_below(x0, y0)
}

/// Area of the part of the unit disc with abscissa below `x` and ordinate below `y`.
fn disc_below(x: f64, y: f64) -> f64 {
    let (x, y) = (x.clamp(-1.0, 1.0), y.clamp(-1.0, 1.0));
    let segment = |d: f64| d.acos() - d * (1.0 - d * d).sqrt();
    if x * x + y * y < 1.0 {
        let half = |d: f64| d.asin() + d * (1.0 - d * d).sqrt();
        return 0.5 * (0.5 * PI + half(x) + half(y)) + x * y;
    }
    match (x < 0.0, y < 0.0) {
        (true, true) => 0.0,
        (true, false) => segment(-x),
        (false, true) => segment(-y),
        (false, false) => PI - segment(x) - segment(y),
    }
}

/// The state on the grid with its ghosts, `[x, y]`, and the work space of a step.
struct Water {
    grid: usize,
    now: f64,
    step: f64,
    /// Depth, momentum along x, momentum along y.
    state: [Vec<f64>; 3],
    saved: [Vec<f64>; 3],
    line: CellLine,
    sweep: Sweep,
}

impl Water {
    fn at_rest(grid: usize, depths: &[f64]) -> Self {
        let side = grid + 2 * GHOSTS;
        let empty = || vec![0.0; side * side];
        let mut state = [empty(), empty(), empty()];
        for (x, row) in depths.chunks(grid).enumerate() {
            let start = (x + GHOSTS) * side + GHOSTS;
            state[0][start..start + grid].copy_from_slice(row);
        }
        Self {
            grid,
            now: 0.0,
            step: FIRST_STEP,
            saved: state.clone(),
            state,
            line: CellLine::new(side),
            sweep: Sweep::new(GRAVITY, side),
        }
    }

    fn side(&self) -> usize {
        self.grid + 2 * GHOSTS
    }

    /// The inner rows of one quantity.
    fn rows(&self, quantity: usize) -> impl Iterator<Item = &[f64]> {
        let inner = GHOSTS..GHOSTS + self.grid;
        self.state[quantity]
            .chunks(self.side())
            .skip(GHOSTS)
            .take(self.grid)
            .map(move |row| &row[inner.clone()])
    }

    fn store(&self, values: &mut Vec<f32>) {
        values.extend(self.rows(0).flatten().map(|&depth| depth as f32));
    }

    /// Integrates to exactly `time`.
    fn run_to(&mut self, time: f64, shortest: f64, interrupt: &AtomicBool) -> Result<(), SimulationError> {
        let diverged = |time: f64| SimulationError::Diverged { system: "shallow-water", time };
        while self.now < time {
            options::heed(interrupt)?;
            let last = self.now + self.step >= time - shortest;
            let step = if last { time - self.now } else { self.step };
            for (saved, state) in self.saved.iter_mut().zip(&self.state) {
                saved.copy_from_slice(state);
            }
            let courant = self.advance(step);
            let proper = self.rows(0).flatten().fold(true, |proper, &depth| proper & (depth > 0.0));
            if !courant.is_finite() || !proper && courant <= 1.0 {
                return Err(diverged(self.now));
            }
            self.step = COURANT * step / courant;
            if courant > 1.0 {
                std::mem::swap(&mut self.state, &mut self.saved);
                if self.step < shortest {
                    return Err(diverged(self.now));
                }
                continue;
            }
            self.now = if last { time } else { self.now + step };
        }
        Ok(())
    }

    /// Makes one step of a given size; returns the larger Courant number of its sweeps.
    fn advance(&mut self, step: f64) -> f64 {
        self.extend();
        let ratio = step * self.grid as f64 / (2.0 * HALF_SIDE);
        let side = self.side();
        let mut courant = 0.0f64;
        let Self { state: [depth, along_x, along_y], line, sweep, .. } = self;
        for y in 0..side {
            for x in 0..side {
                let at = x * side + y;
                (line.depth[x], line.along[x], line.across[x]) = (depth[at], along_x[at], along_y[at]);
            }
            courant = courant.max(sweep.advance(line, ratio));
            for x in GHOSTS..side - GHOSTS {
                let at = x * side + y;
                (depth[at], along_x[at], along_y[at]) = (line.depth[x], line.along[x], line.across[x]);
            }
        }
        for x in GHOSTS..side - GHOSTS {
            let row = x * side..(x + 1) * side;
            line.depth.copy_from_slice(&depth[row.clone()]);
            line.along.copy_from_slice(&along_y[row.clone()]);
            line.across.copy_from_slice(&along_x[row.clone()]);
            courant = courant.max(sweep.advance(line, ratio));
            depth[row.clone()].copy_from_slice(&line.depth);
            along_y[row.clone()].copy_from_slice(&line.along);
            along_x[row].copy_from_slice(&line.across);
        }
        courant
    }

    /// Fills the ghosts with the nearest inner cell, along x first, then along y.
    fn extend(&mut self) {
        let (side, last) = (self.side(), self.grid + GHOSTS - 1);
        for quantity in &mut self.state {
            for ghost in 0..GHOSTS {
                quantity.copy_within(GHOSTS * side..(GHOSTS + 1) * side, ghost * side);
                quantity.copy_within(last * side..(last + 1) * side, (last + 1 + ghost) * side);
            }
            for row in quantity.chunks_mut(side) {
                let (first, end) = (row[GHOSTS], row[last]);
                row[..GHOSTS].fill(first);
                row[last + 1..].fill(end);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::simulate::tests::assert_refused;

    fn frames(equation: &ShallowWater, index: u64) -> Vec<Vec<f64>> {
        let values = equation.trajectory(0, index).unwrap().values;
        let cells = equation.grid * equation.grid;
        values.chunks(cells).map(|frame| frame.iter().map(|&depth| f64::from(depth)).collect()).collect()
    }

    fn small(variant: Variant) -> ShallowWater {
        ShallowWater { variant, grid: 64, frames: 21, ..ShallowWater::default() }
    }

    #[test]
    fn radii_are_the_benchmarks() {
        let expected = [
            0.5195254015709299,
            0.4668088018810296,
            0.47439796085680147,
            0.5203191610298301,
            0.6868119356054706,
            0.3887972684358958,
        ];
        for (index, radius) in expected.into_iter().enumerate() {
            let dam = Dam::draw(Variant::DamBreak, 0, index as u64).unwrap();
            assert_eq!(dam, Dam { radius, center: [0.0; 2], depth: 2.0 });
        }
    }

    /// The benchmark repeats trajectories; the varied dam does not.
    #[test]
    fn the_benchmark_has_81_starts_and_the_varied_dam_many() {
        let starts = |variant: Variant, grid: usize| {
            let start = |index| -> Vec<u32> {
                let depths = Dam::draw(variant, 0, index).unwrap().depths(variant, grid);
                depths.into_iter().map(|depth| (depth as f32).to_bits()).collect()
            };
            (0..1000).map(start).collect::<std::collections::HashSet<_>>().len()
        };
        assert_eq!(starts(Variant::DamBreak, 128), 81);
        assert_eq!(starts(Variant::Varied, 32), 1000);
        for grid in [7, 16, 33, 64, 128] {
            let dam = ShallowWater { grid, ..ShallowWater::default() };
            assert_eq!(dam.distinct(), Some(starts(Variant::DamBreak, grid)), "{grid}");
        }
        assert_eq!(ShallowWater { variant: Variant::Varied, ..ShallowWater::default() }.distinct(), None);
    }

    #[test]
    fn areas_of_a_disc_in_cells_sum_to_the_disc() {
        let edge = |i: i32| 1.3 * f64::from(i) / 16.0 + 0.013;
        let mut sum = 0.0;
        for (x, y) in (-16..16).flat_map(|x| (-16..16).map(move |y| (x, y))) {
            let area = disc_in_rectangle([edge(x), edge(x + 1)], [edge(y), edge(y + 1)]);
            // Midpoint rule with 64 x 64 parts: the circle crosses at most about 200 of them, half of each uncertain.
            let inside = (0..64 * 64)
                .filter(|part| {
                    let at = |corner: i32, part: i32| {
                        edge(corner) + (edge(1) - edge(0)) * (f64::from(part) + 0.5) / 64.0
                    };
                    at(x, part / 64).powi(2) + at(y, part % 64).powi(2) < 1.0
                })
                .count();
            let sampled = inside as f64 / 4096.0 * (1.3f64 / 16.0).powi(2);
            assert!((area - sampled).abs() < 0.01 * (1.3f64 / 16.0).powi(2), "{area} {sampled}");
            sum += area;
        }
        assert!((sum - PI).abs() < 1e-13, "{sum}");
    }

    /// No wave reaches a side within the horizon, so water neither enters nor leaves. The stored depths are rounded:
    /// 4096 independent errors of at most 6e-8.
    #[test]
    fn water_is_conserved() {
        for (variant, index) in Variant::ALL.into_iter().flat_map(|variant| (0..6).map(move |i| (variant, i)))
        {
            let frames = frames(&small(variant), index);
            let mass = |frame: &Vec<f64>| frame.iter().sum::<f64>() / 4096.0;
            for frame in &frames {
                assert!((mass(frame) - mass(&frames[0])).abs() < 1e-8, "{variant} {index}");
                assert!(frame.iter().all(|&depth| depth > 0.2));
            }
            assert!(frames[20].iter().zip(&frames[0]).any(|(a, b)| (a - b).abs() > 0.1));
        }
    }

    /// In double precision mass is conserved to round-off until a wave reaches a side.
    #[test]
    fn mass_is_kept_to_round_off() {
        let depths = Dam::draw(Variant::DamBreak, 0, 4).unwrap().depths(Variant::DamBreak, 64);
        let mut water = Water::at_rest(64, &depths);
        let mass = |water: &Water| water.rows(0).flatten().sum::<f64>();
        let before = mass(&water);
        for n in 1..=35 {
            water.run_to(0.02 * f64::from(n), 1e-9, &AtomicBool::new(false)).unwrap();
        }
        assert!((mass(&water) / before - 1.0).abs() < 1e-13, "{} {before}", mass(&water));
    }

    /// The dam is symmetric about both axes, and so is the flow. The two sweeps of a step differ, so exchanging x and y
    /// changes the flow by a first-order error in time.
    #[test]
    fn the_flow_is_as_symmetric_as_the_dam() {
        let frames = frames(&small(Variant::DamBreak), 4);
        for frame in &frames {
            let mut exchange = 0.0f64;
            for (x, y) in (0..64).flat_map(|x| (0..64).map(move |y| (x, y))) {
                let depth = frame[x * 64 + y];
                assert!((depth - frame[(63 - x) * 64 + y]).abs() < 1e-6);
                assert!((depth - frame[x * 64 + 63 - y]).abs() < 1e-6);
                exchange = exchange.max((depth - frame[y * 64 + x]).abs());
            }
            assert!(exchange < 0.1, "{exchange}");
        }
    }

    /// The benchmark takes exactly one step per frame, at a Courant number of about 0.3.
    #[test]
    fn the_default_takes_one_step_a_frame() {
        let depths = Dam::draw(Variant::DamBreak, 0, 0).unwrap().depths(Variant::DamBreak, 128);
        let mut water = Water::at_rest(128, &depths);
        let mut stepped = Water::at_rest(128, &depths);
        for n in 1..=3 {
            water.run_to(0.01 * f64::from(n), 1e-9, &AtomicBool::new(false)).unwrap();
            let courant = stepped.advance(0.01 * f64::from(n) - 0.01 * f64::from(n - 1));
            assert!((0.25..0.45).contains(&courant), "{courant}");
            assert_eq!(water.state[0], stepped.state[0]);
        }
    }

    /// A frame interval far above the stable step is divided into several steps; the solution is the same up to the
    /// scheme's error.
    #[test]
    fn long_intervals_are_divided() {
        let many = frames(&small(Variant::Varied), 0);
        let two = frames(&ShallowWater { frames: 2, ..small(Variant::Varied) }, 0);
        let difference: f64 = two[1].iter().zip(&many[20]).map(|(a, b)| (a - b).abs()).sum();
        assert!(difference / 4096.0 < 0.01, "{}", difference / 4096.0);
    }

    /// Refinement: on smooth parts of the flow, finer cells and steps change the solution little, and less each time.
    #[test]
    fn refinement_converges() {
        let mean_of = |frame: &[f64], grid: usize| -> Vec<f64> {
            let block = grid / 32;
            let mut means = vec![0.0; 32 * 32];
            for (x, y) in (0..grid).flat_map(|x| (0..grid).map(move |y| (x, y))) {
                means[x / block * 32 + y / block] += frame[x * grid + y] / (block * block) as f64;
            }
            means
        };
        let end = |grid: usize| {
            let equation = ShallowWater { variant: Variant::Varied, grid, frames: 2, horizon: 0.5 };
            mean_of(&frames(&equation, 3)[1], grid)
        };
        let [a, b, c] = [end(64), end(128), end(256)];
        let distance = |a: &[f64], b: &[f64]| a.iter().zip(b).map(|(a, b)| (a - b).abs()).sum::<f64>();
        // Jumps limit any scheme to the first order in this norm.
        assert!(distance(&b, &c) < 0.65 * distance(&a, &b), "{} {}", distance(&a, &b), distance(&b, &c));
    }

    #[test]
    fn names_are_read_back() {
        for variant in Variant::ALL {
            assert_eq!(variant.to_string().parse(), Ok(variant));
        }
        let error = "river".parse::<Variant>().unwrap_err();
        assert_eq!(error.to_string(), "`variant` is `river`; it must be `dam-break` or `varied`");
    }

    #[test]
    fn senseless_options_are_refused() {
        let good = ShallowWater::default;
        assert_refused(&ShallowWater { grid: 0, ..good() }, "grid");
        assert_refused(&ShallowWater { frames: 1, ..good() }, "frames");
        assert_refused(&ShallowWater { horizon: f64::NAN, ..good() }, "horizon");
        assert_refused(&ShallowWater { horizon: -1.0, ..good() }, "horizon");
        let large = ShallowWater { grid: 8192, ..good() };
        assert!(matches!(large.check(), Err(SimulationError::TooLarge { .. })));
        assert!(matches!(good().trajectory(0, 1 << 32), Err(SimulationError::Seed { .. })));
        assert_eq!(good().simulate(0, 0, &AtomicBool::new(true)), Err(SimulationError::Interrupted));
    }

    #[test]
    fn dry_ground_is_an_error() {
        let mut water = Water::at_rest(8, &[0.0; 64]);
        let error = water.run_to(0.1, 1e-9, &AtomicBool::new(false)).unwrap_err();
        assert_eq!(error, SimulationError::Diverged { system: "shallow-water", time: 0.0 });
    }
}
