//! Laws of the engine: derivatives, reference values, determinism, plans, bad use.

mod check;
mod conv;
mod gradients;
mod training;
