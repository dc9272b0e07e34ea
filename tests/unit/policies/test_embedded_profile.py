"""A prepared policy brings its mix: the same scores to the last bit, no planning, and what does not fit is refused."""

import json
from dataclasses import replace

import msgspec
import numpy as np
import pytest
from safetensors.numpy import save_file
from tests.support.errors import raises
from tests.support.networks import network_card
from tests.support.weights import fgd_weights

from steersman.cli.main import main
from steersman.core.errors import InputError
from steersman.policies import embedded_profile, planning
from steersman.policies.base import with_profile
from steersman.policies.features import CLUSTER, GPU
from steersman.policies.greedy_forecast import forecast_card
from steersman.policies.policy_file import CARD, prepare_policy, read_policy, write_policy
from steersman.policies.portfolios import blends
from steersman.policies.registry import resolve
from steersman.simulation.run import Simulator
from steersman.workloads.formats.kubernetes.objects import write_nodes, write_pods
from steersman.workloads.formats.openb import embedded
from steersman.workloads.loading import load_workload
from steersman.workloads.profile import typical_pods
from steersman.workloads.workload import Workload

SIZE = len(CLUSTER.node) + len(CLUSTER.pod) + len(CLUSTER.context)


def part(name):
    whole = embedded(name)
    return Workload(name, whole.nodes[::30], whole.pods[::30])


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """A blend of rules, prepared for a workload, and a linear network on the view `cluster` likewise."""
    folder = tmp_path_factory.mktemp("prepared")
    write_policy(folder / "member.safetensors", forecast_card("member"), blends()[-1].tensors())
    write_policy(folder / "gpu.safetensors", *prepare_policy(folder / "member.safetensors", part("gpuspec25")))
    card = network_card(CLUSTER, "linear")
    weights = np.random.default_rng(1).normal(size=(4, SIZE)).astype(np.float32)
    write_policy(folder / "plain.safetensors", card, {"head.weight": weights, "head.bias": np.zeros(4)})
    write_policy(folder / "cluster.safetensors", *prepare_policy(folder / "plain.safetensors", part("gpuspec25")))
    return folder


def results(workload, policy, **options):
    run = Simulator(workload).run(policy, seed=3, record=True, **options)
    return run.placements.node, run.placements.devices, {metric.name: metric.value for metric in run.metrics}


def test_embedded_profile_round_trips(files):
    workload = part("gpuspec25")
    mine, pods = resolve(str(files / "gpu.safetensors")).prepared, typical_pods(workload.pods)
    for found, wanted in zip(mine.pods, pods, strict=True):
        assert found.share == wanted.share
        assert (found.cpu_milli, found.gpu_count) == (wanted.cpu_milli, wanted.gpu_count)
        assert set(found.gpu_models) == set(wanted.gpu_models)
    assert any(pod.gpu_models for pod in mine.pods)
    simulator = Simulator(workload)
    own, brought = simulator.leftovers_with(None), Simulator(workload).leftovers_with(mine)
    for name, array in own._asdict().items():
        assert (getattr(brought, name) == array).all(), name


@pytest.mark.parametrize(("name", "same"), [("gpu", "member"), ("cluster", "plain")])
def test_prepared_policy_decides_bit_for_bit_on_its_workload(files, name, same):
    workload = part("gpuspec25")
    prepared, plain = (results(workload, str(files / f"{each}.safetensors")) for each in (name, same))
    assert prepared == plain


@pytest.mark.parametrize("name", ["gpu", "cluster"])
def test_prepared_policy_keeps_its_profile_on_other_workloads(files, name):
    """The same decisions as of a simulator that believes in the file's mix, but fragmentation by the workload's."""
    other, file = part("multigpu40"), str(files / f"{name}.safetensors")
    policy = resolve(file)
    profile = typical_pods(part("gpuspec25").pods)
    believing = Simulator(other, profile=profile).run(with_profile(policy, None), seed=3, record=True)
    nodes, devices, metrics = results(other, file)
    assert (nodes, devices) == (believing.placements.node, believing.placements.devices)
    wanted = {metric.name: metric.value for metric in believing.metrics}
    assert wanted.keys() == metrics.keys()
    fragmented = {key for key in wanted if "fragment" in key}
    assert all(metrics[key] == wanted[key] for key in wanted.keys() - fragmented)
    assert metrics["gpu_fragmented_percent"] != wanted["gpu_fragmented_percent"]


