//! Evictions in the event loop: for whom, on which node, and what happens to those that are evicted.

use crate::arrays::Result;
use crate::engine::{Engine, Outcome, Pass, leaves_before};
use crate::heap::heapify;
use crate::reservation::copies_on;

/// Seconds between two looks at moments of no event.
const LOOK: f64 = 60.0;

/// What is evicted so that a pod fits on a node: the first pods of gangs.
struct Room {
    victims: Vec<usize>,
    /// What it costs, in seconds of one unit of size.
    cost: f64,
}

/// A job that may be evicted from a node.
struct Victim {
    leader: usize,
    cost: f64,
    /// What it has on the node, in the unit of the cluster's size.
    here: f64,
}

impl Engine {
    /// How often an arrival was evicted; seconds of work that are saved, that are lost, and that it ran.
    pub fn account(&self, arrival: usize) -> Result<[f64; 4]> {
        if arrival >= self.arrivals.len() {
            return Err(format!("arrival: {arrival} is not one"));
        }
        let of = |all: &crate::evictions::Evictions| {
            let account = &all.accounts[arrival];
            [f64::from(account.evictions), account.done, account.lost, account.served]
        };
        Ok(self.evictions.as_ref().map_or([0.0; 4], of))
    }

    /// Try waiting pods once more before the next event if something may be evicted from then on.
    pub(super) fn look_between_events(&mut self, is_arriving: bool) -> bool {
        let Some(all) = &mut self.evictions else { return false };
        if self.queue.waiting_groups == 0 {
            return false;
        }
        let time = all.next_ready().max(self.looked + LOOK);
        let leaves = self.running.first().map_or(f64::INFINITY, |&a| self.arrivals[a].leaves);
        let arrives = if is_arriving { self.arrivals[self.arrived].time } else { f64::INFINITY };
        if time >= leaves.min(arrives) {
            return false;
        }
        self.looked = time.max(self.events.last().map_or(0.0, |event| event.time));
        self.update_ready(self.looked);
        if self.queue.waiting().any(|g| !self.queue.was_evicted(self.queue.first(g))) {
            self.pass = Pass::Head;
            self.passes += 1;
        }
        true
    }

    /// Note which jobs may be evicted by now.
    fn update_ready(&mut self, time: f64) {
        let Some(all) = &mut self.evictions else { return };
        while let Some(leader) = all.pop_ready(time) {
            let members = self.arrivals[leader].members;
            let gang = &self.arrivals[leader..leader + members];
            if gang.iter().all(|pod| pod.choice.is_some() && !pod.has_left) {
                gang.iter().filter_map(|pod| pod.choice).for_each(|choice| all.add(leader, choice.node));
            }
        }
    }

    /// Whether pods of a shape that never ran may have others evicted now.
    pub(super) fn may_evict(&mut self, s: usize, time: f64) -> bool {
        if self.evictions.is_none() {
            return false;
        }
        let queue = &self.queue;
        let first = queue.active[s].iter().map(|&g| queue.first(g)).find(|&a| !queue.was_evicted(a));
        first.is_some_and(|a| self.arrivals[a].members == 1 && self.find_room(a, false, time).is_some())
    }

    /// Evict what costs least, so that a pod fits that never ran; return whether something was.
    pub(super) fn make_room(&mut self, arrival: usize, is_masked: bool, comes_after: bool, time: f64) -> bool {
        let is_alone = self.arrivals[arrival].members == 1 && !is_masked;
        if self.evictions.is_none() || !is_alone || self.queue.was_evicted(arrival) {
            return false;
        }
        let Some(room) = self.find_room(arrival, comes_after, time) else { return false };
        for leader in room.victims {
            self.evict(leader, time);
        }
        self.made_room = true;
        true
    }

    /// Find whom to evict so that a pod fits on a node, if that is worth it.
    ///
    /// `comes_after`: reserved nodes are closed to it.
    fn find_room(&mut self, arrival: usize, comes_after: bool, time: f64) -> Option<Room> {
        self.update_ready(time);
        let all = self.evictions.as_mut()?;
        let left = all.left_in_hour(time);
        if left == 0 || all.nodes.is_empty() {
            return None;
        }
        let size = self.queue.pods[arrival].total;
        let most = all.rules.worth * size * all.first_seconds(size);
        let mut nodes = all.nodes.clone();
        nodes.sort_unstable();
        let mut best: Option<Room> = None;
        for n in nodes {
            let is_closed = comes_after && self.reservations.current.as_ref().is_some_and(|current| current.holds(n));
            if is_closed || !self.decider.cluster.allows(self.arrivals[arrival].class, n) {
                continue;
            }
            let limit = best.as_ref().map_or(most, |best| best.cost);
            if let Some(room) = self.room_on(arrival, n, time, limit) {
                let is_better = best.as_ref().is_none_or(|best| room.cost < best.cost);
                if room.victims.len() <= left && is_better {
                    best = Some(room);
                }
            }
        }
        best
    }

