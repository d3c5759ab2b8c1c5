//! Types of stored elements.

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Scalar {
    F32,
    /// bfloat16: the upper 16 bits of a single-precision number.
    Bf16,
    /// IEEE half precision: operands of convolutions in tf32 programs.
    F16,
    F64,
    Index,
}

impl Scalar {
    pub(crate) fn bytes(self) -> usize {
        match self {
            Self::Bf16 | Self::F16 => 2,
            Self::F32 | Self::Index => 4,
            Self::F64 => 8,
        }
    }

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::F32 => "float",
            Self::Bf16 => "bf16",
            Self::F16 => "fp16",
            Self::F64 => "double",
            Self::Index => "u32",
        }
    }
}

/// The value of a half-precision number.
pub(crate) fn f16_to_f64(bits: u16) -> f64 {
    let (exponent, fraction) = (i32::from(bits >> 10 & 31), f64::from(bits & 1023));
    let size = match exponent {
        0 => fraction * 2f64.powi(-24),
        31 if fraction == 0.0 => f64::INFINITY,
        31 => f64::NAN,
        _ => (1024.0 + fraction) * 2f64.powi(exponent - 25),
    };
    if bits >> 15 == 1 { -size } else { size }
}
