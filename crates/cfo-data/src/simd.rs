//! Loops over many numbers, also compiled for AVX2 and selected at run time, with the same results in every lane.

/// Defines a function whose body is compiled with and without AVX2, and selected at run time.
macro_rules! vectorized {
    (
        $(#[$meta:meta])*
        $vis:vis fn $name:ident $(<const $lanes:ident: usize>)? ($($arg:ident: $type:ty),* $(,)?) $(-> $ret:ty)? $body:block
    ) => {
        $(#[$meta])*
        #[allow(unsafe_code)]
        $vis fn $name $(<const $lanes: usize>)? ($($arg: $type),*) $(-> $ret)? {
            #[inline(always)]
            fn plain $(<const $lanes: usize>)? ($($arg: $type),*) $(-> $ret)? $body
            #[cfg(target_arch = "x86_64")]
            if std::arch::is_x86_feature_detected!("avx2") {
                #[target_feature(enable = "avx2")]
                fn avx2 $(<const $lanes: usize>)? ($($arg: $type),*) $(-> $ret)? {
                    plain $(::<$lanes>)? ($($arg),*)
                }
                // SAFETY: the processor has these instructions.
                return unsafe { avx2 $(::<$lanes>)? ($($arg),*) };
            }
            plain $(::<$lanes>)? ($($arg),*)
        }
    };
}

pub(crate) use vectorized;
