//! Random numbers from counters: Philox4x32-10 (Salmon, Moraes, Dror and Shaw, 2011).
//!
//! A random number is a pure function of its key and its counter. Trajectory i, or step n of a resumed run, therefore
//! does not depend on earlier numbers or on the number of threads.

use std::f64::consts::TAU;

const MULTIPLIERS: [u32; 2] = [0xD251_1F53, 0xCD9E_8D57];
const WEYL: [u32; 2] = [0x9E37_79B9, 0xBB67_AE85];
const ROUNDS: usize = 10;

/// Ten rounds of the Philox4x32 bijection: four random words for a counter under a key.
pub fn philox4x32(mut counter: [u32; 4], mut key: [u32; 2]) -> [u32; 4] {
    for round in 0..ROUNDS {
        if round > 0 {
            key = [key[0].wrapping_add(WEYL[0]), key[1].wrapping_add(WEYL[1])];
        }
        let first = u64::from(MULTIPLIERS[0]) * u64::from(counter[0]);
        let second = u64::from(MULTIPLIERS[1]) * u64::from(counter[2]);
        counter = [
            (second >> 32) as u32 ^ counter[1] ^ key[0],
            second as u32,
            (first >> 32) as u32 ^ counter[3] ^ key[1],
            first as u32,
        ];
    }
    counter
}

/// One stream of random numbers: a seed, a stream number and a position that only the caller's draws advance.
///
/// The seed is the key; the stream fills the upper half of the counter and the position the lower half, so distinct
/// (seed, stream) pairs never meet before 2^64 blocks.
///
/// ```
/// use cfo_numerics::Philox;
///
/// let mut random = Philox::new(7, 0);
/// let first = random.uniform();
/// assert!((0.0..1.0).contains(&first));
/// assert_eq!(Philox::new(7, 0).uniform(), first);
/// ```
#[derive(Clone, Debug)]
pub struct Philox {
    key: [u32; 2],
    stream: [u32; 2],
    position: u64,
    /// The second word of the current block and the second normal of the current pair, if unused.
    pending: Option<u64>,
    pending_normal: Option<f64>,
}

impl Philox {
    /// Creates the stream `stream` of `seed` at its start.
    pub fn new(seed: u64, stream: u64) -> Self {
        Self::at(seed, stream, 0)
    }

    /// Creates a stream that starts at block `position`; a block holds two uniform or two normal numbers.
    pub fn at(seed: u64, stream: u64, position: u64) -> Self {
        Self { key: words(seed), stream: words(stream), position, pending: None, pending_normal: None }
    }

    /// Returns a uniform 64-bit word.
    pub fn word(&mut self) -> u64 {
        if let Some(word) = self.pending.take() {
            return word;
        }
        let [first, second] = self.block();
        self.pending = Some(second);
        first
    }

    /// Returns a number in `[0, 1)` with all 53 bits of its significand random.
    pub fn uniform(&mut self) -> f64 {
        unit(self.word())
    }

    /// Returns a number in `[low, high)`.
    pub fn uniform_between(&mut self, low: f64, high: f64) -> f64 {
        low + (high - low) * self.uniform()
    }

    /// Returns an integer in `0..bound` without bias (Lemire's method); 0 when `bound` is 0 or 1.
    pub fn below(&mut self, bound: u64) -> u64 {
        if bound < 2 {
            return 0;
        }
        let threshold = bound.wrapping_neg() % bound;
        loop {
            let product = u128::from(self.word()) * u128::from(bound);
            if product as u64 >= threshold {
                return (product >> 64) as u64;
            }
        }
    }

    /// Returns a standard normal number (Box-Muller: both numbers of a pair are used, the cosine first).
    pub fn normal(&mut self) -> f64 {
        if let Some(normal) = self.pending_normal.take() {
            return normal;
        }
        let (first, second) = (self.word(), self.word());
        // 1 - u lies in (0, 1], so that the logarithm is finite.
        let radius = (-2.0 * (1.0 - unit(first)).ln()).sqrt();
        let (sine, cosine) = (TAU * unit(second)).sin_cos();
        self.pending_normal = Some(radius * sine);
        radius * cosine
    }

