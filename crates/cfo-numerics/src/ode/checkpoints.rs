//! Which states of a solver's way are kept, so that its steps can be gone through backward in bounded memory.

/// Keeps the states at the start of some steps in a fixed number of slots, while the number of steps is not known yet, and says
/// on the way back from which of them a state is computed again.
///
/// On the way forward every step is kept until the slots are full; then every other one is given up and only every second
/// step is kept from there on, and so on, with a quarter of the slots left for later. On the way back the slots that have become free keep states half way to the one that
/// is wanted: recursive checkpointing. As long as there is a slot for every step, none is computed again.
///
/// ```
/// use cfo_numerics::ode::Checkpoints;
///
/// let mut checkpoints = Checkpoints::new(2);
/// let kept: Vec<Option<usize>> = (0..5).map(|step| checkpoints.keep(step)).collect();
/// assert_eq!(kept, [Some(0), Some(1), Some(1), None, Some(1)]);
/// let recall = checkpoints.recall(3);
/// assert_eq!((recall.step, recall.slot, recall.keep), (0, 0, vec![(1, 1)]));
/// ```
#[derive(Clone, Debug)]
pub struct Checkpoints {
    /// Only multiples of this are kept.
    stride: usize,
    /// Steps that are kept, in increasing order, and their slots.
    kept: Vec<(usize, usize)>,
    /// Slots that hold nothing of use, the first to be used last.
    free: Vec<usize>,
}

/// How to come to the state at the start of a step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Recall {
    /// The step whose state is kept and from which to go on; the wanted one itself if that is kept.
    pub step: usize,
    /// Where that is.
    pub slot: usize,
    /// Steps on the way from there whose state is to be kept too, and where.
    pub keep: Vec<(usize, usize)>,
}

impl Checkpoints {
    /// With so many slots; one at least.
    pub fn new(slots: usize) -> Self {
        Self { stride: 1, kept: Vec::new(), free: (0..slots.max(1)).rev().collect() }
    }

    /// Before a step of the way forward, which are told one after another from 0 on: the slot that its state is to be put into, if any.
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

    /// Whether nothing more is to be kept on the way forward: once steps are left out, a quarter of the slots waits for the way back.
    fn is_full(&self) -> bool {
        let slots = self.kept.len() + self.free.len();
        self.free.is_empty() || self.stride > 1 && self.kept.len() >= slots - slots / 4
    }

    /// How to come to the state at the start of a step on the way back. Steps are asked for in decreasing order; what lies after
    /// them is forgotten.
    ///
    /// # Panics
    /// If no step was kept before it, that is if step 0 was not told to [`Checkpoints::keep`].
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

    /// Goes forward and back over so many steps, where the state at the start of a step is its number; returns the steps that were
    /// computed again.
    fn reverse(slots: usize, steps: usize) -> usize {
        let (mut checkpoints, mut memory) = (Checkpoints::new(slots), vec![usize::MAX; slots]);
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
        // One slot: everything from the start, again and again.
        assert_eq!(reverse(1, 5), 4 + 3 + 2 + 1);
        // Twice as many steps as slots: each of those not kept once.
        assert!(reverse(16, 32) <= 32);
        assert!(reverse(8, 1000) < 4 * 1000, "{}", reverse(8, 1000));
    }

    proptest! {
        /// Whatever the slots, every state comes back, and no step is computed again more often than halving asks for.
        #[test]
        fn every_state_comes_back(slots in 1..40_usize, steps in 1..300_usize) {
            let again = reverse(slots, steps);
            let worst = match slots {
                1 => steps * steps / 2,
                // With two slots and more each halving of a gap costs one pass at most, and the gaps are powers of two.
                _ => steps * (steps.ilog2() as usize + 1) * steps.div_ceil(slots),
            };
            prop_assert!(again <= worst, "{again} of {steps} with {slots} slots");
        }
    }
}
