//! A trained network as an experiment measures it: its rollouts, and the course of its training.

use std::sync::atomic::AtomicBool;

use anyhow::Result;
use cfo::data::{Split, Trajectory};
use cfo::{Recipe, Report, Request, Solver, StepReport, Trained, Trajectories, Watch};

pub(crate) struct TrainedRun<'a> {
    pub trained: Trained,
    /// Whole trajectories, whatever part of the horizon was trained on.
    pub set: &'a Trajectories,
    /// Step and mean loss of every report before fine-tuning, whose loss is another.
    pub losses: Vec<(f64, f64)>,
    /// Seconds of training until each report, validation not counted.
    pub clock: Vec<f64>,
    /// Seconds of training, validation not counted.
    pub seconds: f64,
    interrupt: &'a AtomicBool,
}

impl<'a> TrainedRun<'a> {
    /// Creates it, with the losses and times of the run's log.
    pub fn new(trained: Trained, set: &'a Trajectories, interrupt: &'a AtomicBool) -> Self {
        let reports = trained.history();
        let before = reports.iter().filter(|report| report.step <= trained.recipe().train.steps);
        let losses = before.map(|report| (f64::from(report.step), report.loss)).collect();
        let clock = clock(reports);
        let seconds = clock.last().copied().unwrap_or(0.0);
        Self { trained, set, losses, clock, seconds, interrupt }
    }

    /// The test trajectories.
    pub fn test(&self) -> Vec<&Trajectory> {
        self.set.part(Split::Test).map(|(_, trajectory)| trajectory).collect()
    }

    /// The test trajectories from the first snapshot that is predicted from, over all their later times.
    pub fn request(&self) -> Request {
        let (size, first) = (self.trained.model().shape().len(), usize::from(self.recipe().data.drop_first));
        let mut request = Request::default();
        for trajectory in self.test() {
            request.start.push(trajectory.times[first]);
            request.states.push(trajectory.values[first * size..(first + 1) * size].to_vec());
            request.times.push(trajectory.times[first + 1..].to_vec());
            request.inputs.push(trajectory.inputs.clone());
        }
        request
    }

    /// The predicted snapshots of every test trajectory, from the snapshot where predictions start; if one diverged, those before.
    pub fn predictions(&self) -> Result<Vec<Vec<f32>>> {
        let request = self.request();
        let mut found = self.trained.predict_each(&request, &self.watch())?.states;
        for (states, first) in found.iter_mut().zip(&request.states) {
            states.splice(0..0, first.iter().copied());
        }
        Ok(found)
    }

    /// Steps from the first snapshot that is predicted from to the last: the evaluations of a next-step prediction.
    pub fn intervals(&self) -> usize {
        let first = usize::from(self.recipe().data.drop_first);
        self.set.trajectories.iter().map(|trajectory| trajectory.times.len() - 1 - first).max().unwrap_or(0)
    }

    /// Rollouts of the test trajectories as the recipe asks; nothing if one of them diverges.
    pub fn evaluate(&self) -> Result<Option<Report>> {
        self.evaluate_with(self.trained.solver())
    }

    /// Rollouts of the test trajectories by a solver; nothing if one of them diverges.
    pub fn evaluate_with(&self, solver: Solver) -> Result<Option<Report>> {
        let trained = self.trained.with_solver(solver);
        let report = trained.evaluate_each(&self.set.test(), false, self.watch())?;
        // The states are not used, and would stay in memory with the report.
        Ok(report.diverged.is_empty().then_some(Report { worst: None, ..report }))
    }

    /// Lets Ctrl-C end its rollouts.
    pub fn watch(&self) -> Watch<'_> {
        Watch::default().with_interrupt(self.interrupt)
    }

    /// The recipe it was trained with.
    pub fn recipe(&self) -> &Recipe {
        self.trained.recipe()
    }
}

/// Seconds until each report of a run, without the pauses between its attempts.
fn clock(reports: &[StepReport]) -> Vec<f64> {
    let before = std::iter::once(0).chain(reports.iter().map(|report| report.step));
    let between = reports
        .iter()
        .zip(before)
        .map(|(report, before)| f64::from(report.step.saturating_sub(before)) / report.steps_per_second);
    between
        .scan(0.0, |total, seconds| {
            *total += seconds;
            Some(*total)
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use cfo::CfoError;

    #[test]
    fn an_interrupt_ends_rollouts() {
        let equation = cfo::data::simulate::Lorenz { frames: 11, horizon: 0.1, ..Default::default() };
        let set = Trajectories::simulate(&equation, 10, 0, &AtomicBool::new(false)).unwrap();
        let trained = cfo::Training::new(cfo::operator::Mlp::default()).steps(1).batch(4).fit(&set).unwrap();
        let interrupt = AtomicBool::new(false);
        let outcome = TrainedRun {
            trained,
            set: &set,
            losses: vec![],
            clock: vec![],
            seconds: 0.0,
            interrupt: &interrupt,
        };
        assert!(outcome.evaluate().unwrap().is_some());
        interrupt.store(true, std::sync::atomic::Ordering::Relaxed);
        let ended = outcome.evaluate().unwrap_err();
        assert!(matches!(ended.downcast_ref(), Some(CfoError::RolloutInterrupted)), "{ended}");
        assert!(outcome.trained.predict_each(&outcome.request(), &outcome.watch()).is_err());
    }

    #[test]
    fn seconds_count_every_step_once() {
        let logged = |step, steps_per_second| StepReport {
            step,
            steps: 150,
            loss: 0.0,
            learning_rate: 1e-3,
            steps_per_second,
            validation: None,
            miss: None,
        };
        assert_eq!(clock(&[logged(100, 10.0), logged(150, 25.0)]), [10.0, 12.0]);
        assert!(clock(&[]).is_empty());
    }
}
