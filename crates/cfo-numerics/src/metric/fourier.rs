//! A small discrete Fourier transform of any length, for spectra of errors.

/// Real and imaginary part.
pub(super) type Complex = [f64; 2];

/// The transform `F_k = sum_x f_x exp(-2 pi i k x / n)` of one length: mixed radix, fast for lengths with small factors and
/// correct for all. An FFT crate would be faster, but this runs once per frame of an evaluation.
#[derive(Clone, Debug)]
pub(super) struct Transform {
    roots: Vec<Complex>,
    input: Vec<Complex>,
    output: Vec<Complex>,
}

impl Transform {
    /// Transform of `length >= 1` numbers.
    pub(super) fn new(length: usize) -> Self {
        let roots = (0..length)
            .map(|k| {
                let (sin, cos) = (std::f64::consts::TAU * k as f64 / length as f64).sin_cos();
                [cos, -sin]
            })
            .collect();
        Self { roots, input: vec![[0.0; 2]; length], output: vec![[0.0; 2]; length] }
    }

    /// Number of points.
    pub(super) fn length(&self) -> usize {
        self.roots.len()
    }

    /// The transform of the points.
    pub(super) fn of(&mut self, points: impl Iterator<Item = Complex>) -> &[Complex] {
        for (slot, point) in self.input.iter_mut().zip(points) {
            *slot = point;
        }
        split(&self.roots, &self.input, 1, &mut self.output);
        &self.output
    }

    /// Of two real sequences in one go, the transforms at the frequencies `0..count`, `count <= length / 2 + 1`:
    /// calls `sink(k, F_k, G_k)`.
    pub(super) fn of_two_real(
        &mut self,
        pairs: impl Iterator<Item = [f64; 2]>,
        count: usize,
        mut sink: impl FnMut(usize, Complex, Complex),
    ) {
        let length = self.length();
        let both = self.of(pairs);
        for k in 0..count {
            // f real and g imaginary: F_k = (H_k + conj H_(n-k)) / 2 and G_k = (H_k - conj H_(n-k)) / 2i.
            let ([a, b], [c, d]) = (both[k], both[(length - k) % length]);
            sink(k, [0.5 * (a + c), 0.5 * (b - d)], [0.5 * (b + d), 0.5 * (c - a)]);
        }
    }
}

fn times([a, b]: Complex, [c, d]: Complex) -> Complex {
    [a * c - b * d, a * d + b * c]
}

/// Decimation in time: the transform of every `stride`-th point of `input` into `output`. `roots` are those of the whole length.
fn split(roots: &[Complex], input: &[Complex], stride: usize, output: &mut [Complex]) {
    let length = output.len();
    let radix = factor(length);
    let part = length / radix;
    if part == 1 {
        // The recursion ends here rather than one level deeper, at single points: that would be most of its calls.
        for (slot, &point) in output.iter_mut().zip(input.iter().step_by(stride)) {
            *slot = point;
        }
    } else {
        for (start, piece) in output.chunks_exact_mut(part).enumerate() {
            split(roots, &input[start * stride..], stride * radix, piece);
        }
    }
    match radix {
        1 => (),
        2 => butterflies(roots, stride, output),
        4 => double_butterflies(roots, stride, output),
        _ => joins(roots, stride, radix, output),
    }
}

/// 4 where it divides, else the smallest prime.
fn factor(length: usize) -> usize {
    if length.is_multiple_of(4) {
        return 4;
    }
    let small = (2..).take_while(|p| p * p <= length).find(|&p| length.is_multiple_of(p));
    small.unwrap_or(length)
}

fn butterflies(roots: &[Complex], stride: usize, output: &mut [Complex]) {
    let (even, odd) = output.split_at_mut(output.len() / 2);
    for (k, (even, odd)) in even.iter_mut().zip(odd).enumerate() {
        let (a, b) = (*even, times(*odd, roots[k * stride]));
        *even = [a[0] + b[0], a[1] + b[1]];
        *odd = [a[0] - b[0], a[1] - b[1]];
    }
}

