//! Choice of a node and of its GPU devices for one pod after another.

use crate::arrays::{Arrays, Result, index};
use crate::cluster::Cluster;
use crate::constraints::Terms;
use crate::fragmentation::{Fragments, Profile};
use crate::kube::{Kube, PLUGINS};
use crate::learned::Learned;
use crate::network_rule::NetworkRule;
use crate::policy::{Member, Policy};
use crate::random::Random;
use crate::rules::{BEST_FIT, Candidate, FGD, RULES, fgd_share};
use crate::table::{Parts, ScoreTable};
use crate::views::Observer;
use crate::watch::Watch;

/// How the node is chosen.
#[derive(Clone)]
pub enum NodeRule {
    /// The highest score, the first of equals.
    Best {
        scorer: Scorer,
        table: ScoreTable,
    },
    Random,
    Kube(Box<Kube>),
    /// The host chooses.
    External,
    /// The highest score of a network over what it observes.
    Network(Box<NetworkRule>),
}

/// How a node is scored.
#[derive(Clone)]
pub enum Scorer {
    /// A weighted sum of rules, by their places in `RULES`.
    Sum(Vec<(usize, f64)>),
    Learned(Box<Learned>),
}

/// How the device of a share is chosen; everything else follows from best fit.
#[derive(Clone, Copy)]
enum DeviceRule {
    BestFit,
    Fgd,
    Random,
    Learned,
}

/// Where a pod goes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Choice {
    pub node: usize,
    /// A bit mask of the node's devices.
    pub devices: u64,
}

/// A cluster, and a policy that places pods on it.
#[derive(Clone)]
pub struct Decider {
    pub cluster: Cluster,
    pub terms: Terms,
    pub profile: Profile,
    pub fragments: Vec<Fragments>,
    pub node_rule: NodeRule,
    device_rule: DeviceRule,
    pub random: Random,
    /// Whether changes of a live cluster were taken in part, because one of them was wrong.
    pub is_outdated: bool,
    /// What observes a live cluster, if anything does.
    pub watch: Option<Watch>,
    /// The feasible nodes of the pod that is decided, where they are not just those that it fits on.
    pub mask: Vec<bool>,
}

impl Decider {
    /// Read a cluster and a policy: `nodes.*`, `classes.*`, `terms.*`, `profile.*`, `policy.*`; and of some policies
    /// `kube.*`, `learned.*`, `leftovers.*` or `observer.*`.
    ///
    /// With `policy.file`, the bytes of a policy file of the name `policy.name`, the file says how nodes and devices are
    /// chosen; `policy.member` is who decides of a portfolio. With `policy.types`, the GPU types of the cluster in JSON,
    /// `[[model, [name, ...]], ...]`, the profile and the leftover tables are those of the file. With `policy.node` beside
    /// the file, that decides, and the file has but the profile.
    pub fn read(arrays: &Arrays) -> Result<Self> {
        let cluster = Cluster::read(arrays)?;
        let terms = Terms::read(arrays, cluster.nodes.len(), cluster.classes.len())?;
        let policy = if arrays.has("policy.file") { Some(read_file(arrays)?) } else { None };
        let profile = match &policy {
            Some(policy) => policy.profile(arrays)?,
            None => Profile::read(arrays)?,
        };
        let seed = arrays.number("policy.seed")? as u64;
        let mut decider = Decider {
            fragments: cluster.nodes.iter().map(|node| profile.fragments(node)).collect(),
            mask: vec![false; cluster.nodes.len()],
            cluster,
            terms,
            profile,
            node_rule: NodeRule::External,
            device_rule: DeviceRule::BestFit,
            random: Random::new(seed),
            is_outdated: false,
            watch: None,
        };
        match policy {
            Some(policy) if !arrays.has("policy.node") => decider.follow_file(arrays, policy)?,
            _ => decider.follow_arrays(arrays)?,
        }
        Ok(decider)
    }

