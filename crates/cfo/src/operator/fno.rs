//! The Fourier neural operator, for fields on a line or a plane of any length.

use cfo_engine::{Activation, EngineError, Graph, Initial, Node, spectral_modes};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::layers::{linear, sinusoids};
use super::{Context, MOST_BLOCKS, MOST_FEATURES, Operator, OperatorConfig, Setting, at_most};
use crate::error::{CfoError, Result};

/// A Fourier neural operator (FNO): lift, spectral blocks, head. The time embedding is added to the lifted field without further weights.
/// The default is the paper's network: 591,105 parameters on a line, with a complex weight counted once.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Fno {
    /// Number of channels inside the network.
    pub width: usize,
    /// Number of spectral blocks.
    pub blocks: usize,
    /// Number of Fourier modes kept along each axis.
    pub modes: usize,
    /// Whether time is an input of the network. Set it to `false` for autonomous systems.
    pub time: bool,
}

impl Default for Fno {
    fn default() -> Self {
        Self { width: 128, blocks: 5, modes: 6, time: true }
    }
}

impl Operator for Fno {
    fn name(&self) -> &str {
        "fno"
    }

    fn sees_time(&self) -> bool {
        self.time
    }

    fn takes_any_grid(&self) -> bool {
        true
    }

    fn config(&self) -> Option<OperatorConfig> {
        Some(OperatorConfig::Fno(self.clone()))
    }

    fn check(&self, setting: &Setting) -> Result<()> {
        if self.modes == 0 || self.width < 2 || !self.width.is_multiple_of(2) || self.blocks == 0 {
            return Err(CfoError::invalid(
                "operator",
                "`modes` and `blocks` must be positive and `width` positive and even",
            ));
        }
        at_most("operator.width", self.width, MOST_FEATURES)?;
        at_most("operator.blocks", self.blocks, MOST_BLOCKS)?;
        if 2 * self.modes > setting.grid.shortest() + 1 {
            return Err(CfoError::BadGrid {
                operator: "fno",
                found: format!("a grid of {}", setting.grid),
                needed: format!("{} modes need sides of {} points or more", self.modes, 2 * self.modes - 1),
            });
        }
        Ok(())
    }

    fn apply(&self, graph: &mut Graph, setting: &Setting, field: Node, context: &Context) -> Result<Node> {
        let Self { width, blocks, modes, .. } = *self;
        let (batch, [_, h, w]) = (graph.shape(field).axes()[0], setting.grid.padded());
        let mut parts = vec![field, coordinates(graph, batch, h, w)?];
        if let Some(conditions) = context.conditions {
            let count = graph.shape(conditions).last();
            let wide = graph.var(conditions).reshape([batch, 1, 1, count]);
            parts.push(wide.broadcast([batch, h, w, count]).node()?);
        }
        let lifted = graph.concat(&parts, 3)?;
        let mut x = linear(graph, "lift", lifted, width, Activation::Identity)?;
        if let Some(time) = setting.time(context) {
            let code = sinusoids(graph, time, width)?;
            x = (x + graph.var(code).reshape([batch, 1, 1, width])).node()?;
        }
        let kept = [if h > 1 { modes } else { 1 }, modes];
        let count = spectral_modes(h, kept);
        for block in 0..blocks {
            let name = format!("block.{block}.spectral");
            let initial = Initial::Uniform(1.0 / width as f64);
            let weight = graph.complex_parameter(&name, [count, width, 2 * width], initial)?;
            let spectral = graph.spectral(x, weight, kept)?;
            let local = linear(graph, &format!("block.{block}.local"), x, width, Activation::Identity)?;
            x = (graph.var(spectral) + local).gelu().node()?;
        }
        let hidden = linear(graph, "head.0", x, width, Activation::Gelu)?;
        Ok(linear(graph, "head.1", hidden, setting.outputs, Activation::Identity)?)
    }
}

/// Appends the position of every point, between 0 and 1 along each axis that is longer than 1.
fn coordinates(graph: &mut Graph, batch: usize, h: usize, w: usize) -> Result<Node, EngineError> {
    let values = (0..h * w).flat_map(|i| {
        let (row, column) = ((i / w) as f64 / h as f64, (i % w) as f64 / w as f64);
        if h > 1 { vec![row, column] } else { vec![column] }
    });
    let count = if h > 1 { 2 } else { 1 };
    graph.formula().constant([1, h, w, count], values.collect()).broadcast([batch, h, w, count]).node()
}
