"""Check the built documentation site: ``python tools/site_check.py FOLDER``."""

# MkDocs checks the links of Markdown. This tool reads the HTML, so it also checks links from docstrings and templates,
# and finds Markdown that the site shows as text.

from __future__ import annotations

import re
import sys
import tomllib
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Final
from urllib.parse import unquote, urlsplit

ROOT: Final = Path(__file__).parents[1]
_LOADED: Final = {"script": "src", "img": "src", "link": "href", "iframe": "src", "source": "src"}
_UNRENDERED: Final = re.compile(r"^\s*([-*] |1\. |\||:::|```)", re.MULTILINE)
_ELEMENT: Final = "\0"   # the start of an element: a number in bold is not the number of a list
_CODE: Final = {"code", "pre"}


class _Page(HTMLParser):
    """What one page links to, loads and shows."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.anchors: set[str] = set()
        self.links: list[str] = []
        self.loads: list[str] = []
        self.paragraphs: list[str] = []
        self._in_paragraph = False
        self._in_code = 0
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Note the anchors, links and loaded files of an element."""
        values = {name: value or "" for name, value in attrs}
        self.anchors |= {values[name] for name in ("id", "name") if name in values}
        if tag == "a" and "href" in values:
            self.links.append(values["href"])
        if tag in _LOADED and _LOADED[tag] in values and values.get("rel") not in ("canonical", "prev", "next"):
            self.loads.append(values[_LOADED[tag]])
        if tag == "p":
            self._in_paragraph = True
            self.paragraphs.append("")
        elif self._in_paragraph:
            self.paragraphs[-1] += _ELEMENT
        self._in_code += tag in _CODE

    def handle_endtag(self, tag: str) -> None:
        """Note the end of a paragraph and of code."""
        self._in_paragraph &= tag != "p"
        self._in_code -= tag in _CODE

    def handle_data(self, data: str) -> None:
        """Note the text of a paragraph. Code counts as one letter."""
        if self._in_paragraph:
            self.paragraphs[-1] += "x" if self._in_code else data


def findings(site: Path, source: str, root: Path = ROOT) -> Iterator[str]:
    """Yield a line for each defect of a site."""
    # `source` is the address of the repository, and a link to one of its files must name a file of `root`.
    pages = {path: _Page(path.read_text(encoding="utf-8")) for path in sorted(site.rglob("*.html"))}
    if not pages:
        yield f"{site}: no page"
    for path, page in pages.items():
        name = path.relative_to(site).as_posix()
        # The error page has absolute links, because a server shows it at any address.
        for link in () if name == "404.html" else page.links:
            if problem := _problem(link, path, pages, source, root):
                yield f"{name}: {link}: {problem}"
        for loaded in page.loads:
            if urlsplit(loaded).netloc:
                yield f"{name}: loads {loaded} from the network"
        for text in page.paragraphs:
            if match := _UNRENDERED.search(text):
                yield f"{name}: Markdown in a paragraph: {text[match.start():].strip()[:60]!r}"


def _problem(link: str, path: Path, pages: dict[Path, _Page], source: str, root: Path) -> str:
    parts = urlsplit(link)
    if link.startswith(f"{source}/") and (match := re.match(r"(?:blob|tree|raw)/main/(.*)", parts.geturl()[
            len(source) + 1:].partition("#")[0])):
        return "" if (root / unquote(match[1])).exists() else "the repository does not have this file"
    if parts.scheme or parts.netloc:
        return ""
    target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
    if target.is_dir():
        target /= "index.html"
    if not target.is_file():
        return "the site does not have this file"
    if parts.fragment and target in pages and unquote(parts.fragment) not in pages[target].anchors:
        return "the page does not have this anchor"
    return ""


def main() -> int:
    """Print the findings; 1 if there is any."""
    site = Path(sys.argv[1]).resolve()
    with (ROOT / "pyproject.toml").open("rb") as file:
        source = tomllib.load(file)["project"]["urls"]["Source"]
    found = list(findings(site, source))
    print("\n".join(found) or f"{len(list(site.rglob('*.html')))} pages in {site}: every link works")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