    /// Decide as `policy.node` and `policy.devices` say.
    fn follow_arrays(&mut self, arrays: &Arrays) -> Result<()> {
        self.node_rule = match arrays.number("policy.node")? {
            0 if arrays.list::<i64>("policy.functions")? == [LEARNED] => {
                let learned = Learned::read(arrays, &self.cluster, &self.profile)?;
                self.best(Scorer::Learned(Box::new(learned)))
            }
            0 => {
                let functions = arrays.indices("policy.functions", RULES.len())?;
                let weights: Vec<f64> = arrays.list_of("policy.weights", functions.len())?;
                self.best(Scorer::Sum(functions.into_iter().zip(weights).collect()))
            }
            1 => NodeRule::Random,
            2 => NodeRule::Kube(Box::new(Kube::read(arrays, &self.cluster, &self.terms)?)),
            3 => NodeRule::External,
            other => return Err(format!("policy.node: {other} is not a rule")),
        };
        self.device_rule = match arrays.number("policy.devices")? {
            0 => DeviceRule::BestFit,
            1 => DeviceRule::Fgd,
            2 => DeviceRule::Random,
            3 if matches!(self.node_rule, NodeRule::Best { scorer: Scorer::Learned(_), .. }) => DeviceRule::Learned,
            other => return Err(format!("policy.devices: {other} is not a rule")),
        };
        Ok(())
    }

    /// Decide as a policy file says.
    fn follow_file(&mut self, arrays: &Arrays, mut policy: Policy) -> Result<()> {
        let number = if arrays.has("policy.member") { arrays.number("policy.member")? } else { 0 };
        let member = policy.members.swap_remove(index("policy.member", number, policy.members.len())?);
        (self.node_rule, self.device_rule) = match member {
            Member::Rule(rule) => {
                let devices = if rule == FGD { DeviceRule::Fgd } else { DeviceRule::BestFit };
                (self.best(Scorer::Sum(vec![(rule, 1.0)])), devices)
            }
            Member::Learned(weights) => {
                let leftovers = policy.leftovers(arrays, &self.profile)?;
                let learned = Learned::new(weights, leftovers, &self.cluster, &self.profile);
                (self.best(Scorer::Learned(Box::new(learned))), DeviceRule::Learned)
            }
            Member::Network(network) => {
                let leftovers = match policy.view.name {
                    "cluster" => None,
                    "gpu" => Some(policy.leftovers(arrays, &self.profile)?),
                    other => return Err(format!("policy.file: has the view '{other}', which the host observes")),
                };
                let rule = NetworkRule::read(arrays, &self.cluster, (policy.name, *network))?;
                let observer = Observer::of_single_pods(arrays, &self.cluster, leftovers)?;
                self.watch = Some(Watch::new(observer, self.nodes()));
                (NodeRule::Network(Box::new(rule)), DeviceRule::BestFit)
            }
        };
        Ok(())
    }

    fn best(&self, scorer: Scorer) -> NodeRule {
        let normalized = match &scorer {
            // Alone, `best-fit` is compared as it is.
            Scorer::Sum(rules) if rules.len() > 1 => rules.iter().find(|(rule, _)| *rule == BEST_FIT),
            _ => None,
        };
        let (nodes, classes) = (self.cluster.nodes.len(), self.cluster.classes.len());
        NodeRule::Best { table: ScoreTable::new(nodes, classes, normalized.map(|(_, weight)| *weight)), scorer }
    }

    pub fn nodes(&self) -> usize {
        self.cluster.nodes.len()
    }

    /// Return the number of a class and of a label set that exist.
    pub fn pod(&self, class: i64, labels: i64) -> Result<(usize, usize)> {
        if self.is_outdated {
            return Err("the decider could not follow a change; describe it anew".to_owned());
        }
        Ok((index("class", class, self.cluster.classes.len())?, index("labels", labels, self.terms.matches.len())?))
    }

