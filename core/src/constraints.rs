//! Constraints on other pods: ports, exclusive volumes, pod (anti-)affinity and spread. The rules are kube-scheduler's.
//!
//! Pods count by their labels (namespace and labels, numbered) and by their class. Every distinct selector is counted
//! per node as pods are placed and removed, so that a check costs O(nodes), not O(pods).

use crate::arrays::{Arrays, Result, copy_rows, index, optional};
use crate::cluster::PodCounts;

/// What a rule is about.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// A host port or a volume that only one pod may hold.
    Exclusive,
    Affinity,
    AntiAffinity,
    /// A hard topology spread (DoNotSchedule).
    Spread,
    /// Preferred affinity or anti-affinity, which only affects scores.
    Preferred,
    /// A soft topology spread (ScheduleAnyway), which only affects scores.
    SoftSpread,
    /// An affinity whose filter the pod's profile has disabled.
    DisabledAffinity,
    /// A spread whose filter the pod's profile has disabled.
    DisabledSpread,
}

impl Kind {
    fn read(number: i64) -> Result<Self> {
        Ok(match number {
            0 | 1 => Kind::Exclusive,
            2 => Kind::Affinity,
            3 => Kind::AntiAffinity,
            4 => Kind::Spread,
            5 => Kind::Preferred,
            6 => Kind::SoftSpread,
            7 => Kind::DisabledAffinity,
            8 => Kind::DisabledSpread,
            _ => return Err(format!("terms.rules: {number} is not a kind of rule")),
        })
    }

    /// Whether a rule refuses nodes.
    fn is_hard(self) -> bool {
        matches!(self, Kind::Exclusive | Kind::Affinity | Kind::AntiAffinity | Kind::Spread)
    }

    pub fn is_spread(self) -> bool {
        matches!(self, Kind::Spread | Kind::DisabledSpread)
    }
}

/// A rule of a class about other pods.
#[derive(Clone, Debug)]
pub struct Rule {
    pub kind: Kind,
    /// The selector whose pods count; of `Exclusive` the thing. A required affinity counts pods that match all of the
    /// class's required affinity terms.
    pub counted: usize,
    pub key: usize,
    /// The term that a pod with this rule owns.
    owned: Option<usize>,
    /// Of a preference its weight, negative for anti-affinity; of a spread its maximum skew.
    pub weight: i64,
    /// The selector that says whether the pod itself is one of those counted.
    own: usize,
    min_domains: i64,
    /// The node filter of a spread, over whose nodes it counts.
    pub included: usize,
}

/// A term that placed pods own: a required anti-affinity, or an affinity that adds to the scores of others.
#[derive(Clone)]
pub struct OwnedTerm {
    pub selector: usize,
    pub key: usize,
    /// Score that is added where an incoming pod matches; 0 of a required anti-affinity, which refuses instead.
    pub weight: i64,
    /// How often pods on each node own it, and the sum.
    pub on_nodes: Vec<i32>,
    pub total: i64,
}

/// Values of a topology key.
#[derive(Clone)]
pub struct Topology {
    /// Number of each node's value; None where it lacks the key.
    pub domain: Vec<Option<u32>>,
    /// Above the highest number.
    pub domains: usize,
}

/// How many of each kind a change leaves; what it adds follows them.
pub struct Kept {
    pub classes: usize,
    /// Rows of `Cluster::allowed`.
    pub constraints: usize,
    pub labels: usize,
    pub selectors: usize,
    pub owned: usize,
    pub things: usize,
    pub keys: usize,
    pub filters: usize,
}

/// What a change adds, by kind as in `Terms`.
pub struct Added {
    rules: Vec<Vec<Rule>>,
    matches: Vec<Vec<bool>>,
    /// By label set that is kept: whether it is matched by each selector that is new.
    more_matches: Vec<Vec<bool>>,
    matched: Vec<Vec<i32>>,
    owned: Vec<OwnedTerm>,
    conflicts: Vec<Vec<bool>>,
    held: Vec<Vec<i32>>,
    topologies: Vec<Topology>,
    /// The number of domains of every key.
    domains: Vec<usize>,
    included: Vec<Vec<bool>>,
}

