//! A network that chooses nodes, by what is observed of a run or of a live cluster.

use std::sync::Arc;

use crate::arrays::{Arrays, Result, optional};
use crate::cluster::Cluster;
use crate::decide::{Decider, NodeRule};
use crate::networks::{Inputs, Network, first_best};
use crate::views::{CONTEXT, Observation, Observer, POD, Summary};

#[derive(Clone)]
pub struct NetworkRule {
    name: String,
    network: Arc<Network>,
    /// The rack and the server of each node.
    groups: Vec<[Option<i64>; 2]>,
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
    /// Read `observer.rack` and `observer.server` of a network that reads these.
    pub fn read(arrays: &Arrays, cluster: &Cluster, (name, network): (String, Network)) -> Result<Self> {
        let nodes = cluster.nodes.len();
        let mut groups = vec![[None; 2]; nodes];
        for (kind, array) in ["observer.rack", "observer.server"].into_iter().enumerate() {
            if network.reads_groups() {
                for (group, number) in groups.iter_mut().zip(arrays.list_of::<i64>(array, nodes)?) {
                    group[kind] = optional(array, number, 1 << 31)?.map(|number| number as i64);
                }
            }
        }
        Ok(NetworkRule { name, network: Arc::new(network), groups })
    }
}

impl Decider {
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
        let (count, summary) = (self.slots_in_use(), self.summary());
        // Apart from the decider, all of which it reads.
        let mut watch = self.watch.take().ok_or("the cluster is not observed")?;
        let allowed = is_masked.then_some(self.mask.as_slice());
        let seen = self.see(&mut watch.observer, &summary, (0, c), allowed, count);
        self.watch = Some(watch);
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
        seen.scores = self.network_scores(&seen)?;
        Ok(seen)
    }

    /// Score the nodes of an observation.
    pub fn network_scores(&self, seen: &Seen) -> Result<Vec<f64>> {
        let NodeRule::Network(rule) = &self.node_rule else { return Err("the policy is not a network".to_owned()) };
        let Seen { nodes, pod, context, mask, .. } = seen;
        let scores = rule.network.scores(&Inputs { nodes, pod, context, mask }, &rule.groups);
        let is_wrong = |(&mask, &score): (&i8, &f64)| mask != 0 && !score.is_finite();
        if seen.mask.iter().zip(&scores).any(is_wrong) {
            return Err(format!("policy '{}': the score of a node is not a finite number", rule.name));
        }
        Ok(scores)
    }
}
