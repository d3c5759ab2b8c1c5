//! Operands of convolutions in 16 bits; appended by a backend, never by a caller.

use super::{Concat, Operation, require};
use crate::error::Result;
use crate::shape::{Element, Shape, Type};

/// Numbers of 11 significant bits in 16: `x 2^k` rounded, and the factor `2^-k` that undoes the scale, with `k` such that
/// the largest number lies just below the largest that such a format holds.
#[derive(Clone, Debug, Default)]
pub(crate) struct Compact {
    /// Joins the inputs beforehand, where a backend merged that.
    pub(crate) joined: Option<Concat>,
    /// The root of a group's size where the input is the result of a group norm, whose scale, bias and shift follow: no
    /// number of it is larger than that times a scale, plus a bias and a shift, so that it need not be looked at.
    pub(crate) norm: Option<f64>,
}

impl Operation for Compact {
    fn name(&self) -> &'static str {
        "compact"
    }

    fn infer(&self, inputs: &[&Type]) -> Result<Vec<Type>> {
        require("compact", inputs, Element::Real)?;
        let values = match &self.joined {
            Some(concat) => concat.infer(concat.values(inputs))?.swap_remove(0),
            None => inputs[0].clone(),
        };
        Ok(vec![values, Type::real(Shape::scalar())])
    }

    fn attributes(&self) -> String {
        if self.norm.is_some() {
            return " of a norm".into();
        }
        self.joined
            .as_ref()
            .map_or(String::new(), |concat| format!(" of {}{}", concat.name(), concat.attributes()))
    }
}