    /// Whom to evict from a node, for at most `limit`.
    ///
    /// One job if one suffices, else those that cost least for what they free, without those that are not needed.
    fn room_on(&mut self, arrival: usize, n: usize, time: f64, limit: f64) -> Option<Room> {
        let all = self.evictions.as_ref()?;
        let surplus = all.rules.surplus;
        let mut victims = Vec::new();
        for &leader in &all.ready[n] {
            let pod = &self.queue.pods[leader];
            let (started, account) = (self.arrivals[leader].started, &all.accounts[leader]);
            let ends = started + pod.estimated - time;
            // By its estimate it ends before an eviction would have paid for its restart.
            let ends_soon = ends >= 0.0 && ends <= account.restart;
            if pod.priority > self.arrivals[arrival].priority || ends_soon {
                continue;
            }
            let gang = leader..leader + self.arrivals[leader].members;
            let is_here = |a: &usize| self.arrivals[*a].choice.is_some_and(|choice| choice.node == n);
            victims.push(Victim {
                leader,
                cost: account.cost(time - started) * pod.total,
                here: gang.filter(is_here).map(|a| self.queue.pods[a].size).sum(),
            });
        }
        victims.sort_by(|one, other| one.cost.total_cmp(&other.cost).then(one.leader.cmp(&other.leader)));
        let size = self.queue.pods[arrival].size;
        let cost = |chosen: &[&Victim]| {
            let freed: f64 = chosen.iter().map(|victim| self.queue.pods[victim.leader].total).sum();
            chosen.iter().map(|victim| victim.cost).sum::<f64>() + surplus * (freed - size).max(0.0)
        };
        let mut ways: Vec<(f64, Vec<usize>)> = Vec::new();
        for victim in &victims {
            ways.push((cost(&[victim]), vec![victim.leader]));
        }
        ways.sort_by(|one, other| one.0.total_cmp(&other.0));
        for (cost, leaders) in ways {
            if cost > limit {
                break;
            }
            if self.fits_without(arrival, n, &leaders) {
                return Some(Room { victims: leaders, cost });
            }
        }
        if victims.len() < 2 || victims[0].cost + victims[1].cost > limit {
            return None;
        }
        victims.sort_by(|one, other| {
            (one.cost * other.here).total_cmp(&(other.cost * one.here)).then(one.leader.cmp(&other.leader))
        });
        let mut chosen: Vec<usize> = Vec::new();
        let mut fits = false;
        for victim in &victims {
            chosen.push(victim.leader);
            if self.fits_without(arrival, n, &chosen) {
                fits = true;
                break;
            }
        }
        if !fits {
            return None;
        }
        // The last one is needed.
        for k in (0..chosen.len() - 1).rev() {
            let mut fewer = chosen.clone();
            fewer.remove(k);
            if self.fits_without(arrival, n, &fewer) {
                chosen = fewer;
            }
        }
        let left: Vec<&Victim> = victims.iter().filter(|victim| chosen.contains(&victim.leader)).collect();
        let freed: f64 = left.iter().map(|victim| self.queue.pods[victim.leader].total).sum();
        let cost = left.iter().map(|victim| victim.cost).sum::<f64>() + surplus * (freed - size).max(0.0);
        (cost <= limit).then_some(Room { victims: chosen, cost })
    }

    /// Whether a pod fits on a node without some jobs; nodes are changed and changed back.
    fn fits_without(&mut self, arrival: usize, n: usize, leaders: &[usize]) -> bool {
        let mut removed = Vec::new();
        for &leader in leaders {
            for pod in &self.arrivals[leader..leader + self.arrivals[leader].members] {
                if let Some(choice) = pod.choice.filter(|choice| choice.node == n) {
                    let cluster = &mut self.decider.cluster;
                    cluster.nodes[n].remove(&cluster.classes[pod.class], choice.devices);
                    removed.push((pod.class, choice.devices));
                }
            }
        }
        let cluster = &mut self.decider.cluster;
        let fits = copies_on(cluster, self.arrivals[arrival].class, n) > 0;
        for (class, devices) in removed {
            cluster.nodes[n].place(&cluster.classes[class], devices);
        }
        fits
    }

    /// Let a gang leave its nodes and wait again.
    fn evict(&mut self, leader: usize, time: f64) {
        self.stop_ready(leader);
        let gang = leader..leader + self.arrivals[leader].members;
        for a in gang.clone().rev() {
            let ran = time - self.arrivals[a].started;
            let Some(choice) = self.arrivals[a].choice else { continue };
            self.change(a, -1);
            self.queue.note_eviction(a);
            self.totals.waiting += 1;
            self.note(time, a, Outcome::Evicted);
            self.arrivals[a].choice = None;
            if let Some(all) = &mut self.evictions {
                all.accounts[a].evict(ran);
            }
            if !self.reservations.opened.contains(&choice.node) {
                self.reservations.opened.push(choice.node);
            }
        }
        let before = self.running.len();
        self.running.retain(|a| !gang.contains(a));
        if self.running.len() < before {
            let arrivals = &self.arrivals;
            heapify(&mut self.running, |a, b| leaves_before(arrivals, a, b));
        }
        if let Some(all) = &mut self.evictions {
            all.note_eviction(time);
            let account = &all.accounts[leader];
            self.queue.push_evicted(leader, account.done, account.restart);
        }
    }

    /// Close the account of a pod that leaves, whose gang is evicted no more.
    pub(super) fn finish(&mut self, arrival: usize) {
        let Some(all) = &mut self.evictions else { return };
        let pod = &self.arrivals[arrival];
        all.accounts[arrival].finish(pod.leaves - pod.started, pod.duration);
        let leader = all.leader[arrival];
        self.stop_ready(leader);
    }

    fn stop_ready(&mut self, leader: usize) {
        let Some(all) = &mut self.evictions else { return };
        let gang = &self.arrivals[leader..leader + self.arrivals[leader].members];
        all.stop(leader, gang.iter().filter_map(|pod| pod.choice).map(|choice| choice.node));
    }
}
