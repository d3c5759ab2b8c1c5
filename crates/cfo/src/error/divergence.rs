//! Diagnosis of a training or a rollout that diverged, and the advice that follows.

use std::fmt;

use serde::{Deserialize, Serialize};

/// Growth at which the learning rate is the likely cause: of the loss over its lowest value, or of the gradient over the previous one.
const GROWN: f64 = 10.0;
/// A learning rate above this ruins any network in one step, because Adam changes every weight by about the learning rate per step.
const STEEP_RATE: f64 = 0.1;
/// Velocities above this multiple of their root mean square are errors of the data rather than motion.
const SPIKE: f64 = 1e4;

/// Diagnostics of a diverged training run: the loss became NaN or infinite, or grew without bound.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Divergence {
    /// The last step whose loss is known to be finite.
    pub after: u32,
    /// Mean loss when it was last finite.
    pub loss_before: Option<f64>,
    /// The lowest mean loss so far.
    pub lowest_loss: Option<f64>,
    /// Norms of the gradient in the last step with a finite loss and in the step that failed. They are known if gradients are clipped.
    pub gradient: [Option<f64>; 2],
    /// Number of weights that are not finite, and of all weights.
    pub weights: [usize; 2],
    /// The batch of the step that failed, where that step is known.
    pub batch: Option<BatchSize>,
    /// The learning rate of the step that failed.
    pub rate: f64,
    /// Whether an adaptive solver found no step size small enough. In this case there is no loss.
    pub no_step: bool,
}

/// The magnitude of the numbers in a batch.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct BatchSize {
    /// Whether all its numbers are finite.
    pub finite: bool,
    /// Largest velocity in units of the channel's root mean square velocity, if the batch has velocities.
    pub velocity: Option<f64>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Cause {
    /// Numbers in the data, or the path through them.
    Data,
    /// The learning rate: losses or gradients grew.
    Rate,
    /// The learning rate, since a solver found no step size small enough.
    Steep,
    Unknown,
}

impl Divergence {
    fn cause(&self, step: u32, loss: f64) -> Cause {
        let grew = |now: Option<f64>, then: Option<f64>| matches!((now, then), (Some(now), Some(then)) if now > GROWN * then);
        match self.batch {
            _ if self.no_step => Cause::Steep,
            Some(BatchSize { finite: false, .. }) => Cause::Data,
            Some(BatchSize { velocity: Some(velocity), .. }) if velocity > SPIKE => Cause::Data,
            // No weight has changed before the first step.
            _ if step <= 1 => Cause::Unknown,
            _ if self.rate > STEEP_RATE => Cause::Rate,
            _ if loss.is_finite() || grew(self.loss_before, self.lowest_loss) => Cause::Rate,
            _ if grew(self.gradient[1].filter(|norm| !norm.is_nan()), self.gradient[0]) => Cause::Rate,
            _ if loss == f64::INFINITY => Cause::Rate,
            _ => Cause::Unknown,
        }
    }

    /// Returns whether a lower learning rate can help. At the first step it cannot, because no weight has changed.
    pub(crate) fn depends_on_rate(&self, step: u32) -> bool {
        step > 1
    }

    pub(crate) fn hint(&self, step: u32, loss: f64, last_good: Option<&str>) -> String {
        let clip =
            if self.gradient[0].or(self.gradient[1]).is_some() { "" } else { " or set `train.clip = 1`" };
        let advice = match self.cause(step, loss) {
            Cause::Data => "check the data: `cfo inspect FILE` shows values that are not finite, jumps, and times that nearly \
                            coincide; correct or remove those snapshots. A large `path.noise.amplitude` has the same effect"
                .to_owned(),
            Cause::Rate => format!("lower `train.learning_rate`{clip}"),
            Cause::Steep => format!("lower `train.learning_rate`{clip}, or loosen the solver's tolerances"),
            Cause::Unknown => "neither the loss nor the gradient had grown, so the learning rate is probably not the cause: try \
                               `train.precision = \"f32\"` if it is lower, and another `train.seed`; if it happens again, please \
                               report it with the recipe"
                .to_owned(),
        };
        match last_good {
            Some(name) => format!("{advice}; `{name}` is the last good checkpoint"),
            None => advice,
        }
    }

    /// Returns a description of what happened.
    pub(crate) fn text(&self, step: u32, loss: f64) -> String {
        if self.no_step {
            return format!(
                "the solver found no step size small enough at training step {step}: the learned field has become too steep{self}"
            );
        }
        let place = match step.saturating_sub(self.after) {
            0 | 1 => format!("at step {step}"),
            _ => format!("between steps {} and {step}", self.after + 1),
        };
        format!("the loss became {loss} {place}{self}")
    }
}

