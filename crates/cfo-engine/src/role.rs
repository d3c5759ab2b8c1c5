//! What a tensor is for.

/// What a tensor is for. It is given where the tensor is declared and decides what outlives a program, whatever the
/// tensor's name is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Role {
    /// A parameter of the network.
    Weight,
    /// A running average of a weight.
    Average,
    /// What the optimiser remembers between steps: moments, counters.
    Optimizer,
    /// A data set or an input that a caller writes.
    Data,
    /// Values that a program leaves for its own next run.
    Scratch,
}

impl Role {
    /// Whether it belongs to the network: a weight or its average.
    pub fn is_network(self) -> bool {
        matches!(self, Self::Weight | Self::Average)
    }
}
