//! What is believed of a pod's run time before it runs: a distribution, given how long pods ran that are like it.
//!
//! Pods are alike in several ways, the levels: all pods, those of the same requests, owner, image, stated time and so on.
//! At each level run times are two histograms over logarithmic bins: of all pods, and one that forgets, as the recent ones
//! tell more where an owner has changed. At some levels there is one more pair: of pods that came after a pod of the same
//! run time, since owners run the same thing again. The histograms, `p[i]`, become one distribution as a product,
//!
//! ```text
//! p[k] ~ p[0][k] ^ weight[0] * prod_i (p[i][k] / p[0][k]) ^ weight[i, pods seen]
//! ```
//!
//! with `p[0]` of all pods, in which a histogram that says nothing else decides nothing: a thousand short pods do not make a
//! nightly long one short. The weights are learned by the gradient of the logarithm of the probability of each run time that
//! is seen: what tells most on this cluster counts most. Sources: Genest and Zidek, "Combining Probability Distributions"
//! (1986), logarithmic opinion pools; Mattern, "Linear and Geometric Mixtures" (2013), learned online; Duchi, Hazan and
//! Singer, "Adaptive Subgradient Methods" (2011), the steps.

use crate::arrays::{Arrays, Result, index};

/// Ways in which pods are alike, see `run_times`; of a pod without, say, a stated time some have no group.
pub const LEVELS: usize = 12;
const ALL_PODS_LEVEL: usize = 0;
const NAMESPACE: usize = 2;
const OWNER: usize = 6;
const OWNER_REQUESTS: usize = 7;
const OWNER_IMAGE_REQUESTS: usize = 9;
const OWNER_STATED: usize = 11;
/// Levels that tell apart after which run time a pod came, each named by where its group is found first.
const FOLLOWED: [&[usize]; 3] = [&[OWNER], &[OWNER_IMAGE_REQUESTS, OWNER_REQUESTS], &[OWNER_STATED]];
/// Two histograms of each level, and that of all pods smoothed.
const HISTOGRAMS: usize = 2 * (LEVELS + FOLLOWED.len()) + 1;
/// Weights differ by how many pods a histogram has, in octaves: 0, 1 to 2, 3 to 6, 7 to 14, 15 to 30, more.
const AMOUNTS: usize = 6;
pub const WEIGHTS: usize = HISTOGRAMS * AMOUNTS;
const ALL_PODS_WEIGHT: usize = (HISTOGRAMS - 1) * AMOUNTS;

const BINS_PER_OCTAVE: f64 = 2.0;
/// From 1 s to 2^24 s, 194 days.
pub const BINS: usize = 48;
/// The group of which nothing is ever seen.
pub const NOTHING: usize = 0;
/// Bins that are equally likely while nothing has ended: from 16 s to 12 days; others are a fiftieth of that.
const FIRST_PRIOR: std::ops::Range<usize> = 8..40;
const UNLIKELY: f64 = 0.02;
/// Pods as which that counts among all pods, and all pods in every other histogram.
const PRIOR_PODS: [f64; 2] = [2.0, 1.0];
/// What is left of a pod in the histogram that forgets when the next one ends; less than `LEAST` is nothing.
const KEPT: f64 = 0.7;
const LEAST: f32 = 1e-4;
/// Share of a pod that counts in each neighbouring bin.
const NEIGHBOUR: f64 = 0.1;
const FIRST_WEIGHT: f64 = 0.07;
const STEP: f64 = 0.02;
const FIRST_SQUARES: f64 = 0.01;
/// Pods that teach the weights one by one; of later ones each fourth does, since it takes longer than all else.
const EACH: u64 = 2000;
const FOURTH: u64 = 4;
/// A belief without an owner is computed again once so many per cent more of all pods have ended.
const SLOWLY: u64 = 3;
/// Run times of a group after which others are told apart; of more the one that was not seen for longest is dropped.
const MOST_FOLLOWERS: usize = 8;
/// An estimate is the run time with the most probability within this factor of it, on a grid of `GRID` a bin.
const FACTOR: f64 = 3.0;
/// Share of the longest run times of which the mean knows nothing: a little of them, always believed, would be most of it.
const TAIL: f64 = 0.1;
const GRID: usize = 4;

/// Groups of a pod, one a level; `NOTHING`: it has none.
pub type Keys = [usize; LEVELS];
type Histogram = [f32; BINS];

