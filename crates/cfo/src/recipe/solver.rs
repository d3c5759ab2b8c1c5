//! How the learned field is integrated: the method and its step sizes.

use cfo_numerics::ode::{Controller, RK4, TSIT5, Tableau};
use serde::{Deserialize, Serialize};

use super::Recipe;
use crate::error::{CfoError, Result};
use crate::objective::MotionKind;

/// A Runge-Kutta method with its step sizes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Solver {
    /// The Runge-Kutta method.
    pub tableau: Tableau,
    /// How its step sizes are chosen.
    pub budget: Budget,
}

/// How the step sizes of a solver are chosen.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Budget {
    /// One step per output interval; if that is longer than the intervals of the training data, one step per such interval.
    StepPerOutput,
    /// The smallest number of equal steps in each output interval whose length is at most this, in the user's unit of time.
    StepAtMost(f64),
    /// This many equal steps per mean interval of the training data, as in training through the solver. Steps end at outputs that
    /// are an interval or more apart; other outputs come from dense output.
    StepsPerInterval(usize),
    /// Exactly this many equal steps from the earliest to the latest time of a trajectory, including its start; outputs between steps come
    /// from dense output. If times are on both sides of the start, each side gets its share, at least one step.
    Steps(usize),
    /// The smallest number of equal steps, from the earliest to the latest time of a trajectory, of which none has more than this many outputs
    /// on average; outputs between steps come from dense output.
    OutputsPerStep(usize),
    /// As many equal steps as this number of network evaluations from the start to the last output allows; outputs between steps come from
    /// dense output.
    Evaluations(usize),
    /// At most this many network evaluations per horizon of the training data (its longest trajectory). A shorter time takes proportionally
    /// fewer, at least those of one step.
    EvaluationsPerHorizon(usize),
    /// Steps chosen by tolerances, separately for each trajectory; outputs between steps come from dense output. Tolerances are in
    /// normalised units, step sizes in the user's unit of time. The default of the first step is 1 % of the horizon. Needs a method that
    /// estimates its error.
    Adaptive(Controller),
}

impl Solver {
    /// Creates the classical Runge-Kutta method of order 4 with one step per output interval, as in the paper.
    pub fn rk4() -> Self {
        Self { tableau: RK4, budget: Budget::StepPerOutput }
    }

    /// Creates Tsitouras' method of order 5 with steps chosen by a relative and an absolute tolerance, in normalised units.
    ///
    /// # Errors
    /// If a tolerance is not positive.
    pub fn tsit5(relative: f64, absolute: f64) -> Result<Self> {
        Self::adaptive(TSIT5, relative, absolute)
    }

    /// Sets the largest number of network evaluations from the start to the last output ([`Budget::Evaluations`]).
    #[must_use]
    pub fn evaluations(self, count: usize) -> Self {
        Self { budget: Budget::Evaluations(count), ..self }
    }

    /// Sets the number of equal steps ([`Budget::Steps`]).
    #[must_use]
    pub fn steps(self, count: usize) -> Self {
        Self { budget: Budget::Steps(count), ..self }
    }

    /// Returns the Runge-Kutta method with this name.
    ///
    /// # Errors
    /// If the name is unknown; the error lists the known names.
    pub fn method(name: &str) -> Result<Tableau> {
        Tableau::by_name(name).ok_or_else(|| CfoError::UnknownChoice {
            key: "solver".into(),
            found: name.into(),
            known: Tableau::ALL.iter().map(|tableau| tableau.name.into()).collect(),
        })
    }

    /// Returns the solver for a recipe and a caller's options. The commands, the server, Python and [`Trained::with_options`] all use it.
    ///
    /// | given | meaning |
    /// |---|---|
    /// | nothing | the recipe's `[evaluate]` |
    /// | `solver` with an error estimate alone | adaptive, with the recipe's tolerances |
    /// | `solver` without one alone | the recipe's fixed steps; one per output interval if it has none |
    /// | `steps = N` | exactly N steps over the requested horizon |
    /// | `nfe = N` | at most N evaluations over the horizon of the training data |
    /// | `rtol` or `atol` | adaptive; the other tolerance is the recipe's. Without `solver`, `tsit5` replaces a recipe's method without an error estimate |
    ///
    /// [`Trained::with_options`]: crate::Trained::with_options
    ///
    /// # Errors
    /// If options contradict each other or make no sense.
    pub fn resolve(recipe: &Recipe, options: &SolverOptions) -> Result<Self> {
        options.check()?;
        let own = recipe.solver()?;
        let SolverOptions { solver, steps, nfe, rtol, atol } = options;
        let config = &recipe.evaluate.solver;
        let named = solver.as_deref().map(Self::method).transpose()?;
        let tableau = named.unwrap_or(own.tableau);
        if let Some(count) = *steps {
            return Ok(Self { tableau, budget: Budget::Steps(count) });
        }
        if let Some(count) = *nfe {
            return Self::within(tableau, count, "nfe");
        }
        if rtol.is_some() || atol.is_some() {
            let tableau = if named.is_none() && !tableau.estimates_error() { TSIT5 } else { tableau };
            return Self::adaptive(tableau, rtol.unwrap_or(config.rtol), atol.unwrap_or(config.atol));
        }
        match (named, own.budget) {
            (None, _) => Ok(own),
            (Some(tableau), _) if tableau.estimates_error() => {
                Self::adaptive(tableau, config.rtol, config.atol)
            }
            (Some(tableau), Budget::Adaptive(_)) => Ok(Self { tableau, budget: Budget::StepPerOutput }),
            (Some(tableau), Budget::EvaluationsPerHorizon(count)) => {
                Self::within(tableau, count, "evaluate.nfe")
            }
            (Some(tableau), budget) => Ok(Self { tableau, budget }),
        }
    }

