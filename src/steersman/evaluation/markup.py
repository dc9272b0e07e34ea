"""Pieces of HTML that a report is made of. Every text that comes in is escaped here, and only here."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape

from steersman.evaluation import figures
from steersman.evaluation.headline import Cell, Headline
from steersman.evaluation.limits import BOUND


def page_table(titles: Sequence[str], rows: Iterable[str]) -> str:
    """A table of ready rows that scrolls on a narrow screen."""
    head = "".join(f'<th scope="col">{escape(title)}</th>' for title in titles)
    return f'<div class="scroll"><table><thead><tr>{head}</tr></thead><tbody>{"".join(rows)}</tbody></table></div>'


def row(cells: Iterable[Cell]) -> str:
    """A row of cells, the first of which names it."""
    return f"<tr>{''.join(map(cell, cells))}</tr>"


def cell(content: Cell) -> str:
    """A cell with its note below."""
    note = f"<small>{escape(content.note)}</small>" if content.note else ""
    return f"<td>{escape(content.text)}{note}</td>"


def policy_table(headline: Headline, workload: str) -> str:
    """The policies on a workload, the best first; last the recorded placement and the limit, if there are any."""
    columns = headline.columns(workload)
    style = figures.styles(headline.policies, headline.baseline)
    rows = []
    for policy in headline.order(workload):
        is_baseline = policy == headline.baseline
        note = "<small>baseline</small>" if is_baseline else ""
        name = f"<td>{swatch(style[policy].colour)}{escape(policy)}{note}</td>"
        cells = "".join(cell(column.cells[policy]) for column in columns)
        rows.append(f"<tr{' class=baseline' if is_baseline else ''}>{name}{cells}</tr>")
    for other, title in headline.others.items():
        colour = swatch(figures.LIMIT_COLOUR) if other == BOUND else ""
        cells = "".join(cell(column.cells[other]) for column in columns if other in column.cells)
        rows.append(f"<tr class=limit><td>{colour}{escape(title)}</td>{cells}</tr>")
    return page_table(["Policy", *(column.title for column in columns)], rows)


def swatch(colour: str) -> str:
    """A square of a colour."""
    return f'<span class="swatch" style="background:{colour}"></span>'


def legend(style: dict[str, figures.Style]) -> str:
    """The policies as buttons that hide and show them in every plot."""
    buttons = []
    for policy, look in style.items():
        border = {"solid": "solid", "dash": "dashed"}.get(look.dash, "dotted")
        line = f'<span class="line" style="border-top-color:{look.colour};border-top-style:{border}"></span>'
        attributes = f'type="button" data-policy="{look.index}" aria-pressed="true" title="show or hide"'
        buttons.append(f"<button {attributes}>{line}{escape(policy)}</button>")
    return f'<div class="legend">{"".join(buttons)}</div>'


def key(colours: dict[str, str]) -> str:
    """What the colours of a plot mean."""
    items = (f'<span class="item">{swatch(colour)}{escape(name)}</span>' for name, colour in colours.items())
    return f'<div class="legend">{"".join(items)}</div>'


def scale(shades: Sequence[str], low: str, high: str) -> str:
    """What the shades of a plot mean."""
    gradient = f"linear-gradient(to right, {', '.join(shades)})"
    bar = f'<span class="scale" style="background:{gradient}"></span>'
    return f'<p class="soft">{escape(low)}{bar}{escape(high)}</p>'


def figure(plot: str, caption: str) -> str:
    """A plot with its caption below."""
    return f"<figure>{plot}<figcaption>{escape(caption)}</figcaption></figure>"


def policy_figure(plot: str, policy: str, style: figures.Style, caption: str) -> str:
    """A plot of one policy, named above."""
    title = f"<h3>{swatch(style.colour)}{escape(policy)}</h3>"
    note = f"<figcaption>{escape(caption)}</figcaption>" if caption else ""
    return f'<figure data-policy="{style.index}">{title}{note}{plot}</figure>'


def block(title: str, text: str, grid: str, places: Iterable[str], note: str = "") -> str:
    """A titled grid of figures; empty if there are none."""
    content = "".join(places)
    if not content:
        return ""
    return f'<h2>{escape(title)}</h2>\n{soft(text)}{note}\n<div class="{grid}">{content}</div>'


def soft(text: str) -> str:
    """A paragraph in the background."""
    return f'<p class="soft">{escape(text)}</p>'
