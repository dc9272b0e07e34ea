//! Scores of orders: among waiting pods of the same priority the lowest goes first.
//!
//! Sources: WFP3 and UNICEF of Tang, Lan, Desai and Buettner, "Fault-aware, utility-based job scheduling on Blue Gene/P
//! systems" (CLUSTER 2009); F1 of Carastan-Santos and de Camargo, "Obtaining dynamic scheduling policies with simulation
//! and machine learning" (SC 2017); `Fair` of Ghodsi et al., "Dominant Resource Fairness" (NSDI 2011).

use std::cmp::Ordering;

use crate::arrays::{Result, index};

/// What orders the queue.
#[derive(Clone)]
pub enum Order {
    /// A score that is known when a pod arrives: age, smallest, largest.
    Given,
    Shortest,
    Area,
    Wfp3,
    Unicef,
    F1,
    /// The namespace that has least running goes first, by its dominant share of the cluster.
    Fair,
    Learned(LearnedOrder),
    /// The host chooses, where the order commits to one pod.
    External,
    /// By age, and what was evicted after the others: it has attained much service, see `evictions`.
    Las,
}

/// A waiting pod as orders see it.
pub struct Waiting {
    /// Estimated seconds, and the logarithm of the 90th percentile of the estimate over its median.
    pub run_time: f64,
    pub spread: f64,
    /// What its gang requests, in GPUs (in CPUs where no pod requests a GPU), and as a share of the cluster.
    pub size: f64,
    pub share: f64,
    /// Seconds waited, and when it arrived.
    pub wait: f64,
    pub arrived: f64,
    /// Free share of the cluster.
    pub free: f64,
    /// Pods that wait.
    pub queue: f64,
    /// Seconds until running pods are expected to have freed as much as is requested; 0 where no order commits.
    pub delay: f64,
}

impl Order {
    pub fn read(number: i64, weights: Vec<f64>) -> Result<Self> {
        let orders = [
            Order::Given,
            Order::Shortest,
            Order::Area,
            Order::Wfp3,
            Order::Unicef,
            Order::F1,
            Order::Fair,
            Order::Learned(LearnedOrder { weights }),
            Order::External,
            Order::Las,
        ];
        let number = index("queue.settings, score", number, orders.len())?;
        let order = orders.into_iter().nth(number).expect("the number was checked");
        match &order {
            Order::Learned(LearnedOrder { weights })
                if weights.len() < LINEAR || (weights.len() - LINEAR) % UNIT != 0 =>
            {
                Err(format!("queue.weights: expected {LINEAR} and {UNIT} for each unit, has {}", weights.len()))
            }
            _ => Ok(order),
        }
    }

    /// Whether scores depend on estimated run times.
    pub fn uses_estimates(&self) -> bool {
        !matches!(self, Order::Given | Order::Fair | Order::External | Order::Las)
    }

    /// The score of a pod by what is known of it alone; of `Given`, `Fair` and `External` the queue knows it.
    pub fn score(&self, pod: &Waiting) -> f64 {
        let (r, n, w) = (pod.run_time, pod.size, pod.wait);
        match self {
            Order::Given | Order::Fair | Order::External => 0.0,
            Order::Las => pod.arrived,
            Order::Shortest => r,
            Order::Area => r * n,
            Order::Wfp3 => {
                let waited = w / r;
                -(waited * waited * waited) * n
            }
            // log2(n) in the source, which is 0 for one processor and negative for shares of a GPU.
            Order::Unicef => -w / (libm::log2(1.0 + n) * r),
            // The arrival counts from the start of the trace; its logarithm needs at least 1 s.
            Order::F1 => libm::log10(r.max(1.0)) * n + 870.0 * libm::log10(pod.arrived.max(1.0)),
            Order::Learned(order) => order.score(pod),
        }
    }
}

/// Which of two pods goes first by priority and score, `Less` if the first one does.
pub fn by_priority_and_score((p, score): (i64, f64), (q, other): (i64, f64)) -> Ordering {
    q.cmp(&p).then_with(|| score.partial_cmp(&other).unwrap_or(Ordering::Equal))
}

pub const LINEAR: usize = 24;
/// Weights of a unit: of 8 inputs, a bias, and its output weight.
pub const UNIT: usize = 10;

/// A linear function of inputs and products of them, and on top of it a layer of units x / (1 + |x|) on the inputs.
#[derive(Clone)]
pub struct LearnedOrder {
    weights: Vec<f64>,
}

impl LearnedOrder {
    fn score(&self, pod: &Waiting) -> f64 {
        let (linear, units) = self.weights.split_at(LINEAR);
        let e = (libm::log(pod.run_time.max(1.0)) - 7.0) / 3.0;
        let s = (libm::log(pod.share.max(1e-6)) + 3.0) / 2.0;
        let t = (libm::log1p(pod.wait) - 6.0) / 3.0;
        let fits = if pod.share <= pod.free + 1e-9 { 1.0 } else { 0.0 };
        let free = pod.free;
        let q = (libm::log1p(pod.queue) - 4.0) / 2.0;
        let d = libm::log1p(pod.delay) / 6.0;
        let mut score = linear[0] * e + linear[1] * s + linear[2] * t;
        score += linear[3] * e * e + linear[4] * s * s + linear[5] * t * t;
        score += linear[6] * e * s + linear[7] * e * t + linear[8] * s * t;
        score += fits * (linear[9] + linear[10] * e + linear[11] * s);
        score += free * (linear[12] * e + linear[13] * s) + q * (linear[14] * e + linear[15] * s);
        score += linear[16] * pod.spread;
        score += d * (linear[17] + linear[18] * d + linear[19] * e + linear[20] * s);
        score += d * (linear[21] * free + linear[22] * q + linear[23] * t);
        for unit in units.chunks_exact(UNIT) {
            let mut total = unit[8] + unit[0] * e + unit[1] * s + unit[2] * t;
            total += unit[3] * fits + unit[4] * free + unit[5] * q;
            total += unit[6] * pod.spread + unit[7] * d;
            score += unit[9] * total / (1.0 + total.abs());
        }
        score
    }
}
