//! Evictions in the event loop: for whom, on which node, and what happens to those that are evicted.

use crate::arrays::Result;
use crate::engine::{Engine, Outcome, Pass, leaves_before};
use crate::evictions::Account;
use crate::heap::{remove, sort_few};
use crate::queue::{Evicted, QueuedPod};
use crate::reservation::copies_on;

/// Seconds between two looks at moments of no event.
const LOOK: f64 = 60.0;

/// Up to which change of nodes nothing was found to evict for a shape, for pods that need as much or more.
#[derive(Clone, Copy)]
pub(super) struct Searched {
    until: usize,
    needed: f64,
    priority: i64,
}

/// For how long a job is expected to run on; one that has outrun its estimate, for as long again as it had run by then.
fn seconds_left(pod: &QueuedPod, account: &Account, ran: f64) -> f64 {
    if ran + 1e-6 < pod.estimated { pod.estimated - ran } else { pod.estimated + account.done }
}

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

/// Sort the jobs of a node by a key, then by number.
fn sort(victims: &mut [Victim], key: fn(&Victim) -> f64) {
    sort_few(victims, |a, b| (key(a), a.leader) < (key(b), b.leader));
}

impl Engine {
    /// How often an arrival was evicted; seconds of work that are saved, that are lost, and that it ran.
    pub fn account(&self, arrival: usize) -> Result<[f64; 4]> {
        let Some(all) = &self.evictions else { return Ok([0.0; 4]) };
        let account = all.accounts.get(arrival).ok_or_else(|| format!("arrival: {arrival} is not one"))?;
        Ok([f64::from(account.evictions), account.done, account.lost, account.served])
    }

    /// Try waiting pods once more before the next event if something may be evicted from then on.
    #[inline(never)]
    pub(super) fn look_between_events(&mut self, is_arriving: bool) -> bool {
        let Some(all) = &mut self.evictions else { return false };
        if self.queue.waiting_groups == 0 {
            return false;
        }
        let time = all.next_ready().min(all.next_return()).max(self.looked + LOOK);
        let leaves = self.running.first().map_or(f64::INFINITY, |&a| self.arrivals[a].leaves);
        let arrives = if is_arriving { self.arrivals[self.arrived].time } else { f64::INFINITY };
        if time >= leaves.min(arrives) {
            return false;
        }
        self.looked = time.max(self.events.last().map_or(0.0, |event| event.time));
        all.pass_returns(self.looked);
        self.update_ready(self.looked);
        if self.queue.waiting().any(|g| !self.queue.is_second(self.queue.first(g), self.looked)) {
            self.pass = Pass::Head;
            self.passes += 1;
        }
        true
    }

    /// Note which jobs may be evicted by now.
    #[inline(never)]
    fn update_ready(&mut self, time: f64) {
        let Some(all) = &mut self.evictions else { return };
        while let Some(leader) = all.pop_ready(time) {
            let members = self.arrivals[leader].members;
            let gang = &self.arrivals[leader..leader + members];
            if gang.iter().all(|pod| pod.choice.is_some() && !pod.has_left) {
                let size = self.queue.pods[leader].total;
                let left = seconds_left(&self.queue.pods[leader], &all.accounts[leader], time - gang[0].started);
                gang.iter().filter_map(|pod| pod.choice).for_each(|choice| all.add(leader, size, choice.node, left));
            }
        }
    }

    /// Whether pods of a shape may have others evicted in this pass.
    #[inline(never)]
    pub(super) fn may_evict(&mut self, s: usize, time: f64) -> bool {
        if self.evictions.is_none() {
            return false;
        }
        if let Some((pass, found)) = self.shapes[s].may_evict {
            if pass == self.passes {
                return found;
            }
        }
        // What is not worth it for the one that is expected to run shortest is for none of them.
        let mut least: Option<(f64, i64, usize)> = None;
        for k in 0..self.queue.active[s].len() {
            let a = self.queue.first(self.queue.active[s][k]);
            if self.arrivals[a].members == 1 && !self.queue.is_second(a, time) {
                let (seconds, priority) = (self.needed_seconds(a), self.arrivals[a].priority);
                let (shortest, highest, _) = least.unwrap_or((seconds, priority, a));
                least = Some((shortest.min(seconds), highest.max(priority), a));
            }
        }
        let found = least.is_some_and(|(needed, priority, a)| self.has_room(a, needed, priority, time));
        self.shapes[s].may_evict = Some((self.passes, found));
        found
    }

