"""Pages of the policies: what docs/reference/policies.md says of each, its properties, results and model card."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from steersman.policies import registry
from steersman.policies.base import Need, Policy
from steersman.policies.heuristics import HEURISTIC_IDS
from steersman.policies.kinds import stock_tuned
from steersman.policies.policy_file import RULE, Card, network_of, read_policy
from website.pages import POLICIES, for_site
from website.results import Measured, measured

CARDS = registry.FILE_NAMES
"""Policies with a model card."""


def pages() -> dict[str, str]:
    """Return the pages: of all policies, and of each."""
    introduction, *parts = re.split(r"^## ", POLICIES.read_text(), flags=re.M)
    texts = dict(part.split("\n", 1) for part in parts)
    results = measured()
    rows = [f"| [`{name}`]({name}.md) | {_first_sentence(text)} |" for name, text in texts.items()]
    table = "\n".join(("| policy | what it does |", "| --- | --- |", *rows))
    result = {"policies/index.md": for_site(f"{introduction.rstrip()}\n\n{table}", POLICIES, "policies/index.md")}
    for name, text in texts.items():
        card = None
        if name in CARDS:
            with registry.policy_path(name) as file:
                card = read_policy(file)[0]
        parts = [f"# {name}", text.strip(), "## Properties", _properties(registry.resolve(name), card)]
        if mine := [each for each in results if each.policy == name]:
            parts += ["## Results", _results(mine)]
        if card is not None:
            parts += ["## Model card", _card(card)]
        place = f"policies/{name}.md"
        result[place] = for_site("\n\n".join(parts), POLICIES, place)
    return result


def _first_sentence(text: str) -> str:
    """Return what a policy does: its first sentence."""
    return re.split(r"[.:;] ", " ".join(text.strip().split("\n\n")[0].split()))[0].rstrip(".")


def _properties(policy: Policy, card: Card | None) -> str:
    """Return the table of what the code says of a policy; a card says whether weights were learned or are fixed."""
    tuned = stock_tuned(policy)
    decides = policy if tuned is None else tuned.today
    learned = policy.is_learned if card is None else card.algorithm != "none"
    rows = {
        "learned": "yes" if learned else "no",
        "decides by": "nodes' metrics from Prometheus"
        if Need.TELEMETRY in policy.needs
        else "what pods request and nodes have",
        "part of weighted sums": "yes" if policy.name in HEURISTIC_IDS else "no",
        "as a policy file, for the plugin": f"yes, `steersman fit policy --policy {policy.name}`"
        if policy.name in CARDS
        else "no; the plugin may ask the service"
        if not network_of(policy)
        else "not needed: the plugin has it by name"
        if network_of(policy) == RULE
        else "yes",
        "among equal nodes": decides.selection.tie_rule,
    }
    return _table(("property", "value"), list(rows.items()))


def _results(results: list[Measured]) -> str:
    """Return the table of what was measured with a policy."""
    rows = [(each.where, each.figure, each.value, each.compared) for each in results]
    studies = dict.fromkeys(each.link for each in results)
    return (
        _table(("measured on", "figure", "value", "compared"), rows)
        + "\n\nHow these were measured, and with which intervals: "
        + ", ".join(studies)
        + "."
    )


def _card(card: Card) -> str:
    """Return the table of a model card."""
    rows = []
    for field in card.__struct_fields__:
        value = getattr(card, field)
        if value not in ("", (), [], {}, None):
            rows.append((field.replace("_", " "), _shown(value)))
    return _table(("field", "value"), rows)


def _shown(value: Any) -> str:
    """Return a value of a card for a cell of a table."""
    if isinstance(value, dict):
        return ", ".join(f"{name} {_shown(each)}" for name, each in value.items())
    if isinstance(value, list | tuple):
        return ", ".join(map(_shown, value))
    return f"{value:g}" if isinstance(value, float) else str(value)


def _table(head: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> str:
    lines = [head, ("---",) * len(head), *rows]
    return "\n".join(f"| {' | '.join(cell or ' ' for cell in cells)} |" for cells in lines)
