//! Group and layer normalisation.

pub(crate) mod conv_row_norm;
pub(crate) mod group_norm;
pub(crate) mod group_norm_plan;
pub(crate) mod layer_norm;
