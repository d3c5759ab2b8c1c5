//! Refined paths: gaps between snapshots are filled with the network's own solution, forward from the snapshot before and backward from
//! the one after.

mod filled_rows;
mod gaps;
mod way;

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use cfo_device::Device;
use cfo_engine::{Data, Memory, Role};
use cfo_numerics::ode::RK4;

use super::phase::Phase;
use super::training_data::TrainingData;
use crate::error::Result;
use crate::model::Model;
use crate::predict::evaluate::batch;
use crate::predict::rollout::{Request, Rollout, Watch};
use crate::ranks;
use crate::recipe::{Budget, RefineMode};
use crate::trajectories::Trajectories;
pub(super) use filled_rows::FilledRows;
use gaps::Gap;
pub(crate) use gaps::Gaps;
pub(super) use gaps::write_path;
use way::{Probe, Solutions, Way, state};

/// Prefix of the copies of the weights that filled the gaps, among the optimiser's tensors. A resumed run fills the gaps with them again.
const COPIES: &str = "refine/";
/// Distance from the range of the training data, in widths of the range, beyond which a solution is not used.
const REACH: f32 = 1.0;

/// Fills the gaps of training data.
pub(super) struct Refiner<'a> {
    model: Arc<Model>,
    set: &'a Trajectories,
    watch: Watch<'a>,
    mode: RefineMode,
    /// The weights that solve, in the precision of rollouts.
    memory: Memory,
    solver: Option<(Rollout, Probe)>,
}

/// The rounds of `[refine]` in a phase.
pub(super) struct Rounds<'a> {
    /// The steps before which gaps are filled, in order.
    steps: Vec<u32>,
    end: u32,
    refiner: Option<Refiner<'a>>,
    /// The step before which gaps were filled last.
    filled: Option<u32>,
}

impl<'a> Rounds<'a> {
    pub fn new(
        model: &Arc<Model>,
        set: &'a Trajectories,
        memory: &Memory,
        phase: &Phase,
        interrupt: Option<&'a AtomicBool>,
    ) -> Result<Self> {
        let refine = model.recipe.refine;
        let steps = if phase.is_later() { Vec::new() } else { refine.steps(phase.end) };
        let refiner = (!steps.is_empty()).then(|| Refiner::new(model, set, memory, interrupt)).transpose()?;
        Ok(Self { steps, end: phase.end, refiner, filled: None })
    }

    /// Returns the step before the next round, or the end of the phase.
    pub fn next(&self, step: u32) -> u32 {
        self.steps.iter().copied().find(|&round| round > step).unwrap_or(self.end)
    }

    /// Fills the gaps if a round is due at this step, and returns the miss. After a resume, the gaps are filled as they were.
    pub fn refine(&mut self, step: u32, data: &TrainingData, memory: &mut Memory) -> Result<Option<f64>> {
        let Some(refiner) = &mut self.refiner else { return Ok(None) };
        let latest = self.steps.iter().copied().rfind(|&round| round <= step);
        let Some(latest) = latest.filter(|_| self.filled != latest) else { return Ok(None) };
        self.filled = Some(latest);
        if latest == step {
            return Ok(Some(refiner.refine(data, memory)?.mean_miss()));
        }
        refiner.restore(data, memory)?;
        Ok(None)
    }
}

/// The outcome of filling all gaps.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Refinement {
    /// Number of gaps.
    pub gaps: usize,
    /// Number of gaps by how they were filled: blended, forward, backward, by the path because no solution was usable.
    pub by: [usize; 4],
    /// By how much forward solutions miss the next snapshot: the root mean square over all gaps of each channel, in deviations.
    pub miss: Vec<f64>,
}

impl Refinement {
    /// Adds the squared differences of a snapshot and the state that was reached; returns the number of points.
    fn add(&mut self, snapshot: &[f32], reached: &[f32]) -> usize {
        let channels = self.miss.len();
        for (i, (wanted, reached)) in snapshot.iter().zip(reached).enumerate() {
            self.miss[i % channels] += f64::from(wanted - reached).powi(2);
        }
        snapshot.len() / channels
    }

    /// Returns the root mean square of the miss over all channels.
    pub fn mean_miss(&self) -> f64 {
        (self.miss.iter().map(|miss| miss * miss).sum::<f64>() / self.miss.len().max(1) as f64).sqrt()
    }
}

