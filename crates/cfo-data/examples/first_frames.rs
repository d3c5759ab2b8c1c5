//! Prints the first frames of the simulators for the references of `tests/fixtures/make_simulator_references.py`, as
//! lines of a case, a name and numbers.

use cfo_data::simulate::{
    Burgers, Equation, GrayScott, KuramotoSivashinsky, Lorenz, ShallowWater, SimulationError, Variant,
};

fn main() -> Result<(), SimulationError> {
    let varied = ShallowWater { variant: Variant::Varied, grid: 16, frames: 21, horizon: 1.0 };
    let cube = GrayScott { grid: 16, frames: 3, horizon: 40.0, ..GrayScott::default() };
    let cases: [(&str, &dyn Equation, u64); 8] = [
        ("lorenz-0", &Lorenz::default(), 0),
        ("lorenz-1", &Lorenz::default(), 1),
        ("lorenz-2", &Lorenz::default(), 2),
        ("burgers-0", &Burgers::default(), 0),
        ("burgers-1", &Burgers::default(), 1),
        ("kuramoto-sivashinsky-0", &KuramotoSivashinsky::default(), 0),
        ("shallow-water-varied-0", &varied, 0),
        ("gray-scott-0", &cube, 0),
    ];
    for (case, equation, index) in cases {
        let trajectory = equation.trajectory(0, index)?;
        let print = |name: &str, numbers: Vec<String>| println!("{case} {name} {}", numbers.join(" "));
        let points = equation.description().shape.len();
        print("start", trajectory.values[..points].iter().map(ToString::to_string).collect());
        print("times", trajectory.times.iter().map(ToString::to_string).collect());
        print("parameters", trajectory.inputs.parameters.iter().map(ToString::to_string).collect());
    }
    Ok(())
}
