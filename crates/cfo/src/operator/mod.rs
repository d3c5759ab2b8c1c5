//! Operators: networks that append themselves to a graph.
//!
//! An operator maps a field, a time and conditions to a field. What its input and its output mean is the objective's business: for flow
//! matching a state and its velocity, for next-step prediction a state and the next one.

mod dit;
mod fno;
mod layers;
mod mlp;
#[cfg(test)]
mod tests;
mod unet;

use cfo_data::FieldShape;
use cfo_engine::{Graph, Node, Parameter};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::error::{CfoError, Result};
use crate::model::StateSpace;

pub use dit::Dit;
pub use fno::Fno;
pub use layers::Padding;
pub use mlp::{Mlp, MlpActivation};
pub use unet::Unet;

/// Channels of a layer at most. Products of several such sizes can still be counted, and compared with the memory.
pub(crate) const MOST_CHANNELS: usize = 1 << 24;
/// Features of a time code and widths of tables that are computed while a network is built, at most.
pub(crate) const MOST_FEATURES: usize = 1 << 14;
/// Repeated blocks at most.
pub(crate) const MOST_BLOCKS: usize = 1 << 10;

/// Refuses a size that no network has, before memory is taken for it.
pub(crate) fn at_most(key: &str, value: usize, most: usize) -> Result<()> {
    match value <= most {
        true => Ok(()),
        false => Err(CfoError::invalid(key, format!("{value} is too large; the largest value is {most}"))),
    }
}

/// What an operator is given.
#[derive(Clone, Copy, Debug)]
pub struct OperatorInputs {
    /// `[batch]`: times in [0, 1]; `None` for a network that does not see time.
    pub time: Option<Node>,
    /// `[batch, height, width, inputs]`: what the objective feeds it, for most a normalised state.
    pub field: Node,
    /// `[batch, conditions]`: normalised PDE parameters, if the network is conditioned on them.
    pub conditions: Option<Node>,
}

/// A network: a function that appends nodes. A user's own architecture is one more implementor; `examples/own_operator.rs` trains one.
///
/// ```
/// use cfo::engine::{Activation, Graph, Initial, Node};
/// use cfo::operator::{Operator, OperatorInputs, Setting};
///
/// /// A single matrix: exact for linear systems.
/// struct Matrix;
///
/// impl Operator for Matrix {
///     fn name(&self) -> &str {
///         "matrix"
///     }
///
///     fn apply(&self, graph: &mut Graph, setting: &Setting, inputs: &OperatorInputs) -> cfo::Result<Node> {
///         let weight = graph.parameter("matrix", [setting.inputs, setting.outputs], Initial::ZEROS)?;
///         Ok(graph.linear(inputs.field, weight, None, Activation::Identity)?)
///     }
/// }
/// # let _ = Matrix;
/// ```
pub trait Operator: Send + Sync {
    /// Its name in reports and checkpoints. A run is loaded only with an operator of the name that trained it.
    fn name(&self) -> &str;

    /// Appends itself; the result is `[batch, height, width, outputs]`.
    ///
    /// # Errors
    /// If it cannot take the setting.
    fn apply(&self, graph: &mut Graph, setting: &Setting, inputs: &OperatorInputs) -> Result<Node>;

    /// Refuses data or sizes that it cannot take, before anything is built.
    ///
    /// # Errors
    /// What was found and what it takes.
    fn check(&self, _setting: &Setting) -> Result<()> {
        Ok(())
    }

    /// Whether it is given the time.
    fn sees_time(&self) -> bool {
        true
    }

    /// Whether the same weights serve grids of any size.
    fn takes_any_grid(&self) -> bool {
        false
    }

    /// How a recipe spells it; `None` if recipes have no words for it.
    fn config(&self) -> Option<OperatorConfig> {
        None
    }
}

/// What an operator must know of what it is given and what is wanted of it.
#[derive(Clone, Debug, PartialEq)]
pub struct Setting {
    /// Height and width of the grid: 1 x width on a line, 1 x 1 for a system of equations.
    pub grid: [usize; 2],
    /// Channels of the field that it is given.
    pub inputs: usize,
    /// Channels of the field that it returns.
    pub outputs: usize,
    /// Whether each of the two axes is periodic.
    pub periodic: [bool; 2],
    /// PDE parameters that it is conditioned on.
    pub conditions: usize,
}

impl Setting {
    /// For data of a shape, whose space axes are periodic or not.
    pub fn new(shape: FieldShape, periodic: &[bool], conditions: usize) -> Self {
        let StateSpace { field, periodic, conditions } = StateSpace::new(shape, periodic, conditions);
        Self::square(field, periodic, conditions)
    }

    /// For an operator that returns as many channels as it is given.
    pub fn square([height, width, channels]: [usize; 3], periodic: [bool; 2], conditions: usize) -> Self {
        Self { grid: [height, width], inputs: channels, outputs: channels, periodic, conditions }
    }
}

/// The choice of network with its sizes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "kind", rename_all = "lowercase")]
pub enum OperatorConfig {
    /// A multilayer perceptron on the whole state.
    Mlp(Mlp),
    /// A Fourier neural operator.
    Fno(Fno),
    /// A U-Net.
    Unet(Unet),
    /// A diffusion transformer.
    Dit(Dit),
}

impl Default for OperatorConfig {
    fn default() -> Self {
        Self::Mlp(Mlp::default())
    }
}

impl OperatorConfig {
    /// The network that it describes.
    pub fn operator(&self) -> &dyn Operator {
        match self {
            Self::Mlp(mlp) => mlp,
            Self::Fno(fno) => fno,
            Self::Unet(unet) => unet,
            Self::Dit(dit) => dit,
        }
    }

    /// Its name in recipes and reports.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Mlp(_) => "mlp",
            Self::Fno(_) => "fno",
            Self::Unet(_) => "unet",
            Self::Dit(_) => "dit",
        }
    }

    /// Whether the network sees the time.
    pub fn time_embedding(&self) -> bool {
        self.operator().sees_time()
    }
}

/// Trainable numbers of a graph's parameters; the two halves of a complex weight count as one.
pub fn parameter_count(graph: &Graph) -> usize {
    graph.parameters().iter().map(Parameter::count).sum()
}
