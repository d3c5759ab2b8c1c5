//! Operators: the networks that are trained.
//!
//! An operator maps a field, a time and PDE parameters to a field. The objective defines the meaning of input and output: for flow matching
//! a state and its velocity, for an autoregressive model a state and the next one.

mod boundary;
mod context;
mod dit;
mod fno;
mod layers;
mod mlp;
#[cfg(test)]
mod tests;
mod time_embedding;
mod unet;

use cfo_data::FieldShape;
use cfo_engine::{Graph, Node, Parameter};
use cfo_numerics::Grid;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::error::{CfoError, Result};

pub use boundary::Padding;
pub use context::{Context, ControlRamps};
pub use dit::Dit;
pub use fno::Fno;
pub use mlp::{Mlp, MlpActivation};
pub use time_embedding::TimeEmbedding;
pub use unet::Unet;

/// Largest number of channels of a layer. Products of a few such sizes do not overflow, so that they can be compared with the memory.
pub(crate) const MOST_CHANNELS: usize = 1 << 24;
/// Largest number of features of a time embedding, and largest width of tables that are computed while a network is built.
pub(crate) const MOST_FEATURES: usize = 1 << 14;
/// Largest number of repeated blocks.
pub(crate) const MOST_BLOCKS: usize = 1 << 10;

/// Returns an error if a size is too large, before memory is allocated for it.
pub(crate) fn at_most(key: &str, value: usize, most: usize) -> Result<()> {
    match value <= most {
        true => Ok(()),
        false => Err(CfoError::invalid(key, format!("{value} is too large; the largest value is {most}"))),
    }
}

/// A network architecture. To use your own network, implement this trait. `examples/own_operator.rs` trains one.
///
/// ```
/// use cfo::graph::{Activation, Graph, Initial, Node};
/// use cfo::operator::{Context, Operator, Setting};
///
/// /// A single matrix: exact for linear systems.
/// struct Matrix;
///
/// impl Operator for Matrix {
///     fn name(&self) -> &str {
///         "matrix"
///     }
///
///     fn apply(&self, graph: &mut Graph, setting: &Setting, field: Node, _: &Context) -> cfo::Result<Node> {
///         let weight = graph.parameter("matrix", [setting.inputs, setting.outputs], Initial::ZEROS)?;
///         Ok(graph.linear(field, weight, None, Activation::Identity)?)
///     }
/// }
/// # let _ = Matrix;
/// ```
pub trait Operator: Send + Sync {
    /// Returns the name in reports and checkpoints. A run is loaded only with an operator of the name that trained it.
    fn name(&self) -> &str;

    /// Appends the network on a field `[batch, rows, width, inputs]` and returns its output, `[batch, rows, width, outputs]`. The rows are the
    /// lines of points along the last axis of [`Setting::grid`].
    ///
    /// # Errors
    /// If the network cannot be built for `setting`.
    fn apply(&self, graph: &mut Graph, setting: &Setting, field: Node, context: &Context) -> Result<Node>;

    /// Checks that the network can be built for `setting`, before anything is built. The default accepts everything.
    ///
    /// # Errors
    /// If the network does not support the grid, or one of its sizes is out of range.
    fn check(&self, _setting: &Setting) -> Result<()> {
        Ok(())
    }

    /// Returns whether time is an input of the network.
    fn sees_time(&self) -> bool {
        true
    }

    /// Returns whether the same weights work on grids of any size.
    fn takes_any_grid(&self) -> bool {
        false
    }

    /// Returns the `[operator]` section of a recipe that describes this network; `None` for networks that recipes cannot describe.
    fn config(&self) -> Option<OperatorConfig> {
        None
    }
}

/// The shape of the states, the periodicity of their axes and the number of conditions.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct StateSpace {
    /// Grid and channels of a snapshot.
    pub field: FieldShape,
    /// Whether each axis of [`Grid::padded`] is periodic.
    pub periodic: [bool; Grid::MOST_AXES],
    /// Number of PDE parameters and controls that are inputs of the network.
    pub conditions: usize,
    /// Number of static fields that are inputs of the network.
    pub statics: usize,
}

