//! Orders of live clusters, and run times of what ended in them.

use std::sync::{Arc, Mutex};

use super::{Object, answer, ask, keep, object, write};
use crate::arrays::Result;
use crate::history::{BINS, Estimate};
use crate::live_order::{Head, LiveOrder, Moment, NewPod};
use crate::order::{Order, Waiting};
use crate::order_file::OrderFile;
use crate::run_times::{PodKind, RunTimes};

/// Return an array of the host, which may be nowhere if it is empty.
///
/// # Safety
/// `pointer` has `length` elements.
unsafe fn array<'a, T>(pointer: *const T, length: usize) -> &'a [T] {
    // SAFETY: the caller's, as above.
    if length == 0 { &[] } else { unsafe { std::slice::from_raw_parts(pointer, length) } }
}

/// Return an array that is written.
///
/// # Safety
/// `pointer` has room for `length` elements.
unsafe fn output<'a, T>(pointer: *mut T, length: usize) -> &'a mut [T] {
    // SAFETY: the caller's, as above.
    if length == 0 { &mut [] } else { unsafe { std::slice::from_raw_parts_mut(pointer, length) } }
}

/// What tells the run time of a pod: its requests as the host writes them, namespace, and owner, of any run.
///
/// # Safety
/// The pointers have these lengths.
unsafe fn kind<'a>(
    (requests, requests_length): (*const u8, usize),
    (namespace, namespace_length): (*const u8, usize),
    (owner, owner_length): (*const u8, usize),
) -> PodKind<'a> {
    // SAFETY: the caller's, as above.
    unsafe {
        PodKind {
            requests: array(requests, requests_length),
            namespace: array(namespace, namespace_length),
            owner: array(owner, owner_length),
        }
    }
}

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

/// Make a history of run times of which nothing has ended, with at most so many groups; return its number.
#[unsafe(no_mangle)]
pub extern "C" fn steersman_run_times_new(most: usize) -> i64 {
    answer(|| Ok(keep(Object::RunTimes(Arc::new(Mutex::new(RunTimes::new(most)?))))))
}

/// Count a pod that ended after so many seconds; return 1 if it is the first one of its owner, else 0.
///
/// # Safety
/// `requests`, `namespace` and `owner` have these lengths.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn steersman_run_times_note(
    run_times: i64,
    requests: *const u8,
    requests_length: usize,
    namespace: *const u8,
    namespace_length: usize,
    owner: *const u8,
    owner_length: usize,
    seconds: f64,
) -> i64 {
    // SAFETY: the caller's, as above.
    let pod = unsafe { kind((requests, requests_length), (namespace, namespace_length), (owner, owner_length)) };
    with_run_times(run_times, |run_times| Ok(i64::from(run_times.note(&pod.of_any_run(), seconds))))
}

/// Return 1 if a pod of an owner has ended, maybe in another run of it, else 0.
///
/// # Safety
/// `namespace` and `owner` have these lengths.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn steersman_run_times_knows(
    run_times: i64,
    namespace: *const u8,
    namespace_length: usize,
    owner: *const u8,
    owner_length: usize,
) -> i64 {
    let nothing = (std::ptr::null(), 0);
    // SAFETY: the caller's, as above.
    let pod = unsafe { kind(nothing, (namespace, namespace_length), (owner, owner_length)) };
    with_run_times(run_times, |run_times| Ok(i64::from(run_times.knows(&pod.of_any_run()))))
}

/// Write the median of a pod's run time in seconds and its spread; its groups are used.
///
/// # Safety
/// `requests`, `namespace` and `owner` have these lengths, and `estimate` has room for two numbers.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn steersman_run_times_estimate(
    run_times: i64,
    requests: *const u8,
    requests_length: usize,
    namespace: *const u8,
    namespace_length: usize,
    owner: *const u8,
    owner_length: usize,
    estimate: *mut f64,
) -> i64 {
    // SAFETY: the caller's, as above.
    let (pod, estimate) = unsafe {
        (kind((requests, requests_length), (namespace, namespace_length), (owner, owner_length)), output(estimate, 2))
    };
    with_run_times(run_times, |run_times| {
        let found = run_times.look_up(&pod.of_any_run());
        write_estimate(run_times.estimate(&found.keys), estimate);
        Ok(0)
    })
}

