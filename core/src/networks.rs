//! Networks that score nodes for a pod, from what is observed of them.
//!
//! With x_n = [node n, pod, cluster] and layers h -> relu(norm(W h + b)):
//!
//! ```text
//! linear:   w_k . x_n + b_k, by the kind k of the pod
//! mlp:      head(layers(x_n))
//! deepsets: head(rho([phi(x_n), the mean of phi over all nodes]))   (Zaheer et al., "Deep Sets", NeurIPS 2017)
//! gnn:      attention between the pod, the nodes, their racks and their servers, see `Graph`
//! ```
//!
//! Observations are in single precision; everything after them is in double precision, each sum in the order of its
//! inputs, so that scores have the same bits on every machine. torch in double precision has the same scores up to
//! 1e-12; in single precision, as in training, it rounds every layer.

use std::collections::BTreeMap;

use crate::arrays::Result;
use crate::learned::KINDS;
use crate::policy::Tensors;
use crate::views::FeatureCounts;

/// Added to a variance by normalisation.
const EPSILON: f64 = 1e-5;
/// Largest difference between scores of equal nodes, relative to the best score and at least to 1.
const ROUNDING: f64 = 1e-5;
/// Kinds of edges of a graph: pod to node and back, rack to node and back, server to node and back.
const RELATIONS: usize = 6;
const MOST_HEADS: usize = 4;
/// Negative slope of the leaky ReLU of attention.
const SLOPE: f64 = 0.2;

const NETWORKS: [&str; 4] = ["linear", "mlp", "deepsets", "gnn"];
const NORMALISATIONS: [&str; 3] = ["none", "layer", "batch"];

/// What the card of a file says of a network.
pub struct Architecture<'a> {
    pub name: &'a str,
    /// Outputs of each hidden layer.
    pub hidden: Vec<usize>,
    pub normalisation: &'a str,
}

#[derive(Clone)]
pub enum Network {
    /// An output for each kind of pod.
    Linear(Dense),
    Mlp(Mlp),
    DeepSets {
        phi: Vec<Dense>,
        rho: Mlp,
    },
    Graph(Box<Graph>),
}

/// A feature, or what a layer makes of features.
trait Number: Copy + Into<f64> {}
impl<T: Copy + Into<f64>> Number for T {}

/// norm(W x + b).
#[derive(Clone)]
pub struct Dense {
    /// [inputs, outputs].
    weights: Vec<f64>,
    bias: Vec<f64>,
    norm: Norm,
}

#[derive(Clone)]
enum Norm {
    None,
    /// To mean 0 and variance 1 (Ba et al., "Layer Normalization", 2016), then scaled and shifted.
    Layer {
        scale: Vec<f64>,
        shift: Vec<f64>,
    },
    /// By the mean and the variance of training.
    Batch {
        scale: Vec<f64>,
        shift: Vec<f64>,
        mean: Vec<f64>,
        variance: Vec<f64>,
    },
}

/// Layers, and a head that makes their output a score.
#[derive(Clone)]
pub struct Mlp {
    layers: Vec<Dense>,
    head: Dense,
}

/// Attention in a graph of vertices: the pod, each node, each rack, each server, with edges both ways between the pod and
/// every node, a node and its rack, a node and its server. Racks and servers start as the mean of their nodes.
#[derive(Clone)]
pub struct Graph {
    /// The first embeddings of nodes, and of the pod with the cluster.
    node: Dense,
    pod: Dense,
    /// What is added to the mean of the nodes of a rack, and of a server.
    groups: Vec<Vec<f64>>,
    layers: Vec<Attention>,
    /// Over a node and the pod.
    head: Dense,
}

/// h_i' = relu(norm(W_res h_i + b + sum_j a_ij W_src h_j)), where a_ij is the softmax over j of
/// a . leakyrelu(W_dst h_i + W_src h_j + e_ij) and e_ij belongs to the kind of the edge (Brody et al., "How Attentive are
/// Graph Attention Networks?", ICLR 2022).
#[derive(Clone)]
struct Attention {
    source: Dense,
    target: Dense,
    residual: Dense,
    relations: Vec<Vec<f64>>,
    attend: Vec<f64>,
    heads: usize,
}

/// An edge into a vertex.
struct Edge {
    source: usize,
    relation: usize,
}

