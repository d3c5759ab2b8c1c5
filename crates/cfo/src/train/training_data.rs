//! The training trajectories in the layout of the sampler: normalised, subsampled, one after another.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use cfo_engine::{Data, Element, Memory};
use rayon::prelude::*;

use super::gradients::Gradients;
use super::phase::Phase;
use super::refine::{FilledRows, Gaps, write_path};
use super::{Share, draw};
use crate::error::Result;
use crate::measure::selection::{Selection, read_means};
use crate::measure::{Measured, fingerprint, trust};
use crate::model::Model;
use crate::objective::Draw;
use crate::recipe::Recipe;
use crate::trajectories::Trajectories;

/// The tensor of all snapshots.
pub(super) const VALUES: &str = "data.values";
/// Number of values of filled trajectories that are worked on together.
const PORTION: usize = 1 << 24;
/// The snapshot of a row that is a filled state.
const FILLED: u32 = u32::MAX;

/// The training data, from which batches are sampled.
#[derive(Clone, Debug)]
pub struct TrainingData {
    /// Whether the snapshots of each batch are read from the set; otherwise all are in memory.
    streamed: bool,
    /// Trajectory and snapshot of each row: the first snapshot if the row is the mean of several, [`FILLED`] if the row is a filled state.
    sources: Vec<(u32, u32)>,
    /// The snapshots of rows that are means of several.
    merged: BTreeMap<usize, Vec<usize>>,
    times: Vec<f64>,
    offsets: Vec<u32>,
    conditions: Vec<f32>,
    /// The rows of filled states; `None` without `[refine]`.
    pub(super) gaps: Option<Arc<Gaps>>,
    /// The filled states, if batches are streamed.
    pub(super) filled: Option<Arc<FilledRows>>,
    /// This process's part of each batch.
    pub(crate) share: Share,
    /// Weight of an error at each snapshot, `[rows, channels]`, if noise was removed or `path.trust` is set; else empty.
    pub(crate) trust: Vec<f32>,
    /// Warnings about the data.
    pub warnings: Vec<String>,
}

impl TrainingData {
    /// Reads the training part of a set in one pass. Measures the scaling of the model unless it is known, and stores the scaled values in
    /// memory unless batches are streamed. Also returns the hash of the data.
    ///
    /// # Errors
    /// If values cannot be read.
    pub(super) fn load(
        phase: &Phase,
        set: &Trajectories,
        memory: &mut Memory,
        known: Option<&Model>,
    ) -> Result<(Model, Self, String)> {
        let (mut model, selections) = (phase.model.clone(), &phase.selections[..]);
        let gaps = Gaps::of(&model.recipe, set, selections)?.map(Arc::new);
        let own: usize = selections.iter().map(Selection::len).sum();
        let shape = model.batch_shape(gaps.as_ref().map_or(own, |gaps| gaps.rows()));
        let size: usize = shape[1..].iter().product();
        let streamed = is_streamed(&model.recipe, set, 4 * shape.iter().product::<usize>() as u64, memory)?;
        let (question, known) = (model.question(), known.map(|known| (&known.scaling, &known.denoiser)));
        let measured = match streamed {
            true => Measured::of(&question, set, selections, known, None)?,
            false => memory.insert_filled(VALUES, shape, |values| {
                let packed = &mut values[..own * size];
                let measured = Measured::of(&question, set, selections, known, Some(packed));
                if let Some(gaps) = &gaps {
                    gaps.place(values, size);
                }
                measured
            })?,
        };
        model.take(&measured);
        let mut data = Self::rows_of(&model, set, (selections, gaps), memory, (streamed, &measured.path_errors));
        data.warnings.extend(measured.warnings);
        data.fill_with_path(&model, set, memory)?;
        Ok((model, data, measured.fingerprint))
    }

    /// Returns the data of the next phase, with the scaling of the model before: values that are in memory are not read again.
    pub(super) fn again(
        &self,
        phase: &Phase,
        set: &Trajectories,
        memory: &Memory,
        before: &Model,
    ) -> (Model, Self) {
        let mut model = phase.model.clone();
        (model.scaling, model.denoiser) = (before.scaling.clone(), before.denoiser.clone());
        let data = Self::rows_of(&model, set, (&phase.selections, None), memory, (self.streamed, &[]));
        (model, data)
    }

    /// Returns whether [`TrainingData::again`] uses the tensor with this name.
    pub(crate) fn is_kept(&self, name: &str) -> bool {
        !self.streamed && name == VALUES
    }

