"""What `deploy/extender` holds fits the program."""

from __future__ import annotations

from pathlib import Path

import yaml

from steersman.live.service.config import ServiceConfig, read_config

EXTENDER = Path(__file__).parents[3] / "deploy" / "extender"


def test_configurations_parse_and_addresses_agree() -> None:
    beside = read_config(EXTENDER / "service.yaml")
    assert (beside.address, beside.deadline_milliseconds) == (
        ServiceConfig().address,
        ServiceConfig().deadline_milliseconds,
    )
    (extender,) = yaml.safe_load((EXTENDER / "kube-scheduler.yaml").read_text())["extenders"]
    assert extender["urlPrefix"] == f"http://127.0.0.1:{beside.port}"
