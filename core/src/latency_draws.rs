//! What is drawn at the start of an episode of the environment Latency: a cluster, and the pods that will arrive.

use crate::cluster::{CPU, Class, MEMORY};
use crate::latency_model::{Model, PodUse, SimulatedPod, Streams};
use crate::latency_settings::{
    APPLICATIONS, Application, FILESYSTEM_MIB, HARD_FACTORS, MAX_CONNECTIONS, MAX_USE, MEMORY_PER_CPU, MEMORY_USE, MIB,
    NODE_CPU, NODE_PODS, POD_SIGMA, SOFT_LIMITS, SYSTEM_CPU, Settings, WORKER,
};
use crate::random::{GOLDEN, Random, mixed};
use crate::telemetry::KnownPod;

/// Seconds that the cluster runs without pods, so that there are metrics.
const FIRST_ARRIVAL: f64 = 60.0;
const SHORTEST_LIFE: f64 = 30.0;

impl Streams {
    /// Independent streams of one seed.
    pub fn split(seed: u64) -> Self {
        let first = mixed(seed.wrapping_add(GOLDEN));
        let stream = |i: u64| Random::new(mixed(first.wrapping_add(i.wrapping_mul(GOLDEN))));
        Streams { cluster: stream(0), workload: stream(1), load: stream(2), measuring: stream(3) }
    }
}

/// A pod that arrives and leaves.
pub struct Visit {
    pub pod: SimulatedPod,
    /// Seconds.
    pub arrival: f64,
    pub leave: f64,
}

/// What an episode begins with. Only the cluster and the rate of arrivals depend on the number of nodes.
pub struct Start {
    pub model: Model,
    /// Seconds within the scrape interval, by node, and the nodes in this order.
    pub offsets: Vec<f64>,
    pub turns: Vec<usize>,
    /// In the order of their arrivals.
    pub visits: Vec<Visit>,
}

impl Start {
    pub fn draw(settings: &Settings, seed: u64, nodes: usize) -> Self {
        let mut model = Model::new(settings.clone(), Streams::split(seed));
        let mut capacity = 0;
        for n in 0..settings.max_nodes.max(nodes) {
            // Nodes that are absent are drawn as well, so that the seconds of scrapes do not depend on their number.
            let cpu = NODE_CPU[model.random.cluster.below(NODE_CPU.len())];
            if n < nodes {
                let [low, high] = SYSTEM_CPU;
                let system = low + (high - low) * model.random.cluster.uniform();
                model.add_node([cpu, cpu / 1000 * MEMORY_PER_CPU, NODE_PODS], n % settings.zones, system);
                capacity += cpu;
            }
        }
        let offsets: Vec<f64> = (0..nodes).map(|_| settings.scrape_interval * model.random.cluster.uniform()).collect();
        let turns = sorted_by(&offsets);
        let visits = draw_pods(settings, &mut model.random.workload, capacity);
        Start { model, offsets, turns, visits }
    }
}

/// Indices by their key, then by themselves.
pub fn sorted_by(keys: &[f64]) -> Vec<usize> {
    let mut order: Vec<usize> = (0..keys.len()).collect();
    order.sort_by(|&a, &b| keys[a].total_cmp(&keys[b]));
    order
}

/// A Deployment: what its pods request, and how near its users are to be.
struct Deployment {
    replicas: usize,
    kind: usize,
    user: usize,
    cpu: i64,
    memory: i64,
    soft: f64,
    hard: f64,
}

impl Deployment {
    fn draw(settings: &Settings, random: &mut Random, weights: f64) -> Self {
        let replicas = 1 + random.below(settings.replicas);
        let (mut pick, mut kind) = (random.uniform(), 0);
        // Inverse transform sampling: the shares are used up one by one.
        while kind < WORKER && pick >= APPLICATIONS[kind].share {
            pick -= APPLICATIONS[kind].share;
            kind += 1;
        }
        let (mut pick, mut user) = (random.uniform() * weights, 0);
        while user < settings.zones - 1 && pick >= 1.0 / (user as f64 + 1.0) {
            pick -= 1.0 / (user as f64 + 1.0);
            user += 1;
        }
        let cpu = APPLICATIONS[kind].cpu[random.below(3)];
        let memory = APPLICATIONS[kind].memory[random.below(3)] * MIB;
        let soft = SOFT_LIMITS[random.below(3)];
        let hard = soft * HARD_FACTORS[random.below(3)];
        Deployment { replicas, kind, user, cpu, memory, soft, hard }
    }