    /// Returns whether rows are filled states.
    pub(super) fn is_filled(&self) -> bool {
        self.gaps.is_some()
    }

    /// Returns a hash of the training data, with which resuming on other data is detected.
    ///
    /// # Errors
    /// If the values cannot be read.
    pub fn fingerprint(recipe: &Recipe, set: &Trajectories) -> Result<String> {
        fingerprint(&recipe.path, set, &Selection::of_set(recipe, set)?)
    }

    /// Collects the times, sources and conditions of the rows.
    fn rows_of(
        model: &Model,
        set: &Trajectories,
        (selections, gaps): (&[Selection], Option<Arc<Gaps>>),
        memory: &Memory,
        (streamed, path_errors): (bool, &[f32]),
    ) -> Self {
        let mut data = Self {
            streamed,
            share: Share::new(&model.recipe.train, memory, Gradients::of(model).are_divisible()),
            sources: Vec::new(),
            merged: BTreeMap::new(),
            times: Vec::new(),
            offsets: vec![0],
            conditions: Vec::new(),
            gaps: None,
            filled: None,
            trust: Vec::new(),
            warnings: set.warnings().iter().cloned().chain(Selection::merged(selections)).collect(),
        };
        for selection in selections {
            let (i, trajectory) = (selection.trajectory, &set.trajectories[selection.trajectory]);
            for (knot, time) in selection.times(&trajectory.times).into_iter().enumerate() {
                let frames = &selection.frames[selection.frames_of(knot..knot + 1)];
                if frames.len() > 1 {
                    data.merged.insert(data.times.len(), frames.to_vec());
                }
                data.times.push(model.scaling.time(time));
                data.sources.push((i as u32, frames[0] as u32));
            }
            data.offsets.push(data.times.len() as u32);
            data.conditions.extend(model.scaling.conditions(&trajectory.parameters));
        }
        if let Draw::PathPoint { .. } = model.objective().draw() {
            let merged: Vec<u32> = selections.iter().flat_map(Selection::measurements).collect();
            let removed = (&model.scaling, model.denoiser.as_ref());
            let rows = (&data.times[..], &merged[..]);
            data.trust = trust(&model.question(), removed, rows, &data.offsets, path_errors);
        }
        if let Some(gaps) = gaps {
            data.open(gaps);
        }
        data
    }

    /// Adds the rows of filled states.
    fn open(&mut self, gaps: Arc<Gaps>) {
        let own = std::mem::take(&mut self.offsets);
        let (times, sources) = (std::mem::take(&mut self.times), std::mem::take(&mut self.sources));
        let (merged, trust) = (std::mem::take(&mut self.merged), std::mem::take(&mut self.trust));
        let width = trust.len() / times.len().max(1);
        self.offsets.push(0);
        for (trajectory, pair) in own.windows(2).enumerate() {
            let snapshots = pair[0] as usize..pair[1] as usize;
            let first = self.times.len();
            self.times.extend(gaps.times(trajectory, &times[snapshots.clone()]));
            self.sources.resize(self.times.len(), (sources[snapshots.start].0, FILLED));
            for (&row, snapshot) in gaps.knots(trajectory).iter().zip(snapshots.clone()) {
                let row = first + row as usize;
                self.sources[row] = sources[snapshot];
                self.merged.extend(merged.get(&snapshot).map(|frames| (row, frames.clone())));
            }
            if width > 0 {
                let own = &trust[snapshots.start * width..snapshots.end * width];
                self.trust.extend(gaps.spread(trajectory, own, width));
            }
            self.offsets.push(self.times.len() as u32);
        }
        self.gaps = Some(gaps);
    }

    /// Fills the rows between snapshots with the path's values.
    fn fill_with_path(&mut self, model: &Model, set: &Trajectories, memory: &mut Memory) -> Result<()> {
        let Some(gaps) = self.gaps.clone() else { return Ok(()) };
        if self.streamed {
            self.filled = Some(Arc::new(FilledRows::new(self.rows(), model.batch_shape(1).iter().product())?));
        }
        let path = model.question().path;
        self.edit(model, set, memory, |trajectories, blocks| {
            blocks.par_iter_mut().zip(trajectories).for_each(|(rows, trajectory)| {
                let (times, knots) = (self.times_of(trajectory), gaps.knots(trajectory));
                let own: Vec<f64> = knots.iter().map(|&row| times[row as usize]).collect();
                for knot in 0..knots.len() - 1 {
                    write_path(path, (knots, &own, knot), times, rows);
                }
            });
            Ok(())
        })
    }

