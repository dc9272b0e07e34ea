"""Options of configuration classes: each has a help text and a default within its range, and reading them is cheap."""

import subprocess
import sys
from typing import Annotated, Literal, NamedTuple, get_args, get_origin

import pytest

from steersman.agents import configs
from steersman.core.config.fields import COUNT, FloatRange, Option, check_config, config_fields, make_config
from steersman.core.errors import UsageError
from steersman.workloads.generators.latency_settings import LatencySettings

CONFIGS = [each for name, each in vars(configs).items() if name.endswith("Config")]
COMMON = {"network", "hidden", "reference", "nodes", "max_nodes", "load", "replicas"}
"""Options of `train` whatever is trained, which have no `Option` of their own."""


class Example(NamedTuple):
    size: Annotated[int, Option("How large.", COUNT, (1, 2))] = 3
    kind: Annotated[Literal["a", "b"], Option("Which.")] = "a"
    other: str = ""


@pytest.mark.parametrize(
    "module", ["steersman.agents.configs", "steersman.workloads.generators.latency_settings", "steersman.cli.main"]
)
def test_reading_options_imports_nothing_heavy(module):
    heavy = "{'torch', 'gymnasium', 'numba', 'numpy', 'optuna'}"
    code = f"import sys, {module}; print(sorted({heavy} & sys.modules.keys()))"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "[]\n"


def test_fields_of_named_tuples_and_dataclasses_are_read_alike():
    fields = config_fields(Example)
    assert list(fields) == ["size", "kind"], "a field without an Option is none of the command line's"
    assert (fields["size"].type, fields["size"].default, fields["size"].option.help) == (int, 3, "How large.")
    assert get_args(fields["kind"].type) == ("a", "b")
    assert config_fields(configs.DQNConfig)["use_heuristic"].type is bool


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"size": 0}, "--size 0 does not work; expected a whole number of 1 or more"),
        ({"kind": "c"}, "--kind c is unknown; expected a or b"),
        ({"size": "3"}, "--size '3' does not work; expected a whole number"),
        ({"size": 1.5}, "--size 1.5 does not work; expected a whole number"),
        ({"size": True}, "--size True does not work; expected a whole number"),
    ],
)
def test_a_value_out_of_range_is_named(wrong, message):
    check_config(Example())
    with pytest.raises(UsageError, match=message):
        check_config(Example(**wrong))


def test_settings_by_name_are_checked():
    config = make_config(configs.DQNConfig, {"batch_size": 8, "learning_rate": 1}, "DQN")
    assert (config.batch_size, config.learning_rate) == (8, 1)
    with pytest.raises(UsageError, match=r"^unknown option of DQN 'actor_learning_rate'; did you mean 'learning_rate'"):
        make_config(configs.DQNConfig, {"actor_learning_rate": 0.1}, "DQN")
    with pytest.raises(UsageError, match=r"--learning-rate '0.1' does not work; expected a number"):
        make_config(configs.DQNConfig, {"learning_rate": "0.1"}, "DQN")


@pytest.mark.parametrize("config", [*CONFIGS, LatencySettings])
def test_every_option_has_a_help_text_and_values_within_its_range(config):
    fields = config_fields(config)
    assert set(config._fields if config is LatencySettings else config.__dataclass_fields__) - fields.keys() <= COMMON
    for name, field in fields.items():
        option, search = field.option, field.option.search
        assert option.help[0] == option.help[0].upper(), name
        assert option.help.endswith("."), name
        assert type(field.default) is (str if get_origin(field.type) is Literal else field.type), name
        tried = (search.low, search.high) if isinstance(search, FloatRange) else search or ()
        assert option.valid is None or all(option.valid.holds(value) for value in (field.default, *tried)), name
