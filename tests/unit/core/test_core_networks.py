"""The compiled core reads policy files as Python does, and decides by them as torch and recorded decisions say."""

from __future__ import annotations

import copy
import json
import random
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any
from unittest.mock import patch

import msgspec
import numpy as np
import numpy.typing as npt
import pytest
import torch
from safetensors.numpy import save
from tests.contract import cases
from tests.contract.make import DRAWN, POLICIES
from tests.support.decision_states import tables_of
from tests.support.nightly import examples
from tests.unit.policies.networks.test_policy_networks import ALL, observe, tensors, trained

from steersman.agents.networks.score_networks import export
from steersman.cluster.pod_query import OwnerPods, PodQuery
from steersman.core.errors import InputError, SteersmanError
from steersman.core.handles import NOWHERE, CoreDecider, PolicyHandle, play_requests, undo_requests
from steersman.core.library import LIBRARY
from steersman.policies.decision.description import described_cluster, described_leftovers
from steersman.policies.features import CLUSTER, GPU, View
from steersman.policies.formula import HEADER, KIND_NAMES, open_formula
from steersman.policies.learned_weights import FEATURES, NAMES
from steersman.policies.linear import LinearPolicy
from steersman.policies.network_policy import NetworkPolicy
from steersman.policies.policy_file import CARD, Card, open_policy, read_policy
from steersman.workloads.topology import node_places

pytestmark = pytest.mark.skipif(not LIBRARY.exists(), reason="`make core` builds it (needs Rust)")

EXACT = 1e-12
"""Relative difference of sums in double precision that are taken in another order."""
SINGLE = 1e-5
"""The same in single precision, as torch computes networks, and of weights that are rounded when layers are folded."""

Arrays = dict[str, npt.NDArray[Any]]


def file_of(name: str, view: View, network: str, arrays: Arrays, **fields: Any) -> bytes:
    """Return the bytes of a policy file."""
    card = Card(
        name=name, view=view.name, view_version=view.version, network=network, objective="o", algorithm="a", **fields
    )
    return save({key: np.ascontiguousarray(array) for key, array in arrays.items()}, card_metadata(card))


def card_metadata(card: Any) -> dict[str, str]:
    return {CARD: msgspec.json.encode(card).decode()}


def network_file(name: str, norm: str, view: View) -> tuple[Any, bytes]:
    """Return a network in torch with weights that matter, and its file."""
    network = trained(name, norm, view)
    hidden = () if name == "linear" else network.spec.hidden
    arrays = export(network, fold=name != "gnn")
    return network, file_of("n", view, name, arrays, hidden=hidden, normalisation=norm)


@pytest.mark.parametrize("view", [CLUSTER, GPU], ids=lambda view: view.name)
@pytest.mark.parametrize(("name", "norm"), ALL)
def test_core_scores_as_torch_does_in_double_precision(name: str, norm: str, view: View) -> None:
    network, content = network_file(name, norm, view)
    core, double = PolicyHandle("n.safetensors", content), copy.deepcopy(network).double()
    # Folding rounds the weights; PyTorch Geometric's edges are made with `float()`.
    tolerance = SINGLE if norm == "batch" and name != "gnn" else EXACT
    for seed in range(examples(40)):
        nodes, pod, context, mask, groups = observed = observe(view, seed, 1 + seed)
        scores = core.scores(nodes, pod, context, mask.astype(np.int8), groups.astype(np.int64))
        doubles = {key: each.double() if each.is_floating_point() else each for key, each in tensors(observed).items()}
        exact = patch.object(torch.Tensor, "float", torch.Tensor.double) if name == "gnn" else nullcontext()
        with torch.no_grad(), exact:
            wanted = double(doubles)[0].numpy()
        assert (scores[~mask] == -np.inf).all()
        np.testing.assert_allclose(scores[mask], wanted[mask], rtol=tolerance, atol=tolerance)


