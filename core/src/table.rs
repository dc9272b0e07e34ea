//! Scores of every (class, node), updated lazily: a log of changed nodes, and a tree of maxima for each class.

const FANOUT: usize = 16;
pub const INFEASIBLE: f64 = f64::NEG_INFINITY;
/// Changes that are logged for each node until rows are computed again from all nodes.
const LOGGED: usize = 64;

#[derive(Clone, Default)]
struct Row {
    /// Length of the log at the last refresh.
    seen: Option<usize>,
    /// Scores, then maxima of `FANOUT` neighbours, level by level up to the root.
    levels: Vec<Vec<f64>>,
    /// By node: the score of a rule that a sum normalizes over the feasible nodes; empty if there is none.
    raw: Vec<i64>,
}

/// The score of a class on a node: what is summed as it is, and what is normalized over the feasible nodes.
pub struct Parts {
    pub plain: f64,
    pub raw: i64,
}

#[derive(Clone)]
pub struct ScoreTable {
    nodes: usize,
    rows: Vec<Row>,
    log: Vec<usize>,
    /// By node: number of the last refresh that visited it.
    visited: Vec<usize>,
    refreshes: usize,
    /// Weight of the normalized rule in the sum, if there is one.
    normalized: Option<f64>,
}

impl ScoreTable {
    pub fn new(nodes: usize, classes: usize, normalized: Option<f64>) -> Self {
        let rows = vec![Row::default(); classes];
        ScoreTable { nodes, rows, log: Vec::new(), visited: vec![0; nodes], refreshes: 0, normalized }
    }

    /// Whether `Parts::raw` is read.
    pub fn is_normalized(&self) -> bool {
        self.normalized.is_some()
    }

    /// Forget the scores of all but the first `kept` classes, and make room for so many.
    pub fn set_classes(&mut self, kept: usize, classes: usize) {
        self.rows.truncate(kept);
        self.rows.resize(classes, Row::default());
    }

    pub fn changed(&mut self, n: usize) {
        if self.log.len() == LOGGED * self.nodes {
            self.log.clear();
            self.rows.iter_mut().for_each(|row| row.seen = None);
        }
        self.log.push(n);
    }

    /// Compute the scores of a class on the nodes that changed since the last refresh of its row; None: it does not fit.
    pub fn refresh(&mut self, c: usize, mut score: impl FnMut(usize) -> Option<Parts>) {
        self.refreshes += 1;
        let row = &mut self.rows[c];
        let is_normalized = self.normalized.is_some();
        match row.seen.replace(self.log.len()) {
            Some(seen) => {
                for &n in &self.log[seen..] {
                    if self.visited[n] != self.refreshes {
                        self.visited[n] = self.refreshes;
                        let parts = score(n);
                        if is_normalized {
                            row.raw[n] = parts.as_ref().map_or(0, |parts| parts.raw);
                        }
                        row.set(n, parts.map_or(INFEASIBLE, |parts| parts.plain));
                    }
                }
            }
            None => row.build(self.nodes, is_normalized, score),
        }
    }

    /// The best node of a class, the first of equals; with a mask among its nodes. Refresh first.
    pub fn best(&self, c: usize, mask: Option<&[bool]>) -> Option<usize> {
        let levels = &self.rows[c].levels;
        if mask.is_some() || self.normalized.is_some() {
            return self.best_by_scan(c, mask);
        }
        let best = levels.last()?[0];
        if best == INFEASIBLE {
            return None;
        }
        let mut i = 0;
        for level in levels.iter().rev().skip(1) {
            let start = i * FANOUT;
            i = start + level[start..].iter().position(|&value| value == best)?;
        }
        Some(i)
    }

    fn best_by_scan(&self, c: usize, mask: Option<&[bool]>) -> Option<usize> {
        let mut best = (INFEASIBLE, None);
        for (n, score) in self.scores(c, mask).enumerate() {
            if score > best.0 {
                best = (score, Some(n));
            }
        }
        best.1
    }

    /// The sums of a class by node, without what is normalized. Refresh first.
    pub fn plain(&self, c: usize) -> &[f64] {
        &self.rows[c].levels[0][..self.nodes]
    }

