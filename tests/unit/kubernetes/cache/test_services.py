"""What kube-default spreads pods by: selectors of Services and controllers, read, written, merged and looked up."""

from itertools import product
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st
from tests.support.kube_decisions import KubeDecisions

from steersman.cluster.constraints.node import holds
from steersman.cluster.model import Constraints, Node, Pod, PodClass, PodSelector, Requests, Requirement
from steersman.cluster.state import ClusterState
from steersman.policies.kube_scheduler.arrays import HOSTNAME, ZONE, kube_arrays
from steersman.workloads.formats.kubernetes.controllers import services_of, services_to_objects
from steersman.workloads.formats.kubernetes.objects import Objects, write_services
from steersman.workloads.formats.yaml_documents import Document, read_documents
from steersman.workloads.workload import SpreadSelectors

WEB = Requirement("app", "In", ("web",))
OLD_OR_NEW = Requirement("track", "In", ("new", "old"))
TIERED = Requirement("tier", "Exists")


def controller(kind="ReplicaSet", name="r", owner="", **selector):
    metadata = {"name": name, "namespace": "shop"}
    if owner:
        kind_of, name_of = owner.split("/")
        reference = {"apiVersion": "apps/v1", "kind": kind_of, "name": name_of, "uid": "1", "controller": True}
        metadata["ownerReferences"] = [reference]
    return {"apiVersion": "apps/v1", "kind": kind, "metadata": metadata, "spec": {"selector": selector}}


def services(*objects):
    return Objects(Document(each, "f.yaml", "") for each in objects).services()


def test_expressions_of_controllers_are_read():
    expressions = [{"key": "track", "operator": "In", "values": ["old", "new"]}, {"key": "tier", "operator": "Exists"}]
    found = services(controller(matchLabels={"app": "web"}, matchExpressions=expressions))
    assert found == SpreadSelectors(expressions=(("shop", (WEB, TIERED, OLD_OR_NEW)),))


def test_single_value_expression_equals_a_label():
    expressions = [{"key": "app", "operator": "In", "values": ["web"]}]
    assert services(controller(matchExpressions=expressions)) == SpreadSelectors((("shop", (("app", "web"),)),))


def test_deployment_selector_is_ignored_beside_its_replica_set():
    deployment = controller("Deployment", "d", matchLabels={"app": "web"})
    replica_set = controller(name="d-1", owner="Deployment/d", matchLabels={"app": "web", "hash": "1"})
    assert services(deployment, replica_set) == services(replica_set)
    assert services(deployment).selectors == (("shop", (("app", "web"),)),)


def test_a_wrong_selector_is_a_problem_that_names_its_field():
    broken = controller(matchExpressions=[{"key": "app", "operator": "In", "values": []}])
    objects = Objects([Document(broken, "f.yaml", "")])
    assert objects.services() == SpreadSelectors()
    (problem,) = objects.problems()
    assert problem.field == "spec.selector.matchExpressions[0].values"


requirement = st.builds(
    lambda key, operator, values: Requirement(key, operator, values if operator in ("In", "NotIn") else ()),
    st.sampled_from("abc"),
    st.sampled_from(("In", "NotIn", "Exists", "DoesNotExist")),
    st.sets(st.sampled_from("xyz"), min_size=1).map(lambda values: tuple(sorted(values))),
)
selectors = st.lists(requirement, min_size=1, max_size=4, unique=True).map(
    lambda each: tuple(sorted(each, key=lambda r: (r.key, r.operator, r.values)))
)


@given(st.lists(st.tuples(st.sampled_from(("default", "shop")), selectors), max_size=5))
def test_written_selectors_round_trip_without_pods(wanted):
    found = services_of(wanted)
    assert len(found) == len(set(wanted))
    objects = Objects(Document(each, "", "") for each in services_to_objects(found))
    back = objects.services()
    # Two values of one key are two pairs, of which an object keeps one: such a selector selects nothing anyway.
    assert back.expressions == found.expressions
    assert set(back.selectors) >= {each for each in found.selectors if len(dict(each[1])) == len(each[1])}
    assert objects.expanded(()).pods == ()


