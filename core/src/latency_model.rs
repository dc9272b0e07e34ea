//! The true state of a simulated cluster with telemetry, what pods and load change of it, and how it is measured: samples
//! as by Prometheus with node-exporter, rates, failed scrapes and their age.
//!
//! The environment Latency and the exporters of a local cluster share it. Policies are given `view` alone.

use std::collections::VecDeque;
use std::f64::consts::PI;

use crate::cluster::{CPU, MEMORY, Node};
use crate::latency_settings::{
    ASSUMED_LINK, ASSUMED_POD_LINK, ASSUMED_SERVICE, NODE_FILESYSTEM, NODE_NETWORK, SYSTEM_CONNECTIONS,
    SYSTEM_FILESYSTEM, SYSTEM_MEMORY, Settings,
};
use crate::random::Random;
use crate::telemetry::{Assumed, KnownNode, KnownPod, Measured, SchedulerView};
use crate::telemetry_reward::Kept;

/// The use of a node at which its queue is cut: latency does not grow without bound.
const BUSIEST: f64 = 0.98;
/// Seconds for which the load is constant.
const LOAD_STEP: f64 = 15.0;
const LOAD_CORRELATION_SECONDS: f64 = 300.0;
const LEAST_LOAD: f64 = 0.05;
/// Seconds: `irate(...[1m])` of CPU and `rate(...[5m])` of traffic, the queries of Matranga's thesis.
const IRATE_WINDOW: f64 = 60.0;
const RATE_WINDOW: f64 = 300.0;
/// Samples kept of a counter: 5 minutes at 15 seconds.
const KEPT_SAMPLES: usize = 21;
/// Prometheus looks back this many seconds for a value; a metric without any value has this age.
pub const AGE_LIMIT: f64 = 300.0;
/// Mean length of an outage in scrapes.
const OUTAGE: f64 = 4.0;
/// A probe is the mean of so many pings, as in Matranga's thesis: its error is that of a sample by the root of it.
const PINGS: f64 = 50.0;
/// Probability that only a probe of latencies is lost.
const PROBE_LOST: f64 = 0.02;

/// What pods use at load 1: milli-CPU, connections, received bytes per second; and what does not depend on load: bytes of
/// memory and of the filesystem.
#[derive(Clone, Copy, Default, Debug, PartialEq)]
pub struct PodUse {
    pub cpu: i64,
    pub connections: i64,
    pub network: i64,
    pub memory: i64,
    pub filesystem: i64,
}

impl PodUse {
    fn add(&mut self, other: &PodUse, sign: i64) {
        self.cpu += sign * other.cpu;
        self.connections += sign * other.connections;
        self.network += sign * other.network;
        self.memory += sign * other.memory;
        self.filesystem += sign * other.filesystem;
    }
}

/// A pod, what it uses, and the node that it is on.
#[derive(Clone)]
pub struct SimulatedPod {
    pub known: KnownPod,
    pub uses: PodUse,
    pub node: Option<usize>,
}

/// Counters of a node, and a sample of them.
#[derive(Clone, Copy, Default)]
pub struct Counters {
    pub time: f64,
    /// Milli-CPU seconds.
    pub cpu: f64,
    pub network: f64,
    /// Milli-CPU seconds that were requested.
    requested: f64,
}

/// What is true of a node, and its last samples.
#[derive(Clone)]
pub struct TrueNode {
    /// Milli-CPU without pods.
    pub system: f64,
    /// What its pods use, by the zone of their users; last: of pods without users.
    uses: Vec<PodUse>,
    /// As of the last change.
    pub counters: Counters,
    samples: VecDeque<Counters>,
    /// The last samples of the other metrics, NaN: the last scrape failed. Of the CPU metric only its error, which is drawn
    /// with the sample, so that asking twice gives the same answer.
    pub gauges: Measured,
    gauged_pods: i64,
    /// When a scrape of the node, and of the latencies, last succeeded.
    sampled: Option<f64>,
    probed: Option<f64>,
    /// Scrapes that will still fail.
    down: i64,
}

