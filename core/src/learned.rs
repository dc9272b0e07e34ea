//! Learned scores: linear in features of a node's state before and after a placement, with a network added if there is
//! one.
//!
//! The score of placing a pod of kind k (no GPU, a share, one GPU, several) on a node is
//!
//! ```text
//! after[k] . f(node after) + change[k] . (f(node after) - f(node before)) + fgd[k] FGD(node) + rules[k] . r(node)
//! ```
//!
//! with the features f, FGD's integer score and the scores r of other rules. Few distinct states occur, so their weighted
//! features are kept by a hash of the state: a sum over devices, so that a placement changes it by the devices it takes.

use std::sync::Arc;

use crate::arrays::{Arrays, Result};
use crate::cluster::{CPU, Class, Cluster, GPU, MEMORY, MOST_DEVICES, Node};
use crate::fragmentation::{Fragments, Profile};
use crate::random::{GOLDEN, mixed};
use crate::rules::{Candidate, FGD, RULES, fgd_points};
use crate::views::{POD, write_pod};

pub const FEATURES: usize = 15;
/// Weights of a kind of pod: of the state after a placement, of its change, of FGD's score.
pub const WEIGHTS: usize = 2 * FEATURES + 1;
/// Kinds of pods: no GPU, a share of one, one GPU, several.
pub const KINDS: usize = 4;
/// States whose values are kept, a power of two.
const STATES: usize = 1 << 16;

/// More milli-CPU than any node has: what a pod requests of devices that it does not accept.
pub const MOST_CPU: i64 = 1 << 60;

/// What typical pods leave of a node, by the profile of a workload.
#[derive(Clone)]
pub struct Leftovers {
    /// By free milli of a device, in GPUs: the expected final loss, the rest beside the largest typical pod that fits, the
    /// free GPU if no typical pod fits, and the free GPU squared.
    pub by_left: Vec<[f64; 4]>,
    /// By GPU type: sequences of typical pods. The second half of them consists of pods with GPUs.
    pub sequences: Vec<Vec<Vec<Step>>>,
    /// Requested milli-CPU per GPU milli and per byte of memory, and per whole GPU.
    pub cpu_per_gpu: f64,
    pub cpu_per_memory: f64,
    pub unit: f64,
    /// The smallest requests of typical pods: milli of a device, milli-CPU.
    pub smallest: i64,
    pub least_cpu: i64,
}

/// A pod of a sequence.
#[derive(Clone, Copy)]
pub struct Step {
    pub cpu: i64,
    pub devices: usize,
    pub milli: i64,
}

/// A state of a node: the CPU that pods can use of it, and the milli left of each device.
pub struct State<'a> {
    pub node: &'a Node,
    pub cpu: i64,
    pub gpus: Vec<i64>,
}

/// Weighted sums of the features of a state, and its fragmented GPU milli.
#[derive(Clone, Default)]
struct Values {
    key: u64,
    fragmented: f64,
    values: Vec<f64>,
}

/// A layer of the network: weights by unit, then biases.
#[derive(Clone)]
pub struct Layer {
    pub weights: Vec<Vec<f64>>,
    pub biases: Vec<f64>,
}

/// The weights of a learned policy.
#[derive(Clone)]
pub struct Weights {
    /// By kind of pod.
    pub linear: Vec<[f64; WEIGHTS]>,
    /// Of the scores of rules, by kind of pod; empty if none has a weight.
    pub rules: Vec<[f64; RULES.len()]>,
    /// Inputs are the features of a node and of the pod, the output is added to the score; empty: no network.
    pub layers: Vec<Layer>,
}

#[derive(Clone)]
pub struct Learned {
    pub leftovers: Arc<Leftovers>,
    pub weights: Arc<Weights>,
    /// By value: weights of the features of the state after a placement, and of the state before. The first values are
    /// scores by kind of pod, the others what units of the network's first layer receive.
    after: Vec<[f64; FEATURES]>,
    before: Vec<[f64; FEATURES]>,
    /// By value: weight of FGD's score.
    fgd: Vec<f64>,
    /// By rule and kind of pod, empty if none has a weight.
    rules: Vec<[f64; KINDS]>,
    /// By class: the pod's part of what the network's first layer receives.
    pods: Vec<Vec<f64>>,
    layers: Vec<Layer>,
    kept: Vec<Values>,
    /// By node: a hash of its devices, and the values of its state before a placement.
    keys: Vec<u64>,
    now: Vec<Values>,
}