impl Network {
    /// Read the network of a file; the tensors of weights are all its own.
    pub fn read(tensors: &Tensors, of: &Architecture, counts: &FeatureCounts) -> Result<Self> {
        let joint = counts.node + counts.pod + counts.context;
        let width = of.hidden.last().copied().unwrap_or(0);
        let network = match of.name {
            "linear" => Network::Linear(Dense::read(tensors, "head", KINDS, joint)?),
            "mlp" => Network::Mlp(Mlp::read(tensors, "layers", of, joint)?),
            "deepsets" => {
                let phi = read_layers(tensors, "phi", of, joint)?;
                Network::DeepSets { phi, rho: Mlp::read(tensors, "rho", of, width.saturating_mul(2))? }
            }
            _ => Network::Graph(Box::new(Graph::read(tensors, of, counts)?)),
        };
        tensors.refuse_other_weights()?;
        Ok(network)
    }

    /// Whether racks and servers matter.
    pub fn reads_groups(&self) -> bool {
        matches!(self, Network::Graph(_))
    }

    /// The score of each node, -inf where the pod may not run; `groups`: the rack and the server of each node.
    pub fn scores(&self, inputs: &Inputs, groups: &[[Option<i64>; 2]]) -> Vec<f64> {
        let rows = Rows::of(inputs);
        let mut scores = vec![f64::NEG_INFINITY; rows.nodes.len()];
        if !rows.feasible.contains(&true) {
            return scores;
        }
        let feasible = rows.feasible.iter().enumerate().filter(|(_, feasible)| **feasible).map(|(n, _)| n);
        match self {
            Network::Linear(head) => {
                let shared = head.shared(&rows.shared);
                for n in feasible {
                    let by_kind = head.apply_joint(rows.nodes[n], &shared);
                    // The first features of a pod are its kind, one-hot.
                    scores[n] =
                        by_kind.iter().zip(&rows.shared).fold(0.0, |sum, (score, &kind)| sum + score * f64::from(kind));
                }
            }
            Network::Mlp(mlp) => {
                let shared = mlp.layers[0].shared(&rows.shared);
                for n in feasible {
                    scores[n] = mlp.score(rows.nodes[n], &shared);
                }
            }
            Network::DeepSets { phi, rho } => {
                let shared = phi[0].shared(&rows.shared);
                let sets =
                    rows.nodes.iter().enumerate().map(|(n, node)| rows.is_node(n).then(|| run(phi, node, &shared)));
                let sets: Vec<Option<Vec<f64>>> = sets.collect();
                let mean = mean(sets.iter().flatten(), phi[phi.len() - 1].outputs());
                let shared = rho.layers[0].shared(&mean);
                for n in feasible {
                    if let Some(set) = &sets[n] {
                        scores[n] = rho.score(set, &shared);
                    }
                }
            }
            Network::Graph(graph) => graph.score(&rows, groups, &mut scores),
        }
        scores
    }
}

impl<'a> Architecture<'a> {
    /// Check what a card says.
    pub fn new(tensors: &Tensors, name: &'a str, hidden: &[i64], normalisation: &'a str) -> Result<Self> {
        let known = |name: &str, names: &[&str]| format!("is '{name}'; known are {}", names.join(", "));
        if !NETWORKS.contains(&name) {
            return Err(tensors.wrong("card", "network", &known(name, &NETWORKS)));
        }
        if !NORMALISATIONS.contains(&normalisation) {
            return Err(tensors.wrong("card", "normalisation", &known(normalisation, &NORMALISATIONS)));
        }
        if name != "linear" && hidden.iter().min().is_none_or(|&least| least < 1) {
            let problem = format!("is {hidden:?}; the network '{name}' has one layer or more");
            return Err(tensors.wrong("card", "hidden", &problem));
        }
        let hidden = hidden.iter().map(|&width| usize::try_from(width).unwrap_or(usize::MAX)).collect();
        Ok(Architecture { name, hidden, normalisation })
    }
}

/// The node with the highest of scores, the first of equals: rows of features that are identical and score the same but
/// for rounding. Some score is above -inf.
pub fn first_best(scores: &[f64], nodes: &[f32]) -> usize {
    let width = nodes.len() / scores.len();
    let row = |n: usize| &nodes[n * width..][..width];
    let best = (1..scores.len()).fold(0, |best, n| if scores[n] > scores[best] { n } else { best });
    let least = scores[best] - ROUNDING * scores[best].abs().max(1.0);
    (0..best).find(|&n| scores[n] >= least && row(n) == row(best)).unwrap_or(best)
}

