//! A run's predictions of the trajectories of a file, for a page that shows both.

use std::path::Path;

use anyhow::Result;
use cfo::data::store::{TrajectoryFile, TrajectoryWriter, WriteOptions};
use cfo::data::{Split, Trajectory};
use cfo::{Alignment, Request, Trained, Trajectories, Watch};

use crate::diagnostics::say;
use crate::interrupt;
use cfo_view::page::PageSource;

/// Most trajectories that are predicted when none is asked for.
const MOST: usize = 12;

/// Rolls out a run from the first states of the trajectories asked for, else of held-out ones, into a file in `folder`.
pub fn predict(run: &Path, file: &TrajectoryFile, wanted: &[usize], folder: &Path) -> Result<PageSource> {
    let trained = Trained::load(run)?.on_grid(file.description().shape)?;
    let alignment = Alignment::new(trained.model(), file.description(), file.offset())?;
    alignment.notes.iter().for_each(|note| say(&format!("warning: {note}")));
    let chosen = if wanted.is_empty() { held_out(&trained, file)? } else { wanted.to_vec() };
    let path = folder.join("predicted.h5");
    let options = WriteOptions { offset: alignment.restored_offset(), ..WriteOptions::default() };
    let mut writer = TrajectoryWriter::create(&path, file.description(), options)?;
    let (mut of, mut short) = (Vec::new(), 0);
    for index in chosen {
        let times = file.times(index)?;
        let state = file.frames(index, &[0])?;
        let mut one = Trajectory::new(vec![times[0]], state, file.inputs(index)?)?;
        alignment.align(&mut one);
        let request = Request {
            start: vec![times[0]],
            states: vec![one.values],
            times: vec![times.to_vec()],
            inputs: vec![one.inputs],
        };
        let watch = Watch::default().with_interrupt(interrupt::flag()?);
        let mut found = trained.predict_each(&request, &watch)?;
        short += found.diverged.len();
        let (Some(mut values), Some(times)) = (found.states.pop(), found.times.pop()) else { continue };
        // A prediction that diverged at once has no snapshots.
        if !times.is_empty() {
            alignment.restore(&mut values);
            writer.push(&Trajectory::new(times, values, file.inputs(index)?)?, None)?;
            of.push(index);
        }
    }
    if short > 0 {
        say(&format!("warning: {short} predictions diverge before their last time"));
    }
    writer.finish()?;
    let label = run.file_name().unwrap_or_default().to_string_lossy().into_owned();
    Ok(PageSource { label, file: TrajectoryFile::open(&path)?.relative_to(file.offset()), of: Some(of) })
}

/// The first trajectories that the run was not trained on; if the file has none, the first of all.
fn held_out(trained: &Trained, file: &TrajectoryFile) -> Result<Vec<usize>> {
    let set = Trajectories::open_for_run(trained.recipe(), file.path())?;
    let test = set.part(Split::Test).map(|(index, _)| set.place(index).0).take(MOST);
    let test: Vec<usize> = test.collect();
    Ok(if test.is_empty() { (0..file.len().min(MOST)).collect() } else { test })
}
