//! Run times of what ended in a live cluster, by groups of pods that come and go.
//!
//! Levels, from which `belief` takes what it expects of a pod: all pods; those of the same requests; those of its
//! namespace, and there of the same requests, in which each owner counts once, so that Jobs of one pod teach what the next
//! Job may take; those of the same series (`train` of `train-17` and `train-x7k2p`), and of it and requests; those of the
//! same owner, of it and requests, of it and image, of all three; those of the same stated time, and of it and owner. Of an
//! owner of which nothing has ended yet its series stands for it.
//!
//! Of too many groups the one that was not used for longest is forgotten, or one among the next of which a single pod
//! has ended: Jobs that never run again would drive out those that run each day.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use crate::arrays::Result;
use crate::belief::{Belief, Estimate, Keys, LEVELS, NOTHING, Seen, WEIGHTS, bin};

/// Groups that are kept, and count as used, while one of which a single pod has ended is looked for.
const CHANCES: usize = 16;
const ALL_PODS: usize = 1;
/// Digits that number the runs of a CronJob (minutes), of Argo's CronWorkflow (seconds since 1970), or days, at least.
const RUN_DIGITS: usize = 8;
/// Letters and digits of a generated part of a name, such as that of `generateName`, at least.
const GENERATED: usize = 5;

/// What tells the run time of a pod, as its host writes it.
#[derive(Clone, Copy)]
pub struct PodKind<'a> {
    pub requests: &'a [u8],
    pub namespace: &'a [u8],
    pub owner: &'a [u8],
    pub image: &'a [u8],
    /// The bin of its stated run time.
    pub stated: Option<u8>,
}

/// Pods whose run times are told apart; None: of any. The owner "" stands for the namespace.
#[derive(Clone, Default, PartialEq, Eq, Hash)]
pub struct GroupKey {
    pub requests: Option<Vec<u8>>,
    /// Namespace, and owner in it.
    pub owner: Option<(Vec<u8>, Vec<u8>)>,
    pub image: Option<Vec<u8>>,
    pub stated: Option<u8>,
}

impl GroupKey {
    /// Whether the run time of the last pod tells something about the next one.
    fn is_followed(&self, has_image: bool) -> bool {
        let is_named = self.owner.as_ref().is_some_and(|(_, name)| !name.is_empty());
        let has = (self.requests.is_some(), self.image.is_some(), self.stated.is_some());
        is_named && [(false, false, false), (true, has_image, false), (false, false, true)].contains(&has)
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

    /// Return the pod as one of the series of its owner: without numbers and generated parts at the end of the name.
    pub fn of_series(self) -> Self {
        let mut owner = self.owner;
        while let Some(dash) = owner.iter().rposition(|&each| each == b'-') {
            if dash == 0 || owner[dash - 1] == b'/' || !is_generated(&owner[dash + 1..]) {
                break;
            }
            owner = &owner[..dash];
        }
        PodKind { owner, ..self }
    }

    /// Its group in its namespace, or in that its owner's, by requests or not, by image or not, by stated time or not.
    fn group(&self, by_requests: bool, by_image: bool, by_stated: bool) -> GroupKey {
        GroupKey {
            requests: by_requests.then(|| self.requests.to_vec()),
            owner: Some((self.namespace.to_vec(), self.owner.to_vec())),
            image: by_image.then(|| self.image.to_vec()),
            stated: self.stated.filter(|_| by_stated),
        }
    }

    /// What tells apart pods that are believed to run alike.
    pub fn all(&self) -> GroupKey {
        self.group(true, true, true)
    }

    fn by_requests(&self) -> GroupKey {
        GroupKey { requests: Some(self.requests.to_vec()), ..GroupKey::default() }
    }

    /// Groups of its owner, from the level `OWNER` on, without that of the stated time.
    fn of_owner(&self) -> [Option<GroupKey>; 4] {
        let (is_named, has_image) = (!self.owner.is_empty(), !self.image.is_empty());
        [
            is_named.then(|| self.group(false, false, false)),
            is_named.then(|| self.group(true, false, false)),
            has_image.then(|| self.group(false, true, false)),
            has_image.then(|| self.group(true, true, false)),
        ]
    }

    fn of_stated(&self) -> [Option<GroupKey>; 2] {
        let any = self.stated.map(|stated| GroupKey { stated: Some(stated), ..GroupKey::default() });
        [any, self.stated.map(|_| self.group(false, false, true))]
    }
}

/// Whether a part of a name is a number, or letters and digits at random, as Kubernetes and people generate them.
fn is_generated(part: &[u8]) -> bool {
    let is_digit = |each: &u8| each.is_ascii_digit();
    let is_vowel = |each: &u8| b"aeiou".contains(each);
    let is_plain = |each: &u8| each.is_ascii_lowercase() || each.is_ascii_digit();
    !part.is_empty()
        && (part.iter().all(is_digit)
            || part.len() >= GENERATED
                && part.iter().all(is_plain)
                && (part.iter().any(is_digit) || !part.iter().any(is_vowel)))
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
    /// Of a group that it may be in nothing has ended yet.
    is_incomplete: bool,
}

/// Run times by groups of pods, updated as pods end. Pods are those of any run of their owners.
pub struct RunTimes {
    /// It increases whenever an estimate may change.
    pub version: u64,
    /// Groups beyond which some are forgotten.
    most: usize,
    /// Groups that were added since the beginning.
    added: u64,
    belief: Belief,
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
        let mut belief = Belief::default();
        belief.add();
        Ok(RunTimes {
            version: 0,
            most,
            added: 0,
            belief,
            numbers: HashMap::new(),
            places: vec![Place::default(), Place::default()],
            used: BTreeMap::new(),
            clock: 0,
            free: Vec::new(),
        })
    }

