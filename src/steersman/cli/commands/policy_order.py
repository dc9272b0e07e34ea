"""`steersman policy order`: write a policy file that also says who goes next among pods that wait."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from steersman.cli.completing import orders, packaged_policies
from steersman.cli.options.common import path_option
from steersman.cli.options.declaring import option, with_options
from steersman.cli.output.display import say
from steersman.cli.reading import check_model_output

if TYPE_CHECKING:
    from steersman.policies.files.policy_file import Arrays, Card


@dataclass(frozen=True, slots=True)
class JoiningOptions:
    """Who goes next and where, and the file that is written."""

    policy: Annotated[
        str,
        option(
            "What places the pods: a policy file (run/policy.safetensors), a rule such as fgd, or steersman, rules or "
            "greedy-forecast, which are included.",
            metavar="POLICY",
            autocompletion=packaged_policies,
        ),
    ]
    order: Annotated[
        str,
        option(
            "Who goes next: a name such as wfp3:easy@history, or an order file of 'steersman policy fit-order'. age: "
            "the file has no order.",
            metavar="ORDER",
            autocompletion=orders,
        ),
    ]
    output: Annotated[Path, path_option("Policy file to write, such as mine.safetensors.", "--output")]


@with_options
def join_order(options: JoiningOptions) -> None:
    """Write a policy file that also says who goes next among the pods that wait.

    Wherever the policy is used, simulations and 'steersman schedule', its order is that of the file, unless --order or
    POLICY+ORDER gives another one.

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


def _read(policy: str) -> tuple[Card, Arrays]:
    """Return the card and the arrays of a policy that can be in a file. Raises SteersmanError: it cannot."""
    from steersman.policies.files.policy_file import read_policy, rule_card
    from steersman.policies.heuristics import HEURISTIC_IDS
    from steersman.policies.registry import policy_path, resolve

    if policy in HEURISTIC_IDS:
        return rule_card(policy), {}
    with policy_path(policy) as file:
        resolve(str(file))  # which also checks the weights
        return read_policy(file)