/// An observation as networks read it, see `Observation`.
pub struct Inputs<'a> {
    pub nodes: &'a [f32],
    pub pod: &'a [f32],
    pub context: &'a [f32],
    pub mask: &'a [i8],
}

/// An observation, by node.
struct Rows<'a> {
    nodes: Vec<&'a [f32]>,
    feasible: Vec<bool>,
    /// Of the pod and the cluster: equal for all nodes.
    shared: Vec<f32>,
}

impl<'a> Rows<'a> {
    fn of(inputs: &Inputs<'a>) -> Self {
        let width = inputs.nodes.len() / inputs.mask.len().max(1);
        Rows {
            nodes: inputs.nodes.chunks_exact(width.max(1)).collect(),
            feasible: inputs.mask.iter().map(|&mask| mask != 0).collect(),
            shared: [inputs.pod, inputs.context].concat(),
        }
    }

    /// A row of zeros that is not feasible is no node.
    fn is_node(&self, n: usize) -> bool {
        self.feasible[n] || self.nodes[n].iter().any(|&feature| feature != 0.0)
    }
}

impl Dense {
    fn read(tensors: &Tensors, name: &str, outputs: usize, inputs: usize) -> Result<Self> {
        let weights = transposed(tensors, &format!("{name}.weight"), outputs, inputs)?;
        Ok(Dense { weights, bias: tensors.weights(&format!("{name}.bias"), &[outputs])?, norm: Norm::None })
    }

    fn outputs(&self) -> usize {
        self.bias.len()
    }

    /// Add the weighted inputs, of which the first is the `first` one of the layer.
    fn accumulate(&self, first: usize, inputs: &[impl Number], sums: &mut [f64]) {
        let rows = self.weights.chunks_exact(sums.len()).skip(first);
        for (input, weights) in inputs.iter().map(|&input| input.into()).zip(rows).filter(|(input, _)| *input != 0.0) {
            for (sum, weight) in sums.iter_mut().zip(weights) {
                *sum += weight * input;
            }
        }
    }

    /// The part of the sums that the last inputs make, which are equal for all nodes.
    fn shared(&self, inputs: &[impl Number]) -> Vec<f64> {
        let mut sums = self.bias.clone();
        self.accumulate(self.weights.len() / self.bias.len() - inputs.len(), inputs, &mut sums);
        sums
    }

    fn apply_joint(&self, inputs: &[impl Number], shared: &[f64]) -> Vec<f64> {
        let mut sums = shared.to_vec();
        self.accumulate(0, inputs, &mut sums);
        self.norm.apply(&mut sums);
        sums
    }

    fn apply(&self, inputs: &[impl Number]) -> Vec<f64> {
        self.apply_joint(inputs, &self.bias)
    }
}

impl Norm {
    fn apply(&self, row: &mut [f64]) {
        let (scale, shift) = match self {
            Norm::None => return,
            Norm::Layer { scale, shift } => {
                let count = row.len() as f64;
                let mean = row.iter().fold(0.0, |sum, value| sum + value) / count;
                row.iter_mut().for_each(|value| *value -= mean);
                let variance = row.iter().fold(0.0, |sum, value| sum + value * value) / count;
                let deviation = (variance + EPSILON).sqrt();
                row.iter_mut().for_each(|value| *value /= deviation);
                (scale, shift)
            }
            Norm::Batch { scale, shift, mean, variance } => {
                for ((value, mean), variance) in row.iter_mut().zip(mean).zip(variance) {
                    *value = (*value - mean) / (variance + EPSILON).sqrt();
                }
                (scale, shift)
            }
        };
        for ((value, scale), shift) in row.iter_mut().zip(scale).zip(shift) {
            *value = *value * scale + shift;
        }
    }
}

impl Mlp {
    fn read(tensors: &Tensors, group: &str, of: &Architecture, inputs: usize) -> Result<Self> {
        let layers = read_layers(tensors, group, of, inputs)?;
        let width = layers[layers.len() - 1].outputs();
        Ok(Mlp { layers, head: Dense::read(tensors, "head", 1, width)? })
    }

    fn score(&self, row: &[impl Number], shared: &[f64]) -> f64 {
        self.head.apply(&run(&self.layers, row, shared))[0]
    }
}

