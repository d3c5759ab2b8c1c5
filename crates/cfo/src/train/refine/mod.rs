//! Refined paths: gaps between snapshots are filled with the network's own solution, forward from the snapshot before and backward from
//! the one after. The spline then passes through snapshots and filled states.

mod filled;
mod gap_path;
mod gaps;
mod solver;

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use cfo_device::Device;
use cfo_engine::{Data, Element, Memory, Role};
use cfo_numerics::philox4x32;

use super::compiled::CompiledStep;
use super::phase::Phase;
use super::training_data::TrainingData;
use super::training_step::TrainingStep;
use super::witness::Witness;
use crate::error::Result;
use crate::predict::rollout::Watch;
use crate::ranks;
use crate::recipe::{RefineConfig, RefineMode};
use crate::trajectories::Trajectories;
use filled::{Filled, Outcome, Snapshots};
use gap_path::Difference;
pub(crate) use gaps::Gaps;
pub(super) use gaps::SnapshotSegment;
use solver::GapSolver;

/// Prefix of the copies of the weights that filled the gaps, among the optimiser's tensors. A resumed run fills the gaps with them again.
const COPIES: &str = "refine/";
/// The tensor of the misses of all rounds, 0 for those to come; a resumed run continues with them.
const MISSES: &str = "refine.misses";
/// Factor by which a miss must be smaller than all before it to count as falling.
const FALLING: f32 = 0.95;
/// Smallest difference of filled states and the spline, relative to the miss, for which filled states are used. If it is smaller, the spline
/// is more accurate than the network.
const NEEDED: f64 = 0.5;
/// Number of rounds whose misses do not fall after which no more are made.
const PATIENCE: usize = 2;
/// Number of rows in a step of the solver for which the number of segments is planned.
const PLANNED: usize = 2;
/// Cost of all rounds, as a share of the cost of all training steps.
const COST: f64 = 0.8;
/// Cost of a training step for each sample of its batch, in evaluations of the network.
const EVALUATIONS: f64 = 2.0;
/// Evaluations in a step of the solver.
const STAGES: f64 = 4.0;
/// Random stream of the order in which segments are chosen.
const ORDER: u32 = 6;
/// Smallest number of segments of a round, if there are as many; if fewer are affordable, there are fewer rounds.
const LEAST: usize = 32;
/// Largest number of values of the rows of a round. It does not depend on the machine, so that a resumed run makes the same rounds.
const MOST_VALUES: usize = 1 << 28;
/// Number of gaps on which the length of steps is tried.
const TRIED: usize = 32;
/// Largest error of a step, relative to the miss and in deviations.
const STEP_ERROR: [f64; 2] = [0.1, 2e-3];
/// Largest number of filled states in a step.
const LONGEST: usize = 4;

/// The rounds of `[refine]` in a phase. Each round chooses some segments of trajectories and fills their gaps; the training steps after it
/// use them alone. Filling all gaps in each round would cost more than the training.
pub(super) struct Rounds<'a> {
    /// The steps before which gaps are filled, in order.
    starts: Vec<u32>,
    end: u32,
    refiner: Option<Refiner<'a>>,
    /// Whether the data of the training step are those of a round.
    is_filled: bool,
    /// Whether no more rounds are made.
    is_over: bool,
}

/// A round that was made.
pub(super) struct Refined {
    /// The training step for the chosen segments, if it had to be compiled.
    pub program: Option<CompiledStep>,
    /// The step before the round.
    pub start: u32,
    /// By how much solutions miss the next snapshot: the root mean square over gaps and channels, in deviations.
    pub miss: f64,
}

impl<'a> Rounds<'a> {
    pub fn new(
        step: &TrainingStep,
        set: &'a Trajectories,
        phase: &Phase,
        interrupt: Option<&'a AtomicBool>,
    ) -> Result<Self> {
        let recipe = &phase.method.recipe;
        let is_on = recipe.refine.rounds > 0 && !phase.is_later();
        let gaps = is_on.then(|| Gaps::of(recipe, set, &phase.selections)).transpose()?;
        let gaps = gaps.filter(|gaps| gaps.parts() > 0);
        let (rounds, slots) = gaps.as_ref().map_or((0, 0), |gaps| affordable(step, gaps));
        let starts =
            if rounds > 0 { RefineConfig { rounds, ..recipe.refine }.steps(phase.end) } else { Vec::new() };
        let refiner = gaps.map(|gaps| Refiner::new(step, set, gaps, slots, interrupt)).transpose()?;
        Ok(Self { starts, end: phase.end, refiner, is_filled: false, is_over: false })
    }

    /// Returns the step before the next round, or the end of the phase.
    pub fn next(&self, made: u32) -> u32 {
        let later = self.starts.iter().copied().find(|&start| start > made);
        later.filter(|_| self.refiner.is_some() && !self.is_over).unwrap_or(self.end)
    }

