"""Files that are wrong in ways nobody plans for end in one line that names the file and the field."""

import os

import pytest

from steersman.errors import InputError
from steersman.workloads.loading import load_workload

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
        (("4", "8Gi"), ("1", "8E", "8E"), "spec.containers: ask for"),
        (("4", "8Gi"), ("9e15", "1", "1"), "spec.containers: ask for"),
        (("9e15", "8Gi"), ("1", "1", "1"), "status.allocatable.cpu: '9e15' is more than any real machine has"),
        (("4", "8E"), ("1", "1", "1"), "status.allocatable.memory: '8E' is more than"),
    ],
)
def test_absurd_amounts_name_the_field(tmp_path, node, pod, message):
    text = NODE % node + "---" + POD % pod
    assert message in problem(tmp_path, text)


def test_json_nested_without_end(tmp_path):
    assert "nested deeper" in problem(tmp_path, "[" * 20_000 + "]" * 20_000, "w.json")


def test_a_list_that_holds_itself(tmp_path):
    assert "nested deeper" in problem(tmp_path, "&x\napiVersion: v1\nkind: List\nitems: [*x]\n")


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_a_folder_that_may_not_be_read(tmp_path):
    (tmp_path / "w.yaml").write_text(NODE % ("1", "1Gi"))
    hidden = tmp_path / "sub"
    hidden.mkdir(mode=0o000)
    with pytest.raises(InputError, match="sub: cannot be read"):
        load_workload(tmp_path, tmp_path)
