//! A sum whose order is fixed by the data and not by who adds: a binary tree over numbered shards.
//!
//! Node `j` of a level is the sum of nodes `2 j` and `2 j + 1` of the level below; a last node without a neighbour moves up as
//! it is. Whoever holds which shards, the same pairs are added, so that the bits are the same for any number of ranks.

/// The shards that one rank holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shards {
    /// The number of the first.
    pub first: usize,
    /// How many.
    pub count: usize,
    /// How many all ranks hold together.
    pub total: usize,
}

impl Shards {
    /// The shards of a rank, divided as evenly as can be; rank 0 has the first one, and further ranks may have none.
    pub fn of(total: usize, rank: usize, size: usize) -> Self {
        let start = |rank: usize| (rank * total).div_ceil(size);
        Self { first: start(rank), count: start(rank + 1) - start(rank), total }
    }
}

/// One sum of the tree: node `right` is added to node `left`, both named by their first shard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Pair {
    pub(crate) left: usize,
    pub(crate) right: usize,
}

/// The sums of a tree over so many shards, each after those that it needs.
pub(crate) fn pairs(total: usize) -> impl Iterator<Item = Pair> {
    let widths =
        std::iter::successors(Some(1), |width| Some(2 * width)).take_while(move |&width| width < total);
    widths.flat_map(move |width| {
        (0..total)
            .step_by(2 * width)
            .map(move |left| Pair { left, right: left + width })
            .filter(move |pair| pair.right < total)
    })
}

/// Adds shards that lie one after another, each of `size` numbers, into the first one.
pub fn add_in_tree<T: Copy + std::ops::AddAssign>(values: &mut [T], size: usize) {
    let total = values.len().checked_div(size).unwrap_or(0);
    for Pair { left, right } in pairs(total) {
        let (head, tail) = values.split_at_mut(right * size);
        add(&mut head[left * size..(left + 1) * size], &tail[..size]);
    }
}

pub(crate) fn add<T: Copy + std::ops::AddAssign>(to: &mut [T], from: &[T]) {
    to.iter_mut().zip(from).for_each(|(to, from)| *to += *from);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_shard_is_added_once_and_in_a_balanced_tree() {
        for total in 1..40 {
            let mut names: Vec<String> = (0..total).map(|shard| shard.to_string()).collect();
            for Pair { left, right } in pairs(total) {
                let from = std::mem::take(&mut names[right]);
                names[left] = format!("({}+{from})", names[left]);
            }
            assert!(names[1..].iter().all(String::is_empty), "{total}: {names:?}");
            let depth = names[0].chars().take_while(|&sign| sign == '(').count();
            assert_eq!(depth, usize::BITS as usize - (total - 1).leading_zeros() as usize, "{}", names[0]);
            let mut sums: Vec<f64> = (0..2 * total).map(|i| i as f64).collect();
            add_in_tree(&mut sums, 2);
            let n = total as f64;
            assert_eq!(sums[..2], [n * (n - 1.0), n * n]);
        }
    }

    #[test]
    fn ranks_share_all_shards() {
        for (total, size) in [(16, 1), (16, 3), (5, 7), (16, 16)] {
            let parts: Vec<Shards> = (0..size).map(|rank| Shards::of(total, rank, size)).collect();
            assert!(parts.windows(2).all(|pair| pair[0].first + pair[0].count == pair[1].first));
            assert_eq!(parts.iter().map(|part| part.count).sum::<usize>(), total);
            let most = parts.iter().map(|part| part.count).max().unwrap();
            assert!(parts.iter().all(|part| part.count + 1 >= most) && parts[0].count > 0, "{parts:?}");
        }
    }
}