    /// Makes a round if one is due after `made` steps. After a resume, it repeats the latest round.
    pub fn refine(&mut self, made: u32, step: &mut TrainingStep) -> Result<Option<Refined>> {
        let Some(refiner) = &mut self.refiner else { return Ok(None) };
        let mut misses = refiner.misses(&step.memory)?;
        let due = self.starts.iter().filter(|&&start| start <= made).count();
        let is_new = due > misses.len() && !refiner.is_over(&misses);
        if !is_new && (self.is_filled || !refiner.restore_weights(&mut step.memory)?) {
            return Ok(None);
        }
        if is_new {
            refiner.take_weights(&step.memory)?;
        }
        let round = if is_new { due } else { misses.len() } - 1;
        let mut witness = Witness::new(&step.model.recipe, refiner.set, &step.fingerprint);
        let (data, values, outcome) = witness.read(|| refiner.fill(round))?;
        let [miss, moved] =
            [outcome.missed, outcome.moved].map(|difference| difference.root() / outcome.deviation);
        if is_new {
            misses.resize(due, (miss as f32).max(f32::MIN_POSITIVE));
            let kept: Vec<f32> =
                (0..self.starts.len()).map(|at| misses.get(at).copied().unwrap_or(0.0)).collect();
            step.memory.insert_as(Role::Optimizer, MISSES, Element::Real, [kept.len()], Data::F32(&kept))?;
        }
        let mut program = None;
        if self.is_filled || !is_new || moved > NEEDED * miss {
            if is_new {
                refiner.keep_weights(&mut step.memory)?;
            }
            let is_first = !std::mem::replace(&mut self.is_filled, true);
            program = step.refined(data, &values, is_first)?;
        }
        self.is_over = refiner.is_over(&misses);
        Ok(Some(Refined { program, start: self.starts[round], miss }))
    }
}

/// Returns the number of rounds and of segments in each, so that all rounds cost a share of the training and fit in memory.
fn affordable(step: &TrainingStep, gaps: &Gaps) -> (u32, usize) {
    let recipe = &step.model.recipe;
    let size: usize = step.model.batch_shape(1).iter().product();
    let most = (MOST_VALUES / (size * gaps.rows_of_longest(1))).max(1);
    let affordable = COST * EVALUATIONS * f64::from(recipe.train.steps) * recipe.train.batch as f64;
    let whole = 2.0 * STAGES / PLANNED as f64 * gaps.parts() as f64;
    let segments = affordable / whole * gaps.len() as f64;
    let (rounds, least) = (f64::from(recipe.refine.rounds), LEAST.min(gaps.len()) as f64);
    let rounds = rounds.min((segments / least).ceil()).max(1.0);
    (rounds as u32, ((segments / rounds) as usize).clamp(1, gaps.len().min(most)))
}

/// Fills the gaps of training data.
struct Refiner<'a> {
    set: &'a Trajectories,
    mode: RefineMode,
    gaps: Gaps,
    /// All trajectories, without filled states.
    snapshots: TrainingData,
    /// The order in which segments are chosen.
    order: Vec<usize>,
    /// Number of segments of a round.
    slots: usize,
    solver: GapSolver<'a>,
}

impl<'a> Refiner<'a> {
    fn new(
        step: &TrainingStep,
        set: &'a Trajectories,
        gaps: Gaps,
        slots: usize,
        interrupt: Option<&'a AtomicBool>,
    ) -> Result<Self> {
        let (model, device) = (&step.model, Device::of(&step.memory)?);
        let memory = Memory::new(device, model.recipe.rollout_precision_on(device))?
            .with_determinism(model.recipe.train.deterministic);
        let watch = interrupt.map_or_else(Watch::default, |flag| Watch::default().with_interrupt(flag));
        let seed = model.recipe.train.seed;
        let key = [seed as u32, (seed >> 32) as u32];
        let mut order: Vec<usize> = (0..gaps.len()).collect();
        order.sort_by_key(|&segment| philox4x32([segment as u32, 0, ORDER, 0], key));
        let solver = GapSolver { model: Arc::clone(model), memory, watch, rollout: None };
        let mode = model.recipe.refine.mode;
        Ok(Self { set, mode, gaps, snapshots: step.data.clone(), order, slots, solver })
    }

    /// Returns the misses of the rounds so far.
    fn misses(&self, memory: &Memory) -> Result<Vec<f32>> {
        let known = if memory.contains(MISSES) { memory.read(MISSES)? } else { Vec::new() };
        ranks::from_first(known.into_iter().take_while(|&miss| miss > 0.0).collect())
    }

    /// Returns whether misses no longer fall. Rounds of other segments go on, because training uses the latest round alone.
    fn is_over(&self, misses: &[f32]) -> bool {
        let before = misses.len().saturating_sub(PATIENCE);
        let least = misses[..before].iter().copied().fold(f32::INFINITY, f32::min);
        let is_complete = self.slots == self.order.len() && before > 0;
        is_complete && misses[before..].iter().all(|&miss| miss > FALLING * least)
    }

