//! The simulated cluster with telemetry, against slow and obvious versions of itself.

use proptest::prelude::*;

use super::*;
use crate::latency_model::PodUse;
use crate::random::Random;

/// Milli-CPU, bytes and pods of the nodes of a test, and whatever is random about load and samples switched off.
fn settings() -> Settings {
    Settings {
        max_nodes: 5,
        zones: 3,
        pods: 60,
        load: 0.6,
        lifetime: 900.0,
        replicas: 8,
        swing: 0.4,
        period: 3600.0,
        load_noise: 0.1,
        scrape_interval: 15.0,
        missed: 0.01,
        noise: 0.03,
        distance: 90.0,
        service: 2.0,
        copies: 0,
        copy_interval: 5.0,
        copy_pause: 60.0,
        warmup: 0.0,
    }
}

/// Settings without anything random about load and samples.
fn calm() -> Settings {
    Settings { swing: 0.0, load_noise: 0.0, noise: 0.0, missed: 0.0, load: 2.0, ..settings() }
}

fn begun(settings: &Settings, seed: u64, nodes: usize, objective: TelemetryObjective) -> LatencyEpisode {
    let task = Task { objectives: vec![(objective, 1.0)], steps: Steps::of(1.0, usize::MAX), filters: false };
    let mut episode = LatencyEpisode::new(Start::draw(settings, seed, nodes), task);
    episode.summarise();
    assert!(episode.advance());
    episode
}

/// Bind the current pod to a node; return the reward, and whether another pod follows.
fn bind(episode: &mut LatencyEpisode, n: usize) -> (f64, bool) {
    let mut rows = [vec![0.0; episode.mask.len() * NODE], vec![0.0; 12], vec![0.0; 15]];
    let mut mask = episode.mask.clone();
    let [nodes, pod, context] = &mut rows;
    let mut observation = Observation { nodes, pod, context, mask: &mut mask };
    let step = episode.step(n as i64, &mut observation).unwrap();
    (step.reward, !step.terminated)
}

fn feasible(episode: &LatencyEpisode) -> Vec<usize> {
    (0..episode.mask.len()).filter(|&n| episode.mask[n] == 1).collect()
}

fn pods_on(episode: &LatencyEpisode, n: usize) -> impl Iterator<Item = &SimulatedPod> {
    episode.pods.iter().filter(move |pod| pod.node == Some(n))
}

/// The milliseconds to a pod's users from a node if it ran there, by the formula of `Model::latency`.
fn slow_latency(episode: &LatencyEpisode, pod: &SimulatedPod, n: usize) -> f64 {
    let (user, model) = (pod.known.user.unwrap(), &episode.model);
    let own = if pod.node == Some(n) { None } else { Some(pod) };
    let all: Vec<&SimulatedPod> = pods_on(episode, n).chain(own).collect();
    let sum = |what: fn(&PodUse) -> i64| -> f64 {
        all.iter().map(|pod| what(&pod.uses) as f64 * model.load(pod.known.user)).sum()
    };
    let cpu = (model.truth[n].system + sum(|uses| uses.cpu)) / model.view.nodes[n].cpu() as f64;
    let busy = cpu.max(sum(|uses| uses.network) / 125e6).min(0.98);
    model.distance(model.view.nodes[n].zone, user) + model.settings.service / (1.0 - busy)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(10))]
    #[test]
    fn nodes_sum_what_their_pods_request_and_use(seed in 0u64..1000, is_busy: bool, choices: [u8; 50]) {
        let settings = Settings { load: if is_busy { 1.5 } else { 0.4 }, lifetime: 300.0, ..settings() };
        let mut episode = begun(&settings, seed, 4, TelemetryObjective::LatencyAware);
        for choice in choices {
            let nodes = feasible(&episode);
            if !bind(&mut episode, nodes[choice as usize % nodes.len()]).1 {
                break;
            }
            for (n, node) in episode.model.view.nodes.iter().enumerate() {
                for r in 0..3 {
                    let requested: i64 = pods_on(&episode, n).map(|pod| pod.known.class.request[r]).sum();
                    prop_assert_eq!(node.requested(r), requested);
                    prop_assert!(node.node.free[r] >= 0);
                }
                let memory: i64 = pods_on(&episode, n).map(|pod| pod.uses.memory).sum();
                prop_assert_eq!(episode.model.truth[n].memory(), memory);
                let wanted: f64 = pods_on(&episode, n)
                    .map(|pod| pod.uses.cpu as f64 * episode.model.load(pod.known.user))
                    .sum();
                let error = episode.model.cpu_wanted(n) - episode.model.truth[n].system - wanted;
                prop_assert!(error.abs() < 1e-6, "{}", error);
            }
            // Whoever runs has arrived and has not left yet.
            for (p, _) in episode.pods.iter().enumerate().filter(|(_, pod)| pod.node.is_some()) {
                prop_assert!(episode.arrivals[p] <= episode.model.now && episode.leaves[p] > episode.model.now);
            }
        }
    }
}