    /// Whether a pod may have others evicted, if it needs so many seconds and has such a priority.
    ///
    /// Only nodes are searched that have changed since the last time that nothing was found for the shape, unless that was
    /// for one that needed more.
    #[inline(never)]
    fn has_room(&mut self, arrival: usize, needed: f64, priority: i64, time: f64) -> bool {
        self.update_ready(time);
        let (s, c) = (self.arrivals[arrival].shape, self.arrivals[arrival].class);
        let Some(all) = &mut self.evictions else { return false };
        if all.left_in_hour(time) == 0 || all.nodes.is_empty() {
            return false;
        }
        let limit = all.most_cost(self.queue.pods[arrival].total);
        let (count, end) = (all.nodes.len(), all.changed.len());
        let before = self.shapes[s].searched.filter(|before| {
            !all.has_checkpoints
                && needed >= before.needed
                && priority <= before.priority
                && end - before.until <= count
        });
        let begin = before.map_or(0, |before| before.until);
        for k in 0..if before.is_some() { end - begin } else { count } {
            let Some(all) = &self.evictions else { return false };
            let n = if before.is_some() { all.changed[begin + k] } else { all.nodes[k] };
            if all.ready[n].is_empty()
                || all.longest[n] < needed
                || all.cheapest[n] > limit
                || !self.decider.cluster.allows(c, n)
            {
                continue;
            }
            let victims = self.victims_on(n, priority, needed, time);
            if self.room_on(c, n, victims, limit).is_some() {
                if let Some(before) = &mut self.shapes[s].searched {
                    before.until = begin + k;
                }
                if before.is_none() {
                    self.shapes[s].searched = None;
                }
                return true;
            }
        }
        let needed = before.map_or(needed, |before| before.needed.max(needed));
        let priority = before.map_or(priority, |before| before.priority.min(priority));
        self.shapes[s].searched = Some(Searched { until: end, needed, priority });
        false
    }

    /// Evict what costs least, so that a pod of the first queue fits; return whether something was.
    #[inline(never)]
    pub(super) fn make_room(&mut self, arrival: usize, is_masked: bool, comes_after: bool, time: f64) -> bool {
        let is_alone = self.arrivals[arrival].members == 1 && !is_masked;
        if self.evictions.is_none() || !is_alone || self.queue.is_second(arrival, time) {
            return false;
        }
        let Some(room) = self.find_room(arrival, comes_after, time) else { return false };
        for leader in room.victims {
            self.evict(leader, time);
        }
        self.made_room = true;
        true
    }

    /// Seconds that what is evicted for a pod must still be expected to run: as long as the pod, or as long as the first
    /// queue lasts for one that was evicted itself.
    fn needed_seconds(&mut self, arrival: usize) -> f64 {
        match &self.evictions {
            Some(all) if all.accounts[arrival].evictions > 0 => all.first_seconds(self.queue.pods[arrival].total),
            _ => self.queue.estimate(arrival),
        }
    }

    /// Find whom to evict so that a pod fits on a node, if that is worth it.
    ///
    /// `comes_after`: reserved nodes are closed to it.
    #[inline(never)]
    fn find_room(&mut self, arrival: usize, comes_after: bool, time: f64) -> Option<Room> {
        let (needed, priority) = (self.needed_seconds(arrival), self.arrivals[arrival].priority);
        if !self.has_room(arrival, needed, priority, time) {
            return None;
        }
        let all = self.evictions.as_mut()?;
        let left = all.left_in_hour(time);
        let mut limit = all.most_cost(self.queue.pods[arrival].total);
        let mut nodes = all.nodes.clone();
        nodes.sort_unstable();
        let c = self.arrivals[arrival].class;
        let reservation = self.reservations.current.as_ref().filter(|_| comes_after);
        nodes.retain(|&n| {
            all.longest[n] >= needed
                && self.decider.cluster.allows(c, n)
                && !reservation.is_some_and(|current| current.holds(n))
        });
        let mut best: Option<Room> = None;
        for n in nodes {
            if self.evictions.as_ref().is_none_or(|all| all.cheapest[n] > limit) {
                continue;
            }
            let victims = self.victims_on(n, priority, needed, time);
            let Some(room) = self.room_on(c, n, victims, limit) else { continue };
            if room.victims.len() <= left {
                // Others must cost less.
                limit = room.cost * (1.0 - 1e-12);
                best = Some(room);
            }
        }
        best
    }

    /// Who may be evicted from a node for a pod, those first that cost least.
    #[inline(never)]
    fn victims_on(&self, n: usize, priority: i64, needed: f64, time: f64) -> Vec<Victim> {
        let Some(all) = &self.evictions else { return Vec::new() };
        let mut victims = Vec::new();
        for &leader in &all.ready[n] {
            let (pod, account) = (&self.queue.pods[leader], &all.accounts[leader]);
            let ran = time - self.arrivals[leader].started;
            let left = seconds_left(pod, account, ran);
            if pod.priority > priority || left < needed || left <= account.restart {
                continue;
            }
            let gang = leader..leader + self.arrivals[leader].members;
            let is_here = |a: &usize| self.arrivals[*a].choice.is_some_and(|choice| choice.node == n);
            victims.push(Victim {
                leader,
                cost: account.cost(ran) * pod.total,
                here: gang.filter(is_here).map(|a| self.queue.pods[a].size).sum(),
            });
        }
        sort(&mut victims, |victim| victim.cost);
        victims
    }

