//! The diffusion transformer: patches, attention, and normalisation modulated by the time (adaLN-Zero).
//!
//! A grid that the patches do not tile is padded at its end: circularly along periodic axes, with the last value along others. The velocity
//! is cropped.

use cfo_engine::{Activation, EngineError, Graph, Initial, Node};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::layers::{Padding, crop, linear_drawn, sinusoids};
use super::{Context, MOST_BLOCKS, MOST_FEATURES, Operator, OperatorConfig, Setting, TimeEmbedding, at_most};
use crate::error::{CfoError, Result};

/// Number of features of the time embedding.
const FEATURES: usize = 256;
/// Added to the variance in layer normalisation.
const EPSILON: f64 = 1e-6;

/// A diffusion transformer (DiT). The default is the paper's network: 13.6 M parameters on a plane with two channels.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Dit {
    /// Points along the side of a patch.
    pub patch: usize,
    /// Number of features of a token.
    pub hidden: usize,
    /// Number of transformer blocks.
    pub depth: usize,
    /// Number of attention heads.
    pub heads: usize,
    /// Width of the MLP inside a block, as a multiple of `hidden`.
    pub mlp_ratio: usize,
    /// Whether time is an input of the network; a number sets the features of its embedding, instead of 256. Set it to `false` for
    /// autonomous systems.
    pub time: TimeEmbedding,
}

impl Default for Dit {
    fn default() -> Self {
        Self { patch: 8, hidden: 384, depth: 4, heads: 8, mlp_ratio: 6, time: TimeEmbedding::On }
    }
}

impl Dit {
    fn xavier(
        graph: &mut Graph,
        name: &str,
        x: Node,
        outputs: usize,
        activation: Activation,
    ) -> Result<Node, EngineError> {
        let inputs = graph.shape(x).last();
        linear_drawn(graph, name, x, outputs, activation, [Initial::xavier(inputs, outputs), Initial::ZEROS])
    }

    fn zero(graph: &mut Graph, name: &str, x: Node, outputs: usize) -> Result<Node, EngineError> {
        linear_drawn(graph, name, x, outputs, Activation::Identity, [Initial::ZEROS; 2])
    }

    /// Appends the conditioning vector `[batch, hidden]`, after SiLU.
    fn code(
        &self,
        graph: &mut Graph,
        time: Option<Node>,
        conditions: Option<Node>,
        batch: usize,
    ) -> Result<Node, EngineError> {
        let hidden = self.hidden;
        let small = [Initial::Normal(0.02), Initial::ZEROS];
        let mut code = match time {
            Some(time) => {
                let features = sinusoids(graph, time, self.time.features(FEATURES))?;
                let x = linear_drawn(graph, "time.0", features, hidden, Activation::Silu, small)?;
                linear_drawn(graph, "time.1", x, hidden, Activation::Identity, small)?
            }
            None => {
                let constant = graph.formula().parameter("constant", [1, hidden], Initial::ZEROS);
                constant.broadcast([batch, hidden]).node()?
            }
        };
        if let Some(conditions) = conditions {
            let x = linear_drawn(graph, "conditions.0", conditions, hidden, Activation::Silu, small)?;
            let more = linear_drawn(graph, "conditions.1", x, hidden, Activation::Identity, small)?;
            code = graph.add(code, more)?;
        }
        graph.silu(code)
    }

    /// Appends `x + gate * y` with one gate for each sample and feature.
    fn gated(graph: &mut Graph, x: Node, gate: Node, y: Node) -> Result<Node, EngineError> {
        let axes = graph.shape(gate).axes().to_vec();
        (x + graph.var(gate).reshape([axes[0], 1, axes[1]]) * y).node()
    }

