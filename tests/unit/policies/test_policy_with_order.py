"""Policy files that say who goes next: written, read again, used, overridden, and refused with one line."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import msgspec
import pytest
from typer.testing import CliRunner

from steersman.agents.evolution.orders import waits_under
from steersman.cli.main import app, main
from steersman.core.errors import InputError, SteersmanError, UsageError
from steersman.orders.order import AGE, Estimates
from steersman.orders.registry import OrderCard, find_order, write_order
from steersman.orders.scores import learned_size
from steersman.policies.base import with_order
from steersman.policies.policy_file import read_policy, rule_card, with_stored_order, write_policy
from steersman.policies.registry import in_order, in_order_by_name, policy_path, resolve
from steersman.simulation.arrivals import schedule
from steersman.simulation.run import Simulator
from steersman.workloads.formats.openb import embedded

WEIGHTS = tuple(0.01 * i for i in range(learned_size(1)))
LEARNED = OrderCard(name="found", overtaking="easy", estimates="oracle:3", ageing=604800.0, hidden=1)


def written(file: Path, order: str, policy: str = "best-fit") -> str:
    """Write a policy file of a rule with an order."""
    write_policy(file, with_stored_order(rule_card(policy), find_order(order)), {})
    return str(file)


@pytest.mark.parametrize("order", ["wfp3:easy", "shortest@history@ageing:2h", "fcfs", "largest", "area@oracle:3"])
def test_a_file_has_the_order_that_it_was_given(tmp_path: Path, order: str) -> None:
    """Under the name of the policy alone; another order is told by its name, that of age as well."""
    file = written(tmp_path / "mine.safetensors", order)
    policy = resolve(file)
    assert (policy.name, replace(policy.order, name=order)) == ("mine", find_order(order))
    assert in_order(policy, "") is policy
    assert find_order(file) == policy.order
    assert resolve(f"{file}+unicef").name == "mine+unicef"
    assert (resolve(f"{file}+age").name, resolve(f"{file}+age").order.name) == ("mine+age", "age")
    assert resolve("fgd+age").name == "fgd"
    assert [in_order_by_name(each, "age") for each in (file, "fgd")] == [f"{file}+age", "fgd"]
    assert resolve(f"fgd+{file}").order == policy.order
    assert find_order(written(tmp_path / "again.safetensors", f"{file}@none")).estimates == Estimates("none")


@pytest.mark.parametrize(
    ("settings", "name"),
    [
        ("", "wfp3:easy@stated@ageing:7200s"),
        ("@none", "wfp3:easy@none@ageing:7200s"),
        (":none@ageing:1h", "wfp3:none@stated@ageing:1h"),
    ],
)
def test_a_setting_replaces_the_one_of_its_kind_in_the_name(tmp_path: Path, settings: str, name: str) -> None:
    """Of a file with a rule's order the name is that of the rule."""
    file = written(tmp_path / "mine.safetensors", "wfp3:easy@stated@ageing:2h")
    order = find_order(f"{file}{settings}")
    assert order.name == name
    assert find_order(name) == order


def test_the_name_of_weights_in_a_file_is_the_file(tmp_path: Path) -> None:
    """`learned` in its card stands for the weights in it, and is no order elsewhere."""
    write_order(tmp_path / "order.safetensors", LEARNED, WEIGHTS)
    file = written(tmp_path / "mine.safetensors", f"{tmp_path / 'order.safetensors'}")
    for settings in ("", ":none", "@ageing:1h"):
        order = find_order(f"{file}{settings}")
        assert (order.name, order.weights) == (f"{file}{settings}", WEIGHTS)
    assert resolve(file).order == find_order(file)


def test_a_learned_order_is_in_the_file(tmp_path: Path) -> None:
    """With its weights, who may overtake, estimates and ageing; prepared policies keep it."""
    order_file, file = tmp_path / "order.safetensors", tmp_path / "mine.safetensors"
    write_order(order_file, LEARNED, WEIGHTS)
    found = find_order(str(order_file))
    with policy_path("steersman") as shipped:
        card, arrays = read_policy(shipped)
    write_policy(file, with_stored_order(card, found), arrays)
    order = resolve(str(file)).order
    assert replace(order, name=found.name) == found
    assert (order.weights, order.ageing, order.estimates) == (WEIGHTS, 604800.0, Estimates("oracle", 3.0))
    assert [each.name for each in resolve(str(file)).members] == [each.name for each in resolve("steersman").members]
    assert with_stored_order(read_policy(file)[0], AGE) == card


