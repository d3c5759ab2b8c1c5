//! What can go wrong when a graph is built, planned or run.

use crate::shape::Shape;

/// The error of this crate's functions.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum EngineError {
    /// Two operands of an operation do not fit together.
    #[error("`{operation}` cannot combine shapes {left} and {right}: {needed}")]
    ShapeMismatch {
        /// The operation that was being added.
        operation: &'static str,
        /// Shape of the first operand.
        left: Shape,
        /// Shape of the second operand.
        right: Shape,
        /// What would have fitted.
        needed: String,
    },
    /// One operand has a shape that the operation cannot take.
    #[error("`{operation}` cannot take shape {found}: {needed}")]
    BadShape {
        /// The operation that was being added.
        operation: &'static str,
        /// The shape found.
        found: Shape,
        /// What the operation takes.
        needed: String,
    },
    /// An operand has the wrong kind of element.
    #[error("`{operation}` needs {needed} elements but operand {operand} has {found}")]
    BadElement {
        /// The operation that was being added.
        operation: &'static str,
        /// Which operand, from 0.
        operand: usize,
        /// The kind found.
        found: &'static str,
        /// The kind needed.
        needed: &'static str,
    },
    /// An attribute of an operation is out of range.
    #[error("`{operation}`: {problem}")]
    BadAttribute {
        /// The operation that was being added.
        operation: &'static str,
        /// What is wrong with it.
        problem: String,
    },
    /// A gradient was asked of something that is not a scalar.
    #[error("a gradient needs a scalar loss, but the loss has shape {found}")]
    LossNotScalar {
        /// The shape found.
        found: Shape,
    },
    /// An operation on the way from the loss to a parameter has no derivative.
    #[error("`{operation}` has no derivative, but the gradient goes through it")]
    NotDifferentiable {
        /// The operation.
        operation: &'static str,
    },
    /// A name was used for two different tensors.
    #[error("tensor `{name}` is {found} in memory, but the graph needs {needed}")]
    TensorMismatch {
        /// Name of the tensor.
        name: String,
        /// What memory holds.
        found: String,
        /// What the graph needs.
        needed: String,
    },
    /// A tensor that a program reads was never given a value.
    #[error("tensor `{name}` is not in memory")]
    TensorMissing {
        /// Name of the tensor.
        name: String,
    },
    /// Data of the wrong length or kind for a tensor.
    #[error("`{name}` takes {needed}, but {found} were given")]
    DataMismatch {
        /// Name of the tensor or output.
        name: String,
        /// What was given.
        found: String,
        /// What fits.
        needed: String,
    },
    /// A program, feed or drain meets tensors that it was not made for.
    #[error("the program was compiled for the tensors of another memory")]
    OtherMemory,
    /// The plan does not fit the memory that there is.
    #[error("{} of memory are needed, but {} are free", mebibytes(*needed), mebibytes(*available))]
    OutOfMemory {
        /// Bytes asked for.
        needed: u64,
        /// Bytes that the device says are free.
        available: u64,
    },
    /// The device asked for is not there.
    #[error("device `{name}` is not available: {reason}")]
    DeviceUnavailable {
        /// Name as given.
        name: String,
        /// Why not.
        reason: String,
    },
    /// The device or one of its libraries reported a failure.
    #[error("{device}: {call} failed: {problem}")]
    DeviceFailure {
        /// Which device.
        device: String,
        /// Which call.
        call: String,
        /// What it said.
        problem: String,
    },
}

fn mebibytes(bytes: u64) -> String {
    format!("{:.1} MiB", bytes as f64 / f64::from(1 << 20))
}

impl EngineError {
    /// What to do next, where that can be said.
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::LossNotScalar { .. } => {
                Some("reduce the loss with `mean` or `sum` over all axes first".into())
            }
            Self::OutOfMemory { .. } => {
                Some("use a smaller batch, or end other programs that use the memory".into())
            }
            Self::TensorMissing { .. } => {
                Some("initialise the parameters, or insert the tensor before the program runs".into())
            }
            Self::OtherMemory => {
                Some("use the memory that it was compiled for, or compile it for this memory".into())
            }
            Self::DeviceUnavailable { .. } => Some("the CPU is always available".into()),
            _ => None,
        }
    }
}

/// The result of this crate's functions.
pub type Result<T, E = EngineError> = std::result::Result<T, E>;