    /// The scores that `best` compares, by node; infeasible outside the mask.
    pub fn scores<'a>(&'a self, c: usize, mask: Option<&'a [bool]>) -> impl Iterator<Item = f64> + 'a {
        let row = &self.rows[c];
        let plain = move |n: usize| if mask.is_none_or(|mask| mask[n]) { row.levels[0][n] } else { INFEASIBLE };
        let feasible = (0..row.raw.len()).filter(move |&n| plain(n) != INFEASIBLE);
        let low = feasible.clone().map(|n| row.raw[n]).min();
        let range = low.zip(feasible.map(|n| row.raw[n]).max()).filter(|(low, high)| low < high);
        (0..self.nodes).map(move |n| match (plain(n), range, self.normalized) {
            (score, Some((low, high)), Some(weight)) if score != INFEASIBLE => {
                score + weight * ((row.raw[n] - low) * 100 / (high - low)) as f64
            }
            (score, ..) => score,
        })
    }
}

impl Row {
    fn build(&mut self, nodes: usize, is_normalized: bool, mut score: impl FnMut(usize) -> Option<Parts>) {
        self.raw = vec![0; if is_normalized { nodes } else { 0 }];
        let mut level = Vec::with_capacity(nodes.next_multiple_of(FANOUT));
        for n in 0..nodes {
            let parts = score(n);
            if let (Some(raw), Some(parts)) = (self.raw.get_mut(n), &parts) {
                *raw = parts.raw;
            }
            level.push(parts.map_or(INFEASIBLE, |parts| parts.plain));
        }
        self.levels.clear();
        loop {
            level.resize(level.len().next_multiple_of(FANOUT).max(FANOUT), INFEASIBLE);
            let above: Vec<f64> = level.chunks(FANOUT).map(maximum).collect();
            self.levels.push(std::mem::replace(&mut level, above));
            if level.len() == 1 {
                break self.levels.push(level);
            }
        }
    }

    fn set(&mut self, mut i: usize, mut value: f64) {
        for level in &mut self.levels {
            if level[i] == value {
                return;
            }
            level[i] = value;
            i /= FANOUT;
            if level.len() > 1 {
                value = maximum(&level[i * FANOUT..(i + 1) * FANOUT]);
            }
        }
    }
}

fn maximum(values: &[f64]) -> f64 {
    values.iter().fold(INFEASIBLE, |most, &value| if value > most { value } else { most })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn the_best_node_is_the_first_with_the_highest_score(
            nodes in 1usize..70,
            changes in prop::collection::vec((0usize..70, -3i64..4), 1..200),
        ) {
            let mut scores: Vec<Option<i64>> = (0..nodes).map(|n| (n % 5 != 0).then_some(n as i64 % 7)).collect();
            for normalized in [None, Some(0.5)] {
                let mut table = ScoreTable::new(nodes, 1, normalized);
                for &(n, value) in &changes {
                    scores[n % nodes] = (value > -3).then_some(value);
                    table.changed(n % nodes);
                    table.refresh(0, |n| scores[n].map(|score| Parts { plain: score as f64, raw: -score }));
                    let (low, high) = (scores.iter().flatten().min(), scores.iter().flatten().max());
                    let total = |score: i64| match (low, high, normalized) {
                        (Some(&low), Some(&high), Some(weight)) if low < high =>
                            score as f64 + weight * ((high - score) * 100 / (high - low)) as f64,
                        _ => score as f64,
                    };
                    let best = scores.iter().flatten().map(|&score| total(score)).fold(INFEASIBLE, f64::max);
                    let first = scores.iter().position(|score| score.is_some_and(|score| total(score) == best));
                    prop_assert_eq!(table.best(0, None), first);
                    let mask: Vec<bool> = (0..nodes).map(|n| n % 3 == 0).collect();
                    let masked: Vec<f64> = table.scores(0, Some(&mask)).collect();
                    prop_assert!((0..nodes).all(|n| (masked[n] == INFEASIBLE) == (!mask[n] || scores[n].is_none())));
                }
            }
        }
    }
}
