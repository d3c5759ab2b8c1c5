use proptest::prelude::*;

use super::*;
use crate::{Path, Philox};

/// Covariance of a twice integrated Wiener process that starts at 0: `1/4 integral (s-u)^2 (t-u)^2 du` up to the
/// earlier time.
fn covariance(s: f64, t: f64) -> f64 {
    let (early, gap) = (s.min(t), (s - t).abs());
    (early.powi(5) / 5.0 + gap * early.powi(4) / 2.0 + gap * gap * early.powi(3) / 3.0) / 4.0
}

/// Solves `A x = b` by elimination with pivoting.
fn solve(mut a: Vec<Vec<f64>>, mut b: Vec<f64>) -> Vec<f64> {
    let n = b.len();
    for k in 0..n {
        let pivot = (k..n).max_by(|&i, &j| a[i][k].abs().total_cmp(&a[j][k].abs())).unwrap();
        a.swap(k, pivot);
        b.swap(k, pivot);
        let (upper, lower) = a.split_at_mut(k + 1);
        for (i, row) in lower.iter_mut().enumerate() {
            let factor = row[k] / upper[k][k];
            row.iter_mut().zip(&upper[k]).skip(k).for_each(|(to, from)| *to -= factor * from);
            b[k + 1 + i] -= factor * b[k];
        }
    }
    for k in (0..n).rev() {
        b[k] = (b[k] - (k + 1..n).map(|j| a[k][j] * b[j]).sum::<f64>()) / a[k][k];
    }
    b
}

/// Gaussian process regression with an unknown parabola by the full matrix: the estimated noise of the data, for these
/// noise variances.
fn removed(times: &[f64], variances: &[f64], ratio: f64, data: &[f64]) -> Vec<f64> {
    let n = times.len();
    let power = |i: usize, k: usize| times[i].powi(k as i32);
    let entry = |i: usize, j: usize| match (i < n, j < n) {
        (true, true) => ratio * covariance(times[i], times[j]) + if i == j { variances[i] } else { 0.0 },
        (true, false) => power(i, j - n),
        (false, true) => power(j, i - n),
        (false, false) => 0.0,
    };
    let matrix = (0..n + 3).map(|i| (0..n + 3).map(|j| entry(i, j)).collect()).collect();
    let right = data.iter().copied().chain([0.0; 3]).collect();
    solve(matrix, right)[..n].iter().zip(variances).map(|(solved, variance)| variance * solved).collect()
}

fn times_of(steps: &[f64]) -> Vec<f64> {
    steps.iter().scan(0.0, |time, step| Some(std::mem::replace(time, *time + step))).collect()
}

