//! The inputs of a network beside the field.

use cfo_engine::{Graph, Node};

use crate::error::Result;

/// The inputs of a network beside the field, as nodes of its graph.
#[derive(Clone, Copy, Debug)]
pub struct Context {
    /// `[batch]`: times, 0 at the first time of the training data. A network uses them if [`Setting::timed`](super::Setting::timed) is
    /// set.
    pub time: Node,
    /// `[batch, conditions]`: normalised PDE parameters, then normalised controls at the time, if the network is conditioned on them.
    pub conditions: Option<Node>,
    /// The controls as functions of time. [`Model::network`](crate::Model::network) evaluates them at the time, so that operators get
    /// them among the conditions.
    pub controls: Option<ControlRamps>,
    /// `[batch, rows, width, statics]`: normalised static fields. [`Model::network`](crate::Model::network) adds them to the channels of
    /// the field, after all others.
    pub statics: Option<Node>,
}

/// The controls of a batch as functions of time: sums of [`Ramp`](cfo_numerics::Ramp)s.
#[derive(Clone, Copy, Debug)]
pub struct ControlRamps {
    /// `[batch, ramps, columns]`. The columns of a ramp are its start, its rate, and the coefficients `c1` of all controls, followed by `c2`
    /// and `c3` if the controls are splines.
    pub table: Node,
    /// Number of controls.
    pub count: usize,
}

impl Context {
    /// Creates the context of a network without other inputs, at times `[batch]`.
    pub fn at(time: Node) -> Self {
        Self { time, conditions: None, controls: None, statics: None }
    }

    /// Evaluates the controls at the time and adds them to the conditions. An objective whose network gets another time than that of the
    /// data calls this before it changes the time.
    ///
    /// # Errors
    /// If the shapes do not fit.
    pub fn settled(self, graph: &mut Graph) -> Result<Self> {
        let Some(ramps) = self.controls else { return Ok(self) };
        let controls = ramps.at(graph, self.time)?;
        Self { controls: None, ..self }.with_conditions(graph, controls)
    }

    /// Adds conditions `[batch, count]` after those that there are.
    pub(crate) fn with_conditions(self, graph: &mut Graph, more: Node) -> Result<Self> {
        let conditions = match self.conditions {
            Some(conditions) => graph.concat(&[conditions, more], 1)?,
            None => more,
        };
        Ok(Self { conditions: Some(conditions), ..self })
    }
}

impl ControlRamps {
    /// Number of columns before the coefficients.
    pub(crate) const COLUMNS: usize = 2;

    /// Appends the controls at times `[batch]`: `[batch, controls]`.
    fn at(self, graph: &mut Graph, time: Node) -> Result<Node> {
        let shape = graph.shape(self.table).axes().to_vec();
        let f = graph.formula();
        let table = f.var(self.table);
        let [start, rate] = [0, 1].map(|column| table.slice(2, column, 1));
        let share = ((f.var(time).reshape([shape[0], 1, 1]) - start) * rate).maximum(0.0).minimum(1.0);
        let coefficients = |power: usize| table.slice(2, Self::COLUMNS + power * self.count, self.count);
        let powers = (shape[2] - Self::COLUMNS) / self.count;
        let rise = (0..powers - 1)
            .rev()
            .fold(coefficients(powers - 1), |sum, power| coefficients(power) + share * sum);
        Ok((share * rise).sum(&[1]).reshape([shape[0], self.count]).node()?)
    }
}
