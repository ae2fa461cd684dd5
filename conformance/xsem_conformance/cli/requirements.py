"""``xsem conformance list`` and ``show``."""

from __future__ import annotations

import argparse
import dataclasses
from typing import Any

from xsem.cli.options import flag
from xsem.cli.status import DONE, UsageError
from xsem.cli.terminal import screen, wrap
from xsem_conformance import history, strength
from xsem_conformance.cli.reading import add_command, print_json, print_text
from xsem_conformance.profiles import Profile, profiles
from xsem_conformance.verdict import LEVELS

__all__ = ["add"]


def add(commands: Any) -> None:
    """Add the two commands."""
    parser = add_command(commands, "list", _list, "List all requirements, or those of an area or of a profile.")
    parser.add_argument("--area", default="", metavar="AREA", help="Only this area.")
    parser.add_argument("--profile", default="", metavar="PROFILE",
                        help="Only the areas of this profile: core, timeline, memory, full or portable.")
    parser = add_command(commands, "show", _show, "Show one requirement with its clauses and its check, or one profile "
                         "with its capabilities and areas.")
    parser.add_argument("name", metavar="ID|PROFILE", help="A requirement's id, or a profile.")


def _list(asked: argparse.Namespace) -> int:
    from xsem_conformance.requirements import AREAS, load

    area, profile = asked.area, asked.profile
    if area and area not in AREAS:
        raise UsageError("--area", f"{area!r} is not one of {', '.join(AREAS)}")
    known = profiles()
    if profile and profile not in known:
        raise UsageError("--profile", f"{profile!r} is not one of {', '.join(known)}")
    areas = known[profile].areas if profile else AREAS.keys()
    found = [each for each in load().requirements.values() if each.area in areas and area in ("", each.area)]
    if flag(asked, "json"):
        print_json({"schema": 1, "suite_version": history.SUITE_VERSION, "suites": history.load().suites,
                    "requirements": [_requirement(each) for each in found],
                    "gone": [{"id": name} | dataclasses.asdict(each) for name, each in history.load().gone.items()]})
        return DONE
    quiet = flag(asked, "quiet")
    to = screen()
    if found and not quiet:
        print(to.bold(f"{'requirement':16} {'level':6} {'check':6} text"))
    for each in found:
        row = each.id if quiet else f"{each.id:16} {each.level:6} {_CHECKED[_how(each)]:6} "
        print(row if quiet else "\n".join(wrap(each.text, to.width, first=row, later=" " * len(row))))
    if not quiet:
        checked = f"; {_LEGEND}" if found else ""
        print_text(f"{len(found)} requirements of suite {history.SUITE_VERSION}{checked}")
    return DONE


def _show(asked: argparse.Namespace) -> int:
    from xsem_conformance.requirements import load

    name, as_json = asked.name, flag(asked, "json")
    profile, requirement = profiles().get(name), load().requirements.get(name)
    found = profile or requirement
    if flag(asked, "quiet") and not as_json and found is not None:
        print(found.text)
    elif profile is not None:
        _show_profile(profile, as_json=as_json)
    elif requirement is None and name in history.load().gone:
        _show_gone(name, as_json=as_json)
    elif requirement is None:
        raise UsageError("ID", f"unknown requirement {name!r}, and not one of the profiles {', '.join(profiles())}; "
                         "run `xsem conformance list`")
    elif as_json:
        print_json({"schema": 1} | _requirement(requirement))
    else:
        _show_requirement(requirement)
    return DONE


# ---- a requirement
_CHECKED = {"facade": "facade", "run": "run", "none": "-"}
_LEGEND = "checked by a run of the suite, for the facade by xsem's own tests, or by nothing yet (-)"


def _how(requirement: Any) -> str:
    """Return the method of the check: "facade" for the tests of xsem, "run" for a run of the suite, or "none"."""
    from xsem_conformance.suite import all_checks

    return "facade" if requirement.subject == "facade" else "run" if requirement.id in all_checks() else "none"


def _requirement(requirement: Any) -> dict[str, Any]:
    """Return a requirement as data, with the gists of its clauses, its history and its strength."""
    from xsem_conformance.keys import possible
    from xsem_conformance.requirements import load

    clauses = load().clauses
    return dataclasses.asdict(requirement) | {
        "area": requirement.area, "checked": _how(requirement), "cases": possible(requirement),
        "since": history.load().past(requirement.id).since, "changed": history.load().past(requirement.id).changed,
        "finds": dataclasses.asdict(strength.load().get(requirement.id, strength.Strength())),
        "clauses": [{name: getattr(clauses[each], name) for name in ("id", "source", "gist")}
                    for each in requirement.clauses]}


def _show_requirement(found: Any) -> None:
    from xsem_conformance.requirements import load
    from xsem_conformance.suite import all_checks

    print_text(f"{found.id} ({found.level}, {found.subject}): {found.text}")
    if found.capability:
        words = " ($type is the handle type of the case)" if "$type" in found.capability else ""
        print_text(f"needs: {found.capability}{words}", 2)
    for name in found.clauses:
        clause = load().clauses[name]
        print_text(f"{clause.id}: {clause.gist} ({clause.source})", 2)
    check = all_checks().get(found.id)
    if check is not None:
        print_text(f"check: {check.run.__module__}.{check.run.__name__}, at most {check.deadline_s:g} s", 2)
        print_text(" ".join((check.run.__doc__ or "").split()), 4)
        print_text(strength.load().get(found.id, strength.Strength()).words, 2)
    past = history.load().past(found.id)
    print_text(f"since suite {past.since}"
               + "".join(f"; changed in suite {version}: {what}" for version, what in past.changed.items()), 2)


def _show_gone(name: str, *, as_json: bool) -> None:
    """Print what became of a requirement of an older suite."""
    gone = history.load().gone[name]
    if as_json:
        print_json({"schema": 1, "id": name} | dataclasses.asdict(gone))
    else:
        print_text(f"{name}: not in this suite; the last one with it is suite {gone.last}. {gone.reason}")


# ---- a profile
def _show_profile(profile: Profile, *, as_json: bool) -> None:
    from xsem_conformance.requirements import AREAS, load

    areas = []
    for name, meaning in AREAS.items():
        mine = [each for each in load().requirements.values() if each.area == name and each.subject != "facade"]
        if name in profile.areas:
            areas.append({"area": name, "name": meaning} | {
                level: sum(each.level == level for each in mine) for level in LEVELS})
    if as_json:
        print_json({"schema": 1, "profile": profile.name, "text": profile.text, "capabilities": profile.capabilities,
                    "areas": areas})
        return
    print_text(f"{profile.name}: {profile.text}")
    for choices in profile.capabilities:
        print_text(f"needs: {' or '.join(choices)}", 2)
    print_text("The device must meet each applicable MUST, and in each of these areas, at least one case must pass:", 2)
    print(f"  {'areas':8} {'':26} MUST SHOULD    MAY")
    for each in areas:
        print(f"  {each['area']:8} {each['name']:26} {each['MUST']:4} {each['SHOULD']:6} {each['MAY']:6}")
