//! Purposes of tensors.

/// Purpose of a tensor, declared with it; it decides what is stored after a run, whatever the name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Role {
    /// A parameter of the network.
    Weight,
    /// The EMA of a weight.
    Average,
    /// State of the optimiser between steps: moments, counters.
    Optimizer,
    /// A data set or an input that the caller writes.
    Data,
    /// Values that a program keeps for its own next run.
    Scratch,
}

impl Role {
    /// Whether the tensor belongs to the network: a weight or its EMA.
    pub fn is_network(self) -> bool {
        matches!(self, Self::Weight | Self::Average)
    }
}