def test_core_scores_nothing_where_nothing_is_feasible() -> None:
    for name, norm in ALL:
        core = PolicyHandle("n.safetensors", network_file(name, norm, CLUSTER)[1])
        nodes, pod, context, mask, groups = observe(CLUSTER, 1, 5)
        scores = core.scores(nodes, pod, context, np.zeros_like(mask, dtype=np.int8), groups.astype(np.int64))
        assert (scores == -np.inf).all()


def decider_by_file(decider: cases.Decider, name: str, content: bytes, *, prepared: bool) -> CoreDecider:
    """Return a decider of the core for the cluster of another, which decides as a file says.

    `prepared`: the profile and the leftover tables are those of the file.
    """
    state, places = decider.state, node_places(decider.state.nodes)
    profile, tables = tables_of(decider.policy, state, decider.live.view.profile)
    arrays: Arrays = described_cluster(state, profile) | described_leftovers(tables)
    if prepared:
        arrays = {key: array for key, array in arrays.items() if not key.startswith(("profile.", "leftovers."))}
        arrays["policy.types"] = text_array(json.dumps([[each.model, each.resources] for each in state.gpu_types]))
    return CoreDecider(
        arrays
        | {
            "policy.file": np.frombuffer(content, dtype=np.uint8),
            "policy.name": text_array(name),
            "policy.seed": np.array(7),
            "observer.rack": places.rack,
            "observer.racks": np.array(places.racks),
            "observer.server": places.server,
        }
    )


def text_array(text: str) -> npt.NDArray[np.uint8]:
    return np.frombuffer(text.encode(), dtype=np.uint8)


@pytest.mark.parametrize("name", [each["name"] for each in POLICIES if cases.LOCAL not in each])
def test_core_decides_by_files_as_the_shared_vectors_say(name: str) -> None:
    content = cases.read()
    drawn = DRAWN.get(name)
    tolerance = SINGLE if drawn is not None and drawn.context else EXACT
    with cases.policy_files() as files:
        policy, _ = cases.open_as_said({"name": name, "file": name}, files)
        raw, decided = files[name].read_bytes(), 0
        for cluster in content["clusters"]:
            decider, classes = cases.decider_of(cluster, policy, ())
            core, wanted = decider_by_file(decider, "f.safetensors", raw, prepared=True), cluster["answers"][name]
            eligible = decider.eligible
            expected = cases.as_array(wanted["scores"])
            for i, (c, pod) in enumerate(zip(classes, cluster["pods"], strict=True)):
                decider.expect(c)
                eligible = decider.eligible
                core.observe(cluster["waiting"], eligible.astype(np.int8), dict(pod["peers"]))
                node, devices = core.decide(c)
                assert (node, devices) == (wanted["best"][i], wanted["devices"][i])
                scores = core.scores(c)[: len(expected[i])]
                np.testing.assert_allclose(scores, expected[i], rtol=tolerance, atol=tolerance)
                decided += node >= 0
    assert decided > 500


