"""Makes docs/pictures/NAME.png, what an agent sees and says: `python scripts/environment_pictures.py`.

The expert plays the beginning of a training task. It needs Chromium, and BabyAI its extra.
"""

from __future__ import annotations

import base64
import io
import re
import tempfile
from html import escape
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
from PIL import Image, ImageChops
from site_pictures import DOCS, picture

WIDTH, HEIGHT, LONGEST = 900, 1400, 420
SHOWN: dict[str, tuple[str, dict[str, Any], int]] = {
    "sokoban": ("CRBC-Sokoban-v0", {"observation": "rgb"}, 3),
    "alfworld": ("CRBC-ALFWorld-v0", {"rooms": "small"}, 3),
    "webshop": ("CRBC-WebShop-v0", {}, 3),
    "frozenlake": ("CRBC-FrozenLake-v0", {"slippery": True}, 3),
    "babyai": ("CRBC-BabyAI-v0", {"render_mode": "rgb_array"}, 3),
}
"""Id, arguments, and the task that is played."""
STYLE = """body { margin: 0; padding: 14px; width: 872px; font: 15px system-ui, sans-serif; color: #1b1f24 }
h1 { font-size: 17px; margin: 0 0 10px } table { border-collapse: collapse; width: 100% }
td { vertical-align: top; padding: 7px 8px; border-top: 1px solid #d0d7de }
pre { margin: 0; white-space: pre-wrap; font-size: 13px }
img { display: block; height: 150px; image-rendering: pixelated; margin-bottom: 4px }
code { color: #57606a; font-size: 12px } .said { width: 34%; } b { color: #1a5fa8 }"""


def image(frame: Any) -> str:
    memory = io.BytesIO()
    Image.fromarray(frame).save(memory, "PNG")
    return f"<img src='data:image/png;base64,{base64.b64encode(memory.getvalue()).decode()}'>"


def page(env_id: str, kwargs: dict[str, Any], task: int) -> str:
    """Four situations of an episode, with the anchor of each and what the expert says there."""
    made: Any = gymnasium.make(f"crbc_envs:{env_id}", split="train", **kwargs).unwrapped
    observation, info = made.reset(seed=0, options={"task": task})
    expert, rows = made.expert(np.random.default_rng(0)), ""
    head = f"<h1>{escape(env_id)}: {escape(info['task'])}</h1>"
    for _ in range(4):
        text = "" if isinstance(observation, np.ndarray) else observation
        frame = observation if text == "" else made.render() if made.render_mode == "rgb_array" else None
        seen = (
            "" if frame is None else image(frame)
        ) + f"<pre>{escape(text[:LONGEST])}{'...' * (len(text) > LONGEST)}</pre>"
        reply = expert(observation, info)
        said = re.sub(r"&lt;action&gt;(.*?)&lt;/action&gt;", r"<br><b>\1</b>", escape(reply))
        rows += f"<tr><td>{seen}<code>anchor {info['anchor']}</code></td><td class='said'>{said}</td></tr>"
        observation, _, terminated, truncated, info = made.step(reply)
        if terminated or truncated:
            break
    made.close()
    return f"<!doctype html><meta charset='utf-8'><style>{STYLE}</style>{head}<table>{rows}</table>"


def main() -> None:
    (DOCS / "pictures").mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        for name, shown in SHOWN.items():
            path = Path(folder, "shown.html")
            path.write_text(page(*shown), encoding="utf-8")
            taken = picture(path.as_uri(), (WIDTH, HEIGHT), Path(folder))
            box = ImageChops.difference(taken, Image.new("RGB", taken.size, "#fff")).getbbox()
            assert box is not None
            taken = taken.crop((0, 0, WIDTH, min(box[3] + 14, HEIGHT)))
            taken.quantize(64, dither=Image.Dither.NONE).save(DOCS / "pictures" / f"{name}.png", optimize=True)


if __name__ == "__main__":
    main()
