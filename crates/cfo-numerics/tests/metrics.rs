//! Compares the field metrics with the same formulas in NumPy; `fixtures/make_metric.py` writes the numbers.

use cfo_numerics::Grid;
use cfo_numerics::metric::FieldErrors;

/// Prediction and truth of trajectory `b`, as in the script.
fn fields(grid: Grid, channels: u32, b: f64, times: u32) -> (Vec<f64>, Vec<f64>) {
    let (mut prediction, mut truth) = (Vec::new(), Vec::new());
    for t in (0..times).map(f64::from) {
        for point in 0..grid.points() {
            let place = grid.place(point);
            let [z, y, x] =
                [3, 2, 1].map(|back| place.len().checked_sub(back).map_or(0.0, |i| place[i] as f64));
            for c in (0..channels).map(f64::from) {
                let value = (0.7 * b + 1.3 * t + 1.1 * z + 0.5 * y + 0.9 * x + 2.0 * c).sin() + 0.1 * b;
                let error = 0.3 * (1.1 * b * (t + 1.0) + 1.7 * z * z + 2.3 * y * y + 0.4 * x * x + c).cos();
                prediction.push(value + error);
                truth.push(value);
            }
        }
    }
    (prediction, truth)
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
    for (name, sides, channels, batch, times) in [
        ("line-odd", &[33][..], 2, 3, 2),
        ("line-even", &[40], 1, 2, 3),
        ("plane", &[27, 30], 2, 3, 2),
        ("plane-wide", &[26, 64], 1, 2, 1),
        ("volume", &[27, 26, 30], 2, 2, 1),
    ] {
        let grid = Grid::new(sides).unwrap();
        let mut errors = FieldErrors::new(grid, channels as usize);
        for b in 0..batch {
            let (prediction, truth) = fields(grid, channels, f64::from(b), times);
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
