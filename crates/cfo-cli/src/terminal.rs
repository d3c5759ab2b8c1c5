//! Small pictures in a terminal: two pixels in each character, the upper half block over its background.
//!
//! They are printed only on a terminal that supports colours.

use std::io::{self, IsTerminal};

use cfo::data::{Description, FieldShape};

use crate::report;
use cfo_view::plot::ColorScale;

const WIDEST: usize = 100;
const LINES: usize = 14;
/// Pixels between two pictures.
const GAP: usize = 2;
/// Colours of curves; the first is that of the truth.
const CURVES: [[u8; 3]; 6] =
    [[31, 119, 180], [214, 97, 18], [44, 140, 90], [140, 86, 190], [190, 150, 20], [120, 120, 120]];

type Color = [u8; 3];

/// The colours that a terminal supports: all, or a palette of 256.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Depth {
    True,
    Indexed,
}

/// Pixels, `None` where the background shows.
struct Picture {
    width: usize,
    height: usize,
    pixels: Vec<Option<Color>>,
}

impl Picture {
    fn new(width: usize, height: usize) -> Self {
        Self { width, height, pixels: vec![None; width * height] }
    }

    fn set(&mut self, x: usize, y: usize, color: Color) {
        if x < self.width && y < self.height {
            self.pixels[y * self.width + x] = Some(color);
        }
    }

    /// Paints a field of `rows` x `columns` numbers into a part, its row 0 at the bottom.
    fn paint(
        &mut self,
        [left, width]: [usize; 2],
        [rows, columns]: [usize; 2],
        scale: ColorScale,
        at: impl Fn(usize, usize) -> f32,
    ) {
        for y in 0..self.height {
            let row = (self.height - 1 - y) * rows / self.height;
            for x in 0..width {
                self.set(left + x, y, scale.color(f64::from(at(row, x * columns / width))));
            }
        }
    }

    fn curves(&mut self, curves: &[(Vec<f32>, Color)]) {
        let all = curves.iter().flat_map(|(values, _)| values).filter(|value| value.is_finite());
        let (low, high) = all.fold((f32::MAX, f32::MIN), |(a, b), &x| (a.min(x), b.max(x)));
        let span = if high > low { high - low } else { 1.0 };
        for (values, color) in curves {
            let place = |x: usize| {
                let value = values[x * (values.len() - 1) / (self.width - 1).max(1)];
                let share = ((value - low) / span).clamp(0.0, 1.0);
                ((1.0 - share) * (self.height - 1) as f32).round() as usize
            };
            let places: Vec<usize> = (0..self.width).map(place).collect();
            for (x, pair) in places.windows(2).enumerate() {
                // Steep parts of a curve have no gaps.
                for y in pair[0].min(pair[1])..=pair[0].max(pair[1]) {
                    self.set(x + 1, y, *color);
                }
            }
        }
    }

    fn text(&self, depth: Depth) -> String {
        let mut text = String::new();
        for y in (0..self.height).step_by(2) {
            for x in 0..self.width {
                let upper = self.pixels[y * self.width + x];
                let lower = self.pixels.get((y + 1) * self.width + x).copied().flatten();
                text.push_str("\x1b[0m");
                match (upper, lower) {
                    (None, None) => text.push(' '),
                    (Some(upper), None) => text.push_str(&format!("{}▀", code(depth, 38, upper))),
                    (None, Some(lower)) => text.push_str(&format!("{}▄", code(depth, 38, lower))),
                    (Some(upper), Some(lower)) => {
                        text.push_str(&format!("{}{}▀", code(depth, 38, upper), code(depth, 48, lower)));
                    }
                }
            }
            text.push_str("\x1b[0m\n");
        }
        text
    }
}

/// The escape code that sets a colour: 38 for the characters, 48 for their background.
fn code(depth: Depth, which: u8, [red, green, blue]: Color) -> String {
    let level = |part: u8| (u16::from(part) * 5 + 127) / 255;
    match depth {
        Depth::True => format!("\x1b[{which};2;{red};{green};{blue}m"),
        Depth::Indexed => {
            let index = 16 + 36 * level(red) + 6 * level(green) + level(blue);
            format!("\x1b[{which};5;{index}m")
        }
    }
}

/// Colours and columns of the terminal; `None` without a terminal or without colours.
fn terminal() -> Option<(Depth, usize)> {
    let variable = |name: &str| std::env::var(name).unwrap_or_default();
    if !io::stdout().is_terminal() || !variable("NO_COLOR").is_empty() {
        return None;
    }
    let depth = match (variable("COLORTERM").as_str(), variable("TERM").as_str()) {
        (_, "" | "dumb") => return None,
        ("truecolor" | "24bit", _) => Depth::True,
        (_, term) if term.contains("256color") => Depth::Indexed,
        _ => return None,
    };
    let (_, columns) = console::Term::stdout().size_checked()?;
    let columns = usize::from(columns);
    (columns >= 20).then_some((depth, columns))
}

/// Prints a trajectory and its prediction if the terminal can show pictures; each is a sequence of flattened snapshots.
pub fn show(description: &Description, truth: &[f32], predicted: Option<&[f32]>) -> io::Result<()> {
    let Some((depth, columns)) = terminal() else { return Ok(()) };
    let (picture, caption) = draw(description.shape, truth, predicted, columns.min(WIDEST));
    report::print_picture(&format!("\n{}{caption}\n", picture.text(depth)))
}

