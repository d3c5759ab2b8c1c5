//! The Fourier neural operator, for fields on grids with one to three axes of any length.

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
        let (sides, extended) = (setting.grid.padded(), setting.grid.extended());
        // Along the last axis no negative frequencies are kept.
        let fits = |axis: usize| 2 * self.modes <= sides[axis] + usize::from(axis == 2);
        if extended == 0 || !(3 - extended..3).all(fits) {
            let least = 2 * self.modes - usize::from(extended < 2);
            return Err(CfoError::BadGrid {
                operator: "fno",
                found: format!("a grid of {}", setting.grid),
                needed: format!("{} modes need sides of {least} points or more", self.modes),
            });
        }
        Ok(())
    }

    fn apply(&self, graph: &mut Graph, setting: &Setting, field: Node, context: &Context) -> Result<Node> {
        let Self { width, blocks, modes, .. } = *self;
        let ([batch, rows, columns, _], grid) = (setting.input(graph.shape(field).axes()[0]), setting.grid);
        let mut parts = vec![field, coordinates(graph, setting, batch)?];
        if let Some(conditions) = context.conditions {
            let count = graph.shape(conditions).last();
            let wide = graph.var(conditions).reshape([batch, 1, 1, count]);
            parts.push(wide.broadcast([batch, rows, columns, count]).node()?);
        }
        let lifted = graph.concat(&parts, 3)?;
        let mut x = linear(graph, "lift", lifted, width, Activation::Identity)?;
        if let Some(time) = setting.time(context) {
            let code = sinusoids(graph, time, width)?;
            x = (x + graph.var(code).reshape([batch, 1, 1, width])).node()?;
        }
        // Lines and planes are already fields with two axes.
        let axes: &[usize] = if grid.extended() > 2 { grid.sides() } else { &[rows, columns] };
        let kept: Vec<usize> = axes.iter().map(|&side| if side > 1 { modes } else { 1 }).collect();
        let count = spectral_modes(axes, &kept);
        let shape: Vec<usize> = [batch].into_iter().chain(axes.iter().copied()).chain([width]).collect();
        for block in 0..blocks {
            let name = format!("block.{block}.spectral");
            let initial = Initial::Uniform(1.0 / width as f64);
            let weight = graph.complex_parameter(&name, [count, width, 2 * width], initial)?;
            let whole = graph.reshape(x, shape.clone())?;
            let spectral = graph.spectral(whole, weight, &kept)?;
            let spectral = graph.reshape(spectral, [batch, rows, columns, width])?;
            let local = linear(graph, &format!("block.{block}.local"), x, width, Activation::Identity)?;
            x = (graph.var(spectral) + local).gelu().node()?;
        }
        let hidden = linear(graph, "head.0", x, width, Activation::Gelu)?;
        Ok(linear(graph, "head.1", hidden, setting.outputs, Activation::Identity)?)
    }
}

/// Appends the position of every point, between 0 and 1 along each axis from the first that is longer than 1.
fn coordinates(graph: &mut Graph, setting: &Setting, batch: usize) -> Result<Node, EngineError> {
    let (grid, count) = (setting.grid, setting.grid.extended());
    let share = |place: Vec<usize>| {
        let shares = place.into_iter().zip(grid.sides()).map(|(index, &side)| index as f64 / side as f64);
        shares.skip(grid.axes() - count).collect::<Vec<f64>>()
    };
    let values = (0..grid.points()).flat_map(|point| share(grid.place(point))).collect();
    let [_, rows, columns, _] = setting.input(batch);
    graph
        .formula()
        .constant([1, rows, columns, count], values)
        .broadcast([batch, rows, columns, count])
        .node()
}
