"""The committed results of the composed faults: composed.toml."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

__all__ = ["FILE", "Listed", "merged", "read", "write"]

FILE = Path(__file__).resolve().parents[1] / "composed.toml"


@dataclass
class Listed:
    """The last known result of each fault.

    Attributes
    ----------
    caught : dict of str to str
        The faults that the suite found, each with the requirement or the part of the run that found it.
    survived : list of str
        The faults that the suite did not find. allowed.toml has a reason for each.
    not_run : list of str
        The faults that no run has tried.
    """

    caught: dict[str, str] = field(default_factory=dict)
    survived: list[str] = field(default_factory=list)
    not_run: list[str] = field(default_factory=list)

    @property
    def names(self) -> list[str]:
        """All faults, each as often as it occurs."""
        return [*self.caught, *self.survived, *self.not_run]


def read(path: Path = FILE) -> Listed:
    """Return the content of the file; an empty list without a file."""
    if not path.exists():
        return Listed()
    found = tomllib.loads(path.read_text(encoding="utf-8"))
    return Listed(found["caught"], found["survived"]["faults"], found["not_run"]["faults"])


def merged(old: Listed, results: Mapping[str, str], faults: Iterable[str]) -> Listed:
    """Return the list of these faults.

    Parameters
    ----------
    old : Listed
        The list so far. It decides for faults without a result.
    results : mapping of str to str
        For each fault that was tried, the key of the case that found it; empty for a survivor.
    faults : iterable of str
        All faults. Others leave the list.
    """
    made = Listed()
    for name in sorted(faults):
        if name in results:
            found = results[name].partition("/")[0]
        elif name in old.caught:
            found = old.caught[name]
        elif name in old.survived:
            found = ""
        else:
            made.not_run.append(name)
            continue
        if found:
            made.caught[name] = found
        else:
            made.survived.append(name)
    return made


def _count(listed: Listed) -> str:
    return (f"{len(listed.names)} faults: {len(listed.caught)} caught, {len(listed.survived)} survived, "
            f"{len(listed.not_run)} not run")


def write(listed: Listed, path: Path = FILE) -> None:
    """Write the file."""
    lines = ["# The last known result of each composed fault. Written by `compose.py --write-list`, not by hand.",
             f"# {_count(listed)}.", "", "# The requirement that found the fault first.", "[caught]"]
    lines += [f"{json.dumps(name)} = {json.dumps(found)}" for name, found in listed.caught.items()]
    for title, text, names in (("survived", "allowed.toml has a reason for each.", listed.survived),
                               ("not_run", "No run has tried these.", listed.not_run)):
        lines += ["", f"# {text}", f"[{title}]", "faults = [", *(f"    {json.dumps(name)}," for name in names), "]"]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
