//! The report as text.

use std::fmt::Write;

use super::scan::TimesReport;
use super::{Report, SplitReport};
use crate::report::CellAlignment::{Left, Right};
use crate::report::{TextTable, scientific};

pub(super) fn text(report: &Report) -> String {
    let mut text = String::new();
    let mut line = |content: String| {
        text.push_str(&content);
        text.push('\n');
    };
    let system = if report.system.is_empty() { "unnamed" } else { &report.system };
    line(format!("`{}`: layout {}, system {system}", report.path.display(), report.layout));
    line(format!("{} trajectories, {}, snapshots [{}]", report.trajectories, frames(report), shape(report)));
    if report.distinct < report.scanned.trajectories {
        line(format!(
            "{} of the {} trajectories read are exact copies of others: with a split by index, test data would also be training data",
            report.scanned.trajectories - report.distinct,
            report.scanned.trajectories
        ));
    }
    for (axis, (periodic, [low, high])) in report.periodic.iter().zip(&report.domain).enumerate() {
        let boundary = if *periodic { "periodic" } else { "not periodic" };
        line(format!("space axis {axis}: {low} to {high}, {boundary}"));
    }
    if let Some(split) = &report.split {
        line(split_text(split));
    }
    for parameter in &report.parameters {
        line(format!("parameter {}: {} to {}", parameter.name, parameter.min, parameter.max));
    }
    for control in &report.controls {
        let [first, last] = report.control_times.unwrap_or_default();
        line(format!(
            "control {}: {} to {}, known from time {first} to {last}",
            control.name, control.min, control.max
        ));
    }
    for field in &report.statics {
        line(format!("static field {}: {} to {}", field.name, field.min, field.max));
    }
    line(times(&report.times));
    if let Some(gap) = &report.times.longest_gap {
        line(format!(
            "gaps: {}; the longest, {:.1} mean intervals, is after frame {} of trajectory {} ({} to {})",
            report.times.gaps, gap.ratio, gap.frame, gap.trajectory, gap.from, gap.to
        ));
    }
    line(finite(report));
    if let Some(non_finite) = &report.non_finite {
        for place in &non_finite.places {
            line(format!("  {place}"));
        }
    }
    for warning in &report.warnings {
        line(format!("warning: {warning}"));
    }
    line(format!("\n{}", values(report).trim_end()));
    if !report.noise.is_empty() {
        line(format!("\n{}", noise(report)));
    }
    line(format!("\n{}", sampling(report).trim_end()));
    text
}

fn frames(report: &Report) -> String {
    let (min, max) = (report.frames.min, report.frames.max);
    if min == max { format!("{min} frames each") } else { format!("{min} to {max} frames") }
}

fn shape(report: &Report) -> String {
    let sizes: Vec<String> = report.shape.iter().map(ToString::to_string).collect();
    sizes.join(", ")
}

fn split_text(split: &SplitReport) -> String {
    let mut text =
        format!("split: train {}, validation {}, test {}", split.train, split.validation, split.test);
    if split.none > 0 {
        write!(text, ", none {}", split.none).expect("writing to a string cannot fail");
    }
    text
}

fn times(times: &TimesReport) -> String {
    let sharing = if times.shared { "shared by all trajectories" } else { "different for each trajectory" };
    let spacing = if times.uniform { "uniform" } else { "irregular" };
    let (least, most) = (times.smallest_interval, times.largest_interval);
    // Equal up to rounding: one number is enough.
    let interval = if most <= least * 1.001 {
        format!("interval {most:.6}")
    } else {
        format!("intervals {least:.6} to {most:.6}")
    };
    format!("times: {} to {}, {spacing}, {sharing}; {interval}", times.first, times.last)
}

fn finite(report: &Report) -> String {
    let read = if report.scanned.complete {
        "all trajectories read".to_owned()
    } else {
        format!("{} trajectories read; `--full` reads all", report.scanned.trajectories)
    };
    match &report.non_finite {
        None => format!("values: finite ({read})"),
        Some(non_finite) => format!("values: {} are not finite ({read})", non_finite.count),
    }
}

