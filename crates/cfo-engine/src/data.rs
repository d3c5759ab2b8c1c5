//! Numbers on the host that are written to a tensor.

/// Numbers on the host, to a tensor.
#[derive(Clone, Copy, Debug)]
pub enum Data<'a> {
    /// Single-precision numbers for real tensors, converted to the program's precision.
    F32(&'a [f32]),
    /// Double-precision numbers for real or double tensors.
    F64(&'a [f64]),
    /// Integers for index tensors.
    Index(&'a [u32]),
}

/// Storage type of a tensor's elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Number {
    /// Single precision.
    F32,
    /// Double precision.
    F64,
    /// 32-bit unsigned integers.
    U32,
}

impl Number {
    /// Bytes of one element.
    pub fn bytes(self) -> usize {
        match self {
            Self::F32 | Self::U32 => 4,
            Self::F64 => 8,
        }
    }
}

impl Data<'_> {
    /// Number of values.
    pub fn len(&self) -> usize {
        match self {
            Self::F32(values) => values.len(),
            Self::F64(values) => values.len(),
            Self::Index(values) => values.len(),
        }
    }

    /// Whether there are no values.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    pub(crate) fn name(&self) -> &'static str {
        match self {
            Self::F32(_) => "single",
            Self::F64(_) => "double",
            Self::Index(_) => "index",
        }
    }

    /// Converts real numbers to single precision; does nothing for indices.
    pub fn copy_to_f32(self, to: &mut [f32]) {
        match self {
            Self::F32(values) => to.copy_from_slice(values),
            Self::F64(values) => to.iter_mut().zip(values).for_each(|(to, &from)| *to = from as f32),
            Self::Index(_) => {}
        }
    }

    /// Converts real numbers to double precision; does nothing for indices.
    pub fn copy_to_f64(self, to: &mut [f64]) {
        match self {
            Self::F32(values) => to.iter_mut().zip(values).for_each(|(to, &from)| *to = f64::from(from)),
            Self::F64(values) => to.copy_from_slice(values),
            Self::Index(_) => {}
        }
    }

    /// Copies indices; does nothing for real numbers.
    pub fn copy_to_u32(self, to: &mut [u32]) {
        if let Self::Index(values) = self {
            to.copy_from_slice(values);
        }
    }
}
