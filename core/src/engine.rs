//! The event loop, which can stop and resume: pods arrive, are bound, wait or fail, and leave; every event is recorded.
//!
//! At equal times waiting pods are tried, in the queue's order, before others arrive or leave. A pod that fits nowhere
//! waits, or has failed if nothing waits or if it would not fit on the empty cluster. By the order `las` it may have others
//! evicted, which then wait again (`engine/evicting.rs`).

mod evicting;

use crate::arrays::{Arrays, Result, copy_rows, index, optional};
use crate::belief::Estimate;
use crate::cluster::{CPU, GPU, MEMORY, PODS, PodCounts};
use crate::decide::{Choice, Decider};
use crate::evictions::{Evictions, leaders};
use crate::fragmentation::CAUSES;
use crate::heap::{heapify, pop, push, sink};
use crate::queue::{Moment, Overtaking, Queue, Releases};
use crate::reservation::{Reservations, Running, fits_together, foresee};
use crate::rules::RULES;
use crate::views::{Observation, Observer, Summary};

/// A pod that arrives.
#[derive(Clone)]
struct Arrival {
    class: usize,
    labels: usize,
    time: f64,
    /// Seconds from binding to departure, infinite: it stays.
    duration: f64,
    priority: i64,
    /// How many consecutive arrivals, from this one on, start together; 0 for all but the first. Once as many as `least`
    /// have started, the others are arrivals of their own.
    members: usize,
    least: usize,
    /// How many of its class must fit at once, at least, so that these can.
    together: i64,
    shape: usize,
    /// Its controller, if that has a limited number of pods at a time, and the next arrival of it.
    controller: Option<usize>,
    following: Option<usize>,
    /// Where it is, or was when it left.
    choice: Option<Choice>,
    has_left: bool,
    leaves: f64,
    started: f64,
    /// Since when it waits, or waited.
    since: f64,
}

/// What is alike for pods of a class, and for gangs of as many of them.
#[derive(Clone)]
struct Shape {
    /// It fits on no nodes of the empty cluster, so that its pods fail at once.
    is_infeasible: bool,
    /// Another pod's start may lift its refusal: it has a required affinity or a hard spread.
    is_lifted: bool,
    /// The pass in which it was last found to fit nowhere, and to fit nowhere beside the reservation.
    infeasible_in: Option<u64>,
    infeasible_beside: Option<u64>,
    /// The pass in which it was last looked whether pods may be evicted for it, and whether they may.
    may_evict: Option<(u64, bool)>,
    searched: Option<evicting::Searched>,
}

/// A controller with a limited number of pods at a time.
#[derive(Clone)]
struct Controller {
    /// How many more pods it may make now.
    room: i64,
    /// The first one that it may not make yet.
    delayed: Option<usize>,
}

#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Outcome {
    Bound,
    Failed,
    Waiting,
    Finished,
    Evicted,
}

/// Totals of the cluster.
#[derive(Clone, Copy, Default)]
pub struct Totals {
    /// Pods that wait; where nothing waits, those that have failed.
    pub waiting: i64,
    pub nodes: i64,
    pub gpu_milli: i64,
    pub cpu_milli: i64,
    pub memory_bytes: i64,
    /// Of `gpu_milli` what is beyond what the nodes of the pods have.
    pub gpu_excess: i64,
    /// Used shares of GPU and CPU, summed over nodes, and their squares; then causes of fragmentation.
    pub sums: [f64; SUMS],
}

pub const SUMS: usize = 4 + CAUSES;

/// An event, and the totals after it.
#[derive(Clone)]
pub struct Event {
    pub time: f64,
    pub arrival: usize,
    pub outcome: Outcome,
    pub choice: Option<Choice>,
    pub totals: Totals,
}

/// A pass over the waiting pods.
#[derive(Clone, Copy, PartialEq)]
enum Pass {
    None,
    /// The head's turn.
    Head,
    /// Candidates are to be found.
    Collect,
    /// They are tried.
    Candidates,
}

/// Why the loop stopped.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Stop {
    Done,
    /// As many events are recorded as were asked for.
    Paused,
    /// The host chooses the node of `question`.
    NeedsNode,
    /// The host notes why the pod of the last event was not bound, while the cluster is as it was then.
    NeedsReason,
    /// The host chooses who goes next.
    NeedsOrder,
}

/// How far a run is; `changes`: how often a pod came to a node or left it; `head`: the pod that nobody may delay.
pub struct Progress {
    pub arrived: usize,
    pub events: usize,
    pub changes: usize,
    pub time: f64,
    pub head: Option<usize>,
    pub totals: Totals,
}

/// How an arrival stands: where it is, or was when it left, whether it runs, when it arrived and started, its estimated
/// run time when it started, and how many start with it.
pub struct Standing {
    pub choice: Option<Choice>,
    pub runs: bool,
    pub time: f64,
    pub started: f64,
    pub estimated: f64,
    pub members: usize,
}

enum Answer {
    Node(usize),
    Nowhere,
    Unknown,
}

#[derive(Clone)]
pub struct Engine {
    pub decider: Decider,
    arrivals: Vec<Arrival>,
    shapes: Vec<Shape>,
    controllers: Vec<Controller>,
    /// Pods with a nominated node.
    nominated: Vec<(usize, usize)>,
    /// By node: whether it is part of the totals.
    eligible: Vec<bool>,
    waits: bool,
    wants_reasons: bool,
    /// Whether every waiting pod is tried in a pass, whichever node a pod has left: slower, with the same result.
    tries_everybody: bool,
    pub queue: Queue,
    reservations: Reservations,
    /// Pods that will leave, a binary heap.
    running: Vec<usize>,
    pub events: Vec<Event>,
    totals: Totals,
    /// How often a pod came to a node or left it.
    changes: usize,
    /// How many arrivals were handled.
    arrived: usize,
    pass: Pass,
    passes: u64,
    /// Members of a gang tried so far, and how many of them fit nowhere.
    tried: usize,
    refused: usize,
    /// The group whose first pod nobody may delay.
    pub head: Option<usize>,
    /// The node that a pod left last.
    freed: Option<usize>,
    /// Groups that may start in this pass, the next one of each shape; a binary heap.
    candidates: Vec<usize>,
    /// Whether nodes were closed to the last pod that was tried.
    pub is_restricted: bool,
    /// A pod that its controller makes now, since another one ended.
    created: Option<usize>,
    /// What may be evicted, if anything.
    evictions: Option<Evictions>,
    /// When it was last looked, at a time of no event, whether something may be evicted.
    looked: f64,
    /// Whether something was evicted for the pod that is tried.
    made_room: bool,
    /// The pod whose node the host chooses, whether the decider's mask has its nodes, and the answer.
    question: Option<(usize, bool)>,
    answer: Option<usize>,
    observer: Option<Observer>,
    summary: Summary,
}

