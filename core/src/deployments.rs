//! A cluster that is filled with random Deployments and cleared again, as AAML's load generator does.
//!
//! It draws as `steersman.workloads.generators.deployments.generate` does, pod by pod: another Deployment while every load
//! is below its target; everything is cleared when one is reached. There is no clock, and nothing waits.

use crate::arrays::{Arrays, Result, index};
use crate::cluster::{CPU, MEMORY, Node, PODS};
use crate::decide::Decider;
use crate::episode::{Episode, Reward, Step, Steps, observe_end};
use crate::random::Random;
use crate::rules::RULES;
use crate::views::{Observation, Observer, Summary};

/// The arrival that an observer of single pods knows, whose owner is the Deployment under way.
const ONLY: usize = 0;

/// What is drawn, and when a filling ends.
struct Draws {
    /// Loads of CPU, memory and pods; the first one reached ends a filling.
    targets: [f64; 3],
    /// CPU and memory requests. The class of CPU i and memory j is i times memory requests + j.
    requests: [usize; 2],
    /// The fewest and the most pods of a Deployment.
    replicas: [i64; 2],
    fillings: i64,
}

/// What a filling would have if no pod had been dropped.
#[derive(Default)]
struct Wanted {
    cpu: i64,
    memory: i64,
    pods: i64,
}

/// An episode of fillings.
pub struct Filling {
    decider: Decider,
    observer: Observer,
    draws: Draws,
    random: Random,
    reward: Reward,
    steps: Steps,
    /// The Deployment under way: its class, and its pods to come, the current one included.
    class: usize,
    left: i64,
    filled: i64,
    wanted: Wanted,
    bound: i64,
    dropped: i64,
    now: Summary,
    before: Summary,
    after: Summary,
}

impl Filling {
    /// Read a cluster without GPUs and its classes, see `Decider::read`, racks, see `Observer::of_single_pods`, `filling.*`
    /// and `episode.*`, and begin.
    pub fn begin(arrays: &Arrays, observation: &mut Observation) -> Result<(Self, bool)> {
        let decider = Decider::read(arrays)?;
        let (nodes, classes) = (&decider.cluster.nodes, decider.cluster.classes.len());
        let targets: Vec<f64> = arrays.list_of("filling.targets", 3)?;
        let requests: Vec<i64> = arrays.list_of("filling.requests", 2)?;
        let requests = [requests[0], requests[1]].map(|count| index("filling.requests", count, classes + 1));
        let requests = [requests[0].clone()?, requests[1].clone()?];
        if requests[0] * requests[1] != classes {
            return Err(format!("filling.requests: {requests:?} are not those of {classes} classes"));
        }
        let replicas: Vec<i64> = arrays.list_of("filling.replicas", 2)?;
        // A Deployment without pods would never reach a target.
        if !(1 <= replicas[0] && replicas[0] <= replicas[1] && replicas[1] < 1 << 31) {
            return Err(format!("filling.replicas: {} to {} are no pods", replicas[0], replicas[1]));
        }
        let now = Summary::of(nodes, &vec![true; nodes.len()]);
        let mut filling = Filling {
            observer: Observer::of_single_pods(arrays, &decider.cluster, None)?,
            decider,
            draws: Draws {
                targets: [targets[0], targets[1], targets[2]],
                requests,
                replicas: [replicas[0], replicas[1]],
                fillings: arrays.number("filling.fillings")?,
            },
            random: Random::new(0),
            reward: Reward::read(arrays)?,
            steps: Steps::read(arrays)?,
            class: 0,
            left: 0,
            filled: 0,
            wanted: Wanted::default(),
            bound: 0,
            dropped: 0,
            before: now.clone(),
            after: now.clone(),
            now,
        };
        let asks = filling.again(arrays, observation)?;
        Ok((filling, asks))
    }

    /// Go on to the next pod that fits somewhere; return false if the episode has ended.
    fn find_next(&mut self) -> bool {
        loop {
            while self.left == 0 {
                if self.is_below_targets() {
                    self.draw();
                } else {
                    self.filled += 1;
                    if self.filled >= self.draws.fillings {
                        return false;
                    }
                    self.clear();
                }
            }
            if (0..self.decider.nodes()).any(self.decider.cluster.fitting(self.class)) {
                return true;
            }
            // Nothing leaves before everything is cleared: no pod of this Deployment will fit any more.
            self.dropped += self.left;
            self.now.waiting += self.left as f64;
            self.left = 0;
        }
    }

    fn is_below_targets(&self) -> bool {
        let pods: i64 = self.decider.cluster.nodes.iter().map(|node| node.allocatable[PODS]).sum();
        let [cpu, memory, places] = self.draws.targets;
        // By what was requested, dropped pods included: loads of bound pods alone might never reach a target.
        self.wanted.cpu as f64 / self.now.cpu_total < cpu
            && self.wanted.memory as f64 / self.now.memory_total < memory
            && (self.wanted.pods as f64 / pods as f64) < places
    }

    /// Draw the next Deployment: replicas, CPU, memory, uniformly and in this order.
    fn draw(&mut self) {
        let [fewest, most] = self.draws.replicas;
        self.left = fewest + self.random.below((most - fewest + 1) as usize) as i64;
        let [cpus, memories] = self.draws.requests;
        let cpu = self.random.below(cpus);
        let class = cpu * memories + self.random.below(memories);
        self.observer.keep_only(class, std::mem::replace(&mut self.class, class));
        let request = &self.decider.cluster.classes[self.class].request;
        self.wanted.pods += self.left;
        self.wanted.cpu += self.left * request[CPU];
        self.wanted.memory += self.left * request[MEMORY];
        self.observer.set_owner(&[]);
    }

