//! The random generator of the PDEBench files: NumPy's legacy generator, a Mersenne Twister (Matsumoto and Nishimura
//! 1998) with doubles of 53 bits and normals by Marsaglia's polar method.

use super::SimulationError;

const SIZE: usize = 624;
const SHIFT: usize = 397;

/// The stream of random numbers of NumPy's `RandomState(seed)`.
pub(super) struct LegacyRandom {
    words: [u32; SIZE],
    position: usize,
    pending_normal: Option<f64>,
}

impl LegacyRandom {
    /// The generator of a sample. The benchmark seeds its generator for every sample with the sample's index: seed 0
    /// does this, as `RandomState(index)`.
    ///
    /// Other seeds are part of the key, as in `RandomState([seed, seed >> 32, index, index >> 32])` with 32-bit words.
    /// No two samples of any seeds share their numbers.
    pub(super) fn of_sample(seed: u64, index: u64) -> Result<Self, SimulationError> {
        if seed == 0 {
            return u32::try_from(index).map(Self::new).map_err(|_| SimulationError::Seed { seed, index });
        }
        Ok(Self::of_key(&[seed as u32, (seed >> 32) as u32, index as u32, (index >> 32) as u32]))
    }

    /// Initialisation by an array of at most 624 words, as in the reference generator.
    fn of_key(key: &[u32]) -> Self {
        let mut words = Self::new(19_650_218).words;
        let mut i = 1;
        let mut mix = |factor: u32, add: &dyn Fn(usize) -> u32| {
            let before = words[i - 1];
            words[i] = (words[i] ^ (before ^ (before >> 30)).wrapping_mul(factor)).wrapping_add(add(i));
            i += 1;
            if i == SIZE {
                words[0] = words[SIZE - 1];
                i = 1;
            }
        };
        for j in 0..SIZE {
            let j = j % key.len();
            mix(1_664_525, &|_| key[j].wrapping_add(j as u32));
        }
        for _ in 1..SIZE {
            mix(1_566_083_941, &|i| (i as u32).wrapping_neg());
        }
        words[0] = 0x8000_0000;
        Self { words, position: SIZE, pending_normal: None }
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

    /// Returns a number in `[0, 1)`.
    pub(super) fn uniform(&mut self) -> f64 {
        let (high, low) = (self.word() >> 5, self.word() >> 6);
        (f64::from(high) * f64::from(1 << 26) + f64::from(low)) / (1u64 << 53) as f64
    }

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

    /// NumPy's numbers for these seeds; the last bit of a normal number depends on the platform's logarithm.
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

    /// The 10,000th word agrees with that of the reference generator with its default seed.
    #[test]
    fn words_are_the_reference_generators() {
        let mut random = LegacyRandom::new(5489);
        let last = (0..10_000).map(|_| random.word()).last();
        assert_eq!(last, Some(4_123_659_995));
    }

    /// Compares with `numpy.random.RandomState([1, 0, 7, 0])` and `RandomState([4294967295, 5, 9, 0])` of NumPy 2.4.6.
    #[test]
    fn keys_are_numpys() {
        let uniforms = |seed, index| {
            let mut random = LegacyRandom::of_sample(seed, index).unwrap();
            [random.uniform(), random.uniform(), random.uniform()]
        };
        assert_eq!(uniforms(1, 7), [0.03376590436972149, 0.21252429744307422, 0.10187704786724949]);
        let far = (5 << 32) + u64::from(u32::MAX);
        assert_eq!(uniforms(far, 9), [0.6710757738200506, 0.12021643978912322, 0.009630610252876703]);
    }

    #[test]
    fn seed_zero_is_the_index_and_fits_into_a_word() {
        let first = |seed, index| LegacyRandom::of_sample(seed, index).map(|mut random| random.word());
        assert_eq!(first(0, 7), Ok(LegacyRandom::new(7).word()));
        assert!(first(0, u64::from(u32::MAX)).is_ok());
        let error = first(0, 1 << 32).unwrap_err();
        assert_eq!(error, SimulationError::Seed { seed: 0, index: 1 << 32 });
        assert!(error.hint().is_some() && first(u64::MAX, u64::MAX).is_ok());
    }

    /// Compares the first two words of streams; by chance two of 50,000 pairs agree with probability 7e-11.
    #[test]
    fn seeds_share_no_sample() {
        let streams = (0..5).flat_map(|seed| (0..10_000).map(move |index| (seed, index)));
        let starts: std::collections::HashSet<[u32; 2]> = streams
            .map(|(seed, index)| {
                let mut random = LegacyRandom::of_sample(seed, index).unwrap();
                [random.word(), random.word()]
            })
            .collect();
        assert_eq!(starts.len(), 50_000);
    }
}
