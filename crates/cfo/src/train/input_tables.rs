//! The inputs of the network beside the state, as tables with one row per trajectory. A step reads the rows of its samples.

use std::sync::Arc;

use cfo_engine::{Graph, Memory, Node, Shape};
use cfo_numerics::{Ramp, Signal};

use crate::error::Result;
use crate::measure::selection::Selection;
use crate::model::Model;
use crate::operator::{Context, ControlRamps};
use crate::recipe::ControlKind;
use crate::trajectories::Trajectories;

const CONDITIONS: &str = "conditions";
const CONTROLS: &str = "controls";
const STATICS: &str = "statics";

/// The inputs of the trajectories of a training, in the network's units.
#[derive(Clone, Debug, Default)]
pub(super) struct InputTables(Vec<InputTable>);

/// A table with a row for each trajectory, or one row for all: an index past the end gathers the last row.
#[derive(Clone, Debug)]
struct InputTable {
    name: &'static str,
    /// Shape of a row.
    row: Vec<usize>,
    values: Vec<f32>,
}

impl InputTables {
    /// Collects the inputs of the selected trajectories.
    pub fn of(model: &Model, set: &Trajectories, selections: &[Selection]) -> Self {
        let mut tables = Vec::new();
        let inputs = || selections.iter().map(|one| &set.trajectories[one.trajectory].inputs);
        if !model.inputs.parameters.is_empty() {
            let values = inputs().flat_map(|own| model.conditions(own)).collect();
            tables.push(InputTable { name: CONDITIONS, row: vec![model.inputs.parameters.len()], values });
        }
        let signals: Vec<Signal> = inputs().filter_map(|own| model.signal(own)).collect();
        tables.extend((!signals.is_empty()).then(|| {
            let times = selections.iter().map(|one| {
                let times = &set.trajectories[one.trajectory].times;
                [times[one.first], times[times.len() - 1]].map(|time| model.scaling.time(time))
            });
            let powers = if model.recipe.data.controls == ControlKind::Spline { 3 } else { 1 };
            let rows: Vec<Vec<Vec<f64>>> =
                signals.iter().zip(times).map(|(signal, ends)| ramps(signal, ends, powers)).collect();
            let columns = rows[0][0].len();
            let most = rows.iter().map(Vec::len).max().unwrap_or(1);
            let padded = |rows: Vec<Vec<f64>>| {
                let missing = (most - rows.len()) * columns;
                rows.into_iter().flatten().map(|value| value as f32).chain(std::iter::repeat_n(0.0, missing))
            };
            let values = rows.into_iter().flat_map(padded).collect();
            InputTable { name: CONTROLS, row: vec![most, columns], values }
        }));
        if !model.inputs.statics.is_empty() {
            let fields: Vec<&Arc<[f32]>> = inputs().filter_map(|own| own.statics.as_ref()).collect();
            let shared = fields.windows(2).all(|pair| Arc::ptr_eq(pair[0], pair[1]));
            let rows = if shared { 1 } else { selections.len() };
            let values = inputs().take(rows).flat_map(|own| model.statics(own)).collect();
            tables.push(InputTable { name: STATICS, row: model.statics_shape(1)[1..].to_vec(), values });
        }
        Self(tables)
    }

    /// Returns the rows of some trajectories.
    pub fn rows(&self, trajectories: impl Iterator<Item = usize> + Clone) -> Self {
        let chosen = |table: &InputTable| {
            if table.count() == 1 {
                return table.clone();
            }
            let size: usize = table.row.iter().product();
            let rows = trajectories.clone().map(|row| &table.values[row * size..][..size]);
            InputTable { values: rows.flatten().copied().collect(), row: table.row.clone(), ..*table }
        };
        Self(self.0.iter().map(chosen).collect())
    }

    /// Copies the tables into memory.
    ///
    /// # Errors
    /// If memory holds other data under these names.
    pub fn upload(&self, memory: &mut Memory) -> Result<()> {
        for table in &self.0 {
            memory.insert_real(&table.tensor(), table.shape(table.count()), &table.values)?;
        }
        Ok(())
    }

    /// Appends the context of samples at times `[batch]`, each with the rows of its trajectory `[batch]`.
    ///
    /// # Errors
    /// If the shapes do not fit.
    pub fn context(
        &self,
        graph: &mut Graph,
        model: &Model,
        [time, trajectory]: [Node; 2],
    ) -> Result<Context> {
        self.context_of(graph, model, time, |graph, table| {
            let all = graph.input(&table.tensor(), table.shape(table.count()))?;
            Ok(graph.gather(all, trajectory)?)
        })
    }

    /// Appends the context of samples whose rows are in the tensors of [`InputTables::kept`].
    ///
    /// # Errors
    /// If the shapes do not fit.
    pub fn kept_context(
        &self,
        graph: &mut Graph,
        model: &Model,
        time: Node,
        prefix: &str,
    ) -> Result<Context> {
        let batch = graph.shape(time).len();
        self.context_of(graph, model, time, |graph, table| {
            Ok(graph.input(&format!("{prefix}.{}", table.name), table.shape(batch))?)
        })
    }

    /// Returns the tensors of the rows of a batch: their names and shapes.
    pub fn kept(&self, batch: usize, prefix: &str) -> impl Iterator<Item = (String, Shape)> {
        self.0.iter().map(move |table| (format!("{prefix}.{}", table.name), table.shape(batch).into()))
    }

