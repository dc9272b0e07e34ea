//! Estimates of run times from what ended before, with their spread, updated as pods end.
//!
//! Run times of like pods are a histogram over logarithmic bins, at four levels: all pods, those of the same requests,
//! those of the same owner, and those of both. Each level is smoothed by the one above it, as if that had added
//! `PRIOR_PODS` pods:
//!
//! ```text
//! p[level] = (counts[level] + PRIOR_PODS * p[level - 1]) / (pods[level] + PRIOR_PODS)
//! ```
//!
//! Source: MacKay and Peto, "A Hierarchical Dirichlet Language Model" (1995), with a fixed strength.

use crate::arrays::{Arrays, Result};

pub const LEVELS: usize = 4;
const BINS_PER_OCTAVE: f64 = 2.0;
/// From 1 s to 2^24 s, 194 days.
pub const BINS: usize = 48;
const PRIOR_PODS: f64 = 4.0;
/// Bins that are equally likely while nothing has ended: from 16 s to 12 days, with a median of 68 minutes.
const FIRST_PRIOR: std::ops::Range<usize> = 8..40;

/// Groups of pods whose run times are told apart, one a level; the last one has the estimate.
pub type Keys = [usize; LEVELS];

/// The median of a histogram in seconds, and the logarithm of its 90th percentile over the median.
#[derive(Clone, Copy)]
pub struct Estimate {
    pub median: f64,
    pub spread: f64,
}

#[derive(Clone)]
struct Group {
    counts: [f64; BINS],
    ended: f64,
    estimate: Option<Estimate>,
}

const EMPTY: Group = Group { counts: [0.0; BINS], ended: 0.0, estimate: None };

/// What is known of run times; without groups nothing is learned.
#[derive(Clone, Default)]
pub struct History {
    groups: Vec<Group>,
}

impl History {
    /// Read `queue.history`, pods that ended before by group and bin; no groups: nothing is learned.
    pub fn read(arrays: &Arrays) -> Result<Self> {
        let rows: Vec<Vec<f64>> = arrays.rows("queue.history", BINS)?;
        let group = |row: Vec<f64>| {
            let counts: [f64; BINS] = row.try_into().expect("the number of columns was checked");
            Group { ended: counts.iter().sum(), counts, estimate: None }
        };
        Ok(History { groups: rows.into_iter().map(group).collect() })
    }

    pub fn len(&self) -> usize {
        self.groups.len()
    }

    /// The estimate of a group, if it was computed before.
    pub fn known(&self, keys: &Keys) -> Option<Estimate> {
        self.groups.get(keys[LEVELS - 1])?.estimate
    }

    /// The estimate of a group as it was computed last.
    pub fn estimate(&mut self, keys: &Keys) -> Estimate {
        match self.groups[keys[LEVELS - 1]].estimate {
            Some(estimate) => estimate,
            None => self.update(keys),
        }
    }

    /// Count a pod that ended after so many seconds, and update the estimate of its group.
    pub fn note(&mut self, keys: &Keys, seconds: f64) {
        for &key in keys {
            self.count(key, bin(seconds), 1.0);
        }
        self.update(keys);
    }

    /// Count pods of one group alone that ended.
    pub fn count(&mut self, key: usize, bin: usize, pods: f64) {
        self.groups[key].counts[bin] += pods;
        self.groups[key].ended += pods;
    }

    /// Return the number of a new group.
    pub fn add(&mut self) -> usize {
        self.groups.push(EMPTY);
        self.groups.len() - 1
    }

    pub fn clear(&mut self, key: usize) {
        self.groups[key] = EMPTY;
    }

    /// The pods of a group that ended, by run time.
    pub fn counts(&self, key: usize) -> &[f64; BINS] {
        &self.groups[key].counts
    }

    pub fn ended(&self, key: usize) -> f64 {
        self.groups[key].ended
    }

    fn update(&mut self, keys: &Keys) -> Estimate {
        let estimate = self.smoothed(keys);
        self.groups[keys[LEVELS - 1]].estimate = Some(estimate);
        estimate
    }

    /// The estimate of a group from all levels, now.
    pub fn smoothed(&self, keys: &Keys) -> Estimate {
        let mut p = [0.0; BINS];
        for k in FIRST_PRIOR {
            p[k] = 1.0 / FIRST_PRIOR.len() as f64;
        }
        for &key in keys {
            let Group { counts, ended, .. } = &self.groups[key];
            for (p, count) in p.iter_mut().zip(counts) {
                *p = (count + PRIOR_PODS * *p) / (ended + PRIOR_PODS);
            }
        }
        let median = quantile(&p, 0.5);
        Estimate { median, spread: libm::log(quantile(&p, 0.9) / median) }
    }
}

/// The bin of a run time in seconds.
pub fn bin(seconds: f64) -> usize {
    ((BINS_PER_OCTAVE * libm::log2(seconds.max(1.0))) as usize).min(BINS - 1)
}

/// A quantile in seconds of a histogram with sum 1, interpolated geometrically within a bin.
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
