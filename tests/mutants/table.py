"""The committed table, table.toml: the requirements that fail under each mutant, and the runs that confirm it."""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from catalogue import FAMILIES
from composer import listed

__all__ = ["Row", "composed", "few", "musts", "read", "write"]

FILE = Path(__file__).resolve().parent / "table.toml"
MADE_FOR = {"XSEM-IMP-001": ("host/imported_semaphore_is_another", "host/imported_memory_is_another")}
"""Requirements that every broad fault fails, such as a crash, with the mutants that have only this fault."""
LEAST = 2
"""How many of its requirements a mutant is run with at least in the short form: one may miss it by a race."""


@dataclass(frozen=True)
class Row:
    """Requirements that fail under one mutant.

    Attributes
    ----------
    fails : frozenset of str
        Requirements of which a case failed in every run.
    sometimes : frozenset of str
        Requirements of which a case failed in some runs: a race decides.
    """

    fails: frozenset[str] = frozenset()
    sometimes: frozenset[str] = frozenset()

    def seen(self, failed: Iterable[str]) -> Row:
        """Return this row after one more run."""
        now = frozenset(failed)
        return Row(self.fails & now, self.sometimes | (self.fails ^ now) - (self.fails & now))


def read(path: Path = FILE) -> dict[str, Row]:
    """Return the rows by the name of the mutant."""
    if not path.exists():
        return {}
    rows = {}
    for family, faults in tomllib.loads(path.read_text(encoding="utf-8")).items():
        for fault, row in faults.items():
            rows[f"{family}/{fault}"] = Row(frozenset(row["fails"]), frozenset(row.get("sometimes", ())))
    return rows


def write(rows: Mapping[str, Row], texts: Mapping[str, str], path: Path = FILE) -> None:
    """Write the rows, each under the text of its fault."""
    lines = ["# Requirements that fail under each mutant. Written by `run.py --write-table`, not by hand.",
             "# `sometimes`: a race decides. If `fails` is empty, only the profile fails."]
    for family in FAMILIES:
        for name in (each for each in texts if each in rows and each.startswith(family + "/")):
            fault = name.partition("/")[2]
            lines += ["", f"# {texts[name]}", f"[{family}.{fault}]", *_array("fails", rows[name].fails)]
            if rows[name].sometimes:
                lines += _array("sometimes", rows[name].sometimes)
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")


def _array(name: str, values: Iterable[str]) -> list[str]:
    lines, line = [], f"{name} = ["
    for value in sorted(values):
        part = f'"{value}", '
        if len(line) + len(part) > 118:
            lines.append(line.rstrip())
            line = "    "
        line += part
    return [*lines, line.rstrip(", ") + "]"]


def musts() -> set[str]:
    """Return the MUSTs of a device or backend that have a check."""
    from xsem_conformance.requirements import load
    from xsem_conformance.suite import all_checks

    checks = all_checks()
    return {name for name, each in load().requirements.items() if each.level == "MUST" and name in checks}


def composed() -> set[str]:
    """Return the requirements that found a composed fault first, by the last known results."""
    return set(listed.read().caught.values())


def few(rows: Mapping[str, Row], needed: Iterable[str]) -> dict[str, set[str]]:
    """Return the short form: a few requirements for each mutant, so that each needed one fails at least once.

    Each requirement goes to the mutant under which the fewest requirements fail: this mutant is the most specific
    and the fastest. A requirement in `MADE_FOR` goes to its own mutants. A mutant with fewer than `LEAST` gets more of
    its row.
    """
    parts: dict[str, set[str]] = {name: set() for name, row in rows.items() if row.fails}
    families = list(FAMILIES)
    for requirement in sorted(needed):
        able = [name for name in parts if requirement in rows[name].fails]
        made = [name for name in able if name in MADE_FOR.get(requirement, ())]
        for name in made:
            parts[name].add(requirement)
        if able and not made:
            parts[min(able, key=lambda name: (families.index(name.partition("/")[0]) > 0, len(rows[name].fails), name))
                  ].add(requirement)
    for name, part in parts.items():
        for requirement in sorted(rows[name].fails):
            if len(part) < LEAST:
                part.add(requirement)
    return parts
