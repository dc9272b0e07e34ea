//! The waiting pods: groups of equal pods, the order of the groups, and estimates.
//!
//! Pods of a group are alike for every order and every node: of the same priority, class, size and estimate. Among them
//! the oldest goes first, so that an order costs as much as there are groups, not pods. Groups of the same shape (class
//! and size of a gang) are alike for every node: what fits nowhere is found once for all of them.

use std::cmp::Ordering;
use std::collections::VecDeque;

use crate::arrays::{Arrays, Result, index};
use crate::belief::{Belief, Estimate, Keys, LEVELS, NOTHING};
use crate::order::{Order, Waiting, by_priority_and_score};

/// Who may overtake a pod that fits nowhere.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Overtaking {
    Anybody,
    Nobody,
    /// With a reservation for it, those that end before it begins or leave room for it.
    Easy,
}

/// What the queue knows of a pod.
#[derive(Clone)]
pub struct QueuedPod {
    given: f64,
    /// What it requests, in the unit of the cluster's size.
    pub size: f64,
    /// What its gang requests.
    pub total: f64,
    account: usize,
    /// Shares of the cluster's GPUs, CPUs and memory, if the order asks for them.
    shares: [f64; 3],
    /// Estimated seconds when it was bound, where estimates matter.
    pub estimated: f64,
    /// When it arrived.
    pub time: f64,
    pub priority: i64,
    pub group: usize,
    /// Estimated seconds that were stated.
    stated: Option<f64>,
    /// Which of the kinds it is that are believed to run alike.
    kind: usize,
    evicted: Option<Evicted>,
}

/// Pods that are believed to run alike.
#[derive(Clone)]
struct Kind {
    keys: Keys,
    estimate: Option<Estimate>,
    /// How many pods had ended when that was computed.
    computed: u64,
}

/// What an evicted pod comes back with.
#[derive(Clone, Copy)]
pub struct Evicted {
    /// Seconds of work that are saved, and of the restart.
    pub done: f64,
    pub restart: f64,
    /// When it goes before others again as if it had never run.
    pub returns: f64,
}

/// Pods of the second queue have this added to their times in seconds.
const SECOND: f64 = 1e10;

/// Equal pods, the oldest first.
#[derive(Clone)]
pub struct Group {
    pub pods: VecDeque<usize>,
    pub shape: usize,
    /// Where it is among the active groups of its shape.
    place: usize,
    /// The pass in which it was last found to be a candidate.
    pub may_start: Option<u64>,
    pub score: f64,
}

/// The moment of a decision, as orders see it.
#[derive(Clone, Copy)]
pub struct Moment {
    pub now: f64,
    /// Free share of the cluster.
    pub free: f64,
    /// Pods that wait.
    pub waiting: i64,
}

/// When running pods are expected to end, ascending, and what will be free by then in the unit of the cluster's size.
pub type Releases = Vec<(f64, f64)>;

#[derive(Clone)]
pub struct Queue {
    pub order: Order,
    pub overtaking: Overtaking,
    uses_estimates: bool,
    /// Whether the order asks how long a pod would keep others waiting.
    pub foresees: bool,
    /// Seconds after which a waiting pod goes before all others of its priority.
    pub ageing: f64,
    /// Size of the cluster, in GPUs or in CPUs.
    pub capacity: f64,
    pub by_gpu: bool,
    pub pods: Vec<QueuedPod>,
    pub groups: Vec<Group>,
    /// By shape: groups with waiting pods.
    pub active: Vec<Vec<usize>>,
    /// Shapes with waiting pods, and where each is among them.
    pub shapes: Vec<usize>,
    shape_place: Vec<usize>,
    /// How many groups have waiting pods.
    pub waiting_groups: usize,
    /// By namespace: shares that its running pods request.
    usage: Vec<[f64; 3]>,
    /// What is believed of run times; without kinds nothing is learned.
    belief: Belief,
    kinds: Vec<Kind>,
    /// Whether a score was not a number.
    pub is_invalid: bool,
}

