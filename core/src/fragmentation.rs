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
    /// The same pods by type of devices, each list in the order of `pods`.
    by_type: Vec<Vec<TypedPod>>,
}

/// A typical pod as devices of one type see it, in one place.
#[derive(Clone)]
struct TypedPod {
    cpu: i64,
    gpu_count: i64,
    milli: i64,
    size: usize,
    share: f64,
    is_accepted: bool,
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

/// Why typical pods cannot use idle GPU, in the order of summation.
#[derive(Clone, Copy)]
enum Cause {
    LacksBoth,
    LacksGpu,
    LacksCpu,
    WantsNoGpu,
    WantsNoGpuLacksCpu,
    WantsOtherGpu,
}

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
            let pod = |pod: &TypicalPod| TypedPod {
                cpu: pod.cpu,
                gpu_count: pod.gpu_count,
                milli: sizes.get(pod.size).copied().unwrap_or(0),
                size: pod.size,
                share: pod.share,
                is_accepted: pod.accepts[gpu_type],
            };
            pods.iter().map(pod).collect()
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
        let mut causes = [0.0; CAUSES];
        for pod in &self.by_type[gpu_type] {
            let (cause, milli) = pod.fragmented(fragments, cpu, idle, change);
            causes[cause as usize] += pod.share * milli as f64;
        }
        causes
    }
}

impl TypedPod {
    #[inline]
    fn fragmented(&self, fragments: &Fragments, cpu: i64, idle: i64, change: DeviceChange) -> (Cause, i64) {
        let enough_cpu = cpu >= self.cpu;
        if self.gpu_count == 0 {
            return (if enough_cpu { Cause::WantsNoGpu } else { Cause::WantsNoGpuLacksCpu }, idle);
        }
        if !self.is_accepted {
            return (Cause::WantsOtherGpu, idle);
        }
        // The devices that change leave the group that they were in, and join that of what is left of them.
        let (size, Devices { mut enough, mut wasted }) = (self.milli, fragments.devices[self.size]);
        if change.before >= size {
            enough -= change.devices
        } else {
            wasted -= change.devices * change.before
        }
        if change.after >= size {
            enough += change.devices
        } else {
            wasted += change.devices * change.after
        }
        match (enough >= self.gpu_count, enough_cpu) {
            (true, true) => (Cause::LacksGpu, wasted),
            (true, false) => (Cause::LacksCpu, idle),
            (false, true) => (Cause::LacksGpu, idle),
            (false, false) => (Cause::LacksBoth, idle),
        }
    }
}

fn sum(causes: [f64; CAUSES]) -> f64 {
    let mut total = 0.0;
    for cause in causes {
        total += cause;
    }
    total
}