    fn clear(&mut self) {
        for (n, node) in self.decider.cluster.nodes.iter_mut().enumerate() {
            node.free.copy_from_slice(&node.allocatable);
            node.nonzero = [0; 2];
            self.observer.changed(n);
        }
        // The targets are those of one filling.
        self.wanted = Wanted::default();
        let Summary { nodes, cpu_nodes, cpu_total, memory_total, rack_locality, .. } = self.now;
        self.now = Summary { nodes, cpu_nodes, cpu_total, memory_total, rack_locality, ..Summary::default() };
    }

    fn bind(&mut self, n: usize) {
        let (cluster, now) = (&mut self.decider.cluster, &mut self.now);
        let (node, class) = (&mut cluster.nodes[n], &cluster.classes[self.class]);
        let total = node.allocatable[CPU];
        let share = |free: i64| (total - free) as f64 / total as f64;
        let before = share(node.free[CPU]);
        now.nodes_used += if node.free[PODS] == node.allocatable[PODS] { 1.0 } else { 0.0 };
        node.place(class, 0);
        let after = share(node.free[CPU]);
        now.cpu_share += after - before;
        now.cpu_square += after * after - before * before;
        now.cpu_taken += class.request[CPU] as f64;
        now.memory_taken += class.request[MEMORY] as f64;
        self.observer.changed(n);
        self.observer.count(ONLY, n, 1);
        now.rack_locality = self.observer.share_nearby(ONLY, n);
        self.left -= 1;
        self.bound += 1;
    }

    fn observe(&mut self, asks: bool, observation: &mut Observation) -> Result<()> {
        if asks {
            return self.observer.write(&self.decider, &self.now, (ONLY, self.class), None, observation);
        }
        observe_end(&self.now, observation);
        Ok(())
    }
}

impl Episode for Filling {
    /// Read `filling.seed` and `filling.sizes`: milli-CPU, bytes of memory and pods of each node.
    fn again(&mut self, arrays: &Arrays, observation: &mut Observation) -> Result<bool> {
        let nodes = &mut self.decider.cluster.nodes;
        let sizes: Vec<Vec<i64>> = arrays.rows_of("filling.sizes", nodes.len(), 3)?;
        if let Some(size) = sizes.iter().find(|size| size.iter().any(|&amount| amount <= 0)) {
            return Err(format!("filling.sizes: {size:?} is no node"));
        }
        self.random = Random::new(arrays.number("filling.seed")? as u64);
        for (node, size) in nodes.iter_mut().zip(sizes) {
            for (r, amount) in [CPU, MEMORY, PODS].into_iter().zip(size) {
                node.allocatable[r] = amount;
            }
        }
        self.now = Summary::of(nodes, &vec![true; nodes.len()]);
        self.steps.taken.clear();
        (self.left, self.filled, self.bound, self.dropped) = (0, 0, 0, 0);
        self.clear();
        (self.before, self.after) = (self.now.clone(), self.now.clone());
        let asks = self.find_next();
        let (nodes, width) = self.shape()?;
        self.observe(asks, &mut observation.first(nodes, width)?)?;
        Ok(asks)
    }

    fn step(&mut self, action: i64, observation: &mut Observation) -> Result<Step> {
        let Some(n) = self.steps.take(action, observation.mask) else {
            return Ok(self.steps.outcome(None, false));
        };
        self.before = self.now.clone();
        self.bind(n);
        self.after = self.now.clone();
        let reward = self.reward.of(&self.before, &self.after);
        let asks = self.find_next();
        self.observe(asks, observation)?;
        Ok(self.steps.outcome(Some(reward), !asks))
    }

    fn fewest_together(&self) -> usize {
        256
    }

    fn shape(&self) -> Result<(usize, usize)> {
        Ok((self.decider.nodes(), self.observer.width()))
    }

    fn steps(&self) -> &Steps {
        &self.steps
    }

    fn states(&self) -> [&Summary; 3] {
        [&self.now, &self.before, &self.after]
    }

    fn best_by_rule(&self, rule: i64) -> Result<Option<usize>> {
        let score = RULES[index("rule", rule, RULES.len())?].1;
        let (class, fits) = (&self.decider.cluster.classes[self.class], self.decider.cluster.fitting(self.class));
        let mut best: Option<(i64, usize)> = None;
        for n in (0..self.decider.nodes()).filter(|&n| self.left > 0 && fits(n)) {
            let value = score(&self.decider.candidate(n), class);
            if best.is_none_or(|(highest, _)| value > highest) {
                best = Some((value, n));
            }
        }
        Ok(best.map(|(_, n)| n))
    }

    fn loads(&self) -> Result<Vec<[f64; 2]>> {
        let shares = |node: &Node| [CPU, MEMORY].map(|r| 1.0 - node.free[r] as f64 / node.allocatable[r] as f64);
        Ok(self.decider.cluster.nodes.iter().map(shares).collect())
    }

    fn counts(&self) -> Result<[i64; 3]> {
        Ok([self.bound, self.dropped, 0])
    }
}
