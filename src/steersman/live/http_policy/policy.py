"""The policy of a URL: `POST {pod, nodes}` with the feasible nodes, answered with their scores."""

from __future__ import annotations

import asyncio
import math
import threading
import weakref
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from typing import cast

import aiohttp
import msgspec
import numpy as np
import numpy.typing as npt

from steersman.cluster.model import Node, Pod
from steersman.cluster.objects.free_resources import FREE_KEY, free_annotation
from steersman.cluster.objects.manifests import node_to_object, pod_to_object
from steersman.cluster.pod_query import PodQuery
from steersman.cluster.state import ClusterState
from steersman.core.errors import InputError, SteersmanError
from steersman.core.event_loop import Backoff
from steersman.core.http_failures import LONGEST_TEXT, one_line, reason_of
from steersman.core.redaction import redact_url
from steersman.live.http_policy.access import ServerAccess
from steersman.orders.order import AGE, Order
from steersman.policies.base import Candidates, Need, Policy, Scorer, ScoringContext
from steersman.version import __version__

SIMULATION_SECONDS = 10.0  # time limit of a request, with its retries, in simulations, where no pod waits
LIVE_SECONDS = 1.0  # the same in a live cluster
RETRIES, RETRY_SECONDS = 2, 0.15  # retries after a failure or an answer that says "try again"; the first wait
BUSY = (429, 502, 503, 504)  # HTTP statuses of servers that may answer soon
HIGHEST = 100
MAX_ANSWER_BYTES = 64 << 20
_CHUNK = 1 << 16


class ScoreServerError(SteersmanError):
    """A server did not answer a request for scores as it must."""


class ScoreAnswer(msgspec.Struct):
    """Answer of a server: the score of each node by name, 0 to 100, the highest is the best."""

    scores: dict[str, float]


_decoder = msgspec.json.Decoder(ScoreAnswer)


async def _retry(request: aiohttp.ClientRequest, handler: aiohttp.ClientHandlerType) -> aiohttp.ClientResponse:
    """Send a request again where nothing answered, or a server is busy; asking for scores changes nothing."""
    backoff = Backoff(RETRY_SECONDS, 1.0)
    for _ in range(RETRIES):
        try:
            response = await handler(request)
        except (aiohttp.ClientOSError, aiohttp.ServerDisconnectedError):
            pass
        else:
            if response.status not in BUSY:
                return response
            response.close()
        await backoff.wait()
    return await handler(request)


class ScoreClient:
    """Client of a score server, over connections that stay open, in one event loop; `seconds` limit retries, too."""

    def __init__(self, url: str, seconds: float) -> None:
        self.url, self.seconds, self._access = url, seconds, ServerAccess()
        self._session: aiohttp.ClientSession | None = None

    async def scores(self, body: bytes, names: Sequence[str]) -> npt.NDArray[np.float64]:
        """Return the scores of nodes, [K] from 0 to 100."""
        try:
            async with asyncio.timeout(self.seconds):
                answer = await self._post(body)
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            reason = reason_of(error, seconds=self.seconds, authority="--policy-ca")
            raise ScoreServerError(f"{self.url}: {reason}") from None
        return self._checked(answer, names)

    async def close(self) -> None:
        """Close the connections; the next request opens new ones."""
        if self._session is not None:
            session, self._session = self._session, None
            await session.close()

    async def _post(self, body: bytes) -> bytes:
        if self._session is None:
            self._session = aiohttp.ClientSession(
                headers={"User-Agent": f"steersman/{__version__}", "Content-Type": "application/json"},
                timeout=aiohttp.ClientTimeout(),  # the time limit is that of `scores`
                middlewares=(_retry,),
                connector=aiohttp.TCPConnector(ssl=self._access.tls),
            )
        try:
            headers = self._access.headers()
        except InputError as error:
            raise ScoreServerError(f"{self.url}: {error}") from None
        # A redirect would hand the headers, and so the token, to another address.
        async with self._session.post(self.url, data=body, headers=headers, allow_redirects=False) as response:
            answer = bytearray()
            async for chunk in response.content.iter_chunked(_CHUNK):
                answer += chunk
                if len(answer) > MAX_ANSWER_BYTES:
                    raise ScoreServerError(f"{self.url}: the answer has more than {MAX_ANSWER_BYTES} bytes")
        if response.status != 200:
            raise ScoreServerError(f"{self.url}: HTTP {response.status}{_first_line(answer)}")
        return bytes(answer)

    def _checked(self, answer: bytes, names: Sequence[str]) -> npt.NDArray[np.float64]:
        try:
            scores = _decoder.decode(answer).scores
        except (msgspec.DecodeError, UnicodeError) as error:
            hint = "; JSON has neither NaN nor Infinity" if b"NaN" in answer or b"Infinity" in answer else ""
            problem = f'is not {{"scores": {{"node": 0 to {HIGHEST}}}}}: {error}{hint}'
            raise ScoreServerError(f"{self.url}: the answer {problem}") from None
        missing = [name for name in names if name not in scores]
        if missing:
            problem = f"scores {len(names) - len(missing)} of {len(names)} nodes; {missing[0]} has none"
            raise ScoreServerError(f"{self.url}: the answer {problem}")
        for name in names:
            if not (math.isfinite(scores[name]) and 0 <= scores[name] <= HIGHEST):
                problem = f"the score of {name} is {scores[name]:g}; expected a number from 0 to {HIGHEST}"
                raise ScoreServerError(f"{self.url}: {problem}")
        return np.array([scores[name] for name in names], dtype=np.float64)


