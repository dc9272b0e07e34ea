"""The study of agents that learn live: how even bindings leave CPU use, how rewards rise, who is worse than whom."""

import json

import msgspec
import numpy as np
import pytest
from studies.live import agents, fills
from studies.live.agents import AGENTS, DEFAULT, GREEDY, LEAST, OVER, RANDOM

from steersman.workloads.generators.deployments import ADD, cluster, generate


def pod(name, node, cpu):
    container = {"resources": {"requests": {"cpu": cpu}}}
    content = {"metadata": {"name": name, "namespace": "default"}, "spec": {"containers": [container]}}
    if node:
        content["spec"]["nodeName"] = node
    return msgspec.Raw(json.dumps(content).encode())


def test_the_deviation_is_recorded_after_every_binding_and_not_by_deletions():
    recorder = fills.UseRecorder(2, 4000)
    recorder.change("ADDED", pod("a", "", "1"))
    recorder.change("MODIFIED", pod("a", "x", "1"))
    recorder.change("MODIFIED", pod("a", "x", "1"))
    recorder.change("ADDED", pod("b", "y", "1000m"))
    recorder.change("ADDED", pod("c", "y", "2"))
    recorder.change("DELETED", pod("a", "x", "1"))
    assert recorder.deviations == pytest.approx([12.5, 0.0, 25.0])
    figures = fills.variance_figures(np.array(recorder.deviations))
    assert figures["variance_mean"] == pytest.approx((12.5**2 + 25**2) / 3)
    assert figures["variance_end"] == pytest.approx(625.0)


def test_a_filling_has_about_a_hundred_deployments():
    settings = fills.FillSettings()
    nodes = cluster(settings.nodes, cpu=settings.cpu, memory=settings.memory, pods=settings.pods)
    counts = [
        sum(row.action == ADD for row in generate(settings.deployments, nodes, np.random.default_rng(seed)))
        for seed in range(20)
    ]
    assert np.mean(counts) == pytest.approx(100, rel=0.1)
    assert settings.environment.settings == settings.deployments


def test_first_and_last_rewards_are_compared(tmp_path):
    file = tmp_path / "metrics.csv"
    lines = ["steps,reward,cumulative_reward,node_variance,loss"]
    lines += [f"{10 * i},{i},{i * (i + 1) / 2},{0.1 * i},{'' if i < 6 else 2}" for i in range(1, 11)]
    file.write_text("\n".join(lines) + "\n")
    found = fills.learning_curve_of(file)
    assert found["decisions"] == 100
    assert found["rise"]["reward"] == pytest.approx([1.5, 9.5])
    assert found["rise"]["node_variance"] == pytest.approx([0.15, 0.95])
    assert found["curve"]["steps"] == [10.0 * i for i in range(1, 11)]
    assert found["curve"]["loss"][4:6] == [pytest.approx(np.nan, nan_ok=True), 2.0]


def test_questions_are_read_from_the_metrics():
    metrics = (
        "# TYPE steersman_agent_questions_total counter\n"
        'steersman_agent_questions_total{result="answered"} 19.0\n'
        'steersman_agent_questions_total{result="late"} 1.0\n'
    )
    assert fills.questions_of(metrics) == {"answered": 19, "late": 1}
    assert fills.questions_of("") == {}


def test_section_names_agents_worse_than_each_rule():
    trainings = [agents.Training(agent, seed) for agent in AGENTS for seed in (1, 2)]
    ramp = np.linspace(0.0, 0.3, 4)
    figures = {name: level + ramp for name, level in {DEFAULT: 4.0, LEAST: 3.0, GREEDY: 1.0, RANDOM: 90.0}.items()}
    for training in trainings:
        level = 2.0 if training.agent == "DQN, MLP" else 5.0
        if training.agent == "DQN, GNN":
            level = 1.0 if training.seed == 1 else 9.0
        figures[training.name] = level + ramp[::-1]
    simulated = {
        name: {figure: values.tolist() for figure in (OVER, agents.END, "reward")} for name, values in figures.items()
    }
    run = {"deployments": 1000, "bindings": 2000, "seconds": 300.0, "answered_share": 0.995}
    run["rise"] = {"reward": [0.9, 0.95], "node_variance": [1e-3, 5e-4]}
    result = agents.options(quick=True) | {
        "learned": {training.name: run for training in trainings},
        "comparison": agents._compare(simulated, trainings),
        "filled": {"kube-scheduler": {OVER: [1.0], agents.END: [2.0]}},
        "resets": 10,
        "trainings": 2,
    }
    text = agents.section(result)
    table = [[cell.strip() for cell in line.split("|")[1:-1]] for line in text.splitlines() if line.startswith("|")]
    rows = {cells[0]: cells for cells in table}
    assert rows["DQN, GNN"][2] == "1.15, 9.15"
    assert rows["greedy (`most-even`)"][-1] == ""
    verdicts = [line for line in text.splitlines() if line.startswith("- **")]
    assert "worse than it are DQN, GNN (1 better, 1 worse); actor-critic, MLP (0 better, 2 worse)" in verdicts[0]
    assert "better than it is DQN, MLP (2 better, 0 worse)" in verdicts[1]
    assert "10 resets of 100 Deployments" in " ".join(text.split())
