//! A decider in a live cluster: nodes change, and classes, labels and selectors come and go between decisions.
//!
//! What is numbered is kept up to a number and followed by what is new. A host that numbers a pod for the moment takes
//! the number back later: then something else has it.

use crate::arrays::{Arrays, Result, index};
use crate::cluster::GPU;
use crate::constraints::Kept;
use crate::decide::{Decider, NodeRule, Scorer};
use crate::kube::Kube;

impl Kept {
    fn read(arrays: &Arrays) -> Result<Self> {
        let counts: Vec<i64> = arrays.list_of("kept", 8)?;
        let count = |i: usize| index("kept", counts[i], 1 << 31);
        Ok(Kept {
            classes: count(0)?,
            constraints: count(1)?,
            labels: count(2)?,
            selectors: count(3)?,
            owned: count(4)?,
            things: count(5)?,
            keys: count(6)?,
            filters: count(7)?,
        })
    }
}

impl Decider {
    /// Follow a cluster. All arrays are optional, but those of one kind come together.
    ///
    /// - `kept`: how many classes, rows of constraints, label sets, selectors, owned terms, exclusive things, topology
    ///   keys and node filters remain, and what follows them: `classes.*`, `terms.*` (without what is kept, but with
    ///   `terms.domains` of all keys and `terms.more_matches`, the kept label sets by the new selectors).
    /// - `slots`: the nodes that came, went or were replaced, and what they are now: `nodes.*`, in columns
    ///   `changed.matched`, `changed.owned`, `changed.held`, `changed.allowed`, `changed.domain` and `changed.included`, and
    ///   `changed.domains` of all keys.
    /// - `kube.*`: replaces what kube-scheduler's profile makes of nodes and classes.
    ///
    /// After an error the decider is to be described anew: until then it knows no pod.
    pub fn follow_changes(&mut self, arrays: &Arrays) -> Result<()> {
        self.is_outdated = true;
        self.take_changes(arrays)?;
        self.is_outdated = false;
        Ok(())
    }

    fn take_changes(&mut self, arrays: &Arrays) -> Result<()> {
        if arrays.has("kept") {
            self.extend(arrays)?;
        }
        if arrays.has("slots") {
            self.replace_nodes(arrays)?;
        }
        if arrays.has("kube.weights") {
            let kube = Kube::read(arrays, &self.cluster, &self.terms)?;
            if let NodeRule::Kube(old) = &mut self.node_rule {
                **old = kube.begun_where(old);
            }
        }
        Ok(())
    }

    /// Take over what a decider that is described anew goes on with: the random numbers, and where a search starts.
    pub fn go_on_from(&mut self, previous: &Decider) {
        self.random = previous.random.clone();
        if let (NodeRule::Kube(kube), NodeRule::Kube(old)) = (&mut self.node_rule, &previous.node_rule) {
            **kube = kube.clone().begun_where(old);
        }
    }

    /// Set what pods leave of a node, and how often they count there: what is free by resource, `nonzero`, the milli left of
    /// devices, `gpu_kinds`, then of `terms.matched`, `terms.owned` and `terms.held` the node's column.
    pub fn set_pods(&mut self, n: usize, numbers: &[i64]) -> Result<()> {
        let node = &mut self.cluster.nodes[n];
        let of_node = node.free.len() + 2 + 2 * node.gpu_kinds.len() - 1;
        let (counted, expected) = (numbers.get(of_node..).unwrap_or(&[]), of_node + self.terms.columns());
        if numbers.len() != expected {
            return Err(format!("numbers: expected {expected} values, has {}", numbers.len()));
        }
        let (free, rest) = numbers.split_at(node.free.len());
        let (nonzero, rest) = rest.split_at(2);
        let (gpus, kinds) = rest[..2 * node.gpu_kinds.len() - 1].split_at(node.gpu_kinds.len() - 1);
        if let Some(left) = gpus.iter().find(|&&left| left > GPU) {
            return Err(format!("numbers: expected at most {GPU} milli of a device, has {left}"));
        }
        node.free.copy_from_slice(free);
        node.nonzero.copy_from_slice(nonzero);
        node.gpus.iter_mut().zip(gpus).for_each(|(left, &now)| *left = now);
        node.gpu_kinds.copy_from_slice(kinds);
        self.terms.set_counts(n, counted);
        self.follow(n);
        Ok(())
    }

    /// Set the scores of VolumeBinding for the next decisions, by node; other policies have none.
    pub fn set_storage(&mut self, scores: &[i64]) -> Result<()> {
        match &mut self.node_rule {
            NodeRule::Kube(kube) if kube.storage.len() == scores.len() => kube.storage.copy_from_slice(scores),
            NodeRule::Kube(kube) => return Err(format!("scores: expected {} values", kube.storage.len())),
            _ => {}
        }
        Ok(())
    }

    fn extend(&mut self, arrays: &Arrays) -> Result<()> {
        let kept = Kept::read(arrays)?;
        let is_cut = self.terms.check(&kept)? || kept.constraints < self.cluster.constraints();
        if kept.constraints > self.cluster.constraints() {
            return Err(format!("kept: expected at most {} rows of constraints", self.cluster.constraints()));
        }
        let classes = self.cluster.read_added(arrays, kept.constraints)?;
        let count = kept.classes + classes.0.len();
        let terms = self.terms.read_added(arrays, &kept, self.nodes(), classes.0.len())?;
        if is_cut {
            self.terms.check_references(&kept, &terms)?;
            let constraints = kept.constraints + classes.1.len();
            if self.cluster.classes.iter().take(kept.classes).any(|class| class.constraint >= constraints) {
                return Err("kept: classes that stay refer to what does not".to_owned());
            }
        }
        if matches!(self.node_rule, NodeRule::Kube(_)) && !arrays.has("kube.weights") {
            return Err("kube.weights: missing, with classes or labels that are new".to_owned());
        }
        match &mut self.node_rule {
            NodeRule::Best { scorer, table } => {
                if let Scorer::Learned(learned) = scorer {
                    learned.extend(kept.classes, &classes.0);
                }
                table.set_classes(kept.classes, count);
            }
            NodeRule::Network(_) | NodeRule::Random | NodeRule::Kube(_) | NodeRule::External => {}
        }
        if let Some(watch) = &mut self.watch {
            watch.observer.set_classes(kept.classes, count);
        }
        self.cluster.extend(kept.classes, kept.constraints, classes);
        self.terms.extend(&kept, terms);
        Ok(())
    }

    fn replace_nodes(&mut self, arrays: &Arrays) -> Result<()> {
        let slots = arrays.indices("slots", self.nodes())?;
        let nodes = self.cluster.read_changed(arrays, self.profile.types())?;
        if nodes.len() != slots.len() {
            return Err(format!("nodes.allocatable: expected {} rows, has {}", slots.len(), nodes.len()));
        }
        let columns = self.terms.read_changed(arrays, slots.len())?;
        self.terms.set_domains(&columns);
        let allowed: Vec<Vec<bool>> = arrays.rows_of("changed.allowed", self.cluster.constraints(), slots.len())?;
        for (i, (&n, node)) in slots.iter().zip(nodes).enumerate() {
            self.cluster.set_allowed(n, allowed.iter().map(|row| row[i]));
            self.cluster.nodes[n] = node;
            self.terms.set_column(n, &columns, i);
            self.follow(n);
        }
        Ok(())
    }
}
