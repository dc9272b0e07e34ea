//! Random numbers: SplitMix64, whose streams are the same on every machine.

pub const GOLDEN: u64 = 0x9E37_79B9_7F4A_7C15;

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
