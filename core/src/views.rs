//! What a network observes of a decision: features of nodes, of the pod, and of the cluster.
//!
//! Names and meanings are in `steersman.policies.features`, in the same order. Features of a node that depend on the
//! pod's class and this node alone are kept for each class, and those of changed nodes are computed again; the others
//! depend on the rest of the cluster or on the pod's owner, and are written for every decision.

use std::sync::Arc;

use crate::arrays::{Arrays, Result, index, optional};
use crate::cluster::{CPU, Class, Cluster, GPU, MEMORY, Node, PODS};
use crate::decide::Decider;
use crate::fragmentation::{DeviceChange, Fragments, Profile};
use crate::learned::{FEATURES, KINDS, Leftovers, State, WEIGHTS, kind_of};
use crate::rules::fgd_points;

/// Features of a pod and of the cluster, equal in all views.
pub const POD: usize = 11;
pub const CONTEXT: usize = 10;
/// Features of a node in the view `cluster`, and where those begin that are written for every decision.
const CLUSTER: usize = 28;
const SHARED: usize = 22;

/// A view and how many features it has of a node, of the pod and of the cluster.
pub struct FeatureCounts {
    pub name: &'static str,
    pub version: i64,
    pub node: usize,
    pub pod: usize,
    pub context: usize,
}

/// The views of `steersman.policies.features`; that of measured metrics is observed by the host.
pub const VIEWS: [FeatureCounts; 3] = [
    FeatureCounts { name: "cluster", version: 1, node: CLUSTER, pod: POD, context: CONTEXT },
    FeatureCounts { name: "gpu", version: 3, node: WEIGHTS, pod: POD, context: CONTEXT },
    FeatureCounts { name: "telemetry", version: 2, node: 36, pod: 12, context: 15 },
];

const GIB: f64 = (1u64 << 30) as f64;
const TIB: f64 = (1u64 << 40) as f64;
/// Upper bound of amounts without a natural one.
const MANY: f64 = 8.0;
/// Bounds of the features of a state; changes are between the upper one and its negative.
const STATE_BOUNDS: [(f32, f32); FEATURES] = [
    (0.0, 64.0),
    (0.0, 64.0),
    (0.0, 64.0),
    (0.0, 64.0),
    (0.0, 64.0),
    (0.0, 1.0),
    (-1.0, 1024.0),
    (0.0, 1024.0),
    (0.0, 1024.0),
    (0.0, 64.0),
    (0.0, 64.0),
    (0.0, 64.0),
    (-64.0, 64.0),
    (0.0, 64.0),
    (0.0, 64.0),
];
/// A variance below it is rounding, since sums are updated by adding and subtracting.
const RESIDUE: f64 = 1e-12;

/// The state of the cluster, over the nodes that some pod may enter.
#[derive(Clone, Default)]
pub struct Summary {
    pub nodes: f64,
    pub nodes_used: f64,
    pub cpu_nodes: f64,
    /// Sum over nodes of the share of CPU in use, and of its square.
    pub cpu_share: f64,
    pub cpu_square: f64,
    pub cpu_taken: f64,
    pub cpu_total: f64,
    pub memory_taken: f64,
    pub memory_total: f64,
    pub gpu_taken: f64,
    pub gpu_total: f64,
    pub fragmented: f64,
    pub waiting: f64,
    /// Pod-seconds waited since this state began.
    pub pod_seconds_waited: f64,
    /// Share of the placed pod's owner's running pods in the rack that it went to.
    pub rack_locality: f64,
}

impl Summary {
    /// The constant entries of eligible nodes; the rest is 0.
    pub fn of(nodes: &[Node], eligible: &[bool]) -> Self {
        let mut summary = Summary::default();
        for (node, _) in nodes.iter().zip(eligible).filter(|(_, eligible)| **eligible) {
            summary.nodes += 1.0;
            summary.cpu_nodes += if node.allocatable[CPU] > 0 { 1.0 } else { 0.0 };
            summary.cpu_total += node.allocatable[CPU] as f64;
            summary.memory_total += node.allocatable[MEMORY] as f64;
            summary.gpu_total += (GPU * node.gpus.len() as i64) as f64;
        }
        summary
    }

