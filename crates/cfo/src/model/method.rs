//! The method of a training: a recipe, and a user-defined operator or objective if there is one.

use std::fmt;
use std::sync::{Arc, OnceLock};

use serde::{Deserialize, Serialize};

use crate::error::{CfoError, Result};
use crate::objective::Objective;
use crate::operator::Operator;
use crate::recipe::Recipe;

/// A recipe with the user-defined operator and objective, which it cannot describe.
#[derive(Clone, Debug)]
pub(crate) struct Method {
    pub(crate) recipe: Recipe,
    pub(crate) foreign: Foreign,
    /// Whether training continues from a network that was trained with another recipe in the same run.
    pub(crate) tuning: bool,
}

impl Method {
    /// Creates the method of a recipe, without a user-defined operator or objective.
    pub(crate) fn of(recipe: &Recipe) -> Self {
        Self { recipe: recipe.clone(), foreign: Foreign::default(), tuning: false }
    }

    /// Returns the method of the fine-tuning that follows.
    pub(crate) fn tuning(&self) -> Self {
        let mut foreign = Foreign { described: OnceLock::new(), ..self.foreign.clone() };
        foreign.set_objective(None);
        Self { recipe: self.recipe.tuning(), foreign, tuning: true }
    }
}

/// A user-defined operator and objective. Checkpoints keep their names.
#[derive(Clone, Default, Serialize, Deserialize)]
pub(crate) struct Foreign {
    #[serde(default, rename = "own_operator", skip_serializing_if = "Option::is_none")]
    operator_name: Option<String>,
    #[serde(default, rename = "own_objective", skip_serializing_if = "Option::is_none")]
    objective_name: Option<String>,
    #[serde(skip)]
    operator: Option<Arc<dyn Operator>>,
    #[serde(skip)]
    objective: Option<Arc<dyn Objective>>,
    /// The objective of the recipe, created when it is first needed.
    #[serde(skip)]
    described: OnceLock<Arc<dyn Objective>>,
}

impl Foreign {
    pub(crate) fn set_operator(&mut self, operator: Option<Arc<dyn Operator>>) {
        self.operator_name = operator.as_ref().map(|operator| operator.name().to_owned());
        self.operator = operator;
    }

    pub(crate) fn set_objective(&mut self, objective: Option<Arc<dyn Objective>>) {
        self.objective_name = objective.as_ref().map(|objective| objective.name().to_owned());
        self.objective = objective;
    }

    /// Returns whether the objective is user-defined.
    pub(crate) fn has_objective(&self) -> bool {
        self.objective.is_some()
    }

    /// Returns the user-defined network, or else the recipe's.
    pub(crate) fn operator<'a>(&'a self, recipe: &'a Recipe) -> &'a dyn Operator {
        self.operator.as_deref().unwrap_or_else(|| recipe.operator.operator())
    }

    /// Returns the user-defined objective, or else the recipe's.
    pub(crate) fn objective(&self, recipe: &Recipe) -> &dyn Objective {
        let described = || recipe.objective.objective(&recipe.path);
        self.objective.as_deref().unwrap_or_else(|| &**self.described.get_or_init(described))
    }

    /// Sets the user-defined operator and objective whose names are known here.
    ///
    /// # Errors
    /// If others are needed or others were given.
    pub(crate) fn take_from(&mut self, given: &Self) -> Result<()> {
        differ("operator", &self.operator_name, &given.operator_name)?;
        differ("objective", &self.objective_name, &given.objective_name)?;
        (self.operator, self.objective) = (given.operator.clone(), given.objective.clone());
        Ok(())
    }

    /// Returns an error if only the name of an operator or objective is known.
    pub(crate) fn check(&self) -> Result<()> {
        let missing = |name: &Option<String>, there: bool| name.clone().filter(|_| !there);
        differ("operator", &missing(&self.operator_name, self.operator.is_some()), &None)?;
        differ("objective", &missing(&self.objective_name, self.objective.is_some()), &None)
    }
}

fn differ(what: &str, needed: &Option<String>, given: &Option<String>) -> Result<()> {
    let (problem, hint) = match (needed, given) {
        (needed, given) if needed == given => return Ok(()),
        (Some(needed), None) => (
            format!(
                "the run was trained with a user-defined {what}, `{needed}`, which this program does not have"
            ),
            format!("load it from Rust with `Trained::loader` and the {what}"),
        ),
        (Some(needed), Some(given)) => (
            format!("the run was trained with the {what} `{needed}`, not with `{given}`"),
            format!("give the {what} that trained it"),
        ),
        (None, _) => (
            format!("the run was trained with the {what} of its recipe, not with a user-defined one"),
            format!("load it without a user-defined {what}"),
        ),
    };
    Err(CfoError::BadData { problem, hint })
}

impl PartialEq for Foreign {
    /// Compares the names, because operators and objectives cannot be compared.
    fn eq(&self, other: &Self) -> bool {
        (&self.operator_name, &self.objective_name) == (&other.operator_name, &other.objective_name)
    }
}

impl fmt::Debug for Foreign {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Foreign")
            .field("operator", &self.operator_name)
            .field("objective", &self.objective_name)
            .finish_non_exhaustive()
    }
}