    /// Whom to evict from a node so that a pod of a class fits, for at most `limit`.
    ///
    /// One job if one suffices, else those that cost least for what they free, without those that are not needed.
    #[inline(never)]
    fn room_on(&mut self, c: usize, n: usize, mut victims: Vec<Victim>, limit: f64) -> Option<Room> {
        for victim in victims.iter().take_while(|victim| victim.cost <= limit) {
            if self.fits_without(c, n, std::slice::from_ref(victim)) {
                return Some(Room { victims: vec![victim.leader], cost: victim.cost });
            }
        }
        if victims.len() < 2 || victims[0].cost + victims[1].cost > limit || !self.fits_without(c, n, &victims) {
            return None;
        }
        sort(&mut victims, |victim| victim.cost / victim.here.max(1e-9));
        let count = (2..=victims.len()).find(|&count| self.fits_without(c, n, &victims[..count]))?;
        victims.truncate(count);
        // The last one is needed.
        for k in (0..count - 1).rev() {
            let victim = victims.remove(k);
            if !self.fits_without(c, n, &victims) {
                victims.insert(k, victim);
            }
        }
        let cost = victims.iter().map(|victim| victim.cost).sum();
        (cost <= limit).then(|| Room { victims: victims.iter().map(|victim| victim.leader).collect(), cost })
    }

    /// Whether a pod fits on a node without some jobs; nodes are changed and changed back.
    #[inline(never)]
    fn fits_without(&mut self, c: usize, n: usize, victims: &[Victim]) -> bool {
        let mut removed = Vec::new();
        for &Victim { leader, .. } in victims {
            for pod in &self.arrivals[leader..leader + self.arrivals[leader].members] {
                if let Some(choice) = pod.choice.filter(|choice| choice.node == n) {
                    let cluster = &mut self.decider.cluster;
                    cluster.nodes[n].remove(&cluster.classes[pod.class], choice.devices);
                    removed.push((pod.class, choice.devices));
                }
            }
        }
        let cluster = &mut self.decider.cluster;
        let fits = copies_on(cluster, c, n) > 0;
        for (class, devices) in removed {
            cluster.nodes[n].place(&cluster.classes[class], devices);
        }
        fits
    }

    /// Let a gang leave its nodes and wait again.
    #[inline(never)]
    fn evict(&mut self, leader: usize, time: f64) {
        self.stop_ready(leader);
        let gang = leader..leader + self.arrivals[leader].members;
        for a in gang.clone().rev() {
            let ran = time - self.arrivals[a].started;
            let Some(choice) = self.arrivals[a].choice else { continue };
            self.change(a, -1);
            self.touch(choice.node);
            self.queue.note_eviction(a);
            self.totals.waiting += 1;
            self.note(time, a, Outcome::Evicted);
            self.arrivals[a].choice = None;
            self.arrivals[a].since = time;
            if let Some(all) = &mut self.evictions {
                all.accounts[a].evict(ran);
            }
            if !self.reservations.opened.contains(&choice.node) {
                self.reservations.opened.push(choice.node);
            }
        }
        for a in gang {
            if let Some(place) = self.running.iter().position(|&other| other == a) {
                let arrivals = &self.arrivals;
                remove(&mut self.running, place, |a, b| leaves_before(arrivals, a, b));
            }
        }
        if let Some(all) = &mut self.evictions {
            all.note_eviction(time);
            let account = all.accounts[leader].clone();
            let returns = all.return_at(leader, time);
            self.queue.push_evicted(leader, Evicted { done: account.done, restart: account.restart, returns });
        }
    }

    /// Close the account of a pod that leaves, whose gang is evicted no more.
    #[inline(never)]
    pub(super) fn finish(&mut self, arrival: usize) {
        let Some(all) = &mut self.evictions else { return };
        let pod = &self.arrivals[arrival];
        pod.choice.iter().for_each(|choice| all.touch(choice.node));
        all.accounts[arrival].finish(pod.leaves - pod.started, pod.duration);
        let leader = all.leader[arrival];
        self.stop_ready(leader);
    }

    fn touch(&mut self, n: usize) {
        if let Some(all) = &mut self.evictions {
            all.touch(n);
        }
    }

    fn stop_ready(&mut self, leader: usize) {
        let Some(all) = &mut self.evictions else { return };
        let gang = &self.arrivals[leader..leader + self.arrivals[leader].members];
        all.stop(leader, gang.iter().filter_map(|pod| pod.choice).map(|choice| choice.node));
    }
}