    /// The numbers in the order of `steersman.objectives.summary`.
    pub fn numbers(&self) -> [f64; 15] {
        let Summary { nodes, nodes_used, cpu_nodes, cpu_share, cpu_square, cpu_taken, cpu_total, .. } = *self;
        let Summary { memory_taken, memory_total, gpu_taken, gpu_total, fragmented, waiting, .. } = *self;
        let cpu = [nodes, nodes_used, cpu_nodes, cpu_share, cpu_square, cpu_taken, cpu_total];
        let others = [memory_taken, memory_total, gpu_taken, gpu_total, fragmented, waiting];
        let mut numbers = [0.0; 15];
        numbers[..7].copy_from_slice(&cpu);
        numbers[7..13].copy_from_slice(&others);
        numbers[13..].copy_from_slice(&[self.pod_seconds_waited, self.rack_locality]);
        numbers
    }

    /// A state of numbers in that order.
    pub fn from_numbers(numbers: &[f64]) -> Self {
        let mut summary = Summary::default();
        let fields = [
            &mut summary.nodes,
            &mut summary.nodes_used,
            &mut summary.cpu_nodes,
            &mut summary.cpu_share,
            &mut summary.cpu_square,
            &mut summary.cpu_taken,
            &mut summary.cpu_total,
            &mut summary.memory_taken,
            &mut summary.memory_total,
            &mut summary.gpu_taken,
            &mut summary.gpu_total,
            &mut summary.fragmented,
            &mut summary.waiting,
            &mut summary.pod_seconds_waited,
            &mut summary.rack_locality,
        ];
        for (field, number) in fields.into_iter().zip(numbers) {
            *field = *number;
        }
        summary
    }

    /// The mean over nodes of the share of CPU in use.
    fn cpu_mean(&self) -> f64 {
        self.cpu_share / self.cpu_nodes.max(1.0)
    }

    /// The standard deviation over nodes of the share of CPU in use.
    pub fn cpu_deviation(&self) -> f64 {
        let mean = self.cpu_mean();
        let variance = self.cpu_square / self.cpu_nodes.max(1.0) - mean * mean;
        if variance > RESIDUE { variance.sqrt() } else { 0.0 }
    }

    /// Write the features of the cluster, where the pod fits on so many nodes.
    pub fn write_context(&self, feasible: usize, out: &mut [f32]) {
        let nodes = self.nodes.max(1.0);
        let features = [
            part(self.cpu_taken, self.cpu_total),
            part(self.memory_taken, self.memory_total),
            part(self.gpu_taken, self.gpu_total),
            part(self.fragmented, self.gpu_total - self.gpu_taken),
            self.cpu_mean().clamp(0.0, 1.0),
            self.cpu_deviation().min(1.0),
            self.nodes_used / nodes,
            feasible as f64 / nodes,
            self.waiting / (self.waiting + 16.0),
            libm::log2(1.0 + nodes) / 20.0,
        ];
        for (cell, feature) in out.iter_mut().zip(features) {
            *cell = feature as f32;
        }
    }
}

/// What is observed of nodes.
#[derive(Clone)]
enum View {
    Cluster,
    /// Of the GPUs alone.
    Gpu(Arc<Leftovers>),
}

/// Where the running pods of an owner (a Deployment, a job) are.
#[derive(Clone)]
struct Owner {
    running: i32,
    on_node: Vec<i32>,
    in_rack: Vec<i32>,
}

/// Features of all nodes for a class, and where it fits, as of a length of the log of changes.
#[derive(Clone, Default)]
struct Rows {
    features: Vec<f32>,
    fits: Vec<bool>,
    seen: Option<usize>,
}

