//! Which pods kube-scheduler's plugin DefaultPreemption removes for a pod that fits nowhere.
//!
//! Source: Kubernetes 1.34 to 1.37, pkg/scheduler/framework/preemption and plugins/defaultpreemption. Pod groups are left
//! out: the feature gate that they need is off.

use std::cmp::Reverse;

use crate::arrays::{Arrays, Result, index};
use crate::decide::{Choice, Decider};
use crate::heap::sort_few;

/// A pod of lower priority than the one that fits nowhere.
#[derive(Clone, Debug)]
struct Victim {
    class: usize,
    labels: usize,
    choice: Choice,
    priority: i64,
    started: i64,
    /// Numbers of the budgets that count it, in the order of the host.
    budgets: Vec<usize>,
}

impl Victim {
    /// More important ones come first.
    fn rank(&self) -> (Reverse<i64>, i64) {
        (Reverse(self.priority), self.started)
    }
}

/// A pod that fits nowhere, where it may preempt others, and what it may preempt.
#[derive(Debug)]
pub struct Question {
    class: usize,
    labels: usize,
    /// The nodes that are tried, in this order.
    nodes: Vec<usize>,
    /// How many candidates are enough, once one of them violates no budget.
    enough: usize,
    victims: Vec<Victim>,
    /// By budget how many pods may be disrupted.
    allowed: Vec<i64>,
    /// Whether a pod that violates a budget takes nothing from those after it, as since 1.37.
    stops: bool,
    /// Pods of at least this priority that wait for a node that is nominated: class, labels, node.
    nominated: Vec<[usize; 3]>,
}

/// A node where the pod fits without the victims.
#[derive(Clone, Debug, PartialEq)]
pub struct Candidate {
    pub node: usize,
    /// Places in `preempt.victims`, the most important first.
    pub victims: Vec<usize>,
    /// How many of them a budget keeps.
    pub violations: usize,
}

impl Question {
    /// Read, for a decider:
    ///
    /// - `preempt.pod`: class and labels of the pod.
    /// - `preempt.nodes`, `preempt.enough`: the nodes in the order in which they are tried; how many candidates are enough.
    /// - `preempt.victims`, [V, 6]: class, labels, node, devices, priority and start of pods of lower priority, those of a
    ///   node in the order in which it got them.
    /// - `preempt.allowed`, [B]: how many pods each budget lets go. `preempt.budgets`, [M, 2]: which pod which budget
    ///   counts, in the order in which a pod's budgets are read. `preempt.stops`: whether the first that is violated is the
    ///   last one read.
    /// - `preempt.nominated`, [Q, 3]: class, labels and node of pods for which a node's room is kept.
    pub fn read(arrays: &Arrays, decider: &Decider) -> Result<Self> {
        let pod: Vec<i64> = arrays.list_of("preempt.pod", 2)?;
        let (class, labels) = decider.pod(pod[0], pod[1])?;
        let rows: Vec<Vec<i64>> = arrays.rows("preempt.victims", 6)?;
        let mut victims = Vec::with_capacity(rows.len());
        for row in &rows {
            let (class, labels) = decider.pod(row[0], row[1])?;
            let node = index("preempt.victims, node", row[2], decider.nodes())?;
            let (choice, budgets) = (Choice { node, devices: row[3] as u64 }, Vec::new());
            victims.push(Victim { class, labels, choice, priority: row[4], started: row[5], budgets });
        }
        let allowed: Vec<i64> = arrays.list("preempt.allowed")?;
        for row in arrays.rows::<i64>("preempt.budgets", 2)? {
            let v = index("preempt.budgets, pod", row[0], victims.len())?;
            victims[v].budgets.push(index("preempt.budgets, budget", row[1], allowed.len())?);
        }
        let mut nominated = Vec::new();
        for row in arrays.rows::<i64>("preempt.nominated", 3)? {
            let (class, labels) = decider.pod(row[0], row[1])?;
            nominated.push([class, labels, index("preempt.nominated, node", row[2], decider.nodes())?]);
        }
        Ok(Question {
            class,
            labels,
            nodes: arrays.indices("preempt.nodes", decider.nodes())?,
            enough: arrays.number("preempt.enough")?.max(0) as usize,
            victims,
            allowed,
            stops: arrays.number("preempt.stops")? != 0,
            nominated,
        })
    }

