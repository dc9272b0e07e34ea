//! Episodes of reinforcement learning: runs in which the host chooses nodes, and is rewarded for each choice.

use crate::arrays::{Arrays, Result, index};
use crate::cluster::GPU;
use crate::engine::{Engine, Stop};
use crate::latency::LatencyEpisode;
use crate::rules::RULES;
use crate::views::{Observation, Summary};

const SECONDS_AN_HOUR: f64 = 3600.0;
/// Numbers of the three states of an episode.
pub const STATES: usize = 3 * 16;

/// What a batch steps: the host chooses the node of one pod after another, and is rewarded for each choice.
pub trait Episode: Send {
    /// Take an action. An illegal one (no such node, or the pod may not run there) costs the penalty.
    fn step(&mut self, action: i64, observation: &mut Observation) -> Result<Step>;

    /// Begin another episode, of which the arrays say what differs; observe its first pod. Return whether there is one.
    fn again(&mut self, _: &Arrays, _: &mut Observation) -> Result<bool> {
        Err("episode.penalty: missing".to_owned())
    }

    /// How many episodes of this kind a thread should step at least, since waking it takes microseconds.
    fn fewest_together(&self) -> usize {
        4
    }

    /// How many nodes an observation has, and how many features each.
    fn shape(&self) -> Result<(usize, usize)>;

    fn steps(&self) -> &Steps;

    /// The states now, before the last action and right after it.
    fn states(&self) -> [&Summary; 3];

    /// The node that a rule prefers; None where the episode has ended.
    fn best_by_rule(&self, rule: i64) -> Result<Option<usize>>;

    /// How many pods were bound and dropped so far, and how the last one's limits are kept.
    fn counts(&self) -> Result<[i64; 3]> {
        Err("pods of a run are not counted here".to_owned())
    }

    /// The shares of CPU and memory in use by node.
    fn loads(&self) -> Result<Vec<[f64; 2]>> {
        Err("nodes of a run are read from its engine".to_owned())
    }

    /// The episode, if it is one with latencies.
    fn latencies(&self) -> Result<&LatencyEpisode> {
        Err("the episode has no latencies".to_owned())
    }

    /// The run, if it is one.
    fn engine(&self) -> Result<&Engine> {
        Err("the episode is not a run".to_owned())
    }
}

/// What an action is rewarded for, by the states before and after it.
#[derive(Clone, Copy)]
pub enum Objective {
    /// GPUs that the action allocated.
    Allocation,
    /// GPUs made usable for typical pods.
    Fragmentation,
    /// 1 - 2 s / (s + 1), s the standard deviation over nodes of the share of CPU in use.
    Balance,
    /// The share of nodes that hold no pod.
    MostAllocated,
    /// 1 - sqrt(mean of u²), u the share of CPU in use on a node.
    LeastAllocated,
    /// -(pod-hours waited from the action to the next decision).
    WaitingTime,
    /// The share of the pods of the placed pod's owner in its rack, itself included; 1 without an owner.
    Locality,
}

impl Objective {
    pub fn read(number: i64) -> Result<Self> {
        let objectives = [
            Objective::Allocation,
            Objective::Fragmentation,
            Objective::Balance,
            Objective::MostAllocated,
            Objective::LeastAllocated,
            Objective::WaitingTime,
            Objective::Locality,
        ];
        Ok(objectives[index("episode.objectives", number, objectives.len())?])
    }

    pub fn reward(self, before: &Summary, after: &Summary) -> f64 {
        match self {
            Objective::Allocation => (after.gpu_taken - before.gpu_taken) / GPU as f64,
            Objective::Fragmentation => (before.fragmented - after.fragmented) / GPU as f64,
            Objective::Balance => {
                let deviation = after.cpu_deviation();
                1.0 - 2.0 * deviation / (deviation + 1.0)
            }
            Objective::MostAllocated => 1.0 - after.nodes_used / after.nodes.max(1.0),
            Objective::LeastAllocated => 1.0 - (after.cpu_square.max(0.0) / after.cpu_nodes.max(1.0)).sqrt(),
            Objective::WaitingTime => -after.pod_seconds_waited / SECONDS_AN_HOUR,
            Objective::Locality => after.rack_locality,
        }
    }
}

