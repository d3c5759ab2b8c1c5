//! The generator behind the PDEBench files: NumPy's legacy one, a Mersenne Twister (Matsumoto and Nishimura 1998)
//! with doubles of 53 bits and normals by Marsaglia's polar method.

use super::SimulationError;

const SIZE: usize = 624;
const SHIFT: usize = 397;

/// A stream of random numbers that NumPy's `RandomState(seed)` gives too.
pub(super) struct LegacyRandom {
    words: [u32; SIZE],
    position: usize,
    pending_normal: Option<f64>,
}

impl LegacyRandom {
    /// The benchmark seeds its generator afresh for every sample, with the sample's index; `seed` shifts it.
    pub(super) fn of_sample(seed: u64, index: u64) -> Result<Self, SimulationError> {
        let sum = seed.checked_add(index).and_then(|sum| u32::try_from(sum).ok());
        sum.map(Self::new).ok_or(SimulationError::Seed { seed, index })
    }

    fn new(seed: u32) -> Self {
        let mut words = [seed; SIZE];
        for i in 1..SIZE {
            let before = words[i - 1];
            words[i] = 1_812_433_253u32.wrapping_mul(before ^ (before >> 30)).wrapping_add(i as u32);
        }
        Self { words, position: SIZE, pending_normal: None }
    }

    fn word(&mut self) -> u32 {
        if self.position == SIZE {
            self.twist();
            self.position = 0;
        }
        let mut word = self.words[self.position];
        self.position += 1;
        word ^= word >> 11;
        word ^= (word << 7) & 0x9d2c_5680;
        word ^= (word << 15) & 0xefc6_0000;
        word ^ (word >> 18)
    }

    fn twist(&mut self) {
        for i in 0..SIZE {
            let joined = (self.words[i] & 0x8000_0000) | (self.words[(i + 1) % SIZE] & 0x7fff_ffff);
            let odd = if joined & 1 == 1 { 0x9908_b0df } else { 0 };
            self.words[i] = self.words[(i + SHIFT) % SIZE] ^ (joined >> 1) ^ odd;
        }
    }

    /// A number of `[0, 1)`.
    pub(super) fn uniform(&mut self) -> f64 {
        let (high, low) = (self.word() >> 5, self.word() >> 6);
        (f64::from(high) * f64::from(1 << 26) + f64::from(low)) / (1u64 << 53) as f64
    }

    /// A standard normal number.
    pub(super) fn normal(&mut self) -> f64 {
        if let Some(normal) = self.pending_normal.take() {
            return normal;
        }
        loop {
            let (x1, x2) = (2.0 * self.uniform() - 1.0, 2.0 * self.uniform() - 1.0);
            let square = x1 * x1 + x2 * x2;
            if square > 0.0 && square < 1.0 {
                let factor = (-2.0 * square.ln() / square).sqrt();
                self.pending_normal = Some(factor * x1);
                return factor * x2;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What NumPy gives for these seeds; the last bit of a normal depends on the platform's logarithm.
    #[test]
    fn numbers_are_numpys() {
        let normals = |seed| {
            let mut random = LegacyRandom::new(seed);
            move || random.normal()
        };
        let close = |ours: f64, theirs: f64| assert!((ours - theirs).abs() < 1e-15, "{ours} {theirs}");
        let mut zero = normals(0);
        for expected in
            [1.764052345967664, 0.4001572083672233, 0.9787379841057392, 2.240893199201458, 1.8675579901499675]
        {
            close(zero(), expected);
        }
        let mut one = normals(1);
        for expected in [1.6243453636632417, -0.6117564136500754, -0.5281717522634557] {
            close(one(), expected);
        }
        let mut uniform = LegacyRandom::new(0);
        for expected in [0.5488135039273248, 0.7151893663724195, 0.6027633760716439] {
            assert_eq!(uniform.uniform(), expected);
        }
    }

    /// The 10,000th word of the reference generator with its default seed.
    #[test]
    fn words_are_the_reference_generators() {
        let mut random = LegacyRandom::new(5489);
        let last = (0..10_000).map(|_| random.word()).last();
        assert_eq!(last, Some(4_123_659_995));
    }

    #[test]
    fn seeds_are_the_index_and_fit_into_a_word() {
        let first = |seed, index| LegacyRandom::of_sample(seed, index).map(|mut random| random.word());
        assert_eq!(first(0, 7), first(7, 0));
        assert_ne!(first(0, 7), first(0, 8));
        assert!(first(u64::from(u32::MAX), 0).is_ok());
        let error = first(u64::from(u32::MAX), 1).unwrap_err();
        assert_eq!(error, SimulationError::Seed { seed: u64::from(u32::MAX), index: 1 });
        assert!(error.hint().is_some() && first(u64::MAX, u64::MAX).is_err());
    }
}
