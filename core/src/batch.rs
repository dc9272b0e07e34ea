//! Episodes that are stepped together, in threads where there are some.

use crate::arrays::{Arrays, Result, index};
use crate::deployments::Filling;
use crate::episode::{Episode, RunEpisode, STATES, Step};
use crate::latency::LatencyEpisode;
use crate::views::Observation;

/// Episodes that are stepped together.
pub struct Batch {
    episodes: Vec<Option<Box<dyn Episode>>>,
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

    /// Write the states now, before the last action and right after it, see `steersman.objectives.summary`.
    fn write_states(&mut self, episode: &dyn Episode) -> Result<()> {
        let (nodes, _) = episode.shape()?;
        for (row, summary) in self.states.chunks_exact_mut(STATES / 3).zip(episode.states()) {
            let (last, numbers) = row.split_last_mut().expect("a state has numbers");
            numbers.copy_from_slice(&summary.numbers());
            *last = nodes as f64;
        }
        Ok(())
    }
}

impl Batch {
    pub fn new(count: usize) -> Self {
        Batch { episodes: (0..count).map(|_| None).collect() }
    }

    /// Begin an episode; return whether it asks. Its results are those of the last step.
    ///
    /// What the arrays describe decides its kind, see `Filling::begin`, `LatencyEpisode::begin` and `RunEpisode::begin`;
    /// without a penalty it is another one of the kind that this environment had, see `Episode::again`.
    pub fn begin(
        &mut self,
        e: i64,
        bytes: &[u8],
        observations: &mut Observations,
        results: &mut Results,
    ) -> Result<bool> {
        let e = index("episode", e, self.episodes.len())?;
        let (count, arrays) = (self.episodes.len(), Arrays::new(bytes)?);
        let (mut rows, mut results) = (observations.rows(count)?, results.rows(count)?);
        let row = &mut rows[e];
        // A smaller cluster than before leaves no rows of the larger one.
        row.nodes.fill(0.0);
        row.mask.fill(0);
        let is_like_the_last = !arrays.has("episode.penalty");
        if let (true, Some(episode)) = (is_like_the_last, &mut self.episodes[e]) {
            let asks = episode.again(&arrays, row)?;
            results[e].write_states(&**episode)?;
            return Ok(asks);
        }
        let (episode, asks): (Box<dyn Episode>, bool) = if arrays.has("filling.targets") {
            boxed(Filling::begin(&arrays, row)?)
        } else if arrays.has("latency.filters") {
            boxed(LatencyEpisode::begin(&arrays, row)?)
        } else {
            boxed(RunEpisode::begin(&arrays, row)?)
        };
        results[e].write_states(&*episode)?;
        self.episodes[e] = Some(episode);
        Ok(asks)
    }

    /// Take an action in every episode.
    pub fn step(&mut self, actions: &[i64], observations: &mut Observations, results: &mut Results) -> Result<()> {
        let count = self.episodes.len();
        if actions.len() != count {
            return Err(format!("a batch of {count} episodes has as many actions, not {}", actions.len()));
        }
        let fewest = self.episodes.iter().flatten().map(|episode| episode.fewest_together()).max().unwrap_or(1);
        let rows = observations.rows(count)?.into_iter().zip(results.rows(count)?);
        let work = self.episodes.iter_mut().zip(actions).zip(rows);
        each(work.collect(), fewest, |((episode, action), (mut row, mut result))| {
            let episode = episode.as_mut().ok_or("begin every episode before the first step")?;
            let (nodes, width) = episode.shape()?;
            result.write(episode.step(*action, &mut row.first(nodes, width)?)?);
            result.write_states(&**episode)
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
        results[e].write_states(&**episode)
    }

    /// Return an episode that was begun.
    pub fn episode(&self, e: usize) -> Result<&dyn Episode> {
        self.episodes.get(e).and_then(Option::as_deref).ok_or_else(|| format!("episode {e} was not begun"))
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

fn boxed<E: Episode + 'static>((episode, asks): (E, bool)) -> (Box<dyn Episode>, bool) {
    (Box::new(episode), asks)
}

/// Do work in parallel where there are threads, a thread at least so much of it; return the first error.
#[cfg_attr(target_family = "wasm", allow(unused_variables))] // there are no threads
fn each<T: Send>(work: Vec<T>, fewest: usize, call: impl Fn(T) -> Result<()> + Sync) -> Result<()> {
    #[cfg(not(target_family = "wasm"))]
    if work.len() > fewest {
        use rayon::prelude::*;
        return work.into_par_iter().with_min_len(fewest).try_for_each(&call);
    }
    work.into_iter().try_for_each(call)
}
