//! Episodes of the environment Latency: pods arrive and leave, load changes, nodes are scraped, and the host chooses nodes.

#[cfg(test)]
mod tests;

use crate::arrays::{Arrays, Result, index};
use crate::cluster::{CPU, MEMORY};
use crate::episode::{Episode, Step, Steps};
use crate::latency_draws::{Start, sorted_by};
use crate::latency_model::{Model, SimulatedPod};
use crate::latency_settings::Settings;
use crate::metric_rules::{MetricRule, decide};
use crate::telemetry::KnownNode;
use crate::telemetry_features::NODE;
use crate::telemetry_reward::{Kept, TelemetryObjective, latency_aware, least_connections};
use crate::views::{Observation, Summary};

/// An episode.
pub struct LatencyEpisode {
    model: Model,
    /// In the order of their arrivals.
    pods: Vec<SimulatedPod>,
    arrivals: Vec<f64>,
    leaves: Vec<f64>,
    /// Pods by when they leave, and how many have left.
    order: Vec<usize>,
    left: usize,
    /// The current pod.
    next: usize,
    offsets: Vec<f64>,
    turns: Vec<usize>,
    /// Scrapes done.
    scraped: usize,
    task: Task,
    /// Where the current pod may run.
    mask: Vec<i8>,
    bound: i64,
    kept: Kept,
    /// The state after the last action; CPU is what is used.
    after: Summary,
}

/// What all episodes of an environment share.
#[derive(Clone)]
struct Task {
    objectives: Vec<(TelemetryObjective, f64)>,
    steps: Steps,
    /// Whether the mask leaves out nodes that put the hard limit of a pod's latency at risk while others do not.
    filters: bool,
}

/// What is true of a node now; no policy knows it.
pub struct NodeTruth {
    pub pods: i64,
    /// The milliseconds that the current pod's users would have; NaN: it has none.
    pub latency: f64,
}

impl LatencyEpisode {
    /// Read `settings.*`, `latency.*` and `episode.*`; observe the first pod. Return whether there is one.
    pub fn begin(arrays: &Arrays, observation: &mut Observation) -> Result<(Self, bool)> {
        let objectives: Vec<i64> = arrays.list("episode.objectives")?;
        let weights: Vec<f64> = arrays.list_of("episode.weights", objectives.len())?;
        let objectives = objectives.into_iter().zip(weights);
        let objectives = objectives.map(|(number, weight)| Ok((TelemetryObjective::read(number)?, weight)));
        let task = Task {
            objectives: objectives.collect::<Result<_>>()?,
            steps: Steps::read(arrays)?,
            filters: arrays.number("latency.filters")? != 0,
        };
        let mut episode = LatencyEpisode::new(read_start(arrays, &Settings::read(arrays)?)?, task);
        let asks = episode.observe_first(observation)?;
        Ok((episode, asks))
    }

    fn new(start: Start, task: Task) -> Self {
        let Start { model, offsets, turns, visits } = start;
        let (arrivals, leaves): (Vec<f64>, Vec<f64>) = visits.iter().map(|visit| (visit.arrival, visit.leave)).unzip();
        LatencyEpisode {
            pods: visits.into_iter().map(|visit| visit.pod).collect(),
            arrivals,
            order: sorted_by(&leaves),
            leaves,
            left: 0,
            next: 0,
            offsets,
            turns,
            scraped: 0,
            task,
            mask: vec![0; model.truth.len()],
            model,
            bound: 0,
            kept: Kept::WithinSoft,
            after: Summary::default(),
        }
    }

    fn observe_first(&mut self, observation: &mut Observation) -> Result<bool> {
        self.summarise();
        let asks = self.advance();
        self.observe(asks, &mut observation.first(self.model.truth.len(), NODE)?)?;
        Ok(asks)
    }