/// Separate streams of random numbers: the workload, its load and the errors of measurement are the same whatever a policy
/// decides, so that runs of two policies are paired by their seed.
#[derive(Clone)]
pub struct Streams {
    pub cluster: Random,
    pub workload: Random,
    pub load: Random,
    pub measuring: Random,
}

/// Sums over an episode.
#[derive(Clone, Default)]
pub struct Totals {
    /// Of samples, every 15 seconds after the warm-up: how many, nodes without and with pods, standard deviation of the
    /// share of CPU used, connections of the node with most, and the most ever.
    pub samples: f64,
    pub empty: f64,
    pub used: f64,
    pub deviation: f64,
    pub most_connections: f64,
    pub peak: f64,
    /// Pods with limits, those within the soft one, those beyond the hard one; nodes whose pods want more CPU than there is.
    pub limited_now: f64,
    pub soft_now: f64,
    pub hard_now: f64,
    pub saturated: f64,
    /// Of placements after the warm-up: pods placed and refused, with limits, within the soft one, beyond the hard one, and
    /// beyond it though some node could have met it.
    pub placed: f64,
    pub refused: f64,
    pub limited: f64,
    pub soft_met: f64,
    pub hard_broken: f64,
    pub hard_avoidable: f64,
}

/// A simulated cluster.
#[derive(Clone)]
pub struct Model {
    pub settings: Settings,
    pub view: SchedulerView,
    /// By node, as in the view.
    pub truth: Vec<TrueNode>,
    pub random: Streams,
    pub now: f64,
    pub next_load: f64,
    /// By which use is multiplied now, by zone of the users; last: 1, of pods without users.
    load: Vec<f64>,
    /// The random part of it, and the phase of the daily one in radians, by zone.
    load_noise: Vec<f64>,
    phase: Vec<f64>,
    /// Milliseconds from nodes to users, by zone.
    distance: Vec<Vec<f64>>,
    pub totals: Totals,
}

impl TrueNode {
    fn used(&self, load: &[f64], what: impl Fn(&PodUse) -> i64) -> f64 {
        let mut total = 0.0;
        for (uses, load) in self.uses.iter().zip(load) {
            total += what(uses) as f64 * load;
        }
        total
    }

    pub fn memory(&self) -> i64 {
        self.uses.iter().map(|uses| uses.memory).sum()
    }
}

impl Model {
    /// Draw zones on a unit square: 2 ms within a zone, and `distance` ms for the side of the square.
    pub fn new(settings: Settings, mut random: Streams) -> Self {
        let zones = settings.zones;
        let points: Vec<(f64, f64)> =
            (0..zones).map(|_| (random.cluster.uniform(), random.cluster.uniform())).collect();
        let across = |a: &(f64, f64), b: &(f64, f64)| libm::hypot(a.0 - b.0, a.1 - b.1);
        let distances = |a: &(f64, f64)| points.iter().map(|b| 2.0 + settings.distance * across(a, b)).collect();
        let distance = points.iter().map(distances).collect();
        let (mut load_noise, mut phase) = (Vec::new(), Vec::new());
        for _ in 0..zones {
            // From their stationary distribution, so that an episode does not begin with a calm.
            load_noise.push(settings.load_noise * random.load.normal());
            phase.push(2.0 * PI * random.load.uniform());
        }
        let assumed = Assumed { service: ASSUMED_SERVICE, link: ASSUMED_LINK, pod_link: ASSUMED_POD_LINK };
        Model {
            view: SchedulerView { nodes: Vec::new(), zones, assumed },
            truth: Vec::new(),
            now: 0.0,
            next_load: 0.0,
            load: vec![1.0; zones + 1],
            load_noise,
            phase,
            distance,
            totals: Totals::default(),
            settings,
            random,
        }
    }

