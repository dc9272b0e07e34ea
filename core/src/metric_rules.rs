//! Rules that decide by telemetry, and kube-scheduler's default, which only sees requests: baselines and teachers.
//!
//! `most-allocated`, `least-allocated`, `least-connections` and `latency-aware` are the objectives MA, LA, LC and P0 of
//! Matranga's thesis (SoniaMatranga/SoniaMatrangaTesi) as rules: each takes the node that is best once the pod runs there.
//! A node whose metric is missing counts as the average of the others: it neither attracts nor repels.

use crate::arrays::{Result, index};
use crate::rules::{BEST, balanced_allocation, least_allocated};
use crate::telemetry::{KnownNode, KnownPod, MARGIN, METRICS, QUEUEING_KNEE, Question, Rates, SAFE, SchedulerView};

/// maxSkew of the default constraints of PodTopologySpread, kubernetes.io/hostname and topology.kubernetes.io/zone.
const HOSTNAME_SKEW: f64 = 3.0;
const ZONE_SKEW: f64 = 5.0;
/// kube-scheduler's default weight of PodTopologySpread; those of the other two plugins are 1.
const SPREADING: i64 = 2;
/// The best score of `kube-default`.
pub const MOST_POINTS: f64 = 4.0 * BEST as f64;

/// Average pods that another pod of the same Deployment on a node counts as, until use is measured.
///
/// Pods of one Deployment have about as many connections each, and a few Deployments have most of them.
const SIBLING_LOAD_PRIOR: f64 = 3.0;

/// A rule, in the order of `steersman.policies.node_metrics.METRIC_RULES`.
#[derive(Clone, Copy, PartialEq)]
pub enum MetricRule {
    KubeDefault,
    MostAllocated,
    LeastAllocated,
    LeastConnections,
    LatencyAware,
}

impl MetricRule {
    pub fn read(number: i64) -> Result<Self> {
        let rules = [
            MetricRule::KubeDefault,
            MetricRule::MostAllocated,
            MetricRule::LeastAllocated,
            MetricRule::LeastConnections,
            MetricRule::LatencyAware,
        ];
        Ok(rules[index("rule", number, rules.len())?])
    }
}

/// What the scores of a rule for one pod have in common.
struct Scoring<'a> {
    rule: MetricRule,
    view: &'a SchedulerView,
    pod: &'a KnownPod,
    rates: Rates,
    /// What counts for a node whose metric is missing.
    neutral: f64,
    /// See `SchedulerView::nearest`.
    nearest: Vec<f64>,
    spread: Spread,
}

impl<'a> Scoring<'a> {
    fn new(rule: MetricRule, view: &'a SchedulerView, pod: &'a KnownPod, mask: &[i8]) -> Self {
        let is_near = rule == MetricRule::LatencyAware && pod.user.is_some();
        let mut scoring = Scoring {
            rule,
            view,
            pod,
            rates: view.rates(),
            neutral: 0.0,
            nearest: if is_near { view.nearest(pod) } else { Vec::new() },
            spread: if rule == MetricRule::KubeDefault { Spread::new(view, mask) } else { Spread::default() },
        };
        let (mut total, mut count) = (0.0, 0.0);
        for (node, mask) in view.nodes.iter().zip(mask) {
            let after = scoring.after(node);
            if *mask != 0 && !after.is_nan() {
                total += after;
                count += 1.0;
            }
        }
        scoring.neutral = if count > 0.0 { total / count } else { 0.0 };
        scoring
    }

    /// What the rule compares: connections, or the share of CPU used, with the pod on a node; NaN: missing.
    fn after(&self, node: &KnownNode) -> f64 {
        if self.rule == MetricRule::LeastConnections {
            return node.connections_after(&self.rates)
                + SIBLING_LOAD_PRIOR * self.rates.connections * node.siblings as f64;
        }
        node.cpu_after(self.pod, &self.rates)
    }

    fn score(&self, node: &KnownNode) -> f64 {
        let after = self.after(node);
        let after = if after.is_nan() { self.neutral } else { after };
        match self.rule {
            MetricRule::KubeDefault => self.spread.kube_default(node, self.pod) as f64,
            MetricRule::MostAllocated => pack_score(node, after),
            MetricRule::LatencyAware => self.latency_aware(node, after),
            MetricRule::LeastAllocated | MetricRule::LeastConnections => -after,
        }
    }

    /// A score of limits first, then as `pack_score`; if a hard limit is at risk, of the least risk.
    ///
    /// Within the soft limit first; then within the hard one; then by `hard_limit_risk`. Since a Deployment may turn out to
    /// be a busy one, its pods go to different nodes as long as that takes no empty one.
    fn latency_aware(&self, node: &KnownNode, after: f64) -> f64 {
        let fullest = pack_score(node, after);
        if self.pod.user.is_none() {
            // A pod without limits avoids nodes whose queues it would make grow.
            return fullest - if after > QUEUEING_KNEE { 20.0 } else { 0.0 };
        }
        let risk = self.view.hard_limit_risk(node, self.pod, &self.nearest);
        if risk > SAFE {
            return 200.0 - risk;
        }
        let is_near = node.latency_to_users(self.pod) * MARGIN <= self.pod.soft;
        // Below the 10 points of a node in use, so that siblings never take an empty node.
        (if is_near { 400.0 } else { 300.0 }) + fullest - node.siblings.min(9) as f64
    }
}

