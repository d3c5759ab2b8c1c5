//! The diffusion transformer: patches, attention, and normalisation modulated by the time (adaLN-Zero).
//!
//! A grid that the patches do not tile is padded at its end: circularly along periodic axes, with the last value along others. The velocity
//! is cropped.

use cfo_engine::{Activation, EngineError, Graph, Initial, Node};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::boundary::{Padding, Volume};
use super::layers::{linear_drawn, sinusoids};
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
        let volume = Volume { node: field, depth: setting.grid.padded()[0] };
        // Patches of lines and planes have depth 1.
        let thick = if setting.grid.extended() > 2 { patch } else { 1 };
        let filled = Padding::Auto.boundary(setting).fill(graph, volume, [thick, patch, patch])?;
        let (batch, [d, h, w]) = (graph.shape(field).axes()[0], filled.sides(graph));
        let code = self.code(graph, setting.time(context), context.conditions, batch)?;
        let patches = to_patches(graph, filled, [thick, patch])?;
        let tokens = Self::xavier(graph, "embed", patches, hidden, Activation::Identity)?;
        let counts = [d / thick, h / patch, w / patch];
        let position = position_code(&counts[usize::from(thick == 1)..], hidden);
        let position = graph.constant([1, counts.iter().product(), hidden], position)?;
        let mut x = graph.add(tokens, position)?;
        for block in 0..depth {
            x = self.block(graph, &format!("block.{block}"), x, code)?;
        }
        let modulation = Self::zero(graph, "final.modulation", code, 2 * hidden)?;
        let shift = graph.slice(modulation, 1, 0, hidden)?;
        let scale = graph.slice(modulation, 1, hidden, hidden)?;
        let x = graph.layer_norm(x, Some((shift, scale)), EPSILON)?;
        let x = Self::zero(graph, "head", x, thick * patch * patch * setting.outputs)?;
        let whole = of_patches(graph, x, [d, h, w], [thick, patch])?;
        Ok(whole.crop(graph, setting.grid.padded())?.node)
    }
}

/// Appends the division of volumes into patches `[batch, tokens, (depth, height, width, channels)]` of some depth and side.
fn to_patches(graph: &mut Graph, x: Volume, [depth, side]: [usize; 2]) -> Result<Node, EngineError> {
    let planes = x.planes(graph)?;
    let flat = graph.patches(planes, side)?;
    if depth == 1 && x.depth == 1 {
        return Ok(flat);
    }
    let axes = graph.shape(flat).axes().to_vec();
    let (batch, tokens, size) = (axes[0] / x.depth, axes[1], axes[2]);
    let layers = x.depth / depth;
    let stacked = graph.var(flat).reshape([batch, layers, depth, tokens, size]).permute(&[0, 1, 3, 2, 4]);
    stacked.reshape([batch, layers * tokens, depth * size]).node()
}

/// Appends the inverse of [`to_patches`] for fields of the given depth, height and width.
fn of_patches(
    graph: &mut Graph,
    x: Node,
    [depth, height, width]: [usize; 3],
    [thick, side]: [usize; 2],
) -> Result<Volume, EngineError> {
    let axes = graph.shape(x).axes().to_vec();
    let (batch, layers) = (axes[0], depth / thick);
    let (tokens, size) = (axes[1] / layers, axes[2] / thick);
    let mut flat = x;
    if depth > 1 {
        let stacked = graph.var(x).reshape([batch, layers, tokens, thick, size]).permute(&[0, 1, 3, 2, 4]);
        flat = stacked.reshape([batch * depth, tokens, size]).node()?;
    }
    let planes = graph.unpatch(flat, side, height, width)?;
    Volume::of_planes(graph, planes, depth)
}

/// Returns sines and cosines of each token's index along each axis of the grid of tokens, the last axis first. Features that remain are 0.
fn position_code(counts: &[usize], width: usize) -> Vec<f64> {
    let part = width / (2 * counts.len());
    let code = |position: usize| {
        let angle = move |d: usize| position as f64 * 10_000_f64.powf(-(d as f64) / part as f64);
        (0..part).map(move |d| angle(d).sin()).chain((0..part).map(move |d| angle(d).cos()))
    };
    let mut values = Vec::new();
    for token in 0..counts.iter().product() {
        let mut rest = token;
        for &count in counts.iter().rev() {
            values.extend(code(rest % count));
            rest /= count;
        }
        values.resize((token + 1) * width, 0.0);
    }
    values
}
