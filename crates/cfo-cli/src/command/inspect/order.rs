//! The order of the trajectories in their file: whether a split in that order would mislead.

use cfo_data::store::TrajectoryFile;

/// Fewer trajectories may be sorted by chance: of files with 8 trajectories in random order, one in 20,000 is sorted.
const FEWEST: usize = 8;

#[derive(Clone, Debug)]
pub(super) struct TrajectoryOrder {
    trajectories: usize,
    parameters: Vec<Run>,
}

/// A parameter's first and last value, whether it never falls, and whether it never rises.
#[derive(Clone, Copy, Debug)]
struct Run {
    first: f64,
    last: f64,
    rises: bool,
    falls: bool,
}

impl TrajectoryOrder {
    /// Creates the order of one trajectory.
    pub fn of(parameters: &[f64]) -> Self {
        let run = |&value: &f64| Run { first: value, last: value, rises: true, falls: true };
        Self { trajectories: 1, parameters: parameters.iter().map(run).collect() }
    }

    /// Appends the trajectories that follow.
    pub fn merge(&mut self, next: Self) {
        self.trajectories += next.trajectories;
        for (run, after) in self.parameters.iter_mut().zip(next.parameters) {
            run.rises &= after.rises && run.last <= after.first;
            run.falls &= after.falls && run.last >= after.first;
            run.last = after.last;
        }
    }

    /// Returns warnings about splits in the order of the file.
    pub fn warnings(&self, file: &TrajectoryFile) -> Vec<String> {
        let has_split = file.split(0).is_some();
        let sorted = self.parameters.iter().zip(&file.description().inputs.parameters).filter(|(run, _)| {
            // A file's own split need not follow its order.
            !has_split && self.trajectories >= FEWEST && run.first != run.last && (run.rises || run.falls)
        });
        let warning = |name: &String| {
            format!(
                "the trajectories are sorted by parameter `{name}`: with a split in the order of the file, the test trajectories have \
                 values of it that training does not have; set `data.shuffle = true`, or store `split` in the file"
            )
        };
        sorted.map(|(_, name)| warning(name)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(parameters: &[f64]) -> Run {
        let mut order = TrajectoryOrder::of(&parameters[..1]);
        parameters[1..].iter().for_each(|&value| order.merge(TrajectoryOrder::of(&[value])));
        order.parameters[0]
    }

    #[test]
    fn rising_and_falling_are_told_apart() {
        let [rising, falling, mixed, constant] =
            [[1.0, 1.0, 2.0], [3.0, 2.0, 2.0], [1.0, 3.0, 2.0], [1.0; 3]].map(|values| run(&values));
        assert!(rising.rises && !rising.falls);
        assert!(!falling.rises && falling.falls);
        assert!(!mixed.rises && !mixed.falls);
        assert_eq!(constant.first, constant.last);
    }
}