impl Engine {
    /// Read a run: what `Decider::read` reads, `arrivals.*`, `queue.*`, `run.*`, and `observer.*` if it is observed.
    pub fn read(arrays: &Arrays) -> Result<Self> {
        let decider = Decider::read(arrays)?;
        let eligible: Vec<bool> = arrays.list_of("run.eligible", decider.nodes())?;
        let mut totals = Totals::default();
        for (fragments, _) in decider.fragments.iter().zip(&eligible).filter(|(_, counts)| **counts) {
            for (sum, cause) in totals.sums[4..].iter_mut().zip(fragments.causes) {
                *sum += cause;
            }
        }
        let mut engine = Engine::new(arrays, decider, eligible, totals)?;
        let nodes = arrays.indices("run.node", engine.decider.nodes())?;
        let devices: Vec<i64> = arrays.list_of("run.devices", nodes.len())?;
        engine.stand(&nodes, &devices)?;
        engine.begin(arrays)?;
        Ok(engine)
    }

    /// Read a run on the cluster of another one that has not advanced: what stands there stands here, and `arrivals.*`,
    /// `queue.*` and `run.*` say the rest.
    pub fn read_again(&self, arrays: &Arrays) -> Result<Self> {
        let mut engine = Engine::new(arrays, self.decider.clone(), self.eligible.clone(), self.totals)?;
        if self.arrived > engine.arrivals.len() {
            return Err("arrivals: fewer than stand already".to_owned());
        }
        for a in 0..self.arrived {
            engine.arrivals[a].choice = self.arrivals[a].choice;
            engine.queue.note_start(a, a);
        }
        (engine.arrived, engine.events) = (self.arrived, self.events.clone());
        engine.begin(arrays)?;
        Ok(engine)
    }

    fn new(arrays: &Arrays, decider: Decider, eligible: Vec<bool>, totals: Totals) -> Result<Self> {
        let nodes = decider.nodes();
        let shapes = read_shapes(arrays)?;
        let rooms: Vec<i64> = arrays.list("run.room")?;
        let arrivals = read_arrivals(arrays, &decider, shapes.len(), rooms.len())?;
        let mut nominated = Vec::new();
        for row in arrays.rows::<i64>("run.nominated", 2)? {
            nominated.push((index("run.nominated", row[0], arrivals.len())?, index("run.nominated", row[1], nodes)?));
        }
        Ok(Engine {
            summary: Summary::of(&decider.cluster.nodes, &eligible),
            observer: None,
            queue: Queue::read(arrays, arrivals.len(), shapes.len())?,
            evictions: read_evictions(arrays, &arrivals, &nominated, nodes)?,
            looked: f64::NEG_INFINITY,
            made_room: false,
            decider,
            arrivals,
            shapes,
            controllers: rooms.into_iter().map(|room| Controller { room, delayed: None }).collect(),
            nominated,
            eligible,
            waits: arrays.number("run.waits")? != 0,
            wants_reasons: arrays.number("run.reasons")? != 0,
            tries_everybody: arrays.number("run.tries_everybody")? != 0,
            reservations: Reservations::none(),
            running: Vec::new(),
            events: Vec::new(),
            totals,
            changes: 0,
            arrived: 0,
            pass: Pass::None,
            passes: 0,
            tried: 0,
            refused: 0,
            head: None,
            freed: None,
            candidates: Vec::new(),
            is_restricted: false,
            created: None,
            question: None,
            answer: None,
        })
    }

    fn begin(&mut self, arrays: &Arrays) -> Result<()> {
        if arrays.has("observer.view") {
            self.watch(arrays)?;
        }
        self.let_leave();
        let queued = index("run.queued", arrays.number("run.queued")?, self.arrivals.len() - self.arrived + 1)?;
        if queued > 0 {
            self.queue_first(queued);
        }
        Ok(())
    }

    /// Observe the cluster, see `Observer::read`.
    pub fn watch(&mut self, arrays: &Arrays) -> Result<()> {
        let mut observer = Observer::read(arrays, &self.decider.cluster, self.arrivals.len())?;
        for event in &self.events {
            follow(&mut observer, event);
        }
        self.observer = Some(observer);
        Ok(())
    }

    /// Whether ends of running pods are estimated: pods overtake with a reservation, are overdue after some time, or are
    /// asked how long they would keep others waiting.
    fn estimates_ends(&self) -> bool {
        self.queue.overtaking == Overtaking::Easy || self.queue.ageing.is_finite() || self.queue.foresees
    }

    /// The pod whose node the host chooses.
    pub fn question(&self) -> Result<usize> {
        self.question.map(|(pod, _)| pod).ok_or_else(|| "nothing is asked".to_owned())
    }

    /// Write what is observed of the question.
    pub fn observe(&mut self, observation: &mut Observation) -> Result<()> {
        let (pod, is_masked) = self.question.ok_or("nothing is asked")?;
        let summary = self.summary();
        let observer = self.observer.as_mut().ok_or("the run was made without an observer")?;
        let allowed = is_masked.then_some(self.decider.mask.as_slice());
        observer.write(&self.decider, &summary, (pod, self.arrivals[pod].class), allowed, observation)
    }

    /// The state of the cluster.
    pub fn summary(&self) -> Summary {
        let Totals { waiting, nodes, gpu_milli, cpu_milli, memory_bytes, sums, .. } = self.totals;
        Summary {
            nodes_used: nodes as f64,
            cpu_share: sums[2],
            cpu_square: sums[3],
            cpu_taken: cpu_milli as f64,
            memory_taken: memory_bytes as f64,
            gpu_taken: gpu_milli as f64,
            fragmented: sums[4..].iter().fold(0.0, |sum, cause| sum + cause).max(0.0),
            waiting: waiting as f64,
            ..self.summary.clone()
        }
    }

    pub fn waits(&self) -> bool {
        self.waits
    }

    /// When the first pod arrives.
    pub fn first_time(&self) -> f64 {
        self.arrivals.first().map_or(0.0, |arrival| arrival.time)
    }

    /// When the pod of the question arrives; None: nothing waits, or it has waited and is tried again.
    pub fn time_of_new_arrival(&self) -> Option<f64> {
        let (pod, _) = self.question?;
        (self.waits && self.pass == Pass::None).then(|| self.arrivals[pod].time)
    }