impl StateSpace {
    pub(crate) fn new(shape: FieldShape, periodic: &[bool], conditions: usize) -> Self {
        let mut padded = [false; Grid::MOST_AXES];
        padded[Grid::MOST_AXES - shape.axes()..].iter_mut().zip(periodic).for_each(|(to, &from)| *to = from);
        Self { field: shape, periodic: padded, conditions, statics: 0 }
    }
}

/// Shapes an operator is built for.
#[derive(Clone, Debug, PartialEq)]
pub struct Setting {
    /// The points of the fields.
    pub grid: Grid,
    /// Number of channels of the input field; the last ones are the static fields.
    pub inputs: usize,
    /// Number of channels of the output field.
    pub outputs: usize,
    /// Whether each axis of [`Grid::padded`] is periodic.
    pub periodic: [bool; Grid::MOST_AXES],
    /// Number of PDE parameters and controls that are inputs of the network; 0 for none.
    pub conditions: usize,
    /// Whether time is an input of the network.
    pub timed: bool,
}

impl Setting {
    /// Creates the setting for states of a shape, with as many output as input channels. `periodic` has an entry for each axis.
    pub fn new(shape: FieldShape, periodic: &[bool], conditions: usize) -> Self {
        Self::of(&StateSpace::new(shape, periodic, conditions))
    }

    /// Creates the setting for states of a space, with as many output as input channels.
    pub fn of(states: &StateSpace) -> Self {
        let StateSpace { field: FieldShape { grid, channels }, periodic, conditions, .. } = *states;
        Self { grid, inputs: channels, outputs: channels, periodic, conditions, timed: true }
    }

    /// Returns the time, if it is an input of the network.
    pub fn time(&self, context: &Context) -> Option<Node> {
        self.timed.then_some(context.time)
    }

    /// Returns the axes of a batch of input fields, `[batch, rows, width, inputs]`.
    pub fn input(&self, batch: usize) -> [usize; 4] {
        FieldShape { grid: self.grid, channels: self.inputs }.tensor(batch)
    }

    /// Returns the axes of a batch of output fields, `[batch, rows, width, outputs]`.
    pub fn output(&self, batch: usize) -> [usize; 4] {
        FieldShape { grid: self.grid, channels: self.outputs }.tensor(batch)
    }
}

/// A network with its sizes, as in the section `[operator]` of a recipe.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "kind", rename_all = "lowercase")]
pub enum OperatorConfig {
    /// An MLP on the whole state: for ODE systems and small fields on a line.
    Mlp(Mlp),
    /// A Fourier neural operator (FNO): for fields on grids with one to three axes of any length.
    Fno(Fno),
    /// A U-Net: for fields on grids with one to three axes of any length.
    Unet(Unet),
    /// A diffusion transformer (DiT): for fields on grids with two or three axes.
    Dit(Dit),
}

impl Default for OperatorConfig {
    fn default() -> Self {
        Self::Mlp(Mlp::default())
    }
}

impl OperatorConfig {
    /// Returns the network that these sizes describe.
    pub fn operator(&self) -> &dyn Operator {
        match self {
            Self::Mlp(mlp) => mlp,
            Self::Fno(fno) => fno,
            Self::Unet(unet) => unet,
            Self::Dit(dit) => dit,
        }
    }

    /// Sets whether time is an input of the network.
    pub fn set_time(&mut self, on: bool) {
        if self.operator().sees_time() == on {
            return;
        }
        match self {
            Self::Mlp(mlp) => mlp.time = on.into(),
            Self::Fno(fno) => fno.time = on,
            Self::Unet(unet) => unet.time = on.into(),
            Self::Dit(dit) => dit.time = on.into(),
        }
    }

    /// Returns the name in recipes and reports.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Mlp(_) => "mlp",
            Self::Fno(_) => "fno",
            Self::Unet(_) => "unet",
            Self::Dit(_) => "dit",
        }
    }
}

/// Returns the number of trainable parameters of a graph; the two halves of a complex weight count as one.
pub fn parameter_count(graph: &Graph) -> usize {
    graph.parameters().iter().map(Parameter::count).sum()
}
