//! Parts that several networks share.

use cfo_engine::{Activation, EngineError, Graph, Initial, Node};

/// Factor of times in [0, 1] before the sinusoids. With it, all frequencies vary over the horizon.
const TIME_SCALE: f64 = 1000.0;

/// Appends a linear layer `[..., inputs] -> [..., outputs]` with bias. Weights and biases are uniform in `±1/sqrt(inputs)`.
pub(super) fn linear(
    graph: &mut Graph,
    name: &str,
    x: Node,
    outputs: usize,
    activation: Activation,
) -> Result<Node, EngineError> {
    let inputs = graph.shape(x).last();
    linear_drawn(graph, name, x, outputs, activation, [Initial::fan_in(inputs); 2])
}

/// Appends a linear layer with given initial distributions of weight and bias.
pub(super) fn linear_drawn(
    graph: &mut Graph,
    name: &str,
    x: Node,
    outputs: usize,
    activation: Activation,
    [weight, bias]: [Initial; 2],
) -> Result<Node, EngineError> {
    let inputs = graph.shape(x).last();
    let weight = graph.parameter(&format!("{name}.weight"), [inputs, outputs], weight)?;
    let bias = graph.parameter(&format!("{name}.bias"), [outputs], bias)?;
    graph.linear(x, weight, Some(bias), activation)
}

/// Appends the sinusoidal code of times `[batch]`: `[batch, features]`, cosines, then sines, of `1000 t 10000^(-d / half)`.
pub(super) fn sinusoids(graph: &mut Graph, time: Node, features: usize) -> Result<Node, EngineError> {
    let half = features / 2;
    let frequency = |d: usize| TIME_SCALE * 10_000_f64.powf(-((d % half) as f64) / half as f64);
    let phase = |d: usize| if d < half { 0.0 } else { -std::f64::consts::FRAC_PI_2 };
    let batch = graph.shape(time).len();
    let f = graph.formula();
    let frequencies = f.constant([1, features], (0..features).map(frequency).collect());
    let phases = f.constant([1, features], (0..features).map(phase).collect());
    (f.var(time).reshape([batch, 1]) * frequencies + phases).cos().node()
}