impl<'a> Refiner<'a> {
    pub fn new(
        model: &Arc<Model>,
        set: &'a Trajectories,
        memory: &Memory,
        interrupt: Option<&'a AtomicBool>,
    ) -> Result<Self> {
        let device = Device::of(memory)?;
        let own = Memory::new(device, model.recipe.rollout_precision_on(device))?
            .with_determinism(model.recipe.train.deterministic);
        Ok(Self {
            model: Arc::clone(model),
            set,
            watch: interrupt.map_or_else(Watch::default, |flag| Watch::default().with_interrupt(flag)),
            mode: model.recipe.refine.mode,
            memory: own,
            solver: None,
        })
    }

    /// Fills the gaps with the weights of `memory`, which keeps a copy of them.
    pub fn refine(&mut self, data: &TrainingData, memory: &mut Memory) -> Result<Refinement> {
        let average = !self.model.weight_prefix().is_empty();
        let role = if average { Role::Average } else { Role::Weight };
        let names: Vec<String> = memory.names_where(|of| of == role).map(str::to_owned).collect();
        for name in names {
            let (kind, values) = (memory.value_type(&name)?.clone(), memory.read(&name)?);
            let keep = |memory: &mut Memory, role: Role, name: &str| {
                memory.insert_as(role, name, kind.element, kind.shape.clone(), Data::F32(&values))
            };
            keep(&mut self.memory, role, &name)?;
            keep(memory, Role::Optimizer, &format!("{COPIES}{name}"))?;
        }
        self.fill(data, memory)
    }

    /// Fills the gaps with the weights that filled them last.
    pub fn restore(&mut self, data: &TrainingData, memory: &mut Memory) -> Result<Refinement> {
        let copies = memory.names_where(|role| role == Role::Optimizer).filter(|name| name.starts_with(COPIES));
        let names = ranks::from_first(copies.map(str::to_owned).collect::<Vec<_>>())?;
        for copy in names {
            let name = &copy[COPIES.len()..];
            let (kind, role) = (memory.value_type(name)?.clone(), memory.role(name)?);
            let values = match ranks::is_first() {
                true => memory.read(&copy)?,
                false => Vec::new(),
            };
            let values = ranks::share(values);
            memory.insert_as(Role::Optimizer, &copy, kind.element, kind.shape.clone(), Data::F32(&values))?;
            self.memory.insert_as(role, name, kind.element, kind.shape, Data::F32(&values))?;
        }
        self.fill(data, memory)
    }

    fn fill(&mut self, data: &TrainingData, memory: &mut Memory) -> Result<Refinement> {
        let Some(gaps) = data.gaps.clone() else { return Ok(Refinement::default()) };
        let (model, set) = (Arc::clone(&self.model), self.set);
        let size: usize = model.batch_shape(1).iter().product();
        let mut found = Refinement { miss: vec![0.0; model.setting.field[2]], ..Refinement::default() };
        let mut missed = 0;
        data.edit(&model, set, memory, |trajectories, blocks| {
            let holes = gaps.of_portion(trajectories);
            let solutions = self.solve(data, &gaps, &holes, blocks)?;
            let ways = self.ways(data, &holes, &solutions, blocks)?;
            found.gaps += holes.len();
            for ((&gap, solutions), way) in holes.iter().zip(&solutions).zip(ways) {
                let rows = &mut *blocks[gap.block];
                found.by[way.map_or(Way::ALL.len(), |way| way as usize)] += 1;
                if let Some(forward) = &solutions.forward {
                    let end = state(rows, gap.row + gap.parts, size);
                    missed += found.add(end, state(forward, gap.parts - 1, size));
                }
                let Some(way) = way else {
                    let (times, knots) = (data.times_of(gap.trajectory), gaps.knots(gap.trajectory));
                    let own: Vec<f64> = knots.iter().map(|&row| times[row as usize]).collect();
                    write_path(model.question().path, (knots, &own, gap.knot), times, rows);
                    continue;
                };
                for part in 1..gap.parts {
                    let filled = way.state(solutions, gap, part, rows, size);
                    rows[(gap.row + part) * size..][..size].copy_from_slice(&filled);
                }
            }
            Ok(())
        })?;
        found.miss.iter_mut().for_each(|sum| *sum = (*sum / missed.max(1) as f64).sqrt());
        Ok(found)
    }

