//! Concurrency of commands: an order for several streams that preserves every dependence through memory.

/// A range of addresses, the end excluded.
pub(crate) type Range = (u64, u64);

#[derive(Clone, Debug, Default)]
pub(crate) struct Access {
    pub(crate) reads: Vec<Range>,
    pub(crate) writes: Vec<Range>,
    /// Whether it communicates with other ranks: such commands have the last stream, on which all ranks keep one order.
    pub(crate) apart: bool,
}

fn overlap(a: &[Range], b: &[Range]) -> bool {
    a.iter().any(|&(first, end)| b.iter().any(|&(other, stop)| first < stop && other < end))
}

impl Access {
    /// Whether the order of both commands matters.
    fn conflicts(&self, other: &Self) -> bool {
        overlap(&self.writes, &other.reads)
            || overlap(&self.writes, &other.writes)
            || overlap(&self.reads, &other.writes)
    }
}

/// The stream of a command and the commands for which it waits.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Slot {
    pub(crate) stream: usize,
    /// Commands of other streams that must be finished before.
    pub(crate) after: Vec<usize>,
}

/// Assigns streams to commands, given in an order that is valid on one stream. With several streams, the last one is
/// reserved for commands that communicate with other ranks, if there are any.
pub(crate) fn spread(commands: &[Access], streams: usize) -> Vec<Slot> {
    let mut slots: Vec<Slot> = Vec::with_capacity(commands.len());
    let shared = streams - usize::from(streams > 1 && commands.iter().any(|command| command.apart));
    // For the end of each stream, the last command of every stream for which it has waited, itself included.
    let mut reached: Vec<Vec<Option<usize>>> = vec![vec![None; streams]; streams];
    for (id, command) in commands.iter().enumerate() {
        let mut needed: Vec<Option<usize>> = vec![None; streams];
        for earlier in (0..id).rev() {
            let stream = slots[earlier].stream;
            if needed[stream].is_none() && command.conflicts(&commands[earlier]) {
                needed[stream] = Some(earlier);
            }
            if needed.iter().all(Option::is_some) {
                break;
            }
        }
        let tail = |stream: usize| reached[stream][stream];
        // After the latest of its dependences if that ends its stream, otherwise on the stream that ended earliest.
        let behind =
            (0..shared).filter(|&s| needed[s].is_some() && needed[s] == tail(s)).max_by_key(|&s| needed[s]);
        let stream = match command.apart {
            true => streams - 1,
            false => behind.unwrap_or_else(|| (0..shared).min_by_key(|&s| tail(s)).unwrap_or(0)),
        };
        let after: Vec<usize> = (0..streams)
            .filter(|&other| other != stream && needed[other] > reached[stream][other])
            .filter_map(|other| needed[other])
            .collect();
        for &other in &after {
            let seen = slots[other].stream;
            reached[stream][seen] = reached[stream][seen].max(Some(other));
        }
        reached[stream][stream] = Some(id);
        slots.push(Slot { stream, after });
    }
    slots
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_chain_stays_on_one_stream_and_a_branch_leaves_it() {
        let step = |reads: &[u64], write: u64| Access {
            reads: reads.iter().map(|&at| (at, at + 1)).collect(),
            writes: vec![(write, write + 1)],
            apart: false,
        };
        // 0 -> 1 -> 2 -> 4, and 3 depends on 1 only; 5 needs both ends.
        let commands =
            [step(&[], 0), step(&[0], 1), step(&[1], 2), step(&[1], 3), step(&[2], 4), step(&[3, 4], 5)];
        let slots = spread(&commands, 2);
        assert_eq!(slots.iter().map(|slot| slot.stream).collect::<Vec<_>>(), [0, 0, 0, 1, 0, 0]);
        assert_eq!(slots[3].after, [1]);
        assert_eq!(slots[5].after, [3]);
        assert!(spread(&commands, 1).iter().all(|slot| slot.stream == 0 && slot.after.is_empty()));
    }

    proptest! {
        #[test]
        fn every_dependence_is_kept(
            accesses in prop::collection::vec((prop::collection::vec(0..12_u64, 0..3), 0..12_u64, 0..8_u8), 1..40),
            streams in 1..5_usize,
        ) {
            let commands: Vec<Access> = accesses
                .iter()
                .map(|(reads, write, kind)| Access {
                    reads: reads.iter().map(|&at| (at, at + 2)).collect(),
                    writes: vec![(*write, *write + 1)],
                    apart: *kind == 0,
                })
                .collect();
            let slots = spread(&commands, streams);
            if streams > 1 && commands.iter().any(|command| command.apart) {
                let alone = commands.iter().zip(&slots).all(|(command, slot)| command.apart == (slot.stream == streams - 1));
                prop_assert!(alone, "messages have a stream of their own");
            }
            // Commands that are certainly finished before each command starts, by streams and waits only.
            let mut done: Vec<Vec<bool>> = Vec::new();
            for (id, slot) in slots.iter().enumerate() {
                let mut before = vec![false; commands.len()];
                let own = (0..id).rev().find(|&earlier| slots[earlier].stream == slot.stream);
                for source in own.into_iter().chain(slot.after.iter().copied()) {
                    prop_assert!(source < id);
                    before[source] = true;
                    for (to, from) in before.iter_mut().zip(&done[source]) {
                        *to |= from;
                    }
                }
                for earlier in 0..id {
                    prop_assert!(before[earlier] || !commands[id].conflicts(&commands[earlier]));
                }
                done.push(before);
            }
        }
    }
}
