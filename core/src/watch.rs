//! What is observed of a live cluster for one pod after another, and what a placement would make of it.

use crate::arrays::{Arrays, Result, index};
use crate::cluster::{CPU, MEMORY, Node, PODS};
use crate::decide::Decider;
use crate::learned::Leftovers;
use crate::views::{Observation, Observer, Summary};

/// Numbers of a state, see `steersman.objectives.summary`.
pub const STATE: usize = 16;

/// The observer of a live cluster; a run has its own.
#[derive(Clone)]
pub struct Watch {
    pub observer: Observer,
    /// The nodes that some pod may enter, and how many pods wait besides the one that is decided.
    eligible: Vec<bool>,
    waiting: f64,
}

impl Watch {
    pub fn new(observer: Observer, nodes: usize) -> Self {
        Watch { observer, eligible: vec![true; nodes], waiting: 0.0 }
    }
}

impl Decider {
    /// Observe the cluster from now on; read `observer.view`, `observer.rack`, `observer.racks`, and `leftovers.*` for
    /// the view `gpu`.
    pub fn watch(&mut self, arrays: &Arrays) -> Result<()> {
        let leftovers = match index("observer.view", arrays.number("observer.view")?, 2)? {
            0 => None,
            _ => Some(Leftovers::read(arrays)?.into()),
        };
        let observer = Observer::of_single_pods(arrays, &self.cluster, leftovers)?;
        self.watch = Some(Watch::new(observer, self.nodes()));
        Ok(())
    }

    /// Say what the next decisions observe in addition to the cluster: how many pods wait, which nodes some pod may enter,
    /// and on which nodes how many pods of the pod's owner run.
    pub fn observe(&mut self, waiting: i64, eligible: Vec<bool>, owner_pods: &[(i64, i64)]) -> Result<()> {
        let nodes = self.nodes();
        let pod = |&(node, count): &(i64, i64)| {
            Ok((index("owner_nodes", node, nodes)?, index("owner_pods", count, 1 << 31)? as i32))
        };
        let pods: Vec<(usize, i32)> = owner_pods.iter().map(pod).collect::<Result<_>>()?;
        if eligible.len() != nodes {
            return Err(format!("eligible: expected {nodes} values, has {}", eligible.len()));
        }
        if let Some(watch) = &mut self.watch {
            (watch.waiting, watch.eligible) = (waiting as f64, eligible);
            watch.observer.set_owner(&pods);
        }
        Ok(())
    }

    /// Write what is observed of a class that may run on the feasible nodes (none: wherever it fits), and the state; return
    /// the number of slots up to the last node, since free slots after it are spare.
    pub fn look_at(
        &mut self,
        c: usize,
        feasible: &[bool],
        observation: &mut Observation,
        state: &mut [f64],
    ) -> Result<usize> {
        let nodes = self.nodes();
        if !(feasible.is_empty() || feasible.len() == nodes) {
            return Err(format!("feasible: expected {nodes} values, has {}", feasible.len()));
        }
        let summary = self.write_state(state)?;
        // Apart from the decider, all of which it reads.
        let mut watch = self.watch.take().ok_or("the cluster is not observed")?;
        let allowed = (!feasible.is_empty()).then_some(feasible);
        let written = watch.observer.write(self, &summary, (0, c), allowed, observation);
        self.watch = Some(watch);
        written.map(|()| self.slots_in_use())
    }

    /// Write the state of an observed cluster, [16], see `steersman.objectives.summary`.
    pub fn write_state(&self, state: &mut [f64]) -> Result<Summary> {
        let summary = self.summary();
        match state.split_last_mut() {
            Some((last, numbers)) if numbers.len() + 1 == STATE => {
                numbers.copy_from_slice(&summary.numbers());
                *last = self.slots_in_use() as f64;
                Ok(summary)
            }
            _ => Err(format!("state: expected {STATE} numbers")),
        }
    }

    /// Change a state, [16], as the placement of a class on a node that it fits on would, with the default devices.
    pub fn write_outcome(&mut self, c: usize, n: usize, state: &mut [f64]) -> Result<()> {
        let (class, before) = (&self.cluster.classes[c], &self.cluster.nodes[n]);
        let mut node = before.clone();
        node.place(class, before.best_devices(class));
        let share = |node: &Node| match node.allocatable[CPU] {
            cpu if cpu > 0 => (cpu - node.free[CPU]) as f64 / cpu as f64,
            _ => 0.0,
        };
        let [was, is] = [share(before), share(&node)];
        let watch = self.watch.as_mut().ok_or("the cluster is not observed")?;
        let [_, used, _, cpu_share, cpu_square, cpu, _, memory, _, gpu, _, fragmented, _, _, locality, _] = state
        else {
            return Err(format!("state: expected {STATE} numbers"));
        };
        *used += if before.free[PODS] == before.allocatable[PODS] { 1.0 } else { 0.0 };
        *cpu_share += is - was;
        *cpu_square += is * is - was * was;
        *cpu += class.request[CPU] as f64;
        *memory += class.request[MEMORY] as f64;
        *gpu += (before.idle_gpu() - node.idle_gpu()) as f64;
        *fragmented += self.profile.fragments(&node).total - self.fragments[n].total;
        *locality = watch.observer.share_nearby_with(n);
        Ok(())
    }

    /// The number of slots up to the last node.
    pub fn slots_in_use(&self) -> usize {
        let is_node = |node: &Node| node.allocatable.iter().any(|&amount| amount != 0);
        self.cluster.nodes.iter().rposition(is_node).map_or(0, |last| last + 1)
    }

    /// The state of a live cluster.
    pub fn summary(&self) -> Summary {
        let Some(watch) = &self.watch else { return Summary::default() };
        let mut summary = Summary::of(&self.cluster.nodes, &watch.eligible);
        summary.waiting = watch.waiting;
        summary.gpu_taken = summary.gpu_total;
        let nodes = self.cluster.nodes.iter().zip(&self.fragments).zip(&watch.eligible);
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
