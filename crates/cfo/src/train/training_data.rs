//! The training trajectories in the layout of the sampler: normalised, subsampled, one after another.

use std::collections::BTreeMap;
use std::ops::Range;

use cfo_data::TrajectoryInputs;
use cfo_engine::{Data, Element, Memory};
use rayon::prelude::*;

use super::gradients::Gradients;
use super::input_tables::InputTables;
use super::phase::Phase;
use super::refine::{Gaps, SnapshotSegment};
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

/// The training data, from which batches are sampled.
#[derive(Clone, Debug)]
pub struct TrainingData {
    /// Whether the snapshots of each batch are read from the set; otherwise all are in memory.
    streamed: bool,
    /// Trajectory and snapshot of each row; the first snapshot if the row is the mean of several.
    sources: Vec<(u32, u32)>,
    /// The snapshots of rows that are means of several.
    merged: BTreeMap<usize, Vec<usize>>,
    times: Vec<f64>,
    offsets: Vec<u32>,
    /// The inputs beside the state of each trajectory.
    pub(super) inputs: InputTables,
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
        let rows: usize = selections.iter().map(Selection::len).sum();
        let shape = model.batch_shape(rows);
        let streamed = is_streamed(&model.recipe, set, 4 * shape.iter().product::<usize>() as u64, memory)?;
        let (question, known) = (model.question(), known.map(|known| (&known.scaling, &known.denoiser)));
        let measured = match streamed {
            true => Measured::of(&question, set, selections, known, None)?,
            false => memory.insert_filled(VALUES, shape, |values| {
                Measured::of(&question, set, selections, known, Some(values))
            })?,
        };
        model.take(&measured);
        let mut data = Self::rows_of(&model, set, selections, memory, (streamed, &measured.path_errors));
        data.warnings.extend(measured.warnings);
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
        let data = Self::rows_of(&model, set, &phase.selections, memory, (self.streamed, &[]));
        (model, data)
    }

    /// Returns whether [`TrainingData::again`] uses the tensor with this name.
    pub(crate) fn is_kept(&self, name: &str) -> bool {
        !self.streamed && name == VALUES
    }

    /// Returns a hash of the training data, with which resuming on other data is detected.
    ///
    /// # Errors
    /// If the values cannot be read.
    pub fn fingerprint(recipe: &Recipe, set: &Trajectories) -> Result<String> {
        fingerprint(&recipe.path, set, &Selection::of_set(recipe, set)?)
    }

    /// Collects the times, sources and inputs of the rows.
    fn rows_of(
        model: &Model,
        set: &Trajectories,
        selections: &[Selection],
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
            inputs: InputTables::of(model, set, selections),
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
        }
        if let Draw::PathPoint { .. } = model.objective().draw() {
            let merged: Vec<u32> = selections.iter().flat_map(Selection::measurements).collect();
            let removed = (&model.scaling, model.denoiser.as_ref());
            let rows = (&data.times[..], &merged[..]);
            data.trust = trust(&model.question(), removed, rows, &data.offsets, path_errors);
        }
        data
    }

    /// Returns the times of a trajectory's rows, in the network's units.
    pub(super) fn times_of(&self, trajectory: usize) -> &[f64] {
        &self.times[self.range_of(trajectory)]
    }

    /// Returns the inputs of a trajectory, in the user's units.
    pub(super) fn inputs_of<'s>(&self, trajectory: usize, set: &'s Trajectories) -> &'s TrajectoryInputs {
        let (source, _) = self.sources[self.offsets[trajectory] as usize];
        &set.trajectories[source as usize].inputs
    }

    /// Returns the rows of a trajectory.
    pub(super) fn range_of(&self, trajectory: usize) -> Range<usize> {
        self.offsets[trajectory] as usize..self.offsets[trajectory + 1] as usize
    }

    /// Returns data of some segments of trajectories with rows between their snapshots, and the values of all rows. The values of snapshots
    /// are in place; the caller fills the others. Both have `capacity` rows: every round uses tensors of one size, and no sample is drawn
    /// from rows after the last segment.
    pub(super) fn with_gaps(
        &self,
        (gaps, chosen): (&Gaps, &[usize]),
        capacity: usize,
        model: &Model,
        set: &Trajectories,
    ) -> Result<(Self, Vec<f32>)> {
        let mut data = Self {
            streamed: false,
            sources: Vec::new(),
            merged: BTreeMap::new(),
            times: Vec::with_capacity(capacity),
            offsets: vec![0],
            inputs: self.inputs.rows(chosen.iter().map(|&segment| gaps.segment(segment).trajectory)),
            share: self.share.clone(),
            trust: Vec::new(),
            warnings: Vec::new(),
        };
        let (size, channels) = (model.batch_shape(1).iter().product::<usize>(), model.setting.field.channels);
        // `path.trust` judges paths without filled states.
        let removed = if model.denoiser.is_some() { &self.trust[..] } else { &[] };
        let width = removed.len() / self.rows();
        let mut values = vec![0.0; capacity * size];
        let mut snapshots = Vec::new();
        for &segment in chosen {
            let SnapshotSegment { trajectory, snapshots: own, .. } = gaps.segment(segment);
            let before = self.range_of(*trajectory).start;
            let (own, first) = (before + own.start..before + own.end, data.times.len());
            snapshots.resize(own.len() * size, 0.0);
            self.gather(own.clone(), model, set, &mut snapshots)?;
            for (&row, state) in gaps.knots(segment).iter().zip(snapshots.chunks(size)) {
                values[(first + row as usize) * size..][..size].copy_from_slice(state);
            }
            data.times.extend(gaps.times(segment, &self.times[own.clone()]));
            if width > 0 {
                let own = &removed[own.start * width..own.end * width];
                data.trust.extend(gaps.spread(segment, own, width));
            }
            data.offsets.push(data.times.len() as u32);
        }
        data.trust = gaps.weights(chosen, &data.times, (&data.trust, channels));
        data.times.resize(capacity, f64::INFINITY);
        data.trust.resize(capacity * channels, 0.0);
        Ok((data, values))
    }

    /// Repeats the trajectories in order until there are `count`, within the capacity.
    pub(super) fn repeat(&mut self, count: usize, values: &mut [f32]) {
        let (own, rows) = (self.trajectories(), self.times.len());
        let (size, width) = (values.len() / rows, self.trust.len() / rows);
        self.inputs = self.inputs.rows((0..count.max(own)).map(|trajectory| trajectory % own));
        for trajectory in own..count {
            let (from, to) = (self.range_of(trajectory - own), self.offsets[trajectory] as usize);
            values.copy_within(from.start * size..from.end * size, to * size);
            self.times.copy_within(from.clone(), to);
            self.trust.copy_within(from.start * width..from.end * width, to * width);
            self.offsets.push((to + from.len()) as u32);
        }
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

    /// Reads the normalised snapshots of some rows of one trajectory.
    fn gather(&self, rows: Range<usize>, model: &Model, set: &Trajectories, to: &mut [f32]) -> Result<()> {
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
                to.copy_from_slice(&snapshots[(rows.start - first) * size..(rows.end - first) * size]);
            }
        }
        model.encode_in_place(to);
        Ok(())
    }

    /// Returns the snapshots that some rows consist of, and their number in each row (empty: one each).
    fn frames(&self, rows: Range<usize>) -> (Vec<usize>, Vec<u32>) {
        let first = |row: usize| self.sources[row].1 as usize;
        if self.merged.range(rows.clone()).next().is_none() {
            return (rows.map(first).collect(), Vec::new());
        }
        let (mut frames, mut counts) = (Vec::new(), Vec::new());
        for row in rows {
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

    /// Copies times, offsets and inputs into memory; for streamed values, allocates a batch.
    ///
    /// # Errors
    /// If memory holds other data under these names.
    pub(crate) fn upload(&self, model: &Model, memory: &mut Memory) -> Result<()> {
        if self.streamed {
            let shape = self.values_shape(model);
            memory.insert_real(VALUES, shape, &vec![0.0; shape.iter().product()])?;
        }
        let channels = model.setting.field.channels;
        memory.insert("data.times", Element::Double, [self.rows()], Data::F64(&self.times))?;
        memory.insert("data.offsets", Element::Index, [self.offsets.len()], Data::Index(&self.offsets))?;
        if !self.trust.is_empty() {
            memory.insert_real("data.trust", [self.rows(), 1, 1, channels], &self.trust)?;
        }
        self.inputs.upload(memory)
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