impl Queue {
    /// Read `queue.*`; nobody waits.
    pub fn read(arrays: &Arrays, pods: usize, shapes: usize) -> Result<Self> {
        let settings: Vec<i64> = arrays.list_of("queue.settings", 4)?;
        let limits: Vec<f64> = arrays.list_of("queue.limits", 3)?;
        let shape_of_group = arrays.indices("queue.shape", shapes)?;
        let belief = Belief::read(arrays)?;
        let kinds = read_kinds(arrays, belief.len())?;
        let empty = |&shape: &usize| Group { pods: VecDeque::new(), shape, place: 0, may_start: None, score: 0.0 };
        let queued = read_pods(arrays, pods, shape_of_group.len(), kinds.len())?;
        if settings[2] != 0 && kinds.is_empty() && queued.iter().any(|pod| pod.stated.is_none()) {
            return Err("queue.stated: expected a number of seconds of each pod, since there is no history".to_owned());
        }
        let accounts = queued.iter().map(|pod| pod.account + 1).max().unwrap_or(0);
        Ok(Queue {
            order: Order::read(settings[0], arrays.list("queue.weights")?)?,
            overtaking: match settings[1] {
                0 => Overtaking::Anybody,
                1 => Overtaking::Nobody,
                2 => Overtaking::Easy,
                other => return Err(format!("queue.settings, overtaking: {other} is not in 0..3")),
            },
            uses_estimates: settings[2] != 0,
            foresees: settings[3] != 0,
            ageing: limits[0],
            capacity: limits[1],
            by_gpu: limits[2] > 0.0,
            pods: queued,
            groups: shape_of_group.iter().map(empty).collect(),
            active: vec![Vec::new(); shapes],
            shapes: Vec::new(),
            shape_place: vec![0; shapes],
            waiting_groups: 0,
            usage: vec![[0.0; 3]; accounts],
            belief,
            kinds,
            is_invalid: false,
        })
    }

    pub fn order_is_external(&self) -> bool {
        matches!(self.order, Order::External)
    }

    /// The oldest pod of a group with waiting pods.
    pub fn first(&self, g: usize) -> usize {
        self.groups[g].pods[0]
    }

    /// Estimated seconds of a pod: as stated, else from the history.
    pub fn estimate(&mut self, a: usize) -> f64 {
        self.estimate_of(a).seconds
    }

    /// The estimate of a pod's run time, if it was stated or anything is learned.
    pub fn known_estimate(&self, a: usize) -> Option<Estimate> {
        let stated = self.pods[a].stated.map(Estimate::stated);
        stated.or_else(|| {
            let kind = self.kinds.get(self.pods[a].kind)?;
            kind.estimate.or_else(|| Some(self.belief.estimate(&kind.keys)))
        })
    }

    fn estimate_of(&mut self, a: usize) -> Estimate {
        let whole = match self.pods[a].stated {
            Some(seconds) => Estimate::stated(seconds),
            None => {
                let kind = &mut self.kinds[self.pods[a].kind];
                *kind.estimate.get_or_insert_with(|| self.belief.estimate(&kind.keys))
            }
        };
        match self.pods[a].evicted {
            None => whole,
            // One that has outrun its estimate is expected to run for as long again.
            Some(Evicted { done, restart, .. }) => {
                let left = |expected: f64| restart + if expected > done { expected - done } else { done };
                Estimate { seconds: left(whole.seconds), mean: left(whole.mean), ..whole }
            }
        }
    }

    /// Let a gang's first pod wait again, in a group of its own, since it differs from all others.
    pub fn push_evicted(&mut self, a: usize, evicted: Evicted) {
        if self.pods[a].evicted.is_none() {
            let shape = self.groups[self.pods[a].group].shape;
            self.pods[a].group = self.groups.len();
            self.groups.push(Group { pods: VecDeque::new(), shape, place: 0, may_start: None, score: 0.0 });
        }
        self.pods[a].evicted = Some(evicted);
        self.push(a);
    }

    /// Whether a pod is in the second queue: it was evicted, and has not waited for long since.
    pub fn is_second(&self, a: usize, now: f64) -> bool {
        self.pods[a].evicted.is_some_and(|evicted| now < evicted.returns)
    }

    /// Count a pod that was evicted no more.
    pub fn note_eviction(&mut self, a: usize) {
        self.use_shares(a, -1.0);
    }

    /// Count a pod that starts, of the gang whose first pod is `leader`.
    pub fn note_start(&mut self, a: usize, leader: usize) {
        self.use_shares(a, 1.0);
        if self.uses_estimates {
            self.pods[a].estimated = self.estimate(leader);
        }
    }

    /// Count a pod that ended after so many seconds, and learn from it if estimates come from the history.
    pub fn note_end(&mut self, a: usize, seconds: f64) {
        self.use_shares(a, -1.0);
        if let Some(kind) = self.kinds.get_mut(self.pods[a].kind) {
            self.belief.note(&kind.keys, seconds);
            if self.belief.is_stale(&kind.keys, kind.computed) {
                (kind.estimate, kind.computed) = (None, self.belief.ended);
            }
        }
    }

    fn use_shares(&mut self, a: usize, sign: f64) {
        let pod = &self.pods[a];
        for (usage, share) in self.usage[pod.account].iter_mut().zip(pod.shares) {
            *usage += sign * share;
        }
    }

