use super::*;
use proptest::prelude::*;

/// Every spline with every stencil that suits it.
fn paths() -> Vec<Path> {
    (0..=MAX_SMOOTHNESS)
        .flat_map(|s| (1..=Path::MAX_STENCIL).map(move |w| Path::new(Spline::with_smoothness(s), w)))
        .filter_map(Result::ok)
        .collect()
}

fn apply(weights: &[f64], first: usize, snapshots: &[f64]) -> (f64, f64) {
    weights
        .iter()
        .zip(&snapshots[first..])
        .fold((0.0, 0.0), |(sum, size), (w, u)| (sum + w * u, size + (w * u).abs()))
}

/// An irregular grid, possibly with nearly coincident knots, with random origin and scale.
fn grid(least: usize) -> impl Strategy<Value = Vec<f64>> {
    let gap = prop_oneof![6 => 0.3..1.0_f64, 1 => 1e-3..1e-2_f64];
    (prop::collection::vec(gap, least - 1..14), -2.0..2.0_f64, -8..9_i32).prop_map(
        |(gaps, start, exponent)| {
            let scale = 10.0_f64.powi(exponent);
            let mut times = vec![start * scale];
            for gap in gaps {
                times.push(times[times.len() - 1] + gap * scale);
            }
            times
        },
    )
}

#[test]
fn names_go_there_and_back() {
    for smoothness in 0..=MAX_SMOOTHNESS {
        let spline = Spline::with_smoothness(smoothness);
        assert_eq!(spline.to_string().parse(), Ok(spline));
        assert_eq!(spline.degree(), 2 * smoothness + 1);
    }
    assert_eq!(Spline::Hermite { smoothness: 2 }.to_string(), "quintic");
    for bad in ["", "Quintic", "hermite", "hermite-4", "hermite-19", "hermite--1", "spline"] {
        assert!(bad.parse::<Spline>().unwrap_err().to_string().contains("unknown spline"), "{bad}");
    }
}

#[test]
fn unsuitable_stencils_are_refused() {
    let narrow = Path::new(Spline::Quintic, 2).unwrap_err();
    assert_eq!(narrow.to_string(), "a quintic spline needs stencils of 3 points or more; found 2");
    assert_eq!(narrow.hint().unwrap(), "use stencils of 3 points or more");
    assert!(Path::new(Spline::Cubic, 0).is_err() && Path::new(Spline::Linear, 0).is_ok());
    assert_eq!(Path::new(Spline::Linear, 10), Err(PathError::StencilTooWide(10)));
    let smooth = Spline::Hermite { smoothness: 9 };
    assert_eq!(Path::new(smooth, 9), Err(PathError::TooSmooth(9)));
}

#[test]
fn short_trajectories_fall_back_and_say_so() {
    let quintic = Path::default();
    assert_eq!(quintic.fallback(3), None);
    let short = quintic.fallback(2).unwrap();
    assert_eq!(short.used.spline, Spline::Linear);
    assert_eq!(
        short.to_string(),
        "2 snapshots cannot support a quintic path with 3-point stencils; using a linear path"
    );
    let wide = Path::new(Spline::Hermite { smoothness: 4 }, 5).unwrap().fallback(3).unwrap();
    assert_eq!(
        wide.to_string(),
        "3 snapshots cannot support a hermite-9 path with 5-point stencils; using a quintic path with 3-point stencils"
    );
    assert_eq!(Path { spline: Spline::Linear, stencil: 7 }.fallback(2), None);
    // Public fields can have invalid values, which are clamped.
    for path in [
        Path { spline: Spline::Quintic, stencil: 0 },
        Path { spline: Spline::Hermite { smoothness: usize::MAX }, stencil: usize::MAX },
    ] {
        for snapshots in 0..20 {
            let used = path.supported(snapshots);
            assert_eq!(used.supported(snapshots), used);
        }
        let times: Vec<f64> = (0..20).map(f64::from).collect();
        assert!(path.weights(&times, 7.3).value().iter().all(|w| w.is_finite()));
    }
    let lone = quintic.weights(&[4.0], 9.0);
    assert_eq!((lone.value(), lone.velocity(), lone.range()), (&[1.0][..], &[0.0][..], 0..1));
}

