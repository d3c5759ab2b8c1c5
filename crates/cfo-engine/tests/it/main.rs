//! Laws of the engine: derivatives, reference values, determinism, plans, bad use.

mod check;
mod gradients;
mod training;
