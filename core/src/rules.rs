//! Rules that score one node for one class of pods, so that a table can hold their scores. Higher is better.
//!
//! `dot-product`, `gpu-clustering`, `gpu-packing`, `best-fit` and `fgd`: Weng et al., "Beware of Fragmentation", USENIX ATC
//! 2023, as the paper's artifact computes them: resources and scores are integers, and the order of floating-point sums is
//! part of the result. The others: plugins of kube-scheduler 1.37, bit for bit.

use crate::cluster::{CPU, Class, GPU, MEMORY, Node};
use crate::fragmentation::{DeviceChange, Fragments, Profile};

/// The best score of a plugin of kube-scheduler.
pub const BEST: i64 = 100;
/// Milli-CPU and GPU milli of the largest node of the openb cluster, the artifact's divisors.
const CPU_SCALE: f64 = 128_000.0;
const GPU_SCALE: i64 = 8_000;

/// A node on which a class fits, and what rules may know of it.
pub struct Candidate<'a> {
    pub node: &'a Node,
    pub fragments: &'a Fragments,
    pub profile: &'a Profile,
}

pub type Score = fn(&Candidate, &Class) -> i64;

/// All rules; a host names one by its place.
pub const RULES: [(&str, Score); 8] = [
    ("dot-product", dot_product),
    ("gpu-clustering", gpu_clustering),
    ("gpu-packing", gpu_packing),
    ("best-fit", best_fit),
    ("fgd", fgd),
    ("least-allocated", |candidate, class| least_allocated(candidate.node, class)),
    ("most-allocated", |candidate, class| most_allocated(candidate.node, class)),
    ("balanced-allocation", |candidate, class| balanced_allocation(candidate.node, class)),
];

/// The place of the rule that a weighted sum normalizes over the feasible nodes.
pub const BEST_FIT: usize = 3;
/// The place of the rule that also chooses devices.
pub const FGD: usize = 4;

/// int(100 (1 - (c/128000 rc/128000 + g/8000 rg/8000) / 2)) of free c, g and requested rc, rg.
fn dot_product(candidate: &Candidate, class: &Class) -> i64 {
    let node = candidate.node;
    // Parentheses as in the artifact: (free / scale) * (request / scale).
    let cpu = node.free[CPU] as f64 / CPU_SCALE * (class.request[CPU] as f64 / CPU_SCALE);
    let scale = GPU_SCALE as f64;
    let gpu = node.gpu_left(class) as f64 / scale * (class.gpu_total() as f64 / scale);
    (100.0 * (1.0 - (cpu + gpu) / 2.0)) as i64
}

/// int(100 (1 - (c-rc)/128000/2 - (g-rg)/8000/2)).
fn best_fit(candidate: &Candidate, class: &Class) -> i64 {
    let node = candidate.node;
    let cpu = (node.free[CPU] - class.request[CPU]) as f64 / CPU_SCALE;
    let gpu = (node.gpu_left(class) - class.gpu_total()) as f64 / GPU_SCALE as f64;
    (100.0 * (1.0 - (0.5 * cpu + 0.5 * gpu))) as i64
}

/// Groups pods of one kind (shares, or k whole devices): 75, 50, 25 or 0, plus up to 25 for fullness.
fn gpu_clustering(candidate: &Candidate, class: &Class) -> i64 {
    let node = candidate.node;
    if node.devices_taken(class) == 0 {
        return 0;
    }
    let kinds = node.gpu_kinds.iter().filter(|&&pods| pods > 0).count();
    let fullness = (25.0 * (GPU_SCALE - node.idle_gpu()) as f64 / GPU_SCALE as f64) as i64;
    // No pod of any kind: 25, between a node of other kinds and a mixed one that has this kind.
    if kinds == 0 {
        return fullness + 25;
    }
    if node.gpu_kinds[node.gpu_kind(class)] == 0 {
        return fullness;
    }
    fullness + if kinds == 1 { 75 } else { 50 }
}

/// Prefers used devices, then free devices of used nodes, then unused nodes with few devices.
fn gpu_packing(candidate: &Candidate, class: &Class) -> i64 {
    let node = candidate.node;
    if node.devices_taken(class) == 0 {
        return 0;
    }
    let free = node.gpus.iter().filter(|&&left| left == GPU).count();
    if free == node.gpus.len() {
        return (33 - free as i64).max(free as i64);
    }
    let devices = node.best_devices(class);
    let (mut left_percent, mut whole) = (0, 0);
    for (_, &left) in node.gpus.iter().enumerate().filter(|&(d, _)| devices >> d & 1 == 1) {
        left_percent += left * 100 / GPU;
        whole += i64::from(left == GPU);
    }
    if whole > 0 { (50 - whole).max(33) } else { (100 - left_percent / 10).max(50) }
}

