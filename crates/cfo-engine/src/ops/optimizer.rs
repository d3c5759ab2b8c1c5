//! Training's last stage: gradient norm, Adam with its moments and averages, counters. All of it changes tensors in
//! place, after everything else of a run.

use super::{Op, Operation, require};
use crate::error::{EngineError, Result};
use crate::graph::{Graph, Node};
use crate::shape::{Element, Shape, Type};

/// How the learning rate depends on the step.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Schedule {
    /// Always the same.
    Constant,
    /// Rises linearly over `warmup` steps, then falls along a cosine to `floor` times the rate at step `total`.
    Cosine {
        /// Steps of the linear rise; 0 for none.
        warmup: u32,
        /// Steps of the whole training.
        total: u32,
        /// Last rate as a fraction of the highest.
        floor: f64,
    },
    /// Rises linearly over the given steps, then stays.
    WarmUp(u32),
}

impl Schedule {
    /// The factor on the learning rate at a step, counted from 0.
    #[inline]
    pub fn factor(self, step: u32) -> f64 {
        let rise = |warmup: u32| f64::from(step + 1) / f64::from(warmup.max(1));
        match self {
            Self::Constant => 1.0,
            Self::WarmUp(warmup) => rise(warmup).min(1.0),
            Self::Cosine { warmup, .. } if step < warmup => rise(warmup),
            Self::Cosine { warmup, total, floor } => {
                let passed = f64::from(step - warmup) / f64::from(total.saturating_sub(warmup).max(1));
                floor + (1.0 - floor) * 0.5 * (1.0 + (std::f64::consts::PI * passed.min(1.0)).cos())
            }
        }
    }
}

/// Settings of Adam; with `weight_decay` it is AdamW.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct AdamConfig {
    /// Highest learning rate.
    pub learning_rate: f64,
    /// How the rate depends on the step.
    pub schedule: Schedule,
    /// Decay of the mean of gradients and of the mean of their squares.
    pub betas: [f64; 2],
    /// Added to the root of the second moment.
    pub epsilon: f64,
    /// Decoupled weight decay; 0 for plain Adam.
    pub weight_decay: f64,
    /// Gradients are scaled down to this global norm if they exceed it.
    pub clip: Option<f64>,
    /// Decay of the exponential moving average of the parameters, kept under `ema/<name>`.
    pub ema: Option<f64>,
}

impl Default for AdamConfig {
    fn default() -> Self {
        Self {
            learning_rate: 1e-4,
            schedule: Schedule::Constant,
            betas: [0.9, 0.99],
            epsilon: 1e-8,
            weight_decay: 0.0,
            clip: None,
            ema: None,
        }
    }
}

/// Root of the sum of squares of all elements of all inputs; a scalar.
#[derive(Clone, Debug)]
pub struct GlobalNorm;

impl Operation for GlobalNorm {
    fn name(&self) -> &'static str {
        "global_norm"
    }

    fn infer(&self, inputs: &[&Type]) -> Result<Vec<Type>> {
        require("global_norm", inputs, Element::Real)?;
        Ok(vec![Type::real(Shape::scalar())])
    }
}

/// One step of Adam over all parameters. Inputs: step counter, gradient norm if clipping, then for each parameter:
/// the parameter, its two moments, its average if there is one, its gradient. No outputs.
#[derive(Clone, Debug)]
pub struct Adam {
    /// Its settings.
    pub config: AdamConfig,
}

impl Adam {
    /// Inputs before the first parameter.
    #[inline]
    pub fn leading(&self) -> usize {
        1 + usize::from(self.config.clip.is_some())
    }

    /// Inputs for each parameter; the last one is the gradient.
    #[inline]
    pub fn stride(&self) -> usize {
        4 + usize::from(self.config.ema.is_some())
    }
}

impl Operation for Adam {
    fn name(&self) -> &'static str {
        "adam"
    }

    fn infer(&self, inputs: &[&Type]) -> Result<Vec<Type>> {
        require("adam", &inputs[..1], Element::Index)?;
        for group in inputs[self.leading()..].chunks(self.stride()) {
            if let Some(other) = group.iter().find(|input| input.shape != group[0].shape) {
                return Err(EngineError::ShapeMismatch {
                    operation: "adam",
                    left: group[0].shape.clone(),
                    right: other.shape.clone(),
                    needed: "parameter, moments and gradient must have one shape".into(),
                });
            }
        }
        Ok(Vec::new())
    }
}

/// Writes a value into a tensor. Inputs: the tensor, the value. No outputs.
#[derive(Clone, Debug)]
pub struct Assign;

impl Operation for Assign {
    fn name(&self) -> &'static str {
        "assign"
    }

    fn infer(&self, inputs: &[&Type]) -> Result<Vec<Type>> {
        if inputs[0] != inputs[1] {
            return Err(EngineError::ShapeMismatch {
                operation: "assign",
                left: inputs[0].shape.clone(),
                right: inputs[1].shape.clone(),
                needed: "tensor and value must have the same type".into(),
            });
        }
        Ok(Vec::new())
    }
}