/// Counts and labels of some nodes, in rows as those of `Terms`.
pub struct Columns {
    matched: Vec<Vec<i32>>,
    owned: Vec<Vec<i32>>,
    held: Vec<Vec<i32>>,
    domain: Vec<Vec<Option<u32>>>,
    domains: Vec<usize>,
    included: Vec<Vec<bool>>,
}

/// How many there are of what rules refer to.
struct Counts {
    selectors: usize,
    things: usize,
    owned: usize,
    keys: usize,
    filters: usize,
}

#[derive(Clone)]
pub struct Terms {
    /// By class, in the pod's own order within a kind.
    rules: Vec<Vec<Rule>>,
    /// By label set and selector: whether the selector matches pods with these labels.
    pub matches: Vec<Vec<bool>>,
    /// By selector and node: pods that it matches.
    pub matched: Vec<Vec<i32>>,
    pub owned: Vec<OwnedTerm>,
    /// Whether two exclusive things exclude each other.
    conflicts: Vec<Vec<bool>>,
    /// By exclusive thing and node: pods that hold it.
    held: Vec<Vec<i32>>,
    pub topologies: Vec<Topology>,
    /// By node filter and node.
    pub included: Vec<Vec<bool>>,
}

impl Terms {
    /// Write the counts of pods.
    pub fn write(&self, state: &mut PodCounts) -> Result<()> {
        copy_rows("matched", state.matched, self.matched.iter().map(Vec::as_slice))?;
        copy_rows("owned", state.owned, self.owned.iter().map(|term| term.on_nodes.as_slice()))?;
        copy_rows("owned_total", state.owned_total, self.owned.iter().map(|term| std::slice::from_ref(&term.total)))?;
        copy_rows("held", state.held, self.held.iter().map(Vec::as_slice))
    }

    /// Read `terms.*`.
    pub fn read(arrays: &Arrays, nodes: usize, classes: usize) -> Result<Self> {
        let selectors = arrays.columns::<bool>("terms.matches")?;
        let matches = arrays.rows("terms.matches", selectors)?;
        let matched = arrays.rows_of("terms.matched", selectors, nodes)?;
        let held: Vec<Vec<i32>> = arrays.rows("terms.held", nodes)?;
        let conflicts = arrays.rows_of("terms.conflicts", held.len(), held.len())?;
        let included: Vec<Vec<bool>> = arrays.rows("terms.included", nodes)?;
        let domains = arrays.list("terms.domains")?;
        let topologies = read_topologies(arrays, nodes, &domains)?;
        let owned = read_owned(arrays, selectors, topologies.len(), nodes)?;
        let counts = Counts {
            selectors,
            things: held.len(),
            owned: owned.len(),
            keys: topologies.len(),
            filters: included.len(),
        };
        let rules = read_rules(arrays, classes, &counts)?;
        Ok(Terms { rules, matches, matched, owned, conflicts, held, topologies, included })
    }

    /// Read what follows on the first of each kind, see `Kept`: `terms.*` of what is new, for so many new classes.
    pub fn read_added(&self, arrays: &Arrays, kept: &Kept, nodes: usize, classes: usize) -> Result<Added> {
        let matched: Vec<Vec<i32>> = arrays.rows("terms.matched", nodes)?;
        let selectors = kept.selectors + matched.len();
        let held: Vec<Vec<i32>> = arrays.rows("terms.held", nodes)?;
        let things = kept.things + held.len();
        let included: Vec<Vec<bool>> = arrays.rows("terms.included", nodes)?;
        let domains: Vec<i64> = arrays.list("terms.domains")?;
        let added = domains.get(kept.keys..).ok_or("terms.domains: expected a number of each key")?;
        let topologies = read_topologies(arrays, nodes, added)?;
        let owned = read_owned(arrays, selectors, domains.len(), nodes)?;
        let counts = Counts {
            selectors,
            things,
            owned: kept.owned + owned.len(),
            keys: domains.len(),
            filters: kept.filters + included.len(),
        };
        Ok(Added {
            rules: read_rules(arrays, classes, &counts)?,
            matches: arrays.rows("terms.matches", selectors)?,
            more_matches: arrays.rows_of("terms.more_matches", kept.labels, matched.len())?,
            conflicts: arrays.rows_of("terms.conflicts", held.len(), things)?,
            domains: self.read_sizes("terms.domains", kept.keys, &domains)?,
            matched,
            owned,
            held,
            topologies,
            included,
        })
    }

