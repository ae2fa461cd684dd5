"""Links of a Markdown page on the documentation site."""

# A page is read in two places. In the repository, its links are relative to its file. On the site, a link to a page of
# the site is relative to that page, and a link to another file is the address of the file in the repository.

from __future__ import annotations

import posixpath
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

__all__ = ["Links", "anchors", "separated", "without_code"]

_FENCE: Final = re.compile(r"^ *(```+|~~~+)")
_SPAN: Final = re.compile(r"(`+)(?!`).*?(?<!`)\1(?!`)", re.DOTALL)
_TARGET: Final = re.compile(r"(?<=\])\((?![a-z][a-z0-9+.-]*:|#)([^()\s#]+)(#[^()\s]*)?\)")
_HEADING: Final = re.compile(r"^#{1,6} +(.*?)(?: +#+)?$")
_ITEM: Final = re.compile(r"^ *(?:[-*+]|[0-9]+\.) ")
_PICTURES: Final = (".png", ".svg", ".webp", ".jpg", ".gif")


def _parts(text: str) -> Iterator[tuple[bool, str]]:
    """Yield (is code, text) for the fenced blocks and for the text between them."""
    lines: list[str] = []
    end = ""
    for line in text.splitlines(keepends=True):
        fence = _FENCE.match(line)
        if not end and fence:
            yield False, "".join(lines)
            lines, end = [line], fence[1]
        elif end and fence and fence[1].startswith(end) and line.strip() == fence[1]:
            yield True, "".join([*lines, line])
            lines, end = [], ""
        else:
            lines.append(line)
    yield bool(end), "".join(lines)


def without_code(text: str, change: Callable[[str], str]) -> str:
    """Return a Markdown text with `change` applied to the parts that are not code."""
    done = []
    for is_block, part in _parts(text):
        if is_block:
            done.append(part)
            continue
        place = 0
        for span in _SPAN.finditer(part):
            done += [change(part[place:span.start()]), span[0]]
            place = span.end()
        done.append(change(part[place:]))
    return "".join(done)


def _slug(heading: str) -> str:
    return re.sub(r"[^\w\- ]", "", heading.strip().lower()).replace(" ", "-")


def anchors(text: str) -> set[str]:
    """Return the anchors of the headings of a Markdown text, as the repository's viewer makes them."""
    found: set[str] = set()
    for is_block, part in _parts(text):
        for line in () if is_block else part.splitlines():
            if match := _HEADING.match(line):
                base = slug = _slug(re.sub(r"\]\([^)]*\)", "", match[1]))
                count = 0
                while slug in found:
                    count += 1
                    slug = f"{base}-{count}"
                found.add(slug)
    return found


def separated(text: str) -> str:
    """Return a Markdown text with a blank line between the last paragraph of a list item and the next item."""
    # Python-Markdown takes the next item for a part of the paragraph, and the repository's viewer does not.
    done = []
    for is_block, part in _parts(text):
        first = ""   # of the paragraph
        for line in part.splitlines(keepends=True):
            if not is_block and first.startswith(" ") and _ITEM.match(line) and not _ITEM.match(first):
                done.append("\n")
                first = line
            first = "" if not line.strip() else first or line
            done.append(line)
    return "".join(done)


@dataclass(frozen=True)
class Links:
    """The places of pages and files."""

    root: Path   # of the repository
    source: str   # address of the repository
    ref: str   # its branch or tag
    pages: Mapping[str, str]   # place on the site of each page from outside docs/, by its path in the repository

    def on_site(self, text: str, file: str, page: str, complain: Callable[[str], None]) -> str:
        """Return a Markdown text, from `file` in the repository, with links for its page on the site."""
        # `complain` is called with a message for each link to a missing file or heading in the repository.
        def target(link: re.Match[str]) -> str:
            path = posixpath.normpath(posixpath.join(posixpath.dirname(file), link[1]))
            return f"({self._address(path, link[2] or '', page, complain)})"

        return without_code(text, lambda part: _TARGET.sub(target, part))

    def _address(self, path: str, anchor: str, page: str, complain: Callable[[str], None]) -> str:
        place = self.pages.get(path) or (path.removeprefix("docs/") if path.startswith("docs/") else None)
        if place is not None and not (self.root / path).is_dir():   # MkDocs checks this link
            return posixpath.relpath(place, posixpath.dirname(page) or ".") + anchor
        there = self.root / path
        if path.startswith("..") or not there.exists():
            complain(f"link to {path}, which does not exist in the repository")
        elif anchor and (there.suffix != ".md" or anchor[1:] not in anchors(there.read_text(encoding="utf-8"))):
            complain(f"link to {path}{anchor}: the file does not have this heading")
        kind = "tree" if there.is_dir() else "raw" if there.suffix in _PICTURES else "blob"
        return f"{self.source}/{kind}/{self.ref}/{path}{anchor}"
