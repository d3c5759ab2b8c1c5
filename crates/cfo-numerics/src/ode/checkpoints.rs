//! Checkpointing of solver states, so that steps can be replayed backward in bounded memory.

/// Keeps the states at the start of some steps in a fixed number of slots, for a number of steps that is not known in
/// advance. On the way back it selects the kept state from which a state is recomputed.
///
/// Going forward, every step is kept until the slots are full. Then every other kept step is dropped, only every second
/// step is kept from there on, and so on. A quarter of the slots is reserved for the way back. Going back, free slots
/// keep states half way to the requested one (recursive checkpointing). If there is a slot for every step, nothing is
/// recomputed.
///
/// ```
/// use cfo_numerics::ode::StepCheckpoints;
///
/// let mut checkpoints = StepCheckpoints::new(2);
/// let kept: Vec<Option<usize>> = (0..5).map(|step| checkpoints.keep(step)).collect();
/// assert_eq!(kept, [Some(0), Some(1), Some(1), None, Some(1)]);
/// let recall = checkpoints.recall(3);
/// assert_eq!((recall.step, recall.slot, recall.keep), (0, 0, vec![(1, 1)]));
/// ```
#[derive(Clone, Debug)]
pub struct StepCheckpoints {
    /// Only multiples of this are kept.
    stride: usize,
    /// Steps that are kept, in increasing order, and their slots.
    kept: Vec<(usize, usize)>,
    free: Vec<usize>,
}

/// How to recompute the state at the start of a step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Recall {
    /// The kept step to start from; the requested step itself if it is kept.
    pub step: usize,
    /// Slot of that step's state.
    pub slot: usize,
    /// Steps on the way whose states are to be kept too, with their slots.
    pub keep: Vec<(usize, usize)>,
}

impl StepCheckpoints {
    /// Creates an empty set of `slots` slots, at least one.
    pub fn new(slots: usize) -> Self {
        Self { stride: 1, kept: Vec::new(), free: (0..slots.max(1)).rev().collect() }
    }

    /// The slot for the state at the start of `step`, or `None`; called before each forward step, in order from 0.
    pub fn keep(&mut self, step: usize) -> Option<usize> {
        while step.is_multiple_of(self.stride) && self.is_full() {
            self.stride *= 2;
            let stride = self.stride;
            let given_up = self.kept.extract_if(.., |(step, _)| !step.is_multiple_of(stride));
            self.free.extend(given_up.map(|(_, slot)| slot));
        }
        match step.is_multiple_of(self.stride) {
            true => self.put(step),
            false => None,
        }
    }

    /// Whether no more steps are kept going forward; a quarter of the slots is reserved for the way back.
    fn is_full(&self) -> bool {
        let slots = self.kept.len() + self.free.len();
        self.free.is_empty() || self.stride > 1 && self.kept.len() >= slots - slots / 4
    }

    /// How to recompute the state at the start of `wanted`, requested in decreasing order; later steps are dropped.
    ///
    /// # Panics
    /// If no earlier step was kept, that is if [`StepCheckpoints::keep`] was not called for step 0.
    pub fn recall(&mut self, wanted: usize) -> Recall {
        while let Some((_, slot)) = self.kept.pop_if(|(step, _)| *step > wanted) {
            self.free.push(slot);
        }
        let &(step, slot) = self.kept.last().expect("the first step is always kept");
        let (mut at, mut keep) = (step, Vec::new());
        while at + 1 < wanted && !self.free.is_empty() {
            let between = wanted - at - 1;
            at += if between <= self.free.len() { 1 } else { (wanted - at) / 2 };
            keep.extend(self.put(at).map(|slot| (at, slot)));
        }
        Recall { step, slot, keep }
    }

    fn put(&mut self, step: usize) -> Option<usize> {
        let slot = self.free.pop()?;
        self.kept.push((step, slot));
        Some(slot)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Goes forward and back over `steps` steps, where a step's state is its number; returns the number of recomputed
    /// steps.
    fn reverse(slots: usize, steps: usize) -> usize {
        let (mut checkpoints, mut memory) = (StepCheckpoints::new(slots), vec![usize::MAX; slots]);
        for step in 0..steps {
            if let Some(slot) = checkpoints.keep(step) {
                memory[slot] = step;
            }
        }
        let mut again = 0;
        for wanted in (0..steps).rev() {
            let Recall { step, slot, keep } = checkpoints.recall(wanted);
            let mut state = memory[slot];
            assert_eq!(state, step, "the slot holds what was put there");
            while state < wanted {
                if let Some((_, slot)) = keep.iter().find(|(step, _)| *step == state) {
                    memory[*slot] = state;
                }
                state += 1;
                again += 1;
            }
            assert!(keep.iter().all(|(kept, _)| (step + 1..wanted).contains(kept)));
        }
        again
    }

    #[test]
    fn steps_are_computed_again_only_where_slots_are_few() {
        for steps in 1..=16 {
            assert_eq!(reverse(16, steps), 0);
        }
        // One slot: everything is recomputed from the start each time.
        assert_eq!(reverse(1, 5), 4 + 3 + 2 + 1);
        // Twice as many steps as slots: each step that was not kept is recomputed once.
        assert!(reverse(16, 32) <= 32);
        assert!(reverse(8, 1000) < 4 * 1000, "{}", reverse(8, 1000));
    }

    proptest! {
        /// For any number of slots every state is recovered, within the number of recomputed steps of bisection.
        #[test]
        fn every_state_comes_back(slots in 1..40_usize, steps in 1..300_usize) {
            let again = reverse(slots, steps);
            let worst = match slots {
                1 => steps * steps / 2,
                // With two or more slots each halving of a gap costs at most one pass, and the gaps are powers of two.
                _ => steps * (steps.ilog2() as usize + 1) * steps.div_ceil(slots),
            };
            prop_assert!(again <= worst, "{again} of {steps} with {slots} slots");
        }
    }
}
