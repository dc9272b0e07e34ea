"""A hostile client, in a process of its own.

`python -m benchmarks.service.hostile_client PORT RATE SECONDS FIRST` sends the score service requests on schedule about
pods unlike all others, each of them new (FIRST is the number of the first one), and prints the number of answers by
status as JSON.
"""

from __future__ import annotations

import asyncio
import json
import random
import sys
from collections import Counter
from collections.abc import Callable
from typing import Any

import aiohttp

from benchmarks.service.api_server import node_object, pod_object

REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
MARK = "fresh-4711"
"""In bodies: stands for what is new in each."""
HUGE_BYTES = 1 << 20
SENT_NODES = 200

Request = tuple[str, bytes]
"""A path, and a body with marks."""


def selecting() -> Request:
    """Return a pod that selects others by labels and domains that no pod has."""
    term = {"topologyKey": f"{MARK}.example/zone", "labelSelector": {"matchLabels": {f"{MARK}.example/app": MARK}}}
    rule = {"maxSkew": 1, "whenUnsatisfiable": "DoNotSchedule", **term}
    pod = _pod()
    pod["metadata"]["labels"] = {f"{MARK}.example/app": MARK}
    pod["spec"] |= {"affinity": {"podAntiAffinity": {REQUIRED: [term]}}, "topologySpreadConstraints": [rule]}
    return "/v1/scores", _body({"pod": pod})


def unlike() -> Request:
    """Return a pod with requests, owner, ports, tolerations and node selectors that no other has."""
    pod = _pod()
    pod["metadata"] |= {
        "name": MARK,
        "ownerReferences": [{"kind": "Job", "name": MARK, "uid": MARK, "controller": True}],
    }
    pod["spec"] |= {"nodeSelector": {MARK: "x"}, "tolerations": [{"key": MARK, "operator": "Exists"}]}
    pod["spec"]["containers"][0]["image"] = MARK
    return "/v1/suggestions", _body({"pod": pod})


def huge() -> Request:
    """Return a pod of a megabyte."""
    pod = _pod()
    pod["metadata"]["annotations"] = {MARK: "x" * (HUGE_BYTES // 2)}
    env = [{"name": f"NAME_{i}", "value": "x" * 100} for i in range(HUGE_BYTES // 280)]
    pod["spec"]["containers"][0]["env"] = env
    return "/v1/scores", _body({"pod": pod})


def odd() -> Request:
    """Return a pod with more rules than any real one."""
    pod = _pod()
    terms = [{"matchExpressions": [{"key": f"{MARK}-{i}", "operator": "Exists"}]} for i in range(2000)]
    far = [{"topologyKey": f"{MARK}-{i}", "labelSelector": {"matchLabels": {f"k-{i}": MARK}}} for i in range(500)]
    pod["spec"]["affinity"] = {
        "nodeAffinity": {REQUIRED: {"nodeSelectorTerms": terms}},
        "podAntiAffinity": {REQUIRED: far},
    }
    pod["spec"]["containers"][0]["ports"] = [{"containerPort": 1, "hostPort": i + 1} for i in range(500)]
    return "/v1/scores", _body({"pod": pod})


def sent() -> Request:
    """Return a cluster that the service does not watch."""
    nodes = [node_object(i) for i in range(SENT_NODES)]
    pods = [pod_object(i, nodes[i % SENT_NODES]["metadata"]["name"]) for i in range(2 * SENT_NODES)]
    pods[0]["metadata"]["labels"] = {MARK: MARK}
    return "/v1/scores", _body({"pod": _pod(), "cluster": {"nodes": nodes, "pods": pods}})


def explained() -> Request:
    """Return a request for an explanation."""
    pod = _pod()
    pod["metadata"]["labels"] = {MARK: MARK}
    pod["spec"]["nodeSelector"] = {MARK: "x"}
    return "/v1/explain", _body({"pod": pod})


def listed() -> Request:
    """Return a list of nodes, different ones each time."""
    return "/v1/scores", _body({"pod": _pod(), "nodes": [f"{MARK}-{i}" for i in range(1000)]})


def nonsense() -> Request:
    """Return a malformed request."""
    return f"/v1/{MARK}", b'{"pod": ' + b"[" * 50_000 + MARK.encode()


KINDS: tuple[Callable[[], Request], ...] = (selecting, unlike, huge, odd, sent, explained, listed, nonsense)


def _pod() -> dict[str, Any]:
    pod = pod_object(0)
    pod["metadata"] |= {"name": MARK, "uid": MARK}
    pod["spec"]["containers"][0]["resources"]["requests"] = {"cpu": "1", "memory": "1Gi", f"example.com/{MARK}": "1"}
    return pod


def _body(question: Any) -> bytes:
    return json.dumps(question, separators=(",", ":")).encode()


async def attack(port: int, rate: float, seconds: float, first: int) -> Counter[str]:
    """Ask; how many answers had which status, and how many were neutral for which reason."""
    requests, result = [kind() for kind in KINDS], Counter[str]()
    loop, draw = asyncio.get_running_loop(), random.Random(first)
    began = loop.time()

    async def ask(session: aiohttp.ClientSession, number: int) -> None:
        path, body = requests[number % len(requests)]
        fresh = f"f-{number:07}-{draw.getrandbits(16):04x}"
        body = body.replace(MARK.encode(), fresh.encode())
        try:
            async with session.post(f"http://127.0.0.1:{port}{path.replace(MARK, fresh)}", data=body) as answer:
                text = await answer.read()
                reason = json.loads(text).get("neutral", "") if answer.status == 200 else ""
                result[f"{KINDS[number % len(KINDS)].__name__} {answer.status} {reason}".strip()] += 1
        except (aiohttp.ClientError, TimeoutError) as error:
            result[f"{KINDS[number % len(KINDS)].__name__} {type(error).__name__}"] += 1

    connector = aiohttp.TCPConnector(limit=16)
    async with aiohttp.ClientSession(connector=connector) as session, asyncio.TaskGroup() as group:
        for i in range(int(rate * seconds)):
            await asyncio.sleep(max(began + i / rate - loop.time(), 0.0))
            group.create_task(ask(session, first + i))
    return result


if __name__ == "__main__":
    port, rate, seconds, first = (float(each) for each in sys.argv[1:])
    json.dump(asyncio.run(attack(int(port), rate, seconds, int(first))), sys.stdout)
