"""The records as pictures: a panel per group, a bar per way, whiskers from the 10th to the 90th percentile."""

# The picture is for readers without knowledge of xsem and CUDA. Shown 800 pixels wide, its text is 14 pixels high. A
# line through bars is their baseline: the driver without xsem, from Python. Pillow draws the picture, as in the demo.

from __future__ import annotations

import json
from itertools import groupby
from pathlib import Path
from typing import Any, Final

from PIL import Image, ImageDraw, ImageFont

from bench import hand_over_ways
from bench.copies import PLAIN
from bench.images import BY_HAND
from bench.objects import BESIDE, IMPORT, IMPORT_DOCUMENTED
from bench.renderer import AFTER, ALONE, BEFORE, HOST
from bench.tensors import NUMPY, TORCH
from bench.waits import NONE_PENDING, ON_DEVICE, ON_HOST
from bench.ways import C_LOOP, DOCUMENTED, REUSED, XSEM

__all__ = ["pictures"]

_WIDTH: Final = 1200
_NAMES: Final = 520      # left edge of the bars
_FIGURES: Final = 250    # width of the figures behind the longest bar
_TEXT: Final = 21
_TITLE: Final = 28
_LINE: Final = 30
_GAP: Final = 14
_MARGIN: Final = 24
_PAPER, _INK, _FAINT = (255, 255, 255), (34, 34, 34), (120, 120, 120)
_GREY, _BLUE, _RED, _ROSE, _GREEN = (187, 187, 187), (68, 119, 170), (238, 102, 119), (245, 178, 187), (34, 136, 51)
_PURE: Final = ", pure Python"

# The first of these ways in a series is its baseline.
_BASELINES: Final = (REUSED, DOCUMENTED, C_LOOP, PLAIN, BY_HAND, ON_HOST, NONE_PENDING, ALONE, NUMPY, TORCH,
                     hand_over_ways.BY_HAND)

# The words and the colour in the picture for each way in the record. Other ways keep their names.
_WORDS: Final = {
    C_LOOP: ("the driver alone, in C", _GREY),
    DOCUMENTED: ("by hand in Python, as documented", _BLUE),
    REUSED: ("by hand in Python, tuned", _BLUE),
    XSEM: ("xsem", _RED),
    BY_HAND: ("by hand in Python, cuMemcpy2DAsync", _BLUE),
    "append_copy": ("xsem, append_copy", _RED),
    IMPORT: ("xsem, import and release", _RED),
    IMPORT_DOCUMENTED: ("by hand in Python, import and destroy", _BLUE),
    ON_DEVICE: ("the GPU waits for the frame", _RED),
    ON_HOST: ("the host waits for the frame", _BLUE),
    ALONE: ("the frame alone", _GREY),
    NUMPY: (NUMPY, _GREY), TORCH: (TORCH, _GREY),
    hand_over_ways.BY_HAND: ("by hand, words that the GPUs poll", _BLUE),
    hand_over_ways.XSEM: ("xsem, timeline in host memory", _RED),
    hand_over_ways.EXTERNAL: ("xsem, timeline of Vulkan", _RED),
    hand_over_ways.IPC_EVENTS: ("by hand, CUDA IPC events", _BLUE),
    hand_over_ways.FLAGS: ("by hand, the hosts synchronise", _BLUE),
    HOST: ("the host waits, then the GPU reads", _BLUE),
    AFTER: ("the GPU waits, appended after the frame", _RED),
    BEFORE: ("the GPU waits, appended before the frame", _RED),
}
_GROUPS: Final = {
    "signal": "Let the GPU signal semaphores", "wait": "Let the GPU wait for semaphores",
    "frame": "Operations in a frame of an application", "import": "Import an object of another API",
    "release": "Release the imported object", "round trip": "Host signals, GPU answers, host waits for the answer",
    "copy": "Copy memory", "image copy": "Copy an image",
    "tensor": "Hand mapped memory to a library of arrays",
    "live objects": "A signal or an import with many live objects",
    "waits": "Wait on the GPU, and beside pending waits",
    "renderer": "A frame of a renderer, read by the GPU",
    "hand-over": "One turn of two processes",
}
_BETTER: Final = {"us": "microseconds, shorter is better", "ns": "nanoseconds, shorter is better",
                  "GB/s": "GB/s, longer is better"}
_ABOUT: Final = (
    "xsem lets GPU work of one program wait for work of another.",
    "Each bar is the time of one operation, or the speed of one copy.",
    '"By hand": the same driver calls without xsem and its checks.',
    "Vertical line: the baseline. 1.5 x: one and a half times the baseline.",
    "A line at a bar's end spans 80 % of the repetitions.",
)
_HAND_OVER_RECORDS: Final = {
    "one GPU": "handover", "one GPU under MPS": "handover-mps", "two GPUs": "handover-two-gpus",
}
_ABOUT_HAND_OVERS: Final = (
    "Two processes take turns: each waits, perhaps sets 4 bytes on its GPU, and signals.",
    "Each bar is the time of one turn. All waits are on the GPU, except in the last two ways:",
    "there the two processes poll, with 100 % of a core each.",
    "Vertical line: the baseline. 1.5 x: one and a half times the baseline.",
)


