"""Rich's console, configured for text from drivers."""

from __future__ import annotations

from typing import Any

from rich.console import Console

__all__ = ["console"]


def console(**options: Any) -> Console:
    """Return a console that shows text unchanged.

    By default Rich interprets ``[red]`` in a table's cell as a style and ``:x:`` as an emoji. The options of `print`
    do not apply to a table's cells.
    """
    return Console(highlight=False, markup=False, emoji=False, **options)