    /// Sort pods by importance. Equal ones stay in their order, as up to 12 do in kube-scheduler.
    fn sort(&self, pods: &mut [usize]) {
        sort_few(pods, |&v, &w| self.victims[v].rank() < self.victims[w].rank());
    }

    /// Return the pods that a budget keeps, and the others, both in the order given.
    fn by_violation(&self, pods: &[usize]) -> [Vec<usize>; 2] {
        let mut left = self.allowed.clone();
        let mut split = [Vec::new(), Vec::new()];
        for &v in pods {
            let mut violates = false;
            for &budget in &self.victims[v].budgets {
                left[budget] -= 1;
                violates |= left[budget] < 0;
                if violates && self.stops {
                    break;
                }
            }
            split[usize::from(!violates)].push(v);
        }
        split
    }

    /// Return the best candidates, which are equally good, in order: with the fewest pods that a budget keeps, then the
    /// least important most important victim, the smallest sum of priorities, the fewest victims, the latest start.
    fn best(&self, mut candidates: Vec<Candidate>) -> Vec<Candidate> {
        let priority = |&v: &usize| self.victims[v].priority;
        let criteria: [&dyn Fn(&Candidate) -> i64; 5] = [
            &|each| each.violations as i64,
            &|each| priority(&each.victims[0]),
            // Nothing is below 0, so that few pods of negative priority are less than many.
            &|each| each.victims.iter().map(|v| priority(v) + i64::from(i32::MAX) + 1).sum(),
            &|each| each.victims.len() as i64,
            &|each| {
                let first = each.victims.iter().take_while(|v| priority(v) == priority(&each.victims[0]));
                -first.map(|&v| self.victims[v].started).min().unwrap_or(0)
            },
        ];
        for criterion in criteria {
            let least = candidates.iter().map(criterion).min();
            candidates.retain(|each| Some(criterion(each)) == least);
        }
        candidates
    }
}

impl Decider {
    /// Return the candidates among which kube-scheduler chooses by chance; none: no preemption helps.
    pub fn preempt(&mut self, question: &Question) -> Vec<Candidate> {
        let (mut lawful, mut violating) = (Vec::new(), Vec::new());
        for &n in &question.nodes {
            if let Some(candidate) = self.select_victims(question, n) {
                let list = if candidate.violations == 0 { &mut lawful } else { &mut violating };
                if list.len() < question.enough {
                    list.push(candidate);
                }
                if !lawful.is_empty() && lawful.len() + violating.len() >= question.enough {
                    break;
                }
            }
        }
        lawful.append(&mut violating);
        question.best(lawful)
    }

    /// Return the victims on a node: as few of the least important pods as possible; None: it would not do, or none is needed.
    fn select_victims(&mut self, question: &Question, n: usize) -> Option<Candidate> {
        let mut pods: Vec<usize> =
            (0..question.victims.len()).filter(|&v| question.victims[v].choice.node == n).collect();
        for &v in &pods {
            self.take(&question.victims[v]);
        }
        let mut victims = Vec::new();
        let mut violations = 0;
        let fits = !pods.is_empty() && self.admits(question, n);
        if fits {
            question.sort(&mut pods);
            let [violating, others] = question.by_violation(&pods);
            victims = self.reprieve(question, n, violating);
            violations = victims.len();
            victims.extend(self.reprieve(question, n, others));
            question.sort(&mut victims);
        }
        for &v in if fits { &victims } else { &pods } {
            let victim = &question.victims[v];
            self.count(victim.class, victim.labels, victim.choice);
        }
        (!victims.is_empty()).then_some(Candidate { node: n, victims, violations })
    }

