//! The parts of a training: the objective's steps, then those of fine-tuning.

use crate::method::Method;

/// Steps of a training that are made by one rule.
#[derive(Clone, Debug)]
pub(super) struct Stage {
    /// The rule.
    pub method: Method,
    /// Steps before its first one.
    pub first: u32,
    /// Steps after its last one.
    pub end: u32,
}

impl Stage {
    /// Of a whole training, one or two, in order.
    pub fn all(method: &Method) -> Vec<Self> {
        let (first, total) = (method.recipe.train.steps, method.recipe.total_steps());
        let mut stages = vec![Self { method: method.clone(), first: 0, end: first }];
        if total > first {
            stages.push(Self { method: method.tuning(), first, end: total });
        }
        stages
    }

    /// Whether it goes on from another stage.
    pub fn is_later(&self) -> bool {
        self.first > 0
    }
}
