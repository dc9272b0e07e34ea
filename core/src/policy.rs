//! Policy files: a model card, weights, and a workload profile, as the bytes of a safetensors file; or a formula's text.
//!
//! Nothing in a file is executed. An error names the file, the place, the field, and what would be right.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use safetensors::tensor::{Dtype, SafeTensors, TensorView};
use serde::{Deserialize, Serialize};

use crate::arrays::{Arrays, Error, Result};
use crate::cluster::{GPU, GpuType, read_types};
use crate::formula;
use crate::fragmentation::{Profile, TypicalPod};
use crate::learned::{KINDS, Layer, Leftovers, MOST_CPU, Step, WEIGHTS, Weights};
use crate::networks::{Architecture, Inputs, Network};
use crate::rules::RULES;
use crate::views::{FeatureCounts, VIEWS};

/// Largest size of a policy file.
pub const MOST_MEBIBYTES: usize = 64;
/// Largest absolute weight: beyond it scores would leave the range of numbers.
pub const MOST_WEIGHT: f64 = 1e12;
const SCHEMA: i64 = 1;
pub const CARD: &str = "steersman";
pub const ORDER_CARD: &str = "steersman-order";
const PROFILE_VERSION: i64 = 3;
const SEQUENCES: usize = 6;
const MOST_IN_SEQUENCE: usize = 1024;
const MOST_DEVICES: i64 = 64;
/// The unit of CPU, in milli-CPU, if no typical pod requests a GPU.
const CPU_UNIT: f64 = 12_000.0;

/// The model card of a policy file; `steersman.policies.policy_file` documents the fields.
#[derive(Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Card {
    schema: i64,
    pub name: String,
    pub view: String,
    view_version: i64,
    network: String,
    #[serde(default)]
    members: Vec<String>,
    #[serde(default)]
    hidden: Vec<i64>,
    #[serde(default = "no_normalisation")]
    normalisation: String,
    objective: String,
    algorithm: String,
    #[serde(default)]
    protocol: String,
    ratio: Option<f64>,
    load: Option<f64>,
    #[serde(default)]
    training: Vec<String>,
    #[serde(default)]
    validation: Vec<String>,
    #[serde(default)]
    test: Vec<String>,
    #[serde(default)]
    seeds: String,
    #[serde(default)]
    settings: BTreeMap<String, Setting>,
    #[serde(default)]
    steps: i64,
    #[serde(default)]
    scores: Vec<WorkloadResult>,
    #[serde(default)]
    made_by: String,
    #[serde(rename = "mix")]
    profile: Option<ProfileCard>,
    compared_on: Option<ComparedOn>,
    #[serde(default)]
    order: String,
    #[serde(default)]
    order_weights: Vec<f64>,
}

fn no_normalisation() -> String {
    "none".to_owned()
}

#[derive(Deserialize, Serialize)]
#[serde(untagged)]
pub enum Setting {
    Flag(bool),
    Whole(i64),
    Real(f64),
    Text(String),
}

#[derive(Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
struct WorkloadResult {
    workload: String,
    metric: String,
    mean: f64,
    baseline: String,
    baseline_mean: f64,
    runs: i64,
}

#[derive(Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
struct ComparedOn {
    nodes: i64,
    shapes: String,
    draws: i64,
}

#[derive(Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
struct ProfileCard {
    version: i64,
    workload: String,
    typical_pods: i64,
    #[serde(default)]
    models: Vec<String>,
    #[serde(default)]
    resources: Vec<String>,
}

/// The tensors of a file, of which it is noted which are read.
pub struct Tensors<'a> {
    file: &'a str,
    views: BTreeMap<String, TensorView<'a>>,
    read: RefCell<BTreeSet<String>>,
}

/// A policy as its file has it.
pub struct Policy {
    pub name: String,
    /// None: a formula.
    pub card: Option<Card>,
    pub view: &'static FeatureCounts,
    /// Several are a portfolio: sets of weights, then rules. The first one decides unless another is chosen.
    pub members: Vec<Member>,
    pub prepared: Option<Prepared>,
}

