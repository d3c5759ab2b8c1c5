//! Recomputes large results of group norms in the backward pass instead of keeping them.
//!
//! The gradient of a norm reads the norm's input anyway, and can write the norm's result again at the cost of one more
//! pass over memory. Weight gradients that need it run after it. Instructions that free memory run first.

use std::collections::{BTreeSet, HashMap};

use crate::passes::rewrite::Rewrite;
use crate::program::instruction::GroupNormBackward;
use crate::program::{Code, CodeEntry, Instruction};
use cfo_engine::Node;

/// A norm whose result can be recomputed: its entry, that of its gradient, and the readers of the new result.
#[derive(Clone, Debug)]
struct Candidate {
    norm: usize,
    gradient: usize,
    readers: Vec<usize>,
}

/// Results are recomputed until at most this fraction of the peak is alive at once, or the minimum that can be reached.
const SHARE: (usize, usize) = (4, 5);

/// Returns the code with as few recomputed results as save enough memory; `peak` returns the bytes alive at once.
pub(crate) fn recompute(
    code: Code,
    large: impl Fn(&Code, Node) -> bool,
    peak: impl Fn(&Code) -> usize,
) -> Code {
    let mut chosen = candidates(&code, &large);
    if chosen.is_empty() {
        return code;
    }
    let with = |chosen: &[Candidate]| {
        let code = apply(&code, chosen, &large);
        let peak = peak(&code);
        (code, peak)
    };
    let enough = peak(&code) / SHARE.1 * SHARE.0;
    let (mut best, least) = with(&chosen);
    // The smallest are dropped first: they save least.
    let mut by_size = chosen.clone();
    by_size.sort_by_key(|one| (code.shape(Node::new(one.norm, 0)).len(), one.norm));
    for one in by_size {
        let fewer: Vec<Candidate> = chosen.iter().filter(|other| other.norm != one.norm).cloned().collect();
        let (code, peak) = with(&fewer);
        if peak <= least.max(enough) {
            (chosen, best) = (fewer, code);
        }
    }
    best
}

/// Large results that operations after the forward pass read, other than the norm's own gradient.
fn candidates(code: &Code, large: &impl Fn(&Code, Node) -> bool) -> Vec<Candidate> {
    let mut found = Vec::new();
    for (gradient, entry) in code.entries.iter().enumerate() {
        let Instruction::GroupNormBackward(GroupNormBackward { again: false, .. }) = entry.op else {
            continue;
        };
        let norm = entry.inputs[3].index();
        let result = Node::new(norm, 0);
        let forward = matches!(code.entries[norm].op, Instruction::GroupNorm(_));
        if !forward || code.requested.contains(&result) || !large(code, result) {
            continue;
        }
        let before = ancestors(code, gradient);
        let readers: Vec<usize> = (0..code.entries.len())
            .filter(|&id| code.entries[id].inputs.contains(&result) && !before[id])
            .collect();
        // A view of the result would keep it alive anyway.
        let viewed = (0..code.entries.len()).any(|id| {
            matches!(code.entries[id].op, Instruction::Reshape(_))
                && code.entries[id].inputs.contains(&result)
        });
        if !readers.is_empty() && !viewed {
            found.push(Candidate { norm, gradient, readers });
        }
    }
    found
}

fn ancestors(code: &Code, id: usize) -> Vec<bool> {
    let mut before = vec![false; code.entries.len()];
    before[id] = true;
    for entry in (0..=id).rev() {
        if before[entry] {
            code.entries[entry].inputs.iter().for_each(|input| before[input.index()] = true);
        }
    }
    before
}

