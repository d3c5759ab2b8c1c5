//! The speed of a field at each time, relative to its mean over all times.
//!
//! The initial speed of diffusion-reaction is a hundred times the final one, a factor that group normalisation removes.

use cfo_engine::{Graph, Node};
use cfo_numerics::metric::Summary;
use serde::{Deserialize, Serialize};

use crate::error::Result;

/// Number of cells of the profile. They have equal width in the square root of the normalised time, because transients are at the start.
const CELLS: usize = 40;
/// Smallest speed of a cell relative to the largest. It avoids division by zero for a field at rest.
const LEAST: f64 = 1e-3;

/// Root mean square of the velocity in each cell of time, relative to that of all times, for each channel.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Profile {
    /// One row per cell.
    pub(crate) speeds: Vec<Vec<f64>>,
    /// The share of the sampled times in each cell.
    pub(crate) shares: Vec<f64>,
}

/// Sums from which a [`Profile`] is computed: squared speeds and durations of every cell, weighted by the density of samples.
#[derive(Clone, Debug)]
pub(crate) struct ProfileSums {
    pub(crate) squares: Vec<Vec<f64>>,
    durations: Vec<f64>,
}

/// Returns the normalised time at which a cell begins.
fn beginning(cell: usize) -> f64 {
    (cell as f64 / CELLS as f64).powi(2)
}

impl ProfileSums {
    pub(crate) fn new(channels: usize) -> Self {
        Self { squares: vec![vec![0.0; channels]; CELLS], durations: vec![0.0; CELLS] }
    }

    /// Adds a segment with the mean squared speed of each channel; `density` is relative to uniform sampling in time.
    pub(crate) fn add(&mut self, [from, to]: [f64; 2], density: f64, squares: impl Fn(usize) -> f64) {
        let first = ((from.clamp(0.0, 1.0).sqrt() * CELLS as f64) as usize).min(CELLS - 1);
        for cell in first..CELLS {
            let overlap = density * (to.min(beginning(cell + 1)) - from.max(beginning(cell)));
            if overlap <= 0.0 {
                break;
            }
            self.durations[cell] += overlap;
            for (channel, sum) in self.squares[cell].iter_mut().enumerate() {
                *sum += overlap * squares(channel);
            }
        }
    }

    pub(crate) fn merge(&mut self, other: &Self) {
        let sums = self.durations.iter_mut().chain(self.squares.iter_mut().flatten());
        let more = other.durations.iter().chain(other.squares.iter().flatten());
        sums.zip(more).for_each(|(sum, more)| *sum += more);
    }

    /// Returns the profile. A cell without snapshots has the speed of the nearest one before it, or else after it.
    pub(crate) fn profile(&self) -> Profile {
        let total: f64 = self.durations.iter().sum();
        let shares: Vec<f64> = self.durations.iter().map(|duration| duration / total).collect();
        let channels = self.squares[0].len();
        let mut speeds = vec![vec![1.0; channels]; CELLS];
        for channel in 0..channels {
            let all = self.squares.iter().map(|squares| squares[channel]).sum::<f64>() / total;
            let relative = |cell: usize| {
                let mean = self.squares[cell][channel] / self.durations[cell];
                (self.durations[cell] > 0.0 && all > 0.0).then(|| (mean / all).sqrt())
            };
            let found: Vec<Option<f64>> = (0..CELLS).map(relative).collect();
            let fastest = Summary::of(&found.iter().flatten().copied().collect::<Vec<f64>>()).greatest;
            let mut last = found.iter().flatten().next().copied();
            for (cell, speeds) in speeds.iter_mut().enumerate() {
                last = found[cell].or(last);
                if let Some(speed) = last {
                    speeds[channel] = speed.max(LEAST * fastest);
                }
            }
        }
        Profile { speeds, shares }
    }
}