pub enum Member {
    /// A place in `RULES`.
    Rule(usize),
    Learned(Weights),
    Network(Box<Network>),
}

/// The workload profile in a file, by the GPU models of its card.
pub struct Prepared {
    models: Vec<String>,
    /// By typical pod, the name of the GPUs that it requests, "" for any; empty: all take any.
    resources: Vec<String>,
    /// The last column of what each accepts is "no known model".
    profile: Profile,
    leftovers: Option<FileLeftovers>,
}

struct FileLeftovers {
    planned: Vec<f64>,
    sequences: Vec<i64>,
    ratios: Vec<f64>,
    smallest: i64,
}

impl Policy {
    /// Read the bytes of a file; the text of a formula if its name ends with `.txt`.
    pub fn read(file: &str, bytes: &[u8]) -> Result<Self> {
        if let Some(path) = file.strip_suffix(".txt") {
            let name = path.rsplit(['/', '\\']).next().unwrap_or(path).to_owned();
            let members = vec![Member::Learned(formula::read(file, bytes)?)];
            return Ok(Policy { name, card: None, view: &VIEWS[1], members, prepared: None });
        }
        if bytes.len() > MOST_MEBIBYTES << 20 {
            let problem = format!("is {} bytes; a policy has {MOST_MEBIBYTES} MiB at most", bytes.len());
            return Err(refusal(file, "file", "size", &problem));
        }
        let no_file = |error| {
            let problem = format!("is truncated or no safetensors file ({error})");
            refusal(file, "file", "policy", &problem)
        };
        let (_, header) = SafeTensors::read_metadata(bytes).map_err(no_file)?;
        let (card, view) = read_card(file, header.metadata().as_ref().unwrap_or(&Default::default()))?;
        let views = SafeTensors::deserialize(bytes).map_err(no_file)?.tensors().into_iter().collect();
        let tensors = Tensors { file, views, read: RefCell::default() };
        tensors.check_numbers()?;
        let members = read_members(&tensors, &card, view)?;
        let prepared = if card.network == "portfolio" { None } else { read_profile(&tensors, &card, view)? };
        Ok(Policy { name: card.name.clone(), card: Some(card), view, members, prepared })
    }
}

impl Policy {
    /// The card in JSON, with defaults; "" of a formula.
    pub fn card_text(&self) -> Result<String> {
        let text = self.card.as_ref().map(serde_json::to_string);
        text.unwrap_or_else(|| Ok(String::new())).map_err(|error| error.to_string())
    }

    /// The profile of the file for the types of GPUs of `policy.types`; without these, that of the host's arrays.
    pub fn profile(&self, arrays: &Arrays) -> Result<Profile> {
        match read_types(arrays)? {
            Some(types) => Ok(self.prepared()?.profile(&types)),
            None => Profile::read(arrays),
        }
    }

    /// The leftover tables for a profile of `profile`, likewise.
    pub fn leftovers(&self, arrays: &Arrays, profile: &Profile) -> Result<Arc<Leftovers>> {
        let leftovers = match read_types(arrays)? {
            Some(types) => self.prepared()?.leftovers(profile, types.len() + 1),
            None => Some(Leftovers::read(arrays)?),
        };
        Ok(Arc::new(leftovers.ok_or("policy.file: has no leftover tables")?))
    }

    fn prepared(&self) -> Result<&Prepared> {
        self.prepared.as_ref().ok_or_else(|| "policy.file: has no workload profile, for the types of GPUs".to_owned())
    }

    /// The scores of a network for an observation; `groups`: the rack and the server of each node, below 0: none.
    pub fn scores(&self, inputs: &Inputs, groups: &[i64]) -> Result<Vec<f64>> {
        let [Member::Network(network)] = self.members.as_slice() else {
            return Err(format!("policy '{}': is not a network over observations", self.name));
        };
        let nodes = inputs.mask.len();
        let lengths = [inputs.nodes.len(), inputs.pod.len(), inputs.context.len(), groups.len()];
        let expected = [nodes * self.view.node, self.view.pod, self.view.context, 2 * nodes];
        if lengths != expected {
            return Err(format!("an observation of {nodes} nodes has {expected:?} numbers, not {lengths:?}"));
        }
        let group = |number: i64| (number >= 0).then_some(number);
        let groups: Vec<_> = groups.chunks_exact(2).map(|pair| [group(pair[0]), group(pair[1])]).collect();
        Ok(network.scores(inputs, &groups))
    }
}

