//! Gradient norm, Adam with its moments and EMA, counters: they change tensors in place at the end of a run.

use super::{Inputs, Op, Operation};
use crate::error::{EngineError, Result};
use crate::graph::{Graph, Node};
use crate::shape::{Element, Shape, Type};

/// Dependence of the learning rate on the step.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Schedule {
    /// A constant rate.
    Constant,
    /// Linear rise over `warmup` steps, then cosine decay to `floor` times the rate at step `total`.
    Cosine {
        /// Steps of the linear rise; 0 for none.
        warmup: u32,
        /// Steps of the whole training.
        total: u32,
        /// Final rate as a fraction of the highest.
        floor: f64,
    },
    /// Linear rise over this number of steps, then constant.
    WarmUp(u32),
}

impl Schedule {
    /// The factor of the learning rate at a step, counted from 0.
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
    /// Dependence of the rate on the step.
    pub schedule: Schedule,
    /// Decay rates of the means of gradients and of squared gradients.
    pub betas: [f64; 2],
    /// Constant added to the root of the second moment.
    pub epsilon: f64,
    /// Decoupled weight decay; 0 for plain Adam.
    pub weight_decay: f64,
    /// Global norm to which larger gradients are clipped.
    pub clip: Option<f64>,
    /// Decay of the exponential moving average (EMA) of the parameters, stored as `ema/<name>`.
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
    fn infer(&self, inputs: &Inputs<'_>) -> Result<Vec<Type>> {
        inputs.reals()?;
        Ok(vec![Type::real(Shape::scalar())])
    }
}

/// One step of Adam over all parameters.
///
/// Inputs: the step counter and, with clipping, the gradient norm. Then for each parameter: the parameter, its two
/// moments, its EMA if there is one, and its gradient. No outputs.
#[derive(Clone, Debug)]
pub struct Adam {
    /// Settings of Adam.
    pub config: AdamConfig,
}

impl Adam {
    /// Number of inputs before the first parameter.
    #[inline]
    pub fn leading(&self) -> usize {
        1 + usize::from(self.config.clip.is_some())
    }

    /// Number of inputs per parameter; the last one is the gradient.
    #[inline]
    pub fn stride(&self) -> usize {
        4 + usize::from(self.config.ema.is_some())
    }
}

impl Operation for Adam {
    fn infer(&self, inputs: &Inputs<'_>) -> Result<Vec<Type>> {
        inputs.require(&[Element::Index, Element::Real])?;
        for group in inputs[self.leading()..].chunks(self.stride()) {
            if let Some(other) = group.iter().find(|input| input.shape != group[0].shape) {
                let needed = "parameter, moments and gradient must have one shape";
                let (left, right) = (&group[0].shape, &other.shape);
                return Err(EngineError::shape_mismatch(inputs.operation, left, right, needed));
            }
        }
        Ok(Vec::new())
    }
}

/// Writes a value to a tensor. Inputs: the tensor, the value. No outputs.
#[derive(Clone, Debug)]
pub struct Assign;

impl Operation for Assign {
    fn infer(&self, inputs: &Inputs<'_>) -> Result<Vec<Type>> {
        if inputs[0] != inputs[1] {
            return Err(inputs.mismatch(&inputs[1].shape, "tensor and value must have the same type"));
        }
        Ok(Vec::new())
    }
}

/// Adds one to a counter. Input: the counter. No outputs.
#[derive(Clone, Debug)]
pub struct Advance;

impl Operation for Advance {
    fn infer(&self, inputs: &Inputs<'_>) -> Result<Vec<Type>> {
        inputs.require(&[Element::Index])?;
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

    /// Writes `value` to the tensor `target` at the end of a run.
    ///
    /// # Errors
    /// If the types differ or `target` is not a named tensor.
    pub fn assign(&mut self, target: Node, value: Node) -> Result<()> {
        self.require_tensor("assign", target)?;
        self.push_effect(Op::Assign(Assign), &[target, value])
    }

    /// Adds one to the counter `target` at the end of a run.
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

    /// One step of Adam with the gradients of a loss: [`Graph::parameter_gradients`], then [`Graph::adam_step`].
    ///
    /// # Errors
    /// If the loss is not a scalar or not differentiable.
    pub fn adam(&mut self, loss: Node, counter: Node, config: AdamConfig) -> Result<Option<Node>> {
        let gradients = self.parameter_gradients(loss)?;
        self.adam_step(&gradients, counter, config)
    }

    /// One step of Adam for all parameters with the given gradients, at the step of `counter`, which is incremented.
    ///
    /// Gradients have the order of the parameters. Returns their global norm if they are clipped. In training on
    /// several ranks, the gradients are the sums of [`Graph::all_reduce`].
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
            let (found, needed) = (gradients.len(), parameters.len());
            let problem = format!("{found} gradients were given for {needed} parameters");
            return Err(EngineError::bad_attribute("adam", problem));
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
            _ => Err(EngineError::bad_attribute(operation, "the target must be a named tensor")),
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