    fn take(&mut self, victim: &Victim) {
        self.discount(victim.class, victim.labels, victim.choice);
    }

    /// Put back one pod after another where the pod fits beside it; return the others.
    fn reprieve(&mut self, question: &Question, n: usize, mut pods: Vec<usize>) -> Vec<usize> {
        pods.retain(|&v| {
            let victim = &question.victims[v];
            self.count(victim.class, victim.labels, victim.choice);
            let fits = self.admits(question, n);
            if !fits {
                self.take(victim);
            }
            !fits
        });
        pods
    }

    /// Whether the pod fits on a node, both with the pods for which its room is kept and without them.
    fn admits(&mut self, question: &Question, n: usize) -> bool {
        let nominated = question.nominated.iter().filter(|pod| pod[2] == n);
        let mut counted = Vec::new();
        for &[class, labels, node] in nominated {
            let devices = self.cluster.nodes[node].best_devices(&self.cluster.classes[class]);
            let choice = Choice { node, devices };
            self.count(class, labels, choice);
            counted.push((class, labels, choice));
        }
        let fits = self.fits_on(question.class, question.labels, n);
        for &(class, labels, choice) in counted.iter().rev() {
            self.discount(class, labels, choice);
        }
        fits && (counted.is_empty() || self.fits_on(question.class, question.labels, n))
    }

    fn fits_on(&mut self, c: usize, labels: usize, n: usize) -> bool {
        let fits = self.cluster.fits(c, n);
        if !fits || !self.terms.has_rules(c, labels) {
            return fits;
        }
        self.mask.fill(false);
        self.mask[n] = true;
        self.terms.refuse(c, labels, &mut self.mask);
        self.mask[n]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn victim() -> impl Strategy<Value = Victim> {
        (-2i64..3, 0i64..3, prop::collection::vec(0usize..3, 0..3)).prop_map(|(priority, started, budgets)| Victim {
            class: 0,
            labels: 0,
            choice: Choice { node: 0, devices: 0 },
            priority,
            started,
            budgets,
        })
    }

    fn question() -> impl Strategy<Value = Question> {
        let allowed = prop::collection::vec(0i64..3, 3);
        (prop::collection::vec(victim(), 1..8), allowed, any::<bool>()).prop_map(|(victims, allowed, stops)| Question {
            class: 0,
            labels: 0,
            nodes: vec![0],
            enough: 1,
            victims,
            allowed,
            stops,
            nominated: Vec::new(),
        })
    }

    proptest! {
        #[test]
        fn budgets_let_no_more_pods_go_than_they_allow(mut question in question()) {
            question.stops = false;
            let pods: Vec<usize> = (0..question.victims.len()).collect();
            let [violating, others] = question.by_violation(&pods);
            prop_assert_eq!(violating.len() + others.len(), pods.len());
            for (budget, &allowed) in question.allowed.iter().enumerate() {
                let counted = |v: &&usize| question.victims[**v].budgets.contains(&budget);
                prop_assert!(others.iter().filter(counted).count() as i64 <= allowed);
            }
        }

        #[test]
        fn the_best_are_equal_and_no_other_has_fewer_violations(question in question(), violations in prop::collection::vec(0usize..3, 8)) {
            let alone = |(v, violations): (usize, &usize)| Candidate { node: v, victims: vec![v], violations: *violations };
            let candidates: Vec<Candidate> =
                (0..question.victims.len()).zip(&violations).map(alone).collect();
            let best = question.best(candidates.clone());
            let merit = |each: &Candidate| {
                let victim = &question.victims[each.victims[0]];
                (each.violations, victim.priority, Reverse(victim.started))
            };
            let least = candidates.iter().map(merit).min();
            let expected: Vec<Candidate> = candidates.into_iter().filter(|each| Some(merit(each)) == least).collect();
            prop_assert_eq!(best, expected);
        }
    }
}