/// Return the line that says what is wrong with a file.
pub fn refusal(file: &str, place: &str, field: &str, problem: &str) -> Error {
    let parts = [file, place, field].into_iter().filter(|part| !part.is_empty()).map(printable);
    format!("{}: {}", parts.collect::<Vec<_>>().join(", "), printable(problem))
}

/// Texts of a file might end the line.
fn printable(text: &str) -> String {
    text.chars().map(|each| if each.is_control() { each.escape_default().to_string() } else { each.into() }).collect()
}

fn read_card(
    file: &str,
    metadata: &std::collections::HashMap<String, String>,
) -> Result<(Card, &'static FeatureCounts)> {
    #[derive(Deserialize)]
    struct Versioned {
        schema: Option<serde_json::Value>,
    }
    if metadata.contains_key(ORDER_CARD) {
        return Err(refusal(file, "", "", "is an order, not a policy; give it to --order"));
    }
    let Some(text) = metadata.get(CARD) else {
        let problem = "is missing: expected the model card of a policy file of steersman";
        return Err(refusal(file, "metadata", CARD, problem));
    };
    let no_card = |error| refusal(file, "metadata", CARD, &format!("is not a model card: {error}"));
    // The schema is read first: a newer one may have fields that a card of this one may not have.
    let schema = serde_json::from_str::<Versioned>(text).map_err(no_card)?.schema;
    if schema != Some(SCHEMA.into()) {
        let schema = schema.map_or("None".to_owned(), |schema| schema.to_string());
        let problem = format!("is {schema}; this version of steersman reads {SCHEMA}");
        return Err(refusal(file, "card", "schema", &problem));
    }
    let card: Card = serde_json::from_str(text).map_err(no_card)?;
    let Some(view) = VIEWS.iter().find(|view| view.name == card.view) else {
        let known = VIEWS.map(|view| view.name).join(", ");
        return Err(refusal(file, "card", "view", &format!("is '{}'; known are {known}", card.view)));
    };
    if card.view_version != view.version {
        let problem = format!(
            "is {}, but here the features '{}' are at {}: train it again",
            card.view_version, view.name, view.version
        );
        return Err(refusal(file, "card", "view_version", &problem));
    }
    Ok((card, view))
}

/// Whether a tensor belongs to the workload profile rather than to the weights.
fn is_of_profile(name: &str) -> bool {
    name.starts_with("mix.") || name.starts_with("outlook.")
}

pub fn is_real(view: &TensorView) -> bool {
    matches!(view.dtype(), Dtype::F32 | Dtype::F64)
}

pub fn reals<'a>(view: &TensorView<'a>) -> Box<dyn Iterator<Item = f64> + 'a> {
    let data = view.data();
    if view.dtype() == Dtype::F32 {
        Box::new(data.chunks_exact(4).map(|bytes| f64::from(f32::from_le_bytes(bytes.try_into().expect("4 bytes")))))
    } else {
        Box::new(data.chunks_exact(8).map(|bytes| f64::from_le_bytes(bytes.try_into().expect("8 bytes"))))
    }
}

/// The name of a type as NumPy has it, such as `float32`.
fn numpy_name(dtype: Dtype) -> String {
    let (kind, bits) = (format!("{dtype:?}"), dtype.bitsize());
    match kind.as_bytes()[0] {
        b'F' => format!("float{bits}"),
        b'I' => format!("int{bits}"),
        b'U' => format!("uint{bits}"),
        _ => kind.to_lowercase(),
    }
}

