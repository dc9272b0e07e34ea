//! What a scheduler knows of nodes by their metrics: exact requests, measured use, and estimates from both.
//!
//! A metric is older than the pods that came since, and many pods of a Deployment come at once. So measurements are
//! corrected by what is known exactly, requests bound and freed since then: what came uses as much of its requests as the
//! cluster does, what left took its part of what its node used. Missing metrics are NaN and never taken as a value.

use crate::arrays::{Arrays, Result, optional};
use crate::cluster::{CPU, Class, Node, PODS};

/// CPU used over CPU requested, as long as nothing is measured.
pub const USE_PRIOR: f64 = 0.6;
/// What that is worth beside measurements: requests of this share of the CPU. Where little is requested, most of what is
/// used is the nodes' own.
const PRIOR_SHARE: f64 = 0.05;
const LEAST_USE: f64 = 0.1;
const MOST_USE: f64 = 2.0;

/// Share of a node's CPU, or of its link, above which queues grow fast.
pub const QUEUEING_KNEE: f64 = 0.8;
/// A latency counts as within a limit if 1.1 times it is: it was measured with an error, without the pod.
pub const MARGIN: f64 = 1.1;
/// Error of a share of use by how long users wait: the latency's own, of both nodes that are compared.
const QUEUE_ERROR: f64 = 0.15;

/// Risks: none; no latency of the whole zone is measured; the node is too far even when idle.
pub const SAFE: f64 = 0.0;
const UNKNOWN: f64 = 50.0;
const BEYOND: f64 = 100.0;

/// The larger number, the first one if the second is NaN, as in Python.
pub fn larger(a: f64, b: f64) -> f64 {
    if b > a { b } else { a }
}

/// The smaller number, the first one if the second is NaN, as in Python.
pub fn smaller(a: f64, b: f64) -> f64 {
    if b < a { b } else { a }
}

const MOST_ZONES: usize = 1 << 20;

/// Metrics before the latencies, in the order of `steersman.cluster.model.METRICS`.
pub const METRICS: usize = 6;

/// Measured values of a node, NaN where one is missing.
#[derive(Clone, Debug)]
pub struct Measured {
    /// Percent of the allocatable CPU.
    pub cpu_used: f64,
    /// Bytes.
    pub memory_available: f64,
    /// Percent.
    pub filesystem_used: f64,
    /// Bytes per second.
    pub network_received: f64,
    pub connections: f64,
    pub running_pods: f64,
    /// Milliseconds, by group of users.
    pub latencies: Vec<f64>,
}

impl Measured {
    pub fn missing(users: usize) -> Self {
        Measured::of(&vec![f64::NAN; METRICS + users])
    }

    /// Of values in the order of the metrics, latencies last.
    fn of(values: &[f64]) -> Self {
        Measured {
            cpu_used: values[0],
            memory_available: values[1],
            filesystem_used: values[2],
            network_received: values[3],
            connections: values[4],
            running_pods: values[5],
            latencies: values[METRICS..].to_vec(),
        }
    }

    /// A metric by its place, latencies last.
    pub fn at(&mut self, column: usize) -> &mut f64 {
        match column {
            0 => &mut self.cpu_used,
            1 => &mut self.memory_available,
            2 => &mut self.filesystem_used,
            3 => &mut self.network_received,
            4 => &mut self.connections,
            5 => &mut self.running_pods,
            user => &mut self.latencies[user - METRICS],
        }
    }
}

/// What is known of a node.
#[derive(Clone)]
pub struct KnownNode {
    pub node: Node,
    pub zone: usize,
    pub measured: Measured,
    /// Seconds since the last sample of CPU, and of the latency to the first group of users, also where it is missing by
    /// now; at most 300, and 300 if there never was a sample.
    pub cpu_age: f64,
    pub latency_age: f64,
    /// Milli-CPU requested now minus the mean request in the window of the CPU metric.
    pub requested_since: f64,
    /// Pods that run now minus those that ran when the connections were counted.
    pub pods_since: f64,
    /// Pods of the Deployment of the pod to place.
    pub siblings: i64,
}

/// What is known of a pod.
#[derive(Clone)]
pub struct KnownPod {
    pub class: Class,
    /// Whose latency counts: in an environment the zone of its users, live their group, 0 for all; None: it has none.
    pub user: Option<usize>,
    /// Limits of the latency to its users in milliseconds, infinite: none.
    pub soft: f64,
    pub hard: f64,
    /// Its index in its Deployment, and how many pods that has.
    pub index: i64,
    pub replicas: i64,
}