    /// Returns the times of a trajectory's rows, in the network's units.
    pub(super) fn times_of(&self, trajectory: usize) -> &[f64] {
        &self.times[self.offsets[trajectory] as usize..self.offsets[trajectory + 1] as usize]
    }

    /// Returns the PDE parameters of a trajectory's source in the set.
    pub(super) fn parameters_of<'s>(&self, trajectory: usize, set: &'s Trajectories) -> &'s [f64] {
        let (source, _) = self.sources[self.offsets[trajectory] as usize];
        &set.trajectories[source as usize].parameters
    }

    /// Calls `change` with portions of the training data: the numbers of some trajectories and their normalised states. It may change
    /// filled states.
    pub(super) fn edit(
        &self,
        model: &Model,
        set: &Trajectories,
        memory: &mut Memory,
        mut change: impl FnMut(Range<usize>, &mut [&mut [f32]]) -> Result<()>,
    ) -> Result<()> {
        let size: usize = model.batch_shape(1).iter().product();
        let rows = |trajectory: usize| self.times_of(trajectory).len() * size;
        let portions = portions(self.trajectories(), PORTION, rows);
        let Some(filled) = &self.filled else {
            return memory.update(VALUES, |mut rest| {
                for portion in portions {
                    let mut blocks = Vec::with_capacity(portion.len());
                    for trajectory in portion.clone() {
                        let (block, after) = rest.split_at_mut(rows(trajectory));
                        blocks.push(block);
                        rest = after;
                    }
                    change(portion, &mut blocks)?;
                }
                Ok(())
            });
        };
        for portion in portions {
            let mut read = Vec::with_capacity(portion.len());
            for trajectory in portion.clone() {
                let range = self.offsets[trajectory] as usize..self.offsets[trajectory + 1] as usize;
                let mut block = vec![0.0; rows(trajectory)];
                self.gather(range, model, set, &mut block)?;
                read.push(block);
            }
            change(portion.clone(), &mut read.iter_mut().map(|block| &mut block[..]).collect::<Vec<_>>())?;
            for (trajectory, block) in portion.zip(&read) {
                filled.write(self.offsets[trajectory] as usize, block)?;
            }
        }
        Ok(())
    }

    /// Returns the number of snapshots of all trajectories.
    pub fn rows(&self) -> usize {
        self.times.len()
    }

    /// Returns the number of trajectories.
    pub fn trajectories(&self) -> usize {
        self.offsets.len() - 1
    }

    /// Returns the number of snapshots of the longest trajectory.
    pub fn longest(&self) -> usize {
        self.offsets.windows(2).map(|pair| (pair[1] - pair[0]) as usize).max().unwrap_or(0)
    }

    /// Returns whether the snapshots of each batch are loaded ahead of its step.
    pub fn is_streamed(&self) -> bool {
        self.streamed
    }

    /// Reads the normalised states of some rows of one trajectory.
    fn gather(&self, rows: Range<usize>, model: &Model, set: &Trajectories, to: &mut [f32]) -> Result<()> {
        let Some(filled) = &self.filled else { return self.gather_snapshots(rows, model, set, to) };
        let size = to.len() / rows.len().max(1);
        let is_filled = |&row: &usize| self.sources[row].1 == FILLED;
        let mut place = to;
        let all: Vec<usize> = rows.collect();
        for run in all.chunk_by(|one, next| is_filled(one) == is_filled(next)) {
            let (now, rest) = place.split_at_mut(run.len() * size);
            match is_filled(&run[0]) {
                true => filled.read(run[0], now)?,
                false => self.gather_snapshots(run[0]..run[0] + run.len(), model, set, now)?,
            }
            place = rest;
        }
        Ok(())
    }

    /// Reads the normalised snapshots of some rows of one trajectory.
    fn gather_snapshots(&self, rows: Range<usize>, model: &Model, set: &Trajectories, to: &mut [f32]) -> Result<()> {
        let Some(&(trajectory, _)) = self.sources.get(rows.start) else { return Ok(()) };
        let trajectory = trajectory as usize;
        match &model.denoiser {
            None => {
                let (frames, counts) = self.frames(rows);
                read_means(set, trajectory, &frames, &counts, to)?;
            }
            // Noise removal needs all snapshots of a trajectory.
            Some(denoiser) => {
                let after = self.offsets.partition_point(|&offset| offset as usize <= rows.start);
                let (first, last) = (self.offsets[after - 1] as usize, self.offsets[after] as usize);
                let (frames, counts) = self.frames(first..last);
                let whole = Selection { trajectory, first: 0, frames, counts };
                let (snapshots, size) = (whole.snapshots(set, Some(denoiser))?, model.shape().len());
                let before = (first..rows.start).filter(|&row| self.sources[row].1 != FILLED).count();
                to.copy_from_slice(&snapshots[before * size..(before + rows.len()) * size]);
            }
        }
        model.encode_in_place(to);
        Ok(())
    }

    /// Returns the snapshots that some rows consist of, and their number in each row (empty: one each).
    fn frames(&self, rows: Range<usize>) -> (Vec<usize>, Vec<u32>) {
        let first = |row: usize| self.sources[row].1 as usize;
        let snapshots = rows.clone().filter(|&row| self.sources[row].1 != FILLED);
        if self.merged.range(rows).next().is_none() {
            return (snapshots.map(first).collect(), Vec::new());
        }
        let (mut frames, mut counts) = (Vec::new(), Vec::new());
        for row in snapshots {
            match self.merged.get(&row) {
                Some(merged) => frames.extend_from_slice(merged),
                None => frames.push(first(row)),
            }
            counts.push(self.merged.get(&row).map_or(1, |merged| merged.len() as u32));
        }
        (frames, counts)
    }

    /// Fills a page with the snapshots of this process's part of a batch.
    ///
    /// # Errors
    /// If they cannot be read.
    pub(crate) fn fill(&self, step: u32, model: &Model, set: &Trajectories, page: &mut [f32]) -> Result<()> {
        let (draw, size) = (draw(model, self), model.shape().len());
        let window = size * draw.data.window();
        page.par_chunks_mut(window).enumerate().try_for_each(|(sample, place)| {
            let rows = draw.rows(sample, step, &self.times, &self.offsets);
            let filled = &mut place[..rows.len() * size];
            self.gather(rows, model, set, filled)
        })
    }

    /// Copies times, offsets and conditions into memory; for streamed values, allocates a batch.
    ///
    /// # Errors
    /// If memory holds other data under these names.
    pub(crate) fn upload(&self, model: &Model, memory: &mut Memory) -> Result<()> {
        if self.streamed {
            let shape = self.values_shape(model);
            memory.insert_real(VALUES, shape, &vec![0.0; shape.iter().product()])?;
        }
        let channels = model.setting.field[2];
        memory.insert("data.times", Element::Double, [self.rows()], Data::F64(&self.times))?;
        memory.insert("data.offsets", Element::Index, [self.offsets.len()], Data::Index(&self.offsets))?;
        if !self.trust.is_empty() {
            memory.insert_real("data.trust", [self.rows(), 1, 1, channels], &self.trust)?;
        }
        if model.setting.conditions > 0 {
            let shape = [self.trajectories(), model.setting.conditions];
            memory.insert_real("data.conditions", shape, &self.conditions)?;
        }
        Ok(())
    }

    /// Returns the shape of the values that the sampler reads: all snapshots, or those of a batch.
    pub(crate) fn values_shape(&self, model: &Model) -> [usize; 4] {
        let rows = match self.is_streamed() {
            true => self.share.samples().len() * draw(model, self).data.window(),
            false => self.rows(),
        };
        model.batch_shape(rows)
    }
}

