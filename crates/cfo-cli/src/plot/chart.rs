//! Draws a figure on any backend: axes, curves, legend.

use anyhow::{Result, anyhow};
use plotters::chart::ChartContext;
use plotters::coord::Shift;
use plotters::element::DashedPathElement;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

use super::ticks::Ticks;
use super::{FONT, Figure, Line, Series};

/// Told apart also by readers who do not see red and green alike (Okabe and Ito's set).
const PALETTE: [RGBColor; 6] = [
    RGBColor(0, 114, 178),
    RGBColor(213, 94, 0),
    RGBColor(0, 158, 115),
    RGBColor(204, 121, 167),
    RGBColor(230, 159, 0),
    RGBColor(86, 180, 233),
];

const INK: RGBColor = RGBColor(40, 40, 40);
const GRID: RGBColor = RGBColor(222, 222, 222);
const FAINT_GRID: RGBColor = RGBColor(242, 242, 242);

/// Lengths in points; `unit` is how many drawn pixels a point has.
const TITLE_SIZE: u32 = 16;
const TEXT_SIZE: u32 = 13;
const LEGEND_STROKE: u32 = 28;
const LEGEND_GAP: u32 = 8;

type Chart<'a, B> = ChartContext<'a, B, Cartesian2d<Ticks, Ticks>>;

/// Draws `figure` on `area`, where a point is `unit` pixels.
pub(super) fn draw<B: DrawingBackend>(
    figure: &Figure,
    area: &DrawingArea<B, Shift>,
    unit: u32,
) -> Result<()> {
    attempt(area.fill(&WHITE))?;
    let all = || figure.series.iter().flat_map(|series| &series.points);
    let x = Ticks::covering(all().map(|point| point.0), figure.x.scale);
    let y = Ticks::covering(all().map(|point| point.1), figure.y.scale);

    let legend_width = legend_width(figure, unit)?;
    let (plot, legend) = area.split_horizontally(area.dim_in_pixel().0.saturating_sub(legend_width));
    let mut chart = attempt(
        ChartBuilder::on(&plot)
            .caption(&figure.title, (FONT, TITLE_SIZE * unit).into_font().color(&INK))
            .margin(10 * unit)
            .x_label_area_size(42 * unit)
            .y_label_area_size(62 * unit)
            .build_cartesian_2d(x.clone(), y.clone()),
    )?;
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
    draw_legend(figure, &legend, unit)
}

/// One curve; a point that an axis cannot show ends a stretch and the next one begins another.
fn curve<B: DrawingBackend>(
    chart: &mut Chart<'_, B>,
    series: &Series,
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
    Ok(())
}

fn stroke(series: &Series, unit: u32) -> ShapeStyle {
    PALETTE[series.color % PALETTE.len()].stroke_width(2 * unit)
}

/// Lengths of a dash and of the gap after it.
fn pattern(line: Line, unit: u32) -> Option<(u32, u32)> {
    match line {
        Line::Solid => None,
        Line::Dashed => Some((8 * unit, 4 * unit)),
        Line::Dotted => Some((2 * unit, 3 * unit)),
    }
}

/// Pixels that the legend needs: nothing for a single curve.
fn legend_width(figure: &Figure, unit: u32) -> Result<u32> {
    if figure.series.len() < 2 {
        return Ok(0);
    }
    let font = (FONT, TEXT_SIZE * unit).into_font();
    let mut widest = 0;
    for series in &figure.series {
        widest = widest.max(font.box_size(&series.label).map_err(|error| anyhow!("{error}"))?.0);
    }
    Ok(widest + (LEGEND_STROKE + LEGEND_GAP + 16) * unit)
}

/// The legend beside the axes, where it covers no curve.
fn draw_legend<B: DrawingBackend>(figure: &Figure, area: &DrawingArea<B, Shift>, unit: u32) -> Result<()> {
    if figure.series.len() < 2 {
        return Ok(());
    }
    let text = (FONT, TEXT_SIZE * unit).into_font().color(&INK).pos(Pos::new(HPos::Left, VPos::Center));
    for (row, series) in figure.series.iter().enumerate() {
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

/// The drawing library's errors are not all `Send`: keep their words.
fn attempt<T, E: std::error::Error + Send + Sync>(
    result: std::result::Result<T, DrawingAreaErrorKind<E>>,
) -> Result<T> {
    result.map_err(|error| anyhow!("{error}"))
}