/// Adds one to a counter. Input: the counter. No outputs.
#[derive(Clone, Debug)]
pub struct Advance;

impl Operation for Advance {
    fn name(&self) -> &'static str {
        "advance"
    }

    fn infer(&self, inputs: &[&Type]) -> Result<Vec<Type>> {
        require("advance", inputs, Element::Index)?;
        Ok(Vec::new())
    }
}

impl Graph {
    /// Root of the sum of squares over all given values.
    ///
    /// # Errors
    /// If a value does not hold real numbers.
    pub fn global_norm(&mut self, values: &[Node]) -> Result<Node> {
        self.push_one(Op::GlobalNorm(GlobalNorm), values)
    }

    /// After the run, writes `value` into the tensor `target`.
    ///
    /// # Errors
    /// If the types differ or `target` is not a named tensor.
    pub fn assign(&mut self, target: Node, value: Node) -> Result<()> {
        self.require_tensor("assign", target)?;
        self.push_effect(Op::Assign(Assign), &[target, value])
    }

    /// After the run, adds one to the counter `target`.
    ///
    /// # Errors
    /// If `target` is not a named index tensor.
    pub fn advance(&mut self, target: Node) -> Result<()> {
        self.require_tensor("advance", target)?;
        self.push_effect(Op::Advance(Advance), &[target])
    }

    /// Gradients of a loss with respect to all parameters, in their order.
    ///
    /// # Errors
    /// If the loss is not a scalar or not differentiable.
    pub fn parameter_gradients(&mut self, loss: Node) -> Result<Vec<Node>> {
        let nodes: Vec<Node> = self.parameters().iter().map(|parameter| parameter.node).collect();
        self.gradients(loss, &nodes)
    }

    /// One step of Adam by a loss's own gradients: [`Graph::parameter_gradients`], then [`Graph::adam_step`].
    ///
    /// # Errors
    /// If the loss is not a scalar or not differentiable.
    pub fn adam(&mut self, loss: Node, counter: Node, config: AdamConfig) -> Result<Option<Node>> {
        let gradients = self.parameter_gradients(loss)?;
        self.adam_step(&gradients, counter, config)
    }

    /// One step of Adam for all parameters by gradients given in their order, at the step of `counter`, which is advanced.
    /// Returns the gradients' global norm if they are clipped. Where several machines train together, the gradients are
    /// those that [`Graph::all_reduce`] has summed.
    ///
    /// # Errors
    /// If there is not one gradient of the right shape for each parameter.
    pub fn adam_step(
        &mut self,
        gradients: &[Node],
        counter: Node,
        config: AdamConfig,
    ) -> Result<Option<Node>> {
        let parameters: Vec<_> = self.parameters().to_vec();
        if gradients.len() != parameters.len() {
            return Err(EngineError::BadAttribute {
                operation: "adam",
                problem: format!(
                    "{} gradients were given for {} parameters",
                    gradients.len(),
                    parameters.len()
                ),
            });
        }
        let norm = match config.clip {
            Some(_) => Some(self.global_norm(gradients)?),
            None => None,
        };
        let mut inputs: Vec<Node> = [counter].into_iter().chain(norm).collect();
        for (parameter, &gradient) in parameters.iter().zip(gradients) {
            let name = &parameter.name;
            inputs.push(parameter.node);
            inputs.push(self.state(&format!("adam.first/{name}"), parameter.shape.clone(), None)?);
            inputs.push(self.state(&format!("adam.second/{name}"), parameter.shape.clone(), None)?);
            if config.ema.is_some() {
                inputs.push(self.state(&format!("ema/{name}"), parameter.shape.clone(), Some(name))?);
            }
            inputs.push(gradient);
        }
        self.push_effect(Op::Adam(Adam { config }), &inputs)?;
        self.advance(counter)?;
        Ok(norm)
    }

    fn require_tensor(&self, operation: &'static str, node: Node) -> Result<()> {
        match self.entry(node).op {
            Op::Tensor(_) => Ok(()),
            _ => Err(EngineError::BadAttribute {
                operation,
                problem: "the target must be a named tensor".into(),
            }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn schedules_rise_and_fall_where_they_say() {
        let cosine = Schedule::Cosine { warmup: 10, total: 110, floor: 0.1 };
        assert_eq!(cosine.factor(4), 0.5);
        assert!((cosine.factor(10) - 1.0).abs() < 1e-12);
        assert!((cosine.factor(60) - 0.55).abs() < 1e-12);
        assert!((cosine.factor(10_000) - 0.1).abs() < 1e-12);
        assert_eq!(Schedule::WarmUp(4).factor(100), 1.0);
        assert_eq!(Schedule::Constant.factor(7), 1.0);
    }
}
