//! Times on both sides of a start: two integrations, each away from it.

use crate::rollout::{Divergence, Prediction, Request};

/// A request cut at the starts of its trajectories.
pub(super) struct Legs<'a> {
    request: &'a Request,
    /// For each way the trajectories that go it, and what is asked of them.
    ways: Vec<Way>,
}

struct Way {
    /// Whether its times are those before the start, in the reverse of their order.
    back: bool,
    chosen: Vec<usize>,
    request: Request,
}

impl<'a> Legs<'a> {
    pub(super) fn new(request: &'a Request) -> Self {
        let mut ways = Vec::new();
        for back in [false, true] {
            let times: Vec<Vec<f64>> = (0..request.start.len()).map(|i| leg(request, i, back)).collect();
            let chosen: Vec<usize> = (0..times.len()).filter(|&i| !times[i].is_empty()).collect();
            if chosen.is_empty() {
                continue;
            }
            let conditions = |&i: &usize| request.conditions.get(i).cloned().unwrap_or_default();
            let leg = Request {
                start: chosen.iter().map(|&i| request.start[i]).collect(),
                states: chosen.iter().map(|&i| request.states[i].clone()).collect(),
                times: chosen.iter().map(|&i| times[i].clone()).collect(),
                conditions: chosen.iter().map(conditions).collect(),
            };
            ways.push(Way { back, chosen, request: leg });
        }
        Self { request, ways }
    }

    /// What is asked of a rollout, one way after the other.
    pub(super) fn requests(&self) -> impl Iterator<Item = &Request> {
        self.ways.iter().map(|way| &way.request)
    }

    /// What was found, in the order of the times asked for; of a trajectory that diverged the times around its start that were reached.
    pub(super) fn join(&self, size: usize, found: Vec<Prediction>) -> Prediction {
        let count = self.request.start.len();
        let mut joined = Prediction { states: vec![Vec::new(); count], ..Prediction::default() };
        joined.times = vec![Vec::new(); count];
        for (way, prediction) in self.ways.iter().zip(found) {
            joined.evaluations += prediction.evaluations;
            let named = |one: &Divergence| Divergence { trajectory: way.chosen[one.trajectory], ..*one };
            joined.diverged.extend(prediction.diverged.iter().map(named));
            for ((&i, states), times) in way.chosen.iter().zip(prediction.states).zip(prediction.times) {
                if way.back {
                    let turned = states.chunks_exact(size).rev().flatten().copied();
                    joined.states[i] = turned.chain(std::mem::take(&mut joined.states[i])).collect();
                    let turned = times.into_iter().rev();
                    joined.times[i] = turned.chain(std::mem::take(&mut joined.times[i])).collect();
                } else {
                    (joined.states[i], joined.times[i]) = (states, times);
                }
            }
        }
        joined
    }
}

/// The times of a trajectory one way: those from the start on in their order, or those before it in the reverse.
fn leg(request: &Request, i: usize, back: bool) -> Vec<f64> {
    let (start, times) = (request.start[i], &request.times[i]);
    // Which way the times run; those that all lie on one side and run away from the start are one leg as they are.
    let forward = times.first().zip(times.last()).is_none_or(|(first, last)| first <= last);
    let before = |&time: &f64| if forward { time < start } else { time > start };
    let split = times.iter().take_while(|time| before(time)).count();
    match back {
        false => times[split..].to_vec(),
        true => times[..split].iter().rev().copied().collect(),
    }
}
