"""The frames, the filter, and the contact sheet."""

from __future__ import annotations

import io
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

from xsem.cli.files import CannotWriteError

__all__ = ["contact_sheet", "draw", "filter_in_place", "format_of"]

# The sheet, in pixels. Shown 800 pixels wide, its text is 15 pixels high.
_WIDTH: Final = 1200
_COLUMNS: Final = 3
_HIGHEST: Final = 570
_GAP: Final = 15
_TITLE: Final = 34
_TEXT: Final = 22
_INK: Final = (225, 225, 225)
_GOOD: Final = (120, 220, 130)
_BAD: Final = (255, 120, 110)


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
    """Emboss the colours, with operations that NumPy, CuPy and torch share."""
    # The operands are halved first: the results stay in 0 … 255, so the libraries' rules for overflow do not matter.
    frame[:, 5:, :3] = (frame[:, 5:, :3] >> 1) + 128 - (frame[:, :-5, :3] >> 1)


def format_of(path: Path) -> str:
    """Return Pillow's name for the format of a file suffix."""
    from PIL import Image

    Image.init()
    found = Image.registered_extensions().get(path.suffix.lower(), "")
    try:
        Image.new("RGB", (1, 1)).save(io.BytesIO(), found)
    except Exception as error:  # each format raises its own errors; Pillow knows some formats by name only
        raise CannotWriteError(f"{path} cannot be written: Pillow writes no pictures with the suffix {path.suffix!r}",
                               reason="cannot_write") from error
    return found


def contact_sheet(
    samples: Sequence[tuple[int, Any, Any, str]], file_format: str, *, title: str, good: bool, notes: Sequence[str]
) -> bytes:
    """Return an encoded picture: a title, notes, and for each frame the drawn pixels above the found ones."""
    from PIL import Image, ImageDraw, ImageFont

    large, small = ImageFont.load_default(_TITLE), ImageFont.load_default(_TEXT)
    measure = ImageDraw.Draw(Image.new("RGB", (1, 1)))
    lines = [line for note in notes for line in _broken(note, lambda text: measure.textlength(text, small))]
    head = _GAP + _TITLE + _GAP // 2 + len(lines) * (_TEXT + _GAP // 2) + _GAP
    height, width = samples[0][1].shape[:2] if samples else (1, 1)
    across = (_WIDTH - _GAP) // _COLUMNS - _GAP
    scale = min(across / width, _HIGHEST / height)
    tile = (max(1, round(width * scale)), max(1, round(height * scale)))
    band = 2 * (tile[1] + _TEXT + _GAP)   # a frame as drawn and as found
    bands = -(-len(samples) // _COLUMNS)
    sheet = Image.new("RGB", (_WIDTH, head + bands * (band + _GAP)), (24, 24, 28))
    pen = ImageDraw.Draw(sheet)
    pen.text((_GAP, _GAP), title, fill=_GOOD if good else _BAD, font=large)
    for number, line in enumerate(lines):
        pen.text((_GAP, _GAP + _TITLE + _GAP // 2 + number * (_TEXT + _GAP // 2)), line, fill=_INK, font=small)
    for place, (number, before, after, found) in enumerate(samples):
        left = _GAP + place % _COLUMNS * (across + _GAP)
        for row, (what, pixels) in enumerate((("drawn", before), (found, after))):
            top = head + place // _COLUMNS * (band + _GAP) + row * band // 2
            pen.text((left, top), f"frame {number}, {what}", fill=_INK, font=small)
            picture = Image.fromarray(pixels[..., :3].copy())
            # An enlarged pixel stays a square: a wrong pixel can be seen.
            sheet.paste(picture.resize(tile, Image.Resampling.NEAREST if scale > 1 else Image.Resampling.BICUBIC),
                        (left, top + _TEXT + _GAP // 2))
    encoded = io.BytesIO()
    sheet.save(encoded, file_format)
    return encoded.getvalue()


def _broken(text: str, length: Callable[[str], float]) -> list[str]:
    """Return the lines of a text, none wider than the sheet if its words permit."""
    lines: list[str] = []
    for word in text.split():
        if lines and length(f"{lines[-1]} {word}") <= _WIDTH - 2 * _GAP:
            lines[-1] += f" {word}"
        else:
            lines.append(word)
    return lines