    /// The node where the pod of the question may run that a rule of `RULES` prefers, the first of equals.
    pub fn best_by_rule(&self, rule: usize) -> Result<usize> {
        let (pod, is_masked) = self.question.ok_or("nothing is asked")?;
        let decider = &self.decider;
        let (c, score) = (self.arrivals[pod].class, RULES[rule].1);
        let mut best: Option<(i64, usize)> = None;
        for n in 0..decider.nodes() {
            if if is_masked { decider.mask[n] } else { decider.cluster.fits(c, n) } {
                let value = score(&decider.candidate(n), &decider.cluster.classes[c]);
                if best.is_none_or(|(highest, _)| value > highest) {
                    best = Some((value, n));
                }
            }
        }
        best.map(|(_, n)| n).ok_or_else(|| "the pod fits on no node".to_owned())
    }

    /// See `Observer::share_nearby`.
    pub fn share_nearby(&self, arrival: usize, n: usize) -> f64 {
        self.observer.as_ref().map_or(1.0, |observer| observer.share_nearby(arrival, n))
    }

    /// How many features of a node are observed.
    pub fn observed_features(&self) -> Result<usize> {
        let observer = self.observer.as_ref().ok_or("the run was made without an observer")?;
        Ok(observer.width())
    }

    /// Write what the state of the cluster has changed so far, as arrays of the host, see `State`.
    pub fn write_state(&self, state: &mut PodCounts) -> Result<()> {
        let nodes = &self.decider.cluster.nodes;
        copy_rows("free", state.free, nodes.iter().map(|node| node.free.as_slice()))?;
        copy_rows("nonzero", state.nonzero, nodes.iter().map(|node| node.nonzero.as_slice()))?;
        copy_rows("gpu_kinds", state.gpu_kinds, nodes.iter().map(|node| node.gpu_kinds.as_slice()))?;
        // Rows are as long as those of the node with the most devices, which has one kind more.
        let width = nodes.first().map_or(0, |node| node.gpu_kinds.len() - 1);
        if state.gpu_free.len() != width * nodes.len() {
            return Err(format!("gpu_free: expected {} numbers", width * nodes.len()));
        }
        for (row, node) in state.gpu_free.chunks_exact_mut(width.max(1)).zip(nodes) {
            row[..node.gpus.len()].copy_from_slice(&node.gpus);
        }
        self.decider.terms.write(state)
    }

    /// Write where the pod that was asked about or tried last may run, if other pods or reservations matter to it.
    pub fn write_mask(&self, mask: &mut [i8]) {
        let (pod, is_masked) = self.question.unwrap_or_default();
        let c = self.arrivals.get(pod).map_or(0, |arrival| arrival.class);
        for (n, out) in mask.iter_mut().enumerate().take(self.decider.nodes()) {
            *out = i8::from(if is_masked { self.decider.mask[n] } else { self.decider.cluster.fits(c, n) });
        }
    }

    /// How far the run is.
    pub fn progress(&self) -> Progress {
        Progress {
            arrived: self.arrived,
            events: self.events.len(),
            changes: self.changes,
            time: self.events.last().map_or(0.0, |event| event.time),
            head: self.head.map(|head| self.queue.first(head)),
            totals: self.totals,
        }
    }

    /// How an arrival stands.
    pub fn standing(&self, arrival: usize) -> Result<Standing> {
        let pod = self.arrivals.get(arrival).ok_or_else(|| format!("arrival: {arrival} is not one"))?;
        let estimated = self.queue.pods[arrival].estimated;
        let runs = pod.choice.is_some() && !pod.has_left;
        Ok(Standing { choice: pod.choice, runs, time: pod.time, started: pod.started, estimated, members: pod.members })
    }

    /// Handle events until some arrivals have all started, or the time is past `until`; the host may be needed before.
    pub fn advance_to(&mut self, targets: &[i64], until: f64) -> Result<Stop> {
        let targets: Vec<usize> =
            targets.iter().map(|&a| index("targets", a, self.arrivals.len())).collect::<Result<_>>()?;
        let mut next = 0;
        loop {
            while targets.get(next).is_some_and(|&a| self.arrivals[a].choice.is_some()) {
                next += 1;
            }
            if next == targets.len() || self.events.last().is_some_and(|event| event.time > until) {
                return Ok(Stop::Done);
            }
            let stop = self.advance(self.events.len() + 1);
            if stop != Stop::Paused {
                return Ok(stop);
            }
        }
    }

    /// The oldest pods of all groups that wait, with the estimates of their run times that are known so far.
    pub fn heads(&self) -> Vec<(usize, Option<Estimate>)> {
        self.queue.waiting().map(|g| self.queue.first(g)).map(|a| (a, self.queue.known_estimate(a))).collect()
    }

    /// Answer the question.
    pub fn answer(&mut self, node: i64) -> Result<()> {
        self.answer = Some(index("node", node, self.decider.nodes())?);
        Ok(())
    }

    /// Say which group goes next.
    pub fn set_head(&mut self, group: i64) -> Result<()> {
        let g = index("group", group, self.queue.groups.len())?;
        if self.queue.groups[g].pods.is_empty() {
            return Err(format!("group: nothing of {g} waits"));
        }
        self.head = Some(g);
        Ok(())
    }

    /// Bind the first arrivals to nodes. They run there, so that they may take more than there is.
    fn stand(&mut self, nodes: &[usize], devices: &[i64]) -> Result<()> {
        if nodes.len() > self.arrivals.len() {
            return Err(format!("run.node: expected at most {} nodes", self.arrivals.len()));
        }
        for (arrival, (&node, &devices)) in nodes.iter().zip(devices).enumerate() {
            let choice = Choice { node, devices: devices as u64 };
            let c = self.arrivals[arrival].class;
            self.arrivals[arrival].choice = Some(choice);
            let idle = self.gpu_left(c, choice.node);
            self.change(arrival, 1);
            if self.eligible[choice.node] {
                // What the pod requests beyond what the node had left for it.
                let taken = idle - self.gpu_left(c, choice.node);
                self.totals.gpu_excess += self.decider.cluster.classes[c].gpu_total() - taken;
            }
            self.arrived += 1;
            self.queue.note_start(arrival, arrival);
            self.note(self.arrivals[arrival].time, arrival, Outcome::Bound);
        }
        Ok(())
    }

    /// GPU milli left on a node; 0 where it runs more than it has.
    fn gpu_left(&self, c: usize, n: usize) -> i64 {
        self.decider.cluster.nodes[n].gpu_left(&self.decider.cluster.classes[c]).max(0)
    }

    /// Let the pods that stand leave after their durations, counted from their times.
    fn let_leave(&mut self) {
        for pod in &mut self.arrivals[..self.arrived] {
            (pod.started, pod.leaves) = (pod.time, pod.time + pod.duration);
        }
        let arrivals = &self.arrivals;
        let mut leaving: Vec<usize> = (0..self.arrived).filter(|&a| arrivals[a].leaves.is_finite()).collect();
        leaving.sort_by(|&a, &b| {
            if leaves_before(arrivals, a, b) { std::cmp::Ordering::Less } else { std::cmp::Ordering::Greater }
        });
        // An ascending list is a heap.
        self.running = leaving;
    }

