//! Figures: described as data, drawn as SVG and as PNG.
//!
//! A figure looks the same on every machine: text is measured and rasterised with a font inside the program, so
//! nothing has to be installed. Commands build a [`Figure`] without calling the drawing library.

mod animation;
mod chart;
mod color;
mod panels;
mod raster;
mod space;
mod ticks;

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, anyhow};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use cfo::checkpoint::write_atomically;
use plotters::coord::Shift;
use plotters::prelude::{DrawingArea, DrawingBackend, IntoDrawingArea, SVGBackend};
use plotters::style::FontStyle;

use chart::ChartLayout;

pub use animation::write_animation;
pub use color::ColorScale;
pub use panels::{AxisSpan, Image, PanelRow, Panels};
pub use space::{SpaceCurve, SpacePlot};

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
    pub series: Vec<Curve>,
    /// Width and height in points.
    pub size: (u32, u32),
}

/// One axis: what it shows and how.
#[derive(Clone, Debug)]
pub struct Axis {
    /// Quantity and unit.
    pub label: String,
    /// Linear or logarithmic.
    pub scale: AxisScale,
}

impl Axis {
    /// A linear axis.
    pub fn linear(label: impl Into<String>) -> Self {
        Self { label: label.into(), scale: AxisScale::Linear }
    }

    /// A logarithmic axis.
    pub fn logarithmic(label: impl Into<String>) -> Self {
        Self { label: label.into(), scale: AxisScale::Logarithmic }
    }
}

/// The mapping of values to positions on an axis.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AxisScale {
    /// Equal differences take equal space.
    Linear,
    /// Equal ratios take equal space; values that are not positive are left out.
    Logarithmic,
}

/// One curve.
#[derive(Clone, Debug)]
pub struct Curve {
    /// Its line in the legend.
    pub label: String,
    /// Points in drawing order; points that are not finite interrupt the curve.
    pub points: Vec<(f64, f64)>,
    /// Position in the palette; curves of one family share it.
    pub color: usize,
    /// Line style.
    pub line: LineStyle,
    /// Words beside the points, one for each, which are then marked. Empty for a line without marks.
    pub marks: Vec<String>,
}

impl Curve {
    /// A curve without marks.
    pub fn new(label: impl Into<String>, points: Vec<(f64, f64)>, color: usize, line: LineStyle) -> Self {
        Self { label: label.into(), points, color, line, marks: Vec::new() }
    }

    /// Marks the points, with words beside each.
    pub fn with_marks(self, marks: Vec<String>) -> Self {
        Self { marks, ..self }
    }
}

/// Line style, which distinguishes curves of one colour.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LineStyle {
    /// A line without gaps.
    Solid,
    /// Long strokes.
    Dashed,
    /// Short strokes.
    Dotted,
}

/// Something that can be drawn on any backend.
pub trait Drawing {
    /// Width and height in points.
    fn size(&self) -> (u32, u32);

    /// Draws all but the images on an area on which a point is `unit` pixels.
    fn draw<B: DrawingBackend>(&self, area: &DrawingArea<B, Shift>, unit: u32) -> Result<()>;

    /// Images on top of the drawing.
    fn images(&self) -> Vec<Placed> {
        Vec::new()
    }
}

/// Coloured cells that fill a rectangle.
#[derive(Clone, Debug)]
pub struct Placed {
    /// Left upper corner, in points.
    pub corner: (u32, u32),
    /// Width and height, in points.
    pub size: (u32, u32),
    /// Cells in a row.
    pub width: usize,
    /// Colours row after row, from the top.
    pub pixels: Vec<[u8; 3]>,
}

impl Drawing for Figure {
    fn size(&self) -> (u32, u32) {
        self.size
    }

    fn draw<B: DrawingBackend>(&self, area: &DrawingArea<B, Shift>, unit: u32) -> Result<()> {
        let room = chart::legend_width(&self.series, unit)?;
        chart::draw(self, ChartLayout { limits: Limits::default(), room, legend: true }, area, unit)
    }
}

/// The least range of the axes, whatever the curves: frames of an animation share them.
#[derive(Clone, Copy, Debug, Default)]
pub struct Limits {
    /// Range of the horizontal axis.
    pub x: Option<[f64; 2]>,
    /// Range of the vertical axis.
    pub y: Option<[f64; 2]>,
}

/// Figures below each other, of one width; a legend that they share is drawn once.
#[derive(Clone, Debug)]
pub struct Stack(pub Vec<(Figure, Limits)>);

impl Drawing for Stack {
    fn size(&self) -> (u32, u32) {
        let sizes = || self.0.iter().map(|(figure, _)| figure.size);
        (sizes().map(|size| size.0).max().unwrap_or(1), sizes().map(|size| size.1).sum())
    }

    fn draw<B: DrawingBackend>(&self, area: &DrawingArea<B, Shift>, unit: u32) -> Result<()> {
        let mut room = 0;
        for (figure, _) in &self.0 {
            room = room.max(chart::legend_width(&figure.series, unit)?);
        }
        let labels = |index: usize| -> Vec<&str> {
            self.0[index].0.series.iter().map(|series| series.label.as_str()).collect()
        };
        let mut rest = area.clone();
        for (index, (figure, limits)) in self.0.iter().enumerate() {
            let (here, below) = rest.split_vertically(figure.size.1 * unit);
            let legend = index == 0 || labels(index) != labels(index - 1);
            chart::draw(figure, ChartLayout { limits: *limits, room, legend }, &here, unit)?;
            rest = below;
        }
        Ok(())
    }
}

