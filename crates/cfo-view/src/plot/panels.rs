//! Images of numbers in rows and columns, with axes outside and colour bars beside them.

use anyhow::{Result, anyhow};
use plotters::coord::Shift;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

use super::chart::{INK, TEXT_SIZE, TITLE_SIZE, attempt};
use super::color::ColorScale;
use super::ticks::Ticks;
use super::{Drawing, FONT, Placed};

/// Lengths in points.
const MARGIN: u32 = 10;
const TITLE_HEIGHT: u32 = 28;
const HEADING_HEIGHT: u32 = 20;
const GAP: u32 = 10;
/// Gap with an axis below, whose labels reach past its ends.
const AXIS_GAP: u32 = 18;
const BAR_GAP: u32 = 6;
const BAR_WIDTH: u32 = 9;
const BAR_LABELS: u32 = 58;
const ROW_LABEL: u32 = 22;
const X_AXIS: u32 = 40;
const Y_AXIS: u32 = 52;
const TICK: i32 = 4;

/// Images side by side and below each other.
#[derive(Clone, Debug)]
pub struct Panels {
    /// Printed above all.
    pub title: String,
    /// Printed above each column.
    pub columns: Vec<String>,
    /// Rows from top to bottom.
    pub rows: Vec<PanelRow>,
    /// Width and height of an image in points.
    pub panel: (u32, u32),
    /// The horizontal axis of each image; without it the images have no axes.
    pub x: Option<AxisSpan>,
    /// The vertical axis of each image.
    pub y: Option<AxisSpan>,
}

/// One row of images.
#[derive(Clone, Debug)]
pub struct PanelRow {
    /// Printed beside the row, upright.
    pub label: String,
    /// Images from left to right.
    pub images: Vec<Image>,
}

/// Numbers on a grid, shown as colours.
#[derive(Clone, Debug)]
pub struct Image {
    /// Row after row, from the bottom to the top.
    pub values: Vec<f32>,
    /// Numbers in a row.
    pub width: usize,
    /// The colours of the numbers.
    pub scale: ColorScale,
    /// Whether a colour bar stands to the right.
    pub bar: bool,
}

/// Quantity and range of an axis of an image.
#[derive(Clone, Debug)]
pub struct AxisSpan {
    /// Quantity and unit.
    pub label: String,
    /// Value at the left or lower edge.
    pub low: f64,
    /// Value at the right or upper edge.
    pub high: f64,
}

impl Panels {
    fn left(&self, column: usize) -> u32 {
        let labelled = self.rows.iter().any(|row| !row.label.is_empty());
        let start = MARGIN + if labelled { ROW_LABEL } else { 0 } + if self.y.is_some() { Y_AXIS } else { 0 };
        start + (0..column).map(|before| self.panel.0 + self.gap() + self.bar_space(before)).sum::<u32>()
    }

    fn gap(&self) -> u32 {
        if self.x.is_some() { AXIS_GAP } else { GAP }
    }

    fn bar_space(&self, column: usize) -> u32 {
        let bar = self.rows.iter().any(|row| row.images.get(column).is_some_and(|image| image.bar));
        if bar { BAR_GAP + BAR_WIDTH + BAR_LABELS } else { 0 }
    }

    fn top(&self, row: usize) -> u32 {
        let headed = self.columns.iter().any(|heading| !heading.is_empty());
        let start = MARGIN + TITLE_HEIGHT + if headed { HEADING_HEIGHT } else { 0 };
        start + row as u32 * (self.panel.1 + GAP)
    }

    fn column_count(&self) -> usize {
        self.rows.iter().map(|row| row.images.len()).max().unwrap_or(0)
    }
}

/// The largest size up to `size` at which a text is no wider than `width`, in points.
fn fitting(text: &str, size: u32, width: u32) -> Result<u32> {
    let (wide, _) = (FONT, size).into_font().box_size(text).map_err(|error| anyhow!("{error}"))?;
    Ok(if wide > width { (size * width / wide).max(1) } else { size })
}

impl Drawing for Panels {
    fn size(&self) -> (u32, u32) {
        let below = if self.x.is_some() { X_AXIS } else { 0 };
        (
            self.left(self.column_count()) + MARGIN - self.gap(),
            self.top(self.rows.len()) - GAP + below + MARGIN,
        )
    }

    fn draw<B: DrawingBackend>(&self, area: &DrawingArea<B, Shift>, unit: u32) -> Result<()> {
        attempt(area.fill(&WHITE))?;
        let canvas = Canvas { area, unit };
        let (width, _) = self.size();
        let middle = (width / 2) as i32;
        let size = fitting(&self.title, TITLE_SIZE, width - 2 * MARGIN)?;
        canvas.text(&self.title, size, (middle, (MARGIN + 8) as i32), (HPos::Center, VPos::Center))?;
        let (panel_width, panel_height) = (self.panel.0 as i32, self.panel.1 as i32);
        for (column, heading) in self.columns.iter().enumerate() {
            let at = (self.left(column) as i32 + panel_width / 2, self.top(0) as i32 - 10);
            canvas.text(heading, TEXT_SIZE, at, (HPos::Center, VPos::Center))?;
        }
        for (row, PanelRow { label, images }) in self.rows.iter().enumerate() {
            let top = self.top(row) as i32;
            let at = ((MARGIN + ROW_LABEL / 2) as i32, top + panel_height / 2);
            canvas.upright(label, at)?;
            for (column, image) in images.iter().enumerate() {
                let left = self.left(column) as i32;
                canvas.frame((left, top), self.panel)?;
                if let (Some(span), true) = (&self.y, column == 0) {
                    canvas.vertical_ticks([span.low, span.high], (left, top), panel_height, -1)?;
                    canvas.upright(&span.label, (left - Y_AXIS as i32 + 8, top + panel_height / 2))?;
                }
                if let (Some(span), true) = (&self.x, row + 1 == self.rows.len()) {
                    canvas.x_axis(span, (left, top + panel_height), panel_width)?;
                }
                if image.bar {
                    let left = left + panel_width + BAR_GAP as i32;
                    canvas.frame((left, top), (BAR_WIDTH, self.panel.1))?;
                    let ColorScale { low, high, .. } = image.scale;
                    canvas.vertical_ticks([low, high], (left + BAR_WIDTH as i32, top), panel_height, 1)?;
                }
            }
        }
        Ok(())
    }