    /// Takes the weights of a training.
    fn take_weights(&mut self, memory: &Memory) -> Result<()> {
        for name in self.weights(memory) {
            let (kind, role, values) =
                (memory.value_type(&name)?.clone(), memory.role(&name)?, memory.read(&name)?);
            self.solver.memory.insert_as(role, &name, kind.element, kind.shape, Data::F32(&values))?;
        }
        Ok(())
    }

    /// Keeps copies of a training's weights among the optimiser's tensors.
    fn keep_weights(&self, memory: &mut Memory) -> Result<()> {
        for name in self.weights(memory) {
            let (kind, values) = (memory.value_type(&name)?.clone(), memory.read(&name)?);
            let copy = format!("{COPIES}{name}");
            memory.insert_as(Role::Optimizer, &copy, kind.element, kind.shape, Data::F32(&values))?;
        }
        Ok(())
    }

    /// Returns the names of the weights that are evaluated.
    fn weights(&self, memory: &Memory) -> Vec<String> {
        let is_averaged = !self.solver.model.weight_prefix().is_empty();
        let role = if is_averaged { Role::Average } else { Role::Weight };
        memory.names_where(|of| of == role).map(str::to_owned).collect()
    }

    /// Takes the weights of the latest round from a training that was resumed; returns whether there are any.
    fn restore_weights(&mut self, memory: &mut Memory) -> Result<bool> {
        let copies =
            memory.names_where(|role| role == Role::Optimizer).filter(|name| name.starts_with(COPIES));
        let names = ranks::from_first(copies.map(str::to_owned).collect::<Vec<_>>())?;
        for copy in &names {
            let name = &copy[COPIES.len()..];
            let (kind, role) = (memory.value_type(name)?.clone(), memory.role(name)?);
            let values = if ranks::is_first() { memory.read(copy)? } else { Vec::new() };
            let values = ranks::share(values);
            memory.insert_as(Role::Optimizer, copy, kind.element, kind.shape.clone(), Data::F32(&values))?;
            self.solver.memory.insert_as(role, name, kind.element, kind.shape, Data::F32(&values))?;
        }
        Ok(!names.is_empty())
    }

    /// Returns the largest number of rows in a step of the solver whose error is small, by trial on a few gaps.
    fn rows_of_step(&mut self) -> Result<usize> {
        let of = Snapshots { data: &self.snapshots, set: self.set, gaps: &self.gaps };
        let chosen = &self.order[..self.order.len().min(TRIED)];
        let mut tried = Filled::new(of, chosen, 0, &self.solver.model)?;
        tried.keep_middle(TRIED);
        let tasks = tried.tasks(of, &[false]);
        let fine = self.solver.solve(&tasks, 1)?;
        let deviation = tried.deviation(&self.gaps, chosen, self.solver.model.setting.field.channels);
        let tolerance = (STEP_ERROR[0] * tried.missed(&fine)).min(STEP_ERROR[1] * deviation);
        let mut rows = 1;
        while rows < LONGEST {
            let coarse = self.solver.solve(&tasks, 2 * rows)?;
            let mut errors = Difference::default();
            fine.iter()
                .zip(&coarse)
                .for_each(|(one, other)| errors.add(one.as_deref().zip(other.as_deref())));
            if errors.root() > tolerance || coarse.iter().flatten().count() < fine.iter().flatten().count() {
                break;
            }
            rows *= 2;
        }
        Ok(rows)
    }

    /// Returns a number of rows that suffices for every round.
    fn capacity(&self) -> usize {
        let least = (self.slots / PLANNED).max(1);
        self.slots.div_ceil(least) * self.gaps.rows_of_longest(least)
    }

    /// Returns the directions in which the mode solves: `true` for backward.
    fn ways(&self) -> &'static [bool] {
        match self.mode {
            RefineMode::Forward => &[false],
            RefineMode::Backward => &[true],
            RefineMode::Auto | RefineMode::Blend => &[false, true],
        }
    }

    /// Chooses the segments of a round and fills their gaps. Returns them with the states of their rows.
    fn fill(&mut self, round: usize) -> Result<(TrainingData, Vec<f32>, Outcome)> {
        let (count, rows) = (self.order.len(), self.rows_of_step()?);
        // Shorter steps than planned are paid for by fewer segments.
        let distinct = (self.slots * rows.min(PLANNED) / PLANNED).max(1);
        let places = (0..self.slots).map(|slot| round * self.slots + slot % distinct);
        let chosen: Vec<usize> = places.map(|place| self.order[place % count]).take(distinct).collect();
        let (of, ways) = (Snapshots { data: &self.snapshots, set: self.set, gaps: &self.gaps }, self.ways());
        let mut filled = Filled::new(of, &chosen, self.capacity(), &self.solver.model)?;
        let found = self.solver.solve(&filled.tasks(of, ways), rows)?;
        let deviation = filled.deviation(&self.gaps, &chosen, self.solver.model.setting.field.channels);
        let outcome = filled.fill((self.mode, ways), found, (&self.gaps, &self.solver.model));
        let Filled { mut data, mut values, .. } = filled;
        data.repeat(self.slots, &mut values);
        Ok((data, values, Outcome { deviation, ..outcome }))
    }
}
