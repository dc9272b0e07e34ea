//! A reservation for the pod that goes next but fits nowhere yet, so that pods which overtake it never delay it.
//!
//! It begins when the pod, or every pod of its gang, would fit if running pods ended as estimated and nothing else
//! started. Whoever overtakes ends before that by its own estimate, goes to another node, or leaves room for the reserved
//! pods beside it. Source: EASY backfilling of Lifka, "The ANL/IBM SP Scheduling System" (JSSPP 1995), with nodes instead
//! of a pool.
//!
//! If pods run for longer than estimated, and the reservation is missed, a second one follows. On its nodes nobody starts
//! any more but beside it, whatever the estimates: the pod waits no longer than for what runs there by then.

use std::collections::BTreeMap;

use crate::cluster::{Class, Cluster, Node};
use crate::heap::{heapify, pop};
use crate::queue::Releases;

const MANY: i64 = 1 << 30;

/// A pod that runs and will end.
#[derive(Clone, Copy)]
pub struct Running {
    pub class: usize,
    pub node: usize,
    pub devices: u64,
    /// What it requests, in the unit of the cluster's size.
    pub size: f64,
    pub started: f64,
    /// When it ends by its estimate.
    pub expected: f64,
}

impl Running {
    /// When it ends: one that has outrun its estimate is expected to run for as long again as it has so far.
    fn end(&self, now: f64) -> f64 {
        if self.expected >= now { self.expected } else { now + (now - self.started).max(1.0) }
    }
}

/// Nodes on which the pod that goes next will start.
#[derive(Clone)]
pub struct Reservation {
    /// When it begins, infinite: nobody knows.
    pub begins: f64,
    /// Whether one for the same pod was missed, because pods ran for longer than estimated.
    pub is_missed: bool,
    /// The reserved nodes.
    pub nodes: Vec<usize>,
    /// By node: how many pods are reserved there, and what is left of it by then, without these pods.
    reserved: BTreeMap<usize, (i64, Node)>,
}

/// The reservation of a run, if there is one.
#[derive(Clone)]
pub struct Reservations {
    pub current: Option<Reservation>,
    /// When the last one begins, or would have begun.
    pub begins: f64,
    /// Nodes of reservations that ended since waiting pods were last tried.
    pub opened: Vec<usize>,
}

/// How many pods of a class fit on a node now.
pub fn copies_on(cluster: &Cluster, c: usize, n: usize) -> i64 {
    if cluster.fits(c, n) { room(&cluster.nodes[n], &cluster.classes[c]) } else { 0 }
}

/// How many pods fit on a node on which one does. Exact for whole devices and for shares of one.
fn room(node: &Node, class: &Class) -> i64 {
    let requested = class.request.iter().zip(&node.free).filter(|(request, _)| **request > 0);
    let mut count = requested.map(|(request, free)| free / request).min().unwrap_or(MANY).min(MANY);
    if class.gpu_count > 0 && !node.counts_gpus(class) {
        let shares: i64 = node.gpus.iter().map(|&left| left.max(0) / class.gpu_milli).sum();
        count = count.min(shares / class.gpu_count);
    }
    count.max(1)
}

/// Whether so many pods of a class fit on the nodes now, if other pods do not matter to them.
///
/// `closed`: nodes of the reservation are closed to them.
pub fn fits_together(cluster: &Cluster, c: usize, members: i64, closed: Option<&Reservation>) -> bool {
    let mut missing = members;
    for n in 0..cluster.nodes.len() {
        if closed.is_some_and(|reservation| reservation.holds(n)) {
            continue;
        }
        missing -= copies_on(cluster, c, n);
        if missing <= 0 {
            return true;
        }
    }
    false
}

/// When running pods are expected to end, and what will be free by then, from what is free now.
pub fn foresee(running: &[Running], now: f64, mut free: f64) -> Releases {
    let mut ends = Ends::new(running, now);
    let mut releases = Releases::with_capacity(running.len());
    while let Some(pod) = ends.pop() {
        free += pod.size;
        releases.push((pod.end(now), free));
    }
    releases
}

/// Running pods by their expected ends.
struct Ends<'a> {
    running: &'a [Running],
    heap: Vec<usize>,
    now: f64,
}

impl<'a> Ends<'a> {
    fn new(running: &'a [Running], now: f64) -> Self {
        let mut heap: Vec<usize> = (0..running.len()).collect();
        heapify(&mut heap, |i, j| running[i].end(now) < running[j].end(now));
        Ends { running, heap, now }
    }

