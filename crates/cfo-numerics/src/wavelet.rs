//! Orthogonal wavelet transforms of fields on a line or a plane.
//!
//! One level replaces a line by averages of neighbours, half as many, and details, the other half. The next level does
//! the same to the averages. Filters that pass the end of a periodic axis wrap around. On other axes such filters are
//! truncated to the inside and scaled to length 1. For filters of four taps the truncated ones are two vectors at the
//! two ends. They are orthogonal to all other vectors and to each other, so the transform stays orthogonal.

/// A family of orthogonal wavelets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum WaveletFamily {
    /// Averages and differences of neighbours.
    Haar,
    /// Daubechies' wavelet of four taps, with two vanishing moments.
    Daubechies4,
}

impl WaveletFamily {
    /// All families.
    pub const ALL: [Self; 2] = [Self::Haar, Self::Daubechies4];

    /// The taps of the averaging filter.
    #[inline]
    pub fn taps(self) -> &'static [f64] {
        const HALF: f64 = std::f64::consts::FRAC_1_SQRT_2;
        const ROOT: f64 = 1.732_050_807_568_877_2;
        match self {
            Self::Haar => &[HALF, HALF],
            Self::Daubechies4 => &[
                (1.0 + ROOT) * HALF / 4.0,
                (3.0 + ROOT) * HALF / 4.0,
                (3.0 - ROOT) * HALF / 4.0,
                (1.0 - ROOT) * HALF / 4.0,
            ],
        }
    }

    /// The truncated filters at the ends of a line: the average at its last two points, the detail at its first two.
    /// `None` for filters that never pass an end.
    pub fn ends(self) -> Option<[[f64; 2]; 2]> {
        let scaled = |a: f64, b: f64| [a / a.hypot(b), b / a.hypot(b)];
        match self.taps() {
            &[a, b, c, d] => Some([scaled(a, b), scaled(c, d)]),
            _ => None,
        }
    }

    /// The terms of one level along a line of an even number of points: coefficient, point, weight. Averages are the
    /// first half of the coefficients, details the second.
    #[inline]
    pub fn terms(self, length: usize, periodic: bool) -> impl Iterator<Item = (usize, usize, f64)> {
        let (taps, half) = (self.taps(), length / 2);
        let ends = self.ends().filter(|_| !periodic);
        let whole = half - usize::from(ends.is_some());
        let inside = (0..whole).flat_map(move |pair| {
            (0..taps.len()).flat_map(move |k| {
                let point = (2 * pair + k) % length;
                let mirrored = taps[taps.len() - 1 - k];
                let detail = if k % 2 == 0 { mirrored } else { -mirrored };
                // With ends, the first detail is that of the first end.
                let place = half + pair + (half - whole);
                [(pair, point, taps[k]), (place, point, detail)]
            })
        });
        let ends = ends.into_iter().flat_map(move |[average, detail]| {
            (0..2).flat_map(move |k| [(half - 1, length - 2 + k, average[k]), (half, k, detail[k])])
        });
        inside.chain(ends)
    }
}

/// An orthogonal wavelet transform over height and width.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Wavelet {
    /// The wavelet family.
    pub family: WaveletFamily,
    /// The number of levels.
    pub levels: usize,
    /// Whether height and width are periodic.
    pub periodic: [bool; 2],
}

impl Wavelet {
    /// Whether a side can be halved once per level; a side of 1 is not transformed.
    pub fn divides(self, side: usize) -> bool {
        side == 1 || (side > 0 && side.trailing_zeros() as usize >= self.levels)
    }

    /// Transforms a field `[height, width, channels]` in place: averages in the corner at the origin, details beside
    /// them, level within level.
    ///
    /// # Panics
    /// If a side cannot be halved once per level, or the number of values does not match the shape.
    pub fn forward(self, field: [usize; 3], values: &mut [f32]) {
        self.transform(field, values, false);
    }

    /// The inverse of [`Wavelet::forward`], which is also its transpose.
    ///
    /// # Panics
    /// If [`Wavelet::forward`] does.
    pub fn inverse(self, field: [usize; 3], values: &mut [f32]) {
        self.transform(field, values, true);
    }

    fn transform(self, field: [usize; 3], values: &mut [f32], inverse: bool) {
        let [height, width, channels] = field;
        assert_eq!(values.len(), height * width * channels, "values of a field");
        assert!(self.divides(height) && self.divides(width), "{height} x {width} in {} levels", self.levels);
        self.passes(field, inverse).for_each(|pass| pass.transform(self.family, channels, values, inverse));
    }

    /// The passes of a transform of a field `[height, width, channels]` in order: each one level along one axis.
    pub fn passes(
        self,
        [height, width, channels]: [usize; 3],
        inverse: bool,
    ) -> impl Iterator<Item = WaveletPass> {
        let pass = move |step: usize, second: bool| {
            let level = if inverse { self.levels - 1 - step } else { step };
            let [rows, columns] = [height, width].map(|side| if side == 1 { 1 } else { side >> level });
            let along_width = inverse == second;
            let (row, column) = ((rows, width * channels), (columns, channels));
            let (lines, points) = if along_width { (row, column) } else { (column, row) };
            let periodic = self.periodic[usize::from(along_width)];
            WaveletPass { corner: [rows, columns], along_width, lines, points, periodic }
        };
        let both = move |step| [pass(step, false), pass(step, true)];
        (0..self.levels).flat_map(both).filter(|pass| pass.points.0 > 1)
    }
}

