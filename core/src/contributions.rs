//! Why a node is preferred to another: the fall of its score if one part of it had the other node's value (occlusion);
//! and how much features differ between nodes.
//!
//! Contributions of linear policies add up to the difference of scores, those of networks do not.

use crate::arrays::{Result, index};
use crate::cluster::{CPU, MEMORY};
use crate::decide::{Decider, NodeRule, Scorer};
use crate::learned::{FEATURES, KINDS, Learned, State, WEIGHTS, Weights, kind_of};
use crate::rules::{Candidate, FGD, RULES, fgd_points};
use crate::views::{POD, write_pod};

/// A part of the score of a node.
pub struct Part {
    /// A place in `RULES`, or that of a feature of the view after the last rule.
    pub number: usize,
    pub value: f64,
    pub other: f64,
    /// How much the score falls with the other node's value.
    pub contribution: f64,
}

impl Decider {
    /// The parts by which a class prefers the first node to the second; it must fit on both. None: scores have no parts.
    pub fn contributions(&mut self, c: usize, labels: usize, nodes: [usize; 2]) -> Result<Vec<Part>> {
        match &self.node_rule {
            NodeRule::Best { scorer: Scorer::Sum(rules), .. } => {
                let parts = rules.iter().map(|&(rule, weight)| self.rule_part(rule, weight, c, nodes));
                Ok(parts.collect())
            }
            NodeRule::Best { scorer: Scorer::Learned(learned), .. } => {
                let weights = learned.weights.clone();
                let rows = nodes.map(|n| (n, self.devices_on(c, n)));
                let NodeRule::Best { scorer: Scorer::Learned(learned), .. } = &self.node_rule else {
                    return Ok(Vec::new());
                };
                let [row, other] = rows.map(|(n, devices)| self.features(learned, c, n, devices));
                let class = &self.cluster.classes[c];
                let mut pod = [0.0; POD];
                write_pod(class, 0, &mut pod);
                let kind = kind_of(class);
                let mut parts = occlusions(&row, &other, |row| Ok(weights.score(kind, row, &pod)))?;
                if let Some(points) = weights.rules.get(kind) {
                    let used = points.iter().enumerate().filter(|(rule, weight)| **weight != 0.0 && *rule != FGD);
                    let used = used.map(|(rule, &weight)| self.rule_part(rule, weight, c, nodes));
                    parts.extend(used.filter(|part| part.value != part.other));
                }
                Ok(parts)
            }
            NodeRule::Network(_) => {
                let is_masked = self.find_feasible_if_masked(c, labels);
                let mut seen = self.look(c, is_masked)?;
                for n in nodes {
                    index("node", n as i64, seen.scores.len())?;
                }
                let width = seen.nodes.len() / seen.scores.len().max(1);
                let row = |n: usize| seen.nodes[n * width..][..width].iter().map(|&value| f64::from(value)).collect();
                let [row, other]: [Vec<f64>; 2] = nodes.map(row);
                let [n, _] = nodes;
                occlusions(&row, &other, |row| {
                    // Among the rows of the other nodes, which may matter to the score.
                    seen.nodes[n * width..][..width]
                        .iter_mut()
                        .zip(row)
                        .for_each(|(cell, &value)| *cell = value as f32);
                    Ok(self.network_scores(&seen)?[n])
                })
            }
            NodeRule::Random | NodeRule::Kube(_) | NodeRule::External => Ok(Vec::new()),
        }
    }

    /// Add the variance over the nodes that fit a class of the features' changes, and of the features after, to sums by
    /// kind of pod, [4, 2, FEATURES], and 1 to `counts`, [4]; nothing if fewer than two nodes fit.
    pub fn add_variances(&self, c: usize, sums: &mut [f64], counts: &mut [f64]) -> Result<()> {
        let NodeRule::Best { scorer: Scorer::Learned(learned), .. } = &self.node_rule else {
            return Err("variances of features need a learned policy, which reads features".to_owned());
        };
        if sums.len() != 2 * KINDS * FEATURES || counts.len() != KINDS {
            return Err(format!("expected {} sums and {KINDS} counts", 2 * KINDS * FEATURES));
        }
        let class = &self.cluster.classes[c];
        // The sums of changes and of their squares, of features and of their squares.
        let (mut moments, mut feasible) = ([[0.0; FEATURES]; 4], 0.0);
        for n in (0..self.nodes()).filter(|&n| self.cluster.fits(c, n)) {
            let row = self.features(learned, c, n, self.cluster.nodes[n].best_devices(class));
            feasible += 1.0;
            for i in 0..FEATURES {
                let (after, change) = (row[i], row[FEATURES + i]);
                // In single precision, as all published fits have it.
                let square = f64::from(after as f32 * after as f32);
                for (moment, value) in moments.iter_mut().zip([change, change * change, after, square]) {
                    moment[i] += value;
                }
            }
        }
        if feasible < 2.0 {
            return Ok(());
        }
        let kind = kind_of(class);
        counts[kind] += 1.0;
        for (j, pair) in moments.chunks_exact(2).enumerate() {
            for (i, sum) in sums[(2 * kind + j) * FEATURES..][..FEATURES].iter_mut().enumerate() {
                let mean = pair[0][i] / feasible;
                *sum += (pair[1][i] / feasible - mean * mean).max(0.0);
            }
        }
        Ok(())
    }

