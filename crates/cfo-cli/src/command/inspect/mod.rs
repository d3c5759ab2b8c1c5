//! `cfo inspect`: the contents of a file, its defects, and whether its times are dense enough.

mod controls;
mod order;
mod sampling;
mod scan;
mod text;

use std::path::PathBuf;

use anyhow::{Context, Result};
use cfo_data::store::TrajectoryFile;
use cfo_data::{DataError, Defect, Split, deviation_of_file};
use serde::Serialize;

use super::output::FrameCounts;
use crate::args;
use crate::{report, terminal};
use sampling::{NoiseReport, Sampling};
use scan::{Scan, TimesReport};

/// The report; the JSON document.
#[derive(Debug, Serialize)]
struct Report {
    #[serde(serialize_with = "report::path")]
    path: PathBuf,
    layout: String,
    /// Empty if the file does not name it.
    system: String,
    trajectories: usize,
    /// Distinct ones among those that were read.
    distinct: usize,
    frames: FrameCounts,
    /// Shape of a snapshot: the space axes, then the channels.
    shape: Vec<usize>,
    channels: usize,
    periodic: Vec<bool>,
    domain: Vec<[f64; 2]>,
    times: TimesReport,
    finite: bool,
    non_finite: Option<NonFinite>,
    values: Vec<ChannelReport>,
    split: Option<SplitReport>,
    parameters: Vec<InputReport>,
    controls: Vec<InputReport>,
    /// Times at which controls are known: the first and the last, over all trajectories that were read.
    control_times: Option<[f64; 2]>,
    statics: Vec<InputReport>,
    /// Warnings about valid but misleading properties.
    warnings: Vec<String>,
    scanned: Scanned,
    /// Noise of each channel; empty if values or times do not allow an estimate.
    noise: Vec<NoiseReport>,
    /// Absent when values or times do not allow a spline.
    sampling: Option<Sampling>,
}

#[derive(Debug, Serialize)]
struct NonFinite {
    count: usize,
    /// The first places, as in error messages.
    places: Vec<String>,
}

#[derive(Debug, Serialize)]
struct ChannelReport {
    name: String,
    unit: Option<String>,
    min: f64,
    max: f64,
    mean: f64,
    deviation: f64,
}

#[derive(Debug, Default, Serialize)]
struct SplitReport {
    train: usize,
    validation: usize,
    test: usize,
    none: usize,
}

#[derive(Debug, Serialize)]
struct InputReport {
    name: String,
    min: f64,
    max: f64,
}

/// The part of the file that the statistics cover.
#[derive(Debug, Serialize)]
struct Scanned {
    trajectories: usize,
    complete: bool,
}

const MOST_PLACES: usize = 16;

pub fn run(arguments: &args::Inspect) -> Result<()> {
    let file = TrajectoryFile::open(&arguments.file)?;
    let scan = Scan::new(&file, arguments.full)?;
    let report = report(&file, &scan)?;
    report::print_result(arguments.json, &report, || text::text(&report))?;
    if arguments.plot && scan.defects.is_empty() {
        plot(&file)?;
    }
    // Reported last, with the exit code of bad input: nothing can be trained on such a file.
    match scan.defects.into_iter().next() {
        Some(defect) => Err(DataError::defect(file.path(), defect).into()),
        None => Ok(()),
    }
}

/// Shows the first trajectory, as many of its snapshots as a terminal has room for.
fn plot(file: &TrajectoryFile) -> Result<()> {
    let shape = file.description().shape;
    let (count, most) = (file.frame_count(0)?, if shape.axes() > 1 { 3 } else { 200 });
    let kept = count.min(most);
    let frames: Vec<usize> = (0..kept).map(|n| n * (count - 1) / (kept - 1).max(1)).collect();
    Ok(terminal::show(file.description(), &file.frames(0, &frames)?, None)?)
}

