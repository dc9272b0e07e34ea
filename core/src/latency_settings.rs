//! Parameters of the simulated telemetry: settings that a user may change, and assumptions about applications.
//!
//! Applications are web servers, caches and workers. What a scheduler may see of one is its requests, its latency limits
//! and the zone of its users; what it really uses is drawn for each Deployment, then for each pod.

use crate::arrays::{Arrays, Result, index};

/// What is assumed of applications of one kind.
pub struct Application {
    /// Its share of the Deployments.
    pub share: f64,
    /// Milli-CPU and MiB that are requested, uniform.
    pub cpu: [i64; 3],
    pub memory: [i64; 3],
    /// CPU used over CPU requested, log-normal. Together about 0.6 of what is requested is used, near the 54 % that Rzadca
    /// et al. (Autopilot, EuroSys 2020) found for jobs whose limits people set.
    pub use_median: f64,
    pub use_sigma: f64,
    /// Connections of a pod, log-normal: a few Deployments have most of them.
    pub connection_median: f64,
    pub connection_sigma: f64,
    /// Received bytes per second for each connection.
    pub connection_bytes: f64,
}

/// The place of workers, which have no users, among the applications.
pub const WORKER: usize = 2;
/// Web servers, caches and workers.
pub const APPLICATIONS: [Application; 3] = [
    Application {
        share: 0.5,
        // 250: the nginx of Matranga's thesis.
        cpu: [250, 500, 1000],
        memory: [256, 512, 1024],
        use_median: 0.35,
        use_sigma: 0.6,
        connection_median: 80.0,
        connection_sigma: 1.0,
        connection_bytes: 10_000.0,
    },
    Application {
        share: 0.2,
        cpu: [500, 1000, 1000],
        memory: [4096, 8192, 16384],
        use_median: 0.3,
        use_sigma: 0.5,
        connection_median: 250.0,
        connection_sigma: 0.7,
        connection_bytes: 5_000.0,
    },
    Application {
        share: 0.3,
        cpu: [1000, 2000, 4000],
        memory: [1024, 2048, 4096],
        use_median: 0.6,
        use_sigma: 0.5,
        connection_median: 3.0,
        connection_sigma: 0.5,
        connection_bytes: 200_000.0,
    },
];

/// A pod uses this much of its request at most.
pub const MAX_USE: f64 = 2.0;
/// How pods of one Deployment differ from each other (log-normal, in everything).
pub const POD_SIGMA: f64 = 0.2;
/// What a pod can have (nginx as it is shipped handles 512 to 1024 for each worker).
pub const MAX_CONNECTIONS: f64 = 1000.0;
/// Shares of the requested memory, and MiB of a node's filesystem, uniform.
pub const MEMORY_USE: [f64; 2] = [0.4, 1.0];
pub const FILESYSTEM_MIB: [i64; 2] = [50, 500];
/// Milliseconds, and the factor of the hard limit; nginx in Matranga's thesis has 35 and 100 ms. Workers have none.
pub const SOFT_LIMITS: [f64; 3] = [20.0, 35.0, 50.0];
pub const HARD_FACTORS: [f64; 3] = [2.0, 3.0, 4.0];

/// A node's milli-CPU is drawn; 4 GiB for each CPU, 100 GiB of disk, 1 Gbit/s in bytes per second.
pub const NODE_CPU: [i64; 3] = [8_000, 16_000, 32_000];
pub const NODE_PODS: i64 = 110;
pub const MEMORY_PER_CPU: i64 = 4 << 30;
pub const NODE_FILESYSTEM: i64 = 100 << 30;
pub const NODE_NETWORK: f64 = 125e6;
/// Of a node without pods: kubelet, runtime and monitoring, beside its allocatable.
pub const SYSTEM_CPU: [f64; 2] = [100.0, 400.0];
pub const SYSTEM_MEMORY: i64 = 1 << 30;
pub const SYSTEM_FILESYSTEM: i64 = 20 << 30;
pub const SYSTEM_CONNECTIONS: f64 = 20.0;

/// What a scheduler may assume where it has no measurement, see `telemetry::Assumed`.
pub const ASSUMED_SERVICE: f64 = 2.0;
pub const ASSUMED_LINK: f64 = NODE_NETWORK;
pub const ASSUMED_POD_LINK: f64 = 0.15;

pub const MIB: i64 = 1 << 20;
const MOST_ZONES: usize = 8;
const MOST_PODS: usize = 100_000;

/// Settings that a user may change, see `steersman.workloads.generators.latency_settings`.
#[derive(Clone)]
pub struct Settings {
    pub max_nodes: usize,
    pub zones: usize,
    pub pods: usize,
    pub load: f64,
    pub lifetime: f64,
    pub replicas: usize,
    pub swing: f64,
    pub period: f64,
    pub load_noise: f64,
    pub scrape_interval: f64,
    pub missed: f64,
    pub noise: f64,
    pub distance: f64,
    pub service: f64,
    pub copies: usize,
    pub copy_interval: f64,
    pub copy_pause: f64,
    pub warmup: f64,
}

impl Settings {
    /// Read `settings.*`, one number each.
    pub fn read(arrays: &Arrays) -> Result<Self> {
        let count = |name: &str, least: usize, most: usize| -> Result<usize> {
            let name = format!("settings.{name}");
            let value = index(&name, arrays.number(&name)?, most + 1)?;
            if value < least { Err(format!("{name}: {value} is not in {least}..{}", most + 1)) } else { Ok(value) }
        };
        let number = |name: &str, least: f64, most: f64| -> Result<f64> {
            let name = format!("settings.{name}");
            let value: f64 = arrays.list_of::<f64>(&name, 1)?[0];
            // Not where it is NaN.
            if (least..=most).contains(&value) { Ok(value) } else { Err(format!("{name}: {value} is out of range")) }
        };
        Ok(Settings {
            max_nodes: count("max_nodes", 1, 1 << 20)?,
            zones: count("zones", 1, MOST_ZONES)?,
            pods: count("pods", 1, MOST_PODS)?,
            load: number("load", 0.01, 2.0)?,
            lifetime: number("lifetime", 60.0, 1e6)?,
            replicas: count("replicas", 1, 100)?,
            swing: number("swing", 0.0, 0.9)?,
            period: number("period", 60.0, 1e6)?,
            load_noise: number("load_noise", 0.0, 0.3)?,
            scrape_interval: number("scrape_interval", 1.0, 300.0)?,
            missed: number("missed", 0.0, 0.9)?,
            noise: number("noise", 0.0, 0.5)?,
            distance: number("distance", 0.0, 1000.0)?,
            service: number("service", 0.0, 100.0)?,
            copies: count("copies", 0, 10_000)?,
            copy_interval: number("copy_interval", 0.0, 1e4)?,
            copy_pause: number("copy_pause", 1.0, 1e6)?,
            warmup: number("warmup", 0.0, 1e6)?,
        })
    }
}
