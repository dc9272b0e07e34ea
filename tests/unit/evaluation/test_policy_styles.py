"""A policy has one style on every page, which can be seen on light and dark pages, also by the colour-blind."""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import combinations, permutations
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from studies import picture
from tests.support.nightly import examples

import steersman.evaluation.report
from steersman.evaluation.report.style import (
    BOUND_COLOUR,
    OWN_COLOURS,
    POLICY_COLOURS,
    SHARE_COLOURS,
    Style,
    dark_colours,
    faint,
    styles,
)
from steersman.policies.registry import BUILT_IN, TELEMETRY_POLICIES

REGISTERED = (*BUILT_IN, *TELEMETRY_POLICIES)
STYLE_SHEETS = (
    "src/steersman/evaluation/report/templates/report.css",
    "src/steersman/live/dashboard/static/shared/style.css",
)
ROOT = Path(steersman.evaluation.report.__file__).parents[4]


def look(style: Style) -> tuple[str, str, str]:
    return style.colour, style.dash, style.symbol


def linear(colour: str) -> npt.NDArray[np.float64]:
    parts = np.array([int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)])
    return np.where(parts <= 0.04045, parts / 12.92, ((parts + 0.055) / 1.055) ** 2.4)


def luminance(colour: str) -> float:
    return float(linear(colour) @ [0.2126, 0.7152, 0.0722])


def contrast(one: str, other: str) -> float:
    light, dark = sorted((luminance(one), luminance(other)), reverse=True)
    return (light + 0.05) / (dark + 0.05)


def pages(variable: str, file: str) -> list[str]:
    """Return the values of a CSS variable of a style sheet: of light pages, then of dark ones."""
    found = re.findall(rf"--{variable}: (#[0-9a-f]+)", (ROOT / file).read_text())
    assert len(found) >= 2
    return [each if len(each) == 7 else "#" + "".join(2 * digit for digit in each[1:]) for each in found]


def test_every_registered_policy_has_a_style_of_its_own() -> None:
    everyone = styles(REGISTERED)
    assert len({look(style) for style in everyone.values()}) == len(REGISTERED)
    own = styles([f"mine-{i}" for i in range(40)])
    assert not {look(style) for style in own.values()} & {look(style) for style in everyone.values()}
    named = [name for _, _, names in POLICY_COLOURS for name in names]
    assert sorted(named) == sorted(REGISTERED)


@given(st.lists(st.sampled_from(REGISTERED), unique=True, min_size=1), st.lists(st.text(), unique=True, max_size=5))
@settings(max_examples=examples(50), deadline=None)
def test_style_depends_neither_on_other_policies_nor_on_their_order(built_in: list[str], own: list[str]) -> None:
    everyone = styles(REGISTERED)
    page = list(dict.fromkeys([*own, *built_in]))
    for order in (page, page[::-1]):
        found = styles(order)
        assert [style.index for style in found.values()] == list(range(len(order)))
        assert {name: look(found[name]) for name in built_in} == {name: look(everyone[name]) for name in built_in}
        assert {name: look(found[name]) for name in own} == {name: look(styles(page)[name]) for name in own}
        assert len({look(style) for style in found.values()}) == len(order)


@pytest.mark.parametrize(
    ("policy", "base"),
    [
        ("fgd+shortest", "fgd"),
        ("steersman@max-kind-loss:2", "steersman"),
        ("kube-default@1.34", "kube-default"),
        ("rules@max-kind-loss:0.5+fcfs", "rules"),
        ("stock-tuned@1.31+age", "stock-tuned"),
    ],
)
def test_form_of_a_policy_has_its_colour_and_another_line(policy: str, base: str) -> None:
    both = styles([policy, base])
    assert both[policy].colour == both[base].colour
    # Bars have no dashes, but patterns by their symbol.
    alike = [style.symbol for style in styles(REGISTERED).values() if style.colour == both[base].colour]
    assert both[policy].symbol not in alike
    assert look(styles([policy])[policy]) == look(styles([*REGISTERED, "mine", policy])[policy])