/// What is expected of a pod.
#[derive(Clone, Copy)]
pub struct Estimate {
    /// The run time in seconds with the most probability within a factor of three of it.
    pub seconds: f64,
    /// The mean in seconds of all but the longest tenth, by which orders go: a pod that may run for long is no short one
    /// (Rothkopf, "Scheduling with Random Service Times", 1966).
    pub mean: f64,
    /// The logarithm of the 90th percentile over the median.
    pub spread: f64,
}

impl Estimate {
    /// That of a run time that is stated.
    pub fn stated(seconds: f64) -> Self {
        Estimate { seconds, mean: seconds, spread: 0.0 }
    }
}

/// Pods that ended, by run time: all of them, and with those that ended before counting ever less.
#[derive(Clone)]
pub struct Seen {
    pub all: Histogram,
    pub recent: Histogram,
    pods: f64,
    recent_pods: f64,
}

impl Seen {
    pub fn of(all: Histogram, recent: Histogram) -> Self {
        Seen { all, recent, pods: sum(&all), recent_pods: sum(&recent) }
    }

    fn count(&mut self, bin: usize) {
        self.all[bin] += 1.0;
        self.pods += 1.0;
        for pods in &mut self.recent {
            *pods = if *pods < LEAST { 0.0 } else { *pods * KEPT as f32 };
        }
        self.recent[bin] += 1.0;
        // As it is read from a file, too.
        self.recent_pods = sum(&self.recent);
    }
}

fn sum(histogram: &Histogram) -> f64 {
    histogram.iter().map(|&pods| f64::from(pods)).sum()
}

const UNSEEN: Seen = Seen { all: [0.0; BINS], recent: [0.0; BINS], pods: 0.0, recent_pods: 0.0 };

/// What is seen of a group of pods that are alike.
#[derive(Clone)]
struct Group {
    seen: Seen,
    /// The bin of the last pod.
    last: Option<u8>,
    /// Pods that came after one of a bin; those that were seen last come last.
    after: Vec<(u8, Seen)>,
    /// The number of pods that had ended when it was counted last.
    counted: u64,
}

const EMPTY: Group = Group { seen: UNSEEN, last: None, after: Vec::new(), counted: 0 };

impl Group {
    /// The pods that came after one like the last.
    fn following(&self) -> Option<&Seen> {
        let last = self.last?;
        self.after.iter().find(|(bin, _)| *bin == last).map(|(_, seen)| seen)
    }

    fn follow(&mut self, bin: usize) {
        if let Some(last) = self.last {
            let place = self.after.iter().position(|&(before, _)| before == last);
            let mut follower = place.map_or((last, UNSEEN), |place| self.after.remove(place));
            follower.1.count(bin);
            self.after.push(follower);
            if self.after.len() > MOST_FOLLOWERS {
                self.after.remove(0);
            }
        }
        self.last = Some(bin as u8);
    }
}

/// A distribution over bins, and what the weights learn from.
struct Mixture {
    p: [f64; BINS],
    /// Histograms that say something: their number in the weights, and the logarithms of their probabilities.
    parts: Vec<(usize, [f64; BINS])>,
}

/// Groups of pods, and how much each way of being alike counts. Group 0 is `NOTHING`.
#[derive(Clone)]
pub struct Belief {
    groups: Vec<Group>,
    /// [HISTOGRAMS, AMOUNTS], and the sums of the squares of their gradients.
    weights: Vec<f64>,
    squares: Vec<f64>,
    /// Pods that ended.
    pub ended: u64,
}

impl Default for Belief {
    fn default() -> Self {
        let mut weights = vec![FIRST_WEIGHT; WEIGHTS];
        weights[ALL_PODS_WEIGHT] = 1.0;
        Belief { groups: vec![EMPTY], weights, squares: vec![FIRST_SQUARES; WEIGHTS], ended: 0 }
    }
}

impl Belief {
    /// Read `queue.history`, groups of pods that ended before, by bin: all, and recent ones; `queue.after`: those that
    /// followed on others; `queue.last`, the bin of each group's last pod, -1 for none; and `queue.belief`, the weights.
    pub fn read(arrays: &Arrays) -> Result<Self> {
        let mut belief = Belief::default();
        let histograms = |row: &[f64]| {
            let histogram = |row: &[f64]| std::array::from_fn(|k| row[k] as f32);
            Seen::of(histogram(&row[..BINS]), histogram(&row[BINS..]))
        };
        let rows: Vec<Vec<f64>> = arrays.rows("queue.history", 2 * BINS)?;
        let last: Vec<i64> = arrays.list_of("queue.last", rows.len())?;
        for (row, last) in rows.iter().zip(last) {
            let number = belief.add();
            belief.groups[number].seen = histograms(row);
            belief.set_last(number, last)?;
        }
        let after: Vec<Vec<f64>> = arrays.rows("queue.after", 2 + 2 * BINS)?;
        for row in after {
            let number = index("queue.after", row[0] as i64, belief.groups.len())?;
            belief.set_after(number, row[1] as i64, histograms(&row[2..]))?;
        }
        let weights: Vec<Vec<f64>> = arrays.rows("queue.belief", WEIGHTS)?;
        if let [weights, squares] = &weights[..] {
            belief.set_weights(weights, squares);
        }
        Ok(belief)
    }