    /// Let the next arrivals wait since their times, and try them all at time 0, before anything else happens.
    ///
    /// Those that would not fit on the empty cluster fail.
    fn queue_first(&mut self, count: usize) {
        for arrival in self.arrived..self.arrived + count {
            if self.arrivals[arrival].members > 0 && !self.is_delayed(arrival) {
                self.queue_arrival(arrival, 0.0, true);
                self.take_room(arrival, self.arrivals[arrival].members as i64);
            }
        }
        self.arrived += count;
        self.passes += 1;
        if self.queue.overtaking != Overtaking::Anybody || self.estimates_ends() {
            self.pass = Pass::Head;
            return;
        }
        self.collect(0.0, true);
        self.pass = Pass::Candidates;
    }

    /// Handle events until so many are recorded, or the host is needed.
    pub fn advance(&mut self, until: usize) -> Stop {
        while self.events.len() < until {
            let is_passing = self.pass != Pass::None;
            let (arrival, group, time);
            if is_passing {
                // A pass takes place at the time of the event that caused it, the last one.
                time = self.events.last().map_or(0.0, |event| event.time).max(self.looked);
                match self.next_in_pass(time) {
                    Ok(Some(g)) => (arrival, group) = (self.queue.first(g), Some(g)),
                    Ok(None) => continue,
                    Err(stop) => return stop,
                }
            } else {
                match self.next_arrival() {
                    Ok(Some(a)) => (arrival, group) = (a, None),
                    Ok(None) => continue,
                    Err(stop) => return stop,
                }
                time = self.arrivals[arrival].time;
                if self.queue.waiting_groups > 0 && self.estimates_ends() {
                    self.next_head(time);
                }
            }
            if let Some(stop) = self.attempt(arrival, group, time) {
                return stop;
            }
        }
        Stop::Paused
    }

    /// The group whose first pod is tried next in this pass; None: look again.
    fn next_in_pass(&mut self, time: f64) -> std::result::Result<Option<usize>, Stop> {
        if self.pass == Pass::Head {
            if self.head.is_none() && self.queue.order_is_external() && self.queue.waiting_groups > 1 {
                return Err(Stop::NeedsOrder);
            }
            self.next_head(time);
            if self.head.is_none() || self.queue.overtaking == Overtaking::Anybody {
                // Nobody waits, or anybody may start: an overdue pod is tried after those of a higher priority.
                self.pass = Pass::Collect;
                return Ok(None);
            }
            return Ok(self.head);
        }
        // Before the first pod has left, no node says which pods may fit now.
        let every = self.tries_everybody || self.decider.asks_host() || self.freed.is_none();
        if self.pass == Pass::Collect {
            // As the first of them would: who is tried depends on it.
            if self.head.is_some() && self.queue.waiting_groups > 1 {
                self.update_reservation(time);
            }
            self.collect(time, every);
            self.pass = Pass::Candidates;
        }
        let candidate = self.first_candidate(time, every);
        if candidate.is_none() {
            self.pass = Pass::None;
        }
        Ok(candidate)
    }

    /// The next pod that arrives; None: something else happened, look again.
    fn next_arrival(&mut self) -> std::result::Result<Option<usize>, Stop> {
        if let Some(pod) = self.created {
            return Ok(Some(pod));
        }
        let is_arriving = self.arrived < self.arrivals.len();
        if self.evictions.is_some() && self.look_between_events(is_arriving) {
            return Ok(None);
        }
        if !self.running.is_empty() && (!is_arriving || self.leaves_first()) {
            self.leave();
            return Ok(None);
        }
        if !is_arriving {
            return Err(Stop::Done);
        }
        let arrival = self.arrived;
        if self.tried == 0 && self.arrivals[arrival].choice.is_some() {
            // It has started with its gang, of which others have not.
            self.take_room(arrival, 1);
            self.arrived += 1;
            return Ok(None);
        }
        if self.is_delayed(arrival) {
            self.arrived += 1;
            return Ok(None);
        }
        Ok(Some(arrival))
    }

    /// Try the next member of a gang, of one for most pods, and start the gang once as many as must have a node.
    fn attempt(&mut self, arrival: usize, group: Option<usize>, time: f64) -> Option<Stop> {
        let (member, shape) = (arrival + self.tried, self.arrivals[arrival].shape);
        let is_passing = group.is_some();
        let (c, labels) = (self.arrivals[member].class, self.arrivals[member].labels);
        let is_masked = self.decider.terms.has_rules(c, labels) || !self.nominated.is_empty();
        // Behind the head, unless of a higher priority. By orders that commit it is the new head if it has to wait.
        let is_behind = self.head.is_some_and(|head| {
            group != Some(head) && self.arrivals[arrival].priority <= self.queue.pods[self.queue.first(head)].priority
        });
        let (mut is_allowed, mut comes_after) = (true, false);
        if is_behind {
            is_allowed = self.queue.overtaking != Overtaking::Nobody;
            if is_allowed {
                self.update_reservation(time);
                comes_after = !self.may_overtake(arrival, time);
            }
        }
        if is_passing {
            is_allowed &= self.shapes[shape].infeasible_in != Some(self.passes);
            is_allowed &= !(comes_after && self.shapes[shape].infeasible_beside == Some(self.passes));
        }
        let mut node = None;
        if is_allowed && !self.shapes[shape].is_infeasible {
            match self.node_for(arrival, is_masked, comes_after) {
                Answer::Node(n) => node = Some(n),
                Answer::Nowhere => {
                    if self.make_room(arrival, is_masked, comes_after, time) {
                        match self.node_for(arrival, is_masked, comes_after) {
                            Answer::Node(n) => node = Some(n),
                            Answer::Nowhere => {}
                            Answer::Unknown => return Some(Stop::NeedsNode),
                        }
                    }
                }
                // Nothing was changed yet: the same arrival is handled again when there is an answer.
                Answer::Unknown => return Some(Stop::NeedsNode),
            }
        }
        match node {
            Some(node) => {
                let devices = self.decider.devices_on(c, node);
                self.arrivals[member].choice = Some(Choice { node, devices });
                self.change(member, 1);
            }
            None => self.refused += 1,
        }
        self.tried += 1;
        let Arrival { members, least, .. } = self.arrivals[arrival];
        let starts = is_allowed && !self.shapes[shape].is_infeasible && members - self.refused >= least;
        if starts && self.tried < members {
            return None;
        }
        let is_split = starts && self.refused > 0;
        if starts {
            (self.tried, self.refused) = (0, 0);
            self.start(arrival, time, is_passing);
            if self.head.is_some() && group != self.head && !is_behind {
                // A pod of higher priority has started: the head's reservation does not account for it.
                self.reservations.cancel();
            }
        } else {
            self.undo(arrival);
        }
        if let Some(g) = group {
            // Marked only where nothing but the nodes refused it, or these and a reservation that it would delay.
            // Others of its shape may have something evicted that it may not.
            let is_alone = is_allowed && !is_masked && (starts || !self.may_evict(shape, time));
            if is_alone && !starts && comes_after && !self.decider.asks_host() {
                self.shapes[shape].infeasible_beside = Some(self.passes);
            }
            self.end_attempt(g, starts, is_alone && !self.is_restricted, time);
        } else if self.created.is_some() {
            self.created = None;
        } else if !is_split {
            self.take_room(arrival, members as i64);
            self.arrived += members;
        }
        if is_split {
            self.separate(arrival, is_passing);
        }
        let made_room = std::mem::take(&mut self.made_room);
        if starts && (self.lifts(arrival, members) || (made_room && self.queue.waiting_groups > 0)) {
            self.pass = Pass::Head;
            self.passes += 1;
        }
        if is_passing || starts {
            return None;
        }
        self.queue_arrival(arrival, time, self.waits);
        let waits = self.waits && !self.shapes[shape].is_infeasible;
        if self.queue.overtaking != Overtaking::Anybody && !is_behind && waits {
            self.head = Some(self.queue.pods[arrival].group);
            self.reservations.cancel();
        }
        // At once, while the cluster is as it was when the pod was refused.
        self.wants_reasons.then_some(Stop::NeedsReason)
    }

