"""Files that are wrong in ways nobody plans for end in one line that names the file and the field."""

import json
import os
from itertools import pairwise

import pytest
from tests.support.errors import raises

from steersman.cluster.objects.fields import join
from steersman.core.errors import InputError
from steersman.workloads.loading import load_pods, load_workload
from steersman.workloads.topology import Hierarchy, write_hierarchy

NODE = """
apiVersion: v1
kind: Node
metadata: {name: n}
status: {allocatable: {cpu: "%s", memory: "%s", pods: "10"}}
"""
POD = """
apiVersion: v1
kind: Pod
metadata: {name: p}
spec:
  containers:
  - {name: a, resources: {requests: {cpu: "%s", memory: "%s"}}}
  - {name: b, resources: {requests: {cpu: "1", memory: "%s"}}}
"""


def problem(tmp_path, text, name="w.yaml"):
    path = tmp_path / name
    path.write_text(text)
    with pytest.raises(InputError) as error:
        load_workload(path, None)
    message = str(error.value)
    assert str(path) in message
    assert "\n" not in message
    return message


@pytest.mark.parametrize(
    ("node", "pod", "message"),
    [
        (("4", "8Gi"), ("1", "8E", "8E"), "line 7, Pod p, spec.containers[0].resources.requests.memory: '8E'"),
        (("4", "8Gi"), ("9e15", "1", "1"), "spec.containers[0].resources.requests.cpu: '9e15' is more than any real"),
        (("4", "8Gi"), ("1", "200Ti", "200Ti"), "spec.containers: ask for 439804651110400 of memory in all"),
        (("9e15", "8Gi"), ("1", "1", "1"), "status.allocatable.cpu: '9e15' is more than any real machine has"),
        (("4", "8E"), ("1", "1", "1"), "status.allocatable.memory: '8E' is more than"),
    ],
)
def test_absurd_amounts_name_the_field(tmp_path, node, pod, message):
    text = NODE % node + "---" + POD % pod
    assert message in problem(tmp_path, text)


@pytest.mark.parametrize(
    ("resource", "amount", "message"),
    [
        ("nvidia.com/gpu", "1E", "requests['nvidia.com/gpu']: '1E' is more than any real machine has"),
        ("nvidia.com/gpu", "10001", "spec.containers: request 10001 GPUs, more than any real pod"),
        ("example.com/dongle", "1E", "requests['example.com/dongle']: '1E' is more than"),
        ("ephemeral-storage", "1E", "requests.ephemeral-storage: '1E' is more than"),
    ],
)
def test_absurd_devices_and_storage_name_the_field(tmp_path, resource, amount, message):
    pod = (POD % ("1", "1", "1")).replace(
        'cpu: "1", memory: "1"}}}\n  - ', f'{resource}: "{amount}"}}, limits: {{{resource}: "{amount}"}}}}}}\n  - ', 1
    )
    assert message in problem(tmp_path, NODE % ("4", "8Gi") + "---" + pod)


@pytest.mark.parametrize("resource", ["nvidia.com/gpu", "example.com/dongle", "ephemeral-storage"])
def test_absurd_nodes_name_the_field(tmp_path, resource):
    node = (NODE % ("4", "8Gi")).replace("pods:", f'{resource}: "9E", pods:')
    message = problem(tmp_path, node + "---" + POD % ("1", "1", "1"))
    assert f"{join('status.allocatable', resource)}: '9E' is more than any real machine has" in message


@pytest.mark.parametrize(("name", "unit"), [("w.json", "["), ("w.yaml", "["), ("w.yaml", "{a: "), ("w.yaml", "- ")])
def test_deep_nesting_is_rejected(tmp_path, name, unit):
    # libyaml alone overflows the stack here.
    text = unit * 60_000 + {"[": "]", "{a: ": "}", "- ": "x"}[unit] * 60_000
    assert "nested deeper" in problem(tmp_path, text, name)


@pytest.mark.parametrize(
    "text",
    [
        "&x\napiVersion: v1\nkind: List\nitems: [*x]\n",
        "apiVersion: v1\nkind: Node\nmetadata: &m {name: n, annotations: *m}\n",
        "&x\n<<: *x\napiVersion: v1\nkind: Node\n",
    ],
)
def test_self_referencing_yaml_is_rejected(tmp_path, text):
    assert "document 1, line" in (message := problem(tmp_path, text))
    assert "holds itself" in message