def test_recounted_fragmentation_equals_the_incremental_one(files, monkeypatch):
    """Of a mix that is the workload's own, recounting changes nothing but the last bits of sums; with departures."""
    workload, file = part("gpuspec25"), str(files / "gpu.safetensors")
    for options in ({"protocol": "inflation"}, {"protocol": "timed", "load": 1.0}):
        counted = results(workload, file, **options)[2]
        with monkeypatch.context() as patch:
            patch.setattr("steersman.simulation.run._same", lambda *_: False)
            again = results(workload, file, **options)[2]
        assert counted == pytest.approx(again, rel=1e-9, nan_ok=True)


def test_a_prepared_policy_does_not_plan(files, monkeypatch):
    monkeypatch.setattr(planning, "plan_losses", lambda *_: pytest.fail("it planned"))
    planning.planned_losses.cache_clear()
    Simulator(part("cpu050")).run(str(files / "gpu.safetensors"), seed=1)


def test_unknown_gpu_models_count_as_none_with_one_warning(files):
    """Some nodes are of a model that neither the mix nor a pod knows; where there is none, all is the same."""
    policy, workload = str(files / "gpu.safetensors"), part("gpuspec25")
    runs = []
    for model in ("ZX80", ""):
        nodes = tuple(replace(node, gpu_model=model) if i % 3 else node for i, node in enumerate(workload.nodes))
        runs.append(Simulator(Workload("w", nodes, workload.pods)).run(policy, seed=3, record=True))
    assert runs[0].placements.node == runs[1].placements.node
    assert runs[0].placements.devices == runs[1].placements.devices
    said = next(each for each in set(runs[0].warnings) - set(runs[1].warnings) if each.startswith("policy"))
    assert "nodes with ZX80 are of no known model: prepare it for these nodes" in said
    assert "\n" not in said


def spoil(arrays, name, change):
    array = arrays[name].copy()
    return arrays | {name: change(array)}


def put(array, value):
    array.flat[0] = value
    return array


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda a: {k: v for k, v in a.items() if k != "mix.cpu"}, "mix.cpu: is missing; prepare the policy again"),
        (lambda a: spoil(a, "mix.value", lambda v: put(v, 99)), "mix.value: has a value outside 0 to"),
        (lambda a: spoil(a, "mix.value", lambda v: put(v, -1)), "mix.value: has a value outside 0 to"),
        (lambda a: spoil(a, "mix.milli", lambda v: v[::-1].copy()), "not in increasing order"),
        (lambda a: spoil(a, "mix.accepts", lambda v: v[:, :-1].copy()), "mix.accepts: is uint8 of shape"),
        (lambda a: spoil(a, "mix.share", lambda v: v.astype(np.int64)), "real numbers of shape"),
        (lambda a: spoil(a, "mix.share", lambda v: put(v, np.nan)), "not a finite number"),
        (lambda a: spoil(a, "outlook.sequences", lambda v: put(v, 1000)), "outlook.sequences: has a value outside"),
        (lambda a: spoil(a, "outlook.planned", lambda v: v[:7].copy()), r"expected real numbers of shape \[1001\]"),
        (lambda a: a | {"outlook.more": np.zeros(1)}, "outlook.more: is not one that the view 'gpu' sees"),
    ],
)
def test_corrupt_profile_fails_in_one_line(files, tmp_path, change, message):
    card, arrays = read_policy(files / "gpu.safetensors")
    file = tmp_path / "bad.safetensors"
    save_file(change(arrays), file, metadata={CARD: msgspec.json.encode(card).decode()})
    with pytest.raises(InputError, match=message) as error:
        resolve(str(file))
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("profile", "message"),
    [
        (None, "mix.accepts: belongs to a workload profile"),
        ({"version": 1}, "mix.version: is 1"),
        ({"typical_pods": 3}, "of shape"),
        ({"typical_pods": -1}, "mix.typical_pods: is -1; expected 0 or more"),
    ],
)
def test_model_card_not_matching_the_profile_fails_in_one_line(files, tmp_path, profile, message):
    card, arrays = read_policy(files / "gpu.safetensors")
    profile = None if profile is None else msgspec.structs.replace(card.profile, **profile)
    file = tmp_path / "bad.safetensors"
    write_policy(file, msgspec.structs.replace(card, profile=profile), arrays)
    with pytest.raises(InputError, match=message):
        resolve(str(file))