    /// Choose the node and the devices of a pod, without placing it; None: it fits nowhere.
    pub fn decide(&mut self, c: usize, labels: usize) -> Result<Option<Choice>> {
        let is_masked = self.find_feasible_if_masked(c, labels);
        let node = match self.node_rule {
            NodeRule::Network(_) => self.choose_by_network(c, is_masked)?,
            _ => self.choose_node(c, labels, is_masked),
        };
        Ok(node.map(|node| Choice { node, devices: self.devices_on(c, node) }))
    }

    /// Choose among the nodes that the host allows, all of them if it names none.
    ///
    /// Scores that are normalized over the feasible nodes stay so; a search of kube-scheduler is among the allowed ones.
    pub fn decide_among(&mut self, c: usize, labels: usize, allowed: &[bool]) -> Result<Option<Choice>> {
        let nodes = self.nodes();
        if !(allowed.is_empty() || allowed.len() == nodes) {
            return Err(format!("allowed: expected {nodes} values, has {}", allowed.len()));
        }
        if allowed.is_empty() {
            return self.decide(c, labels);
        }
        self.find_feasible(c, labels);
        if self.mask.iter().zip(allowed).all(|(feasible, allowed)| !feasible || *allowed) {
            return self.decide(c, labels);
        }
        let node = if let NodeRule::Best { .. } = self.node_rule {
            let mut scores = vec![0.0; nodes];
            self.scores(c, labels, allowed, &mut scores)?;
            let best = scores.iter().copied().fold(f64::NEG_INFINITY, f64::max);
            scores.iter().position(|&score| score == best && best > f64::NEG_INFINITY)
        } else {
            self.mask.iter_mut().zip(allowed).for_each(|(mask, allowed)| *mask &= allowed);
            match self.node_rule {
                NodeRule::Network(_) => self.choose_by_network(c, true)?,
                _ => self.choose_node(c, labels, true),
            }
        };
        Ok(node.map(|node| Choice { node, devices: self.devices_on(c, node) }))
    }

    /// Write kube-scheduler's scores by plugin, see `Kube::plugin_scores`; `allowed`: as for `decide_among`.
    pub fn plugin_scores(&mut self, c: usize, labels: usize, allowed: &[bool], out: &mut [f64]) -> Result<()> {
        let nodes = self.nodes();
        if out.len() != (PLUGINS + 1) * nodes || !(allowed.is_empty() || allowed.len() == nodes) {
            return Err(format!("allowed, scores: expected {nodes} values, and for each plugin"));
        }
        self.find_feasible(c, labels);
        self.mask.iter_mut().zip(allowed).for_each(|(mask, allowed)| *mask &= allowed);
        let NodeRule::Kube(kube) = &mut self.node_rule else { return Err("the policy has no plugins".to_owned()) };
        kube.plugin_scores(&self.cluster, &self.terms, (c, labels), Some(&self.mask), out);
        Ok(())
    }

    /// Whether a run has to choose for this decider: the host does, or a network by what the run observes.
    pub fn asks_host(&self) -> bool {
        matches!(self.node_rule, NodeRule::External | NodeRule::Network(_))
    }

    /// Find the feasible nodes if other pods matter; return whether they do.
    pub fn find_feasible_if_masked(&mut self, c: usize, labels: usize) -> bool {
        let is_masked = self.terms.has_rules(c, labels);
        if is_masked {
            self.find_feasible(c, labels);
        }
        is_masked
    }