    /// Creates a solver with at most this number of evaluations over the horizon of the training data, as `key` sets it.
    fn within(tableau: Tableau, evaluations: usize, key: &str) -> Result<Self> {
        let needed = tableau.stages();
        if evaluations < needed {
            return Err(too_few(key, evaluations, (needed, tableau.name)));
        }
        Ok(Self { tableau, budget: Budget::EvaluationsPerHorizon(evaluations) })
    }

    /// Creates a solver whose steps are chosen by a relative and an absolute tolerance, in normalised units.
    ///
    /// # Errors
    /// If the method does not estimate its error, or a tolerance is not positive.
    pub fn adaptive(tableau: Tableau, rtol: f64, atol: f64) -> Result<Self> {
        let positive = |value: f64| value >= 0.0 && value.is_finite();
        if !positive(rtol) || !positive(atol) || rtol + atol <= 0.0 {
            let problem = format!("the tolerances are {rtol} and {atol}, but must be positive");
            return Err(CfoError::invalid("rtol", problem));
        }
        if !tableau.estimates_error() {
            return Err(CfoError::bad_data(
                format!("`{}` does not estimate its error, so it cannot use tolerances", tableau.name),
                "choose `tsit5`, `dopri5` or `heun`, or give the number of steps",
            ));
        }
        let controller = Controller { max_steps: u64::MAX, ..Controller::new(rtol, atol) };
        Ok(Self { tableau, budget: Budget::Adaptive(controller) })
    }
}

/// Options of a solver; the recipe sets the rest. [`Solver::resolve`] defines the meaning of each combination.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct SolverOptions {
    /// Name of the method: `euler`, `heun`, `rk4`, `dopri5` or `tsit5`.
    pub solver: Option<String>,
    /// Number of equal steps over the requested times.
    pub steps: Option<usize>,
    /// Largest number of network evaluations over the horizon of the training data.
    pub nfe: Option<usize>,
    /// Relative tolerance.
    pub rtol: Option<f64>,
    /// Absolute tolerance, in normalised units.
    pub atol: Option<f64>,
}

impl SolverOptions {
    /// Returns whether no option is given.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    fn check(&self) -> Result<()> {
        let Self { steps, nfe, rtol, atol, .. } = self;
        let refuse = |problem: &str, hint: &str| Err(CfoError::bad_data(problem, hint));
        let number = match (steps, nfe) {
            (Some(_), Some(_)) => {
                return refuse("`steps` and `nfe` both set the number of steps", "give one of them");
            }
            (Some(0), None) => return refuse("`steps` is 0", "a rollout takes at least one step"),
            (Some(_), None) => "steps",
            (None, Some(_)) => "nfe",
            (None, None) => return Ok(()),
        };
        if rtol.is_some() || atol.is_some() {
            return refuse(
                &format!("`{number}` sets the number of steps, but with tolerances the solver chooses it"),
                &format!("give `{number}`, or `rtol` and `atol`"),
            );
        }
        Ok(())
    }
}

impl Recipe {
    /// Returns the solver of the recipe's `[evaluate]`, for validation, evaluation and prediction.
    ///
    /// # Errors
    /// If the number of evaluations is too small for one step, or the tolerances are not positive.
    pub fn solver(&self) -> Result<Solver> {
        let (config, own) = (&self.evaluate, &self.evaluate.solver);
        let through = self.trained_through().filter(|_| own.method.is_none());
        let tableau = match (own.method, through) {
            (Some(tableau), _) => tableau,
            (None, Some(through)) => through.tableau(),
            // The way from noise to a trajectory is short and smooth.
            (None, None) if matches!(self.objective.predicts(), MotionKind::Trajectory { .. }) => RK4,
            (None, None) => TSIT5,
        };
        let steps = match through.filter(|through| own.steps == 0 && !through.is_adaptive()) {
            Some(through) => through.steps(),
            None => own.steps,
        };
        match (config.nfe, steps) {
            (0, 0) if tableau.estimates_error() => Solver::adaptive(tableau, own.rtol, own.atol),
            (0, 0) => Ok(Solver { tableau, budget: Budget::StepPerOutput }),
            (0, steps) => Ok(Solver { tableau, budget: Budget::StepsPerInterval(steps) }),
            (nfe, _) => Solver::within(tableau, nfe, "evaluate.nfe"),
        }
    }
}

/// Returns the error for a number of evaluations that is too small for one step.
pub(crate) fn too_few(key: &str, evaluations: usize, (needed, name): (usize, &str)) -> CfoError {
    CfoError::invalid(
        key,
        format!("{evaluations} evaluations are too few for one step of `{name}`, which needs {needed}"),
    )
}
