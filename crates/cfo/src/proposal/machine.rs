//! The speed at which a machine trains.

use std::fmt;

use cfo_device::Device;

/// The speed at which a machine trains small networks.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Machine {
    cores: Option<usize>,
    /// Multiplications, each with an addition, per second in whole training steps.
    rate: f64,
}

impl Machine {
    /// Returns the speed of this machine.
    pub fn here() -> Self {
        match Device::best() {
            Device::Cpu => Self::cores(std::thread::available_parallelism().map_or(1, usize::from)),
            // A data-centre GPU.
            _ => Self { cores: None, rate: 5e12 },
        }
    }

    /// Returns the speed of a number of cores of a present-day processor for small networks. Large networks train at up to twice this speed
    /// (docs/developers/performance.md).
    pub fn cores(count: usize) -> Self {
        // Small steps do not scale to many cores.
        Self { cores: Some(count), rate: 2e10 * count.clamp(1, 16) as f64 }
    }

    /// Returns the duration of training steps in seconds. `multiplications` are those of the forward pass of a batch.
    pub(super) fn seconds(self, multiplications: f64, steps: u32) -> f64 {
        // The backward pass has two products of the size of each forward product.
        3.0 * multiplications * f64::from(steps) / self.rate
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
