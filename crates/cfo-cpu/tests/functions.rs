//! Functions of one number against `f64`: a regular sample of inputs and every boundary, for each level of vector
//! instructions. `examples/every_float` checks all 2^32 inputs.

#[path = "float_functions.rs"]
mod functions;

use cfo_cpu::Level;
use functions::Worst;

/// Numbers where a function or its code changes, with both neighbours of each.
fn boundaries() -> Vec<f32> {
    let around = [
        0.0,
        f32::from_bits(1),
        f32::MIN_POSITIVE,
        f32::EPSILON,
        // End of the polynomial of tanh.
        0.625,
        1.0,
        // First argument on the left at which GELU's sigmoid is 0, and the arguments at which GELU and SiLU are
        // clamped.
        10.060_966,
        40.0,
        800.0,
        // Arguments at which exp is first infinite or no longer normal, and at which the exact value is 0.
        88.722_84,
        87.336_54,
        87.3,
        103.972_08,
        // Squares and cubes that overflow.
        1.844_674_4e19,
        6.981_46e12,
        f32::MAX,
        f32::INFINITY,
    ];
    let near = |x: f32| [x.next_down(), x, x.next_up()].into_iter();
    let mut all: Vec<f32> = around.iter().flat_map(|&x| near(x).chain(near(-x))).collect();
    // Steps of exp's range reduction, for arguments of both signs.
    all.extend((-300..=300).flat_map(|half| near(half as f32 * std::f32::consts::LN_2 / 2.0)));
    // Quiet and signalling NaN.
    all.extend([f32::NAN, -f32::NAN, f32::from_bits(0x7f80_0001), f32::from_bits(0xffff_ffff)]);
    all
}

#[test]
fn functions_have_their_values_on_every_level() {
    let levels: Vec<Level> = Level::available().collect();
    let mut inputs = boundaries();
    // A prime, so that all low bits occur.
    inputs.extend((0..=u32::MAX).step_by(10_007).map(f32::from_bits));
    for function in functions::all() {
        let mut found = vec![Worst::default(); levels.len()];
        function.worst(&inputs, &levels, &mut found);
        for (level, worst) in levels.iter().zip(found) {
            let (name, bound, Worst { error, input, found }) = (function.name, function.bound, worst);
            assert!(
                error <= bound,
                "{name}({input:e}) with {level:?} is {found:e}: error {error}, bound {bound}"
            );
        }
    }
}

#[test]
fn limits_are_exact() {
    let cases: [(&str, [f32; 2]); 10] = [
        ("exp", [0.0, f32::INFINITY]),
        ("tanh", [-1.0, 1.0]),
        ("sigmoid", [0.0, 1.0]),
        ("silu", [0.0, f32::INFINITY]),
        ("gelu", [0.0, f32::INFINITY]),
        ("slope of silu", [0.0, 1.0]),
        ("slope of gelu", [0.0, 1.0]),
        ("slope of tanh", [0.0, 0.0]),
        ("slope of sigmoid", [0.0, 0.0]),
        ("slope of ln", [0.0, 0.0]),
    ];
    for function in functions::all() {
        for level in Level::available() {
            let values = function.values(level, &[f32::NEG_INFINITY, f32::INFINITY, f32::NAN]);
            assert!(values[2].is_nan(), "{} of NaN is {}", function.name, values[2]);
            if let Some((name, limits)) = cases.iter().find(|case| case.0 == function.name) {
                assert_eq!(values[..2], limits[..], "{name} with {level:?}");
            }
        }
    }
}
