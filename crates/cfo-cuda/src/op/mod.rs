//! All other operations, one file each, named as in `ops/`.

pub(crate) mod all_reduce;
pub(crate) mod attention;
pub(crate) mod expression;
pub(crate) mod layout;
pub(crate) mod loss;
pub(crate) mod optimizer;
pub(crate) mod random;
pub(crate) mod reduce;
pub(crate) mod sample_path;
pub(crate) mod wavelet;
