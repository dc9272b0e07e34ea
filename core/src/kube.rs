//! kube-scheduler's decisions, by any of its profiles.
//!
//! The scheduler visits nodes from where its last search ended, keeps the first feasible ones (all in clusters of fewer
//! than 100 nodes), scores these and binds to the best. This is `parallelism: 1`, which is deterministic. Source:
//! Kubernetes 1.37.2, pkg/scheduler/{schedule_one.go,backend/cache/node_tree.go}, and the plugins of
//! pkg/scheduler/framework/plugins.

use crate::arrays::{Arrays, Result, index, optional};
use crate::cluster::{Class, Cluster, EPHEMERAL, GPU, MEMORY, Node};
use crate::constraints::{Kind, Rule, Terms};
use crate::rules::{BEST, balanced_allocation, least_allocated};

/// Score plugins that are normalized, in the order in which hosts give their weights.
const TAINTS: usize = 0;
const STATIC: usize = 3;
const SPREADING: usize = 3;
const AFFINITY: usize = 4;
const FIT: usize = 5;
const BALANCED: usize = 6;
pub const PLUGINS: usize = 7;

/// kube-scheduler's minFeasibleNodesToFind and minFeasibleNodesPercentageToFind.
const MIN_NODES: usize = 100;
const MIN_PERCENTAGE: usize = 5;

/// A resource that a profile scores is ignored on nodes where it is unlimited.
const UNLIMITED: i64 = 1 << 60;

/// How NodeResourcesFit scores a resource.
#[derive(Clone)]
enum Strategy {
    LeastAllocated,
    MostAllocated,
    /// Points of a piecewise linear function: utilization in percent, score.
    RequestedToCapacityRatio(Vec<[i64; 2]>),
}

/// A resource whose use is scored, with what is offered and requested under its name.
#[derive(Clone)]
struct Scored {
    /// Column of the resources; None: no node counts it.
    column: Option<usize>,
    weight: i64,
    /// By node: whether its devices are offered under this name.
    offered: Vec<bool>,
    /// By constraint of classes: whether pods request their GPUs by this name.
    requested: Vec<bool>,
}

/// What static plugins, default spreading and the search make of a constraint of classes.
#[derive(Clone)]
struct Static {
    /// By static plugin a row of `Kube::scores`; None: all scores are 0.
    rows: [Option<usize>; STATIC],
    /// The node filter of default spreading.
    included: Option<usize>,
    /// The part of `Kube::lists` to search.
    first: usize,
    size: usize,
}

/// Raw scores of a plugin that are normalized over the candidates; None: the node is ignored.
type Raw = Vec<Option<i64>>;

/// A profile of kube-scheduler on a cluster, and where its next search starts.
#[derive(Clone)]
pub struct Kube {
    nodes: usize,
    /// percentageOfNodesToScore, 0: by the number of nodes; None: the first feasible node is taken.
    percentage: Option<usize>,
    ignores_existing: bool,
    weights: [i64; PLUGINS],
    strategy: Strategy,
    /// Resources of NodeResourcesFit and of NodeResourcesBalancedAllocation; none: as by default.
    fit: Vec<Scored>,
    balanced: Vec<Scored>,
    balances_change: bool,
    hostname: Option<usize>,
    /// Number of the zone of nodes without one.
    blank: usize,
    lists: Vec<usize>,
    constraints: Vec<Static>,
    scores: Vec<Vec<i64>>,
    /// By label set: the selector by which pods are spread by default.
    default_selector: Vec<Option<usize>>,
    default_spread: Vec<DefaultSpread>,
    pub start: usize,
    /// By node: weighted scores of VolumeBinding for the pod that is decided.
    pub storage: Vec<i64>,
}

#[derive(Clone)]
struct DefaultSpread {
    key: usize,
    skew: i64,
}