/// Prefers nodes in use, so that empty ones stay empty, and among these the most CPU used.
fn pack_score(node: &KnownNode, after: f64) -> f64 {
    // 10 is more than any share of use, so packing goes first.
    (if node.pods() > 0 { 10.0 } else { 0.0 }) + after
}

/// The node of the mask that a rule takes, the first of equals; None: there is none.
pub fn decide(rule: MetricRule, view: &SchedulerView, pod: &KnownPod, mask: &[i8]) -> Option<usize> {
    let scoring = Scoring::new(rule, view, pod, mask);
    let mut best: (Option<usize>, f64) = (None, f64::NEG_INFINITY);
    for (n, node) in view.nodes.iter().enumerate().filter(|&(n, _)| mask[n] != 0) {
        let score = scoring.score(node);
        if score > best.1 {
            best = (Some(n), score);
        }
    }
    best.0
}

/// Write a rule's scores by node, -inf outside the mask.
pub fn write_scores(rule: MetricRule, question: &Question, scores: &mut [f64]) -> Result<()> {
    let Question { view, pod, mask } = question;
    if scores.len() != view.nodes.len() {
        return Err(format!("{} nodes have as many scores, not {}", view.nodes.len(), scores.len()));
    }
    let scoring = Scoring::new(rule, view, pod, mask);
    for ((score, node), mask) in scores.iter_mut().zip(&view.nodes).zip(mask) {
        *score = if *mask != 0 { scoring.score(node) } else { f64::NEG_INFINITY };
    }
    Ok(())
}

/// What distinguishes a feasible node from another: its value, that of the other, and how much its score falls with that.
///
/// By metric, then by the latency to the pod's users, the share of CPU requested, and the pods of the pod's owner.
pub fn contributions(rule: MetricRule, question: &mut Question, n: usize, other: usize) -> Result<Vec<[f64; 3]>> {
    let count = question.view.nodes.len();
    for number in [n, other] {
        index("node", number as i64, count)?;
    }
    let score = |question: &Question| {
        let scoring = Scoring::new(rule, &question.view, &question.pod, &question.mask);
        if question.mask[n] != 0 { scoring.score(&question.view.nodes[n]) } else { f64::NEG_INFINITY }
    };
    let now = score(question);
    let (here, there) = (question.view.nodes[n].clone(), question.view.nodes[other].clone());
    let mut parts = Vec::new();
    let mut swap = |question: &mut Question, values: [f64; 2], change: &dyn Fn(&mut KnownNode)| {
        change(&mut question.view.nodes[n]);
        parts.push([values[0], values[1], now - score(question)]);
        question.view.nodes[n] = here.clone();
    };
    for column in (0..METRICS).chain(question.pod.user.map(|user| METRICS + user)) {
        let [value, instead] = [&here, &there].map(|node| *node.measured.clone().at(column));
        swap(question, [value, instead], &|node| *node.measured.at(column) = instead);
    }
    let share = |node: &KnownNode| 1.0 - node.node.free[0] as f64 / node.cpu().max(1) as f64;
    swap(question, [share(&here), share(&there)], &|node| {
        node.node.allocatable.clone_from(&there.node.allocatable);
        node.node.free.clone_from(&there.node.free);
    });
    let siblings = [here.siblings as f64, there.siblings as f64];
    swap(question, siblings, &|node| node.siblings = there.siblings);
    Ok(parts)
}

/// Normalisation of the spread of a Deployment, over the nodes that passed the filters.
#[derive(Default)]
pub struct Spread {
    /// The weight of a pod on the node, ln(nodes + 2), and in the zone, ln(zones + 2).
    host: f64,
    zone: f64,
    /// Pods of the Deployment by zone.
    in_zone: Vec<i64>,
    /// The raw scores' range.
    least: i64,
    most: i64,
}

impl Spread {
    pub fn new(view: &SchedulerView, mask: &[i8]) -> Self {
        let (mut hosts, mut zones, mut in_zone) = (0, vec![false; view.zones], vec![0; view.zones]);
        for (node, mask) in view.nodes.iter().zip(mask) {
            in_zone[node.zone] += node.siblings;
            if *mask != 0 {
                hosts += 1;
                zones[node.zone] = true;
            }
        }
        let zones = zones.into_iter().filter(|is_there| *is_there).count();
        let weight = |count: usize| libm::log(count as f64 + 2.0);
        let mut spread = Spread { host: weight(hosts), zone: weight(zones), in_zone, least: 1 << 60, most: 0 };
        for (node, _) in view.nodes.iter().zip(mask).filter(|(_, mask)| **mask != 0) {
            let raw = spread.raw(node);
            (spread.least, spread.most) = (spread.least.min(raw), spread.most.max(raw));
        }
        spread
    }

    /// Pods of the Deployment on the node and in its zone, weighted, plus max skew - 1 of each, half up.
    fn raw(&self, node: &KnownNode) -> i64 {
        let on_node = node.siblings as f64 * self.host + (HOSTNAME_SKEW - 1.0);
        let in_zone = self.in_zone[node.zone] as f64 * self.zone + (ZONE_SKEW - 1.0);
        (on_node + in_zone + 0.5).floor() as i64
    }

    /// kube-scheduler's default score: LeastAllocated, BalancedAllocation and the default PodTopologySpread.
    pub fn kube_default(&self, node: &KnownNode, pod: &KnownPod) -> i64 {
        let raw = self.raw(node);
        let apart = if self.most > 0 { (BEST * (self.most + self.least - raw)).div_euclid(self.most) } else { BEST };
        least_allocated(&node.node, &pod.class) + balanced_allocation(&node.node, &pod.class) + SPREADING * apart
    }
}
