//! The one interface: numbered objects, flat arrays, bytes, and an error text.
//!
//! Every function returns a number of at least 0, or -1 where `steersman_error` has the text. Arrays are pointers and
//! lengths; in WebAssembly a host allocates them by `steersman_allocate`.

pub mod telemetry;

use std::collections::HashMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, LazyLock, Mutex, PoisonError};

use crate::arrays::{Arrays, Error, Result, index};
use crate::batch::{Batch, Observations, Results};
use crate::cluster::{Cluster, PodCounts, read_nodes};
use crate::decide::{Choice, Decider, NodeRule};
use crate::engine::{Engine, Outcome, SUMS, Stop};
use crate::episode::write_rewards;
use crate::fragmentation::{CAUSES, Profile};
use crate::latency_live::LiveModel;
use crate::live_order::LiveOrder;
use crate::networks::Inputs;
use crate::order_file::OrderFile;
use crate::planning::{AMOUNTS, Requests};
use crate::policy::{Member, Policy};
use crate::preemption::Question;
use crate::recount::recount;
use crate::reservation::fits_together;
use crate::run_times::RunTimes;
use crate::views::Observation;
use doors::{doors, output};

mod doors;
mod orders;

const FAILED: i64 = -1;
const PANICKED: &str = "this is a bug: the core panicked";

static OBJECTS: LazyLock<Mutex<Objects>> = LazyLock::new(Mutex::default);

#[derive(Default)]
struct Objects {
    numbered: HashMap<i64, Object>,
    last: i64,
}

#[derive(Clone)]
enum Object {
    Decider(Arc<Mutex<Decider>>),
    Engine(Arc<Mutex<Engine>>),
    Batch(Arc<Mutex<Batch>>),
    Policy(Arc<Policy>),
    OrderFile(Arc<OrderFile>),
    RunTimes(Arc<Mutex<RunTimes>>),
    /// With the run times that its estimates follow.
    LiveOrder(Arc<Mutex<LiveOrder>>, Arc<Mutex<RunTimes>>),
    Model(Arc<Mutex<LiveModel>>),
}

thread_local! {
    static ERROR: std::cell::RefCell<Error> = const { std::cell::RefCell::new(String::new()) };
}

/// Answer a host: a panic is an error with a text, too.
fn answer(call: impl FnOnce() -> Result<i64>) -> i64 {
    #[cfg(target_family = "wasm")]
    note_panics();
    catch_unwind(AssertUnwindSafe(call)).unwrap_or_else(|_| Err(PANICKED.to_owned())).unwrap_or_else(fail)
}

fn fail(error: Error) -> i64 {
    ERROR.with_borrow_mut(|text| *text = error);
    FAILED
}

/// In WebAssembly a panic ends the call before it is caught: a hook leaves the text, which the host reads afterwards.
#[cfg(target_family = "wasm")]
fn note_panics() {
    static NOTED: std::sync::Once = std::sync::Once::new();
    NOTED.call_once(|| {
        std::panic::set_hook(Box::new(|panic| {
            let place =
                panic.location().map_or(String::new(), |place| format!(" at {}:{}", place.file(), place.line()));
            fail(format!("{PANICKED}{place}"));
        }));
    });
}

/// Number an object.
fn keep(object: Object) -> i64 {
    let mut objects = OBJECTS.lock().unwrap_or_else(PoisonError::into_inner);
    objects.last += 1;
    let number = objects.last;
    objects.numbered.insert(number, object);
    number
}

fn object(number: i64) -> Result<Object> {
    let objects = OBJECTS.lock().unwrap_or_else(PoisonError::into_inner);
    objects.numbered.get(&number).cloned().ok_or_else(|| format!("there is no object {number}"))
}

fn ask<T>(object: &Mutex<T>, call: impl FnOnce(&mut T) -> Result<i64>) -> Result<i64> {
    call(&mut *object.lock().map_err(|_| "the object failed in an earlier call")?)
}

fn with_decider(number: i64, call: impl FnOnce(&mut Decider) -> Result<i64>) -> i64 {
    answer(|| match object(number)? {
        Object::Decider(decider) => ask(&decider, call),
        _ => Err(format!("object {number} is not a decider")),
    })
}

fn with_engine(number: i64, call: impl FnOnce(&mut Engine) -> Result<i64>) -> i64 {
    answer(|| match object(number)? {
        Object::Engine(engine) => ask(&engine, call),
        _ => Err(format!("object {number} is not an engine")),
    })
}

fn with_batch(number: i64, call: impl FnOnce(&mut Batch) -> Result<i64>) -> i64 {
    answer(|| match object(number)? {
        Object::Batch(batch) => ask(&batch, call),
        _ => Err(format!("object {number} is not a batch")),
    })
}

