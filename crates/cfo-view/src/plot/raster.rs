//! A figure as PNG: drawn larger and averaged down, so that lines and text have smooth edges.

use anyhow::{Result, anyhow};
use plotters::prelude::{BitMapBackend, IntoDrawingArea};

use super::{Drawing, Placed, register_font};

/// Pixels of the image per point of the figure: sharp on dense screens and in print.
const DENSITY: u32 = 2;

/// Drawn pixels per pixel of the image, along each axis.
const OVERSAMPLING: u32 = 2;

pub(super) fn png(drawing: &impl Drawing) -> Result<Vec<u8>> {
    let (width, height, image) = pixels(drawing, DENSITY)?;
    encode(width, height, &image)
}

/// Width, height and RGB bytes of the drawing with `density` pixels per point.
pub(super) fn pixels(drawing: &impl Drawing, density: u32) -> Result<(u32, u32, Vec<u8>)> {
    register_font()?;
    let (width, height) = (drawing.size().0 * density, drawing.size().1 * density);
    let unit = density * OVERSAMPLING;
    let drawn = (width * OVERSAMPLING, height * OVERSAMPLING);
    let mut pixels = vec![255; drawn.0 as usize * drawn.1 as usize * 3];
    {
        let area = BitMapBackend::with_buffer(&mut pixels, drawn).into_drawing_area();
        drawing.draw(&area, unit)?;
        area.present().map_err(|error| anyhow!("{error}"))?;
    }
    for image in drawing.images() {
        paint(&image, &mut pixels, drawn.0 as usize, unit as usize);
    }
    Ok((width, height, average(&pixels, width, height)))
}

/// Draws an image on top; each pixel has the colour of the cell under its centre.
fn paint(image: &Placed, pixels: &mut [u8], row_length: usize, unit: usize) {
    let scaled = |(x, y): (u32, u32)| (x as usize * unit, y as usize * unit);
    let ((left, top), (width, height)) = (scaled(image.corner), scaled(image.size));
    let columns = image.width.max(1);
    let rows = image.pixels.len() / columns;
    for y in 0..height {
        for x in 0..width {
            let cell = (2 * y + 1) * rows / (2 * height) * columns + (2 * x + 1) * columns / (2 * width);
            let at = ((top + y) * row_length + left + x) * 3;
            if let (Some(color), Some(pixel)) = (image.pixels.get(cell), pixels.get_mut(at..at + 3)) {
                pixel.copy_from_slice(color);
            }
        }
    }
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

/// RGB bytes as a PNG file.
pub(super) fn encode(width: u32, height: u32, image: &[u8]) -> Result<Vec<u8>> {
    let mut bytes = Vec::new();
    let mut encoder = png::Encoder::new(&mut bytes, width, height);
    encoder.set_color(png::ColorType::Rgb);
    encoder.set_compression(png::Compression::Balanced);
    // Flat areas repeat themselves: unfiltered rows compress best.
    encoder.set_filter(png::Filter::NoFilter);
    let mut writer = encoder.write_header()?;
    writer.write_image_data(image)?;
    writer.finish()?;
    Ok(bytes)
}
