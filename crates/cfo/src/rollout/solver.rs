//! How the learned field is integrated: by which method, in how long steps.

use cfo_numerics::ode::{Controller, RK4, TSIT5, Tableau};

use crate::error::{CfoError, Result};
use crate::recipe::EvaluateConfig;

/// Attempts of an adaptive rollout before it is given up. Rollouts that work take some hundred.
const MOST_ATTEMPTS: u64 = 10_000;

/// How the learned field is integrated.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Solver {
    /// The Runge-Kutta method.
    pub tableau: Tableau,
    /// How long its steps are.
    pub budget: Budget,
}

/// How long a solver's steps are.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Budget {
    /// One step for each output interval; where that is longer than the intervals of the training data, as many as of those it holds.
    StepPerOutput,
    /// As few equal steps in each output interval as keep them no longer than this, in the user's units of time.
    StepAtMost(f64),
    /// At most so many network evaluations for the way from the start to the last output, and fewer by less than a step's: equal steps,
    /// outputs between them by dense output.
    Evaluations(usize),
    /// The same for a way as long as the horizon of the training data; a part of it takes a part, one step at least.
    EvaluationsPerHorizon(usize),
    /// As long as the tolerances allow, for each trajectory on its own; states between come from dense output. Tolerances are in the
    /// network's units, lengths of steps in the user's units of time; the first step is 1 % of the horizon unless the controller says otherwise.
    /// For methods that estimate their error.
    Adaptive(Controller),
}

impl Solver {
    /// Runge and Kutta's method of order 4, one step an output interval: the default.
    pub fn rk4() -> Self {
        Self { tableau: RK4, budget: Budget::StepPerOutput }
    }

    /// Tsitouras' method of order 5, with steps as long as these relative and absolute tolerances allow, in the network's units.
    ///
    /// # Errors
    /// If a tolerance is not positive.
    pub fn tsit5(relative: f64, absolute: f64) -> Result<Self> {
        Self::adaptive(TSIT5, relative, absolute)
    }

    /// The same in so many network evaluations at most for the way to the last output: equal steps, outputs between them by dense output.
    #[must_use]
    pub fn evaluations(self, count: usize) -> Self {
        Self { budget: Budget::Evaluations(count), ..self }
    }

    /// The same in equal steps no longer than this, in the user's units of time.
    #[must_use]
    pub fn step_at_most(self, length: f64) -> Self {
        Self { budget: Budget::StepAtMost(length), ..self }
    }

    /// The Runge-Kutta method of a name.
    ///
    /// # Errors
    /// If there is none; the known ones are then named.
    pub fn method(name: &str) -> Result<Tableau> {
        Tableau::by_name(name).ok_or_else(|| CfoError::UnknownChoice {
            key: "evaluate.solver".into(),
            found: name.into(),
            known: Tableau::ALL.iter().map(|tableau| tableau.name.into()).collect(),
        })
    }

    /// From a recipe's keys.
    ///
    /// # Errors
    /// If the budget is too small for one step.
    pub fn from_config(config: &EvaluateConfig) -> Result<Self> {
        let tableau = config.solver;
        let budget = match config.nfe {
            0 if tableau.first_same_as_last => return Self::adaptive(tableau, config.rtol, config.atol),
            0 => Budget::StepPerOutput,
            nfe if nfe < tableau.stages() => {
                let needed = tableau.stages();
                return Err(invalid(
                    "nfe",
                    format!("a budget of {nfe} allows no step of `{}`, which takes {needed}", tableau.name),
                ));
            }
            nfe => Budget::Evaluations(nfe),
        };
        Ok(Self { tableau, budget })
    }

    /// Steps chosen by tolerances, relative and absolute in the network's units.
    ///
    /// # Errors
    /// If the method does not estimate its error, or a tolerance is not positive.
    pub fn adaptive(tableau: Tableau, rtol: f64, atol: f64) -> Result<Self> {
        let positive = |value: f64| value >= 0.0 && value.is_finite();
        if !positive(rtol) || !positive(atol) || rtol + atol <= 0.0 {
            return Err(invalid("rtol", format!("tolerances {rtol} and {atol} are not positive")));
        }
        if !tableau.estimates_error() {
            let problem =
                format!("`{}` does not estimate its error, so it takes no tolerances", tableau.name);
            return Err(invalid("solver", problem));
        }
        let controller = Controller { max_steps: MOST_ATTEMPTS, ..Controller::new(rtol, atol) };
        Ok(Self { tableau, budget: Budget::Adaptive(controller) })
    }
}

pub(super) fn invalid(key: &str, problem: String) -> CfoError {
    CfoError::InvalidKey { key: format!("evaluate.{key}"), problem }
}
