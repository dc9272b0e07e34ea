"""An advice in words, and its folder: report, files to install, `README.md` with the commands, `advice.json`."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

import msgspec
import yaml

from steersman.evaluation.advice import LEAST_GAIN, Advice, Setting
from steersman.evaluation.advising import EMPTY, NOW, ORDERED, WAITS, Ways
from steersman.evaluation.report.page import templates, write_report
from steersman.evaluation.results import (
    ADVICE,
    ADVICE_FILES,
    ADVICE_MARK,
    ADVISED_POLICY,
    KUBEADM_PATCH,
    README,
    REPORT,
    SCHEDULER,
    staged,
)
from steersman.policies.kinds import kube_scheduler
from steersman.policies.kube_scheduler.policy import STOCK_TUNED
from steersman.policies.kube_scheduler.written import (
    configuration_of,
    managed_configurations,
    write_configurations,
)
from steersman.policies.policy_file import prepare_policy, with_stored_order, write_policy
from steersman.policies.registry import policy_path
from steersman.simulation.pod_kinds import KINDS
from steersman.version import __version__

WHERE = {
    NOW: "on the cluster as it is now",
    EMPTY: "on the empty cluster",
    WAITS: "for the pods that have times",
}
FILE, PLUGIN = "file", "plugin"
INSTALL = {
    FILE: "{3} commands, in {0}/README.md: kubeadm, AKS, {1}OpenShift as a second scheduler; not {2}GKE",
    PLUGIN: "an image, and {0}/README.md: kubeadm in place of kube-scheduler; EKS, AKS, GKE, OpenShift next to it",
}
KUBECONFIG = "/etc/kubernetes/scheduler.conf"
MANIFEST = "/etc/kubernetes/manifests/kube-scheduler.yaml"
FOLDER_ON_NODES = "/etc/kubernetes/steersman"
ORDER_PLUGIN = "SteersmanOrder"
PATCH = f"""\
- op: add
  path: /spec/containers/0/command/-
  value: --config={FOLDER_ON_NODES}/{SCHEDULER}
- op: add
  path: /spec/containers/0/volumeMounts/-
  value: {{name: steersman, mountPath: {FOLDER_ON_NODES}, readOnly: true}}
- op: add
  path: /spec/volumes/-
  value: {{name: steersman, hostPath: {{path: {FOLDER_ON_NODES}, type: Directory}}}}
"""
"""What becomes of kubeadm's static pod of kube-scheduler, by RFC 6902, which keeps its other flags."""


def advice_of(ways: Ways, folder: Path) -> Advice:
    """Return the advice of a comparison, whose files are in a folder."""
    way, today = ways.advised, ways.today.name
    kind = _kind(ways)
    gains = [("gain", _gain(each, ways)) for each in ways.settings]
    if way == today:
        return Advice(way, f"Change nothing: no way is shown to do better than {today}", (*gains, _unsure(ways)))
    headline = {
        FILE: f"Change one file: kube-scheduler's configuration in {folder}/{SCHEDULER}",
        ORDERED: f"Change who goes next: kube-scheduler with steersman's plugin, in the order {ways.order.name}",
        PLUGIN: f"Run steersman's plugin or its scheduler with the policy in {folder}/{ADVISED_POLICY}",
    }[kind]
    takes_eks = kind == FILE and _is_simple(ways)
    # A configuration that is there is replaced, and the container stopped, both ways.
    replaces = kind == FILE and ways.today.configuration is not None
    install = INSTALL[FILE if kind == FILE else PLUGIN].format(
        folder, "EKS, " * takes_eks, "EKS, " * (not takes_eks), 2 if replaces else 3
    )
    return Advice(
        way,
        headline,
        (
            *gains,
            *_who_pays(ways),
            ("install", install),
            ("go back", "2 commands" if replaces else "1 command"),
            _unsure(ways),
        ),
    )


def _kind(ways: Ways) -> str:
    return {ways.today.name: "", STOCK_TUNED: FILE, ORDERED: ORDERED}.get(ways.advised, PLUGIN)


def _unsure(ways: Ways) -> tuple[str, str]:
    account = f"{ways.workload.account.sentence}; requests, not use; pods to come are drawn from these"
    assumed = f"today's configuration is taken to be {ways.today.name}; --scheduler-config names another"
    return "unsure", "; ".join([account, *[assumed] * (ways.today.configuration is None), *ways.notes])


def _gain(setting: Setting, ways: Ways) -> str:
    """Return what the advised way gains on today's in a setting, and whether another one gains more."""
    way, today = ways.advised, ways.today.name
    others = [each for each in ways.names if each not in (way, today)]
    best = max(others, key=lambda each: setting.gain(each, way).mean)
    more, where = setting.gain(best, way), WHERE[setting.title]
    too_little = f": not more than {LEAST_GAIN:g}, or not shown"
    if way == today:
        return f"{best} {more.text(setting.unit)} {where}{': but fewer elsewhere' if more.counts else too_little}"
    gain = setting.gain(way, today)
    beaten = f"; {best} {more.text('more')}" if more.counts else ", as much as any way here"
    return f"{gain.text(setting.unit)} {where}{beaten if gain.counts else too_little}"