impl Kube {
    /// Read `kube.*`.
    pub fn read(arrays: &Arrays, cluster: &Cluster, terms: &Terms) -> Result<Self> {
        let count = cluster.nodes.len();
        let weights: Vec<i64> = arrays.list_of("kube.weights", PLUGINS)?;
        let lists = arrays.indices("kube.lists", count)?;
        let scores: Vec<Vec<i64>> = arrays.rows("kube.static", count)?;
        let mut constraints = Vec::new();
        for row in arrays.rows_of::<i64>("kube.constraints", cluster.constraints(), 6)? {
            let (first, last) = (
                index("kube.constraints", row[4], lists.len() + 1)?,
                index("kube.constraints", row[5], lists.len() + 1)?,
            );
            let mut rows = [None; STATIC];
            for (plugin, row) in rows.iter_mut().zip(&row) {
                *plugin = optional("kube.constraints", *row, scores.len())?;
            }
            let included = optional("kube.constraints", row[3], terms.included.len())?;
            let size = last.checked_sub(first).ok_or("kube.constraints: a range ends before it begins")?;
            constraints.push(Static { rows, included, first, size });
        }
        let mut scored = read_scored(arrays, cluster)?;
        let balanced = scored.split_off(index("kube.scored.fit", arrays.number("kube.scored.fit")?, scored.len() + 1)?);
        let keys = terms.topologies.len();
        let hostname = optional("kube.hostname", arrays.number("kube.hostname")?, keys)?;
        let mut default_spread = Vec::new();
        for row in arrays.rows::<i64>("kube.default_spread", 2)? {
            if hostname.is_some() {
                default_spread.push(DefaultSpread { key: index("kube.default_spread", row[0], keys)?, skew: row[1] });
            }
        }
        let selectors = arrays.list::<i64>("kube.default_selector")?;
        let selector = |&s: &i64| optional("kube.default_selector", s, terms.matched.len());
        Ok(Kube {
            nodes: arrays.number("kube.nodes")?.max(0) as usize,
            percentage: usize::try_from(arrays.number("kube.percentage")?).ok(),
            ignores_existing: arrays.number("kube.ignores_existing")? != 0,
            weights: weights.try_into().expect("the number of plugins was checked"),
            strategy: read_strategy(arrays)?,
            fit: scored,
            balanced,
            balances_change: arrays.number("kube.scored.balances_change")? != 0,
            hostname,
            blank: arrays.number("kube.blank")?.max(0) as usize,
            lists,
            constraints,
            scores,
            default_selector: selectors.iter().map(selector).collect::<Result<_>>()?,
            default_spread,
            start: 0,
            storage: vec![0; count],
        })
    }

    /// Return the node for a pod, None if it fits nowhere; advance the start of the next search.
    ///
    /// `mask` has the feasible nodes where other pods matter; else it is where the class fits.
    pub fn choose(
        &mut self,
        cluster: &Cluster,
        terms: &Terms,
        c: usize,
        labels: usize,
        mask: Option<&[bool]>,
    ) -> Option<usize> {
        let kept = self.search(c, cluster, mask);
        // kube-scheduler does not score a single node.
        if kept.len() < 2 {
            return kept.first().copied();
        }
        let totals = self.totals(cluster, terms, c, labels, &kept);
        let best = (0..kept.len()).max_by_key(|&i| (totals[i], std::cmp::Reverse(heap_preorder(i))))?;
        Some(kept[best])
    }

    /// Go on where another search of this scheduler ended.
    pub fn begun_where(mut self, previous: &Kube) -> Self {
        self.start = previous.start % self.nodes.max(1);
        self
    }

    /// Write the scores of the nodes that the next search finds, -inf for others; that search is not advanced.
    ///
    /// A single feasible node gets 0, since kube-scheduler does not score it.
    pub fn scores(
        &mut self,
        cluster: &Cluster,
        terms: &Terms,
        c: usize,
        labels: usize,
        mask: Option<&[bool]>,
        scores: &mut [f64],
    ) {
        let start = self.start;
        let kept = self.search(c, cluster, mask);
        self.start = start;
        scores.fill(f64::NEG_INFINITY);
        match kept[..] {
            [] => {}
            [n] => scores[n] = 0.0,
            _ => {
                let totals = self.totals(cluster, terms, c, labels, &kept);
                kept.iter().zip(totals).for_each(|(&n, total)| scores[n] = total as f64);
            }
        }
    }

