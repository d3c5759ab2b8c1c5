//! The progress of a training.

use super::checkpoint::{LoopState, State};
use super::{StepReport, WallTime};

/// The progress of a training: everything but the weights.
#[derive(Clone, Debug)]
pub(crate) struct Progress {
    /// Number of steps, including those before the run was resumed.
    pub(crate) steps: u32,
    pub(crate) ending: Ending,
    pub(crate) seconds: f64,
    pub(crate) time: WallTime,
    pub(crate) fingerprint: String,
    /// Lowest validation error, with its step.
    pub(crate) best: Option<(f64, u32)>,
    /// The rest of the state of the training loop.
    pub(crate) loop_state: LoopState,
    pub(crate) history: Vec<StepReport>,
    /// Warnings about the data, if this process trained.
    pub(crate) warnings: Vec<String>,
}

impl Progress {
    /// Creates the progress before the first step, with the number of times that the learning rate was halved.
    pub(crate) fn start(halvings: u32) -> Self {
        Self {
            steps: 0,
            ending: Ending::Complete,
            seconds: 0.0,
            time: WallTime::default(),
            fingerprint: String::new(),
            best: None,
            loop_state: LoopState { halvings, ..LoopState::default() },
            history: Vec::new(),
            warnings: Vec::new(),
        }
    }

    pub(crate) fn of(state: &State, history: Vec<StepReport>) -> Self {
        Self {
            steps: state.step,
            ending: Ending::Earlier,
            fingerprint: state.data_fingerprint.clone(),
            best: state.best,
            loop_state: state.loop_state,
            history,
            ..Self::start(0)
        }
    }

    /// Returns warnings about a trained model. A relative loss is 1 for a network that predicts no change.
    pub(crate) fn doubts(&self, relative: bool) -> Vec<String> {
        let loss = self.loop_state.loss.filter(|loss| relative && *loss > 1.0).map(|loss| {
            format!(
                "training ended with a loss of {loss:.3e}, but a network that predicts no change has 1: nothing was learned. \
                 Check the data with `cfo inspect`, train for more steps or lower `train.learning_rate`"
            )
        });
        let last = self.history.iter().rev().find_map(|report| report.validation);
        // A relative error of 1 is that of predicting 0 everywhere.
        let validation = last.filter(|error| error.is_nan() || *error >= 1.0).map(|error| {
            let found = match error.is_finite() {
                true => format!("the last relative validation error is {error:.3e}"),
                false => "a rollout of the last validation became infinite".to_owned(),
            };
            let best = match self.best {
                Some((lowest, step)) if lowest < 1.0 => {
                    format!("the lowest error was {lowest:.3e} after step {step}, whose weights are the best checkpoint")
                }
                _ => "predictions of this model over the whole horizon are useless".to_owned(),
            };
            format!("{found}: {best}")
        });
        loss.into_iter().chain(validation).collect()
    }
}

/// The reason why training ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// All steps were made.
    Complete,
    /// The validation error did not fall for `train.patience` validations.
    Patience,
    /// The observer ended it.
    Observer,
    /// The run was already finished: nothing was trained.
    Earlier,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ended(loss: f64, validations: &[Option<f64>], best: Option<(f64, u32)>) -> Vec<String> {
        let reports = validations.iter().zip(1..).map(|(&validation, step)| StepReport {
            step,
            steps: 9,
            loss,
            learning_rate: 1e-3,
            steps_per_second: 1.0,
            validation,
            miss: None,
        });
        let loop_state = LoopState { loss: Some(loss), ..LoopState::default() };
        let progress = Progress { best, loop_state, history: reports.collect(), ..Progress::start(0) };
        assert!(progress.doubts(false).len() <= progress.doubts(true).len());
        progress.doubts(true)
    }

    #[test]
    fn trainings_that_came_to_nothing_say_so() {
        assert!(ended(0.3, &[Some(0.2), None], Some((0.2, 1))).is_empty());
        assert!(ended(0.3, &[], None).is_empty());
        let loss = ended(3.2, &[Some(0.2)], Some((0.2, 1)));
        assert!(loss.len() == 1 && loss[0].contains("3.200e0"), "{loss:?}");
        let late = ended(0.3, &[Some(0.03), Some(2.5e6), None], Some((0.03, 1)));
        assert!(late.len() == 1 && late[0].contains("2.500e6") && late[0].contains("step 1"), "{late:?}");
        let never = ended(0.3, &[Some(f64::INFINITY)], None);
        assert!(never.len() == 1 && never[0].contains("infinite"), "{never:?}");
        assert_eq!(ended(2.0, &[Some(1.5)], Some((1.5, 1))).len(), 2);
    }
}
