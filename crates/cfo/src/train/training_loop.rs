//! The training loop: steps, checks of the loss, reports, validation, checkpoints.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use cfo_engine::{Data, Memory};

use super::compiled::CompiledStep;
use super::divergence::{GRADIENT, count_weights};
use super::phase::Phase;
use super::refine::{Refined, Rounds};
use super::signals::{Exchange, Signals};
use super::supply::Supply;
use super::training_step::TrainingStep;
use super::validation::Validation;
use super::weights::Kept;
use super::{Observer, is_early, is_finished};
use crate::error::{CfoError, Divergence, Result};
use crate::model::Model;
use crate::ranks;
use crate::run::checkpoint::{Checkpoints, State};
use crate::run::{Ending, Log, Progress, StepReport, timed};

/// Growth of the loss, relative to that of the first step, that counts as divergence: among the first reports, and later.
const GROWTH: [f64; 2] = [1e3, 1e6];
/// Time until the first checkpoint, whatever the recipe sets for later ones.
const FIRST_CHECKPOINT: Duration = Duration::from_secs(2);

pub(super) struct TrainingLoop<'a> {
    /// The model that checkpoints hold.
    pub model: &'a Arc<Model>,
    pub phase: &'a Phase,
    pub checkpoints: Option<&'a Checkpoints>,
    pub program: CompiledStep,
    pub validation: Validation<'a>,
    pub log: Log,
    pub progress: Progress,
    /// The weights with the lowest validation error.
    pub kept: Option<Kept>,
    pub recent: Recent,
    /// Whether there is a checkpoint.
    pub saved: bool,
    /// The miss of the latest round of `[refine]` that is not reported yet.
    pub missed: Option<f64>,
    pub started: Instant,
    /// Time and step of the last report.
    pub reported: (Instant, u32),
    pub exchange: Exchange,
    pub interrupt: Option<&'a AtomicBool>,
    pub observer: &'a mut dyn Observer,
}

/// Measurements after the latest steps.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Recent {
    /// The last step after which the loss was read.
    pub step: u32,
    /// Its loss, or the mean loss since the previous reading.
    pub loss: Option<f64>,
    /// Its gradient norm.
    pub gradient: Option<f64>,
    /// The sum of losses since the last report.
    pub sum: f64,
}

struct Due {
    report: bool,
    validation: bool,
    checkpoint: bool,
}