    /// In how many seconds as much as a pod requests is expected to be free, wherever.
    fn delay(&self, a: usize, moment: Moment, releases: &Releases) -> f64 {
        let size = self.pods[a].total - 1e-9 * self.capacity;
        if releases.is_empty() || size <= moment.free * self.capacity {
            return 0.0;
        }
        let enough = releases.partition_point(|&(_, freed)| freed < size).min(releases.len() - 1);
        (releases[enough].0 - moment.now).max(0.0)
    }

    /// Set the score of a group's first pod. One that is not a number is noted, and goes last.
    pub fn update_score(&mut self, g: usize, moment: Moment, releases: &Releases) {
        let mut score = self.score(self.first(g), moment, releases);
        if score.is_nan() {
            (self.is_invalid, score) = (true, f64::INFINITY);
        }
        self.groups[g].score = score;
    }

    fn score(&mut self, a: usize, moment: Moment, releases: &Releases) -> f64 {
        let pod = &self.pods[a];
        let wait = moment.now - pod.time;
        if wait > self.ageing {
            return f64::NEG_INFINITY;
        }
        match self.order {
            // Where the host chooses, others overtake by age.
            Order::Given | Order::External => return pod.given,
            Order::Las => return pod.time + if self.is_second(a, moment.now) { SECOND } else { 0.0 },
            Order::Fair => return self.usage[pod.account].into_iter().fold(f64::NEG_INFINITY, f64::max),
            _ => {}
        }
        let Estimate { mean, spread, .. } = self.estimate_of(a);
        let pod = &self.pods[a];
        self.order.score(&Waiting {
            run_time: mean.max(1.0),
            spread,
            size: pod.total,
            share: (pod.total / self.capacity).min(1.0),
            wait,
            arrived: pod.time,
            free: moment.free,
            queue: moment.waiting as f64,
            delay: self.delay(a, moment, releases),
        })
    }

    /// Append a pod to its group.
    pub fn push(&mut self, a: usize) {
        let g = self.pods[a].group;
        let group = &mut self.groups[g];
        group.pods.push_back(a);
        if group.pods.len() > 1 {
            return;
        }
        let active = &mut self.active[group.shape];
        if active.is_empty() {
            self.shape_place[group.shape] = self.shapes.len();
            self.shapes.push(group.shape);
        }
        group.place = active.len();
        active.push(g);
        self.waiting_groups += 1;
    }

    /// Remove the first pod of a group.
    pub fn pop(&mut self, g: usize) {
        let group = &mut self.groups[g];
        group.pods.pop_front();
        if !group.pods.is_empty() {
            return;
        }
        self.waiting_groups -= 1;
        let (shape, place) = (group.shape, group.place);
        self.active[shape].swap_remove(place);
        if let Some(&moved) = self.active[shape].get(place) {
            self.groups[moved].place = place;
        }
        if self.active[shape].is_empty() {
            let place = self.shape_place[shape];
            self.shapes.swap_remove(place);
            if let Some(&moved) = self.shapes.get(place) {
                self.shape_place[moved] = place;
            }
        }
    }

    /// Whether the first pod of group `g` goes before that of group `h`: by priority, score and age.
    pub fn goes_before(&self, g: usize, h: usize) -> bool {
        let (a, b) = (self.first(g), self.first(h));
        let rank = |g: usize, a: usize| (self.pods[a].priority, self.groups[g].score);
        by_priority_and_score(rank(g, a), rank(h, b)).then(a.cmp(&b)) == Ordering::Less
    }

    /// Groups with waiting pods, in any order.
    pub fn waiting(&self) -> impl Iterator<Item = usize> + '_ {
        self.shapes.iter().flat_map(|&shape| self.active[shape].iter().copied())
    }

    /// The oldest pod's group of the highest priority of those that wait for longer than ageing allows.
    pub fn first_overdue(&self, now: f64) -> Option<usize> {
        let is_overdue = |g: &usize| now - self.pods[self.first(*g)].time > self.ageing;
        let key = |g: &usize| (std::cmp::Reverse(self.pods[self.first(*g)].priority), self.first(*g));
        self.waiting().filter(is_overdue).min_by_key(key)
    }
}

/// Read `queue.keys`, the groups of each kind of pods, of which the first one is `NOTHING`.
fn read_kinds(arrays: &Arrays, groups: usize) -> Result<Vec<Kind>> {
    let rows: Vec<Vec<i64>> = arrays.rows("queue.keys", LEVELS)?;
    let kind = |row: Vec<i64>| {
        let mut keys = [NOTHING; LEVELS];
        for (key, value) in keys.iter_mut().zip(row) {
            *key = index("queue.keys", value, groups)?;
        }
        Ok(Kind { keys, estimate: None, computed: 0 })
    };
    rows.into_iter().map(kind).collect()
}