fn with_model(number: i64, call: impl FnOnce(&mut LiveModel) -> Result<i64>) -> i64 {
    answer(|| match object(number)? {
        Object::Model(model) => ask(&model, call),
        _ => Err(format!("object {number} is not a model")),
    })
}

fn with_policy(number: i64, call: impl FnOnce(&Policy) -> Result<i64>) -> i64 {
    answer(|| match object(number)? {
        Object::Policy(policy) => call(&policy),
        _ => Err(format!("object {number} is not a policy")),
    })
}

fn flags(numbers: &[i8]) -> Vec<bool> {
    numbers.iter().map(|&flag| flag != 0).collect()
}

fn choice(decider: &Decider, node: i64, devices: i64) -> Result<Choice> {
    Ok(Choice { node: index("node", node, decider.nodes())?, devices: devices as u64 })
}

/// The node of a choice, -1 without one, and its devices.
fn numbers_of(choice: Option<Choice>) -> [i64; 2] {
    choice.map_or([-1, 0], |choice| [choice.node as i64, choice.devices as i64])
}

/// Allocate bytes for an array of the host, aligned for any element; null where memory is short.
///
/// # Safety
/// The host gives them back by `steersman_release`, with the same length.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn steersman_allocate(length: usize) -> *mut u64 {
    let mut words = Vec::new();
    if words.try_reserve_exact(length.div_ceil(8)).is_err() {
        return std::ptr::null_mut();
    }
    words.resize(length.div_ceil(8), 0u64);
    Box::into_raw(words.into_boxed_slice()).cast()
}

/// Release bytes of `steersman_allocate`.
///
/// # Safety
/// They were allocated with this length and are not released yet.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn steersman_release(pointer: *mut u64, length: usize) {
    // SAFETY: the caller's, as above.
    drop(unsafe { Box::from_raw(std::ptr::slice_from_raw_parts_mut(pointer, length.div_ceil(8))) });
}

/// Write the text of this thread's last error; return its length.
///
/// # Safety
/// `text` has room for `length` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn steersman_error(text: *mut u8, length: usize) -> usize {
    // SAFETY: the caller's, as above.
    let buffer = unsafe { output(text, length) };
    ERROR.with_borrow(|error| write(error, buffer))
}

/// Write the compiler's version, such as `rustc 1.95.0 (59807616e 2026-04-14)`; return its length.
///
/// # Safety
/// `text` has room for `length` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn steersman_compiler(text: *mut u8, length: usize) -> usize {
    // SAFETY: the caller's, as above.
    write(env!("COMPILER"), unsafe { output(text, length) })
}

fn write(text: &str, buffer: &mut [u8]) -> usize {
    let count = text.len().min(buffer.len());
    buffer[..count].copy_from_slice(&text.as_bytes()[..count]);
    text.len()
}

/// Write all values into a buffer of that size.
fn fill<T: Copy>(buffer: &mut [T], values: &[T]) -> Result<i64> {
    if buffer.len() != values.len() {
        return Err(format!("expected room for {} numbers, not for {}", values.len(), buffer.len()));
    }
    buffer.copy_from_slice(values);
    Ok(0)
}

fn stop_number(engine: &Engine, stop: Stop) -> i64 {
    if engine.queue.is_invalid {
        return 5;
    }
    match stop {
        Stop::Done => 0,
        Stop::Paused => 1,
        Stop::NeedsNode => 2,
        Stop::NeedsReason => 3,
        Stop::NeedsOrder => 4,
    }
}

/// Numbers of an arrival: node (-1: it had none so far), devices, how many start with it, whether it runs.
const STANDING: usize = 4;

/// Numbers of an event: arrival, outcome, node (-1: not bound), devices, then totals.
const NUMBERS: usize = 10;

/// Buffers of what a batch shows and what steps lead to: pointers, and how many numbers each has. States are those now,
/// before the last action, and right after it, 16 numbers each.
#[repr(C)]
pub struct Buffers {
    nodes: *mut f32,
    pods: *mut f32,
    contexts: *mut f32,
    masks: *mut i8,
    rewards: *mut f64,
    terminated: *mut i8,
    truncated: *mut i8,
    states: *mut f64,
    lengths: [usize; 8],
}

impl Buffers {
    /// # Safety
    /// The buffers have these lengths.
    unsafe fn slices(&self) -> (Observations<'_>, Results<'_>) {
        let [nodes, pods, contexts, masks, rewards, terminated, truncated, states] = self.lengths;
        // SAFETY: the caller's, as above.
        unsafe {
            let observations = Observations {
                nodes: output(self.nodes, nodes),
                pods: output(self.pods, pods),
                contexts: output(self.contexts, contexts),
                masks: output(self.masks, masks),
            };
            let results = Results {
                rewards: output(self.rewards, rewards),
                terminated: output(self.terminated, terminated),
                truncated: output(self.truncated, truncated),
                states: output(self.states, states),
            };
            (observations, results)
        }
    }
}

