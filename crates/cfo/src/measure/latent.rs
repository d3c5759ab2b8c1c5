//! Latent space: states as the complete coefficients of an orthogonal wavelet.
//!
//! The transform is linear and independent of time, so the coefficients follow an autonomous system if the states do. Each level halves the
//! sides of the grid: neighbouring points become channels of one point. Everything between data and predictions works in the latent space;
//! errors are measured in the space of the data.

use cfo_data::FieldShape;
use cfo_engine::{Graph, Node, Wavelet, WaveletFamily};
use cfo_numerics::Grid;

use crate::error::{CfoError, Result};
use crate::operator::StateSpace;
use crate::recipe::{LatentConfig, LatentWavelet};

impl LatentConfig {
    /// Returns the space of coefficients for states of a space.
    pub(crate) fn latent(self, states: &StateSpace) -> Option<Latent> {
        let family = match self.wavelet? {
            LatentWavelet::Haar => WaveletFamily::Haar,
            LatentWavelet::Daubechies4 => WaveletFamily::Daubechies4,
        };
        let [_, rows, columns] = states.periodic;
        let wavelet = Wavelet { family, levels: self.levels, periodic: [rows, columns] };
        Some(Latent { wavelet, axes: states.field.axes() })
    }
}

/// The coefficients of states as fields, on a grid whose sides are halved at every level. The first channels of a point are the averages.
/// The details follow, from the coarsest level to the finest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Latent {
    wavelet: Wavelet,
    axes: usize,
}

/// Coefficients of one kind: their position relative to the averages of their level, and their number per point along each axis.
struct Band {
    high: [bool; 2],
    level: usize,
    block: [usize; 2],
}

impl Latent {
    /// Returns the space of coefficients for states of a space.
    ///
    /// # Errors
    /// If a side cannot be halved once per level.
    pub(crate) fn space(self, states: &StateSpace) -> Result<StateSpace> {
        let [_, height, width, channels] = states.field.tensor(1);
        let levels = self.wavelet.levels;
        if !(1..=2).contains(&self.axes) {
            return Err(CfoError::BadData {
                problem: format!(
                    "`latent.wavelet` is set, but wavelets need one or two space axes and the states have {}",
                    self.axes
                ),
                hint: "leave `latent.wavelet` out".into(),
            });
        }
        for (name, side) in [("height", height), ("width", width)].into_iter().skip(2 - self.axes) {
            if side < 2 || !self.wavelet.divides(side) {
                let most = side.trailing_zeros();
                return Err(CfoError::BadData {
                    problem: format!(
                        "`latent.levels` = {levels} halves each side {levels} times, but the {name} of the grid is {side}, which is not a multiple of {}",
                        1_usize << levels
                    ),
                    hint: match most {
                        0 => format!(
                            "a side of {side} cannot be halved: leave `latent.wavelet` out, or give data on a grid with even sides"
                        ),
                        _ => format!("set `latent.levels` to {most} at most"),
                    },
                });
            }
        }
        let [rows, columns] = self.halvings();
        let field = self.field([height >> rows, width >> columns, channels << (rows + columns)]);
        Ok(StateSpace { field, ..states.clone() })
    }

    fn halvings(self) -> [usize; 2] {
        [if self.axes > 1 { self.wavelet.levels } else { 0 }, self.wavelet.levels]
    }

    /// Returns the number of channels of coefficients per channel of a state.
    pub(crate) fn expansion(self) -> usize {
        1 << self.halvings().iter().sum::<usize>()
    }

    /// Returns the field of the states that have coefficients of this shape.
    pub(crate) fn original(self, coefficients: FieldShape) -> FieldShape {
        let ([_, height, width, channels], [rows, columns]) = (coefficients.tensor(1), self.halvings());
        self.field([height << rows, width << columns, channels >> (rows + columns)])
    }

    /// Returns the shape with these numbers of rows, columns and channels.
    fn field(self, [height, width, channels]: [usize; 3]) -> FieldShape {
        let grid = if self.axes > 1 { Grid::plane(height, width) } else { Grid::line(width) };
        FieldShape { grid, channels }
    }

    /// Returns the kinds of details, from the coarsest level to the finest, in the order of their channels.
    fn bands(self) -> Vec<Band> {
        let planar = self.axes > 1;
        let kinds: &[[bool; 2]] =
            if planar { &[[false, true], [true, false], [true, true]] } else { &[[false, true]] };
        let of_level = |level: usize| {
            let side = 1 << (self.wavelet.levels - level);
            let block = [if planar { side } else { 1 }, side];
            kinds.iter().map(move |&high| Band { high, level, block })
        };
        (1..=self.wavelet.levels).rev().flat_map(of_level).collect()
    }