    /// Add a node without pods, of some milli-CPU, bytes of memory and pods.
    pub fn add_node(&mut self, capacity: [i64; 3], zone: usize, system: f64) {
        let zones = self.settings.zones;
        let (allocatable, free) = (capacity.to_vec(), capacity.to_vec());
        self.view.nodes.push(KnownNode {
            node: Node { allocatable, free, nonzero: [0; 2], gpus: vec![], gpu_type: 0, gpu_kinds: vec![] },
            zone,
            measured: Measured::missing(zones),
            cpu_age: AGE_LIMIT,
            latency_age: AGE_LIMIT,
            requested_since: 0.0,
            pods_since: 0.0,
            siblings: 0,
        });
        self.truth.push(TrueNode {
            system,
            uses: vec![PodUse::default(); zones + 1],
            counters: Counters { time: self.now, ..Counters::default() },
            samples: VecDeque::with_capacity(KEPT_SAMPLES),
            gauges: Measured::missing(zones),
            gauged_pods: 0,
            sampled: None,
            probed: None,
            down: 0,
        });
    }

    #[cfg(test)]
    pub fn load(&self, user: Option<usize>) -> f64 {
        self.load[user.unwrap_or(self.settings.zones)]
    }

    #[cfg(test)]
    pub fn distance(&self, zone: usize, user: usize) -> f64 {
        self.distance[zone][user]
    }

    /// The milli-CPU that a node would use if it had it.
    pub fn cpu_wanted(&self, n: usize) -> f64 {
        self.truth[n].system + self.truth[n].used(&self.load, |uses| uses.cpu)
    }

    pub fn cpu_used(&self, n: usize) -> f64 {
        self.cpu_wanted(n).min(self.view.nodes[n].cpu() as f64)
    }

    pub fn connections(&self, n: usize) -> f64 {
        SYSTEM_CONNECTIONS + self.truth[n].used(&self.load, |uses| uses.connections)
    }

    fn network_wanted(&self, n: usize) -> f64 {
        self.truth[n].used(&self.load, |uses| uses.network)
    }

    /// The milliseconds from a node to the users of a zone, if its use were higher by `cpu` and `bytes`.
    ///
    /// distance + service (1 + r / (1 - r)), the time in an M/M/1 queue, with r the larger one of the shares of CPU and
    /// network used, at most `BUSIEST`.
    fn latency(&self, n: usize, user: usize, cpu: f64, bytes: f64) -> f64 {
        let node = &self.view.nodes[n];
        let cpu = (self.cpu_wanted(n) + cpu) / node.cpu() as f64;
        let busy = cpu.max((self.network_wanted(n) + bytes) / NODE_NETWORK).min(BUSIEST);
        // 1 + r / (1 - r) = 1 / (1 - r).
        self.distance[node.zone][user] + self.settings.service / (1.0 - busy)
    }

    /// The milliseconds from a node to the users of a pod, if it ran there too; None: it has none.
    pub fn latency_with(&self, pod: &SimulatedPod, n: usize) -> Option<f64> {
        let user = pod.known.user?;
        let [cpu, bytes] = [pod.uses.cpu, pod.uses.network].map(|amount| amount as f64 * self.load[user]);
        Some(self.latency(n, user, cpu, bytes))
    }

    /// The standard deviation over nodes of the share of CPU used.
    fn cpu_deviation(&self) -> f64 {
        let (mut total, mut squares) = (0.0, 0.0);
        for n in 0..self.truth.len() {
            let share = self.cpu_used(n) / self.view.nodes[n].cpu() as f64;
            total += share;
            squares += share * share;
        }
        let count = self.truth.len() as f64;
        let mean = total / count;
        (squares / count - mean * mean).max(0.0).sqrt()
    }

