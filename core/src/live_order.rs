//! An order of the waiting pods of a live cluster: groups of pods that are alike for it, and which group goes next.
//!
//! Each choice compares the oldest pods of the groups by their scores at that moment, so that it costs as much as there
//! are groups, not pods.

use std::cmp::Ordering;
use std::collections::HashMap;
use std::sync::Arc;

use crate::arrays::{Result, index};
use crate::belief::Estimate;
use crate::order::{Order, Waiting, by_priority_and_score};
use crate::run_times::{GroupKey, Lookup, PodKind, RunTimes};

/// What a host knows of a pod that begins to wait.
pub struct NewPod<'a> {
    pub priority: i64,
    /// What it requests, in the unit of the cluster's size.
    pub size: f64,
    /// Its score, where the order's are known when a pod arrives.
    pub given: f64,
    /// Its estimated seconds; not a number: they come from what ended.
    pub stated: f64,
    pub kind: PodKind<'a>,
}

/// Pods that are alike for an order. Numbers are compared by their bits.
#[derive(PartialEq, Eq, Hash)]
struct EqualPods {
    priority: i64,
    size: u64,
    given: u64,
    stated: u64,
    /// Whose run times say how long it runs, or whose use of the cluster counts.
    whose: Option<GroupKey>,
}

/// Equal pods, as a choice compares them.
struct Group {
    priority: i64,
    size: f64,
    given: f64,
    estimate: Estimate,
}

/// The pods of a group; without pods it is a free place.
struct Members {
    equal: Arc<EqualPods>,
    pods: usize,
    /// Their groups in the history; None: they do without.
    lookup: Option<Lookup>,
    /// The history has forgotten its owner, who may be known again.
    is_forgotten: bool,
    /// How many pods had ended when the estimate was computed.
    computed: u64,
}

/// The moment of a choice.
#[derive(Clone, Copy)]
pub struct Moment {
    pub now: f64,
    /// Size of the cluster, and its free share.
    pub capacity: f64,
    pub free: f64,
    /// Pods that wait.
    pub waiting: f64,
}

/// The oldest pod of a group.
#[repr(C)]
pub struct Head {
    pub group: i64,
    /// Since when it waits.
    pub since: f64,
    /// It decides ties of equally old pods, the lowest first.
    pub number: i64,
    /// It is written: the lowest goes first.
    pub score: f64,
}

pub struct LiveOrder {
    order: Order,
    /// Seconds after which a waiting pod goes before all others of its priority.
    ageing: f64,
    /// When arrivals count from.
    began: f64,
    groups: Vec<Group>,
    /// By group.
    members: Vec<Members>,
    numbers: HashMap<Arc<EqualPods>, usize>,
    free: Vec<usize>,
    /// That of the run times that estimates follow.
    version: u64,
}

impl LiveOrder {
    pub fn new(order: Order, ageing: f64, began: f64) -> Self {
        LiveOrder {
            order,
            ageing,
            began,
            groups: Vec::new(),
            members: Vec::new(),
            numbers: HashMap::new(),
            free: Vec::new(),
            version: 0,
        }
    }

    /// Count a pod in its group. Return the group's number, and whether the pod belongs to another one as soon as a pod of
    /// its owner has ended.
    pub fn join(&mut self, pod: &NewPod, run_times: &mut RunTimes) -> (usize, bool) {
        let uses_history = self.order.uses_estimates() && pod.stated.is_nan();
        let series = pod.kind.of_series();
        let kind = if uses_history && run_times.knows(&pod.kind) {
            pod.kind
        } else if series.owner != pod.kind.owner {
            series
        } else {
            pod.kind.of_any_owner()
        };
        let equal = self.equal_pods(pod, &kind);
        let number = match self.numbers.get(&equal) {
            Some(&number) => number,
            None => self.add(equal, pod, run_times),
        };
        self.members[number].pods += 1;
        (number, uses_history && kind.owner != pod.kind.owner)
    }

    fn equal_pods(&self, pod: &NewPod, kind: &PodKind) -> EqualPods {
        let bits = |value: f64| (value + 0.0).to_bits();
        let mut equal = EqualPods { priority: pod.priority, size: 0, given: 0, stated: 0, whose: None };
        match self.order {
            Order::Given | Order::External => (equal.size, equal.given) = (bits(pod.size), bits(pod.given)),
            Order::Fair => equal.whose = Some(PodKind { image: b"", stated: None, ..*kind }.all()),
            _ if pod.stated.is_nan() => (equal.size, equal.whose) = (bits(pod.size), Some(kind.all())),
            _ => (equal.size, equal.stated) = (bits(pod.size), bits(pod.stated)),
        }
        equal
    }