fn write_estimate(Estimate { median, spread }: Estimate, out: &mut [f64]) {
    out.copy_from_slice(&[median, spread]);
}

/// Add pods that ended before, by bin of their run time, to the group of a level (0 all pods, 1 of the same requests, 2 of
/// the same owner, 3 of both) alone. The owner is not changed.
///
/// # Safety
/// `requests`, `namespace` and `owner` have these lengths, and `counts` has 48 numbers.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn steersman_run_times_add(
    run_times: i64,
    level: i64,
    requests: *const u8,
    requests_length: usize,
    namespace: *const u8,
    namespace_length: usize,
    owner: *const u8,
    owner_length: usize,
    counts: *const f64,
) -> i64 {
    // SAFETY: the caller's, as above.
    let (pod, counts) = unsafe {
        (kind((requests, requests_length), (namespace, namespace_length), (owner, owner_length)), array(counts, BINS))
    };
    with_run_times(run_times, |run_times| run_times.add(level, &pod, counts).map(|()| 0))
}

/// Write the pods of the group of a level that ended, by bin of their run time. The owner is not changed.
///
/// # Safety
/// `requests`, `namespace` and `owner` have these lengths, and `counts` has room for 48 numbers.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn steersman_run_times_counts(
    run_times: i64,
    level: i64,
    requests: *const u8,
    requests_length: usize,
    namespace: *const u8,
    namespace_length: usize,
    owner: *const u8,
    owner_length: usize,
    counts: *mut f64,
) -> i64 {
    // SAFETY: the caller's, as above.
    let (pod, counts) = unsafe {
        (kind((requests, requests_length), (namespace, namespace_length), (owner, owner_length)), output(counts, BINS))
    };
    with_run_times(run_times, |run_times| {
        counts.copy_from_slice(run_times.counts(level, &pod)?);
        Ok(0)
    })
}

/// Return the number of groups, that of all pods among them, and write the bytes of their names.
///
/// # Safety
/// `bytes` has room for a number.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn steersman_run_times_size(run_times: i64, bytes: *mut i64) -> i64 {
    // SAFETY: the caller's, as above.
    let bytes = unsafe { output(bytes, 1) };
    with_run_times(run_times, |run_times| {
        bytes[0] = run_times.groups().flat_map(|(key, _)| names(key)).flatten().map(|name| name.len() as i64).sum();
        Ok(run_times.groups().count() as i64)
    })
}

/// The requests, namespace and owner of a group, where it has them.
fn names(key: Option<&crate::run_times::GroupKey>) -> [Option<&[u8]>; 3] {
    let owner = key.and_then(|key| key.owner.as_ref());
    let requests = key.and_then(|key| key.requests.as_deref());
    [requests, owner.map(|(namespace, _)| &namespace[..]), owner.map(|(_, owner)| &owner[..])]
}

/// Write all groups, those that were not used for longest first: the pods that ended by bin, and the names: requests,
/// namespace and owner of each behind each other, and their lengths, -1 for any.
///
/// # Safety
/// `counts` has room for 48 numbers and `lengths` for 3 of each of `count` groups, and `text` for `bytes`, as
/// `steersman_run_times_size` says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn steersman_run_times_groups(
    run_times: i64,
    counts: *mut f64,
    lengths: *mut i64,
    count: usize,
    text: *mut u8,
    bytes: usize,
) -> i64 {
    // SAFETY: the caller's, as above.
    let (counts, lengths, mut text) =
        unsafe { (output(counts, BINS * count), output(lengths, 3 * count), output(text, bytes)) };
    with_run_times(run_times, |run_times| {
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
///
/// # Safety
/// `weights` has `length` numbers.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn steersman_order_new(
    run_times: i64,
    kind: i64,
    weights: *const f64,
    length: usize,
    ageing: f64,
    began: f64,
) -> i64 {
    // SAFETY: the caller's, as above.
    let weights = unsafe { array(weights, length) };
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
///
/// # Safety
/// `requests`, `namespace` and `owner` have these lengths.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn steersman_order_join(
    order: i64,
    priority: i64,
    size: f64,
    given: f64,
    stated: f64,
    requests: *const u8,
    requests_length: usize,
    namespace: *const u8,
    namespace_length: usize,
    owner: *const u8,
    owner_length: usize,
) -> i64 {
    // SAFETY: the caller's, as above.
    let pod = unsafe { kind((requests, requests_length), (namespace, namespace_length), (owner, owner_length)) };
    with_order(order, |order, run_times| {
        let pod = NewPod { priority, size, given, stated, kind: pod.of_any_run() };
        let (group, waits) = order.join(&pod, run_times);
        Ok(2 * group as i64 + i64::from(waits))
    })
}

/// Count a pod of a group no more.
#[unsafe(no_mangle)]
pub extern "C" fn steersman_order_leave(order: i64, group: i64) -> i64 {
    with_order(order, |order, _| order.leave(group).map(|()| 0))
}

/// Set the scores of groups, where the order's are given.
///
/// # Safety
/// Both arrays have `count` numbers.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn steersman_order_give(order: i64, groups: *const i64, scores: *const f64, count: usize) -> i64 {
    // SAFETY: the caller's, as above.
    let (groups, scores) = unsafe { (array(groups, count), array(scores, count)) };
    with_order(order, |order, _| order.give(groups, scores).map(|()| 0))
}

/// Write the median and the spread of a group's estimate; not a number if the order does without.
///
/// # Safety
/// `estimate` has room for two numbers.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn steersman_order_estimate(order: i64, group: i64, estimate: *mut f64) -> i64 {
    // SAFETY: the caller's, as above.
    let estimate = unsafe { output(estimate, 2) };
    with_order(order, |order, run_times| {
        write_estimate(order.estimate(group, run_times)?, estimate);
        Ok(0)
    })
}