    /// Returns the places (first row and column, distances) of each channel of coefficients of one state channel.
    fn slots(self, [height, width, _]: [usize; 3]) -> Vec<[[usize; 2]; 2]> {
        let mut slots = vec![[[0, 0], [1, 1]]];
        let planar = self.axes > 1;
        for Band { high, level, block } in self.bands() {
            let side = |axis: usize, length: usize| {
                let halved = if axis == 1 || planar { length >> level } else { length };
                if high[axis] { halved } else { 0 }
            };
            let corner = [side(0, height), side(1, width)];
            for i in 0..block[0] {
                slots.extend((0..block[1]).map(|j| [[corner[0] + i, corner[1] + j], block]));
            }
        }
        slots
    }

    /// Transforms consecutive states to coefficients, in place.
    pub(crate) fn encode(self, shape: FieldShape, values: &mut [f32]) {
        let [_, field @ ..] = shape.tensor(1);
        self.each(field, values, |one, moved| {
            self.wavelet.forward(field, one);
            moved.copy_from_slice(one);
            self.rearrange(field, |latent, transformed| one[latent] = moved[transformed]);
        });
    }

    /// Transforms coefficients to states, in place: the inverse of [`Latent::encode`], which is also its transpose.
    pub(crate) fn decode(self, shape: FieldShape, values: &mut [f32]) {
        let [_, field @ ..] = shape.tensor(1);
        self.each(field, values, |one, moved| {
            moved.copy_from_slice(one);
            self.rearrange(field, |latent, transformed| one[transformed] = moved[latent]);
            self.wavelet.inverse(field, one);
        });
    }

    fn each(self, field: [usize; 3], values: &mut [f32], mut work: impl FnMut(&mut [f32], &mut [f32])) {
        let size = field.iter().product::<usize>().max(1);
        let mut moved = vec![0.0; size];
        for one in values.chunks_exact_mut(size) {
            work(one, &mut moved);
        }
    }

    /// Calls `pair` with the position of every coefficient in the latent field and in the transformed field.
    fn rearrange(self, field: [usize; 3], mut pair: impl FnMut(usize, usize)) {
        let [height, width, channels] = field;
        let [rows, columns] = self.halvings();
        let (grid, slots) = ([height >> rows, width >> columns], self.slots(field));
        for place in 0..grid[0] * grid[1] {
            let at = [place / grid[1], place % grid[1]];
            for (slot, [first, step]) in slots.iter().enumerate() {
                let [row, column] = [0, 1].map(|axis| first[axis] + at[axis] * step[axis]);
                for channel in 0..channels {
                    pair(
                        (place * slots.len() + slot) * channels + channel,
                        (row * width + column) * channels + channel,
                    );
                }
            }
        }
    }

    /// Appends the transform of coefficients `[batch, height, width, channels]` to states.
    pub(crate) fn decoded(self, graph: &mut Graph, x: Node) -> Result<Node> {
        let shape = graph.shape(x).axes().to_vec();
        let (batch, mut sides) = (shape[0], [shape[1], shape[2]]);
        let channels = shape[3] / self.expansion();
        let mut averages = graph.slice(x, 3, 0, channels)?;
        let (mut start, planar) = (channels, self.axes > 1);
        for level in self.bands().chunks(if planar { 3 } else { 1 }) {
            let mut parts = Vec::new();
            for band in level {
                let [rows, columns] = band.block;
                let count = rows * columns * channels;
                let blocks = graph.var(x).slice(3, start, count);
                let split = blocks.reshape([batch * shape[1], shape[2], rows, columns * channels]);
                let ordered = split.permute(&[0, 2, 1, 3]);
                parts.push(ordered.reshape([batch, sides[0], sides[1], channels]).node()?);
                start += count;
            }
            let top = graph.concat(&[averages, parts[0]], 2)?;
            averages = match parts.get(1..3) {
                Some(&[low, high]) => {
                    let bottom = graph.concat(&[low, high], 2)?;
                    graph.concat(&[top, bottom], 1)?
                }
                _ => top,
            };
            sides = [if planar { 2 * sides[0] } else { sides[0] }, 2 * sides[1]];
        }
        Ok(graph.wavelet_inverse(averages, self.wavelet)?)
    }
}

