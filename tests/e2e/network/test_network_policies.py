"""The chart's NetworkPolicies, enforced by kube-router between network namespaces."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from tests.support.network.kube_router import kube_router_program

pytestmark = [pytest.mark.e2e, pytest.mark.nightly]

CHECKOUT = Path(__file__).parents[3]
TOOLS = ("iptables", "ipset", "ip", "nsenter", "unshare")
ALLOWED = {
    "node -> steersman",  # the kubelet's probes
    "node -> steersman-service",
    "prometheus -> steersman",
    "prometheus -> steersman-service",
    "steersman-dashboard -> steersman",
    "steersman-dashboard -> steersman-service",
    "steersman-plugin -> steersman-service",
}


@pytest.mark.skipif(os.geteuid() != 0, reason="only root makes network namespaces")
@pytest.mark.skipif(any(shutil.which(name) is None for name in TOOLS), reason=f"needs {', '.join(TOOLS)}")
def test_only_named_peers_reach_scheduler_and_service(tmp_path: Path) -> None:
    # Of processes too, so that nothing outlives the call.
    spaces = ["--net", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc"]
    command = ["unshare", *spaces, sys.executable, "-m", "tests.support.network.enforcement"]
    command += [str(tmp_path), str(kube_router_program())]
    done = subprocess.run(command, cwd=CHECKOUT, capture_output=True, text=True, check=False, timeout=600)
    assert done.returncode == 0, done.stderr[-4000:]
    found = json.loads(done.stdout.splitlines()[-1])
    assert all(found["without"].values()), found["without"]
    assert {connection for connection, is_open in found["with"].items() if is_open} == ALLOWED