#[test]
fn supports_are_the_union_of_two_stencils() {
    let times: Vec<f64> = (0..10).map(f64::from).collect();
    assert_eq!(Path::default().weights(&times, 4.5).range(), 3..7);
    assert_eq!(Path::default().weights(&times, 0.5).range(), 0..3);
    assert_eq!(Path::default().weights(&times, 8.5).range(), 7..10);
    assert_eq!(Path { spline: Spline::Linear, stencil: 3 }.weights(&times, 4.5).range(), 4..6);
    assert_eq!(Path { spline: Spline::Quintic, stencil: 5 }.weights(&times, 4.5).range(), 2..8);
}

proptest! {
    #[test]
    fn passes_through_every_knot_exactly(times in grid(2)) {
        for path in paths() {
            for (knot, &t) in times.iter().enumerate() {
                let weights = path.weights(&times, t);
                for (i, &w) in weights.range().zip(weights.value()) {
                    prop_assert_eq!(w, if i == knot { 1.0 } else { 0.0 }, "{} knot {}", path, knot);
                }
            }
        }
    }

    /// The velocity at a knot is the finite-difference estimate, from both sides.
    #[test]
    fn velocity_at_knots_is_the_stencil(times in grid(2)) {
        for path in paths().into_iter().map(|path| path.supported(times.len())) {
            if path.spline == Spline::Linear {
                continue;
            }
            for knot in 0..times.len() {
                let window = stencil::window(knot, path.stencil, times.len());
                let mut expected = vec![0.0; window.len()];
                stencil::weights(&times[window.clone()], times[knot], 1, &mut expected);
                for index in [knot.wrapping_sub(1), knot] {
                    if index >= times.len() - 1 {
                        continue;
                    }
                    let length = times[index + 1] - times[index];
                    let tau = (knot - index) as f64;
                    let weights = path.weights_in(&times, Segment { index, tau, length });
                    for (i, &w) in weights.range().zip(weights.velocity()) {
                        let expected = if window.contains(&i) { expected[i - window.start] } else { 0.0 };
                        let size = 1.0 / length + expected.abs();
                        prop_assert!((w - expected).abs() <= 1e-11 * size, "{path} knot {knot}: {w} {expected}");
                    }
                }
            }
        }
    }

    /// The closed forms of three-point stencils against Fornberg's recurrence.
    #[test]
    fn three_point_forms_are_the_recurrence(times in grid(4), pick in 0..13_usize, tau in 0.0..1.0_f64) {
        let index = 1 + pick % (times.len() - 3);
        let segment = Segment { index, tau, length: times[index + 1] - times[index] };
        for smoothness in [1, 2] {
            let closed = interior_three_points(smoothness, &times, segment);
            let general = general_weights(smoothness, 3, &times, segment);
            prop_assert_eq!(closed.range(), general.range());
            for (closed, general) in [(closed.value(), general.value()), (closed.velocity(), general.velocity())] {
                let size = general.iter().fold(0.0, |size: f64, w| size.max(w.abs()));
                for (closed, general) in closed.iter().zip(general) {
                    // Two dozen rounded operations, none of which cancels.
                    prop_assert!((closed - general).abs() <= 1e-14 * size, "{closed} {general}");
                }
            }
        }
    }

    /// Weights sum to 1 and 0: constants stay constant, with three-point stencils also slightly outside the grid. The
    /// weights of wider stencils are so large there that cancellation dominates. Round-off is relative to the weights'
    /// size.
    #[test]
    fn constants_are_reproduced(times in grid(2), pick in 0..13_usize, tau in -0.5..1.5_f64) {
        let index = pick % (times.len() - 1);
        let length = times[index + 1] - times[index];
        for path in paths() {
            let tau = if path.stencil > 3 { tau.clamp(0.0, 1.0) } else { tau };
            let weights = path.weights_in(&times, Segment { index, tau, length });
            let ones = vec![1.0; times.len()];
            let (value, size) = apply(weights.value(), weights.first, &ones);
            prop_assert!((value - 1.0).abs() <= 1e-12 * size.max(1.0), "{path}");
            let (velocity, size) = apply(weights.velocity(), weights.first, &ones);
            prop_assert!(velocity.abs() <= 1e-12 * size, "{path}");
        }
    }

    /// A path reproduces polynomials on any grid. Their degree is limited by what the stencil differentiates exactly (w
    /// - 1) and by the segments (2s + 1).
    #[test]
    fn polynomials_are_reproduced(times in grid(3), at in 0.0..1.0_f64) {
        let (start, span) = (times[0], times[times.len() - 1] - times[0]);
        let t = start + at * span;
        for path in paths() {
            let used = path.supported(times.len());
            let exact = if used.spline == Spline::Linear { 1 } else { (used.stencil - 1).min(used.spline.degree()) };
            let weights = path.weights(&times, t);
            for power in 1..=exact as i32 {
                let polynomial = |t: f64| ((t - start) / span).powi(power);
                let snapshots: Vec<f64> = times.iter().map(|&t| polynomial(t)).collect();
                let (value, size) = apply(weights.value(), weights.first, &snapshots);
                prop_assert!((value - polynomial(t)).abs() <= 1e-10 * size.max(1.0), "{path} power {power}");
                let expected = f64::from(power) * ((t - start) / span).powi(power - 1) / span;
                let (velocity, size) = apply(weights.velocity(), weights.first, &snapshots);
                prop_assert!((velocity - expected).abs() <= 1e-10 * size.max(1.0 / span), "{path} power {power}");
            }
        }
    }

    /// The velocity weights are the derivatives of the value weights, by a central difference inside a segment.
    #[test]
    fn velocity_is_the_derivative_of_value(times in grid(2), pick in 0..13_usize, tau in 0.01..0.99_f64) {
        let index = pick % (times.len() - 1);
        let length = times[index + 1] - times[index];
        for path in paths() {
            let at = |tau: f64| path.weights_in(&times, Segment { index, tau, length });
            let step = 1e-4;
            let (here, before, after) = (at(tau), at(tau - step), at(tau + step));
            // Markov's inequality: |third derivative| <= (2s+1)^6 * size, so the error of the difference is step^2/6
            // times that. Size is the largest weight anywhere on the segment.
            let degree = path.spline.degree() as f64;
            let size = (0..=16).map(|n| at(f64::from(n) / 16.0)).fold(1.0, |size: f64, weights| {
                weights.value().iter().fold(size, |size, w| size.max(w.abs()))
            });
            for i in 0..here.count {
                let difference = (after.value[i] - before.value[i]) / (2.0 * step);
                let error = (difference - here.velocity[i] * length).abs();
                let bound = size * (step * step * degree.powi(6) + 1e-8);
                prop_assert!(error <= bound, "{path} weight {i}: {error} above {bound}");
            }
        }
    }

    /// Gaps range from the spacing of floating-point numbers to 1e12 times as much.
    #[test]
    fn weights_are_finite_on_any_grid(times in crate::smoother::tests::any_grid(), pick in 0..100_usize, tau in 0.0..1.0_f64) {
        // Next to a time that is exactly 0, gaps may be so short that the velocity overflows.
        let span = times[times.len() - 1] - times[0];
        prop_assume!(times.windows(2).all(|pair| pair[1] - pair[0] > 1e-20 * span));
        let index = pick % (times.len() - 1);
        let length = times[index + 1] - times[index];
        for path in paths() {
            let weights = path.weights_in(&times, Segment { index, tau, length });
            let all = weights.value().iter().chain(weights.velocity());
            prop_assert!(all.clone().all(|weight| weight.is_finite()), "{path}: {weights:?}");
        }
    }

    /// Shifting and scaling time shifts and scales the path.
    #[test]
    fn weights_do_not_depend_on_the_origin_and_unit_of_time(gaps in prop::collection::vec(1..9_i32, 2..9), tau in 0.0..1.0_f64) {
        let times: Vec<f64> = std::iter::once(0.0)
            .chain(gaps.iter().scan(0, |sum, gap| { *sum += gap; Some(f64::from(*sum)) }))
            .collect();
        // Powers of two: the moved grid is exact.
        let moved: Vec<f64> = times.iter().map(|t| (t - 64.0) * 0.125).collect();
        for path in paths() {
            for index in 0..times.len() - 1 {
                let at = |times: &[f64]| path.weights_in(times, Segment { index, tau, length: times[index + 1] - times[index] });
                let (plain, moved) = (at(&times), at(&moved));
                prop_assert_eq!(plain.value, moved.value);
                prop_assert_eq!(plain.velocity.map(|w| w * 8.0), moved.velocity);
            }
        }
    }
}
