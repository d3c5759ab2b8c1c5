//! Draws a figure on any backend: axes, curves, legend.

use anyhow::{Result, anyhow};
use plotters::chart::ChartContext;
use plotters::coord::Shift;
use plotters::element::DashedPathElement;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

use super::ticks::Ticks;
use super::{Curve, FONT, Figure, Limits, LineStyle};

/// Okabe and Ito's colours, which colour-blind readers can tell apart too.
const PALETTE: [RGBColor; 6] = [
    RGBColor(0, 114, 178),
    RGBColor(213, 94, 0),
    RGBColor(0, 158, 115),
    RGBColor(204, 121, 167),
    RGBColor(230, 159, 0),
    RGBColor(86, 180, 233),
];

pub(super) const INK: RGBColor = RGBColor(40, 40, 40);
pub(super) const GRID: RGBColor = RGBColor(222, 222, 222);
const FAINT_GRID: RGBColor = RGBColor(242, 242, 242);

/// Lengths in points; `unit` is how many drawn pixels a point has.
pub(super) const TITLE_SIZE: u32 = 16;
pub(super) const TEXT_SIZE: u32 = 13;
const LEGEND_STROKE: u32 = 28;
const LEGEND_GAP: u32 = 8;

type Chart<'a, B> = ChartContext<'a, B, Cartesian2d<Ticks, Ticks>>;

#[derive(Clone, Copy, Debug)]
pub(super) struct ChartLayout {
    /// The least range of its axes.
    pub limits: Limits,
    /// Pixels to the right of the axes, for a legend.
    pub room: u32,
    /// Whether it has a legend.
    pub legend: bool,
}

/// Draws `figure` on `area`, where a point is `unit` pixels.
pub(super) fn draw<B: DrawingBackend>(
    figure: &Figure,
    layout: ChartLayout,
    area: &DrawingArea<B, Shift>,
    unit: u32,
) -> Result<()> {
    attempt(area.fill(&WHITE))?;
    let all = || figure.series.iter().flat_map(|series| &series.points);
    let x = Ticks::covering(
        all().map(|point| point.0).chain(layout.limits.x.into_iter().flatten()),
        figure.x.scale,
    );
    let mut y = Ticks::covering(
        all().map(|point| point.1).chain(layout.limits.y.into_iter().flatten()),
        figure.y.scale,
    );
    if figure.series.iter().any(|series| !series.marks.is_empty()) {
        // Room for words above the highest point and below the lowest.
        let room = 0.1 * (y.high - y.low);
        (y.low, y.high) = (y.low - room, y.high + room);
    }

    let (plot, legend) = area.split_horizontally(area.dim_in_pixel().0.saturating_sub(layout.room));
    let mut builder = ChartBuilder::on(&plot);
    builder
        .margin(10 * unit)
        // The last label of the horizontal axis reaches past its end.
        .margin_right(if layout.room > 0 { 10 * unit } else { 22 * unit })
        .x_label_area_size(if figure.x.label.is_empty() { 22 * unit } else { 42 * unit })
        .y_label_area_size(62 * unit);
    if !figure.title.is_empty() {
        builder.caption(&figure.title, (FONT, TITLE_SIZE * unit).into_font().color(&INK));
    }
    let mut chart = attempt(builder.build_cartesian_2d(x.clone(), y.clone()))?;
    let text = (FONT, TEXT_SIZE * unit).into_font().color(&INK);
    attempt(
        chart
            .configure_mesh()
            .x_desc(&figure.x.label)
            .y_desc(&figure.y.label)
            .label_style(text.clone())
            .axis_desc_style(text)
            .set_all_tick_mark_size(4 * unit)
            .y_label_offset(2 * unit)
            .axis_style(INK.stroke_width(unit))
            .bold_line_style(GRID.stroke_width(unit))
            .light_line_style(FAINT_GRID.stroke_width(unit))
            .draw(),
    )?;
    for series in &figure.series {
        curve(&mut chart, series, &x, &y, unit)?;
    }
    if layout.legend { draw_legend(&figure.series, &legend, unit) } else { Ok(()) }
}

