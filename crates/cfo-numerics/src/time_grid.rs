//! The times of a trajectory's snapshots, checked once.

use thiserror::Error;

/// The knots `t_0 < t_1 < ... < t_N` of one trajectory: at least two, finite, strictly increasing, spaced as they please.
///
/// The invariant is checked by [`TimeGrid::new`] alone; whoever holds a grid may rely on it.
#[derive(Clone, Debug, PartialEq)]
pub struct TimeGrid {
    times: Vec<f64>,
}

/// Why a list of times is no grid.
#[derive(Clone, Debug, PartialEq, Error)]
pub enum TimeGridError {
    /// Fewer than two times.
    #[error("found {found} snapshot times; a trajectory needs at least 2")]
    TooShort {
        /// Times given.
        found: usize,
    },
    /// A time that is NaN or infinite.
    #[error("time {index} is `{value}`; times must be finite")]
    NotFinite {
        /// Its place.
        index: usize,
        /// What stands there.
        value: f64,
    },
    /// A time that does not exceed the one before it.
    #[error("time {index} is `{value}`, not after time {} which is `{previous}`; times must increase", index - 1)]
    NotIncreasing {
        /// Place of the offending time.
        index: usize,
        /// The offending time.
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
    /// What to do about it, in one line.
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::TooShort { .. } => Some("keep at least two snapshots of every trajectory".into()),
            Self::NotFinite { .. } => None,
            Self::NotIncreasing { value, previous, .. } if value == previous => {
                Some("drop one of the two snapshots that share a time".into())
            }
            Self::NotIncreasing { .. } => Some("sort the snapshots by time".into()),
            Self::TooWide { .. } => Some("measure time in larger units".into()),
        }
    }
}

/// Where a time lies: in segment `[t_index, t_(index+1)]`, at the local coordinate `tau = (t - t_index) / length`.
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

    /// Segment of `t` among increasing `times` (two or more). A knot belongs to the segment at its right, the last
    /// one to the last segment; times outside belong to the nearer end segment.
    pub(crate) fn locate(times: &[f64], t: f64) -> Self {
        let after = times[1..times.len() - 1].partition_point(|&knot| knot <= t);
        Self::new(times, after, t)
    }
}

