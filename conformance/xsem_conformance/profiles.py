"""Profiles: the capabilities that a device must declare, and the areas in which it must pass."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from importlib import resources

from xsem.types import Capabilities
from xsem_conformance.case.refusals import declared

__all__ = ["Profile", "profiles"]


@dataclass(frozen=True)
class Profile:
    """One profile."""

    name: str
    text: str
    capabilities: tuple[tuple[str, ...], ...]   # the device must declare one capability of each inner tuple
    # Each MUST of these areas that applies must pass, and at least one case of each area must have run.
    areas: frozenset[str]
    portable: bool = False   # only the portable types are tried, and the exporter may be any device

    def lacking(self, capabilities: Capabilities) -> list[str]:
        """Return the capabilities that the profile needs and the device does not declare, as messages."""
        return [f"profile {self.name}: declares none of {', '.join(choices)}" for choices in self.capabilities
                if not any(declared(capabilities, each) for each in choices)]


def profiles() -> dict[str, Profile]:
    """Return all profiles by name."""
    text = resources.files("xsem_conformance").joinpath("profiles.toml").read_text(encoding="utf-8")
    found: dict[str, Profile] = {}
    for name, fields in tomllib.loads(text).items():
        base = found.get(fields.get("includes", ""))
        choices = tuple(tuple(part.strip() for part in each.split("|")) for each in fields["capabilities"])
        found[name] = Profile(
            name, fields["text"], (base.capabilities if base else ()) + choices,
            frozenset(fields["areas"]) | (base.areas if base else frozenset()), fields.get("portable", False))
    return found