    /// Forget all but the first of each kind, and add others.
    pub fn extend(&mut self, kept: &Kept, added: Added) {
        self.rules.truncate(kept.classes);
        self.rules.extend(added.rules);
        self.matches.truncate(kept.labels);
        for (row, more) in self.matches.iter_mut().zip(added.more_matches) {
            row.truncate(kept.selectors);
            row.extend(more);
        }
        self.matches.extend(added.matches);
        self.matched.truncate(kept.selectors);
        self.matched.extend(added.matched);
        self.owned.truncate(kept.owned);
        self.owned.extend(added.owned);
        self.held.truncate(kept.things);
        self.held.extend(added.held);
        self.conflicts.truncate(kept.things);
        for (thing, row) in self.conflicts.iter_mut().enumerate() {
            row.truncate(kept.things);
            row.extend(added.conflicts.iter().map(|of_added| of_added[thing]));
        }
        self.conflicts.extend(added.conflicts);
        self.topologies.truncate(kept.keys);
        self.topologies.extend(added.topologies);
        self.topologies.iter_mut().zip(added.domains).for_each(|(topology, size)| topology.domains = size);
        self.included.truncate(kept.filters);
        self.included.extend(added.included);
    }

    /// Check that there is so much of each kind; return whether there is more.
    pub fn check(&self, kept: &Kept) -> Result<bool> {
        let ours = [
            ("classes", self.rules.len(), kept.classes),
            ("labels", self.matches.len(), kept.labels),
            ("selectors", self.matched.len(), kept.selectors),
            ("owned terms", self.owned.len(), kept.owned),
            ("exclusive things", self.held.len(), kept.things),
            ("topology keys", self.topologies.len(), kept.keys),
            ("node filters", self.included.len(), kept.filters),
        ];
        match ours.iter().find(|(_, ours, kept)| ours < kept) {
            Some((kind, ours, kept)) => Err(format!("kept: expected at most {ours} {kind}, has {kept}")),
            None => Ok(ours.iter().any(|(_, ours, kept)| ours > kept)),
        }
    }

    /// Check that what stays refers to nothing that a change takes away.
    pub fn check_references(&self, kept: &Kept, added: &Added) -> Result<()> {
        let selectors = kept.selectors + added.matched.len();
        let (things, owned) = (kept.things + added.held.len(), kept.owned + added.owned.len());
        let (keys, filters) = (added.domains.len(), kept.filters + added.included.len());
        let mut terms = self.owned.iter().take(kept.owned);
        let mut rules = self.rules.iter().take(kept.classes).flatten();
        let is_kept = |rule: &Rule| match rule.kind {
            Kind::Exclusive => rule.counted < things,
            _ => {
                rule.counted < selectors
                    && rule.own < selectors
                    && rule.key < keys
                    && rule.owned.is_none_or(|o| o < owned)
                    && (rule.included < filters || rule.included == 0)
            }
        };
        if rules.all(is_kept) && terms.all(|term| term.selector < selectors && term.key < keys) {
            Ok(())
        } else {
            Err("kept: classes that stay refer to what does not".to_owned())
        }
    }

    /// Read `changed.*` of so many nodes, in columns.
    pub fn read_changed(&self, arrays: &Arrays, nodes: usize) -> Result<Columns> {
        let keys = self.topologies.len();
        let domains = self.read_sizes("changed.domains", keys, &arrays.list_of("changed.domains", keys)?)?;
        let rows: Vec<Vec<i32>> = arrays.rows_of("changed.domain", self.topologies.len(), nodes)?;
        Ok(Columns {
            matched: arrays.rows_of("changed.matched", self.matched.len(), nodes)?,
            owned: arrays.rows_of("changed.owned", self.owned.len(), nodes)?,
            held: arrays.rows_of("changed.held", self.held.len(), nodes)?,
            included: arrays.rows_of("changed.included", self.included.len(), nodes)?,
            domain: rows.iter().zip(&domains).map(|(row, &size)| read_domains(row, size)).collect::<Result<_>>()?,
            domains,
        })
    }