    /// The node for the next member of a pod's gang.
    ///
    /// `comes_after`: it would delay the reservation, unless it goes to another node or leaves room.
    fn node_for(&mut self, arrival: usize, is_masked: bool, comes_after: bool) -> Answer {
        let is_gang = self.arrivals[arrival].members > 1;
        // One that asks somebody else, or has several pods, avoids all reserved nodes at once.
        let mut is_closed = comes_after && (self.decider.asks_host() || is_gang);
        self.is_restricted = is_closed;
        let reservation = self.reservations.current.as_ref();
        if is_gang && self.tried == 0 && !is_masked {
            let Arrival { class, together, .. } = self.arrivals[arrival];
            if !fits_together(&self.decider.cluster, class, together, reservation.filter(|_| comes_after)) {
                return Answer::Nowhere;
            }
        }
        let member = arrival + self.tried;
        let c = self.arrivals[member].class;
        loop {
            let answer = self.choose(member, is_masked || is_closed, is_closed);
            let (Answer::Node(n), true, false) = (&answer, comes_after, is_closed) else { return answer };
            if !self.reservations.current.as_ref().is_some_and(|reservation| reservation.holds(*n)) {
                return answer;
            }
            let devices = self.decider.devices_on(c, *n);
            let reserved = self.head.map(|head| self.arrivals[self.queue.first(head)].class);
            if let (Some(reservation), Some(reserved)) = (&mut self.reservations.current, reserved) {
                if reservation.leaves_room(&self.decider.cluster, reserved, *n, c, devices) {
                    return answer;
                }
            }
            is_closed = true;
        }
    }

    /// `is_masked`: other pods matter to it, or a reservation does, so every node has to be evaluated. `is_closed`:
    /// reserved nodes are closed to it.
    fn choose(&mut self, member: usize, is_masked: bool, mut is_closed: bool) -> Answer {
        let (c, labels) = (self.arrivals[member].class, self.arrivals[member].labels);
        if is_masked {
            self.decider.find_feasible(c, labels);
            if !self.nominated.is_empty() {
                self.keep_nominated(member);
                is_closed = true;
            }
            if is_closed {
                for &n in self.reservations.current.iter().flat_map(|reservation| &reservation.nodes) {
                    self.decider.mask[n] = false;
                }
            }
        }
        self.is_restricted = is_closed;
        if !self.decider.asks_host() {
            return self.decider.choose_node(c, labels, is_masked).map_or(Answer::Nowhere, Answer::Node);
        }
        // The answer to the last question; the pod still fits, since nothing has happened since.
        if let Some(n) = self.answer.take() {
            self.question = None;
            return Answer::Node(n);
        }
        let is_feasible = |n| if is_masked { self.decider.mask[n] } else { self.decider.cluster.fits(c, n) };
        if (0..self.decider.nodes()).any(is_feasible) {
            self.question = Some((member, is_masked));
            return Answer::Unknown;
        }
        Answer::Nowhere
    }

    /// Close the nodes of the mask on which a pod would take the room of pods of at least its priority that are nominated
    /// there.
    ///
    /// Source: kube-scheduler 1.37, RunFilterPluginsWithNominatedPods.
    fn keep_nominated(&mut self, member: usize) {
        let before = self.decider.mask.clone();
        let mut counted = Vec::new();
        for &(pod, n) in &self.nominated {
            let Arrival { class, labels, priority, choice, .. } = self.arrivals[pod];
            if pod == member || choice.is_some() || priority < self.arrivals[member].priority {
                continue;
            }
            // As many of its devices as are idle: it waits for the others.
            let (requested, node) = (&self.decider.cluster.classes[class], &self.decider.cluster.nodes[n]);
            let idle = (0..node.gpus.len()).filter(|&d| node.gpus[d] >= requested.gpu_milli);
            let devices = idle.take(requested.gpu_count as usize).fold(0, |devices, d| devices | 1 << d);
            self.decider.count(class, labels, Choice { node: n, devices });
            counted.push((class, labels, Choice { node: n, devices }));
        }
        self.decider.find_feasible(self.arrivals[member].class, self.arrivals[member].labels);
        for (class, labels, choice) in counted.into_iter().rev() {
            self.decider.discount(class, labels, choice);
        }
        for (allowed, before) in self.decider.mask.iter_mut().zip(before) {
            *allowed &= before;
        }
    }

    /// Add (or with -1 subtract) what a node contributes to the sums.
    fn count_node(&mut self, n: usize, sign: f64) {
        let node = &self.decider.cluster.nodes[n];
        let sums = &mut self.totals.sums;
        // Sums change by the node's contribution before and after, since shares cannot be updated by the pod alone.
        let gpu = GPU * node.gpus.len() as i64;
        if gpu > 0 {
            let share = (gpu - node.gpus.iter().sum::<i64>()) as f64 / gpu as f64;
            sums[0] += sign * share;
            sums[1] += sign * share * share;
        }
        let cpu = node.allocatable[CPU];
        if cpu > 0 {
            let share = (cpu - node.free[CPU]) as f64 / cpu as f64;
            sums[2] += sign * share;
            sums[3] += sign * share * share;
        }
        for (sum, cause) in sums[4..].iter_mut().zip(self.decider.fragments[n].causes) {
            *sum += sign * cause;
        }
    }