    fn block(&self, graph: &mut Graph, name: &str, x: Node, code: Node) -> Result<Node, EngineError> {
        let width = self.hidden;
        let modulation = Self::zero(graph, &format!("{name}.modulation"), code, 6 * width)?;
        let mut part = [x; 6];
        for (i, part) in part.iter_mut().enumerate() {
            *part = graph.slice(modulation, 1, i * width, width)?;
        }
        let [shift, scale, gate, shift_mlp, scale_mlp, gate_mlp] = part;
        let y = graph.layer_norm(x, Some((shift, scale)), EPSILON)?;
        let qkv = Self::xavier(graph, &format!("{name}.qkv"), y, 3 * width, Activation::Identity)?;
        let y = graph.attention(qkv, self.heads)?;
        let y = Self::xavier(graph, &format!("{name}.out"), y, width, Activation::Identity)?;
        let x = Self::gated(graph, x, gate, y)?;
        let y = graph.layer_norm(x, Some((shift_mlp, scale_mlp)), EPSILON)?;
        let y = Self::xavier(graph, &format!("{name}.mlp.0"), y, self.mlp_ratio * width, Activation::Gelu)?;
        let y = Self::xavier(graph, &format!("{name}.mlp.1"), y, width, Activation::Identity)?;
        Self::gated(graph, x, gate_mlp, y)
    }
}

impl Operator for Dit {
    fn name(&self) -> &str {
        "dit"
    }

    fn sees_time(&self) -> bool {
        self.time.is_on()
    }

    fn config(&self) -> Option<OperatorConfig> {
        Some(OperatorConfig::Dit(self.clone()))
    }

    fn check(&self, _: &Setting) -> Result<()> {
        let sizes = [self.patch, self.hidden, self.depth, self.heads, self.mlp_ratio];
        if sizes.contains(&0) || !self.hidden.is_multiple_of(self.heads) || !self.hidden.is_multiple_of(4) {
            return Err(CfoError::invalid(
                "operator",
                format!(
                    "sizes must be positive and `hidden` = {} divisible by `heads` and by 4",
                    self.hidden
                ),
            ));
        }
        at_most("operator.hidden", self.hidden, MOST_FEATURES)?;
        at_most("operator.depth", self.depth, MOST_BLOCKS)?;
        at_most("operator.mlp_ratio", self.mlp_ratio, MOST_BLOCKS)?;
        at_most("operator.patch", self.patch, MOST_BLOCKS)?;
        self.time.check()
    }

    fn apply(&self, graph: &mut Graph, setting: &Setting, field: Node, context: &Context) -> Result<Node> {
        let Self { patch, hidden, depth, .. } = *self;
        let filled = Padding::Auto.boundary(setting).fill(graph, field, [patch; 2])?;
        let axes = graph.shape(filled).axes().to_vec();
        let [batch, h, w] = [axes[0], axes[1], axes[2]];
        let code = self.code(graph, setting.time(context), context.conditions, batch)?;
        let patches = graph.patches(filled, patch)?;
        let tokens = Self::xavier(graph, "embed", patches, hidden, Activation::Identity)?;
        let position = position_code(h / patch, w / patch, hidden);
        let position = graph.constant([1, (h / patch) * (w / patch), hidden], position)?;
        let mut x = graph.add(tokens, position)?;
        for block in 0..depth {
            x = self.block(graph, &format!("block.{block}"), x, code)?;
        }
        let modulation = Self::zero(graph, "final.modulation", code, 2 * hidden)?;
        let shift = graph.slice(modulation, 1, 0, hidden)?;
        let scale = graph.slice(modulation, 1, hidden, hidden)?;
        let x = graph.layer_norm(x, Some((shift, scale)), EPSILON)?;
        let x = Self::zero(graph, "head", x, patch * patch * setting.outputs)?;
        let whole = graph.unpatch(x, patch, h, w)?;
        Ok(crop(graph, whole, [setting.grid.rows(), setting.grid.width()])?)
    }
}

/// Returns sines and cosines of each token's column, then of its row.
fn position_code(rows: usize, columns: usize, width: usize) -> Vec<f64> {
    let quarter = width / 4;
    let code = |position: usize| {
        let angle = move |d: usize| position as f64 * 10_000_f64.powf(-(d as f64) / quarter as f64);
        (0..quarter).map(move |d| angle(d).sin()).chain((0..quarter).map(move |d| angle(d).cos()))
    };
    (0..rows * columns).flat_map(|i| code(i % columns).chain(code(i / columns))).collect()
}
