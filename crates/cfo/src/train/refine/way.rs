//! How the forward and the backward solution of a gap are joined, and which way fits the network's velocity.

use cfo_engine::{Data, Graph, Memory, Program};

use super::gaps::Gap;
use crate::error::Result;
use crate::model::Model;

/// The forward and the backward solution of a gap, normalised and in the order of time. `forward` has the states after the first row,
/// `backward` those before the last; `None` if a solution is not usable.
#[derive(Default)]
pub(super) struct Solutions {
    pub forward: Option<Vec<f32>>,
    pub backward: Option<Vec<f32>>,
}

/// How a gap is filled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Way {
    Blend,
    Forward,
    Backward,
}

/// Returns a state of consecutive ones.
pub(super) fn state(values: &[f32], at: usize, size: usize) -> &[f32] {
    &values[at * size..(at + 1) * size]
}

impl Way {
    pub const ALL: [Self; 3] = [Self::Blend, Self::Forward, Self::Backward];

    /// Returns the filled state at the end of a part of a gap.
    pub fn state(self, solutions: &Solutions, gap: Gap, part: usize, rows: &[f32], size: usize) -> Vec<f32> {
        let share = part as f32 / gap.parts as f32;
        let forward = |part: usize| solutions.forward.as_ref().map_or(&[][..], |all| state(all, part - 1, size));
        let backward = |part: usize| solutions.backward.as_ref().map_or(&[][..], |all| state(all, part, size));
        let mixed = |one: &[f32], weight: f32, end: &[f32], reached: &[f32]| -> Vec<f32> {
            let missed = end.iter().zip(reached).map(|(end, reached)| end - reached);
            one.iter().zip(missed).map(|(value, missed)| value + weight * missed).collect()
        };
        match self {
            Self::Blend => mixed(forward(part), share, backward(part), forward(part)),
            Self::Forward => {
                mixed(forward(part), share, state(rows, gap.row + gap.parts, size), forward(gap.parts))
            }
            Self::Backward => mixed(backward(part), 1.0 - share, state(rows, gap.row, size), backward(0)),
        }
    }
}

/// The network's velocity for a batch of states.
pub(super) struct Probe {
    batch: usize,
    velocity: Program,
}

fn name(batch: usize, what: &str) -> String {
    format!("refine.{batch}.{what}")
}

impl Probe {
    pub fn new(model: &Model, memory: &mut Memory, batch: usize) -> Result<Self> {
        let name = |what: &str| name(batch, what);
        model.insert_point(memory, batch, name, |count| vec![0.0; count])?;
        let mut graph = Graph::with_prefix(model.weight_prefix());
        let point = model.point(&mut graph, batch, name)?;
        let velocity = model.moved(&mut graph, &point)?;
        Ok(Self { batch, velocity: Program::compile(&graph, &[velocity], memory)? })
    }

    /// Returns the velocities at normalised states, with a time and the normalised PDE parameters for each.
    fn velocities(
        &mut self,
        memory: &mut Memory,
        states: &[f32],
        times: &[f64],
        conditions: &[f32],
    ) -> Result<Vec<f32>> {
        let (count, size) = (times.len(), states.len() / times.len());
        let mut found = Vec::with_capacity(states.len());
        for first in (0..count).step_by(self.batch) {
            let last = (first + self.batch).min(count);
            let part = |values: &[f32], width: usize| {
                let mut part = values[first * width..last * width].to_vec();
                part.resize(self.batch * width, 0.0);
                part
            };
            let mut own = times[first..last].to_vec();
            own.resize(self.batch, 0.0);
            memory.write(&name(self.batch, "time"), Data::F64(&own))?;
            memory.write(&name(self.batch, "state"), Data::F32(&part(states, size)))?;
            if !conditions.is_empty() {
                let width = conditions.len() / count;
                memory.write(&name(self.batch, "conditions"), Data::F32(&part(conditions, width)))?;
            }
            self.velocity.run(memory)?;
            let values = self.velocity.output_f64(0)?;
            found.extend(values[..(last - first) * size].iter().map(|&value| value as f32));
        }
        Ok(found)
    }

    /// Returns for each gap the way whose velocity in the middle is nearest to the network's. `gaps` are solved both ways; `times` and
    /// `conditions` are those of their middles and trajectories.
    pub fn best(
        &mut self,
        (model, memory): (&Model, &mut Memory),
        gaps: &[(Gap, &Solutions, &[f32])],
        size: usize,
        place: impl Fn(Gap) -> (f64, f64, Vec<f32>),
    ) -> Result<Vec<Way>> {
        let (mut states, mut times, mut conditions) = (Vec::new(), Vec::new(), Vec::new());
        for &(gap, solutions, rows) in gaps {
            let middle = gap.parts / 2;
            let (time, _, own) = place(gap);
            let (forward, backward) = solutions.both();
            states.extend_from_slice(state(forward, middle - 1, size));
            states.extend_from_slice(state(backward, middle, size));
            Way::ALL.iter().for_each(|way| states.extend(way.state(solutions, gap, middle, rows, size)));
            for _ in 0..2 + Way::ALL.len() {
                times.push(time);
                conditions.extend_from_slice(&own);
            }
        }
        if gaps.is_empty() {
            return Ok(Vec::new());
        }
        let velocities = self.velocities(memory, &states, &times, &conditions)?;
        let each = (2 + Way::ALL.len()) * size;
        let scales = &model.scaling.velocity;
        let scale = |i: usize| if scales.is_empty() { 1.0 } else { scales[i % scales.len()] as f32 };
        let judge = |(&(gap, solutions, rows), (states, velocities)): (&(Gap, &Solutions, &[f32]), (&[f32], &[f32]))| {
            let (_, length, _) = place(gap);
            let (forward, backward) = solutions.both();
            let share = (gap.parts / 2) as f32 / gap.parts as f32;
            let [ahead, behind] = [0, 1].map(|at| state(velocities, at, size));
            let ends = [state(rows, gap.row, size), state(rows, gap.row + gap.parts, size)];
            let reached = [state(backward, 0, size), state(forward, gap.parts - 1, size)];
            let velocity = |way: Way, i: usize| {
                let difference = match way {
                    Way::Blend => states[size + i] - states[i],
                    Way::Forward => ends[1][i] - reached[1][i],
                    Way::Backward => reached[0][i] - ends[0][i],
                };
                let own = match way {
                    Way::Blend => ahead[i] + share * (behind[i] - ahead[i]),
                    Way::Forward => ahead[i],
                    Way::Backward => behind[i],
                };
                own + difference / length as f32
            };
            let residual = |(at, way): (usize, Way)| -> (f64, Way) {
                let wanted = state(velocities, 2 + at, size);
                let errors = (0..size).map(|i| f64::from((velocity(way, i) - wanted[i]) / scale(i)).powi(2));
                (errors.sum(), way)
            };
            let all = Way::ALL.into_iter().enumerate().map(residual);
            all.min_by(|one, other| one.0.total_cmp(&other.0)).map_or(Way::Blend, |(_, way)| way)
        };
        let parts = states.chunks(each).zip(velocities.chunks(each));
        Ok(gaps.iter().zip(parts).map(judge).collect())
    }
}

impl Solutions {
    /// Returns both solutions; empty ones for those that are not usable.
    fn both(&self) -> (&[f32], &[f32]) {
        (self.forward.as_deref().unwrap_or_default(), self.backward.as_deref().unwrap_or_default())
    }
}
