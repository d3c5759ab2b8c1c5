//! One Runge-Kutta step of a batch as nodes of a graph. Rollouts, neural-ODE training and fine-tuning append it.
//! [`cfo_numerics::ode::Stepper`] makes steps on the host.

use cfo_engine::{Formula, Graph, IntoVar, Node, Var};
use cfo_numerics::ode::Tableau;

use crate::error::Result;

/// The start and the length of a step.
#[derive(Clone, Copy)]
pub(crate) struct StepStart {
    /// `[batch, rows, width, channels]`.
    pub(crate) state: Node,
    /// `[batch]`.
    pub(crate) time: Node,
    /// `[batch]`; negative backward in time, 0 for a trajectory without a step.
    pub(crate) length: Node,
}

/// The nodes of an appended step.
pub(crate) struct AppendedStep {
    /// The state at the end of the step.
    pub(crate) end: Node,
    /// The slope of each stage.
    pub(crate) slopes: Vec<Node>,
    state: Node,
    /// The length as `[batch, 1, 1, 1]`.
    length: Node,
}

/// Appends a step with all its stages. `first_slope` is the slope at the start if it is known. `velocity` appends the field at a time and a
/// state.
pub(crate) fn append_step(
    graph: &mut Graph,
    tableau: &Tableau,
    start: StepStart,
    first_slope: Option<Node>,
    velocity: impl FnMut(&mut Graph, Node, Node) -> Result<Node>,
) -> Result<AppendedStep> {
    append_stages(graph, tableau, start, first_slope, tableau.stages(), velocity)
}

/// Appends a step without the stages that only the error estimate needs; returns the state at its end.
pub(crate) fn append_end(
    graph: &mut Graph,
    tableau: &Tableau,
    start: StepStart,
    velocity: impl FnMut(&mut Graph, Node, Node) -> Result<Node>,
) -> Result<Node> {
    let stages = tableau.b.iter().rposition(|weight| *weight != 0.0).map_or(0, |last| last + 1);
    Ok(append_stages(graph, tableau, start, None, stages, velocity)?.end)
}

fn append_stages(
    graph: &mut Graph,
    tableau: &Tableau,
    start: StepStart,
    first_slope: Option<Node>,
    stages: usize,
    mut velocity: impl FnMut(&mut Graph, Node, Node) -> Result<Node>,
) -> Result<AppendedStep> {
    let StepStart { state, time, length: step } = start;
    let batch = graph.shape(step).axes()[0];
    let length = graph.reshape(step, [batch, 1, 1, 1])?;
    let mut slopes: Vec<Node> = first_slope.into_iter().collect();
    for stage in slopes.len()..stages {
        let at = combine(graph.formula(), state, length, tableau.a[stage], &slopes).node()?;
        let when = match tableau.c[stage] {
            0.0 => time,
            c => (time + graph.var(step) * c).node()?,
        };
        slopes.push(velocity(graph, when, at)?);
    }
    let end = combine(graph.formula(), state, length, tableau.b, &slopes).node()?;
    Ok(AppendedStep { end, slopes, state, length })
}

impl AppendedStep {
    /// Appends the scaled error of each trajectory, `[batch]`, for a method that estimates it.
    pub(crate) fn error(&self, graph: &mut Graph, tableau: &Tableau, tolerance: &str) -> Result<Node> {
        // 0 times the state is added, so that a state that is not finite has an error that is not finite.
        let f = graph.formula();
        let error = combine(f, f.var(self.state) * 0.0, self.length, tableau.error, &self.slopes);
        Ok(scaled_error(f, tolerance, [self.state, self.end], error).node()?)
    }
}

/// Appends `state + length * sum(weights * slopes)`.
pub(crate) fn combine<'g>(
    f: Formula<'g>,
    state: impl IntoVar,
    length: Node,
    weights: &[f64],
    slopes: &[Node],
) -> Var<'g> {
    let state = state.var(f);
    let terms = weights.iter().zip(slopes).filter(|(weight, _)| **weight != 0.0);
    match terms.map(|(&weight, &slope)| f.var(slope) * weight).reduce(|sum, term| sum + term) {
        Some(sum) => state + length * sum,
        None => state,
    }
}

