//! Convolutions of fields with one to three axes, and the padding at the edges of the grid.
//!
//! A convolution along the depth is one along height and width: the values that its kernel reads along the depth become channels, and the
//! planes of a volume become samples of the batch.

use cfo_engine::{EngineError, Graph, Node, PadMode};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::Setting;

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
        Boundary(setting.periodic.map(|periodic| match self {
            Self::Zeros => PadMode::Zero,
            Self::Circular => PadMode::Circular,
            Self::Replicate => PadMode::Replicate,
            Self::Auto if periodic => PadMode::Circular,
            Self::Auto => PadMode::Replicate,
        }))
    }
}

/// Fields `[batch, depth * height, width, channels]`. Lines and planes have depth 1.
#[derive(Clone, Copy, Debug)]
pub(super) struct Volume {
    pub node: Node,
    pub depth: usize,
}

impl Volume {
    /// Returns depth, height and width.
    pub(super) fn sides(self, graph: &Graph) -> [usize; 3] {
        let axes = graph.shape(self.node).axes();
        [self.depth, axes[1] / self.depth, axes[2]]
    }

    /// Appends a view of the planes of all samples, `[batch * depth, height, width, channels]`.
    pub(super) fn planes(self, graph: &mut Graph) -> Result<Node, EngineError> {
        let axes = graph.shape(self.node).axes();
        let shape = [axes[0] * self.depth, axes[1] / self.depth, axes[2], axes[3]];
        graph.reshape(self.node, shape)
    }

    /// Appends the inverse of [`Volume::planes`].
    pub(super) fn of_planes(graph: &mut Graph, planes: Node, depth: usize) -> Result<Self, EngineError> {
        let axes = graph.shape(planes).axes();
        let shape = [axes[0] / depth, depth * axes[1], axes[2], axes[3]];
        Ok(Self { node: graph.reshape(planes, shape)?, depth })
    }

    /// Appends a view with one axis for the points of a plane, `[batch, depth, height * width, channels]`.
    fn stack(self, graph: &mut Graph) -> Result<Node, EngineError> {
        let axes = graph.shape(self.node).axes();
        let shape = [axes[0], self.depth, axes[1] / self.depth * axes[2], axes[3]];
        graph.reshape(self.node, shape)
    }

    /// Appends a crop to the first points along each axis, if there are more.
    pub(super) fn crop(self, graph: &mut Graph, sides: [usize; 3]) -> Result<Self, EngineError> {
        let ([depth, height, width], batch) = (self.sides(graph), graph.shape(self.node).axes()[0]);
        let mut x = self;
        if depth > sides[0] {
            let channels = graph.shape(x.node).last();
            let stack = x.stack(graph)?;
            let kept = graph.slice(stack, 1, 0, sides[0])?;
            let node = graph.reshape(kept, [batch, sides[0] * height, width, channels])?;
            x = Self { node, depth: sides[0] };
        }
        if height > sides[1] || width > sides[2] {
            let mut planes = x.planes(graph)?;
            for (axis, length) in [(1, sides[1]), (2, sides[2])] {
                if graph.shape(planes).axes()[axis] > length {
                    planes = graph.slice(planes, axis, 0, length)?;
                }
            }
            x = Self::of_planes(graph, planes, x.depth)?;
        }
        Ok(x)
    }
}

/// The padding modes of depth, height and width.
#[derive(Clone, Copy, Debug)]
pub(super) struct Boundary([PadMode; 3]);

impl Boundary {
    #[cfg(test)]
    pub(super) fn of(modes: [PadMode; 3]) -> Self {
        Self(modes)
    }

    /// Returns the padding mode of height and width if they agree or nothing is padded along the height; otherwise `None`.
    fn common(self, along_height: usize) -> Option<PadMode> {
        let [_, rows, columns] = self.0;
        (rows == columns || along_height == 0).then_some(columns)
    }

    /// Appends padding at the end of each axis, in the axis's mode, up to the next multiple of `multiples`.
    pub(super) fn fill(
        self,
        graph: &mut Graph,
        x: Volume,
        multiples: [usize; 3],
    ) -> Result<Volume, EngineError> {
        let sides = x.sides(graph);
        let [depth, rows, columns] =
            [0, 1, 2].map(|axis| sides[axis].next_multiple_of(multiples[axis]) - sides[axis]);
        let x = self.pad_depth(graph, x, 0, depth)?;
        let planes = x.planes(graph)?;
        let planes = self.pad(graph, planes, [0, 0], [rows, columns])?;
        Volume::of_planes(graph, planes, x.depth)
    }

    /// Appends padding around the depth; nothing where the amount is 0.
    fn pad_depth(
        self,
        graph: &mut Graph,
        x: Volume,
        before: usize,
        after: usize,
    ) -> Result<Volume, EngineError> {
        if before + after == 0 {
            return Ok(x);
        }
        let axes = graph.shape(x.node).axes().to_vec();
        let (height, depth) = (axes[1] / x.depth, before + x.depth + after);
        let stack = x.stack(graph)?;
        let padded = graph.pad(stack, self.0[0], [before, 0], [after, 0])?;
        Ok(Volume { node: graph.reshape(padded, [axes[0], depth * height, axes[2], axes[3]])?, depth })
    }

    /// Appends padding around height and width, each in its mode; nothing where the amount is 0.
    fn pad(
        self,
        graph: &mut Graph,
        x: Node,
        before: [usize; 2],
        after: [usize; 2],
    ) -> Result<Node, EngineError> {
        if let Some(mode) = self.common(before[0] + after[0]) {
            let none = before == [0, 0] && after == [0, 0];
            return if none { Ok(x) } else { graph.pad(x, mode, before, after) };
        }
        let mut x = x;
        for axis in 0..2 {
            let mut margins = [[0; 2]; 2];
            (margins[0][axis], margins[1][axis]) = (before[axis], after[axis]);
            if margins != [[0; 2]; 2] {
                x = graph.pad(x, self.0[1 + axis], margins[0], margins[1])?;
            }
        }
        Ok(x)
    }

