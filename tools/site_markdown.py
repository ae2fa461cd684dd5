"""Extension of Python-Markdown for the site: lists as the repository shows them, and tables for phones."""

from __future__ import annotations

from xml.etree.ElementTree import Element

from markdown import Extension, Markdown
from markdown.blockprocessors import build_block_parser
from markdown.treeprocessors import Treeprocessor

__all__ = ["SiteExtension"]

_WIDE = 3
"""The least number of columns of a table whose rows a phone shows as blocks."""


class _Labels(Treeprocessor):
    """The title of its column, for each cell of a wide table. docs/site/extra.css shows it on a narrow screen."""

    def run(self, root: Element) -> None:
        """Set the attributes."""
        for table in root.iter("table"):
            titles = ["".join(cell.itertext()) for cell in table.iter("th")]
            if len(titles) < _WIDE:
                continue
            table.set("data-wide", "")
            for row in table.iter("tr"):
                for title, cell in zip(titles, row.findall("td"), strict=False):
                    cell.set("data-title", title)


class SiteExtension(Extension):
    """Nested lists with an indentation of two or three columns, and labelled cells."""

    # It must be the first extension, because it replaces the processors of blocks.

    def extendMarkdown(self, md: Markdown) -> None:  # noqa: N802  # a name of Python-Markdown
        """Set the least indentation of a nested block, and register the processor of tables."""
        md.tab_length = 2
        md.parser = build_block_parser(md)   # the processors of blocks read the number when they are created
        md.treeprocessors.register(_Labels(md), "xsem-labels", 5)   # after the text of the cells
