//! Validated times of a trajectory's snapshots.

use std::ops::{Deref, Range};

use thiserror::Error;

/// The knots `t_0 < t_1 < ... < t_N` of one trajectory: at least one, finite, strictly increasing, with any distances.
///
/// Only [`TimeGrid::new`] checks these properties. A grid dereferences to a slice of its times.
///
/// ```
/// use cfo_numerics::TimeGrid;
///
/// let grid = TimeGrid::new(vec![0.0, 0.1, 0.4])?;
/// assert_eq!((grid.len(), grid[1], grid.span()), (3, 0.1, 0.4));
/// assert!(TimeGrid::new(vec![0.0, 0.4, 0.1]).is_err());
/// # Ok::<(), cfo_numerics::TimeGridError>(())
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct TimeGrid {
    times: Vec<f64>,
}

/// Reasons why a list of times is not a grid.
#[derive(Clone, Debug, PartialEq, Error)]
pub enum TimeGridError {
    /// There are no times.
    #[error("there are no times; a trajectory needs at least one snapshot")]
    Empty,
    /// A time that is NaN or infinite.
    #[error("frame {index} has time {value}; times must be finite")]
    NotFinite {
        /// Index of the time.
        index: usize,
        /// The time.
        value: f64,
    },
    /// A time that does not exceed the one before it.
    #[error("frame {index} has time {value}, not after {previous} of frame {}; times must increase", index - 1)]
    NotIncreasing {
        /// Index of the time.
        index: usize,
        /// The time.
        value: f64,
        /// The time before it.
        previous: f64,
    },
    /// The last time minus the first exceeds the range of `f64`.
    #[error("times run from `{first}` to `{last}`, a span beyond the range of 64-bit numbers")]
    TooWide {
        /// First time.
        first: f64,
        /// Last time.
        last: f64,
    },
}

impl TimeGridError {
    /// Advice on the error, in one line.
    pub fn hint(&self) -> Option<String> {
        let hint = match self {
            Self::Empty => "remove trajectories without snapshots",
            Self::NotFinite { .. } => "remove the snapshots without a finite time",
            Self::NotIncreasing { value, previous, .. } if value == previous => {
                "remove one of the two snapshots with the same time"
            }
            Self::NotIncreasing { .. } => "sort the snapshots of each trajectory by time",
            Self::TooWide { .. } => "measure time in larger units",
        };
        Some(hint.into())
    }
}

/// Position of a time: the segment `[t_index, t_(index+1)]` and the local coordinate `tau = (t - t_index) / length`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Segment {
    /// Index of the segment's left knot.
    pub index: usize,
    /// Local coordinate: 0 at the left knot, 1 at the right one; outside `[0, 1]` only for times outside the grid.
    pub tau: f64,
    /// `h = t_(index+1) - t_index`.
    pub length: f64,
}

impl Segment {
    fn new(times: &[f64], index: usize, t: f64) -> Self {
        let length = times[index + 1] - times[index];
        Self { index, tau: (t - times[index]) / length, length }
    }

    /// Segment of `t` among at least two increasing `times`. A knot belongs to the segment at its right, the last one
    /// to the last segment. Times outside belong to the nearer end segment.
    pub(crate) fn locate(times: &[f64], t: f64) -> Self {
        let after = times[1..times.len() - 1].partition_point(|&knot| knot <= t);
        Self::new(times, after, t)
    }
}

impl TimeGrid {
    /// Creates a grid of times. There must be at least one, and they must be finite and strictly increasing.
    pub fn new(times: Vec<f64>) -> Result<Self, TimeGridError> {
        if let Some((index, &value)) = times.iter().enumerate().find(|(_, t)| !t.is_finite()) {
            return Err(TimeGridError::NotFinite { index, value });
        }
        let (Some(&first), Some(&last)) = (times.first(), times.last()) else {
            return Err(TimeGridError::Empty);
        };
        if let Some(index) = (1..times.len()).find(|&i| times[i] <= times[i - 1]) {
            return Err(TimeGridError::NotIncreasing {
                index,
                value: times[index],
                previous: times[index - 1],
            });
        }
        if !(last - first).is_finite() {
            return Err(TimeGridError::TooWide { first, last });
        }
        Ok(Self { times })
    }

    /// The grid of a range of neighbouring knots.
    ///
    /// # Errors
    /// If the range is empty.
    ///
    /// # Panics
    /// If the range exceeds the number of knots.
    pub fn part(&self, range: Range<usize>) -> Result<Self, TimeGridError> {
        match self.times[range].to_vec() {
            times if times.is_empty() => Err(TimeGridError::Empty),
            times => Ok(Self { times }),
        }
    }

    /// Number of knots, at least 1.
    #[expect(clippy::len_without_is_empty, reason = "a grid is never empty")]
    pub fn len(&self) -> usize {
        self.times.len()
    }