fn double_butterflies(roots: &[Complex], stride: usize, output: &mut [Complex]) {
    let part = output.len() / 4;
    let (first, rest) = output.split_at_mut(part);
    let (second, rest) = rest.split_at_mut(part);
    let (third, fourth) = rest.split_at_mut(part);
    for (k, (((first, second), third), fourth)) in
        first.iter_mut().zip(second).zip(third).zip(fourth).enumerate()
    {
        let a = *first;
        let [b, c, d] = if k == 0 {
            [*second, *third, *fourth]
        } else {
            let root = k * stride;
            [times(*second, roots[root]), times(*third, roots[2 * root]), times(*fourth, roots[3 * root])]
        };
        let (even, odd) = ([a[0] + c[0], a[1] + c[1]], [a[0] - c[0], a[1] - c[1]]);
        let (sum, turned) = ([b[0] + d[0], b[1] + d[1]], [b[1] - d[1], d[0] - b[0]]);
        *first = [even[0] + sum[0], even[1] + sum[1]];
        *second = [odd[0] + turned[0], odd[1] + turned[1]];
        *third = [even[0] - sum[0], even[1] - sum[1]];
        *fourth = [odd[0] - turned[0], odd[1] - turned[1]];
    }
}

/// Any radix, by its definition.
fn joins(roots: &[Complex], stride: usize, radix: usize, output: &mut [Complex]) {
    let (length, part) = (output.len(), output.len() / radix);
    let mut column = vec![[0.0; 2]; radix];
    for k in 0..part {
        for (j, slot) in column.iter_mut().enumerate() {
            *slot = output[k + j * part];
        }
        for row in 0..radix {
            let frequency = k + row * part;
            output[frequency] = column.iter().enumerate().fold([0.0; 2], |sum, (j, &point)| {
                let [a, b] = times(point, roots[j * frequency % length * stride]);
                [sum[0] + a, sum[1] + b]
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn points(length: usize) -> Vec<Complex> {
        (0..length).map(|x| [(x as f64 * 1.3).sin() + 0.2, (x as f64 * 0.7).cos() - 0.1]).collect()
    }

    #[test]
    fn is_the_sum_it_stands_for() {
        for length in (1..=36).chain([49, 60, 64, 97, 100, 128, 256]) {
            let points = points(length);
            let mut transform = Transform::new(length);
            let found = transform.of(points.iter().copied()).to_vec();
            for (k, found) in found.iter().enumerate() {
                let expected = points.iter().enumerate().fold([0.0; 2], |sum, (x, &point)| {
                    let angle = std::f64::consts::TAU * (k * x % length) as f64 / length as f64;
                    let [a, b] = times(point, [angle.cos(), -angle.sin()]);
                    [sum[0] + a, sum[1] + b]
                });
                let apart = (found[0] - expected[0]).hypot(found[1] - expected[1]);
                assert!(apart <= 1e-14 * length as f64, "{length} {k}: {apart}");
            }
        }
    }

    #[test]
    fn two_real_sequences_at_once() {
        for length in [1, 2, 7, 12, 100] {
            let pairs = points(length);
            let [f, g] = [0, 1].map(|side| {
                let real = pairs.iter().map(|pair| [pair[side], 0.0]);
                Transform::new(length).of(real).to_vec()
            });
            let mut seen = 0;
            Transform::new(length).of_two_real(pairs.iter().copied(), length / 2 + 1, |k, a, b| {
                for (found, expected) in [(a, f[k]), (b, g[k])] {
                    let apart = (found[0] - expected[0]).hypot(found[1] - expected[1]);
                    assert!(apart <= 1e-14 * length as f64, "{length} {k}");
                }
                seen += 1;
            });
            assert_eq!(seen, length / 2 + 1);
        }
    }
}
