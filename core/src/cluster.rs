//! Nodes, what is left of them, and what pods request. Everything is an integer, so that placing and removing a pod
//! cancel exactly.

use crate::arrays::{Arrays, Result, index};

/// Milli of a whole GPU.
pub const GPU: i64 = 1000;
/// Devices of a node are a bit mask in a signed 64-bit integer of the host.
pub const MOST_DEVICES: usize = 62;
pub const CPU: usize = 0;
pub const MEMORY: usize = 1;
pub const PODS: usize = 2;
pub const EPHEMERAL: usize = 3;

/// A type of GPUs of a cluster: their model, "" if unknown, and the names that they are offered under, none: any.
pub type GpuType = (String, Vec<String>);

/// Read `policy.types`, the types of a cluster's GPUs; None: the host gives a profile instead.
pub fn read_types(arrays: &Arrays) -> Result<Option<Vec<GpuType>>> {
    if !arrays.has("policy.types") {
        return Ok(None);
    }
    let types = serde_json::from_slice(&arrays.list::<u8>("policy.types")?);
    types.map(Some).map_err(|error| format!("policy.types: expected [[model, [name, ...]], ...]: {error}"))
}

/// Arrays of a host for what the pods of a cluster have changed: of nodes, [N, *], and of what counts pods, [*, N].
pub struct PodCounts<'a> {
    pub free: &'a mut [i64],
    pub nonzero: &'a mut [i64],
    pub gpu_free: &'a mut [i64],
    pub gpu_kinds: &'a mut [i64],
    pub matched: &'a mut [i32],
    pub owned: &'a mut [i32],
    pub owned_total: &'a mut [i64],
    pub held: &'a mut [i32],
}

/// Capacity of a node and what is left of it. Resources are milli-CPU, bytes of memory, pods, bytes of ephemeral
/// storage, then extended resources; the last one stands for whatever no node offers.
#[derive(Clone, Debug, PartialEq)]
pub struct Node {
    pub allocatable: Vec<i64>,
    /// Allocatable minus the requests of the node's pods; below zero where a pod was placed by force.
    pub free: Vec<i64>,
    /// CPU and memory taken in kube-scheduler's scoring view, which has defaults for missing requests.
    pub nonzero: [i64; 2],
    /// Milli left of each device.
    pub gpus: Vec<i64>,
    /// Number of the devices' type (model and names); the last one where they have neither.
    pub gpu_type: usize,
    /// Pods with devices on the node: shares first, then those with k whole ones (or more, the last one).
    pub gpu_kinds: Vec<i64>,
}

/// What a class of equal pods requests.
#[derive(Clone, Debug)]
pub struct Class {
    pub request: Vec<i64>,
    /// The resources that are requested: column and amount.
    pub requested: Vec<(usize, i64)>,
    pub nonzero: [i64; 2],
    pub gpu_count: i64,
    pub gpu_milli: i64,
    /// Column of the resources for GPUs of the requested name where nodes count them.
    pub gpu_column: usize,
    /// Row of `Cluster::allowed`.
    pub constraint: usize,
}

impl Class {
    pub fn without_gpus(request: Vec<i64>, nonzero: [i64; 2]) -> Self {
        let (gpu_count, gpu_milli, gpu_column, constraint) = (0, 0, 0, 0);
        Class { requested: requested(&request), request, nonzero, gpu_count, gpu_milli, gpu_column, constraint }
    }

    /// Whether pods want a part of one device.
    pub fn is_share(&self) -> bool {
        self.gpu_count == 1 && self.gpu_milli < GPU
    }

    pub fn gpu_total(&self) -> i64 {
        self.gpu_count * self.gpu_milli
    }
}

impl Node {
    /// Whether the node counts the GPUs that a class requests, so that a pod gets none of the devices.
    pub fn counts_gpus(&self, class: &Class) -> bool {
        class.gpu_count > 0 && self.allocatable[class.gpu_column] > 0
    }

    /// How many devices a pod takes; 0 where its GPUs are counted.
    pub fn devices_taken(&self, class: &Class) -> i64 {
        if self.counts_gpus(class) { 0 } else { class.gpu_count }
    }