    /// The feasible nodes that a search finds, in its order.
    ///
    /// It ends at the first feasible node beyond the limit, which itself does not count as visited.
    fn search(&mut self, c: usize, cluster: &Cluster, mask: Option<&[bool]>) -> Vec<usize> {
        let Static { first, size, .. } = self.constraints[cluster.classes[c].constraint];
        let limit = self.nodes_to_find(size);
        // The start may be beyond a list of few named nodes.
        let begin = self.start % size.max(1);
        let (mut kept, mut visited, fits) = (Vec::new(), 0, cluster.fitting(c));
        let (list, from_start) = self.lists[first..first + size].split_at(begin);
        for &n in from_start.iter().chain(list) {
            if mask.map_or_else(|| fits(n), |mask| mask[n]) {
                if kept.len() == limit {
                    break;
                }
                kept.push(n);
            }
            visited += 1;
        }
        // Advanced by what was visited, in the whole snapshot, even if the list was shorter.
        self.start = (self.start + visited) % self.nodes.max(1);
        kept
    }

    /// The number of feasible nodes after which a search ends (numFeasibleNodesToFind).
    fn nodes_to_find(&self, nodes: usize) -> usize {
        match self.percentage {
            None => 1,
            Some(_) if nodes < MIN_NODES => nodes,
            Some(0) => (nodes * 50usize.saturating_sub(nodes / 125).max(MIN_PERCENTAGE) / 100).max(MIN_NODES),
            Some(percentage) => (nodes * percentage / 100).max(MIN_NODES),
        }
    }

    /// Weighted scores of all plugins for the candidates.
    fn totals(&self, cluster: &Cluster, terms: &Terms, c: usize, labels: usize, kept: &[usize]) -> Vec<i64> {
        let class = &cluster.classes[c];
        let base = self.base(class);
        let resources = |&n: &usize| {
            let node = &cluster.nodes[n];
            let (fit, balanced) = (self.fit_score(node, class, n), self.balanced_score(node, class, n));
            base + self.weights[FIT] * fit + self.weights[BALANCED] * balanced + self.storage[n]
        };
        let mut totals: Vec<i64> = kept.iter().map(resources).collect();
        for plugin in 0..FIT {
            if let Some(raw) = self.raw_scores(plugin, class, terms, (c, labels), kept) {
                for (total, score) in totals.iter_mut().zip(normalized(plugin, &raw)) {
                    *total += self.weights[plugin] * score;
                }
            }
        }
        totals
    }

    /// What TaintToleration adds to all nodes: without soft taints all have the best score.
    fn base(&self, class: &Class) -> i64 {
        let row = &self.constraints[class.constraint];
        if row.rows[TAINTS].is_some() { 0 } else { self.weights[TAINTS] * BEST }
    }

    /// Scores of a plugin that are normalized, for the candidates; None: they are all equal.
    fn raw_scores(
        &self,
        plugin: usize,
        class: &Class,
        terms: &Terms,
        (c, labels): (usize, usize),
        kept: &[usize],
    ) -> Option<Raw> {
        let row = &self.constraints[class.constraint];
        match plugin {
            _ if self.weights[plugin] == 0 => None,
            SPREADING => self.spread_scores(terms, c, labels, kept, row.included),
            AFFINITY => self.affinity_scores(terms, c, labels, kept),
            _ => row.rows[plugin].map(|row| kept.iter().map(|&n| Some(self.scores[row][n])).collect()),
        }
    }

