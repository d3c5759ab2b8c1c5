//! The paper's table of endpoint errors on the Lorenz system: the velocity of a linear path is first-order at the
//! knots, that of a quintic path second-order.

use cfo_numerics::ode::{Controller, Steps, TSIT5, VectorField, integrate};
use cfo_numerics::{Path, Philox, Segment, Spline};

mod problems;
use problems::Lorenz;

const STEP: f64 = 0.005;
const FRAMES: usize = 1001;
const TRAJECTORIES: u64 = 40;

/// Trajectories of 5 time units from the cube `[-5, 5]^3`, one snapshot every 0.005.
fn trajectories() -> Vec<Vec<[f64; 3]>> {
    let times: Vec<f64> = (0..FRAMES).map(|i| i as f64 * STEP).collect();
    let steps = Steps::Adaptive(Controller::new(1e-11, 1e-11));
    (0..TRAJECTORIES)
        .map(|index| {
            let mut random = Philox::new(7, index);
            let initial: [f64; 3] = std::array::from_fn(|_| 10.0 * random.uniform() - 5.0);
            let states = integrate(&Lorenz::default(), &TSIT5, 0.0, &initial, &times, steps)
                .expect("Lorenz is tame")
                .states;
            states.chunks_exact(3).map(|u| [u[0], u[1], u[2]]).collect()
        })
        .collect()
}

fn norm(u: [f64; 3]) -> f64 {
    u.iter().map(|x| x * x).sum::<f64>().sqrt()
}

/// Mean relative velocity error at coordinate `tau` of interior segments, with every `stride`-th snapshot as knot.
fn endpoint_error(trajectories: &[Vec<[f64; 3]>], path: Path, stride: usize, tau: f64) -> f64 {
    let times: Vec<f64> = (0..FRAMES).step_by(stride).map(|i| i as f64 * STEP).collect();
    let (mut sum, mut count) = (0.0, 0);
    for snapshots in trajectories {
        for index in 1..times.len() - 2 {
            let length = times[index + 1] - times[index];
            let weights = path.weights_in(&times, Segment { index, tau, length });
            let mut error = [0.0; 3];
            Lorenz::default().velocity(0.0, &snapshots[(index + tau as usize) * stride], &mut error);
            let size = norm(error);
            for (knot, weight) in weights.range().zip(weights.velocity()) {
                for (error, u) in error.iter_mut().zip(snapshots[knot * stride]) {
                    *error -= weight * u;
                }
            }
            sum += norm(error) / size;
            count += 1;
        }
    }
    sum / f64::from(count)
}

#[test]
fn endpoint_velocity_is_first_order_for_lines_and_second_for_quintics() {
    let trajectories = trajectories();
    // The paper's numbers depend on the segments chosen, which it does not state; the rate and the magnitude do not.
    for (spline, order, published) in [
        (Spline::Linear, 1.0, [2.49e-2, 4.97e-2, 9.92e-2]),
        (Spline::Quintic, 2.0, [5.33e-4, 2.16e-3, 8.63e-3]),
    ] {
        for tau in [0.0, 1.0] {
            let path = Path { spline, stencil: 3 };
            let errors = [1, 2, 4].map(|stride| endpoint_error(&trajectories, path, stride, tau));
            for (pair, name) in errors.windows(2).zip(["from 1 to 2", "from 2 to 4"]) {
                let found = (pair[1] / pair[0]).log2();
                assert!((found - order).abs() < 0.05, "{spline} at {tau}, {name}: order {found}");
            }
            for (found, published) in errors.into_iter().zip(published) {
                assert!((found / published - 1.0).abs() < 0.25, "{spline} at {tau}: {found} for {published}");
            }
        }
    }
}
