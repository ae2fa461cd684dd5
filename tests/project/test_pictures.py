"""The picture of the model: its texts stay in their boxes in every font, and are legible on a phone."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations
from pathlib import Path
from typing import Final
from xml.etree import ElementTree as ET

import pytest
from support.paths import ROOT

MODEL: Final = ROOT / "docs" / "pictures" / "model.svg"
PHONE_PX: Final = 358
"""Width of a picture on a screen of 390 px."""
LEAST_PX: Final = 9.5
"""Least size of a font on that screen."""
_SVG: Final = "{http://www.w3.org/2000/svg}"
Box = tuple[float, float, float, float]   # left, top, right, bottom


def findings(text: str) -> Iterator[str]:
    """Yield the defects of the texts of a picture."""
    root = ET.fromstring(text)
    width, height = (float(each) for each in root.attrib["viewBox"].split()[2:])
    if (root.get("width"), root.get("height")) != (f"{width:g}", f"{height:g}"):
        yield "the size is not that of the viewBox"
    if not root.get("font-family", "").endswith("sans-serif"):
        yield "the last font is not the generic one"
    boxes = [_rectangle(each) for each in root.iter(f"{_SVG}rect")]
    places = {}
    for each in root.iter(f"{_SVG}text"):
        words = each.text or ""
        if "textLength" not in each.attrib or each.get("lengthAdjust") != "spacingAndGlyphs":
            yield f"{words}: its length depends on the font"
            continue
        if float(each.attrib["font-size"]) * PHONE_PX / width < LEAST_PX:
            yield f"{words}: too small"
        place = places[each] = _extent(each)
        # The innermost box around the middle of the text.
        middle = ((place[0] + place[2]) / 2, (place[1] + place[3]) / 2)
        around = min((box for box in [(0.0, 0.0, width, height), *boxes]
                      if box[0] <= middle[0] <= box[2] and box[1] <= middle[1] <= box[3]),
                     key=lambda box: (box[2] - box[0]) * (box[3] - box[1]))
        if not (around[0] <= place[0] and place[2] <= around[2] and around[1] <= place[1] and place[3] <= around[3]):
            yield f"{words}: leaves its box"
    for (one, first), (other, second) in combinations(places.items(), 2):
        if first[0] < second[2] and second[0] < first[2] and first[1] < second[3] and second[1] < first[3]:
            yield f"{one.text} covers {other.text}"


def _rectangle(rect: ET.Element) -> Box:
    left, top = (float(rect.get(name, 0)) for name in ("x", "y"))
    return left, top, left + float(rect.attrib["width"]), top + float(rect.attrib["height"])


def _extent(text: ET.Element) -> Box:
    length, size = float(text.attrib["textLength"]), float(text.attrib["font-size"])
    before = {"start": 0.0, "middle": 0.5, "end": 1.0}[text.get("text-anchor", "start")]
    left = float(text.attrib["x"]) - length * before
    baseline = float(text.attrib["y"])
    return left, baseline - 0.8 * size, left + length, baseline + 0.2 * size


def test_model_has_no_defect() -> None:
    assert list(findings(MODEL.read_text(encoding="utf-8"))) == []


@pytest.mark.parametrize(("old", "new", "finding"), [
    (", sans-serif", "", "the last font is not the generic one"),
    (' width="520"', "", "the size is not that of the viewBox"),
    (' textLength="46"', "", "handle: its length depends on the font"),
    ('font-size="14"', 'font-size="13"', "both sides signal it and wait for it: too small"),
    (">renderer or process<", ">x<", None),
    ('x="20" y="51"', 'x="100" y="51"', "renderer or process: leaves its box"),
    ('y="209"', 'y="199"', "Handles: type, fd, size, device UUID. covers Sent once; no pixel is sent."),
])
def test_defect_of_a_picture_is_detected(old: str, new: str, finding: str | None) -> None:
    text = MODEL.read_text(encoding="utf-8")
    assert old in text
    found = list(findings(text.replace(old, new, 1)))
    assert found == ([] if finding is None else [finding])


def test_pictures_of_documents_exist_and_are_described() -> None:
    """Every picture has an alternative text, and every file in the folder is in a document."""
    pages: list[Path] = [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]
    every = "".join(page.read_text(encoding="utf-8") for page in pages)
    assert "![](" not in every
    assert [path.name for path in MODEL.parent.iterdir() if f"pictures/{path.name})" not in every] == []
