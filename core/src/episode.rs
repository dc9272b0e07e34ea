//! Episodes of reinforcement learning: runs in which the host chooses nodes, and is rewarded for each choice.

use crate::arrays::{Arrays, Result, index};
use crate::cluster::GPU;
use crate::engine::{Engine, Stop};
use crate::views::{Observation, Summary};

const SECONDS_AN_HOUR: f64 = 3600.0;
/// Numbers of the three states of an episode.
const STATES: usize = 3 * 16;

/// What an action is rewarded for, by the states before and after it.
#[derive(Clone, Copy)]
enum Objective {
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
    fn read(number: i64) -> Result<Self> {
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

    fn reward(self, before: &Summary, after: &Summary) -> f64 {
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

/// A run in which the host chooses nodes.
#[derive(Clone)]
pub struct Episode {
    pub engine: Engine,
    objectives: Vec<(Objective, f64)>,
    /// Cost of an illegal action, which changes nothing else.
    penalty: f64,
    /// Steps after which an episode is truncated.
    step_limit: i64,
    steps: i64,
    /// How many events were followed, the time until which waiting is counted, and how many pods wait since then.
    followed: usize,
    clock: f64,
    waiting: f64,
    /// The state now, before the last action, and right after it.
    pub now: Summary,
    pub before: Summary,
    pub after: Summary,
}

/// What an action led to.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Step {
    pub reward: f64,
    pub terminated: bool,
    pub truncated: bool,
}

impl Episode {
    /// Read a run, see `Engine::read`, and `episode.*`; write its first observation, or that of its end.
    pub fn begin(arrays: &Arrays, observation: &mut Observation) -> Result<(Self, bool)> {
        let engine = Engine::read(arrays)?;
        let objectives: Vec<i64> = arrays.list("episode.objectives")?;
        let weights: Vec<f64> = arrays.list_of("episode.weights", objectives.len())?;
        let penalty: Vec<f64> = arrays.list_of("episode.penalty", 1)?;
        let objectives =
            objectives.into_iter().zip(weights).map(|(number, weight)| Ok((Objective::read(number)?, weight)));
        let mut episode = Episode {
            objectives: objectives.collect::<Result<_>>()?,
            penalty: penalty[0],
            step_limit: arrays.number("episode.step_limit")?,
            steps: 0,
            followed: 0,
            clock: engine.first_time(),
            waiting: 0.0,
            now: engine.summary(),
            before: engine.summary(),
            after: engine.summary(),
            engine,
        };
        let asks = episode.run_to_next_decision();
        episode.observe(asks, observation)?;
        Ok((episode, asks))
    }

    /// Take an action. An illegal one (no such node, or the pod may not run there) costs the penalty.
    pub fn step(&mut self, action: i64, observation: &mut Observation) -> Result<Step> {
        self.steps += 1;
        let is_legal = usize::try_from(action).is_ok_and(|n| observation.mask.get(n) == Some(&1));
        let (mut reward, mut terminated) = (-self.penalty, false);
        if is_legal {
            self.act(action)?;
            terminated = !self.run_to_next_decision();
            // With the waiting until the next decision.
            reward = 0.0;
            for (objective, weight) in &self.objectives {
                reward += weight * objective.reward(&self.before, &self.after);
            }
            self.observe(!terminated, observation)?;
        }
        Ok(Step { reward, terminated, truncated: !terminated && self.steps >= self.step_limit })
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
        observation.nodes.fill(0.0);
        observation.pod.fill(0.0);
        observation.mask.fill(0);
        self.now.write_context(0, observation.context);
        Ok(())
    }

    /// Write the states now, before the last action and right after it, see `steersman.objectives.summary`.
    fn write_states(&self, out: &mut [f64]) {
        let states = [&self.now, &self.before, &self.after];
        for (row, summary) in out.chunks_exact_mut(STATES / states.len()).zip(states) {
            let (last, numbers) = row.split_last_mut().expect("a state has numbers");
            numbers.copy_from_slice(&summary.numbers());
            *last = self.engine.decider.nodes() as f64;
        }
    }

    /// How many nodes an observation has, and how many features each.
    pub fn shape(&self) -> Result<(usize, usize)> {
        Ok((self.engine.decider.nodes(), self.engine.observed_features()?))
    }
}

/// Episodes that are stepped together.
pub struct Batch {
    episodes: Vec<Option<Episode>>,
}

/// Rows of observations of a batch: of nodes, [E, N, F], pods, [E, P], clusters, [E, X], and where pods may run, [E, N].
pub struct Observations<'a> {
    pub nodes: &'a mut [f32],
    pub pods: &'a mut [f32],
    pub contexts: &'a mut [f32],
    pub masks: &'a mut [i8],
}

/// What steps of a batch lead to, [E] each, and the states of the episodes, [E, 3, 16].
pub struct Results<'a> {
    pub rewards: &'a mut [f64],
    pub terminated: &'a mut [i8],
    pub truncated: &'a mut [i8],
    pub states: &'a mut [f64],
}

/// The results of one episode.
struct EpisodeResults<'a> {
    reward: &'a mut f64,
    terminated: &'a mut i8,
    truncated: &'a mut i8,
    states: &'a mut [f64],
}

