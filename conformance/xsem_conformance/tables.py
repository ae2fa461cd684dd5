"""Files with tables of one name: those of waivers and of baselines."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

__all__ = ["read_tables"]


def read_tables(path: Path, name: str, refused: type[ValueError]) -> list[dict[str, Any]]:
    """Read the tables ``[[name]]`` of a file, or raise `refused`."""
    try:
        read = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise refused(f"{path}: {error}") from error
    listed = read.pop(name, [])
    if read or not isinstance(listed, list) or not all(isinstance(each, dict) for each in listed):
        # A misspelled table name must not result in a file without entries.
        raise refused(f"{path}: only tables [[{name}]] are allowed, nothing else")
    return listed