    /// Write weighted scores by plugin, and of VolumeBinding after them, of the nodes that the next search finds; NaN for
    /// others. That search is not advanced. A single feasible node gets 0.
    pub fn plugin_scores(
        &mut self,
        cluster: &Cluster,
        terms: &Terms,
        (c, labels): (usize, usize),
        mask: Option<&[bool]>,
        out: &mut [f64],
    ) {
        let (start, nodes) = (self.start, cluster.nodes.len());
        let kept = self.search(c, cluster, mask);
        self.start = start;
        out.fill(f64::NAN);
        let class = &cluster.classes[c];
        for (plugin, row) in out.chunks_exact_mut(nodes.max(1)).enumerate() {
            let on_node = |&n: &usize| match plugin {
                FIT => self.weights[FIT] * self.fit_score(&cluster.nodes[n], class, n),
                BALANCED => self.weights[BALANCED] * self.balanced_score(&cluster.nodes[n], class, n),
                _ => self.storage[n],
            };
            let scores: Vec<i64> = match plugin {
                _ if kept.len() < 2 => vec![0; kept.len()],
                FIT | BALANCED | PLUGINS => kept.iter().map(on_node).collect(),
                _ => match self.raw_scores(plugin, class, terms, (c, labels), &kept) {
                    Some(raw) => normalized(plugin, &raw).iter().map(|score| self.weights[plugin] * score).collect(),
                    None => vec![if plugin == TAINTS { self.base(class) } else { 0 }; kept.len()],
                },
            };
            kept.iter().zip(scores).for_each(|(&n, score)| row[n] = score as f64);
        }
    }

    /// NodeResourcesFit's score, 0..100: the weighted mean over the resources that the node has.
    ///
    /// Extended resources that the pod does not request are ignored.
    fn fit_score(&self, node: &Node, class: &Class, n: usize) -> i64 {
        if self.fit.is_empty() {
            return least_allocated(node, class);
        }
        let (mut total, mut weights) = (0, 0);
        for scored in &self.fit {
            let Some([capacity, taken, request]) = scored.amounts(node, class, n, true) else { continue };
            let taken = taken + request;
            let used = taken.min(capacity) * BEST / capacity;
            let score = match &self.strategy {
                Strategy::LeastAllocated if taken > capacity => 0,
                Strategy::LeastAllocated => (capacity - taken) * BEST / capacity,
                Strategy::MostAllocated => used,
                Strategy::RequestedToCapacityRatio(points) => interpolated(points, used),
            };
            if score > 0 || !matches!(self.strategy, Strategy::RequestedToCapacityRatio(_)) {
                total += scored.weight * score;
                weights += scored.weight;
            }
        }
        match self.strategy {
            _ if weights == 0 => 0,
            // Go's math.Round of values >= 0: halves go up.
            Strategy::RequestedToCapacityRatio(_) => (total as f64 / weights as f64 + 0.5).floor() as i64,
            _ => total / weights,
        }
    }

    /// NodeResourcesBalancedAllocation's score: 50 + (50 + B(with the pod) - B(without)) // 2, B the balance.
    ///
    /// Before Kubernetes 1.36 the score was B(with the pod). A pod that requests none of the resources scores 0;
    /// kube-scheduler skips it.
    fn balanced_score(&self, node: &Node, class: &Class, n: usize) -> i64 {
        if self.balanced.is_empty() {
            return balanced_allocation(node, class);
        }
        let requests = |scored: &Scored| {
            scored.column.is_some_and(|column| class.request[column] > 0)
                || class.gpu_count > 0 && scored.requested[class.constraint]
        };
        if !self.balanced.iter().any(requests) {
            return 0;
        }
        let after = self.balance(node, class, n, 1);
        if !self.balances_change {
            return after;
        }
        BEST / 2 + (BEST / 2 + after - self.balance(node, class, n, 0)).div_euclid(2)
    }

