//! Times of MPI sums over all ranks for several message sizes: the constants of docs/developers/scaling.md.

use std::path::PathBuf;
use std::time::Instant;

use anyhow::Result;
use cfo::CfoError;
use cfo::ranks::world;
use serde::Serialize;

use crate::args;
use crate::report::CellAlignment::Right;
use crate::report::{self, TextTable};

/// Numbers of a message, of 8 bytes each.
const COUNTS: [usize; 5] = [1, 1 << 10, 1 << 14, 1 << 17, 1 << 20];

#[derive(Debug, Serialize)]
struct Sums {
    what: &'static str,
    ranks: usize,
    hosts: usize,
    library: PathBuf,
    rows: Vec<Row>,
}

/// Messages of one size.
#[derive(Debug, Serialize)]
struct Row {
    bytes: usize,
    median_ms: f64,
    p10_ms: f64,
    p90_ms: f64,
}

pub(super) fn run(arguments: &args::Bench) -> Result<()> {
    let Some(ranks) = world() else {
        return Err(CfoError::bad_data(
            "there is only one process, so there is no sum over ranks to measure",
            "start several, as in `mpiexec -n 2 cfo bench all-reduce`",
        )
        .into());
    };
    let mut rows = Vec::new();
    for count in COUNTS {
        let mut times = Vec::new();
        for _ in 0..arguments.repetitions.max(10) {
            ranks.barrier();
            let started = Instant::now();
            ranks.all_reduce(vec![1.0; count]);
            times.push(1e3 * started.elapsed().as_secs_f64());
        }
        times.sort_by(f64::total_cmp);
        let at = |share: f64| times[((times.len() - 1) as f64 * share).round() as usize];
        rows.push(Row { bytes: 8 * count, median_ms: at(0.5), p10_ms: at(0.1), p90_ms: at(0.9) });
    }
    let mut hosts: Vec<&str> = (0..ranks.size()).map(|rank| ranks.host(rank)).collect();
    hosts.sort_unstable();
    hosts.dedup();
    let (size, library) = (ranks.size(), ranks.library().to_owned());
    let found = Sums { what: "all-reduce", ranks: size, hosts: hosts.len(), library, rows };
    report::print_result(arguments.json, &found, || text(&found))
}

fn text(found: &Sums) -> String {
    let mut table =
        TextTable::new([("message", Right), ("median ms", Right), ("10 %", Right), ("90 %", Right)]);
    for row in &found.rows {
        let [median, low, high] = [row.median_ms, row.p10_ms, row.p90_ms].map(|time| format!("{time:.4}"));
        table.push([report::bytes(row.bytes as u64), median, low, high]);
    }
    format!(
        "sums over {} ranks on {} machines by {}\n{}",
        found.ranks,
        found.hosts,
        found.library.display(),
        table.text()
    )
}