    /// Whether a pod of the same owner has ended.
    pub fn knows(&self, pod: &PodKind) -> bool {
        self.numbers.contains_key(&pod.group(false, false, false))
    }

    /// Count a pod that ended after so many seconds; return whether it is the first one of its owner.
    pub fn note(&mut self, pod: &PodKind, seconds: f64) -> bool {
        let (is_first, bin) = (!pod.owner.is_empty() && !self.knows(pod), bin(seconds));
        let found = self.look_up(pod);
        self.belief.learn(&found.keys, bin);
        self.belief.count(ALL_PODS, bin, false);
        let (series, any) = (pod.of_series(), pod.of_any_owner());
        let mut groups = vec![pod.by_requests()];
        if is_first || pod.owner.is_empty() {
            groups.extend([false, true].map(|by_requests| any.group(by_requests, false, false)));
        }
        groups.extend(pod.of_owner().into_iter().chain(pod.of_stated()).flatten());
        if series.owner != pod.owner {
            groups.extend(series.of_owner().into_iter().chain([series.of_stated()[1].clone()]).flatten());
        }
        for key in groups {
            let is_followed = key.is_followed(!pod.image.is_empty());
            // At once: the next new group may drive this one out.
            let number = self.use_or_add(key);
            self.belief.count(number, bin, is_followed);
        }
        self.version += 1;
        is_first
    }

    /// Set what is known of one group alone: after a run time, or of all its pods and the last one, -1 for none.
    pub fn set(&mut self, key: Option<GroupKey>, after: Option<i64>, seen: Seen, last: i64) -> Result<()> {
        let number = match key {
            None => ALL_PODS,
            Some(key) => self.use_or_add(key),
        };
        self.version += 1;
        if let Some(after) = after {
            return self.belief.set_after(number, after, seen);
        }
        self.belief.set_seen(number, seen);
        self.belief.set_last(number, last)
    }

    /// How much each histogram counts, see `Belief`.
    pub fn weights(&self) -> [&[f64]; 2] {
        self.belief.weights()
    }

