//! The U-Net of the paper, for fields with one to three space axes.
//!
//! Each scale has a block of two layers (convolution, group normalisation, SiLU) and a 4-tap convolution of stride 2. A block follows at
//! the bottom. On the way up, each scale has a transposed convolution, the concatenation with its block's output from the way down, and a
//! block. The time enters every block after its first activation.
//!
//! An odd side is padded by one point before it is halved, and cropped on the way up.

use cfo_engine::{Activation, EngineError, Graph, GroupNormInputs, Initial, Node};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::boundary::{Boundary, Padding, Volume};
use super::layers::{linear, sinusoids};
use super::{Context, MOST_CHANNELS, Operator, OperatorConfig, Setting, TimeEmbedding, at_most};
use crate::error::{CfoError, Result};

/// A U-Net. Sizes that are not set follow the paper: 64, 128 channels on a line (0.602 M parameters), 64, 128, 256
/// on a plane (8.16 M). In three dimensions they are 32, 64, 128.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Unet {
    /// Number of channels at each scale. Each scale halves the grid, rounded up.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub channels: Option<Vec<usize>>,
    /// Number of groups of the group normalisation.
    pub groups: usize,
    /// Padding at the edges of the grid. `auto` is circular along periodic axes and replicate along the others.
    pub padding: Padding,
    /// Whether time is an input of the network; a number sets the features of its embedding, instead of 64 on a line and 256 on other grids.
    /// Set it to `false` for autonomous systems.
    pub time: TimeEmbedding,
}

impl Default for Unet {
    fn default() -> Self {
        Self { channels: None, groups: 8, padding: Padding::Auto, time: TimeEmbedding::On }
    }
}

impl Unet {
    /// Returns the sizes of all scales for a setting.
    fn scales(&self, setting: &Setting) -> Result<Scales> {
        let dimensions = setting.grid.extended();
        let usual: &[usize] = match dimensions {
            0 | 1 => &[64, 128],
            2 => &[64, 128, 256],
            _ => &[32, 64, 128],
        };
        let channels = self.channels.clone().unwrap_or_else(|| usual.to_vec());
        if channels.is_empty() || self.groups == 0 || channels.iter().any(|&c| c == 0 || c % self.groups != 0)
        {
            return Err(CfoError::invalid(
                "operator.channels",
                format!("{channels:?} must each be a multiple of `operator.groups` = {}", self.groups),
            ));
        }
        if dimensions == 0 {
            return Err(CfoError::BadGrid {
                operator: "unet",
                found: "a state without space".into(),
                needed: "it needs space axes; use `mlp` for ODE systems".into(),
            });
        }
        for &width in &channels {
            at_most("operator.channels", width, MOST_CHANNELS)?;
        }
        self.time.check()?;
        let time_features = self.time.features(if dimensions > 1 { 256 } else { 64 });
        Ok(Scales {
            channels,
            time_features,
            // The paper's widths on a line and on a plane.
            time_hidden: time_features.max((2 * time_features).min(256)),
            groups: self.groups,
            boundary: self.padding.boundary(setting),
            dimensions,
        })
    }
}

/// A network with the sizes of its scales.
struct Scales {
    channels: Vec<usize>,
    time_features: usize,
    time_hidden: usize,
    groups: usize,
    boundary: Boundary,
    dimensions: usize,
}

impl Scales {
    /// Returns depth, height and width of a kernel, stride or padding: `side` along the axes of the grid, `other` along the others.
    fn sides(&self, side: usize, other: usize) -> [usize; 3] {
        [3, 2, 1].map(|axes| if self.dimensions >= axes { side } else { other })
    }

    /// Appends the weight and the bias of a convolution: `[outputs, height, width, (depth, inputs)]`, or of a transposed one:
    /// `[(depth, inputs), height, width, outputs]`.
    fn kernel(
        &self,
        graph: &mut Graph,
        name: &str,
        (side, is_transposed): (usize, bool),
        [inputs, outputs]: [usize; 2],
    ) -> Result<[Node; 2], EngineError> {
        let [depth, height, width] = self.sides(side, 1);
        let (fan, shape) = match is_transposed {
            true => (outputs, [depth * inputs, height, width, outputs]),
            false => (inputs, [outputs, height, width, depth * inputs]),
        };
        let initial = Initial::fan_in(fan * depth * height * width);
        let weight = graph.parameter(&format!("{name}.weight"), shape, initial)?;
        Ok([weight, graph.parameter(&format!("{name}.bias"), [outputs], initial)?])
    }

