"""How far a workload's run is, kept in the cluster itself: a ConfigMap, so that any machine can go on with it."""

from __future__ import annotations

import secrets
from typing import Any, Literal

import msgspec

from steersman.errors import SteersmanError
from steersman.kube.client import ApiError, Client
from steersman.live.objects import CONFIG_MAPS, run_labels
from steersman.live.running import insist

NAME = "steersman-workload"
KEY = "state.json"
NO_NAMESPACE = "there is no namespace {!r}; create it, or name another one with --namespace"
Kind = Literal["run", "replay"]


class RemovedError(SteersmanError):
    """The run that is under way was removed by somebody: `--clean`."""


class RunState(msgspec.Struct, forbid_unknown_fields=True):
    """A run that is under way or was stopped.

    Attributes:
        kind: which command it is of.
        id: the value of the label of whatever it makes.
        digest: of all that it is to do.
        options: what it was told.
        total: how many steps it has.
        done: how many of them are done.
    """

    kind: Kind
    id: str
    digest: str
    options: dict[str, Any]
    total: int
    done: int = 0


def new_id() -> str:
    """An id for a run, which no other run has."""
    return secrets.token_hex(4)


class StateStore:
    """The state of the one run of a namespace.

    Args:
        client: of the cluster.
        namespace: where the run is.
    """

    def __init__(self, client: Client, namespace: str) -> None:
        self.client, self.namespace = client, namespace
        self._path = CONFIG_MAPS.format(namespace)
        self._version = ""

    async def load(self) -> RunState | None:
        """The state; None if no run is under way or was stopped.

        Raises:
            SteersmanError: it makes no sense, or the API fails.
        """
        try:
            found = await self.client.get(f"{self._path}/{NAME}")
        except ApiError as error:
            if error.status == 404:
                return None
            raise
        try:
            state = msgspec.json.decode(found["data"][KEY], type=RunState)
        except (KeyError, TypeError, msgspec.MsgspecError):
            raise SteersmanError(
                f"ConfigMap {self.namespace}/{NAME} is not what this version of steersman writes; --clean removes it"
            ) from None
        self._version = found["metadata"]["resourceVersion"]
        return state

    async def begin(self, state: RunState) -> None:
        """Write the state of a new run. Raises SteersmanError: there is a run in this namespace, or no such one."""
        try:
            self._version = _version(await self.client.create(self._path, self._object(state)))
        except ApiError as error:
            if error.status == 404:
                raise SteersmanError(NO_NAMESPACE.format(self.namespace)) from None
            if error.status != 409:
                raise
            there = await self.load()
            far = f"{there.done} of {there.total} steps" if there else "it has just ended"
            what = f"a workload {there.kind}" if there else "a run"
            raise SteersmanError(
                f"{what} is under way or was stopped in namespace {self.namespace!r} ({far}): --resume goes on with "
                "it, --clean removes what it made"
            ) from None

    async def save(self, state: RunState) -> None:
        """Write how far the run is.

        Raises:
            RemovedError: somebody has removed the run.
            SteersmanError: somebody else goes on with it.
        """
        try:
            self._version = _version(await insist(lambda: self._replace(state)))
        except ApiError as error:
            if error.status not in (404, 409):
                raise
            if error.status == 404:
                raise RemovedError(f"somebody else has removed this run (namespace {self.namespace!r})") from None
            raise SteersmanError(f"somebody else goes on with this run (namespace {self.namespace!r})") from None

    async def end(self) -> None:
        """Forget the run."""
        try:
            await insist(lambda: self.client.delete(f"{self._path}/{NAME}"))
        except ApiError as error:
            if error.status != 404:
                raise

    async def _replace(self, state: RunState) -> Any:
        made = self._object(state)
        made["metadata"]["resourceVersion"] = self._version
        try:
            return await self.client.replace(f"{self._path}/{NAME}", made)
        except ApiError as error:
            if error.status != 409:
                raise
            # Our own last try may have come through although we were not told.
            found = await self.client.get(f"{self._path}/{NAME}")
            if found.get("data") != made["data"]:
                raise
            return found

    def _object(self, state: RunState) -> dict[str, Any]:
        return {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": NAME, "labels": run_labels(state.id)},
            "data": {KEY: msgspec.json.encode(state).decode()},
        }


def _version(found: Any) -> str:
    return str(found["metadata"]["resourceVersion"])
