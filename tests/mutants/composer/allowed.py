"""The survivors that are allowed, with their reasons: allowed.toml."""

from __future__ import annotations

import fnmatch
import tomllib
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

__all__ = ["FILE", "Allowed", "read", "reason", "stale", "unknown"]

FILE = Path(__file__).resolve().parents[1] / "allowed.toml"


@dataclass(frozen=True)
class Allowed:
    """Faults that the suite need not find.

    Attributes
    ----------
    faults : tuple of str
        Patterns of their names.
    reason : str
        Why a driver with such a fault may conform, or why the suite cannot see the fault.
    caught : tuple of str
        Patterns of faults that match `faults`, and that the suite finds.
    sometimes : bool
        Whether the suite finds these faults only in some runs.
    """

    faults: tuple[str, ...]
    reason: str
    caught: tuple[str, ...] = ()
    sometimes: bool = False

    def covers(self, name: str) -> bool:
        """Return whether a fault of this name is allowed."""
        return _matches(name, self.faults) and not _matches(name, self.caught)


def _matches(name: str, patterns: Iterable[str]) -> bool:
    # `[` begins no set: the names contain none.
    return any(fnmatch.fnmatchcase(name, each) for each in patterns)


def read(path: Path = FILE) -> list[Allowed]:
    """Return the entries of the file."""
    if not path.exists():
        return []
    entries = tomllib.loads(path.read_text(encoding="utf-8")).get("allowed", [])
    return [Allowed(tuple(each["faults"]), each["reason"], tuple(each.get("caught", ())),
                    each.get("sometimes", False)) for each in entries]


def reason(name: str, entries: Iterable[Allowed]) -> str:
    """Return the reason for a fault; empty without one."""
    return next((each.reason for each in entries if each.covers(name)), "")


def stale(name: str, entries: Iterable[Allowed]) -> bool:
    """Return whether a caught fault of this name has an outdated reason. A race can keep its reason."""
    return any(each.covers(name) and not each.sometimes for each in entries)


def unknown(entries: Iterable[Allowed], names: Iterable[str]) -> list[str]:
    """Return the patterns that match no fault."""
    known = list(names)
    return [pattern for each in entries for pattern in (*each.faults, *each.caught)
            if not any(fnmatch.fnmatchcase(name, pattern) for name in known)]