pub fn kind_of(class: &Class) -> usize {
    match class.gpu_count {
        0 => 0,
        1 if class.gpu_milli < GPU => 1,
        1 => 2,
        _ => 3,
    }
}

/// A device's summand of the hash of a state, 0 if nothing is left of it.
fn device_key(left: i64) -> u64 {
    mixed((left as u64).wrapping_mul(GOLDEN))
}

impl Learned {
    /// Read `learned.linear`, by kind of pod; `learned.rules`, by kind of pod, no rows if none has a weight;
    /// `learned.sizes` and `learned.layers`, the units of all layers, and their weights and biases one after another; and
    /// `leftovers.*`.
    pub fn read(arrays: &Arrays, cluster: &Cluster, profile: &Profile) -> Result<Self> {
        let linear: Vec<Vec<f64>> = arrays.rows_of("learned.linear", KINDS, WEIGHTS)?;
        let rules: Vec<Vec<f64>> = arrays.rows("learned.rules", RULES.len())?;
        if !(rules.is_empty() || rules.len() == KINDS) {
            return Err(format!("learned.rules: expected {KINDS} rows, has {}", rules.len()));
        }
        let weights = Weights {
            linear: linear.iter().map(|row| std::array::from_fn(|i| row[i])).collect(),
            rules: rules.iter().map(|row| std::array::from_fn(|rule| row[rule])).collect(),
            layers: read_layers(arrays, WEIGHTS + POD)?,
        };
        Ok(Self::new(weights, Arc::new(Leftovers::read(arrays)?), cluster, profile))
    }

    /// Make the scores of weights.
    pub fn new(weights: Weights, leftovers: Arc<Leftovers>, cluster: &Cluster, profile: &Profile) -> Self {
        let units = weights.layers.first().map_or(&[][..], |first| first.weights.as_slice());
        let values = || weights.linear.iter().map(|row| row.as_slice()).chain(units.iter().map(Vec::as_slice));
        let learned = Learned {
            leftovers,
            after: values().map(|row| std::array::from_fn(|i| row[i] + row[FEATURES + i])).collect(),
            before: values().map(|row| std::array::from_fn(|i| row[FEATURES + i])).collect(),
            fgd: values().map(|row| row[WEIGHTS - 1]).collect(),
            rules: match weights.rules.as_slice() {
                [] => Vec::new(),
                rules => (0..RULES.len()).map(|r| std::array::from_fn(|kind| rules[kind][r])).collect(),
            },
            pods: cluster.classes.iter().map(|class| weights.of_pod(class)).collect(),
            layers: weights.layers.iter().skip(1).cloned().collect(),
            kept: Vec::new(),
            keys: Vec::new(),
            now: Vec::new(),
            weights: Arc::new(weights),
        };
        learned.begun(cluster, profile)
    }

    /// Forget all but the first `kept` classes, and add others.
    pub fn extend(&mut self, kept: usize, added: &[Class]) {
        self.pods.truncate(kept);
        self.pods.extend(added.iter().map(|class| self.weights.of_pod(class)));
    }

    /// Compute the values of all nodes as they are.
    fn begun(mut self, cluster: &Cluster, profile: &Profile) -> Self {
        let nodes = cluster.nodes.len();
        self.kept = vec![Values::default(); STATES];
        (self.keys, self.now) = (vec![0; nodes], vec![Values::default(); nodes]);
        for n in 0..nodes {
            self.refresh(cluster, profile, n);
        }
        self
    }

    /// Compute the values of a node's state, which changed.
    pub fn refresh(&mut self, cluster: &Cluster, profile: &Profile, n: usize) {
        let node = &cluster.nodes[n];
        let cpu = self.leftovers.usable_cpu(node.free[CPU], node.free[MEMORY]);
        let state = State { node, cpu, gpus: node.gpus.clone() };
        let (features, fragmented) = self.leftovers.describe(profile, &state);
        let now = &mut self.now[n];
        now.values.clear();
        now.values.extend(self.before.iter().map(|weights| weighted(weights, &features)));
        now.fragmented = fragmented;
        self.keys[n] = self.leftovers.key(node);
    }

