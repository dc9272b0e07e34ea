"""Order files: written and read again, used by name, and refused with one line when they are damaged."""

from __future__ import annotations

from pathlib import Path

import msgspec
import numpy as np
import pytest
from safetensors.numpy import save

from steersman.core.errors import InputError, UsageError
from steersman.evaluation.replay_file import policy_fingerprint
from steersman.orders.order import NO_ONE, Estimates
from steersman.orders.registry import CARD, WEIGHTS, OrderCard, find_order, open_order, write_order
from steersman.orders.scores import learned_size
from steersman.policies.registry import resolve

GOOD = OrderCard(name="mine", overtaking="easy", estimates="history", ageing=3600.0, hidden=1)
WEIGHTS_OF_GOOD = tuple(np.linspace(-1, 1, learned_size(1)).tolist())


def test_an_order_file_is_an_order(tmp_path: Path) -> None:
    """What was written is read, alone and with a policy."""
    file = tmp_path / "order.safetensors"
    write_order(file, GOOD, WEIGHTS_OF_GOOD)
    card, order = open_order(file)
    assert (card, order.weights, order.ageing) == (GOOD, WEIGHTS_OF_GOOD, 3600.0)
    assert order.estimates == Estimates("history")
    assert find_order(f"{file}@oracle:2").estimates == Estimates("oracle", 2.0)
    assert resolve(f"fgd+{file}").name == f"fgd+{file}"
    assert policy_fingerprint(f"fgd+{file}:none@none").startswith("order.safetensors ")
    assert policy_fingerprint(f"steersman+{file}").count("; ") == 1


def test_settings_replace_what_a_file_says_and_the_name_is_accepted_again(tmp_path: Path) -> None:
    """The file's own name would not be an order."""
    file = tmp_path / "a:b@c.safetensors"
    write_order(file, GOOD, WEIGHTS_OF_GOOD)
    changed = find_order(f"{file}:none@oracle:2@ageing:2h")
    assert (changed.overtaking, changed.ageing, changed.estimates) == (NO_ONE, 7200.0, Estimates("oracle", 2.0))
    for settings in ("", ":easy", ":any", "@stated", "@ageing:1d", ":none@oracle:2@ageing:2h"):
        order = find_order(f"{file}{settings}")
        assert order.name == f"{file}{settings}"
        assert find_order(order.name) == order


def test_an_order_is_told_from_a_policy(tmp_path: Path) -> None:
    """An order file is no policy, a folder no order, and a policy has one order."""
    file = tmp_path / "order.safetensors"
    write_order(file, GOOD, WEIGHTS_OF_GOOD)
    with pytest.raises(InputError, match="is an order, not a policy; give it to --order"):
        resolve(str(file))
    with pytest.raises(UsageError, match="is a folder; expected a name or an order file"):
        find_order(str(tmp_path))
    with pytest.raises(UsageError, match=r"'fgd\+shortest\+wfp3': expected one order, found 'shortest' and 'wfp3'"):
        resolve("fgd+shortest+wfp3")
    with pytest.raises(UsageError, match=r"policy 'fgd\+': expected an order after '\+'"):
        resolve("fgd+")


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"overtaking": "some"}, "overtaking: 'some' is unknown; expected any, none, easy"),
        ({"estimates": "guess"}, "estimates: estimates 'guess' are unknown"),
        ({"ageing": 0.0}, "ageing: 0 must be above 0 seconds"),
        ({"hidden": 2}, "order: has shape [34]; expected [44] for its hidden units"),
        ({"hidden": -1}, "hidden: -1 must be at least 0 and at most 1000"),
        ({"schema": 9}, "schema: 9 is of another version of steersman; expected 2"),
    ],
)
def test_a_wrong_card_is_refused(tmp_path: Path, changes: dict[str, object], says: str) -> None:
    """Each field that is out of range is named, with what would be right."""
    file = tmp_path / "order.safetensors"
    write_order(file, msgspec.structs.replace(GOOD, **changes), WEIGHTS_OF_GOOD)
    with pytest.raises(InputError) as error:
        open_order(file)
    assert says in str(error.value)


def test_what_is_no_order_file_is_refused(tmp_path: Path) -> None:
    """A missing file, text, a policy's file and weights that are no numbers are told apart."""
    file = tmp_path / "order.safetensors"
    with pytest.raises(InputError, match="no such file"):
        open_order(file)
    file.write_text("nothing")
    with pytest.raises(InputError, match="cannot be read"):
        open_order(file)
    file.write_bytes(save({WEIGHTS: np.zeros(17)}, {"steersman": "{}"}))
    with pytest.raises(InputError, match="is not an order file"):
        open_order(file)
    file.write_bytes(save({WEIGHTS: np.zeros(17)}, {CARD: "{}"}))
    with pytest.raises(InputError, match="is no order file of this version"):
        open_order(file)
    write_order(file, GOOD, (float("nan"), *WEIGHTS_OF_GOOD[1:]))
    with pytest.raises(InputError, match="not a finite number"):
        open_order(file)