/// int(100 sigmoid((F_before - F_after) / 1000)) of fragmented GPU milli F.
pub fn fgd_points(before: f64, after: f64) -> i64 {
    (100.0 * (1.0 / (1.0 + libm::exp(-(before - after) / 1000.0)))) as i64
}

/// Fragmentation gradient descent.
fn fgd(candidate: &Candidate, class: &Class) -> i64 {
    let Candidate { node, fragments, profile } = candidate;
    let (count, milli) = (node.devices_taken(class), class.gpu_milli);
    if count == 1 && milli < GPU {
        return fgd_share(candidate, class).0;
    }
    if count == 0 || milli == GPU {
        // Whole devices are all free before: one change describes them all.
        let change = DeviceChange { devices: count, before: GPU, after: GPU - milli };
        let cpu = node.free[CPU] - class.request[CPU];
        let after = profile.after(fragments, node.gpu_type, cpu, node.idle_gpu() - count * milli, change);
        return fgd_points(fragments.total, after);
    }
    // Several shares take devices that differ, so they are placed.
    let mut placed = (*node).clone();
    placed.place(class, node.best_devices(class));
    fgd_points(fragments.total, profile.fragments(&placed).total)
}

/// The best score over the devices that fit a share of one device, and that device.
pub fn fgd_share(candidate: &Candidate, class: &Class) -> (i64, Option<usize>) {
    let Candidate { node, fragments, profile } = candidate;
    let milli = class.gpu_milli;
    let (cpu, idle) = (node.free[CPU] - class.request[CPU], node.idle_gpu() - milli);
    let mut best = (-1, None);
    for (d, &left) in node.gpus.iter().enumerate() {
        if left < milli || node.has_equal_earlier_device(d) {
            continue;
        }
        let change = DeviceChange { devices: 1, before: left, after: left - milli };
        let score = fgd_points(fragments.total, profile.after(fragments, node.gpu_type, cpu, idle, change));
        if score > best.0 {
            best = (score, Some(d));
        }
    }
    best
}

/// The mean over CPU and memory of (a - q) 100 // a, a allocatable and q requested with this pod; 0 where q > a.
///
/// A resource that the node does not have is ignored. Requests are non-zero requests: a container without requests
/// counts as 100m and 200MiB.
pub fn least_allocated(node: &Node, class: &Class) -> i64 {
    mean_score(node, class, |capacity, taken| if taken <= capacity { (capacity - taken) * BEST / capacity } else { 0 })
}

/// The mean over CPU and memory of min(q, a) 100 // a, with q and a as in `least_allocated`.
fn most_allocated(node: &Node, class: &Class) -> i64 {
    mean_score(node, class, |capacity, taken| taken.min(capacity) * BEST / capacity)
}

fn mean_score(node: &Node, class: &Class, score: impl Fn(i64, i64) -> i64) -> i64 {
    let (mut total, mut counted) = (0, 0);
    for r in [CPU, MEMORY] {
        let capacity = node.allocatable[r];
        if capacity != 0 {
            total += score(capacity, node.nonzero[r] + class.nonzero[r]);
            counted += 1;
        }
    }
    if counted == 2 { total / 2 } else { total }
}

/// 50 + (50 + B(with the pod) - B(without)) // 2, B the balance of CPU and memory. Requests are the actual ones.
///
/// A pod without CPU and memory requests scores 0; kube-scheduler skips it.
pub fn balanced_allocation(node: &Node, class: &Class) -> i64 {
    let (cpu, memory) = (class.request[CPU], class.request[MEMORY]);
    if cpu == 0 && memory == 0 {
        return 0;
    }
    let taken = [CPU, MEMORY].map(|r| node.allocatable[r] - node.free[r]);
    let after = balance(node, taken[0] + cpu, taken[1] + memory);
    BEST / 2 + (BEST / 2 + after - balance(node, taken[0], taken[1])).div_euclid(2)
}

/// int(100 (1 - |f - g| / 2)), with f and g the requested shares of CPU and memory, at most 1.
fn balance(node: &Node, cpu: i64, memory: i64) -> i64 {
    let (cpu_all, memory_all) = (node.allocatable[CPU], node.allocatable[MEMORY]);
    if cpu_all == 0 || memory_all == 0 {
        return BEST;
    }
    let share = |taken: i64, all: i64| (taken as f64 / all as f64).min(1.0);
    let difference = share(cpu, cpu_all) - share(memory, memory_all);
    ((1.0 - (difference / 2.0).abs()) * BEST as f64) as i64
}
