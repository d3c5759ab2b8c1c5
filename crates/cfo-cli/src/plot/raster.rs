//! A figure as PNG: drawn larger and averaged down, so that lines and text have smooth edges.

use anyhow::{Result, anyhow};
use plotters::prelude::{BitMapBackend, IntoDrawingArea};

use super::{Figure, chart, register_font};

/// Pixels of the image per point of the figure: sharp on dense screens and in print.
const DENSITY: u32 = 2;

/// Drawn pixels per pixel of the image, along each axis.
const OVERSAMPLING: u32 = 2;

/// The figure as a PNG file.
pub(super) fn png(figure: &Figure) -> Result<Vec<u8>> {
    register_font()?;
    let (width, height) = (figure.size.0 * DENSITY, figure.size.1 * DENSITY);
    let drawn = (width * OVERSAMPLING, height * OVERSAMPLING);
    let mut pixels = vec![255; drawn.0 as usize * drawn.1 as usize * 3];
    {
        let area = BitMapBackend::with_buffer(&mut pixels, drawn).into_drawing_area();
        chart::draw(figure, &area, DENSITY * OVERSAMPLING)?;
        area.present().map_err(|error| anyhow!("{error}"))?;
    }
    encode(width, height, &average(&pixels, width, height))
}

/// Each pixel of the image is the mean of the drawn pixels under it.
fn average(drawn: &[u8], width: u32, height: u32) -> Vec<u8> {
    let side = OVERSAMPLING as usize;
    let (width, height) = (width as usize, height as usize);
    let mut image = Vec::with_capacity(width * height * 3);
    for y in 0..height {
        for x in 0..width {
            for channel in 0..3 {
                let sum: usize = (0..side * side)
                    .map(|i| {
                        let (row, column) = (y * side + i / side, x * side + i % side);
                        usize::from(drawn[(row * width * side + column) * 3 + channel])
                    })
                    .sum();
                image.push((sum / (side * side)) as u8);
            }
        }
    }
    image
}

fn encode(width: u32, height: u32, image: &[u8]) -> Result<Vec<u8>> {
    let mut bytes = Vec::new();
    let mut encoder = png::Encoder::new(&mut bytes, width, height);
    encoder.set_color(png::ColorType::Rgb);
    encoder.set_compression(png::Compression::High);
    // Flat areas repeat themselves: unfiltered rows compress best.
    encoder.set_filter(png::Filter::NoFilter);
    let mut writer = encoder.write_header()?;
    writer.write_image_data(image)?;
    writer.finish()?;
    Ok(bytes)
}