    fn block(&mut self) -> [u64; 2] {
        let position = words(self.position);
        self.position = self.position.wrapping_add(1);
        let [a, b, c, d] = philox4x32([position[0], position[1], self.stream[0], self.stream[1]], self.key);
        [u64::from(a) | u64::from(b) << 32, u64::from(c) | u64::from(d) << 32]
    }
}

/// The upper 53 bits of a word as a number in `[0, 1)`.
fn unit(word: u64) -> f64 {
    (word >> 11) as f64 * (1.0 / (1u64 << 53) as f64)
}

/// The low and the high half of a number.
fn words(number: u64) -> [u32; 2] {
    [number as u32, (number >> 32) as u32]
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The known-answer vectors of the Random123 distribution for `philox4x32` with 10 rounds.
    #[test]
    fn bijection_gives_the_published_vectors() {
        let cases = [
            ([0; 4], [0; 2], [0x6627_e8d5, 0xe169_c58d, 0xbc57_ac4c, 0x9b00_dbd8]),
            ([u32::MAX; 4], [u32::MAX; 2], [0x408f_276d, 0x41c8_3b0e, 0xa20b_c7c6, 0x6d54_51fd]),
            (
                [0x243f_6a88, 0x85a3_08d3, 0x1319_8a2e, 0x0370_7344],
                [0xa409_3822, 0x299f_31d0],
                [0xd16c_fe09, 0x94fd_cceb, 0x5001_e420, 0x2412_6ea1],
            ),
        ];
        for (counter, key, expected) in cases {
            assert_eq!(philox4x32(counter, key), expected);
        }
    }

    #[test]
    fn a_stream_can_be_entered_at_any_block() {
        let mut whole = Philox::new(3, 5);
        let drawn: Vec<f64> = (0..20).map(|_| whole.uniform()).collect();
        for block in 0..10 {
            let mut entered = Philox::at(3, 5, block as u64);
            assert_eq!(entered.uniform(), drawn[2 * block]);
            assert_eq!(entered.uniform(), drawn[2 * block + 1]);
        }
    }

    #[test]
    fn seeds_and_streams_differ() {
        let first = |seed, stream| Philox::new(seed, stream).word();
        assert_ne!(first(0, 0), first(0, 1));
        assert_ne!(first(0, 0), first(1, 0));
        assert_ne!(first(0, 1), first(1, 0));
        assert_ne!(first(0, 1 << 40), first(0, 0));
    }

    /// Moments of 200,000 draws; each bound is about five standard errors of its estimate.
    #[test]
    fn moments_are_those_of_the_distributions() {
        let count = 200_000;
        let error = 5.0 / f64::from(count).sqrt();
        let mut random = Philox::new(11, 0);
        let mean =
            |values: &mut dyn FnMut() -> f64| (0..count).map(|_| values()).sum::<f64>() / f64::from(count);
        assert!((mean(&mut || random.uniform()) - 0.5).abs() < error * (1.0f64 / 12.0).sqrt());
        assert!(mean(&mut || random.normal()).abs() < error);
        assert!((mean(&mut || random.normal().powi(2)) - 1.0).abs() < error * 2.0f64.sqrt());
        assert!((mean(&mut || random.normal().powi(4)) - 3.0).abs() < error * 96.0f64.sqrt());
    }

    #[test]
    fn whole_numbers_are_uniform_below_their_bound() {
        let mut random = Philox::new(0, 9);
        let mut counts = [0u32; 7];
        for _ in 0..70_000 {
            counts[random.below(7) as usize] += 1;
        }
        // Standard deviation of a count: sqrt(70000 * 6/49) = 93.
        assert!(counts.iter().all(|&count| count.abs_diff(10_000) < 465), "{counts:?}");
        assert_eq!(random.below(0), 0);
        assert_eq!(random.below(1), 0);
    }
}