/// Assumptions where nothing is measured.
#[derive(Clone)]
pub struct Assumed {
    /// Milliseconds in which an idle node serves a request.
    pub service: f64,
    /// Bytes per second of a node's link.
    pub link: f64,
    /// The most of it that one pod takes.
    pub pod_link: f64,
}

/// What a scheduler may know: exact requests and measured use.
#[derive(Clone)]
pub struct SchedulerView {
    pub nodes: Vec<KnownNode>,
    pub zones: usize,
    pub assumed: Assumed,
}

/// Averages of the cluster's metrics, over nodes whose metrics exist.
pub struct Rates {
    /// CPU used over CPU requested, near `USE_PRIOR` where little is requested.
    pub cpu_use: f64,
    /// Established TCP connections for each pod.
    pub connections: f64,
    /// Mean of the nodes' estimated current shares of CPU used, and of its square; NaN: none is known.
    pub cpu_mean: f64,
    pub cpu_square: f64,
    /// Mean of the nodes' estimated current connections, NaN: none is known; and their maximum.
    pub connections_mean: f64,
    pub connections_most: f64,
}

impl KnownNode {
    pub fn cpu(&self) -> i64 {
        self.node.allocatable[CPU]
    }

    pub fn requested(&self, resource: usize) -> i64 {
        self.node.allocatable[resource] - self.node.free[resource]
    }

    pub fn pods(&self) -> i64 {
        self.requested(PODS)
    }

    fn cpu_share(&self, cpu_use: f64, extra: i64) -> f64 {
        let since = self.requested_since;
        // What left took its share of the use with it; what came uses `cpu_use` of its requests.
        let left = after_departures(self.measured.cpu_used / 100.0, self.requested(CPU) as f64, since);
        left + cpu_use * (larger(since, 0.0) + extra as f64) / self.cpu() as f64
    }

    /// The estimated current share of CPU in use; NaN: the metric is missing.
    pub fn cpu_now(&self, rates: &Rates) -> f64 {
        self.cpu_share(rates.cpu_use, 0)
    }

    pub fn cpu_after(&self, pod: &KnownPod, rates: &Rates) -> f64 {
        self.cpu_share(rates.cpu_use, pod.class.request[CPU])
    }

    /// The share of CPU in use if the pod, and all that came lately, used `MOST_USE` of their requests.
    fn cpu_worst(&self, pod: &KnownPod) -> f64 {
        let since = larger(self.requested_since, 0.0);
        self.measured.cpu_used / 100.0 + MOST_USE * (since + pod.class.request[CPU] as f64) / self.cpu() as f64
    }

    fn count_connections(&self, each: f64, extra: f64) -> f64 {
        let left = after_departures(self.measured.connections, self.pods() as f64, self.pods_since);
        left + each * (larger(self.pods_since, 0.0) + extra)
    }

    /// The estimated current connections; NaN: the metric is missing.
    pub fn connections_now(&self, rates: &Rates) -> f64 {
        self.count_connections(rates.connections, 0.0)
    }

    pub fn connections_after(&self, rates: &Rates) -> f64 {
        self.count_connections(rates.connections, 1.0)
    }

    /// The measured milliseconds to the users of a pod; NaN: missing, or it has none.
    pub fn latency_to_users(&self, pod: &KnownPod) -> f64 {
        pod.user.map_or(f64::NAN, |user| self.measured.latencies[user])
    }
}

/// What is left of a measured use if `now` is what is there, and it changed by `since` meanwhile.
fn after_departures(measured: f64, now: f64, since: f64) -> f64 {
    // since < 0: now - since pods or requests were there, of which `now` are left.
    if since < 0.0 { measured * now / (now - since) } else { measured }
}

