//! The neural ODE, the paper's baseline: the network is integrated from each true snapshot to the next ones. Gradients of the mismatch are
//! propagated back through the solver's steps. With trained initial weights this is fine-tuning through the solver.

use std::sync::Arc;

use cfo_engine::{Graph, Node, WindowTimes};
use cfo_numerics::ode::Tableau;

use super::{Batch, Draw, FlowMatching, Motion, Objective, ObjectiveConfig, Point};
use crate::error::{CfoError, Result};
use crate::model::Model;
use crate::model::{StepStart, append_end};
use crate::recipe::{Recipe, ThroughSolver};

/// The neural ODE: the network is integrated by a solver, and the loss compares the result with the next snapshots.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct NeuralOde {
    /// The solver.
    pub through: ThroughSolver,
    /// The flow matching with the same unit of velocity. Both objectives can therefore use the same weights.
    pub flow: FlowMatching,
}

impl NeuralOde {
    pub(super) const NAME: &'static str = "neural-ode";

    /// Appends the equal steps of a window and returns them.
    pub(crate) fn steps(&self, graph: &mut Graph, model: &Model, batch: &Batch) -> Result<Vec<FixedStep>> {
        let window = windows(batch)?;
        let (count, substeps) = (graph.shape(batch.state).axes()[0], self.through.steps());
        let (mut steps, mut state) = (Vec::new(), batch.state);
        for interval in 0..self.through.window {
            let f = graph.formula();
            let row = |of: Node| f.var(of).slice(0, interval, 1).reshape([count]);
            let time = row(window.times).node()?;
            let length = (row(window.lengths) / substeps as f64).node()?;
            for substep in 0..substeps {
                let time = (time + graph.var(length) * substep as f64).node()?;
                let step =
                    FixedStep::new(graph, model, &self.through.tableau(), (batch.at(time, state), length))?;
                state = step.end;
                steps.push(step);
            }
        }
        Ok(steps)
    }

    /// Appends the mismatch after an interval, divided by the number of intervals.
    pub(crate) fn share(
        &self,
        graph: &mut Graph,
        model: &Model,
        batch: &Batch,
        (interval, found): (usize, Node),
    ) -> Result<Node> {
        let wanted = batch.snapshot(graph, interval + 1)?;
        let mismatch = model.mismatch(graph, [found, wanted])?;
        Ok(graph.scale(mismatch, 1.0 / self.through.window as f64)?)
    }
}

/// One equal step in a graph.
#[derive(Clone, Copy)]
pub(crate) struct FixedStep {
    /// Index of the step's first operation.
    pub(crate) first: usize,
    pub(crate) start: Point,
    pub(crate) length: Node,
    pub(crate) end: Node,
}

impl FixedStep {
    pub(crate) fn new(
        graph: &mut Graph,
        model: &Model,
        tableau: &Tableau,
        (start, length): (Point, Node),
    ) -> Result<Self> {
        let first = graph.entries().len();
        Ok(Self { first, start, length, end: advanced(graph, model, tableau, (start, length))? })
    }
}

/// Appends a step of lengths `[batch]` from a point, without an error estimate, and returns the state at its end.
pub(crate) fn advanced(
    graph: &mut Graph,
    model: &Model,
    tableau: &Tableau,
    (point, length): (Point, Node),
) -> Result<Node> {
    let start = StepStart { state: point.state, time: point.context.time, length };
    append_end(graph, tableau, start, |graph, time, state| model.moved(graph, &point.at(time, state)))
}

fn windows(batch: &Batch) -> Result<WindowTimes> {
    batch.window.ok_or_else(|| {
        CfoError::bad_data(
            "the batch has no windows, which `neural-ode` needs",
            "draw the batch as `Objective::draw` defines it",
        )
    })
}

impl Objective for NeuralOde {
    fn name(&self) -> &str {
        Self::NAME
    }

    fn draw(&self) -> Draw {
        Draw::Window { intervals: self.through.window, path: self.flow.path }
    }