    /// Place (1) or remove (-1) a pod on its node, and update every total over the eligible nodes.
    fn change(&mut self, arrival: usize, sign: i64) {
        let Arrival { class: c, labels, choice, .. } = self.arrivals[arrival];
        let Some(choice) = choice else { return };
        self.changes += 1;
        let n = choice.node;
        let counts = self.eligible[n];
        let is_empty = |engine: &Engine| {
            let node = &engine.decider.cluster.nodes[n];
            counts && node.allocatable[PODS] == node.free[PODS]
        };
        if counts {
            self.count_node(n, -1.0);
        }
        self.totals.nodes += i64::from(is_empty(self));
        if sign > 0 {
            self.decider.place(c, labels, choice);
        } else {
            self.decider.remove(c, labels, choice);
        }
        if let Some(observer) = &mut self.observer {
            observer.changed(n);
        }
        self.totals.nodes -= i64::from(is_empty(self));
        if counts {
            self.count_node(n, 1.0);
            let class = &self.decider.cluster.classes[c];
            self.totals.gpu_milli += sign * class.gpu_total();
            self.totals.cpu_milli += sign * class.request[CPU];
            self.totals.memory_bytes += sign * class.request[MEMORY];
        }
    }

    fn note(&mut self, time: f64, arrival: usize, outcome: Outcome) {
        let event = Event { time, arrival, outcome, choice: self.arrivals[arrival].choice, totals: self.totals };
        if let Some(observer) = &mut self.observer {
            follow(observer, &event);
        }
        self.events.push(event);
    }

    /// Start a placed pod, or the placed members of a gang.
    fn start(&mut self, arrival: usize, time: f64, waited: bool) {
        for a in arrival..arrival + self.arrivals[arrival].members {
            if self.arrivals[a].choice.is_none() {
                continue;
            }
            self.arrivals[a].started = time;
            self.queue.note_start(a, arrival);
            if waited {
                self.totals.waiting -= 1;
            }
            let duration = self.arrivals[a].duration;
            if duration < f64::INFINITY {
                let seconds = self.evictions.as_ref().map_or(duration, |all| all.accounts[a].run_seconds(duration));
                self.arrivals[a].leaves = time + seconds;
                let arrivals = &self.arrivals;
                push(&mut self.running, a, |a, b| leaves_before(arrivals, a, b));
            }
            self.note(time, a, Outcome::Bound);
        }
        if let Some(all) = &mut self.evictions {
            let waited = time - self.arrivals[arrival].since;
            let queued = &self.queue.pods[arrival];
            all.start(arrival, queued.total, waited, queued.estimated, time);
        }
    }

    /// Remove the members of a gang that were placed, too few to start.
    fn undo(&mut self, arrival: usize) {
        for a in (arrival..arrival + self.tried).rev() {
            self.change(a, -1);
            self.arrivals[a].choice = None;
        }
        (self.tried, self.refused) = (0, 0);
    }

    /// Let the members that a gang has started without be arrivals of their own, or wait on their own if they waited.
    fn separate(&mut self, arrival: usize, waited: bool) {
        for a in arrival..arrival + self.arrivals[arrival].members {
            let pod = &mut self.arrivals[a];
            (pod.members, pod.least, pod.together) = (1, 1, 1);
            if let Some(all) = &mut self.evictions {
                // They would not be evicted together.
                all.forbid(a);
            }
            if waited && pod.choice.is_none() {
                self.queue.push(a);
            }
        }
    }

    /// Whether the controller of an arrival may not make it yet: it has as many pods as it may have at a time.
    fn is_delayed(&mut self, arrival: usize) -> bool {
        let Some(k) = self.arrivals[arrival].controller else { return false };
        let controller = &mut self.controllers[k];
        if controller.room > 0 {
            return false;
        }
        controller.delayed.get_or_insert(arrival);
        true
    }

    /// Count the pods of an arrival that its controller has made.
    fn take_room(&mut self, arrival: usize, count: i64) {
        if let Some(k) = self.arrivals[arrival].controller {
            self.controllers[k].room -= count;
        }
    }

    /// Let the controller of a pod that ended make the next one, if it may not have made it before.
    fn replace(&mut self, arrival: usize) {
        let Some(k) = self.arrivals[arrival].controller else { return };
        let Some(pod) = self.controllers[k].delayed else {
            self.controllers[k].room += 1;
            return;
        };
        self.created = Some(pod);
        self.arrivals[pod].time = self.arrivals[arrival].leaves;
        self.arrivals[pod].since = self.arrivals[pod].time;
        self.queue.pods[pod].time = self.arrivals[pod].time;
        self.controllers[k].delayed = self.arrivals[pod].following.filter(|&following| following < self.arrived);
    }

    /// Whether the next pod to leave does so before the next one arrives.
    ///
    /// At equal times it leaves first, except where the order commits to one pod: then that is chosen among all that have
    /// arrived.
    fn leaves_first(&self) -> bool {
        let (leaves, arrives) = (self.arrivals[self.running[0]].leaves, self.arrivals[self.arrived].time);
        if self.queue.overtaking == Overtaking::Anybody { leaves <= arrives } else { leaves < arrives }
    }

    fn leave(&mut self) {
        let arrivals = &self.arrivals;
        let arrival = pop(&mut self.running, |a, b| leaves_before(arrivals, a, b));
        self.change(arrival, -1);
        self.finish(arrival);
        self.arrivals[arrival].has_left = true;
        self.freed = self.arrivals[arrival].choice.map(|choice| choice.node);
        self.queue.note_end(arrival, self.arrivals[arrival].duration);
        self.replace(arrival);
        self.note(self.arrivals[arrival].leaves, arrival, Outcome::Finished);
        if self.queue.waiting_groups > 0 {
            self.pass = Pass::Head;
            self.passes += 1;
        }
    }

    /// Record that an arrival was not bound, and queue it if it may wait.
    fn queue_arrival(&mut self, arrival: usize, time: f64, waits: bool) {
        let Arrival { members, shape, .. } = self.arrivals[arrival];
        // What another pod's start may let start is tried again then, even where nothing else waits.
        let is_retried = waits || self.shapes[shape].is_lifted;
        let fails = !is_retried || self.shapes[shape].is_infeasible;
        // A pod that could not run even on the empty cluster does not count as waiting. Where nothing waits the same total
        // counts failures.
        if !(waits && fails) {
            self.totals.waiting += members as i64;
        }
        if !fails {
            self.queue.push(arrival);
        }
        // The first member comes last, since the reason of the last event is asked for.
        for a in (arrival..arrival + members).rev() {
            self.note(time, a, if fails { Outcome::Failed } else { Outcome::Waiting });
        }
    }