impl SchedulerView {
    pub fn rates(&self) -> Rates {
        let (mut used, mut requested, mut allocatable, mut connections, mut pods) = (0.0, 0.0, 0.0, 0.0, 0.0);
        for node in &self.nodes {
            let cpu = node.measured.cpu_used;
            if !cpu.is_nan() {
                used += cpu / 100.0 * node.cpu() as f64;
                requested += node.requested(CPU) as f64 - node.requested_since;
                allocatable += node.cpu() as f64;
            }
            if !node.measured.connections.is_nan() {
                connections += node.measured.connections;
                pods += node.pods() as f64 - node.pods_since;
            }
        }
        // The prior weighs as much as requests of PRIOR_SHARE of the CPU.
        let worth = PRIOR_SHARE * allocatable;
        let cpu_use = if allocatable > 0.0 { (used + USE_PRIOR * worth) / (requested + worth) } else { USE_PRIOR };
        let cpu_use = smaller(larger(cpu_use, LEAST_USE), MOST_USE);
        let each = if pods > 0.0 { connections / pods } else { 0.0 };
        let (mut total, mut squares, mut averages) = (0.0, 0.0, 0.0);
        let (mut sum, mut most, mut counted) = (0.0, 0.0, 0.0);
        // A second pass, since estimates of nodes need the cluster's use.
        for node in &self.nodes {
            let share = node.cpu_share(cpu_use, 0);
            if !share.is_nan() {
                total += share;
                squares += share * share;
                averages += 1.0;
            }
            let count = node.count_connections(each, 0.0);
            if !count.is_nan() {
                sum += count;
                most = larger(most, count);
                counted += 1.0;
            }
        }
        let mean = |total: f64, count: f64| if count > 0.0 { total / count } else { f64::NAN };
        Rates {
            cpu_use,
            connections: each,
            cpu_mean: mean(total, averages),
            cpu_square: mean(squares, averages),
            connections_mean: mean(sum, counted),
            connections_most: most,
        }
    }

    /// The larger of the measured shares of CPU and link that a node uses; NaN: one of them is missing.
    fn measured_use(&self, node: &KnownNode) -> f64 {
        let cpu = node.measured.cpu_used / 100.0;
        let network = node.measured.network_received / self.assumed.link;
        if cpu.is_nan() || network.is_nan() { f64::NAN } else { larger(cpu, network) }
    }

    /// The latency of each zone's nearest node, without its queue, for a pod; NaN: not measured.
    ///
    /// It is as exact as can be told: beyond `QUEUEING_KNEE` the queue changes much between two samples.
    pub fn nearest(&self, pod: &KnownPod) -> Vec<f64> {
        let service = self.assumed.service;
        let mut nearest = vec![f64::NAN; self.zones];
        for node in &self.nodes {
            let cpu_use = self.measured_use(node);
            let queue = if cpu_use < QUEUEING_KNEE { service / (1.0 - cpu_use) } else { service };
            let idle = node.latency_to_users(pod) - queue;
            // A missing latency (NaN) replaces nothing but another NaN.
            let zone = &mut nearest[node.zone];
            if zone.is_nan() || idle < *zone {
                *zone = idle;
            }
        }
        nearest
    }

    /// The risk that a node breaks the hard limit of a pod, which has one; lower is better. `nearest`: see there.
    ///
    /// A node d ms from the users, in use by a share r, answers after d + s / (1 - r) ms, the time in an M/M/1 queue, with
    /// s the time of service on an idle node. So it keeps a limit h up to r = 1 - s / (h - d). `SAFE` if it does in the
    /// worst case, with a margin. Else 1 + how much its likely use is above that: halfway from the measured use to the
    /// worst, or all that is requested if use is not measured. Traffic is averaged over minutes, and pods of a Deployment
    /// come together: those of the same one, or all that came since the node was sampled, count as not yet measured. What
    /// users wait longer than the node's CPU explains is its link's use at the moment of the sample (`link_by_queue`).
    pub fn hard_limit_risk(&self, node: &KnownNode, pod: &KnownPod, nearest: &[f64]) -> f64 {
        let Assumed { service, link, pod_link } = self.assumed;
        let distance = nearest[node.zone];
        if distance.is_nan() {
            return UNKNOWN;
        }
        let (hard, distance) = (pod.hard, larger(distance, 0.0));
        let (latency, now) = (node.latency_to_users(pod), self.measured_use(node));
        // Too far even when idle: 1 - s / (h - d) would not be above 0.
        if distance + service >= hard {
            return BEYOND + (if latency.is_nan() { distance } else { latency }) / hard;
        }
        // r = 1 - s / (h - d), the highest use that keeps the limit.
        let most = 1.0 - service / (hard - distance);
        if now.is_nan() {
            let cpu = (node.requested(CPU) + pod.class.request[CPU]) as f64;
            // At least 0.1, so that it is never SAFE.
            return 1.0 + larger(cpu / node.cpu() as f64 - most, -0.9);
        }
        let unseen = larger(larger(node.pods_since, node.siblings as f64), 0.0);
        let by_queue = self.link_by_queue(node, pod, distance);
        let since = larger(node.pods_since, 0.0);
        let measured = node.measured.network_received / link;
        let network = larger(measured + pod_link * (unseen + 1.0), by_queue + pod_link * (since + 1.0));
        let (worst, now) = (larger(node.cpu_worst(pod), network), larger(now, by_queue));
        // Not where the latency is NaN.
        if worst <= smaller(most, QUEUEING_KNEE) && latency * MARGIN <= hard {
            return SAFE;
        }
        1.0 + larger(0.5 * (now + worst) - most, -0.9)
    }

