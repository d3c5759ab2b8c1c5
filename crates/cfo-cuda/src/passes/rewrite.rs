//! Operations of the passes: instructions are removed, changed, added, reordered and at the end renumbered.

use std::collections::HashMap;

use crate::program::{Code, CodeEntry};
use cfo_engine::Node;

/// Code during a rewrite. Values keep their identifiers until [`Rewrite::finish`].
#[derive(Debug)]
pub(crate) struct Rewrite {
    entries: Vec<Option<CodeEntry>>,
    effects: Vec<usize>,
    requested: Vec<Node>,
    /// Values that are now outputs of another instruction.
    moved: HashMap<Node, Node>,
    /// Instructions that read each value; for a requested value, also an index past the end.
    readers: HashMap<Node, Vec<usize>>,
    /// New instructions directly before and after an old one.
    before: HashMap<usize, Vec<usize>>,
    after: HashMap<usize, Vec<usize>>,
    old: usize,
}

impl Rewrite {
    pub(crate) fn new(code: Code) -> Self {
        let mut readers: HashMap<Node, Vec<usize>> = HashMap::new();
        for (id, entry) in code.entries.iter().enumerate() {
            for &input in &entry.inputs {
                readers.entry(input).or_default().push(id);
            }
        }
        for &output in &code.requested {
            readers.entry(output).or_default().push(code.entries.len());
        }
        let Code { entries, effects, requested } = code;
        Self {
            old: entries.len(),
            entries: entries.into_iter().map(Some).collect(),
            effects,
            requested,
            moved: HashMap::new(),
            readers,
            before: HashMap::new(),
            after: HashMap::new(),
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.old
    }

    /// An instruction; `None` if it was removed.
    pub(crate) fn entry(&self, id: usize) -> Option<&CodeEntry> {
        self.entries.get(id).and_then(Option::as_ref)
    }

    pub(crate) fn entry_mut(&mut self, id: usize) -> Option<&mut CodeEntry> {
        self.entries.get_mut(id).and_then(Option::as_mut)
    }

    /// The original readers of a value, in order.
    pub(crate) fn readers(&self, node: Node) -> &[usize] {
        self.readers.get(&node).map_or(&[], Vec::as_slice)
    }

    /// The current source of a value.
    pub(crate) fn place(&self, node: Node) -> Node {
        self.moved.get(&node).copied().unwrap_or(node)
    }

    pub(crate) fn is_moved(&self, node: Node) -> bool {
        self.moved.contains_key(&node)
    }

    pub(crate) fn remove(&mut self, id: usize) -> Option<CodeEntry> {
        self.entries[id].take()
    }

    pub(crate) fn replace(&mut self, id: usize, entry: CodeEntry) {
        self.entries[id] = Some(entry);
    }

    pub(crate) fn move_value(&mut self, from: Node, to: Node) {
        self.moved.insert(from, to);
    }

    /// Adds an instruction directly before another, after earlier additions there.
    pub(crate) fn insert_before(&mut self, id: usize, entry: CodeEntry) -> usize {
        let new = self.push(entry);
        self.before.entry(id).or_default().push(new);
        new
    }

    /// Adds an instruction directly after another, after earlier additions there.
    pub(crate) fn insert_after(&mut self, id: usize, entry: CodeEntry) -> usize {
        let new = self.push(entry);
        self.after.entry(id).or_default().push(new);
        new
    }

    fn push(&mut self, entry: CodeEntry) -> usize {
        self.entries.push(Some(entry));
        self.entries.len() - 1
    }

    /// Returns the new code and the new index of each instruction.
    pub(crate) fn finish(self) -> (Code, HashMap<usize, usize>) {
        let order = (0..self.old).flat_map(|id| {
            let around = |map: &HashMap<usize, Vec<usize>>| map.get(&id).cloned().unwrap_or_default();
            around(&self.before).into_iter().chain([id]).chain(around(&self.after))
        });
        let order: Vec<usize> = order.collect();
        self.finish_in(&order)
    }

    pub(crate) fn finish_in(mut self, order: &[usize]) -> (Code, HashMap<usize, usize>) {
        let mut code = Code::default();
        let mut places: HashMap<usize, usize> = HashMap::new();
        for &id in order {
            if let Some(entry) = self.entries[id].take() {
                places.insert(id, code.entries.len());
                code.entries.push(entry);
            }
        }
        let new = |node: &Node| {
            let node = self.moved.get(node).unwrap_or(node);
            Node::new(places[&node.index()], node.output())
        };
        for entry in &mut code.entries {
            entry.inputs.iter_mut().for_each(|input| *input = new(input));
        }
        code.requested = self.requested.iter().map(new).collect();
        code.effects = self.effects.iter().filter_map(|effect| places.get(effect).copied()).collect();
        (code, places)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use cfo_engine::Graph;
    use cfo_engine::backend::fuse;

    /// A program that sums `x` and assigns the result; `x` is read twice.
    fn code() -> Code {
        let mut graph = Graph::new();
        let x = graph.input("x", [4]).unwrap();
        let kept = graph.input("kept", []).unwrap();
        let sum = graph.sum_all(x).unwrap();
        graph.assign(kept, sum).unwrap();
        let (fused, requested) = fuse(&graph, &[sum]);
        Code::new(&fused, requested)
    }

    #[test]
    fn nothing_done_leaves_all_as_it_was() {
        let (old, new) = (code(), Rewrite::new(code()).finish().0);
        assert_eq!(
            (old.to_string(), old.requested, old.effects),
            (new.to_string(), new.requested, new.effects)
        );
    }

    #[test]
    fn what_is_put_before_or_after_is_read_under_its_new_number() {
        let old = code();
        let sum = old.requested[0];
        let mut rewrite = Rewrite::new(old.clone());
        let copy = rewrite.entry(sum.index()).unwrap().clone();
        let before = rewrite.insert_before(sum.index(), copy.clone());
        let after = rewrite.insert_after(sum.index(), copy);
        rewrite.remove(sum.index());
        rewrite.move_value(sum, Node::new(after, 0));
        let (new, places) = rewrite.finish();
        assert_eq!(new.entries.len(), old.entries.len() + 1);
        assert_eq!(places[&after], places[&before] + 1);
        assert_eq!(new.requested, [Node::new(places[&after], 0)]);
        assert!(!places.contains_key(&sum.index()));
        // Everything still comes after the values that it reads.
        for (id, entry) in new.entries.iter().enumerate() {
            assert!(entry.inputs.iter().all(|input| input.index() < id), "{new}");
        }
        assert_eq!(new.effects.len(), 1);
    }
}
