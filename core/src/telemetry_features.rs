//! The view `telemetry`: exact requests and measured use, with the age of each metric and whether it is missing; and the
//! estimated state after a placement, which a live cluster is rewarded by.
//!
//! Names and meanings are in `steersman.policies.features`, in the same order. A flag tells a missing metric apart from a
//! value of 0; features derived from it are 0 then.

use crate::arrays::{Result, index};
use crate::cluster::{CPU, MEMORY};
use crate::metric_rules::{MOST_POINTS, Spread};
use crate::telemetry::{
    KnownNode, KnownPod, QUEUEING_KNEE, Question, Rates, SchedulerView, USE_PRIOR, larger, smaller,
};
use crate::telemetry_reward::{Kept, TelemetryObjective, latency_aware, least_connections};
use crate::views::{Observation, Summary};

/// Features of a node, of a pod and of the cluster.
pub const NODE: usize = 36;
const POD: usize = 12;
const CONTEXT: usize = 15;
/// Where those of a node stand that the features of the cluster are sums of.
const EMPTY: usize = 6;
const CPU_MISSING: usize = 10;
const GAUGES_MISSING: usize = 21;
const WITHIN_SOFT: usize = 34;
const WITHIN_HARD: usize = 35;

const GIB: f64 = (1u64 << 30) as f64;
const GIGABIT: f64 = 125e6;
const MINUTE: f64 = 60.0;

fn clip(value: f64, low: f64, high: f64) -> f64 {
    smaller(larger(value, low), high)
}

fn saturating(value: f64, half: f64) -> f64 {
    larger(value, 0.0) / (larger(value, 0.0) + half)
}

fn flag(is_so: bool) -> f64 {
    if is_so { 1.0 } else { 0.0 }
}

fn known(value: f64, of: impl Fn(f64) -> f64) -> f64 {
    if value.is_nan() { 0.0 } else { of(value) }
}

fn write(values: &[f64], out: &mut [f32]) {
    for (cell, value) in out.iter_mut().zip(values) {
        *cell = *value as f32;
    }
}

impl SchedulerView {
    /// Write the observation of a pod; `users_zone`: that of its users, if it has some and it is known. The mask is given.
    pub fn observe(&self, pod: &KnownPod, users_zone: Option<usize>, observation: &mut Observation) -> Result<()> {
        let Observation { nodes: rows, pod: pod_row, context, mask } = observation;
        let count = self.nodes.len();
        let lengths = [rows.len(), pod_row.len(), context.len(), mask.len()];
        let expected = [count * NODE, POD, CONTEXT, count];
        if lengths != expected {
            return Err(format!("an observation has {expected:?} numbers, not {lengths:?}"));
        }
        let (rates, spread) = (self.rates(), Spread::new(self, mask));
        for ((node, row), mask) in self.nodes.iter().zip(rows.chunks_exact_mut(NODE)).zip(mask.iter()) {
            let (requests, rest) = row.split_at_mut(10);
            let (cpu, rest) = rest.split_at_mut(11);
            let (gauges, latency) = rest.split_at_mut(8);
            let score = if *mask != 0 { spread.kube_default(node, pod) as f64 / MOST_POINTS } else { 0.0 };
            write_requests(node, pod, users_zone, score, requests);
            write_cpu(node, pod, &rates, cpu);
            write_gauges(node, &rates, gauges);
            write_latency(node, pod, latency);
        }
        write_pod(pod, pod_row);
        self.write_context(&rates, mask, rows, context);
        Ok(())
    }

    fn write_context(&self, rates: &Rates, mask: &[i8], rows: &[f32], out: &mut [f32]) {
        let count = self.nodes.len() as f64;
        let (mut feasible, mut used, mut no_cpu, mut no_gauges, mut soft, mut hard) = (0.0, 0.0, 0.0, 0.0, 0.0, 0.0);
        let (mut cpu, mut cpu_all, mut memory, mut memory_all) = (0, 0, 0, 0);
        for ((node, row), mask) in self.nodes.iter().zip(rows.chunks_exact(NODE)).zip(mask) {
            used += 1.0 - f64::from(row[EMPTY]);
            no_cpu += f64::from(row[CPU_MISSING]);
            no_gauges += f64::from(row[GAUGES_MISSING]);
            if *mask != 0 {
                feasible += 1.0;
                soft += f64::from(row[WITHIN_SOFT]);
                hard += f64::from(row[WITHIN_HARD]);
            }
            cpu += node.requested(CPU);
            cpu_all += node.cpu();
            memory += node.requested(MEMORY);
            memory_all += node.node.allocatable[MEMORY];
        }
        let variance = rates.cpu_square - rates.cpu_mean * rates.cpu_mean;
        let deviation = clip(larger(variance, 0.0).sqrt(), 0.0, 2.0);
        let mean = known(rates.connections_mean, |mean| mean);
        let features = [
            libm::log2(1.0 + count) / 20.0,
            feasible / count,
            used / count,
            cpu as f64 / cpu_all as f64,
            memory as f64 / memory_all as f64,
            rates.cpu_use,
            known(rates.cpu_mean, |mean| clip(mean, 0.0, 2.0)),
            known(rates.cpu_mean, |_| deviation),
            saturating(rates.connections, 100.0),
            saturating(mean, 1000.0),
            saturating(rates.connections_most, 1000.0),
            no_cpu / count,
            no_gauges / count,
            soft / count,
            hard / count,
        ];
        write(&features, out);
    }

