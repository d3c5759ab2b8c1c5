//! Sums in eight lanes, which the compiler can vectorise. They are also more accurate than sequential sums.

const LANES: usize = 8;

/// Sums of `terms` over pairs of prediction and truth, as `f64`.
pub(super) fn sums<P: Copy + Into<f64>, T: Copy + Into<f64>, const N: usize>(
    prediction: &[P],
    truth: &[T],
    terms: impl Fn(f64, f64) -> [f64; N],
) -> [f64; N] {
    let mut sums = [[0.0; LANES]; N];
    let mut add = |lane: usize, p: P, q: T| {
        for (sum, term) in sums.iter_mut().zip(terms(p.into(), q.into())) {
            sum[lane] += term;
        }
    };
    let ((p, p_rest), (q, q_rest)) = (prediction.as_chunks::<LANES>(), truth.as_chunks::<LANES>());
    for (p, q) in p.iter().zip(q) {
        for lane in 0..LANES {
            add(lane, p[lane], q[lane]);
        }
    }
    for (lane, (&p, &q)) in p_rest.iter().zip(q_rest).enumerate() {
        add(lane, p, q);
    }
    sums.map(|lanes| lanes.iter().sum())
}

/// The largest absolute value; NaN is ignored.
pub(super) fn largest(values: &[f64]) -> f64 {
    let mut largest = [0.0_f64; LANES];
    let keep = |largest: &mut f64, value: f64| {
        *largest = if value.abs() > *largest { value.abs() } else { *largest }
    };
    let (whole, rest) = values.as_chunks::<LANES>();
    for values in whole {
        largest.iter_mut().zip(values).for_each(|(largest, &value)| keep(largest, value));
    }
    largest.iter_mut().zip(rest).for_each(|(largest, &value)| keep(largest, value));
    largest.into_iter().fold(0.0, f64::max)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_pair_counts_once() {
        for count in [0, 1, 7, 8, 9, 100] {
            let p: Vec<f32> = (0..count).map(|i| i as f32 - 50.0).collect();
            let q = vec![1.0_f64; count];
            let [ones, values, products] = sums(&p, &q, |p, q| [q, p, p * q]);
            let expected: f64 = p.iter().map(|&p| f64::from(p)).sum();
            assert_eq!((ones, values, products), (count as f64, expected, expected));
            let doubles: Vec<f64> = p.iter().map(|&p| p.into()).collect();
            assert_eq!(largest(&doubles), doubles.iter().fold(0.0, |a, b| f64::max(a, b.abs())));
        }
        assert_eq!(largest(&[f64::NAN, -2.0, 1.0]), 2.0);
    }
}
