"""State of a workload's run in a ConfigMap of the cluster, so that any machine can resume it."""

from __future__ import annotations

import secrets
from typing import Any, Literal

import msgspec

from steersman.apps.load.objects import CONFIG_MAPS, run_labels
from steersman.apps.runtime.tasks import retry_transient
from steersman.core.errors import SteersmanError
from steersman.kubernetes.client import MISSING, ApiError, Client

NAME = "steersman-workload"
KEY = "state.json"
NO_NAMESPACE = "there is no namespace {!r}; create it, or name another one with --namespace"
Kind = Literal["run", "replay"]


class RemovedError(SteersmanError):
    """The active run was removed with `--clean`."""


class RunState(msgspec.Struct, forbid_unknown_fields=True):
    """State of an active or stopped run.

    Attributes:
        kind: command that it is of.
        id: value of the label of everything that it creates.
        digest: digest of all its steps.
        options: its options.
        total: number of its steps.
        done: number of finished steps.
    """

    kind: Kind
    id: str
    digest: str
    options: dict[str, Any]
    total: int
    done: int = 0


def new_id() -> str:
    """Return a new id for a run."""
    return secrets.token_hex(4)


class StateStore:
    """State of the one run of a namespace.

    Args:
        client: connection to the cluster.
        namespace: namespace of the run.
    """

    def __init__(self, client: Client, namespace: str) -> None:
        self.client, self.namespace = client, namespace
        self._path = CONFIG_MAPS.format(namespace)
        self._version = ""

    async def load(self) -> RunState | None:
        """Return the state; None if no run is active or stopped.

        Raises:
            SteersmanError: the ConfigMap makes no sense, or the API fails.
        """
        try:
            value = await self.client.get(f"{self._path}/{NAME}")
        except ApiError as error:
            if error.status == MISSING:
                return None
            raise
        try:
            state = msgspec.json.decode(value["data"][KEY], type=RunState)
        except (KeyError, TypeError, msgspec.MsgspecError):
            raise SteersmanError(
                f"ConfigMap {self.namespace}/{NAME} is not what this version of steersman writes; --clean removes it"
            ) from None
        self._version = value["metadata"]["resourceVersion"]
        return state

    async def begin(self, state: RunState) -> None:
        """Create the state of a new run. Raises SteersmanError: the namespace has a run, or does not exist."""
        try:
            self._version = _version(await self.client.create(self._path, self._object(state)))
        except ApiError as error:
            if error.status == MISSING:
                raise SteersmanError(NO_NAMESPACE.format(self.namespace)) from None
            if error.status != 409:
                raise
            running = await self.load()
            far = f"{running.done} of {running.total} steps" if running else "it has just ended"
            what = f"a workload {running.kind}" if running else "a run"
            raise SteersmanError(
                f"{what} is under way or was stopped in namespace {self.namespace!r} ({far}): --resume continues "
                f"it, --clean removes what it made"
            ) from None

    async def save(self, state: RunState) -> None:
        """Save the state.

        Raises:
            RemovedError: the run was removed.
            SteersmanError: another process resumed it.
        """
        try:
            self._version = _version(await retry_transient(lambda: self._replace(state)))
        except ApiError as error:
            # The version in the request refuses a state that another process wrote.
            if error.status not in (404, 409):
                raise
            if error.status == MISSING:
                raise RemovedError(f"this run was removed meanwhile (namespace {self.namespace!r})") from None
            raise SteersmanError(f"another process continues this run (namespace {self.namespace!r})") from None

    async def end(self) -> None:
        """Delete the state."""
        try:
            await retry_transient(lambda: self.client.delete(f"{self._path}/{NAME}"))
        except ApiError as error:
            if error.status != 404:
                raise

    async def _replace(self, state: RunState) -> Any:
        manifest = self._object(state)
        manifest["metadata"]["resourceVersion"] = self._version
        try:
            return await self.client.replace(f"{self._path}/{NAME}", manifest)
        except ApiError as error:
            if error.status != 409:
                raise
            # Our last request may have succeeded without an answer.
            value = await self.client.get(f"{self._path}/{NAME}")
            if value.get("data") != manifest["data"]:
                raise
            return value

    def _object(self, state: RunState) -> dict[str, Any]:
        return {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": NAME, "labels": run_labels(state.id)},
            "data": {KEY: msgspec.json.encode(state).decode()},
        }


def _version(result: Any) -> str:
    return str(result["metadata"]["resourceVersion"])
