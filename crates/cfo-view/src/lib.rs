//! Plots, pages and the server: trajectories, predictions and runs as pictures.
//!
//! [`plot`] draws figures as SVG and PNG, [`figures`] are those of an evaluation, [`page`] writes an HTML page, [`serve`] serves it with
//! live predictions, [`text`] has tables for terminals and Markdown.

pub mod figures;
pub mod page;
pub mod plot;
pub mod serve;
pub mod text;