    /// The share of a node's link in use, by how long its users wait; 0 where CPU in use explains it.
    ///
    /// Traffic averaged over minutes is far too low while pods come; a latency is that of the sample's moment.
    fn link_by_queue(&self, node: &KnownNode, pod: &KnownPod, distance: f64) -> f64 {
        let queue = node.latency_to_users(pod) - distance;
        if queue.is_nan() || queue <= self.assumed.service {
            return 0.0;
        }
        // r from s / (1 - r) = queue.
        let share = 1.0 - self.assumed.service / queue;
        if share > node.measured.cpu_used / 100.0 + QUEUE_ERROR { share } else { 0.0 }
    }
}

/// What became of a pod's hard limit, from the best to the worst.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum LimitOutcome {
    NoLimit,
    /// Nodes are left that keep it whatever comes.
    KeptSafely,
    /// Nodes are left that keep it now.
    Kept,
    /// No feasible node does.
    NotKept,
    /// No latency of a feasible node is known.
    NotMeasured,
}

/// Hard latency limits as a filter: if any node can keep a pod's limit, the others are excluded.
///
/// It narrows the mask of the nodes that a pod fits on, as a Filter plugin does before scores. A latency is measured late,
/// with errors, and before the pod is there; so a node counts as able to keep a limit if it would even with a margin and
/// with a pod that uses twice its request.
impl SchedulerView {
    fn risks(&self, pod: &KnownPod, mask: &[i8]) -> Vec<Option<f64>> {
        let nearest = self.nearest(pod);
        let risk = |(node, mask): (&KnownNode, &i8)| (*mask != 0).then(|| self.hard_limit_risk(node, pod, &nearest));
        self.nodes.iter().zip(mask).map(risk).collect()
    }

    /// Narrow the mask of a simulated cluster for a pod with users: it keeps the nodes that are safe, or if there are none
    /// those of the least risk, so that it is always placed where it fits.
    pub fn keep_least_risk(&self, pod: &KnownPod, mask: &mut [i8]) {
        let risks = self.risks(pod, mask);
        let least = risks.iter().flatten().copied().fold(f64::INFINITY, smaller);
        for (mask, risk) in mask.iter_mut().zip(risks) {
            if risk.is_some_and(|risk| risk > least) {
                *mask = 0;
            }
        }
    }

    /// Narrow the mask of a live cluster, where a latency may be missing everywhere and for good.
    ///
    /// It leaves the nodes that are safe; if there are none, of those whose latency, or their zone's if it is not measured,
    /// is within the hard limit those of the least risk; if there are none of these either, all. So the policy's choice
    /// stays as large as the limit allows.
    pub fn keep_hard_limit(&self, pod: &KnownPod, mask: &mut [i8]) -> LimitOutcome {
        if pod.user.is_none() || pod.hard.is_infinite() {
            return LimitOutcome::NoLimit;
        }
        let risks = self.risks(pod, mask);
        let outcome = |node: &KnownNode, risk: f64| {
            let latency = node.latency_to_users(pod);
            if risk == SAFE {
                LimitOutcome::KeptSafely
            } else if latency.is_nan() {
                // As far away as its zone.
                if risk < UNKNOWN { LimitOutcome::Kept } else { LimitOutcome::NotMeasured }
            } else if latency <= pod.hard {
                LimitOutcome::Kept
            } else {
                LimitOutcome::NotKept
            }
        };
        let judged = |(node, risk): (&KnownNode, Option<f64>)| risk.map(|risk| (outcome(node, risk), risk));
        let judged: Vec<Option<(LimitOutcome, f64)>> = self.nodes.iter().zip(risks).map(judged).collect();
        let best = judged.iter().flatten().map(|(outcome, _)| *outcome).min().unwrap_or(LimitOutcome::NotMeasured);
        // The others leave all nodes.
        if best > LimitOutcome::Kept {
            return best;
        }
        let kept = judged.iter().flatten().filter(|(outcome, _)| *outcome == LimitOutcome::Kept);
        let least = kept.map(|(_, risk)| *risk).fold(f64::INFINITY, smaller);
        for (mask, judged) in mask.iter_mut().zip(judged) {
            if judged.is_some_and(|(outcome, risk)| outcome > best || (best == LimitOutcome::Kept && risk > least)) {
                *mask = 0;
            }
        }
        best
    }
}

