//! Requests with times on both sides of a start. They are divided into two integrations, one in each direction.

use std::collections::BTreeMap;

use crate::predict::rollout::{Prediction, Request};
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
                leg.request.inputs.push(request.inputs.get(i).cloned().unwrap_or_default());
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
        if self.is_whole() {
            return found.pop().unwrap_or_default();
        }
        let asked = &self.request.times;
        let mut joined = Prediction::default();
        let mut evaluations = [0; 2];
        let mut reached: Vec<Vec<Option<&[f32]>>> =
            asked.iter().map(|times| vec![None; times.len()]).collect();
        for (leg, prediction) in self.legs.iter().zip(&found) {
            let most = &mut evaluations[usize::from(leg.back)];
            *most = prediction.evaluations.max(*most);
            let number = |row: usize| leg.chosen[row].0;
            joined.diverged.extend(prediction.diverged.iter().map(|one| one.numbered(number)));
            joined.excursions.extend(prediction.excursions.iter().map(|one| one.numbered(number)));
            for ((i, places), states) in leg.chosen.iter().zip(&prediction.states) {
                for (&place, state) in places.iter().zip(states.chunks_exact(size)) {
                    reached[*i][place] = Some(state);
                }
            }
        }
        joined.evaluations = evaluations.iter().sum();
        joined.diverged.sort_by_key(|one| one.trajectory);
        joined.excursions.sort_by_key(|one| one.trajectory);
        for (times, states) in asked.iter().zip(reached) {
            let arrived = times.iter().zip(&states).filter(|(_, state)| state.is_some());
            joined.times.push(arrived.map(|(&time, _)| time).collect());
            joined.states.push(states.into_iter().flatten().flatten().copied().collect());
        }
        joined
    }

    /// Returns whether one leg has all trajectories with their times in order, so that its prediction is that of the request.
    fn is_whole(&self) -> bool {
        let [leg] = &self.legs[..] else { return false };
        leg.chosen.len() == self.request.start.len()
            && leg.chosen.iter().all(|(_, places)| places.is_sorted())
    }
}

/// Returns the positions of the times from a start on, and of those before it, each in order of their distance.
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