doors! {
    /// Make a decider of a safetensors file, see `Decider::read`; return its number.
    fn steersman_decider_new(bytes: in u8[..]) {
        answer(|| {
            let decider = Decider::read(&Arrays::new(bytes)?)?;
            Ok(keep(Object::Decider(Arc::new(Mutex::new(decider)))))
        })
    }

    /// Forget an object.
    fn steersman_forget(number: i64) {
        OBJECTS.lock().unwrap_or_else(PoisonError::into_inner).numbered.remove(&number);
        0
    }

    /// Write the node and the devices of a pod, which is not placed; return 1, or 0 if it fits nowhere. `allowed`: the nodes
    /// to choose from, none for all.
    fn steersman_decider_decide(decider: i64, class: i64, labels: i64, allowed: in i8[..], out: out i64[2]) {
        with_decider(decider, |decider| {
            let (c, labels) = decider.pod(class, labels)?;
            let choice = decider.decide_among(c, labels, &flags(allowed))?;
            out.copy_from_slice(&numbers_of(choice));
            Ok(i64::from(choice.is_some()))
        })
    }

    /// Write kube-scheduler's scores by plugin and node, see `Decider::plugin_scores`.
    fn steersman_decider_plugins(decider: i64, class: i64, labels: i64, allowed: in i8[..], scores: out f64[..]) {
        with_decider(decider, |decider| {
            let (c, labels) = decider.pod(class, labels)?;
            decider.plugin_scores(c, labels, &flags(allowed), scores).map(|()| 0)
        })
    }

    /// Return where kube-scheduler's next search starts, after moving it there if `start` is not below 0.
    fn steersman_decider_start(decider: i64, start: i64) {
        with_decider(decider, |decider| match &mut decider.node_rule {
            NodeRule::Kube(kube) => {
                kube.start = usize::try_from(start).unwrap_or(kube.start);
                Ok(kube.start as i64)
            }
            _ => Err("the policy does not search".to_owned()),
        })
    }

    /// Write the scores of a pod by node, -inf where it may not run; `allowed`: the nodes to choose from, none for all.
    fn steersman_decider_scores(decider: i64, class: i64, labels: i64, allowed: in i8[..], scores: out f64[..]) {
        with_decider(decider, |decider| {
            let (c, labels) = decider.pod(class, labels)?;
            decider.scores(c, labels, &flags(allowed), scores)?;
            Ok(0)
        })
    }

    /// Follow changes of the cluster, see `Decider::follow_changes`.
    fn steersman_decider_follow(decider: i64, bytes: in u8[..]) {
        with_decider(decider, |decider| decider.follow_changes(&Arrays::new(bytes)?).map(|()| 0))
    }

    /// Set what pods leave of a node, see `Decider::set_pods`.
    fn steersman_decider_set_pods(decider: i64, node: i64, numbers: in i64[..]) {
        with_decider(decider, |decider| {
            let n = index("node", node, decider.nodes())?;
            decider.set_pods(n, numbers).map(|()| 0)
        })
    }

    /// Describe a decider anew, see `Decider::read`; it goes on with its random numbers and with its search.
    fn steersman_decider_replace(decider: i64, bytes: in u8[..]) {
        with_decider(decider, |decider| {
            let mut other = Decider::read(&Arrays::new(bytes)?)?;
            other.go_on_from(decider);
            *decider = other;
            Ok(0)
        })
    }

    /// Return the devices that a pod would get on a node that it fits on, a bit mask.
    fn steersman_decider_devices(decider: i64, class: i64, node: i64) {
        with_decider(decider, |decider| {
            let (c, _) = decider.pod(class, 0)?;
            let n = index("node", node, decider.nodes())?;
            if !decider.cluster.fits(c, n) {
                return Err(format!("class {class} does not fit on node {node}"));
            }
            Ok(decider.devices_on(c, n) as i64)
        })
    }

    /// Write where a pod may run now, by node.
    fn steersman_decider_mask(decider: i64, class: i64, labels: i64, mask: out i8[..]) {
        with_decider(decider, |decider| {
            let (c, labels) = decider.pod(class, labels)?;
            decider.find_feasible(c, labels);
            mask.iter_mut().zip(&decider.mask).for_each(|(flag, feasible)| *flag = i8::from(*feasible));
            Ok(0)
        })
    }

    /// Set the scores of VolumeBinding for the next decisions of kube-scheduler, by node.
    fn steersman_decider_storage(decider: i64, scores: in i64[..]) {
        with_decider(decider, |decider| {
            decider.set_storage(scores)?;
            Ok(0)
        })
    }

    /// Observe a live cluster, see `Decider::watch`.
    fn steersman_decider_watch(decider: i64, bytes: in u8[..]) {
        with_decider(decider, |decider| decider.watch(&Arrays::new(bytes)?).map(|()| 0))
    }

    /// Write what is observed of a pod in a live cluster, see `Decider::look_at`; return the number of slots in use.
    fn steersman_decider_look(
        decider: i64,
        class: i64,
        feasible: in i8[lengths[0]],
        nodes: out f32[lengths[1]],
        pod: out f32[lengths[2]],
        context: out f32[lengths[3]],
        mask: out i8[lengths[4]],
        state: out f64[lengths[5]],
        lengths: in usize[6],
    ) {
        with_decider(decider, |decider| {
            let (c, _) = decider.pod(class, 0)?;
            let mut observation = Observation { nodes, pod, context, mask };
            Ok(decider.look_at(c, &flags(feasible), &mut observation, state)? as i64)
        })
    }

    /// Write the fragmented GPU milli of nodes, and the same by cause, in rows of 7; read `nodes.*` and `profile.*`.
    fn steersman_fragments(bytes: in u8[..], out: out f64[..]) {
        answer(|| {
            let arrays = Arrays::new(bytes)?;
            let profile = Profile::read(&arrays)?;
            let nodes = read_nodes(&arrays, profile.types())?;
            if out.len() != (1 + CAUSES) * nodes.len() {
                return Err(format!("expected {} numbers, not {}", (1 + CAUSES) * nodes.len(), out.len()));
            }
            for (row, node) in out.chunks_exact_mut(1 + CAUSES).zip(&nodes) {
                let fragments = profile.fragments(node);
                row[0] = fragments.total;
                row[1..].copy_from_slice(&fragments.causes);
            }
            Ok(0)
        })
    }

    /// Write the causes of fragmentation after each event of a run by another profile, see `recount`.
    fn steersman_recount(bytes: in u8[..], out: out f64[..]) {
        answer(|| recount(&Arrays::new(bytes)?, out).map(|()| 0))
    }

    /// Write the features of a class by node, see `Decider::write_features`.
    fn steersman_decider_features(decider: i64, class: i64, out: out f64[..]) {
        with_decider(decider, |decider| {
            let (c, _) = decider.pod(class, 0)?;
            decider.write_features(c, out).map(|()| 0)
        })
    }

    /// Write the state of an observed cluster, see `Decider::write_state`.
    fn steersman_decider_state(decider: i64, state: out f64[..]) {
        with_decider(decider, |decider| decider.write_state(state).map(|_| 0))
    }

    /// Change a state as the placement of a pod on a node that it fits on would, see `Decider::write_outcome`.
    fn steersman_decider_outcome(decider: i64, class: i64, node: i64, state: out f64[..]) {
        with_decider(decider, |decider| {
            let (c, _) = decider.pod(class, 0)?;
            let n = index("node", node, decider.nodes())?;
            decider.write_outcome(c, n, state).map(|()| 0)
        })
    }

    /// Place a pod with the devices of the bit mask, without checking that it fits.
    fn steersman_decider_place(decider: i64, class: i64, labels: i64, node: i64, devices: i64) {
        with_decider(decider, |decider| {
            let (c, labels) = decider.pod(class, labels)?;
            let choice = choice(decider, node, devices)?;
            decider.place(c, labels, choice);
            Ok(0)
        })
    }

    /// Undo `steersman_decider_place` with the same arguments, exactly.
    fn steersman_decider_remove(decider: i64, class: i64, labels: i64, node: i64, devices: i64) {
        with_decider(decider, |decider| {
            let (c, labels) = decider.pod(class, labels)?;
            let choice = choice(decider, node, devices)?;
            decider.remove(c, labels, choice);
            Ok(0)
        })
    }

    /// Find whom a pod that fits nowhere preempts, see `preemption::Question`; return how many candidates are equally good.
    ///
    /// Of each it writes the node, how many victims a budget keeps, how many victims there are, and these.
    fn steersman_decider_preempt(decider: i64, bytes: in u8[..], out: out i64[..]) {
        with_decider(decider, |decider| {
            let question = Question::read(&Arrays::new(bytes)?, decider)?;
            let found = decider.preempt(&question);
            let mut numbers: Vec<i64> = Vec::new();
            for each in &found {
                numbers.extend([each.node as i64, each.violations as i64, each.victims.len() as i64]);
                each.victims.iter().for_each(|&v| numbers.push(v as i64));
            }
            let room = out.get_mut(..numbers.len()).ok_or("out: expected room for more numbers")?;
            room.copy_from_slice(&numbers);
            Ok(found.len() as i64)
        })
    }

    /// Place pods one after another; write their nodes, -1 for those that fit nowhere, and devices; return how many fit.
    fn steersman_decider_fill(
        decider: i64,
        classes: in i64[length],
        labels: in i64[length],
        nodes: out i64[length],
        devices: out i64[length],
        length: usize,
    ) {
        with_decider(decider, |decider| {
            let mut placed = 0;
            for i in 0..length {
                let (c, labels) = decider.pod(classes[i], labels[i])?;
                (nodes[i], devices[i]) = (-1, 0);
                if let Some(choice) = decider.decide(c, labels)? {
                    decider.place(c, labels, choice);
                    (nodes[i], devices[i]) = (choice.node as i64, choice.devices as i64);
                    placed += 1;
                }
            }
            Ok(placed)
        })
    }

    /// Make a run of a safetensors file, see `Engine::read`; return its number.
    fn steersman_engine_new(bytes: in u8[..]) {
        answer(|| Ok(keep(Object::Engine(Arc::new(Mutex::new(Engine::read(&Arrays::new(bytes)?)?))))))
    }

    /// Make a run on the cluster of another one that has not advanced, see `Engine::read_again`; return its number.
    fn steersman_engine_again(engine: i64, bytes: in u8[..]) {
        with_engine(engine, |engine| {
            let again = engine.read_again(&Arrays::new(bytes)?)?;
            Ok(keep(Object::Engine(Arc::new(Mutex::new(again)))))
        })
    }

    /// Observe the run, see `Observer::read`.
    fn steersman_engine_watch(engine: i64, bytes: in u8[..]) {
        with_engine(engine, |engine| engine.watch(&Arrays::new(bytes)?).map(|()| 0))
    }

    /// Handle events until so many are recorded; return why it stopped: 0 done, 1 paused, or the host is needed: 2 chooses a
    /// node, 3 notes a reason, 4 chooses who goes next; 5: a score of the order is not a number.
    fn steersman_engine_advance(engine: i64, until: usize) {
        with_engine(engine, |engine| {
            let stop = engine.advance(until);
            Ok(stop_number(engine, stop))
        })
    }

    /// Handle events until some arrivals have all started, or the time is past `until`; return as `steersman_engine_advance`.
    fn steersman_engine_advance_to(engine: i64, targets: in i64[..], until: f64) {
        with_engine(engine, |engine| {
            let stop = engine.advance_to(targets, until)?;
            Ok(stop_number(engine, stop))
        })
    }

    /// Write how far the run is: arrivals handled, events, how often a pod came to a node or left it, the arrival of the head
    /// (-1: none), pods that wait, GPU and CPU milli in use; and the time of the last event.
    fn steersman_engine_progress(engine: i64, numbers: out i64[7], time: out f64[1]) {
        with_engine(engine, |engine| {
            let progress = engine.progress();
            let totals = progress.totals;
            time[0] = progress.time;
            numbers.copy_from_slice(&[
                progress.arrived as i64,
                progress.events as i64,
                progress.changes as i64,
                progress.head.map_or(-1, |head| head as i64),
                totals.waiting,
                totals.gpu_milli,
                totals.cpu_milli,
            ]);
            Ok(0)
        })
    }

    /// Write how arrivals stand from number `first` on; `times`: when they arrived and started, and the estimated run time at
    /// that time.
    fn steersman_engine_arrivals(
        engine: i64,
        first: usize,
        numbers: out i64[STANDING * count],
        times: out f64[3 * count],
        count: usize,
    ) {
        with_engine(engine, |engine| {
            for (a, (row, times)) in numbers.chunks_exact_mut(STANDING).zip(times.chunks_exact_mut(3)).enumerate() {
                let standing = engine.standing(first.saturating_add(a))?;
                let choice = numbers_of(standing.choice);
                row.copy_from_slice(&[choice[0], choice[1], standing.members as i64, i64::from(standing.runs)]);
                times.copy_from_slice(&[standing.time, standing.started, standing.estimated]);
            }
            Ok(0)
        })
    }

    /// Write of arrivals from number `first` on how often they were evicted, and seconds of work that are saved, seconds
    /// that are lost, and seconds that they ran before the run that goes on.
    fn steersman_engine_accounts(engine: i64, first: usize, accounts: out f64[4 * count], count: usize) {
        with_engine(engine, |engine| {
            for (a, row) in accounts.chunks_exact_mut(4).enumerate() {
                row.copy_from_slice(&engine.account(first.saturating_add(a))?);
            }
            Ok(0)
        })
    }

    /// Write the oldest pod of each group that waits, and what is known of its run time, mean and spread (NaN: nothing);
    /// return how many there are.
    fn steersman_engine_heads(engine: i64, heads: out i64[count], estimates: out f64[2 * count], count: usize) {
        with_engine(engine, |engine| {
            let waiting = engine.heads();
            for ((&(head, estimate), out), estimates) in waiting.iter().zip(heads).zip(estimates.chunks_exact_mut(2)) {
                *out = head as i64;
                estimates.copy_from_slice(&estimate.map_or([f64::NAN; 2], |known| [known.mean, known.spread]));
            }
            Ok(waiting.len() as i64)
        })
    }

    /// Write what pods have changed of the arrays of the same names that describe nodes and terms.
    fn steersman_engine_state(
        engine: i64,
        free: out i64[lengths[0]],
        nonzero: out i64[lengths[1]],
        gpu_free: out i64[lengths[2]],
        gpu_kinds: out i64[lengths[3]],
        matched: out i32[lengths[4]],
        owned: out i32[lengths[5]],
        owned_total: out i64[lengths[6]],
        held: out i32[lengths[7]],
        lengths: in usize[8],
    ) {
        let mut state = PodCounts { free, nonzero, gpu_free, gpu_kinds, matched, owned, owned_total, held };
        with_engine(engine, |engine| engine.write_state(&mut state).map(|()| 0))
    }

    /// Write the scores of a pod by node, -inf where it may not run, see `Decider::scores`.
    fn steersman_engine_scores(engine: i64, class: i64, labels: i64, scores: out f64[..]) {
        with_engine(engine, |engine| {
            let (c, labels) = engine.decider.pod(class, labels)?;
            engine.decider.scores(c, labels, &[], scores).map(|()| 0)
        })
    }

    /// Write where the pod of the question may run.
    fn steersman_engine_mask(engine: i64, mask: out i8[..]) {
        with_engine(engine, |engine| {
            engine.question()?;
            engine.write_mask(mask);
            Ok(0)
        })
    }

    /// Return 1 if so many pods of a class do not fit together now, else 0.
    fn steersman_engine_lacks_room(engine: i64, class: i64, members: i64) {
        with_engine(engine, |engine| {
            let cluster = &engine.decider.cluster;
            let class = index("class", class, cluster.classes.len())?;
            Ok(i64::from(!fits_together(cluster, class, members, None)))
        })
    }

    /// Write 1 where so many pods of a class do not fit together on the nodes of a safetensors file, see `Cluster::read`.
    fn steersman_lacks_room(
        bytes: in u8[..],
        classes: in i64[count],
        members: in i64[count],
        lacks: out i8[count],
        count: usize,
    ) {
        answer(|| {
            let cluster = Cluster::read(&Arrays::new(bytes)?)?;
            for ((&class, &members), lacks) in classes.iter().zip(members).zip(lacks) {
                let class = index("class", class, cluster.classes.len())?;
                *lacks = i8::from(!fits_together(&cluster, class, members, None));
            }
            Ok(0)
        })
    }

    /// Return the arrival whose node the host chooses.
    fn steersman_engine_question(engine: i64) {
        with_engine(engine, |engine| Ok(engine.question()? as i64))
    }

    /// Write what is observed of the question: rows of nodes, the pod, the cluster, and where the pod may run.
    fn steersman_engine_observe(
        engine: i64,
        nodes: out f32[lengths[0]],
        pod: out f32[lengths[1]],
        context: out f32[lengths[2]],
        mask: out i8[lengths[3]],
        lengths: in usize[4],
    ) {
        let mut observation = Observation { nodes, pod, context, mask };
        with_engine(engine, |engine| engine.observe(&mut observation).map(|()| 0))
    }

    /// Choose the node of the question.
    fn steersman_engine_answer(engine: i64, node: i64) {
        with_engine(engine, |engine| engine.answer(node).map(|()| 0))
    }

    /// Choose the group that goes next.
    fn steersman_engine_set_head(engine: i64, group: i64) {
        with_engine(engine, |engine| engine.set_head(group).map(|()| 0))
    }

    /// Write events from number `first` on: their times, numbers and sums.
    fn steersman_engine_events(
        engine: i64,
        first: usize,
        times: out f64[count],
        numbers: out i64[NUMBERS * count],
        sums: out f64[SUMS * count],
        count: usize,
    ) {
        with_engine(engine, |engine| {
            let rows = numbers.chunks_exact_mut(NUMBERS).zip(sums.chunks_exact_mut(SUMS)).zip(times);
            for (event, ((row, sums), time)) in engine.events.iter().skip(first).zip(rows) {
                *time = event.time;
                sums.copy_from_slice(&event.totals.sums);
                let outcome = match event.outcome {
                    Outcome::Bound => 0,
                    Outcome::Failed => 1,
                    Outcome::Waiting => 2,
                    Outcome::Finished => 3,
                    Outcome::Evicted => 4,
                };
                let choice = numbers_of(event.choice);
                let totals = &event.totals;
                row.copy_from_slice(&[
                    event.arrival as i64,
                    outcome,
                    choice[0],
                    choice[1],
                    totals.waiting,
                    totals.nodes,
                    totals.gpu_milli,
                    totals.cpu_milli,
                    totals.memory_bytes,
                    totals.gpu_excess,
                ]);
            }
            Ok(engine.events.len() as i64)
        })
    }

    /// Make a batch of so many episodes; return its number.
    fn steersman_batch_new(count: usize) {
        answer(|| Ok(keep(Object::Batch(Arc::new(Mutex::new(Batch::new(count.min(1 << 20))))))))
    }

    /// Begin an episode of a safetensors file, see `Batch::begin`; return 1 if it asks, 0 if it has ended.
    fn steersman_batch_begin(batch: i64, e: i64, bytes: in u8[..], buffers: &Buffers) {
        // SAFETY: the buffers have their lengths.
        let (mut observations, mut results) = unsafe { buffers.slices() };
        with_batch(batch, |batch| batch.begin(e, bytes, &mut observations, &mut results).map(i64::from))
    }

    /// Take an action in every episode.
    fn steersman_batch_step(batch: i64, actions: in i64[..], buffers: &Buffers) {
        // SAFETY: the buffers have their lengths.
        let (mut observations, mut results) = unsafe { buffers.slices() };
        with_batch(batch, |batch| batch.step(actions, &mut observations, &mut results).map(|()| 0))
    }

    /// Take actions in an episode that has begun, one after another.
    fn steersman_batch_replay(batch: i64, e: usize, actions: in i64[..], buffers: &Buffers) {
        // SAFETY: the buffers have their lengths.
        let (mut observations, mut results) = unsafe { buffers.slices() };
        with_batch(batch, |batch| batch.replay(e, actions, &mut observations, &mut results).map(|()| 0))
    }

    /// Write the actions of an episode so far, if there is room; return how many there are.
    fn steersman_batch_actions(batch: i64, e: usize, actions: out i64[..]) {
        with_batch(batch, |batch| {
            let taken = &batch.episode(e)?.steps().taken;
            if actions.len() >= taken.len() {
                actions[..taken.len()].copy_from_slice(taken);
            }
            Ok(taken.len() as i64)
        })
    }

    /// Write the nodes that a rule prefers, 0 for episodes that have ended.
    fn steersman_batch_rule(batch: i64, rule: i64, actions: out i64[..]) {
        with_batch(batch, |batch| {
            for (e, action) in actions.iter_mut().enumerate() {
                *action = batch.episode(e)?.best_by_rule(rule)?.unwrap_or(0) as i64;
            }
            Ok(0)
        })
    }

    /// Write how many pods were bound and dropped in each episode, and how the last one's limits are kept, [E, 3].
    fn steersman_batch_counts(batch: i64, counts: out i64[..]) {
        with_batch(batch, |batch| {
            for (e, row) in counts.chunks_exact_mut(3).enumerate() {
                row.copy_from_slice(&batch.episode(e)?.counts()?);
            }
            Ok(0)
        })
    }

    /// Write the shares of CPU and memory in use on the nodes of an episode, [N, 2].
    fn steersman_batch_loads(batch: i64, e: usize, loads: out f64[..]) {
        with_batch(batch, |batch| {
            let nodes = batch.episode(e)?.loads()?;
            fill(loads, nodes.as_flattened())
        })
    }

    /// Write the figures of episodes with latencies so far, [E, 13], see `Totals::figures`.
    fn steersman_batch_figures(batch: i64, figures: out f64[..]) {
        with_batch(batch, |batch| {
            for (e, row) in figures.chunks_exact_mut(13).enumerate() {
                row.copy_from_slice(&batch.episode(e)?.latencies()?.figures());
            }
            Ok(0)
        })
    }

    /// Write what is true now in an episode with latencies: its time in seconds, and the pods of each node and the milliseconds
    /// that the current pod's users would have there, [N, 2].
    fn steersman_batch_truth(batch: i64, e: usize, time: out f64[1], nodes: out f64[..]) {
        with_batch(batch, |batch| {
            let episode = batch.episode(e)?.latencies()?;
            time[0] = episode.now();
            let truth: Vec<[f64; 2]> = episode.truth().iter().map(|node| [node.pods as f64, node.latency]).collect();
            fill(nodes, truth.as_flattened())
        })
    }

    /// Make a copy of an episode's run; return its number.
    fn steersman_batch_engine(batch: i64, e: usize) {
        with_batch(batch, |batch| Ok(keep(Object::Engine(Arc::new(Mutex::new(batch.episode(e)?.engine()?.clone()))))))
    }

    /// Read the bytes of a policy file of this name, see `Policy::read`; return its number.
    fn steersman_policy_new(bytes: in u8[..], name: in u8[..]) {
        answer(|| Ok(keep(Object::Policy(Arc::new(Policy::read(&String::from_utf8_lossy(name), bytes)?)))))
    }

    /// Write the card of a policy in JSON, as far as there is room; return its length, 0 of a formula.
    fn steersman_policy_card(policy: i64, buffer: out u8[..]) {
        with_policy(policy, |policy| Ok(write(&policy.card_text()?, buffer) as i64))
    }

    /// Return 1 if a policy decides by what it observes of all nodes, so that the score of one depends on the others, else 0.
    fn steersman_policy_observes(policy: i64) {
        with_policy(policy, |policy| Ok(i64::from(policy.members.iter().any(|each| matches!(each, Member::Network(_))))))
    }

    /// Write the scores of a network by node, -inf where the pod may not run.
    fn steersman_policy_scores(
        policy: i64,
        nodes: in f32[lengths[0]],
        pod: in f32[lengths[1]],
        context: in f32[lengths[2]],
        mask: in i8[lengths[3]],
        groups: in i64[lengths[4]],
        scores: out f64[lengths[3]],
        lengths: in usize[5],
    ) {
        with_policy(policy, |policy| {
            scores.copy_from_slice(&policy.scores(&Inputs { nodes, pod, context, mask }, groups)?);
            Ok(0)
        })
    }

    /// Say what the next decisions of a network observe in addition to the cluster, see `Decider::observe`.
    fn steersman_decider_observe(
        decider: i64,
        waiting: i64,
        eligible: in i8[..],
        owner_nodes: in i64[length],
        owner_pods: in i64[length],
        length: usize,
    ) {
        with_decider(decider, |decider| {
            let pods: Vec<(i64, i64)> = owner_nodes.iter().copied().zip(owner_pods.iter().copied()).collect();
            decider.observe(waiting, flags(eligible), &pods)?;
            Ok(0)
        })
    }

    /// Write what prefers one node to another, by parts of the score; return how many, see `Decider::contributions`.
    ///
    /// A part is four numbers: its own, its values on both nodes, and its contribution.
    fn steersman_decider_contributions(
        decider: i64,
        class: i64,
        labels: i64,
        node: i64,
        other: i64,
        rows: out f64[..],
    ) {
        with_decider(decider, |decider| {
            let (c, labels) = decider.pod(class, labels)?;
            let nodes = [choice(decider, node, 0)?.node, choice(decider, other, 0)?.node];
            let parts = decider.contributions(c, labels, nodes)?;
            if rows.len() < 4 * parts.len() {
                return Err(format!("parts: expected room for {} numbers, has {}", 4 * parts.len(), rows.len()));
            }
            for (row, part) in rows.chunks_exact_mut(4).zip(&parts) {
                row.copy_from_slice(&[part.number as f64, part.value, part.other, part.contribution]);
            }
            Ok(parts.len() as i64)
        })
    }

    /// Add variances of features to sums by kind of pod, see `Decider::add_variances`.
    fn steersman_decider_variances(decider: i64, class: i64, sums: out f64[120], counts: out f64[4]) {
        with_decider(decider, |decider| {
            let (c, _) = decider.pod(class, 0)?;
            decider.add_variances(c, sums, counts)?;
            Ok(0)
        })
    }

    /// Add variances of features of a run's nodes now, see `steersman_decider_variances`.
    fn steersman_engine_variances(engine: i64, class: i64, sums: out f64[120], counts: out f64[4]) {
        with_engine(engine, |engine| {
            let (c, _) = engine.decider.pod(class, 0)?;
            engine.decider.add_variances(c, sums, counts)?;
            Ok(0)
        })
    }

    /// Place requests on devices, see `Requests::play`.
    fn steersman_requests_play(
        sizes: in i64[..],
        sequence: in i64[length],
        chosen: out i64[length],
        length: usize,
        grain: usize,
        table: in f64[AMOUNTS],
        devices: out i64[AMOUNTS],
    ) {
        answer(|| {
            Requests::new(sizes, sequence)?.play(grain, table, devices, chosen);
            Ok(0)
        })
    }

    /// Undo `steersman_requests_play`, see `Requests::undo`.
    fn steersman_requests_undo(
        sizes: in i64[..],
        sequence: in i64[length],
        chosen: in i64[length],
        length: usize,
        devices: out i64[AMOUNTS],
        sums: out f64[AMOUNTS],
        counts: out f64[AMOUNTS],
    ) {
        answer(|| Requests::new(sizes, sequence)?.undo(chosen, devices, sums, counts).map(|()| 0))
    }

    /// Write the rewards of actions, [E], from the states before and after them, [E, 16] each.
    fn steersman_rewards(
        objectives: in i64[objective_count],
        weights: in f64[objective_count],
        objective_count: usize,
        before: in f64[16 * count],
        after: in f64[16 * count],
        rewards: out f64[count],
        count: usize,
    ) {
        answer(|| write_rewards(objectives, weights, before, after, rewards).map(|()| 0))
    }
}