    /// The zone whose idle nodes have the least latency to the users of a pod; None: it has none, or it is not measured.
    fn zone_of_users(&self, pod: &KnownPod) -> Option<usize> {
        pod.user?;
        let (nearest, mut least) = (self.nearest(pod), (f64::INFINITY, None));
        for node in &self.nodes {
            if nearest[node.zone] < least.0 {
                least = (nearest[node.zone], Some(node.zone));
            }
        }
        least.1
    }
}

fn write_requests(node: &KnownNode, pod: &KnownPod, users_zone: Option<usize>, score: f64, out: &mut [f32]) {
    let (cpu, memory) = (node.cpu() as f64, node.node.allocatable[MEMORY] as f64);
    let [cpu_before, memory_before] = [node.requested(CPU), node.requested(MEMORY)];
    let after = |before: i64, r: usize, all: f64| clip((before + pod.class.request[r]) as f64 / all, 0.0, 2.0);
    let features = [
        libm::log2(1.0 + cpu / 1000.0) / 7.0,
        cpu_before as f64 / cpu,
        after(cpu_before, CPU, cpu),
        memory_before as f64 / memory,
        after(memory_before, MEMORY, memory),
        saturating(node.pods() as f64, 8.0),
        flag(node.pods() == 0),
        saturating(node.siblings as f64, 4.0),
        clip(score, 0.0, 1.0),
        flag(users_zone == Some(node.zone)),
    ];
    write(&features, out);
}

fn write_cpu(node: &KnownNode, pod: &KnownPod, rates: &Rates, out: &mut [f32]) {
    let used = node.measured.cpu_used;
    let age = clip(node.cpu_age / MINUTE, 0.0, 5.0);
    if used.is_nan() {
        out.fill(0.0);
        write(&[1.0, age], out);
        return;
    }
    let (before, after) = (node.cpu_now(rates), node.cpu_after(pod, rates));
    let [from_mean, from_mean_after] = [before, after].map(|share| clip(share - rates.cpu_mean, -2.0, 2.0));
    let features = [
        0.0,
        age,
        clip(used / 100.0, 0.0, 1.0),
        clip(node.requested_since / node.cpu() as f64, -1.0, 1.0),
        clip(before, 0.0, 2.0),
        clip(after, 0.0, 2.0),
        from_mean,
        from_mean_after,
        from_mean * from_mean,
        from_mean_after * from_mean_after,
        flag(after > QUEUEING_KNEE),
    ];
    write(&features, out);
}

fn write_gauges(node: &KnownNode, rates: &Rates, out: &mut [f32]) {
    let measured = &node.measured;
    let is_missing = measured.connections.is_nan();
    let memory = node.node.allocatable[MEMORY] as f64;
    let after = node.connections_after(rates);
    let present = |value: f64| if is_missing { 0.0 } else { value };
    let features = [
        flag(is_missing),
        present(known(measured.memory_available, |available| clip(1.0 - available / memory, 0.0, 1.0))),
        present(known(measured.filesystem_used, |used| clip(used / 100.0, 0.0, 1.0))),
        known(measured.network_received, |network| clip(network / GIGABIT, 0.0, 4.0)),
        present(saturating(node.connections_now(rates), 1000.0)),
        present(saturating(after, 1000.0)),
        present(clip(after / larger(rates.connections_mean, 1.0) - 1.0, -1.0, 8.0)),
        clip(node.pods_since / 8.0, -4.0, 4.0),
    ];
    write(&features, out);
}

fn write_latency(node: &KnownNode, pod: &KnownPod, out: &mut [f32]) {
    let latency = node.latency_to_users(pod);
    let age = clip(node.latency_age / MINUTE, 0.0, 5.0);
    // Also pods without users, whose latency is always NaN.
    if latency.is_nan() {
        out.fill(0.0);
        write(&[flag(pod.user.is_some()), age], out);
        return;
    }
    let margin = |limit: f64| clip((limit - latency) / 100.0, -10.0, 10.0);
    let features = [
        0.0,
        age,
        clip(latency / 100.0, 0.0, 10.0),
        margin(pod.soft),
        margin(pod.hard),
        flag(latency <= pod.soft),
        flag(latency <= pod.hard),
    ];
    write(&features, out);
}

