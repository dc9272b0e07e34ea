//! Objectives where metrics of nodes are known, on the state after an action; CPU is what is used.

use crate::arrays::Result;
use crate::episode::Objective;

/// How a placement keeps the limits of a pod's latency, from the best to the worst.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kept {
    WithinSoft,
    WithinHard,
    /// Beyond the hard one, as on every node with free capacity.
    BeyondAny,
    /// Beyond it although such a node could have met it.
    BeyondAvoidable,
}

/// What a hard limit costs that is broken although some node could have met it.
///
/// With 0 alone breaking one would pay: a node that stays off is rewarded at every later decision.
const BROKEN: f64 = -10.0;

/// What is rewarded: an objective of the state, of connections, or of latencies.
#[derive(Clone, Copy)]
pub enum TelemetryObjective {
    OfState(Objective),
    LeastConnections,
    LatencyAware,
}

impl TelemetryObjective {
    /// By the numbers of `steersman.objectives.telemetry`.
    pub fn read(number: i64) -> Result<Self> {
        match number {
            100 => Ok(TelemetryObjective::LeastConnections),
            101 => Ok(TelemetryObjective::LatencyAware),
            other => Objective::read(other).map(TelemetryObjective::OfState),
        }
    }
}

/// The mean over the maximum of the nodes' established connections after the action; 1 when all are equal.
///
/// Source: SoniaMatranga/SoniaMatrangaTesi, objective LC. There the reward is 1 for the node next to the one with the
/// fewest connections, an off-by-one error, and 0 for every other node. The number of connections is up to the users, so
/// only the maximum can be influenced.
pub fn least_connections(mean: f64, most: f64) -> f64 {
    if most > 0.0 { mean / most } else { 1.0 }
}

/// Few nodes, well filled, and every pod close enough to its users.
///
/// Source: SoniaMatranga/SoniaMatrangaTesi, objective P0: r1 + r2 + r3 with r1 the share of nodes that can stay off, r2 the
/// pods of a used node (over 50), r3 = 1 within the pod's soft limit, 0.5 within the hard one, else 0 and the episode ends.
/// Here it is their mean, on the state after the action, and
/// - r2, `filled`, is the share of the used nodes' CPU that is requested: pods differ in size;
/// - a pod without limits has kept them;
/// - the episode goes on: ending it would be a way to avoid all later costs. Instead a hard limit that is broken although
///   some node could have met it costs `BROKEN`.
pub fn latency_aware(nodes: i64, used: i64, filled: f64, kept: Kept) -> f64 {
    let r3 = match kept {
        Kept::WithinSoft => 1.0,
        Kept::WithinHard => 0.5,
        Kept::BeyondAny => 0.0,
        Kept::BeyondAvoidable => BROKEN,
    };
    ((nodes - used) as f64 / nodes as f64 + filled + r3) / 3.0
}