#[test]
fn what_comes_does_not_depend_on_decisions() {
    let play = |rule| {
        let mut episode = begun(&settings(), 3, 4, TelemetryObjective::LatencyAware);
        loop {
            let n = decide(rule, &episode.model.view, &episode.pods[episode.next].known, &episode.mask).unwrap();
            if !bind(&mut episode, n).1 {
                return episode;
            }
        }
    };
    let (a, b) = (play(MetricRule::MostAllocated), play(MetricRule::LeastConnections));
    assert_eq!((&a.arrivals, &a.leaves, &a.offsets), (&b.arrivals, &b.leaves, &b.offsets));
    assert_eq!(
        a.pods.iter().map(|pod| pod.uses).collect::<Vec<_>>(),
        b.pods.iter().map(|pod| pod.uses).collect::<Vec<_>>()
    );
    // The last arrival is the same, so that as many loads were drawn.
    assert_eq!(a.model.load(Some(1)), b.model.load(Some(1)));
    assert!(a.arrivals != begun(&settings(), 4, 4, TelemetryObjective::LatencyAware).arrivals);
}

#[test]
fn requested_cpu_is_the_load_on_average() {
    let settings = Settings { pods: 20_000, ..settings() };
    let episode = begun(&settings, 1, 4, TelemetryObjective::LatencyAware);
    let work: f64 = (0..episode.pods.len())
        .map(|p| episode.pods[p].known.class.request[CPU] as f64 * (episode.leaves[p] - episode.arrivals[p]))
        .sum();
    let capacity: i64 = episode.model.view.nodes.iter().map(|node| node.cpu()).sum();
    let load = work / (episode.arrivals.last().unwrap() * capacity as f64);
    assert!((load - 0.6).abs() < 0.06, "{load}");
    assert!(episode.arrivals.is_sorted());
    assert!(episode.order.iter().map(|&pod| episode.leaves[pod]).is_sorted());
}

#[test]
fn copies_of_a_deployment_leave_together_and_differ_in_use() {
    let settings = Settings { copies: 4, replicas: 1, ..settings() };
    let episode = begun(&settings, 1, 4, TelemetryObjective::LatencyAware);
    for group in (0..40).collect::<Vec<usize>>().chunks(4) {
        let [first, last] = [group[0], group[3]];
        assert!(group.iter().all(|&p| (episode.leaves[p] - episode.leaves[first]).abs() < 1e-6));
        assert_eq!(episode.arrivals[last] - episode.arrivals[first], 15.0);
        assert!((episode.leaves[first] - episode.arrivals[last] - 60.0).abs() < 1e-6);
        assert!(
            group.iter().all(|&p| { episode.pods[p].known.class.request == episode.pods[first].known.class.request })
        );
        assert!(episode.pods[first].uses != episode.pods[last].uses);
    }
}

/// What happened in a calm cluster that no pod leaves: when a pod was bound to each node.
type Diary = Vec<Vec<(f64, PodUse)>>;

/// The time average of what the pods of a node use between two times, `most` at most.
fn average(bound: &[(f64, PodUse)], what: fn(&PodUse) -> i64, base: f64, from: f64, to: f64, most: f64) -> f64 {
    let mut edges: Vec<f64> = bound.iter().map(|(time, _)| time.clamp(from, to)).chain([from, to]).collect();
    edges.sort_by(f64::total_cmp);
    let at = |time: f64| bound.iter().filter(|(bound, _)| *bound <= time).map(|(_, uses)| what(uses)).sum::<i64>();
    let total: f64 = edges.windows(2).map(|edge| (base + at(edge[0]) as f64).min(most) * (edge[1] - edge[0])).sum();
    total / (to - from)
}