    /// Whether there is enough of every requested resource and device.
    ///
    /// A resource that is not requested is not checked, as in kube-scheduler: it matters on a node over its allocatable.
    #[inline]
    pub fn has_room(&self, class: &Class) -> bool {
        // Without branches: which resource lacks is hard to predict.
        if !class.requested.iter().fold(true, |has, &(column, amount)| has & (amount <= self.free[column])) {
            return false;
        }
        if class.gpu_count == 0 {
            return true;
        }
        if self.counts_gpus(class) {
            return class.gpu_milli == GPU && class.gpu_count <= self.free[class.gpu_column];
        }
        self.gpus.iter().filter(|&&left| left >= class.gpu_milli).count() as i64 >= class.gpu_count
    }

    /// GPU milli left over all devices; a device of which too much is in use has none.
    pub fn idle_gpu(&self) -> i64 {
        self.gpus.iter().map(|&left| left.max(0)).sum()
    }

    /// GPU milli left of what a class requests: counted ones, or all devices.
    pub fn gpu_left(&self, class: &Class) -> i64 {
        if self.counts_gpus(class) { GPU * self.free[class.gpu_column] } else { self.idle_gpu() }
    }

    /// Index of `gpu_kinds` for a class that requests GPUs.
    pub fn gpu_kind(&self, class: &Class) -> usize {
        if class.gpu_milli < GPU { 0 } else { (class.gpu_count as usize).min(self.gpu_kinds.len() - 1) }
    }

    /// Whether an earlier device has as much left, so that this one need not be tried.
    pub fn has_equal_earlier_device(&self, d: usize) -> bool {
        self.gpus[..d].contains(&self.gpus[d])
    }

    /// The devices that a pod takes by default, as a bit mask; 0: none, or counted. The class must fit.
    ///
    /// Shares take the fullest device that suffices, whole devices the first free ones; the lowest index on ties.
    pub fn best_devices(&self, class: &Class) -> u64 {
        let mut chosen = 0u64;
        for _ in 0..self.devices_taken(class) {
            let suitable =
                self.gpus.iter().enumerate().filter(|&(d, &left)| left >= class.gpu_milli && chosen >> d & 1 == 0);
            match suitable.min_by_key(|&(_, left)| left) {
                Some((d, _)) => chosen |= 1 << d,
                None => break,
            }
        }
        chosen
    }

    /// Place a pod with the devices of the bit mask, without checking that it fits.
    pub fn place(&mut self, class: &Class, devices: u64) {
        self.account(class, devices, 1);
    }

    /// Undo `place` with the same arguments, exactly.
    pub fn remove(&mut self, class: &Class, devices: u64) {
        self.account(class, devices, -1);
    }

    fn account(&mut self, class: &Class, devices: u64, sign: i64) {
        for (free, request) in self.free.iter_mut().zip(&class.request) {
            *free -= sign * request;
        }
        for (taken, request) in self.nonzero.iter_mut().zip(&class.nonzero) {
            *taken += sign * request;
        }
        if class.gpu_count == 0 {
            return;
        }
        if self.counts_gpus(class) {
            self.free[class.gpu_column] -= sign * class.gpu_count;
            return;
        }
        for (d, left) in self.gpus.iter_mut().enumerate() {
            if devices >> d & 1 == 1 {
                *left -= sign * class.gpu_milli;
            }
        }
        let kind = self.gpu_kind(class);
        self.gpu_kinds[kind] += sign;
    }
}

/// Nodes by slot, classes by number, and which node takes which class whatever else runs there.
#[derive(Clone)]
pub struct Cluster {
    pub nodes: Vec<Node>,
    pub classes: Vec<Class>,
    /// By constraint: whether a class's constraints and the name of its GPUs allow each node.
    allowed: Vec<Vec<bool>>,
}

impl Cluster {
    /// Read `nodes.*` and `classes.*`.
    pub fn read(arrays: &Arrays) -> Result<Self> {
        let types = match read_types(arrays)? {
            Some(types) => types.len() + 1,
            None => arrays.columns::<bool>("profile.accepts")?,
        };
        let nodes = read_nodes(arrays, types)?;
        let resources = arrays.columns::<i64>("nodes.allocatable")?;
        let allowed = arrays.rows("classes.allowed", nodes.len())?;
        let classes = read_classes(arrays, resources, allowed.len())?;
        Ok(Cluster { nodes, classes, allowed })
    }

    /// Read `nodes.*` of nodes that replace others of this cluster, whose devices are of so many types.
    pub fn read_changed(&self, arrays: &Arrays, types: usize) -> Result<Vec<Node>> {
        let nodes = read_nodes(arrays, types)?;
        let shape = |node: &Node| (node.allocatable.len(), node.gpu_kinds.len());
        match (self.nodes.first().map(shape), nodes.first().map(shape)) {
            (Some(ours), Some(other)) if ours != other => {
                Err("nodes.allocatable, nodes.gpu_kinds: expected the resources and devices of the cluster".to_owned())
            }
            _ => Ok(nodes),
        }
    }