    /// The score of a class on a node, where it must fit, and the device that a share takes.
    pub fn score(&mut self, candidate: &Candidate, c: usize, class: &Class, n: usize) -> (f64, Option<usize>) {
        let node = candidate.node;
        let (score, device) = match kind_of(class) {
            1 => self.best_device(candidate, c, class, n),
            _ => (self.score_on(candidate, c, class, n, node.best_devices(class)), None),
        };
        (score + self.rule_points(candidate, class), device)
    }

    /// Ties go to the first device if FGD's score has a weight, as in FGD, otherwise to the fullest one, as in best fit.
    fn best_device(&mut self, candidate: &Candidate, c: usize, class: &Class, n: usize) -> (f64, Option<usize>) {
        let node = candidate.node;
        let (mut best, mut chosen, mut least) = (f64::NEG_INFINITY, None, GPU + 1);
        for (d, &left) in node.gpus.iter().enumerate() {
            if left < class.gpu_milli || node.has_equal_earlier_device(d) {
                continue;
            }
            let score = self.score_on(candidate, c, class, n, 1 << d);
            if score > best || (score == best && left < least && self.fgd[1] == 0.0) {
                (best, chosen, least) = (score, Some(d), left);
            }
        }
        (best, chosen)
    }

    /// The score of a class on devices of a node, without those of rules.
    fn score_on(&mut self, candidate: &Candidate, c: usize, class: &Class, n: usize, devices: u64) -> f64 {
        let node = candidate.node;
        let cpu =
            self.leftovers.usable_cpu(node.free[CPU] - class.request[CPU], node.free[MEMORY] - class.request[MEMORY]);
        let mut key = self.keys[n];
        for (_, &left) in node.gpus.iter().enumerate().filter(|&(d, _)| devices >> d & 1 == 1) {
            let change = device_key(left - class.gpu_milli).wrapping_sub(device_key(left));
            key = key.wrapping_add(change);
        }
        // Never 0, which marks what is not kept.
        let key = mixed(key.wrapping_add((cpu as u64).wrapping_mul(GOLDEN))) | 1;
        // Other bits than the lowest, which is always 1. Two states with the same 64 bits are taken as one.
        let place = (key >> 20) as usize & (STATES - 1);
        if self.kept[place].key != key {
            let left = |(d, &left): (usize, &i64)| if devices >> d & 1 == 1 { left - class.gpu_milli } else { left };
            let state = State { node, cpu, gpus: node.gpus.iter().enumerate().map(left).collect() };
            let (features, fragmented) = self.leftovers.describe(candidate.profile, &state);
            let kept = &mut self.kept[place];
            kept.values.clear();
            kept.values.extend(self.after.iter().map(|weights| weighted(weights, &features)));
            (kept.key, kept.fragmented) = (key, fragmented);
        }
        let (now, after) = (&self.now[n], &self.kept[place]);
        let points = fgd_points(now.fragmented, after.fragmented) as f64;
        let value = |j: usize| after.values[j] - now.values[j] + self.fgd[j] * points;
        let score = value(kind_of(class));
        if self.layers.is_empty() { score } else { score + self.network(c, value) }
    }

    /// The output of the network, whose first layer receives these values.
    fn network(&self, c: usize, value: impl Fn(usize) -> f64) -> f64 {
        let pod = self.pods[c].iter().enumerate();
        let mut activity: Vec<f64> = pod.map(|(j, pod)| (value(KINDS + j) + pod).max(0.0)).collect();
        for (i, layer) in self.layers.iter().enumerate() {
            let is_last = i + 1 == self.layers.len();
            let unit = |(weights, &bias): (&Vec<f64>, &f64)| {
                let sum = weights.iter().zip(&activity).fold(bias, |sum, (weight, input)| sum + weight * input);
                if is_last { sum } else { sum.max(0.0) }
            };
            activity = layer.weights.iter().zip(&layer.biases).map(unit).collect();
        }
        activity[0]
    }

    fn rule_points(&self, candidate: &Candidate, class: &Class) -> f64 {
        let kind = kind_of(class);
        let mut points = 0.0;
        for (r, ((_, rule), weights)) in RULES.iter().zip(&self.rules).enumerate() {
            // FGD's weight is among those of the state.
            if weights[kind] != 0.0 && r != FGD {
                points += weights[kind] * rule(candidate, class) as f64;
            }
        }
        points
    }
}

