"""Sokoban frames, as gym-sokoban draws them: sixteen by sixteen pixel tiles, and whole boards of them.

The tiles are gym-sokoban's (mpSchrader/gym-sokoban, MIT; see NOTICE).
"""

from __future__ import annotations

from functools import cache
from math import sqrt
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

Image = NDArray[np.uint8]

TILE = 16


@cache
def atlas() -> Image:
    """The seven tiles by tile code, shape (7, 16, 16, 3), read-only."""
    tiles: Image = np.load(Path(__file__).with_name("atlas.npy"), allow_pickle=False)
    tiles.setflags(write=False)
    return tiles


def render(tiles: NDArray[np.uint8]) -> Image:
    """The frame of a board of tile codes: (H, W) in, (16 H, 16 W, 3) out, a fresh array.

    Byte for byte gym-sokoban's `room_to_rgb` of the same state.
    """
    height, width = tiles.shape
    return atlas()[tiles].transpose(0, 2, 1, 3, 4).reshape(height * TILE, width * TILE, 3)


def frame_shape(height: int, width: int, pixels: int | None = None) -> tuple[int, int, int]:
    """The shape of a board's frame; with `pixels`, of one resized to `pixels` squared in area, proportions kept."""
    high, wide = height * TILE, width * TILE
    if pixels is not None:
        factor = sqrt(pixels**2 / (high * wide))
        high, wide = max(1, int(high * factor)), max(1, int(wide * factor))
    return high, wide, 3


def resize(frame: Image, shape: tuple[int, int, int]) -> Image:
    """A frame resized as the paper's code family (verl-agent) resizes it for its vision model: Pillow, bicubic.

    Raises `ModuleNotFoundError`, saying how to get it, where Pillow is not installed.
    """
    if frame.shape == shape:
        return frame
    try:
        from PIL import Image as Pillow
    except ModuleNotFoundError as missing:
        raise ModuleNotFoundError("pixels=... resizes frames with Pillow: pip install pillow") from missing
    return np.array(Pillow.fromarray(frame).resize((shape[1], shape[0]), Pillow.Resampling.BICUBIC))