/// What a live cluster is described by: its nodes as a scheduler knows them, a pod, and where it may run.
pub struct Question {
    pub view: SchedulerView,
    pub pod: KnownPod,
    pub mask: Vec<i8>,
}

impl Question {
    /// Read `view.*`, `pod.*` and `mask`; a node without capacity is not there.
    pub fn read(arrays: &Arrays) -> Result<Self> {
        let resources = arrays.columns::<i64>("view.allocatable")?;
        if resources <= PODS {
            return Err(format!("view.allocatable: expected at least 3 columns, has {resources}"));
        }
        let zones = arrays.indices("view.zone", MOST_ZONES)?;
        let count = zones.len();
        let allocatable: Vec<i64> = arrays.table("view.allocatable", count, resources)?;
        let free: Vec<i64> = arrays.table("view.free", count, resources)?;
        let nonzero: Vec<i64> = arrays.table("view.nonzero", count, 2)?;
        let columns = arrays.columns::<f64>("view.measured")?;
        if columns <= METRICS {
            return Err(format!("view.measured: expected at least {} columns, has {columns}", METRICS + 1));
        }
        let measured: Vec<f64> = arrays.table("view.measured", count, columns)?;
        let ages: Vec<f64> = arrays.table("view.age", count, columns)?;
        let since: Vec<f64> = arrays.table("view.since", count, 2)?;
        let siblings: Vec<i64> = arrays.list_of("view.siblings", count)?;
        let assumed: Vec<f64> = arrays.list_of("view.assumed", 3)?;
        let mut nodes = Vec::with_capacity(count);
        for (n, &zone) in zones.iter().enumerate() {
            let of = |amounts: &[i64]| amounts[n * resources..][..resources].to_vec();
            let (allocatable, free, nonzero) = (of(&allocatable), of(&free), [nonzero[2 * n], nonzero[2 * n + 1]]);
            nodes.push(KnownNode {
                node: Node { allocatable, free, nonzero, gpus: vec![], gpu_type: 0, gpu_kinds: vec![] },
                zone,
                measured: Measured::of(&measured[n * columns..][..columns]),
                cpu_age: ages[n * columns],
                latency_age: ages[n * columns + METRICS],
                requested_since: since[2 * n],
                pods_since: since[2 * n + 1],
                siblings: siblings[n],
            });
        }
        let request: Vec<i64> = arrays.list_of("pod.request", resources)?;
        let nonzero: Vec<i64> = arrays.list_of("pod.nonzero", 2)?;
        let limits: Vec<f64> = arrays.list_of("pod.limits", 2)?;
        let replicas: Vec<i64> = arrays.list_of("pod.replicas", 2)?;
        let pod = KnownPod {
            class: Class::without_gpus(request, [nonzero[0], nonzero[1]]),
            user: optional("pod.user", arrays.number("pod.user")?, columns - METRICS)?,
            soft: limits[0],
            hard: limits[1],
            index: replicas[0],
            replicas: replicas[1],
        };
        let assumed = Assumed { service: assumed[0], link: assumed[1], pod_link: assumed[2] };
        let mask: Vec<bool> = arrays.list_of("mask", count)?;
        let zones = zones.into_iter().max().map_or(0, |last| last + 1);
        let view = SchedulerView { nodes, zones, assumed };
        Ok(Question { view, pod, mask: mask.into_iter().map(i8::from).collect() })
    }

    /// Let requests stand for use where no node has a value, which keeps the order of nodes.
    pub fn substitute(&mut self) {
        let nodes = &mut self.view.nodes;
        if nodes.iter().all(|node| node.measured.cpu_used.is_nan()) {
            for node in nodes.iter_mut() {
                // A slot without a node has no CPU: the result is no number there.
                node.measured.cpu_used = 100.0 * USE_PRIOR * node.requested(CPU) as f64 / node.cpu() as f64;
            }
        }
        if nodes.iter().all(|node| node.measured.connections.is_nan()) {
            nodes.iter_mut().for_each(|node| node.measured.connections = node.pods() as f64);
        }
        if nodes.iter().all(|node| node.measured.network_received.is_nan()) {
            nodes.iter_mut().for_each(|node| node.measured.network_received = 0.0);
        }
    }
}