/// A weighted sum of objectives.
#[derive(Clone)]
pub struct Reward(Vec<(Objective, f64)>);

impl Reward {
    /// Read `episode.objectives` and `episode.weights`.
    pub fn read(arrays: &Arrays) -> Result<Self> {
        let objectives: Vec<i64> = arrays.list("episode.objectives")?;
        let weights: Vec<f64> = arrays.list_of("episode.weights", objectives.len())?;
        let each = objectives.into_iter().zip(weights).map(|(number, weight)| Ok((Objective::read(number)?, weight)));
        Ok(Reward(each.collect::<Result<_>>()?))
    }

    pub fn of(&self, before: &Summary, after: &Summary) -> f64 {
        let mut reward = 0.0;
        for (objective, weight) in &self.0 {
            reward += weight * objective.reward(before, after);
        }
        reward
    }
}

/// The steps of an episode.
#[derive(Clone)]
pub struct Steps {
    /// Cost of an illegal action, which changes nothing else.
    penalty: f64,
    /// Steps after which an episode is truncated.
    limit: usize,
    /// All actions so far: taking them again leads to the same state.
    pub taken: Vec<i64>,
}

impl Steps {
    /// Read `episode.penalty` and `episode.step_limit`.
    pub fn read(arrays: &Arrays) -> Result<Self> {
        let penalty: Vec<f64> = arrays.list_of("episode.penalty", 1)?;
        let limit = index("episode.step_limit", arrays.number("episode.step_limit")?, usize::MAX)?;
        Ok(Steps { penalty: penalty[0], limit, taken: Vec::new() })
    }

    #[cfg(test)]
    pub fn of(penalty: f64, limit: usize) -> Self {
        Steps { penalty, limit, taken: Vec::new() }
    }

    /// Note an action; return its node if the pod may run there.
    pub fn take(&mut self, action: i64, mask: &[i8]) -> Option<usize> {
        self.taken.push(action);
        usize::try_from(action).ok().filter(|&n| mask.get(n) == Some(&1))
    }

    /// What the last action led to; an illegal one has no reward.
    pub fn outcome(&self, reward: Option<f64>, terminated: bool) -> Step {
        let truncated = !terminated && self.taken.len() >= self.limit;
        Step { reward: reward.unwrap_or(-self.penalty), terminated, truncated }
    }
}

/// Write an observation without a pod and without nodes to choose, of the cluster as it is left.
pub fn observe_end(now: &Summary, observation: &mut Observation) {
    observation.nodes.fill(0.0);
    observation.pod.fill(0.0);
    observation.mask.fill(0);
    now.write_context(0, observation.context);
}

/// A run in which the host chooses nodes.
#[derive(Clone)]
pub struct RunEpisode {
    engine: Engine,
    reward: Reward,
    steps: Steps,
    /// How many events were followed, the time until which waiting is counted, and how many pods wait since then.
    followed: usize,
    clock: f64,
    waiting: f64,
    /// The state now, before the last action, and right after it.
    now: Summary,
    before: Summary,
    after: Summary,
}

/// What an action led to.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Step {
    pub reward: f64,
    pub terminated: bool,
    pub truncated: bool,
}

impl RunEpisode {
    /// Read a run, see `Engine::read`, and `episode.*`; write its first observation, or that of its end.
    pub fn begin(arrays: &Arrays, observation: &mut Observation) -> Result<(Self, bool)> {
        let engine = Engine::read(arrays)?;
        let mut episode = RunEpisode {
            reward: Reward::read(arrays)?,
            steps: Steps::read(arrays)?,
            followed: 0,
            clock: engine.first_time(),
            waiting: 0.0,
            now: engine.summary(),
            before: engine.summary(),
            after: engine.summary(),
            engine,
        };
        let asks = episode.run_to_next_decision();
        let (nodes, width) = episode.shape()?;
        episode.observe(asks, &mut observation.first(nodes, width)?)?;
        Ok((episode, asks))
    }

