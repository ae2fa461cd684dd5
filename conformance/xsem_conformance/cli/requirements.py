"""``xsem conformance list`` and ``show``."""

from __future__ import annotations

from typing import Annotated

import typer

__all__ = ["list_requirements", "show"]


def list_requirements(
    area: Annotated[str, typer.Option(help="Only this area.")] = "",
) -> None:
    """List all requirements."""
    from xsem_conformance.requirements import AREAS, load
    from xsem_conformance.suite import all_checks

    if area and area not in AREAS:
        raise typer.BadParameter(f"{area!r} is none of {', '.join(AREAS)}", param_hint="--area")
    checks = all_checks()
    for each in load().requirements.values():
        if area and each.area != area:
            continue
        how = "facade" if each.subject == "facade" else "run" if each.id in checks else "-"
        print(f"{each.id:16} {each.level:6} {how:6} {each.text}")


def show(requirement: str) -> None:
    """Show one requirement: its text, its clauses and its check."""
    from xsem_conformance.requirements import load
    from xsem_conformance.suite import all_checks

    loaded = load()
    found = loaded.requirements.get(requirement)
    if found is None:
        raise typer.BadParameter(f"unknown requirement {requirement!r}; run `xsem conformance list`", param_hint="ID")
    print(f"{found.id} ({found.level}, {found.subject}): {found.text}")
    if found.capability:
        print(f"  needs: {found.capability}")
    for name in found.clauses:
        clause = loaded.clauses[name]
        print(f"  {clause.id}: {clause.gist} ({clause.source})")
    check = all_checks().get(found.id)
    if check is not None:
        print(f"  check: {check.run.__module__}.{check.run.__name__}, at most {check.deadline_s:g} s")
        print(f"    {(check.run.__doc__ or '').strip()}")