fn read_pods(arrays: &Arrays, count: usize, groups: usize, kinds: usize) -> Result<Vec<QueuedPod>> {
    let given: Vec<f64> = arrays.list_of("queue.given", count)?;
    let size: Vec<f64> = arrays.list_of("queue.size", count)?;
    let total: Vec<f64> = arrays.list_of("queue.total", count)?;
    let time: Vec<f64> = arrays.list_of("queue.time", count)?;
    let priority: Vec<i64> = arrays.list_of("queue.priority", count)?;
    let stated: Vec<f64> = arrays.list_of("queue.stated", count)?;
    let account = arrays.indices("queue.account", 1 << 31)?;
    let group = arrays.indices("queue.group", groups.max(1))?;
    let shares: Vec<Vec<f64>> = arrays.rows("queue.shares", 3)?;
    let kind = if kinds > 0 { arrays.indices("queue.kind", kinds)? } else { vec![0; count] };
    if account.len() != count
        || group.len() != count
        || kind.len() != count
        || !(shares.is_empty() || shares.len() == count)
    {
        return Err(format!("queue.account, queue.group, queue.kind, queue.shares: expected {count} values"));
    }
    let mut pods = Vec::with_capacity(count);
    for a in 0..count {
        pods.push(QueuedPod {
            given: given[a],
            size: size[a],
            total: total[a],
            account: account[a],
            shares: shares.get(a).map_or([0.0; 3], |row| [row[0], row[1], row[2]]),
            estimated: f64::NAN,
            time: time[a],
            priority: priority[a],
            group: group[a],
            stated: (!stated[a].is_nan()).then_some(stated[a]),
            kind: kind[a],
            evicted: None,
        });
    }
    Ok(pods)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::heap::{heapify, pop};
    use proptest::prelude::*;

    /// A queue of pods in groups, each in one of three shapes.
    fn queue(pods: usize, groups: usize) -> Queue {
        let pod = |a: usize| QueuedPod {
            given: 0.0,
            size: 1.0,
            total: 1.0,
            account: 0,
            shares: [0.0; 3],
            estimated: f64::NAN,
            time: a as f64,
            priority: (a % groups % 2) as i64,
            group: a % groups,
            stated: None,
            kind: 0,
            evicted: None,
        };
        let group =
            |g: usize| Group { pods: VecDeque::new(), shape: g % 3, place: 0, may_start: None, score: (g % 4) as f64 };
        Queue {
            order: Order::Given,
            overtaking: Overtaking::Anybody,
            uses_estimates: false,
            foresees: false,
            ageing: f64::INFINITY,
            capacity: 1.0,
            by_gpu: true,
            pods: (0..pods).map(pod).collect(),
            groups: (0..groups).map(group).collect(),
            active: vec![Vec::new(); 3],
            shapes: Vec::new(),
            shape_place: vec![0; 3],
            waiting_groups: 0,
            usage: vec![[0.0; 3]],
            belief: Belief::default(),
            kinds: Vec::new(),
            is_invalid: false,
        }
    }

    proptest! {
        #[test]
        fn groups_with_waiting_pods_are_active_once(groups in 1usize..9, steps in prop::collection::vec(0usize..9, 1..60)) {
            let mut queue = queue(steps.len(), groups);
            for (a, &step) in steps.iter().enumerate() {
                queue.push(a);
                let g = step % groups;
                if !queue.groups[g].pods.is_empty() && step > 3 {
                    let oldest = *queue.groups[g].pods.iter().min().expect("there is one");
                    prop_assert_eq!(queue.first(g), oldest);
                    queue.pop(g);
                }
                let mut waiting: Vec<usize> = queue.waiting().collect();
                waiting.sort_unstable();
                let expected: Vec<usize> = (0..groups).filter(|&g| !queue.groups[g].pods.is_empty()).collect();
                prop_assert_eq!(queue.waiting_groups, expected.len());
                prop_assert_eq!(waiting, expected);
                prop_assert!(queue.shapes.iter().all(|&shape| !queue.active[shape].is_empty()));
            }
        }

        #[test]
        fn a_heap_gives_the_next_group_first(groups in 1usize..30) {
            let mut queue = queue(groups, groups);
            (0..groups).for_each(|a| queue.push(a));
            let mut heap: Vec<usize> = (0..groups).collect();
            heapify(&mut heap, |g, h| queue.goes_before(g, h));
            let mut popped = Vec::new();
            while !heap.is_empty() {
                popped.push(pop(&mut heap, |g, h| queue.goes_before(g, h)));
            }
            prop_assert!(popped.windows(2).all(|pair| queue.goes_before(pair[0], pair[1])));
        }
    }
}