fn draw(shape: FieldShape, truth: &[f32], predicted: Option<&[f32]>, columns: usize) -> (Picture, String) {
    match shape.axes() {
        0 => system(shape, truth, predicted, columns),
        1 => line(shape, truth, predicted, columns),
        2 => plane(shape, truth, predicted, columns),
        _ => {
            let (middle, truth) = shape.middle_plane(truth);
            let predicted = predicted.map(|values| shape.middle_plane(values).1);
            let (picture, caption) = plane(middle, &truth, predicted.as_deref(), columns);
            (picture, format!("{caption}, middle plane"))
        }
    }
}

/// Draws components over time; with a prediction the first component of both.
fn system(shape: FieldShape, truth: &[f32], predicted: Option<&[f32]>, columns: usize) -> (Picture, String) {
    let mut picture = Picture::new(columns, 2 * LINES);
    let component = |values: &[f32], channel: usize| -> Vec<f32> {
        values.iter().skip(channel).step_by(shape.channels).copied().collect()
    };
    let caption = match predicted {
        None => {
            let shown = shape.channels.min(CURVES.len());
            let curves: Vec<_> = (0..shown).map(|c| (component(truth, c), CURVES[c])).collect();
            picture.curves(&curves);
            format!("components of trajectory 0 over time, {shown} of {}", shape.channels)
        }
        Some(predicted) => {
            picture.curves(&[(component(truth, 0), CURVES[0]), (component(predicted, 0), CURVES[1])]);
            "the worst trajectory's first component over time: true (blue), predicted (orange)".to_string()
        }
    };
    (picture, caption)
}

/// Draws a field over space and time; time runs to the right.
fn line(shape: FieldShape, truth: &[f32], predicted: Option<&[f32]>, columns: usize) -> (Picture, String) {
    let mut picture = Picture::new(columns, 2 * LINES);
    let fields: Vec<&[f32]> = std::iter::once(truth).chain(predicted).collect();
    let scale = ColorScale::covering(truth.iter().step_by(shape.channels));
    let width = (columns + GAP) / fields.len() - GAP;
    for (number, values) in fields.iter().enumerate() {
        let frames = values.len() / shape.len();
        let at = |row: usize, frame: usize| values[(frame * shape.grid.width() + row) * shape.channels];
        picture.paint([number * (width + GAP), width], [shape.grid.width(), frames], scale, at);
    }
    let caption = match predicted {
        None => "trajectory 0 over time (to the right) and space",
        Some(_) => "the worst trajectory over time (to the right) and space: true, predicted",
    };
    (picture, caption.to_string())
}

/// Draws some snapshots; with a prediction the last snapshot: true, predicted and error.
fn plane(shape: FieldShape, truth: &[f32], predicted: Option<&[f32]>, columns: usize) -> (Picture, String) {
    let mut picture = Picture::new(columns, 2 * LINES);
    let (size, [_, height, across, _]) = (shape.len(), shape.tensor(1));
    let width = ((columns + GAP) / 3 - GAP).min(2 * LINES * across.div_ceil(height).clamp(1, 3));
    let frames = truth.len() / size;
    let value = |values: &[f32], frame: usize, row: usize, column: usize| {
        values[frame * size + (row * across + column) * shape.channels]
    };
    let scale = ColorScale::covering(truth.iter().step_by(shape.channels));
    let place = |number: usize| [number * (width + GAP), width];
    let extent = [height, across];
    let Some(predicted) = predicted else {
        for (number, frame) in [0, frames / 2, frames - 1].into_iter().enumerate() {
            picture.paint(place(number), extent, scale, |row, column| value(truth, frame, row, column));
        }
        return (picture, "trajectory 0 at its first, middle and last time".to_string());
    };
    let frame = (frames.min(predicted.len() / size)).saturating_sub(1);
    let error =
        |row: usize, column: usize| value(predicted, frame, row, column) - value(truth, frame, row, column);
    let errors: Vec<f32> = (0..height * across).map(|point| error(point / across, point % across)).collect();
    picture.paint(place(0), extent, scale, |row, column| value(truth, frame, row, column));
    picture.paint(place(1), extent, scale, |row, column| value(predicted, frame, row, column));
    let around = ColorScale::around_zero(errors.iter());
    picture.paint(place(2), extent, around, error);
    (picture, "the worst trajectory at its last time: true, predicted, error".to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every line is as wide as asked for, whatever the kind.
    #[test]
    fn pictures_fit_their_width() {
        let volume = FieldShape::from_dimensions(&[3, 8, 20, 1]).unwrap();
        for shape in [FieldShape::system(4), FieldShape::line(30, 2), FieldShape::plane(8, 20, 1), volume] {
            let truth: Vec<f32> = (0..12 * shape.len()).map(|index| (index as f32).sin()).collect();
            for predicted in [None, Some(&truth[..7 * shape.len()])] {
                for columns in [20, 80, 100] {
                    let (picture, _) = draw(shape, &truth, predicted, columns);
                    let text = picture.text(Depth::True);
                    assert_eq!(text.lines().count(), LINES);
                    for line in text.lines() {
                        let shown =
                            line.split('\x1b').map(|part| part.split_once('m').map_or("", |(_, rest)| rest));
                        assert_eq!(shown.map(|part| part.chars().count()).sum::<usize>(), columns);
                    }
                }
            }
        }
    }

    #[test]
    fn colours_are_told_in_two_ways() {
        assert_eq!(code(Depth::True, 38, [1, 2, 3]), "\x1b[38;2;1;2;3m");
        assert_eq!(code(Depth::Indexed, 48, [255, 0, 128]), "\x1b[48;5;199m");
    }
}
