//! Parts that several networks share.

use cfo_engine::{Activation, EngineError, Graph, Initial, Node, PadMode};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::Setting;

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

/// The padding of convolutions at the edges of the grid.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Padding {
    /// Circular along periodic axes, replicate along the others.
    #[default]
    Auto,
    /// Zeros.
    Zeros,
    /// The field continued periodically.
    Circular,
    /// The nearest value.
    Replicate,
}

impl Padding {
    pub(super) fn boundary(self, setting: &Setting) -> Boundary {
        Boundary(match self {
            Self::Zeros => [PadMode::Zero; 2],
            Self::Circular => [PadMode::Circular; 2],
            Self::Replicate => [PadMode::Replicate; 2],
            Self::Auto => {
                let [_, rows, columns] = setting.periodic;
                [rows, columns].map(|periodic| if periodic { PadMode::Circular } else { PadMode::Replicate })
            }
        })
    }
}

/// The padding of the two axes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Boundary([PadMode; 2]);

impl Boundary {
    /// Returns the padding mode of both axes if they agree or the height is 1; otherwise `None`.
    fn common(self, graph: &Graph, x: Node) -> Option<PadMode> {
        let [rows, columns] = self.0;
        (rows == columns || graph.shape(x).axes()[1] == 1).then_some(columns)
    }

    /// Appends padding at the end of each axis, in the axis's mode, up to the next multiple of `multiples`.
    pub(super) fn fill(self, graph: &mut Graph, x: Node, multiples: [usize; 2]) -> Result<Node, EngineError> {
        let axes = graph.shape(x).axes();
        let [rows, columns] =
            [0, 1].map(|axis| axes[1 + axis].next_multiple_of(multiples[axis]) - axes[1 + axis]);
        self.pad(graph, x, [0, 0], [rows, columns])
    }

    /// Appends padding around height and width, each in its mode; nothing where the amount is 0.
    fn pad(
        self,
        graph: &mut Graph,
        x: Node,
        before: [usize; 2],
        after: [usize; 2],
    ) -> Result<Node, EngineError> {
        if let Some(mode) = self.common(graph, x) {
            let none = before == [0, 0] && after == [0, 0];
            return if none { Ok(x) } else { graph.pad(x, mode, before, after) };
        }
        let mut x = x;
        for axis in 0..2 {
            let mut margins = [[0; 2]; 2];
            (margins[0][axis], margins[1][axis]) = (before[axis], after[axis]);
            if margins != [[0; 2]; 2] {
                x = graph.pad(x, self.0[axis], margins[0], margins[1])?;
            }
        }
        Ok(x)
    }

    /// Appends a convolution after padding of `amount`. If the stride does not divide an axis, the padding at its end is wider: the result
    /// has the field's length divided by the stride, rounded up.
    pub(super) fn conv(
        self,
        graph: &mut Graph,
        x: Node,
        weight: Node,
        stride: [usize; 2],
        amount: [usize; 2],
    ) -> Result<Node, EngineError> {
        let axes = graph.shape(x).axes();
        let rest = [0, 1].map(|axis| axes[1 + axis].next_multiple_of(stride[axis]) - axes[1 + axis]);
        if let Some(mode) = self.common(graph, x).filter(|_| rest == [0, 0]) {
            return graph.conv(x, weight, stride, mode, amount);
        }
        let padded = self.pad(graph, x, amount, [amount[0] + rest[0], amount[1] + rest[1]])?;
        graph.conv(padded, weight, stride, PadMode::Zero, [0, 0])
    }

    /// Appends a transposed convolution. Axes with different modes are padded by one point, which the wider crop removes.
    pub(super) fn conv_transpose(
        self,
        graph: &mut Graph,
        x: Node,
        weight: Node,
        stride: [usize; 2],
        amount: [usize; 2],
    ) -> Result<Node, EngineError> {
        if let Some(mode) = self.common(graph, x) {
            return graph.conv_transpose(x, weight, stride, mode, amount);
        }
        let padded = self.pad(graph, x, [1, 1], [1, 1])?;
        let cropped = [amount[0] + stride[0], amount[1] + stride[1]];
        graph.conv_transpose(padded, weight, stride, PadMode::Zero, cropped)
    }
}

/// Appends a crop of a field to its first rows and columns, if it has more.
pub(super) fn crop(graph: &mut Graph, x: Node, [height, width]: [usize; 2]) -> Result<Node, EngineError> {
    let mut x = x;
    for (axis, length) in [(1, height), (2, width)] {
        if graph.shape(x).axes()[axis] > length {
            x = graph.slice(x, axis, 0, length)?;
        }
    }
    Ok(x)
}