    /// Number of segments, one less than knots.
    pub fn segments(&self) -> usize {
        self.times.len() - 1
    }

    /// The first time.
    pub fn first(&self) -> f64 {
        self.times[0]
    }

    /// The last time.
    pub fn last(&self) -> f64 {
        self.times[self.times.len() - 1]
    }

    /// Last time minus first time.
    pub fn span(&self) -> f64 {
        self.last() - self.first()
    }

    /// The segment of a time, in O(log n); `None` if there is only one knot. A knot belongs to the segment at its
    /// right, the last knot to the last segment. A time outside the grid gets the nearer end segment and a `tau`
    /// outside `[0, 1]`.
    pub fn locate(&self, t: f64) -> Option<Segment> {
        (self.segments() > 0).then(|| Segment::locate(&self.times, t))
    }
}

impl Deref for TimeGrid {
    type Target = [f64];

    fn deref(&self) -> &[f64] {
        &self.times
    }
}

impl TryFrom<Vec<f64>> for TimeGrid {
    type Error = TimeGridError;

    fn try_from(times: Vec<f64>) -> Result<Self, TimeGridError> {
        Self::new(times)
    }
}

impl AsRef<[f64]> for TimeGrid {
    fn as_ref(&self) -> &[f64] {
        &self.times
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn refuses_what_is_no_grid() {
        assert_eq!(TimeGrid::new(vec![]), Err(TimeGridError::Empty));
        let infinite = TimeGrid::new(vec![0.0, f64::INFINITY]);
        assert_eq!(infinite, Err(TimeGridError::NotFinite { index: 1, value: f64::INFINITY }));
        assert!(matches!(
            TimeGrid::new(vec![f64::NAN]),
            Err(TimeGridError::NotFinite { index: 0, value }) if value.is_nan()
        ));
        let repeated = TimeGrid::new(vec![0.0, 1.0, 1.0]).unwrap_err();
        assert_eq!(repeated.to_string(), "frame 2 has time 1, not after 1 of frame 1; times must increase");
        assert!(repeated.hint().unwrap().contains("the same time"));
        assert!(TimeGrid::new(vec![0.0, 1.0, 0.5]).unwrap_err().hint().unwrap().contains("sort"));
        assert!(matches!(TimeGrid::new(vec![-f64::MAX, f64::MAX]), Err(TimeGridError::TooWide { .. })));
    }

    #[test]
    fn knots_belong_to_the_right_and_the_last_to_the_left() {
        let grid = TimeGrid::new(vec![-1.0, 0.0, 0.5, 4.0]).unwrap();
        assert_eq!(grid.locate(-1.0), Some(Segment { index: 0, tau: 0.0, length: 1.0 }));
        assert_eq!(grid.locate(0.0), Some(Segment { index: 1, tau: 0.0, length: 0.5 }));
        assert_eq!(grid.locate(4.0), Some(Segment { index: 2, tau: 1.0, length: 3.5 }));
        assert_eq!(grid.locate(-3.0), Some(Segment { index: 0, tau: -2.0, length: 1.0 }));
        assert_eq!(grid.locate(7.5), Some(Segment { index: 2, tau: 2.0, length: 3.5 }));
        assert!(grid.locate(f64::NAN).unwrap().tau.is_nan());
        assert_eq!(grid.span(), 5.0);
    }

    #[test]
    fn one_time_is_a_grid_without_segments() {
        let grid = TimeGrid::new(vec![2.5]).unwrap();
        assert_eq!((grid.len(), grid.segments(), grid.span(), grid.locate(2.5)), (1, 0, 0.0, None));
    }

    #[test]
    fn parts_are_grids_or_empty() {
        let grid = TimeGrid::new(vec![0.0, 1.0, 3.0]).unwrap();
        assert_eq!(grid.part(1..3).unwrap()[..], [1.0, 3.0]);
        assert_eq!(grid.part(2..2), Err(TimeGridError::Empty));
    }

    proptest! {
        #[test]
        fn locating_agrees_with_a_linear_search(
            steps in prop::collection::vec(1e-9..1e3_f64, 1..40),
            start in -1e3..1e3_f64,
            at in -0.2..1.2_f64,
        ) {
            let mut times = vec![start];
            for step in &steps {
                times.push(times[times.len() - 1] + step);
            }
            prop_assume!(times.windows(2).all(|pair| pair[0] < pair[1]));
            let grid = TimeGrid::new(times.clone()).unwrap();
            for t in times.iter().copied().chain([start + at * grid.span()]) {
                let slow = (0..grid.segments()).rev().find(|&i| times[i] <= t).unwrap_or(0);
                let segment = grid.locate(t).unwrap();
                prop_assert_eq!(segment.index, slow);
                let back = times[slow] + segment.tau * segment.length;
                prop_assert!((back - t).abs() <= 4.0 * f64::EPSILON * (t.abs() + grid.span() + start.abs()));
            }
        }
    }
}