#[test]
fn metrics_are_those_of_prometheus_queries() {
    let mut episode = begun(&calm(), 11, 4, TelemetryObjective::LatencyAware);
    episode.leaves.fill(f64::INFINITY);
    let mut diary: Diary = vec![Vec::new(); 4];
    let (mut draws, mut compared) = (Random::new(1), 0);
    for _ in 0..40 {
        let now = episode.model.now;
        for (n, node) in episode.model.view.nodes.iter().enumerate() {
            let scrapes = |window: f64| {
                let times = (0..).map(|k| episode.offsets[n] + 15.0 * k as f64).take_while(|&time| time <= now);
                times.filter(|&time| time >= now - window).collect::<Vec<f64>>()
            };
            let (minute, minutes, capacity) = (scrapes(60.0), scrapes(300.0), node.cpu() as f64);
            let [before, last] = minute[minute.len() - 2..].try_into().unwrap();
            let system = episode.model.truth[n].system;
            let cpu = average(&diary[n], |uses| uses.cpu, system, before, last, capacity);
            assert!((node.measured.cpu_used - 100.0 * cpu / capacity).abs() < 1e-6);
            let network = average(&diary[n], |uses| uses.network, 0.0, minutes[0], last, 125e6);
            assert!((node.measured.network_received - network).abs() <= 1e-9 * network + 1e-6);
            let there: Vec<&PodUse> = diary[n].iter().filter(|(time, _)| *time < last).map(|(_, uses)| uses).collect();
            let connections: i64 = there.iter().map(|uses| uses.connections).sum();
            assert_eq!(node.measured.connections, 20.0 + connections as f64);
            let memory: i64 = there.iter().map(|uses| uses.memory).sum();
            let available = (node.node.allocatable[MEMORY] - (1 << 30) - memory).max(0);
            assert_eq!(node.measured.memory_available, available as f64);
            assert_eq!(node.measured.running_pods, there.len() as f64);
            assert_eq!(node.pods_since, (diary[n].len() - there.len()) as f64);
            assert!((node.cpu_age - (now - last)).abs() < 1e-9);
            compared += there.len();
        }
        let nodes = feasible(&episode);
        let n = nodes[draws.below(nodes.len())];
        diary[n].push((now, episode.pods[episode.next].uses));
        bind(&mut episode, n);
    }
    assert!(compared > 50);
}

#[test]
fn requests_since_the_cpu_metric_are_those_that_are_not_in_it() {
    // Were use equal to requests, the metric and the requests since would add up to what is requested now.
    let mut episode = begun(&calm(), 2, 4, TelemetryObjective::LatencyAware);
    episode.leaves.fill(f64::INFINITY);
    episode.pods.iter_mut().for_each(|pod| pod.uses.cpu = pod.known.class.request[CPU]);
    episode.model.truth.iter_mut().for_each(|node| node.system = 0.0);
    let (mut draws, mut corrected) = (Random::new(0), 0);
    for _ in 0..40 {
        let nodes = feasible(&episode);
        bind(&mut episode, nodes[draws.below(nodes.len())]);
        // The minute before the first pod was measured with the system's own use.
        for node in episode.model.view.nodes.iter().filter(|_| episode.model.now > 120.0) {
            let measured = node.measured.cpu_used / 100.0 * node.cpu() as f64;
            assert!((measured + node.requested_since - node.requested(CPU) as f64).abs() < 1e-6);
            corrected += i32::from(node.requested_since > 0.0);
        }
    }
    assert!(corrected > 10);
}

#[test]
fn a_failed_scrape_leaves_no_value_and_a_growing_age() {
    let mut episode = begun(&Settings { missed: 0.3, pods: 200, ..settings() }, 1, 4, TelemetryObjective::LatencyAware);
    let (mut draws, mut gone, mut lost) = (Random::new(0), 0, 0);
    loop {
        for node in &episode.model.view.nodes {
            let measured = &node.measured;
            assert!((0.0..=300.0).contains(&node.cpu_age) && (0.0..=300.0).contains(&node.latency_age));
            if measured.connections.is_nan() {
                gone += 1;
                let others = [measured.memory_available, measured.filesystem_used, measured.running_pods];
                assert!(others.iter().chain(&measured.latencies).all(|value| value.is_nan()));
                assert!(node.cpu_age > 0.0);
            }
            assert!(!measured.cpu_used.is_nan() || node.cpu_age > 0.0);
            lost += i32::from(measured.latencies[0].is_nan() && !measured.connections.is_nan());
        }
        let nodes = feasible(&episode);
        if !bind(&mut episode, nodes[draws.below(nodes.len())]).1 {
            break;
        }
    }
    assert!(gone > 20 && lost > 0, "{gone} {lost}");
}

#[test]
fn limits_are_judged_by_the_truth_after_the_placement() {
    let settings = Settings { load: 2.0, distance: 300.0, pods: 400, ..settings() };
    let (mut draws, mut counts) = (Random::new(0), [0; 4]);
    for seed in 0..4 {
        let mut episode = begun(&settings, seed, 4, TelemetryObjective::LatencyAware);
        loop {
            let (nodes, pod) = (feasible(&episode), &episode.pods[episode.next]);
            let n = nodes[draws.below(nodes.len())];
            let (soft, hard) = (pod.known.soft, pod.known.hard);
            let expected = if pod.known.user.is_none() || slow_latency(&episode, pod, n) <= soft {
                Kept::WithinSoft
            } else if slow_latency(&episode, pod, n) <= hard {
                Kept::WithinHard
            } else if nodes.iter().any(|&other| slow_latency(&episode, pod, other) <= hard) {
                Kept::BeyondAvoidable
            } else {
                Kept::BeyondAny
            };
            let is_last = !bind(&mut episode, n).1;
            assert_eq!(episode.kept, expected);
            counts[expected as usize] += 1;
            if is_last {
                break;
            }
        }
    }
    assert!(counts.iter().all(|&count| count > 0), "{counts:?}");
}

