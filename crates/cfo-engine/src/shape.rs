//! Shapes and types of values.

use std::fmt;

/// The lengths of a value's axes, outermost first; a scalar has none.
#[derive(Clone, PartialEq, Eq, Hash, Default)]
pub struct Shape(Vec<usize>);

impl Shape {
    /// The shape of a single number.
    pub fn scalar() -> Self {
        Self::default()
    }

    /// Axis lengths, outermost first.
    pub fn axes(&self) -> &[usize] {
        &self.0
    }

    /// Number of axes.
    pub fn rank(&self) -> usize {
        self.0.len()
    }

    /// Number of elements.
    pub fn len(&self) -> usize {
        self.0.iter().product()
    }

    /// Whether there are no elements.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Length of the last axis; 1 for a scalar.
    pub fn last(&self) -> usize {
        self.0.last().copied().unwrap_or(1)
    }

    /// Distances between neighbouring elements along each axis in dense storage.
    pub fn strides(&self) -> Vec<usize> {
        let mut strides = vec![1; self.rank()];
        for axis in (1..self.rank()).rev() {
            strides[axis - 1] = strides[axis] * self.0[axis];
        }
        strides
    }

    /// The shape to which both shapes broadcast, aligned at the last axis; `None` if lengths differ and neither is 1.
    pub fn broadcast(&self, other: &Self) -> Option<Self> {
        let rank = self.rank().max(other.rank());
        let axis = |shape: &Self, i: usize| (i + shape.rank()).checked_sub(rank).map_or(1, |j| shape.0[j]);
        (0..rank)
            .map(|i| match (axis(self, i), axis(other, i)) {
                (a, b) if a == b => Some(a),
                (1, b) => Some(b),
                (a, 1) => Some(a),
                _ => None,
            })
            .collect::<Option<Vec<_>>>()
            .map(Self)
    }
}

impl<const N: usize> From<[usize; N]> for Shape {
    fn from(axes: [usize; N]) -> Self {
        Self(axes.to_vec())
    }
}

impl From<&[usize]> for Shape {
    fn from(axes: &[usize]) -> Self {
        Self(axes.to_vec())
    }
}

impl From<Vec<usize>> for Shape {
    fn from(axes: Vec<usize>) -> Self {
        Self(axes)
    }
}

impl fmt::Display for Shape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("[")?;
        for (i, axis) in self.0.iter().enumerate() {
            write!(f, "{}{axis}", if i == 0 { "" } else { ", " })?;
        }
        f.write_str("]")
    }
}

impl fmt::Debug for Shape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Type of a value's elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Element {
    /// A real number in the precision of the program.
    Real,
    /// A real number in double precision in any program: times and interpolation weights.
    Double,
    /// A 32-bit unsigned integer: indices and counters.
    Index,
}

impl Element {
    /// Name of the type in messages.
    pub fn name(self) -> &'static str {
        match self {
            Self::Real => "real",
            Self::Double => "double",
            Self::Index => "index",
        }
    }
}

/// Shape and element type of a value.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Type {
    /// Axis lengths.
    pub shape: Shape,
    /// Element type.
    pub element: Element,
}

impl Type {
    /// Real numbers of the given shape.
    pub fn real(shape: impl Into<Shape>) -> Self {
        Self { shape: shape.into(), element: Element::Real }
    }
}

impl fmt::Display for Type {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.element.name(), self.shape)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn broadcasting_aligns_at_the_last_axis() {
        let wide = Shape::from([4, 1, 3]);
        assert_eq!(wide.broadcast(&Shape::from([5, 1])), Some(Shape::from([4, 5, 3])));
        assert_eq!(wide.broadcast(&Shape::scalar()), Some(wide.clone()));
        assert_eq!(wide.broadcast(&Shape::from([2])), None);
    }
}
