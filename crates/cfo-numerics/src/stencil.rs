//! Finite-difference weights on any set of distinct nodes.
//!
//! The weights `w` of the appendix "Finite Difference stencil on a nonuniform grid" satisfy `sum_j w_j (x_j - x)^r = k!
//! [r = k]` for `r` below the number of nodes. `sum_j w_j f(x_j)` is thus the k-th derivative at `x` of the polynomial
//! through the nodes. The weights come from Fornberg's recurrence, which adds one node at a time. It stays accurate
//! where solving the Vandermonde system would not.

use std::ops::Range;

/// Writes the weights of derivative `order` at `at` into `out`, one per node.
///
/// Order 0 interpolates. Derivatives of order `nodes.len()` and above of the interpolating polynomial are zero, and so
/// are the weights. Nodes may come in any order; two equal ones give weights that are not finite.
///
/// ```
/// let mut weights = [0.0; 3];
/// cfo_numerics::stencil::weights(&[0.0, 1.0, 2.0], 0.0, 1, &mut weights);
/// assert_eq!(weights, [-1.5, 2.0, -0.5]); // one-sided
/// ```
///
/// # Panics
/// If `out` is not as long as `nodes`.
pub fn weights(nodes: &[f64], at: f64, order: usize, out: &mut [f64]) {
    assert_eq!(out.len(), nodes.len(), "one weight per node");
    if order >= nodes.len() {
        out.fill(0.0);
        return;
    }
    let mut table = vec![0.0; (order + 1) * nodes.len()];
    table_of_weights(nodes, at, order, &mut table);
    out.copy_from_slice(&table[order * nodes.len()..]);
}

/// Writes the weights of all derivatives `0..=max_order` at `at` into `out`, a row of `nodes.len()` per order.
///
/// # Panics
/// If `out` does not hold `max_order + 1` rows.
pub fn table_of_weights(nodes: &[f64], at: f64, max_order: usize, out: &mut [f64]) {
    table_in_unit(nodes, at, 1.0, max_order, out);
}

/// The weights of [`table_of_weights`] times `unit^k` at order `k`. Scaling the nodes would make close ones coincide.
pub(crate) fn table_in_unit(nodes: &[f64], at: f64, unit: f64, max_order: usize, out: &mut [f64]) {
    let count = nodes.len();
    assert_eq!(out.len(), (max_order + 1) * count, "one row of weights per order");
    out.fill(0.0);
    if count == 0 {
        return;
    }
    // Scaling by powers of two is exact, and the products below neither overflow nor underflow.
    let scale = power_of_two_near(nodes.iter().fold(0.0, |far, x| f64::max(far, (x - at).abs())));
    let distance = |x: f64, y: f64| (x - y) * scale;
    out[0] = 1.0;
    let mut product_before = 1.0;
    let mut offset_before = distance(nodes[0], at);
    for i in 1..count {
        let offset = distance(nodes[i], at);
        let top = max_order.min(i);
        let product: f64 = nodes[..i].iter().map(|&x| distance(nodes[i], x)).product();
        // The new node first: it needs the row of node i - 1 before that row is updated.
        for k in (0..=top).rev() {
            let below = if k == 0 { 0.0 } else { k as f64 * out[(k - 1) * count + i - 1] };
            out[k * count + i] = product_before / product * (below - offset_before * out[k * count + i - 1]);
        }
        for j in 0..i {
            let gap = distance(nodes[i], nodes[j]);
            for k in (0..=top).rev() {
                let below = if k == 0 { 0.0 } else { k as f64 * out[(k - 1) * count + j] };
                out[k * count + j] = (offset * out[k * count + j] - below) / gap;
            }
        }
        product_before = product;
        offset_before = offset;
    }
    let factor = scale * unit;
    for k in 1..=max_order {
        // One factor at a time, so that no intermediate power leaves the range of the numbers.
        for weight in &mut out[k * count..(k + 1) * count] {
            for _ in 0..k {
                *weight *= factor;
            }
        }
    }
}