/// Divides items into consecutive portions of about `most` values, at least one item each.
fn portions(count: usize, most: usize, values: impl Fn(usize) -> usize) -> Vec<Range<usize>> {
    let mut portions: Vec<Range<usize>> = Vec::new();
    let mut held = 0;
    for item in 0..count {
        match portions.last_mut() {
            Some(portion) if held + values(item) <= most => portion.end = item + 1,
            _ => {
                portions.push(item..item + 1);
                held = 0;
            }
        }
        held += values(item);
    }
    portions
}

/// Returns whether batches are streamed: as `data.stream` sets it, else if the values exceed 60 % of the free memory of a GPU, or 70 % of
/// the host's memory for a set that is still in its file.
fn is_streamed(recipe: &Recipe, set: &Trajectories, bytes: u64, memory: &Memory) -> Result<bool> {
    if let Some(stream) = recipe.data.stream {
        return Ok(stream);
    }
    let device = memory.available()?.is_some_and(|available| bytes > available / 10 * 6);
    // Each rank on a machine holds a copy of the data.
    let holders = crate::ranks::job().map_or(1, |ranks| ranks.local_size() as u64);
    let host = set.is_in_file()
        && cfo_device::available_memory().is_some_and(|available| bytes > available / 10 * 7 / holders);
    Ok(device || host)
}
