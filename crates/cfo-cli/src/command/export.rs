//! `cfo export`: a trajectory file in another layout, for other programs.

use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use std::time::Instant;

use anyhow::{Result, bail};
use cfo::CfoError;
use cfo_data::DataError;
use cfo_data::store::{
    Layout, OutputLayout, TrajectoryFile, TrajectoryWriter, WriteOptions, describe_as_xdmf,
};
use serde::Serialize;

use super::output::{FrameCounts, check_trajectories, is_same};
use crate::args;
use crate::diagnostics::say;
use crate::progress::TerminalProgress;
use crate::{interrupt, report};

/// Most values held in memory at a time.
const HELD: usize = 1 << 22;

#[derive(Debug, Serialize)]
struct Report {
    #[serde(serialize_with = "report::path")]
    out: PathBuf,
    /// The file with the numbers, if that is a second file.
    numbers: Option<PathBuf>,
    layout: String,
    trajectories: usize,
    indices: Vec<usize>,
    frames: FrameCounts,
    bytes: u64,
    left_out: Vec<String>,
    seconds: f64,
}

pub fn run(arguments: &args::Export) -> Result<()> {
    let started = Instant::now();
    let layout = arguments.to.map_or_else(|| layout_of(&arguments.out), Ok)?;
    let file = TrajectoryFile::open(&arguments.file)?;
    let (indices, mut left_out) = chosen(arguments, &file, layout)?;
    let has_split = indices.iter().any(|&index| file.split(index).is_some());
    left_out.extend(layout.leaves_out(file.description(), has_split).iter().map(ToString::to_string));
    let counts: Vec<usize> =
        indices.iter().map(|&index| file.frame_count(index)).collect::<Result<_, _>>()?;
    let frames = FrameCounts {
        min: counts.iter().copied().min().unwrap_or(0),
        max: counts.iter().copied().max().unwrap_or(0),
    };
    let numbers = (layout == OutputLayout::Xdmf).then(|| arguments.out.with_extension("h5"));
    let in_place = numbers.as_deref().is_some_and(|numbers| is_same(numbers, &arguments.file));
    if in_place && file.layout() == Layout::Cfo && indices.len() == file.len() {
        describe_as_xdmf(&file, &arguments.out, arguments.force)?;
    } else {
        if file.is_double() {
            left_out.push(match (file.offset().is_none(), layout.takes_doubles()) {
                (true, _) => "digits beyond single precision: values are written as float32".to_string(),
                (false, true) => {
                    "digits beyond single precision of the distance from each channel's mean".to_string()
                }
                (false, false) => format!(
                    "small variations of channels with large values: `{layout}` has float32; the layouts `cfo` and `npz` keep them"
                ),
            });
        }
        check_target(arguments, in_place)?;
        write(arguments, &file, layout, &indices, frames.max)?;
    }
    for what in &left_out {
        say(&format!("left out: {what}"));
    }
    let written = numbers.as_deref().unwrap_or(&arguments.out);
    let found = Report {
        bytes: fs_err::metadata(written)?.len(),
        out: arguments.out.clone(),
        numbers,
        layout: layout.to_string(),
        trajectories: indices.len(),
        indices,
        frames,
        left_out,
        seconds: started.elapsed().as_secs_f64(),
    };
    report::print_result(arguments.json, &found, || text(&found))
}

/// Returns the trajectories to write, and a message about those that are left out.
fn chosen(
    arguments: &args::Export,
    file: &TrajectoryFile,
    layout: OutputLayout,
) -> Result<(Vec<usize>, Vec<String>)> {
    check_trajectories(&arguments.trajectory, file.len())?;
    let indices = match arguments.trajectory.is_empty() {
        true => (0..file.len()).collect(),
        false => arguments.trajectory.clone(),
    };
    if layout != OutputLayout::Vtkhdf || indices.len() == 1 {
        return Ok((indices, Vec::new()));
    }
    if !arguments.trajectory.is_empty() {
        bail!(CfoError::invalid(
            "--trajectory",
            format!("the layout `vtkhdf` can store one trajectory, not {}", indices.len())
        ));
    }
    let rest = match file.len() - 1 {
        1 => "trajectory 1".to_string(),
        last => format!("trajectories 1 to {last}"),
    };
    let said = format!("{rest}: the layout `vtkhdf` can store one, which `--trajectory` selects");
    Ok((vec![0], vec![said]))
}

/// Refuses to overwrite the file that is read, even with `--force`.
fn check_target(arguments: &args::Export, numbers_are_read: bool) -> Result<()> {
    if numbers_are_read || is_same(&arguments.out, &arguments.file) {
        bail!(CfoError::bad_data(
            format!("`{}` would overwrite the file that is exported", arguments.out.display()),
            "choose another `--out`; an `.xdmf` comes with an `.h5` of the same name"
        ));
    }
    Ok(())
}

/// Copies the snapshots, a few at a time.
fn write(
    arguments: &args::Export,
    file: &TrajectoryFile,
    layout: OutputLayout,
    indices: &[usize],
    frames: usize,
) -> Result<()> {
    let options = WriteOptions {
        layout,
        force: arguments.force,
        frames: Some(frames),
        offset: file.offset().clone(),
        ..WriteOptions::default()
    };
    let size = file.description().shape.len();
    let portion = (HELD / size).max(1);
    let interrupt = interrupt::flag()?;
    let mut progress = TerminalProgress::new("exporting", indices.len() as u64);
    let mut writer = TrajectoryWriter::create(&arguments.out, file.description(), options)?;
    let mut values = vec![0.0; portion.min(frames) * size];
    for &index in indices {
        let times = file.times(index)?;
        writer.start(&times, &file.inputs(index)?, file.split(index))?;
        let all: Vec<usize> = (0..times.len()).collect();
        for some in all.chunks(portion) {
            if interrupt.load(Ordering::Relaxed) {
                bail!("interrupted; nothing was written");
            }
            let values = &mut values[..some.len() * size];
            file.frames_into(index, some, values)?;
            writer.frames(values)?;
        }
        progress.advance();
    }
    Ok(writer.finish()?)
}

/// The layout that the extension of a file selects.
fn layout_of(path: &Path) -> Result<OutputLayout, DataError> {
    let extension = path.extension().map(|extension| extension.to_string_lossy().to_lowercase());
    match extension.as_deref() {
        Some("vtkhdf") => Ok(OutputLayout::Vtkhdf),
        Some("xdmf" | "xmf") => Ok(OutputLayout::Xdmf),
        Some("nc" | "nc4" | "netcdf") => Ok(OutputLayout::Netcdf),
        Some("npz") => Ok(OutputLayout::Npz),
        Some("h5" | "hdf5" | "hdf" | "he5") => Ok(OutputLayout::Cfo),
        _ => Err(DataError::Argument {
            what: "the name of the output file",
            found: format!("`{}`", path.display()),
            needed: "a name that ends with `.vtkhdf`, `.xdmf`, `.nc`, `.npz` or `.h5`, or a layout in `--to`"
                .to_owned(),
        }),
    }
}

fn text(found: &Report) -> String {
    let FrameCounts { min, max } = found.frames;
    let frames = if min == max { format!("{max}") } else { format!("{min} to {max}") };
    let beside = found
        .numbers
        .as_ref()
        .map_or(String::new(), |numbers| format!(", numbers in `{}`", numbers.display()));
    format!(
        "{} of {frames} snapshots in `{}` (layout {}, {}){beside}\n",
        report::count(found.trajectories, "trajectory", "trajectories"),
        found.out.display(),
        found.layout,
        report::bytes(found.bytes),
    )
}
