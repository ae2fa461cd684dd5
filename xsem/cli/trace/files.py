"""The files of a trace: found, parsed line by line, and refused in one sentence each."""

# A process can be killed while it writes, so a file may end anywhere.

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final, NamedTuple

from xsem.cli.status import UsageError
from xsem.cli.text import printable

__all__ = ["MERGED", "File", "read_files"]

MERGED: Final = "xsem merged"   # the name of the first event of a merged file
_VERSION: Final = 1


class File(NamedTuple):
    """The events of one file, which is cut if its end is missing, and the arguments of its header."""

    name: str
    events: list[dict[str, Any]]
    cut: bool
    header: dict[str, Any]


def read_files(paths: Iterable[Path]) -> list[File]:
    """Read all files, and all files of folders. Their clocks must be one."""
    found: list[File] = []
    for path in _files(paths):
        name = printable(str(path))
        events, cut = _events(path, name)
        found.append(File(name, events, cut, _header(events, name)))
        if (clash := _other_clock(found[0].header, found[-1].header)) is not None:
            raise UsageError("FILE", f"{found[0].name} and {name} are of two {clash}, whose clocks cannot be compared")
    return found


def _files(paths: Iterable[Path]) -> list[Path]:
    found: list[Path] = []
    for path in paths:
        if not path.is_dir():
            found.append(path)
            continue
        inside = [each for each in sorted(path.glob("*.json")) if not _is_merged(each)]
        if not inside:
            raise UsageError("FILE", f"{printable(str(path))} is a folder without a trace")
        found += inside
    return list(dict.fromkeys(found))


def _is_merged(path: Path) -> bool:
    try:
        with path.open("rb") as file:
            return MERGED.encode() in file.readline() + file.readline()
    except OSError:
        return False   # the reading tells why


def _events(path: Path, name: str) -> tuple[list[dict[str, Any]], bool]:
    """Return the events of a file, and whether its end is missing."""
    try:
        lines = path.read_bytes().split(b"\n")
    except OSError as error:
        raise UsageError("FILE", f"{name} cannot be read: {error.strerror or error}") from error
    while lines and not lines[-1].strip():
        lines.pop()
    if not lines:
        raise UsageError("FILE", f"{name} is empty")
    if lines[0].strip() != b"[":
        raise UsageError("FILE", f"{name} is not a trace of xsem")
    events: list[dict[str, Any]] = []
    for number, line in enumerate(lines[1:], 2):
        text = line.strip().removesuffix(b",")
        if text == b"]":
            return events, False
        last = text.endswith(b"}]")   # docs/reference/trace-format.md
        try:
            event = json.loads(text[:-1] if last else text)
        except (ValueError, RecursionError) as error:
            if number == len(lines):
                break
            raise UsageError("FILE", f"{name} is damaged: line {number} is not an event") from error
        events.append(event if isinstance(event, dict) else {})   # which the reader of the events refuses
        if last:
            return events, False
    return events, True


def _header(events: list[dict[str, Any]], name: str) -> dict[str, Any]:
    for event in events:
        if event.get("ph") != "M":
            break
        if event.get("name") == MERGED:
            raise UsageError("FILE", f"{name} is a merged trace: name the files that it was made of")
        header = event.get("args")
        if event.get("name") == "xsem" and isinstance(header, dict):
            if header.get("version") != _VERSION:
                raise UsageError("FILE", f"{name} has version {printable(str(header.get('version')))} of the format, "
                                         f"and this xsem reads version {_VERSION}")
            return header
    raise UsageError("FILE", f"{name} is not a trace of xsem")


def _other_clock(one: dict[str, Any], two: dict[str, Any]) -> str | None:
    """Say what separates the clocks. Containers of one boot have names of their own, and one clock."""
    if one.get("boot") and one.get("boot") == two.get("boot"):
        return None
    if one.get("host") != two.get("host"):
        return f"hosts ({printable(str(one.get('host')))}, {printable(str(two.get('host')))})"
    return "boots" if one.get("boot") != two.get("boot") else None
