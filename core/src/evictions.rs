//! Evictions of what can resume: what a pod has done and lost, who may be evicted when, and whom it costs least.
//!
//! Source: Gu et al., "Tiresias: A GPU Cluster Manager for Distributed Deep Learning" (NSDI 2019), discretized
//! two-dimensional attained service with two queues: what has attained much service may be evicted for what has attained
//! little. Here the index is `seconds * size ^ EXPONENT`, so that pods of many GPUs are not all in the second queue soon.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

use crate::arrays::{Arrays, Result};

const HOUR: f64 = 3600.0;

/// When evictions are allowed, and what they cost.
#[derive(Clone, Debug)]
pub struct Rules {
    /// Attained service from which on a pod is in the second queue, in seconds of one unit of size.
    pub threshold: f64,
    /// Power of the size in the index.
    pub exponent: f64,
    /// Seconds that a pod runs between two evictions, at least.
    pub least_run: f64,
    /// Jobs that may be evicted in an hour.
    pub per_hour: usize,
    /// What evictions for a pod may cost at most, as a share of the service that it attains in the first queue.
    pub worth: f64,
    /// Seconds of waiting since its eviction after which a job is in the first queue again.
    pub most_wait: f64,
}

/// What an arrival has done and lost. `served = done + lost` but for a run that goes on.
#[derive(Clone, Debug, Default)]
pub struct Account {
    /// Seconds between checkpoints, 0: it saves its work when it is evicted; None: it is never evicted.
    pub interval: Option<f64>,
    /// Seconds that it needs before it goes on with its work.
    pub restart: f64,
    /// Seconds of work that are saved.
    pub done: f64,
    /// Seconds that it ran, before the run that goes on.
    pub served: f64,
    /// Of these, seconds of restarts and of work that was not saved.
    pub lost: f64,
    pub evictions: u32,
}

impl Account {
    /// Seconds of the next run, or of the one that goes on, which begin with a restart if there was one before.
    pub fn run_seconds(&self, duration: f64) -> f64 {
        if self.evictions == 0 { duration } else { self.restart + (duration - self.done) }
    }

    /// Seconds of work in a run of so many seconds, and those of it that would be saved by now.
    fn work(&self, ran: f64) -> (f64, f64) {
        let work = if self.evictions == 0 { ran } else { (ran - self.restart).max(0.0) };
        match self.interval {
            Some(interval) if interval > 0.0 => (work, ((work / interval).floor() * interval).min(work)),
            _ => (work, work),
        }
    }

    /// Seconds that an eviction now would cost: work that is not saved, and the restart.
    pub fn cost(&self, ran: f64) -> f64 {
        let (work, saved) = self.work(ran);
        work - saved + self.restart
    }

    /// End a run of so many seconds before its time.
    pub fn evict(&mut self, ran: f64) {
        let (_, saved) = self.work(ran);
        self.served += ran;
        self.done += saved;
        self.lost += ran - saved;
        self.evictions += 1;
    }

    /// End the last run, of so many seconds.
    pub fn finish(&mut self, ran: f64, duration: f64) {
        self.served += ran;
        self.done = duration;
        if self.evictions > 0 {
            self.lost += self.restart;
        }
    }
}

/// A moment at which a running job may be evicted from then on; the earliest first.
#[derive(Clone, Debug, PartialEq)]
struct Ready {
    time: f64,
    leader: usize,
    run: u32,
}

impl Eq for Ready {}

impl PartialOrd for Ready {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Ready {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.time.total_cmp(&other.time).then(self.leader.cmp(&other.leader)).then(self.run.cmp(&other.run))
    }
}

/// The evictions of a run.
#[derive(Clone)]
pub struct Evictions {
    pub rules: Rules,
    pub accounts: Vec<Account>,
    /// By arrival: the first pod of its gang, and how often that has started.
    pub leader: Vec<usize>,
    runs: Vec<u32>,
    is_running: Vec<bool>,
    coming: BinaryHeap<Reverse<Ready>>,
    /// When jobs that were evicted are in the first queue again.
    returning: BinaryHeap<Reverse<Ready>>,
    /// By node: the first pods of jobs there that may be evicted, each once.
    pub ready: Vec<Vec<usize>>,
    /// Nodes with such jobs, and where each is among them.
    pub nodes: Vec<usize>,
    place: Vec<usize>,
    /// By node: for how long one of its jobs is expected to run on, at most.
    pub longest: Vec<f64>,
    /// By node: what an eviction there costs, at least.
    pub cheapest: Vec<f64>,
    /// Nodes in the order of changes by which more may fit there after evictions than before.
    pub changed: Vec<usize>,
    /// Whether what an eviction costs changes with time.
    pub has_checkpoints: bool,
    /// When jobs were evicted in the last hour.
    recent: VecDeque<f64>,
}

