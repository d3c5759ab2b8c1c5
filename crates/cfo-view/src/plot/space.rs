//! Curves in three dimensions in orthographic projection.

use anyhow::Result;
use plotters::coord::Shift;
use plotters::element::DashedPathElement;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, VPos};

use super::chart::{GRID, INK, TEXT_SIZE, TITLE_SIZE, attempt, draw_legend, legend_width, pattern, stroke};
use super::panels::{Canvas, ticks};
use super::{Curve, Drawing, LineStyle};

/// Direction of view, in degrees: azimuth around the vertical axis, and elevation above the ground.
const AZIMUTH: f64 = 40.0;
const ELEVATION: f64 = 22.0;

/// Lengths in points.
const TITLE_HEIGHT: i32 = 34;
const MARGIN: i32 = 44;

/// Curves in a box.
#[derive(Clone, Debug)]
pub struct SpacePlot {
    /// Printed above.
    pub title: String,
    /// Labels of the three axes.
    pub labels: [String; 3],
    /// Least and greatest value on each axis.
    pub bounds: [[f64; 2]; 3],
    /// Drawn in this order, with a legend.
    pub curves: Vec<SpaceCurve>,
    /// Width and height in points.
    pub size: (u32, u32),
}

/// One curve.
#[derive(Clone, Debug)]
pub struct SpaceCurve {
    /// Its line in the legend.
    pub label: String,
    /// Points in drawing order.
    pub points: Vec<[f64; 3]>,
    /// Position in the palette.
    pub color: usize,
    /// Line style.
    pub line: LineStyle,
}

/// An edge of the box that carries an axis.
struct Edge {
    middle: [f64; 3],
    /// The axis that runs along it.
    axis: usize,
    /// Offset of its labels, in points.
    away: (i32, i32),
    /// Their alignment there.
    anchor: (HPos, VPos),
}

const EDGES: [Edge; 3] = [
    Edge { middle: [0.0, -1.0, -1.0], axis: 0, away: (6, 8), anchor: (HPos::Left, VPos::Top) },
    Edge { middle: [-1.0, 0.0, -1.0], axis: 1, away: (-6, 8), anchor: (HPos::Right, VPos::Top) },
    Edge { middle: [-1.0, 1.0, 0.0], axis: 2, away: (-8, 0), anchor: (HPos::Right, VPos::Center) },
];

/// The corners of the box; bit `n` of a position says at which end of axis `n` it is.
fn corners() -> [[f64; 3]; 8] {
    std::array::from_fn(|i| [i & 1, i >> 1 & 1, i >> 2].map(|bit| 2.0 * bit as f64 - 1.0))
}

/// Projects a point of the box, each coordinate from -1 to 1, to the right and up.
fn project([x, y, z]: [f64; 3]) -> (f64, f64) {
    let ((sine, cosine), (rise, flat)) = (AZIMUTH.to_radians().sin_cos(), ELEVATION.to_radians().sin_cos());
    let depth = x * sine + y * cosine;
    (x * cosine - y * sine, z * flat + depth * rise)
}

struct View {
    center: (f64, f64),
    scale: (f64, f64),
}

impl View {
    /// Creates a view in which the projected box fills the space below the title and inside the padding.
    fn filling(width: i32, height: i32) -> Self {
        let reach = |of: fn((f64, f64)) -> f64| {
            corners().iter().map(|&corner| of(project(corner)).abs()).fold(0.0, f64::max)
        };
        let (width, height) = (f64::from(width), f64::from(height));
        let (title, margin) = (f64::from(TITLE_HEIGHT), f64::from(MARGIN));
        Self {
            center: (width / 2.0, (height + title) / 2.0 - 4.0),
            scale: (
                (width / 2.0 - margin - 8.0) / reach(|at| at.0),
                ((height - title) / 2.0 - margin + 14.0) / reach(|at| at.1),
            ),
        }
    }

