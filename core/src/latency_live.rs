//! The simulated cluster with telemetry in real time, driven by nodes and pods of a real cluster.
//!
//! It is the model of the environment Latency: what a pod uses, how load changes, how far users are, and the errors of
//! measurement. Times are seconds since the model began; one that is earlier than the last counts as that.

use std::collections::BTreeMap;

use crate::arrays::{Arrays, Result, index};
use crate::cluster::{CPU, Class};
use crate::latency_draws::Drawn;
use crate::latency_model::{Model, SimulatedPod, Streams};
use crate::latency_settings::{APPLICATIONS, Settings};
use crate::random::{Random, mixed};
use crate::telemetry::KnownPod;

/// Zone of the users of all pods with limits: there is one latency for each node, as in Matranga's thesis.
const USERS_ZONE: usize = 0;

/// Nodes and pods of a real cluster, and what they would use.
pub struct LiveModel {
    model: Model,
    /// By number.
    pods: BTreeMap<i64, SimulatedPod>,
}

/// What an exporter knows of a pod: milli-CPU, bytes of memory, kind of application, whether it has users, and seeds.
///
/// What a pod uses follows from the seeds alone, that of its Deployment and its own.
pub struct PodOfModel {
    pub cpu: i64,
    pub memory: i64,
    pub kind: i64,
    pub has_users: bool,
    pub seeds: [i64; 2],
    pub limits: [f64; 2],
}

impl LiveModel {
    /// Read `settings.*` and `model.seeds`, one for each stream of random numbers.
    pub fn read(arrays: &Arrays) -> Result<Self> {
        let seeds: Vec<i64> = arrays.list_of("model.seeds", 4)?;
        let [cluster, workload, load, measuring] = [0, 1, 2, 3].map(|i| Random::new(seeds[i] as u64));
        let random = Streams { cluster, workload, load, measuring };
        Ok(LiveModel { model: Model::new(Settings::read(arrays)?, random), pods: BTreeMap::new() })
    }

    /// Change the load as often as it changes until a time.
    fn advance(&mut self, time: f64) -> Result<()> {
        // A clock that is wrong must not keep this one busy for ever.
        if !(0.0..1e9).contains(&time) {
            return Err(format!("time {time} is out of range"));
        }
        while self.model.next_load <= time {
            self.model.change_load();
        }
        self.model.now = time.max(self.model.now);
        Ok(())
    }

    fn node(&self, node: i64) -> Result<usize> {
        index("node", node, self.model.truth.len())
    }

    /// Add a node as the last one. Capacities are milli-CPU, bytes of memory and pods.
    pub fn add_node(&mut self, capacity: [i64; 3], zone: i64, system: f64, time: f64) -> Result<()> {
        let zone = index("zone", zone, self.model.settings.zones)?;
        check_capacity(capacity)?;
        self.advance(time)?;
        self.model.add_node(capacity, zone, system);
        Ok(())
    }

    pub fn change_node(&mut self, node: i64, capacity: [i64; 3], time: f64) -> Result<()> {
        let n = self.node(node)?;
        check_capacity(capacity)?;
        self.advance(time)?;
        self.model.count_up(n, self.model.now);
        let node = &mut self.model.view.nodes[n].node;
        for (r, amount) in capacity.into_iter().enumerate() {
            // What pods take stays the same, so that a node may have less than nothing free.
            node.free[r] += amount - node.allocatable[r];
            node.allocatable[r] = amount;
        }
        Ok(())
    }

    /// Remove a node; those after it move up. Its pods run no more, until they are bound again.
    pub fn remove_node(&mut self, node: i64, time: f64) -> Result<()> {
        let removed = self.node(node)?;
        self.advance(time)?;
        for pod in self.pods.values_mut() {
            match pod.node {
                Some(n) if n == removed => self.model.unbind(pod, self.model.now),
                Some(n) if n > removed => pod.node = Some(n - 1),
                _ => {}
            }
        }
        self.model.view.nodes.remove(removed);
        self.model.truth.remove(removed);
        Ok(())
    }

    /// Bind a pod, which runs nowhere yet, to a node.
    pub fn bind(&mut self, number: i64, pod: &PodOfModel, node: i64, time: f64) -> Result<()> {
        let n = self.node(node)?;
        let kind = index("kind", pod.kind, APPLICATIONS.len())?;
        if ![pod.cpu, pod.memory].iter().all(|amount| (0..=1 << 55).contains(amount)) {
            return Err(format!("requests {} and {} are out of range", pod.cpu, pod.memory));
        }
        self.advance(time)?;
        let known = KnownPod {
            class: Class::without_gpus(vec![pod.cpu, pod.memory, 1], [pod.cpu, pod.memory]),
            user: pod.has_users.then_some(USERS_ZONE),
            soft: pod.limits[0],
            hard: pod.limits[1],
            index: 0,
            replicas: 0,
        };
        let [of_owner, own] = pod.seeds.map(|seed| Random::new(mixed(seed as u64)));
        let (mut of_owner, mut own) = (of_owner, own);
        let uses = Drawn::draw(&mut of_owner, kind).pod(&mut own, &known.class);
        let mut bound = SimulatedPod { known, uses, node: None };
        self.model.bind(&mut bound, n);
        if let Some(mut before) = self.pods.insert(number, bound) {
            self.model.unbind(&mut before, self.model.now);
        }
        Ok(())
    }

    /// Forget a pod, if it is known.
    pub fn unbind(&mut self, number: i64, time: f64) -> Result<()> {
        self.advance(time)?;
        if let Some(mut pod) = self.pods.remove(&number) {
            self.model.unbind(&mut pod, self.model.now);
        }
        Ok(())
    }

    /// Scrape a node: milli-CPU seconds used so far and the error of their measurement, bytes of memory available, percent of
    /// the filesystem used, bytes received so far, connections, and milliseconds to the users, NaN: the probe was lost. None:
    /// the node cannot be reached.
    pub fn scrape(&mut self, node: i64, time: f64) -> Result<Option<[f64; 7]>> {
        let n = self.node(node)?;
        self.advance(time)?;
        self.model.scrape(n, self.model.now);
        let truth = &self.model.truth[n];
        let (counters, gauges) = (&truth.counters, &truth.gauges);
        // A failed scrape leaves NaN.
        Ok((!gauges.connections.is_nan()).then(|| {
            [
                counters.cpu,
                gauges.cpu_used,
                gauges.memory_available,
                gauges.filesystem_used,
                counters.network,
                gauges.connections,
                gauges.latencies[USERS_ZONE],
            ]
        }))
    }

    /// The true state now, in the order of `steersman.envs.latency.Truth`.
    pub fn truth(&mut self, time: f64) -> Result<[f64; 12]> {
        self.advance(time)?;
        self.model.totals = self.model.totals.without_samples();
        // Without nodes means would divide by 0.
        if !self.model.truth.is_empty() {
            self.model.take_note(self.pods.values());
        }
        let total = &self.model.totals;
        Ok([
            total.empty,
            total.used,
            100.0 * total.deviation,
            total.most_connections,
            total.limited_now,
            total.soft_now,
            total.hard_now,
            total.placed,
            total.limited,
            total.soft_met,
            total.hard_broken,
            total.hard_avoidable,
        ])
    }
}

fn check_capacity(capacity: [i64; 3]) -> Result<()> {
    if capacity[CPU] < 1 || capacity.iter().any(|amount| !(0..=1 << 55).contains(amount)) {
        return Err(format!("capacity {capacity:?} is out of range"));
    }
    Ok(())
}
