"""The frames, the filter, and the contact sheet."""

from __future__ import annotations

import io
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from xsem.cli.files import CannotWriteError

__all__ = ["contact_sheet", "draw", "filter_in_place", "format_of"]


def draw(frame: int, shape: tuple[int, int, int]) -> Any:
    """Return frame number `frame` as a uint8 array: moving rings over a gradient, different in every frame."""
    import numpy as np

    height, width, _ = shape
    y, x = np.mgrid[0:height, 0:width].astype(np.int32)
    cx = width // 2 + (width // 3) * ((frame * 7) % 41 - 20) // 20
    cy = height // 2 + (height // 4) * ((frame * 5) % 31 - 15) // 15
    rings = ((x - cx) ** 2 + (y - cy) ** 2) // max(1, height // 2) + 5 * frame
    image = np.empty(shape, np.uint8)
    image[..., 0] = (rings & 0x7F) + (x * 127 // width)
    image[..., 1] = (rings >> 1) & 0xFF
    image[..., 2] = (y * 200 // height + 3 * frame) & 0xFF
    # Every row contains the frame's number, so that even the frames of a small picture differ.
    image[..., 3] = 255 - frame % 251
    return image


def filter_in_place(frame: Any) -> None:
    """Emboss the colours, with operations that NumPy, CuPy and torch share.

    The operands are halved first. The results stay in 0 … 255, so the libraries' rules for overflow do not matter.
    """
    frame[:, 5:, :3] = (frame[:, 5:, :3] >> 1) + 128 - (frame[:, :-5, :3] >> 1)


def format_of(path: Path) -> str:
    """Return Pillow's name for the format of a file suffix.

    Raises
    ------
    CannotWriteError
        ``cannot_write``: Pillow cannot write this format.
    """
    from PIL import Image

    Image.init()
    found = Image.registered_extensions().get(path.suffix.lower(), "")
    try:
        Image.new("RGB", (1, 1)).save(io.BytesIO(), found)
    except Exception as error:  # each format raises its own errors; Pillow knows some formats by name only
        raise CannotWriteError(f"{path} cannot be written: Pillow writes no pictures with the suffix {path.suffix!r}",
                               reason="cannot_write") from error
    return found


def contact_sheet(samples: Sequence[tuple[int, Any, Any, str]], file_format: str) -> bytes:
    """Return an encoded picture with one column per frame: the drawn pixels above the found ones.

    Parameters
    ----------
    samples : sequence of (int, array, array, str)
        Number of the frame, pixels as drawn, pixels as found, and the caption of the found pixels.
    file_format : str
        Pillow's name of the format, from `format_of`.

    Raises
    ------
    OSError, ValueError
        The format does not support a picture of this size.
    """
    from PIL import Image, ImageDraw

    columns = max(1, len(samples))
    height, width = samples[0][1].shape[:2] if samples else (1, 1)
    scale = min(1.0, 320 / width)
    tile = (max(1, round(width * scale)), max(1, round(height * scale)))
    gap, line = 8, 18
    sheet = Image.new("RGB", (gap + columns * (tile[0] + gap), 2 * (tile[1] + line + gap) + gap), (24, 24, 28))
    pen = ImageDraw.Draw(sheet)
    for column, (number, before, after, found) in enumerate(samples):
        left = gap + column * (tile[0] + gap)
        for row, (what, pixels) in enumerate((("drawn", before), (found, after))):
            top = gap + row * (tile[1] + line + gap)
            pen.text((left, top), f"frame {number} {what}", fill=(220, 220, 220))
            sheet.paste(Image.fromarray(pixels[..., :3].copy()).resize(tile), (left, top + line))
    encoded = io.BytesIO()
    sheet.save(encoded, file_format)
    return encoded.getvalue()