impl Weights {
    /// The pod's part of what the units of the network's first layer receive.
    fn of_pod(&self, class: &Class) -> Vec<f64> {
        let Some(first) = self.layers.first() else { return Vec::new() };
        let mut features = [0.0; POD];
        write_pod(class, 0, &mut features);
        let unit = |(weights, bias): (&Vec<f64>, &f64)| {
            let pairs = weights[WEIGHTS..].iter().zip(features);
            pairs.fold(0.0, |sum, (weight, feature)| sum + weight * f64::from(feature)) + bias
        };
        first.weights.iter().zip(&first.biases).map(unit).collect()
    }
}

fn weighted(weights: &[f64; FEATURES], features: &[f32; FEATURES]) -> f64 {
    weights.iter().zip(features).fold(0.0, |sum, (weight, feature)| sum + weight * f64::from(*feature))
}

impl Leftovers {
    /// Read `leftovers.*`.
    pub fn read(arrays: &Arrays) -> Result<Self> {
        let by_left: Vec<Vec<f64>> = arrays.rows_of("leftovers.by_left", GPU as usize + 1, 4)?;
        let ratios: Vec<f64> = arrays.list_of("leftovers.ratios", 3)?;
        let least: Vec<i64> = arrays.list_of("leftovers.least", 2)?;
        let types = arrays.columns::<bool>("profile.accepts")?;
        // A row is a sequence of one GPU type.
        let width = arrays.columns::<i64>("leftovers.steps")?;
        let rows: Vec<Vec<i64>> = arrays.rows("leftovers.steps", width)?;
        if width % 3 != 0 || types == 0 || rows.is_empty() || rows.len() % (2 * types) != 0 {
            return Err(format!(
                "leftovers.steps: expected two halves of sequences for {types} types, has {}",
                rows.len()
            ));
        }
        let mut steps = Vec::with_capacity(rows.len());
        for row in &rows {
            let step = |step: &[i64]| {
                let devices = crate::arrays::index("leftovers.steps", step[1], 1 << 31)?;
                Ok(Step { cpu: step[0], devices, milli: step[2] })
            };
            steps.push(row.chunks_exact(3).map(step).collect::<Result<Vec<Step>>>()?);
        }
        let sequences = steps.chunks(rows.len() / types).map(<[_]>::to_vec).collect();
        Ok(Leftovers {
            by_left: by_left.iter().map(|row| std::array::from_fn(|i| row[i])).collect(),
            sequences,
            cpu_per_gpu: ratios[0],
            cpu_per_memory: ratios[1],
            unit: ratios[2],
            smallest: least[0],
            least_cpu: least[1],
        })
    }

    /// The milli-CPU that pods can still use: the free CPU, or less if memory is scarcer.
    pub fn usable_cpu(&self, cpu: i64, memory: i64) -> i64 {
        if self.cpu_per_memory <= 0.0 { cpu } else { cpu.min((memory as f64 * self.cpu_per_memory) as i64) }
    }

    fn usable_cpu_of(&self, node: &Node) -> i64 {
        self.usable_cpu(node.allocatable[CPU], node.allocatable[MEMORY])
    }

    /// A hash of what distinguishes nodes of equal devices, and of the current devices.
    fn key(&self, node: &Node) -> u64 {
        let fixed = (node.gpu_type as u64).wrapping_mul(GOLDEN).wrapping_add(node.gpus.len() as u64);
        let constant = mixed(fixed.wrapping_mul(GOLDEN).wrapping_add(self.usable_cpu_of(node) as u64));
        node.gpus.iter().fold(constant, |key, &left| key.wrapping_add(device_key(left)))
    }