    /// Update the counters of a node to a time; call it before anything about the node changes.
    pub fn count_up(&mut self, n: usize, time: f64) {
        let (cpu, network) = (self.cpu_used(n), self.network_wanted(n).min(NODE_NETWORK));
        let requested = self.view.nodes[n].requested(CPU) as f64;
        let counters = &mut self.truth[n].counters;
        let passed = time - counters.time;
        counters.time = time;
        counters.cpu += passed * cpu;
        counters.network += passed * network;
        counters.requested += passed * requested;
    }

    /// Bind a pod to a node, where it must fit; return how its limits are kept.
    ///
    /// Limits are judged by the true state right after binding, including the pod's own use.
    pub fn bind(&mut self, pod: &mut SimulatedPod, n: usize) -> Kept {
        // Before the pod is bound: the judgement adds its use itself.
        let kept = self.judge(pod, n);
        // Before the node's use changes, so that the time up to now counts with the old use.
        self.count_up(n, self.now);
        self.view.nodes[n].node.place(&pod.known.class, 0);
        self.add_use(pod, n, 1);
        pod.node = Some(n);
        self.view.nodes[n].siblings += 1;
        if self.now >= self.settings.warmup {
            self.totals.placed += 1.0;
            if pod.known.user.is_some() {
                self.totals.limited += 1.0;
                self.totals.soft_met += if kept == Kept::WithinSoft { 1.0 } else { 0.0 };
                self.totals.hard_broken += if kept >= Kept::BeyondAny { 1.0 } else { 0.0 };
                self.totals.hard_avoidable += if kept == Kept::BeyondAvoidable { 1.0 } else { 0.0 };
            }
        }
        kept
    }

    fn judge(&self, pod: &SimulatedPod, n: usize) -> Kept {
        let Some(milliseconds) = self.latency_with(pod, n) else {
            return Kept::WithinSoft;
        };
        if milliseconds <= pod.known.soft {
            return Kept::WithinSoft;
        }
        if milliseconds <= pod.known.hard {
            return Kept::WithinHard;
        }
        // Whether another node could have kept it separates a bad choice from a full cluster.
        let keeps = |other: usize| {
            self.view.nodes[other].node.has_room(&pod.known.class)
                && self.latency_with(pod, other).is_some_and(|milliseconds| milliseconds <= pod.known.hard)
        };
        if (0..self.truth.len()).any(keeps) { Kept::BeyondAvoidable } else { Kept::BeyondAny }
    }

    /// Remove a pod from its node, if it has one.
    pub fn unbind(&mut self, pod: &mut SimulatedPod, time: f64) {
        if let Some(n) = pod.node.take() {
            self.count_up(n, time);
            self.view.nodes[n].node.remove(&pod.known.class, 0);
            self.add_use(pod, n, -1);
        }
    }

    fn add_use(&mut self, pod: &SimulatedPod, n: usize, sign: i64) {
        let zone = pod.known.user.unwrap_or(self.settings.zones);
        self.truth[n].uses[zone].add(&pod.uses, sign);
    }

    /// Draw the load of the next 15 seconds.
    pub fn change_load(&mut self) {
        let time = self.next_load;
        for n in 0..self.truth.len() {
            self.count_up(n, time);
        }
        // A first-order autoregressive process, exact for a step of LOAD_STEP: its deviation stays `load_noise`.
        let keep = libm::exp(-LOAD_STEP / LOAD_CORRELATION_SECONDS);
        let settings = &self.settings;
        for z in 0..settings.zones {
            let fresh = settings.load_noise * self.random.load.normal();
            self.load_noise[z] = keep * self.load_noise[z] + (1.0 - keep * keep).sqrt() * fresh;
            let swing = settings.swing * libm::sin(2.0 * PI * time / settings.period + self.phase[z]);
            self.load[z] = (1.0 + swing + self.load_noise[z]).max(LEAST_LOAD);
        }
        self.next_load = time + LOAD_STEP;
    }

