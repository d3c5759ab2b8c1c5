//! The neural ODE, the paper's baseline: from each true snapshot the network is integrated to the next ones, and the mismatch goes
//! back through the solver's steps. The same on a warm start is fine-tuning through the solver.

use cfo_engine::{Graph, Node, WindowTimes};
use cfo_numerics::Path;
use cfo_numerics::ode::{Controller, TSIT5, Tableau};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Batch, Draw, FlowMatching, Integration, Objective, ObjectiveConfig, Point, Unit};
use crate::error::{CfoError, Result};
use crate::model::Model;
use crate::operator::at_most;
use crate::recipe::{Recipe, choice};
use crate::runge_kutta::{StepStart, append_end};

/// The solver through which a network is trained.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct ThroughSolver {
    /// Solver: `euler`, `heun`, `rk4`, `dopri5` or `tsit5`.
    #[serde(with = "choice")]
    #[schemars(schema_with = "choice::schema::<Tableau>")]
    pub solver: Tableau,
    /// Equal solver steps per interval between snapshots. With 0, solvers that estimate their error choose steps by the tolerances, and the others take one.
    pub substeps: usize,
    /// Relative tolerance of adaptive steps.
    pub rtol: f64,
    /// Absolute tolerance of adaptive steps, in normalised units.
    pub atol: f64,
    /// P, I and D coefficients of the step-size controller of adaptive steps.
    pub pid: [f64; 3],
    /// Number of intervals between snapshots in a window, which starts from a true snapshot. The loss compares the prediction with every later snapshot of the window.
    pub window: usize,
    /// Whether gradients go back through the whole window. Otherwise they stop at the start of each interval.
    pub through_time: bool,
    /// Number of states that are stored for the backward pass of adaptive steps; the others are recomputed.
    pub checkpoints: usize,
    /// Whether to recompute equal steps in the backward pass instead of storing them: this needs memory for one step instead of all.
    pub recompute: bool,
}

impl Default for ThroughSolver {
    /// The paper's baseline.
    fn default() -> Self {
        Self {
            solver: TSIT5,
            substeps: 0,
            rtol: 1e-4,
            atol: 1e-6,
            pid: [0.0, 1.0, 0.0],
            window: 1,
            through_time: true,
            checkpoints: 64,
            recompute: true,
        }
    }
}

/// Attempted steps of a window before it is given up, as in diffrax.
const MOST_ATTEMPTS: u64 = 4096;
/// Operations of a training step's graph at most. Planning them takes some seconds; it grows with their square.
const MOST_OPERATIONS: usize = 1 << 17;
/// How often an operation of the network appears in the graph for each evaluation: forward, again on the way back, and its derivatives.
const APPEARANCES: usize = 4;

impl ThroughSolver {
    /// Returns whether steps are chosen by tolerances.
    pub fn is_adaptive(&self) -> bool {
        self.substeps == 0 && self.solver.estimates_error()
    }

    /// Refuses numbers that make no sense; `section` is where they stand in a recipe.
    pub(crate) fn check(&self, section: &str) -> Result<()> {
        let invalid =
            |key: &str, problem: String| Err(CfoError::invalid(&format!("{section}.{key}"), problem));
        for (key, value) in [("rtol", self.rtol), ("atol", self.atol)] {
            if !(value >= 0.0 && value.is_finite()) {
                return invalid(key, format!("{value} must be 0 or a positive number"));
            }
        }
        if self.is_adaptive() && self.rtol + self.atol <= 0.0 {
            return invalid("rtol", "one of the tolerances must be positive".into());
        }
        if self.pid.iter().any(|gain| !gain.is_finite()) || self.pid.iter().sum::<f64>() <= 0.0 {
            return invalid("pid", format!("{:?} must have a positive sum", self.pid));
        }
        for (key, value) in [("window", self.window), ("checkpoints", self.checkpoints)] {
            if value == 0 {
                return invalid(key, "0 must be positive".into());
            }
        }
        at_most(&format!("{section}.checkpoints"), self.checkpoints, MOST_ATTEMPTS as usize)
    }