    /// Appends convolution, group normalisation, SiLU and, if there is one, the time term.
    fn layer(
        &self,
        graph: &mut Graph,
        name: &str,
        x: Volume,
        outputs: usize,
        shift: Option<Node>,
    ) -> Result<Volume, EngineError> {
        let inputs = graph.shape(x.node).last();
        let [weight, offset] = self.kernel(graph, name, (3, false), [inputs, outputs])?;
        let y = self.boundary.conv(graph, x, weight, [1; 3], self.sides(1, 0))?;
        let scale = graph.parameter(&format!("{name}.norm.scale"), [outputs], Initial::ONES)?;
        let bias = graph.parameter(&format!("{name}.norm.bias"), [outputs], Initial::ZEROS)?;
        let inputs = GroupNormInputs { scale, bias, offset: Some(offset), shift };
        Ok(Volume { node: graph.group_norm(y.node, inputs, self.groups, Activation::Silu)?, ..y })
    }

    /// Appends two layers; the time enters after the first.
    fn block(
        &self,
        graph: &mut Graph,
        name: &str,
        x: Volume,
        outputs: usize,
        time: Option<Node>,
    ) -> Result<Volume, EngineError> {
        let shift = match time {
            Some(code) => Some(linear(graph, &format!("{name}.time"), code, outputs, Activation::Identity)?),
            None => None,
        };
        let x = self.layer(graph, &format!("{name}.0"), x, outputs, shift)?;
        self.layer(graph, &format!("{name}.1"), x, outputs, None)
    }

    /// Appends the convolution that halves the grid, rounded up.
    fn down(&self, graph: &mut Graph, name: &str, x: Volume) -> Result<Volume, EngineError> {
        let channels = graph.shape(x.node).last();
        let [weight, bias] = self.kernel(graph, name, (4, false), [channels; 2])?;
        let y = self.boundary.conv(graph, x, weight, self.sides(2, 1), self.sides(1, 0))?;
        Ok(Volume { node: graph.add(y.node, bias)?, ..y })
    }

    /// Appends the transposed convolution that doubles the grid.
    fn up(&self, graph: &mut Graph, name: &str, x: Volume, outputs: usize) -> Result<Volume, EngineError> {
        let inputs = graph.shape(x.node).last();
        let [weight, bias] = self.kernel(graph, name, (4, true), [inputs, outputs])?;
        let y = self.boundary.conv_transpose(graph, x, weight, self.sides(2, 1), self.sides(1, 0))?;
        Ok(Volume { node: graph.add(y.node, bias)?, ..y })
    }

    /// Appends the code of the time plus that of the PDE parameters, each through two layers.
    fn code(
        &self,
        graph: &mut Graph,
        time: Option<Node>,
        conditions: Option<Node>,
    ) -> Result<Option<Node>, EngineError> {
        let mut code = None;
        if let Some(time) = time {
            let features = sinusoids(graph, time, self.time_features)?;
            let hidden = linear(graph, "time.0", features, self.time_hidden, Activation::Silu)?;
            code = Some(linear(graph, "time.1", hidden, self.time_features, Activation::Silu)?);
        }
        if let Some(conditions) = conditions {
            let hidden = linear(graph, "conditions.0", conditions, self.time_hidden, Activation::Silu)?;
            let more = linear(graph, "conditions.1", hidden, self.time_features, Activation::Silu)?;
            code = Some(match code {
                Some(code) => graph.add(code, more)?,
                None => more,
            });
        }
        Ok(code)
    }
}

impl Operator for Unet {
    fn name(&self) -> &str {
        "unet"
    }

    fn sees_time(&self) -> bool {
        self.time.is_on()
    }

    fn config(&self) -> Option<OperatorConfig> {
        Some(OperatorConfig::Unet(self.clone()))
    }

    fn check(&self, setting: &Setting) -> Result<()> {
        self.scales(setting).map(|_| ())
    }

    fn apply(&self, graph: &mut Graph, setting: &Setting, field: Node, context: &Context) -> Result<Node> {
        let scales = self.scales(setting)?;
        let code = scales.code(graph, setting.time(context), context.conditions)?;
        let [depth, ..] = setting.grid.padded();
        Ok(scales.append(graph, Volume { node: field, depth }, code, setting.outputs)?)
    }
}

impl Scales {
    fn append(
        &self,
        graph: &mut Graph,
        mut x: Volume,
        code: Option<Node>,
        outputs: usize,
    ) -> Result<Node, EngineError> {
        let mut skips = Vec::new();
        for (scale, &channels) in self.channels.iter().enumerate() {
            x = self.block(graph, &format!("down.{scale}.block"), x, channels, code)?;
            skips.push(x);
            x = self.down(graph, &format!("down.{scale}.conv"), x)?;
        }
        let lowest = graph.shape(x.node).last();
        x = self.block(graph, "middle", x, lowest, code)?;
        for (scale, &channels) in self.channels.iter().enumerate().rev() {
            let wide = self.up(graph, &format!("up.{scale}.conv"), x, channels)?;
            let wide = wide.crop(graph, skips[scale].sides(graph))?;
            x = Volume { node: graph.concat(&[wide.node, skips[scale].node], 3)?, ..wide };
            x = self.block(graph, &format!("up.{scale}.block"), x, channels, code)?;
        }
        linear(graph, "head", x.node, outputs, Activation::Identity)
    }
}
