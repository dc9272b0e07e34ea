"""HTML elements of a report. Every text is escaped here, and only here."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape

from steersman.evaluation.bound.experiment_bounds import BOUND
from steersman.evaluation.report import figures
from steersman.evaluation.report.headline import INTERVAL, Cell, Headline

DARK = figures.dark_colours()
DASH_LENGTHS = {"solid": "", "dash": "9 4", "dot": "3 3", "dashdot": "9 3 3 3"}
MARKS = {
    "circle": "M17 2a4 4 0 1 0 .01 0z",
    "square": "M13 2h8v8h-8z",
    "diamond": "M17 1l5 5l-5 5l-5 -5z",
    "triangle-up": "M17 1l5 9h-10z",
    "x": "M13 1l4 3.5l4 -3.5l1 1l-3.5 4l3.5 4l-1 1l-4 -3.5l-4 3.5l-1 -1l3.5 -4l-3.5 -4z",
    "cross": "M15.5 1h3v3.5h3.5v3h-3.5v3.5h-3v-3.5h-3.5v-3h3.5z",
}
"""Plotly's symbols as paths around the middle of a sample."""


def plot(identity: str, content: figures.Figure, label: str) -> str:
    """Return the placeholder of a plot, with a label for screen readers."""
    height = content["layout"]["height"]
    return f'<div class="plot" id="{identity}" role="img" aria-label="{escape(label)}" style="height:{height}px"></div>'


def page_table(titles: Sequence[str], rows: Iterable[str]) -> str:
    """Return a table of rows that scrolls on a narrow screen."""
    head = "".join(f'<th scope="col">{escape(title)}</th>' for title in titles)
    return f'<div class="scroll"><table><thead><tr>{head}</tr></thead><tbody>{"".join(rows)}</tbody></table></div>'


def row(cells: Iterable[Cell]) -> str:
    """Return a row of cells, the first of which is its header."""
    return f"<tr>{''.join(map(cell, cells))}</tr>"


def cell(content: Cell) -> str:
    """Return a cell with its note below."""
    note = f"<small>{escape(content.note)}</small>" if content.note else ""
    return f"<td>{escape(content.text)}{note}</td>"


def policy_table(headline: Headline, workload: str) -> str:
    """Return the policies on a workload, best first; last the recorded placement and the bound, if there are any."""
    # The difference comes first: on a phone it is then there without scrolling.
    columns = sorted(headline.columns(workload), key=lambda column: column.notes != INTERVAL)
    style = figures.styles(headline.policies, headline.baseline)
    rows = []
    for policy in headline.order(workload):
        is_baseline = policy == headline.baseline
        note = "<small>baseline</small>" if is_baseline else ""
        name = f"<td>{sample(style[policy])}{escape(policy)}{note}</td>"
        cells = "".join(cell(column.cells[policy]) for column in columns)
        rows.append(f"<tr{' class=baseline' if is_baseline else ''}>{name}{cells}</tr>")
    for other, title in headline.others(workload).items():
        colour = swatch(figures.BOUND_COLOUR) if other == BOUND else ""
        cells = "".join(cell(column.cells[other]) for column in columns)
        rows.append(f"<tr class=reference><td>{colour}{escape(title)}</td>{cells}</tr>")
    return page_table(["Policy", *(column.title for column in columns)], rows)


def shade(colour: str, name: str = "background") -> str:
    """Return a CSS declaration of a colour, and of its dark-page counterpart if there is one."""
    dark = DARK.get(colour)
    return f"{name}:{colour}" + (f";{name}:light-dark({colour},{dark})" if dark else "")


def swatch(colour: str) -> str:
    """Return a square of a colour."""
    return f'<span class="swatch" style="{shade(colour)}"></span>'


def sample(style: figures.Style) -> str:
    """Return a piece of a policy's line, with its dash and symbol."""
    dash = DASH_LENGTHS[style.dash]
    dashes = f' stroke-dasharray="{dash}"' if dash else ""
    mark = f'<path d="{MARKS[style.symbol]}" fill="currentColor"/>' if style.symbol else ""
    line = f'<path d="M0 6H34" stroke="currentColor" stroke-width="3" fill="none"{dashes}/>'
    colour = shade(style.colour, "color")
    return f'<svg class="line" viewBox="0 0 34 12" style="{colour}" aria-hidden="true">{line}{mark}</svg>'


def legend(style: dict[str, figures.Style]) -> str:
    """Return the policies as buttons that hide and show them in every plot."""
    buttons = []
    for policy, look in style.items():
        attributes = f'type="button" data-policy="{look.index}" aria-pressed="true" title="show or hide"'
        buttons.append(f"<button {attributes}>{sample(look)}{escape(policy)}</button>")
    return f'<div class="legend">{"".join(buttons)}</div>'


def key(colours: dict[str, str]) -> str:
    """Return the legend of the colours of a plot."""
    items = (f'<span class="item">{swatch(colour)}{escape(name)}</span>' for name, colour in colours.items())
    return f'<div class="legend">{"".join(items)}</div>'


def scale(shades: Sequence[str], low: str, high: str) -> str:
    """Return the legend of the shades of a plot."""
    stops = (f"light-dark({each},{DARK[each]})" if each in DARK else each for each in shades)
    plain = f"background:linear-gradient(to right, {', '.join(shades)})"  # for browsers that do not know light-dark
    bar = f'<span class="scale" style="{plain};background:linear-gradient(to right, {", ".join(stops)})"></span>'
    return f'<p class="soft">{escape(low)}{bar}{escape(high)}</p>'


def figure(plot: str, caption: str) -> str:
    """Return a plot with its caption below."""
    return f"<figure>{plot}<figcaption>{escape(caption)}</figcaption></figure>"


def policy_figure(plot: str, policy: str, style: figures.Style, caption: str) -> str:
    """Return a plot of one policy, named above."""
    title = f"<h3>{sample(style)}{escape(policy)}</h3>"
    note = f"<figcaption>{escape(caption)}</figcaption>" if caption else ""
    return f'<figure data-policy="{style.index}">{title}{note}{plot}</figure>'


def block(title: str, text: str, grid: str, places: Iterable[str], note: str = "") -> str:
    """Return a titled grid of figures; empty if there are none."""
    content = "".join(places)
    if not content:
        return ""
    return f'<h2>{escape(title)}</h2>\n{soft(text)}{note}\n<div class="{grid}">{content}</div>'


def soft(text: str) -> str:
    """Return a paragraph of secondary text."""
    return f'<p class="soft">{escape(text)}</p>'
