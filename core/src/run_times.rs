//! Run times of what ended in a live cluster, by groups of pods that come and go.
//!
//! Levels and smoothing are those of `history`. An owner of which nothing has ended yet says nothing: its namespace
//! stands for it, in which each owner counts once, so that Jobs of one pod teach what the next Job may take.
//!
//! Of too many groups the one that was not used for longest is forgotten, or one among the next of which a single pod
//! has ended: Jobs that never run again would drive out those that run each day.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use crate::arrays::{Result, index};
use crate::history::{BINS, Estimate, History, Keys, LEVELS, bin};

/// Groups that are kept, and count as used, while one of which a single pod has ended is looked for.
const CHANCES: usize = 16;
/// Numbers of groups: those of which nothing has ended, and all pods.
pub const NOTHING: usize = 0;
const ALL_PODS: usize = 1;
/// Digits that number the runs of a CronJob (minutes), of Argo's CronWorkflow (seconds since 1970), or days, at least.
const RUN_DIGITS: usize = 8;

/// What tells the run time of a pod, as its host writes it.
#[derive(Clone, Copy)]
pub struct PodKind<'a> {
    pub requests: &'a [u8],
    pub namespace: &'a [u8],
    pub owner: &'a [u8],
}

/// Pods whose run times are told apart; None: of any. The owner "" stands for the namespace.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct GroupKey {
    pub requests: Option<Vec<u8>>,
    /// Namespace, and owner in it.
    pub owner: Option<(Vec<u8>, Vec<u8>)>,
}

impl GroupKey {
    /// The group of a pod at a level: of all pods, of the same requests, of the same owner, of both.
    pub fn at(level: usize, pod: &PodKind) -> Self {
        GroupKey {
            requests: (level == 1 || level == 3).then(|| pod.requests.to_vec()),
            owner: (level >= 2).then(|| (pod.namespace.to_vec(), pod.owner.to_vec())),
        }
    }
}

impl<'a> PodKind<'a> {
    /// Return the pod of any run of its owner: `Job/backup-29384720` and later runs of the CronJob are `Job/backup`.
    pub fn of_any_run(self) -> Self {
        let digits = self.owner.iter().rev().take_while(|each| each.is_ascii_digit()).count();
        match self.owner[..self.owner.len() - digits].strip_suffix(b"-") {
            Some(name) if digits >= RUN_DIGITS => PodKind { owner: name, ..self },
            _ => self,
        }
    }

    /// Return the pod as one of any owner in its namespace.
    pub fn of_any_owner(self) -> Self {
        PodKind { owner: &[], ..self }
    }
}

/// What is known of a group by its number in the history.
#[derive(Default)]
struct Place {
    key: Option<Arc<GroupKey>>,
    used: u64,
    /// How many groups of this number were forgotten.
    forgotten: u64,
}

/// Numbers of the groups of a pod, as they were when they were looked up.
#[derive(Clone, Copy)]
pub struct Lookup {
    pub keys: Keys,
    forgotten: [u64; LEVELS],
    added: u64,
}

/// Run times by groups of pods, updated as pods end. Pods are those of any run of their owners.
pub struct RunTimes {
    /// It increases whenever an estimate may change.
    pub version: u64,
    /// Groups beyond which some are forgotten.
    most: usize,
    /// Groups that were added since the beginning; a new owner's do not count, since no pod was in them.
    added: u64,
    history: History,
    numbers: HashMap<Arc<GroupKey>, usize>,
    places: Vec<Place>,
    /// Numbers of groups by when they were used last.
    used: BTreeMap<u64, usize>,
    clock: u64,
    free: Vec<usize>,
}

impl RunTimes {
    /// Nothing has ended.
    pub fn new(most: usize) -> Result<Self> {
        if most == 0 {
            return Err("run times: expected room for at least one group".to_owned());
        }
        let mut history = History::default();
        for _ in [NOTHING, ALL_PODS] {
            history.add();
        }
        Ok(RunTimes {
            version: 0,
            most,
            added: 0,
            history,
            numbers: HashMap::new(),
            places: vec![Place::default(), Place::default()],
            used: BTreeMap::new(),
            clock: 0,
            free: Vec::new(),
        })
    }

    /// Whether a pod of the same owner has ended.
    pub fn knows(&self, pod: &PodKind) -> bool {
        self.numbers.contains_key(&GroupKey::at(2, pod))
    }