/// Appends the root mean square over each trajectory of `error / (atol + rtol max(|before|, |after|))`. The tensor `tolerance` holds
/// `rtol` and `atol`.
pub(crate) fn scaled_error<'g>(
    f: Formula<'g>,
    tolerance: &str,
    [before, after]: [Node; 2],
    error: impl IntoVar,
) -> Var<'g> {
    let tolerance = f.input(tolerance, [2]);
    let [rtol, atol] = [0, 1].map(|entry| tolerance.slice(0, entry, 1));
    let scale = f.var(before).abs().maximum(f.var(after).abs()) * rtol + atol;
    (error.var(f) / scale).square().mean(&[1, 2, 3]).sqrt()
}

#[cfg(test)]
mod tests {
    use cfo_device::Device;
    use cfo_engine::{Memory, Precision, Program};
    use cfo_numerics::ode::Stepper;
    use proptest::prelude::*;

    use super::*;

    const RATE: f64 = 0.7;

    /// Appends `f(t, u) = u (1 - u) - RATE t u`.
    fn appended_field(graph: &mut Graph, time: Node, state: Node) -> Result<Node> {
        let batch = graph.shape(state).axes()[0];
        let f = graph.formula();
        let growth = state - f.var(state).square();
        let decay = f.var(time).reshape([batch, 1, 1, 1]) * state * RATE;
        Ok((growth - decay).node()?)
    }

    /// Returns the end state and the scaled error of a step of two trajectories, computed by a graph in f64.
    fn by_graph(
        tableau: &Tableau,
        states: &[f64],
        start: [f64; 2],
        length: [f64; 2],
        tolerance: [f64; 2],
    ) -> [Vec<f64>; 3] {
        let points = states.len() / 2;
        let mut memory = Memory::new(Device::Cpu, Precision::F64).unwrap();
        let shapes = [
            ("state", vec![2, 1, points, 1]),
            ("time", vec![2]),
            ("length", vec![2]),
            ("tolerance", vec![2]),
        ];
        let mut graph = Graph::new();
        let nodes: Vec<Node> =
            shapes.iter().map(|(name, shape)| graph.input(name, shape.as_slice()).unwrap()).collect();
        for ((name, shape), values) in shapes.iter().zip([states, &start, &length, &tolerance]) {
            memory.insert_real(name, shape.as_slice(), &vec![0.0; values.len()]).unwrap();
            memory.write(name, cfo_engine::Data::F64(values)).unwrap();
        }
        let at = StepStart { state: nodes[0], time: nodes[1], length: nodes[2] };
        let step = append_step(&mut graph, tableau, at, None, appended_field).unwrap();
        let end = append_end(&mut graph, tableau, at, appended_field).unwrap();
        let mut outputs = vec![step.end, end];
        if tableau.estimates_error() {
            outputs.push(step.error(&mut graph, tableau, "tolerance").unwrap());
        }
        let mut program = Program::compile(&graph, &outputs, &memory).unwrap();
        program.run(&mut memory).unwrap();
        std::array::from_fn(|i| if i < outputs.len() { program.output_f64(i).unwrap() } else { vec![] })
    }

    proptest! {
        /// Checks that every method makes equal steps on the host and in a graph, forward and backward, with and without its error
        /// estimate.
        #[test]
        fn a_step_in_a_graph_is_a_step_on_the_host(
            // Solutions do not diverge from these states.
            states in prop::collection::vec(-1.0_f64..2.0, 6),
            start in prop::array::uniform2(-1.0_f64..1.0),
            length in prop::array::uniform2(-0.3_f64..0.3),
        ) {
            let (rtol, atol) = (1e-4, 1e-6);
            let field = |t: f64, u: &[f64], out: &mut [f64]| {
                for (out, u) in out.iter_mut().zip(u) {
                    *out = u * (1.0 - u) - RATE * t * u;
                }
            };
            for tableau in Tableau::ALL {
                let [end, short, error] = by_graph(&tableau, &states, start, length, [rtol, atol]);
                for i in 0..2 {
                    let mut stepper = Stepper::new(&tableau, start[i], &states[3 * i..3 * i + 3]);
                    stepper.attempt(&field, start[i] + length[i]);
                    for (j, expected) in stepper.next_state().iter().enumerate() {
                        // Sums of at most seven terms in another order.
                        for found in [&end, &short] {
                            let difference = (found[3 * i + j] - expected).abs();
                            prop_assert!(difference < 1e-13 * (1.0 + expected.abs()), "{}", tableau.name);
                        }
                    }
                    if tableau.estimates_error() {
                        let expected = stepper.error(rtol, atol);
                        // Estimates are differences of nearly equal numbers, here in units of 1e-6.
                        prop_assert!((error[i] - expected).abs() < 1e-8 * (1.0 + expected), "{}", tableau.name);
                    }
                }
            }
        }
    }
}
