//! Errors of building, planning and running graphs.

use crate::shape::Shape;

/// The error of this crate's functions.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum EngineError {
    /// The shapes of two operands are incompatible.
    #[error("`{operation}` cannot combine shapes {left} and {right}: {needed}")]
    ShapeMismatch {
        /// The operation.
        operation: &'static str,
        /// Shape of the first operand.
        left: Shape,
        /// Shape of the second operand.
        right: Shape,
        /// Compatible shapes.
        needed: String,
    },
    /// An operand has a shape that the operation does not accept.
    #[error("`{operation}` cannot take shape {found}: {needed}")]
    BadShape {
        /// The operation.
        operation: &'static str,
        /// The operand's shape.
        found: Shape,
        /// Accepted shapes.
        needed: String,
    },
    /// An operand has the wrong element type.
    #[error("`{operation}` needs {needed} elements but operand {operand} has {found}")]
    BadElement {
        /// The operation.
        operation: &'static str,
        /// Index of the operand.
        operand: usize,
        /// The operand's element type.
        found: &'static str,
        /// The required element type.
        needed: &'static str,
    },
    /// An attribute of an operation is out of range.
    #[error("`{operation}`: {problem}")]
    BadAttribute {
        /// The operation.
        operation: &'static str,
        /// Description of the problem.
        problem: String,
    },
    /// A gradient was requested of a value that is not a scalar.
    #[error("a gradient needs a scalar loss, but the loss has shape {0}")]
    LossNotScalar(Shape),
    /// An operation on the way from the loss to a parameter has no derivative.
    #[error("`{0}` has no derivative, but the gradient goes through it")]
    NotDifferentiable(&'static str),
    /// A name was used for two different tensors.
    #[error("tensor `{name}` is {found} in memory, but the graph needs {needed}")]
    TensorMismatch {
        /// Name of the tensor.
        name: String,
        /// The tensor in memory.
        found: String,
        /// The tensor that the graph needs.
        needed: String,
    },
    /// A tensor that a program reads is not in memory.
    #[error("tensor `{0}` is not in memory")]
    TensorMissing(String),
    /// Data have the wrong length or type for a tensor.
    #[error("`{name}` takes {needed}, but {found} were given")]
    DataMismatch {
        /// Name of the tensor or output.
        name: String,
        /// The data.
        found: String,
        /// The data needed.
        needed: String,
    },
    /// A program, feed or drain is used with another memory than its own.
    #[error("the program was compiled for the tensors of another memory")]
    OtherMemory,
    /// There is not enough memory for the plan.
    #[error("{} of memory are needed, but {} are free", mebibytes(*needed), mebibytes(*available))]
    OutOfMemory {
        /// Bytes needed.
        needed: u64,
        /// Free bytes that the device reports.
        available: u64,
    },
    /// The device does not exist or cannot be used.
    #[error("device `{name}` is not available: {reason}")]
    DeviceUnavailable {
        /// Name of the device, as given.
        name: String,
        /// The reason.
        reason: String,
    },
    /// The device or one of its libraries reported a failure.
    #[error("{device}: {call} failed: {problem}")]
    DeviceFailure {
        /// Name of the device.
        device: String,
        /// The failed call.
        call: String,
        /// The reported failure.
        problem: String,
    },
}

fn mebibytes(bytes: u64) -> String {
    format!("{:.1} MiB", bytes as f64 / f64::from(1 << 20))
}

impl EngineError {
    /// Creates the error that two shapes are incompatible.
    pub fn shape_mismatch(
        operation: &'static str,
        left: &Shape,
        right: &Shape,
        needed: impl Into<String>,
    ) -> Self {
        Self::ShapeMismatch { operation, left: left.clone(), right: right.clone(), needed: needed.into() }
    }

    /// Creates the error that an operation does not accept a shape.
    pub fn bad_shape(operation: &'static str, found: &Shape, needed: impl Into<String>) -> Self {
        Self::BadShape { operation, found: found.clone(), needed: needed.into() }
    }

    /// Creates the error that an attribute of an operation is out of range.
    pub fn bad_attribute(operation: &'static str, problem: impl Into<String>) -> Self {
        Self::BadAttribute { operation, problem: problem.into() }
    }

    /// Advice on the error, where there is any.
    pub fn hint(&self) -> Option<String> {
        let hint = match self {
            Self::LossNotScalar(_) => "reduce the loss with `mean` or `sum` over all axes first",
            Self::OutOfMemory { .. } => "use a smaller batch, or end other programs that use the memory",
            Self::TensorMissing(_) => {
                "initialise the parameters, or insert the tensor before the program runs"
            }
            Self::OtherMemory => "use the memory that it was compiled for, or compile it for this memory",
            Self::DeviceUnavailable { .. } => "the CPU is always available",
            _ => return None,
        };
        Some(hint.into())
    }
}

/// The result of this crate's functions.
pub type Result<T, E = EngineError> = std::result::Result<T, E>;
