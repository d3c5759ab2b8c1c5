//! The steps of a training: made, reported, judged, saved.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use cfo_engine::{Data, Memory};

use super::compiled::CompiledStep;
use super::divergence::{GRADIENT, count_weights};
use super::pace::{Pace, Signs};
use super::stage::Stage;
use super::supply::Supply;
use super::validation::Validation;
use super::weights::Kept;
use super::{Observer, is_early, is_finished};
use crate::error::{CfoError, Divergence, Result};
use crate::model::Model;
use crate::ranks;
use crate::recipe::Recipe;
use crate::run::checkpoint::{Checkpoints, Course, State};
use crate::run::{Ending, Log, Outcome, StepReport, WallTime, timed};

/// Growth of the loss, against that of the first step, that counts as divergence among the first reports, and later.
const GROWTH: [f64; 2] = [1e3, 1e6];
/// The first checkpoint comes after so long, whatever the recipe says about later ones.
const FIRST_CHECKPOINT: Duration = Duration::from_secs(2);

/// A training under way.
pub(super) struct Run<'a> {
    /// The model that checkpoints hold.
    pub model: &'a Arc<Model>,
    /// Which steps are made, and by which rule.
    pub stage: &'a Stage,
    pub fingerprint: String,
    pub checkpoints: Option<&'a Checkpoints>,
    pub program: CompiledStep,
    pub validation: Validation<'a>,
    pub log: Log,
    /// Every report so far.
    pub history: Vec<StepReport>,
    /// Warnings about the data.
    pub warnings: Vec<String>,
    pub best: Option<(f64, u32)>,
    /// The weights of the lowest validation error.
    pub kept: Option<Kept>,
    pub course: Course,
    /// What the latest steps had, as far as they are looked at one by one.
    pub latest: Latest,
    /// Whether there is a checkpoint.
    pub saved: bool,
    pub started: Instant,
    /// When the last report was, and at which step.
    pub since: (Instant, u32),
    pub pace: Pace,
    pub interrupt: Option<&'a AtomicBool>,
    pub observer: &'a mut dyn Observer,
    /// Where the wall time went so far.
    pub time: WallTime,
}

/// What was read after the latest steps.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Latest {
    /// The step that was looked at last.
    pub step: u32,
    /// Its loss, or the mean of those since the look before.
    pub loss: Option<f64>,
    /// The norm of its gradient.
    pub gradient: Option<f64>,
    /// The sum of losses since the last report.
    pub sum: f64,
}

