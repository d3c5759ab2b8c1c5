//! The numbers that the paper prints about its experiments, read from `published.toml`, which `scripts/results.py` reads too.

use std::sync::LazyLock;

use cfo::numerics::Spline;
use serde::Deserialize;

/// A table of the paper, or a sentence with a number.
#[derive(Deserialize)]
struct Published {
    /// The heading of the page.
    label: String,
    columns: Vec<String>,
    /// System, row, and a number for each column.
    rows: Vec<(String, String, Vec<f64>)>,
}

#[derive(Deserialize)]
struct File {
    table: Vec<Published>,
}

static PUBLISHED: LazyLock<Vec<Published>> = LazyLock::new(|| {
    let file: File = toml::from_str(include_str!("published.toml")).expect("a test reads the file");
    file.table
});

/// A number of the paper, if it prints one there.
pub(crate) fn figure(label: &str, system: &str, row: &str, column: &str) -> Option<f64> {
    let table = PUBLISHED.iter().find(|table| table.label == label)?;
    let at = table.columns.iter().position(|name| name == column)?;
    let (_, _, numbers) = table.rows.iter().find(|(of, name, _)| of == system && name == row)?;
    numbers.get(at).copied().filter(|number| number.is_finite())
}

/// Error and deviation of CFO with the system's own network, with a spline, on a share of the times.
pub(crate) fn flow(system: &str, spline: Spline, keep_rate: f64) -> [Option<f64>; 2] {
    let column = percent(keep_rate);
    ["Table 1", "Table 1, deviations"].map(|label| figure(label, system, &spline.to_string(), &column))
}

/// Error and deviation of the autoregressive model with a network. The deviation is that of the network which the paper's first table has.
pub(crate) fn next_state(system: &str, network: &str) -> [Option<f64>; 2] {
    let [first, deviation] =
        ["Table 1", "Table 1, deviations"].map(|label| figure(label, system, "autoregressive", "100 %"));
    let table = match system {
        "burgers" => "Table 5",
        "diffusion-reaction" => "Table 6",
        "shallow-water" => "Table 7",
        _ => return [first, deviation],
    };
    let error = figure(table, system, "autoregressive", network);
    [error, deviation.filter(|_| error == first)]
}

/// A share as the paper's columns write it.
pub(crate) fn percent(share: f64) -> String {
    format!("{:.0} %", 100.0 * share)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::exhibits::EXHIBITS;

    const LORENZ: &str = "lorenz";

    #[test]
    fn every_number_has_one_place_a_system_and_an_exhibit() {
        for (at, table) in PUBLISHED.iter().enumerate() {
            assert!(PUBLISHED[..at].iter().all(|other| other.label != table.label), "{}", table.label);
            let label = table.label.split(',').next().unwrap();
            assert!(EXHIBITS.iter().any(|exhibit| exhibit.label == label), "{label}");
            for (i, (system, row, numbers)) in table.rows.iter().enumerate() {
                assert!(cfo::paper::System::find(system).is_ok(), "{system}");
                assert_eq!(numbers.len(), table.columns.len(), "{label} {system} {row}");
                let again = table.rows[..i].iter().any(|(a, b, _)| a == system && b == row);
                assert!(!again, "{label} {system} {row}");
            }
        }
    }

    /// The paper prints some numbers more than once, and rounds some of them.
    #[test]
    fn numbers_that_the_paper_repeats_agree() {
        let rounds_to = |whole: f64, rounded: f64, digits: f64| {
            assert!((whole - rounded).abs() <= 0.5 * digits * 1.001, "{whole} and {rounded}");
        };
        for system in [LORENZ, "burgers", "diffusion-reaction", "shallow-water"] {
            let first = |row: &str| figure("Table 1", system, row, "100 %").unwrap();
            assert_eq!(figure("Table 11", system, "quintic", "whole"), Some(first("quintic")));
            let digits = if system == LORENZ {
                1e-4
            } else if system == "burgers" {
                1e-5
            } else {
                1e-3
            };
            rounds_to(first("quintic"), figure("Table 3", system, "cfo", "relative L2").unwrap(), digits);
            // The same baseline stands beside every solver, and half the evaluations of RK4 are timed.
            let baseline = |table| figure(table, system, "autoregressive", "100 %");
            assert_eq!(baseline("Table 2"), baseline("Table 8"));
            assert_eq!(baseline("Table 2"), baseline("Table 9"));
            let timed = figure("Table 10", system, "cfo", "at the end").unwrap();
            assert_eq!(figure("Table 2", system, "rk4", "50 %"), Some(timed));
        }
        // The first table has the best network of each of the others.
        for (system, network) in
            [("burgers", "mlp"), ("diffusion-reaction", "unet"), ("shallow-water", "dit")]
        {
            assert_eq!(next_state(system, network)[0], figure("Table 1", system, "autoregressive", "100 %"));
            assert!(next_state(system, network)[1].is_some());
        }
        assert_eq!(next_state("burgers", "unet"), [Some(2.56), None]);
        assert_eq!(next_state(LORENZ, "mlp")[0], Some(9.04e-2));
        assert_eq!(flow(LORENZ, Spline::Quintic, 0.25), [Some(6.82e-2), Some(0.48e-2)]);
        assert_eq!(flow(LORENZ, Spline::Quintic, 0.75), [None, None]);
    }
}