    /// Read how many domains keys have, of which those that exist have no fewer than before.
    fn read_sizes(&self, name: &str, kept: usize, sizes: &[i64]) -> Result<Vec<usize>> {
        let ours = self.topologies.iter().take(kept).map(|topology| topology.domains);
        match ours.zip(sizes).find(|&(ours, &size)| size < ours as i64) {
            Some((ours, size)) => Err(format!("{name}: expected at least {ours}, is {size}")),
            None => sizes.iter().map(|&size| index(name, size, 1 << 31)).collect(),
        }
    }

    /// Replace how many domains topology keys have.
    pub fn set_domains(&mut self, columns: &Columns) {
        self.topologies.iter_mut().zip(&columns.domains).for_each(|(topology, &size)| topology.domains = size);
    }

    /// Replace what is known of node `n` by column `i`.
    pub fn set_column(&mut self, n: usize, columns: &Columns, i: usize) {
        let counts = [&columns.matched, &columns.owned, &columns.held].into_iter().flatten();
        self.set_counts(n, &counts.map(|row| i64::from(row[i])).collect::<Vec<_>>());
        self.included.iter_mut().zip(&columns.included).for_each(|(row, column)| row[n] = column[i]);
        self.topologies.iter_mut().zip(&columns.domain).for_each(|(topology, column)| topology.domain[n] = column[i]);
    }

    /// How many counts there are of each node.
    pub fn columns(&self) -> usize {
        self.matched.len() + self.owned.len() + self.held.len()
    }

    /// Replace the counts of node `n`: by selector, by owned term, by exclusive thing.
    pub fn set_counts(&mut self, n: usize, counts: &[i64]) {
        let (matched, rest) = counts.split_at(self.matched.len());
        let (owned, held) = rest.split_at(self.owned.len());
        self.matched.iter_mut().zip(matched).for_each(|(row, &count)| row[n] = count as i32);
        self.held.iter_mut().zip(held).for_each(|(row, &count)| row[n] = count as i32);
        for (term, &count) in self.owned.iter_mut().zip(owned) {
            term.total += count - i64::from(term.on_nodes[n]);
            term.on_nodes[n] = count as i32;
        }
    }

    pub fn rules(&self, c: usize) -> &[Rule] {
        &self.rules[c]
    }

    /// Count a pod on a node.
    pub fn place(&mut self, c: usize, labels: usize, n: usize) {
        self.count(c, labels, n, 1);
    }

    /// Undo `place` with the same arguments, exactly.
    pub fn remove(&mut self, c: usize, labels: usize, n: usize) {
        self.count(c, labels, n, -1);
    }

    fn count(&mut self, c: usize, labels: usize, n: usize, sign: i32) {
        for (matched, _) in self.matched.iter_mut().zip(&self.matches[labels]).filter(|(_, matches)| **matches) {
            matched[n] += sign;
        }
        for rule in &self.rules[c] {
            if rule.kind == Kind::Exclusive {
                self.held[rule.counted][n] += sign;
            } else if let Some(o) = rule.owned {
                self.owned[o].on_nodes[n] += sign;
                self.owned[o].total += i64::from(sign);
            }
        }
    }

    /// Whether `refuse` could refuse a node: by a hard rule of the class, or the anti-affinity of a placed pod.
    pub fn has_rules(&self, c: usize, labels: usize) -> bool {
        self.rules[c].iter().any(|rule| rule.kind.is_hard())
            || self.owned.iter().any(|term| self.excludes(term, labels))
    }

    /// Whether `has_rules` may be true for some labels.
    pub fn may_have_rules(&self, c: usize) -> bool {
        !self.owned.is_empty() || self.rules[c].iter().any(|rule| rule.kind.is_hard())
    }

    /// Whether a required affinity or a hard spread of a class counts pods with these labels.
    pub fn counts_pod(&self, c: usize, labels: usize) -> bool {
        let counts =
            |rule: &Rule| matches!(rule.kind, Kind::Affinity | Kind::Spread) && self.matches[labels][rule.counted];
        self.rules[c].iter().any(counts)
    }