/// The observer of a run.
#[derive(Clone)]
pub struct Observer {
    view: View,
    /// By node.
    racks: Vec<Option<usize>>,
    owners: Vec<Owner>,
    /// By arrival.
    owner_of: Vec<Option<usize>>,
    rows: Vec<Rows>,
    log: Vec<usize>,
    visited: Vec<usize>,
    updates: usize,
}

/// Buffers of an observation: rows of nodes, the pod, the cluster, and where the pod may run.
pub struct Observation<'a> {
    pub nodes: &'a mut [f32],
    pub pod: &'a mut [f32],
    pub context: &'a mut [f32],
    pub mask: &'a mut [i8],
}

impl Observation<'_> {
    /// The part of larger buffers that so many nodes with so many features fill.
    pub fn first(&mut self, nodes: usize, width: usize) -> Result<Observation<'_>> {
        if self.mask.len() < nodes || self.nodes.len() < nodes * width {
            return Err(format!("an observation has room for {} nodes, not for {nodes}", self.mask.len()));
        }
        let (rows, mask) = (&mut self.nodes[..nodes * width], &mut self.mask[..nodes]);
        Ok(Observation { nodes: rows, pod: self.pod, context: self.context, mask })
    }
}

impl Observer {
    /// Read `observer.*`, and `leftovers.*` for the view `gpu`.
    pub fn read(arrays: &Arrays, cluster: &Cluster, arrivals: usize) -> Result<Self> {
        let view = match index("observer.view", arrays.number("observer.view")?, 2)? {
            0 => View::Cluster,
            _ => View::Gpu(Arc::new(Leftovers::read(arrays)?)),
        };
        let owners = index("observer.owners", arrays.number("observer.owners")?, 1 << 31)?;
        let owner_of: Vec<i64> = arrays.list_of("observer.owner", arrivals)?;
        let owner_of = owner_of.iter().map(|&owner| optional("observer.owner", owner, owners));
        let owner_of = owner_of.collect::<Result<_>>()?;
        Self::new(arrays, cluster, view, owners, owner_of)
    }

    /// Read `observer.rack` and `observer.racks`, for one pod after another in place of arrivals, see `set_owner`.
    ///
    /// `leftovers`: of the view `gpu`; None: of the view `cluster`.
    pub fn of_single_pods(arrays: &Arrays, cluster: &Cluster, leftovers: Option<Arc<Leftovers>>) -> Result<Self> {
        let view = leftovers.map_or(View::Cluster, View::Gpu);
        Self::new(arrays, cluster, view, 1, vec![Some(0)])
    }

    fn new(
        arrays: &Arrays,
        cluster: &Cluster,
        view: View,
        owners: usize,
        owner_of: Vec<Option<usize>>,
    ) -> Result<Self> {
        let nodes = cluster.nodes.len();
        let count = index("observer.racks", arrays.number("observer.racks")?, 1 << 31)?;
        let racks: Vec<i64> = arrays.list_of("observer.rack", nodes)?;
        let owner = Owner { running: 0, on_node: vec![0; nodes], in_rack: vec![0; count] };
        Ok(Observer {
            view,
            racks: racks.iter().map(|&rack| optional("observer.rack", rack, count)).collect::<Result<_>>()?,
            owners: vec![owner; owners],
            owner_of,
            rows: vec![Rows::default(); cluster.classes.len()],
            log: Vec::new(),
            visited: vec![0; nodes],
            updates: 0,
        })
    }

    /// Say where the pods of the next pod's owner run: nodes, and how many on each.
    pub fn set_owner(&mut self, pods: &[(usize, i32)]) {
        for owner in &mut self.owners {
            owner.running = 0;
            owner.on_node.fill(0);
            owner.in_rack.fill(0);
        }
        for &(n, count) in pods {
            self.count(0, n, count);
        }
    }

    pub fn width(&self) -> usize {
        match self.view {
            View::Cluster => CLUSTER,
            View::Gpu(_) => WEIGHTS,
        }
    }