/// What layers make of a row; `shared`: see `Dense::shared`.
fn run(layers: &[Dense], row: &[impl Number], shared: &[f64]) -> Vec<f64> {
    let first = relu(layers[0].apply_joint(row, shared));
    layers[1..].iter().fold(first, |row, layer| relu(layer.apply(&row)))
}

fn relu(mut row: Vec<f64>) -> Vec<f64> {
    // What is not a number stays so, and makes the score an error.
    row.iter_mut().filter(|value| **value < 0.0).for_each(|value| *value = 0.0);
    row
}

/// The mean of rows, zeros of none.
fn mean<'a>(rows: impl Iterator<Item = &'a Vec<f64>>, width: usize) -> Vec<f64> {
    let (mut sums, mut count) = (vec![0.0; width], 0.0);
    for row in rows {
        count += 1.0;
        sums.iter_mut().zip(row).for_each(|(sum, value)| *sum += value);
    }
    sums.iter_mut().for_each(|sum| *sum /= f64::max(count, 1.0));
    sums
}

/// Read a matrix [outputs, inputs] as [inputs, outputs].
fn transposed(tensors: &Tensors, name: &str, outputs: usize, inputs: usize) -> Result<Vec<f64>> {
    let weights = tensors.weights(name, &[outputs, inputs])?;
    Ok((0..inputs).flat_map(|i| weights.iter().skip(i).step_by(inputs).copied()).collect())
}

/// Read `group.0` and the following layers. Batch normalisation is part of their weights.
fn read_layers(tensors: &Tensors, group: &str, of: &Architecture, mut inputs: usize) -> Result<Vec<Dense>> {
    let mut layers = Vec::with_capacity(of.hidden.len().min(1 << 10));
    for (i, &outputs) in of.hidden.iter().enumerate() {
        let name = format!("{group}.{i}");
        let mut layer = Dense::read(tensors, &name, outputs, inputs)?;
        if of.normalisation == "layer" {
            layer.norm = read_norm(tensors, &format!("{name}.norm"), "layer", outputs)?;
        }
        layers.push(layer);
        inputs = outputs;
    }
    Ok(layers)
}

fn read_norm(tensors: &Tensors, name: &str, normalisation: &str, width: usize) -> Result<Norm> {
    let read = |part: &str| tensors.weights(&format!("{name}.{part}"), &[width]);
    if normalisation == "none" {
        return Ok(Norm::None);
    }
    let (scale, shift) = (read("weight")?, read("bias")?);
    if normalisation == "layer" {
        return Ok(Norm::Layer { scale, shift });
    }
    Ok(Norm::Batch { scale, shift, mean: read("running_mean")?, variance: read("running_var")? })
}

impl Graph {
    fn read(tensors: &Tensors, of: &Architecture, counts: &FeatureCounts) -> Result<Self> {
        let mut inputs = of.hidden[0];
        let node = Dense::read(tensors, "node", inputs, counts.node)?;
        let pod = Dense::read(tensors, "pod", inputs, counts.pod + counts.context)?;
        let groups = tensors.weights("kind", &[2, inputs])?.chunks_exact(inputs).map(<[f64]>::to_vec).collect();
        let mut layers = Vec::with_capacity(of.hidden.len().min(1 << 10));
        for (i, &outputs) in of.hidden.iter().enumerate() {
            layers.push(Attention::read(tensors, i, (inputs, outputs), of.normalisation)?);
            inputs = outputs;
        }
        Ok(Graph { node, pod, groups, layers, head: Dense::read(tensors, "head", 1, inputs.saturating_mul(2))? })
    }

    fn score(&self, rows: &Rows, groups: &[[Option<i64>; 2]], scores: &mut [f64]) {
        let nodes: Vec<usize> = (0..rows.nodes.len()).filter(|&n| rows.is_node(n)).collect();
        let mut vertices = vec![relu(self.pod.apply(&rows.shared))];
        vertices.extend(nodes.iter().map(|&n| relu(self.node.apply(rows.nodes[n]))));
        let edges = self.connect(&nodes, groups, &mut vertices);
        for layer in &self.layers {
            vertices = layer.apply(&vertices, &edges);
        }
        let shared = self.head.shared(&vertices[0]);
        for (&n, vertex) in nodes.iter().zip(&vertices[1..]).filter(|(n, _)| rows.feasible[**n]) {
            scores[n] = self.head.apply_joint(vertex, &shared)[0];
        }
    }

