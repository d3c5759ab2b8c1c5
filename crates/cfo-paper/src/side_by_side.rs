//! Predictions of several methods for the trajectories with CFO's highest and median error.

use std::collections::HashMap;

use anyhow::Result;
use cfo::data::{Description, Trajectory};
use cfo::numerics::metric::relative_l2;

use crate::network::label;
use crate::system::Setup;
use crate::trained_run::TrainedRun;
use crate::training::NetworkTraining;
use cfo_view::figures;
use cfo_view::figures::short;
use cfo_view::plot::Panels;

/// A trajectory that is shown, with its predictions.
pub(crate) struct Shown {
    /// `worst` or `median` by the first method's error.
    pub rank: &'static str,
    /// Its number among the test trajectories.
    pub number: usize,
    truth: Trajectory,
    /// Method, prediction and its error.
    methods: Vec<(&'static str, Vec<f32>, Option<f64>)>,
}

struct SideBySide {
    description: Description,
    shown: Vec<Shown>,
}

/// Trajectories of several setups, by the stem of each setup's figures.
#[derive(Default)]
pub(crate) struct Gallery(HashMap<String, SideBySide>);

impl Gallery {
    /// Adds the first run of a method. Returns the trajectories of its system; a first method's errors choose them.
    pub fn add(&mut self, training: &NetworkTraining, outcome: &TrainedRun<'_>) -> Result<&[Shown]> {
        let (predictions, truths) = (outcome.predictions()?, truths(outcome));
        let error = |(found, truth): (&Vec<f32>, &Trajectory)| {
            (found.len() == truth.values.len()).then(|| relative_l2(found, &truth.values))
        };
        let errors: Vec<Option<f64>> = predictions.iter().zip(&truths).map(error).collect();
        let of_system = self.0.entry(training.setup.stem());
        let of_system = of_system.or_insert_with(|| SideBySide::new(outcome, &truths, &errors));
        for one in &mut of_system.shown {
            // Other seeds of a method are not shown.
            if one.methods.iter().all(|(method, ..)| *method != training.method()) {
                one.methods.push((training.method(), predictions[one.number].clone(), errors[one.number]));
            }
        }
        Ok(&of_system.shown)
    }

    /// The pictures of some setups with at least two methods; `prefix` begins the names of their files.
    pub fn pictures(&self, setups: &[Setup], prefix: &str) -> Vec<(String, Panels)> {
        let of_setup = |setup: &Setup| {
            let is_complete = |of: &&SideBySide| of.shown.iter().all(|one| one.methods.len() > 1);
            let shown = self.0.get(&setup.stem()).filter(is_complete);
            shown.map_or_else(Vec::new, |shown| {
                shown.pictures(&format!("{prefix}{}", setup.stem()), &setup.title())
            })
        };
        setups.iter().flat_map(of_setup).collect()
    }
}

impl SideBySide {
    /// Trajectories that the errors of a first method choose.
    fn new(outcome: &TrainedRun<'_>, truths: &[Trajectory], errors: &[Option<f64>]) -> Self {
        let shown = |(rank, number): (&'static str, usize)| Shown {
            rank,
            number,
            truth: truths[number].clone(),
            methods: Vec::new(),
        };
        Self { description: outcome.set.description.clone(), shown: choose(errors).map(shown).into() }
    }

    /// A picture of each trajectory, channel by channel for fields on a plane, with the names of their files.
    fn pictures(&self, stem: &str, title: &str) -> Vec<(String, Panels)> {
        let mut all = Vec::new();
        for one in &self.shown {
            let stem = format!("{stem}-{}", one.rank);
            let panels = one.beside(&self.description, &format!("{title}: CFO's {} trajectory", one.rank));
            let several = panels.len() > 1;
            let name = |i: usize| if several { format!("{stem}-{i}") } else { stem.clone() };
            all.extend(panels.into_iter().enumerate().map(|(i, panels)| (name(i), panels)));
        }
        all
    }
}

impl Shown {
    /// The last method's error; none if it diverged.
    pub fn last_error(&self) -> Option<f64> {
        self.methods.last().and_then(|(_, _, error)| *error)
    }

    fn beside(&self, description: &Description, title: &str) -> Vec<Panels> {
        let errors: Vec<String> = self
            .methods
            .iter()
            .map(|(method, _, error)| {
                let error = error.map_or_else(|| "diverged".into(), short);
                format!("{} {error}", short_label(method))
            })
            .collect();
        let methods = self.methods.iter();
        let side_by_side = figures::MethodPanels {
            description,
            times: &self.truth.times,
            truth: &self.truth.values,
            methods: methods
                .map(|(method, values, _)| (short_label(method).to_owned(), values.clone()))
                .collect(),
            title: format!("{title} (relative L2: {})", errors.join(", ")),
        };
        side_by_side.panels()
    }
}

fn short_label(method: &'static str) -> &'static str {
    if method == "conditional-flow-matching" { "CFM" } else { label(method) }
}

/// The test trajectories, from the snapshot where predictions start.
fn truths(outcome: &TrainedRun<'_>) -> Vec<Trajectory> {
    let (size, first) =
        (outcome.trained.model().shape().len(), usize::from(outcome.recipe().data.drop_first));
    let cut = |whole: &Trajectory| {
        let mut later = whole.clone();
        later.times = whole.times.part(first..whole.times.len()).expect("a trajectory has a second snapshot");
        later.values = whole.values[first * size..].to_vec();
        later
    };
    outcome.test().into_iter().map(cut).collect()
}

/// The trajectories of the highest and of the median error; one that diverged is worse than any other.
fn choose(errors: &[Option<f64>]) -> [(&'static str, usize); 2] {
    let mut order: Vec<usize> = (0..errors.len()).collect();
    let error = |at: usize| errors[at].unwrap_or(f64::INFINITY);
    order.sort_by(|&a, &b| error(a).total_cmp(&error(b)));
    [("worst", order[order.len() - 1]), ("median", order[(order.len() - 1) / 2])]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_worst_is_one_that_diverged_and_the_median_stands_in_the_middle() {
        let errors = [Some(0.3), Some(0.1), None, Some(0.2), Some(0.4)];
        assert_eq!(choose(&errors), [("worst", 2), ("median", 0)]);
        assert_eq!(choose(&[Some(1.0)]), [("worst", 0), ("median", 0)]);
    }
}