    /// Count an arrival that was bound to a node (1), or that left it (-1), among the pods of its owner.
    pub fn count(&mut self, arrival: usize, n: usize, sign: i32) {
        if let Some(owner) = self.owner_of[arrival].map(|owner| &mut self.owners[owner]) {
            owner.running += sign;
            owner.on_node[n] += sign;
            if let Some(rack) = self.racks[n] {
                owner.in_rack[rack] += sign;
            }
        }
    }

    /// The share of an arrival's owner's running pods in the rack of a node, or on it if it has none; 1 without pods.
    pub fn share_nearby(&self, arrival: usize, n: usize) -> f64 {
        match self.owner_of[arrival].map(|owner| &self.owners[owner]).filter(|owner| owner.running != 0) {
            Some(owner) => {
                let near = self.racks[n].map_or(owner.on_node[n], |rack| owner.in_rack[rack]);
                f64::from(near) / f64::from(owner.running)
            }
            None => 1.0,
        }
    }

    /// The share that `share_nearby` would be with one pod more of the only owner on a node, if pods of it run.
    pub fn share_nearby_with(&mut self, n: usize) -> f64 {
        let runs = self.owners.first().is_some_and(|owner| owner.running != 0);
        if !runs {
            return 1.0;
        }
        self.count(0, n, 1);
        let share = self.share_nearby(0, n);
        self.count(0, n, -1);
        share
    }

    /// Forget the rows of all but the first `kept` classes, and make room for so many.
    pub fn set_classes(&mut self, kept: usize, classes: usize) {
        self.rows.truncate(kept);
        self.rows.resize(classes, Rows::default());
    }

    /// Keep the features of one class alone, in place of another's: where few decisions are about the same class, many
    /// rows would only take memory.
    pub fn keep_only(&mut self, c: usize, instead_of: usize) {
        self.rows.swap(c, instead_of);
        self.rows[c].seen = None;
        self.log.clear();
    }

    /// Note that a node has changed.
    pub fn changed(&mut self, n: usize) {
        if self.log.len() == 64 * self.racks.len() {
            self.log.clear();
            self.rows.iter_mut().for_each(|rows| rows.seen = None);
        }
        self.log.push(n);
    }

    /// Write the observation for an arrival of a class; `allowed`: where it may run, if other pods matter to it.
    pub fn write(
        &mut self,
        decider: &Decider,
        summary: &Summary,
        (arrival, c): (usize, usize),
        allowed: Option<&[bool]>,
        observation: &mut Observation,
    ) -> Result<()> {
        let cluster = &decider.cluster;
        let rows = cluster.nodes.len();
        let lengths =
            [observation.nodes.len(), observation.pod.len(), observation.context.len(), observation.mask.len()];
        let expected = [rows * self.width(), POD, CONTEXT, rows];
        if lengths != expected {
            return Err(format!("an observation has {expected:?} numbers, not {lengths:?}"));
        }
        self.update(cluster, &decider.profile, &decider.fragments, c);
        let rows = &self.rows[c];
        observation.nodes.copy_from_slice(&rows.features);
        let fits = allowed.unwrap_or(&rows.fits);
        for (mask, fits) in observation.mask.iter_mut().zip(fits) {
            *mask = i8::from(*fits);
        }
        let owner = self.owner_of[arrival].map(|owner| &self.owners[owner]).filter(|owner| owner.running != 0);
        if matches!(self.view, View::Cluster) {
            self.write_shared(cluster, summary, owner, observation.nodes);
        }
        let feasible = observation.mask.iter().filter(|mask| **mask != 0).count();
        write_pod(&cluster.classes[c], owner.map_or(0, |owner| owner.running), observation.pod);
        summary.write_context(feasible, observation.context);
        Ok(())
    }