impl TrainingLoop<'_> {
    /// Makes a round of `[refine]` if one is due; returns the step before the next one.
    pub fn refine(&mut self, rounds: &mut Rounds<'_>, step: &mut TrainingStep) -> Result<u32> {
        let made = self.progress.steps;
        let found = timed(&mut self.progress.time.refining, || rounds.refine(made, step));
        if let Err(CfoError::RolloutInterrupted) = found {
            self.save(false, &step.memory)?;
            return Err(CfoError::Interrupted { step: made });
        }
        if let Some(Refined { program, start, miss }) = found? {
            // A resumed training may have reported the miss before.
            let is_reported = self.progress.history.last().is_some_and(|report| report.step > start);
            self.missed = Some(miss).filter(|_| !is_reported);
            if let Some(program) = program {
                self.program = program;
                self.validation.forget();
            }
        }
        Ok(rounds.next(made))
    }

    /// Makes the steps up to `until`, and returns the reason for the end.
    pub fn run(&mut self, until: u32, mut supply: Option<Supply>, memory: &mut Memory) -> Result<Ending> {
        while self.progress.steps < until {
            let made = self.advance(until, &mut supply, memory)?;
            let Signals { stop, overdue } = self.exchange.after_steps(self.signals(), made);
            let due = self.due(stop);
            if !due.report {
                if overdue {
                    self.save(false, memory)?;
                }
                continue;
            }
            let report = self.report(due.validation, memory)?;
            let improved = self.judge(&report, memory)?;
            let ends = ranks::from_first(self.observer.report(&report).is_break())?;
            let finished = is_finished(&self.progress, &self.model.recipe);
            // A validation may have been interrupted, and takes time.
            let Signals { stop: late, overdue } = self.exchange.after_work(self.signals());
            if due.checkpoint || ends || finished || overdue {
                self.save(improved, memory)?;
            }
            let step = self.progress.steps;
            if step < self.phase.end && (stop || late || finished || ends) {
                return match finished {
                    true => Ok(Ending::Patience),
                    false if stop || late => Err(CfoError::Interrupted { step }),
                    false => Ok(Ending::Observer),
                };
            }
        }
        Ok(Ending::Complete)
    }

    fn due(&self, stop: bool) -> Due {
        let (step, train) = (self.progress.steps, &self.model.recipe.train);
        let is_due = |every: u32| every > 0 && step.is_multiple_of(every);
        let last = step == self.phase.end;
        let validation = is_due(train.validate_every) || (train.validate_every > 0 && last);
        let checkpoint = is_due(train.checkpoint_every) || validation || last || stop;
        Due { report: is_due(train.report_every) || checkpoint, validation, checkpoint }
    }

    fn steps_until_due(&self, most: u32, end: u32) -> u32 {
        let (step, train) = (self.progress.steps, &self.model.recipe.train);
        let every = [train.report_every, train.validate_every, train.checkpoint_every];
        let until = every.into_iter().filter(|&every| every > 0).map(|every| every - step % every);
        until.chain([most, end - step]).min().unwrap_or(1)
    }

    /// Makes some steps, checks their loss, and returns their number.
    fn advance(&mut self, until: u32, supply: &mut Option<Supply>, memory: &mut Memory) -> Result<u32> {
        let begun = Instant::now();
        let most = self.exchange.most(self.progress.steps, memory.is_asynchronous());
        let count = self.steps_until_due(most, until);
        match ranks::job().filter(|_| memory.is_asynchronous()) {
            None => self.run_steps(count, supply, memory)?,
            // On a GPU, another thread may sum over ranks: ranks exchange nothing else until the steps are done.
            Some(ranks) => {
                ranks.watch(true);
                let made = self.run_steps(count, supply, memory).and_then(|()| self.program.wait());
                ranks.watch(false);
                made?;
            }
        }
        self.progress.steps += count;
        self.check_loss(memory)?;
        if self.progress.steps == self.phase.first + 1 {
            self.progress.loop_state.first_loss = memory.read_f64("train.loss")?.first().copied();
        }
        self.progress.time.steps += begun.elapsed().as_secs_f64();
        Ok(count)
    }

    fn run_steps(&mut self, count: u32, supply: &mut Option<Supply>, memory: &mut Memory) -> Result<()> {
        let Some(supply) = supply else { return self.program.run_many(memory, count as usize) };
        for _ in 0..count {
            supply.deliver(memory)?;
            self.program.run(memory)?;
        }
        Ok(())
    }

    /// Reads the loss on the CPU, where this costs nothing, so that the first loss that is not finite is found.
    fn check_loss(&mut self, memory: &Memory) -> Result<()> {
        if memory.is_asynchronous() {
            return Ok(());
        }
        let step = self.progress.steps;
        let sum = memory.read_f64("train.loss")?[0];
        let loss = (sum - self.recent.sum) / f64::from((step - self.recent.step).max(1));
        if !sum.is_finite() {
            return Err(self.diverged(loss, memory)?);
        }
        self.recent = Recent { step, loss: Some(loss), gradient: self.gradient(memory)?, sum };
        Ok(())
    }

    /// Creates a report, with a validation if `validate` is set, and writes it to the log.
    fn report(&mut self, validate: bool, memory: &mut Memory) -> Result<StepReport> {
        let (step, recipe, (then, before)) = (self.progress.steps, &self.model.recipe, self.reported);
        // Reading waits until a GPU has finished its steps.
        let sum = timed(&mut self.progress.time.steps, || memory.read_f64("train.loss"))?[0];
        let loss = sum / f64::from(step - before);
        memory.write("train.loss", Data::F32(&[0.0]))?;
        let growth = if is_early(step, recipe) { GROWTH[0] } else { GROWTH[1] };
        let bound = growth * self.progress.loop_state.first_loss.get_or_insert(loss).max(1e-6);
        if !loss.is_finite() || loss > bound {
            return Err(self.diverged(loss, memory)?);
        }
        self.progress.loop_state.loss = Some(loss);
        if memory.is_asynchronous() {
            self.recent = Recent { step, loss: Some(loss), gradient: self.gradient(memory)?, sum: 0.0 };
        }
        self.recent.sum = 0.0;
        let steps_per_second = f64::from(step - before) / then.elapsed().as_secs_f64();
        let validation = match validate {
            true => timed(&mut self.progress.time.validation, || self.validation.error(memory))?,
            false => None,
        };
        let (learning_rate, steps) = (self.rate()?, recipe.total_steps());
        let miss = self.missed.take();
        let report = StepReport { step, steps, loss, learning_rate, steps_per_second, validation, miss };
        self.log.write(&report)?;
        self.progress.history.push(report);
        self.reported = (Instant::now(), step);
        Ok(report)
    }

    /// Returns whether the validation error of a report is the lowest so far. If so, the weights are kept.
    fn judge(&mut self, report: &StepReport, memory: &Memory) -> Result<bool> {
        let Some(error) = report.validation else { return Ok(false) };
        let improved = error.is_finite() && self.progress.best.is_none_or(|(lowest, _)| error < lowest);
        if improved {
            self.progress.best = Some((error, report.step));
            self.kept = Some(Kept::of(memory, report.step)?);
        }
        let stale = &mut self.progress.loop_state.stale;
        *stale = if improved { 0 } else { *stale + 1 };
        Ok(improved)
    }

    /// Writes a checkpoint, which `best` marks as the best one.
    fn save(&mut self, best: bool, memory: &Memory) -> Result<()> {
        ranks::check_weights(memory)?;
        let Some(checkpoints) = self.checkpoints else { return ranks::agree(Ok(())) };
        let state = State::new(self.model, &self.progress);
        let save = || checkpoints.save(memory, state, best);
        ranks::agree(timed(&mut self.progress.time.checkpoints, save))?;
        self.saved = true;
        Ok(())
    }

    /// Returns whether training was interrupted, and whether the first checkpoint is due.
    fn signals(&self) -> Signals {
        let stop = self.interrupt.is_some_and(|flag| flag.load(Ordering::Relaxed));
        let due = !self.saved && self.started.elapsed() >= FIRST_CHECKPOINT;
        Signals { stop, overdue: due && self.checkpoints.is_some() }
    }

    fn rate(&self) -> Result<f64> {
        let adam = self.phase.method.recipe.train.adam()?;
        Ok(adam.learning_rate * adam.schedule.factor(self.progress.steps - 1 - self.phase.first))
    }

    /// Returns the norm of the latest gradient, if gradients are clipped.
    fn gradient(&self, memory: &Memory) -> Result<Option<f64>> {
        let clips = self.phase.method.recipe.train.clip > 0.0;
        clips.then(|| Ok(memory.read_f64(GRADIENT)?[0])).transpose()
    }

    /// Returns the error for a loss that is not finite or too large.
    fn diverged(&self, loss: f64, memory: &Memory) -> Result<CfoError> {
        let (step, recent) = (self.progress.steps, self.recent);
        let good = self.checkpoints.filter(|checkpoints| checkpoints.exist());
        let last_good = good.map(|_| "checkpoints/latest".to_owned());
        let losses = self.progress.history.iter().map(|report| report.loss).chain(recent.loss);
        let seen = Divergence {
            after: recent.step.min(step - 1),
            loss_before: recent.loss.filter(|_| recent.step < step),
            lowest_loss: losses.reduce(f64::min),
            gradient: [recent.gradient, self.gradient(memory)?],
            rate: self.rate()?,
            weights: count_weights(memory)?,
            ..Divergence::default()
        };
        Ok(CfoError::Diverged { step, loss, seen: Box::new(seen), last_good })
    }
}
