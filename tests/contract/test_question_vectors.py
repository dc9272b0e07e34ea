"""What the plugin sends of a pod to a score service: no secrets, and the same pod to every policy."""

import json
from pathlib import Path

from steersman.cluster.objects.decoding import pod_from_object

VECTOR = json.loads((Path(__file__).parent / "data" / "question.json").read_text())
SECRET = "hunter2"


def test_sent_pod_is_equal_but_for_its_secrets():
    assert SECRET in json.dumps(VECTOR["pod"])
    assert SECRET not in json.dumps(VECTOR["sent"])
    whole = pod_from_object(VECTOR["pod"])
    assert pod_from_object(VECTOR["sent"]) == whole
    assert whole.requests.gpu_milli == 500
    assert whole.pod_class.constraints.anti_affinity
    assert whole.latency.user == "europe"