impl Profile {
    /// Appends the relative speed at times `[batch]`: `[batch, 1, 1, channels]`, by linear interpolation between the cells' centres.
    pub(crate) fn at(&self, graph: &mut Graph, time: Node) -> Result<Node> {
        let (batch, channels) = (graph.shape(time).len(), self.speeds[0].len());
        let f = graph.formula();
        let fixed = |value: f64| f.constant([1, 1, 1], vec![value]);
        let time = f.var(time).reshape([batch, 1, 1]);
        let zero = fixed(0.0);
        let place = time.maximum(zero).sqrt() * CELLS as f64;
        let (low, high) = (fixed(0.5), fixed(CELLS as f64 - 0.5));
        // Minus the position, which is at most `high`.
        let mirrored = (-place.maximum(low)).maximum(-high);
        let middles = f.constant([1, CELLS, 1], (0..CELLS).map(|cell| cell as f64 + 0.5).collect());
        let hat = (1.0 - (mirrored + middles).abs()).maximum(zero);
        // A matrix product would round its operands in lower precisions.
        let table = f.constant([1, CELLS, channels], self.speeds.iter().flatten().copied().collect());
        Ok((hat * table).sum(&[1]).reshape([batch, 1, 1, channels]).node()?)
    }

    /// Returns the root mean square of the speeds to a power, over the sampled times, for each channel.
    pub(crate) fn power_mean(&self, power: f64) -> Vec<f64> {
        let mean = |channel: usize| {
            let terms = self.speeds.iter().zip(&self.shares);
            terms.map(|(speeds, share)| share * speeds[channel].powf(2.0 * power)).sum::<f64>().sqrt()
        };
        (0..self.speeds[0].len()).map(mean).collect()
    }
}

#[cfg(test)]
mod tests {
    use cfo_device::Device;
    use cfo_engine::{Data, Memory, Precision, Program};
    use proptest::prelude::*;

    use super::*;

    /// Returns the profile of speeds `1 / (0.1 + t)` and 0 on irregular segments.
    fn decaying(cuts: &[f64]) -> Profile {
        let mut sums = ProfileSums::new(2);
        for pair in cuts.windows(2) {
            let middle = (pair[0] + pair[1]) / 2.0;
            sums.add(
                [pair[0], pair[1]],
                1.0,
                |channel| if channel == 0 { (0.1 + middle).powi(-2) } else { 0.0 },
            );
        }
        sums.profile()
    }

    fn evaluate(profile: &Profile, times: &[f32]) -> Vec<f64> {
        let mut graph = Graph::new();
        let mut memory = Memory::new(Device::Cpu, Precision::F32).unwrap();
        memory.insert("time", cfo_engine::Element::Real, [times.len()], Data::F32(times)).unwrap();
        let time = graph.input("time", [times.len()]).unwrap();
        let speed = profile.at(&mut graph, time).unwrap();
        let output = graph.input("speed", [times.len(), 1, 1, 2]).unwrap();
        graph.assign(output, speed).unwrap();
        memory.insert_real("speed", [times.len(), 1, 1, 2], &vec![0.0; 2 * times.len()]).unwrap();
        Program::compile(&graph, &[], &memory).unwrap().run(&mut memory).unwrap();
        memory.read_f64("speed").unwrap()
    }

    #[test]
    fn follows_the_speed_in_time_and_is_constant_beyond() {
        let cuts: Vec<f64> = (0..=2000).map(|i| f64::from(i) / 2000.0).collect();
        let profile = decaying(&cuts);
        let times = [-1.0, 0.0, 0.01, 0.3, 0.9, 1.0, 7.0];
        let found = evaluate(&profile, &times);
        // The mean of (0.1 + t)^-2 over [0, 1] is 1/0.1 - 1/1.1.
        let mean = (1.0 / 0.1 - 1.0 / 1.1_f64).sqrt();
        for (i, time) in times.iter().enumerate() {
            let expected = 1.0 / (0.1 + f64::from(time.clamp(0.0, 1.0))) / mean;
            // Cells are at most 0.05 wide where the speed changes by 5 % over one.
            assert!((found[2 * i] / expected - 1.0).abs() < 0.04, "{time}: {} for {expected}", found[2 * i]);
            assert_eq!(found[2 * i + 1], 1.0, "a channel at rest");
        }
    }

    proptest! {
        /// Checks that the mean square over the training time is 1 for all segments.
        #[test]
        fn its_mean_square_is_one(gaps in prop::collection::vec(0.001..1.0f64, 1..60)) {
            let total: f64 = gaps.iter().sum();
            let mut cuts = vec![0.0];
            gaps.iter().for_each(|gap| cuts.push((cuts[cuts.len() - 1] + gap / total).min(1.0)));
            let profile = decaying(&cuts);
            prop_assert!((profile.power_mean(1.0)[0] - 1.0).abs() < 1e-9);
            prop_assert!((profile.shares.iter().sum::<f64>() - 1.0).abs() < 1e-9);
        }
    }
}