    /// A node as rules see it.
    pub fn candidate(&self, n: usize) -> Candidate<'_> {
        Candidate { node: &self.cluster.nodes[n], fragments: &self.fragments[n], profile: &self.profile }
    }

    /// Write into `mask` the nodes that meet every hard constraint, those on other pods included.
    pub fn find_feasible(&mut self, c: usize, labels: usize) {
        let fits = self.cluster.fitting(c);
        for (n, allowed) in self.mask.iter_mut().enumerate() {
            *allowed = fits(n);
        }
        self.terms.refuse(c, labels, &mut self.mask);
    }

    /// Choose the node of a pod, among those of `mask` if that is what it has; None: it fits nowhere, or see `asks_host`.
    pub fn choose_node(&mut self, c: usize, labels: usize, is_masked: bool) -> Option<usize> {
        let mask = is_masked.then_some(self.mask.as_slice());
        match &mut self.node_rule {
            NodeRule::Best { scorer, table } => {
                refresh(scorer, table, &self.cluster, &self.profile, &self.fragments, c);
                table.best(c, mask)
            }
            NodeRule::Random => {
                let (nodes, fits) = (0..self.cluster.nodes.len(), self.cluster.fitting(c));
                match mask {
                    Some(mask) => self.random.choose(nodes.filter(|&n| mask[n])),
                    None => self.random.choose(nodes.filter(|&n| fits(n))),
                }
            }
            NodeRule::Kube(kube) => kube.choose(&self.cluster, &self.terms, c, labels, mask),
            NodeRule::External | NodeRule::Network(_) => None,
        }
    }

    /// The devices that a pod would get on a node that it fits on.
    pub fn devices_on(&mut self, c: usize, n: usize) -> u64 {
        let (class, node) = (&self.cluster.classes[c], &self.cluster.nodes[n]);
        let device = match self.device_rule {
            DeviceRule::BestFit => None,
            _ if !class.is_share() => None,
            DeviceRule::Fgd => {
                fgd_share(&Candidate { node, fragments: &self.fragments[n], profile: &self.profile }, class).1
            }
            DeviceRule::Learned => {
                let candidate = Candidate { node, fragments: &self.fragments[n], profile: &self.profile };
                match &mut self.node_rule {
                    NodeRule::Best { scorer: Scorer::Learned(learned), .. } => learned.score(&candidate, c, class, n).1,
                    _ => None,
                }
            }
            DeviceRule::Random => self.random.choose((0..node.gpus.len()).filter(|&d| node.gpus[d] >= class.gpu_milli)),
        };
        device.map_or_else(|| node.best_devices(class), |d| 1 << d)
    }

    /// Write the scores of the rules by node, -inf where the pod may not run.
    ///
    /// `allowed`: the nodes to choose from, all of them if it is empty. Scores that are normalized over the feasible nodes
    /// stay so; a search of kube-scheduler is among the allowed ones.
    pub fn scores(&mut self, c: usize, labels: usize, allowed: &[bool], scores: &mut [f64]) -> Result<()> {
        let nodes = self.nodes();
        if scores.len() != nodes || !(allowed.is_empty() || allowed.len() == nodes) {
            return Err(format!("scores, allowed: expected {nodes} values"));
        }
        let is_searched = matches!(self.node_rule, NodeRule::Kube(_)) && !allowed.is_empty();
        let is_masked = self.find_feasible_if_masked(c, labels) || is_searched;
        if is_searched {
            self.find_feasible(c, labels);
            self.mask.iter_mut().zip(allowed).for_each(|(mask, allowed)| *mask &= allowed);
        }
        self.write_scores(c, labels, is_masked, scores)?;
        let excluded = scores.iter_mut().zip(allowed).filter(|(_, allowed)| !**allowed);
        excluded.for_each(|(score, _)| *score = f64::NEG_INFINITY);
        Ok(())
    }

    fn write_scores(&mut self, c: usize, labels: usize, is_masked: bool, scores: &mut [f64]) -> Result<()> {
        if matches!(self.node_rule, NodeRule::Network(_)) {
            return self.scores_by_network(c, is_masked, scores);
        }
        let fits = self.cluster.fitting(c);
        match &mut self.node_rule {
            NodeRule::Best { scorer, table } => {
                refresh(scorer, table, &self.cluster, &self.profile, &self.fragments, c);
                if !is_masked && !table.is_normalized() {
                    scores.copy_from_slice(table.plain(c));
                    return Ok(());
                }
                for (score, value) in scores.iter_mut().zip(table.scores(c, is_masked.then_some(&self.mask))) {
                    *score = value;
                }
            }
            NodeRule::Random => {
                for (n, score) in scores.iter_mut().enumerate() {
                    let is_feasible = if is_masked { self.mask[n] } else { fits(n) };
                    *score = if is_feasible { 0.0 } else { f64::NEG_INFINITY };
                }
            }
            NodeRule::Kube(kube) => {
                let mask = is_masked.then_some(self.mask.as_slice());
                kube.scores(&self.cluster, &self.terms, c, labels, mask, scores);
            }
            NodeRule::External | NodeRule::Network(_) => {
                return Err("the policy has no table of scores".to_owned());
            }
        }
        Ok(())
    }

    /// Place a pod with the devices of the bit mask, without checking that it fits.
    pub fn place(&mut self, c: usize, labels: usize, choice: Choice) {
        self.count(c, labels, choice);
        self.follow(choice.node);
    }

    /// Undo `place` with the same arguments, exactly.
    pub fn remove(&mut self, c: usize, labels: usize, choice: Choice) {
        self.discount(c, labels, choice);
        self.follow(choice.node);
    }

    /// Place a pod for a moment, until `discount` with the same arguments: no score is updated.
    pub fn count(&mut self, c: usize, labels: usize, choice: Choice) {
        self.cluster.nodes[choice.node].place(&self.cluster.classes[c], choice.devices);
        self.terms.place(c, labels, choice.node);
    }

    pub fn discount(&mut self, c: usize, labels: usize, choice: Choice) {
        self.cluster.nodes[choice.node].remove(&self.cluster.classes[c], choice.devices);
        self.terms.remove(c, labels, choice.node);
    }

    /// Compute what is known of a node that changed.
    pub fn follow(&mut self, n: usize) {
        self.fragments[n] = self.profile.fragments(&self.cluster.nodes[n]);
        if let NodeRule::Best { scorer, table } = &mut self.node_rule {
            if let Scorer::Learned(learned) = scorer {
                learned.refresh(&self.cluster, &self.profile, n);
            }
            table.changed(n);
        }
        if let Some(watch) = &mut self.watch {
            watch.observer.changed(n);
        }
    }
}

