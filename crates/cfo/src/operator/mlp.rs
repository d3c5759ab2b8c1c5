//! The MLP: for ODE systems and small one-dimensional fields.

use cfo_engine::{Activation, Graph, Node};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::layers::{linear, sinusoids};
use super::{Context, MOST_CHANNELS, Operator, OperatorConfig, Setting, TimeEmbedding, at_most};
use crate::error::{CfoError, Result};

/// Number of features of the time embedding: sines and cosines at 16 frequencies.
const FEATURES: usize = 32;

/// An MLP on the whole state, concatenated with the time embedding and the PDE parameters. The default is the paper's network for Lorenz
/// (202,499 parameters).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Mlp {
    /// Widths of the hidden layers.
    pub hidden: Vec<usize>,
    /// Activation after each hidden layer. `silu` and `gelu` give a smooth field; with `relu`, the paper's choice, the field has kinks.
    pub activation: MlpActivation,
    /// Whether time is an input of the network; a number sets the features of its embedding, instead of 32. Set it to `false` for
    /// autonomous systems.
    pub time: TimeEmbedding,
}

impl Default for Mlp {
    fn default() -> Self {
        Self {
            hidden: vec![128, 256, 256, 256, 128],
            activation: MlpActivation::Relu,
            time: TimeEmbedding::On,
        }
    }
}

/// The activation after a hidden layer of an [`Mlp`].
///
/// With `relu`, the paper's choice, the learned field has kinks, at which solvers lose their high order; with the others it is smooth.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum MlpActivation {
    /// `max(x, 0)`.
    #[default]
    Relu,
    /// `x * sigmoid(x)`.
    Silu,
    /// Gaussian error linear unit.
    Gelu,
}

impl From<MlpActivation> for Activation {
    fn from(activation: MlpActivation) -> Self {
        match activation {
            MlpActivation::Relu => Self::Relu,
            MlpActivation::Silu => Self::Silu,
            MlpActivation::Gelu => Self::Gelu,
        }
    }
}

impl Operator for Mlp {
    fn name(&self) -> &str {
        "mlp"
    }

    fn sees_time(&self) -> bool {
        self.time.is_on()
    }

    fn config(&self) -> Option<OperatorConfig> {
        Some(OperatorConfig::Mlp(self.clone()))
    }

    fn check(&self, _: &Setting) -> Result<()> {
        if self.hidden.contains(&0) {
            return Err(CfoError::invalid("operator.hidden", "a layer needs at least one unit"));
        }
        for &width in &self.hidden {
            at_most("operator.hidden", width, MOST_CHANNELS)?;
        }
        self.time.check()
    }

    fn apply(&self, graph: &mut Graph, setting: &Setting, field: Node, context: &Context) -> Result<Node> {
        let shape = graph.shape(field).clone();
        let batch = shape.axes()[0];
        let mut parts = vec![graph.reshape(field, [batch, shape.len() / batch])?];
        if let Some(time) = setting.time(context) {
            parts.push(sinusoids(graph, time, self.time.features(FEATURES))?);
        }
        parts.extend(context.conditions);
        let mut x = graph.concat(&parts, 1)?;
        for (layer, &width) in self.hidden.iter().enumerate() {
            x = linear(graph, &format!("hidden.{layer}"), x, width, self.activation.into())?;
        }
        let shape = setting.output(batch);
        let output = linear(graph, "head", x, shape[1..].iter().product(), Activation::Identity)?;
        Ok(graph.reshape(output, shape)?)
    }
}

#[cfg(test)]
mod tests {
    use cfo_data::FieldShape;

    use super::*;
    use crate::operator::parameter_count;

    fn parameters(timed: bool) -> usize {
        let mut graph = Graph::new();
        let setting = Setting { timed, ..Setting::new(FieldShape::system(3), &[], 0) };
        let time = graph.input("time", [7]).unwrap();
        let field = graph.input("state", [7, 1, 1, 3]).unwrap();
        let context = Context::at(time);
        let velocity = Mlp::default().apply(&mut graph, &setting, field, &context).unwrap();
        assert_eq!(graph.shape(velocity), graph.shape(field));
        parameter_count(&graph)
    }

    #[test]
    fn it_has_the_papers_size() {
        assert_eq!(parameters(true), 202_499);
        assert_eq!(parameters(false), 198_403);
    }
}