    /// Advance to the next pod that fits on some node, and query the metrics then. Return false if no pod is left.
    ///
    /// A pod that fits nowhere is dropped without a decision. At equal times pods leave first, then load changes, then
    /// nodes are scraped.
    fn advance(&mut self) -> bool {
        let nodes = self.model.truth.len();
        while self.next < self.pods.len() {
            let arrival = self.arrivals[self.next];
            let leaving = self.order.get(self.left).map_or(f64::INFINITY, |&pod| self.leaves[pod]);
            // Round by round of all scrapes, in which a node has its fixed offset.
            let (round, turn) = (self.scraped / nodes, self.turns[self.scraped % nodes]);
            let scraping = round as f64 * self.model.settings.scrape_interval + self.offsets[turn];
            let load = self.model.next_load;
            if leaving <= arrival.min(load).min(scraping) {
                // Dropped pods are in the order as well; they have no node, and nothing happens.
                self.model.unbind(&mut self.pods[self.order[self.left]], leaving);
                self.left += 1;
            } else if load <= arrival.min(scraping) {
                self.model.change_load();
                if load >= self.model.settings.warmup {
                    self.model.take_note(self.pods[..self.next].iter());
                }
            } else if scraping <= arrival {
                self.model.scrape(turn, scraping);
                self.scraped += 1;
            } else {
                self.model.now = arrival;
                let pod = &self.pods[self.next].known;
                // The first pod of a Deployment: siblings are counted from here.
                if pod.index == 0 {
                    self.model.view.nodes.iter_mut().for_each(|node| node.siblings = 0);
                }
                for (mask, node) in self.mask.iter_mut().zip(&self.model.view.nodes) {
                    *mask = i8::from(node.node.has_room(&pod.class));
                }
                if self.mask.contains(&1) {
                    self.model.measure();
                    return true;
                }
                self.refuse();
            }
        }
        self.mask.fill(0);
        false
    }

    /// Drop the current pod and count it.
    fn refuse(&mut self) {
        if self.model.now >= self.model.settings.warmup {
            self.model.totals.refused += 1.0;
        }
        self.next += 1;
    }

    fn summarise(&mut self) {
        let nodes = &self.model.view.nodes;
        let (mut used, mut share, mut square) = (0.0, 0.0, 0.0);
        for (n, node) in nodes.iter().enumerate() {
            used += if node.pods() > 0 { 1.0 } else { 0.0 };
            let part = self.model.cpu_used(n) / node.cpu() as f64;
            share += part;
            square += part * part;
        }
        let count = nodes.len() as f64;
        let (nodes, cpu_nodes) = (count, count);
        self.after =
            Summary { nodes, cpu_nodes, nodes_used: used, cpu_share: share, cpu_square: square, ..Summary::default() };
    }

    fn reward(&self) -> f64 {
        let mut total = 0.0;
        for (objective, weight) in &self.task.objectives {
            let value = match objective {
                TelemetryObjective::LeastConnections => self.connections(),
                TelemetryObjective::LatencyAware => self.latency(),
                // The same state twice: formulas of these objectives read the state after the action only.
                TelemetryObjective::OfState(objective) => objective.reward(&self.after, &self.after),
            };
            total += weight * value;
        }
        total
    }

    fn connections(&self) -> f64 {
        let (mut total, mut most, nodes) = (0.0, 0.0f64, self.model.truth.len());
        for n in 0..nodes {
            let count = self.model.connections(n);
            total += count;
            most = most.max(count);
        }
        least_connections(total / nodes as f64, most)
    }

    fn latency(&self) -> f64 {
        let (mut requested, mut allocatable, mut used) = (0, 0, 0);
        let nodes = &self.model.view.nodes;
        for node in nodes.iter().filter(|node| node.pods() > 0) {
            requested += node.requested(CPU);
            allocatable += node.cpu();
            used += 1;
        }
        let filled = if allocatable > 0 { requested as f64 / allocatable as f64 } else { 0.0 };
        latency_aware(nodes.len() as i64, used, filled, self.kept)
    }