    fn place(&self, point: [f64; 3]) -> (f64, f64) {
        let (right, up) = project(point);
        (self.center.0 + self.scale.0 * right, self.center.1 - self.scale.1 * up)
    }

    /// Returns a position in whole points.
    fn point(&self, point: [f64; 3]) -> (i32, i32) {
        let (x, y) = self.place(point);
        (x.round() as i32, y.round() as i32)
    }
}

impl SpacePlot {
    /// The curves without their points, for the legend.
    fn legend(&self) -> Vec<Curve> {
        let line = |curve: &SpaceCurve| Curve::new(curve.label.clone(), Vec::new(), curve.color, curve.line);
        self.curves.iter().map(line).collect()
    }

    fn draw_box<B: DrawingBackend>(&self, canvas: &Canvas<'_, B>, view: &View) -> Result<()> {
        let corners = corners();
        for (i, &from) in corners.iter().enumerate() {
            for bit in [1, 2, 4] {
                // The three edges at the upper corner nearest to the eye would cross the curves.
                if i & bit == 0 && i != 4 && (i, bit) != (0, 4) {
                    canvas.line(view.point(from), view.point(corners[i | bit]), GRID)?;
                }
            }
        }
        for Edge { middle, axis, away, anchor } in EDGES {
            let at = |share: f64| {
                let mut point = middle;
                point[axis] = 2.0 * share - 1.0;
                view.point(point)
            };
            canvas.line(at(0.0), at(1.0), INK)?;
            let [low, high] = self.bounds[axis];
            for (share, label) in ticks(low, high) {
                let (x, y) = at(share);
                canvas.line((x, y), (x + away.0 / 2, y + away.1 / 2), INK)?;
                canvas.text(&label, TEXT_SIZE - 2, (x + away.0, y + away.1), anchor)?;
            }
            let (x, y) = at(0.5);
            canvas.text(&self.labels[axis], TEXT_SIZE, (x + 5 * away.0, y + 3 * away.1), anchor)?;
        }
        Ok(())
    }

    /// Pixels of a curve's points up to the first that is not finite.
    fn pixels(&self, curve: &SpaceCurve, view: &View, unit: u32) -> Vec<(i32, i32)> {
        let finite = |point: &&[f64; 3]| point.iter().all(|x| x.is_finite());
        let pixel = |point: &[f64; 3]| {
            let inside: [f64; 3] = std::array::from_fn(|axis| {
                let [low, high] = self.bounds[axis];
                2.0 * (point[axis] - low) / (high - low).max(f64::MIN_POSITIVE) - 1.0
            });
            let (x, y) = view.place(inside);
            ((x * f64::from(unit)).round() as i32, (y * f64::from(unit)).round() as i32)
        };
        curve.points.iter().take_while(finite).map(pixel).collect()
    }
}

impl Drawing for SpacePlot {
    fn size(&self) -> (u32, u32) {
        self.size
    }

    fn draw<B: DrawingBackend>(&self, area: &DrawingArea<B, Shift>, unit: u32) -> Result<()> {
        attempt(area.fill(&WHITE))?;
        let canvas = Canvas { area, unit };
        let legend = self.legend();
        let width = self.size.0.saturating_sub(legend_width(&legend, unit)? / unit);
        canvas.text(&self.title, TITLE_SIZE, (width as i32 / 2, 18), (HPos::Center, VPos::Center))?;
        let view = View::filling(width as i32, self.size.1 as i32);
        self.draw_box(&canvas, &view)?;
        for (curve, style) in self.curves.iter().zip(&legend) {
            let (points, stroke) = (self.pixels(curve, &view, unit), stroke(style, unit));
            match pattern(curve.line, unit) {
                None => attempt(area.draw(&PathElement::new(points, stroke)))?,
                Some((dash, gap)) => attempt(area.draw(&DashedPathElement::new(points, dash, gap, stroke)))?,
            }
        }
        let (_, beside) = area.split_horizontally(width * unit);
        draw_legend(&legend, &beside, unit)
    }
}