    fn pop(&mut self) -> Option<&'a Running> {
        let (running, now) = (self.running, self.now);
        let is_empty = self.heap.is_empty();
        (!is_empty).then(|| &running[pop(&mut self.heap, |i, j| running[i].end(now) < running[j].end(now))])
    }

    fn next_end(&self) -> Option<f64> {
        self.heap.first().map(|&i| self.running[i].end(self.now))
    }
}

impl Reservation {
    /// Make a reservation for `members` pods of a class, none of which may fit now if it is one.
    ///
    /// Nodes of the cluster are changed and changed back.
    fn make(cluster: &mut Cluster, running: &[Running], c: usize, members: i64, now: f64, is_missed: bool) -> Self {
        let nodes = cluster.nodes.len();
        let mut made = Reservation { begins: f64::INFINITY, is_missed, nodes: Vec::new(), reserved: BTreeMap::new() };
        let is_gang = members > 1;
        let mut together = if is_gang { (0..nodes).map(|n| copies_on(cluster, c, n)).sum() } else { 0 };
        let (mut ends, mut removed) = (Ends::new(running, now), Vec::new());
        while let Some(pod) = ends.pop() {
            let before = if is_gang { copies_on(cluster, c, pod.node) } else { 0 };
            remove(cluster, pod);
            removed.push(pod);
            together += copies_on(cluster, c, pod.node) - before;
            if together >= members {
                made.begins = pod.end(now);
                // What ends at the same moment leaves room for others.
                while ends.next_end() == Some(made.begins) {
                    if let Some(other) = ends.pop() {
                        remove(cluster, other);
                        removed.push(other);
                    }
                }
                made.take(cluster, c, members, pod.node);
                break;
            }
        }
        for pod in removed {
            cluster.nodes[pod.node].place(&cluster.classes[pod.class], pod.devices);
        }
        made
    }

    /// Reserve nodes for all members, `first` before others, with what is left of the nodes now.
    fn take(&mut self, cluster: &Cluster, c: usize, mut members: i64, first: usize) {
        let others = (0..cluster.nodes.len()).filter(|&n| n != first);
        for n in std::iter::once(first).chain(others) {
            let taken = copies_on(cluster, c, n).min(members);
            if taken > 0 {
                self.reserved.insert(n, (taken, cluster.nodes[n].clone()));
                self.nodes.push(n);
            }
            members -= taken;
            if members == 0 {
                return;
            }
        }
    }

    pub fn holds(&self, n: usize) -> bool {
        self.reserved.contains_key(&n)
    }

    /// Count a pod on a reserved node for good, if the reserved pods of class `c` still fit there.
    pub fn leaves_room(&mut self, cluster: &Cluster, c: usize, n: usize, other: usize, devices: u64) -> bool {
        let Some((pods, left)) = self.reserved.get_mut(&n) else { return true };
        let (class, other) = (&cluster.classes[c], &cluster.classes[other]);
        left.place(other, devices);
        let enough = if cluster.allows(c, n) && left.has_room(class) { room(left, class) } else { 0 };
        if enough >= *pods {
            return true;
        }
        left.remove(other, devices);
        false
    }
}

fn remove(cluster: &mut Cluster, pod: &Running) {
    cluster.nodes[pod.node].remove(&cluster.classes[pod.class], pod.devices);
}

impl Reservations {
    pub fn none() -> Self {
        Reservations { current: None, begins: f64::INFINITY, opened: Vec::new() }
    }

    /// Whether there is a reservation, and the head needs no second one: it need not have started by now.
    pub fn is_current(&self, now: f64) -> bool {
        self.current.as_ref().is_some_and(|current| current.is_missed || now <= current.begins)
    }

    /// Make the head's reservation, or a second one.
    pub fn renew(&mut self, cluster: &mut Cluster, running: &[Running], c: usize, members: i64, now: f64) {
        let is_missed = self.current.is_some();
        self.cancel();
        let made = Reservation::make(cluster, running, c, members, now, is_missed);
        self.begins = made.begins;
        self.current = Some(made);
    }

    /// End the reservation.
    pub fn cancel(&mut self) {
        for n in self.current.take().map(|current| current.nodes).unwrap_or_default() {
            if !self.opened.contains(&n) {
                self.opened.push(n);
            }
        }
    }
}