    /// int(100 (1 - s)), s the standard deviation of the requested shares, each at most 1, with 0 or 1 pods.
    ///
    /// Of two shares it is |f - g| / 2, of one or none 0.
    fn balance(&self, node: &Node, class: &Class, n: usize, pods: i64) -> i64 {
        let amounts = self.balanced.iter().filter_map(|scored| scored.amounts(node, class, n, false));
        let shares: Vec<f64> = amounts
            .map(|[capacity, taken, request]| ((taken + pods * request) as f64 / capacity as f64).min(1.0))
            .collect();
        let deviation = match shares[..] {
            [] | [_] => 0.0,
            [first, second] => ((first - second) / 2.0).abs(),
            _ => {
                let sum = |values: &mut dyn Iterator<Item = f64>| values.fold(0.0, |sum, value| sum + value);
                let count = shares.len() as f64;
                let mean = sum(&mut shares.iter().copied()) / count;
                (sum(&mut shares.iter().map(|share| (share - mean) * (share - mean))) / count).sqrt()
            }
        };
        ((1.0 - deviation) * BEST as f64) as i64
    }

    /// Raw spread scores of the candidates; None if the pod has no soft constraint.
    ///
    /// A pod with spread constraints, even hard ones, has no default constraints.
    fn spread_scores(
        &self,
        terms: &Terms,
        c: usize,
        labels: usize,
        kept: &[usize],
        included: Option<usize>,
    ) -> Option<Raw> {
        let rules = terms.rules(c);
        let soft: Vec<&Rule> = rules.iter().filter(|rule| rule.kind == Kind::SoftSpread).collect();
        let is_scored: Vec<bool> = kept.iter().map(|&n| terms.has_keys(c, n, Kind::SoftSpread)).collect();
        let mut sums = vec![0.0; kept.len()];
        let mut add = |counted: usize, key: usize, skew: i64, included: usize| {
            let topology = &terms.topologies[key];
            let is_host = self.hostname == Some(key);
            let (pods, domains) = if is_host {
                (Vec::new(), is_scored.iter().filter(|scored| **scored).count())
            } else {
                self.count_domains(terms, c, counted, key, included, kept, &is_scored)
            };
            let weight = go_log((domains + 2) as f64);
            for (i, &n) in kept.iter().enumerate() {
                if let (Some(domain), true) = (topology.domain[n], is_scored[i]) {
                    let pods = if is_host { i64::from(terms.matched[counted][n]) } else { pods[domain as usize] };
                    sums[i] += pods as f64 * weight + (skew - 1) as f64;
                }
            }
        };
        if soft.is_empty() {
            let selector = self.default_selector[labels]?;
            if rules.iter().any(|rule| rule.kind.is_spread()) {
                return None;
            }
            for spread in &self.default_spread {
                add(selector, spread.key, spread.skew, included?);
            }
        }
        for rule in soft {
            add(rule.counted, rule.key, rule.weight, rule.included);
        }
        // Go's math.Round of values >= 0: halves go up.
        let rounded = |sum: f64| if sum - sum.floor() >= 0.5 { sum.floor() + 1.0 } else { sum.floor() };
        Some(sums.into_iter().zip(is_scored).map(|(sum, scored)| scored.then(|| rounded(sum) as i64)).collect())
    }

    /// Counted pods by domain over all included nodes, and the number of domains of the candidates.
    #[allow(clippy::too_many_arguments)]
    fn count_domains(
        &self,
        terms: &Terms,
        c: usize,
        counted: usize,
        key: usize,
        included: usize,
        kept: &[usize],
        is_scored: &[bool],
    ) -> (Vec<i64>, usize) {
        let topology = &terms.topologies[key];
        let domain = |n: usize| topology.domain[n].map_or(self.blank, |d| d as usize);
        let size = topology.domains.max(self.blank + 1);
        let mut has_candidate = vec![false; size];
        for (&n, _) in kept.iter().zip(is_scored).filter(|(_, scored)| **scored) {
            has_candidate[domain(n)] = true;
        }
        let mut pods = vec![0; size];
        for (n, &count) in terms.matched[counted].iter().enumerate() {
            // Pods on nodes that are no candidates count as well.
            if count > 0 && terms.included[included][n] && terms.has_keys(c, n, Kind::SoftSpread) {
                pods[domain(n)] += i64::from(count);
            }
        }
        (pods, has_candidate.iter().filter(|has| **has).count())
    }

