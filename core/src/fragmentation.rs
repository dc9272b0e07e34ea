//! GPU fragmentation: how much idle GPU the typical pods cannot use, and why.
//!
//! F_n(M) = sum over typical pods m of share_m f_n(m), where f_n(m) is the idle GPU milli of node n that m cannot use: all
//! of it if m does not fit (or wants no GPU), otherwise what lies on devices too full for m. Source: Weng et al., "Beware
//! of Fragmentation", USENIX ATC 2023, with the artifact's order of summation: an amount is summed per cause over typical
//! pods, then over the causes. That order decides the last bits, and these decide truncated scores.

use crate::arrays::{Arrays, Result, index};
use crate::cluster::{CPU, Node};

/// A kind of pod by which fragmentation is measured.
#[derive(Clone)]
pub struct TypicalPod {
    pub cpu: i64,
    pub gpu_count: i64,
    /// Index of its milli per device in `Profile::sizes`.
    pub size: usize,
    /// Its share of the profile.
    pub share: f64,
    /// Whether it may use devices of each type.
    pub accepts: Vec<bool>,
}

/// What a policy knows of the pods to come.
#[derive(Clone)]
pub struct Profile {
    /// The distinct milli per device that typical pods request.
    pub sizes: Vec<i64>,
    pub pods: Vec<TypicalPod>,
    by_type: Vec<TypedPods>,
}

/// The typical pods as devices of one type see them. Each cause is that of one list alone, and a list is in the order of
/// `Profile::pods`, so that sums by cause have the artifact's order.
#[derive(Clone, Default)]
struct TypedPods {
    /// CPU and share of those that want no GPU.
    without_gpu: Vec<(i64, f64)>,
    /// Shares of those that want another type.
    of_others: Vec<f64>,
    with_gpu: Vec<TypedPod>,
}

/// A typical pod that may use the devices.
#[derive(Clone)]
struct TypedPod {
    cpu: i64,
    gpu_count: i64,
    milli: i64,
    size: usize,
    share: f64,
}

/// Devices with at least so much left, and the milli left on the others.
#[derive(Clone, Copy, Default, Debug, PartialEq)]
struct Devices {
    enough: i64,
    wasted: i64,
}

/// What a placement takes of a node's devices: how many, and the milli left of each before and after.
#[derive(Clone, Copy, Default)]
pub struct DeviceChange {
    pub devices: i64,
    pub before: i64,
    pub after: i64,
}

/// Why typical pods cannot use idle GPU, in the order of summation: they lack both, GPU (or what is idle is on devices too
/// full), or CPU; want no GPU, or none and lack CPU; want another type of GPU.
pub const CAUSES: usize = 6;

/// Fragmentation of a node as it is.
#[derive(Clone, Default, Debug, PartialEq)]
pub struct Fragments {
    /// Fragmented GPU milli.
    pub total: f64,
    /// The same by cause, in the order of summation.
    pub causes: [f64; CAUSES],
    /// By size of `Profile::sizes`.
    devices: Vec<Devices>,
}

impl Profile {
    /// Read `profile.*`.
    pub fn read(arrays: &Arrays) -> Result<Self> {
        let sizes: Vec<i64> = arrays.list("profile.milli")?;
        let cpu: Vec<i64> = arrays.list("profile.cpu")?;
        let count = cpu.len();
        let gpu_count: Vec<i64> = arrays.list_of("profile.gpu_count", count)?;
        let value: Vec<i64> = arrays.list_of("profile.value", count)?;
        let share: Vec<f64> = arrays.list_of("profile.share", count)?;
        let types = arrays.columns::<bool>("profile.accepts")?;
        let accepts: Vec<Vec<bool>> = arrays.rows_of("profile.accepts", count, types)?;
        let mut pods = Vec::with_capacity(count);
        for (i, accepts) in accepts.into_iter().enumerate() {
            let size = if gpu_count[i] == 0 { 0 } else { index("profile.value", value[i], sizes.len())? };
            pods.push(TypicalPod { cpu: cpu[i], gpu_count: gpu_count[i], size, share: share[i], accepts });
        }
        Ok(Profile::new(sizes, pods, types))
    }

    /// How many types of devices there are, those without a model among them.
    pub fn types(&self) -> usize {
        self.by_type.len()
    }

