//! Vector instructions: one source, compiled for AVX-512, for AVX2 and without either, selected at run time.

use std::sync::OnceLock;

/// Levels of vector instructions, in increasing order.
#[doc(hidden)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// Only instructions that the compiler may use everywhere.
    Plain,
    /// AVX2 and FMA.
    Avx2,
    /// AVX-512 F, BW, DQ and VL.
    Avx512,
}

impl Level {
    /// Levels of this processor in increasing order, independently of `CFO_SIMD`.
    pub fn available() -> impl Iterator<Item = Self> {
        [Self::Plain, Self::Avx2, Self::Avx512].into_iter().filter(|&level| level <= detected())
    }
}

/// The best level of this processor, or the lower one in `CFO_SIMD` (`plain`, `avx2`), which tests use.
#[inline]
pub(crate) fn level() -> Level {
    static LEVEL: OnceLock<Level> = OnceLock::new();
    *LEVEL.get_or_init(|| match std::env::var("CFO_SIMD").as_deref() {
        Ok("plain") => Level::Plain,
        Ok("avx2") => detected().min(Level::Avx2),
        _ => detected(),
    })
}

fn detected() -> Level {
    #[cfg(target_arch = "x86_64")]
    {
        if is_x86_feature_detected!("avx512f")
            && is_x86_feature_detected!("avx512bw")
            && is_x86_feature_detected!("avx512dq")
            && is_x86_feature_detected!("avx512vl")
        {
            return Level::Avx512;
        }
        if is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma") {
            return Level::Avx2;
        }
    }
    Level::Plain
}

/// Name for display.
pub fn name() -> &'static str {
    match level() {
        Level::Avx512 => "AVX-512",
        Level::Avx2 => "AVX2",
        Level::Plain => "plain",
    }
}

/// Defines a function over `T: Real` whose body is compiled once for each level and selected at run time. For `f64`,
/// which only checks use, it is compiled once without special instructions to reduce build time. `@at level;` selects a
/// level other than the process's; the processor must support it.
macro_rules! vectorized {
    ($(#[$meta:meta])* $vis:vis fn $($rest:tt)*) => {
        crate::simd::vectorized! { @at crate::simd::level(); $(#[$meta])* $vis fn $($rest)* }
    };
    (@at $level:expr; $(#[$meta:meta])* $vis:vis fn $name:ident<$t:ident>($($arg:ident: $type:ty),* $(,)?) $(-> $ret:ty)? $body:block) => {
        $(#[$meta])*
        #[allow(unsafe_code, clippy::too_many_arguments)]
        $vis fn $name<$t: crate::scalar::Real>($($arg: $type),*) $(-> $ret)? {
            #[inline(always)]
            fn plain<$t: crate::scalar::Real>($($arg: $type),*) $(-> $ret)? $body
            #[cfg(target_arch = "x86_64")]
            if $t::WORKS {
                #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma")]
                fn avx512<$t: crate::scalar::Real>($($arg: $type),*) $(-> $ret)? { plain::<$t>($($arg),*) }
                #[target_feature(enable = "avx2,fma")]
                fn avx2<$t: crate::scalar::Real>($($arg: $type),*) $(-> $ret)? { plain::<$t>($($arg),*) }
                match $level {
                    // SAFETY: the level guarantees that the processor has these instructions.
                    crate::simd::Level::Avx512 => return unsafe { avx512::<$t>($($arg),*) },
                    // SAFETY: as above.
                    crate::simd::Level::Avx2 => return unsafe { avx2::<$t>($($arg),*) },
                    crate::simd::Level::Plain => {}
                }
            }
            plain::<$t>($($arg),*)
        }
    };
}

pub(crate) use vectorized;

vectorized! {
pub(crate) fn add<T>(from: &[T], to: &mut [T]) {
    for (to, &from) in to.iter_mut().zip(from) {
        *to += from;
    }
}
}