/// The integers of a tensor, one beyond the range as the largest; None: it has others.
fn integers(view: &TensorView) -> Option<Vec<i64>> {
    macro_rules! integers {
        ($type:ty) => {{
            let number = |bytes: &[u8]| <$type>::from_le_bytes(bytes.try_into().expect("the bytes of a number"));
            let numbers = view.data().chunks_exact(size_of::<$type>()).map(number);
            Some(numbers.map(|number| i64::try_from(number).unwrap_or(i64::MAX)).collect())
        }};
    }
    match view.dtype() {
        Dtype::I8 => integers!(i8),
        Dtype::I16 => integers!(i16),
        Dtype::I32 => integers!(i32),
        Dtype::I64 => integers!(i64),
        Dtype::U8 => integers!(u8),
        Dtype::U16 => integers!(u16),
        Dtype::U32 => integers!(u32),
        Dtype::U64 => integers!(u64),
        _ => None,
    }
}

impl Tensors<'_> {
    pub fn wrong(&self, place: &str, field: &str, problem: &str) -> Error {
        refusal(self.file, place, field, problem)
    }

    fn wrong_tensor(&self, name: &str, problem: &str) -> Error {
        self.wrong("tensor", name, problem)
    }

    fn has(&self, name: &str) -> bool {
        self.views.contains_key(name)
    }

    fn check_numbers(&self) -> Result<()> {
        for (name, view) in &self.views {
            if !is_of_profile(name) && !is_real(view) {
                let problem = format!("is {:?}; expected F32 or F64 for weights", view.dtype());
                return Err(self.wrong_tensor(name, &problem));
            }
        }
        for (name, view) in self.views.iter().filter(|(_, view)| is_real(view)) {
            if reals(view).any(|number| !number.is_finite()) {
                return Err(self.wrong_tensor(name, "holds a weight that is not a finite number"));
            }
        }
        for (name, view) in self.views.iter().filter(|(name, _)| !is_of_profile(name)) {
            if reals(view).any(|number| number.abs() > MOST_WEIGHT) {
                return Err(self.wrong_tensor(name, "holds a weight beyond 1e+12, which is of no use"));
            }
        }
        Ok(())
    }

    /// Return weights of this shape.
    pub fn weights(&self, name: &str, shape: &[usize]) -> Result<Vec<f64>> {
        let Some(view) = self.views.get(name) else {
            return Err(self.wrong_tensor(name, &format!("is missing; expected {shape:?}")));
        };
        if view.shape() != shape {
            return Err(self.wrong_tensor(name, &format!("is of shape {:?}; expected {shape:?}", view.shape())));
        }
        self.read.borrow_mut().insert(name.to_owned());
        Ok(reals(view).collect())
    }

    /// Refuse weights that were not read.
    pub fn refuse_other_weights(&self) -> Result<()> {
        let read = self.read.borrow();
        match self.views.keys().find(|name| !is_of_profile(name) && !read.contains(*name)) {
            Some(name) => Err(self.wrong_tensor(name, "is not one of this network's")),
            None => Ok(()),
        }
    }

    /// Return a tensor of the profile; -1 in the shape stands for any length.
    fn of_profile(&self, name: &str, shape: &[i64], is_whole: bool) -> Result<&TensorView<'_>> {
        let Some(view) = self.views.get(name) else {
            return Err(self.wrong_tensor(name, "is missing; prepare the policy again"));
        };
        let fits = view.shape().len() == shape.len()
            && view.shape().iter().zip(shape).all(|(&length, &right)| right == -1 || length as i64 == right);
        if !fits || is_real(view) == is_whole || (is_whole && integers(view).is_none()) {
            let kind = if is_whole { "whole" } else { "real" };
            let found = format!("is {} of shape {:?}", numpy_name(view.dtype()), view.shape());
            return Err(self.wrong_tensor(name, &format!("{found}; expected {kind} numbers of shape {shape:?}")));
        }
        self.read.borrow_mut().insert(name.to_owned());
        Ok(view)
    }

    fn whole(&self, name: &str, shape: &[i64], low: i64, high: i64) -> Result<Vec<i64>> {
        let numbers = integers(self.of_profile(name, shape, true)?).unwrap_or_default();
        if numbers.iter().any(|number| !(low..=high).contains(number)) {
            return Err(self.wrong_tensor(name, &format!("has a value outside {low} to {high}")));
        }
        Ok(numbers)
    }

    fn real(&self, name: &str, shape: &[i64]) -> Result<Vec<f64>> {
        Ok(reals(self.of_profile(name, shape, false)?).collect())
    }
}

