//! Requests with times on both sides of a start. They are divided into two integrations, one in each direction.

use std::collections::BTreeMap;
use std::mem;

use crate::predict::rollout::{Divergence, Excursion, Prediction, Request};
use crate::recipe::Budget;

/// A request divided at the starts of its trajectories.
pub(super) struct Legs<'a> {
    request: &'a Request,
    legs: Vec<Leg>,
}

/// Trajectories with one direction and one budget.
struct Leg {
    back: bool,
    /// For each trajectory, its index in the request, and the position of each of its times in this direction among the requested times.
    chosen: Vec<(usize, Vec<usize>)>,
    request: Request,
    budget: Budget,
}

impl<'a> Legs<'a> {
    /// Divides a consistent request. The budget is that of both directions together.
    pub(super) fn new(request: &'a Request, budget: Budget) -> Self {
        // Keyed by direction and, if a number of steps is shared between both directions, by the steps of this one.
        let mut legs: BTreeMap<(bool, usize), Leg> = BTreeMap::new();
        for (i, &start) in request.start.iter().enumerate() {
            let times = &request.times[i];
            let [ahead, behind] = sides(start, times);
            let reach = |places: &[usize]| places.last().map_or(0.0, |&last| (times[last] - start).abs());
            let ways = [reach(&ahead), reach(&behind)];
            for (back, places) in [(false, ahead), (true, behind)] {
                if places.is_empty() {
                    continue;
                }
                let own = shared(budget, ways, usize::from(back));
                let steps = if let Budget::Steps(steps) = own { steps } else { 0 };
                let leg = legs.entry((back, steps)).or_insert_with(|| Leg {
                    back,
                    chosen: Vec::new(),
                    request: Request::default(),
                    budget: own,
                });
                leg.request.start.push(start);
                leg.request.states.push(request.states[i].clone());
                leg.request.times.push(places.iter().map(|&place| times[place]).collect());
                leg.request.conditions.push(request.conditions.get(i).cloned().unwrap_or_default());
                leg.chosen.push((i, places));
            }
        }
        Self { request, legs: legs.into_values().collect() }
    }

    /// Returns the requests for a rollout, one per leg.
    pub(super) fn requests(&self) -> impl Iterator<Item = (&Request, Budget)> {
        self.legs.iter().map(|leg| (&leg.request, leg.budget))
    }

    /// Joins the predictions, in the order of the requested times. A trajectory that diverged has the times that were reached.
    pub(super) fn join(&self, size: usize, mut found: Vec<Prediction>) -> Prediction {
        let count = self.request.start.len();
        let mut joined = Prediction::default();
        let mut evaluations = [0; 2];
        // The leg and the row in it of each trajectory.
        let mut rows: Vec<Vec<(usize, usize)>> = vec![Vec::new(); count];
        for (number, (leg, prediction)) in self.legs.iter().zip(&found).enumerate() {
            let most = &mut evaluations[usize::from(leg.back)];
            *most = prediction.evaluations.max(*most);
            let named = |one: &Divergence| Divergence { trajectory: leg.chosen[one.trajectory].0, ..*one };
            joined.diverged.extend(prediction.diverged.iter().map(named));
            let named =
                |one: &Excursion| Excursion { trajectory: leg.chosen[one.trajectory].0, ..one.clone() };
            joined.excursions.extend(prediction.excursions.iter().map(named));
            leg.chosen.iter().enumerate().for_each(|(row, (i, _))| rows[*i].push((number, row)));
        }
        joined.evaluations = evaluations.iter().sum();
        joined.diverged.sort_by_key(|one| one.trajectory);
        joined.excursions.sort_by_key(|one| one.trajectory);
        for (i, rows) in rows.iter().enumerate() {
            let (times, states) = match rows[..] {
                [] => (Vec::new(), Vec::new()),
                [(leg, row)] if self.legs[leg].chosen[row].1.is_sorted() => {
                    let prediction = &mut found[leg];
                    (mem::take(&mut prediction.times[row]), mem::take(&mut prediction.states[row]))
                }
                _ => self.reordered(i, rows, &found, size),
            };
            joined.times.push(times);
            joined.states.push(states);
        }
        joined
    }

    /// Returns the times of a trajectory that were reached, in the requested order, and the states there.
    fn reordered(
        &self,
        trajectory: usize,
        rows: &[(usize, usize)],
        found: &[Prediction],
        size: usize,
    ) -> (Vec<f64>, Vec<f32>) {
        let asked = &self.request.times[trajectory];
        let mut reached: Vec<Option<&[f32]>> = vec![None; asked.len()];
        for &(leg, row) in rows {
            let states = found[leg].states[row].chunks_exact(size);
            for (&place, state) in self.legs[leg].chosen[row].1.iter().zip(states) {
                reached[place] = Some(state);
            }
        }
        let times = asked.iter().zip(&reached).filter(|(_, state)| state.is_some());
        let times = times.map(|(&time, _)| time).collect();
        (times, reached.into_iter().flatten().flatten().copied().collect())
    }
}

/// Returns the positions of the times from a start on, and of those before it, each in order of their distance. Equal times keep their
/// order.
fn sides(start: f64, times: &[f64]) -> [Vec<usize>; 2] {
    // Times that are NaN are in the first group, which a rollout refuses.
    let (mut behind, mut ahead): (Vec<usize>, Vec<usize>) =
        (0..times.len()).partition(|&place| times[place] < start);
    ahead.sort_by(|&a, &b| times[a].total_cmp(&times[b]));
    behind.sort_by(|&a, &b| times[b].total_cmp(&times[a]));
    [ahead, behind]
}

/// Returns the budget of one of two directions with these lengths. A number of steps is shared between them, with at least one for each.
fn shared(budget: Budget, ways: [f64; 2], side: usize) -> Budget {
    let Budget::Steps(steps) = budget else { return budget };
    if ways.contains(&0.0) {
        return budget;
    }
    let ahead = (steps as f64 * ways[0] / (ways[0] + ways[1])).round() as usize;
    let ahead = ahead.clamp(1, steps.saturating_sub(1).max(1));
    Budget::Steps([ahead, (steps - ahead).max(1)][side])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_of_steps_is_shared_between_both_ways() {
        let steps = |steps, ways| [0, 1].map(|side| shared(Budget::Steps(steps), ways, side));
        assert_eq!(steps(10, [2.0, 0.0]), [Budget::Steps(10); 2]);
        assert_eq!(steps(10, [3.0, 1.0]), [Budget::Steps(8), Budget::Steps(2)]);
        assert_eq!(steps(10, [1e-9, 1.0]), [Budget::Steps(1), Budget::Steps(9)]);
        assert_eq!(steps(1, [1.0, 1.0]), [Budget::Steps(1); 2]);
        assert_eq!(shared(Budget::Evaluations(8), [1.0, 1.0], 0), Budget::Evaluations(8));
    }

    #[test]
    fn times_are_taken_in_order_away_from_the_start() {
        assert_eq!(sides(1.0, &[3.0, 0.5, 1.0, 2.0, 0.0, 2.0]), [vec![2, 3, 5, 0], vec![1, 4]]);
    }
}