@pytest.mark.parametrize(
    ("name", "norm", "view"), [("deepsets", "layer", CLUSTER), ("mlp", "none", GPU), ("gnn", "batch", CLUSTER)]
)
def test_core_follows_placements_as_live_deciders_do(tmp_path: Path, name: str, norm: str, view: View) -> None:
    content, file, draws = network_file(name, norm, view)[1], tmp_path / "n.safetensors", random.Random(5)
    file.write_bytes(content)
    with cases.policy_files() as files:
        profile = cases.open_as_said(POLICIES[0], files)[1]
    decided = 0
    for cluster in cases.read()["clusters"][:: 60 // examples(60)]:
        decider, classes = cases.decider_of(cluster, open_policy(file, "n"), profile)
        recorder, core = cases.recorder_of(decider), decider_by_file(decider, "n", content, prepared=False)
        assert recorder is not None
        running: list[tuple[str, int, int, int]] = []
        for i in range(2 * len(classes)):
            c, peers = classes[i % len(classes)], {n: draws.randrange(1, 4) for n in draws.sample(range(4), 2)}
            decider.expect(c)
            decider.waiting = draws.randrange(9)
            core.observe(decider.waiting, decider.eligible.astype(np.int8), peers)
            choice = decider.choose(PodQuery(c, owner_pods=OwnerPods(peers)))
            if choice is None or not recorder.clear:
                assert choice is not None or core.decide(c) == (NOWHERE, 0)
                continue
            decided += 1
            assert core.decide(c) == (choice.slot, choice.devices)
            np.testing.assert_allclose(
                core.scores(c), cases.scores_of(decider, c, nowhere=False), rtol=SINGLE, atol=SINGLE
            )
            running.append((f"r{i}", c, choice.slot, choice.devices))
            decider.state.place(f"r{i}", c, choice.slot, choice.devices)
            core.place(c, 0, choice.slot, choice.devices)
            decider.changed(choice.slot)
            if draws.random() < 0.4:
                pod, c, slot, devices = running.pop(draws.randrange(len(running)))
                decider.state.remove(pod)
                core.remove(c, 0, slot, devices)
                decider.changed(slot)
    assert decided > 100


def changed(content: bytes, folder: Path, change: Callable[[Json, Arrays], object]) -> bytes:
    """Return a file of which a test changed the card or the tensors."""
    file = folder / "changed.safetensors"
    file.write_bytes(content)
    card, arrays = read_policy(file)
    fields = json.loads(msgspec.json.encode(card))
    change(fields, arrays)
    return save(arrays, card_metadata(fields))


Json = dict[str, Any]


def put(name: str, value: Any) -> Callable[[Json, Arrays], object]:
    """Return a change of the first number of a tensor."""

    def change(_: Json, arrays: Arrays) -> None:
        arrays[name] = arrays[name].copy()
        arrays[name].reshape(-1)[0] = value

    return change


def replaced(name: str, array: npt.NDArray[Any]) -> Callable[[Json, Arrays], object]:
    return lambda _, arrays: arrays.update({name: array})


def without(name: str) -> Callable[[Json, Arrays], object]:
    return lambda _, arrays: arrays.pop(name)


def field(**fields: Any) -> Callable[[Json, Arrays], object]:
    return lambda card, _: card.update(fields)


def mix(**fields: Any) -> Callable[[Json, Arrays], object]:
    return lambda card, _: card["mix"].update(fields)


WRONG = [
    ("linear", field(schema=2)),
    ("linear", lambda card, _: card.pop("schema")),
    ("linear", field(view="other")),
    ("linear", field(view_version=9)),
    ("linear", field(network="rnn")),
    ("cluster-mlp", field(normalisation="x")),
    ("mlp", field(normalisation="layer")),
    ("mlp", field(hidden=[])),
    ("mlp", field(hidden=[0])),
    ("mlp", field(hidden=[-3])),
    ("mlp", field(hidden=[17])),
    ("mlp", field(hidden=[1 << 40, 1 << 62])),
    ("cluster-deepsets", field(hidden=[6, (1 << 63) - 1])),
    ("cluster-mlp", field(network="gnn")),
    ("linear", field(mix=None)),
    ("linear", mix(version=1)),
    ("linear", mix(typical_pods=-1)),
    ("linear", mix(typical_pods=3)),
    ("linear", mix(typical_pods=1 << 62)),
    ("linear", mix(resources=["a"])),
    ("linear", without("mix.cpu")),
    ("linear", without("weights")),
    ("cluster-linear", without("head.bias")),
    ("cluster-mlp", without("layers.1.norm.bias")),
    ("linear", replaced("more", np.zeros(3))),
    ("linear", replaced("mix.more", np.zeros(3))),
    ("cluster-mlp", replaced("outlook.planned", np.zeros(1001))),
    ("linear", replaced("weights", np.zeros((4, 3)))),
    ("linear", replaced("weights", np.zeros((4, 31), dtype=np.int8))),
    ("mlp", replaced("layers.0.weight", np.zeros((16, 42), dtype=np.bool_))),
    ("linear", put("weights", np.nan)),
    ("linear", put("weights", -np.inf)),
    ("linear", put("weights", 2e12)),
    ("cluster-mlp", put("head.bias", -2e12)),
    ("linear", put("mix.share", np.inf)),
    ("linear", replaced("mix.share", np.zeros(3, dtype=np.int32))),
    ("linear", put("mix.value", 99)),
    ("linear", put("mix.cpu", -1)),
    ("linear", put("mix.milli", 1000)),
    ("linear", put("mix.milli", 0)),
    ("linear", replaced("mix.milli", np.zeros(0, dtype=np.int64))),
    ("linear", put("mix.gpu_count", 65)),
    ("linear", put("mix.accepts", 2)),
    ("linear", replaced("outlook.planned", np.zeros(3, dtype=np.float32))),
    ("linear", put("outlook.sequences", 1000)),
    ("linear", replaced("outlook.smallest", np.zeros((1, 1), dtype=np.uint16))),
    ("steersman-rule", field(members=["fgd", "best-fit"])),
    ("steersman-rule", field(members=["fastest"])),
    ("steersman-rule", replaced("weights", np.zeros((4, 31)))),
    ("cluster-linear", field(network="portfolio")),
    ("linear", field(network="portfolio")),
]


@pytest.mark.parametrize(("name", "change"), WRONG, ids=lambda each: each if isinstance(each, str) else "")
def test_core_refuses_files_in_the_words_of_python(
    tmp_path: Path, name: str, change: Callable[[Json, Arrays], object]
) -> None:
    with cases.policy_files() as files:
        content = changed(files[name].read_bytes(), tmp_path, change)
    file = tmp_path / "wrong.safetensors"
    file.write_bytes(content)
    with pytest.raises(InputError) as wanted:
        open_policy(file, "wrong")
    with pytest.raises(SteersmanError) as refused:
        PolicyHandle(str(file), content)
    assert str(refused.value) == str(wanted.value)


@pytest.mark.parametrize(
    "change",
    [field(surprise=1), field(hidden="no"), field(steps="many"), field(name=3), mix(more=1), field(scores=[{}])],
)
def test_core_refuses_cards_with_other_fields(tmp_path: Path, change: Callable[[Json, Arrays], object]) -> None:
    with cases.policy_files() as files:
        content = changed(files["linear"].read_bytes(), tmp_path, change)
    with pytest.raises(SteersmanError, match=r"^f, metadata, steersman: is not a model card: [^\n]+$"):
        PolicyHandle("f", content)


@pytest.mark.parametrize("length", [0, 7, 100, 5_000, -1])
def test_core_refuses_cut_and_oversized_files(length: int) -> None:
    with cases.policy_files() as files:
        content = files["linear"].read_bytes()
    with pytest.raises(SteersmanError, match=r"^f, file, policy: is truncated or no safetensors file \([^\n]+\)$"):
        PolicyHandle("f", content[:length])
    with pytest.raises(SteersmanError, match=r"^f, file, size: is 67108865 bytes; a policy has 64 MiB at most$"):
        PolicyHandle("f", bytes((64 << 20) + 1))


def test_core_returns_the_card_of_a_file() -> None:
    with cases.policy_files() as files:
        for name, file in files.items():
            policy = PolicyHandle("f", file.read_bytes())
            card = msgspec.json.decode(policy.card, type=Card)
            assert policy.observes_others == (name in DRAWN and DRAWN[name].context)
            assert card == read_policy(file)[0]
    assert not PolicyHandle("f.txt", formula_bytes({"one GPU": ["1 fgd"]})).card


def formula_bytes(terms: dict[str, list[str]]) -> bytes:
    """Return the text of a formula with terms by kind of pod."""
    lines = [line for kind in KIND_NAMES for line in (f"{kind}:", *terms.get(kind, []))]
    return "\n".join([HEADER, "# a comment", *lines, ""]).encode()


FORMULA = formula_bytes(
    {
        "no GPU": ["-1.5e0 cpu_left_after # more", "+3 best-fit"],
        "a share of a GPU": ["0.03 fgd", "-.516 filled_idle_change", "1. gpu-packing"],
        "one GPU": ["-2 lost_planned_change"],
        "several GPUs": ["-1 dead_after", "0.25 balanced-allocation"],
    }
)


def test_core_reads_formulas_as_python_does(tmp_path: Path) -> None:
    content, file = cases.read(), tmp_path / "mine.txt"
    for text in (FORMULA, b"\xef\xbb\xbf" + FORMULA.replace(b"\n", b"\r\n"), formula_bytes({})):
        file.write_bytes(text)
        policy = open_formula(str(file))
        for cluster in content["clusters"][::10]:
            with cases.policy_files() as files:
                profile = cases.open_as_said(POLICIES[0], files)[1]
            decider, classes = cases.decider_of(cluster, policy, profile)
            core = decider_by_file(decider, str(file), text, prepared=False)
            for c in classes:
                choice = decider.choose(PodQuery(c))
                assert core.decide(c) == ((-1, 0) if choice is None else (choice.slot, choice.devices))
                if choice is not None:
                    assert core.scores(c).tolist() == decider.scores(PodQuery(c)).tolist()


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"# steersman formula 1\n",
        b"\xff\xfe",
        b"# " * 40_000,
        FORMULA.replace(b"one GPU:", b"two GPUs:"),
        FORMULA.replace(b"several GPUs:", b"one GPU:"),
        FORMULA.replace(b"a share of a GPU:\n", b""),
        FORMULA.replace(b"# a comment", b"1 fgd"),
        FORMULA.replace(b"0.03 fgd", b"0.03 fgd\n1 fgd"),
        FORMULA.replace(b"0.03 fgd", b"1e13 fgd"),
        FORMULA.replace(b"0.03 fgd", b"nan fgd"),
        FORMULA.replace(b"0.03 fgd", b"inf fgd"),
        FORMULA.replace(b"0.03 fgd", b"1_0 fgd"),
        FORMULA.replace(b"0.03 fgd", b"--1 fgd"),
        FORMULA.replace(b"several GPUs:", b""),
        formula_bytes(
            {kind: [f"1 {name}" for name in NAMES] + [f"1 {f.name}" for f in GPU.node[:9]] for kind in KIND_NAMES}
        ),
    ],
)
def test_core_refuses_formulas_in_the_words_of_python(tmp_path: Path, text: bytes) -> None:
    file = tmp_path / "mine.txt"
    file.write_bytes(text)
    with pytest.raises(InputError) as wanted:
        open_formula(str(file))
    with pytest.raises(SteersmanError) as refused:
        PolicyHandle(str(file), text)
    assert str(refused.value) == str(wanted.value)