    fn motion(&self) -> Arc<dyn Motion> {
        self.flow.motion()
    }

    /// Appends the mean mismatch after each interval, integrated in equal steps. Training computes the gradients interval by interval, or
    /// integrates in adaptive steps.
    fn loss(&self, graph: &mut Graph, model: &Model, batch: &Batch) -> Result<Node> {
        let steps = self.steps(graph, model, batch)?;
        let mut loss = graph.scalar(0.0);
        for (interval, steps) in steps.chunks(self.through.steps()).enumerate() {
            let share = self.share(graph, model, batch, (interval, steps[steps.len() - 1].end))?;
            loss = graph.add(loss, share)?;
        }
        Ok(loss)
    }

    fn describe(&self, recipe: &mut Recipe) -> bool {
        let known = self.flow.describe(recipe);
        recipe.objective = ObjectiveConfig::NeuralOde(self.through);
        known
    }
}

#[cfg(test)]
mod tests {
    use cfo_data::{Description, FieldShape, InputNames, Trajectory};
    use cfo_device::Device;
    use cfo_engine::{Memory, Precision, Program};
    use cfo_numerics::Philox;

    use super::*;
    use crate::trajectories::Trajectories;

    /// Checks that the mismatch of two snapshots is independent of the latent space.
    #[test]
    fn errors_count_in_wavelet_coefficients_as_in_the_data() {
        let (points, channels) = (16, 2);
        let mut random = Philox::new(3, 0);
        let mut field = |frame: usize| -> Vec<f32> {
            let size = points * channels;
            // Large and smooth, with small details, so that coefficients have very different sizes.
            (0..size).map(|i| ((i / 4 + frame) as f64 + 0.05 * random.normal()) as f32).collect()
        };
        let one = |_| {
            let values: Vec<f32> = (0..5).flat_map(&mut field).collect();
            Trajectory::new((0..5).map(f64::from).collect(), values, vec![]).unwrap()
        };
        let trajectories: Vec<Trajectory> = (0..10).map(one).collect();
        let size = points * channels;
        let [found, wanted] = [0, 3].map(|frame| trajectories[0].values[frame * size..][..size].to_vec());
        let description = Description {
            system: String::new(),
            shape: FieldShape::line(points, channels),
            periodic: vec![true],
            domain: vec![[0.0, 1.0]],
            channel_names: vec![],
            channel_units: vec![],
            inputs: InputNames::default(),
        };
        let set = Trajectories::new(description, trajectories).unwrap();
        let mismatch = |keys: &[&str]| {
            let mut all = vec!["operator.kind=mlp".to_owned(), "objective.kind=neural-ode".into()];
            all.extend(keys.iter().map(|key| (*key).to_owned()));
            let model = Model::new(&Recipe::parse("", &all).unwrap(), &set).unwrap();
            let mut graph = Graph::new();
            let shape = model.batch_shape(1);
            let names = ["found", "wanted"];
            let nodes = names.map(|name| graph.input(name, shape).unwrap());
            let loss = model.mismatch(&mut graph, nodes).unwrap();
            let mut memory = Memory::new(Device::Cpu, Precision::F32).unwrap();
            for (name, values) in names.into_iter().zip([&found, &wanted]) {
                memory.insert_real(name, shape, &model.encode(values)).unwrap();
            }
            let mut program = Program::compile(&graph, &[loss], &memory).unwrap();
            program.run(&mut memory).unwrap();
            program.scalar(0).unwrap()
        };
        let plain = mismatch(&[]);
        assert!(plain > 1.0, "three intervals change more than one: {plain}");
        for keys in
            [["latent.wavelet=haar", "latent.levels=1"], ["latent.wavelet=daubechies4", "latent.levels=2"]]
        {
            let found = mismatch(&keys);
            // Sums of a few dozen squares in single precision.
            assert!((found / plain - 1.0).abs() < 1e-4, "{keys:?}: {found} for {plain}");
        }
    }
}