impl TimeGrid {
    /// Takes the times if they are at least two, finite and strictly increasing.
    pub fn new(times: Vec<f64>) -> Result<Self, TimeGridError> {
        if let Some((index, &value)) = times.iter().enumerate().find(|(_, t)| !t.is_finite()) {
            return Err(TimeGridError::NotFinite { index, value });
        }
        let [first, .., last] = times[..] else {
            return Err(TimeGridError::TooShort { found: times.len() });
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

    /// The times.
    pub fn times(&self) -> &[f64] {
        &self.times
    }

    /// Number of knots, at least 2.
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

    /// Shortest and longest segment.
    pub fn lengths(&self) -> (f64, f64) {
        self.times
            .windows(2)
            .map(|pair| pair[1] - pair[0])
            .fold((f64::INFINITY, 0.0), |(low, high), h| (f64::min(low, h), f64::max(high, h)))
    }

    /// Whether all segments have the same length, up to `tolerance` relative to the mean length.
    pub fn is_uniform(&self, tolerance: f64) -> bool {
        let mean = self.span() / self.segments() as f64;
        let (low, high) = self.lengths();
        high - mean <= tolerance * mean && mean - low <= tolerance * mean
    }

    /// The segment of a time, in O(log n). A knot belongs to the segment at its right, the last knot to the last
    /// segment; a time outside the grid gets the nearer end segment and a `tau` outside `[0, 1]`.
    pub fn locate(&self, t: f64) -> Segment {
        Segment::locate(&self.times, t)
    }

    /// As [`locate`](Self::locate), trying first the segment `hint` and its two neighbours: O(1) for a walk along the
    /// grid that passes on the last index it got, O(log n) otherwise.
    pub fn locate_near(&self, t: f64, hint: usize) -> Segment {
        let last = self.segments() - 1;
        let holds = |i: usize| (i == 0 || self.times[i] <= t) && (i == last || t < self.times[i + 1]);
        let middle = hint.min(last);
        let near = [middle, (middle + 1).min(last), middle.saturating_sub(1)];
        match near.into_iter().find(|&i| holds(i)) {
            Some(index) => Segment::new(&self.times, index, t),
            None => self.locate(t),
        }
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
        assert_eq!(TimeGrid::new(vec![]), Err(TimeGridError::TooShort { found: 0 }));
        assert_eq!(TimeGrid::new(vec![1.0]), Err(TimeGridError::TooShort { found: 1 }));
        let infinite = TimeGrid::new(vec![0.0, f64::INFINITY]);
        assert_eq!(infinite, Err(TimeGridError::NotFinite { index: 1, value: f64::INFINITY }));
        assert!(matches!(
            TimeGrid::new(vec![f64::NAN]),
            Err(TimeGridError::NotFinite { index: 0, value }) if value.is_nan()
        ));
        let repeated = TimeGrid::new(vec![0.0, 1.0, 1.0]).unwrap_err();
        assert_eq!(repeated.to_string(), "time 2 is `1`, not after time 1 which is `1`; times must increase");
        assert!(repeated.hint().unwrap().contains("share a time"));
        assert!(TimeGrid::new(vec![0.0, 1.0, 0.5]).unwrap_err().hint().unwrap().contains("sort"));
        assert!(matches!(TimeGrid::new(vec![-f64::MAX, f64::MAX]), Err(TimeGridError::TooWide { .. })));
    }

    #[test]
    fn knots_belong_to_the_right_and_the_last_to_the_left() {
        let grid = TimeGrid::new(vec![-1.0, 0.0, 0.5, 4.0]).unwrap();
        assert_eq!(grid.locate(-1.0), Segment { index: 0, tau: 0.0, length: 1.0 });
        assert_eq!(grid.locate(0.0), Segment { index: 1, tau: 0.0, length: 0.5 });
        assert_eq!(grid.locate(4.0), Segment { index: 2, tau: 1.0, length: 3.5 });
        assert_eq!(grid.locate(-3.0), Segment { index: 0, tau: -2.0, length: 1.0 });
        assert_eq!(grid.locate(7.5), Segment { index: 2, tau: 2.0, length: 3.5 });
        assert!(grid.locate(f64::NAN).tau.is_nan());
        assert_eq!((grid.lengths(), grid.span()), ((0.5, 3.5), 5.0));
        assert!(!grid.is_uniform(0.1));
        assert!(TimeGrid::new((0..101).map(|i| i as f64 * 0.05).collect()).unwrap().is_uniform(1e-12));
    }

    proptest! {
        #[test]
        fn locating_agrees_with_a_linear_search(
            steps in prop::collection::vec(1e-9..1e3_f64, 1..40),
            start in -1e3..1e3_f64,
            at in -0.2..1.2_f64,
            hint in 0..60_usize,
        ) {
            let mut times = vec![start];
            for step in &steps {
                times.push(times[times.len() - 1] + step);
            }
            prop_assume!(times.windows(2).all(|pair| pair[0] < pair[1]));
            let grid = TimeGrid::new(times.clone()).unwrap();
            for t in times.iter().copied().chain([start + at * grid.span()]) {
                let slow = (0..grid.segments()).rev().find(|&i| times[i] <= t).unwrap_or(0);
                let segment = grid.locate(t);
                prop_assert_eq!(segment.index, slow);
                prop_assert_eq!(segment, grid.locate_near(t, hint));
                prop_assert_eq!(segment, grid.locate_near(t, slow));
                let back = times[slow] + segment.tau * segment.length;
                prop_assert!((back - t).abs() <= 4.0 * f64::EPSILON * (t.abs() + grid.span() + start.abs()));
            }
        }
    }
}
