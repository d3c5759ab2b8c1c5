use thiserror::Error;

/// Errors of an integration. Errors that occur on the way contain the time reached.
#[derive(Clone, Debug, PartialEq, Error)]
pub enum OdeError {
    /// The initial time is NaN or infinite.
    #[error("initial time is `{0}`; it must be finite")]
    InitialTime(f64),
    /// The initial state contains NaN or infinity.
    #[error("entry {index} of the initial state is `{value}`; it must be finite")]
    InitialState {
        /// Index of the value.
        index: usize,
        /// The value.
        value: f64,
    },
    /// An output time is not finite, or its direction differs from that of the times before it.
    #[error(
        "output time {index} is `{time}` after `{previous}`; times must be finite and in one direction from `{start}`"
    )]
    OutputTimes {
        /// Index of the output time.
        index: usize,
        /// The output time.
        time: f64,
        /// The time before it.
        previous: f64,
        /// The initial time.
        start: f64,
    },
    /// A fixed step that is zero, negative or not a number.
    #[error("step size is `{0}`; it must be positive")]
    InvalidStep(f64),
    /// A step count of zero.
    #[error("found 0 steps; at least 1 is needed")]
    NoSteps,
    /// Tolerances that are negative, NaN or both zero.
    #[error("tolerances are rtol = `{rtol}`, atol = `{atol}`; both must be at least 0 and one above 0")]
    InvalidTolerance {
        /// Relative tolerance.
        rtol: f64,
        /// Absolute tolerance.
        atol: f64,
    },
    /// Adaptive steps with a method that has no error estimate.
    #[error("`{0}` does not estimate its error, so it cannot choose its steps")]
    NoErrorEstimate(&'static str),
    /// The state is no longer finite.
    #[error("the state is no longer finite; reached t = {time}")]
    Diverged {
        /// Last time with a finite state.
        time: f64,
    },
    /// The tolerance or the step requires steps below the resolution of time.
    #[error("the step shrank to {step:e}, below the resolution of time; reached t = {time}")]
    StepTooSmall {
        /// Time reached.
        time: f64,
        /// The step that was too small.
        step: f64,
    },
    /// The limit on attempted steps was reached.
    #[error("{limit} steps were not enough to reach t = {target}; reached t = {time}")]
    TooManySteps {
        /// Time reached.
        time: f64,
        /// The output time that was not reached.
        target: f64,
        /// The limit.
        limit: u64,
    },
}

impl OdeError {
    /// Advice on the error, in one line.
    pub fn hint(&self) -> Option<String> {
        let hint = match self {
            Self::InitialTime(_) | Self::InitialState { .. } => return None,
            Self::OutputTimes { .. } => "integrate to earlier and to later times in two calls",
            Self::InvalidStep(_) | Self::NoSteps => return None,
            Self::InvalidTolerance { .. } => "1e-4 relative and 1e-6 absolute are a good start",
            Self::NoErrorEstimate(_) => "use `tsit5` or `dopri5`, or give a fixed step",
            Self::Diverged { .. } => "take smaller steps; if that does not help, the field itself diverges",
            Self::StepTooSmall { .. } => {
                "the field may be stiff or diverge there; loosen the tolerances or end earlier"
            }
            Self::TooManySteps { .. } => {
                "the field may be stiff; loosen the tolerances or raise the limit on steps"
            }
        };
        Some(hint.into())
    }

    /// The time reached, for errors that occur on the way.
    pub fn time_reached(&self) -> Option<f64> {
        match *self {
            Self::Diverged { time } | Self::StepTooSmall { time, .. } | Self::TooManySteps { time, .. } => {
                Some(time)
            }
            _ => None,
        }
    }
}
