//! A network that chooses nodes, by what is observed of a run or of a live cluster.

use std::sync::Arc;

use crate::arrays::{Arrays, Result, index, optional};
use crate::cluster::{CPU, Cluster, MEMORY, Node, PODS};
use crate::decide::{Decider, NodeRule};
use crate::learned::Leftovers;
use crate::networks::{Network, first_best};
use crate::views::{CONTEXT, Observation, Observer, POD, Summary};

#[derive(Clone)]
pub struct NetworkRule {
    name: String,
    network: Arc<Network>,
    /// The rack and the server of each node.
    groups: Vec<[Option<i64>; 2]>,
    /// Of a live cluster; a run has its own. None: it observes right now.
    observer: Option<Observer>,
    /// The nodes that some pod may enter, and how many pods wait beside the one that is decided.
    eligible: Vec<bool>,
    waiting: f64,
}

/// What is observed of a decision, and what a network makes of it.
pub struct Seen {
    pub nodes: Vec<f32>,
    pod: [f32; POD],
    context: [f32; CONTEXT],
    mask: Vec<i8>,
    pub scores: Vec<f64>,
}

impl Seen {
    fn observation(&mut self) -> Observation<'_> {
        let Seen { nodes, pod, context, mask, .. } = self;
        Observation { nodes, pod, context, mask }
    }

    /// The best node; None: the pod fits nowhere.
    fn best(&self) -> Option<usize> {
        self.mask.contains(&1).then(|| first_best(&self.scores, &self.nodes))
    }
}

impl NetworkRule {
    /// Read `observer.*`: racks, and servers of a network that reads these; `leftovers`: of the view `gpu`.
    pub fn read(
        arrays: &Arrays,
        cluster: &Cluster,
        leftovers: Option<Arc<Leftovers>>,
        (name, network): (String, Network),
    ) -> Result<Self> {
        let nodes = cluster.nodes.len();
        let mut groups = vec![[None; 2]; nodes];
        for (kind, array) in ["observer.rack", "observer.server"].into_iter().enumerate() {
            if network.reads_groups() {
                for (group, number) in groups.iter_mut().zip(arrays.list_of::<i64>(array, nodes)?) {
                    group[kind] = optional(array, number, 1 << 31)?.map(|number| number as i64);
                }
            }
        }
        let observer = Some(Observer::of_single_pods(arrays, cluster, leftovers)?);
        Ok(NetworkRule {
            name,
            network: Arc::new(network),
            groups,
            observer,
            eligible: vec![true; nodes],
            waiting: 0.0,
        })
    }

    pub fn changed(&mut self, n: usize) {
        if let Some(observer) = &mut self.observer {
            observer.changed(n);
        }
    }

    /// Forget what is known of all but the first `kept` classes, and make room for so many.
    pub fn set_classes(&mut self, kept: usize, classes: usize) {
        if let Some(observer) = &mut self.observer {
            observer.set_classes(kept, classes);
        }
    }
}

impl Decider {
    /// Say what the next decisions of a network observe in addition to the cluster: how many pods wait, which nodes some
    /// pod may enter, and on which nodes how many pods of the pod's owner run.
    pub fn observe(&mut self, waiting: i64, eligible: Vec<bool>, owner_pods: &[(i64, i64)]) -> Result<()> {
        let nodes = self.nodes();
        let pod = |&(node, count): &(i64, i64)| {
            Ok((index("owner_nodes", node, nodes)?, index("owner_pods", count, 1 << 31)? as i32))
        };
        let pods: Vec<(usize, i32)> = owner_pods.iter().map(pod).collect::<Result<_>>()?;
        if eligible.len() != nodes {
            return Err(format!("eligible: expected {nodes} values, has {}", eligible.len()));
        }
        if let NodeRule::Network(rule) = &mut self.node_rule {
            (rule.waiting, rule.eligible) = (waiting as f64, eligible);
            if let Some(observer) = &mut rule.observer {
                observer.set_owner(&pods);
            }
        }
        Ok(())
    }

    /// Choose the node of a pod by the network, from what a run observes; None: it fits nowhere. See `Observer::write`.
    pub fn choose_observed(
        &self,
        observer: &mut Observer,
        summary: &Summary,
        pod: (usize, usize),
        allowed: Option<&[bool]>,
    ) -> Result<Option<usize>> {
        let seen = self.see(observer, summary, pod, allowed, self.nodes())?;
        Ok(seen.best())
    }