    pub fn len(&self) -> usize {
        self.groups.len()
    }

    /// Return the number of a new group.
    pub fn add(&mut self) -> usize {
        self.groups.push(EMPTY);
        self.groups.len() - 1
    }

    pub fn clear(&mut self, number: usize) {
        self.groups[number] = EMPTY;
    }

    pub fn set_last(&mut self, number: usize, last: i64) -> Result<()> {
        self.groups[number].last = if last == -1 { None } else { Some(index("last", last, BINS)? as u8) };
        Ok(())
    }

    /// Set what followed on a run time in a group.
    pub fn set_after(&mut self, number: usize, last: i64, seen: Seen) -> Result<()> {
        let last = index("after", last, BINS)? as u8;
        self.groups[number].after.retain(|&(bin, _)| bin != last);
        self.groups[number].after.push((last, seen));
        Ok(())
    }

    pub fn set_seen(&mut self, number: usize, seen: Seen) {
        self.groups[number].seen = seen;
    }

    pub fn seen(&self, number: usize) -> &Seen {
        &self.groups[number].seen
    }

    pub fn last(&self, number: usize) -> i64 {
        self.groups[number].last.map_or(-1, i64::from)
    }

    pub fn after(&self, number: usize) -> &[(u8, Seen)] {
        &self.groups[number].after
    }

    pub fn weights(&self) -> [&[f64]; 2] {
        [&self.weights, &self.squares]
    }

    pub fn set_weights(&mut self, weights: &[f64], squares: &[f64]) {
        self.weights = weights.iter().map(|weight| weight.max(0.0)).collect();
        self.squares = squares.iter().map(|square| square.max(FIRST_SQUARES)).collect();
    }

    pub fn pods(&self, number: usize) -> f64 {
        self.groups[number].seen.pods
    }

    /// Count a pod that ended in one group alone; `is_followed`: the next pod of it comes after this one.
    pub fn count(&mut self, number: usize, bin: usize, is_followed: bool) {
        let group = &mut self.groups[number];
        group.counted = self.ended;
        group.seen.count(bin);
        if is_followed {
            group.follow(bin);
        }
    }

    /// Count a pod that ended after so many seconds, after the weights have learned from it.
    pub fn note(&mut self, keys: &Keys, seconds: f64) {
        let bin = bin(seconds);
        self.learn(keys, bin);
        // A namespace counts each owner once: an owner of many pods would else speak for all.
        let is_first = self.pods(keys[OWNER]) == 0.0;
        let followed = FOLLOWED.map(|levels| followed_group(keys, levels));
        for (level, &key) in keys.iter().enumerate() {
            if key != NOTHING && (is_first || !(NAMESPACE..NAMESPACE + 2).contains(&level)) {
                self.count(key, bin, followed.contains(&key));
            }
        }
    }

    /// Learn the weights from a pod that ended, before it is counted.
    pub fn learn(&mut self, keys: &Keys, bin: usize) {
        self.ended += 1;
        if self.ended > EACH && self.ended % FOURTH != 0 {
            return;
        }
        let Mixture { p, parts } = self.mixture(keys);
        for (number, logs) in parts {
            let expected: f64 = p.iter().zip(&logs).map(|(p, log)| p * log).sum();
            let gradient = logs[bin] - expected;
            self.squares[number] += gradient * gradient;
            let step = STEP * gradient / libm::sqrt(self.squares[number]);
            self.weights[number] = (self.weights[number] + step).max(0.0);
        }
    }

    /// Whether an estimate is to be computed again after a pod of these groups, if the last one is of that time.
    pub fn is_stale(&self, keys: &Keys, since: u64) -> bool {
        keys[OWNER] != NOTHING || 100 * (self.ended - since) > SLOWLY * self.ended
    }

    /// Whether a pod like these has ended since then, as told by the levels of the owner, or by others where it has none.
    pub fn has_changed(&self, keys: &Keys, since: u64) -> bool {
        let has_changed = |keys: &[usize]| keys.iter().any(|&key| self.groups[key].counted > since);
        let (others, of_owner) = keys.split_at(NAMESPACE + 2);
        has_changed(of_owner) || (of_owner.iter().all(|&key| key == NOTHING) && has_changed(others))
    }