@pytest.mark.parametrize("term", [b"0.03 fdg", b"0.03", b"xyz"])
def test_core_lists_the_terms_of_formulas(term: bytes) -> None:
    text = FORMULA.replace(b"0.03 fgd", term)
    with pytest.raises(SteersmanError, match=r"^f.txt, line 7, .* is not a .*term; known: fragmented_after, .*fgd"):
        PolicyHandle("f.txt", text)


@pytest.mark.parametrize("name", ["steersman-rule", "linear", "mlp", "mlp-deep", "cluster-mlp", "gpu-deepsets"])
def test_core_explains_scores_as_python_does(name: str) -> None:
    content, compared = cases.read(), 0
    with cases.policy_files() as files:
        policy, raw = open_policy(files[name], name), files[name].read_bytes()
    for cluster in content["clusters"][::6]:
        decider, classes = cases.decider_of(cluster, policy, ())
        core = decider_by_file(decider, name, raw, prepared=True)
        view = policy.view if isinstance(policy, NetworkPolicy) else GPU
        names = [*NAMES, *(feature.name for feature in view.node)]
        for c, pod in zip(classes, cluster["pods"], strict=True):
            query = PodQuery(c, owner_pods=cases.peers_of(pod))
            room = np.flatnonzero(decider.state.mask(c, 0))
            if len(room) < 2:
                continue
            decider.expect(c)
            core.observe(cluster["waiting"], decider.eligible.astype(np.int8), dict(pod["peers"]))
            wanted = {each.name: each for each in decider.contributions(query, int(room[0]), int(room[-1]))}
            if isinstance(policy, LinearPolicy):
                wanted.pop("fgd", None)  # a weight of this rule is not a part of the score
            parts = core.contributions(c, 0, int(room[0]), int(room[-1]))
            assert {names[int(number)] for number, *_ in parts} == set(wanted)
            scale = max(1.0, np.abs(decider.scores(query)[room]).max())
            for number, value, other, contribution in parts.tolist():
                each = wanted[names[int(number)]]
                assert (value, other) == (each.value, each.other)
                tolerance = (SINGLE if isinstance(policy, NetworkPolicy) else EXACT) * scale
                assert contribution == pytest.approx(each.contribution, abs=tolerance)
                compared += 1
    assert compared > 50