    /// Whether a pod that waits may start now because a pod, or one of its gang, has started.
    ///
    /// Source: kube-scheduler 1.37, queueing hints of InterPodAffinity and PodTopologySpread for assigned pods.
    fn lifts(&self, arrival: usize, members: usize) -> bool {
        let started = || (arrival..arrival + members).filter(|&a| self.arrivals[a].choice.is_some());
        self.queue.shapes.iter().filter(|&&shape| self.shapes[shape].is_lifted).any(|&shape| {
            let first = self.queue.first(self.queue.active[shape][0]);
            (first..first + self.arrivals[first].members).any(|waiting| {
                let c = self.arrivals[waiting].class;
                started().any(|a| self.decider.terms.counts_pod(c, self.arrivals[a].labels))
            })
        })
    }

    // Passes over the waiting pods after one has left: who is tried, in which order, and who may not be delayed.

    fn moment(&self, now: f64) -> Moment {
        let used = if self.queue.by_gpu { self.totals.gpu_milli } else { self.totals.cpu_milli };
        let free = 1.0 - used as f64 / (GPU as f64 * self.queue.capacity);
        Moment { now, free, waiting: self.totals.waiting }
    }

    /// The pods that run and will end, in the order of the heap.
    fn running_pods(&self) -> Vec<Running> {
        let running = self.running.iter().filter_map(|&arrival| {
            let pod = &self.arrivals[arrival];
            let queued = &self.queue.pods[arrival];
            pod.choice.map(|choice| Running {
                class: pod.class,
                node: choice.node,
                devices: choice.devices,
                size: queued.size,
                started: pod.started,
                expected: pod.started + queued.estimated,
            })
        });
        running.collect()
    }

    /// Choose the pod that nobody may delay: the next one, or where anybody may overtake one that is overdue, if any.
    ///
    /// The next one stays so until it starts; of those that are overdue it is the first one now.
    fn next_head(&mut self, time: f64) {
        if self.queue.overtaking != Overtaking::Anybody {
            self.head = self.head.or_else(|| self.best_group(time));
        } else if self.queue.ageing.is_finite() {
            let before = std::mem::replace(&mut self.head, self.queue.first_overdue(time));
            if before.is_some() && self.head != before {
                self.reservations.cancel();
            }
        }
    }

    /// The group whose first pod goes next.
    fn best_group(&mut self, time: f64) -> Option<usize> {
        let moment = self.moment(time);
        let releases = if self.queue.foresees {
            foresee(&self.running_pods(), time, moment.free * self.queue.capacity)
        } else {
            Releases::new()
        };
        let waiting: Vec<usize> = self.queue.waiting().collect();
        let mut best = None;
        for g in waiting {
            self.queue.update_score(g, moment, &releases);
            if best.is_none_or(|best| self.queue.goes_before(g, best)) {
                best = Some(g);
            }
        }
        best
    }

    /// Whether a pod may start anywhere, since by its estimate it ends before the reservation begins.
    fn may_overtake(&mut self, arrival: usize, time: f64) -> bool {
        let is_missed = self.reservations.current.as_ref().is_some_and(|current| current.is_missed);
        !is_missed && time + self.queue.estimate(arrival) <= self.reservations.begins
    }

    fn update_reservation(&mut self, time: f64) {
        let Some(head) = self.head.map(|head| self.queue.first(head)) else { return };
        let Arrival { class, together, .. } = self.arrivals[head];
        if !self.reservations.is_current(time) {
            let running = self.running_pods();
            self.reservations.renew(&mut self.decider.cluster, &running, class, together.max(1), time);
        }
    }

    /// Whether a pod fits on the node that a pod left last, or on one that was reserved until now.
    fn fits_freed_nodes(&self, c: usize) -> bool {
        let cluster = &self.decider.cluster;
        self.freed.iter().chain(&self.reservations.opened).any(|&n| cluster.fits(c, n))
    }

    /// Whether pods of the shape of `a` may start if they are expected to end in time, where others may not.
    fn may_backfill(&self, a: usize) -> bool {
        let (Some(reservation), true) = (&self.reservations.current, self.head.is_some()) else { return false };
        let pod = &self.arrivals[a];
        pod.members > 1 || reservation.nodes.iter().any(|&n| self.decider.cluster.fits(pod.class, n))
    }

    /// Find the groups that may start now, and make a heap of the next one of each shape.
    ///
    /// Unless `every`, those whose pods do not fit on the node that a pod just left, nor on nodes that were reserved until
    /// now, fit nowhere, as before, or on reserved nodes alone. These are open to pods that are expected to end in time:
    /// by an estimate from history that may be only now.
    fn collect(&mut self, time: f64, every: bool) {
        self.candidates.clear();
        let moment = self.moment(time);
        for s in self.queue.shapes.clone() {
            if self.shapes[s].infeasible_in == Some(self.passes) {
                continue;
            }
            // What holds for one pod of the shape holds for all.
            let a = self.queue.first(self.queue.active[s][0]);
            let c = self.arrivals[a].class;
            let may_evict = self.may_evict(s, time);
            let is_new = every || self.fits_freed_nodes(c);
            let in_time = !is_new && self.may_backfill(a);
            if !is_new && !in_time && !may_evict && !self.decider.terms.may_have_rules(c) {
                continue;
            }
            let mut best = None;
            for g in self.queue.active[s].clone() {
                if Some(g) == self.head && self.queue.overtaking != Overtaking::Anybody {
                    continue;
                }
                let a = self.queue.first(g);
                let evicts = may_evict && !self.queue.is_second(a, time);
                let starts = is_new || evicts || (in_time && self.may_overtake(a, time));
                if !starts && !self.decider.terms.has_rules(c, self.arrivals[a].labels) {
                    continue;
                }
                self.queue.groups[g].may_start = Some(self.passes);
                self.queue.update_score(g, moment, &Releases::new());
                if best.is_none_or(|best| self.queue.goes_before(g, best)) {
                    best = Some(g);
                }
            }
            self.candidates.extend(best);
        }
        let queue = &self.queue;
        heapify(&mut self.candidates, |g, h| queue.goes_before(g, h));
    }

    /// The next group of a shape to try in this pass.
    fn next_group(&mut self, s: usize, time: f64) -> Option<usize> {
        if self.shapes[s].infeasible_in == Some(self.passes) {
            return None;
        }
        let is_refused = self.shapes[s].infeasible_beside == Some(self.passes);
        let mut best = None;
        for i in 0..self.queue.active[s].len() {
            let g = self.queue.active[s][i];
            if self.queue.groups[g].may_start != Some(self.passes) {
                continue;
            }
            if is_refused && !self.may_overtake(self.queue.first(g), time) {
                continue;
            }
            if best.is_none_or(|best| self.queue.goes_before(g, best)) {
                best = Some(g);
            }
        }
        best
    }