/// The snapshots that estimate the derivatives at knot `knot` of `snapshots`: `width` neighbours centred on the knot.
///
/// An even width takes one more at the right, so that two points are the paper's forward difference. At the ends the
/// window is shifted inwards and the stencil is one-sided. A width greater than the number of snapshots is reduced to
/// it.
pub fn window(knot: usize, width: usize, snapshots: usize) -> Range<usize> {
    let width = width.min(snapshots);
    let first = knot.saturating_sub(width.saturating_sub(1) / 2).min(snapshots - width);
    first..first + width
}

/// The power of two `p` with `0.5 < p * x <= 2`, or 1 where there is none.
pub(crate) fn power_of_two_near(x: f64) -> f64 {
    if x == 0.0 || !x.is_finite() {
        return 1.0;
    }
    let exponent = x.log2().round().clamp(-1000.0, 1000.0);
    (-exponent).exp2()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn stencil(nodes: &[f64], at: f64, order: usize) -> Vec<f64> {
        let mut out = vec![0.0; nodes.len()];
        weights(nodes, at, order, &mut out);
        out
    }

    #[test]
    fn classical_stencils() {
        assert_eq!(stencil(&[0.0, 1.0], 0.0, 1), [-1.0, 1.0]);
        assert_eq!(stencil(&[-1.0, 0.0, 1.0], 0.0, 1), [-0.5, 0.0, 0.5]);
        assert_eq!(stencil(&[-1.0, 0.0, 1.0], 0.0, 2), [1.0, -2.0, 1.0]);
        assert_eq!(stencil(&[0.0, 1.0, 2.0], 2.0, 1), [0.5, -2.0, 1.5]);
        let fourth = [1.0 / 12.0, -2.0 / 3.0, 0.0, 2.0 / 3.0, -1.0 / 12.0];
        for (found, expected) in stencil(&[-2.0, -1.0, 0.0, 1.0, 2.0], 0.0, 1).iter().zip(fourth) {
            assert!((found - expected).abs() < 4.0 * f64::EPSILON);
        }
        assert_eq!(stencil(&[5.0], 3.0, 0), [1.0]);
        assert_eq!(stencil(&[0.0, 1.0], 0.5, 2), [0.0, 0.0]);
        assert_eq!(stencil(&[0.0, 1.0], 0.5, 7), [0.0, 0.0]);
        weights(&[], 0.0, 0, &mut []);
    }

    /// Three-point weights agree with equation (3-point stencil) of the paper.
    #[test]
    fn three_points_are_the_papers() {
        let (h0, h1) = (0.3, 0.7);
        let nodes = [1.0 - h0, 1.0, 1.0 + h1];
        let slope = [-h1 / (h0 * (h0 + h1)), (h1 - h0) / (h0 * h1), h0 / (h1 * (h0 + h1))];
        let bend = [2.0 / (h0 * (h0 + h1)), -2.0 / (h0 * h1), 2.0 / (h1 * (h0 + h1))];
        for (order, expected) in [(1, slope), (2, bend)] {
            for (found, expected) in stencil(&nodes, 1.0, order).iter().zip(expected) {
                assert!((found - expected).abs() < 1e-14 * expected.abs().max(1.0));
            }
        }
    }

    #[test]
    fn windows_are_centred_and_clamped() {
        assert_eq!(window(3, 3, 10), 2..5);
        assert_eq!(window(0, 3, 10), 0..3);
        assert_eq!(window(9, 3, 10), 7..10);
        assert_eq!(window(3, 2, 10), 3..5);
        assert_eq!(window(9, 2, 10), 8..10);
        assert_eq!(window(4, 4, 10), 3..7);
        assert_eq!(window(1, 5, 4), 0..4);
        for (knot, width, snapshots) in [(0, 1, 1), (4, 1, 9), (7, 6, 9)] {
            assert!(window(knot, width, snapshots).contains(&knot));
        }
    }

    #[test]
    fn scales_far_from_one_survive() {
        for scale in [1e-80, 1e-30, 1e30, 1e80] {
            let nodes = [-1.0, 0.0, 1.5, 2.0, 2.5].map(|x: f64| x * scale);
            let unit = stencil(&[-1.0, 0.0, 1.5, 2.0, 2.5], 0.0, 3);
            for (found, unit) in stencil(&nodes, 0.0, 3).iter().zip(unit) {
                let expected = unit / scale / scale / scale;
                assert!((found - expected).abs() <= 1e-13 * expected.abs(), "{found} {expected}");
            }
        }
    }

    /// Distinct nodes, some of them nearly coincident, with random origin and scale.
    fn nodes() -> impl Strategy<Value = Vec<f64>> {
        let gap = prop_oneof![4 => 0.05..1.0_f64, 1 => 1e-6..1e-4_f64];
        (prop::collection::vec(gap, 1..8), -3.0..3.0_f64, -6..7_i32).prop_map(|(gaps, start, exponent)| {
            let scale = 10.0_f64.powi(exponent);
            let mut nodes = vec![start];
            nodes.extend(gaps.iter().scan(start, |x, gap| {
                *x += gap;
                Some(*x)
            }));
            nodes.iter().map(|x| x * scale).collect()
        })
    }

    proptest! {
        /// Gaps range from the spacing of floating-point numbers to 1e12 times as much.
        #[test]
        fn weights_are_finite_on_any_grid(
            times in crate::smoother::tests::any_grid(), first in 0..100_usize, width in 2..9_usize,
        ) {
            let span = times[times.len() - 1] - times[0];
            prop_assume!(times.windows(2).all(|pair| pair[1] - pair[0] > 1e-20 * span));
            let window = window(first % times.len(), width, times.len());
            let at = times[first % times.len()];
            for order in 0..width.min(3) {
                let weights = stencil(&times[window.clone()], at, order);
                prop_assert!(weights.iter().all(|weight| weight.is_finite()), "{order}: {weights:?}");
            }
        }

        /// The defining property: the weights are exact on every polynomial of degree below the number of nodes.
        /// Round-off is relative to the largest term of the sum, once per node and order. Nearly coincident nodes
        /// magnify it.
        #[test]
        fn polynomials_are_differentiated_exactly(nodes in nodes(), pick in 0..8_usize, order in 0..5_usize) {
            let at = nodes[pick % nodes.len()];
            let weights = stencil(&nodes, at, order);
            let span = nodes[nodes.len() - 1] - nodes[0];
            let magnified = if nodes.windows(2).any(|pair| pair[1] - pair[0] < 1e-3 * span) { 64.0 } else { 1.0 };
            for power in 0..nodes.len() {
                let terms: Vec<f64> =
                    nodes.iter().zip(&weights).map(|(x, w)| w * (x - at).powi(power as i32)).collect();
                let expected = if power == order { (1..=order).product::<usize>() as f64 } else { 0.0 };
                let size = terms.iter().fold(expected, |m: f64, x| m.max(x.abs()));
                let error = (terms.iter().sum::<f64>() - expected).abs();
                let bound = 64.0 * magnified * nodes.len() as f64 * f64::EPSILON * size;
                prop_assert!(error <= bound, "{error} of {size}");
            }
        }

        #[test]
        fn rows_of_the_table_are_the_stencils(nodes in nodes(), at in -3.0..3.0_f64) {
            let orders = nodes.len();
            let mut table = vec![f64::NAN; (orders + 1) * nodes.len()];
            table_of_weights(&nodes, at, orders, &mut table);
            for (order, row) in table.chunks(nodes.len()).enumerate() {
                prop_assert_eq!(row, &stencil(&nodes, at, order)[..]);
            }
        }
    }
}