def _first_line(body: bytes | bytearray) -> str:
    line = one_line(body[:LONGEST_TEXT].decode(errors="replace"))
    return f": {line}" if line else ""


class BlockingScoreClient:
    """Client for callers without an event loop; one runs in a thread as long as this object exists."""

    def __init__(self, url: str, seconds: float) -> None:
        self._loop = asyncio.new_event_loop()
        self._client = ScoreClient(url, seconds)
        thread = threading.Thread(target=self._loop.run_forever, daemon=True, name="score client")
        thread.start()
        self.close = weakref.finalize(self, _end, self._loop, self._client, thread)

    def scores(self, body: bytes, names: Sequence[str]) -> npt.NDArray[np.float64]:
        """Return the scores of nodes. Arguments and errors are those of `ScoreClient.scores`."""
        return asyncio.run_coroutine_threadsafe(self._client.scores(body, names), self._loop).result()


def _end(loop: asyncio.AbstractEventLoop, client: ScoreClient, thread: threading.Thread) -> None:
    asyncio.run_coroutine_threadsafe(client.close(), loop).result()
    loop.call_soon_threadsafe(loop.stop)
    thread.join()
    loop.close()


@cache
def blocking_client(url: str) -> BlockingScoreClient:
    """Return the client of a URL for simulations, one for each process, so that runs share its connections."""
    return BlockingScoreClient(url, SIMULATION_SECONDS)


class RequestEncoder:
    """Encoder of requests about one cluster; a node is encoded again after it changed."""

    def __init__(self, state: ClusterState) -> None:
        self._state = state
        self._nodes: list[Node | None] = []
        self._encoded: list[bytes] = []
        self._seen: tuple[npt.NDArray[np.int64], ...] = ()

    def encode(self, pod: Pod, slots: Iterable[int]) -> bytes:
        """Return the body of a request: `{"pod": <v1.Pod>, "nodes": [<v1.Node>...]}`, nodes in the order of `slots`."""
        self._follow()
        # A pod of a snapshot may name devices of the node that it ran on.
        body = msgspec.json.encode(pod_to_object(replace(pod, gpu_devices=())))
        nodes = b",".join([self._encoded[slot] for slot in slots])
        return b'{"pod":' + body + b',"nodes":[' + nodes + b"]}"

    def _follow(self) -> None:
        state, arrays = self._state, self._state.arrays
        now = (arrays.allocatable, arrays.free, arrays.nonzero, arrays.gpu_free, arrays.gpu_kinds)
        if len(self._encoded) != len(state.nodes) or [a.shape for a in now] != [a.shape for a in self._seen]:
            self._nodes, self._encoded = [None] * len(state.nodes), [b""] * len(state.nodes)
            changed = np.ones(len(state.nodes), dtype=np.bool_)
        else:
            changed = np.zeros(len(state.nodes), dtype=np.bool_)
            for array, seen in zip(now, self._seen, strict=True):
                changed |= (array != seen).any(axis=1)
        for slot, node in enumerate(state.nodes):
            if node is not None and (changed[slot] or node is not self._nodes[slot]):
                self._nodes[slot], self._encoded[slot] = node, self._node(node, slot)
        # Copies, since kernels change the arrays in place.
        self._seen = tuple(array.copy() for array in now)

    def _node(self, node: Node, slot: int) -> bytes:
        manifest = node_to_object(node)
        manifest["metadata"]["annotations"] = {FREE_KEY: free_annotation(self._state, slot)}
        return msgspec.json.encode(manifest)


@dataclass(frozen=True, slots=True)
class HttpPolicy(Policy):
    """Policy whose scores an HTTP server computes."""

    url: str = field(repr=False)  # the server's URL, which may have a secret in its query
    order: Order = AGE

    @property
    def name(self) -> str:  # type: ignore[override]
        """The URL without secrets, which is the name in results, logs, metrics and leases, and the order if any."""
        return redact_url(self.url) + ("" if self.order == AGE else f"+{self.order.name}")

    @property
    def needs(self) -> frozenset[Need]:
        return frozenset({Need.SERVER})

    def scorer(self, context: ScoringContext) -> Scorer:
        """Return a scorer that waits for the server, see `Policy`; a live scheduler has `live.HttpDecider`."""
        return HttpScorer(blocking_client(self.url), context.state)


def server_url(policy: Policy) -> str:
    """Return the URL of the server that scores for a policy; "" if scores are computed in this process."""
    return cast(HttpPolicy, policy).url if Need.SERVER in policy.needs else ""


class HttpScorer(Scorer):
    """Scorer that asks a server about every pod."""

    def __init__(self, client: BlockingScoreClient, state: ClusterState) -> None:
        self._client, self._state = client, state
        self._encoder = RequestEncoder(state)

    def scores(self, query: PodQuery, nodes: Candidates) -> npt.NDArray[np.float64]:
        slots = np.flatnonzero(nodes.feasible).tolist()
        pod = query.pod or Pod("pod", self._state.classes[query.class_id])
        result = np.full(len(nodes.feasible), -np.inf)
        result[slots] = self._client.scores(self._encoder.encode(pod, slots), node_names(self._state, slots))
        return result


def node_names(state: ClusterState, slots: list[int]) -> list[str]:
    """Return the names of the nodes in slots."""
    return [node.name for slot in slots if (node := state.nodes[slot]) is not None]