    pub fn set_weights(&mut self, weights: &[f64], squares: &[f64]) -> Result<()> {
        if weights.len() != WEIGHTS || squares.len() != WEIGHTS {
            return Err(format!("weights: expected {WEIGHTS} numbers"));
        }
        self.belief.set_weights(weights, squares);
        Ok(())
    }

    /// All groups, those that were not used for longest first, with their number in the belief.
    pub fn groups(&self) -> impl Iterator<Item = (Option<&GroupKey>, usize)> {
        let each = |&number: &usize| (self.places[number].key.as_deref(), number);
        std::iter::once((None, ALL_PODS)).chain(self.used.values().map(each))
    }

    pub fn belief(&self) -> &Belief {
        &self.belief
    }

    /// The number of a group, `NOTHING` if nothing of it has ended.
    pub fn number(&self, key: Option<&GroupKey>) -> usize {
        key.map_or(ALL_PODS, |key| self.numbers.get(key).copied().unwrap_or(NOTHING))
    }

    /// Look up the groups of a pod, which are used: `NOTHING` where nothing has ended.
    pub fn look_up(&mut self, pod: &PodKind) -> Lookup {
        let (series, any) = (pod.of_series(), pod.of_any_owner());
        let who = if self.knows(pod) { *pod } else { series };
        let mut groups: [Option<GroupKey>; LEVELS] = [const { None }; LEVELS];
        groups[1] = Some(pod.by_requests());
        [groups[2], groups[3]] = [false, true].map(|by_requests| Some(any.group(by_requests, false, false)));
        if who.owner != series.owner {
            [groups[4], groups[5]] = [false, true].map(|by_requests| Some(series.group(by_requests, false, false)));
        }
        let [owner, owner_requests, image, image_requests] = who.of_owner();
        [groups[6], groups[7], groups[8], groups[9]] = [owner, owner_requests, image, image_requests];
        [groups[10], groups[11]] = who.of_stated();
        let mut keys = [NOTHING; LEVELS];
        keys[0] = ALL_PODS;
        for (key, group) in keys.iter_mut().zip(&groups).skip(1) {
            if let Some(&number) = group.as_ref().and_then(|group| self.numbers.get(group)) {
                self.touch(number);
                *key = number;
            }
        }
        let is_incomplete = groups.iter().zip(&keys).any(|(group, &key)| group.is_some() && key == NOTHING);
        Lookup { keys, forgotten: keys.map(|key| self.places[key].forgotten), added: self.added, is_incomplete }
    }

    /// Whether a pod's groups may be others than those that were found.
    pub fn is_outdated(&self, found: &Lookup) -> bool {
        let is_gone = |(&key, &forgotten): (&usize, &u64)| self.places[key].forgotten != forgotten;
        found.keys.iter().zip(&found.forgotten).any(is_gone) || (found.added != self.added && found.is_incomplete)
    }

    pub fn estimate(&self, keys: &Keys) -> Estimate {
        self.belief.estimate(keys)
    }

    fn touch(&mut self, number: usize) {
        self.used.remove(&self.places[number].used);
        self.clock += 1;
        self.places[number].used = self.clock;
        self.used.insert(self.clock, number);
    }

    /// Return the number of a group, which is used and may be new.
    fn use_or_add(&mut self, key: GroupKey) -> usize {
        if let Some(&number) = self.numbers.get(&key) {
            self.touch(number);
            return number;
        }
        if self.numbers.len() >= self.most {
            self.forget_one();
        }
        let number = self.free.pop().unwrap_or_else(|| {
            self.places.push(Place::default());
            self.belief.add()
        });
        let key = Arc::new(key);
        self.places[number].key = Some(key.clone());
        self.numbers.insert(key, number);
        self.clock += 1;
        self.places[number].used = self.clock;
        self.used.insert(self.clock, number);
        self.added += 1;
        number
    }

