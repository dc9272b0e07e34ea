"""Take over from a leader that may be frozen, so that no binding of its can succeed any more.

A process can be stopped between its last look at the lease and its next write: no clock of its own protects the cluster
from that binding, however late it comes. But a binding carries the version of its pod, as read before that look. So who
takes over a lease that was not released changes each pod that waits. The server then refuses every binding that was
decided before, and the answers to these changes tell what the last leader has bound by now.
"""

from __future__ import annotations

import asyncio
from functools import partial

import msgspec
import structlog

from steersman.core.errors import SteersmanError
from steersman.kubernetes.cache.cached_pod import CachedPod
from steersman.kubernetes.cache.cluster_cache import ClusterCache
from steersman.kubernetes.client import MISSING, STRATEGIC_PATCH, ApiError, Client
from steersman.live.runtime.tasks import run_concurrently

LEADER_KEY = "steersman.dev/leader"  # annotation of pods that waited at a takeover: the leader's identity in the lease
FORBIDDEN, INVALID = 403, 422
RETRY_SECONDS = 0.5

log = structlog.get_logger("takeover")


async def fence(client: Client, cache: ClusterCache, scheduler_name: str, leader: str, concurrency: int) -> None:
    """Invalidate all bindings of pods of a scheduler that were decided so far; return when none can succeed any more.

    Without the right to patch pods' status this is left out, and a warning says so.

    Args:
        cache: up to date as of after the lease was acquired; learns what the last leader has bound.
        leader: our identity in the lease.
        concurrency: maximum number of concurrent requests.
    """
    waiting = [pod for pod in cache.pods.values() if pod.pod.scheduler_name == scheduler_name and not pod.node]
    began = asyncio.get_running_loop().time()
    try:
        await run_concurrently((partial(_change, client, cache, pod, leader) for pod in waiting), concurrency)
    except ApiError as error:
        log.warning("late bindings of the last leader are not prevented", error=str(error))
        return
    seconds = asyncio.get_running_loop().time() - began
    log.info("late bindings of the last leader are invalid", pods=len(waiting), seconds=round(seconds, 3))


async def _change(client: Client, cache: ClusterCache, pod: CachedPod, leader: str) -> None:
    """Change a pod, and pass it on to the cache; repeat until the server has answered. Raises ApiError: forbidden."""
    # The subresource, since kube-scheduler's role may patch pods/status but not pods. It takes annotations, too.
    path = f"/api/v1/namespaces/{pod.pod.namespace}/pods/{pod.pod.name}/status"
    body = msgspec.json.encode({"metadata": {"uid": pod.uid, "annotations": {LEADER_KEY: leader}}})
    while True:
        try:
            answer = await client.request("PATCH", path, body=body, content_type=STRATEGIC_PATCH)
        except ApiError as error:
            if error.status == FORBIDDEN:
                raise
            if error.status in (MISSING, INVALID):  # it was deleted, or has another uid
                return
            log.warning("pod not changed", pod=pod.key, error=str(error))
        except SteersmanError as error:
            log.warning("pod not changed", pod=pod.key, error=str(error))
        else:
            # The watch may have removed the pod, or replaced it by a new one of that name, during the request.
            if cache.pods.get(pod.key) is pod:
                cache.upsert_pod(msgspec.Raw(answer))
            return
        await asyncio.sleep(RETRY_SECONDS)