fn read_file(arrays: &Arrays) -> Result<Policy> {
    let name = String::from_utf8(arrays.list("policy.name")?).map_err(|_| "policy.name: expected UTF-8")?;
    Policy::read(&name, &arrays.list::<u8>("policy.file")?)
}

/// The number of a learned policy among the functions of a table.
const LEARNED: i64 = RULES.len() as i64;

fn refresh(
    scorer: &mut Scorer,
    table: &mut ScoreTable,
    cluster: &Cluster,
    profile: &Profile,
    fragments: &[Fragments],
    c: usize,
) {
    let (class, fits, is_normalized) = (&cluster.classes[c], cluster.fitting(c), table.is_normalized());
    table.refresh(c, |n| {
        if !fits(n) {
            return None;
        }
        let candidate = Candidate { node: &cluster.nodes[n], fragments: &fragments[n], profile };
        Some(match scorer {
            Scorer::Learned(learned) => Parts { plain: learned.score(&candidate, c, class, n).0, raw: 0 },
            Scorer::Sum(rules) => {
                let mut plain = 0.0;
                let is_alone = rules.len() == 1;
                for &(rule, weight) in rules.iter().filter(|(rule, _)| is_alone || *rule != BEST_FIT) {
                    plain += weight * RULES[rule].1(&candidate, class) as f64;
                }
                Parts { plain, raw: if is_normalized { RULES[BEST_FIT].1(&candidate, class) } else { 0 } }
            }
        })
    });
}