impl Run<'_> {
    /// Trains from a step on; returns the last one made, and why it was.
    pub fn steps(
        &mut self,
        first: u32,
        mut supply: Option<Supply>,
        memory: &mut Memory,
    ) -> Result<(u32, Ending)> {
        let (mut step, recipe) = (first, &self.model.recipe);
        let steps = self.stage.end;
        let due = |step: u32, every: u32| every > 0 && step.is_multiple_of(every);
        while step < steps {
            let chunk = chunk((step, steps), recipe, self.pace.most(step, memory.is_asynchronous()));
            let begun = Instant::now();
            self.advance(chunk, &mut supply, memory)?;
            step += chunk;
            self.look(step, memory)?;
            if step == self.stage.first + 1 {
                self.course.first_loss = memory.read_f64("train.loss")?.first().copied();
            }
            self.time.steps += begun.elapsed().as_secs_f64();
            let Signs { stop, overdue } = self.pace.agree(self.signs(), chunk);
            let last = step == steps || stop;
            let every = recipe.train.validate_every;
            let validate = due(step, every) || (every > 0 && step == steps);
            let checkpoint = due(step, recipe.train.checkpoint_every) || validate || last;
            if !(due(step, recipe.train.report_every) || checkpoint) {
                if overdue {
                    self.save(step, false, memory)?;
                }
                continue;
            }
            let report = self.report(step, validate, memory)?;
            let improved = self.judge(&report, memory)?;
            let ends = self.observer.report(&report).is_break();
            let ends = ranks::from_first(ends)?;
            let finished = is_finished(step, &self.course, recipe);
            // A validation may have been interrupted, and takes time.
            let Signs { stop: late, overdue } = self.pace.again(self.signs());
            let stop = stop || late;
            if checkpoint || ends || finished || overdue {
                self.save(step, improved, memory)?;
            }
            if step < steps && (stop || finished || ends) {
                return match finished {
                    true => Ok((step, Ending::Patience)),
                    false if stop => Err(CfoError::Interrupted { step }),
                    false => Ok((step, Ending::Observer)),
                };
            }
        }
        Ok((step, Ending::Complete))
    }

    /// What the training came to.
    pub fn outcome(self, steps: u32, ending: Ending) -> (Outcome, Option<Kept>) {
        let outcome = Outcome {
            steps,
            ending,
            seconds: self.started.elapsed().as_secs_f64(),
            time: self.time,
            fingerprint: self.fingerprint,
            best: self.best,
            course: self.course,
            history: self.history,
            warnings: self.warnings,
        };
        (outcome, self.kept)
    }

    /// Whether a stop was asked for from outside, and whether a first checkpoint is due.
    fn signs(&self) -> Signs {
        let stop = self.interrupt.is_some_and(|flag| flag.load(Ordering::Relaxed));
        let due = !self.saved && self.started.elapsed() >= FIRST_CHECKPOINT;
        Signs { stop, overdue: due && self.checkpoints.is_some() }
    }

    /// Makes some steps.
    fn advance(&mut self, chunk: u32, supply: &mut Option<Supply>, memory: &mut Memory) -> Result<()> {
        let Some(ranks) = ranks::job().filter(|_| memory.is_asynchronous()) else {
            return self.run_steps(chunk, supply, memory);
        };
        // The steps of a GPU may sum over ranks from another thread: nothing else is asked of these before they are done.
        ranks.watch(true);
        let made = self.run_steps(chunk, supply, memory).and_then(|()| self.program.wait());
        ranks.watch(false);
        made
    }

    fn run_steps(&mut self, chunk: u32, supply: &mut Option<Supply>, memory: &mut Memory) -> Result<()> {
        match supply {
            None => self.program.run_many(memory, chunk as usize)?,
            Some(supply) => {
                for _ in 0..chunk {
                    supply.deliver(memory)?;
                    self.program.run(memory)?;
                }
            }
        }
        Ok(())
    }

    /// What is known after a step; written into the log.
    fn report(&mut self, step: u32, validate: bool, memory: &mut Memory) -> Result<StepReport> {
        let (recipe, (then, before)) = (&self.model.recipe, self.since);
        // Reading waits for the steps of a GPU.
        let sum = timed(&mut self.time.steps, || memory.read_f64("train.loss"))?[0];
        let loss = sum / f64::from(step - before);
        memory.write("train.loss", Data::F32(&[0.0]))?;
        let growth = if is_early(step, recipe) { GROWTH[0] } else { GROWTH[1] };
        let bound = growth * self.course.first_loss.get_or_insert(loss).max(1e-6);
        if !loss.is_finite() || loss > bound {
            return Err(self.diverged(step, loss, memory)?);
        }
        self.course.loss = Some(loss);
        if memory.is_asynchronous() {
            self.latest = Latest { step, loss: Some(loss), gradient: self.gradient(memory)?, sum: 0.0 };
        }
        self.latest.sum = 0.0;
        let steps_per_second = f64::from(step - before) / then.elapsed().as_secs_f64();
        let validation = match validate {
            true => timed(&mut self.time.validation, || self.validation.error(memory))?,
            false => None,
        };
        let learning_rate = self.rate(step)?;
        let steps = recipe.total_steps();
        let report = StepReport { step, steps, loss, learning_rate, steps_per_second, validation };
        self.log.write(&report)?;
        self.history.push(report);
        self.since = (Instant::now(), step);
        Ok(report)
    }

    /// Looks at the loss after each step, so that the first one that is not finite is known. On the CPU this costs nothing.
    fn look(&mut self, step: u32, memory: &Memory) -> Result<()> {
        if memory.is_asynchronous() {
            return Ok(());
        }
        let sum = memory.read_f64("train.loss")?[0];
        let loss = (sum - self.latest.sum) / f64::from((step - self.latest.step).max(1));
        if !sum.is_finite() {
            return Err(self.diverged(step, loss, memory)?);
        }
        self.latest = Latest { step, loss: Some(loss), gradient: self.gradient(memory)?, sum };
        Ok(())
    }

    /// The learning rate of a step.
    fn rate(&self, step: u32) -> Result<f64> {
        let adam = self.stage.method.recipe.train.adam()?;
        Ok(adam.learning_rate * adam.schedule.factor(step - 1 - self.stage.first))
    }

    /// The norm of the latest gradient, where gradients are clipped.
    fn gradient(&self, memory: &Memory) -> Result<Option<f64>> {
        let clips = self.stage.method.recipe.train.clip > 0.0;
        clips.then(|| Ok(memory.read_f64(GRADIENT)?[0])).transpose()
    }

    /// The error of a loss that is not finite or has no bound.
    fn diverged(&self, step: u32, loss: f64, memory: &Memory) -> Result<CfoError> {
        let good = self.checkpoints.filter(|checkpoints| checkpoints.exist());
        let last_good = good.map(|_| "checkpoints/latest".to_owned());
        let losses = self.history.iter().map(|report| report.loss).chain(self.latest.loss);
        let seen = Divergence {
            after: self.latest.step.min(step - 1),
            loss_before: self.latest.loss.filter(|_| self.latest.step < step),
            lowest_loss: losses.reduce(f64::min),
            gradient: [self.latest.gradient, self.gradient(memory)?],
            rate: self.rate(step)?,
            weights: count_weights(memory)?,
            ..Divergence::default()
        };
        Ok(CfoError::Diverged { step, loss, seen: Box::new(seen), last_good })
    }

    /// Whether a validation error is the lowest so far, whose weights are kept; counts those that are not.
    fn judge(&mut self, report: &StepReport, memory: &Memory) -> Result<bool> {
        let Some(error) = report.validation else { return Ok(false) };
        let improved = error.is_finite() && self.best.is_none_or(|(lowest, _)| error < lowest);
        if improved {
            self.best = Some((error, report.step));
            self.kept = Some(Kept::of(memory, report.step)?);
        }
        self.course.stale = if improved { 0 } else { self.course.stale + 1 };
        Ok(improved)
    }

    /// Writes a checkpoint, and marks it as the best if it is.
    fn save(&mut self, step: u32, best: bool, memory: &Memory) -> Result<()> {
        ranks::check_weights(memory)?;
        let Some(checkpoints) = self.checkpoints else { return ranks::agree(Ok(())) };
        let state = State::new(self.model, step, &self.fingerprint, self.best, self.course);
        ranks::agree(timed(&mut self.time.checkpoints, || checkpoints.save(memory, state, best)))?;
        self.saved = true;
        Ok(())
    }
}

/// Steps until something is due, and no more than are worth waiting for before looking at the interrupt again.
fn chunk((step, end): (u32, u32), recipe: &Recipe, most: u32) -> u32 {
    let train = &recipe.train;
    let dues = [train.report_every, train.validate_every, train.checkpoint_every];
    let until = dues.into_iter().filter(|&every| every > 0).map(|every| every - step % every);
    until.chain([most, end - step]).min().unwrap_or(1)
}