    fn forget_one(&mut self) {
        for _ in 0..CHANCES {
            match self.used.values().next() {
                Some(&oldest) if self.belief.pods(oldest) > 1.0 => self.touch(oldest),
                _ => break,
            }
        }
        let Some((_, dropped)) = self.used.pop_first() else { return };
        if let Some(key) = self.places[dropped].key.take() {
            self.numbers.remove(&key);
        }
        self.places[dropped].forgotten += 1;
        self.belief.clear(dropped);
        self.free.push(dropped);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::belief::BINS;
    use proptest::prelude::*;

    fn pod(seed: usize, owners: &[String]) -> PodKind<'_> {
        const REQUESTS: [&[u8]; 3] = [b"small", b"large", b""];
        let owner = owners[seed / 6 % owners.len()].as_bytes();
        let (namespace, image): (&[u8], &[u8]) = if seed % 2 == 0 { (b"x", b"") } else { (b"y", b"image") };
        let stated = (seed % 5 == 0).then_some(12);
        PodKind { requests: REQUESTS[seed % 3], namespace, owner, image, stated }.of_any_run()
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
                prop_assert_eq!(times.belief.pods(ALL_PODS), ended);
                for (key, &number) in &times.numbers {
                    prop_assert!(times.places[number].key.as_ref() == Some(key));
                    prop_assert!(times.belief.pods(number) > 0.0);
                }
                // A lookup that is not outdated is what would be found now, but for pods whose owner is known only now.
                for (seed, lookup) in &found {
                    let (pod, is_outdated) = (pod(*seed, &owners), times.is_outdated(lookup));
                    prop_assert!(is_outdated || times.knows(&pod) || times.look_up(&pod).keys == lookup.keys);
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
            assert_eq!(of_owner(owner).of_any_run().owner, any.as_bytes());
        }
    }

    #[test]
    fn a_series_is_without_what_was_generated() {
        for (owner, series) in [
            ("Job/train-17", "Job/train"),
            ("Job/train-x7k2p", "Job/train"),
            ("Job/train-xkcdf-3", "Job/train"),
            ("Workflow/a-2b9f1c3d-4e5f6", "Workflow/a"),
            ("Job/train-large", "Job/train-large"),
            ("Job/resnet50", "Job/resnet50"),
            ("Job/17", "Job/17"),
            ("Job/-17", "Job/-17"),
            ("User/user-12", "User/user"),
            ("", ""),
        ] {
            assert_eq!(of_owner(owner).of_series().owner, series.as_bytes());
        }
    }

    fn of_owner(owner: &str) -> PodKind<'_> {
        PodKind { requests: b"", namespace: b"", owner: owner.as_bytes(), image: b"", stated: None }
    }

    #[test]
    fn what_was_not_used_for_longest_is_forgotten_first() {
        let mut times = RunTimes::new(3).expect("there is room");
        let key = |requests: &[u8; 1]| Some(GroupKey { requests: Some(requests.to_vec()), ..GroupKey::default() });
        let add = |times: &mut RunTimes, requests, pods| {
            let mut counts = [0.0; BINS];
            counts[9] = pods;
            times.set(key(requests), None, Seen::of(counts, counts), -1).expect("the last one is a bin");
        };
        for (requests, pods) in [(b"a", 9.0), (b"b", 1.0), (b"c", 9.0)] {
            add(&mut times, requests, pods);
        }
        add(&mut times, b"d", 9.0);
        let known = |times: &RunTimes, requests| times.belief.pods(times.number(key(requests).as_ref()));
        assert_eq!([b"a", b"b", b"c", b"d"].map(|each| known(&times, each)), [9.0, 0.0, 9.0, 9.0]);
        let mut times = RunTimes::new(3).expect("there is room");
        for requests in [b"a", b"b", b"c"] {
            add(&mut times, requests, 1.0);
        }
        times.look_up(&PodKind { requests: b"a", ..of_owner("") });
        add(&mut times, b"d", 1.0);
        assert_eq!([b"a", b"b", b"c", b"d"].map(|each| known(&times, each)), [1.0, 0.0, 1.0, 1.0]);
    }
}