    /// Add the true state now to the totals of samples.
    pub fn take_note<'a>(&mut self, pods: impl Iterator<Item = &'a SimulatedPod>) {
        let (mut empty, mut most, mut saturated) = (0.0, 0.0, 0.0);
        for (n, node) in self.view.nodes.iter().enumerate() {
            empty += if node.pods() == 0 { 1.0 } else { 0.0 };
            most = self.connections(n).max(most);
            saturated += if self.cpu_wanted(n) > node.cpu() as f64 { 1.0 } else { 0.0 };
        }
        let (mut limited, mut soft, mut hard) = (0.0, 0.0, 0.0);
        for pod in pods {
            if let (Some(n), Some(user)) = (pod.node, pod.known.user) {
                // Their own use is part of the node's already.
                let milliseconds = self.latency(n, user, 0.0, 0.0);
                limited += 1.0;
                soft += if milliseconds <= pod.known.soft { 1.0 } else { 0.0 };
                hard += if milliseconds > pod.known.hard { 1.0 } else { 0.0 };
            }
        }
        let deviation = self.cpu_deviation();
        let (nodes, total) = (self.truth.len() as f64, &mut self.totals);
        total.samples += 1.0;
        total.empty += empty;
        total.used += nodes - empty;
        total.deviation += deviation;
        total.most_connections += most;
        total.peak = most.max(total.peak);
        total.limited_now += limited;
        total.soft_now += soft;
        total.hard_now += hard;
        total.saturated += saturated;
    }

    /// Sample a node, unless it is unreachable. The same random numbers are drawn in either case.
    pub fn scrape(&mut self, n: usize, time: f64) {
        let random = &mut self.random.measuring;
        let (chance, length) = (random.uniform(), random.exponential());
        let is_lost = random.uniform() < PROBE_LOST;
        let down = &mut self.truth[n].down;
        let mut has_failed = false;
        if *down > 0 {
            *down -= 1;
        } else if chance < self.settings.missed {
            // The outage in further scrapes; this one fails even if there are none.
            *down = (OUTAGE * length) as i64;
            has_failed = true;
        }
        has_failed = has_failed || *down > 0;
        self.count_up(n, time);
        self.sample_gauges(n);
        for user in 0..self.settings.zones {
            let error = self.random.measuring.normal();
            // Scaled by the error: a noisier value, but never a negative one.
            let latency = self.latency(n, user, 0.0, 0.0) * self.error(error / PINGS.sqrt());
            self.truth[n].gauges.latencies[user] = if is_lost { f64::NAN } else { latency };
        }
        let pods = self.view.nodes[n].pods();
        let truth = &mut self.truth[n];
        if has_failed {
            // Prometheus marks a metric as stale when a scrape fails, so no old value is left.
            let error = truth.gauges.cpu_used;
            truth.gauges = Measured::missing(self.settings.zones);
            truth.gauges.cpu_used = error;
            return;
        }
        if truth.samples.len() == KEPT_SAMPLES {
            truth.samples.pop_front();
        }
        truth.samples.push_back(truth.counters);
        truth.gauged_pods = pods;
        truth.sampled = Some(time);
        if !is_lost {
            truth.probed = Some(time);
        }
    }

    fn sample_gauges(&mut self, n: usize) {
        let errors = [0; 3].map(|_| self.random.measuring.normal());
        let [memory_error, count_error, cpu_error] = errors.map(|error| self.error(error));
        let (node, truth) = (&self.view.nodes[n], &self.truth[n]);
        let disk = SYSTEM_FILESYSTEM + truth.uses.iter().map(|uses| uses.filesystem).sum::<i64>();
        let memory = (truth.memory() + SYSTEM_MEMORY) as f64 * memory_error;
        let (connections, pods) = (count_error * self.connections(n), node.pods() as f64);
        let available = (node.node.allocatable[MEMORY] as f64 - memory).max(0.0);
        let gauges = &mut self.truth[n].gauges;
        gauges.memory_available = available;
        gauges.filesystem_used = (100.0 * disk as f64 / NODE_FILESYSTEM as f64).min(100.0);
        gauges.connections = connections.round_ties_even();
        gauges.running_pods = pods;
        gauges.cpu_used = cpu_error;
    }

    fn error(&self, error: f64) -> f64 {
        (1.0 + self.settings.noise * error).max(0.0)
    }

    /// Answer the queries now: update the view's measured values.
    pub fn measure(&mut self) {
        let now = self.now;
        let age = |sampled: Option<f64>| sampled.map_or(AGE_LIMIT, |time| (now - time).min(AGE_LIMIT));
        for (node, truth) in self.view.nodes.iter_mut().zip(&self.truth) {
            // The age counts from the last sample that succeeded, also where the value is missing by now.
            (node.cpu_age, node.latency_age) = (age(truth.sampled), age(truth.probed));
            node.measured.clone_from(&truth.gauges);
            // These are rates, which the samples give, if there are enough.
            (node.measured.cpu_used, node.measured.network_received) = (f64::NAN, f64::NAN);
            node.requested_since = 0.0;
            if let Some([before, last]) = truth.last_two(now) {
                let cpu = slope(before, last, |counters| counters.cpu) / node.cpu() as f64;
                node.measured.cpu_used = (100.0 * cpu * truth.gauges.cpu_used).min(100.0);
                node.requested_since = node.requested(CPU) as f64 - slope(before, last, |counters| counters.requested);
            }
            if let Some([first, last]) = truth.window(now) {
                node.measured.network_received = slope(first, last, |counters| counters.network);
            }
            node.pods_since = (node.pods() - truth.gauged_pods) as f64;
        }
    }
}