impl Evictions {
    /// Read `evictions.*`; None: there is nothing that may be evicted.
    pub fn read(arrays: &Arrays, leader: Vec<usize>, nodes: usize) -> Result<Option<Self>> {
        if !arrays.has("evictions.settings") {
            return Ok(None);
        }
        let count = leader.len();
        let settings: Vec<f64> = arrays.list_of("evictions.settings", 6)?;
        let interval: Vec<f64> = arrays.list_of("evictions.interval", count)?;
        let restart: Vec<f64> = arrays.list_of("evictions.restart", count)?;
        if settings.iter().any(|value| value.is_nan() || *value < 0.0) || settings[2] <= 0.0 {
            return Err("evictions.settings: expected numbers of at least 0, and a least run above 0".to_owned());
        }
        if restart.iter().any(|seconds| !(0.0..f64::INFINITY).contains(seconds)) {
            return Err("evictions.restart: expected numbers of seconds of at least 0".to_owned());
        }
        let account = |(&interval, &restart): (&f64, &f64)| Account {
            interval: (interval >= 0.0).then_some(interval),
            restart,
            ..Account::default()
        };
        Ok(Some(Evictions {
            rules: Rules {
                threshold: settings[0],
                exponent: settings[1],
                least_run: settings[2],
                per_hour: settings[3] as usize,
                worth: settings[4],
                most_wait: settings[5],
            },
            accounts: interval.iter().zip(&restart).map(account).collect(),
            leader,
            runs: vec![0; count],
            is_running: vec![false; count],
            coming: BinaryHeap::new(),
            returning: BinaryHeap::new(),
            ready: vec![Vec::new(); nodes],
            nodes: Vec::new(),
            place: vec![0; nodes],
            longest: vec![0.0; nodes],
            cheapest: vec![0.0; nodes],
            changed: Vec::new(),
            has_checkpoints: interval.iter().any(|&interval| interval > 0.0),
            recent: VecDeque::new(),
        }))
    }

    /// Let the gang of an arrival never be evicted.
    pub fn forbid(&mut self, arrival: usize) {
        let leader = self.leader[arrival];
        self.accounts[leader].interval = None;
        self.is_running[leader] = false;
    }

    /// Seconds that a job of a size runs in the first queue.
    pub fn first_seconds(&self, size: f64) -> f64 {
        self.rules.threshold / libm::pow(size.max(1e-9), self.rules.exponent)
    }

    /// What evictions for a job of a size may cost.
    pub fn most_cost(&self, size: f64) -> f64 {
        self.rules.worth * size * self.first_seconds(size)
    }

    /// Let a job that starts be evicted once it has run for long enough: as long as it has waited, at least, so that
    /// what needs much room does not lose it soon.
    ///
    /// `estimated`: of its run. What outruns its estimate is expected to run for longer than just before.
    pub fn start(&mut self, leader: usize, size: f64, waited: f64, estimated: f64, time: f64) {
        let account = &self.accounts[leader];
        if account.interval.is_none() {
            return;
        }
        let left = self.first_seconds(size) - account.served;
        self.runs[leader] += 1;
        self.is_running[leader] = true;
        let (ready, run) = (time + left.max(self.rules.least_run).max(waited), self.runs[leader]);
        self.coming.push(Reverse(Ready { time: ready, leader, run }));
        if time + estimated > ready {
            self.coming.push(Reverse(Ready { time: time + estimated, leader, run }));
        }
    }

    /// Let a job be evicted no more, whose pods are on these nodes.
    pub fn stop(&mut self, leader: usize, nodes: impl Iterator<Item = usize>) {
        if !std::mem::take(&mut self.is_running[leader]) {
            return;
        }
        for n in nodes {
            let Some(k) = self.ready[n].iter().position(|&other| other == leader) else { continue };
            self.ready[n].swap_remove(k);
            if self.ready[n].is_empty() {
                let place = self.place[n];
                self.nodes.swap_remove(place);
                if let Some(&moved) = self.nodes.get(place) {
                    self.place[moved] = place;
                }
            }
        }
    }