#[cfg(test)]
mod tests {
    use cfo_device::Device;
    use cfo_engine::{Memory, Precision, Program};
    use cfo_numerics::Philox;
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// Checks that coefficients are restored on the host and on the device, that the transform preserves the energy, and that positions
        /// are unique.
        #[test]
        fn coefficients_come_back_on_the_host_and_on_the_device(
            seed: u64,
            levels in 1..4_usize,
            sides in [1..4_usize, 1..4_usize],
            planar: bool,
            channels in 1..4_usize,
            daubechies: bool,
            periodic: [bool; 3],
        ) {
            let wavelet = Some(if daubechies { LatentWavelet::Daubechies4 } else { LatentWavelet::Haar });
            let sides = sides.map(|side| side << levels);
            let field = if planar { FieldShape::plane(sides[0], sides[1], channels) } else { FieldShape::line(sides[1], channels) };
            let states = StateSpace { field, periodic, conditions: 0, statics: 0 };
            let latent = LatentConfig { wavelet, levels }.latent(&states).unwrap();
            let space = latent.space(&states).unwrap();
            prop_assert_eq!(space.field.len(), field.len());
            prop_assert_eq!(latent.original(space.field), field);
            let mut random = Philox::new(seed, 0);
            let values: Vec<f32> = (0..2 * field.len()).map(|_| random.normal() as f32).collect();
            let mut coefficients = values.clone();
            latent.encode(field, &mut coefficients);
            let energy = |values: &[f32]| values.iter().map(|&v| f64::from(v).powi(2)).sum::<f64>();
            prop_assert!((energy(&coefficients) / energy(&values) - 1.0).abs() < 1e-5);
            let mut back = coefficients.clone();
            latent.decode(field, &mut back);
            let mut graph = Graph::new();
            let shape = space.field.tensor(2);
            let x = graph.input("x", shape).unwrap();
            let states = latent.decoded(&mut graph, x).unwrap();
            let mut memory = Memory::new(Device::Cpu, Precision::F32).unwrap();
            memory.insert_real("x", shape, &coefficients).unwrap();
            let mut program = Program::compile(&graph, &[states], &memory).unwrap();
            program.run(&mut memory).unwrap();
            let device = program.output_f64(0).unwrap();
            for ((back, device), value) in back.iter().zip(device).zip(&values) {
                // Up to six passes in each direction, each rounded to single precision.
                prop_assert!((back - value).abs() < 1e-5 && (device as f32 - value).abs() < 1e-5);
            }
        }
    }

    /// Checks that smooth fields have most energy in the averages, and constant fields all of it.
    #[test]
    fn averages_come_first() {
        let config = LatentConfig { wavelet: Some(LatentWavelet::Haar), levels: 2 };
        let states =
            StateSpace { field: FieldShape::plane(8, 4, 2), periodic: [false; 3], conditions: 0, statics: 0 };
        let mut values = vec![3.0; states.field.len()];
        config.latent(&states).unwrap().encode(states.field, &mut values);
        for place in values.chunks(32) {
            // A level along an axis multiplies the average of a constant by the square root of 2.
            assert!(place[..2].iter().all(|average| (average - 12.0).abs() < 1e-5), "{place:?}");
            assert!(place[2..].iter().all(|detail| detail.abs() < 1e-5), "{place:?}");
        }
    }

    #[test]
    fn sides_that_cannot_be_halved_are_refused_with_the_levels_that_can() {
        let refused = |dimensions: &[usize], levels: usize| {
            let config = LatentConfig { wavelet: Some(LatentWavelet::Haar), levels };
            let (grid, channels) = (Grid::new(&dimensions[1..]).unwrap(), dimensions[0]);
            let states = StateSpace {
                field: FieldShape { grid, channels },
                periodic: [false; 3],
                conditions: 0,
                statics: 0,
            };
            let error = config.latent(&states).unwrap().space(&states).unwrap_err();
            format!("{error} {}", error.hint().unwrap_or_default())
        };
        let said = refused(&[1, 100], 3);
        assert!(said.contains("the width of the grid is 100, which is not a multiple of 8"), "{said}");
        assert!(said.contains("set `latent.levels` to 2 at most"), "{said}");
        assert!(refused(&[1, 7, 8], 1).contains("a side of 7 cannot be halved"));
        for sides in [&[1][..], &[1, 8, 8, 8]] {
            assert!(refused(sides, 1).contains("wavelets need one or two space axes"), "{sides:?}");
        }
    }
}
