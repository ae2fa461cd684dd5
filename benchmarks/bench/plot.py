"""The series as one picture: a panel per group, a bar per way, whiskers from the 10th to the 90th percentile.

Pillow draws it, because xsem needs Pillow anyway.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from pathlib import Path
from typing import Final

from PIL import Image, ImageDraw, ImageFont

from bench.timing import Series

__all__ = ["plot"]

_WIDTH: Final = 1280
_NAMES: Final = 430      # left edge of the bars
_FIGURES: Final = 190    # width of the figure behind the longest bar
_LINE: Final = 20
_GAP: Final = 10
_MARGIN: Final = 24
_PAPER, _INK, _FAINT = (255, 255, 255), (34, 34, 34), (120, 120, 120)
_COLOURS: Final = ((68, 119, 170), (102, 204, 238), (34, 136, 51), (204, 187, 68), (238, 102, 119), (170, 51, 119),
                   (187, 187, 187))


def plot(series: Sequence[Series], title: str, path: Path) -> None:
    """Write a PNG."""
    small, large = ImageFont.load_default(size=13), ImageFont.load_default(size=18)
    ways = sorted({way for each in series for way in each.ways})
    colours = {way: _COLOURS[index % len(_COLOURS)] for index, way in enumerate(ways)}
    groups = [(name, list(each)) for name, each in groupby(series, key=lambda each: each.group)]
    rows = sum(len(each.ways) + 1 for each in series)
    height = 2 * _MARGIN + 2 * _LINE + rows * _LINE + len(groups) * (2 * _LINE + _GAP) + len(series) * _GAP
    image = Image.new("RGB", (_WIDTH, height), _PAPER)
    pen = ImageDraw.Draw(image)
    y = _MARGIN
    pen.text((_MARGIN, y), title, fill=_INK, font=large)
    y += 2 * _LINE
    for name, members in groups:
        unit = members[0].unit
        # Each panel has a scale of its own, because copies and signals do not compare.
        most = max(figure.high for each in members for figure in each.ways.values()) or 1.0
        better = "less is better" if unit == "us" else "more is better"
        pen.text((_MARGIN, y), f"{name}, {unit} ({better})", fill=_INK, font=large)
        y += 2 * _LINE
        for each in members:
            pen.text((_MARGIN, y), each.label, fill=_FAINT, font=small)
            y += _LINE
            for way, figure in each.ways.items():
                scale = (_WIDTH - _NAMES - _FIGURES - _MARGIN) / most
                end, low, high = (_NAMES + value * scale for value in (figure.median, figure.low, figure.high))
                middle = y + _LINE // 2
                pen.text((_MARGIN + 16, y + 1), way, fill=_INK, font=small)
                pen.rectangle((_NAMES, y + 3, max(end, _NAMES + 1), y + _LINE - 4), fill=colours[way])
                pen.line((low, middle, high, middle), fill=_INK)
                for x in (low, high):
                    pen.line((x, middle - 3, x, middle + 3), fill=_INK)
                pen.text((max(high, end) + 8, y + 1), f"{figure.median:,.2f}", fill=_INK, font=small)
                y += _LINE
            y += _GAP
        y += _GAP
    image.save(path)