    /// Solves forward and backward over gaps, as the mode needs. With several ranks each solves a part.
    fn solve(
        &mut self,
        data: &TrainingData,
        all_gaps: &Gaps,
        gaps: &[Gap],
        blocks: &[&mut [f32]],
    ) -> Result<Vec<Solutions>> {
        let model = Arc::clone(&self.model);
        let ways: &[bool] = match self.mode {
            RefineMode::Forward => &[false],
            RefineMode::Backward => &[true],
            RefineMode::Auto | RefineMode::Blend => &[false, true],
        };
        let all: Vec<(usize, bool)> = (0..gaps.len()).flat_map(|gap| ways.iter().map(move |&way| (gap, way))).collect();
        let own: Vec<(usize, bool)> = ranks::own_part(&all);
        let mut request = Request::default();
        for &(gap, backward) in &own {
            let Gap { block, trajectory, row, parts, .. } = gaps[gap];
            let times = &data.times_of(trajectory)[row..=row + parts];
            let mut times: Vec<f64> = times.iter().map(|&time| model.scaling.restore_time(time)).collect();
            if backward {
                times.reverse();
            }
            let size = blocks[block].len() / data.times_of(trajectory).len();
            let start = if backward { row + parts } else { row };
            request.start.push(times[0]);
            request.states.push(model.decode(&blocks[block][start * size..][..size]));
            request.times.push(times.split_off(1));
            request.conditions.push(data.parameters_of(trajectory, self.set).to_vec());
        }
        if self.solver.is_none() {
            let count = batch(&model, &self.memory, usize::MAX);
            let rollout = Rollout::new(&model, &mut self.memory, count, RK4, model.weight_prefix())?;
            let probe = Probe::new(&model, &mut self.memory, count)?;
            self.solver = Some((rollout, probe));
        }
        let (rollout, _) = self.solver.as_mut().expect("it was just compiled");
        let budget = Budget::StepAtMost(all_gaps.spacing * (1.0 + 1e-3));
        let found = rollout.predict_each(&mut self.memory, &request, budget, &self.watch)?;
        let size = model.shape().len();
        let usable = |(states, &(gap, _)): (Vec<f32>, &(usize, bool))| {
            let whole = states.len() == gaps[gap].parts * size && is_near(&model, &states);
            whole.then(|| model.encode(&states))
        };
        let found: Vec<Option<Vec<f32>>> = found.states.into_iter().zip(&own).map(usable).collect();
        let mut solutions: Vec<Solutions> = gaps.iter().map(|_| Solutions::default()).collect();
        for ((gap, backward), states) in all.into_iter().zip(ranks::joined_parts(found)?) {
            let place = if backward { &mut solutions[gap].backward } else { &mut solutions[gap].forward };
            *place = states.map(|states| if backward { reversed(&states, gaps[gap].parts) } else { states });
        }
        Ok(solutions)
    }

    /// Returns how each gap is filled; `None` if no solution is usable.
    fn ways(
        &mut self,
        data: &TrainingData,
        gaps: &[Gap],
        solutions: &[Solutions],
        blocks: &[&mut [f32]],
    ) -> Result<Vec<Option<Way>>> {
        let mut ways: Vec<Option<Way>> = solutions
            .iter()
            .map(|solutions| match (&solutions.forward, &solutions.backward) {
                (Some(_), Some(_)) => Some(Way::Blend),
                (Some(_), None) => Some(Way::Forward),
                (None, Some(_)) => Some(Way::Backward),
                (None, None) => None,
            })
            .collect();
        if self.mode == RefineMode::Auto {
            let (_, probe) = self.solver.as_mut().expect("gaps were solved");
            let open: Vec<usize> = (0..gaps.len()).filter(|&i| ways[i] == Some(Way::Blend)).collect();
            let both: Vec<_> = open.iter().map(|&i| (gaps[i], &solutions[i], &*blocks[gaps[i].block])).collect();
            let (model, set) = (&self.model, self.set);
            let place = |gap: Gap| {
                let times = &data.times_of(gap.trajectory)[gap.row..=gap.row + gap.parts];
                let conditions = match model.setting.conditions {
                    0 => Vec::new(),
                    _ => model.scaling.conditions(data.parameters_of(gap.trajectory, set)),
                };
                (times[gap.parts / 2], times[gap.parts] - times[0], conditions)
            };
            let size = model.batch_shape(1).iter().product();
            let found = probe.best((model, &mut self.memory), &both, size, place)?;
            open.iter().zip(found).for_each(|(&i, way)| ways[i] = Some(way));
        }
        Ok(ways)
    }
}

/// Returns whether states, in the user's units, are near the range of the training data.
fn is_near(model: &Model, states: &[f32]) -> bool {
    let bounds = model.scaling.range.iter().map(|&[low, high]| {
        let margin = REACH * (high - low) as f32;
        low as f32 - margin..=high as f32 + margin
    });
    let bounds: Vec<_> = bounds.collect();
    states.chunks(bounds.len().max(1)).all(|point| point.iter().zip(&bounds).all(|(value, bound)| bound.contains(value)))
}

/// Returns consecutive states in the opposite order.
fn reversed(states: &[f32], count: usize) -> Vec<f32> {
    states.chunks(states.len() / count).rev().flatten().copied().collect()
}