/// Returns the code with these results recomputed.
fn apply(code: &Code, chosen: &[Candidate], large: &impl Fn(&Code, Node) -> bool) -> Code {
    let mut changed = code.clone();
    for Candidate { norm, gradient, readers } in chosen {
        let (forward, result) = (code.entries[*norm].clone(), Node::new(*norm, 0));
        let CodeEntry { op: Instruction::GroupNormBackward(op), inputs, outputs } =
            &mut changed.entries[*gradient]
        else {
            unreachable!("candidates are gradients of norms")
        };
        op.again = true;
        if op.forward.shift {
            inputs.extend(forward.inputs.last());
        }
        outputs.push(forward.outputs[0].clone());
        let again = Node::new(*gradient, outputs.len() - 1);
        for &reader in readers {
            for input in changed.entries[reader].inputs.iter_mut().filter(|input| **input == result) {
                *input = again;
            }
        }
    }
    let order = order(&changed, large);
    Rewrite::new(changed).finish_in(&order).0
}

/// An order with inputs first, and among those that can run, first one that frees more large values than it creates.
fn order(code: &Code, large: &impl Fn(&Code, Node) -> bool) -> Vec<usize> {
    let entries = &code.entries;
    let distinct = |id: usize| -> BTreeSet<Node> { entries[id].inputs.iter().copied().collect() };
    let mut waiting: Vec<usize> = entries.iter().map(|entry| entry.inputs.len()).collect();
    let mut followers = vec![Vec::new(); entries.len()];
    let mut reads: HashMap<Node, usize> =
        code.requested.iter().map(|&output| (output, usize::MAX / 2)).collect();
    for (id, entry) in entries.iter().enumerate() {
        entry.inputs.iter().for_each(|input| followers[input.index()].push(id));
        distinct(id).into_iter().for_each(|input| *reads.entry(input).or_default() += 1);
    }
    let size = |node: Node| if large(code, node) { code.shape(node).len() } else { 0 };
    let made = |id: usize| (0..entries[id].outputs.len()).map(|output| size(Node::new(id, output))).sum();
    let freed = |id: usize, reads: &HashMap<Node, usize>| -> usize {
        distinct(id).into_iter().filter(|node| reads[node] == 1).map(size).sum()
    };
    let mut ready: BTreeSet<usize> = (0..entries.len()).filter(|&id| waiting[id] == 0).collect();
    let mut order = Vec::with_capacity(entries.len());
    while let Some(&first) = ready.first() {
        let next = ready.iter().copied().find(|&id| freed(id, &reads) > made(id)).unwrap_or(first);
        ready.remove(&next);
        order.push(next);
        distinct(next).into_iter().for_each(|input| *reads.entry(input).or_default() -= 1);
        for &follower in &followers[next] {
            waiting[follower] -= 1;
            if waiting[follower] == 0 {
                ready.insert(follower);
            }
        }
    }
    order
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::program::typed::Typed;
    use cfo_engine::Graph;
    use cfo_engine::Precision;
    use cfo_engine::backend::fuse;
    use cfo_engine::ops::{Activation, AdamConfig, GroupNormInputs, PadMode};
    use cfo_engine::{Initial, Result};

    /// A training step of a U-Net of three levels with 64, 128 and 256 channels on fields of two.
    fn unet(batch: usize, side: usize) -> Result<(Graph, Vec<Node>)> {
        let mut graph = Graph::new();
        let g = &mut graph;
        let conv = |g: &mut Graph, name: &str, x: Node, c: usize, k: usize| {
            let w = g.parameter(&format!("{name}.w"), [c, k, k, g.shape(x).last()], Initial::ONES)?;
            g.conv(x, w, [k - 2, k - 2], PadMode::Zero, [1, 1])
        };
        let biased = |g: &mut Graph, name: &str, x: Node| {
            let b = g.parameter(&format!("{name}.b"), [g.shape(x).last()], Initial::ZEROS)?;
            g.add(x, b)
        };
        let block = |g: &mut Graph, name: &str, mut x: Node, c: usize, time: Node| {
            for part in ["1", "2"] {
                let name = format!("{name}.{part}");
                x = conv(g, &name, x, c, 3)?;
                let mut of = |kind: &str| g.parameter(&format!("{name}.{kind}"), [c], Initial::ONES);
                let (scale, bias, offset) = (of("scale")?, of("bias")?, Some(of("offset")?));
                let w = g.parameter(&format!("{name}.t"), [64, c], Initial::ONES)?;
                let shift =
                    (part == "1").then(|| g.linear(time, w, None, Activation::Identity)).transpose()?;
                x = g.group_norm(x, GroupNormInputs { scale, bias, offset, shift }, 8, Activation::Silu)?;
            }
            Ok::<Node, cfo_engine::EngineError>(x)
        };
        let u = g.input("u", [batch, side, side, 2])?;
        let time = g.input("time", [batch, 64])?;
        let (mut x, mut skips) = (u, Vec::new());
        for c in [64, 128, 256] {
            x = block(g, &format!("down{c}"), x, c, time)?;
            skips.push(x);
            x = conv(g, &format!("halve{c}"), x, c, 4)?;
            x = biased(g, &format!("halve{c}"), x)?;
        }
        x = block(g, "middle", x, 256, time)?;
        for c in [256, 128, 64] {
            let w = g.parameter(&format!("double{c}.w"), [g.shape(x).last(), 4, 4, c], Initial::ONES)?;
            x = g.conv_transpose(x, w, [2, 2], PadMode::Zero, [1, 1])?;
            x = biased(g, &format!("double{c}"), x)?;
            x = g.concat(&[x, skips.pop().expect("one a level")], 3)?;
            x = block(g, &format!("up{c}"), x, c, time)?;
        }
        let (w, b) = (g.parameter("w", [64, 2], Initial::ONES)?, g.parameter("b", [2], Initial::ONES)?);
        let y = g.linear(x, w, Some(b), Activation::Identity)?;
        let loss = g.mean_squared_error(y, u)?;
        let counter = g.counter("step")?;
        g.adam(loss, counter, AdamConfig::default())?;
        Ok((graph, vec![loss]))
    }

    /// Results of norms that are recomputed.
    fn recomputed(typed: &Typed) -> Vec<String> {
        let of = |entry: &CodeEntry| match &entry.op {
            Instruction::GroupNormBackward(op) => op.again.then(|| entry.outputs[0].shape.to_string()),
            _ => None,
        };
        typed.code.entries.iter().filter_map(of).collect()
    }

    fn typed(batch: usize, side: usize, precision: Precision) -> Typed {
        let (graph, outputs) = unet(batch, side).expect("a valid graph");
        let (fused, outputs) = fuse(&graph, &outputs);
        Typed::without_device(fused, outputs, precision, (132, 90))
    }

    #[test]
    fn large_results_of_norms_are_computed_again_to_save_memory() {
        for (precision, gibibytes) in [(Precision::Bf16, 7.7), (Precision::F32, 15.3)] {
            let typed = typed(256, 128, precision);
            let plan = typed.bare_plan();
            let bytes = plan.arena_bytes() as f64 / (1u64 << 30) as f64;
            eprintln!("{precision}: {plan}, computed again: {:?}", recomputed(&typed));
            assert!(bytes < gibibytes, "{plan}");
            // The large ones are recomputed, since they save most.
            assert!(recomputed(&typed).iter().any(|shape| shape == "[256, 128, 128, 64]"));
            assert!(!recomputed(&typed).iter().any(|shape| shape == "[256, 32, 32, 256]"));
        }
        assert!(recomputed(&typed(256, 128, Precision::Tf32)).is_empty(), "compact copies are kept instead");
        assert!(recomputed(&typed(8, 64, Precision::F32)).is_empty(), "nothing there is large");
    }

    #[test]
    fn operations_come_after_what_they_read() {
        let typed = typed(64, 128, Precision::Bf16);
        assert!(!recomputed(&typed).is_empty());
        for (id, entry) in typed.code.entries.iter().enumerate() {
            assert!(entry.inputs.iter().all(|input| input.index() < id));
            let Instruction::GroupNormBackward(GroupNormBackward { again: true, .. }) = entry.op else {
                continue;
            };
            // The forward pass's result is not kept for later instructions.
            let norm = entry.inputs[3].index();
            let late = typed.code.entries[id..].iter();
            assert!(late.flat_map(|entry| &entry.inputs).all(|&input| input != Node::new(norm, 0)));
        }
    }
}
