"""Client of score servers: one POST for a pod, with a time limit, few retries and a checked answer."""

from __future__ import annotations

import asyncio
import math
import threading
import weakref
from collections.abc import Sequence
from functools import cache

import aiohttp
import msgspec
import numpy as np
import numpy.typing as npt

from steersman.apps.http_policy.access import ServerAccess
from steersman.core.errors import InputError, SteersmanError
from steersman.core.event_loop import Backoff
from steersman.core.http_failures import LONGEST_TEXT, one_line, reason_of
from steersman.version import __version__

SIMULATION_SECONDS = 10.0
"""Time limit of a request, with its retries, in simulations, where no pod waits."""
LIVE_SECONDS = 1.0
"""The same in a live cluster."""
RETRIES, RETRY_SECONDS = 2, 0.15
"""Retries after a connection that failed or an answer that says "try again", and the wait before the first."""
BUSY = (429, 502, 503, 504)
"""HTTP statuses of servers that may answer soon."""
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
    """Client of a score server, over connections that stay open; used in one event loop.

    Args:
        url: where requests are posted to.
        seconds: time limit of a request, with its retries.

    Raises:
        InputError: a file of `access.ServerAccess` cannot be used.
    """

    def __init__(self, url: str, seconds: float) -> None:
        self.url, self.seconds, self._access = url, seconds, ServerAccess()
        self._session: aiohttp.ClientSession | None = None

    async def scores(self, body: bytes, names: Sequence[str]) -> npt.NDArray[np.float64]:
        """Return the scores of nodes, [K] from 0 to 100.

        Args:
            body: the request, see `request_encoder.RequestEncoder`.
            names: names of its K nodes.

        Raises:
            ScoreServerError: there is no answer in time, or it is none for these nodes.
        """
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
    """Client for callers without an event loop; one runs in a thread as long as this object exists.

    Args:
        url, seconds: see `ScoreClient`.
    """

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
