"""The recording of bindings: their order, and that it goes on where the server ended the watch."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from tests.support.heterogeneous.cluster import Recording


def event(kind: str, name: str, version: int, node: str = "") -> str:
    spec: dict[str, Any] = {"nodeName": node} if node else {}
    labels = {"app": name[0]}
    metadata = {"name": name, "uid": name, "resourceVersion": str(version), "labels": labels}
    return json.dumps({"type": kind, "object": {"metadata": metadata, "spec": spec, "status": {}}}) + "\n"


PARTS = {
    "1": event("ADDED", "a1", 2)
    + event("ADDED", "b1", 3)
    + event("MODIFIED", "b1", 4, "n")
    + event("ADDED", "a2", 5)[:9],
    "4": event("ADDED", "a2", 5) + event("MODIFIED", "a1", 6, "n") + event("MODIFIED", "b1", 7, "n"),
    "7": event("DELETED", "b1", 8, "n"),
}
"""What a watch from a resource version says before the server ends it, in the midst of a line the first time."""


def test_recording_resumes_where_the_watch_ended(tmp_path: Path) -> None:
    asked = []

    def watch(version: str, path: Path) -> subprocess.Popen[bytes]:
        asked.append(version)
        with path.open("a") as file:
            file.write(PARTS.get(version, ""))
        process = subprocess.Popen([sys.executable, "-c", ""])
        process.wait()
        return process

    recording = Recording(watch, tmp_path / "pods.jsonl", "1")
    for _ in range(4):
        recording.read()
    recording.close()
    assert asked[:4] == ["1", "4", "7", "8"]
    assert recording.order == ["b1", "a1"]
    assert recording.count("a") == 2
    assert recording.untried == 1
    assert recording.deleted == 1
