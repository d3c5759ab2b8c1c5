//! What is trained, by which rule: a recipe, with an operator or an objective of the user's own where recipes have no words for it.

use std::fmt;
use std::sync::{Arc, OnceLock};

use serde::{Deserialize, Serialize};

use crate::error::{CfoError, Result};
use crate::objective::Objective;
use crate::operator::Operator;
use crate::recipe::Recipe;

/// A recipe and what it has no words for.
#[derive(Clone, Debug)]
pub(crate) struct Method {
    pub(crate) recipe: Recipe,
    pub(crate) foreign: Foreign,
    /// Whether it goes on from a network that was trained by another recipe in the same run.
    pub(crate) tuning: bool,
}

impl Method {
    /// A recipe alone.
    pub(crate) fn of(recipe: &Recipe) -> Self {
        Self { recipe: recipe.clone(), foreign: Foreign::default(), tuning: false }
    }

    /// The fine-tuning that follows.
    pub(crate) fn tuning(&self) -> Self {
        let mut foreign = Foreign { described: OnceLock::new(), ..self.foreign.clone() };
        foreign.set_objective(None);
        Self { recipe: self.recipe.tuning(), foreign, tuning: true }
    }
}

/// An operator and an objective that recipes have no words for. Checkpoints keep their names.
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
    /// The objective of the recipe, once it was asked for.
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

    /// Whether the objective is one that recipes have no words for.
    pub(crate) fn has_objective(&self) -> bool {
        self.objective.is_some()
    }

    /// The network: the user's own, else the recipe's.
    pub(crate) fn operator<'a>(&'a self, recipe: &'a Recipe) -> &'a dyn Operator {
        self.operator.as_deref().unwrap_or_else(|| recipe.operator.operator())
    }

    /// The objective: the user's own, else the recipe's.
    pub(crate) fn objective(&self, recipe: &Recipe) -> &dyn Objective {
        let described = || recipe.objective.objective(&recipe.path);
        self.objective.as_deref().unwrap_or_else(|| &**self.described.get_or_init(described))
    }

    /// Takes the operator and the objective of the names that are missing here.
    ///
    /// # Errors
    /// If others are needed or others were given.
    pub(crate) fn take_from(&mut self, given: &Self) -> Result<()> {
        differ("operator", &self.operator_name, &given.operator_name)?;
        differ("objective", &self.objective_name, &given.objective_name)?;
        (self.operator, self.objective) = (given.operator.clone(), given.objective.clone());
        Ok(())
    }

    /// Refuses a model of which only a name is known.
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
            format!("load it without an {what} of your own"),
        ),
    };
    Err(CfoError::BadData { problem, hint })
}

impl PartialEq for Foreign {
    /// By the names: what stands behind them cannot be compared.
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
