"""Decisions of a score server in a live cluster, which does not block the event loop; where it fails a rule decides."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import structlog
from prometheus_client import Histogram
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from steersman.cluster.pod_query import PodQuery
from steersman.cluster.state import ClusterState
from steersman.core.redaction import redact_url
from steersman.live.http_policy.policy import LIVE_SECONDS, RequestEncoder, ScoreClient, ScoreServerError, node_names
from steersman.policies.base import Candidates, Policy, Scorer, ScoringContext
from steersman.policies.decision.decider import Decider, NodeChoice
from steersman.policies.decision.live_core import ClusterView
from steersman.prometheus.families import counter_family

PAUSE_SECONDS = 5.0  # time after a failure in which the rule decides, so that a dead server delays few pods
WARNING_SECONDS = 60.0  # least time between two warnings about failures

log = structlog.get_logger("policy")


@dataclass(slots=True)
class Answer:
    """The server's scores for the pod that is decided next, by node; None: the rule decides."""

    scores: Mapping[str, float] | None = None


class LiveScoreClient:
    """Client of a score server whose failures are counted, logged at intervals, and followed by a pause."""

    def __init__(self, url: str, rule: str) -> None:
        self.url, self._rule = url, rule
        # `answer`: scores for the next decision
        # `problem`: the last failure; "" after a success
        self.answer, self.problem = Answer(), ""
        # Number of decisions: `scored` by the server, `failed` requests, and `skipped` in a pause
        self.decisions = {"scored": 0, "failed": 0, "skipped": 0}
        self._client = ScoreClient(url, LIVE_SECONDS)
        self._asks_again_at = self._warns_again_at = -np.inf
        self.seconds = Histogram(
            "steersman_policy_server_duration_seconds", "A request to the policy's server.", registry=None
        )

    async def ask(self, body: Callable[[], bytes], names: list[str]) -> None:
        """Ask for the scores of nodes and keep them as `answer`, without scores if there is no right answer in time."""
        # First: an old answer must never decide about another pod.
        self.answer.scores = None
        began = time.monotonic()
        if began < self._asks_again_at:
            self.decisions["skipped"] += 1
            return
        try:
            scores = await self._client.scores(body(), names)
        except ScoreServerError as error:
            self._failed(str(error))
            return
        finally:
            self.seconds.observe(time.monotonic() - began)
        self.decisions["scored"] += 1
        if self.problem:
            log.info("the policy's server answers again", server=redact_url(self.url))
            self.problem = ""
        self.answer.scores = dict(zip(names, scores.tolist(), strict=True))

    async def close(self) -> None:
        await self._client.close()

    def _failed(self, problem: str) -> None:
        now = time.monotonic()
        self.decisions["failed"] += 1
        self.problem, self._asks_again_at = problem, now + PAUSE_SECONDS
        if now >= self._warns_again_at:
            self._warns_again_at = now + WARNING_SECONDS
            log.warning(
                "the policy's server failed; a rule decides",
                rule=self._rule,
                pause=PAUSE_SECONDS,
                failed=self.decisions["failed"],
                error=problem,
            )


class ScoreClientMetrics(Collector):
    """Collector of the metrics of requests to a score server."""

    def __init__(self, client: LiveScoreClient) -> None:
        self._client = client

    def collect(self) -> Iterator[Metric]:
        yield counter_family(
            "steersman_policy_server_decisions",
            "Decisions by what the policy's server did: scored, where a rule decided all the same if no node that it "
            "scored was feasible any more; failed, or skipped after a failure, where a rule decided.",
            "result",
            self._client.decisions,
        )
        yield from self._client.seconds.collect()


@dataclass(frozen=True, eq=False, slots=True)
class LastAnswerPolicy(Policy):
    """Policy whose scores are those of the server's last answer."""

    name: str
    answer: Answer = field(default_factory=Answer)

    def scorer(self, context: ScoringContext) -> Scorer:
        return _LastAnswerScorer(self.answer, context.state)


class _LastAnswerScorer(Scorer):
    def __init__(self, answer: Answer, state: ClusterState) -> None:
        self._answer, self._state = answer, state

    def scores(self, query: PodQuery, nodes: Candidates) -> npt.NDArray[np.float64]:
        """See `Scorer`; nodes that only became feasible after the request have no score."""
        slots = np.flatnonzero(nodes.feasible).tolist()
        known = self._answer.scores or {}
        result = np.full(len(nodes.feasible), -np.inf)
        result[slots] = [known.get(name, -np.inf) for name in node_names(self._state, slots)]
        if not np.isfinite(result).any():
            raise ScoreServerError("no node that the server scored is feasible any more")
        return result


class HttpDecider(Decider):
    """Decider of a policy behind HTTP: `ask` before `choose`; the rule chooses where there is no answer."""

    def __init__(self, view: ClusterView, client: LiveScoreClient, rule: Policy) -> None:
        self._client, self._rule = client, Decider(view, rule)
        self._encoder = RequestEncoder(view.state)
        super().__init__(view, LastAnswerPolicy(redact_url(client.url), client.answer))

    @property
    def asks_first(self) -> bool:
        return True

    @property
    def answers_once(self) -> bool:
        return True

    async def ask(self, query: PodQuery) -> None:
        self._client.answer.scores = None
        slots, pod = np.flatnonzero(self.state.mask(query.class_id, query.labels_id)).tolist(), query.pod
        if slots:
            assert pod is not None
            await self._client.ask(lambda: self._encoder.encode(pod, slots), node_names(self.state, slots))

    def changed(self, slot: int) -> None:
        super().changed(slot)
        self._rule.changed(slot)

    def choose(self, query: PodQuery) -> NodeChoice | None:
        """See `Decider`; an answer counts once."""
        answer = self._client.answer
        if answer.scores is not None:
            try:
                return super().choose(query)
            except ScoreServerError:
                pass
            finally:
                answer.scores = None
        return self._rule.choose(query)
