//! Leaves: named tensors in memory, and constants.

use std::sync::Arc;

use super::{Inputs, Operation};
use crate::error::Result;
use crate::shape::Type;

/// A tensor in memory.
#[derive(Clone, Debug)]
pub struct Tensor {
    /// Its name in memory.
    pub name: String,
}

impl Operation for Tensor {
    fn infer(&self, _: &Inputs<'_>) -> Result<Vec<Type>> {
        unreachable!("leaves carry their type and are never inferred")
    }

    fn attributes(&self) -> String {
        format!(" `{}`", self.name)
    }
}

/// Constant numbers.
#[derive(Clone, Debug)]
pub struct Constant {
    /// The numbers, in order.
    pub values: Arc<[f64]>,
}

impl Operation for Constant {
    fn infer(&self, _: &Inputs<'_>) -> Result<Vec<Type>> {
        unreachable!("leaves carry their type and are never inferred")
    }

    fn attributes(&self) -> String {
        match &*self.values {
            [value] => format!(" {value}"),
            _ => String::new(),
        }
    }
}