    /// Raw affinity scores of the candidates; None if no term is between the pod and other pods.
    ///
    /// The terms are the pod's preferred terms that match other pods, and preferred (and required, with the weight of
    /// the profile) terms of other pods that match the pod.
    fn affinity_scores(&self, terms: &Terms, c: usize, labels: usize, kept: &[usize]) -> Option<Raw> {
        let preferred = || terms.rules(c).iter().filter(|rule| rule.kind == Kind::Preferred);
        if self.ignores_existing && preferred().next().is_none() {
            return None;
        }
        let own = preferred().map(|rule| (&terms.matched[rule.counted], rule.key, rule.weight));
        let matching = terms.owned.iter().filter(|term| term.total > 0 && terms.matches[labels][term.selector]);
        let others = matching.map(|term| (&term.on_nodes, term.key, term.weight));
        let mut scores: Option<Raw> = None;
        for (counts, key, weight) in own.chain(others).filter(|(_, _, weight)| *weight != 0) {
            let (sums, total) = terms.sums(counts, key);
            if total == 0 {
                continue;
            }
            let scores = scores.get_or_insert_with(|| vec![Some(0); kept.len()]);
            for (score, &n) in scores.iter_mut().zip(kept) {
                if let (Some(score), Some(domain)) = (score, terms.topologies[key].domain[n]) {
                    *score += weight * sums[domain as usize];
                }
            }
        }
        scores
    }
}

/// Normalize a plugin's raw scores to 0..100 over the candidates; those of images are there already.
fn normalized(plugin: usize, raw: &Raw) -> Vec<i64> {
    let counted = || raw.iter().flatten().copied();
    let (Some(least), Some(most)) = (counted().min(), counted().max()) else { return vec![0; raw.len()] };
    let percent = |value: i64, zero: i64| if most > 0 { BEST * value / most } else { zero };
    let score = |value: i64| match plugin {
        TAINTS => BEST - percent(value, 0),
        SPREADING => percent(most + least - value, BEST),
        AFFINITY if most > least => (BEST as f64 * ((value - least) as f64 / (most - least) as f64)) as i64,
        AFFINITY => 0,
        2 => value,
        _ => percent(value, 0),
    };
    raw.iter().map(|value| value.map_or(0, score)).collect()
}

impl Scored {
    /// What is allocatable, taken and requested; None: the resource is ignored.
    fn amounts(&self, node: &Node, class: &Class, n: usize, nonzero: bool) -> Option<[i64; 3]> {
        let mut amounts = [0; 3];
        if let Some(column) = self.column {
            let capacity = node.allocatable[column];
            if column <= MEMORY {
                let taken = [capacity - node.free[column], class.request[column]];
                let [taken, request] = if nonzero { [node.nonzero[column], class.nonzero[column]] } else { taken };
                return (capacity > 0).then_some([capacity, taken, request]);
            }
            if capacity < UNLIMITED {
                let gpus = if class.gpu_column == column { class.gpu_count } else { 0 };
                amounts = [capacity, capacity - node.free[column], class.request[column] + gpus];
            }
        }
        if amounts[0] == 0 && self.offered[n] && self.requested[class.constraint] {
            let capacity = GPU * node.gpus.len() as i64;
            amounts = [capacity, capacity - node.gpus.iter().sum::<i64>(), class.gpu_total()];
        }
        let is_requested = amounts[2] != 0 || self.column == Some(EPHEMERAL);
        (is_requested && amounts[0] > 0).then_some(amounts)
    }
}

/// The value of a piecewise linear function, constant beyond its points. Go's division rounds towards zero.
fn interpolated(points: &[[i64; 2]], utilization: i64) -> i64 {
    match points.iter().position(|point| utilization <= point[0]) {
        Some(0) => points[0][1],
        Some(i) => {
            let ([x, y], [next_x, next_y]) = (points[i - 1], points[i]);
            y + (next_y - y) * (utilization - x) / (next_x - x)
        }
        None => points.last().map_or(0, |point| point[1]),
    }
}

