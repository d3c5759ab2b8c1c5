//! Every number that the paper prints about its experiments: the only place where they stand.

use cfo::numerics::Spline;

/// A table of the paper, or a sentence with a number.
struct Published {
    /// As the page calls it.
    label: &'static str,
    columns: &'static [&'static str],
    /// System, row, and a number for each column.
    rows: &'static [(&'static str, &'static str, &'static [f64])],
}

/// Where the paper has no number.
const NONE: f64 = f64::NAN;

const LORENZ: &str = "lorenz";
const BURGERS: &str = "burgers";
const REACTION: &str = "diffusion-reaction";
const WATER: &str = "shallow-water";
const KS: &str = "kuramoto-sivashinsky";

const SHARES: &[&str] = &["50 %", "100 %", "200 %", "400 %"];

const PUBLISHED: [Published; 17] = [
    Published {
        label: "Table 1",
        columns: &["100 %", "50 %", "25 %"],
        rows: &[
            (LORENZ, "autoregressive", &[9.04e-2, NONE, NONE]),
            (LORENZ, "linear", &[6.42e-2, 7.85e-2, 9.39e-2]),
            (LORENZ, "quintic", &[4.53e-2, 4.75e-2, 6.82e-2]),
            (BURGERS, "autoregressive", &[3.34e-2, NONE, NONE]),
            (BURGERS, "linear", &[5.75e-3, 8.91e-3, 1.04e-2]),
            (BURGERS, "quintic", &[5.89e-3, 6.97e-3, 7.09e-3]),
            (REACTION, "autoregressive", &[4.23e-1, NONE, NONE]),
            (REACTION, "linear", &[4.35e-2, 6.88e-2, 7.25e-2]),
            (REACTION, "quintic", &[4.37e-2, 6.19e-2, 5.32e-2]),
            (WATER, "autoregressive", &[9.04e-2, NONE, NONE]),
            (WATER, "linear", &[5.93e-3, 7.64e-3, 1.69e-2]),
            (WATER, "quintic", &[4.56e-3, 6.57e-3, 1.55e-2]),
        ],
    },
    // The standard deviations behind them.
    Published {
        label: "Table 1, deviations",
        columns: &["100 %", "50 %", "25 %"],
        rows: &[
            (LORENZ, "autoregressive", &[2.80e-2, NONE, NONE]),
            (LORENZ, "linear", &[0.69e-2, 0.25e-2, 0.77e-2]),
            (LORENZ, "quintic", &[0.68e-2, 0.78e-2, 0.48e-2]),
            (BURGERS, "autoregressive", &[0.14e-2, NONE, NONE]),
            (BURGERS, "linear", &[0.72e-3, 1.30e-3, 0.15e-2]),
            (BURGERS, "quintic", &[0.79e-3, 0.73e-3, 1.10e-3]),
            (REACTION, "autoregressive", &[0.59e-1, NONE, NONE]),
            (REACTION, "linear", &[0.67e-2, 0.49e-2, 0.48e-2]),
            (REACTION, "quintic", &[0.47e-2, 0.35e-2, 0.65e-2]),
            (WATER, "autoregressive", &[0.36e-2, NONE, NONE]),
            (WATER, "linear", &[0.95e-3, 0.52e-3, 0.38e-2]),
            (WATER, "quintic", &[0.38e-3, 0.66e-3, 0.22e-2]),
        ],
    },
    // In the text beside the figure.
    Published { label: "Figure 4", columns: &["worst"], rows: &[(BURGERS, "quintic", &[0.0307])] },
    Published {
        label: "Table 2",
        columns: SHARES,
        rows: &[
            (LORENZ, "autoregressive", &[NONE, 0.1481, NONE, NONE]),
            (LORENZ, "rk4", &[0.0919, 0.0655, 0.0674, 0.0645]),
            (BURGERS, "autoregressive", &[NONE, 0.0647, NONE, NONE]),
            (BURGERS, "rk4", &[0.0090, 0.0089, 0.0090, 0.0089]),
            (REACTION, "autoregressive", &[NONE, 0.3850, NONE, NONE]),
            (REACTION, "rk4", &[0.0876, 0.0718, 0.0608, 0.0593]),
            (WATER, "autoregressive", &[NONE, 0.1048, NONE, NONE]),
            (WATER, "rk4", &[0.0698, 0.0154, 0.0060, 0.0061]),
        ],
    },
    Published {
        label: "Table 3",
        columns: &["relative L2", "seconds a batch"],
        rows: &[
            (LORENZ, "neural-ode", &[0.101, 0.133]),
            (LORENZ, "cfo", &[0.0453, 0.0035]),
            (BURGERS, "neural-ode", &[0.0275, 3.38]),
            (BURGERS, "cfo", &[0.00589, 0.0092]),
            (REACTION, "pde-refiner", &[0.125, 1.38]),
            (REACTION, "cfo", &[0.044, 0.40]),
            (WATER, "pde-refiner", &[0.093, 1.40]),
            (WATER, "cfo", &[0.005, 0.40]),
        ],
    },
    Published {
        label: "Table 4, quintic",
        columns: &["error, 0", "order, 0", "error, 1", "order, 1"],
        rows: &[
            (LORENZ, "1", &[5.33e-4, NONE, 5.32e-4, NONE]),
            (LORENZ, "2", &[2.16e-3, 2.02, 2.16e-3, 2.02]),
            (LORENZ, "4", &[8.63e-3, 2.00, 8.63e-3, 2.00]),
        ],
    },
    Published {
        label: "Table 4, linear",
        columns: &["error, 0", "order, 0", "error, 1", "order, 1"],
        rows: &[
            (LORENZ, "1", &[2.49e-2, NONE, 2.48e-2, NONE]),
            (LORENZ, "2", &[4.97e-2, 1.00, 4.96e-2, 1.00]),
            (LORENZ, "4", &[9.92e-2, 1.00, 9.88e-2, 1.00]),
        ],
    },
    Published {
        label: "Table 5",
        columns: &["mlp", "unet", "fno"],
        rows: &[(BURGERS, "autoregressive", &[3.34e-2, 2.56, 1.16])],
    },
    Published {
        label: "Table 6",
        columns: &["unet", "dit"],
        rows: &[(REACTION, "autoregressive", &[4.23e-1, 9.21e-1])],
    },
    Published {
        label: "Table 7",
        columns: &["unet", "dit"],
        rows: &[(WATER, "autoregressive", &[3.16e-1, 9.04e-2])],
    },
    Published {
        label: "Table 8",
        columns: SHARES,
        rows: &[
            (LORENZ, "autoregressive", &[NONE, 0.1481, NONE, NONE]),
            (LORENZ, "euler", &[0.3032, 0.2821, 0.2337, 0.2076]),
            (BURGERS, "autoregressive", &[NONE, 0.0647, NONE, NONE]),
            (BURGERS, "euler", &[0.0142, 0.0111, 0.0099, 0.0094]),
            (REACTION, "autoregressive", &[NONE, 0.3850, NONE, NONE]),
            (REACTION, "euler", &[0.0611, 0.0603, 0.0588, 0.0603]),
            (WATER, "autoregressive", &[NONE, 0.1048, NONE, NONE]),
            (WATER, "euler", &[0.1345, 0.0978, 0.0651, 0.0389]),
        ],
    },
    Published {
        label: "Table 9",
        columns: SHARES,
        rows: &[
            (LORENZ, "autoregressive", &[NONE, 0.1481, NONE, NONE]),
            (LORENZ, "heun", &[0.1878, 0.1052, 0.0705, 0.0651]),
            (BURGERS, "autoregressive", &[NONE, 0.0647, NONE, NONE]),
            (BURGERS, "heun", &[0.0090, 0.0090, 0.0090, 0.0090]),
            (REACTION, "autoregressive", &[NONE, 0.3850, NONE, NONE]),
            (REACTION, "heun", &[0.0694, 0.0601, 0.0600, 0.0594]),
            (WATER, "autoregressive", &[NONE, 0.1048, NONE, NONE]),
            (WATER, "heun", &[0.0874, 0.0249, 0.0076, 0.0061]),
        ],
    },
    Published {
        label: "Table 10",
        columns: &["milliseconds", "at the end"],
        rows: &[
            (LORENZ, "autoregressive", &[0.16, 1.48e-1]),
            (LORENZ, "cfo", &[0.12, 9.19e-2]),
            (BURGERS, "autoregressive", &[0.68, 1.03e1]),
            (BURGERS, "cfo", &[0.31, 9.00e-3]),
            (REACTION, "autoregressive", &[117.18, 3.74e-1]),
            (REACTION, "cfo", &[49.36, 8.76e-2]),
            (WATER, "autoregressive", &[111.83, 3.84e-1]),
            (WATER, "cfo", &[49.63, 6.98e-2]),
        ],
    },
    Published {
        label: "Table 11",
        columns: &["whole", "first half"],
        rows: &[
            (LORENZ, "quintic", &[4.53e-2, 3.67e-2]),
            (BURGERS, "quintic", &[5.89e-3, 7.94e-3]),
            (REACTION, "quintic", &[4.37e-2, 4.78e-2]),
            (WATER, "quintic", &[4.56e-3, 2.28e-2]),
        ],
    },
    Published {
        label: "Table 12",
        columns: &["relative L2"],
        rows: &[(BURGERS, "fno", &[6.8e-3]), (WATER, "dit", &[8.3e-3]), (REACTION, "dit", &[8.21e-2])],
    },
    // 1 h, 40 h 53 min, 1 h 5 min.
    Published {
        label: "Table 13",
        columns: &["relative L2", "seconds"],
        rows: &[
            (KS, "autoregressive", &[0.317, 3600.0]),
            (KS, "neural-ode", &[0.197, 147_180.0]),
            (KS, "cfo", &[0.105, 3900.0]),
        ],
    },
    // The paper does not say of which wavelet.
    Published {
        label: "Table 14",
        columns: &["relative L2"],
        rows: &[(WATER, "latent", &[0.0053]), (REACTION, "latent", &[0.0218])],
    },
];