def pictures(folder: Path, to: Path) -> list[Path]:
    """Draw the records of one folder as PNG files of another folder, named after the first. Return the files."""
    made = []
    whole = _read(folder / "benchmarks.json")
    if whole is not None:
        title = f"xsem {whole['packages']['xsem']} on {whole['device']}, driver {whole['driver_version']}"
        series = [{**each, "ways": _with_pure(each, whole)} for each in whole["series"]]
        made.append(_draw(series, title, _ABOUT, to / f"{folder.name}-benchmarks.png"))
    found = {label: _read(folder / f"{name}.json") for label, name in _HAND_OVER_RECORDS.items()}
    series = [{"group": "hand-over", "label": f"{label}, {part}", "unit": "us", "ways": {
        way: dict.fromkeys(("median", "low", "high"), each["p50"]) for way, each in ways.items()}}
        for label, record in found.items() if record is not None for part, ways in record["hand_over_us"].items()]
    if series:
        device = next(record["device"] for record in found.values() if record is not None)
        made.append(_draw(series, f"Hand-overs between two processes on {device}", _ABOUT_HAND_OVERS,
                          to / f"{folder.name}-handover.png"))
    return made


def _read(path: Path) -> dict[str, Any] | None:
    found: dict[str, Any] | None = json.loads(path.read_text()) if path.exists() else None
    return found


def _draw(series: list[dict[str, Any]], title: str, about: tuple[str, ...], path: Path) -> Path:
    small, large = ImageFont.load_default(size=_TEXT), ImageFont.load_default(size=_TITLE)
    groups = [(name, list(each)) for name, each in groupby(series, key=lambda each: each["group"])]
    rows = sum(len(each["ways"]) + 1 for each in series)
    height = 2 * _MARGIN + (3 + len(about)) * _LINE + rows * _LINE + len(groups) * (2 * _LINE + _GAP) \
        + len(series) * _GAP
    image = Image.new("RGB", (_WIDTH, height), _PAPER)
    pen = ImageDraw.Draw(image)
    y = _MARGIN
    pen.text((_MARGIN, y), title, fill=_INK, font=large)
    y += 2 * _LINE
    for line in about:
        pen.text((_MARGIN, y), line, fill=_INK, font=small)
        y += _LINE
    y += _LINE
    for name, members in groups:
        unit = members[0]["unit"]
        # Each panel has its own scale, because copies and signals have different units.
        most = max(figure["median"] for each in members for figure in each["ways"].values()) * 1.15 or 1.0
        better = _BETTER[unit]
        pen.text((_MARGIN, y), f"{_GROUPS[name]}  ({better})", fill=_INK, font=large)
        y += _LINE + _GAP
        for each in members:
            pen.text((_MARGIN, y), each["label"], fill=_FAINT, font=small)
            y += _LINE
            ways = each["ways"]
            scale = (_WIDTH - _NAMES - _FIGURES - _MARGIN) / most
            for way, figure in _by_baseline(ways).items():
                words, colour = _words(way)
                baseline = ways[_baseline(way, ways)]["median"]
                mark = _NAMES + min(baseline, most) * scale
                end, low, high = (_NAMES + min(figure[part], most) * scale for part in ("median", "low", "high"))
                middle = y + _LINE // 2
                pen.text((_MARGIN + 16, y + 1), words, fill=_INK, font=small)
                pen.rectangle((_NAMES, y + 3, max(end, _NAMES + 1), y + _LINE - 4), fill=colour)
                pen.line((low, middle, high, middle), fill=_INK)
                for x in (low, high):
                    pen.line((x, middle - 3, x, middle + 3), fill=_INK)
                ratio = "" if baseline in (0, figure["median"]) else f"  {figure['median'] / baseline:.2g} x"
                pen.text((max(high, end, mark) + 10, y + 1), f"{figure['median']:,.2f} {unit}{ratio}", fill=_INK,
                         font=small)
                pen.line((mark, y - 2, mark, y + _LINE + 2), fill=_INK, width=2)
                y += _LINE
            y += _GAP
        y += _GAP
    image.crop((0, 0, _WIDTH, y + _MARGIN)).quantize(64).save(path, optimize=True)
    return path


def _with_pure(each: dict[str, Any], record: dict[str, Any]) -> dict[str, Any]:
    """Return the ways of a series, and the ways of xsem in pure Python."""
    ways: dict[str, Any] = dict(each["ways"])
    for other in (record["pure"] or {"series": ()})["series"]:
        if (other["group"], other["label"]) == (each["group"], each["label"]):
            ways |= {f"{way}{_PURE}": figure for way, figure in other["ways"].items() if _is_xsem(way)}
    return ways


def _by_baseline(ways: dict[str, Any]) -> dict[str, Any]:
    """Return the ways in an order in which those with the same baseline are together."""
    order = list(dict.fromkeys(_baseline(way, ways) for way in ways))
    return dict(sorted(ways.items(), key=lambda each: order.index(_baseline(each[0], ways))))


def _baseline(way: str, ways: dict[str, Any]) -> str:
    """Return the way that a way is compared with: itself, if the series has no baseline."""
    if any(each in ways for each in BESIDE.values() if each != REUSED):   # a series of two operations
        known = way.removesuffix(_PURE)
        return BESIDE.get(known, known)
    return next((each for each in _BASELINES if each in ways), way)


def _is_xsem(way: str) -> bool:
    return way.partition(": ")[2].startswith("xsem")


def _words(way: str) -> tuple[str, tuple[int, int, int]]:
    known = way.removesuffix(_PURE)
    words, colour = _WORDS.get(known, (known.partition(": ")[2] or known, _RED if _is_xsem(known) else _GREEN))
    return (f"{words}{_PURE}", _ROSE) if known != way else (words, colour)
