//! Times in any order on both sides of a start: two integrations, each away from it.

use std::collections::BTreeMap;

use crate::rollout::{Budget, Divergence, Excursion, Prediction, Request};

/// A request cut at the starts of its trajectories.
pub(super) struct Legs<'a> {
    request: &'a Request,
    legs: Vec<Leg>,
}

/// Trajectories that go one way with one budget.
struct Leg {
    back: bool,
    /// Of each trajectory its number in the request, and for each of its times on this side the place among those asked for.
    chosen: Vec<(usize, Vec<usize>)>,
    request: Request,
    budget: Budget,
}

impl<'a> Legs<'a> {
    /// A request that is consistent, with a budget for both ways together.
    pub(super) fn new(request: &'a Request, budget: Budget) -> Self {
        // By direction and, where a number of steps is shared between both, by the steps of this one.
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

    /// What is asked of a rollout, one leg after the other.
    pub(super) fn requests(&self) -> impl Iterator<Item = (&Request, Budget)> {
        self.legs.iter().map(|leg| (&leg.request, leg.budget))
    }

    /// What was found, in the order of the times asked for; of a trajectory that diverged the times that were reached.
    pub(super) fn join(&self, size: usize, found: Vec<Prediction>) -> Prediction {
        let count = self.request.start.len();
        // Where the state of each time asked for is: in which leg, of which trajectory, at which output.
        let mut places: Vec<Vec<Option<(usize, usize, usize)>>> =
            self.request.times.iter().map(|times| vec![None; times.len()]).collect();
        let mut joined = Prediction::default();
        let mut evaluations = [0; 2];
        for (number, (leg, prediction)) in self.legs.iter().zip(&found).enumerate() {
            let most = &mut evaluations[usize::from(leg.back)];
            *most = prediction.evaluations.max(*most);
            let named = |one: &Divergence| Divergence { trajectory: leg.chosen[one.trajectory].0, ..*one };
            joined.diverged.extend(prediction.diverged.iter().map(named));
            let named =
                |one: &Excursion| Excursion { trajectory: leg.chosen[one.trajectory].0, ..one.clone() };
            joined.excursions.extend(prediction.excursions.iter().map(named));
            for (row, (i, wanted)) in leg.chosen.iter().enumerate() {
                for (output, &place) in wanted.iter().enumerate().take(prediction.times[row].len()) {
                    places[*i][place] = Some((number, row, output));
                }
            }
        }
        joined.evaluations = evaluations.iter().sum();
        joined.diverged.sort_by_key(|one| one.trajectory);
        joined.excursions.sort_by_key(|one| one.trajectory);
        let mut found = found;
        for i in 0..count {
            let reached: Vec<(usize, usize, usize)> = places[i].iter().flatten().copied().collect();
            let times = places[i].iter().zip(&self.request.times[i]).filter(|(place, _)| place.is_some());
            joined.times.push(times.map(|(_, &time)| time).collect());
            joined.states.push(gathered(&reached, &mut found, size));
        }
        joined
    }
}

/// States of one trajectory; those of a single leg that are in place already are moved instead of copied.
fn gathered(places: &[(usize, usize, usize)], found: &mut [Prediction], size: usize) -> Vec<f32> {
    let Some(&(leg, row, _)) = places.first() else { return Vec::new() };
    let in_place = places.iter().enumerate().all(|(output, &place)| place == (leg, row, output));
    if in_place && found[leg].states[row].len() == places.len() * size {
        return std::mem::take(&mut found[leg].states[row]);
    }
    let state = |&(leg, row, output): &(usize, usize, usize)| {
        &found[leg].states[row][output * size..(output + 1) * size]
    };
    places.iter().flat_map(state).copied().collect()
}

/// Places of the times from a start on and of those before it, each in order away from it. Equal times keep their order.
fn sides(start: f64, times: &[f64]) -> [Vec<usize>; 2] {
    // Times that are not numbers go ahead, where they are refused.
    let (mut behind, mut ahead): (Vec<usize>, Vec<usize>) =
        (0..times.len()).partition(|&place| times[place] < start);
    ahead.sort_by(|&a, &b| times[a].total_cmp(&times[b]));
    behind.sort_by(|&a, &b| times[b].total_cmp(&times[a]));
    [ahead, behind]
}

/// The budget of one of two ways of these lengths: a number of steps is shared between them, one at least for each.
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
