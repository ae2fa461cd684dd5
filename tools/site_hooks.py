"""Hooks of MkDocs for the documentation site. mkdocs.yml names this file."""

from __future__ import annotations

import logging
import os
import tomllib
from fnmatch import fnmatch
from functools import cache
from pathlib import Path
from typing import Any, Final

import site_generated
import site_names
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page
from mkdocs.utils import get_relative_url
from site_links import Links, separated
from site_markdown import SiteExtension

import xsem

ROOT: Final = Path(__file__).parents[1]
PAGES: Final = {
    "README.md": "index.md", "CHANGELOG.md": "reference/changelog.md", "CONTRIBUTING.md": "project/contributing.md",
    "SECURITY.md": "project/security.md",
}
"""The pages of files outside docs/."""

FOR_BACKENDS: Final = ("reference/api/spi.md", "authoring-a-backend.md")
"""The pages for authors of backends."""
_nav: Final[list[Any]] = []
"""The navigation of this build."""
_log: Final = logging.getLogger("mkdocs.hooks.xsem")   # with --strict, a warning below "mkdocs" ends the build


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Set the address of the repository, the version and the navigation."""
    with (ROOT / "pyproject.toml").open("rb") as file:
        project = tomllib.load(file)["project"]
    config.repo_url = project["urls"]["Source"]
    config.repo_name = "Source"
    config.copyright = f"xsem {xsem.__version__}"   # at the foot of each page
    config.markdown_extensions.insert(0, SiteExtension())   # type: ignore[arg-type]
    pages = sorted(path.relative_to(ROOT / "docs").as_posix() for path in (ROOT / "docs").rglob("*.md"))
    config.nav = expanded(config.nav, pages)
    _nav[:] = config.nav
    _names.cache_clear()   # `mkdocs serve` builds again
    return config


def expanded(nav: Any, pages: list[str]) -> list[Any]:
    """Return a navigation of mkdocs.yml without globs, from the paths of all pages."""
    # An entry with a star stands for each page that matches and that no other entry names, and no earlier entry
    # matches. A title before such an entry remains if exactly one page matches.
    named = set(_named(nav))

    def entries(part: list[Any]) -> list[Any]:
        done: list[Any] = []
        for each in part:
            title, value = next(iter(each.items())) if isinstance(each, dict) else (None, each)
            if isinstance(value, list):
                below = entries(value)
                done += [{title: below}] if below else []
            elif "*" in value:
                found = [page for page in pages if page not in named and fnmatch(page, value)]
                named.update(found)
                done += [{title: found[0]}] if title is not None and len(found) == 1 else found
            else:
                done.append(each)
        return done

    return entries(nav)


def _named(nav: Any) -> list[str]:
    if isinstance(nav, str):
        return [nav]
    below = nav.values() if isinstance(nav, dict) else nav
    return [name for part in below for name in _named(part)]


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages of files outside docs/."""
    for source, place in PAGES.items():
        files.append(File.generated(config, place, content=(ROOT / source).read_text(encoding="utf-8")))
    return files


@cache
def _names(of_backends: bool) -> dict[str, str]:
    """Return the sections of the API, and the pages by their paths."""
    # `Memory` is a class of xsem, and for authors of backends one of xsem.spi.
    pages = sorted((page for page in _named(_nav) if page.startswith("reference/api/")),
                   key=lambda page: of_backends and page not in FOR_BACKENDS)   # otherwise the order of the navigation
    sections = site_names.targets({page: site_generated.filled((ROOT / "docs" / page).read_text(encoding="utf-8"),
                                                               site_generated.PARTS, _log.warning) for page in pages})
    return {f"docs/{page}": page for page in _named(_nav)} | sections


def on_page_content(html: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Link the names of the API to their sections of the reference, and the paths of pages to the pages."""
    def address(target: str) -> str:
        place, sharp, anchor = target.partition("#")
        file = files.get_file_from_path(place)
        return f"{'' if file is None else get_relative_url(file.url, page.url)}{sharp}{anchor}"

    return site_names.linked(html, _names(page.file.src_uri in FOR_BACKENDS), address)


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Fill in the generated parts, and rewrite the links that leave docs/."""
    place = page.file.src_uri
    file = f"docs/{place}" if page.file.generated_by is None else next(
        source for source, there in PAGES.items() if there == place)
    # mike sets the variable for the site of a release, whose links must outlive a change of the branch.
    ref = f"v{xsem.__version__}" if "MIKE_DOCS_VERSION" in os.environ else "main"
    links = Links(ROOT, str(config.repo_url), ref, PAGES)
    text = links.on_site(markdown, file, place, lambda message: _log.warning("%s: %s", file, message))
    return site_generated.filled(separated(text), site_generated.PARTS,
                                 lambda message: _log.warning("%s: %s", file, message))