/// One curve, interrupted at points that an axis cannot show.
fn curve<B: DrawingBackend>(
    chart: &mut Chart<'_, B>,
    series: &Curve,
    x: &Ticks,
    y: &Ticks,
    unit: u32,
) -> Result<()> {
    let points: Vec<Option<(f64, f64)>> =
        series.points.iter().map(|point| x.coordinate(point.0).zip(y.coordinate(point.1))).collect();
    for stretch in points.split(Option::is_none) {
        let stretch: Vec<(f64, f64)> = stretch.iter().flatten().copied().collect();
        match pattern(series.line, unit) {
            None => attempt(chart.draw_series(LineSeries::new(stretch, stroke(series, unit))))?,
            Some((dash, gap)) => {
                attempt(chart.draw_series(DashedLineSeries::new(stretch, dash, gap, stroke(series, unit))))?
            }
        };
    }
    // Words stand above and below by turns, since neighbours may be close.
    for (i, (point, mark)) in points.iter().zip(&series.marks).enumerate() {
        if let Some(at) = point {
            marked_point(chart, *at, (mark, i % 2 == 0), series, unit)?;
        }
    }
    Ok(())
}

/// A point with words above or below it.
fn marked_point<B: DrawingBackend>(
    chart: &mut Chart<'_, B>,
    at: (f64, f64),
    (mark, above): (&str, bool),
    series: &Curve,
    unit: u32,
) -> Result<()> {
    let (distance, side) = if above { (-8, VPos::Bottom) } else { (8, VPos::Top) };
    let text = (FONT, TEXT_SIZE * unit).into_font().color(&INK).pos(Pos::new(HPos::Center, side));
    let element = EmptyElement::at(at)
        + Circle::new((0, 0), 4 * unit, stroke(series, unit).filled())
        + Text::new(mark.to_owned(), (0, distance * unit as i32), text);
    attempt(chart.draw_series([element]))?;
    Ok(())
}

pub(super) fn stroke(series: &Curve, unit: u32) -> ShapeStyle {
    PALETTE[series.color % PALETTE.len()].stroke_width(2 * unit)
}

/// Lengths of a dash and of the gap after it.
pub(super) fn pattern(line: LineStyle, unit: u32) -> Option<(u32, u32)> {
    match line {
        LineStyle::Solid => None,
        LineStyle::Dashed => Some((8 * unit, 4 * unit)),
        LineStyle::Dotted => Some((2 * unit, 3 * unit)),
    }
}

/// Pixels that the legend needs: nothing for a single curve.
pub(super) fn legend_width(series: &[Curve], unit: u32) -> Result<u32> {
    if series.len() < 2 {
        return Ok(0);
    }
    let font = (FONT, TEXT_SIZE * unit).into_font();
    let mut widest = 0;
    for one in series {
        widest = widest.max(font.box_size(&one.label).map_err(|error| anyhow!("{error}"))?.0);
    }
    Ok(widest + (LEGEND_STROKE + LEGEND_GAP + 16) * unit)
}

/// The legend beside the axes, where it covers no curve.
pub(super) fn draw_legend<B: DrawingBackend>(
    all: &[Curve],
    area: &DrawingArea<B, Shift>,
    unit: u32,
) -> Result<()> {
    if all.len() < 2 {
        return Ok(());
    }
    let text = (FONT, TEXT_SIZE * unit).into_font().color(&INK).pos(Pos::new(HPos::Left, VPos::Center));
    for (row, series) in all.iter().enumerate() {
        let y = ((48 + 22 * row as u32) * unit) as i32;
        let end = (LEGEND_STROKE * unit) as i32;
        let line = vec![(0, y), (end, y)];
        match pattern(series.line, unit) {
            None => attempt(area.draw(&PathElement::new(line, stroke(series, unit))))?,
            Some((dash, gap)) => {
                attempt(area.draw(&DashedPathElement::new(line, dash, gap, stroke(series, unit))))?
            }
        }
        let at = (end + (LEGEND_GAP * unit) as i32, y);
        attempt(area.draw(&Text::new(series.label.clone(), at, text.clone())))?;
    }
    Ok(())
}

/// Turns an error of the drawing library into text, since not all of them are `Send`.
pub(super) fn attempt<T, E: std::error::Error + Send + Sync>(
    result: std::result::Result<T, DrawingAreaErrorKind<E>>,
) -> Result<T> {
    result.map_err(|error| anyhow!("{error}"))
}