    /// The features of a state, in GPUs and in the CPU that is requested per GPU, and its fragmented GPU milli.
    ///
    /// Names and meanings are in `steersman.policies.features`, in the same order (view `gpu`).
    pub fn describe(&self, profile: &Profile, state: &State) -> ([f32; FEATURES], f64) {
        const GPUS: f64 = 1.0 / GPU as f64;
        let node = state.node;
        let mut left: Vec<i64> = state.gpus.iter().copied().filter(|&left| left > 0).collect();
        // Sorting makes features independent of the order of devices.
        left.sort_unstable_by(|one, other| other.cmp(one));
        let mut by_device = [0.0; 4];
        for &left in &left {
            for (sum, value) in by_device.iter_mut().zip(self.by_left[left as usize]) {
                *sum += value;
            }
        }
        let whole = left.iter().filter(|&&left| left == GPU).count();
        let parts = left.len() - whole;
        let part_idle: i64 = left.iter().filter(|&&left| left != GPU).sum();
        let idle = whole as i64 * GPU + part_idle;
        let Fragments { total, .. } = profile.fragments_of(node.gpu_type, state.cpu, &left);
        let is_untouched = whole == node.gpus.len() && state.cpu == self.usable_cpu_of(node);
        let spare = (state.cpu as f64 - idle as f64 * self.cpu_per_gpu) / self.unit;
        while left.last().is_some_and(|&left| left < self.smallest) {
            left.pop(); // too small for any typical pod
        }
        let [filled, gpu_filled] = self.fill(node.gpu_type, &left, idle, state.cpu);
        let features = [
            total * GPUS,
            idle as f64 * GPUS,
            whole as f64,
            parts as f64,
            part_idle as f64 * GPUS,
            if is_untouched { 1.0 } else { 0.0 },
            state.cpu as f64 / self.unit,
            (-spare).max(0.0),
            spare.max(0.0),
            by_device[1],
            by_device[2],
            by_device[3],
            by_device[0],
            filled,
            gpu_filled,
        ];
        (features.map(|feature| feature as f32), total)
    }

    /// The mean idle GPUs after sequences of typical pods on this node alone, of all kinds and with GPUs alone.
    fn fill(&self, gpu_type: usize, left: &[i64], idle: i64, cpu: i64) -> [f64; 2] {
        let sequences = &self.sequences[gpu_type];
        let half = sequences.len() / 2;
        let mut rest = [0; MOST_DEVICES];
        let rest = &mut rest[..left.len()];
        [false, true].map(|with_gpus_alone| {
            let part = if with_gpus_alone { &sequences[half..] } else { &sequences[..half] };
            let mut idles = 0;
            for steps in part {
                rest.copy_from_slice(left);
                idles += self.play(steps, rest, idle, cpu, with_gpus_alone);
            }
            idles as f64 * (1.0 / GPU as f64) / half as f64
        })
    }

    /// Place the pods of a sequence by best fit; return the idle GPU milli at its end.
    fn play(&self, steps: &[Step], left: &mut [i64], mut idle: i64, mut cpu: i64, with_gpus_alone: bool) -> i64 {
        for step in steps {
            if cpu < self.least_cpu || (with_gpus_alone && left.first().is_none_or(|&most| most < self.smallest)) {
                break; // no typical pod fits
            }
            if step.cpu > cpu {
                continue;
            }
            if step.devices == 0 {
                cpu -= step.cpu;
            // Descending: so many devices fit if the last of them does.
            } else if left.get(step.devices - 1).is_some_and(|&left| left >= step.milli) {
                take(left, step.devices, step.milli);
                cpu -= step.cpu;
                idle -= step.devices as i64 * step.milli;
            }
        }
        idle
    }
}

/// Take `milli` of the fullest device that fits, `count` times; devices stay descending.
fn take(left: &mut [i64], count: usize, milli: i64) {
    for _ in 0..count {
        let Some(mut i) = left.iter().rposition(|&left| left >= milli) else { return };
        let amount = left[i] - milli;
        while i + 1 < left.len() && left[i + 1] > amount {
            left[i] = left[i + 1];
            i += 1;
        }
        left[i] = amount;
    }
}

fn read_layers(arrays: &Arrays, mut width: usize) -> Result<Vec<Layer>> {
    let sizes = arrays.indices("learned.sizes", 1 << 20)?;
    let numbers: Vec<f64> = arrays.list("learned.layers")?;
    let (mut layers, mut rest) = (Vec::new(), numbers.as_slice());
    for &size in &sizes {
        if size == 0 || rest.len() < size * (width + 1) || width == 0 {
            return Err("learned.layers: expected the weights and biases of layers of these sizes".to_owned());
        }
        let (layer, others) = rest.split_at(size * (width + 1));
        let (weights, biases) = layer.split_at(size * width);
        let weights = weights.chunks_exact(width).map(<[f64]>::to_vec).collect();
        layers.push(Layer { weights, biases: biases.to_vec() });
        (rest, width) = (others, size);
    }
    if !rest.is_empty() || (!layers.is_empty() && width != 1) {
        return Err(
            "learned.layers: expected the weights and biases of layers of these sizes, and one output".to_owned()
        );
    }
    Ok(layers)
}
