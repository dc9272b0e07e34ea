//! Questions about a live cluster by metrics of its nodes, and models of what its nodes would measure.

use std::sync::{Arc, Mutex};

use super::doors::doors;
use super::{Object, answer, fill, keep, with_model};
use crate::arrays::{Arrays, Result};
use crate::latency_live::{LiveModel, PodOfModel};
use crate::metric_rules::{MetricRule, contributions, write_scores};
use crate::telemetry::Question;
use crate::telemetry_reward::TelemetryObjective;

/// Answer a question about a live cluster, see `Question::read`.
fn with_question(bytes: &[u8], call: impl FnOnce(Question) -> Result<i64>) -> i64 {
    answer(|| call(Question::read(&Arrays::new(bytes)?)?))
}

doors! {
    /// Write a rule's scores by node, -inf where the pod may not run, by metrics of a live cluster; see `write_scores`.
    fn steersman_telemetry_scores(bytes: in u8[..], rule: i64, scores: out f64[..]) {
        with_question(bytes, |mut question| {
            question.substitute();
            write_scores(MetricRule::read(rule)?, &question, scores).map(|()| 0)
        })
    }

    /// Write what distinguishes a node from another, rows of three numbers; return how many, see `contributions`.
    fn steersman_telemetry_contributions(bytes: in u8[..], rule: i64, node: usize, other: usize, parts: out f64[..]) {
        with_question(bytes, |mut question| {
            question.substitute();
            let found = contributions(MetricRule::read(rule)?, &mut question, node, other)?;
            let flat = found.as_flattened();
            parts.get_mut(..flat.len()).ok_or("there is no room for all parts")?.copy_from_slice(flat);
            Ok(found.len() as i64)
        })
    }

    /// Write the nodes that a pod's hard limit of latency leaves; return what became of the limit, see `LimitOutcome`.
    fn steersman_telemetry_limit(bytes: in u8[..], mask: out i8[..]) {
        with_question(bytes, |mut question| {
            question.substitute();
            let outcome = question.view.keep_hard_limit(&question.pod, &mut question.mask);
            fill(mask, &question.mask)?;
            Ok(outcome as i64)
        })
    }

    /// Write what a network observes of a live cluster: rows of nodes, the pod, the cluster.
    fn steersman_telemetry_observe(
        bytes: in u8[..],
        nodes: out f32[lengths[0]],
        pod: out f32[lengths[1]],
        context: out f32[lengths[2]],
        lengths: in usize[3],
    ) {
        with_question(bytes, |question| question.observe(nodes, pod, context).map(|()| 0))
    }

    /// Write the estimated state after the pod's placement on a node of a live cluster, 15 numbers, and its reward.
    fn steersman_telemetry_outcome(
        bytes: in u8[..],
        node: i64,
        objectives: in i64[count],
        weights: in f64[count],
        count: usize,
        outcome: out f64[16],
    ) {
        with_question(bytes, |question| {
            let objectives = objectives.iter().zip(weights);
            let objectives = objectives.map(|(number, weight)| Ok((TelemetryObjective::read(*number)?, *weight)));
            let (state, reward) = question.outcome(node, &objectives.collect::<Result<Vec<_>>>()?)?;
            outcome[..15].copy_from_slice(&state.numbers());
            outcome[15] = reward;
            Ok(0)
        })
    }

    /// Make a model of a live cluster's telemetry, see `LiveModel::read`; return its number.
    fn steersman_model_new(bytes: in u8[..]) {
        answer(|| Ok(keep(Object::Model(Arc::new(Mutex::new(LiveModel::read(&Arrays::new(bytes)?)?))))))
    }

    /// Add a node, see `LiveModel::add_node`.
    fn steersman_model_add_node(model: i64, capacity: in i64[3], zone: i64, system: f64, time: f64) {
        let capacity = [capacity[0], capacity[1], capacity[2]];
        with_model(model, |model| model.add_node(capacity, zone, system, time).map(|()| 0))
    }

    /// Change the capacity of a node.
    fn steersman_model_change_node(model: i64, node: i64, capacity: in i64[3], time: f64) {
        let capacity = [capacity[0], capacity[1], capacity[2]];
        with_model(model, |model| model.change_node(node, capacity, time).map(|()| 0))
    }

    /// Remove a node, see `LiveModel::remove_node`.
    fn steersman_model_remove_node(model: i64, node: i64, time: f64) {
        with_model(model, |model| model.remove_node(node, time).map(|()| 0))
    }

    /// Bind a pod to a node, see `LiveModel::bind`; `numbers` are milli-CPU, bytes of memory, kind, whether it has users, the
    /// seed of its owner and its own; `limits` the soft and the hard one in milliseconds.
    fn steersman_model_bind(model: i64, pod: i64, node: i64, numbers: in i64[6], limits: in f64[2], time: f64) {
        let described = PodOfModel {
            cpu: numbers[0],
            memory: numbers[1],
            kind: numbers[2],
            has_users: numbers[3] != 0,
            seeds: [numbers[4], numbers[5]],
            limits: [limits[0], limits[1]],
        };
        with_model(model, |model| model.bind(pod, &described, node, time).map(|()| 0))
    }

    /// Forget a pod, see `LiveModel::unbind`.
    fn steersman_model_unbind(model: i64, pod: i64, time: f64) {
        with_model(model, |model| model.unbind(pod, time).map(|()| 0))
    }

    /// Write what a scrape of a node shows, see `LiveModel::scrape`; return 1, or 0 if it cannot be reached.
    fn steersman_model_scrape(model: i64, node: i64, time: f64, sample: out f64[7]) {
        with_model(model, |model| {
            let found = model.scrape(node, time)?;
            sample.copy_from_slice(&found.unwrap_or([f64::NAN; 7]));
            Ok(i64::from(found.is_some()))
        })
    }

    /// Write the true state, see `LiveModel::truth`.
    fn steersman_model_truth(model: i64, time: f64, truth: out f64[12]) {
        with_model(model, |model| {
            truth.copy_from_slice(&model.truth(time)?);
            Ok(0)
        })
    }
}
