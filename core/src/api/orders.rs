//! Orders of live clusters, and run times of what ended in them.

use std::sync::{Arc, Mutex};

use super::doors::doors;
use super::{Object, answer, ask, keep, object, write};
use crate::arrays::Result;
use crate::history::{BINS, Estimate};
use crate::live_order::{Head, LiveOrder, Moment, NewPod};
use crate::order::{Order, Waiting};
use crate::order_file::OrderFile;
use crate::run_times::{PodKind, RunTimes};

fn with_run_times(number: i64, call: impl FnOnce(&mut RunTimes) -> Result<i64>) -> i64 {
    answer(|| match object(number)? {
        Object::RunTimes(run_times) => ask(&run_times, call),
        _ => Err(format!("object {number} is not a history of run times")),
    })
}

fn with_order(number: i64, call: impl FnOnce(&mut LiveOrder, &mut RunTimes) -> Result<i64>) -> i64 {
    answer(|| match object(number)? {
        Object::LiveOrder(order, run_times) => ask(&order, |order| ask(&run_times, |times| call(order, times))),
        _ => Err(format!("object {number} is not an order")),
    })
}

fn write_estimate(Estimate { median, spread }: Estimate, out: &mut [f64]) {
    out.copy_from_slice(&[median, spread]);
}

/// The requests, namespace and owner of a group, where it has them.
fn names(key: Option<&crate::run_times::GroupKey>) -> [Option<&[u8]>; 3] {
    let owner = key.and_then(|key| key.owner.as_ref());
    let requests = key.and_then(|key| key.requests.as_deref());
    [requests, owner.map(|(namespace, _)| &namespace[..]), owner.map(|(_, owner)| &owner[..])]
}

/// Numbers of a waiting pod, see `Waiting`.
const WAITING: usize = 9;

fn order_file(number: i64) -> Result<Arc<OrderFile>> {
    match object(number)? {
        Object::OrderFile(file) => Ok(file),
        _ => Err(format!("object {number} is not an order file")),
    }
}