impl fmt::Display for Divergence {
    /// Writes the observations as the rest of a sentence.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut facts = Vec::new();
        if let Some(loss) = self.loss_before {
            facts.push(match self.lowest_loss.filter(|lowest| *lowest < loss) {
                Some(lowest) => format!("the loss was {loss:.3e} before and {lowest:.3e} at its lowest"),
                None => format!("the loss was {loss:.3e} before"),
            });
        }
        match self.gradient {
            [Some(before), Some(now)] => {
                facts.push(format!("the norm of the gradient went from {before:.3e} to {now:.3e}"));
            }
            [Some(norm), None] | [None, Some(norm)] => {
                facts.push(format!("the norm of the gradient was {norm:.3e}"))
            }
            [None, None] => {}
        }
        match self.batch {
            Some(BatchSize { finite: false, .. }) => {
                facts.push("the batch has numbers that are not finite".into())
            }
            Some(BatchSize { velocity: Some(velocity), .. }) => {
                facts.push(format!(
                    "the batch is finite, with velocities up to {velocity:.2e} times their root mean square"
                ));
            }
            Some(BatchSize { velocity: None, .. }) => facts.push("the batch is finite".into()),
            None => {}
        }
        match self.weights {
            [_, 0] => {}
            [0, _] => facts.push("all weights are finite".into()),
            [bad, all] => facts.push(format!("{bad} of {all} weights are no longer finite")),
        }
        match facts.is_empty() {
            true => Ok(()),
            false => write!(f, ": {}", facts.join("; ")),
        }
    }
}

/// The reason why an integration ended early.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Halt {
    /// The state or its velocity is no longer a finite number.
    NotFinite,
    /// The tolerances need steps below the resolution of time.
    StepTooSmall,
    /// More steps were attempted than allowed.
    TooManySteps,
}

impl fmt::Display for Halt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NotFinite => "became infinite or undefined",
            Self::StepTooSmall => "needs steps below the resolution of time",
            Self::TooManySteps => "took too many steps",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen() -> Divergence {
        let batch = Some(BatchSize { finite: true, velocity: Some(4.1) });
        Divergence {
            after: 1475,
            loss_before: Some(2e-3),
            lowest_loss: Some(1.9e-3),
            gradient: [Some(0.8), Some(f64::NAN)],
            weights: [100, 100],
            batch,
            rate: 1e-3,
            no_step: false,
        }
    }

    /// Checks that the advice names the learning rate only if the loss or the gradient grew.
    #[test]
    fn advice_follows_what_was_seen() {
        let quiet = seen();
        assert!(
            !quiet.hint(1476, f64::NAN, None).contains("train.learning_rate"),
            "{}",
            quiet.hint(1476, f64::NAN, None)
        );
        let text = quiet.text(1476, f64::NAN);
        for part in ["at step 1476", "2.000e-3 before", "8.000e-1", "4.10e0 times", "100 of 100 weights"] {
            assert!(text.contains(part), "{text}");
        }
        let grown = Divergence { loss_before: Some(1.0), ..seen() };
        assert!(grown.hint(1476, f64::NAN, None).contains("lower `train.learning_rate`"));
        let steep = Divergence { gradient: [Some(0.8), Some(80.0)], ..seen() };
        assert!(steep.hint(1476, f64::NAN, Some("checkpoints/latest")).contains("last good checkpoint"));
        assert!(seen().hint(1476, 1e9, None).contains("lower `train.learning_rate`"));
        for batch in
            [BatchSize { finite: false, velocity: None }, BatchSize { finite: true, velocity: Some(1e7) }]
        {
            let spike = Divergence { batch: Some(batch), ..grown.clone() };
            let hint = spike.hint(1476, f64::NAN, None);
            assert!(hint.contains("cfo inspect") && !hint.contains("learning_rate"), "{hint}");
        }
        // No weight has changed before the first step.
        assert!(!grown.hint(1, f64::NAN, None).contains("lower `train.learning_rate`"));
        // Without clipping the gradient is unknown, and a single step may ruin the weights.
        let at_once = Divergence { gradient: [None; 2], rate: 1e6, ..seen() };
        assert!(at_once.hint(2, f64::NAN, None).contains("lower `train.learning_rate`"));
        let unclipped = Divergence { gradient: [None; 2], ..grown };
        assert!(unclipped.hint(1476, f64::NAN, None).contains("train.clip"));
        assert!(
            Divergence { after: 1400, ..seen() }.text(1500, f64::NAN).contains("between steps 1401 and 1500")
        );
    }
}
