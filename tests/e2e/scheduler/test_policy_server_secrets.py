"""A policy's server is asked by HTTPS with secrets of every kind, and nothing that anybody can read has one of them."""

import base64
import json
import ssl
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

import pytest
import trustme
from aiohttp import web
from tests.e2e.conftest import LocalCluster, until
from tests.e2e.scheduler.test_schedule import Running, bound, create, events, pod, scheduling
from tests.support.servers.score_servers import answering, names_of

pytestmark = pytest.mark.e2e

PASSWORD, TOKEN, KEY, BEARER = "pass/word s3cr3t", "to+ken&s3cr3t", "key-s3cr3t", "bearer-s3cr3t"


def spellings() -> Iterator[str]:
    """Every secret as it is, as in a URL, and as in a header."""
    for secret in (PASSWORD, TOKEN, KEY, BEARER):
        quoted = quote(secret, safe="")
        yield from (secret, quoted, quoted.lower(), secret.replace(" ", "+"), json.dumps(secret)[1:-1])
        yield base64.b64encode(secret.encode()).decode().rstrip("=")


def public(cluster: LocalCluster, running: Running) -> dict[str, str]:
    """Return what others can read of a scheduler, by where it is."""
    kinds = ("leases", "events", "pods", "configmaps", "nodes")
    found = {kind: cluster.kubectl("get", kind, "--all-namespaces", "-o", "json") for kind in kinds}
    found |= {path: running.get(path) for path in ("metrics", "readyz", "livez")}
    return found | {"log": running.text()}


def test_no_secret_of_a_policy_server_can_be_read(cluster: LocalCluster, tmp_path: Path) -> None:
    authority, asked = trustme.CA(), list[tuple[str, str, str]]()
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    authority.issue_cert("127.0.0.1").configure_cert(context)
    (tmp_path / "ca.pem").write_bytes(authority.cert_pem.bytes())
    (tmp_path / "header").write_text(f"X-Api-Key: {KEY}\nAuthorization: Bearer {BEARER}\n")
    answers = iter(["scores", "an echo", "nonsense"])

    async def answer(request: web.Request) -> web.Response:
        headers = request.headers
        asked.append((headers["Authorization"], request.query["token"], headers["X-Api-Key"]))
        match next(answers, "scores"):
            case "an echo":  # as servers do that help with debugging
                return web.Response(status=401, text=f"X-Api-Key: {KEY} is unknown at {request.url}")
            case "nonsense":
                return web.Response(text=f"no JSON for {request.url}")
        return web.json_response({"scores": dict.fromkeys(await names_of(request), 1)})

    with answering(answer, context) as url:
        secret = f"{url}?token={quote(TOKEN, safe='')}"
        options = ("--policy-ca", str(tmp_path / "ca.pem"), "--policy-header-file", str(tmp_path / "header"))
        logs = tmp_path / "logs"
        logs.mkdir()
        with scheduling(cluster, logs, "--policy", secret, *options) as running:
            for i in range(4):
                create(cluster, pod(f"asked-{i}"))
                until(lambda i=i: f"asked-{i}" in bound(cluster))  # type: ignore[misc]
            create(cluster, pod("waits", cpu="9999"))
            until(lambda: "waits" in events(cluster, "FailedScheduling"))
            assert set(asked) == {(f"Bearer {BEARER}", TOKEN, KEY)}
            found = public(cluster, running)
    for where in ("metrics", "log", "leases"):
        assert f"{url}?token=***" in found[where], where
    for where, text in found.items():
        for spelling in spellings():
            assert spelling not in text, where


def test_a_password_in_the_address_is_rejected_and_not_shown(cluster: LocalCluster) -> None:
    address = f"https://user:{quote(PASSWORD, safe='')}@127.0.0.1:1/score"
    done = cluster.steersman("schedule", "--name", cluster.name, "--policy", address)
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1)
    assert "it has a user" in done.stderr
    assert not [spelling for spelling in spellings() if spelling in done.stderr]


def test_a_server_of_an_unknown_authority_is_named_and_a_rule_decides(cluster: LocalCluster, tmp_path: Path) -> None:
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    trustme.CA().issue_cert("127.0.0.1").configure_cert(context)

    async def answer(request: web.Request) -> web.Response:
        raise AssertionError(request)

    with answering(answer, context) as url, scheduling(cluster, tmp_path, "--policy", url) as running:
        create(cluster, pod("asked"))
        until(lambda: "asked" in bound(cluster))
        assert "the server's certificate is not valid" in running.get("readyz") + running.text()
