//! The paper's tables and figures in its order, and which experiment shows each.

use serde_json::Value;

use crate::options::Experiment::{
    self, Backbones, Baselines, Extrapolation, Figures, Ks, Latent, Nfe, Noise, Reverse, Runtime,
    SplineOrder, Table1,
};

#[derive(Clone, Copy, Debug)]
pub(crate) struct Exhibit {
    /// Its number in the paper, in the order of the source.
    pub label: &'static str,
    pub title: &'static str,
    /// The experiment that repeats it.
    pub target: Experiment,
    /// Whether it has a row of the experiment's report; a figure has none.
    pub has_row: fn(&Value) -> bool,
    /// First parts of the names of its figures' files.
    pub figures: &'static [&'static str],
}

const fn table(
    label: &'static str,
    title: &'static str,
    target: Experiment,
    has_row: fn(&Value) -> bool,
    figures: &'static [&'static str],
) -> Exhibit {
    Exhibit { label, title, target, has_row, figures }
}

const fn figure(
    label: &'static str,
    title: &'static str,
    target: Experiment,
    figures: &'static [&'static str],
) -> Exhibit {
    table(label, title, target, |_| false, figures)
}

/// Every table and figure but the paper's first figure, which shows the method.
pub(crate) const EXHIBITS: [Exhibit; 25] = [
    table(
        "Table 1",
        "Rollout errors at keep rates of 100, 50 and 25 %",
        Table1,
        |_| true,
        &["error-over-time-"],
    ),
    figure("Figure 2", "Velocity error of splines on Lorenz", SplineOrder, &["error-over-segment"]),
    figure(
        "Figure 3",
        "Training loss of linear and quintic CFO on Lorenz, and on the other systems",
        Table1,
        &["training-loss-"],
    ),
    figure(
        "Figure 4",
        "CFO on 25 % of the times and the baseline on the worst trajectory of Burgers, and on the median one",
        Figures,
        &["burgers-"],
    ),
    table(
        "Table 2",
        "Error over network evaluations, RK4",
        Nfe,
        |row| of_solver(row, "rk4"),
        &["error-over-evaluations-"],
    ),
    table(
        "Table 3",
        "Neural ODE, PDE-Refiner and CFO",
        Baselines,
        |row| row["method"] != "conditional-flow-matching",
        &["error-over-time-"],
    ),
    table("Table 4", "Endpoint errors and orders of splines on Lorenz", SplineOrder, |_| true, &[]),
    table(
        "Table 5",
        "Autoregressive models with different networks on Burgers",
        Table1,
        |row| is_baseline(row, "burgers"),
        &[],
    ),
    table(
        "Table 6",
        "Autoregressive models with different networks on diffusion-reaction",
        Table1,
        |row| is_baseline(row, "diffusion-reaction"),
        &[],
    ),
    figure(
        "Figure 5",
        "CFO on 25 % of the times and the baseline on diffusion-reaction",
        Figures,
        &["diffusion-reaction-"],
    ),
    table(
        "Table 7",
        "Autoregressive models with different networks on shallow water",
        Table1,
        |row| is_baseline(row, "shallow-water"),
        &[],
    ),
    figure(
        "Figure 6",
        "CFO on 25 % of the times and the baseline on shallow water",
        Figures,
        &["shallow-water-"],
    ),
    table(
        "Figure 7",
        "Error over the amplitude of the noise around the spline",
        Noise,
        |_| true,
        &["error-over-noise-"],
    ),
    table("Table 8", "Error over network evaluations, Euler", Nfe, |row| of_solver(row, "euler"), &[]),
    table("Table 9", "Error over network evaluations, Heun", Nfe, |row| of_solver(row, "heun"), &[]),
    table("Table 10", "Time of rollouts at half the evaluations", Runtime, |_| true, &[]),
    figure("Figure 8", "Error over wall-clock time", Runtime, &["error-over-milliseconds-"]),
    figure("Figure 9", "Training loss of CFO and of the neural ODE on Lorenz", Figures, &["loss-"]),
    table(
        "Figure 10",
        "Conditional flow matching on Burgers",
        Baselines,
        |row| row["system"] == "burgers",
        &["side-by-side-burgers"],
    ),
    table(
        "Figure 11",
        "Burgers' equation backward in time",
        Reverse,
        |_| true,
        &["error-backward", "first-snapshot"],
    ),
    table("Table 11", "Extrapolation past the training horizon", Extrapolation, |_| true, &[]),
    figure(
        "Figure 12",
        "Errors over time of networks trained on half the horizon",
        Extrapolation,
        &["error-over-time-"],
    ),
    table("Table 12", "CFO with different networks", Backbones, |_| true, &["error-over-time-"]),
    table("Table 13", "The Kuramoto-Sivashinsky equation", Ks, |_| true, &["error-over-time-"]),
    table("Table 14", "CFO in wavelet coefficients", Latent, |_| true, &["error-over-time-"]),
];

/// Whether a row is the baseline's, or CFO's with a solver.
fn of_solver(row: &Value, solver: &str) -> bool {
    row["method"] == "autoregressive" || row["solver"] == solver
}

/// Whether a row is the autoregressive model's on a system.
fn is_baseline(row: &Value, system: &str) -> bool {
    row["system"] == system && row["method"] == "autoregressive"
}

/// The experiments that repeat them, each once, in the order in which they are first needed.
pub(crate) fn targets() -> Vec<Experiment> {
    let mut targets = Vec::new();
    for exhibit in &EXHIBITS {
        if !targets.contains(&exhibit.target) {
            targets.push(exhibit.target);
        }
    }
    targets
}