    /// Clear `mask[n]` where a port, a volume, other pods or a spread refuse a pod.
    pub fn refuse(&self, c: usize, labels: usize, mask: &mut [bool]) {
        for term in self.owned.iter().filter(|term| self.excludes(term, labels)) {
            self.refuse_domains(&term.on_nodes, term.key, mask);
        }
        for rule in &self.rules[c] {
            match rule.kind {
                Kind::Exclusive => self.refuse_conflicts(rule.counted, mask),
                Kind::Affinity => self.require_affinity(c, labels, rule, mask),
                Kind::AntiAffinity => self.refuse_domains(&self.matched[rule.counted], rule.key, mask),
                Kind::Spread => self.refuse_skew(c, labels, rule, mask),
                _ => {}
            }
        }
    }

    /// Whether a term is a required anti-affinity of some placed pod and matches the labels.
    fn excludes(&self, term: &OwnedTerm, labels: usize) -> bool {
        term.weight == 0 && term.total != 0 && self.matches[labels][term.selector]
    }

    fn refuse_conflicts(&self, thing: usize, mask: &mut [bool]) {
        for (held, _) in self.held.iter().zip(&self.conflicts[thing]).filter(|(_, excludes)| **excludes) {
            for (allowed, &pods) in mask.iter_mut().zip(held) {
                *allowed &= pods <= 0;
            }
        }
    }

    /// Return the sum of a count over the nodes of each domain, and over all nodes that have the key.
    pub fn sums(&self, counts: &[i32], key: usize) -> (Vec<i64>, i64) {
        let topology = &self.topologies[key];
        let (mut sums, mut total) = (vec![0; topology.domains], 0);
        for (domain, &count) in topology.domain.iter().zip(counts) {
            if let Some(d) = domain {
                sums[*d as usize] += i64::from(count);
                total += i64::from(count);
            }
        }
        (sums, total)
    }

    fn refuse_domains(&self, counts: &[i32], key: usize, mask: &mut [bool]) {
        let (sums, _) = self.sums(counts, key);
        for (allowed, domain) in mask.iter_mut().zip(&self.topologies[key].domain) {
            *allowed &= domain.is_none_or(|d| sums[d as usize] <= 0);
        }
    }

    /// Refuse nodes whose domain has no counted pod, or that have no domain.
    ///
    /// The first pod of a group, one that its own terms match while no counted pod is in a domain of any of them, may
    /// start it anywhere.
    fn require_affinity(&self, c: usize, labels: usize, rule: &Rule, mask: &mut [bool]) {
        let mut terms = self.rules[c].iter().filter(|rule| rule.kind == Kind::Affinity);
        let is_first =
            self.matches[labels][rule.own] && terms.all(|term| self.sums(&self.matched[term.counted], term.key).1 == 0);
        let (sums, _) = self.sums(&self.matched[rule.counted], rule.key);
        for (allowed, domain) in mask.iter_mut().zip(&self.topologies[rule.key].domain) {
            *allowed &= domain.is_some_and(|d| sums[d as usize] != 0 || is_first);
        }
    }

    /// Refuse nodes that lack the key, or whose domain would exceed the skew with one pod more.
    ///
    /// Skew is the domain's pods after placement minus the fewest in any eligible domain: one with an included node that
    /// has the keys of all hard spread rules of the class.
    fn refuse_skew(&self, c: usize, labels: usize, rule: &Rule, mask: &mut [bool]) {
        let topology = &self.topologies[rule.key];
        let mut eligible: Vec<Option<i64>> = vec![None; topology.domains];
        for (n, domain) in topology.domain.iter().enumerate() {
            let Some(d) = domain else { continue };
            if self.included[rule.included][n] && self.has_keys(c, n, Kind::Spread) {
                let pods = i64::from(self.matched[rule.counted][n]);
                *eligible[*d as usize].get_or_insert(0) += pods;
            }
        }
        // With fewer domains than minDomains the global minimum is 0.
        let domains = eligible.iter().flatten().count() as i64;
        let fewest = if domains < rule.min_domains {
            0
        } else {
            eligible.iter().flatten().copied().min().unwrap_or(i64::MAX >> 1)
        };
        let most = rule.weight + fewest - i64::from(self.matches[labels][rule.own]);
        for (allowed, domain) in mask.iter_mut().zip(&topology.domain) {
            // PodTopologySpread counts 0 pods in a domain that is not eligible.
            *allowed &= domain.is_some_and(|d| eligible[d as usize].unwrap_or(0) <= most);
        }
    }