/// A key that sorts positions of a binary heap in preorder (root, left subtree, right subtree).
///
/// The scheduler pops the best node from a heap (container/heap): of equal scores, the first position in preorder is
/// popped. The binary digits of position + 1 after the leading 1 are its path from the root, and preorder is the
/// lexicographic order of paths.
fn heap_preorder(position: usize) -> (u64, u32) {
    let path = position as u64 + 1;
    (path << path.leading_zeros(), 64 - path.leading_zeros())
}

/// ln(x), x > 0, with the rounding of Go's math.Log (FreeBSD's e_log.c), which often differs from libm's.
#[allow(clippy::excessive_precision)] // digits as in the source
fn go_log(x: f64) -> f64 {
    const L: [f64; 7] = [
        6.666666666666735130e-01,
        3.999999999940941908e-01,
        2.857142874366239149e-01,
        2.222219843214978396e-01,
        1.818357216161805012e-01,
        1.531383769920937332e-01,
        1.479819860511658591e-01,
    ];
    const LN2: [f64; 2] = [6.93147180369123816490e-01, 1.90821492927058770002e-10];
    let (mut fraction, mut exponent) = libm::frexp(x);
    if fraction < std::f64::consts::FRAC_1_SQRT_2 {
        (fraction, exponent) = (2.0 * fraction, exponent - 1);
    }
    let (f, k) = (fraction - 1.0, f64::from(exponent));
    let s = f / (2.0 + f);
    let s2 = s * s;
    let s4 = s2 * s2;
    let odd = s2 * (L[0] + s4 * (L[2] + s4 * (L[4] + s4 * L[6])));
    let even = s4 * (L[1] + s4 * (L[3] + s4 * L[5]));
    let half = 0.5 * f * f;
    k * LN2[0] - ((half - (s * (half + (odd + even)) + k * LN2[1])) - f)
}

fn read_scored(arrays: &Arrays, cluster: &Cluster) -> Result<Vec<Scored>> {
    let entries: Vec<Vec<i64>> = arrays.rows("kube.scored.entries", 2)?;
    let offered = arrays.rows_of("kube.scored.offered", entries.len(), cluster.nodes.len())?;
    let requested = arrays.rows_of("kube.scored.requested", entries.len(), cluster.constraints())?;
    // Without nodes no column is read.
    let resources = cluster.nodes.first().map_or(usize::MAX, |node| node.allocatable.len());
    let read = |((entry, offered), requested): ((&Vec<i64>, Vec<bool>), Vec<bool>)| {
        let column = optional("kube.scored.entries", entry[0], resources)?;
        Ok(Scored { column, weight: entry[1], offered, requested })
    };
    entries.iter().zip(offered).zip(requested).map(read).collect()
}

fn read_strategy(arrays: &Arrays) -> Result<Strategy> {
    Ok(match arrays.number("kube.scored.strategy")? {
        0 => Strategy::LeastAllocated,
        1 => Strategy::MostAllocated,
        2 => {
            let points: Vec<[i64; 2]> =
                arrays.rows("kube.scored.shape", 2)?.iter().map(|row: &Vec<i64>| [row[0], row[1]]).collect();
            if !points.is_sorted_by(|one, next| one[0] < next[0]) {
                return Err("kube.scored.shape: expected ascending utilizations".to_owned());
            }
            Strategy::RequestedToCapacityRatio(points)
        }
        other => return Err(format!("kube.scored.strategy: {other} is not a strategy")),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn logarithms_are_those_of_go() {
        // ln 3 in Go differs from glibc's in the last bit.
        let wanted = [1.0986122886681096, 1.3862943611198906, 1.6094379124341003, 1.791759469228055];
        assert_eq!([3.0, 4.0, 5.0, 6.0].map(go_log), wanted);
    }

    #[test]
    fn preorder_is_root_left_right() {
        let mut positions = [0, 1, 2, 3, 4, 5, 6];
        positions.sort_by_key(|&position| heap_preorder(position));
        assert_eq!(positions, [0, 1, 3, 4, 2, 5, 6]);
    }
}