fn values(report: &Report) -> String {
    let mut table = TextTable::new([
        ("channel", Left),
        ("min", Right),
        ("max", Right),
        ("mean", Right),
        ("deviation", Right),
    ]);
    for channel in &report.values {
        let name = match &channel.unit {
            Some(unit) => format!("{} [{unit}]", channel.name),
            None => channel.name.clone(),
        };
        let numbers = [channel.min, channel.max, channel.mean, channel.deviation];
        table.push([name].into_iter().chain(numbers.map(|number| format!("{number:.4}"))));
    }
    table.text()
}

fn noise(report: &Report) -> String {
    let describe = |noise: &super::NoiseReport| match (noise.resolved, noise.relative) {
        _ if noise.stepwise => {
            format!("  {}: none; it is piecewise constant, as an input is", noise.name)
        }
        (true, 0.0) => format!("  {}: none found", noise.name),
        (true, relative) => format!(
            "  {}: standard deviation {}, {} % of the channel's",
            noise.name,
            scientific(noise.deviation),
            percent(relative)
        ),
        (false, 0.0) => format!("  {}: too few snapshots to tell", noise.name),
        (false, relative) => format!(
            "  {}: at most {} % of the channel's standard deviation; the times are too sparse to tell noise from signal",
            noise.name,
            percent(relative)
        ),
    };
    let channels: Vec<String> = report.noise.iter().map(describe).collect();
    let verdict = match report.noise.iter().any(|noise| noise.matters) {
        true => "the values are noisy: set `path.smoothing = \"auto\"` to train on smoothed snapshots",
        false if report.noise.iter().all(|noise| noise.resolved) => "no significant noise",
        false => "no significant noise found with certainty",
    };
    format!("noise: {verdict}\n{}", channels.join("\n"))
}

/// Two significant digits.
fn percent(share: f64) -> String {
    let percent = 100.0 * share;
    match percent {
        percent if percent >= 10.0 => format!("{percent:.0}"),
        percent if percent >= 1.0 => format!("{percent:.1}"),
        percent if percent >= 0.1 => format!("{percent:.2}"),
        _ => scientific(percent),
    }
}

fn sampling(report: &Report) -> String {
    let Some(sampling) = &report.sampling else {
        return "sampling: not checked; the check needs at least 3 frames of finite values at increasing times"
            .to_owned();
    };
    let noisy = sampling.recommended_smoothing != "none";
    let heads = [("spline", Left), ("stencil", Right), ("error", Right), ("relative L2", Right)];
    let mut table = TextTable::new(heads.into_iter().chain(noisy.then_some(("without noise", Right))));
    let points = |stencil: Option<usize>| stencil.map_or_else(|| "-".to_owned(), |points| points.to_string());
    for rebuilt in &sampling.splines {
        let row = [
            rebuilt.spline.clone(),
            points(rebuilt.stencil),
            scientific(rebuilt.error),
            scientific(rebuilt.relative_l2),
        ];
        table.push(row.into_iter().chain(noisy.then(|| scientific(rebuilt.curve_error))));
    }
    let stencil = sampling
        .recommended_stencil
        .map_or_else(String::new, |points| format!(", `path.stencil = {points}`"));
    let smoothing = match sampling.recommended_smoothing {
        "none" => String::new(),
        kind => format!(", `path.smoothing = \"{kind}\"`"),
    };
    let clock = match sampling.recommended_clock {
        None => String::new(),
        Some(half) => format!(
            "\nthe field changes fast at first and slowly later: with `path.clock = {half}` left-out snapshots are interpolated with at most half \
             the error (this needs `operator.time = true`)"
        ),
    };
    format!(
        "sampling: {} snapshots of {} trajectories left out in turn and interpolated from their neighbours\n{}\
         recommended: `path.spline = \"{}\"`{stencil}{smoothing}; {}{clock}",
        sampling.knots,
        sampling.trajectories,
        table.text(),
        sampling.recommended,
        sampling.verdict.text()
    )
}