fn write_pod(pod: &KnownPod, out: &mut [f32]) {
    let (cores, gib) = (pod.class.request[CPU] as f64 / 1000.0, pod.class.request[MEMORY] as f64 / GIB);
    let limit = |limit: f64| if pod.user.is_some() { clip(limit / 100.0, 0.0, 10.0) } else { 0.0 };
    let features = [
        1.0,
        0.0,
        0.0,
        0.0,
        clip(cores / 8.0, 0.0, 8.0),
        clip(libm::log2(1.0 + cores) / 7.0, 0.0, 2.0),
        clip(libm::log2(1.0 + gib) / 10.0, 0.0, 2.0),
        flag(pod.user.is_some()),
        limit(pod.soft),
        limit(pod.hard),
        saturating(pod.replicas as f64, 8.0),
        saturating((pod.replicas - pod.index - 1) as f64, 8.0),
    ];
    write(&features, out);
}

impl Question {
    /// Write the observation of a live cluster, see `SchedulerView::observe`. Zones are those of `view.zone`.
    pub fn observe(&self, nodes: &mut [f32], pod: &mut [f32], context: &mut [f32]) -> Result<()> {
        let mut mask = self.mask.clone();
        let mut observation = Observation { nodes, pod, context, mask: &mut mask };
        self.view.observe(&self.pod, self.view.zone_of_users(&self.pod), &mut observation)
    }

    /// The estimated state after the pod's placement on a node, and its reward.
    ///
    /// The environment Latency rewards the true state after the action. On a cluster the truth is measured late, so the
    /// nodes' use after the action is estimated from metrics and requests, and the latency to the pod's users is the
    /// measured one. What is missing counts as follows: the CPU use of a node is a share of its requests (`USE_PRIOR`); a
    /// node without a number of connections is left out; a limit whose latency is not measured is not kept.
    pub fn outcome(&self, chosen: i64, objectives: &[(TelemetryObjective, f64)]) -> Result<(Summary, f64)> {
        let (nodes, pod, rates) = (&self.view.nodes, &self.pod, self.view.rates());
        let chosen = index("node", chosen, nodes.len())?;
        let count = nodes.len() as f64;
        let mut state = Summary { nodes: count, cpu_nodes: count, ..Summary::default() };
        for (n, node) in nodes.iter().enumerate() {
            let share = if n == chosen { node.cpu_after(pod, &rates) } else { node.cpu_now(&rates) };
            let extra = if n == chosen { pod.class.request[CPU] } else { 0 };
            let by_requests = || USE_PRIOR * (node.requested(CPU) + extra) as f64 / node.cpu() as f64;
            let share = if share.is_nan() { by_requests() } else { share };
            state.nodes_used += flag(node.pods() > 0 || n == chosen);
            state.cpu_share += share;
            state.cpu_square += share * share;
        }
        let mut reward = 0.0;
        for (objective, weight) in objectives {
            let value = match objective {
                TelemetryObjective::LeastConnections => self.connections(chosen, &rates),
                TelemetryObjective::LatencyAware => self.latency(chosen),
                // The same state twice: formulas of these objectives read the state after the action only.
                TelemetryObjective::OfState(objective) => objective.reward(&state, &state),
            };
            reward += weight * value;
        }
        Ok((state, reward))
    }

    fn connections(&self, chosen: usize, rates: &Rates) -> f64 {
        let (mut total, mut most, mut known) = (0.0, 0.0, 0.0);
        for (n, node) in self.view.nodes.iter().enumerate() {
            let count = if n == chosen { node.connections_after(rates) } else { node.connections_now(rates) };
            if !count.is_nan() {
                total += count;
                most = larger(most, count);
                known += 1.0;
            }
        }
        // Without a known node both are 0, and the reward is 1.
        least_connections(total / larger(known, 1.0), most)
    }

    fn latency(&self, chosen: usize) -> f64 {
        let (mut requested, mut allocatable, mut used) = (0, 0, 0);
        for (n, node) in self.view.nodes.iter().enumerate() {
            if node.pods() > 0 || n == chosen {
                requested += node.requested(CPU) + if n == chosen { self.pod.class.request[CPU] } else { 0 };
                allocatable += node.cpu();
                used += 1;
            }
        }
        let filled = if allocatable > 0 { requested as f64 / allocatable as f64 } else { 0.0 };
        latency_aware(self.view.nodes.len() as i64, used, filled, self.kept(chosen))
    }

    fn kept(&self, chosen: usize) -> Kept {
        let (nodes, pod) = (&self.view.nodes, &self.pod);
        if pod.user.is_none() {
            return Kept::WithinSoft;
        }
        let milliseconds = nodes[chosen].latency_to_users(pod);
        // NaN compares false: a latency that is not measured keeps no limit.
        if milliseconds <= pod.soft {
            return Kept::WithinSoft;
        }
        if milliseconds <= pod.hard {
            return Kept::WithinHard;
        }
        let keeps = |(node, mask): (&KnownNode, &i8)| *mask != 0 && node.latency_to_users(pod) <= pod.hard;
        if nodes.iter().zip(&self.mask).any(keeps) { Kept::BeyondAvoidable } else { Kept::BeyondAny }
    }
}
