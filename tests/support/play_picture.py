"""The picture of the page that plays openb, website/player/play.png: `python -m tests.support.play_picture SITE`."""

from __future__ import annotations

import sys
from pathlib import Path

from playwright.sync_api import sync_playwright
from tests.browser.conftest import OPTIONS, chromium
from website.play import PLAYER


def main(site: Path) -> None:
    """Show the page of a built site when the first pods find no room, and take a picture of its maps."""
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium(), args=list(OPTIONS))
        page = browser.new_page(viewport={"width": 1280, "height": 1000}, reduced_motion="reduce")
        page.goto((site / "play.html").resolve().as_uri())
        page.wait_for_function("document.getElementById('time').max > 0")
        page.evaluate("shown.show(Math.round(0.55 * shown.all))")
        boxes = [page.locator(some).bounding_box() for some in ("#gap", "#maps")]
        top, bottom = (box for box in boxes if box is not None)
        height = bottom["y"] + bottom["height"] - top["y"]
        page.screenshot(
            path=PLAYER / "play.png",
            clip={"x": top["x"], "y": top["y"], "width": top["width"], "height": height},
            full_page=True,
        )
        browser.close()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