/// A number of the paper, if it prints one there.
pub(super) fn figure(label: &str, system: &str, row: &str, column: &str) -> Option<f64> {
    let table = PUBLISHED.iter().find(|table| table.label == label)?;
    let at = table.columns.iter().position(|name| *name == column)?;
    let (_, _, numbers) = table.rows.iter().find(|(of, name, _)| *of == system && *name == row)?;
    numbers.get(at).copied().filter(|number| number.is_finite())
}

/// Error and deviation of CFO with the system's own network, with a spline, on a share of the times.
pub(super) fn flow(system: &str, spline: Spline, keep_rate: f64) -> [Option<f64>; 2] {
    let column = percent(keep_rate);
    ["Table 1", "Table 1, deviations"].map(|label| figure(label, system, &spline.to_string(), &column))
}

/// Error and deviation of next-state prediction with a network. The deviation is that of the network which the paper's first table has.
pub(super) fn next_state(system: &str, network: &str) -> [Option<f64>; 2] {
    let [first, deviation] =
        ["Table 1", "Table 1, deviations"].map(|label| figure(label, system, "autoregressive", "100 %"));
    let table = match system {
        BURGERS => "Table 5",
        REACTION => "Table 6",
        WATER => "Table 7",
        _ => return [first, deviation],
    };
    let error = figure(table, system, "autoregressive", network);
    [error, deviation.filter(|_| error == first)]
}

/// A share as the paper's columns write it.
pub(super) fn percent(share: f64) -> String {
    format!("{:.0} %", 100.0 * share)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::command::reproduce::exhibits::EXHIBITS;

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
        for system in [LORENZ, BURGERS, REACTION, WATER] {
            let first = |row: &str| figure("Table 1", system, row, "100 %").unwrap();
            assert_eq!(figure("Table 11", system, "quintic", "whole"), Some(first("quintic")));
            let digits = if system == LORENZ {
                1e-4
            } else if system == BURGERS {
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
        for (system, network) in [(BURGERS, "mlp"), (REACTION, "unet"), (WATER, "dit")] {
            assert_eq!(next_state(system, network)[0], figure("Table 1", system, "autoregressive", "100 %"));
            assert!(next_state(system, network)[1].is_some());
        }
        assert_eq!(next_state(BURGERS, "unet"), [Some(2.56), None]);
        assert_eq!(next_state(LORENZ, "mlp")[0], Some(9.04e-2));
        assert_eq!(flow(LORENZ, Spline::Quintic, 0.25), [Some(6.82e-2), Some(0.48e-2)]);
        assert_eq!(flow(LORENZ, Spline::Quintic, 0.75), [None, None]);
    }
}