/// One level of a transform along one axis: lines of points, each of which is a run of channels.
#[derive(Clone, Copy, Debug)]
pub struct WaveletPass {
    /// Rows and columns that are transformed, from the origin on.
    pub corner: [usize; 2],
    /// Whether lines are rows.
    pub along_width: bool,
    /// Number of lines, and their distance.
    pub lines: (usize, usize),
    /// Number of points of a line, and their distance.
    pub points: (usize, usize),
    /// Whether lines continue periodically.
    pub periodic: bool,
}

impl WaveletPass {
    fn transform(self, family: WaveletFamily, channels: usize, values: &mut [f32], inverse: bool) {
        let terms: Vec<(usize, usize, f64)> = family.terms(self.points.0, self.periodic).collect();
        let mut sums = vec![0.0; self.points.0];
        for line in 0..self.lines.0 {
            for channel in 0..channels {
                let at = |point: usize| line * self.lines.1 + point * self.points.1 + channel;
                sums.fill(0.0);
                for &(coefficient, point, weight) in &terms {
                    let (from, to) = if inverse { (coefficient, point) } else { (point, coefficient) };
                    sums[to] += weight * f64::from(values[at(from)]);
                }
                for (point, &sum) in sums.iter().enumerate() {
                    values[at(point)] = sum as f32;
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::Philox;

    fn random(seed: u64, count: usize) -> Vec<f32> {
        let mut random = Philox::new(seed, 0);
        (0..count).map(|_| random.normal() as f32).collect()
    }

    /// One level as a matrix, a row for each coefficient.
    fn matrix(family: WaveletFamily, length: usize, periodic: bool) -> Vec<Vec<f64>> {
        let mut rows = vec![vec![0.0; length]; length];
        for (coefficient, point, weight) in family.terms(length, periodic) {
            rows[coefficient][point] += weight;
        }
        rows
    }

    #[test]
    fn a_level_is_an_orthogonal_matrix_with_ends_and_without() {
        for family in WaveletFamily::ALL {
            for (length, periodic) in [2, 4, 6, 16].into_iter().flat_map(|n| [(n, true), (n, false)]) {
                let rows = matrix(family, length, periodic);
                for (i, a) in rows.iter().enumerate() {
                    for (j, b) in rows.iter().enumerate() {
                        let product: f64 = a.iter().zip(b).map(|(a, b)| a * b).sum();
                        let expected = if i == j { 1.0 } else { 0.0 };
                        // A sum of at most four products of numbers below 1.
                        assert!((product - expected).abs() < 4e-16, "{family:?} {length} {periodic} {i} {j}");
                    }
                }
            }
        }
    }

    #[test]
    fn details_of_what_the_moments_reproduce_vanish_inside() {
        let points = 32;
        for (family, degree) in [(WaveletFamily::Haar, 0), (WaveletFamily::Daubechies4, 1)] {
            let rows = matrix(family, points, false);
            let first = usize::from(family == WaveletFamily::Daubechies4);
            for row in &rows[points / 2 + first..] {
                for power in 0..=degree {
                    let detail: f64 = row.iter().enumerate().map(|(x, w)| w * (x as f64).powi(power)).sum();
                    assert!(detail.abs() < 1e-13, "{family:?} {power}: {detail}");
                }
            }
        }
    }

    /// The two ends of a line do not interact unless the axis is periodic.
    #[test]
    fn ends_do_not_meet() {
        let rows = matrix(WaveletFamily::Daubechies4, 12, false);
        for row in &rows {
            let touched: Vec<usize> = (0..12).filter(|&x| row[x] != 0.0).collect();
            assert!(touched[touched.len() - 1] - touched[0] < 4, "{touched:?}");
        }
    }

    proptest! {
        /// The inverse restores the field and the transform preserves its energy, for any shape whose sides can be
        /// halved.
        #[test]
        fn fields_come_back_and_keep_their_energy(
            seed: u64,
            levels in 0..4_usize,
            sides in [1..5_usize, 1..5_usize],
            flat: bool,
            channels in 1..4_usize,
            daubechies: bool,
            periodic: [bool; 2],
        ) {
            let family = if daubechies { WaveletFamily::Daubechies4 } else { WaveletFamily::Haar };
            let wavelet = Wavelet { family, levels, periodic };
            let height = if flat { 1 } else { sides[0] << levels };
            let field = [height, sides[1] << levels, channels];
            let values = random(seed, field.iter().product());
            let mut moved = values.clone();
            wavelet.forward(field, &mut moved);
            let energy = |values: &[f32]| values.iter().map(|&v| f64::from(v).powi(2)).sum::<f64>();
            // Each of up to six passes rounds to single precision.
            prop_assert!((energy(&moved) / energy(&values) - 1.0).abs() < 1e-5);
            wavelet.inverse(field, &mut moved);
            for (found, expected) in moved.iter().zip(&values) {
                prop_assert!((found - expected).abs() < 5e-6, "{} {}", found, expected);
            }
        }
    }
}