    /// Refuses equal steps that make a graph too large to be built, for a network with this number of operations.
    pub(crate) fn check_graph(&self, section: &str, operations: usize) -> Result<()> {
        if self.is_adaptive() {
            return Ok(());
        }
        let (window, substeps) = (self.window, self.substeps.max(1));
        let most = MOST_OPERATIONS / (APPEARANCES * self.solver.stages() * operations.max(1));
        if window.saturating_mul(substeps) <= most.max(1) {
            return Ok(());
        }
        let (key, value, each, other) = match window > substeps {
            true => ("window", window, substeps, "substeps"),
            false => ("substeps", substeps, window, "window"),
        };
        let largest = most / each;
        Err(CfoError::invalid(
            &format!("{section}.{key}"),
            match largest {
                0 => format!(
                    "{value} solver steps are too many for one graph; lower `{section}.{other}` = {each} too"
                ),
                _ => format!(
                    "{value} makes a graph of more than {MOST_OPERATIONS} operations for this network; the largest value is {largest}"
                ),
            },
        ))
    }
}

/// The neural ODE: the network is integrated by a solver, and the loss compares the result with the next snapshots.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct NeuralOde {
    /// The solver.
    pub through: ThroughSolver,
    /// The flow matching with the same unit of velocity, so that weights of one objective can be used by the other.
    pub flow: FlowMatching,
}

impl NeuralOde {
    pub(super) const NAME: &'static str = "neural-ode";

    /// Creates the objective with a solver and its steps.
    pub fn through(through: ThroughSolver) -> Self {
        Self { through, ..Self::default() }
    }

    /// Appends the equal steps of a window; returns where each begins and ends.
    fn steps(&self, graph: &mut Graph, model: &Model, batch: &Batch) -> Result<Vec<FixedStep>> {
        let window = windows(batch)?;
        let (count, substeps) = (graph.shape(batch.state).axes()[0], self.through.substeps.max(1));
        let (mut steps, mut state) = (Vec::new(), batch.state);
        for interval in 0..self.through.window {
            let f = graph.formula();
            let row = |of: Node| f.var(of).slice(0, interval, 1).reshape([count]);
            let time = row(window.times).node()?;
            let length = (row(window.lengths) / substeps as f64).node()?;
            for substep in 0..substeps {
                let time = (time + graph.var(length) * substep as f64).node()?;
                let start =
                    Point { time, state, conditions: batch.conditions, given: None, noise: batch.noise };
                let step = FixedStep::new(graph, model, &self.through.solver, (start, length))?;
                state = step.end;
                steps.push(step);
            }
        }
        Ok(steps)
    }

    /// Appends the mismatch after an interval, a share of the loss.
    fn share(
        &self,
        graph: &mut Graph,
        model: &Model,
        batch: &Batch,
        (interval, found): (usize, Node),
    ) -> Result<Node> {
        let wanted = batch.snapshot(graph, interval + 1)?;
        let mismatch = self.mismatch(graph, model, [found, wanted])?;
        Ok(graph.scale(mismatch, 1.0 / self.through.window as f64)?)
    }
}

/// One equal step in a graph.
#[derive(Clone, Copy)]
struct FixedStep {
    /// Its first operation.
    first: usize,
    start: Point,
    length: Node,
    end: Node,
}

impl FixedStep {
    /// Appends a step.
    fn new(
        graph: &mut Graph,
        model: &Model,
        tableau: &Tableau,
        (start, length): (Point, Node),
    ) -> Result<Self> {
        let first = graph.entries().len();
        Ok(Self { first, start, length, end: advanced(graph, model, tableau, (start, length))? })
    }
}

/// Appends a step without an error estimate, from a point by lengths `[batch]`; returns the state at its end.
pub(crate) fn advanced(
    graph: &mut Graph,
    model: &Model,
    tableau: &Tableau,
    (point, length): (Point, Node),
) -> Result<Node> {
    let start = StepStart { state: point.state, time: point.time, length };
    append_end(graph, tableau, start, |graph, time, state| {
        model.objective().moved(graph, model, &Point { time, state, ..point })
    })
}

fn windows(batch: &Batch) -> Result<WindowTimes> {
    batch.window.ok_or_else(|| CfoError::BadData {
        problem: "the batch has no windows, which `neural-ode` needs".into(),
        hint: "draw what `Objective::draw` says".into(),
    })
}

impl Objective for NeuralOde {
    fn name(&self) -> &str {
        Self::NAME
    }

    fn draw(&self) -> Draw {
        Draw::Window { intervals: self.through.window }
    }

    fn measured(&self) -> Path {
        self.flow.path
    }

    fn unit(&self) -> Unit {
        self.flow.unit()
    }