    /// Let the first candidate be followed by the next one of its shape, if there is one.
    fn replace_candidate(&mut self, time: f64) {
        let shape = self.queue.groups[self.candidates[0]].shape;
        let following = self.next_group(shape, time);
        let queue = &self.queue;
        match following {
            Some(g) => {
                self.candidates[0] = g;
                sink(&mut self.candidates, 0, |g, h| queue.goes_before(g, h));
            }
            None => {
                pop(&mut self.candidates, |g, h| queue.goes_before(g, h));
            }
        }
    }

    /// The group whose first pod is tried next; None: the pass is over.
    ///
    /// Unless `every`, others that fit no more where pods left, since other candidates took that, are left out.
    fn first_candidate(&mut self, time: f64, every: bool) -> Option<usize> {
        while let Some(&g) = self.candidates.first() {
            let (a, s) = (self.queue.first(g), self.queue.groups[g].shape);
            let Arrival { class: c, labels, .. } = self.arrivals[a];
            let is_tried = every
                || self.tried > 0
                || self.shapes[s].infeasible_beside == Some(self.passes)
                || self.decider.terms.has_rules(c, labels)
                || self.fits_freed_nodes(c)
                || self.may_evict(s, time);
            if is_tried {
                return Some(g);
            }
            let mark = Some(self.passes);
            if self.may_backfill(a) {
                self.shapes[s].infeasible_beside = mark;
            } else {
                self.shapes[s].infeasible_in = mark;
            }
            self.replace_candidate(time);
        }
        self.reservations.opened.clear();
        None
    }

    /// Update the queue after an attempt with the first pod of a group, the head's or the first candidate's.
    ///
    /// If a pod depends on itself and the nodes alone, not on other pods, no further pod of its shape is tried in this
    /// pass: binding pods in between cannot have freed resources.
    fn end_attempt(&mut self, g: usize, is_bound: bool, is_alone: bool, time: f64) {
        // Where anybody may overtake, the pass begins again once an overdue pod has started: there may be another one.
        let is_head = self.pass == Pass::Head || (is_bound && Some(g) == self.head);
        if is_bound {
            self.queue.pop(g);
            if is_head {
                self.head = None;
                self.reservations.cancel();
            }
        } else if is_alone {
            self.shapes[self.queue.groups[g].shape].infeasible_in = Some(self.passes);
        }
        if is_head {
            // With a head that goes on waiting, or with none, it is the others' turn.
            self.pass = match self.queue.overtaking {
                _ if is_bound => Pass::Head,
                Overtaking::Nobody => Pass::None,
                _ => Pass::Collect,
            };
            return;
        }
        if is_bound && !self.queue.groups[g].pods.is_empty() {
            self.queue.update_score(g, self.moment(time), &Releases::new());
        } else {
            self.queue.groups[g].may_start = None;
        }
        self.replace_candidate(time);
    }
}

/// Count where the pods of an owner came and went.
fn follow(observer: &mut Observer, event: &Event) {
    match (event.outcome, event.choice) {
        (Outcome::Bound, Some(choice)) => observer.count(event.arrival, choice.node, 1),
        (Outcome::Finished | Outcome::Evicted, Some(choice)) => observer.count(event.arrival, choice.node, -1),
        _ => {}
    }
}

/// Whether a running pod leaves before another one: by the time, when it started, and the arrival.
fn leaves_before(arrivals: &[Arrival], a: usize, b: usize) -> bool {
    let (one, other) = (&arrivals[a], &arrivals[b]);
    (one.leaves, one.started, a) < (other.leaves, other.started, b)
}

/// Nothing is evicted whose node another pod's plans depend on: one with a nominated node.
fn read_evictions(
    arrays: &Arrays,
    arrivals: &[Arrival],
    nominated: &[(usize, usize)],
    nodes: usize,
) -> Result<Option<Evictions>> {
    let leader = leaders(arrivals.iter().map(|arrival| arrival.members));
    let mut evictions = Evictions::read(arrays, leader, nodes)?;
    if let Some(all) = &mut evictions {
        nominated.iter().for_each(|&(pod, _)| all.forbid(pod));
    }
    Ok(evictions)
}

fn read_shapes(arrays: &Arrays) -> Result<Vec<Shape>> {
    let infeasible: Vec<bool> = arrays.list("run.infeasible")?;
    let lifted: Vec<bool> = arrays.list_of("run.lifted", infeasible.len())?;
    let shape = |(is_infeasible, is_lifted)| Shape {
        is_infeasible,
        is_lifted,
        infeasible_in: None,
        infeasible_beside: None,
        may_evict: None,
        searched: None,
    };
    Ok(infeasible.into_iter().zip(lifted).map(shape).collect())
}

fn read_arrivals(arrays: &Arrays, decider: &Decider, shapes: usize, controllers: usize) -> Result<Vec<Arrival>> {
    let class: Vec<i64> = arrays.list("arrivals.class_id")?;
    let count = class.len();
    let labels: Vec<i64> = arrays.list_of("arrivals.labels_id", count)?;
    let time: Vec<f64> = arrays.list_of("arrivals.time", count)?;
    let duration: Vec<f64> = arrays.list_of("arrivals.duration", count)?;
    let priority: Vec<i64> = arrays.list_of("arrivals.priority", count)?;
    let members: Vec<i64> = arrays.list_of("arrivals.members", count)?;
    let least: Vec<i64> = arrays.list_of("arrivals.least", count)?;
    let together: Vec<i64> = arrays.list_of("arrivals.together", count)?;
    let shape: Vec<i64> = arrays.list_of("arrivals.shape", count)?;
    let controller: Vec<i64> = arrays.list_of("arrivals.controller", count)?;
    let following: Vec<i64> = arrays.list_of("arrivals.following", count)?;
    let mut arrivals = Vec::with_capacity(count);
    for a in 0..count {
        let (class, labels) = decider.pod(class[a], labels[a])?;
        arrivals.push(Arrival {
            class,
            labels,
            time: time[a],
            duration: duration[a],
            priority: priority[a],
            members: index("arrivals.members", members[a], count - a + 1)?,
            least: index("arrivals.least", least[a], usize::MAX >> 1)?,
            together: together[a],
            shape: index("arrivals.shape", shape[a], shapes)?,
            controller: optional("arrivals.controller", controller[a], controllers)?,
            following: optional("arrivals.following", following[a], count)?,
            choice: None,
            has_left: false,
            leaves: 0.0,
            started: 0.0,
            since: time[a],
        });
    }
    Ok(arrivals)
}
