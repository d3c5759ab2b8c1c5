//! Grids and channel datasets in the layouts of other projects.

use std::collections::HashSet;

use crate::{Description, FieldShape};

/// Cell centres of an axis.
pub(super) fn centres([low, high]: [f64; 2], points: usize) -> Vec<f64> {
    let step = (high - low) / points as f64;
    (0..points).map(|index| low + (index as f64 + 0.5) * step).collect()
}

/// First point and spacing along x, y and z, for images that have three axes; x is the last axis of our arrays.
pub(super) fn origin_and_spacing(description: &Description) -> ([f64; 3], [f64; 3]) {
    let sides = description.shape.grid.sides();
    let (mut origin, mut spacing) = ([0.0; 3], [1.0; 3]);
    for (axis, (&points, [low, high])) in sides.iter().zip(&description.domain).rev().enumerate() {
        spacing[axis] = (high - low) / points as f64;
        origin[axis] = low + spacing[axis] / 2.0;
    }
    (origin, spacing)
}

/// Names of the space axes, in the order of our arrays.
pub(super) fn axis_names(shape: &FieldShape) -> &'static [&'static str] {
    &["z", "y", "x"][3 - shape.axes()..]
}

/// Names of the channels: those of the description, or numbers.
pub(super) fn channel_names(description: &Description) -> Vec<String> {
    match description.channel_names.is_empty() {
        true => (0..description.shape.channels).map(|channel| format!("u{channel}")).collect(),
        false => description.channel_names.clone(),
    }
}

/// Valid and unique names for datasets in one group: not empty, without path separators, and different from `taken`.
pub(super) fn dataset_names(names: &[String], taken: &[&str]) -> Vec<String> {
    let mut used: HashSet<String> = taken.iter().map(ToString::to_string).collect();
    let allowed = |c: char| if c == '/' || c == '.' || c.is_control() { '_' } else { c };
    let unique = |name: &String| {
        let plain: String = name.trim().chars().map(allowed).collect();
        let plain = if plain.is_empty() { "unnamed".to_string() } else { plain };
        let numbered = (1..).map(|number| format!("{plain}_{number}"));
        let free = std::iter::once(plain.clone()).chain(numbered).find(|name| !used.contains(name));
        let free = free.expect("there are more numbers than names");
        used.insert(free.clone());
        free
    };
    names.iter().map(unique).collect()
}

/// One channel of `[frames, points, channels]` numbers.
pub(super) fn channel(values: &[f32], channels: usize, channel: usize) -> Vec<f32> {
    values[channel..].iter().step_by(channels).copied().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_become_those_of_datasets() {
        let names = ["a/b", "a_b", "", "time", " u ", "u"].map(str::to_string);
        assert_eq!(dataset_names(&names, &["time"]), ["a_b", "a_b_1", "unnamed", "time_1", "u", "u_1"]);
    }

    #[test]
    fn points_are_cell_centres() {
        assert_eq!(centres([-1.0, 1.0], 4), [-0.75, -0.25, 0.25, 0.75]);
        let description = Description {
            system: String::new(),
            shape: FieldShape::plane(4, 2, 1),
            periodic: vec![false; 2],
            domain: vec![[-1.0, 1.0], [0.0, 4.0]],
            channel_names: vec![],
            channel_units: vec![],
            inputs: crate::InputNames::default(),
        };
        assert_eq!(origin_and_spacing(&description), ([1.0, -0.75, 0.0], [2.0, 0.5, 1.0]));
    }
}