    /// Appends a convolution with a weight `[outputs, height, width, (depth, inputs)]` after padding of `amount`. If the stride does not
    /// divide an axis, the padding at its end is wider: the result has the field's length divided by the stride, rounded up.
    pub(super) fn conv(
        self,
        graph: &mut Graph,
        x: Volume,
        weight: Node,
        stride: [usize; 3],
        amount: [usize; 3],
    ) -> Result<Volume, EngineError> {
        let taps = graph.shape(weight).last() / graph.shape(x.node).last();
        let x = self.read_depth(graph, x, taps, (stride[0], amount[0]))?;
        let planes = x.planes(graph)?;
        let y = self.conv_planes(graph, planes, weight, [stride[1], stride[2]], [amount[1], amount[2]])?;
        Volume::of_planes(graph, y, x.depth)
    }

    /// Appends the values that a kernel of `taps` points along the depth reads, as channels `(depth, inputs)`.
    fn read_depth(
        self,
        graph: &mut Graph,
        x: Volume,
        taps: usize,
        (stride, amount): (usize, usize),
    ) -> Result<Volume, EngineError> {
        if taps == 1 {
            return Ok(x);
        }
        let axes = graph.shape(x.node).axes().to_vec();
        let (batch, height, depth) = (axes[0], axes[1] / x.depth, x.depth.div_ceil(stride));
        let whole = ((depth - 1) * stride + taps).next_multiple_of(stride).max(amount + x.depth);
        let padded = self.pad_depth(graph, x, amount, whole - amount - x.depth)?;
        let points = height * axes[2];
        let steps = graph.reshape(padded.node, [batch, whole / stride, stride, points, axes[3]])?;
        let mut parts = Vec::new();
        for tap in 0..taps {
            let part = graph.var(steps).slice(1, tap / stride, depth).slice(2, tap % stride, 1);
            parts.push(part.reshape([batch, depth, points, axes[3]]).node()?);
        }
        let read = graph.concat(&parts, 3)?;
        Ok(Volume { node: graph.reshape(read, [batch, depth * height, axes[2], taps * axes[3]])?, depth })
    }

    /// Appends a convolution along height and width.
    fn conv_planes(
        self,
        graph: &mut Graph,
        x: Node,
        weight: Node,
        stride: [usize; 2],
        amount: [usize; 2],
    ) -> Result<Node, EngineError> {
        let axes = graph.shape(x).axes();
        let rest = [0, 1].map(|axis| axes[1 + axis].next_multiple_of(stride[axis]) - axes[1 + axis]);
        if let Some(mode) = self.common(amount[0]).filter(|_| rest == [0, 0]) {
            return graph.conv(x, weight, stride, mode, amount);
        }
        let padded = self.pad(graph, x, amount, [amount[0] + rest[0], amount[1] + rest[1]])?;
        graph.conv(padded, weight, stride, PadMode::Zero, [0, 0])
    }

    /// Appends a transposed convolution with a weight `[(phase, tap, inputs), height, width, outputs]`, whose kernel has twice the stride
    /// and whose `amount` is half the stride along each axis with a stride. Position `stride * i + phase` along the depth is a sum over the
    /// two values at and before, or at and after, position `i`.
    pub(super) fn conv_transpose(
        self,
        graph: &mut Graph,
        x: Volume,
        weight: Node,
        stride: [usize; 3],
        amount: [usize; 3],
    ) -> Result<Volume, EngineError> {
        let planar = ([stride[1], stride[2]], [amount[1], amount[2]]);
        if stride[0] == 1 {
            let planes = x.planes(graph)?;
            let y = self.transpose_planes(graph, planes, weight, planar.0, planar.1)?;
            return Volume::of_planes(graph, y, x.depth);
        }
        let inputs = graph.shape(x.node).last();
        let near = self.read_depth(graph, x, 3, (1, 1))?;
        let near = near.planes(graph)?;
        let mut phases = Vec::new();
        for phase in 0..stride[0] {
            let start = if phase < amount[0] { 0 } else { inputs };
            let pair = graph.slice(near, 3, start, 2 * inputs)?;
            let own = graph.slice(weight, 0, phase * 2 * inputs, 2 * inputs)?;
            phases.push(self.transpose_planes(graph, pair, own, planar.0, planar.1)?);
        }
        // One after another along a new axis after the depth, which the rows then contain.
        let axes = graph.shape(phases[0]).axes().to_vec();
        for phase in &mut phases {
            *phase = graph.reshape(*phase, [axes[0], 1, axes[1] * axes[2], axes[3]])?;
        }
        let y = graph.concat(&phases, 1)?;
        let planes = graph.reshape(y, [axes[0] * stride[0], axes[1], axes[2], axes[3]])?;
        Volume::of_planes(graph, planes, stride[0] * x.depth)
    }

    /// Appends a transposed convolution along height and width. Axes with different modes are padded by one point, which the wider crop
    /// removes.
    fn transpose_planes(
        self,
        graph: &mut Graph,
        x: Node,
        weight: Node,
        stride: [usize; 2],
        amount: [usize; 2],
    ) -> Result<Node, EngineError> {
        if let Some(mode) = self.common(amount[0]) {
            return graph.conv_transpose(x, weight, stride, mode, amount);
        }
        let padded = self.pad(graph, x, [1, 1], [1, 1])?;
        let cropped = [amount[0] + stride[0], amount[1] + stride[1]];
        graph.conv_transpose(padded, weight, stride, PadMode::Zero, cropped)
    }
}
