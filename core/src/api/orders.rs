//! Orders of live clusters, and run times of what ended in them.

use std::sync::{Arc, Mutex};

use super::doors::doors;
use super::{Object, answer, ask, keep, object, write};
use crate::arrays::{Result, optional};
use crate::belief::{BINS, Estimate, Seen, WEIGHTS, bin};
use crate::live_order::{Head, LiveOrder, Moment, NewPod};
use crate::order::{Order, Waiting};
use crate::order_file::OrderFile;
use crate::run_times::{GroupKey, PodKind, RunTimes};

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

fn write_estimate(Estimate { seconds, mean, spread }: Estimate, out: &mut [f64]) {
    out.copy_from_slice(&[seconds, mean, spread]);
}

/// A pod as its host tells it; its stated run time in seconds is not a number if it has none.
fn pod<'a>(requests: &'a [u8], namespace: &'a [u8], owner: &'a [u8], image: &'a [u8], stated: f64) -> PodKind<'a> {
    let stated = (!stated.is_nan()).then(|| bin(stated) as u8);
    PodKind { requests, namespace, owner, image, stated }.of_any_run()
}

/// Parts of a group: how many bytes its requests, namespace, owner and image have, and the bin of the stated run time of
/// its pods; -1: it has none, and all five: it is that of all pods.
const PARTS: usize = 5;

fn group_key(parts: &[i64], mut text: &[u8]) -> Result<Option<GroupKey>> {
    let mut take = |part: usize| match usize::try_from(parts[part]) {
        Err(_) => Ok(None),
        Ok(length) if length > text.len() => Err("parts: expected as many bytes as the text has".to_owned()),
        Ok(length) => {
            let (name, rest) = text.split_at(length);
            text = rest;
            Ok(Some(name.to_vec()))
        }
    };
    let (requests, namespace, owner, image) = (take(0)?, take(1)?, take(2)?, take(3)?);
    let stated = optional("stated", parts[4], BINS)?.map(|bin| bin as u8);
    let key = GroupKey { requests, owner: namespace.zip(owner), image, stated };
    Ok((key != GroupKey::default()).then_some(key))
}

fn names(key: Option<&GroupKey>) -> [Option<&[u8]>; PARTS - 1] {
    let owner = key.and_then(|key| key.owner.as_ref());
    let [requests, image] = [key.and_then(|key| key.requests.as_deref()), key.and_then(|key| key.image.as_deref())];
    [requests, owner.map(|(namespace, _)| &namespace[..]), owner.map(|(_, owner)| &owner[..]), image]
}

