"""Draws Sokoban frames like gym-sokoban, from tiles of sixteen by sixteen pixels.

The tiles are gym-sokoban's (mpSchrader/gym-sokoban, MIT; see NOTICE).
"""

from __future__ import annotations

from functools import cache
from math import sqrt
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from crbc_envs.core import aligned_empty

Image = NDArray[np.uint8]

TILE = 16


@cache
def atlas() -> Image:
    """The images of the seven tile codes, shape (7, 16, 16, 3), read-only."""
    tiles: Image = np.load(Path(__file__).with_name("atlas.npy"), allow_pickle=False)
    tiles.setflags(write=False)
    return tiles


def render(tiles: NDArray[np.uint8]) -> Image:
    """The frame of a board of tile codes: (H, W) in, a new array (16 H, 16 W, 3) out.

    It equals gym-sokoban's `room_to_rgb` of the same state, byte for byte.
    """
    height, width = tiles.shape
    return atlas()[tiles].transpose(0, 2, 1, 3, 4).reshape(height * TILE, width * TILE, 3)


class BatchRenderer:
    """Draws the frames of many boards of one width. Each equals the result of `render`.

    It copies pictures of `span` neighbouring tiles, because starting a copy costs more than its bytes. On boards up to
    `WHOLE` tiles wide, a picture is a whole row of the board. Wider boards are cut into pictures of up to three tiles,
    which are copied one pixel row at a time. A picture is drawn when it is first needed. Up to `MAX_CACHED` pictures
    are kept, or more if one call needs them.
    """

    WHOLE = 7
    MAX_CACHED = 4_096

    def __init__(self, width: int) -> None:
        self.whole = width <= self.WHOLE
        self.span = width if self.whole else next(span for span in (3, 2, 1) if width % span == 0)
        self._powers = 7 ** np.arange(self.span)
        self._clear()

    def draw(self, tiles: NDArray[np.uint8], out: Image | None = None) -> Image:
        """The frames: (N, H, W) tile codes in, (N, 16 H, 16 W, 3) out. They are written to `out` if given.

        Raises `ValueError` for an `out` of another shape or type, or one that is not C-contiguous.
        """
        count, height, width = tiles.shape
        shape = (count, height * TILE, width * TILE, 3)
        if out is None:
            out = aligned_empty(shape, np.uint8)
        elif out.shape != shape or out.dtype != np.uint8 or not out.flags.c_contiguous:
            raise ValueError(f"out must be a C-contiguous uint8 array of shape {shape}, got {out.dtype} {out.shape}")
        if not count:
            return out
        numbers = self._numbers(tiles.reshape(-1, self.span) @ self._powers)
        if self.whole:
            pictures = self._pictures.reshape(len(self._pictures), -1)
        else:
            pictures = self._pictures.reshape(-1, self.span * TILE * 3)
            by_row = numbers.reshape(count, height, 1, -1) * TILE + np.arange(TILE)[:, None]
            numbers = by_row.reshape(-1)
        # Only with mode="clip" does numpy write into `out` directly.
        np.take(pictures, numbers, axis=0, out=out.reshape(len(numbers), -1), mode="clip")
        return out

    def _clear(self) -> None:
        self._number = np.full(7**self.span, -1, dtype=np.intp)
        self._pictures = np.empty((0, TILE, self.span * TILE * 3), dtype=np.uint8)

    def _numbers(self, codes: NDArray[np.intp]) -> NDArray[np.intp]:
        """The picture number of each code. New pictures are drawn."""
        numbers = self._number[codes]
        if (numbers >= 0).all():
            return numbers
        if len(self._pictures) > self.MAX_CACHED:
            self._clear()
        new = np.unique(codes[self._number[codes] < 0])
        self._number[new] = len(self._pictures) + np.arange(len(new))
        tiles = new[:, None] // self._powers % 7
        painted = atlas()[tiles].transpose(0, 2, 1, 3, 4).reshape(len(new), TILE, -1)
        pictures = aligned_empty((len(self._pictures) + len(new), *painted.shape[1:]), np.uint8)
        self._pictures = np.concatenate([self._pictures, painted], out=pictures)
        return self._number[codes]


def frame_shape(height: int, width: int, pixels: int | None = None) -> tuple[int, int, int]:
    """The shape of a board's frame. `pixels` scales it to an area of `pixels` squared and keeps the proportions."""
    high, wide = height * TILE, width * TILE
    if pixels is not None:
        factor = sqrt(pixels**2 / (high * wide))
        high, wide = max(1, int(high * factor)), max(1, int(wide * factor))
    return high, wide, 3


def resize(frame: Image, shape: tuple[int, int, int]) -> Image:
    """Resize a frame as verl-agent does for its vision model: Pillow, bicubic."""
    if frame.shape == shape:
        return frame
    from PIL import Image as Pillow

    return np.array(Pillow.fromarray(frame).resize((shape[1], shape[0]), Pillow.Resampling.BICUBIC))