def test_a_simulation_follows_the_file(tmp_path: Path) -> None:
    """As it does with the same policy and order by name."""
    workload = embedded("default-small")
    simulator, plan = Simulator(workload), schedule(workload, "timed", seed=3, ratio=1.0, load=1.1)
    named = waits_under(with_order(resolve("best-fit"), find_order("wfp3:easy")), simulator, plan, 3).seconds
    stored = waits_under(resolve(written(tmp_path / "mine.safetensors", "wfp3:easy")), simulator, plan, 3).seconds
    aged = waits_under(resolve("best-fit"), simulator, plan, 3).seconds
    assert (named == stored).all()
    assert (named != aged).any()


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"order": "fifo"}, "order: unknown order 'fifo'"),
        ({"order": "wfp3:all"}, "order 'wfp3:all': 'all' is unknown; expected any, none, easy"),
        ({"order": "wfp3@guess"}, "order 'wfp3@guess': 'guess' is unknown; expected auto"),
        ({"order": "other.safetensors"}, "order 'other.safetensors' is a file; expected a name"),
        ({"order": "a:b.safetensors@history"}, "order 'a:b.safetensors@history' is a file; expected a name"),
        ({"order": "wfp3", "order_weights": WEIGHTS}, "order 'wfp3' takes no weights; expected 'learned' with "),
        ({"order": "learned"}, "order_weights are 0 numbers; expected 24, and 10 for each hidden unit"),
        ({"order": "learned", "order_weights": WEIGHTS[1:]}, "order_weights are 33 numbers; expected 24, and 10"),
        ({"order_weights": WEIGHTS}, "order_weights: belong to an order, but the card has none"),
    ],
)
def test_what_is_wrong_with_the_order_is_one_line(tmp_path: Path, changes: dict[str, object], says: str) -> None:
    """Whether the file is given as a policy or as an order."""
    file = tmp_path / "mine.safetensors"
    write_policy(file, msgspec.structs.replace(rule_card("fgd"), **changes), {})
    for read in (resolve, find_order):
        with pytest.raises(InputError) as caught:
            read(str(file))
        text = str(caught.value)
        assert text.startswith(f"{file}, card, order")
        assert says in text
        assert "\n" not in text


@pytest.mark.parametrize("command", ["explain", "wait"])
def test_an_order_of_simulations_alone_is_named_with_its_file(tmp_path: Path, command: str) -> None:
    """Nobody gave it on the command line; what replaces it is said."""
    file = written(tmp_path / "mine.safetensors", "wfp3@oracle:3")
    (tmp_path / "pods.csv").write_text("name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec\np,1000,1000,0,0,\n")
    (tmp_path / "nodes.csv").write_text("sn,cpu_milli,memory_mib,gpu,model\nn,32000,64000,4,T4\n")
    inputs = ["--nodes", str(tmp_path / "nodes.csv"), "--pods", str(tmp_path / "pods.csv"), "--pod", "p"]
    error = CliRunner().invoke(app, [command, "--policy", file, *inputs]).exception
    assert isinstance(error, UsageError)
    assert str(error).startswith(f"--policy {file}: its order wfp3@oracle:3: no live cluster knows true run times")
    assert str(error).endswith("; --order, such as --order age, replaces it")


def test_a_policy_without_an_order_is_no_order(tmp_path: Path) -> None:
    """The text says what would be right."""
    file = tmp_path / "mine.safetensors"
    write_policy(file, rule_card("fgd"), {})
    assert resolve(str(file)).order is AGE
    with pytest.raises(InputError, match="is a policy without an order; expected an order file, or a name"):
        find_order(str(file))