    fn observe(&mut self, asks: bool, observation: &mut Observation) -> Result<()> {
        if !asks {
            for row in [&mut *observation.nodes, observation.pod, observation.context] {
                row.fill(0.0);
            }
            observation.mask.fill(0);
            return Ok(());
        }
        let pod = &self.pods[self.next].known;
        observation.mask.copy_from_slice(&self.mask);
        self.model.view.observe(pod, pod.user, observation)?;
        // The filter narrows the mask that agents see; a node outside it counts as illegal.
        if self.task.filters && pod.user.is_some() {
            self.model.view.keep_least_risk(pod, &mut self.mask);
            observation.mask.copy_from_slice(&self.mask);
        }
        Ok(())
    }

    /// The seconds since the start of the episode.
    pub fn now(&self) -> f64 {
        self.model.now
    }

    pub fn figures(&self) -> [f64; 13] {
        self.model.totals.figures()
    }

    /// What is true of the nodes, and would be if the current pod ran on each.
    pub fn truth(&self) -> Vec<NodeTruth> {
        let pod = self.pods.get(self.next);
        let latency = |n: usize| pod.and_then(|pod| self.model.latency_with(pod, n)).unwrap_or(f64::NAN);
        let truth = |(n, node): (usize, &KnownNode)| NodeTruth { pods: node.pods(), latency: latency(n) };
        self.model.view.nodes.iter().enumerate().map(truth).collect()
    }
}

impl Episode for LatencyEpisode {
    fn again(&mut self, arrays: &Arrays, observation: &mut Observation) -> Result<bool> {
        let mut task = self.task.clone();
        task.steps.taken.clear();
        *self = LatencyEpisode::new(read_start(arrays, &self.model.settings)?, task);
        self.observe_first(observation)
    }

    fn step(&mut self, action: i64, observation: &mut Observation) -> Result<Step> {
        let Some(n) = self.task.steps.take(action, observation.mask) else {
            return Ok(self.task.steps.outcome(None, false));
        };
        self.kept = self.model.bind(&mut self.pods[self.next], n);
        self.next += 1;
        self.bound += 1;
        // Before advancing: the reward is about the state that the action leads to, not about what happens next.
        self.summarise();
        let reward = self.reward();
        let asks = self.advance();
        self.observe(asks, observation)?;
        Ok(self.task.steps.outcome(Some(reward), !asks))
    }

    fn fewest_together(&self) -> usize {
        64
    }

    fn shape(&self) -> Result<(usize, usize)> {
        Ok((self.model.truth.len(), NODE))
    }

    fn steps(&self) -> &Steps {
        &self.task.steps
    }

    fn states(&self) -> [&Summary; 3] {
        [&self.after; 3]
    }

    fn best_by_rule(&self, rule: i64) -> Result<Option<usize>> {
        let rule = MetricRule::read(rule)?;
        Ok(self.pods.get(self.next).and_then(|pod| decide(rule, &self.model.view, &pod.known, &self.mask)))
    }

    fn counts(&self) -> Result<[i64; 3]> {
        Ok([self.bound, self.next as i64 - self.bound, self.kept as i64])
    }

    fn loads(&self) -> Result<Vec<[f64; 2]>> {
        let load = |(n, node): (usize, &KnownNode)| {
            let cpu = (self.model.cpu_wanted(n) / node.cpu() as f64).min(1.0);
            [cpu, self.model.truth[n].memory() as f64 / node.node.allocatable[MEMORY] as f64]
        };
        Ok(self.model.view.nodes.iter().enumerate().map(load).collect())
    }

    fn latencies(&self) -> Result<&LatencyEpisode> {
        Ok(self)
    }
}

/// Read `latency.seed` and `latency.nodes`, at least two.
fn read_start(arrays: &Arrays, settings: &Settings) -> Result<Start> {
    let nodes = index("latency.nodes", arrays.number("latency.nodes")?, settings.max_nodes + 1)?;
    if nodes < 2 {
        return Err(format!("latency.nodes: expected at least 2, is {nodes}"));
    }
    Ok(Start::draw(settings, arrays.number("latency.seed")? as u64, nodes))
}