    /// Choose the node of a pod by the network, in a live cluster; None: it fits nowhere.
    pub fn choose_by_network(&mut self, c: usize, is_masked: bool) -> Result<Option<usize>> {
        Ok(self.look(c, is_masked)?.best())
    }

    pub fn scores_by_network(&mut self, c: usize, is_masked: bool, out: &mut [f64]) -> Result<()> {
        let seen = self.look(c, is_masked)?;
        out.fill(f64::NEG_INFINITY);
        out.iter_mut().zip(seen.scores).for_each(|(out, score)| *out = score);
        Ok(())
    }

    /// Observe a pod in a live cluster, and score the nodes.
    pub fn look(&mut self, c: usize, is_masked: bool) -> Result<Seen> {
        // Free slots after the last node are spare.
        let is_node = |node: &Node| node.allocatable.iter().any(|&amount| amount != 0);
        let count = self.cluster.nodes.iter().rposition(is_node).map_or(0, |last| last + 1);
        let summary = self.summary();
        let NodeRule::Network(rule) = &mut self.node_rule else { return Err("the policy is not a network".to_owned()) };
        // Apart from the decider, all of which it reads.
        let mut observer = rule.observer.take().ok_or("the network failed in an earlier call")?;
        let allowed = is_masked.then_some(self.mask.as_slice());
        let seen = self.see(&mut observer, &summary, (0, c), allowed, count);
        if let NodeRule::Network(rule) = &mut self.node_rule {
            rule.observer = Some(observer);
        }
        seen
    }

    /// Observe a pod, and score the first `count` nodes.
    fn see(
        &self,
        observer: &mut Observer,
        summary: &Summary,
        pod: (usize, usize),
        allowed: Option<&[bool]>,
        count: usize,
    ) -> Result<Seen> {
        let (nodes, width) = (self.nodes(), observer.width());
        let mut seen = Seen {
            nodes: vec![0.0; nodes * width],
            pod: [0.0; POD],
            context: [0.0; CONTEXT],
            mask: vec![0; nodes],
            scores: Vec::new(),
        };
        observer.write(self, summary, pod, allowed, &mut seen.observation())?;
        seen.nodes.truncate(count * width);
        seen.mask.truncate(count);
        seen.scores = self.network_scores(&mut seen)?;
        Ok(seen)
    }

    /// Score the nodes of an observation.
    pub fn network_scores(&self, seen: &mut Seen) -> Result<Vec<f64>> {
        let NodeRule::Network(rule) = &self.node_rule else { return Err("the policy is not a network".to_owned()) };
        let scores = rule.network.scores(&seen.observation(), &rule.groups);
        let is_wrong = |(&mask, &score): (&i8, &f64)| mask != 0 && !score.is_finite();
        if seen.mask.iter().zip(&scores).any(is_wrong) {
            return Err(format!("policy '{}': the score of a node is not a finite number", rule.name));
        }
        Ok(scores)
    }

    /// The state of a live cluster.
    fn summary(&self) -> Summary {
        let NodeRule::Network(rule) = &self.node_rule else { return Summary::default() };
        let mut summary = Summary::of(&self.cluster.nodes, &rule.eligible);
        summary.waiting = rule.waiting;
        summary.gpu_taken = summary.gpu_total;
        let nodes = self.cluster.nodes.iter().zip(&self.fragments).zip(&rule.eligible);
        for ((node, fragments), _) in nodes.filter(|(_, eligible)| **eligible) {
            // Free may be below 0 where pods run on a node that shrank; shares then exceed 1.
            let used = |r: usize| (node.allocatable[r] - node.free[r]) as f64;
            if node.allocatable[CPU] > 0 {
                let share = used(CPU) / node.allocatable[CPU] as f64;
                summary.cpu_share += share;
                summary.cpu_square += share * share;
            }
            summary.nodes_used += if used(PODS) > 0.0 { 1.0 } else { 0.0 };
            summary.cpu_taken += used(CPU);
            summary.memory_taken += used(MEMORY);
            summary.gpu_taken -= node.gpus.iter().sum::<i64>() as f64;
            summary.fragmented += fragments.total;
        }
        summary
    }
}
