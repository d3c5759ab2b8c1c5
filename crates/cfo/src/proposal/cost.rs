//! What a network costs, by counting its multiplications, and how many of them a machine does in a second.

use std::fmt;

use crate::operator::StateSpace;
use crate::operator::{Dit, Fno, Mlp, OperatorConfig, Unet};

/// A machine, by how fast it trains small networks.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Machine {
    cores: Option<usize>,
    /// Multiplications with addition a second, in whole training steps.
    rate: f64,
}

impl Machine {
    /// So many cores of a present-day processor, at the rate of small networks; large ones run at up to twice that (docs/developers/performance.md).
    pub fn cores(count: usize) -> Self {
        // Small steps do not share among many.
        Self { cores: Some(count), rate: 2e10 * count.clamp(1, 16) as f64 }
    }

    /// A GPU of a computing centre.
    pub fn gpu() -> Self {
        Self { cores: None, rate: 5e12 }
    }

    /// Seconds of training steps.
    pub(super) fn seconds(self, multiplications: f64, batch: usize, steps: u32) -> f64 {
        // Forward, and two products of the same size backward.
        3.0 * multiplications * batch as f64 * f64::from(steps) / self.rate
    }
}

impl fmt::Display for Machine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.cores {
            Some(1) => write!(f, "one core"),
            Some(count) => write!(f, "{count} cores"),
            None => write!(f, "a GPU"),
        }
    }
}

/// Multiplications that an activation is worth, its norm included.
const ACTIVATION: f64 = 20.0;

/// Multiplications of one forward pass of one sample.
pub(super) fn multiplications(operator: &OperatorConfig, setting: &StateSpace) -> f64 {
    match operator {
        OperatorConfig::Mlp(config) => mlp(config, setting),
        OperatorConfig::Fno(config) => fno(config, setting),
        OperatorConfig::Unet(config) => unet(config, setting),
        OperatorConfig::Dit(config) => dit(config, setting),
    }
}

fn mlp(config: &Mlp, setting: &StateSpace) -> f64 {
    let size: usize = setting.field.iter().product();
    let time = if config.time_embedding { 2 * config.bands } else { 0 };
    let mut inputs = size + time + setting.conditions;
    let mut total = 0.0;
    for &width in &config.hidden {
        total += (inputs * width) as f64 + ACTIVATION * width as f64;
        inputs = width;
    }
    total + (inputs * size) as f64
}

fn fno(config: &Fno, setting: &StateSpace) -> f64 {
    let [height, width, channels] = setting.field.map(|side| side as f64);
    let (points, inside, modes) = (height * width, config.width as f64, config.modes as f64);
    let weights = if height > 1.0 { 2.0 * modes * modes } else { modes };
    let along_width = 6.0 * points * modes * inside;
    let along_height = if height > 1.0 { 24.0 * modes * modes * height * inside } else { 0.0 };
    let spectral = along_width + along_height + 4.0 * weights * inside * inside;
    let local = points * inside * (inside + ACTIVATION);
    config.blocks as f64 * (spectral + local) + points * inside * (inside + 2.0 * channels + ACTIVATION)
}

fn unet(config: &Unet, setting: &StateSpace) -> f64 {
    let [height, width, outputs] = setting.field;
    let planar = height > 1;
    let default = if planar { vec![64, 128, 256] } else { vec![64, 128] };
    let channels = config.channels.clone().unwrap_or(default);
    let [three, four] = if planar { [9.0, 16.0] } else { [3.0, 4.0] };
    let points = |scale: usize| {
        let halved = |side: usize| side.div_ceil(1 << scale) as f64;
        if planar { halved(height) * halved(width) } else { halved(width) }
    };
    let layer =
        |scale: usize, from: usize, to: usize| points(scale) * to as f64 * (three * from as f64 + ACTIVATION);
    let mut total = 0.0;
    let mut from = outputs;
    for (scale, &to) in channels.iter().enumerate() {
        total += layer(scale, from, to) + layer(scale, to, to);
        total += points(scale + 1) * four * (to * to) as f64;
        from = to;
    }
    total += 2.0 * layer(channels.len(), from, from);
    for (scale, &to) in channels.iter().enumerate().rev() {
        total += points(scale + 1) * four * (from * to) as f64;
        total += layer(scale, 2 * to, to) + layer(scale, to, to);
        from = to;
    }
    total + points(0) * (from * outputs) as f64
}

fn dit(config: &Dit, setting: &StateSpace) -> f64 {
    let [height, width, channels] = setting.field;
    let tokens = (height.div_ceil(config.patch) * width.div_ceil(config.patch)) as f64;
    let (hidden, patch) = (config.hidden as f64, (config.patch * config.patch * channels) as f64);
    let ratio = config.mlp_ratio as f64;
    let block = tokens * hidden * ((4.0 + 2.0 * ratio) * hidden + 2.0 * tokens + ACTIVATION * ratio);
    config.depth as f64 * (block + 6.0 * hidden * hidden) + 2.0 * tokens * patch * hidden
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The products of a training step of the paper's networks, as counted for docs/developers/performance.md: 2.46 and 5.13 GFLOP.
    #[test]
    fn counts_agree_with_those_of_the_engine() {
        let setting = |field| StateSpace { field, periodic: [false; 2], conditions: 0 };
        let count = |operator: OperatorConfig, field, batch: f64| {
            2e-9 * 3.0 * batch * multiplications(&operator, &setting(field))
        };
        let mlp = count(OperatorConfig::Mlp(Mlp::default()), [1, 1, 3], 2048.0);
        let fno = count(OperatorConfig::Fno(Fno::default()), [1, 100, 1], 64.0);
        // The engine skips the gradient of the first layer's input; activations are counted here and not there.
        assert!((mlp / 2.46 - 1.0).abs() < 0.2, "{mlp}");
        assert!((fno / 5.13 - 1.0).abs() < 0.4, "{fno}");
    }

    #[test]
    fn a_cost_grows_with_the_grid_and_the_sizes() {
        let setting = |side| StateSpace { field: [side, side, 2], periodic: [false; 2], conditions: 0 };
        let unet = |channels: [usize; 2]| {
            OperatorConfig::Unet(Unet { channels: Some(channels.to_vec()), ..Unet::default() })
        };
        let cost = |channels, side| multiplications(&unet(channels), &setting(side));
        assert!((cost([16, 32], 64) / cost([16, 32], 32) - 4.0).abs() < 0.1);
        assert!(cost([32, 64], 32) > 3.0 * cost([16, 32], 32));
    }
}
