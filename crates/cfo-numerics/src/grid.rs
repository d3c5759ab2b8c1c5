//! Regular grids with up to three axes.

use std::fmt;

use serde::{Deserialize, Serialize};

/// The points of a regular grid in row-major order: none of the axes for an ODE system, or one to three.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(into = "Vec<usize>", try_from = "Vec<usize>")]
pub struct Grid {
    axes: usize,
    /// Points along each axis, after an entry of 1 for each axis that is missing.
    sides: [usize; Self::MOST_AXES],
}

impl Grid {
    /// Largest number of axes.
    pub const MOST_AXES: usize = 3;

    /// A state without space.
    pub const fn system() -> Self {
        Self { axes: 0, sides: [1; Self::MOST_AXES] }
    }

    /// A line of points.
    pub const fn line(points: usize) -> Self {
        Self { axes: 1, sides: [1, 1, points] }
    }

    /// A plane.
    pub const fn plane(height: usize, width: usize) -> Self {
        Self { axes: 2, sides: [1, height, width] }
    }

    /// A grid with these numbers of points along its axes; `None` for more than three axes.
    pub fn new(sides: &[usize]) -> Option<Self> {
        let mut grid = Self { axes: sides.len(), ..Self::system() };
        grid.sides[Self::MOST_AXES.checked_sub(sides.len())?..].copy_from_slice(sides);
        Some(grid)
    }

    /// Number of axes.
    pub const fn axes(&self) -> usize {
        self.axes
    }

    /// Points along each axis.
    pub fn sides(&self) -> &[usize] {
        &self.sides[Self::MOST_AXES - self.axes..]
    }

    /// Points along three axes: depth, height and width. An axis that is missing has one point.
    pub const fn padded(&self) -> [usize; Self::MOST_AXES] {
        self.sides
    }

    /// Number of points.
    pub const fn points(&self) -> usize {
        self.rows() * self.width()
    }

    /// Number of lines of points along the last axis.
    pub const fn rows(&self) -> usize {
        self.sides[0] * self.sides[1]
    }

    /// Points along the last axis; 1 without axes.
    pub const fn width(&self) -> usize {
        self.sides[2]
    }

    /// Number of axes from the first that has more than one point.
    pub fn extended(&self) -> usize {
        Self::MOST_AXES - self.sides.iter().position(|&side| side != 1).unwrap_or(Self::MOST_AXES)
    }

    /// Points along the shortest axis of those that [`Grid::extended`] counts; 1 if there is none.
    pub fn shortest(&self) -> usize {
        self.sides[Self::MOST_AXES - self.extended()..].iter().copied().min().unwrap_or(1)
    }

    /// The index along each axis of a point.
    pub fn place(&self, point: usize) -> Vec<usize> {
        let mut rest = point;
        let mut place: Vec<usize> = (self.sides().iter().rev())
            .map(|&side| {
                let index = rest % side.max(1);
                rest /= side.max(1);
                index
            })
            .collect();
        place.reverse();
        place
    }

    /// The point at an index along each axis: the inverse of [`Grid::place`].
    pub fn point(&self, place: &[usize]) -> usize {
        self.sides().iter().zip(place).fold(0, |point, (side, index)| point * side + index)
    }
}

impl fmt::Display for Grid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let sides: Vec<String> = self.sides().iter().map(ToString::to_string).collect();
        f.write_str(&sides.join(" x "))
    }
}

impl From<Grid> for Vec<usize> {
    fn from(grid: Grid) -> Self {
        grid.sides().to_vec()
    }
}

impl TryFrom<Vec<usize>> for Grid {
    type Error = String;

    fn try_from(sides: Vec<usize>) -> Result<Self, String> {
        Self::new(&sides).ok_or_else(|| format!("a grid with {} axes", sides.len()))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn points_have_places(sides in prop::collection::vec(1..5_usize, 0..4)) {
            let grid = Grid::new(&sides).unwrap();
            prop_assert_eq!((grid.axes(), grid.sides()), (sides.len(), sides.as_slice()));
            prop_assert_eq!(grid.points(), sides.iter().product::<usize>());
            prop_assert_eq!(grid.points(), grid.rows() * grid.width());
            for point in 0..grid.points() {
                let place = grid.place(point);
                prop_assert!(place.iter().zip(&sides).all(|(index, side)| index < side));
                prop_assert_eq!(grid.point(&place), point);
            }
            let leading = sides.iter().take_while(|&&side| side == 1).count();
            prop_assert_eq!(grid.extended(), sides.len() - leading);
            prop_assert_eq!(grid.shortest(), sides[leading..].iter().copied().min().unwrap_or(1));
        }
    }

    #[test]
    fn four_axes_are_too_many() {
        assert_eq!(Grid::new(&[2; 4]), None);
    }
}