fn report(file: &TrajectoryFile, scan: &Scan) -> Result<Report> {
    let description = file.description();
    let values = channels(file, scan);
    let names: Vec<String> = values.iter().map(|channel| channel.name.clone()).collect();
    let (noise, sampling) = match scan.defects.is_empty() {
        true => {
            // As training sees it.
            let merged = file.merged();
            let deviation = deviation_of_file(&merged).context("measuring deviations")?;
            let noise = NoiseReport::of(&merged, &deviation, &names).context("estimating the noise")?;
            let sampling = Sampling::new(&merged, &deviation, &noise);
            (noise, sampling.context("auditing the sampling")?)
        }
        false => (Vec::new(), None),
    };
    Ok(Report {
        path: file.path().to_owned(),
        layout: file.layout().to_string(),
        system: description.system.clone(),
        trajectories: file.len(),
        distinct: scan.digests.len(),
        frames: FrameCounts { min: scan.frames.0, max: scan.frames.1 },
        shape: description.shape.dimensions(),
        channels: description.shape.channels,
        periodic: description.periodic.clone(),
        domain: description.domain.clone(),
        times: scan.times.clone(),
        finite: scan.non_finite == 0,
        non_finite: (scan.non_finite > 0).then(|| NonFinite { count: scan.non_finite, places: places(scan) }),
        values,
        split: split(file),
        parameters: inputs(&description.inputs.parameters, &scan.parameters),
        controls: inputs(&description.inputs.controls, &scan.controls.ranges),
        control_times: scan.controls.times,
        statics: inputs(&description.inputs.statics, &scan.statics),
        warnings: warnings(file, scan),
        scanned: Scanned { trajectories: scan.trajectories, complete: scan.trajectories == file.len() },
        noise,
        sampling,
    })
}

/// Names of inputs with their ranges.
fn inputs(names: &[String], ranges: &[[f64; 2]]) -> Vec<InputReport> {
    let pairs = names.iter().zip(ranges);
    pairs.map(|(name, &[min, max])| InputReport { name: name.clone(), min, max }).collect()
}

/// Warnings about properties of the file that are valid but can mislead.
fn warnings(file: &TrajectoryFile, scan: &Scan) -> Vec<String> {
    let mut warnings = file.warnings().to_vec();
    warnings.extend(scan.order.warnings(file));
    warnings.extend(merging(scan.times.nearly_equal));
    warnings.extend(scan.controls.warning());
    warnings.extend(scan.precision.warnings(&file.description().channel_names, file.offset()));
    warnings
}

/// The warning about snapshots that are nearly at the time of the previous one.
pub fn merging(count: usize) -> Option<String> {
    (count > 0).then(|| {
        let which = match count {
            1 => "1 snapshot is".to_owned(),
            count => format!("{count} snapshots are"),
        };
        format!(
            "{which} at nearly the same time as the previous one: training merges these into their mean (`data.merge_below` sets the distance)"
        )
    })
}

fn places(scan: &Scan) -> Vec<String> {
    let values = scan.defects.iter().filter_map(|defect| match defect {
        Defect::Value { place, value } => Some(match value.is_finite() {
            true => format!("{place}: {value:e}, beyond the range of float32"),
            false => format!("{place}: {value}"),
        }),
        Defect::Time { .. } | Defect::Parameter { .. } => None,
    });
    values.take(MOST_PLACES).collect()
}

fn channels(file: &TrajectoryFile, scan: &Scan) -> Vec<ChannelReport> {
    let (description, offset) = (file.description(), file.offset());
    let (mean, deviation) = (scan.statistics.normalization().mean, scan.statistics.deviation());
    scan.statistics
        .range()
        .into_iter()
        .enumerate()
        .map(|(channel, [min, max])| ChannelReport {
            name: description.channel_names.get(channel).cloned().unwrap_or_else(|| channel.to_string()),
            unit: description.channel_units.get(channel).filter(|unit| !unit.is_empty()).cloned(),
            min: shown(min, offset.of(channel)),
            max: shown(max, offset.of(channel)),
            mean: mean[channel] + offset.of(channel),
            deviation: deviation[channel],
        })
        .collect()
}

/// Adds an offset to a value. Without one, the digits are those of single precision.
fn shown(value: f32, offset: f64) -> f64 {
    match offset {
        0.0 => value.to_string().parse().unwrap_or(f64::from(value)),
        offset => f64::from(value) + offset,
    }
}

fn split(file: &TrajectoryFile) -> Option<SplitReport> {
    let mut counts = SplitReport::default();
    for trajectory in 0..file.len() {
        match file.split(trajectory) {
            Some(Split::Train) => counts.train += 1,
            Some(Split::Validation) => counts.validation += 1,
            Some(Split::Test) => counts.test += 1,
            None => counts.none += 1,
        }
    }
    (counts.none < file.len()).then_some(counts)
}
