"""Compare which configurations are refused: `python -m tests.support.differential.acceptance`.

A valid random configuration is changed in one place. What kube-scheduler does not take must be an error here, too, and
what is an error here alone must be one of `NOT_COMPUTED`.

Left out: null, which is an absent field here; minors before 1.36, which panic where a ratio is missing.
"""

from __future__ import annotations

import argparse
import copy
import logging
import os
import sys
from collections import Counter
from collections.abc import Callable

import structlog
from tests.support.differential.configurations import CONFIGURATION, RESOURCES, configuration_of
from tests.support.differential.draws import Draws, RandomDraws
from tests.support.differential.explainer import Explainer, explainer
from tests.support.differential.nodes import Object
from tests.support.kubernetes import VARIABLE, minor

from steersman.cluster.objects.fields import FieldError
from steersman.policies.kube_scheduler.configuration import profiles_of
from steersman.policies.kube_scheduler.plugins import POINTS

NOT_COMPUTED = (
    "cannot be disabled",
    "so that kube-scheduler fails in",
    "is ignored by NodeResourcesFit, and cannot be scored",
    "is a resource of GPUs",
    "are other programs",
    "is empty; a node selector needs one term",
    "name: is missing",
    "is no plugin of kube-scheduler, so",  # arguments of such a plugin are ignored if nothing enables it
    "expected one of Honor, Ignore",  # a misspelt policy is none of them to kube-scheduler
    "weight: ",  # in addedAffinity and of plugins any number is taken
)
"""Errors here alone: docs/how-to/kube-scheduler.md."""
VALUES = (0, 1, -1, 5, 101, 1000, "", "cpu", "Honor", "NoSchedule", True, [], {}, ["a"], [{}], [{"name": "cpu"}])
POINT_NAMES = ("multiPoint", "score", "filter", "preFilter", "preScore", "reserve", "bind", "queueSort", "postFilter")


def changed(draws: Draws, configuration: Object) -> Object:
    """Return a configuration with one change."""
    made = copy.deepcopy(configuration)
    how: Callable[[Draws, Object], None] = draws.choice((_set_value, _set_value, _drop, _enable, _disable, _argument))
    how(draws, made)
    return made


def _places(value: object) -> list[tuple[Object, str]]:
    """Return every field of nested objects."""
    if isinstance(value, list):
        return [place for each in value for place in _places(each)]
    if not isinstance(value, dict):
        return []
    return [(value, key) for key in value] + [place for each in value.values() for place in _places(each)]


def _set_value(draws: Draws, made: Object) -> None:
    holder, key = draws.choice(_places(made))
    holder[key] = draws.choice(VALUES)


def _drop(draws: Draws, made: Object) -> None:
    holder, key = draws.choice(_places(made))
    del holder[key]


def _enable(draws: Draws, made: Object) -> None:
    plugins = made["profiles"][0].setdefault("plugins", {})
    point = plugins.setdefault(draws.choice(POINT_NAMES), {})
    entry: Object = {"name": draws.choice((*POINTS, "Coscheduling"))}
    if draws.chance(40):
        entry["weight"] = draws.number(-1, 200)
    point.setdefault("enabled", []).append(entry)


def _disable(draws: Draws, made: Object) -> None:
    plugins = made["profiles"][0].setdefault("plugins", {})
    point = plugins.setdefault(draws.choice(POINT_NAMES), {})
    point.setdefault("disabled", []).append({"name": draws.choice((*POINTS, "Coscheduling", "*"))})


def _argument(draws: Draws, made: Object) -> None:
    field = draws.choice(
        (
            "ignoredResources",
            "defaultingType",
            "hardPodAffinityWeight",
            "shape",
            "resources",
            "scoringStrategy",
            "filterTimeout",
        )
    )
    for entry in made["profiles"][0]["pluginConfig"] or [made]:
        entry.setdefault("args", {})[field] = draws.choice(
            (*VALUES, list(RESOURCES[:2]), [{"utilization": 0, "score": 3}])
        )


def refused_by_us(configuration: Object) -> str:
    """Return why a configuration is an error here, "" if it is not."""
    if configuration.get("kind") != CONFIGURATION["kind"]:
        return "kind: holds no KubeSchedulerConfiguration"  # which the reader of files finds
    try:
        profiles_of(configuration, minor())
    except FieldError as error:
        return str(error)
    return ""


def compare(scheduler: Explainer, seed: int, counts: Counter[str]) -> str:
    """Return the difference of one changed configuration, "" for none."""
    draws = RandomDraws(seed)
    configuration = changed(draws, configuration_of(draws))
    theirs, ours = scheduler.ask([], [], configuration=configuration).error, refused_by_us(configuration)
    counts["refused by both" if theirs and ours else "taken by both" if not theirs and not ours else "by one"] += 1
    if bool(theirs) == bool(ours) or any(each in ours for each in NOT_COMPUTED):
        return ""
    return f"seed {seed}: ours {ours!r}, kube-scheduler's {theirs!r}: {configuration}"


def main() -> int:
    """Compare, print the differences and return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--configurations", type=int, default=3000)
    parser.add_argument("--kubernetes", help="minor, such as 1.36; the newest by default")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    if options.kubernetes:
        os.environ[VARIABLE] = options.kubernetes
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.ERROR))
    counts, found = Counter[str](), list[str]()
    with explainer() as scheduler:
        seeds = range(options.seed, options.seed + options.configurations)
        found += [difference for seed in seeds if (difference := compare(scheduler, seed, counts))]
    print(f"Kubernetes {minor()}: {dict(counts)}, {len(found)} differences", *found, sep="\n")
    return int(bool(found))


if __name__ == "__main__":
    sys.exit(main())