    fn act(&mut self, node: i64) -> Result<()> {
        self.before = self.now.clone();
        let pod = self.engine.question()?;
        self.engine.answer(node)?;
        // Exactly one event: the reward is about the state that the action leads to, not about what happens next.
        self.engine.advance(self.engine.events.len() + 1);
        self.after = self.engine.summary();
        self.follow();
        self.after.rack_locality = self.engine.share_nearby(pod, node as usize);
        Ok(())
    }

    /// Advance to the next question; return false if there is none.
    fn run_to_next_decision(&mut self) -> bool {
        let asks = self.engine.advance(usize::MAX) == Stop::NeedsNode;
        self.follow();
        // A question about a new arrival comes after the last event, one about a waiting pod (a retry) at its time.
        if let (true, Some(time)) = (asks, self.engine.time_of_new_arrival()) {
            self.wait_until(time);
        }
        self.now = self.engine.summary();
        asks
    }

    /// Count the waiting until the events since the last call.
    fn follow(&mut self) {
        if self.engine.waits() {
            for k in self.followed..self.engine.events.len() {
                // Those who waited after the previous event did so until this one.
                self.wait_until(self.engine.events[k].time);
                self.waiting = self.engine.events[k].totals.waiting as f64;
            }
        }
        self.followed = self.engine.events.len();
    }

    fn wait_until(&mut self, time: f64) {
        self.after.pod_seconds_waited += self.waiting * (time - self.clock);
        self.clock = time;
    }

    /// Write the observation of the question, or of an end: no pod, no node to choose, the cluster as it is left.
    fn observe(&mut self, asks: bool, observation: &mut Observation) -> Result<()> {
        if asks {
            return self.engine.observe(observation);
        }
        observe_end(&self.now, observation);
        Ok(())
    }
}

impl Episode for RunEpisode {
    fn step(&mut self, action: i64, observation: &mut Observation) -> Result<Step> {
        if self.steps.take(action, observation.mask).is_none() {
            return Ok(self.steps.outcome(None, false));
        }
        self.act(action)?;
        let asks = self.run_to_next_decision();
        // With the waiting until the next decision.
        let reward = self.reward.of(&self.before, &self.after);
        self.observe(asks, observation)?;
        Ok(self.steps.outcome(Some(reward), !asks))
    }

    fn shape(&self) -> Result<(usize, usize)> {
        Ok((self.engine.decider.nodes(), self.engine.observed_features()?))
    }

    fn steps(&self) -> &Steps {
        &self.steps
    }

    fn states(&self) -> [&Summary; 3] {
        [&self.now, &self.before, &self.after]
    }

    fn best_by_rule(&self, rule: i64) -> Result<Option<usize>> {
        let rule = index("rule", rule, RULES.len())?;
        if self.engine.question().is_ok() { self.engine.best_by_rule(rule).map(Some) } else { Ok(None) }
    }

    fn engine(&self) -> Result<&Engine> {
        Ok(&self.engine)
    }
}

/// Write the rewards of actions, from the states before and after them, 16 numbers each.
pub fn write_rewards(
    numbers: &[i64],
    weights: &[f64],
    before: &[f64],
    after: &[f64],
    rewards: &mut [f64],
) -> Result<()> {
    let objectives = numbers.iter().zip(weights).map(|(number, weight)| Ok((Objective::read(*number)?, *weight)));
    let reward = Reward(objectives.collect::<Result<_>>()?);
    let states = before.chunks_exact(STATES / 3).zip(after.chunks_exact(STATES / 3));
    for (value, (before, after)) in rewards.iter_mut().zip(states) {
        *value = reward.of(&Summary::from_numbers(before), &Summary::from_numbers(after));
    }
    Ok(())
}