fn rule(name: &str) -> Option<usize> {
    RULES.iter().position(|(rule, _)| *rule == name)
}

fn known_rules() -> String {
    format!("known are {}", RULES.map(|(name, _)| name).join(", "))
}

fn read_members(tensors: &Tensors, card: &Card, view: &'static FeatureCounts) -> Result<Vec<Member>> {
    let is_gpu = view.name == "gpu";
    let network = card.network.as_str();
    if network == "portfolio" {
        return read_portfolio(tensors, card);
    }
    if network == "rule" {
        tensors.refuse_other_weights()?;
        return match card.members.as_slice() {
            [name] if rule(name).is_some() => Ok(rule(name).map(Member::Rule).into_iter().collect()),
            _ => Err(tensors.wrong("card", "members", &format!("must name one rule; {}", known_rules()))),
        };
    }
    // Files of networks that see the cluster have `head.weight`; those without have `weights`.
    if network == "linear" && is_gpu && !tensors.has("head.weight") {
        let linear = rows(&tensors.weights("weights", &[KINDS, WEIGHTS])?);
        let rules = if tensors.has("rules") { rows(&tensors.weights("rules", &[KINDS, RULES.len()])?) } else { vec![] };
        tensors.refuse_other_weights()?;
        return Ok(vec![Member::Learned(Weights { linear, rules, layers: vec![] })]);
    }
    let of = Architecture::new(tensors, network, &card.hidden, &card.normalisation)?;
    // The same name stands for a network with and without the cluster's features: the number of inputs tells them apart.
    let inputs = tensors.views.get("layers.0.weight").and_then(|view| view.shape().get(1));
    if network == "mlp" && is_gpu && inputs == Some(&(view.node + view.pod)) {
        return Ok(vec![Member::Learned(read_learned(tensors, &of, view)?)]);
    }
    Ok(vec![Member::Network(Box::new(Network::read(tensors, &of, view)?))])
}

fn rows<const N: usize>(numbers: &[f64]) -> Vec<[f64; N]> {
    numbers.chunks_exact(N).map(|row| std::array::from_fn(|i| row[i])).collect()
}

/// Read a network that does not see the cluster; without a linear part, that is zero.
fn read_learned(tensors: &Tensors, of: &Architecture, view: &FeatureCounts) -> Result<Weights> {
    if of.normalisation != "none" {
        let problem = format!("is '{}'; a network without features of the cluster has none", of.normalisation);
        return Err(tensors.wrong("card", "normalisation", &problem));
    }
    let linear = match tensors.has("weights") {
        true => rows(&tensors.weights("weights", &[KINDS, WEIGHTS])?),
        false => vec![[0.0; WEIGHTS]; KINDS],
    };
    let (mut layers, mut inputs) = (Vec::new(), view.node + view.pod);
    let hidden = of.hidden.iter().enumerate().map(|(i, &outputs)| (format!("layers.{i}"), outputs));
    for (name, outputs) in hidden.chain([("head".to_owned(), 1)]) {
        let weights = tensors.weights(&format!("{name}.weight"), &[outputs, inputs])?;
        let biases = tensors.weights(&format!("{name}.bias"), &[outputs])?;
        layers.push(Layer { weights: weights.chunks_exact(inputs).map(<[f64]>::to_vec).collect(), biases });
        inputs = outputs;
    }
    tensors.refuse_other_weights()?;
    Ok(Weights { linear, rules: vec![], layers })
}

