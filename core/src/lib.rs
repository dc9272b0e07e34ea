//! What decides in steersman, once for all hosts: Python, kube-scheduler, the browser.
//!
//! It knows no Kubernetes, no network, no clock and no file format but bytes that a host gives it. A cluster is an object
//! that can be asked.

#![deny(unsafe_code)]

mod arrays;
mod batch;
mod belief;
mod changes;
mod cluster;
mod constraints;
mod contributions;
mod decide;
mod deployments;
mod engine;
mod episode;
mod evictions;
mod formula;
mod fragmentation;
mod heap;
mod kube;
mod latency;
mod latency_draws;
mod latency_live;
mod latency_model;
mod latency_settings;
mod learned;

mod live_order;
mod metric_rules;
mod network_rule;
mod networks;
mod order;
mod order_file;
mod planning;
mod policy;
mod preemption;
mod queue;
mod random;
mod recount;
mod reservation;
mod rules;
mod run_times;
mod table;
mod telemetry;
mod telemetry_features;
mod telemetry_reward;
mod views;
mod watch;

#[allow(unsafe_code)]
pub mod api;
pub use decide::{Choice, Decider};