    /// Read `classes.*` that follow the first `kept` classes and the first `constraints` rows of constraints.
    pub fn read_added(&self, arrays: &Arrays, constraints: usize) -> Result<(Vec<Class>, Vec<Vec<bool>>)> {
        let allowed: Vec<Vec<bool>> = arrays.rows("classes.allowed", self.nodes.len())?;
        let resources = arrays.columns::<i64>("classes.request")?;
        if self.nodes.first().is_some_and(|node| node.allocatable.len() != resources) {
            return Err("classes.request: expected the resources of the cluster".to_owned());
        }
        Ok((read_classes(arrays, resources, constraints + allowed.len())?, allowed))
    }

    /// Forget all but the first classes and rows of constraints, and add others.
    pub fn extend(&mut self, classes: usize, constraints: usize, (added, allowed): (Vec<Class>, Vec<Vec<bool>>)) {
        self.classes.truncate(classes);
        self.classes.extend(added);
        self.allowed.truncate(constraints);
        self.allowed.extend(allowed);
    }

    /// Write where each row of constraints allows a node.
    pub fn set_allowed(&mut self, n: usize, allowed: impl Iterator<Item = bool>) {
        self.allowed.iter_mut().zip(allowed).for_each(|(row, value)| row[n] = value);
    }

    /// Whether a class fits on a node now, as far as other pods' constraints do not matter.
    #[inline]
    pub fn fits(&self, c: usize, n: usize) -> bool {
        self.allows(c, n) && self.nodes[n].has_room(&self.classes[c])
    }

    /// Whether a class fits on each of many nodes, see `fits`.
    pub fn fitting(&self, c: usize) -> impl Fn(usize) -> bool + '_ {
        let class = &self.classes[c];
        let allowed = &self.allowed[class.constraint];
        move |n| allowed[n] && self.nodes[n].has_room(class)
    }

    /// Whether a class's constraints and the name of its GPUs allow a node.
    pub fn allows(&self, c: usize, n: usize) -> bool {
        self.allowed[self.classes[c].constraint][n]
    }

    pub fn constraints(&self) -> usize {
        self.allowed.len()
    }
}

/// Read `nodes.*`, whose devices are of so many types.
pub fn read_nodes(arrays: &Arrays, types: usize) -> Result<Vec<Node>> {
    let resources = arrays.columns::<i64>("nodes.allocatable")?;
    if resources <= EPHEMERAL {
        return Err(format!("nodes.allocatable: expected at least 5 columns, has {resources}"));
    }
    let allocatable: Vec<Vec<i64>> = arrays.rows("nodes.allocatable", resources)?;
    let count = allocatable.len();
    let free: Vec<Vec<i64>> = arrays.rows_of("nodes.free", count, resources)?;
    let nonzero: Vec<Vec<i64>> = arrays.rows_of("nodes.nonzero", count, 2)?;
    let devices = arrays.columns::<i64>("nodes.gpu_free")?;
    if devices > MOST_DEVICES {
        return Err(format!("nodes.gpu_free: expected at most {MOST_DEVICES} devices, has {devices}"));
    }
    let gpu_free: Vec<Vec<i64>> = arrays.rows_of("nodes.gpu_free", count, devices)?;
    let gpu_count = arrays.indices("nodes.gpu_count", devices + 1)?;
    let gpu_type = arrays.indices("nodes.gpu_model", types)?;
    let gpu_kinds: Vec<Vec<i64>> = arrays.rows_of("nodes.gpu_kinds", count, devices + 1)?;
    if gpu_count.len() != count || gpu_type.len() != count {
        return Err(format!("nodes.gpu_count, nodes.gpu_model: expected {count} values"));
    }
    let mut nodes = Vec::with_capacity(count);
    let rows = allocatable.into_iter().zip(free).zip(nonzero).zip(gpu_free).zip(gpu_kinds).enumerate();
    for (n, ((((allocatable, free), nonzero), mut gpus), gpu_kinds)) in rows {
        gpus.truncate(gpu_count[n]);
        if let Some(left) = gpus.iter().find(|&&left| left > GPU) {
            return Err(format!("nodes.gpu_free: expected at most {GPU} milli, has {left}"));
        }
        let nonzero = [nonzero[0], nonzero[1]];
        nodes.push(Node { allocatable, free, nonzero, gpus, gpu_type: gpu_type[n], gpu_kinds });
    }
    Ok(nodes)
}

