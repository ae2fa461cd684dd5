"""Rich's console, set up for text from drivers."""

from __future__ import annotations

from typing import Any

from rich.console import Console

__all__ = ["console"]


def console(**options: Any) -> Console:
    """Return a console that shows text as it is.

    By default Rich takes ``[red]`` in a table's cell for a style and ``:x:`` for an emoji, whatever `print` is told.
    """
    return Console(highlight=False, markup=False, emoji=False, **options)