    /// Write the features of a class by node, on the devices that a learned policy chooses there, in rows of 31; 0 where it
    /// does not fit.
    pub fn write_features(&mut self, c: usize, out: &mut [f64]) -> Result<()> {
        if out.len() != WEIGHTS * self.nodes() {
            return Err(format!("expected {} numbers, not {}", WEIGHTS * self.nodes(), out.len()));
        }
        out.fill(0.0);
        for (n, row) in out.chunks_exact_mut(WEIGHTS).enumerate() {
            if self.cluster.fits(c, n) {
                let devices = self.devices_on(c, n);
                let NodeRule::Best { scorer: Scorer::Learned(learned), .. } = &self.node_rule else {
                    return Err("features need a learned policy, which reads them".to_owned());
                };
                row.copy_from_slice(&self.features(learned, c, n, devices));
            }
        }
        Ok(())
    }

    fn rule_part(&self, rule: usize, weight: f64, c: usize, nodes: [usize; 2]) -> Part {
        let points = nodes.map(|n| {
            let node = &self.cluster.nodes[n];
            let candidate = Candidate { node, fragments: &self.fragments[n], profile: &self.profile };
            RULES[rule].1(&candidate, &self.cluster.classes[c])
        });
        let [value, other] = points.map(|points| points as f64);
        Part { number: rule, value, other, contribution: weight * (points[0] - points[1]) as f64 }
    }

    /// The features of a class on devices of a node: of the state after, its change, FGD's score.
    fn features(&self, learned: &Learned, c: usize, n: usize, devices: u64) -> [f64; WEIGHTS] {
        let (node, class, leftovers) = (&self.cluster.nodes[n], &self.cluster.classes[c], &learned.leftovers);
        let left = |(d, &left): (usize, &i64)| if devices >> d & 1 == 1 { left - class.gpu_milli } else { left };
        let cpu = leftovers.usable_cpu(node.free[CPU], node.free[MEMORY]);
        let (before, fragmented) = leftovers.describe(&self.profile, &State { node, cpu, gpus: node.gpus.clone() });
        let cpu = leftovers.usable_cpu(node.free[CPU] - class.request[CPU], node.free[MEMORY] - class.request[MEMORY]);
        let gpus = node.gpus.iter().enumerate().map(left).collect();
        let (after, fragmented_after) = leftovers.describe(&self.profile, &State { node, cpu, gpus });
        let mut row = [0.0; WEIGHTS];
        for (i, (&after, before)) in after.iter().zip(before).enumerate() {
            (row[i], row[FEATURES + i]) = (f64::from(after), f64::from(after) - f64::from(before));
        }
        row[WEIGHTS - 1] = fgd_points(fragmented, fragmented_after) as f64;
        row
    }
}

impl Weights {
    /// The score of features, without the rules' part.
    fn score(&self, kind: usize, row: &[f64], pod: &[f32; POD]) -> f64 {
        let linear = self.linear[kind].iter().zip(row).fold(0.0, |sum, (weight, feature)| sum + weight * feature);
        let mut values: Vec<f64> = row.iter().copied().chain(pod.iter().copied().map(f64::from)).collect();
        for (i, layer) in self.layers.iter().enumerate() {
            let is_last = i + 1 == self.layers.len();
            let unit = |(weights, &bias): (&Vec<f64>, &f64)| {
                let sum = weights.iter().zip(&values).fold(0.0, |sum, (weight, value)| sum + weight * value) + bias;
                if is_last { sum } else { sum.max(0.0) }
            };
            values = layer.weights.iter().zip(&layer.biases).map(unit).collect();
        }
        if self.layers.is_empty() { linear } else { linear + values[0] }
    }
}

/// The contribution of every feature that differs.
fn occlusions(row: &[f64], other: &[f64], mut score: impl FnMut(&[f64]) -> Result<f64>) -> Result<Vec<Part>> {
    let whole = score(row)?;
    let mut parts = Vec::new();
    for (i, (&value, &other)) in row.iter().zip(other).enumerate().filter(|(_, (value, other))| value != other) {
        let mut replaced = row.to_vec();
        replaced[i] = other;
        parts.push(Part { number: RULES.len() + i, value, other, contribution: whole - score(&replaced)? });
    }
    Ok(parts)
}