impl EpisodeResults<'_> {
    fn write(&mut self, step: Step) {
        *self.reward = step.reward;
        (*self.terminated, *self.truncated) = (i8::from(step.terminated), i8::from(step.truncated));
    }
}

impl Batch {
    pub fn new(count: usize) -> Self {
        Batch { episodes: vec![None; count] }
    }

    /// Begin an episode, see `Episode::begin`; return whether it asks. Its results are those of the last step.
    pub fn begin(
        &mut self,
        e: i64,
        bytes: &[u8],
        observations: &mut Observations,
        results: &mut Results,
    ) -> Result<bool> {
        let e = index("episode", e, self.episodes.len())?;
        let (count, arrays) = (self.episodes.len(), Arrays::new(bytes)?);
        let nodes = arrays.list::<i64>("nodes.gpu_count")?.len();
        let (mut rows, mut results) = (observations.rows(count)?, results.rows(count)?);
        let row = &mut rows[e];
        // A smaller cluster than before leaves no rows of the larger one.
        row.nodes.fill(0.0);
        row.mask.fill(0);
        let width = row.nodes.len() / row.mask.len().max(1);
        let mut observation = row.first(nodes, width)?;
        let (episode, asks) = Episode::begin(&arrays, &mut observation)?;
        episode.write_states(results[e].states);
        self.episodes[e] = Some(episode);
        Ok(asks)
    }

    /// Take an action in every episode.
    pub fn step(&mut self, actions: &[i64], observations: &mut Observations, results: &mut Results) -> Result<()> {
        let count = self.episodes.len();
        if actions.len() != count {
            return Err(format!("a batch of {count} episodes has as many actions, not {}", actions.len()));
        }
        let rows = observations.rows(count)?.into_iter().zip(results.rows(count)?);
        let work = self.episodes.iter_mut().zip(actions).zip(rows);
        each(work.collect(), |((episode, action), (mut row, mut result))| {
            let episode = episode.as_mut().ok_or("begin every episode before the first step")?;
            let (nodes, width) = episode.shape()?;
            result.write(episode.step(*action, &mut row.first(nodes, width)?)?);
            episode.write_states(result.states);
            Ok(())
        })
    }

    /// Take actions in one episode, one after another.
    pub fn replay(
        &mut self,
        e: usize,
        actions: &[i64],
        observations: &mut Observations,
        results: &mut Results,
    ) -> Result<()> {
        let count = self.episodes.len();
        let episode = self.episodes.get_mut(e).and_then(Option::as_mut).ok_or("the episode was not begun")?;
        let (nodes, width) = episode.shape()?;
        let (mut rows, mut results) = (observations.rows(count)?, results.rows(count)?);
        for action in actions {
            results[e].write(episode.step(*action, &mut rows[e].first(nodes, width)?)?);
        }
        episode.write_states(results[e].states);
        Ok(())
    }

    /// Return an episode that was begun.
    pub fn episode(&self, e: usize) -> Result<&Episode> {
        self.episodes.get(e).and_then(Option::as_ref).ok_or_else(|| format!("episode {e} was not begun"))
    }
}

impl Observations<'_> {
    /// The buffers of each episode.
    fn rows(&mut self, count: usize) -> Result<Vec<Observation<'_>>> {
        let lengths = [self.nodes.len(), self.pods.len(), self.contexts.len(), self.masks.len()];
        if count == 0 || lengths.iter().any(|length| length % count != 0 || *length == 0) {
            return Err(format!("{lengths:?} numbers are not observations of {count} episodes"));
        }
        let [nodes, pods, contexts, masks] = lengths.map(|length| length / count);
        let rows = self.nodes.chunks_exact_mut(nodes).zip(self.pods.chunks_exact_mut(pods));
        let rows = rows.zip(self.contexts.chunks_exact_mut(contexts)).zip(self.masks.chunks_exact_mut(masks));
        Ok(rows.map(|(((nodes, pod), context), mask)| Observation { nodes, pod, context, mask }).collect())
    }
}

impl Results<'_> {
    /// The results of each episode.
    fn rows(&mut self, count: usize) -> Result<Vec<EpisodeResults<'_>>> {
        let lengths = [self.rewards.len(), self.terminated.len(), self.truncated.len(), self.states.len()];
        if lengths != [count, count, count, STATES * count] {
            return Err(format!("{lengths:?} numbers are not results of {count} episodes"));
        }
        let flags = self.terminated.iter_mut().zip(self.truncated.iter_mut());
        let rows = self.rewards.iter_mut().zip(flags).zip(self.states.chunks_exact_mut(STATES));
        let row =
            |((reward, (terminated, truncated)), states)| EpisodeResults { reward, terminated, truncated, states };
        Ok(rows.map(row).collect())
    }
}

/// Do work in parallel, where there are threads; return the first error.
fn each<T: Send>(work: Vec<T>, call: impl Fn(T) -> Result<()> + Sync) -> Result<()> {
    #[cfg(not(target_family = "wasm"))]
    {
        use rayon::prelude::*;
        work.into_par_iter().with_min_len(4).try_for_each(&call)
    }
    #[cfg(target_family = "wasm")]
    work.into_iter().try_for_each(call)
}
