//! Animations as animated PNG, which every browser plays; other programs show its first frame.

use std::collections::{BTreeSet, HashMap};
use std::path::Path;

use anyhow::{Context, Result};
use cfo::checkpoint::write_atomically;
use rayon::prelude::*;

use super::Drawing;
use super::raster::pixels;

/// Pixels of the image per point of the figure.
const DENSITY: u32 = 1;

const RATE: u16 = 10;

/// Most colours of an indexed PNG.
const COLORS: usize = 256;

/// Writes drawings of one size, one for each of `frames`, as the frames of an animation that loops.
pub fn write_animation<D: Drawing>(
    frames: &[usize],
    draw: impl Fn(usize) -> D + Sync,
    path: &Path,
) -> Result<()> {
    let drawn = frames
        .par_iter()
        .map(|&frame| {
            let drawing = draw(frame);
            let (width, height, image) = pixels(&drawing, DENSITY)?;
            let colors = drawing.images().into_iter().flat_map(|image| image.pixels);
            Ok(((width, height), image, colors.collect::<BTreeSet<[u8; 3]>>()))
        })
        .collect::<Result<Vec<_>>>()?;
    let size = drawn.first().map_or((0, 0), |(size, _, _)| *size);
    let wanted = drawn.iter().flat_map(|(_, _, colors)| colors.iter().copied()).collect();
    let images: Vec<Vec<u8>> = drawn.into_iter().map(|(_, image, _)| image).collect();
    let palette = Palette::of(&images, &wanted);
    let indexed: Vec<Vec<u8>> = images.par_iter().map(|image| palette.indices(image)).collect();
    // Images have enlarged cells, so rows repeat the row above; curves on a plain background do not.
    let smaller = [png::Filter::Up, png::Filter::NoFilter]
        .into_par_iter()
        .map(|filter| encode(size, &indexed, &palette, filter))
        .collect::<Result<Vec<_>>>()
        .context("encoding the animation")?
        .into_iter()
        .min_by_key(Vec::len);
    Ok(write_atomically(path, &smaller.unwrap_or_default())?)
}

/// An indexed animation in which unchanged pixels are transparent.
fn encode(
    (width, height): (u32, u32),
    images: &[Vec<u8>],
    palette: &Palette,
    filter: png::Filter,
) -> Result<Vec<u8>> {
    let mut bytes = Vec::new();
    let mut encoder = png::Encoder::new(&mut bytes, width, height);
    encoder.set_color(png::ColorType::Indexed);
    encoder.set_depth(png::BitDepth::Eight);
    encoder.set_palette(palette.colors.concat());
    encoder.set_trns(vec![0]);
    encoder.set_compression(png::Compression::Balanced);
    encoder.set_filter(filter);
    encoder.set_animated(u32::try_from(images.len())?, 0)?;
    encoder.set_frame_delay(1, RATE)?;
    encoder.set_blend_op(png::BlendOp::Over)?;
    let mut writer = encoder.write_header()?;
    for (i, here) in images.iter().enumerate() {
        match i.checked_sub(1).map(|before| &images[before]) {
            None => writer.write_image_data(here)?,
            Some(before) => {
                let changed = here.iter().zip(before).map(|(&now, &then)| if now == then { 0 } else { now });
                writer.write_image_data(&changed.collect::<Vec<u8>>())?;
            }
        }
    }
    writer.finish()?;
    Ok(bytes)
}

/// The runs of equal colours of an image: most neighbours are equal.
fn runs(image: &[u8]) -> impl Iterator<Item = ([u8; 3], usize)> {
    image.as_chunks::<3>().0.chunk_by(|a, b| a == b).map(|run| (run[0], run.len()))
}

/// The colours of an animation: a transparent one, those with a meaning, and the most frequent of the others; and for every
/// colour the nearest of them.
struct Palette {
    colors: Vec<[u8; 3]>,
    nearest: HashMap<[u8; 3], u8>,
}

impl Palette {
    fn of(images: &[Vec<u8>], wanted: &BTreeSet<[u8; 3]>) -> Self {
        let mut counts: HashMap<[u8; 3], usize> = HashMap::new();
        for (color, length) in images.iter().flat_map(|image| runs(image)) {
            *counts.entry(color).or_default() += length;
        }
        let mut ranked: Vec<([u8; 3], usize)> = counts.into_iter().collect();
        ranked.sort_by_key(|&(color, count)| (!wanted.contains(&color), std::cmp::Reverse(count), color));
        let shown = ranked.iter().map(|&(color, _)| color).take(COLORS - 1);
        let colors: Vec<[u8; 3]> = std::iter::once([255; 3]).chain(shown).collect();
        let distance = |a: [u8; 3], b: [u8; 3]| -> u32 {
            a.iter().zip(b).map(|(&a, b)| u32::from(a.abs_diff(b)).pow(2)).sum()
        };
        let nearest = ranked.par_iter().map(|&(color, _)| {
            let index = (1..colors.len()).min_by_key(|&i| distance(colors[i], color)).unwrap_or(0);
            (color, index as u8)
        });
        Self { nearest: nearest.collect(), colors }
    }

    fn indices(&self, image: &[u8]) -> Vec<u8> {
        let index = |color| self.nearest.get(&color).copied().unwrap_or(0);
        runs(image).flat_map(|(color, length)| std::iter::repeat_n(index(color), length)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A viewer draws each frame over the previous one.
    #[test]
    fn frames_come_back_from_the_file() {
        let mut images: Vec<Vec<u8>> =
            (0..3_u8).map(|k| (0..2 * 2 * 3).map(|i| i * 10 + k).collect()).collect();
        let kept = images[0][..3].to_vec();
        images[1][..3].copy_from_slice(&kept);
        let palette = Palette::of(&images, &BTreeSet::new());
        let indexed: Vec<Vec<u8>> = images.iter().map(|image| palette.indices(image)).collect();
        let bytes = encode((2, 2), &indexed, &palette, png::Filter::Up).unwrap();
        let mut decoder = png::Decoder::new(std::io::Cursor::new(bytes));
        decoder.set_transformations(png::Transformations::EXPAND | png::Transformations::ALPHA);
        let mut reader = decoder.read_info().unwrap();
        assert_eq!(reader.info().animation_control().unwrap().num_frames, 3);
        let mut shown = vec![0; 12];
        for image in &images {
            let mut found = vec![0; reader.output_buffer_size().unwrap()];
            reader.next_frame(&mut found).unwrap();
            for (pixel, here) in found.as_chunks::<4>().0.iter().zip(shown.as_chunks_mut::<3>().0) {
                if pixel[3] > 0 {
                    here.copy_from_slice(&pixel[..3]);
                }
            }
            assert_eq!(&shown, image);
        }
    }

    #[test]
    fn too_many_colors_are_replaced_by_near_ones_but_for_those_that_mean_something() {
        let image: Vec<u8> = (0..600_u32).flat_map(|i| [(i % 250) as u8, (i / 250 * 100) as u8, 7]).collect();
        let wanted = BTreeSet::from([[99, 200, 7], [3, 100, 7]]);
        let palette = Palette::of(std::slice::from_ref(&image), &wanted);
        assert_eq!(palette.colors.len(), COLORS);
        let colors = image.as_chunks::<3>().0.iter();
        for (color, index) in colors.zip(palette.indices(&image)) {
            let found = palette.colors[usize::from(index)];
            assert!(color.iter().zip(found).all(|(&a, b)| a.abs_diff(b) <= 200), "{color:?} {found:?}");
            assert!(!wanted.contains(color) || found == *color);
        }
    }
}