    fn update(&mut self, cluster: &Cluster, profile: &Profile, fragments: &[Fragments], c: usize) {
        let (width, count) = (self.width(), cluster.nodes.len());
        let rows = &mut self.rows[c];
        let changed = match rows.seen.replace(self.log.len()) {
            Some(seen) => &self.log[seen..],
            None => {
                rows.features.resize(width * count, 0.0);
                rows.fits.resize(count, false);
                &(0..count).collect::<Vec<_>>()
            }
        };
        self.updates += 1;
        for &n in changed {
            if std::mem::replace(&mut self.visited[n], self.updates) != self.updates {
                rows.fits[n] = cluster.fits(c, n);
                let row = &mut rows.features[n * width..][..width];
                let (node, class) = (&cluster.nodes[n], &cluster.classes[c]);
                match &self.view {
                    View::Cluster => write_node(node, class, rows.fits[n], profile, &fragments[n], row),
                    View::Gpu(leftovers) if rows.fits[n] => write_gpu_node(leftovers, node, class, profile, row),
                    View::Gpu(_) => row.fill(0.0),
                }
            }
        }
    }

    /// Write the features of nodes that depend on the rest of the cluster and on the pod's owner.
    fn write_shared(&self, cluster: &Cluster, summary: &Summary, owner: Option<&Owner>, rows: &mut [f32]) {
        let mean = summary.cpu_mean() as f32;
        for (n, row) in rows.chunks_exact_mut(CLUSTER).enumerate() {
            let has_cpu = cluster.nodes[n].allocatable[CPU] > 0;
            // The first features are the shares that are free, before and after.
            let [before, after] = [row[0], row[1]].map(|free| if has_cpu { 1.0 - free - mean } else { 0.0 });
            let [on_node, in_rack] = owner.map_or([0.0; 2], |owner| {
                let share = |pods: i32| (f64::from(pods) / f64::from(owner.running)) as f32;
                [share(owner.on_node[n]), self.racks[n].map_or(0.0, |rack| share(owner.in_rack[rack]))]
            });
            row[SHARED..].copy_from_slice(&[before, after, before * before, after * after, on_node, in_rack]);
        }
    }
}

/// A share in [0, 1], 0 if the total is 0. Free amounts may be negative on a node that shrank.
fn part(amount: f64, total: f64) -> f64 {
    if total > 0.0 { (amount / total).clamp(0.0, 1.0) } else { 0.0 }
}

/// An amount in [0, 8] units.
fn units(amount: f64, unit: f64) -> f64 {
    (amount / unit).clamp(0.0, MANY)
}

fn flag(is_so: bool) -> f64 {
    if is_so { 1.0 } else { 0.0 }
}

/// Write the features of the view `cluster` that depend on one node; where the pod does not fit, "after" is "before".
fn write_node(node: &Node, class: &Class, fits: bool, profile: &Profile, fragments: &Fragments, row: &mut [f32]) {
    let wanted = |r: usize| if fits { class.request[r] } else { 0 };
    let free = [CPU, MEMORY, PODS].map(|r| (node.free[r], node.free[r] - wanted(r), node.allocatable[r]));
    let mut features = [0.0; SHARED];
    for (i, (before, after, all)) in free.into_iter().enumerate() {
        features[2 * i] = part(before as f64, all as f64);
        features[2 * i + 1] = part(after as f64, all as f64);
    }
    features[8] = units(free[0].1 as f64, 128_000.0);
    features[9] = units(free[1].1 as f64, TIB);
    features[19] = flag(node.free[PODS] == node.allocatable[PODS]);
    if node.gpus.is_empty() {
        features[18] = if fits { 0.5 } else { 0.0 }; // FGD's score where nothing changes: sigmoid(0)
    } else {
        write_devices(node, class, fits, profile, fragments, &mut features);
    }
    for (cell, feature) in row.iter_mut().zip(features) {
        *cell = feature as f32;
    }
}