    fn pod(&self, index: usize) -> KnownPod {
        let has_users = self.kind != WORKER;
        let limit = |limit: f64| if has_users { limit } else { f64::INFINITY };
        KnownPod {
            class: Class::without_gpus(vec![self.cpu, self.memory, 1], [self.cpu, self.memory]),
            user: has_users.then_some(self.user),
            soft: limit(self.soft),
            hard: limit(self.hard),
            index: index as i64,
            replicas: self.replicas as i64,
        }
    }
}

/// Draw Deployments, whose pods arrive, and leave, together.
///
/// They arrive as a Poisson process, or as many copies of one as the settings say, which leave together.
fn draw_pods(settings: &Settings, random: &mut Random, capacity: i64) -> Vec<Visit> {
    let mean_replicas = (1.0 + settings.replicas as f64) / 2.0;
    let mean_request: f64 = APPLICATIONS.iter().map(mean_request).sum();
    // Little's law: pods in the cluster = rate of Deployments times replicas times lifetime.
    let rate = settings.load * capacity as f64 / (mean_request * mean_replicas * settings.lifetime);
    // Users are not spread evenly over zones: weights 1, 1/2, 1/3...
    let mut weights = 0.0;
    for zone in 0..settings.zones {
        weights += 1.0 / (zone as f64 + 1.0);
    }
    let (mut time, mut end, mut copy) = (FIRST_ARRIVAL, 0.0, 0);
    let mut deployment: Option<Deployment> = None;
    let mut visits = Vec::with_capacity(settings.pods);
    while visits.len() < settings.pods {
        let life = if settings.copies > 0 {
            time += if copy > 0 { settings.copy_interval } else { 0.0 };
            if copy == 0 {
                end = time + (settings.copies - 1) as f64 * settings.copy_interval + settings.copy_pause;
            }
            end - time
        } else {
            time += random.exponential() / rate;
            // The shortest life plus an exponential one, together `lifetime` on average.
            SHORTEST_LIFE + (settings.lifetime - SHORTEST_LIFE) * random.exponential()
        };
        let deployment = match &mut deployment {
            Some(deployment) if copy > 0 => deployment,
            other => other.insert(Deployment::draw(settings, random, weights)),
        };
        // Per copy, not per Deployment: copies differ in what they use.
        let application = Drawn::draw(random, deployment.kind);
        for index in 0..deployment.replicas.min(settings.pods - visits.len()) {
            let known = deployment.pod(index);
            let uses = application.pod(random, &known.class);
            visits.push(Visit { pod: SimulatedPod { known, uses, node: None }, arrival: time, leave: time + life });
        }
        if settings.copies > 0 {
            copy = (copy + 1) % settings.copies;
            if copy == 0 {
                time = end + settings.copy_pause;
            }
        }
    }
    visits
}

fn mean_request(application: &Application) -> f64 {
    application.share * application.cpu.iter().sum::<i64>() as f64 / application.cpu.len() as f64
}

/// What the pods of a Deployment use: CPU over requested CPU, and connections of a pod.
pub struct Drawn {
    application: &'static Application,
    cpu: f64,
    connections: f64,
}

impl Drawn {
    pub fn draw(random: &mut Random, kind: usize) -> Self {
        let application = &APPLICATIONS[kind];
        let cpu = application.use_median * libm::exp(application.use_sigma * random.normal());
        let connections = application.connection_median * libm::exp(application.connection_sigma * random.normal());
        Drawn { application, cpu, connections }
    }

    /// Draw what a pod uses at load 1.
    pub fn pod(&self, random: &mut Random, class: &Class) -> PodUse {
        let factor = libm::exp(POD_SIGMA * random.normal());
        let memory_share = MEMORY_USE[0] + (MEMORY_USE[1] - MEMORY_USE[0]) * random.uniform();
        let disk = FILESYSTEM_MIB[0] + random.below((FILESYSTEM_MIB[1] - FILESYSTEM_MIB[0]) as usize) as i64;
        let each = (self.connections * factor).min(MAX_CONNECTIONS);
        PodUse {
            cpu: (class.request[CPU] as f64 * (self.cpu * factor).min(MAX_USE)) as i64,
            connections: each as i64,
            network: (each * self.application.connection_bytes) as i64,
            memory: (class.request[MEMORY] as f64 * memory_share) as i64,
            filesystem: disk * MIB,
        }
    }
}
