//! Initial values of tensors: parameters are random, all others zero.

use cfo_numerics::Philox;

use crate::data::Data;
use crate::error::Result;
use crate::graph::Graph;
use crate::memory::Memory;
use crate::ops::Op;
use crate::role::Role;
use crate::shape::{Element, Shape, Type};

/// The distribution of a parameter's initial values.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Initial {
    /// A constant.
    Constant(f64),
    /// Uniform between minus and plus the bound.
    Uniform(f64),
    /// Normal with mean 0 and the given standard deviation.
    Normal(f64),
}

impl Initial {
    /// All zeros.
    pub const ZEROS: Self = Self::Constant(0.0);
    /// All ones.
    pub const ONES: Self = Self::Constant(1.0);

    /// Uniform in `±1 / sqrt(fan_in)`, the usual choice for linear layers and convolutions.
    pub fn fan_in(fan_in: usize) -> Self {
        Self::Uniform(1.0 / (fan_in.max(1) as f64).sqrt())
    }

    /// Xavier's uniform distribution, `±sqrt(6 / (fan_in + fan_out))`.
    pub fn xavier(fan_in: usize, fan_out: usize) -> Self {
        Self::Uniform((6.0 / (fan_in + fan_out).max(1) as f64).sqrt())
    }

    /// The first `count` values of the parameter with index `position`.
    fn draw(self, count: usize, seed: u64, position: u64) -> Vec<f64> {
        /// Offset of the weights' random streams, which keeps them apart from batches with the same seed.
        const WEIGHTS: u64 = 1 << 32;
        let mut random = Philox::new(seed, WEIGHTS + position);
        (0..count)
            .map(|_| match self {
                Self::Constant(value) => value,
                Self::Uniform(bound) => random.uniform_between(-bound, bound),
                Self::Normal(deviation) => deviation * random.normal(),
            })
            .collect()
    }
}

impl Memory {
    /// Adds the tensors that memory does not hold yet: parameters drawn from `seed`, optimiser state, counters at 0.
    ///
    /// A parameter's values depend on the seed and its index. Existing tensors get the roles that the graph declares.
    ///
    /// # Errors
    /// If a name belongs to a tensor of another type, or there is not enough memory.
    pub fn initialize(&mut self, graph: &Graph, seed: u64) -> Result<()> {
        self.check_fits(graph)?;
        for (position, parameter) in graph.parameters().iter().enumerate() {
            if !self.contains(&parameter.name) {
                let values = parameter.initial.draw(parameter.shape.len(), seed, position as u64);
                let shape = parameter.shape.clone();
                self.insert_as(Role::Weight, &parameter.name, Element::Real, shape, Data::F64(&values))?;
            }
        }
        for state in graph.states() {
            if !self.contains(&state.name) {
                let values = match &state.copy_of {
                    Some(parameter) => self.read_f64(parameter)?,
                    None => vec![0.0; state.shape.len()],
                };
                let shape = state.shape.clone();
                self.insert_as(state.role, &state.name, Element::Real, shape, Data::F64(&values))?;
            }
        }
        for kept in graph.kept() {
            self.set_role(kept.name, kept.role)?;
        }
        for entry in graph.entries() {
            if let Op::Tensor(tensor) = &entry.op
                && entry.outputs[0] == (Type { shape: Shape::scalar(), element: Element::Index })
                && !self.contains(&tensor.name)
            {
                let (shape, zero) = (Shape::scalar(), Data::Index(&[0]));
                self.insert_as(Role::Optimizer, &tensor.name, Element::Index, shape, zero)?;
            }
        }
        Ok(())
    }

    /// Checks that the device has memory for the tensors that a graph keeps between runs.
    fn check_fits(&self, graph: &Graph) -> Result<()> {
        let missing = graph.kept().filter(|kept| !self.contains(kept.name));
        // Sizes may come from a file and overflow 64 bits.
        let numbers = missing.map(|kept| {
            kept.shape.axes().iter().fold(1u128, |count, &extent| count.saturating_mul(extent as u128))
        });
        let (numbers, largest) =
            numbers.fold((0u128, 0), |(sum, largest), count| (sum.saturating_add(count), count.max(largest)));
        // Tensors are drawn one after another, in double precision.
        let drawn = largest.saturating_mul(size_of::<f64>() as u128);
        let bytes = numbers.saturating_mul(self.element_bytes(Element::Real) as u128).saturating_add(drawn);
        self.backend().check_room(u64::try_from(bytes).unwrap_or(u64::MAX))
    }
}