    /// The probability of each bin.
    pub fn distribution(&self, keys: &Keys) -> [f64; BINS] {
        self.mixture(keys).p
    }

    pub fn estimate(&self, keys: &Keys) -> Estimate {
        let p = self.distribution(keys);
        Estimate { seconds: likeliest(&p), mean: mean(&p), spread: libm::log(quantile(&p, 0.9) / quantile(&p, 0.5)) }
    }

    fn mixture(&self, keys: &Keys) -> Mixture {
        let first = |k: usize| if FIRST_PRIOR.contains(&k) { 1.0 } else { UNLIKELY };
        let total: f64 = (0..BINS).map(first).sum();
        let every = &self.groups[keys[ALL_PODS_LEVEL]].seen;
        let spread = smoothed(&every.all);
        let base: [f64; BINS] =
            std::array::from_fn(|k| (spread[k] + PRIOR_PODS[0] * first(k) / total) / (every.pods + PRIOR_PODS[0]));
        let mut mixture = Mixture { p: [0.0; BINS], parts: Vec::with_capacity(HISTOGRAMS) };
        let of_base = base.map(libm::log);
        let octave = |pods: f64| (libm::log2(pods + 1.0) as usize).min(AMOUNTS - 1);
        mixture.parts.push((ALL_PODS_WEIGHT, of_base));
        let followers = FOLLOWED.map(|levels| self.groups[followed_group(keys, levels)].following());
        let levels = keys.iter().map(|&key| Some(&self.groups[key].seen)).chain(followers);
        for (level, seen) in levels.enumerate() {
            let Some(seen) = seen.filter(|seen| seen.pods > 0.0) else { continue };
            for (speed, (histogram, pods)) in
                [(&seen.all, seen.pods), (&seen.recent, seen.recent_pods)].iter().enumerate()
            {
                let spread = smoothed(histogram);
                let share = libm::log(PRIOR_PODS[1] / (pods + PRIOR_PODS[1]));
                let logs = std::array::from_fn(|k| match spread[k] {
                    // Most bins are empty, and logarithms take most of the time.
                    0.0 => share,
                    pods_here => libm::log((pods_here / base[k] + PRIOR_PODS[1]) / (pods + PRIOR_PODS[1])),
                });
                mixture.parts.push(((2 * level + speed) * AMOUNTS + octave(*pods), logs));
            }
        }
        for (number, logs) in &mixture.parts {
            for (p, log) in mixture.p.iter_mut().zip(logs) {
                *p += self.weights[*number] * log;
            }
        }
        let most = mixture.p.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        mixture.p = mixture.p.map(|log| libm::exp(log - most));
        let sum: f64 = mixture.p.iter().sum();
        mixture.p = mixture.p.map(|p| p / sum);
        mixture
    }
}

/// The first group that a pod has among those of some levels.
fn followed_group(keys: &Keys, levels: &[usize]) -> usize {
    levels.iter().map(|&level| keys[level]).find(|&key| key != NOTHING).unwrap_or(NOTHING)
}

/// Pods by bin, of which a share counts in the bins beside.
fn smoothed(histogram: &Histogram) -> [f64; BINS] {
    let mut spread = [0.0; BINS];
    for (k, &pods) in histogram.iter().enumerate() {
        if pods > 0.0 {
            let pods = f64::from(pods);
            spread[k] += (1.0 - 2.0 * NEIGHBOUR) * pods;
            spread[k.saturating_sub(1)] += NEIGHBOUR * pods;
            spread[(k + 1).min(BINS - 1)] += NEIGHBOUR * pods;
        }
    }
    spread
}

/// The bin of a run time in seconds.
pub fn bin(seconds: f64) -> usize {
    ((BINS_PER_OCTAVE * libm::log2(seconds.max(1.0))) as usize).min(BINS - 1)
}

/// A quantile in seconds, interpolated geometrically within a bin.
fn quantile(p: &[f64; BINS], share: f64) -> f64 {
    let mut before = 0.0;
    for (k, &p) in p.iter().enumerate() {
        if p > 0.0 && before + p >= share {
            return libm::pow(2.0, (k as f64 + (share - before) / p) / BINS_PER_OCTAVE);
        }
        before += p;
    }
    libm::pow(2.0, BINS as f64 / BINS_PER_OCTAVE)
}