    fn add(&mut self, equal: EqualPods, pod: &NewPod, run_times: &mut RunTimes) -> usize {
        let stated = if self.order.uses_estimates() { pod.stated } else { f64::NAN };
        let mut group =
            Group { priority: pod.priority, size: pod.size, given: pod.given, estimate: Estimate::stated(stated) };
        let mut members = Members { equal: Arc::new(equal), pods: 0, lookup: None, is_forgotten: false, computed: 0 };
        if let (true, Some(kind)) = (self.order.uses_estimates(), members.kind()) {
            let found = run_times.look_up(&kind);
            (members.lookup, group.estimate) = (Some(found), run_times.estimate(&found.keys));
            members.computed = run_times.belief().ended;
        }
        let number = self.free.pop().unwrap_or(self.groups.len());
        self.numbers.insert(members.equal.clone(), number);
        if number == self.groups.len() {
            self.groups.push(group);
            self.members.push(members);
        } else {
            (self.groups[number], self.members[number]) = (group, members);
        }
        number
    }

    /// Count a pod of a group no more.
    pub fn leave(&mut self, number: i64) -> Result<()> {
        let number = self.number(number)?;
        let members = &mut self.members[number];
        if members.pods == 0 {
            return Err(format!("group: {number} has no pods"));
        }
        members.pods -= 1;
        if members.pods == 0 {
            members.lookup = None;
            self.numbers.remove(&members.equal);
            self.free.push(number);
        }
        Ok(())
    }

    fn number(&self, number: i64) -> Result<usize> {
        index("group", number, self.groups.len())
    }

    /// Compute the estimates again of what is like a pod that has ended.
    fn follow(&mut self, run_times: &mut RunTimes) {
        if self.version == run_times.version || !self.order.uses_estimates() {
            return;
        }
        self.version = run_times.version;
        for (group, members) in self.groups.iter_mut().zip(&mut self.members) {
            let Some(mut found) = members.lookup else { continue };
            if members.is_forgotten || run_times.is_outdated(&found) {
                if let Some(kind) = members.kind() {
                    found = run_times.look_up(&kind);
                    members.is_forgotten = !kind.owner.is_empty() && !run_times.knows(&kind);
                }
                members.lookup = Some(found);
            } else if !run_times.belief().has_changed(&found.keys, members.computed) {
                continue;
            }
            group.estimate = run_times.estimate(&found.keys);
            members.computed = run_times.belief().ended;
        }
    }

    /// Set scores that are known when a pod arrives.
    pub fn give(&mut self, numbers: &[i64], values: &[f64]) -> Result<()> {
        for (&number, &value) in numbers.iter().zip(values) {
            let number = self.number(number)?;
            self.groups[number].given = value;
        }
        Ok(())
    }

    /// The estimate of a group; not a number if the order does without.
    pub fn estimate(&mut self, number: i64, run_times: &mut RunTimes) -> Result<Estimate> {
        let number = self.number(number)?;
        self.follow(run_times);
        Ok(self.groups[number].estimate)
    }

    /// Return which of several groups goes next, and write their scores: by priority, score, age, and number.
    pub fn first(&mut self, heads: &mut [Head], moment: &Moment, run_times: &mut RunTimes) -> Result<usize> {
        self.follow(run_times);
        let (mut best, mut best_priority) = (0, i64::MIN);
        for i in 0..heads.len() {
            let group = &self.groups[self.number(heads[i].group)?];
            heads[i].score = self.score_of(group, heads[i].since, moment);
            let (head, other) = (&heads[i], &heads[best]);
            let order = by_priority_and_score((group.priority, head.score), (best_priority, other.score))
                .then_with(|| head.since.partial_cmp(&other.since).unwrap_or(Ordering::Equal))
                .then_with(|| head.number.cmp(&other.number));
            if order == Ordering::Less || i == 0 {
                (best, best_priority) = (i, group.priority);
            }
        }
        Ok(best)
    }

    fn score_of(&self, group: &Group, since: f64, moment: &Moment) -> f64 {
        let wait = (moment.now - since).max(0.0);
        if !self.order.uses_estimates() {
            return self.aged(group.given, wait);
        }
        self.score(&Waiting {
            run_time: group.estimate.mean.max(1.0),
            spread: group.estimate.spread,
            size: group.size,
            share: (group.size / moment.capacity).min(1.0),
            wait,
            arrived: since - self.began,
            free: moment.free,
            queue: moment.waiting,
            // No live scheduler knows it.
            delay: 0.0,
        })
    }

