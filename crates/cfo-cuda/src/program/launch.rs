//! Launches of kernels: their parameters, each declared once, and the number of threads.

use super::{Scalar, Value};

pub(crate) const THREADS: u32 = 256;

#[derive(Clone, Copy, Debug)]
pub(crate) enum Argument {
    Word(u64),
    /// The address of a table that is uploaded with the program.
    Table(usize),
    /// The address of counters that are 0 between launches.
    Tickets(usize),
}

/// Parameters of a kernel, each declared once with type, name and value. They determine the signature.
#[derive(Clone, Debug, Default)]
pub(crate) struct Parameters {
    declarations: Vec<String>,
    arguments: Vec<Argument>,
}

impl Parameters {
    pub(crate) fn new() -> Self {
        Self::default()
    }

    pub(crate) fn with(mut self, kind: &str, name: &str, value: impl Into<Argument>) -> Self {
        self.declarations.push(format!("{kind} {name}"));
        self.arguments.push(value.into());
        self
    }

    /// Adds a value that is read; a null pointer to single-precision numbers for `None`.
    pub(crate) fn reads(self, name: &str, value: impl Into<Option<Value>>) -> Self {
        let value = value.into();
        let kind = format!("const {}*", value.map_or(Scalar::F32, |value| value.scalar).name());
        self.with(&kind, name, value.map_or(0, |value| value.address))
    }

    /// Adds a value that is written; a null pointer to single-precision numbers for `None`.
    pub(crate) fn writes(self, name: &str, value: impl Into<Option<Value>>) -> Self {
        let value = value.into();
        let kind = format!("{}*", value.map_or(Scalar::F32, |value| value.scalar).name());
        self.with(&kind, name, value.map_or(0, |value| value.address))
    }

    /// Adds values that are read, each with its name.
    pub(crate) fn reads_each<'a, V: Into<Option<Value>>>(
        self,
        values: impl IntoIterator<Item = (&'a str, V)>,
    ) -> Self {
        values.into_iter().fold(self, |all, (name, value)| all.reads(name, value))
    }

    pub(crate) fn writes_each<'a, V: Into<Option<Value>>>(
        self,
        values: impl IntoIterator<Item = (&'a str, V)>,
    ) -> Self {
        values.into_iter().fold(self, |all, (name, value)| all.writes(name, value))
    }

    /// Adds several values that are read, with numbered names.
    pub(crate) fn reads_all(self, name: &str, values: &[Value]) -> Self {
        values.iter().enumerate().fold(self, |all, (i, &value)| all.reads(&format!("{name}{i}"), value))
    }

    /// Adds scratch memory of single-precision numbers.
    pub(crate) fn scratch(self, name: &str, address: u64) -> Self {
        self.with("float*", name, address)
    }

    /// Adds counters that are 0 between launches.
    pub(crate) fn tickets(self, name: &str, tickets: Argument) -> Self {
        self.with("u32*", name, tickets)
    }

    pub(crate) fn u32(self, name: &str, number: u32) -> Self {
        self.with("u32", name, number)
    }

    pub(crate) fn f32(self, name: &str, number: f32) -> Self {
        self.with("float", name, number.to_bits())
    }

    pub(crate) fn f64(self, name: &str, number: f64) -> Self {
        self.with("double", name, number)
    }

    /// Marks all pointers as `__restrict__`: no two of them share memory.
    pub(crate) fn restrict(mut self) -> Self {
        for declaration in &mut self.declarations {
            *declaration = declaration.replace("* ", "* __restrict__ ");
        }
        self
    }

    pub(crate) fn len(&self) -> usize {
        self.declarations.len()
    }

    pub(crate) fn signature(&self) -> String {
        self.declarations.join(", ")
    }

    pub(crate) fn into_arguments(self) -> Vec<Argument> {
        self.arguments
    }
}

impl From<u64> for Argument {
    fn from(word: u64) -> Self {
        Self::Word(word)
    }
}

impl From<u32> for Argument {
    fn from(word: u32) -> Self {
        Self::Word(u64::from(word))
    }
}

impl From<f64> for Argument {
    fn from(value: f64) -> Self {
        Self::Word(value.to_bits())
    }
}

#[derive(Clone, Debug)]
pub(crate) struct Launch {
    pub(crate) kernel: usize,
    pub(crate) grid: [u32; 3],
    pub(crate) threads: u32,
    pub(crate) shared: u32,
    pub(crate) cluster: u32,
    pub(crate) arguments: Vec<Argument>,
}

/// Number of elements that one thread moves at once: the largest of 8 (with bf16), 4 and 2 that divides all lengths.
pub(crate) fn vector(half: bool, lengths: impl IntoIterator<Item = usize> + Clone) -> usize {
    let widths: &[usize] = if half { &[8, 4, 2] } else { &[4, 2] };
    let fits = |width: usize| lengths.clone().into_iter().all(|length| length % width == 0);
    widths.iter().copied().find(|&width| fits(width)).unwrap_or(1)
}

/// Grid of blocks of 256 threads with at least this number of threads.
pub(crate) fn blocks(threads: usize) -> [u32; 3] {
    [u32::try_from(threads.div_ceil(THREADS as usize)).expect("a grid of fewer than 2^31 blocks"), 1, 1]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_signature_has_a_declaration_for_every_value() {
        let value = |scalar: Scalar, address: u64| Value { address, scalar, count: 1 };
        let parameters = Parameters::new()
            .reads("x", value(Scalar::Bf16, 1))
            .reads("none", None)
            .writes("y", value(Scalar::F32, 2))
            .u32("count", 3)
            .f32("scale", 1.0)
            .restrict();
        let signature = "const bf16* __restrict__ x, const float* __restrict__ none, float* __restrict__ y, u32 count, float scale";
        assert_eq!(parameters.signature(), signature);
        let words: Vec<u64> = parameters
            .into_arguments()
            .into_iter()
            .map(|argument| match argument {
                Argument::Word(word) => word,
                _ => panic!("only words were given"),
            })
            .collect();
        assert_eq!(words, [1, 0, 2, 3, u64::from(1f32.to_bits())]);
    }
}