    fn images(&self) -> Vec<Placed> {
        let mut placed = Vec::new();
        for (row, PanelRow { images, .. }) in self.rows.iter().enumerate() {
            for (column, image) in images.iter().enumerate() {
                let corner = (self.left(column), self.top(row));
                let lines = image.values.chunks(image.width.max(1)).rev();
                let pixels = lines.flatten().map(|&value| image.scale.color(f64::from(value))).collect();
                placed.push(Placed { corner, size: self.panel, width: image.width, pixels });
                if image.bar {
                    let ColorScale { low, high, .. } = image.scale;
                    let height = self.panel.1;
                    let share = |y: u32| (f64::from(height - y) - 0.5) / f64::from(height);
                    let pixels =
                        (0..height).map(|y| image.scale.color(low + (high - low) * share(y))).collect();
                    let corner = (corner.0 + self.panel.0 + BAR_GAP, corner.1);
                    placed.push(Placed { corner, size: (BAR_WIDTH, height), width: 1, pixels });
                }
            }
        }
        placed
    }
}

/// An area on which lengths are points.
pub(super) struct Canvas<'a, B: DrawingBackend> {
    pub(super) area: &'a DrawingArea<B, Shift>,
    pub(super) unit: u32,
}

impl<B: DrawingBackend> Canvas<'_, B> {
    fn pixels(&self, (x, y): (i32, i32)) -> (i32, i32) {
        (x * self.unit as i32, y * self.unit as i32)
    }

    pub(super) fn text(&self, text: &str, size: u32, at: (i32, i32), (h, v): (HPos, VPos)) -> Result<()> {
        let style = (FONT, size * self.unit).into_font().color(&INK).pos(Pos::new(h, v));
        attempt(self.area.draw(&Text::new(text.to_owned(), self.pixels(at), style)))
    }

    /// Text from bottom to top, centred at a point.
    fn upright(&self, text: &str, at: (i32, i32)) -> Result<()> {
        if text.is_empty() {
            return Ok(());
        }
        let font = (FONT, TEXT_SIZE * self.unit).into_font().transform(FontTransform::Rotate270);
        let style = font.color(&INK).pos(Pos::new(HPos::Center, VPos::Center));
        attempt(self.area.draw(&Text::new(text.to_owned(), self.pixels(at), style)))
    }

    pub(super) fn line(&self, from: (i32, i32), to: (i32, i32), color: RGBColor) -> Result<()> {
        let points = vec![self.pixels(from), self.pixels(to)];
        attempt(self.area.draw(&PathElement::new(points, color.stroke_width(self.unit))))
    }

    /// A line around an image, just outside of it.
    fn frame(&self, (left, top): (i32, i32), (width, height): (u32, u32)) -> Result<()> {
        let (right, bottom) = (left + width as i32, top + height as i32);
        let half = (self.unit / 2) as i32;
        let (low, high) = (self.pixels((left, top)), self.pixels((right, bottom)));
        let corners = [(low.0 - half - 1, low.1 - half - 1), (high.0 + half, high.1 + half)];
        attempt(self.area.draw(&Rectangle::new(corners, INK.stroke_width(self.unit))))
    }

    fn x_axis(&self, span: &AxisSpan, (left, bottom): (i32, i32), width: i32) -> Result<()> {
        for (share, label) in ticks(span.low, span.high) {
            let x = left + (share * f64::from(width)).round() as i32;
            self.line((x, bottom), (x, bottom + TICK), INK)?;
            self.text(&label, TEXT_SIZE, (x, bottom + TICK + 3), (HPos::Center, VPos::Top))?;
        }
        let at = (left + width / 2, bottom + X_AXIS as i32 - 2);
        self.text(&span.label, TEXT_SIZE, at, (HPos::Center, VPos::Bottom))
    }

    /// Ticks along a vertical edge from its upper end `at`; `side` is -1 for labels on the left and 1 on the right.
    fn vertical_ticks(&self, [low, high]: [f64; 2], at: (i32, i32), height: i32, side: i32) -> Result<()> {
        let align = if side < 0 { HPos::Right } else { HPos::Left };
        for (share, label) in ticks(low, high) {
            let y = at.1 + ((1.0 - share) * f64::from(height)).round() as i32;
            self.line((at.0, y), (at.0 + side * TICK, y), INK)?;
            self.text(&label, TEXT_SIZE, (at.0 + side * (TICK + 3), y), (align, VPos::Center))?;
        }
        Ok(())
    }
}

/// The labels of an axis, with their positions as shares of its length.
pub(super) fn ticks(low: f64, high: f64) -> Vec<(f64, String)> {
    let candidates = [3.0, 4.0, 5.0, 6.0].map(|intervals| Ticks::linear(low, high, intervals));
    let enough = candidates.iter().find(|ticks| ticks.major.len() > 2);
    let ticks = enough.unwrap_or(&candidates[3]);
    let share = |at: f64| (at - ticks.low) / (ticks.high - ticks.low);
    ticks.major.iter().map(|&at| (share(at), ticks.label(at))).collect()
}
