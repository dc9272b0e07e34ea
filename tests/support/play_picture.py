"""Pictures of the page that plays openb, for the site's index: `python -m tests.support.play_picture SITE`."""

from __future__ import annotations

import sys
from io import BytesIO
from pathlib import Path

from PIL import Image
from playwright.sync_api import sync_playwright
from tests.browser.conftest import OPTIONS, chromium
from website.play import PLAYER

COLOURS = 64


def main(site: Path) -> None:
    """Show the page of a built site when half of the pods have arrived, and take pictures of its maps."""
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium(), args=list(OPTIONS))
        for theme in ("light", "dark"):
            page = browser.new_page(viewport={"width": 1280, "height": 1000}, reduced_motion="reduce")
            page.emulate_media(color_scheme=theme)
            page.goto((site / "play.html").resolve().as_uri())
            page.wait_for_function("document.getElementById('time').max > 0")
            page.evaluate("shown.show(Math.round(shown.all / 2))")
            boxes = [page.locator(some).bounding_box() for some in ("#gap", "#maps")]
            top, bottom = (box for box in boxes if box is not None)
            height = bottom["y"] + bottom["height"] - top["y"]
            clip = {"x": top["x"], "y": top["y"], "width": top["width"], "height": height}
            picture = page.screenshot(clip=clip, full_page=True)
            # A palette halves the file.
            few = Image.open(BytesIO(picture)).convert("RGB").quantize(COLOURS, dither=Image.Dither.NONE)
            few.save(PLAYER / f"play-{theme}.png", optimize=True)
        browser.close()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