    /// Make a profile of pods that say for so many types whether they accept them.
    pub fn new(sizes: Vec<i64>, pods: Vec<TypicalPod>, types: usize) -> Self {
        let typed = |gpu_type: usize| {
            let mut typed = TypedPods::default();
            for &TypicalPod { cpu, gpu_count, size, share, ref accepts } in &pods {
                if gpu_count == 0 {
                    typed.without_gpu.push((cpu, share));
                } else if accepts[gpu_type] {
                    let milli = sizes.get(size).copied().unwrap_or(0);
                    typed.with_gpu.push(TypedPod { cpu, gpu_count, milli, size, share });
                } else {
                    typed.of_others.push(share);
                }
            }
            typed
        };
        Profile { by_type: (0..types).map(typed).collect(), sizes, pods }
    }

    /// Return the fragmentation of a node as it is.
    pub fn fragments(&self, node: &Node) -> Fragments {
        self.fragments_of(node.gpu_type, node.free[CPU], &node.gpus)
    }

    /// Return the fragmentation of a node with so much CPU and these milli left of its devices.
    pub fn fragments_of(&self, gpu_type: usize, cpu: i64, gpus: &[i64]) -> Fragments {
        let devices = |&size: &i64| {
            let mut devices = Devices::default();
            for &left in gpus {
                // Devices of an overcommitted node may have less than nothing left.
                if left >= size { devices.enough += 1 } else { devices.wasted += left.max(0) }
            }
            devices
        };
        let mut fragments = Fragments { devices: self.sizes.iter().map(devices).collect(), ..Fragments::default() };
        let idle = gpus.iter().map(|&left| left.max(0)).sum();
        fragments.causes = self.causes(&fragments, gpu_type, cpu, idle, DeviceChange::default());
        fragments.total = sum(fragments.causes);
        fragments
    }

    /// Return the fragmented GPU milli after a placement that leaves so much CPU and GPU milli.
    pub fn after(&self, fragments: &Fragments, gpu_type: usize, cpu: i64, idle: i64, change: DeviceChange) -> f64 {
        sum(self.causes(fragments, gpu_type, cpu, idle, change))
    }

    fn causes(
        &self,
        fragments: &Fragments,
        gpu_type: usize,
        cpu: i64,
        idle: i64,
        change: DeviceChange,
    ) -> [f64; CAUSES] {
        let all = idle as f64;
        let TypedPods { without_gpu, of_others, with_gpu } = &self.by_type[gpu_type];
        // Sums have names, and are chosen without an index, so that they stay in registers.
        let (mut lacks_both, mut lacks_gpu, mut lacks_cpu) = (0.0, 0.0, 0.0);
        let (mut wants_no_gpu, mut wants_no_gpu_lacks_cpu, mut wants_other_gpu) = (0.0, 0.0, 0.0);
        let part = |is_cause: bool, amount: f64| if is_cause { amount } else { 0.0 };
        for &(needed, share) in without_gpu {
            let has_cpu = cpu >= needed;
            wants_no_gpu += part(has_cpu, share * all);
            wants_no_gpu_lacks_cpu += part(!has_cpu, share * all);
        }
        for share in of_others {
            wants_other_gpu += share * all;
        }
        let (mut size, mut devices) = (usize::MAX, Devices::default());
        for pod in with_gpu {
            if pod.size != size {
                (size, devices) = (pod.size, fragments.devices[pod.size].changed(pod.milli, change));
            }
            let (has_gpu, has_cpu) = (devices.enough >= pod.gpu_count, cpu >= pod.cpu);
            let amount = pod.share * (if has_gpu && has_cpu { devices.wasted } else { idle }) as f64;
            lacks_both += part(!has_gpu && !has_cpu, amount);
            lacks_gpu += part(has_cpu, amount);
            lacks_cpu += part(has_gpu && !has_cpu, amount);
        }
        [lacks_both, lacks_gpu, lacks_cpu, wants_no_gpu, wants_no_gpu_lacks_cpu, wants_other_gpu]
    }
}

impl Devices {
    /// The devices that change leave the group that they were in, and join that of what is left of them.
    #[inline]
    fn changed(mut self, size: i64, change: DeviceChange) -> Self {
        for (sign, left) in [(-1, change.before), (1, change.after)] {
            if left >= size {
                self.enough += sign * change.devices;
            } else {
                self.wasted += sign * change.devices * left;
            }
        }
        self
    }
}

fn sum(causes: [f64; CAUSES]) -> f64 {
    let mut total = 0.0;
    for cause in causes {
        total += cause;
    }
    total
}