/// Read several sets of weights, whose names precede those of rules in the card.
fn read_portfolio(tensors: &Tensors, card: &Card) -> Result<Vec<Member>> {
    if card.view != "gpu" {
        let problem = format!("is '{}'; a portfolio has 'gpu'", card.view);
        return Err(tensors.wrong("card", "view", &problem));
    }
    let shape = tensors.views.get("weights").map_or(&[][..], |view| view.shape());
    let count = if shape.len() == 3 { shape[0] } else { 0 };
    let linear = tensors.weights("weights", &[count.max(1), KINDS, WEIGHTS])?;
    let points = tensors.weights("rules", &[count.max(1), KINDS, RULES.len()])?;
    if let Some(name) = tensors.views.keys().find(|name| *name != "weights" && *name != "rules") {
        return Err(tensors.wrong_tensor(name, "is not one of this network's"));
    }
    if card.members.len() < count || card.members.iter().collect::<BTreeSet<_>>().len() < card.members.len() {
        let problem = format!("must name all {count} sets of weights, each once, then rules");
        return Err(tensors.wrong("card", "members", &problem));
    }
    let sets = linear.chunks_exact(KINDS * WEIGHTS).zip(points.chunks_exact(KINDS * RULES.len()));
    let mut members: Vec<Member> = sets
        .map(|(linear, points)| Member::Learned(Weights { linear: rows(linear), rules: rows(points), layers: vec![] }))
        .collect();
    for name in &card.members[count..] {
        let unknown = || tensors.wrong("card", "members", &format!("'{name}' is not a rule; {}", known_rules()));
        members.push(Member::Rule(rule(name).ok_or_else(unknown)?));
    }
    Ok(members)
}

fn read_profile(tensors: &Tensors, card: &Card, view: &FeatureCounts) -> Result<Option<Prepared>> {
    let Some(profile) = &card.profile else {
        let problem = "belongs to a workload profile (`mix`), but the card has none";
        return match tensors.views.keys().find(|name| is_of_profile(name)) {
            Some(name) => Err(tensors.wrong_tensor(name, problem)),
            None => Ok(None),
        };
    };
    let pods = profile.typical_pods;
    if profile.version != PROFILE_VERSION {
        let problem = format!(
            "is {}, but this version of steersman reads {PROFILE_VERSION}: prepare the policy again",
            profile.version
        );
        return Err(tensors.wrong("card", "mix.version", &problem));
    }
    if pods < 0 {
        return Err(tensors.wrong("card", "mix.typical_pods", &format!("is {pods}; expected 0 or more")));
    }
    let named = profile.resources.len();
    if named > 0 && named as i64 != pods {
        let problem = format!("has {named} names for {pods} typical pods; expected one each, or none");
        return Err(tensors.wrong("card", "mix.resources", &problem));
    }
    let prepared = Prepared {
        models: profile.models.clone(),
        resources: profile.resources.clone(),
        profile: read_pods(tensors, profile)?,
        leftovers: if view.name == "gpu" { Some(read_leftovers(tensors, pods)?) } else { None },
    };
    let read = tensors.read.borrow();
    match tensors.views.keys().find(|name| is_of_profile(name) && !read.contains(*name)) {
        Some(name) => Err(tensors.wrong_tensor(name, &format!("is not one that the view '{}' sees", view.name))),
        None => Ok(Some(prepared)),
    }
}

fn read_pods(tensors: &Tensors, card: &ProfileCard) -> Result<Profile> {
    let pods = card.typical_pods;
    let sizes = tensors.whole("mix.milli", &[-1], 1, GPU)?;
    if sizes.windows(2).any(|pair| pair[0] >= pair[1]) {
        return Err(tensors.wrong_tensor("mix.milli", "is not in increasing order"));
    }
    let columns = card.models.len() + 1;
    let accepts = tensors.whole("mix.accepts", &[pods, columns as i64], 0, 1)?;
    let gpu_count = tensors.whole("mix.gpu_count", &[pods], 0, MOST_DEVICES)?;
    if sizes.is_empty() && gpu_count.iter().any(|&count| count > 0) {
        return Err(tensors.wrong_tensor("mix.milli", "is empty, but typical pods ask for GPUs"));
    }
    let cpu = tensors.whole("mix.cpu", &[pods], 0, 1 << 40)?;
    let value = tensors.whole("mix.value", &[pods], 0, (sizes.len() as i64 - 1).max(0))?;
    let share = tensors.real("mix.share", &[pods])?;
    let pod = |(i, accepts): (usize, &[i64])| TypicalPod {
        cpu: cpu[i],
        gpu_count: gpu_count[i],
        size: value[i] as usize,
        share: share[i],
        accepts: accepts.iter().map(|&accepts| accepts != 0).collect(),
    };
    let pods = accepts.chunks_exact(columns).enumerate().map(pod).collect();
    Ok(Profile::new(sizes, pods, columns))
}