fn noise(count: usize, seed: u64) -> Vec<f64> {
    let mut random = Philox::new(seed, 0);
    (0..count).map(|_| random.normal()).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// The banded smoother and its deviations agree with regression by the full matrix.
    #[test]
    fn smoothing_is_gaussian_process_regression(
        steps in prop::collection::vec(0.05..2.0_f64, 4..16),
        counts in prop::collection::vec(1..5_u32, 16),
        exponent in -4.0..4.0_f64,
        seed in 0..u64::MAX,
    ) {
        let (times, ratio) = (times_of(&steps), 10f64.powf(exponent));
        let n = times.len();
        let variances: Vec<f64> = counts[..n].iter().map(|&count| 1.0 / f64::from(count)).collect();
        let data = noise(n, seed);
        let mut smooth = data.clone();
        let smoother = Smoother::new(&times, &counts, 1.0, ratio);
        smoother.smooth(&mut smooth, 1);
        let taken = removed(&times, &variances, ratio, &data);
        for i in 0..n {
            // The full matrix has entries up to 1e4 * 30^5 next to ones; the elimination loses half of its 16 digits.
            prop_assert!((data[i] - taken[i] - smooth[i]).abs() < 1e-7, "{} {}", data[i] - taken[i], smooth[i]);
            let unit: Vec<f64> = (0..n).map(|j| f64::from(u8::from(i == j))).collect();
            let variance = variances[i] * (1.0 - removed(&times, &variances, ratio, &unit)[i]);
            prop_assert!((smoother.deviations(&[(i, &[1.0])])[0].powi(2) - variance).abs() < 1e-7);
        }
        // The velocity at a knot by a stencil: the full posterior covariance between its weights.
        let weights = Path { spline: crate::Spline::Cubic, stencil: 3 }.weights(&times, times[n / 2]);
        let mut padded = vec![0.0; n];
        padded[weights.range()].copy_from_slice(weights.velocity());
        let weighted: Vec<f64> = padded.iter().zip(&variances).map(|(w, variance)| w * variance).collect();
        let off = removed(&times, &variances, ratio, &weighted);
        let variance: f64 = padded.iter().zip(weighted.iter().zip(&off)).map(|(w, (own, off))| w * (own - off)).sum();
        let size: f64 = padded.iter().map(|w| w * w).sum();
        let deviation = smoother.deviations(&[(weights.first, weights.velocity())])[0];
        prop_assert!((deviation.powi(2) - variance).abs() < 1e-7 * size);
    }

    #[test]
    fn time_may_run_backward(
        steps in prop::collection::vec(0.01..2.0_f64, 4..40),
        exponent in -6.0..6.0_f64,
        seed in 0..u64::MAX,
    ) {
        let times = times_of(&steps);
        let end = times[times.len() - 1];
        let back: Vec<f64> = times.iter().rev().map(|time| end - time).collect();
        let mut forward = noise(times.len(), seed);
        let mut backward: Vec<f64> = forward.iter().rev().copied().collect();
        let ratio = 10f64.powf(exponent);
        Smoother::new(&times, &[], 1.0, ratio).smooth(&mut forward, 1);
        Smoother::new(&back, &[], 1.0, ratio).smooth(&mut backward, 1);
        for (forward, backward) in forward.iter().zip(backward.iter().rev()) {
            // The condition number of the factored matrix is below 1e9.
            prop_assert!((forward - backward).abs() < 1e-6, "{forward} {backward}");
        }
    }

    /// Other units of time give the same curve if the prior's intensity changes to match. The intensity is a density of
    /// the square of a third derivative, so it scales with the fifth power.
    #[test]
    fn units_of_time_do_not_matter(
        steps in prop::collection::vec(0.1..2.0_f64, 4..20),
        unit in 0.01..100.0_f64,
        seed in 0..u64::MAX,
    ) {
        let times = times_of(&steps);
        let stretched: Vec<f64> = times.iter().map(|time| time * unit + 5.0).collect();
        let mut one = noise(times.len(), seed);
        let (mut two, mut three) = (one.clone(), one.clone());
        Smoother::new(&times, &[], 1.0, 0.3).smooth(&mut one, 1);
        Smoother::new(&stretched, &[], unit, 0.3).smooth(&mut two, 1);
        Smoother::new(&stretched, &[], 1.0, 0.3 / unit.powi(5)).smooth(&mut three, 1);
        for ((one, two), three) in one.iter().zip(&two).zip(&three) {
            prop_assert!((one - two).abs() < 1e-7 && (one - three).abs() < 1e-7, "{one} {two} {three}");
        }
    }
}

#[test]
fn without_noise_the_data_stay() {
    let times = times_of(&[0.3, 1.0, 0.2, 0.7, 1.1, 0.4]);
    let data = noise(6, 1);
    let change = |ratio: f64| -> f64 {
        let mut smooth = data.clone();
        Smoother::new(&times, &[], 1.0, ratio).smooth(&mut smooth, 1);
        smooth.iter().zip(&data).map(|(smooth, data)| (smooth - data).abs()).fold(0.0, f64::max)
    };
    assert_eq!(change(f64::INFINITY), 0.0);
    // The removed noise falls with the ratio.
    assert!(change(1e10) > 0.0 && (change(1e8) / change(1e10) / 100.0 - 1.0).abs() < 0.01);
    assert_eq!(Smoother::new(&times, &[], 1.0, f64::INFINITY).deviations(&[(2, &[1.0])])[0], 0.0);
}

#[test]
fn a_parabola_and_a_short_series_stay() {
    let times = times_of(&[0.3, 1.0, 0.2, 0.7, 1.1, 0.4, 0.01, 2.0]);
    let parabola: Vec<f64> = times.iter().map(|t| 3.0 - 2.0 * t + 0.7 * t * t).collect();
    let mut smooth = parabola.clone();
    Smoother::new(&times, &[], 1.0, 1e-6).smooth(&mut smooth, 1);
    assert!(smooth.iter().zip(&parabola).all(|(smooth, data)| (smooth - data).abs() < 1e-9), "{smooth:?}");
    for count in 1..=3 {
        let mut short = noise(count, 3);
        let before = short.clone();
        let smoother = Smoother::new(&times[..count], &[], 1.0, 1.0);
        smoother.smooth(&mut short, 1);
        assert_eq!(short, before);
        assert_eq!(smoother.deviations(&[(0, &[1.0])])[0], 1.0);
    }
}