fn read_classes(arrays: &Arrays, resources: usize, constraints: usize) -> Result<Vec<Class>> {
    let request: Vec<Vec<i64>> = arrays.rows("classes.request", resources)?;
    let count = request.len();
    let nonzero: Vec<Vec<i64>> = arrays.rows_of("classes.nonzero", count, 2)?;
    let gpu_count: Vec<i64> = arrays.list_of("classes.gpu_count", count)?;
    let gpu_milli: Vec<i64> = arrays.list_of("classes.gpu_milli", count)?;
    let gpu_column: Vec<i64> = arrays.list_of("classes.gpu_column", count)?;
    let constraint: Vec<i64> = arrays.list_of("classes.constraint", count)?;
    let mut classes = Vec::with_capacity(count);
    for (c, (request, nonzero)) in request.into_iter().zip(nonzero).enumerate() {
        if gpu_count[c] < 0 || !(i64::from(gpu_count[c] > 0)..=GPU).contains(&gpu_milli[c]) {
            return Err(format!(
                "classes.gpu_count: class {c} requests {} devices of {} milli",
                gpu_count[c], gpu_milli[c]
            ));
        }
        classes.push(Class {
            requested: requested(&request),
            request,
            nonzero: [nonzero[0], nonzero[1]],
            gpu_count: gpu_count[c],
            gpu_milli: gpu_milli[c],
            gpu_column: index("classes.gpu_column", gpu_column[c], resources)?,
            constraint: index("classes.constraint", constraint[c], constraints)?,
        });
    }
    Ok(classes)
}

fn requested(request: &[i64]) -> Vec<(usize, i64)> {
    request.iter().copied().enumerate().filter(|&(_, amount)| amount > 0).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn node() -> impl Strategy<Value = Node> {
        let resources = prop::collection::vec(0i64..50, 6);
        let gpus = prop::collection::vec(prop::sample::select(vec![0, 300, 500, GPU]), 0..5);
        (resources, gpus).prop_map(|(free, gpus)| Node {
            allocatable: free.clone(),
            free,
            nonzero: [0; 2],
            gpu_kinds: vec![0; gpus.len() + 1],
            gpus,
            gpu_type: 0,
        })
    }

    fn class() -> impl Strategy<Value = Class> {
        let request = prop::collection::vec(prop::sample::select(vec![0i64, 0, 1, 5, 30]), 6);
        let milli = prop::sample::select(vec![200, 500, GPU]);
        (request, 0i64..4, milli, 4usize..6).prop_map(|(mut request, gpu_count, gpu_milli, gpu_column)| {
            // GPUs that a node counts are requested by their count alone; no node offers the last resource.
            (request[gpu_column], request[5]) = (0, 0);
            let nonzero = [request[CPU], request[MEMORY]];
            Class { requested: requested(&request), request, nonzero, gpu_count, gpu_milli, gpu_column, constraint: 0 }
        })
    }

    proptest! {
        #[test]
        fn a_pod_that_is_removed_leaves_the_node_as_it_was(mut node in node(), class in class()) {
            let before = node.clone();
            let devices = node.best_devices(&class);
            node.place(&class, devices);
            node.remove(&class, devices);
            prop_assert_eq!(node, before);
        }

        #[test]
        fn a_pod_with_room_takes_nothing_that_is_not_there(mut node in node(), class in class()) {
            prop_assume!(node.has_room(&class));
            let devices = node.best_devices(&class);
            prop_assert_eq!(i64::from(devices.count_ones()), node.devices_taken(&class));
            node.place(&class, devices);
            prop_assert!(node.free.iter().zip(&class.request).all(|(&free, &request)| request == 0 || free >= 0));
            prop_assert!(node.gpus.iter().all(|&left| left >= 0));
        }

        #[test]
        fn without_room_no_devices_suffice(node in node(), class in class()) {
            prop_assume!(!node.counts_gpus(&class));
            let has_resources = class.request.iter().zip(&node.free).all(|(&request, &free)| request == 0 || request <= free);
            let devices = node.best_devices(&class).count_ones();
            prop_assert_eq!(node.has_room(&class), has_resources && i64::from(devices) == class.gpu_count);
        }
    }
}
