//! Trajectories for a page: read a snapshot at a time, thinned until they fit, with notes on what was left out.

use anyhow::Result;
use cfo::data::Description;
use cfo::data::store::TrajectoryFile;
use cfo::numerics::Grid;
use rayon::prelude::*;

use super::document::{PageChannel, PageField, PageFile, PageTrack, PageTrajectory};
use super::encode::{EXACT, EncodedBlock, PRECISIONS, Quantization};
use super::matching::{self, PageSource, Pairing};

/// Most characters of all blocks of a page together, so that it has a few megabytes.
const BUDGET: usize = 5_400_000;

/// Most numbers that are read; a page has no room for more.
const NUMBERS: usize = 12_000_000;

/// Most points along an axis, and most snapshots, that a screen can show.
const MOST_POINTS: usize = 256;
const MOST_FRAMES: usize = 2000;

const MOST_TRAJECTORIES: usize = 64;

/// The part of the files that is shown.
#[derive(Clone, Debug)]
struct Extract {
    indices: Vec<usize>,
    frames: usize,
    /// Every `stride`-th point along each axis is shown.
    stride: usize,
}

/// The numbers that one file has for a trajectory.
struct Share {
    times: Vec<f64>,
    difference: bool,
    /// `[frames, points]` numbers of each channel.
    channels: Vec<Vec<f32>>,
    errors: Option<Vec<Option<f64>>>,
}

/// The trajectories of the first file, with those of the others as their predictions; and notes on what was left out.
pub fn gather(files: &[PageSource], wanted: &[usize]) -> Result<(PageField, Vec<String>)> {
    let pairing = Pairing::new(files)?;
    let mut extract = Extract::first(files, wanted, &pairing)?;
    loop {
        let shares = read(files, &pairing, &extract)?;
        let grid = extract.grid(files[0].file.description());
        let numbers = extract.numbers(files[0].file.description(), files.len());
        // Bits and size of the last attempt.
        let mut last = (EXACT, 0);
        for bits in PRECISIONS {
            // One bit less shortens a number by at most one bit, which is a sixth of a character in base64.
            let saved = numbers * (last.0 - bits) as usize / 6;
            if last.0 < EXACT && bits > 8 && last.1 > BUDGET + saved {
                continue;
            }
            let scales: Vec<Vec<Quantization>> = shares.iter().map(|file| scales(file, bits)).collect();
            let blocks = encode(&shares, &scales, [grid.rows(), grid.width()]);
            let size: usize = blocks.iter().flatten().flatten().flatten().map(|block| block.data.len()).sum();
            last = (bits, size);
            if size <= BUDGET {
                let notes = notes(files, &extract, &scales, &pairing);
                return Ok((field(files, extract, shares, blocks)?, notes));
            }
        }
        extract.shrink();
    }
}

impl Extract {
    fn first(files: &[PageSource], wanted: &[usize], pairing: &Pairing) -> Result<Self> {
        let file = &files[0].file;
        let shape = file.description().shape;
        let longest_side = shape.grid.sides().iter().copied().max().unwrap_or(1);
        let stride = longest_side.div_ceil(MOST_POINTS);
        // Trajectories with predictions come first: they are the most interesting.
        let all = match wanted.is_empty() {
            true => pairing.order(file.len()),
            false => wanted.to_vec(),
        };
        let mut longest = 0;
        for &index in all.iter().take(MOST_TRAJECTORIES) {
            longest = longest.max(file.frame_count(index)?);
        }
        let frames = longest.min(MOST_FRAMES);
        let mut extract = Self { indices: all, frames, stride };
        let one = frames * extract.grid(file.description()).points() * shape.channels * files.len();
        let most = (NUMBERS / one.max(1)).clamp(1, MOST_TRAJECTORIES);
        extract.indices.truncate(most);
        while extract.numbers(file.description(), files.len()) > NUMBERS {
            extract.shrink();
        }
        Ok(extract)
    }

    /// Points that are shown.
    fn grid(&self, description: &Description) -> Grid {
        let sides = description.shape.grid.sides().iter().map(|points| points.div_ceil(self.stride));
        Grid::new(&sides.collect::<Vec<_>>()).expect("as many axes as the data")
    }

    fn numbers(&self, description: &Description, files: usize) -> usize {
        let points = self.grid(description).points();
        self.indices.len() * self.frames * points * description.shape.channels * files
    }

