//! How parameters are drawn before training.

/// The distribution of a parameter's first value.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Initial {
    /// The same number everywhere.
    Constant(f64),
    /// Uniform between minus and plus the bound.
    Uniform(f64),
    /// Normal with mean 0 and the given standard deviation.
    Normal(f64),
}

impl Initial {
    /// All zeros.
    pub const ZEROS: Self = Self::Constant(0.0);
    /// All ones.
    pub const ONES: Self = Self::Constant(1.0);

    /// Uniform in `±1 / sqrt(fan_in)`, the usual choice for linear layers and convolutions.
    pub fn fan_in(fan_in: usize) -> Self {
        Self::Uniform(1.0 / (fan_in.max(1) as f64).sqrt())
    }

    /// Xavier's uniform distribution, `±sqrt(6 / (fan_in + fan_out))`.
    pub fn xavier(fan_in: usize, fan_out: usize) -> Self {
        Self::Uniform((6.0 / (fan_in + fan_out).max(1) as f64).sqrt())
    }
}