#[test]
fn series_side_by_side_are_smoothed_alike() {
    let times = times_of(&[0.3, 1.0, 0.2, 0.7, 1.1, 0.4, 0.6]);
    let smoother = Smoother::new(&times, &[], 1.0, 0.1);
    let columns: Vec<Vec<f64>> = (0..5).map(|seed| noise(7, seed)).collect();
    let mut together: Vec<f64> = (0..7).flat_map(|i| columns.iter().map(move |column| column[i])).collect();
    smoother.smooth(&mut together, 5);
    for (c, column) in columns.iter().enumerate() {
        let mut alone = column.clone();
        smoother.smooth(&mut alone, 1);
        assert!((0..7).all(|i| together[i * 5 + c] == alone[i]));
    }
}

/// Strictly increasing times: gaps from the spacing of floating-point numbers to a fifth of the whole, in any unit.
pub(crate) fn any_grid() -> impl Strategy<Value = Vec<f64>> {
    let gap = prop_oneof![2 => -0.7..0.7_f64, 1 => -12.0..0.0_f64, 1 => Just(f64::NEG_INFINITY)];
    (prop::collection::vec(gap, 5..40), -3.0..3.0_f64, -30..30_i32)
        .prop_map(|(exponents, start, unit)| {
            let mut times = vec![start];
            for exponent in exponents {
                let last = times[times.len() - 1];
                times.push((last + 10f64.powf(exponent)).max(last.next_up()));
            }
            times.iter().map(|time| time * 10f64.powi(unit)).collect::<Vec<f64>>()
        })
        .prop_filter("scaling keeps them apart", |times| times.windows(2).all(|pair| pair[0] < pair[1]))
}

proptest! {
    /// For any grid, the curve, its deviations and the evidence are finite.
    #[test]
    fn any_grid_is_smoothed(times in any_grid(), exponent in -9.0..9.0_f64, seed in 0..u64::MAX) {
        let (data, ratio) = (noise(times.len(), seed), 10f64.powf(exponent));
        let unit = (times[times.len() - 1] - times[0]) / (times.len() - 1) as f64;
        let smoother = Smoother::new(&times, &[], unit, ratio);
        let mut smooth = data.clone();
        smoother.smooth(&mut smooth, 1);
        // At ends and gaps the curve exceeds the data by at most a few times their size.
        prop_assert!(smooth.iter().all(|value| value.abs() < 1e3), "{smooth:?}");
        let sums: Vec<(usize, &[f64])> = (0..times.len()).map(|i| (i, &[1.0][..])).collect();
        prop_assert!(smoother.deviations(&sums).iter().all(|deviation| (0.0..1e3).contains(deviation)));
        let mut evidence = Evidence::new(unit);
        evidence.add(&times, &[], &data, 1);
        let fit = evidence.fit();
        prop_assert!(fit.deviation.is_finite() && fit.deviation < 1e3, "{fit:?}");
    }

    /// Pairs of nearly equal times are equivalent to one time with two measurements.
    #[test]
    fn a_pair_is_a_mean_of_two(
        steps in prop::collection::vec(0.3..2.0_f64, 6..16),
        at in 1..5_usize,
        gap in -16.0..-4.0_f64,
        exponent in -4.0..4.0_f64,
        seed in 0..u64::MAX,
    ) {
        let (times, ratio) = (times_of(&steps), 10f64.powf(exponent));
        let data = noise(times.len() + 1, seed);
        let (mut pair, mut both) = (times.clone(), data.clone());
        pair.insert(at + 1, (times[at] + 10f64.powf(gap)).max(times[at].next_up()));
        Smoother::new(&pair, &[], 1.0, ratio).smooth(&mut both, 1);
        let mut one = data.clone();
        one[at] = 0.5 * (data[at] + data[at + 1]);
        one.remove(at + 1);
        let mut counts = vec![1; times.len()];
        counts[at] = 2;
        Smoother::new(&times, &counts, 1.0, ratio).smooth(&mut one, 1);
        both.remove(at + 1);
        for (both, one) in both.iter().zip(&one) {
            // The curve changes by the gap times its slope, which is some units per unit of time.
            prop_assert!((both - one).abs() < 30.0 * 10f64.powf(gap) + 1e-8, "{both} {one}");
        }
    }
}