fn write_devices(
    node: &Node,
    class: &Class,
    fits: bool,
    profile: &Profile,
    fragments: &Fragments,
    features: &mut [f64; SHARED],
) {
    let devices = if fits { node.best_devices(class) } else { 0 };
    let mut placed = node.clone();
    let mut before = GPU; // pods without devices change none
    for (d, left) in placed.gpus.iter_mut().enumerate().filter(|(d, _)| devices >> d & 1 == 1) {
        before = node.gpus[d];
        *left -= class.gpu_milli;
    }
    let count = node.gpus.len();
    let whole = |node: &Node| node.gpus.iter().filter(|&&left| left == GPU).count();
    let partial = || placed.gpus.iter().copied().filter(|&left| left > 0 && left != GPU);
    let idle = node.idle_gpu();
    let (mut taken, mut fragmented) = (0, fragments.total);
    if fits {
        let devices = node.devices_taken(class);
        taken = devices * class.gpu_milli;
        let cpu = node.free[CPU] - class.request[CPU];
        fragmented = if devices > 1 && class.gpu_milli < GPU {
            // Devices with different free milli have no closed form.
            profile.fragments_of(node.gpu_type, cpu, &placed.gpus).total
        } else {
            let change = DeviceChange { devices, before, after: before - class.gpu_milli };
            profile.after(fragments, node.gpu_type, cpu, idle - taken, change)
        };
    }
    let all = (GPU * count as i64) as f64;
    features[6] = idle as f64 / all;
    features[7] = (idle - taken) as f64 / all;
    features[10] = units((idle - taken) as f64, MANY * GPU as f64);
    features[11] = units(count as f64, MANY);
    features[12] = units(whole(node) as f64, MANY);
    features[13] = units(whole(&placed) as f64, MANY);
    features[14] = units(partial().count() as f64, MANY);
    features[15] = partial().max().unwrap_or(0) as f64 / GPU as f64;
    features[16] = units(fragments.total, MANY * GPU as f64);
    features[17] = units(fragmented, MANY * GPU as f64);
    let lost = -(fragments.total - fragmented) / GPU as f64;
    features[18] = if fits { 1.0 / (1.0 + libm::exp(lost)) } else { 0.0 };
    features[20] = flag(whole(node) == count);
    features[21] = flag(whole(&placed) == count);
}

/// Write the features of the view `gpu`: of the best-fit devices, clipped.
fn write_gpu_node(leftovers: &Leftovers, node: &Node, class: &Class, profile: &Profile, row: &mut [f32]) {
    let devices = node.best_devices(class);
    let gpus = node.gpus.iter().enumerate();
    let left = gpus.map(|(d, &left)| if devices >> d & 1 == 1 { left - class.gpu_milli } else { left });
    let cpu = leftovers.usable_cpu(node.free[CPU], node.free[MEMORY]);
    let before = leftovers.describe(profile, &State { node, cpu, gpus: node.gpus.clone() });
    let cpu = leftovers.usable_cpu(node.free[CPU] - class.request[CPU], node.free[MEMORY] - class.request[MEMORY]);
    let after = leftovers.describe(profile, &State { node, cpu, gpus: left.collect() });
    for (i, (&after, before)) in after.0.iter().zip(before.0).enumerate() {
        let (low, high) = STATE_BOUNDS[i];
        (row[i], row[FEATURES + i]) = (after.max(low).min(high), (after - before).max(-high).min(high));
    }
    row[2 * FEATURES] = (fgd_points(before.1, after.1) as f32).clamp(0.0, 100.0);
}

/// Write the features of a pod, of whose owner so many pods run.
pub fn write_pod(class: &Class, running: i32, out: &mut [f32]) {
    let (cores, gib) = (class.request[CPU] as f64 / 1000.0, class.request[MEMORY] as f64 / GIB);
    let running = f64::from(running);
    let features = [
        units(cores, 32.0),
        (libm::log2(1.0 + cores) / 7.0).min(2.0),
        units(gib, 256.0),
        (libm::log2(1.0 + gib) / 10.0).min(2.0),
        units(class.gpu_count as f64, MANY),
        class.gpu_milli as f64 / GPU as f64,
        running / (running + 8.0),
    ];
    for (kind, cell) in out[..KINDS].iter_mut().enumerate() {
        *cell = if kind == kind_of(class) { 1.0 } else { 0.0 };
    }
    for (cell, feature) in out[KINDS..].iter_mut().zip(features) {
        *cell = feature as f32;
    }
}