    fn integration(&self) -> Option<Integration> {
        let ThroughSolver { solver, rtol, atol, pid: [proportional, integral, derivative], .. } =
            self.through;
        let controller = Controller {
            proportional,
            integral,
            derivative,
            max_steps: MOST_ATTEMPTS,
            ..Controller::new(rtol, atol)
        };
        let ThroughSolver { window: intervals, through_time, checkpoints, .. } = self.through;
        let integration = Integration { tableau: solver, controller, intervals, through_time, checkpoints };
        self.through.is_adaptive().then_some(integration)
    }

    /// In equal steps.
    fn loss(&self, graph: &mut Graph, model: &Model, batch: &Batch) -> Result<Node> {
        let steps = self.steps(graph, model, batch)?;
        let mut loss: Option<Node> = None;
        for (interval, steps) in steps.chunks(self.through.substeps.max(1)).enumerate() {
            let share = self.share(graph, model, batch, (interval, steps[steps.len() - 1].end))?;
            loss = added(graph, loss, Some(share))?;
        }
        Ok(loss.unwrap_or_else(|| graph.scalar(0.0)))
    }

    /// Step by step from the last to the first, each appended again where its values are not to be stored.
    fn loss_and_gradients(
        &self,
        graph: &mut Graph,
        model: &Model,
        batch: &Batch,
    ) -> Result<(Node, Vec<Node>)> {
        let mut steps = self.steps(graph, model, batch)?;
        let parameters: Vec<Node> = graph.parameters().iter().map(|parameter| parameter.node).collect();
        let (mut loss, mut cotangent): (Option<Node>, Option<Node>) = (None, None);
        let mut gradients: Vec<Option<Node>> = vec![None; parameters.len()];
        // A single step has nothing to gain from being computed again.
        let again = self.through.recompute && steps.len() > 1;
        let substeps = self.through.substeps.max(1);
        for (interval, steps) in steps.chunks_mut(substeps).enumerate().rev() {
            let (first, end) = (graph.entries().len(), steps[steps.len() - 1].end);
            let share = self.share(graph, model, batch, (interval, end))?;
            let share = batch.weigh(graph, share)?;
            loss = added(graph, loss, Some(share))?;
            let one = graph.scalar(1.0);
            let own = graph.vector_jacobian_since(first, &[(share, one)], &[end])?[0];
            let later = cotangent.filter(|_| self.through.through_time);
            cotangent = added(graph, later, own)?;
            for step in steps.iter_mut().rev() {
                let Some(arrived) = cotangent else { continue };
                if again {
                    *step = FixedStep::new(graph, model, &self.through.solver, (step.start, step.length))?;
                }
                let targets: Vec<Node> = parameters.iter().copied().chain([step.start.state]).collect();
                let mut found = graph.vector_jacobian_since(step.first, &[(step.end, arrived)], &targets)?;
                cotangent = found.pop().flatten();
                for (sum, found) in gradients.iter_mut().zip(found) {
                    *sum = added(graph, *sum, found)?;
                }
            }
        }
        let gradients = gradients.into_iter().zip(&parameters).map(|(gradient, &parameter)| match gradient {
            Some(gradient) => Ok(gradient),
            None => Ok(graph.scale(parameter, 0.0)?),
        });
        let gradients = gradients.collect::<Result<Vec<Node>>>()?;
        Ok((loss.unwrap_or_else(|| graph.scalar(0.0)), gradients))
    }

    fn describe(&self, recipe: &mut Recipe) -> bool {
        let known = self.flow.describe(recipe);
        recipe.objective = ObjectiveConfig::NeuralOde(self.through);
        known
    }
}

/// The sum of what is there.
fn added(graph: &mut Graph, a: Option<Node>, b: Option<Node>) -> Result<Option<Node>> {
    match (a, b) {
        (Some(a), Some(b)) => Ok(Some(graph.add(a, b)?)),
        (a, b) => Ok(a.or(b)),
    }
}

#[cfg(test)]
mod tests {
    use cfo_data::{Description, FieldShape, Trajectory};
    use cfo_device::Device;
    use cfo_engine::{Memory, Precision, Program};
    use cfo_numerics::Philox;

    use super::*;
    use crate::trajectories::Trajectories;

    /// The mismatch of two snapshots is the same number whichever space the network works in.
    #[test]
    fn errors_count_in_wavelet_coefficients_as_in_the_data() {
        let (points, channels) = (16, 2);
        let mut random = Philox::new(3, 0);
        let mut field = |frame: usize| -> Vec<f32> {
            let size = points * channels;
            // Large and smooth, with small details: coefficients of very different sizes.
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
            parameter_names: vec![],
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
            let loss = model.objective().mismatch(&mut graph, &model, nodes).unwrap();
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