/// Writes a drawing as `STEM.svg` and `STEM.png` into `folder` and returns the two paths.
pub fn write(drawing: &impl Drawing, folder: &Path, stem: &str) -> Result<[PathBuf; 2]> {
    let paths = [folder.join(format!("{stem}.svg")), folder.join(format!("{stem}.png"))];
    write_atomically(&paths[0], svg(drawing).context("drawing the figure as SVG")?.as_bytes())?;
    write_atomically(&paths[1], &raster::png(drawing).context("drawing the figure as PNG")?)?;
    Ok(paths)
}

/// The drawing as an SVG document; its images are embedded as PNG.
fn svg(drawing: &impl Drawing) -> Result<String> {
    register_font()?;
    let mut document = String::new();
    {
        let area = SVGBackend::with_string(&mut document, drawing.size()).into_drawing_area();
        drawing.draw(&area, 1)?;
        area.present().map_err(|error| anyhow!("{error}"))?;
    }
    let end = document.rfind("</svg>").unwrap_or(document.len());
    let images = drawing.images().iter().map(image_element).collect::<Result<String>>()?;
    document.insert_str(end, &images);
    Ok(document)
}

fn image_element(image: &Placed) -> Result<String> {
    let Placed { corner: (x, y), size: (width, height), width: cells, pixels } = image;
    let cells = u32::try_from(*cells)?.max(1);
    let rows = u32::try_from(pixels.len())? / cells;
    let bytes = raster::encode(cells, rows, pixels.as_flattened())?;
    Ok(format!(
        "<image x=\"{x}\" y=\"{y}\" width=\"{width}\" height=\"{height}\" preserveAspectRatio=\"none\" \
         style=\"image-rendering:pixelated\" href=\"data:image/png;base64,{}\"/>\n",
        STANDARD.encode(&bytes)
    ))
}

/// Registers the embedded font with the drawing library; repeating it has no effect.
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
            x: Axis { label: "τ".into(), scale: AxisScale::Linear },
            y: Axis { label: "relative error".into(), scale: AxisScale::Logarithmic },
            series: vec![
                Curve::new(
                    "falling",
                    (0..=10).map(|i| (f64::from(i) / 10.0, 10f64.powi(-i))).collect(),
                    0,
                    LineStyle::Solid,
                ),
                Curve::new(
                    "not a number",
                    vec![(0.0, f64::NAN), (0.5, 0.0), (1.0, 1e-3)],
                    1,
                    LineStyle::Dashed,
                ),
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

    /// Words beside points that an axis cannot show are left out with them.
    #[test]
    fn marked_points_have_their_words() {
        let mut marked = figure();
        marked.series[0].points = vec![(0.0, 1.0), (0.5, 0.0), (1.0, 0.1)];
        marked.series[0].marks = ["half", "nothing", "double"].map(str::to_owned).into();
        marked.series.truncate(1);
        let document = svg(&marked).unwrap();
        assert!(document.contains("half") && document.contains("double") && !document.contains("nothing"));
        assert_eq!(document.matches("<circle").count(), 2);
        // A single point is seen too.
        marked.series[0].points.truncate(1);
        assert_eq!(svg(&marked).unwrap().matches("<circle").count(), 1);
    }

    #[test]
    fn a_figure_is_a_png_of_twice_its_size() {
        let bytes = raster::png(&figure()).unwrap();
        let reader = png::Decoder::new(std::io::Cursor::new(bytes)).read_info().unwrap();
        assert_eq!((reader.info().width, reader.info().height), (960, 640));
    }

    /// Every number of an image has its colour where it belongs: the first one in the lower left corner.
    #[test]
    fn panels_show_their_numbers_in_both_formats() {
        let scale = ColorScale::covering([0.0, 3.0].iter());
        let image = Image { values: vec![0.0, 1.0, 2.0, 3.0], width: 2, scale, bar: true };
        let panels = Panels {
            title: "four".into(),
            columns: vec!["true".into()],
            rows: vec![PanelRow { label: "u".into(), images: vec![image] }],
            panel: (40, 40),
            x: Some(AxisSpan { label: "time".into(), low: 0.0, high: 1.0 }),
            y: None,
        };
        let (width, height, pixels) = raster::pixels(&panels, 1).unwrap();
        assert_eq!((width, height), panels.size());
        let (left, top) = panels.images()[0].corner;
        for (x, y, value) in [(10, 30, 0.0), (30, 30, 1.0), (10, 10, 2.0), (30, 10, 3.0)] {
            let at = ((top + y) * width + left + x) as usize * 3;
            assert_eq!(pixels[at..at + 3], scale.color(value), "at {x}, {y}");
        }
        let document = svg(&panels).unwrap();
        assert_eq!(document.matches("<image").count(), 2, "the image and its bar");
        // A title that is too long is drawn smaller, not beyond the edges.
        let size = |title: &str| {
            let document = svg(&Panels { title: title.into(), ..panels.clone() }).unwrap();
            let (before, _) = document.split_once(&format!("\n{title}\n")).unwrap();
            let (_, size) = before.rsplit_once("font-size=\"").unwrap();
            size.split_once('"').unwrap().0.parse::<f64>().unwrap()
        };
        assert!(size("a title that is much longer than the panel below it") < size("four"));
        assert!(document.trim_end().ends_with("</svg>"));
    }

    #[test]
    fn empty_and_flat_figures_are_drawn() {
        let mut empty = figure();
        empty.series.clear();
        svg(&empty).unwrap();
        let mut flat = figure();
        flat.series[0].points = vec![(0.0, 1.0), (1.0, 1.0)];
        svg(&flat).unwrap();
        flat.y.scale = AxisScale::Linear;
        svg(&flat).unwrap();
    }
}
