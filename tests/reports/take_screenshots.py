"""Takes the README's screenshots of a report in a headless Chromium: take_screenshots.py RUN/report.html docs

report.png is what stands first, divergence.png the first answer that differs. 64 colours keep each far below 200 KB.
"""

from __future__ import annotations

import io
import os
import shutil
import sys
from pathlib import Path

from PIL import Image
from playwright.sync_api import sync_playwright

COLOURS = 64


def keep(png: bytes, path: Path) -> None:
    """The picture with few colours."""
    Image.open(io.BytesIO(png)).convert("RGB").quantize(COLOURS).save(path, optimize=True)


def main(report: Path, out: Path) -> None:
    flags = [
        "--disable-gpu",
        "--disable-background-networking",
        *(["--no-sandbox"] if os.geteuid() == 0 else []),
    ]
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=flags)
        page = browser.new_page(viewport={"width": 1280, "height": 900}, color_scheme="light")
        page.goto(report.resolve().as_uri())
        keep(page.screenshot(), out / "report.png")
        differs = page.locator("details.prompt[open]").first
        keep(differs.screenshot(), out / "divergence.png")
        browser.close()


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
