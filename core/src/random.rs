//! Random numbers: SplitMix64, whose streams are the same on every machine.

use std::f64::consts::PI;

pub const GOLDEN: u64 = 0x9E37_79B9_7F4A_7C15;

/// The least difference of two uniform numbers, 2^-53.
const SMALLEST: f64 = 1.0 / (1u64 << 53) as f64;

/// SplitMix64's finaliser.
pub fn mixed(mut z: u64) -> u64 {
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}

/// A stream of random bits (Steele, Lea, Flood: Fast Splittable Pseudorandom Number Generators, 2014).
#[derive(Clone)]
pub struct Random {
    state: u64,
}

impl Random {
    pub fn new(seed: u64) -> Self {
        Random { state: seed }
    }

    fn bits(&mut self) -> u64 {
        self.state = self.state.wrapping_add(GOLDEN);
        mixed(self.state)
    }

    /// Draw an integer in [0, `bound`), by multiplication.
    pub fn below(&mut self, bound: usize) -> usize {
        ((self.bits() >> 32).wrapping_mul(bound as u64) >> 32) as usize
    }

    /// Draw a number in [0, 1).
    pub fn uniform(&mut self) -> f64 {
        // A float holds 53 bits; more would round up to 1.
        (self.bits() >> 11) as f64 * SMALLEST
    }

    /// Draw a number with the exponential distribution of mean 1.
    pub fn exponential(&mut self) -> f64 {
        // The logarithm of 0 is not taken, since `uniform` is below 1.
        -libm::log(1.0 - self.uniform())
    }

    /// Draw a number with the standard normal distribution (Box and Muller 1958).
    pub fn normal(&mut self) -> f64 {
        let radius = (-2.0 * libm::log(1.0 - self.uniform())).sqrt();
        radius * libm::cos(2.0 * PI * self.uniform())
    }

    /// Draw one of the candidates, each as likely: the k-th one replaces the chosen one with probability 1/k.
    pub fn choose(&mut self, candidates: impl Iterator<Item = usize>) -> Option<usize> {
        let mut chosen = None;
        for (k, candidate) in candidates.enumerate() {
            if self.below(k + 1) == 0 {
                chosen = Some(candidate);
            }
        }
        chosen
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bits_are_those_of_splitmix64() {
        // Of the reference implementation, https://prng.di.unimi.it/splitmix64.c, from the state 1234567.
        let mut random = Random::new(1_234_567);
        let expected = [6_457_827_717_110_365_317, 3_203_168_211_198_807_973, 9_817_491_932_198_370_423u64];
        assert_eq!([random.bits(), random.bits(), random.bits()], expected);
        assert_eq!(Random::new(1_234_567).uniform(), (expected[0] >> 11) as f64 * 2f64.powi(-53));
    }

    #[test]
    fn normal_numbers_have_mean_0_and_variance_1() {
        let mut random = Random::new(7);
        let values: Vec<f64> = (0..100_000).map(|_| random.normal()).collect();
        let mean = values.iter().sum::<f64>() / 1e5;
        let variance = values.iter().map(|value| (value - mean) * (value - mean)).sum::<f64>() / 1e5;
        let within = values.iter().filter(|value| value.abs() < 1.0).count() as f64 / 1e5;
        assert!(mean.abs() < 0.02 && (variance - 1.0).abs() < 0.03 && (within - 0.6827).abs() < 0.01);
    }

    #[test]
    fn exponential_numbers_have_mean_1() {
        let mut random = Random::new(8);
        let mean = (0..100_000).map(|_| random.exponential()).sum::<f64>() / 1e5;
        assert!((mean - 1.0).abs() < 0.02, "{mean}");
    }
}
