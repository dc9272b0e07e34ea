"""`steersman docs`: the documentation in the browser, from the files that are installed with steersman."""

from __future__ import annotations

import webbrowser
from importlib import resources
from pathlib import Path
from typing import Annotated

import typer

from steersman.core.errors import SteersmanError, checkout_of_this


def docs(
    browser: Annotated[bool, typer.Option("--open/--no-open", help="Open the first page in a browser.")] = True,
) -> None:
    """Open the documentation in a browser, and print the path of its first page. It needs no network.

    **Example**: steersman docs --no-open
    """
    page = first_page()
    print(page)
    if browser:
        webbrowser.open(page.as_uri())


def first_page() -> Path:
    """Return the first page of the site, in the package or in the checkout. Raises SteersmanError: it is not there."""
    checkout = checkout_of_this()
    folder = checkout / "build" if checkout else Path(str(resources.files("steersman.data")))
    page = folder / "site" / "index.html"
    if not page.is_file():
        builds = f"make -C {checkout} site builds it" if checkout else "wheels of 'make wheel' have it"
        raise SteersmanError(f"{page}: there is no documentation; {builds}")
    return page