@pytest.mark.parametrize("order", ["shortest@oracle", "wfp3:easy"])
def test_a_warning_names_files_for_simulations(tmp_path: Path, order: str, capsys: pytest.CaptureFixture[str]) -> None:
    """They are written all the same."""
    file = tmp_path / "mine.safetensors"
    assert main(["fit", "policy", "--policy", f"fgd+{order}", "--output", str(file)]) == 0
    assert resolve(str(file)).order.name == order
    warns = f"warning: the policy file is for simulations alone: order {order}: " in capsys.readouterr().err
    assert warns == (order != "wfp3:easy")


def test_the_command_joins_policy_and_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rules, files and what is included; the card says so."""
    monkeypatch.chdir(tmp_path)

    def run(*arguments: str) -> str:
        result = CliRunner().invoke(app, arguments)
        assert result.exit_code == 0, result.output
        return result.output

    fit = ("fit", "policy", "--policy")
    run(*fit, "fgd+wfp3:easy", "--output", "one.safetensors")
    run(*fit, "one.safetensors+shortest", "--output", "two.safetensors")
    run(*fit, "greedy-forecast+two.safetensors", "--output", "three.safetensors")
    run(*fit, "two.safetensors+age", "--output", "four.safetensors")
    orders = [resolve(f"{name}.safetensors").order.name for name in ("one", "two", "three", "four")]
    assert orders == ["wfp3:easy", "shortest", "shortest", "age"]
    assert "wfp3:easy" in run("policy", "show", "one.safetensors")
    without_file = ("kube-default", "random", "none.safetensors", "fgd=1,best-fit=2", "mine:Own")
    for policy in (*without_file, "fgd+wfp3", "steersman"):
        arguments = [*fit, f"{policy}+fcfs", "--output", "five.safetensors"]
        assert isinstance(CliRunner().invoke(app, arguments).exception, SteersmanError), policy
    assert not Path("five.safetensors").exists()


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (("steersman+easy", "mine.safetensors"), "there is no workload"),
        (("fgd", "mine.safetensors"), "there is no workload"),
        (("fgd+easy", "mine.txt"), "a formula has no order"),
        (("ordered.safetensors", "mine.txt", "--workload", "default-small"), "or ordered.safetensors+age"),
        (("fgd+easy", "mine.safetensors", "--generations", "3"), "--generations belongs to --policy steersman"),
        (("fgd+easy", "mine.safetensors", "--format", "json"), "--format belongs to --policy steersman"),
        (("fgd+easy", "mine.safetensors", "--protocol", "timed"), "--protocol belongs to --policy steersman"),
        (("fgd+easy", "mine.safetensors", "--nodes", "nodes.csv"), "--pods is missing"),
        (("kube-default+age", "mine.txt"), "policy kube-default has no file"),
    ],
)
def test_what_cannot_be_written_is_refused_in_one_line(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    arguments: tuple[str, ...],
    problem: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    written(tmp_path / "ordered.safetensors", "shortest")
    policy, output, *more = arguments
    assert main(["fit", "policy", "--policy", policy, "--output", output, *more]) == 2
    assert problem in capsys.readouterr().err.splitlines()[-1]
    assert not (tmp_path / output).exists()


def test_an_order_leaves_the_rest_of_a_file_as_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The profile of a fitted policy stays; with nodes and pods it is replaced."""
    monkeypatch.chdir(tmp_path)
    fit = ["fit", "policy", "--policy"]
    assert main([*fit, "best-fit", "--workload", "default-small", "--output", "one.safetensors"]) == 0
    assert main([*fit, "one.safetensors+easy", "--output", "two.safetensors"]) == 0
    (first, profile), (second, same) = (read_policy(f"{name}.safetensors") for name in ("one", "two"))
    assert first.profile is not None
    assert second == msgspec.structs.replace(first, order="easy")
    assert {name: each.tobytes() for name, each in profile.items()} == {name: e.tobytes() for name, e in same.items()}
    assert main([*fit, "one.safetensors+age", "--output", "one.txt"]) == 0
    assert Path("one.txt").read_text().count("+1 best-fit") == 4