def _who_pays(ways: Ways) -> list[tuple[str, str]]:
    """Return the kinds of pods that are shown to fail more often than today, a line for each cluster."""
    way, today = ways.decided_by(ways.advised).name, ways.today.name
    lines = []
    for comparison, setting in zip(ways.comparisons, ways.settings, strict=False):
        table, paid = comparison.headline, []
        for kind, metric in table.kinds(table.workload).items():
            if (change := table.difference(table.workload, metric, way, today)).is_significant and change.mean > 0:
                means, of = table.means_of(table.workload, metric), table.arrived(table.workload, kind)
                digits = 1 if means[way] < 10 else 0  # means of few pods may be equal as whole numbers
                failing = f"{means[today]:,.{digits}f} -> {means[way]:,.{digits}f} of {of:,.0f}"
                paid.append(f"pods of {KINDS[kind]}: {failing} fail")
        if paid:
            lines.append(("pays", f"{'; '.join(paid)} {WHERE[setting.title]}"))
    return lines or [("pays", "no kind of pods is shown to fail more often")]


def _is_simple(ways: Ways) -> bool:
    """Return whether EKS can express the found configuration."""
    found = kube_scheduler(ways.choices[STOCK_TUNED].policy)
    if found is None:
        return False
    content = configuration_of(found.profile, found.scheduler_name, found.configuration)
    return "eks" in managed_configurations(found.profile, content)


def write_advice(folder: Path, ways: Ways, advice: Advice, command: str, made: datetime) -> list[str]:
    """Write the folder of an advice, all files or none, and return their names.

    Args:
        folder: created if it does not exist; files of an earlier advice are replaced.
        command: the command line.
        made: when the cluster was read.
    """
    gain = "; ".join(text for name, text in advice.lines if name == "gain")
    facts = {
        "made_by": f"{ADVICE_MARK}, version {__version__}",
        "found_for": ways.workload.name,
        "cluster": ways.workload.account.sentence,
        "date": made.isoformat(timespec="seconds"),
        "gain": gain,
        "command": command,
    }
    with staged(folder, ADVICE_FILES) as stage:
        _write_files(stage, ways, facts)
        files = sorted(each.name for each in stage.iterdir())
        write_report(
            stage / REPORT,
            ways.comparisons,
            command=command,
            understood=[f"{ways.workload.name}: {ways.workload.understood}"] if ways.workload.understood else [],
            accounts=[f"{ways.workload.name}: {ways.workload.account.sentence}"],
            advice=advice,
        )
        page = (
            templates()
            .get_template("advice.md.j2")
            .render(
                advice=advice,
                facts=facts,
                kind=_kind(ways),
                files=files,
                has_file=ways.today.configuration is not None,
                order=ways.order.name,
                folder=FOLDER_ON_NODES,
                manifest=MANIFEST,
            )
        )
        (stage / README).write_text(page, encoding="utf-8")
        record: dict[str, Any] = {
            **facts,
            "advice": advice.headline,
            "way": advice.way,
            "lines": advice.lines,
            "files": files,
        }
        record |= {"choices": {name: choice.evidence for name, choice in ways.choices.items()}}
        text = json.dumps(record | {"settings": [_record(each, ways) for each in ways.settings]}, indent=2)
        (stage / ADVICE).write_text(f"{text}\n", encoding="utf-8")
        return sorted(each.name for each in stage.iterdir())


def _write_files(stage: Path, ways: Ways, facts: Mapping[str, str]) -> None:
    kind, decides = _kind(ways), ways.decided_by(ways.advised)
    comment = "".join(f"# {name.replace('_', ' ')}: {text}\n" for name, text in facts.items())
    if kind in (FILE, ORDERED):
        tuned = kube_scheduler(decides)
        assert tuned is not None
        for file in write_configurations(stage / SCHEDULER, tuned):
            if file.suffix == ".yaml":
                content = yaml.safe_load(file.read_text(encoding="utf-8"))
                if file.name == SCHEDULER:
                    content = _of_control_plane(
                        content, tuned.scheduler_name, ways.order.name if kind == ORDERED else ""
                    )
                file.write_text(comment + yaml.safe_dump(content, sort_keys=False, width=120), encoding="utf-8")
    if kind == FILE and ways.today.configuration is None:
        (stage / KUBEADM_PATCH).write_text(comment + PATCH, encoding="utf-8")
    if kind == PLUGIN:
        with policy_path(ways.advised) as file:
            card, arrays = prepare_policy(file, ways.workload, ways.choices[ways.advised].policy)
        card = msgspec.structs.replace(card, settings={**card.settings, **facts})
        write_policy(stage / ADVISED_POLICY, with_stored_order(card, ways.order), arrays)


def _of_control_plane(content: dict[str, Any], scheduler_name: str, order: str) -> dict[str, Any]:
    """Return a configuration with the access that kubeadm's kube-scheduler has, and with the plugin's order."""
    content.setdefault("clientConnection", {"kubeconfig": KUBECONFIG})
    if order:
        profile = next(
            each for each in content["profiles"] if each.get("schedulerName", scheduler_name) == scheduler_name
        )
        plugins = profile["plugins"] = profile.get("plugins") or {}
        for point, field, name in (("multiPoint", "enabled", ORDER_PLUGIN), ("queueSort", "disabled", "PrioritySort")):
            entries = plugins.setdefault(point, {})
            entries[field] = [*(entries.get(field) or []), {"name": name}]
        arguments = {"name": ORDER_PLUGIN, "args": {"order": order}}
        profile["pluginConfig"] = [*(profile.get("pluginConfig") or []), arguments]
    return content


def _record(setting: Setting, ways: Ways) -> dict[str, Any]:
    gains = {way: setting.gain(way, ways.today.name) for way in ways.names}
    ends = {way: dict(zip(("low", "high"), gain.interval, strict=True)) for way, gain in gains.items()}
    return {
        "setting": setting.title,
        "unit": setting.unit,
        "draws": len(setting.values[ways.today.name]),
        "gains": {way: {"mean": gain.mean, **ends[way]} for way, gain in gains.items()},
    }