impl TrueNode {
    /// The last two samples, if they lie within a minute: `irate` is their slope.
    fn last_two(&self, now: f64) -> Option<[&Counters; 2]> {
        let last = self.samples.len().checked_sub(1)?;
        let before = self.samples.get(last.checked_sub(1)?)?;
        (before.time >= now - IRATE_WINDOW).then(|| [before, &self.samples[last]])
    }

    /// The first sample within five minutes and the last one, if there are two.
    fn window(&self, now: f64) -> Option<[&Counters; 2]> {
        let last = self.samples.len().checked_sub(1)?;
        let first = self.samples.iter().take(last).find(|sample| sample.time >= now - RATE_WINDOW)?;
        Some([first, &self.samples[last]])
    }
}

/// The increase of a counter per second between two samples.
fn slope(first: &Counters, last: &Counters, counter: impl Fn(&Counters) -> f64) -> f64 {
    (counter(last) - counter(first)) / (last.time - first.time)
}

impl Totals {
    /// The figures of an episode, in the order of `steersman.simulation.measures.LATENCY`; NaN if nothing was counted.
    pub fn figures(&self) -> [f64; 13] {
        let share = |part: f64, whole: f64| if whole > 0.0 { part / whole } else { f64::NAN };
        [
            share(self.empty, self.samples),
            share(self.used, self.samples),
            100.0 * share(self.deviation, self.samples),
            if self.samples > 0.0 { self.peak } else { f64::NAN },
            share(self.most_connections, self.samples),
            self.hard_avoidable,
            self.hard_broken,
            100.0 * share(self.soft_met, self.limited),
            100.0 * share(self.soft_now, self.limited_now),
            100.0 * share(self.hard_now, self.limited_now),
            100.0 * share(self.saturated, self.used),
            self.refused,
            self.placed,
        ]
    }

    /// Forget the samples; placements go on counting.
    pub fn without_samples(&self) -> Totals {
        let Totals { placed, refused, limited, soft_met, hard_broken, hard_avoidable, .. } = *self;
        Totals { placed, refused, limited, soft_met, hard_broken, hard_avoidable, ..Totals::default() }
    }
}
