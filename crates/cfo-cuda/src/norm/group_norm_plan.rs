//! Group normalisation that reads its fields from memory once and keeps them in shared memory. Clusters of blocks
//! process small samples. A persistent kernel processes large ones: teams of blocks take one sample after another.

use crate::program::{KernelFile, Scalar};
use cfo_engine::Shape;
use cfo_engine::ops::GroupNorm;

pub(crate) const THREADS: usize = 256;
/// Shared memory that a block must be able to use; devices with this amount support clusters too.
const SHARED: usize = 227 << 10;

const ROWS: usize = 256;
/// Bytes of a row that a cluster processes at once.
const SLICE: usize = 128;
const CLUSTER: usize = 16;
/// Maximum number of blocks of a cluster in single precision, where a team is faster than a large cluster.
const CLUSTER_SINGLE: usize = 8;

/// Number of the persistent kernel's blocks per multiprocessor.
const RESIDENT: usize = 2;
/// Maximum shared memory of a team's block besides its rows: buffers for sums, and the device's own use.
const ASIDE: usize = 16 << 10;
/// Bytes that a block could transfer while its team synchronises.
const MEETING: usize = 32 << 10;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum GroupNormPlan {
    /// A cluster has all rows of `channels` channels of a sample.
    Cluster { channels: usize, cluster: usize, shared: usize },
    /// A team has a sample.
    Persistent { members: usize, teams: usize, shared: usize },
}

impl GroupNormPlan {
    /// Chooses a plan that keeps the first `fields` fields. `None` if others are faster or they do not fit.
    pub(crate) fn of(
        op: &GroupNorm,
        x: &Shape,
        (scalars, fields): ([Scalar; 2], usize),
        (multiprocessors, shared): (u32, u32),
    ) -> Option<Self> {
        let (batch, channels) = (x.axes()[0], x.last());
        let positions = x.len() / (batch * channels).max(1);
        let half = scalars.contains(&Scalar::Bf16);
        let (vector, width) = (if half { 8 } else { 4 }, channels / op.groups);
        let whole = width * op.groups == channels && width.is_multiple_of(vector);
        if (shared as usize) < SHARED || !whole || positions < ROWS {
            return None;
        }
        let bytes: usize = scalars[..fields].iter().map(|scalar| scalar.bytes()).sum();
        let largest = if fields == 1 && !half { CLUSTER_SINGLE } else { CLUSTER };
        let cluster = positions.div_ceil(ROWS);
        if cluster <= largest {
            let slice = SLICE / 16 * vector;
            let fits = channels.is_multiple_of(slice) && slice.is_multiple_of(width);
            let steps = positions.div_ceil(cluster).div_ceil(THREADS * vector / slice);
            let shared = steps * THREADS * vector * bytes;
            return fits.then_some(Self::Cluster { channels: slice, cluster, shared });
        }
        // In single precision the gradient's sample needs too many blocks: synchronising them costs more than it saves.
        if fields > 1 && !half {
            return None;
        }
        let lanes = channels / vector;
        if !lanes.is_power_of_two() || lanes > THREADS || op.groups > THREADS / 2 {
            return None;
        }
        Self::team(batch, positions, channels * bytes, multiprocessors as usize)
    }

    /// The fastest division into teams. No team has more members than there are multiprocessors. One team therefore
    /// always has all its members on the device, and no team waits forever.
    fn team(batch: usize, positions: usize, row: usize, multiprocessors: usize) -> Option<Self> {
        let blocks = RESIDENT * multiprocessors;
        let most = (SHARED / RESIDENT - ASIDE) / row;
        let best = (1..=batch.min(blocks))
            .map(|teams| (teams, positions.div_ceil((blocks / teams).min(multiprocessors))))
            .filter(|&(_, span)| span <= most)
            .min_by_key(|&(teams, span)| batch.div_ceil(teams) * (span * row + MEETING));
        // The gradient combines its sums in the memory of the rows: at most 12 numbers per thread.
        best.map(|(teams, span)| {
            let shared = (span * row).max(4 * 24 * THREADS);
            Self::Persistent { members: positions.div_ceil(span), teams, shared }
        })
    }

    pub(crate) fn file(&self) -> KernelFile {
        match self {
            Self::Cluster { .. } => KernelFile::GroupNormCluster,
            Self::Persistent { .. } => KernelFile::GroupNormPersistent,
        }
    }

    pub(crate) fn numbers(&self, op: &GroupNorm, x: &Shape) -> String {
        let (batch, channels, groups) = (x.axes()[0], x.last(), op.groups);
        let positions = x.len() / (batch * channels).max(1);
        match self {
            Self::Cluster { channels: slice, cluster, .. } => {
                format!("{positions}u, {channels}u, {groups}u, {slice}u, {cluster}u, {THREADS}")
            }
            Self::Persistent { members, teams, .. } => {
                format!("{batch}u, {positions}u, {channels}u, {groups}u, {members}u, {teams}u, {THREADS}")
            }
        }
    }

