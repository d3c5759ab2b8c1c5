//! The state of a run: everything but its tensors.

use std::collections::HashMap;

use serde::{Deserialize, Serialize};

use super::VERSION;
use crate::model::Model;
use crate::recipe::Recipe;
use crate::run::Progress;

/// The state of a run without its tensors.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct State {
    version: u32,
    /// Version of the program that wrote it.
    pub program: String,
    /// Number of optimiser steps made.
    pub step: u32,
    /// The model.
    pub model: Model,
    /// Hash of the training data.
    pub data_fingerprint: String,
    /// Lowest validation error so far, with its step.
    pub best: Option<(f64, u32)>,
    /// State of the training loop.
    pub loop_state: LoopState,
    /// SHA-256 of the tensor files, by name.
    pub(super) files: HashMap<String, String>,
}

/// The state of the training loop that a resumed run needs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct LoopState {
    /// Loss of the first step, with which later losses are compared.
    pub first_loss: Option<f64>,
    /// Mean loss of the last report.
    pub loss: Option<f64>,
    /// Number of validations since the best one.
    pub stale: u32,
    /// Number of times that the learning rate was halved because training diverged at once.
    pub halvings: u32,
}

impl State {
    /// Returns the recipe as it was given, with the learning rate before it was halved.
    pub fn recipe(&self) -> Recipe {
        let mut recipe = self.model.recipe.clone();
        recipe.train.learning_rate *= f64::from(self.loop_state.halvings).exp2();
        recipe
    }

    /// Creates the state of a run at a step, without the results of its training.
    pub fn of(model: &Model, step: u32) -> Self {
        Self {
            version: VERSION,
            program: env!("CARGO_PKG_VERSION").into(),
            step,
            model: model.clone(),
            data_fingerprint: String::new(),
            best: None,
            loop_state: LoopState::default(),
            files: HashMap::new(),
        }
    }

    pub(crate) fn new(model: &Model, progress: &Progress) -> Self {
        let (data_fingerprint, best, loop_state) =
            (progress.fingerprint.clone(), progress.best, progress.loop_state);
        Self { data_fingerprint, best, loop_state, ..Self::of(model, progress.steps) }
    }
}

/// The content of `state.json`: the state and the hash of its text.
#[derive(Serialize, Deserialize)]
pub(super) struct Sealed {
    pub(super) sha256: String,
    pub(super) state: serde_json::Value,
}
