//! Fragmentation along a run by another profile than that of its policy: all policies are measured alike.

use crate::arrays::{Arrays, Result, index};
use crate::cluster::Cluster;
use crate::fragmentation::{CAUSES, Fragments, Profile};

/// Replay a run's placements, and write the causes of fragmentation after each event, in rows of 6.
///
/// Read `nodes.*` as at the start of the run, `classes.*`, `profile.*`, `recount.weight`, the GPUs that each device of a
/// node is, 0 for nodes that do not count; and `recount.changes` by event: node, class, devices, and 1 for a pod that was
/// bound, -1 for one that left, 0 for neither.
pub fn recount(arrays: &Arrays, out: &mut [f64]) -> Result<()> {
    let (mut cluster, profile) = (Cluster::read(arrays)?, Profile::read(arrays)?);
    let weight: Vec<f64> = arrays.list_of("recount.weight", cluster.nodes.len())?;
    let changes: Vec<Vec<i64>> = arrays.rows("recount.changes", 4)?;
    if out.len() != CAUSES * changes.len() {
        return Err(format!("expected {} numbers, not {}", CAUSES * changes.len(), out.len()));
    }
    let mut fragments: Vec<Fragments> = cluster.nodes.iter().map(|node| profile.fragments(node)).collect();
    let mut sums = [0.0; CAUSES];
    for (fragments, weight) in fragments.iter().zip(&weight).filter(|(_, weight)| **weight > 0.0) {
        sums.iter_mut().zip(fragments.causes).for_each(|(sum, cause)| *sum += weight * cause);
    }
    for (change, row) in changes.iter().zip(out.chunks_exact_mut(CAUSES)) {
        if change[3] != 0 {
            let n = index("recount.changes, node", change[0], cluster.nodes.len())?;
            let c = index("recount.changes, class", change[1], cluster.classes.len())?;
            let (node, class, devices) = (&mut cluster.nodes[n], &cluster.classes[c], change[2] as u64);
            if change[3] > 0 {
                node.place(class, devices)
            } else {
                node.remove(class, devices)
            }
            let before = std::mem::replace(&mut fragments[n], profile.fragments(node));
            if weight[n] > 0.0 {
                sums.iter_mut().zip(before.causes).for_each(|(sum, cause)| *sum -= weight[n] * cause);
                sums.iter_mut().zip(fragments[n].causes).for_each(|(sum, cause)| *sum += weight[n] * cause);
            }
        }
        row.copy_from_slice(&sums);
    }
    Ok(())
}
