"""Check the files that say what the requirements were and what they find: ``python tools/suite_data.py [--update]``.

Two files of the suite follow from others. history.toml has a digest of each requirement, so that a changed requirement
needs an entry of its history. strength.toml has the number of faults that each requirement finds.

Without an option, the tool prints what is out of date, and ends with 1 if anything is. ``--update`` writes both files.
A requirement that the current version of the suite already names as new or changed needs nothing more. For any other
changed requirement, also one whose check is stricter under the same text, say what changed, or that it means the same
as before::

    python tools/suite_data.py --update XSEM-OWN-008="exports are close-on-exec" --reworded XSEM-BIN-004

A removed requirement needs an entry in the table ``gone`` of history.toml, by hand.
"""

from __future__ import annotations

import argparse
import json
import sys
import tomllib
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "conformance")]

from xsem_conformance import history  # noqa: E402
from xsem_conformance.history import SUITE_VERSION, History, Past  # noqa: E402
from xsem_conformance.requirements import Requirement, load  # noqa: E402

SUITE: Final = ROOT / "conformance" / "xsem_conformance"
HISTORY: Final = SUITE / "history.toml"
STRENGTH: Final = SUITE / "strength.toml"
MUTANTS: Final = ROOT / "tests" / "mutants"

_OF_HISTORY: Final = """\
# The history of the requirements. Written by `tools/suite_data.py --update`, except for the tables `suites` and `gone`.
# `since`: the version of the suite in which the requirement came. `changed`: what each later version changed.
# `gone`: the requirements that the suite no longer has: {last = 2, reason = "covered by XSEM-BIN-004"}.
"""
_OF_STRENGTH: Final = """\
# How many faults each requirement finds, of those in tests/mutants. Written by `tools/suite_data.py --update`.
# `planted`: drivers with one fault each, under which the requirement fails. `alone`: those that only it finds.
# `composed`: faults composed from the driver interface that the requirement found first; a run stops at the first.
"""


# ---- history
def outdated(known: History, requirements: Mapping[str, Requirement]) -> dict[str, str]:
    """Return the requirements whose history is out of date, each with what is wrong: "new", "changed" or "gone"."""
    found = {}
    for name, each in requirements.items():
        past = known.requirements.get(name)
        if past is None:
            found[name] = "new"
        elif past.digest != history.digest(each):
            found[name] = "changed"
    return found | {name: "gone" for name in known.requirements if name not in requirements}


def renewed(
    known: History, requirements: Mapping[str, Requirement], clauses: Mapping[str, str], reworded: Sequence[str]
) -> tuple[History, list[str]]:
    """Return the history of these requirements, and the requirements that need a clause or an entry by hand."""
    wrong, made = outdated(known, requirements), dict[str, Past]()
    need = [name for name, why in wrong.items() if why == "gone" and name not in known.gone]
    made |= {name: known.requirements[name] for name in need}
    for name, each in requirements.items():
        past = known.past(name)
        changed = dict(past.changed)
        if name in clauses and past.since < SUITE_VERSION:   # a new requirement has not changed
            changed[SUITE_VERSION] = clauses[name]
        told = name in reworded or past.since == SUITE_VERSION or SUITE_VERSION in changed
        if wrong.get(name) == "changed" and not told:
            need.append(name)
            made[name] = past
        else:
            made[name] = Past(past.since, history.digest(each), changed)
    return History(known.suites, made, known.gone), need


def history_text(known: History) -> str:
    """Return the content of history.toml."""
    lines = [_OF_HISTORY, "[suites]", *(f"{version} = {_quoted(text)}" for version, text in known.suites.items()), "",
             "[gone]", *(f"{name} = {{last = {each.last}, reason = {_quoted(each.reason)}}}"
                         for name, each in known.gone.items()), "", "[requirements]"]
    for name, each in known.requirements.items():
        changed = ", ".join(f"{version} = {_quoted(what)}" for version, what in each.changed.items())
        lines.append(f'{name} = {{since = {each.since}, digest = "{each.digest}"'
                     + (f", changed = {{{changed}}}" if changed else "") + "}")
    return "\n".join(lines) + "\n"


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)   # a string of JSON is a string of TOML


# ---- strength
def strength_text(planted: Mapping[str, frozenset[str]], composed: Sequence[str], names: Sequence[str]) -> str:
    """Return the content of strength.toml, from the finders of each planted fault and the finder of each composed one.

    A requirement that finds no fault has no row.
    """
    finds = Counter(name for found in planted.values() for name in found)
    alone = Counter(name for found in planted.values() if len(found) == 1 for name in found)
    first = Counter(composed)
    rows = [f"{name} = {{planted = {finds[name]}, alone = {alone[name]}, composed = {first[name]}}}"
            for name in names if finds[name] or first[name]]
    return "\n".join([_OF_STRENGTH, *rows]) + "\n"


def planted_faults() -> dict[str, frozenset[str]]:
    """Return the requirements that find each planted fault in every run."""
    read = tomllib.loads((MUTANTS / "table.toml").read_text(encoding="utf-8"))
    return {f"{family}/{fault}": frozenset(row["fails"]) for family, faults in read.items()
            for fault, row in faults.items()}


def composed_faults() -> list[str]:
    """Return the requirement that found each composed fault first."""
    return list(tomllib.loads((MUTANTS / "composed.toml").read_text(encoding="utf-8"))["caught"].values())


# ---- both
def problems(known: History) -> list[str]:
    """Return a line for each thing that is out of date."""
    requirements = load().requirements
    found = [f"history.toml: {name} is {why}" for name, why in outdated(known, requirements).items()]
    text = STRENGTH.read_text(encoding="utf-8") if STRENGTH.exists() else ""
    if text != strength_text(planted_faults(), composed_faults(), list(requirements)):
        found.append("strength.toml differs from tests/mutants/table.toml and composed.toml")
    return found


def update(known: History, clauses: Mapping[str, str], reworded: Sequence[str]) -> list[str]:
    """Write both files; return a line for each requirement that still needs an entry."""
    requirements = load().requirements
    made, need = renewed(known, requirements, clauses, reworded)
    HISTORY.write_text(history_text(made), encoding="utf-8")
    STRENGTH.write_text(strength_text(planted_faults(), composed_faults(), list(requirements)), encoding="utf-8")
    return [f'history.toml: {name} has changed: --update {name}="what changed", or --reworded {name}'
            if name in requirements else f"history.toml: {name} is gone: add it to the table [gone], with the reason"
            for name in need]


def main(arguments: Sequence[str]) -> int:
    """Check or write the files; return 1 if one is out of date."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--update", nargs="*", metavar="ID=CLAUSE", help="Write both files.")
    parser.add_argument("--reworded", nargs="+", default=[], metavar="ID", help="The same meaning in other words.")
    asked = parser.parse_args(arguments)
    known = history.read(HISTORY.read_text(encoding="utf-8"))
    pairs = [each.partition("=") for each in asked.update or ()]
    for name in (*(each[0] for each in pairs), *asked.reworded):
        if name not in load().requirements:
            parser.error(f"unknown requirement {name!r}")
    if any(not clause.strip() for _, _, clause in pairs):
        parser.error("each clause is given as ID=CLAUSE")
    if asked.update is None:
        found = problems(known)
    else:
        found = update(known, {name: clause for name, _, clause in pairs}, asked.reworded)
    print("\n".join(found) or "history.toml and strength.toml are up to date")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
