//! Numbers on the host, to or from a tensor.

/// Numbers on the host, to a tensor.
#[derive(Clone, Copy, Debug)]
pub enum Data<'a> {
    /// For real tensors, converted to the program's precision.
    F32(&'a [f32]),
    /// For real or double tensors.
    F64(&'a [f64]),
    /// For index tensors.
    Index(&'a [u32]),
}

/// How a tensor's elements are stored.
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
    /// Bytes of one.
    pub fn bytes(self) -> usize {
        match self {
            Self::F32 | Self::U32 => 4,
            Self::F64 => 8,
        }
    }
}

impl Data<'_> {
    /// How many there are.
    pub fn len(&self) -> usize {
        match self {
            Self::F32(values) => values.len(),
            Self::F64(values) => values.len(),
            Self::Index(values) => values.len(),
        }
    }

    /// Whether there are none.
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

    /// Converts real numbers to single precision; indices are left out.
    pub fn copy_to_f32(self, to: &mut [f32]) {
        match self {
            Self::F32(values) => to.copy_from_slice(values),
            Self::F64(values) => to.iter_mut().zip(values).for_each(|(to, &from)| *to = from as f32),
            Self::Index(_) => {}
        }
    }

    /// Converts real numbers to double precision; indices are left out.
    pub fn copy_to_f64(self, to: &mut [f64]) {
        match self {
            Self::F32(values) => to.iter_mut().zip(values).for_each(|(to, &from)| *to = f64::from(from)),
            Self::F64(values) => to.copy_from_slice(values),
            Self::Index(_) => {}
        }
    }

    /// Copies indices; real numbers are left out.
    pub fn copy_to_u32(self, to: &mut [u32]) {
        if let Self::Index(values) = self {
            to.copy_from_slice(values);
        }
    }
}