    /// When the next job may be evicted, infinite: none will.
    pub fn next_ready(&mut self) -> f64 {
        while let Some(Reverse(next)) = self.coming.peek() {
            if self.is_running[next.leader] && self.runs[next.leader] == next.run {
                return next.time;
            }
            self.coming.pop();
        }
        f64::INFINITY
    }

    /// Let a job that is evicted be in the first queue again after some time; return when.
    pub fn return_at(&mut self, leader: usize, now: f64) -> f64 {
        let time = now + self.rules.most_wait;
        self.returning.push(Reverse(Ready { time, leader, run: self.runs[leader] }));
        time
    }

    /// When the next job that waits since its eviction is in the first queue again.
    pub fn next_return(&mut self) -> f64 {
        while let Some(Reverse(next)) = self.returning.peek() {
            if !self.is_running[next.leader] && self.runs[next.leader] == next.run {
                return next.time;
            }
            self.returning.pop();
        }
        f64::INFINITY
    }

    /// Forget returns up to now.
    pub fn pass_returns(&mut self, now: f64) {
        while self.next_return() <= now {
            self.returning.pop();
        }
    }

    /// The next job that may be evicted by now; its nodes are to be added by `add`.
    pub fn pop_ready(&mut self, now: f64) -> Option<usize> {
        if self.next_ready() > now {
            return None;
        }
        self.coming.pop().map(|Reverse(next)| next.leader)
    }

    /// Note that more may fit on a node after evictions than before.
    pub fn touch(&mut self, n: usize) {
        if !self.ready[n].is_empty() {
            self.changed.push(n);
        }
    }

    /// Let a job be evicted from a node, which is expected to run for `left` seconds.
    pub fn add(&mut self, leader: usize, size: f64, n: usize, left: f64) {
        let is_first = self.ready[n].is_empty();
        self.longest[n] = if is_first { left } else { self.longest[n].max(left) };
        let least = self.accounts[leader].restart * size;
        self.cheapest[n] = if is_first { least } else { self.cheapest[n].min(least) };
        self.changed.push(n);
        if self.ready[n].contains(&leader) {
            return;
        }
        if is_first {
            self.place[n] = self.nodes.len();
            self.nodes.push(n);
        }
        self.ready[n].push(leader);
    }

    /// How many jobs may still be evicted in this hour.
    pub fn left_in_hour(&mut self, now: f64) -> usize {
        while self.recent.front().is_some_and(|&time| time <= now - HOUR) {
            self.recent.pop_front();
        }
        self.rules.per_hour.saturating_sub(self.recent.len())
    }

    pub fn note_eviction(&mut self, now: f64) {
        self.recent.push_back(now);
    }
}

/// The first pods of gangs by arrival.
pub fn leaders(members: impl Iterator<Item = usize>) -> Vec<usize> {
    let mut leader = 0;
    let of = |(a, members): (usize, usize)| {
        if members > 0 {
            leader = a;
        }
        leader
    };
    members.enumerate().map(of).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn what_was_served_is_done_or_lost(
            interval in prop::option::of(0.0f64..500.0),
            restart in 0.0f64..300.0,
            duration in 1.0f64..10_000.0,
            shares in prop::collection::vec(0.0f64..1.0, 0..9),
        ) {
            let mut account = Account { interval, restart, ..Account::default() };
            for share in shares {
                let ran = share * account.run_seconds(duration);
                let (done, lost) = (account.done, account.lost);
                account.evict(ran);
                prop_assert!(account.done >= done && account.lost >= lost && account.done < duration);
                prop_assert!((account.served - account.done - account.lost).abs() < 1e-6);
            }
            let left = account.run_seconds(duration);
            account.finish(left, duration);
            prop_assert!((account.served - duration - account.lost).abs() < 1e-6);
            prop_assert!(account.lost >= f64::from(account.evictions.min(1)) * restart - 1e-9);
        }

        #[test]
        fn one_that_saves_its_work_loses_restarts_alone(restart in 0.0f64..300.0, runs in prop::collection::vec(0.0f64..900.0, 1..9)) {
            let mut account = Account { interval: Some(0.0), restart, ..Account::default() };
            let mut restarts = 0.0;
            for (k, ran) in runs.into_iter().enumerate() {
                account.evict(ran);
                restarts += if k > 0 { restart.min(ran) } else { 0.0 };
                prop_assert!((account.lost - restarts).abs() < 1e-6);
            }
        }
    }
}
