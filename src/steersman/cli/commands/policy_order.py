"""`steersman policy order`: write a policy file that also says who goes next among pods that wait."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from steersman.cli.completing import orders, rules_and_files
from steersman.cli.options.common import path_option
from steersman.cli.options.declaring import option, with_options
from steersman.cli.options.policies import stored_order_warnings
from steersman.cli.output.display import Warnings, say
from steersman.cli.reading import check_model_output
from steersman.core.errors import UsageError

if TYPE_CHECKING:
    from steersman.policies.files.policy_file import Arrays, Card


@dataclass(frozen=True, slots=True)
class PolicyOrderOptions:
    policy: Annotated[
        str,
        option(
            "What places the pods: a policy file (run/policy.safetensors), a rule such as fgd, or steersman, rules or "
            "greedy-forecast, which are included.",
            metavar="POLICY",
            autocompletion=rules_and_files,
        ),
    ]
    order: Annotated[
        str,
        option(
            "Who goes next: a name such as wfp3:easy@history, an order file of 'steersman policy fit-order', or "
            "another policy file with an order. age: the file has no order.",
            metavar="ORDER",
            autocompletion=orders,
        ),
    ]
    output: Annotated[Path, path_option("Policy file to write, such as mine.safetensors.", "--output")]


@with_options
def join_order(options: PolicyOrderOptions) -> None:
    """Write a policy file that also says who goes next among the pods that wait.

    Simulations, 'steersman schedule', wait and explain follow it, unless --order or POLICY+ORDER gives another one. A
    service and the plugin's scores order nothing; the plugin's queue takes the file as its order.

    **Example**: steersman policy order --policy steersman --order wfp3:easy --output mine.safetensors, then steersman
    schedule --policy mine.safetensors
    """
    from steersman.policies.files.policy_file import read_policy

    check_model_output(options.output, "a policy file", read_policy)

    # The imports below load numba, which is slow, so the options are checked first.
    from steersman.orders.registry import find_order
    from steersman.policies.files.policy_file import with_stored_order, write_policy

    order = find_order(options.order)
    card, arrays = _read(options.policy)
    write_policy(options.output, with_stored_order(card, order), arrays)
    say(f"{options.output}: {card.name} in the order {order.name}")
    Warnings()(stored_order_warnings(order))


def _read(policy: str) -> tuple[Card, Arrays]:
    from steersman.policies.files.policy_file import SUFFIX, read_policy, rule_card
    from steersman.policies.heuristics import HEURISTIC_IDS
    from steersman.policies.registry import FILE_NAMES, policy_path, resolve, split_limit, split_order

    if policy in HEURISTIC_IDS:
        return rule_card(policy), {}
    is_file = policy.endswith(SUFFIX) and not split_order(policy)[1]
    if split_limit(policy)[1] or not (is_file or policy in FILE_NAMES):
        known = ", ".join((*FILE_NAMES, *HEURISTIC_IDS))
        raise UsageError(f"--policy {policy}: expected a policy file (run/policy{SUFFIX}), {known}")
    with policy_path(policy) as file:
        resolve(str(file))  # which also checks the weights
        return read_policy(file)