def test_core_adds_variances_of_features() -> None:
    """By NumPy, over the features of nodes on which a class fits."""
    with cases.policy_files() as files:
        policy, raw = open_policy(files["linear"], "linear"), files["linear"].read_bytes()
    sums, counts = np.zeros((4, 2, FEATURES)), np.zeros(4)
    wanted, summands = np.zeros_like(sums), np.zeros(4)
    for cluster in cases.read()["clusters"][::6]:
        decider, classes = cases.decider_of(cluster, policy, ())
        core, requests = decider_by_file(decider, "f", raw, prepared=True), decider.state.class_arrays
        for c in classes:
            core.add_variances(c, sums, counts)
            # With the best-fit device, which is where features differ from those of the device that a policy chooses.
            is_share = requests.gpu_count[c] == 1 and requests.gpu_milli[c] < 1000
            rows = core.features(c)
            fits = decider.state.room(c)
            if is_share or fits.sum() < 2:
                counts[1], sums[1] = 0.0, 0.0
                continue
            kind = int(np.argmax([requests.gpu_count[c] == 0, False, requests.gpu_count[c] == 1, True]))
            summands[kind] += 1
            change, after = rows[fits, FEATURES : 2 * FEATURES], rows[fits, :FEATURES]
            wanted[kind] += np.stack([change.var(axis=0), after.var(axis=0)])
    assert counts.tolist() == summands.tolist()
    assert counts[[0, 2, 3]].min() > 5
    np.testing.assert_allclose(sums, wanted, rtol=1e-6, atol=1e-9)


def test_core_refuses_requests_that_are_none() -> None:
    sizes, ones, table = np.array([300]), np.ones(1, dtype=np.int64), np.zeros(1001)
    devices = np.zeros(1001, dtype=np.int64)
    with pytest.raises(SteersmanError, match=r"^sequence: 1 is not in 0\.\.1$"):
        play_requests(sizes, ones, 1, table, devices, ones.copy())
    with pytest.raises(SteersmanError, match=r"^sizes: 1001 is not in 0\.\.1001$"):
        play_requests(sizes + 701, ones - 1, 1, table, devices, ones.copy())
    with pytest.raises(SteersmanError, match=r"^chosen: less than the request$"):
        undo_requests(sizes, ones - 1, 200 * ones, devices, table, table)