    /// Count a pod that ended after so many seconds; return whether it is the first one of its owner.
    pub fn note(&mut self, pod: &PodKind, seconds: f64) -> bool {
        let (is_first, bin) = (!pod.owner.is_empty() && !self.knows(pod), bin(seconds));
        self.history.count(ALL_PODS, bin, 1.0);
        let mut groups = vec![(1, *pod), (2, *pod), (3, *pod)];
        if is_first {
            groups.extend([(2, pod.of_any_owner()), (3, pod.of_any_owner())]);
        }
        for (level, kind) in groups {
            let is_new_owner = is_first && level > 1 && !kind.owner.is_empty();
            // At once: the next new group may drive this one out.
            let number = self.use_or_add(GroupKey::at(level, &kind), is_new_owner);
            self.history.count(number, bin, 1.0);
        }
        self.version += 1;
        is_first
    }

    /// Count pods that ended before, by bin, in one group alone.
    pub fn add(&mut self, level: i64, pod: &PodKind, counts: &[f64]) -> Result<()> {
        let number = match index("level", level, LEVELS)? {
            0 => ALL_PODS,
            level => self.use_or_add(GroupKey::at(level, pod), false),
        };
        for (bin, &pods) in counts.iter().enumerate().take(BINS) {
            self.history.count(number, bin, pods);
        }
        self.version += 1;
        Ok(())
    }

    /// The pods of a group that ended, by run time.
    pub fn counts(&self, level: i64, pod: &PodKind) -> Result<&[f64; BINS]> {
        let number = match index("level", level, LEVELS)? {
            0 => ALL_PODS,
            level => self.numbers.get(&GroupKey::at(level, pod)).copied().unwrap_or(NOTHING),
        };
        Ok(self.history.counts(number))
    }

    /// All groups, those that were not used for longest first, with the pods that ended by run time.
    pub fn groups(&self) -> impl Iterator<Item = (Option<&GroupKey>, &[f64; BINS])> {
        let each = |number: &usize| (self.places[*number].key.as_deref(), self.history.counts(*number));
        std::iter::once((None, self.history.counts(ALL_PODS))).chain(self.used.values().map(each))
    }

    /// Look up the groups of a pod, which are used: `NOTHING` where nothing has ended.
    pub fn look_up(&mut self, pod: &PodKind) -> Lookup {
        let pod = if self.knows(pod) { *pod } else { pod.of_any_owner() };
        let mut keys = [NOTHING; LEVELS];
        keys[0] = ALL_PODS;
        for (level, key) in keys.iter_mut().enumerate().skip(1) {
            if let Some(&number) = self.numbers.get(&GroupKey::at(level, &pod)) {
                self.touch(number);
                *key = number;
            }
        }
        Lookup { keys, forgotten: keys.map(|key| self.places[key].forgotten), added: self.added }
    }

    /// Whether a pod's groups may be others than those that were found.
    pub fn is_outdated(&self, found: &Lookup) -> bool {
        let is_gone = |(&key, &forgotten): (&usize, &u64)| self.places[key].forgotten != forgotten;
        found.keys.iter().zip(&found.forgotten).any(is_gone)
            || (found.added != self.added && found.keys.contains(&NOTHING))
    }

    pub fn estimate(&self, keys: &Keys) -> Estimate {
        self.history.smoothed(keys)
    }

    fn touch(&mut self, number: usize) {
        self.used.remove(&self.places[number].used);
        self.clock += 1;
        self.places[number].used = self.clock;
        self.used.insert(self.clock, number);
    }

    /// Return the number of a group, which is used and may be new.
    fn use_or_add(&mut self, key: GroupKey, is_new_owner: bool) -> usize {
        if let Some(&number) = self.numbers.get(&key) {
            self.touch(number);
            return number;
        }
        if self.numbers.len() >= self.most {
            self.forget_one();
        }
        let number = self.free.pop().unwrap_or_else(|| {
            self.places.push(Place::default());
            self.history.add()
        });
        let key = Arc::new(key);
        self.places[number].key = Some(key.clone());
        self.numbers.insert(key, number);
        self.clock += 1;
        self.places[number].used = self.clock;
        self.used.insert(self.clock, number);
        self.added += u64::from(!is_new_owner);
        number
    }