    /// The score of a pod; one that is not a number is infinite, so that the pod goes last.
    pub fn score(&self, pod: &Waiting) -> f64 {
        self.aged(self.order.score(pod), pod.wait)
    }

    fn aged(&self, score: f64, wait: f64) -> f64 {
        if wait > self.ageing {
            f64::NEG_INFINITY
        } else if score.is_nan() {
            f64::INFINITY
        } else {
            score
        }
    }
}

impl Members {
    /// Whose run times say how long they run, if anybody's.
    fn kind(&self) -> Option<PodKind<'_>> {
        match &self.equal.whose {
            Some(GroupKey {
                requests: Some(requests),
                owner: Some((namespace, owner)),
                image: Some(image),
                stated,
            }) => Some(PodKind { requests, namespace, owner, image, stated: *stated }),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const OWNERS: [&[u8]; 4] = [b"", b"Job/a", b"Job/b-29384720", b"Job/b-29384721"];

    fn pod(seed: usize) -> NewPod<'static> {
        NewPod {
            priority: (seed % 2) as i64,
            size: 1.0 + (seed % 3) as f64,
            given: 0.0,
            stated: if seed % 5 == 0 { 10.0 * (seed % 7) as f64 } else { f64::NAN },
            kind: PodKind {
                requests: b"{}",
                namespace: b"n",
                owner: OWNERS[seed % 4],
                image: if seed % 3 == 0 { b"i" } else { b"" },
                stated: (seed % 7 == 0).then_some(9),
            }
            .of_any_run(),
        }
    }

    proptest! {
        #[test]
        fn the_first_group_goes_before_all_others(
            kind in 0i64..6,
            seeds in prop::collection::vec(0usize..70, 1..20),
            ended in prop::collection::vec((0usize..70, 1.0..1e6), 0..10),
            ageing in prop::sample::select(vec![f64::INFINITY, 50.0]),
        ) {
            let mut run_times = RunTimes::new(8).expect("there is room");
            let mut order = LiveOrder::new(Order::read(kind, Vec::new()).expect("it is an order"), ageing, 0.0);
            let joined: Vec<usize> = seeds.iter().map(|&seed| order.join(&pod(seed), &mut run_times).0).collect();
            for (seed, seconds) in ended {
                run_times.note(&pod(seed).kind, seconds);
            }
            let head = |(i, &group): (usize, &usize)| {
                Head { group: group as i64, since: (7 * i % 100) as f64, number: -(i as i64), score: 0.0 }
            };
            let mut heads: Vec<Head> = joined.iter().enumerate().map(head).collect();
            let moment = Moment { now: 100.0, capacity: 10.0, free: 0.5, waiting: heads.len() as f64 };
            let first = order.first(&mut heads, &moment, &mut run_times).expect("all groups are known");
            for (i, other) in heads.iter().enumerate() {
                let rank = |i: usize| (-order.groups[joined[i]].priority, heads[i].score, heads[i].since, heads[i].number);
                prop_assert!(i == first || rank(first) < rank(i));
                prop_assert_eq!(other.score == f64::NEG_INFINITY, 100.0 - other.since > ageing);
            }
            for (&group, &seed) in joined.iter().zip(&seeds) {
                let equal = order.estimate(group as i64, &mut run_times).expect("it is known");
                if !order.order.uses_estimates() {
                    prop_assert!(equal.seconds.is_nan() || !pod(seed).stated.is_nan());
                } else if !pod(seed).stated.is_nan() {
                    prop_assert_eq!(equal.seconds, pod(seed).stated);
                }
            }
            joined.iter().for_each(|&group| order.leave(group as i64).expect("it has pods"));
            prop_assert!(order.numbers.is_empty());
            prop_assert_eq!(order.free.len(), order.groups.len());
            prop_assert!(order.leave(0).is_err());
        }
    }

    #[test]
    fn equal_pods_share_a_group_until_a_pod_of_their_owner_ends() {
        let mut run_times = RunTimes::new(100).expect("there is room");
        let mut order = LiveOrder::new(Order::Shortest, f64::INFINITY, 0.0);
        let of = |owner| NewPod { stated: f64::NAN, kind: PodKind { owner, ..pod(1).kind }, ..pod(1) };
        let (a, b) = (order.join(&of(b"Job/a"), &mut run_times), order.join(&of(b"Job/b"), &mut run_times));
        assert_eq!((a, b), ((0, true), (0, true)));
        assert!(run_times.note(&of(b"Job/a").kind, 60.0));
        assert_eq!(order.join(&of(b"Job/a"), &mut run_times), (1, false));
        assert_eq!(order.join(&of(b"Job/b"), &mut run_times), (0, true));
    }
}
