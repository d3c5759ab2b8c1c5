//! Operators: networks that map a time and a state to a velocity by appending themselves to a graph.

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

use crate::error::Result;

pub use dit::DitConfig;
pub use fno::FnoConfig;
pub use layers::Padding;
pub use mlp::{MlpActivation, MlpConfig};
pub use unet::UnetConfig;

/// What an operator is given.
#[derive(Clone, Copy, Debug)]
pub struct OperatorInputs {
    /// `[batch]`: times in [0, 1]; `None` for a network that does not see time.
    pub time: Option<Node>,
    /// `[batch, height, width, channels]`: normalised states.
    pub state: Node,
    /// `[batch, parameters]`: normalised PDE parameters, if the network is conditioned on them.
    pub conditions: Option<Node>,
}

/// A network: a function that appends nodes. A user's own architecture is one more implementor.
///
/// ```
/// use cfo::{Operator, OperatorInputs};
/// use cfo_engine::{Activation, EngineError, Graph, Initial, Node};
///
/// /// A single matrix: exact for linear systems.
/// struct Matrix;
///
/// impl Operator for Matrix {
///     fn velocity(&self, graph: &mut Graph, inputs: &OperatorInputs) -> Result<Node, EngineError> {
///         let channels = graph.shape(inputs.state).last();
///         let weight = graph.parameter("matrix", [channels, channels], Initial::ZEROS)?;
///         graph.linear(inputs.state, weight, None, Activation::Identity)
///     }
/// }
/// # let _ = Matrix;
/// ```
pub trait Operator: Send + Sync {
    /// Appends the velocity, shaped like the state.
    ///
    /// # Errors
    /// If the state's shape is not one that the network takes.
    fn velocity(&self, graph: &mut Graph, inputs: &OperatorInputs) -> Result<Node, cfo_engine::EngineError>;
}

/// What an operator must know of the data.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Setting {
    /// Height, width and channels of a snapshot.
    pub field: [usize; 3],
    /// Whether each of the two axes is periodic.
    pub periodic: [bool; 2],
    /// PDE parameters that it is conditioned on.
    pub conditions: usize,
}

impl Setting {
    /// The setting of a data set.
    pub fn new(shape: FieldShape, periodic: &[bool], conditions: usize) -> Self {
        let lead = 2 - shape.axes;
        let axis = |i: usize| i >= lead && periodic.get(i - lead).copied().unwrap_or(false);
        Self { field: [shape.height, shape.width, shape.channels], periodic: [axis(0), axis(1)], conditions }
    }
}

/// The choice of network with its sizes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "kind", rename_all = "lowercase")]
pub enum OperatorConfig {
    /// A multilayer perceptron on the whole state.
    Mlp(MlpConfig),
    /// A Fourier neural operator.
    Fno(FnoConfig),
    /// A U-Net.
    Unet(UnetConfig),
    /// A diffusion transformer.
    Dit(DitConfig),
}

impl Default for OperatorConfig {
    fn default() -> Self {
        Self::Mlp(MlpConfig::default())
    }
}

impl OperatorConfig {
    /// The network for data of a setting.
    ///
    /// # Errors
    /// If the grid does not fit its strides or patches.
    pub fn build(&self, setting: &Setting) -> Result<Box<dyn Operator>> {
        match self {
            Self::Mlp(config) => Ok(Box::new(config.build(setting)?)),
            Self::Fno(config) => Ok(Box::new(config.build(setting)?)),
            Self::Unet(config) => Ok(Box::new(config.build(setting)?)),
            Self::Dit(config) => Ok(Box::new(config.build(setting)?)),
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
        match self {
            Self::Mlp(config) => config.time_embedding,
            Self::Fno(config) => config.time_embedding,
            Self::Unet(config) => config.time_embedding,
            Self::Dit(config) => config.time_embedding,
        }
    }
}

/// Trainable numbers of a graph's parameters; the two halves of a complex weight count as one.
pub fn parameter_count(graph: &Graph) -> usize {
    graph.parameters().iter().map(Parameter::count).sum()
}