    /// Reduces the extract: fewer trajectories first, then fewer snapshots, then fewer points.
    fn shrink(&mut self) {
        match self.indices.len() {
            1 if self.frames > 120 => self.frames = self.frames.div_ceil(2),
            1 => self.stride *= 2,
            count => self.indices.truncate(count.div_ceil(2)),
        }
    }

    /// Returns the shown snapshots of `count`: evenly spread, the first and the last among them.
    fn frames_of(&self, count: usize) -> Vec<usize> {
        let kept = count.min(self.frames);
        (0..kept).map(|n| if kept > 1 { n * (count - 1) / (kept - 1) } else { 0 }).collect()
    }

    /// Adds the points of a snapshot that are shown to the channels.
    fn pick(&self, snapshot: &[f32], description: &Description, channels: &mut [Vec<f32>]) {
        let shape = description.shape;
        let [depth, height, width] = shape.grid.padded();
        let shown = |side: usize| (0..side).step_by(self.stride);
        for row in shown(depth).flat_map(|plane| shown(height).map(move |row| plane * height + row)) {
            for column in shown(width) {
                let point = (row * width + column) * shape.channels;
                let values = &snapshot[point..point + shape.channels];
                channels.iter_mut().zip(values).for_each(|(channel, &value)| channel.push(value));
            }
        }
    }
}

/// The part of each file for each trajectory.
fn read(files: &[PageSource], pairing: &Pairing, extract: &Extract) -> Result<Vec<Vec<Option<Share>>>> {
    let truth = &files[0].file;
    let mut shares = Vec::new();
    for (number, PageSource { file, .. }) in files.iter().enumerate() {
        let one = |&index: &usize| match number {
            0 => read_truth(file, index, extract).map(Some),
            _ => match pairing.partner(number, index) {
                Some(partner) => read_prediction(truth, index, file, partner, extract).map(Some),
                None => Ok(None),
            },
        };
        shares.push(extract.indices.iter().map(one).collect::<Result<Vec<_>>>()?);
    }
    Ok(shares)
}

fn read_truth(file: &TrajectoryFile, index: usize, extract: &Extract) -> Result<Share> {
    let times = file.times(index)?;
    let frames = extract.frames_of(times.len());
    let description = file.description();
    let mut channels = vec![Vec::new(); description.shape.channels];
    for &frame in &frames {
        extract.pick(&file.frames(index, &[frame])?, description, &mut channels);
    }
    let times = frames.iter().map(|&frame| times[frame]).collect();
    Ok(Share { times, difference: false, channels, errors: None })
}

/// A prediction is stored as its difference from the truth if the truth has all its times. Errors then keep their digits.
fn read_prediction(
    truth: &TrajectoryFile,
    index: usize,
    file: &TrajectoryFile,
    partner: usize,
    extract: &Extract,
) -> Result<Share> {
    let (own, known) = (file.times(partner)?, truth.times(index)?);
    let shown: Vec<f64> = extract.frames_of(known.len()).iter().map(|&frame| known[frame]).collect();
    let common = matching::common(&own, &known);
    // If the truth has all its times: the snapshots at the truth's shown times. Otherwise: a selection of its own.
    let difference = common.iter().all(Option::is_some);
    let frames: Vec<usize> = match difference {
        true => (0..own.len()).filter(|&n| matching::holds(&shown, own[n])).collect(),
        false => extract.frames_of(own.len()),
    };
    let description = truth.description();
    let order = matching::channels(description, file.description());
    let mut channels = vec![Vec::new(); description.shape.channels];
    let (mut times, mut errors) = (Vec::new(), Vec::new());
    for &frame in &frames {
        let mut predicted = matching::reordered(&file.frames(partner, &[frame])?, &order);
        let error = match common[frame] {
            Some(same) => {
                let snapshot = truth.frames(index, &[same])?;
                let error = matching::relative_error_about(truth.offset(), &predicted, &snapshot);
                if difference {
                    predicted.iter_mut().zip(&snapshot).for_each(|(p, t)| *p -= t);
                }
                error
            }
            None => None,
        };
        extract.pick(&predicted, description, &mut channels);
        times.push(own[frame]);
        errors.push(error);
    }
    Ok(Share { times, difference, channels, errors: Some(errors) })
}