@given(selectors)
def test_written_replica_set_selects_its_template(wanted):
    found = services_of([("shop", wanted)])
    for written in services_to_objects(found):
        if written["kind"] == "ReplicaSet":
            labels = written["spec"]["template"]["metadata"]["labels"]
            every = product([None, *"wxyz"], repeat=3)
            choices = ({k: v for k, v in zip("abc", values, strict=True) if v is not None} for values in every)
            possible = any(all(holds(each, choice) for each in wanted) for choice in choices)
            assert all(holds(each, labels) for each in wanted) == possible


def test_selectors_are_read_from_a_file(tmp_path: Path):
    wanted = SpreadSelectors((("shop", (("app", "web"),)),), (("shop", (TIERED,)),))
    write_services(wanted, tmp_path / "services.yaml")
    assert Objects(read_documents(tmp_path / "services.yaml")).services() == wanted
    write_services(SpreadSelectors(), tmp_path / "none.yaml")
    assert not (tmp_path / "none.yaml").exists()


def test_union_is_ordered_and_unique():
    a = SpreadSelectors((("x", (("k", "1"),)), ("y", (("k", "1"),))), (("x", (TIERED,)),))
    b = SpreadSelectors((("z", (("k", "1"),)), ("x", (("k", "1"),))), (("x", (TIERED,)), ("y", (TIERED,))))
    found = SpreadSelectors.union([a, b])
    assert [namespace for namespace, _ in found.selectors] == ["x", "y", "z"]
    assert [namespace for namespace, _ in found.expressions] == ["x", "y"]
    assert (len(found), bool(found), bool(SpreadSelectors())) == (5, True, False)


def spread_scores(given, labels, placed):
    """The weighted spread scores of four nodes in two zones for a pod with these labels."""
    nodes = [Node(f"n{i}", 8000, 32 << 30, labels={HOSTNAME: f"n{i}", ZONE: f"z{i // 2}"}) for i in range(4)]
    state = ClusterState(nodes)
    kind = PodClass(Requests(100, 1 << 27), Constraints())
    for i, (slot, those) in enumerate(placed):
        pod = Pod(f"p{i}", kind, labels=those)
        state.place(pod.name, state.class_id(kind), slot, labels_id=state.labels_id(pod))
    ids = state.class_id(kind), state.labels_id(Pod("new", kind, labels=labels))
    return KubeDecisions(state, given).breakdown(*ids)["PodTopologySpread"].tolist()


def test_pods_are_spread_by_every_matching_selector():
    # Counted are pods of the Service, which the controller's expressions hold for, too: the second and third are not.
    given = SpreadSelectors((("default", (("app", "web"),)),), (("default", (TIERED, OLD_OR_NEW)),))
    labels = {"app": "web", "tier": "1", "track": "new"}
    placed = [
        (0, labels),
        (1, {"app": "web", "tier": "1"}),
        (2, {"tier": "1", "track": "old"}),
        (0, labels | {"x": "y"}),
    ]
    # Raw: n0 round(2 ln 6 + 2 + 2 ln 4 + 4) = 12, n1 round(2 + 2 ln 4 + 4) = 9, n2 and n3 round(2 + 4) = 6.
    assert spread_scores(given, labels, placed) == [2 * (100 * (12 + 6 - raw) // 12) for raw in (12, 9, 6, 6)]


def test_non_matching_expressions_do_not_spread_a_pod():
    given = SpreadSelectors(expressions=(("default", (TIERED,)), ("other", (WEB,))))
    assert spread_scores(given, {"app": "web"}, [(0, {"app": "web", "tier": "1"})]) == [0] * 4


def test_expressions_are_looked_up_like_a_pods_own_selector():
    given = SpreadSelectors(expressions=(("default", (TIERED, OLD_OR_NEW)),))
    state = ClusterState((Node("n", 8000, 32 << 30, labels={HOSTNAME: "n", ZONE: "z"}),))
    pod = Pod("p", PodClass(Requests(1, 1)), labels={"tier": "", "track": "old"})
    row = state.labels_id(pod)
    state.class_id(pod.pod_class)
    number = int(kube_arrays(state, given).default_selector[row])
    assert number == state.terms.selector_id(PodSelector((TIERED, OLD_OR_NEW), frozenset(("default",))), living=True)