    /// Whether a node has the topology keys of all of a class's rules of a kind.
    pub fn has_keys(&self, c: usize, n: usize, kind: Kind) -> bool {
        self.rules[c].iter().all(|rule| rule.kind != kind || self.topologies[rule.key].domain[n].is_some())
    }
}

/// Read `terms.rules` and `terms.rule_start`: the rules of each of so many classes.
fn read_rules(arrays: &Arrays, classes: usize, counts: &Counts) -> Result<Vec<Vec<Rule>>> {
    let rows: Vec<Vec<i64>> = arrays.rows("terms.rules", 8)?;
    let mut parsed = Vec::with_capacity(rows.len());
    for row in &rows {
        let kind = Kind::read(row[0])?;
        let counts_pods = kind != Kind::Exclusive;
        let is_spread = matches!(kind, Kind::Spread | Kind::SoftSpread);
        let field = |name: &str, value, below, applies| {
            if applies { index(&format!("terms.rules, {name}"), value, below) } else { Ok(0) }
        };
        let counted = if counts_pods { counts.selectors } else { counts.things };
        parsed.push(Rule {
            kind,
            counted: index("terms.rules, counted", row[1], counted)?,
            key: field("key", row[2], counts.keys, counts_pods)?,
            owned: if counts_pods { optional("terms.rules, owned", row[3], counts.owned)? } else { None },
            weight: row[4],
            own: field("self", row[5], counts.selectors, counts_pods)?,
            min_domains: row[6],
            included: field("included", row[7], counts.filters, is_spread)?,
        });
    }
    let starts = arrays.indices("terms.rule_start", parsed.len() + 1)?;
    if starts.len() != classes + 1 || !starts.is_sorted() {
        return Err(format!("terms.rule_start: expected {} ascending values", classes + 1));
    }
    Ok(starts.windows(2).map(|range| parsed[range[0]..range[1]].to_vec()).collect())
}

/// Read `terms.domain`, keys with so many domains each.
fn read_topologies(arrays: &Arrays, nodes: usize, sizes: &[i64]) -> Result<Vec<Topology>> {
    let rows: Vec<Vec<i32>> = arrays.rows_of("terms.domain", sizes.len(), nodes)?;
    let mut topologies = Vec::with_capacity(rows.len());
    for (row, &size) in rows.into_iter().zip(sizes) {
        let domains = index("terms.domains", size, 1 << 31)?;
        topologies.push(Topology { domain: read_domains(&row, domains)?, domains });
    }
    Ok(topologies)
}

fn read_domains(row: &[i32], domains: usize) -> Result<Vec<Option<u32>>> {
    row.iter().map(|&d| Ok(optional("terms.domain", i64::from(d), domains)?.map(|d| d as u32))).collect()
}

fn read_owned(arrays: &Arrays, selectors: usize, keys: usize, nodes: usize) -> Result<Vec<OwnedTerm>> {
    let terms: Vec<Vec<i64>> = arrays.rows("terms.owned_terms", 3)?;
    let on_nodes: Vec<Vec<i32>> = arrays.rows_of("terms.owned", terms.len(), nodes)?;
    let read = |(term, on_nodes): (&Vec<i64>, Vec<i32>)| {
        Ok(OwnedTerm {
            selector: index("terms.owned_terms, selector", term[0], selectors)?,
            key: index("terms.owned_terms, key", term[1], keys)?,
            weight: term[2],
            total: on_nodes.iter().map(|&pods| i64::from(pods)).sum(),
            on_nodes,
        })
    };
    terms.iter().zip(on_nodes).map(read).collect()
}