def test_yaml_alias_bombs_are_rejected(tmp_path):
    names = "abcdefghi"
    lines = [f"{n}: &{n} [{', '.join(['*' + before] * 9)}]" for before, n in pairwise(names)]
    text = "\n".join(["a: &a [1, 1, 1, 1, 1, 1, 1, 1, 1]", *lines])
    assert "its aliases stand for more text than there can be" in problem(tmp_path, text)


def test_plain_aliases_are_accepted(tmp_path):
    both = "---".join((NODE % ("4", "8Gi"), POD % ("1", "1", "1")))
    both = both.replace("{name: a, resources: {", "{name: a, resources: &r {").replace("name: b, ", "name: c, ")
    (tmp_path / "w.yaml").write_text(both + "  - {name: d, resources: *r}\n")
    assert load_workload(tmp_path / "w.yaml", None).pods[0].requests.cpu_milli == 3000


@pytest.mark.parametrize("scalar", ["1" * 5000, "0b_", "0x_", "!!int x", "!!float x", "!!bool x", "!!timestamp x"])
def test_unreadable_scalars_name_document_and_line(tmp_path, scalar):
    text = (POD % ("1", "1", "1")).replace('cpu: "1"', f"cpu: {scalar}", 1)
    message = problem(tmp_path, text)
    assert "document 1, line 7: is not YAML: " in message
    assert "that can be read" in message


def test_numbers_beyond_floats_are_rejected(tmp_path):
    note = "metadata: {name: p, annotations: {alibabacloud.com/%s: %s}}"
    pod = POD % ("1", "1", "1")
    endless = pod.replace("metadata: {name: p}", note % ("creation-time", "1" * 400))
    assert "is not a time" in problem(tmp_path, NODE % ("1", "1") + "---" + endless)
    devices = pod.replace("metadata: {name: p}", note % ("gpu-index", f'"{"1" * 5000}"'))
    assert "does not name the pod's 0 devices" in problem(tmp_path, NODE % ("1", "1") + "---" + devices)
    assert "has a number of thousands of digits" in problem(tmp_path, f'{{"a": {"1" * 5000}}}', "w.json")


@pytest.mark.parametrize("letter", ["\\0", "\\n", "\\e", "\\u2028"])
@pytest.mark.parametrize("field", ["name", "namespace"])
def test_unprintable_names_are_reported(tmp_path, letter, field):
    metadata = {"name": "p", "namespace": "d"} | {field: f"a{letter}b"}
    stated = "metadata: {" + ", ".join(f'{key}: "{value}"' for key, value in metadata.items()) + "}"
    pod = (POD % ("1", "1", "1")).replace("metadata: {name: p}", stated)
    message = problem(tmp_path, NODE % ("1", "1") + "---" + pod)
    assert f"metadata.{field}: 'a" in message
    assert "is refused by Kubernetes" in message
    assert message.isprintable()


@pytest.mark.parametrize("read", [lambda f: load_workload(f, None), lambda f: write_hierarchy([f], Hierarchy())])
def test_unreadable_folder_is_reported(tmp_path, monkeypatch, read):
    (tmp_path / "w.yaml").write_text(NODE % ("1", "1Gi"))
    (tmp_path / "sub").mkdir()
    listed = os.scandir

    def scandir(path):
        if str(path).endswith("sub"):
            raise PermissionError(13, "Permission denied", str(path))
        return listed(path)

    monkeypatch.setattr(os, "scandir", scandir)
    with raises(InputError):
        read(tmp_path)


def test_hidden_files_are_skipped_and_dangling_links_reported(tmp_path):
    (tmp_path / ".git").mkdir()
    (tmp_path / ".git" / "x.yaml").write_text("not: [yaml")
    (tmp_path / ".x.yaml").write_text("not: [yaml")
    (tmp_path / "readme.txt").symlink_to("nowhere")
    with raises(InputError, ".yaml"):
        load_pods(tmp_path)
    (tmp_path / "a.yaml").symlink_to("nowhere.yaml")
    with raises(InputError, "a.yaml", "nowhere.yaml"):
        load_pods(tmp_path)


def test_too_deep_json_is_not_written(tmp_path):
    deep = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n"}}
    deep["status"] = {"allocatable": {"cpu": "1", "memory": "1"}, "more": json.loads("[" * 700 + "]" * 700)}
    (tmp_path / "n.json").write_text(json.dumps(deep))
    with raises(InputError, "n.json"):
        write_hierarchy([tmp_path], Hierarchy())
