"""Links from the names of the API in the texts of the site to their sections of the reference."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Final

import api
import griffe

__all__ = ["linked", "targets"]

_DIRECTIVE: Final = re.compile(r"^::: (xsem[\w.]*)$", re.MULTILINE)
# Not in links, headings and blocks of code. Code with attributes is part of a signature.
_TOKEN: Final = re.compile(
    r"<(?P<end>/?)(?:a|autoref|pre|h[1-6])\b[^>]*>|<code>(?P<name>[A-Za-z_][\w.]*)(?:\(\))?</code>"
    r"|(?<![\w/])(?P<page>docs/[\w/-]+\.md)")


def targets(pages: Mapping[str, str]) -> dict[str, str]:
    """Return the place and the anchor of the section of each name, for the ways to write it."""
    # `pages` has the Markdown of the pages of the API by their places, with all directives. Of two equal names the
    # first counts.
    found: dict[str, str] = {}
    public = {f"{module}.{name}": thing for module, names in api.names().items() for name, thing in names.items()}
    for place, text in pages.items():
        for full in _DIRECTIVE.findall(text):
            if full in public:
                for way in _ways(full):
                    for member in ("", *_sections(public[full])):
                        found.setdefault(way + member, f"{place}#{full}{member}")
    return found


def _ways(full: str) -> Iterator[str]:
    """Yield the ways to write a name. A word of small letters could be another word."""
    yield full
    short = full.removeprefix("xsem.")
    last = short.rpartition(".")[2]
    if "." in short or "_" in short or short[:1].isupper():
        yield short
    if last[:1].isupper():
        yield last


def _sections(thing: griffe.Object) -> list[str]:
    """Return the members of a class that have a section, with a dot before each."""
    if not isinstance(thing, griffe.Class):
        return []
    return [f".{name}" for name, member in thing.members.items()
            if not name.startswith("_") and isinstance(member, griffe.Object) and member.docstring is not None]


def linked(html: str, names: Mapping[str, str], address: Callable[[str], str]) -> str:
    """Return the HTML of a page with links at the names of the API, which `targets` has found, and of pages."""
    # `address` returns the address of a target, from this page.
    depth = 0

    def token(match: re.Match[str]) -> str:
        nonlocal depth
        name = match["name"] or match["page"]
        if name is None:
            depth += -1 if match["end"] else 1
        elif not depth and name in names:
            return f'<a class="xsem-name" href="{address(names[name])}">{match[0]}</a>'
        return match[0]

    return _TOKEN.sub(token, html)
