//! Lowered programs as text, without a device, to compare versions of this backend.

use std::fmt::Write as _;

use crate::convolution::algorithm::is_special;
use crate::convolution::conv::{Algorithm, ConvPass, Geometry};
use crate::convolution::{conv_few_channels, conv_row};
use crate::program::lowered::{Bases, copied_leaves, lower_all};
use crate::program::typed::Typed;
use crate::program::{GpuWork, Lowering};
use crate::runtime::compile::Digest;
use cfo_engine::backend::fuse;
use cfo_engine::{Graph, Node, Plan, Precision};

/// A lowered program as text.
#[derive(Clone, Debug)]
pub struct Listing {
    /// Instructions, kernels and commands.
    pub text: String,
    /// The sources of kernels, each with its digest.
    pub sources: Vec<(String, String)>,
}

/// Number of multiprocessors and architecture of the device for which programs are listed.
const DEVICE: (u32, u32) = (132, 90);

/// The commands for a graph on an H200 whose libraries support everything, with artificial addresses.
pub fn listing(graph: &Graph, outputs: &[Node], precision: Precision) -> Listing {
    let (fused, outputs) = fuse(graph, outputs);
    let mut typed = Typed::without_device(fused, outputs, precision, DEVICE);
    for id in 0..typed.code.entries.len() {
        if let Some(geometry) = Geometry::of(&typed.code, id, precision) {
            typed.convolutions.insert(id, choice(&geometry));
        }
    }
    let typed = typed.with_scaled_f16();
    let plan = Plan::new(&typed);
    let leaves: Vec<u64> = (0..typed.code.entries.len() as u64).map(|id| (1 << 40) + (id << 30)).collect();
    let mut copies = vec![None; leaves.len()];
    for leaf in copied_leaves(&typed) {
        copies[leaf] = Some((1 << 50) + leaves[leaf]);
    }
    let bases = Bases { arena: 1 << 60, leaves: &leaves, copies: &copies };
    let lowered = lower_all(&typed, &plan, &bases, None);
    let head = format!("{}\n{plan}\noutputs {:?}\n", typed.code, lowered.requested);
    described(&head, &lowered.lowering)
}

pub(crate) fn described(head: &str, lowering: &Lowering) -> Listing {
    let mut text = head.to_owned();
    let _ = writeln!(text, "tickets {} alone {}", lowering.tickets, lowering.alone);
    for table in &lowering.tables {
        let _ = writeln!(text, "table of {} bytes {}", table.len(), digest(table));
    }
    for command in &lowering.commands {
        let effect = if command.effect { "effect " } else { "" };
        let _ = writeln!(text, "{effect}{}", command.label);
        let _ = writeln!(text, "  reads {:x?} writes {:x?}", command.access.reads, command.access.writes);
        let _ = match &command.work {
            GpuWork::Launch(launch) => {
                writeln!(text, "  {}\n  {launch:x?}", lowering.signature(launch.kernel))
            }
            work => writeln!(text, "  {work:x?}"),
        };
    }
    let mut sources = Vec::new();
    for unit in lowering.units(DEVICE.1).0 {
        let digest = digest(unit.source.as_bytes());
        let _ = writeln!(text, "unit {digest} fast {}", unit.fast);
        sources.push((digest, unit.source));
    }
    Listing { text, sources }
}

/// Algorithms for convolutions such that every algorithm occurs in some network.
fn choice(geometry: &Geometry) -> Algorithm {
    let (algorithm, math, workspace) = (1, 1, 4096);
    if conv_row::fits(geometry) {
        return Algorithm::ConvRow;
    }
    if geometry.prefers_patches() {
        return Algorithm::Patches;
    }
    if let Some(choice) = conv_few_channels::choice(geometry, DEVICE.0) {
        return choice;
    }
    match geometry.form {
        ConvPass::Weight if is_special(geometry) => Algorithm::LibraryF16 { algorithm, math, workspace },
        _ if is_special(geometry) => Algorithm::PlannedF16 { workspace },
        ConvPass::Forward => Algorithm::Library { algorithm, math, workspace },
        ConvPass::Input => Algorithm::Planned { workspace },
        ConvPass::Weight => Algorithm::Plain,
    }
}

fn digest(bytes: &[u8]) -> String {
    let mut digest = Digest::new();
    digest.add(bytes);
    digest.finish()
}