    /// Returns the rows of a batch in its context, with the names of [`InputTables::kept`].
    pub fn rows_of(context: &Context, prefix: &str) -> impl Iterator<Item = (String, Node)> {
        let rows = [
            (CONDITIONS, context.conditions),
            (CONTROLS, context.controls.map(|ramps| ramps.table)),
            (STATICS, context.statics),
        ];
        rows.into_iter().filter_map(move |(name, row)| Some((format!("{prefix}.{name}"), row?)))
    }

    fn context_of(
        &self,
        graph: &mut Graph,
        model: &Model,
        time: Node,
        mut rows: impl FnMut(&mut Graph, &InputTable) -> Result<Node>,
    ) -> Result<Context> {
        let mut context = Context::at(time);
        for table in &self.0 {
            let own = rows(graph, table)?;
            match table.name {
                CONDITIONS => context.conditions = Some(own),
                STATICS => context.statics = Some(own),
                _ => context.controls = Some(ControlRamps { table: own, count: model.inputs.controls.len() }),
            }
        }
        Ok(context)
    }
}

impl InputTable {
    /// Returns the name of the tensor with all rows.
    fn tensor(&self) -> String {
        format!("data.{}", self.name)
    }

    /// Returns the number of rows.
    fn count(&self) -> usize {
        self.values.len() / self.row.iter().product::<usize>()
    }

    /// Returns the shape of a number of rows.
    fn shape(&self, rows: usize) -> Vec<usize> {
        [rows].iter().chain(&self.row).copied().collect()
    }
}

/// Returns the ramps of a signal within an interval, as rows of a table with this number of powers: the first is the value before them.
fn ramps(signal: &Signal, [from, to]: [f64; 2], powers: usize) -> Vec<Vec<f64>> {
    let all = signal.ramps();
    let row = |ramp: &Ramp| -> Vec<f64> {
        let coefficients = (0..powers).flat_map(|power| ramp.rises.iter().map(move |rise| rise[power]));
        [ramp.start, ramp.rate].into_iter().chain(coefficients).collect()
    };
    let is_inside = |ramp: &Ramp| ramp.start < to && ramp.start + 1.0 / ramp.rate > from;
    let before =
        all.iter().position(is_inside).map_or_else(|| signal.at(from), |knot| signal.knot(knot).to_vec());
    // It is complete at all times.
    let rises = before.into_iter().map(|value| [value, 0.0, 0.0]).collect();
    let first = Ramp { start: -1e6, rate: 1.0, rises };
    std::iter::once(&first).chain(all.iter().filter(|ramp| is_inside(ramp))).map(row).collect()
}

#[cfg(test)]
mod tests {
    use cfo_device::Device;
    use cfo_engine::{Data, Precision, Program};
    use cfo_numerics::Interpolation;
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// Checks that a graph evaluates the ramps within an interval as the host evaluates the signal.
        #[test]
        fn a_graph_evaluates_a_signal_as_the_host_does(
            gaps in prop::collection::vec(0.02..0.3_f64, 1..12),
            values in prop::collection::vec(-2.0..2.0_f64, 24),
            shares in prop::collection::vec(0.0..1.0_f64, 6),
            ends in [0.0..0.5_f64, 0.5..1.0_f64],
        ) {
            let times: Vec<f64> =
                gaps.iter().scan(-0.2, |time, gap| { *time += gap; Some(*time) }).collect();
            let times_at: Vec<f64> = shares.iter().map(|share| ends[0] + share * (ends[1] - ends[0])).collect();
            for (interpolation, powers) in
                [(Interpolation::Linear, 1), (Interpolation::Hold, 1), (Interpolation::Spline, 3)]
            {
                let signal = Signal::new(times.clone(), values[..2 * times.len()].to_vec(), interpolation);
                let rows = ramps(&signal, ends, powers);
                let table: Vec<f64> = rows.iter().flatten().copied().collect();
                let shape = [times_at.len(), rows.len(), rows[0].len()];
                let mut graph = Graph::new();
                let (time, input) = (graph.input("time", [shape[0]]).unwrap(), graph.input("table", shape).unwrap());
                let controls = Some(ControlRamps { table: input, count: 2 });
                let settled = Context { controls, ..Context::at(time) }.settled(&mut graph).unwrap();
                let mut memory = Memory::new(Device::Cpu, Precision::F64).unwrap();
                for (name, shape, values) in
                    [("time", vec![shape[0]], times_at.clone()), ("table", shape.to_vec(), table.repeat(shape[0]))]
                {
                    memory.insert_real(name, shape, &vec![0.0; values.len()]).unwrap();
                    memory.write(name, Data::F64(&values)).unwrap();
                }
                let mut program = Program::compile(&graph, &[settled.conditions.unwrap()], &memory).unwrap();
                program.run(&mut memory).unwrap();
                for (time, found) in times_at.iter().zip(program.output_f64(0).unwrap().chunks(2)) {
                    // Within a ten-millionth after a jump the graph passes from one value to the other.
                    if signal.jumps().iter().any(|jump| (time - jump).abs() < 1e-6) {
                        continue;
                    }
                    for (found, expected) in found.iter().zip(signal.at(*time)) {
                        prop_assert!((found - expected).abs() < 1e-9, "{:?} at {}", interpolation, time);
                    }
                }
            }
        }
    }
}