    fn forget_one(&mut self) {
        for _ in 0..CHANCES {
            match self.used.values().next() {
                Some(&oldest) if self.history.ended(oldest) > 1.0 => self.touch(oldest),
                _ => break,
            }
        }
        let Some((_, dropped)) = self.used.pop_first() else { return };
        if let Some(key) = self.places[dropped].key.take() {
            self.numbers.remove(&key);
        }
        self.places[dropped].forgotten += 1;
        self.history.clear(dropped);
        self.free.push(dropped);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn pod(seed: usize, owners: &[String]) -> PodKind<'_> {
        const REQUESTS: [&[u8]; 3] = [b"small", b"large", b""];
        let owner = owners[seed / 6 % owners.len()].as_bytes();
        PodKind { requests: REQUESTS[seed % 3], namespace: if seed % 2 == 0 { b"x" } else { b"y" }, owner }.of_any_run()
    }

    proptest! {
        #[test]
        fn groups_are_bounded_and_lookups_are_known_to_be_outdated(
            most in 1usize..12,
            steps in prop::collection::vec((0usize..2, 0usize..72, 0.1..1e8), 1..80),
        ) {
            let owners: Vec<String> = (0..12).map(|i| format!("Job/{}", "abc".repeat(i % 5))).collect();
            let mut times = RunTimes::new(most).expect("there is room");
            let mut found: Vec<(usize, Lookup)> = Vec::new();
            let mut ended = 0.0;
            for (what, seed, seconds) in steps {
                if what == 0 {
                    ended += 1.0;
                    let known = times.knows(&pod(seed, &owners));
                    prop_assert_eq!(times.note(&pod(seed, &owners), seconds), !known && !pod(seed, &owners).owner.is_empty());
                } else {
                    found.push((seed, times.look_up(&pod(seed, &owners))));
                }
                prop_assert!(times.numbers.len() <= most);
                prop_assert_eq!(times.used.len(), times.numbers.len());
                prop_assert_eq!(times.counts(0, &pod(seed, &owners)).expect("it is a level").iter().sum::<f64>(), ended);
                for (key, &number) in &times.numbers {
                    prop_assert!(times.places[number].key.as_ref() == Some(key));
                    prop_assert!(times.history.ended(number) > 0.0);
                }
                // A lookup that is not outdated is what would be found now, but for pods whose owner is known only now.
                for (seed, lookup) in &found {
                    let number = |level, pod: &PodKind| times.numbers.get(&GroupKey::at(level, pod)).copied();
                    let now = |pod: PodKind| -> Vec<usize> {
                        (1..LEVELS).map(|level| number(level, &pod).unwrap_or(NOTHING)).collect()
                    };
                    let own = now(pod(*seed, &owners));
                    let any = now(pod(*seed, &owners).of_any_owner());
                    prop_assert!(times.is_outdated(lookup) || [own, any].contains(&lookup.keys[1..].to_vec()));
                }
            }
        }
    }

    #[test]
    fn runs_of_a_cron_job_have_one_owner() {
        for (owner, any) in [
            ("Job/backup-29384720", "Job/backup"),
            ("Job/backup-2938472", "Job/backup-2938472"),
            ("Job/backup-29384720x", "Job/backup-29384720x"),
            ("Job/backup29384720", "Job/backup29384720"),
            ("-12345678", ""),
            ("12345678", "12345678"),
            ("", ""),
        ] {
            let pod = PodKind { requests: b"", namespace: b"", owner: owner.as_bytes() };
            assert_eq!(pod.of_any_run().owner, any.as_bytes());
        }
    }

    #[test]
    fn what_was_not_used_for_longest_is_forgotten_first() {
        let mut times = RunTimes::new(3).expect("there is room");
        let pod = |requests| PodKind { requests, namespace: b"", owner: b"" };
        let add = |times: &mut RunTimes, requests, pods| {
            let mut counts = [0.0; BINS];
            counts[9] = pods;
            times.add(1, &pod(requests), &counts).expect("it is a level");
        };
        for (requests, pods) in [(b"a", 9.0), (b"b", 1.0), (b"c", 9.0)] {
            add(&mut times, requests, pods);
        }
        add(&mut times, b"d", 9.0);
        let known = |times: &RunTimes, requests| times.counts(1, &pod(requests)).expect("it is a level")[9];
        assert_eq!([b"a", b"b", b"c", b"d"].map(|each| known(&times, each)), [9.0, 0.0, 9.0, 9.0]);
        let mut times = RunTimes::new(3).expect("there is room");
        for requests in [b"a", b"b", b"c"] {
            add(&mut times, requests, 1.0);
        }
        times.look_up(&pod(b"a"));
        add(&mut times, b"d", 1.0);
        assert_eq!([b"a", b"b", b"c", b"d"].map(|each| known(&times, each)), [1.0, 0.0, 1.0, 1.0]);
    }
}