    /// Add the vertices of racks and servers; return the edges into each vertex.
    fn connect(&self, nodes: &[usize], groups: &[[Option<i64>; 2]], vertices: &mut Vec<Vec<f64>>) -> Vec<Vec<Edge>> {
        let mut edges: Vec<Vec<Edge>> = (0..=nodes.len()).map(|_| Vec::new()).collect();
        for v in 1..=nodes.len() {
            edges[v].push(Edge { source: 0, relation: 0 });
            edges[0].push(Edge { source: v, relation: 1 });
        }
        for (kind, start) in self.groups.iter().enumerate() {
            let mut members: BTreeMap<[Option<i64>; 2], Vec<usize>> = BTreeMap::new();
            for (i, &n) in nodes.iter().enumerate().filter(|(_, n)| groups[**n][kind].is_some()) {
                // A server's number counts within its rack.
                let key = if kind == 0 { [groups[n][0], None] } else { groups[n] };
                members.entry(key).or_default().push(i + 1);
            }
            for group in members.values() {
                let mut vertex = mean(group.iter().map(|&v| &vertices[v]), start.len());
                vertex.iter_mut().zip(start).for_each(|(value, start)| *value += start);
                let number = vertices.len();
                vertices.push(vertex);
                for &v in group {
                    edges[v].push(Edge { source: number, relation: 2 + 2 * kind });
                }
                edges.push(group.iter().map(|&source| Edge { source, relation: 3 + 2 * kind }).collect());
            }
        }
        edges
    }
}

impl Attention {
    fn read(tensors: &Tensors, i: usize, (inputs, outputs): (usize, usize), normalisation: &str) -> Result<Self> {
        let heads = (1..=MOST_HEADS).rev().find(|heads| outputs % heads == 0).unwrap_or(1);
        let name = |part: &str| format!("attention.{i}.{part}");
        let attend = tensors.weights(&name("att"), &[1, heads, outputs / heads])?;
        let bias = tensors.weights(&name("bias"), &[outputs])?;
        let source = Dense::read(tensors, &name("lin_l"), outputs, inputs)?;
        let target = Dense::read(tensors, &name("lin_r"), outputs, inputs)?;
        let residual = transposed(tensors, &name("res.weight"), outputs, inputs)?;
        let relations = transposed(tensors, &name("lin_edge.weight"), outputs, RELATIONS)?;
        let norm = read_norm(tensors, &format!("norm.{i}"), normalisation, outputs)?;
        let residual = Dense { weights: residual, bias, norm };
        let relations = relations.chunks_exact(outputs).map(<[f64]>::to_vec).collect();
        Ok(Attention { source, target, residual, relations, attend, heads })
    }

    fn apply(&self, vertices: &[Vec<f64>], edges: &[Vec<Edge>]) -> Vec<Vec<f64>> {
        let sources: Vec<Vec<f64>> = vertices.iter().map(|vertex| self.source.apply(vertex)).collect();
        let pairs = vertices.iter().zip(edges);
        pairs.map(|(vertex, edges)| self.gather(vertex, edges, &sources)).collect()
    }

    /// The next embedding of a vertex, from the edges into it.
    fn gather(&self, vertex: &[f64], edges: &[Edge], sources: &[Vec<f64>]) -> Vec<f64> {
        let (target, width) = (self.target.apply(vertex), self.attend.len() / self.heads);
        let mut row = self.residual.bias.clone();
        self.residual.accumulate(0, vertex, &mut row);
        for head in (0..self.heads).map(|head| head * width..(head + 1) * width) {
            let logit = |edge: &Edge| {
                head.clone().fold(0.0, |sum, j| {
                    let met = target[j] + sources[edge.source][j] + self.relations[edge.relation][j];
                    sum + self.attend[j] * met.max(SLOPE * met)
                })
            };
            let mut shares: Vec<f64> = edges.iter().map(logit).collect();
            let most = shares.iter().fold(f64::NEG_INFINITY, |most, &logit| most.max(logit));
            shares.iter_mut().for_each(|share| *share = libm::exp(*share - most));
            let total = shares.iter().fold(0.0, |sum, share| sum + share);
            for (edge, share) in edges.iter().zip(shares) {
                for j in head.clone() {
                    row[j] += share / total * sources[edge.source][j];
                }
            }
        }
        self.residual.norm.apply(&mut row);
        relu(row)
    }
}