#[test]
fn times_that_nearly_coincide_are_no_trouble() {
    for gap in [1e-6, 1e-12, 1e-100] {
        let times = [0.0, gap, 1.0, 2.0, 2.5, 3.0, 4.0];
        let mut smooth = noise(7, 9);
        Smoother::new(&times, &[], 1.0, 0.1).smooth(&mut smooth, 1);
        assert!(smooth.iter().all(|value| value.is_finite()), "{gap}: {smooth:?}");
        // Two measurements of the same value: one curve passes between them.
        assert!((smooth[0] - smooth[1]).abs() < 1e-4, "{gap}: {smooth:?}");
    }
}

/// The deviation of the smoothed values from the truth agrees with the smoother's, for truths drawn from the prior.
#[test]
fn deviations_are_honest() {
    let times: Vec<f64> = (0..30).map(|i| f64::from(i) + 0.3 * (f64::from(i) * 2.1).sin()).collect();
    let (ratio, draws) = (0.02, 400);
    let smoother = Smoother::new(&times, &[], 1.0, ratio);
    let mut squares = vec![0.0; times.len()];
    for draw in 0..draws {
        let mut random = Philox::new(7, draw);
        let truth = wiener(&times, ratio, &mut random);
        let mut smooth: Vec<f64> = truth.iter().map(|truth| truth + random.normal()).collect();
        smoother.smooth(&mut smooth, 1);
        squares.iter_mut().zip(smooth.iter().zip(&truth)).for_each(|(sum, (a, b))| *sum += (a - b).powi(2));
    }
    for i in [0, 1, 7, 15, 28, 29] {
        let seen = (squares[i] / draws as f64).sqrt();
        // The standard error of a deviation of 400 draws is 1/sqrt(800), 3.5 %; the bound is four times that.
        assert!((seen / smoother.deviations(&[(i, &[1.0])])[0] - 1.0).abs() < 0.14, "{i}: {seen}");
    }
}

/// A sample of the prior: its third derivative is white noise, integrated in small steps.
fn wiener(times: &[f64], intensity: f64, random: &mut Philox) -> Vec<f64> {
    let mut state = [random.normal(), random.normal(), 0.1 * random.normal()];
    let mut values = vec![state[0]];
    for pair in times.windows(2) {
        let step = (pair[1] - pair[0]) / 50.0;
        for _ in 0..50 {
            let [value, slope, bend] = state;
            let kick = (intensity * step).sqrt() * random.normal();
            state = [value + step * slope + 0.5 * step * step * bend, slope + step * bend, bend + kick];
        }
        values.push(state[0]);
    }
    values
}

/// The noise of samples from the prior is estimated to the expected accuracy for any roughness.
#[test]
fn noise_of_curves_from_the_prior_is_found() {
    let times: Vec<f64> = (0..60).map(|i| f64::from(i) + 0.4 * (f64::from(i) * 2.1).sin()).collect();
    for (ratio, deviation) in [(0.001, 0.3), (0.05, 2.0), (1.0, 0.02)] {
        let mut evidence = Evidence::new(1.0);
        for draw in 0..40 {
            let mut random = Philox::new(5, draw);
            let truth = wiener(&times, ratio * deviation * deviation, &mut random);
            let seen: Vec<f64> = truth.iter().map(|truth| truth + deviation * random.normal()).collect();
            evidence.add(&times, &[], &seen, 1);
        }
        let fit = evidence.fit();
        // 2400 values determine a deviation to about 2 %, and the ratio's exponent to some tenths.
        assert!((fit.deviation / deviation - 1.0).abs() < 0.08, "{fit:?}");
        assert!((fit.ratio / ratio).log10().abs() < 0.3, "{fit:?}");
        let known = evidence.fit_prior(deviation);
        assert!((known.ratio / ratio).log10().abs() < 0.3 && known.deviation == deviation, "{known:?}");
    }
}

#[test]
fn smooth_curves_have_no_noise() {
    let mut evidence = Evidence::new(0.1);
    for phase in 0..10 {
        let times: Vec<f64> =
            (0..80).map(|i| 0.1 * (f64::from(i) + 0.3 * f64::from(i * 3 + phase).sin())).collect();
        let series: Vec<f64> = times.iter().map(|t| (t + f64::from(phase)).sin()).collect();
        evidence.add(&times, &[], &series, 1);
    }
    assert_eq!(evidence.fit(), NoiseFit::NONE);
    assert_eq!(evidence.fit_prior(0.0), NoiseFit::NONE);
    assert_eq!(Evidence::new(1.0).fit(), NoiseFit::NONE);
    let mut constant = Evidence::new(1.0);
    constant.add(&[0.0, 1.0, 2.0, 3.0, 4.0], &[], &[2.0; 5], 1);
    assert_eq!(constant.fit(), NoiseFit::NONE);
}
