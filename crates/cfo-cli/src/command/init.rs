//! `cfo init`: a recipe that fits a trajectory file.

use anyhow::Result;
use cfo::checkpoint::write_atomically;
use cfo::data::store::TrajectoryFile;
use cfo::proposal::{Machine, Proposal};

use super::inspect::merging;
use super::output::refuse_existing;
use crate::args;
use crate::diagnostics::say;
use crate::report;

pub fn run(arguments: &args::Init) -> Result<()> {
    if let Some(out) = &arguments.out {
        refuse_existing(out, arguments.force)?;
    }
    let file = TrajectoryFile::open(&arguments.file)?;
    let warnings = file.warnings().iter().cloned().chain(merging(file.nearly_equal()?));
    let proposal = Proposal::new(&file, Machine::here())?;
    let warnings = warnings.chain(proposal.warnings().iter().cloned());
    warnings.for_each(|warning| say(&format!("warning: {warning}")));
    let text = proposal.to_toml()?;
    let Some(out) = &arguments.out else {
        return Ok(report::print(&text)?);
    };
    write_atomically(out, text.as_bytes())?;
    let (recipe, data) = (out.display(), arguments.file.display());
    say(&format!("written: `{recipe}`; next: `cfo train {recipe} --data {data}`"));
    Ok(())
}
