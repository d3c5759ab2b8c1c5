//! Compares the field metrics with the same formulas in NumPy; `fixtures/make_metric.py` writes the numbers.

use cfo_numerics::metric::{FieldErrors, Grid};

/// Prediction and truth of trajectory `b`, as in the script.
fn fields(grid: &Grid, b: f64, times: usize) -> (Vec<f64>, Vec<f64>) {
    let mut pair = (Vec::new(), Vec::new());
    for t in (0..times).map(|t| t as f64) {
        for y in (0..grid.height).map(|y| y as f64) {
            for x in (0..grid.width).map(|x| x as f64) {
                for c in (0..grid.channels).map(|c| c as f64) {
                    let truth = (0.7 * b + 1.3 * t + 0.5 * y + 0.9 * x + 2.0 * c).sin() + 0.1 * b;
                    let error = 0.3 * (1.1 * b * (t + 1.0) + 2.3 * y * y + 0.4 * x * x + c).cos();
                    pair.0.push(truth + error);
                    pair.1.push(truth);
                }
            }
        }
    }
    pair
}

#[test]
fn pdebench_and_the_well_metrics_are_numpys() {
    let lines: Vec<(&str, Vec<f64>)> = include_str!("fixtures/metric.txt")
        .lines()
        .map(|line| {
            let (name, numbers) = line.split_once(' ').unwrap();
            (name, numbers.split(' ').map(|number| number.parse().unwrap()).collect())
        })
        .collect();
    for (name, grid, batch, times) in [
        ("line-odd", Grid::line(33, 2), 3, 2),
        ("line-even", Grid::line(40, 1), 2, 3),
        ("plane", Grid::plane(27, 30, 2), 3, 2),
        ("plane-wide", Grid::plane(26, 64, 1), 2, 1),
    ] {
        let mut errors = FieldErrors::new(grid);
        for b in 0..batch {
            let (prediction, truth) = fields(&grid, f64::from(b), times);
            errors.push(&prediction, &truth);
        }
        let report = errors.report();
        let expected = lines.iter().filter_map(|(line, numbers)| {
            line.strip_prefix(name)?.strip_prefix('/').map(|metric| (metric, numbers))
        });
        let mut compared = 0;
        for (metric, numbers) in expected {
            let found = match metric {
                "rmse" => vec![report.rmse],
                "nrmse" => vec![report.nrmse],
                "crmse" => vec![report.crmse],
                "maximum" => vec![report.maximum],
                "brmse" => vec![report.brmse.unwrap()],
                "frmse" => report.frmse.unwrap().to_vec(),
                "vrmse" => vec![report.vrmse.unwrap()],
                _ => panic!("unknown metric {metric}"),
            };
            assert_eq!(found.len(), numbers.len());
            for (found, expected) in found.iter().zip(numbers) {
                // Sums of a few hundred terms; the sine's argument is a few hundred, so its round-off is some 1e-14.
                assert!(
                    (found - expected).abs() <= 1e-12 * expected.abs().max(0.1),
                    "{name} {metric}: {found} {expected}"
                );
            }
            compared += 1;
        }
        assert_eq!(compared, 7, "{name}");
    }
}