    pub(crate) fn shape(&self, x: &Shape) -> ([u32; 3], u32, u32) {
        let (batch, channels) = (x.axes()[0], x.last());
        let (grid, shared) = match *self {
            Self::Cluster { channels: slice, cluster, shared } => {
                ([cluster * channels / slice, batch, 1], shared)
            }
            Self::Persistent { members, teams, shared } => ([members * teams, 1, 1], shared),
        };
        (grid.map(|blocks| blocks as u32), THREADS as u32, shared as u32)
    }

    /// Number of blocks per multiprocessor, and number of blocks of a cluster.
    pub(crate) fn residence(&self, backward: bool) -> (u32, u32) {
        match *self {
            Self::Cluster { cluster, .. } => (if backward { 3 } else { 4 }, cluster as u32),
            Self::Persistent { .. } => (RESIDENT as u32, 1),
        }
    }

    pub(crate) fn parts(&self, x: &Shape) -> usize {
        match *self {
            Self::Cluster { .. } => x.axes()[0],
            Self::Persistent { members, teams, .. } => members * teams,
        }
    }
}

/// Maximum numbers of scratch memory for teams: for each block sums of two samples, and a part of the gradients.
pub(crate) fn scratch(op: &GroupNorm, channels: usize, multiprocessors: u32) -> usize {
    RESIDENT * multiprocessors as usize * (2 * (2 * op.groups + channels) + 3 * channels)
}

#[cfg(test)]
mod tests {
    use super::*;
    use cfo_engine::ops::Activation;

    const CHIP: (u32, u32) = (132, SHARED as u32);

    fn norm(groups: usize) -> GroupNorm {
        GroupNorm { groups, epsilon: 1e-5, activation: Activation::Silu, offset: true, shift: true }
    }

    #[test]
    fn blocks_have_all_rows_and_room_for_them() {
        use Scalar::{Bf16, F32};
        let mut ways = [0; 2];
        for scalars in [[Bf16, Bf16], [F32, F32], [Bf16, F32], [F32, Bf16]] {
            for fields in [1, 2] {
                for (batch, side, channels) in
                    [(256, 128, 64), (256, 64, 128), (3, 37, 64), (1, 256, 128), (5, 16, 512)]
                {
                    let x = Shape::from([batch, side, side, channels]);
                    let row = scalars[..fields].iter().map(|scalar| scalar.bytes()).sum::<usize>();
                    match GroupNormPlan::of(&norm(8), &x, (scalars, fields), CHIP) {
                        Some(GroupNormPlan::Cluster { channels: slice, cluster, shared }) => {
                            ways[0] += 1;
                            assert!(cluster <= CLUSTER && cluster * ROWS >= side * side);
                            assert!(shared * cluster >= side * side * slice * row && shared <= 128 << 10);
                        }
                        Some(GroupNormPlan::Persistent { members, teams, shared }) => {
                            ways[1] += 1;
                            assert!(teams <= batch && members <= 132 && members * teams <= RESIDENT * 132);
                            assert!(members * shared >= side * side * channels * row);
                            assert!(RESIDENT * (shared + ASIDE) <= SHARED);
                        }
                        None => {}
                    }
                }
            }
        }
        assert!(ways.iter().all(|&way| way > 5), "{ways:?}");
    }

    #[test]
    fn the_networks_sizes_go_the_ways_that_were_measured() {
        let of = |side: usize, channels: usize, fields: usize| {
            let x = Shape::from([256, side, side, channels]);
            GroupNormPlan::of(&norm(8), &x, ([Scalar::Bf16; 2], fields), CHIP)
        };
        let team = |members: usize, teams: usize| Some((members, teams));
        let found = |kept: Option<GroupNormPlan>| match kept {
            Some(GroupNormPlan::Persistent { members, teams, .. }) => Some((members, teams)),
            Some(GroupNormPlan::Cluster { cluster, .. }) => Some((cluster, 0)),
            None => None,
        };
        assert_eq!(found(of(128, 64, 1)), team(22, 12));
        assert_eq!(found(of(128, 64, 2)), team(44, 6));
        assert_eq!(
            [64, 32, 16].map(|side| found(of(side, 8192 / side, 2))),
            [16, 4, 1].map(|n| Some((n, 0)))
        );
        // Small samples, odd numbers of channels, other devices.
        assert_eq!(of(10, 64, 1), None);
        assert_eq!(of(64, 96, 1), None);
        let x = Shape::from([256, 64, 64, 128]);
        assert_eq!(GroupNormPlan::of(&norm(8), &x, ([Scalar::Bf16; 2], 1), (108, 163 << 10)), None);
    }
}
