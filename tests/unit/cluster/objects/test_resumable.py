"""Annotations of pods that can resume after an eviction."""

from __future__ import annotations

import msgspec
import pytest

from steersman.cluster.model import RESTART_SECONDS, Pod
from steersman.cluster.objects.api.pods import PodObject
from steersman.cluster.objects.decoding import RESTART_KEY, RESUMABLE_KEY, decode_pod
from steersman.cluster.objects.manifests import pod_to_object


def pod_with(**annotations: object) -> Pod:
    notes = {{"resumable": RESUMABLE_KEY, "restart": RESTART_KEY}[key]: value for key, value in annotations.items()}
    manifest = {"metadata": {"name": "a", "annotations": notes}, "spec": {"containers": [{"name": "c"}]}}
    return decode_pod(msgspec.convert(manifest, PodObject))


@pytest.mark.parametrize(
    ("stated", "interval"), [("on-eviction", 0.0), ("10m", 600.0), ("1.5h", 5400.0), ("", None), (None, None)]
)
def test_a_pod_says_that_it_can_resume(stated: str | None, interval: float | None) -> None:
    pod = pod_with() if stated is None else pod_with(resumable=stated)
    assert (pod.resumable, pod.restart_seconds, pod.ignored) == (interval, RESTART_SECONDS, ())


@pytest.mark.parametrize(("stated", "seconds"), [("0", 0.0), ("45.5", 45.5), ("", RESTART_SECONDS)])
def test_a_pod_says_what_it_needs_to_go_on(stated: str, seconds: float) -> None:
    assert pod_with(resumable="on-eviction", restart=stated).restart_seconds == seconds


@pytest.mark.parametrize("stated", ["yes", "true", "-5m", "0s", "10", "nan"])
def test_nonsense_does_not_count_and_is_named(stated: str) -> None:
    pod = pod_with(resumable=stated)
    expected = "on-eviction or a time between checkpoints such as 10m"
    assert pod.ignored == (f"annotation {RESUMABLE_KEY}: {stated!r} is not {expected}; ignored",)
    assert pod.resumable is None


@pytest.mark.parametrize("stated", ["2m", "-1", "nan", "inf", "1_0"])
def test_a_restart_without_sense_is_the_default(stated: str) -> None:
    pod = pod_with(resumable="5m", restart=stated)
    expected = "a number of seconds, 0 or more, such as 120"
    assert pod.ignored == (f"annotation {RESTART_KEY}: {stated!r} is not {expected}; ignored",)
    assert (pod.resumable, pod.restart_seconds) == (300.0, RESTART_SECONDS)


@pytest.mark.parametrize(("stated", "restart"), [("on-eviction", "0"), ("90s", "33.5"), ("10m", "120")])
def test_what_is_written_is_read_again(stated: str, restart: str) -> None:
    pod = pod_with(resumable=stated, restart=restart)
    again = decode_pod(msgspec.convert(pod_to_object(pod), PodObject))
    assert (again.resumable, again.restart_seconds) == (pod.resumable, pod.restart_seconds)
