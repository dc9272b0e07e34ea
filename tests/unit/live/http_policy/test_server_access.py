"""How score servers are asked: headers and an authority from files; no secret gets into names, logs or results."""

from __future__ import annotations

import gzip
import os
import ssl
from pathlib import Path
from typing import Any

import pytest
import trustme
from aiohttp import web
from tests.support.errors import error_of, raises
from tests.support.servers.score_servers import answering, names_of

from steersman.cli.main import main
from steersman.core.errors import InputError, UsageError
from steersman.evaluation.experiment import Experiment
from steersman.live.http_policy import policy as client
from steersman.live.http_policy.access import CA_FILE, HEADER_FILE, ServerAccess, read_authority, read_headers
from steersman.live.http_policy.policy import blocking_client, server_url
from steersman.live.http_policy.scheme import register_http_policies
from steersman.policies.registry import resolve
from steersman.workloads.formats.openb import embedded

register_http_policies()

SECRET = "s3cr3t-of-tests"


@pytest.fixture(autouse=True)
def clean_environment(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setattr(client, "SIMULATION_SECONDS", 2.0)
    for name in (HEADER_FILE, CA_FILE):
        monkeypatch.setenv(name, "")
    yield
    blocking_client.cache_clear()


def arguments(tmp_path: Path, *more: str) -> list[str]:
    """Options of commands that place three pods on two nodes."""
    nodes, pods = tmp_path / "nodes.csv", tmp_path / "pods.csv"
    nodes.write_text("sn,cpu_milli,memory_mib,gpu,model\na,8000,8192,2,T4\nb,8000,8192,2,T4\n")
    pods.write_text(
        "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,qos,pod_phase,creation_time,deletion_time,scheduled_time\n"
        + "".join(f"p{i},1000,1024,1,500,,LS,Running,{i},,{i}\n" for i in range(3))
    )
    return ["--nodes", str(nodes), "--pods", str(pods), "--protocol", "arrivals", *more]


def simulate(tmp_path: Path, url: str, *options: str) -> list[str]:
    """A simulation by a server."""
    return ["simulate", *arguments(tmp_path), "--output", str(tmp_path / "run"), "--policy", url, *options]


async def alike(request: web.Request) -> web.Response:
    return web.json_response({"scores": dict.fromkeys(await names_of(request), 1)})


def test_headers_come_from_a_file_and_secrets_of_the_url_stay_out_of_results(tmp_path: Path, capsys: Any) -> None:
    asked: list[tuple[str, str]] = []

    async def answer(request: web.Request) -> web.Response:
        asked.append((request.headers.get("Authorization", ""), request.query.get("token", "")))
        return await alike(request)

    header = tmp_path / "header"
    header.write_text(f"# of the score server\nAuthorization: Bearer {SECRET}\n\n")
    with answering(answer) as url:
        given = arguments(tmp_path, "--policy", f"{url}?token={SECRET}", "--policy-header-file", str(header))
        assert main(["simulate", *given, "--output", str(tmp_path / "run")]) == 0
        assert main(["evaluate", *given, "--output", str(tmp_path / "evaluation"), "--jobs", "2"]) == 0
    assert set(asked) == {(f"Bearer {SECRET}", SECRET)}
    printed = capsys.readouterr()
    assert SECRET not in printed.out + printed.err
    written = [path for folder in ("run", "evaluation") for path in (tmp_path / folder).rglob("*")]
    assert "replay.json.gz" in {path.name for path in written}
    for path in written:
        content = path.read_bytes()
        content = gzip.decompress(content) if path.suffix == ".gz" else content
        assert SECRET.encode() not in content, path
    assert f"{url}?token=***" in (tmp_path / "evaluation" / "summary.csv").read_text()


def test_errors_of_a_server_do_not_show_the_secret(tmp_path: Path, capsys: Any) -> None:
    for url in (f"http://127.0.0.1:1/score?k={SECRET}", f"http://u:{SECRET}@h/score", f"ftp://h/{'?'}token={SECRET}"):
        assert main(simulate(tmp_path, url)) in (1, 2)
        printed = capsys.readouterr()
        assert SECRET not in printed.out + printed.err
        assert printed.err.count("\n") == 1


def test_policy_is_named_without_its_secret() -> None:
    policy = resolve(f"http://h/score?token={SECRET}&model=a")
    assert policy.name == "http://h/score?token=***&model=a"
    assert SECRET not in repr(policy)
    assert server_url(policy).endswith(f"?token={SECRET}&model=a")


def test_policies_with_equal_displayed_names_are_rejected() -> None:
    with raises(UsageError, "http://h/score?token=***"):
        Experiment((embedded("default-small"),), ("http://h/score?token=a", "http://h/score?token=b"), (1,))


def test_file_of_headers_is_read_again_when_it_changes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    header = tmp_path / "header"
    header.write_text("X-Token: one\n")
    monkeypatch.setenv(HEADER_FILE, str(header))
    access = ServerAccess()
    assert access.headers() == {"X-Token": "one"}
    (tmp_path / "new").write_text("X-Token: two\n")
    os.replace(tmp_path / "new", header)
    assert access.headers() == {"X-Token": "two"}
    header.unlink()
    with raises(InputError, header, "cannot be read"):
        access.headers()


@pytest.mark.parametrize(
    ("text", "where"),
    [
        (f"{SECRET}\n", "line 1"),
        (f"X-Token: a\nBearer {SECRET}\n", "line 2"),
        ("X-Token:\n", "line 1"),
        ("X Token: a\n", "line 1"),
        ("Host: elsewhere\n", "Host"),
        ("# nothing\n", "has no header"),
        ("X-Token: a\x7fb\n", "line 1"),
    ],
)
def test_line_that_is_not_a_header_is_named_and_not_shown(tmp_path: Path, text: str, where: str) -> None:
    file = tmp_path / "header"
    file.write_text(text)
    with raises(InputError, file, where) as caught:
        read_headers(file)
    assert SECRET not in str(caught.value)


def test_certificate_authority_is_read_before_the_run(tmp_path: Path, capsys: Any) -> None:
    file = tmp_path / "ca.pem"
    for problem in ("cannot be read", "has no certificate"):
        with raises(InputError, file, problem):
            read_authority(file)
        given = ["simulate", "--policy-ca", str(file), "--policy", "fgd", "--output", str(tmp_path / "o")]
        error_of(capsys, 1, given, file)
        file.write_text("nothing\n")
    assert isinstance(ServerAccess().tls, bool)


@pytest.fixture
def authority() -> trustme.CA:
    return trustme.CA()


def server_side(authority: trustme.CA, name: str = "127.0.0.1") -> ssl.SSLContext:
    """What a server with a certificate of this authority needs."""
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    authority.issue_cert(name).configure_cert(context)
    return context


def test_private_certificate_authority_is_accepted_if_given(tmp_path: Path, capsys: Any, authority: trustme.CA) -> None:
    own, other, several = tmp_path / "own.pem", tmp_path / "other.pem", tmp_path / "several.pem"
    own.write_bytes(authority.cert_pem.bytes())
    other.write_bytes(trustme.CA().cert_pem.bytes())
    several.write_bytes(other.read_bytes() + own.read_bytes())
    with answering(alike, server_side(authority)) as url:
        assert url.startswith("https://")
        for untrusting in ([], ["--policy-ca", str(other)]):
            given = simulate(tmp_path, f"{url}?token={SECRET}", *untrusting)
            error_of(capsys, 1, given, f"{url}?token=***", "certificate", "--policy-ca")
            assert not (tmp_path / "run").exists()
            blocking_client.cache_clear()
        for trusting in (own, several):
            assert main(simulate(tmp_path, url, "--policy-ca", str(trusting))) == 0
            blocking_client.cache_clear()


def test_certificate_of_another_host_is_rejected(tmp_path: Path, capsys: Any, authority: trustme.CA) -> None:
    own = tmp_path / "own.pem"
    own.write_bytes(authority.cert_pem.bytes())
    with answering(alike, server_side(authority, "elsewhere.example")) as url:
        error_of(capsys, 1, simulate(tmp_path, url, "--policy-ca", str(own)), "certificate", "127.0.0.1")


def test_https_request_to_a_plain_http_server_is_reported(tmp_path: Path, capsys: Any) -> None:
    with answering(alike) as url:
        by_tls = url.replace("http", "https", 1)
        error_of(capsys, 1, simulate(tmp_path, by_tls), by_tls)
