"""Makes the pictures of the web site in the documents: docs/webshop_site.png and docs/webshop_phone.png.

    python scripts/site_pictures.py

A scripted shopper does an errand in the generated shop. The pages on its way are opened in Chromium by their addresses.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path
from urllib.parse import urlencode

from PIL import Image

from crbc_envs.local_server import serving
from crbc_envs.webshop.env import WebShopEnv
from crbc_envs.webshop.expert.expert import Shopper
from crbc_envs.webshop.site.address import address
from crbc_envs.webshop.site.browser import find_program
from crbc_envs.webshop.site.server import Site, SiteServer

DOCS = Path(__file__).resolve().parents[1] / "docs"
DESKTOP, PHONE = (1200, 720), (390, 844)
GAP, BEHIND = 12, "#7d8590"


def errand(env: WebShopEnv) -> dict[str, str]:
    """The addresses of the pages of a walk that reaches the score 1 and chooses options, each of the last of its kind.

    Raises `SystemExit` if no task of the first 200 has such a walk.
    """
    for task in range(200):
        observation, info = env.reset(seed=0, options={"task": task})
        shopper, over = Shopper(15), False
        pages: dict[str, str] = {}
        while not over:
            pages["chosen" if env.session.state.options else env.session.state.kind] = address(task, env.session.state)
            observation, _, terminated, truncated, info = env.step(shopper.act(observation)[1])
            over = terminated or truncated
        pages["done"] = address(task, env.session.state)
        if info["score"] == 1 and {"chosen", "details"} <= set(pages):
            lost = f"/goal/{task}/item?{urlencode({'q': 'lamp', 'asin': 'B000000000'})}"
            return {**pages, "start": "/", "lost": lost}
    raise SystemExit("no task has a walk to show")


def picture(url: str, size: tuple[int, int], folder: Path, scale: int = 1) -> Image.Image:
    """A page as Chromium shows it, with `scale` pixels to one of `size`."""
    program = find_program("chromium") or sys.exit("the pictures need Chromium: apt-get install -y chromium")
    path = folder / "page.png"
    options = ["--headless", "--no-sandbox", "--hide-scrollbars", f"--force-device-scale-factor={scale}"]
    options += [f"--window-size={size[0]},{size[1]}"]
    subprocess.run([program, *options, f"--screenshot={path}", url], check=True, capture_output=True)
    return Image.open(path).convert("RGB")


def sheet(pages: list[Image.Image], columns: int, width: int, path: Path) -> None:
    """Put pages side by side, in a picture of that width."""
    w, h = pages[0].size
    rows = -(-len(pages) // columns)
    made = Image.new("RGB", (columns * (w + GAP) - GAP, rows * (h + GAP) - GAP), BEHIND)
    for i, page in enumerate(pages):
        made.paste(page, (i % columns * (w + GAP), i // columns * (h + GAP)))
    made = made.resize((width, made.height * width // made.width), Image.Resampling.LANCZOS)
    made.quantize(256, method=Image.Quantize.MEDIANCUT, kmeans=3, dither=Image.Dither.NONE).save(path, optimize=True)


def main() -> None:
    env = WebShopEnv()
    pages = errand(env)
    with (
        tempfile.TemporaryDirectory() as folder,
        SiteServer(Site(env.shop, env.panel)) as server,
        serving(server) as url,
    ):
        for names, size, columns, width, path in (
            (("start", "index", "results", "chosen", "done", "lost"), DESKTOP, 2, 1400, "webshop_site.png"),
            (("results", "chosen", "details", "done"), PHONE, 4, 1400, "webshop_phone.png"),
        ):
            shown = [picture(url + pages[name], size, Path(folder)) for name in names]
            sheet(shown, columns, width, DOCS / path)


if __name__ == "__main__":
    main()