fn histogram(counts: &[f64]) -> [f32; BINS] {
    std::array::from_fn(|k| counts[k] as f32)
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

    /// Count a pod that ended after so many seconds; return 1 if it is the first one of its owner, else 0. `stated` is its
    /// stated run time, not a number: none.
    fn steersman_run_times_note(
        run_times: i64,
        requests: in u8[..],
        namespace: in u8[..],
        owner: in u8[..],
        image: in u8[..],
        stated: f64,
        seconds: f64,
    ) {
        let pod = pod(requests, namespace, owner, image, stated);
        with_run_times(run_times, |run_times| Ok(i64::from(run_times.note(&pod, seconds))))
    }

    /// Return 1 if a pod of an owner has ended, maybe in another run of it, else 0.
    fn steersman_run_times_knows(run_times: i64, namespace: in u8[..], owner: in u8[..]) {
        let pod = pod(&[], namespace, owner, &[], f64::NAN);
        with_run_times(run_times, |run_times| Ok(i64::from(run_times.knows(&pod))))
    }

    /// Write the estimate of a pod's run time in seconds, its mean, and its spread; its groups are used.
    fn steersman_run_times_estimate(
        run_times: i64,
        requests: in u8[..],
        namespace: in u8[..],
        owner: in u8[..],
        image: in u8[..],
        stated: f64,
        estimate: out f64[3],
    ) {
        let pod = pod(requests, namespace, owner, image, stated);
        with_run_times(run_times, |run_times| {
            let found = run_times.look_up(&pod);
            write_estimate(run_times.estimate(&found.keys), estimate);
            Ok(0)
        })
    }

    /// Write the probability of each bin of a pod's run time; its groups are used.
    fn steersman_run_times_distribution(
        run_times: i64,
        requests: in u8[..],
        namespace: in u8[..],
        owner: in u8[..],
        image: in u8[..],
        stated: f64,
        distribution: out f64[BINS],
    ) {
        let pod = pod(requests, namespace, owner, image, stated);
        with_run_times(run_times, |run_times| {
            let found = run_times.look_up(&pod);
            distribution.copy_from_slice(&run_times.belief().distribution(&found.keys));
            Ok(0)
        })
    }

    /// Set what is known of one group alone: the pods that ended by bin, all and recent ones, and the bin of the last one, -1
    /// for none; or, unless `after` is -1, of those that came after one of that bin. `parts`: see `PARTS`.
    fn steersman_run_times_set(
        run_times: i64,
        parts: in i64[PARTS],
        text: in u8[..],
        after: i64,
        last: i64,
        all: in f64[BINS],
        recent: in f64[BINS],
    ) {
        with_run_times(run_times, |run_times| {
            let (after, seen) = (optional("after", after, BINS)?, Seen::of(histogram(all), histogram(recent)));
            run_times.set(group_key(parts, text)?, after.map(|bin| bin as i64), seen, last).map(|()| 0)
        })
    }

    /// Write the pods of a group that ended, by bin of their run time.
    fn steersman_run_times_counts(run_times: i64, parts: in i64[PARTS], text: in u8[..], counts: out f64[BINS]) {
        with_run_times(run_times, |run_times| {
            let number = run_times.number(group_key(parts, text)?.as_ref());
            let seen = run_times.belief().seen(number);
            counts.iter_mut().zip(seen.all).for_each(|(count, pods)| *count = f64::from(pods));
            Ok(0)
        })
    }

    /// Return the number of rows of all groups, see below, and write the bytes of their names.
    fn steersman_run_times_size(run_times: i64, bytes: out i64[1]) {
        with_run_times(run_times, |run_times| {
            let mut rows = 0;
            bytes[0] = 0;
            for (key, number) in run_times.groups() {
                let followers = 1 + run_times.belief().after(number).len() as i64;
                rows += followers;
                bytes[0] += followers * names(key).into_iter().flatten().map(|name| name.len() as i64).sum::<i64>();
            }
            Ok(rows)
        })
    }

    /// Write all groups, those that were not used for longest first, and behind each those that came after a run time: the
    /// pods that ended by bin, all and recent ones; the names behind each other; and `PARTS`, after which bin they came, and
    /// the bin of the last one.
    fn steersman_run_times_groups(
        run_times: i64,
        counts: out f64[2 * BINS * count],
        parts: out i64[(PARTS + 2) * count],
        count: usize,
        text: out u8[..],
    ) {
        with_run_times(run_times, |run_times| {
            let mut text = text;
            let mut rows = counts.chunks_exact_mut(2 * BINS).zip(parts.chunks_exact_mut(PARTS + 2));
            for (key, number) in run_times.groups() {
                let belief = run_times.belief();
                let followers = belief.after(number).iter().map(|(bin, seen)| (i64::from(*bin), seen, -1));
                for (after, seen, last) in std::iter::once((-1, belief.seen(number), belief.last(number))).chain(followers) {
                    let Some((counts, parts)) = rows.next() else { return Err("count: expected all rows".to_owned()) };
                    counts.iter_mut().zip(seen.all.iter().chain(&seen.recent)).for_each(|(out, &pods)| *out = f64::from(pods));
                    let stated = key.and_then(|key| key.stated).map_or(-1, i64::from);
                    parts[PARTS - 1..].copy_from_slice(&[stated, after, last]);
                    for (length, name) in parts.iter_mut().zip(names(key)) {
                        *length = name.map_or(-1, |name| name.len() as i64);
                        let name = name.unwrap_or_default();
                        if name.len() > text.len() {
                            return Err("text: expected room for all names".to_owned());
                        }
                        let (here, rest) = std::mem::take(&mut text).split_at_mut(name.len());
                        here.copy_from_slice(name);
                        text = rest;
                    }
                }
            }
            Ok(0)
        })
    }

    /// Write how much each histogram counts, and the sums of the squares of their gradients.
    fn steersman_run_times_weights(run_times: i64, weights: out f64[WEIGHTS], squares: out f64[WEIGHTS]) {
        with_run_times(run_times, |run_times| {
            let [known, known_squares] = run_times.weights();
            weights.copy_from_slice(known);
            squares.copy_from_slice(known_squares);
            Ok(0)
        })
    }

    /// Write how many bytes of an owner's name tell those of any run of it, and its series, see `PodKind`.
    fn steersman_owner_lengths(owner: in u8[..], lengths: out i64[2]) {
        let pod = pod(&[], &[], owner, &[], f64::NAN);
        lengths.copy_from_slice(&[pod.owner.len() as i64, pod.of_series().owner.len() as i64]);
        0
    }

    fn steersman_run_times_set_weights(run_times: i64, weights: in f64[WEIGHTS], squares: in f64[WEIGHTS]) {
        with_run_times(run_times, |run_times| run_times.set_weights(weights, squares).map(|()| 0))
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
        image: in u8[..],
        stated_to_owner: f64,
    ) {
        let kind = pod(requests, namespace, owner, image, stated_to_owner);
        with_order(order, |order, run_times| {
            let pod = NewPod { priority, size, given, stated, kind };
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

    /// Write the estimate of a group, its mean and its spread; not a number if the order does without.
    fn steersman_order_estimate(order: i64, group: i64, estimate: out f64[3]) {
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