/// Return which of `count` groups goes next, at least one, and write their scores. `capacity`: the size of the cluster;
/// `free`: its free share; `waiting` pods wait.
///
/// # Safety
/// `heads` has `count` elements.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn steersman_order_first(
    order: i64,
    heads: *mut Head,
    count: usize,
    now: f64,
    capacity: f64,
    free: f64,
    waiting: f64,
) -> i64 {
    // SAFETY: the caller's, as above.
    let heads = unsafe { output(heads, count) };
    with_order(order, |order, run_times| {
        order.first(heads, &Moment { now, capacity, free, waiting }, run_times).map(|first| first as i64)
    })
}

/// Numbers of a waiting pod, see `Waiting`.
const WAITING: usize = 9;

/// Write the scores of pods, of each: estimated seconds, spread, size, share of the cluster, seconds waited, when it
/// arrived, free share of the cluster, pods that wait, delay.
///
/// # Safety
/// `pods` has 9 numbers of each of `count` pods, and `scores` room for one.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn steersman_order_scores(order: i64, pods: *const f64, scores: *mut f64, count: usize) -> i64 {
    // SAFETY: the caller's, as above.
    let (pods, scores) = unsafe { (array(pods, WAITING * count), output(scores, count)) };
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
///
/// # Safety
/// `bytes` and `name` have these lengths.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn steersman_order_file_new(
    bytes: *const u8,
    length: usize,
    name: *const u8,
    name_length: usize,
) -> i64 {
    // SAFETY: the caller's, as above.
    let (bytes, name) = unsafe { (array(bytes, length), array(name, name_length)) };
    answer(|| Ok(keep(Object::OrderFile(Arc::new(OrderFile::read(&String::from_utf8_lossy(name), bytes)?)))))
}

fn order_file(number: i64) -> Result<Arc<OrderFile>> {
    match object(number)? {
        Object::OrderFile(file) => Ok(file),
        _ => Err(format!("object {number} is not an order file")),
    }
}

/// Write the card of an order file, or of a policy file, in JSON; return its length.
///
/// # Safety
/// `card` has room for `length` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn steersman_order_file_card(file: i64, card: *mut u8, length: usize) -> i64 {
    // SAFETY: the caller's, as above.
    let card = unsafe { output(card, length) };
    answer(|| Ok(write(&order_file(file)?.card, card) as i64))
}

/// Write the weights of an order file; return how many there are, 0 of a policy file.
///
/// # Safety
/// `weights` has room for `length` numbers.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn steersman_order_file_weights(file: i64, weights: *mut f64, length: usize) -> i64 {
    // SAFETY: the caller's, as above.
    let weights = unsafe { output(weights, length) };
    answer(|| {
        let file = order_file(file)?;
        weights.iter_mut().zip(&file.weights).for_each(|(weight, &value)| *weight = value);
        Ok(file.weights.len() as i64)
    })
}