fn scales(shares: &[Option<Share>], bits: u32) -> Vec<Quantization> {
    let count = shares.iter().flatten().map(|share| share.channels.len()).max().unwrap_or(0);
    let scale = |channel: usize| {
        let values = shares.iter().flatten().flat_map(|share| &share.channels[channel]);
        let (low, high) = values.fold((f32::MAX, f32::MIN), |(a, b), &x| (a.min(x), b.max(x)));
        Quantization::covering(low.min(high), high, bits)
    };
    (0..count).map(scale).collect()
}

type Blocks = Vec<Vec<Option<Vec<EncodedBlock>>>>;

fn encode(shares: &[Vec<Option<Share>>], scales: &[Vec<Quantization>], shape: [usize; 2]) -> Blocks {
    let files = shares.iter().zip(scales).map(|(file, scales)| {
        let track = |share: &Option<Share>| {
            let channels = share.as_ref()?.channels.iter().zip(scales);
            Some(channels.map(|(values, &scale)| EncodedBlock::new(values, shape, scale)).collect())
        };
        file.par_iter().map(track).collect()
    });
    files.collect()
}

fn field(
    files: &[PageSource],
    extract: Extract,
    shares: Vec<Vec<Option<Share>>>,
    blocks: Blocks,
) -> Result<PageField> {
    let file = &files[0].file;
    let description = file.description();
    let mut times: Vec<Vec<f64>> = Vec::new();
    let mut known = |list: Vec<f64>| match times.iter().position(|other| *other == list) {
        Some(place) => place,
        None => {
            times.push(list);
            times.len() - 1
        }
    };
    let mut shown = Vec::new();
    for (PageSource { label, .. }, (shares, blocks)) in files.iter().zip(shares.into_iter().zip(blocks)) {
        let track = |(share, blocks): (Option<Share>, Option<Vec<EncodedBlock>>)| {
            let (share, blocks) = share.zip(blocks)?;
            let times = known(share.times);
            Some(PageTrack { times, difference: share.difference, blocks, errors: share.errors })
        };
        shown.push(PageFile {
            label: label.clone(),
            tracks: shares.into_iter().zip(blocks).map(track).collect(),
        });
    }
    let mut trajectories = Vec::new();
    for &index in &extract.indices {
        let split = file.split(index).map(|split| split.to_string());
        trajectories.push(PageTrajectory { index, split, parameters: file.inputs(index)?.parameters });
    }
    Ok(PageField {
        system: description.system.clone(),
        sides: extract.grid(description).sides().to_vec(),
        source: description.shape.grid.sides().to_vec(),
        stride: extract.stride,
        domain: description.domain.clone(),
        periodic: description.periodic.clone(),
        channels: channels(file),
        parameters: description.inputs.parameters.clone(),
        trajectories,
        times,
        files: shown,
    })
}

/// Names and units; channels without a name are numbered.
fn channels(file: &TrajectoryFile) -> Vec<PageChannel> {
    let description = file.offset().named(file.description());
    let channel = |index: usize| PageChannel {
        name: description.channel_names.get(index).cloned().unwrap_or_else(|| format!("u{index}")),
        unit: description.channel_units.get(index).cloned().unwrap_or_default(),
        offset: file.offset().of(index),
    };
    (0..description.shape.channels).map(channel).collect()
}

fn notes(
    files: &[PageSource],
    extract: &Extract,
    scales: &[Vec<Quantization>],
    pairing: &Pairing,
) -> Vec<String> {
    let file = &files[0].file;
    let shape = file.description().shape;
    let mut notes = Vec::new();
    if extract.indices.len() < file.len() {
        notes.push(format!("{} of {} trajectories are shown", extract.indices.len(), file.len()));
    }
    let longest = extract.indices.iter().filter_map(|&index| file.frame_count(index).ok()).max();
    if let Some(longest) = longest.filter(|&longest| longest > extract.frames) {
        notes.push(format!("{} of up to {longest} snapshots are shown, evenly spread", extract.frames));
    }
    if extract.stride > 1 {
        notes.push(format!("one point in {} of {} is shown along each axis", extract.stride, shape.grid));
    }
    let names = channels(file);
    for (PageSource { label, .. }, scales) in files.iter().zip(scales) {
        let rounded = scales.iter().zip(&names).filter(|(scale, _)| scale.precision() > 0.0);
        let rounded: Vec<String> =
            rounded.map(|(scale, channel)| format!("{} ±{:.1e}", channel.name, scale.precision())).collect();
        if !rounded.is_empty() {
            notes.push(format!("numbers of {label} rounded: {}", rounded.join(", ")));
        }
    }
    notes.extend(pairing.notes(files));
    notes
}