/// The mean in seconds, with each bin's in its middle, of all but the longest `TAIL` of the run times.
fn mean(p: &[f64; BINS]) -> f64 {
    let (mut sum, mut left) = (0.0, 1.0 - TAIL);
    for (k, &p) in p.iter().enumerate() {
        let here = p.min(left);
        left -= here;
        sum += here * libm::pow(2.0, (k as f64 + 0.5) / BINS_PER_OCTAVE);
    }
    sum / (1.0 - TAIL)
}

/// The run time in seconds with the most probability within `FACTOR` of it; in the middle of those that are as good.
fn likeliest(p: &[f64; BINS]) -> f64 {
    let mut below = [0.0; BINS + 1];
    for k in 0..BINS {
        below[k + 1] = below[k] + p[k];
    }
    let until = |position: f64| {
        let position = position.clamp(0.0, BINS as f64);
        let k = (position as usize).min(BINS - 1);
        below[k] + (position - k as f64) * p[k]
    };
    let width = BINS_PER_OCTAVE * libm::log2(FACTOR);
    let mass = |place: usize| {
        let middle = place as f64 / GRID as f64;
        until(middle + width) - until(middle - width)
    };
    let masses: Vec<f64> = (0..=BINS * GRID).map(mass).collect();
    let most = masses.iter().copied().fold(0.0, f64::max);
    let best: Vec<usize> = (0..masses.len()).filter(|&place| masses[place] >= most - 1e-9).collect();
    libm::pow(2.0, best[best.len() / 2] as f64 / GRID as f64 / BINS_PER_OCTAVE)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// A belief of some groups, each of which is alike in two ways.
    fn learned(seeds: &[(usize, f64)]) -> (Belief, Vec<Keys>) {
        let mut belief = Belief::default();
        let all = belief.add();
        let keys: Vec<Keys> = (0..3)
            .map(|_| {
                let mut keys = [NOTHING; LEVELS];
                (keys[0], keys[OWNER], keys[OWNER_STATED]) = (all, belief.add(), belief.add());
                keys
            })
            .collect();
        for &(owner, seconds) in seeds {
            belief.note(&keys[owner], seconds);
        }
        (belief, keys)
    }

    proptest! {
        #[test]
        fn a_belief_is_a_distribution_that_seen_run_times_make_likelier(
            seeds in prop::collection::vec((0usize..3, 0.5..1e8), 0..60), owner in 0usize..3, seconds in 0.5..1e8,
        ) {
            let (mut belief, keys) = learned(&seeds);
            let before = belief.distribution(&keys[owner]);
            prop_assert!((before.iter().sum::<f64>() - 1.0).abs() < 1e-9 && before.iter().all(|&p| p > 0.0));
            let estimate = belief.estimate(&keys[owner]);
            prop_assert!(estimate.seconds >= 1.0 && estimate.spread > 0.0);
            // The weights alone go uphill, too, by a step that is small.
            let here = bin(seconds);
            belief.learn(&keys[owner], here);
            prop_assert!(belief.distribution(&keys[owner])[here] >= before[here] * (1.0 - 1e-3));
            (0..40).for_each(|_| belief.note(&keys[owner], seconds));
            prop_assert!(belief.distribution(&keys[owner])[here] > 0.3);
            prop_assert!(belief.weights.iter().all(|&weight| weight >= 0.0));
            prop_assert_eq!(belief.pods(keys[owner][0]), seeds.len() as f64 + 40.0);
            prop_assert!(belief.groups.iter().all(|group| group.after.len() <= MOST_FOLLOWERS));
        }

        #[test]
        fn quantiles_and_the_likeliest_run_time_are_those_of_one_bin(k in 0usize..BINS) {
            let mut p = [0.0; BINS];
            p[k] = 1.0;
            let edge = libm::pow(2.0, k as f64 / 2.0);
            prop_assert!((quantile(&p, 0.5) / edge - libm::pow(2.0, 0.25)).abs() < 1e-9);
            prop_assert!(likeliest(&p) / edge < 3.0 && edge / likeliest(&p) < 3.0);
        }
    }

    #[test]
    fn what_comes_after_a_run_time_is_told_apart() {
        // Short and long ones in turn: what came last tells what comes next.
        let turns: Vec<(usize, f64)> = (0..200).map(|i| (0, if i % 2 == 0 { 60.0 } else { 6e4 })).collect();
        let (belief, keys) = learned(&turns);
        assert!(belief.estimate(&keys[0]).seconds < 200.0);
        let (belief, keys) = learned(&turns[..199]);
        assert!(belief.estimate(&keys[0]).seconds > 2e4);
    }
}
