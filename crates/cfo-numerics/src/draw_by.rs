//! Sampling of the training points of a path.

/// How training points of a trajectory are sampled. With equal intervals the first two are the same.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum DrawBy {
    /// Uniformly in time, as in the paper.
    #[default]
    Time,
    /// Each interval between neighbouring snapshots with the same probability, and uniformly in time within it. Long
    /// intervals, where a path has the largest errors, do not weigh more than short ones.
    Interval,
    /// At snapshots only, with the velocity that the stencil estimates there.
    Snapshot,
}

impl DrawBy {
    /// The fraction of samples in the interval that starts at snapshot `index`. With [`Snapshot`](Self::Snapshot), half
    /// of an inner snapshot's samples count for each of its intervals, and all of an end's samples for its only one.
    pub fn interval_share(self, times: &[f64], index: usize) -> f64 {
        let intervals = times.len() - 1;
        match self {
            Self::Time => (times[index + 1] - times[index]) / (times[intervals] - times[0]),
            Self::Interval => 1.0 / intervals as f64,
            Self::Snapshot => {
                let ends = usize::from(index == 0) + usize::from(index + 1 == intervals);
                (1.0 + 0.5 * ends as f64) / times.len() as f64
            }
        }
    }

    /// The fraction of samples at each snapshot; one in between is divided between its neighbours linearly.
    pub fn snapshot_shares(self, times: &[f64]) -> Vec<f64> {
        if self == Self::Snapshot {
            return vec![1.0 / times.len() as f64; times.len()];
        }
        let mut shares = vec![0.0; times.len()];
        for index in 0..times.len().saturating_sub(1) {
            let half = 0.5 * self.interval_share(times, index);
            shares[index] += half;
            shares[index + 1] += half;
        }
        shares
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// Shares are positive and add up to 1, over intervals and over snapshots. On equal intervals, `Time` and
        /// `Interval` agree.
        #[test]
        fn shares_add_up(gaps in prop::collection::vec(1e-6_f64..1e3, 1..40)) {
            let grid = |gaps: &mut dyn Iterator<Item = f64>| -> Vec<f64> {
                std::iter::once(0.0).chain(gaps.scan(0.0, |time, gap| { *time += gap; Some(*time) })).collect()
            };
            let times = grid(&mut gaps.iter().copied());
            for by in [DrawBy::Time, DrawBy::Interval, DrawBy::Snapshot] {
                let intervals: Vec<f64> = (0..gaps.len()).map(|index| by.interval_share(&times, index)).collect();
                for shares in [intervals, by.snapshot_shares(&times)] {
                    prop_assert!(shares.iter().all(|share| *share > 0.0), "{by:?} {shares:?}");
                    prop_assert!((shares.iter().sum::<f64>() - 1.0).abs() < 1e-12, "{by:?} {shares:?}");
                }
            }
            let even = grid(&mut std::iter::repeat_n(0.25, gaps.len()));
            for index in 0..gaps.len() {
                let [time, interval] = [DrawBy::Time, DrawBy::Interval].map(|by| by.interval_share(&even, index));
                prop_assert!((time - interval).abs() < 1e-12);
            }
        }
    }
}