fn read_leftovers(tensors: &Tensors, pods: i64) -> Result<FileLeftovers> {
    let length = if pods > 0 { -1 } else { 0 };
    let planned = tensors.real("outlook.planned", &[GPU + 1])?;
    let sequences = tensors.whole("outlook.sequences", &[SEQUENCES as i64, length], 0, (pods - 1).max(0))?;
    if sequences.len() > SEQUENCES * MOST_IN_SEQUENCE {
        let problem = format!("has sequences of more than {MOST_IN_SEQUENCE} pods");
        return Err(tensors.wrong_tensor("outlook.sequences", &problem));
    }
    let ratios = tensors.real("outlook.ratios", &[2])?;
    let smallest = tensors.whole("outlook.smallest", &[1], 0, GPU)?[0];
    Ok(FileLeftovers { planned, sequences, ratios, smallest })
}

impl Prepared {
    /// The profile for a cluster that numbers GPU types like this; the last number is that of devices without a model.
    pub fn profile(&self, types: &[GpuType]) -> Profile {
        let unknown = self.models.len();
        let nameless = GpuType::default();
        let types = || types.iter().chain([&nameless]);
        let accepts = |t: usize, pod: &TypicalPod, (model, names): &GpuType| {
            // A model that the file does not have is as none.
            let column = self.models.iter().rposition(|each| each == model).unwrap_or(unknown);
            match self.resources.get(t) {
                None => pod.accepts[column],
                Some(name) => {
                    let is_offered = name.is_empty() || names.is_empty() || names.contains(name);
                    is_offered && (pod.accepts[unknown] || pod.accepts[column])
                }
            }
        };
        let pods = self.profile.pods.iter().enumerate();
        let pods = pods
            .map(|(t, pod)| TypicalPod { accepts: types().map(|each| accepts(t, pod, each)).collect(), ..pod.clone() });
        Profile::new(self.profile.sizes.clone(), pods.collect(), types().count())
    }

    /// The leftover tables for a profile of `profile`; None: the file has none.
    pub fn leftovers(&self, profile: &Profile, types: usize) -> Option<Leftovers> {
        let FileLeftovers { planned, sequences, ratios, smallest } = self.leftovers.as_ref()?;
        let by_left = planned.iter().enumerate().map(|(left, &planned)| {
            let left = left as i64;
            let largest = profile.sizes.iter().rev().find(|&&size| size <= left).copied().unwrap_or(0);
            let share = left as f64 / GPU as f64;
            let unusable = if left < *smallest { share } else { 0.0 };
            [planned, (left - largest) as f64 / GPU as f64, unusable, share * share]
        });
        let step = |gpu_type: usize, t: i64| {
            let pod = &profile.pods[t as usize];
            let milli = if pod.gpu_count > 0 { profile.sizes[pod.size] } else { 0 };
            let cpu = if pod.gpu_count == 0 || pod.accepts[gpu_type] { pod.cpu } else { MOST_CPU };
            Step { cpu, devices: pod.gpu_count as usize, milli }
        };
        let length = sequences.len() / SEQUENCES;
        let of_type = |gpu_type: usize| {
            let sequence = |s: usize| sequences[s * length..][..length].iter().map(|&t| step(gpu_type, t)).collect();
            (0..SEQUENCES).map(sequence).collect()
        };
        let unit = GPU as f64 * ratios[0];
        Some(Leftovers {
            by_left: by_left.collect(),
            sequences: (0..types).map(of_type).collect(),
            cpu_per_gpu: ratios[0],
            cpu_per_memory: ratios[1],
            unit: if unit == 0.0 { CPU_UNIT } else { unit },
            smallest: *smallest,
            least_cpu: profile.pods.iter().map(|pod| pod.cpu).min().unwrap_or(MOST_CPU),
        })
    }
}