@pytest.mark.parametrize("policy", ["run", "my-rule", "fgd=500,best-fit=500", "module:Class", "scheduler.yaml:tight"])
def test_own_policy_has_a_colour_of_no_registered_one(policy: str) -> None:
    colour = styles([*REGISTERED, policy])[policy].colour
    assert colour not in {style.colour for style in styles(REGISTERED).values()}
    assert look(styles([policy])[policy]) == look(styles(["fgd", policy, "rules"])[policy])


@pytest.mark.parametrize("own", list(permutations(["trained", "tuned", "by-hand"])))
def test_three_own_policies_have_three_colours(own: Sequence[str]) -> None:
    found = styles([*own, "fgd"])
    assert len({found[name].colour for name in own}) == OWN_COLOURS
    assert {look(found[name])[1:] for name in own} == {look(found["fgd"])[1:]}  # solid, without symbols


def test_more_policies_than_styles_have_styles() -> None:
    names = [f"policy-{i}" for i in range(600)]
    assert list(styles(names)) == names


@pytest.mark.parametrize("file", STYLE_SHEETS)
def test_policy_lines_have_enough_contrast_with_light_and_dark_pages(file: str) -> None:
    light_page, *dark_pages = pages("paper" if "report" in file else "back", file)
    for light, dark, _ in POLICY_COLOURS:
        assert contrast(light, light_page) >= 3, light
        assert all(contrast(dark, page) >= 3 for page in dark_pages), dark


def test_dark_colours_are_legible() -> None:
    dark = dark_colours()
    page = dark["#ffffff"]
    assert contrast(dark[BOUND_COLOUR], page) > 4.5
    for light, _, _ in POLICY_COLOURS:
        assert dark[faint(light)] == faint(dark[light])
    assert contrast(dark["#222222"], page) > 7
    shades = [luminance(dark.get(shade, shade)) for shade in SHARE_COLOURS]
    assert shades == sorted(shades, reverse=True)
    assert contrast(dark[SHARE_COLOURS[-1]], page) > 1.5


DEUTERANOPIA = [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.011820, 0.042940, 0.968881]]
PROTANOPIA = [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]]
"""Machado, Oliveira and Fernandes, "A Physiologically-based Model for Simulation of Color Vision Deficiency" (2009)."""
XYZ = np.array([[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]])


def lab(colour: str, eyes: npt.ArrayLike) -> npt.NDArray[np.float64]:
    """Return a colour as it is seen in CIELAB (1976)."""
    seen = XYZ @ np.clip(np.asarray(eyes) @ linear(colour), 0, 1) / [0.9505, 1, 1.089]
    x, y, z = np.where(seen > 0.008856, np.cbrt(seen), 7.787 * seen + 16 / 116)
    return np.array([116 * y - 16, 500 * (x - y), 200 * (y - z)])


@pytest.mark.parametrize("eyes", [np.eye(3), DEUTERANOPIA, PROTANOPIA], ids=["all cones", "deuteranopia", "protanopia"])
@pytest.mark.parametrize("theme", [0, 1], ids=["light", "dark"])
def test_colours_of_policies_differ_to_all_eyes(theme: int, eyes: npt.ArrayLike) -> None:
    colours = [each[theme] for each in POLICY_COLOURS]
    assert len(set(colours)) == len(colours)
    for one, other in combinations(colours, 2):
        assert np.linalg.norm(lab(one, eyes) - lab(other, eyes)) > 12, (one, other)  # 2.3 is just noticeable


def test_readme_picture_has_the_colours_of_reports() -> None:
    text = picture.bars({"kube-default": 79.0, "steersman": 86.0}, 2)
    found = styles(["kube-default", "steersman"])
    for style in found.values():
        assert style.colour in text
        assert dark_colours()[style.colour] in text
