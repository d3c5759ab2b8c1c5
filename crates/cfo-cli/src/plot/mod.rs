//! Figures: described as data, drawn as SVG and as PNG.
//!
//! A figure looks the same on every machine: text is measured and rasterised with a font inside the program, so
//! nothing has to be installed. Commands build a [`Figure`] and know nothing of drawing.

mod chart;
mod raster;
mod ticks;

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, anyhow};
use plotters::prelude::{IntoDrawingArea, SVGBackend};
use plotters::style::FontStyle;

/// Family under which the embedded font is registered; also what an SVG viewer is asked for.
const FONT: &str = "sans-serif";

/// Curves over two axes.
#[derive(Clone, Debug)]
pub struct Figure {
    /// Printed above the axes.
    pub title: String,
    /// The horizontal axis.
    pub x: Axis,
    /// The vertical axis.
    pub y: Axis,
    /// Drawn in this order, with a legend.
    pub series: Vec<Series>,
    /// Width and height in points.
    pub size: (u32, u32),
}

/// One axis: what it shows and how.
#[derive(Clone, Debug)]
pub struct Axis {
    /// Quantity and unit.
    pub label: String,
    /// Linear or logarithmic.
    pub scale: Scale,
}

/// How values are spread along an axis.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scale {
    /// Equal differences take equal space.
    Linear,
    /// Equal ratios take equal space; values that are not positive are left out.
    Logarithmic,
}

/// One curve.
#[derive(Clone, Debug)]
pub struct Series {
    /// Its line in the legend.
    pub label: String,
    /// Points in drawing order; points that are not finite interrupt the curve.
    pub points: Vec<(f64, f64)>,
    /// Position in the palette; curves of one family share it.
    pub color: usize,
    /// How the line is drawn.
    pub line: Line,
}

/// How a curve's line is drawn: curves of one colour are told apart by it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Line {
    /// Without gaps.
    Solid,
    /// Long strokes.
    Dashed,
    /// Short strokes.
    Dotted,
}

/// Writes `figure` as `STEM.svg` and `STEM.png` into `folder` and returns the two paths.
pub fn write(figure: &Figure, folder: &Path, stem: &str) -> Result<[PathBuf; 2]> {
    let paths = [folder.join(format!("{stem}.svg")), folder.join(format!("{stem}.png"))];
    fs_err::write(&paths[0], svg(figure).context("drawing the figure as SVG")?)?;
    fs_err::write(&paths[1], raster::png(figure).context("drawing the figure as PNG")?)?;
    Ok(paths)
}

/// The figure as an SVG document.
fn svg(figure: &Figure) -> Result<String> {
    register_font()?;
    let mut document = String::new();
    {
        let area = SVGBackend::with_string(&mut document, figure.size).into_drawing_area();
        chart::draw(figure, &area, 1)?;
        area.present().map_err(|error| anyhow!("{error}"))?;
    }
    Ok(document)
}

/// Makes the embedded font known to the drawing library; doing it again changes nothing.
fn register_font() -> Result<()> {
    for (style, bytes) in
        [(FontStyle::Normal, dejavu::sans::regular()), (FontStyle::Bold, dejavu::sans::bold())]
    {
        plotters::style::register_font(FONT, style, bytes)
            .map_err(|_| anyhow!("the embedded font cannot be read"))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn figure() -> Figure {
        Figure {
            title: "Error over a segment".into(),
            x: Axis { label: "τ".into(), scale: Scale::Linear },
            y: Axis { label: "relative error".into(), scale: Scale::Logarithmic },
            series: vec![
                Series {
                    label: "falling".into(),
                    points: (0..=10).map(|i| (f64::from(i) / 10.0, 10f64.powi(-i))).collect(),
                    color: 0,
                    line: Line::Solid,
                },
                Series {
                    label: "not a number".into(),
                    points: vec![(0.0, f64::NAN), (0.5, 0.0), (1.0, 1e-3)],
                    color: 1,
                    line: Line::Dashed,
                },
            ],
            size: (480, 320),
        }
    }

    #[test]
    fn a_figure_is_an_svg_document_with_its_labels() {
        let document = svg(&figure()).unwrap();
        for text in ["<svg", "Error over a segment", "relative error", "falling", "10⁻⁵"] {
            assert!(document.contains(text), "`{text}` is missing");
        }
    }

    #[test]
    fn a_figure_is_a_png_of_twice_its_size() {
        let bytes = raster::png(&figure()).unwrap();
        let reader = png::Decoder::new(std::io::Cursor::new(bytes)).read_info().unwrap();
        assert_eq!((reader.info().width, reader.info().height), (960, 640));
    }

    #[test]
    fn empty_and_flat_figures_are_drawn() {
        let mut empty = figure();
        empty.series.clear();
        svg(&empty).unwrap();
        let mut flat = figure();
        flat.series[0].points = vec![(0.0, 1.0), (1.0, 1.0)];
        svg(&flat).unwrap();
        flat.y.scale = Scale::Linear;
        svg(&flat).unwrap();
    }
}