#[test]
fn rewards_are_of_the_true_state_after_the_action() {
    for (number, objective) in [(0, TelemetryObjective::LeastConnections), (1, TelemetryObjective::LatencyAware)] {
        let mut episode = begun(&settings(), 8, 4, objective);
        let mut draws = Random::new(0);
        loop {
            let nodes = feasible(&episode);
            let (n, mut before) = (nodes[draws.below(nodes.len())], episode.pods[episode.next].clone());
            before.node = Some(n);
            let on = |node: usize| pods_on(&episode, node).chain((node == n).then_some(&before)).collect::<Vec<_>>();
            let counts: Vec<f64> = (0..4)
                .map(|node| {
                    let own = |pod: &&SimulatedPod| pod.uses.connections as f64 * episode.model.load(pod.known.user);
                    20.0 + on(node).iter().map(own).sum::<f64>()
                })
                .collect();
            let most = counts.iter().copied().fold(0.0, f64::max);
            let used: Vec<usize> = (0..4).filter(|&node| !on(node).is_empty()).collect();
            let requested: i64 = used.iter().flat_map(|&node| on(node)).map(|pod| pod.known.class.request[CPU]).sum();
            let capacity: i64 = used.iter().map(|&node| episode.model.view.nodes[node].cpu()).sum();
            let off = (4 - used.len()) as f64 / 4.0;
            let (reward, goes_on) = bind(&mut episode, n);
            let kept = [1.0, 0.5, 0.0, -10.0][episode.kept as usize];
            let expected =
                [counts.iter().sum::<f64>() / 4.0 / most, (off + requested as f64 / capacity as f64 + kept) / 3.0]
                    [number];
            assert!((reward - expected).abs() < 1e-9, "{reward} {expected}");
            if !goes_on {
                break;
            }
        }
    }
}

#[test]
fn figures_are_time_averages() {
    let mut episode = begun(&calm(), 4, 4, TelemetryObjective::LatencyAware);
    episode.leaves.fill(f64::INFINITY);
    let (mut diary, mut draws): (Diary, Random) = (vec![Vec::new(); 4], Random::new(2));
    loop {
        let nodes = feasible(&episode);
        let n = if draws.below(3) == 0 { nodes[draws.below(nodes.len())] } else { nodes[0] };
        diary[n].push((episode.model.now, episode.pods[episode.next].uses));
        if !bind(&mut episode, n).1 {
            break;
        }
    }
    let ticks: Vec<f64> = (0..).map(|k| 15.0 * k as f64).take_while(|&time| time < episode.model.next_load).collect();
    let (mut empty, mut most, mut peak) = (0, 0.0, 0.0f64);
    for &tick in &ticks {
        let there = |bound: &[(f64, PodUse)]| -> Vec<PodUse> {
            bound.iter().filter(|(time, _)| *time < tick).map(|(_, uses)| *uses).collect()
        };
        empty += diary.iter().filter(|bound| there(bound).is_empty()).count();
        let connections = |bound: &[(f64, PodUse)]| 20 + there(bound).iter().map(|uses| uses.connections).sum::<i64>();
        let highest = diary.iter().map(|bound| connections(bound)).max().unwrap() as f64;
        (most, peak) = (most + highest, peak.max(highest));
    }
    let (figures, count) = (episode.figures(), ticks.len() as f64);
    assert!((figures[0] - empty as f64 / count).abs() < 1e-9);
    assert!((figures[1] - (4.0 - empty as f64 / count)).abs() < 1e-9);
    assert_eq!(figures[3], peak);
    assert!((figures[4] - most / count).abs() < 1e-6);
    assert_eq!(figures[11] + figures[12], 60.0);
}

#[test]
fn latency_is_symmetric_and_limits_are_ordered() {
    let episode = begun(&settings(), 0, 4, TelemetryObjective::LatencyAware);
    for a in 0..3 {
        assert_eq!(episode.model.distance(a, a), 2.0);
        for b in 0..3 {
            assert_eq!(episode.model.distance(a, b), episode.model.distance(b, a));
            assert!(episode.model.distance(a, b) <= 2.0 + 90.0 * 2f64.sqrt());
        }
    }
    for pod in &episode.pods {
        assert_eq!(pod.known.user.is_none(), pod.known.hard.is_infinite());
        assert!(pod.known.user.is_none() || pod.known.soft < pod.known.hard);
    }
}