doors! {
    /// Make a history of run times of which nothing has ended, with at most so many groups; return its number.
    fn steersman_run_times_new(most: usize) {
        answer(|| Ok(keep(Object::RunTimes(Arc::new(Mutex::new(RunTimes::new(most)?))))))
    }

    /// Count a pod that ended after so many seconds; return 1 if it is the first one of its owner, else 0.
    fn steersman_run_times_note(
        run_times: i64,
        requests: in u8[..],
        namespace: in u8[..],
        owner: in u8[..],
        seconds: f64,
    ) {
        let pod = PodKind { requests, namespace, owner };
        with_run_times(run_times, |run_times| Ok(i64::from(run_times.note(&pod.of_any_run(), seconds))))
    }

    /// Return 1 if a pod of an owner has ended, maybe in another run of it, else 0.
    fn steersman_run_times_knows(run_times: i64, namespace: in u8[..], owner: in u8[..]) {
        let pod = PodKind { requests: &[], namespace, owner };
        with_run_times(run_times, |run_times| Ok(i64::from(run_times.knows(&pod.of_any_run()))))
    }

    /// Write the median of a pod's run time in seconds and its spread; its groups are used.
    fn steersman_run_times_estimate(
        run_times: i64,
        requests: in u8[..],
        namespace: in u8[..],
        owner: in u8[..],
        estimate: out f64[2],
    ) {
        let pod = PodKind { requests, namespace, owner };
        with_run_times(run_times, |run_times| {
            let found = run_times.look_up(&pod.of_any_run());
            write_estimate(run_times.estimate(&found.keys), estimate);
            Ok(0)
        })
    }

    /// Add pods that ended before, by bin of their run time, to the group of a level (0 all pods, 1 of the same requests, 2 of
    /// the same owner, 3 of both) alone. The owner is not changed.
    fn steersman_run_times_add(
        run_times: i64,
        level: i64,
        requests: in u8[..],
        namespace: in u8[..],
        owner: in u8[..],
        counts: in f64[BINS],
    ) {
        let pod = PodKind { requests, namespace, owner };
        with_run_times(run_times, |run_times| run_times.add(level, &pod, counts).map(|()| 0))
    }

    /// Write the pods of the group of a level that ended, by bin of their run time. The owner is not changed.
    fn steersman_run_times_counts(
        run_times: i64,
        level: i64,
        requests: in u8[..],
        namespace: in u8[..],
        owner: in u8[..],
        counts: out f64[BINS],
    ) {
        let pod = PodKind { requests, namespace, owner };
        with_run_times(run_times, |run_times| {
            counts.copy_from_slice(run_times.counts(level, &pod)?);
            Ok(0)
        })
    }

    /// Return the number of groups, that of all pods among them, and write the bytes of their names.
    fn steersman_run_times_size(run_times: i64, bytes: out i64[1]) {
        with_run_times(run_times, |run_times| {
            bytes[0] = run_times.groups().flat_map(|(key, _)| names(key)).flatten().map(|name| name.len() as i64).sum();
            Ok(run_times.groups().count() as i64)
        })
    }

    /// Write all groups, those that were not used for longest first: the pods that ended by bin, and the names: requests,
    /// namespace and owner of each behind each other, and their lengths, -1 for any.
    fn steersman_run_times_groups(
        run_times: i64,
        counts: out f64[BINS * count],
        lengths: out i64[3 * count],
        count: usize,
        text: out u8[..],
    ) {
        with_run_times(run_times, |run_times| {
            let mut text = text;
            let rows = counts.chunks_exact_mut(BINS).zip(lengths.chunks_exact_mut(3));
            for ((key, found), (counts, lengths)) in run_times.groups().zip(rows) {
                counts.copy_from_slice(found);
                for (length, name) in lengths.iter_mut().zip(names(key)) {
                    let name = match name {
                        Some(name) if name.len() > text.len() => return Err("text: expected room for all names".to_owned()),
                        Some(name) => name,
                        None => {
                            *length = -1;
                            continue;
                        }
                    };
                    *length = name.len() as i64;
                    let (own, rest) = std::mem::take(&mut text).split_at_mut(name.len());
                    own.copy_from_slice(name);
                    text = rest;
                }
            }
            Ok(0)
        })
    }

    /// Make an order of a kind with weights, whose estimates follow run times; return its number. Pods that have waited for
    /// longer than `ageing` seconds go before all others of their priority; `began`: when arrivals count from.
    fn steersman_order_new(run_times: i64, kind: i64, weights: in f64[..], ageing: f64, began: f64) {
        answer(|| {
            let Object::RunTimes(run_times) = object(run_times)? else {
                return Err(format!("object {run_times} is not a history of run times"));
            };
            let order = LiveOrder::new(Order::read(kind, weights.to_vec())?, ageing, began);
            Ok(keep(Object::LiveOrder(Arc::new(Mutex::new(order)), run_times)))
        })
    }

    /// Count a pod in its group of an order; `stated` is its estimate in seconds, not a number: from the run times. Return
    /// twice the number of its group, plus 1 if it belongs to another one as soon as a pod of its owner has ended.
    fn steersman_order_join(
        order: i64,
        priority: i64,
        size: f64,
        given: f64,
        stated: f64,
        requests: in u8[..],
        namespace: in u8[..],
        owner: in u8[..],
    ) {
        let pod = PodKind { requests, namespace, owner };
        with_order(order, |order, run_times| {
            let pod = NewPod { priority, size, given, stated, kind: pod.of_any_run() };
            let (group, waits) = order.join(&pod, run_times);
            Ok(2 * group as i64 + i64::from(waits))
        })
    }

    /// Count a pod of a group no more.
    fn steersman_order_leave(order: i64, group: i64) {
        with_order(order, |order, _| order.leave(group).map(|()| 0))
    }

    /// Set the scores of groups, where the order's are given.
    fn steersman_order_give(order: i64, groups: in i64[count], scores: in f64[count], count: usize) {
        with_order(order, |order, _| order.give(groups, scores).map(|()| 0))
    }

    /// Write the median and the spread of a group's estimate; not a number if the order does without.
    fn steersman_order_estimate(order: i64, group: i64, estimate: out f64[2]) {
        with_order(order, |order, run_times| {
            write_estimate(order.estimate(group, run_times)?, estimate);
            Ok(0)
        })
    }

    /// Return which of `count` groups goes next, at least one, and write their scores. `capacity`: the size of the cluster;
    /// `free`: its free share; `waiting` pods wait.
    fn steersman_order_first(order: i64, heads: out Head[..], now: f64, capacity: f64, free: f64, waiting: f64) {
        with_order(order, |order, run_times| {
            order.first(heads, &Moment { now, capacity, free, waiting }, run_times).map(|first| first as i64)
        })
    }

    /// Write the scores of pods, of each: estimated seconds, spread, size, share of the cluster, seconds waited, when it
    /// arrived, free share of the cluster, pods that wait, delay.
    fn steersman_order_scores(order: i64, pods: in f64[WAITING * count], scores: out f64[count], count: usize) {
        with_order(order, |order, _| {
            for (score, pod) in scores.iter_mut().zip(pods.chunks_exact(WAITING)) {
                let &[run_time, spread, size, share, wait, arrived, free, queue, delay] = pod else { continue };
                let pod = Waiting { run_time, spread, size, share, wait, arrived, free, queue, delay };
                *score = order.score(&pod);
            }
            Ok(0)
        })
    }

    /// Read the bytes of an order file of this name, or of a policy file; return its number.
    fn steersman_order_file_new(bytes: in u8[..], name: in u8[..]) {
        answer(|| Ok(keep(Object::OrderFile(Arc::new(OrderFile::read(&String::from_utf8_lossy(name), bytes)?)))))
    }

    /// Write the card of an order file, or of a policy file, in JSON; return its length.
    fn steersman_order_file_card(file: i64, card: out u8[..]) {
        answer(|| Ok(write(&order_file(file)?.card, card) as i64))
    }

    /// Write the weights of an order file; return how many there are, 0 of a policy file.
    fn steersman_order_file_weights(file: i64, weights: out f64[..]) {
        answer(|| {
            let file = order_file(file)?;
            weights.iter_mut().zip(&file.weights).for_each(|(weight, &value)| *weight = value);
            Ok(file.weights.len() as i64)
        })
    }
}
