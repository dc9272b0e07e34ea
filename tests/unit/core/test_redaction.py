"""Secrets in texts: URLs, headers, tokens and values of such names are replaced, everything else stays."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from steersman.core.errors import InputError, SteersmanError
from steersman.core.redaction import redact, redact_url

SECRET = "s3cr3t-Value"


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("http://h:5000/score?token=s3cr3t", "http://h:5000/score?token=***"),
        ("http://h/score?model=a&k=s3cr3t&flag", "http://h/score?model=a&k=***&flag"),
        ("http://h/score?x=a;sig=s3cr3t", "http://h/score?x=***;sig=***"),
        ("https://user:pa@ss@h/p#access_token=s3cr3t", "https://***@h/p#access_token=***"),
        ("http://user@h", "http://***@h"),
        ("postgresql+psycopg2://u:p@db/optuna", "postgresql+psycopg2://***@db/optuna"),
        ("redis://:p@h:6379/0", "redis://***@h:6379/0"),
        ("http://h/a@b/c?k=1", "http://h/a@b/c?k=***"),
        ("http://[::1]:80/x?y=z", "http://[::1]:80/x?y=***"),
        ("http://h/score", "http://h/score"),
        ("fgd=500,best-fit=500", "fgd=500,best-fit=500"),
        ("run/policy.safetensors", "run/policy.safetensors"),
    ],
)
def test_url_keeps_only_its_address(url: str, shown: str) -> None:
    assert redact_url(url) == shown
    assert redact(f"policy {url!r} failed") == f"policy {shown!r} failed"


@pytest.mark.parametrize(
    "text",
    [
        f"error: 407, message='x', url='http://u:{SECRET}@proxy:3128'",
        f"Authorization: Bearer {SECRET}",
        f"proxy-authorization: Basic {SECRET}",
        f"X-Api-Key: {SECRET}",
        f"refused: bearer {SECRET}",
        f'{{"kind": "ExecCredential", "status": {{"token": "{SECRET}"}}}}',
        f'{{\\"clientSecret\\":\\"{SECRET}\\"}}',
        f'password="{SECRET} and more {SECRET}"',
        f"mytool --token={SECRET} failed",
        f"AWS_SECRET_ACCESS_KEY={SECRET}",
        f"api_key={SECRET}, retrying",
        f"client-key-data: {SECRET}",
        f"access_token={SECRET}",
        f"curl http://h/?a=1&api-key={SECRET}",
        f"invalid id token eyJhbGciOiJIUzI1.eyJzdWIiOiIx{SECRET}.c2lnbmF0dXJl",
    ],
)
def test_secrets_are_removed_from_texts(text: str) -> None:
    assert SECRET not in redact(text)
    assert "***" in redact(text)
    assert redact(redact(text)) == redact(text)


@pytest.mark.parametrize(
    "text",
    [
        "serve.yaml, tokenFile: cannot be read: No such file or directory",
        "a bearer token is needed",
        "token: cannot be read: Permission denied",
        "unknown policy 'fgd=1'; a weighted sum (fgd=500,best-fit=500)",
        "see https://kubernetes.io/docs/reference/ for more",
        "https://10.0.0.1:6443 (context 'kind') cannot be reached: Connection refused",
        "password: is empty",
        'nodes is forbidden: User "system:serviceaccount:a:b" cannot list resource "nodes"',
        "--policy http://h/score?model=a&seed=3",
    ],
)
def test_other_texts_are_unchanged(text: str) -> None:
    assert redact(text) == text


@given(st.text(alphabet="abcxyz0129-_.~%", min_size=1), st.text(alphabet="abcxyz0129-_.~%:@!$", min_size=1))
def test_user_and_value_are_never_shown(name: str, secret: str) -> None:
    marked = f"Zq{secret}qZ"
    assert marked not in redact(f"http://user:{marked}@host/path?{name}={marked}")


def test_errors_contain_no_secrets() -> None:
    assert str(SteersmanError("http://u:p@h/x?key=v: refused")) == "http://***@h/x?key=***: refused"
    assert SECRET not in str(InputError("a.yaml", "", "url", f"http://h/?token={SECRET}"))