def test_empty_profile_has_no_sequences(files, tmp_path):
    card, arrays = read_policy(files / "gpu.safetensors")
    of_mix = ("mix.accepts", "mix.gpu_count", "mix.cpu", "mix.value", "mix.share")
    per_pod = (*of_mix, "outlook.group", "outlook.pods_per_cpu")
    empty = {name: array[:0] if name in per_pod else array for name, array in arrays.items()}
    file = tmp_path / "bad.safetensors"
    profile = msgspec.structs.replace(card.profile, typical_pods=0)
    write_policy(file, msgspec.structs.replace(card, profile=profile), empty)
    with raises(InputError, "outlook.sequences", "6", "0"):
        resolve(str(file))


@pytest.fixture
def folder(tmp_path, monkeypatch):
    workload = part("gpuspec25")
    write_nodes(workload.nodes, tmp_path / "nodes.yaml")
    write_pods(workload.pods, tmp_path / "pods.yaml")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def fit(*more, policy="steersman", output="mine.safetensors"):
    given = ("--policy", policy, "--nodes", "nodes.yaml", "--pods", "pods.yaml", "--output", output)
    return main(["fit", "policy", *given, *more])


@pytest.mark.usefixtures("folder")
def test_fit_show_and_use(capsys):
    assert fit() == 0
    assert capsys.readouterr().err.splitlines()[-1] == "wrote mine.safetensors"
    assert fit(policy="mine.safetensors", output="again.safetensors") == 0
    (card, arrays), (again, same) = (read_policy(f"{name}.safetensors") for name in ("mine", "again"))
    assert again == msgspec.structs.replace(card, compared_on=None), "a new profile was compared on no cluster"
    assert {name: each.tobytes() for name, each in arrays.items()} == {name: e.tobytes() for name, e in same.items()}
    assert main(["policy", "show", "mine.safetensors"]) == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert "typical pods of pods" in shown
    assert "156 weights in 2 tensors" in shown
    assert main(["policy", "show", "mine.safetensors", "--format", "json"]) == 0
    assert json.loads(capsys.readouterr().out)["mix"]["workload"] == "pods"
    workload = load_workload("nodes.yaml", "pods.yaml")
    member = Simulator(workload).member(resolve("steersman")).policy
    for seed in (1, 2):
        runs = [Simulator(workload).run(each, seed=seed, record=True) for each in ("mine.safetensors", member)]
        mine, its = (run.placements for run in runs)
        assert (mine.node, mine.devices) == (its.node, its.devices)


def test_show_describes_networks(files, capsys):
    assert main(["policy", "show", str(files / "plain.safetensors")]) == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert "linear on the features 'cluster', version 1" in shown
    assert "200 weights in 2 tensors" in shown
    assert any(feature.name in shown for feature in CLUSTER.context)


@pytest.mark.parametrize(
    ("policy", "output", "message"),
    [
        ("steersman", "mine.bin", "must end in .safetensors"),
        ("steersman", "taken.safetensors", "exists and is not a policy file"),
        ("kube-default", "mine.safetensors", "policy kube-default has no file"),
        ("none.safetensors", "mine.safetensors", "cannot be read"),
    ],
)
def test_invalid_input_fails_in_one_line_and_writes_nothing(folder, capsys, policy, output, message):
    (folder / "taken.safetensors").write_text("mine")
    assert fit(policy=policy, output=output) in (1, 2)
    said = capsys.readouterr().err
    assert message in said
    assert said.count("\n") == 1, said
    assert not (folder / "mine.safetensors").exists()
    assert (folder / "taken.safetensors").read_text() == "mine"


def test_baked_features_match_the_view():
    gpu, cluster = (embedded_profile.embed_profile(part("default"), view.name)[1] for view in (GPU, CLUSTER))
    assert {name.partition(".")[0] for name in cluster} == {"mix"}
    assert {name.partition(".")[0] for name in gpu} == {"mix", "outlook"}
    assert fgd_weights().shape[1] == len(GPU.node)
